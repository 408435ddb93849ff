"""The commands that bring states back: restore (also chosen from the timeline), revert, undo, redo, rollback."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from shadowsnap.agents.slash import RollbackCommand
from shadowsnap.cli.commands import Command, Context
from shadowsnap.cli.plans import (
    add_plan_options,
    carry_out,
    exchanged_in_words,
    headline,
    numbers_of,
    plan_lines,
    show_patch,
)
from shadowsnap.cli.tables import (
    check_held,
    entry_text,
    now_text,
    short_path,
    state_in_words,
    timeline_lines,
    way_back_text,
)
from shadowsnap.cli.text import ago, count, cut, one_line, safe
from shadowsnap.errors import ShadowsnapError, WrongUsage
from shadowsnap.model import Entry, RestoreResult


class RestoreCommand(Command):
    """Bring the files back to a state: all of them, or some paths.

    `restore 3` goes back to before turn 3. What is there now is saved first, so undo takes it back. Files that the
    state could not know (ignored, too large, secret) are kept. On a terminal the plan is shown and you are asked;
    elsewhere --yes is needed. Without REF you choose from the timeline.
    """

    name = "restore"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", nargs="?", help="a number of the list, 3:after, a label, an id")
        parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files and directories")
        parser.add_argument("--plan", metavar="TOKEN", help="carry out a plan that a program proposed")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
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
            return exchanged_in_words(
                *context.manager.exchanged(context.workdir, target.id), now.files_changed or 0
            )

        return carry_out(
            context,
            args,
            operation,
            verb="restoring",
            title=lambda plan: (
                f"restore {short_path(context.workdir)} to {name} ({ago(target.created_at)}): {about}"
            ),
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


def _pick(context: Context) -> str | None:
    if not context.ui.interactive:
        problem = WrongUsage(why="which state? REF is missing, and this is no terminal to ask on")
        problem.hint = "shadowsnap list shows the numbers"
        raise problem
    return pick(context)


class RevertCommand(Command):
    """Take out what one turn or session did and keep all other edits.

    The changes are taken out of the files as they are now. Where the same lines were changed since, the file is a
    conflict and left alone (the exit code is 1 then), unless --on-conflict says otherwise: markers writes both
    sides into the file, theirs takes the state before the turn. Asks like restore, and undo takes it back.
    """

    name = "revert"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("number", metavar="N", type=int, nargs="?", help="the turn of this number")
        parser.add_argument("--turn", metavar="N", type=int, help="the same")
        parser.add_argument("--session", metavar="ID", help="every turn of this session; a part of its id will do")
        parser.add_argument(
            "--on-conflict",
            choices=("keep", "markers", "theirs"),
            default="keep",
            help="what becomes of a conflict",
        )
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        turn = args.number if args.number is not None else args.turn
        if (turn is None) == (args.session is None):
            raise WrongUsage(why="give the number of a turn, or --session")
        conflicts: list[object] = []

        def operation(dry_run: bool, paths: Sequence[str]) -> RestoreResult:
            result = context.manager.revert(context.workdir, turn, args.session, dry_run, args.on_conflict)
            if args.dry_run or not dry_run:  # a plan that is declined is no failure
                conflicts[:] = result.conflicts
            return result

        def done(result: RestoreResult) -> str:
            if not (result.written or result.deleted or result.conflicts):
                return f"nothing to revert: no trace of {one_line(result.what)} is left"
            return headline("took out", result, context)

        carry_out(
            context,
            args,
            operation,
            verb="reverting",
            title=lambda plan: f"from {short_path(context.workdir)}, take out {one_line(plan.what)}",
            done=done,
            back="undo",
        )
        return 1 if conflicts and args.on_conflict == "keep" else 0


class UndoCommand(Command):
    """Take back the last thing that happened: a turn, restore, revert.

    Again takes back the one before it; redo goes forward. A turn is taken back exactly if nothing was edited
    since, else by a merge that keeps the edits; where both changed the same lines, the file is a conflict and left
    alone (the exit code is 1 then). Asks like restore.
    """

    name = "undo"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        conflicts: list[object] = []

        def operation(dry_run: bool, paths: Sequence[str]) -> RestoreResult:
            result = context.manager.undo(context.workdir, dry_run)
            if args.dry_run or not dry_run:  # a plan that is declined is no failure
                conflicts[:] = result.conflicts
            return result

        carry_out(
            context,
            args,
            operation,
            verb="undoing",
            title=lambda plan: f"in {short_path(context.workdir)}, undo {one_line(plan.what)}",
            done=lambda result: headline("took back", result, context),
            back="redo",
        )
        return 1 if conflicts else 0


class RedoCommand(Command):
    """Take the last undo back."""

    name = "redo"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        def operation(dry_run: bool, paths: Sequence[str]) -> RestoreResult:
            return context.manager.redo(context.workdir, dry_run)

        return carry_out(
            context,
            args,
            operation,
            verb="redoing",
            title=lambda plan: f"in {short_path(context.workdir)}, redo {one_line(plan.what)}",
            done=lambda result: headline("brought back", result, context),
            back="undo",
        )


class TypedRollbackCommand(Command):
    """Answer one line of /rollback for a chat program.

    Made for programs that can only run commands. It never asks: a rollback can itself be taken back. The answer
    also says what is wrong with a line, and the exit code is 0 then too: agents hide the output of a command that
    fails. `shadowsnap rollback help` has the whole grammar.
    """

    name = "rollback"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", metavar="WORD", nargs="*", help="what follows /rollback in the chat")
        parser.add_argument("--chat", action="store_true", help="bring back the conversation, and leave the files")
        parser.add_argument("--files", action="store_true", help="bring back the files (this is the default)")
        parser.add_argument("--both", action="store_true", help="bring back files and conversation")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        # Some programs hand over the line as one word.
        line = args.words[0] if len(args.words) == 1 else shlex.join(args.words)
        line += "".join(f" --{part}" for part in ("chat", "files", "both") if getattr(args, part))
        answer = RollbackCommand(context.manager, context.workdir).run(line)
        return context.ui.answer(answer.to_dict(), str(answer))


_QUESTION = "go back to before which turn? [now]  (/text finds, d N previews, ? helps) "
_HELP = """\
  3        go back to before turn 3; of a snapshot, to it
  3:after  go to the end of turn 3
  /text    show only what has this text; / alone shows everything again
  d 3      show what going back to before turn 3 would do to the files
  Enter    leave everything as it is"""
_AROUND = 5
"""Lines that the picker needs besides the rows."""
_MOST_OF_PATCH = 60


def pick(context: Context) -> str | None:
    """A reference; None for leaving everything as it is, which is what Enter alone means."""
    ui, manager = context.ui, context.manager
    with context.working("looking at the files"):
        now = now_text(manager.now(context.workdir))
        entries = [entry for entry in manager.timeline(context.workdir) if entry.number is not None]
        rows = manager.ways_back(context.workdir, [entry for entry in entries if entry.state is not None])
    _show(context, rows, now)
    while True:
        answer = ui.ask(_QUESTION)
        if answer in ("", "0", "now", "@", "q"):
            return None
        if answer == "?":
            ui.say(_HELP)
        elif answer.startswith("/"):
            wanted = answer[1:].strip().casefold()
            _show(context, [entry for entry in rows if wanted in entry_text(entry).casefold()], now)
        elif answer == "d" or answer.startswith("d "):
            _preview(context, answer[1:].strip() or "last")
        elif _is_state(context, answer):
            return answer


def _show(context: Context, rows: Sequence[Entry], now: str) -> None:
    """The rows that fit on the screen, each with what going back to it would do now."""
    ui = context.ui
    shown = rows[: max(5, ui.height - _AROUND)]
    ui.say(cut(f"  @            (now) leave everything as it is: {now}", ui.width))
    for line in timeline_lines(shown, None, ui.width, ui.talk_ink, changes=way_back_text):
        ui.say(line)
    hidden = f", the newest {len(shown)} are shown; /text finds the others" if len(shown) < len(rows) else ""
    ui.say(f"{count(len(rows), 'row')}{hidden}")


def _is_state(context: Context, word: str) -> bool:
    try:
        context.checkpoint(word)
    except ShadowsnapError as problem:
        context.ui.say(safe(str(problem)))
        return False
    return True


def _preview(context: Context, word: str) -> None:
    """What going back would do to the files as they are now."""
    ui = context.ui
    try:
        target = context.checkpoint(word)
        plan = context.manager.restore(context.workdir, target.id, dry_run=True)
    except ShadowsnapError as problem:
        ui.say(safe(str(problem)))
        return
    for line in plan_lines(plan, context, ui.talk_ink):
        ui.say(line)
    show_patch(context, plan, _MOST_OF_PATCH)
