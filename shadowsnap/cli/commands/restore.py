"""Bring the files back to a state: all of them, or some paths.

`restore 3` goes back to before turn 3. What is there now is saved first, so undo takes it back. Files that the
state could not know (ignored, too large, secret) are kept. On a terminal the plan is shown and you are asked;
elsewhere --yes is needed. Without REF you choose from the timeline.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out, exchanged_in_words, numbers_of
from shadowsnap.cli.states import check_held, short_path, state_in_words
from shadowsnap.cli.text import ago
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import RestoreResult

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", nargs="?", help="a number of the list, 3:after, a label, an id")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files and directories")
    parser.add_argument("--plan", metavar="TOKEN", help="carry out a plan that a program proposed")
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    if args.plan is not None:
        return _as_planned(args, context)
    word = args.ref if args.ref is not None else _pick(context)
    if word is None:
        context.ui.say("everything is left as it is")
        return context.ui.answer({"cancelled": True})
    target, paths = context.checkpoint(word), context.paths(args.paths)
    name, about = state_in_words(word, target, context.manager.timeline(context.workdir))
    if paths:
        check_held(context.manager, context.workdir, target, word, paths)

    def operation(dry_run: bool, chosen: Sequence[str]) -> RestoreResult:
        return context.manager.restore(context.workdir, target.id, chosen, dry_run=dry_run)

    def done(result: RestoreResult) -> str:
        if not (result.written or result.deleted):
            return f"nothing to restore: the files are as {name}"
        return f"restored to {name}: {numbers_of(result)}"

    def also() -> list[str]:
        if paths:
            return []
        now = context.manager.now(context.workdir)
        return exchanged_in_words(*context.manager.exchanged(context.workdir, target.id), now.files_changed or 0)

    return carry_out(
        context,
        args,
        operation,
        verb="restoring",
        title=lambda plan: f"restore {short_path(context.workdir)} to {name} ({ago(target.created_at)}): {about}",
        done=done,
        back="undo",
        paths=paths,
        also=also,
        selectable=True,
    )


def _as_planned(args: argparse.Namespace, context: Context) -> int:
    """A plan's token is the person's yes; on a terminal they see the plan first."""
    if args.ref is not None:
        raise WrongUsage(why="--plan says what is restored: REF and PATH do not go with it")
    args.yes = args.yes or not context.ui.interactive

    def operation(dry_run: bool, chosen: Sequence[str]) -> RestoreResult:
        return context.manager.restore_as_planned(context.workdir, args.plan, dry_run=dry_run)

    return carry_out(
        context,
        args,
        operation,
        verb="restoring",
        title=lambda plan: f"restore {short_path(context.workdir)} to {plan.target.short_id}, as planned",
        done=lambda result: f"restored to {result.target.short_id}, as planned",
        back="undo",
    )


# --- the picker --------------------------------------------------------------------------------------


def _pick(context: Context) -> str | None:
    if not context.ui.interactive:
        problem = WrongUsage(why="which state? REF is missing, and this is no terminal to ask on")
        problem.hint = "shadowsnap list shows the numbers"
        raise problem
    from shadowsnap.cli.picker import pick

    return pick(context)
