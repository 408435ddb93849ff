"""Restore the last safe state of another machine and go on with it.

LANE is an id from `lanes`, a part of it, or the name of its machine. In a checkout of the same project the files
are restored here: the plan is shown, what is there is saved first, and undo takes it back. Elsewhere a new
directory is made. DIR names another place. From then on this project has a lane of its own, which knows where it
came from.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.commands.lanes import add_key_option, key_file
from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import careful, numbers_of
from shadowsnap.cli.text import ago, count, one_line, safe
from shadowsnap.cli.ui import working
from shadowsnap.errors import NotConfirmed

if TYPE_CHECKING:
    from shadowsnap.model import Resumed

GROUP = "other machines"

_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lane", metavar="LANE", help="the lane: its id, a part of it, or its machine")
    parser.add_argument("directory_to_fill", metavar="DIR", nargs="?", help="where to restore to")
    parser.add_argument("--remote", metavar="URL", help="where the lane is; this project's remote if left out")
    add_key_option(parser)
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would happen and change nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    if args.dry_run or not args.yes:
        plan = _resume(args, context, dry_run=True)
        if args.dry_run:
            return ui.answer({**plan.to_dict(), "dry_run": True}, _plan_lines(plan))
        if not _agreed(plan, context):
            ui.say("cancelled; nothing was changed")
            return ui.answer({"cancelled": True})
    with careful():
        done = _resume(args, context, dry_run=False)
    if done.result.note:
        ui.say(safe(done.result.note))
    return ui.answer(done.to_dict(), _done_lines(done))


def _resume(args: argparse.Namespace, context: Context, *, dry_run: bool) -> Resumed:
    from shadowsnap.remote.storage import normal_url

    folder = args.directory_to_fill
    with working(context.ui, "fetching the lane"):
        return context.manager.resume(
            args.lane,
            None if folder is None else os.path.join(context.here, os.path.expanduser(folder)),
            url=None if args.remote is None else normal_url(args.remote, context.here),
            working_dir=context.workdir,
            key=key_file(args, context),
            dry_run=dry_run,
        )


def _agreed(plan: Resumed, context: Context) -> bool:
    result = plan.result
    if plan.new or not (result.written or result.deleted):
        return True  # nothing is overwritten
    if not context.ui.interactive:
        would = f"this would write {count(len(result.written), 'path')} and delete {len(result.deleted)}"
        raise NotConfirmed(why=f"{would} in {plan.workdir}, and this is no terminal to ask on")
    for line in _plan_lines(plan):
        context.ui.say(line)
    return context.ui.ask("go ahead? [y]es [N]o ").lower() in ("y", "yes")


def _plan_lines(plan: Resumed) -> Iterator[str]:
    yield f"resume {_what(plan)} in {safe(plan.workdir)}{' (a new directory)' if plan.new else ''}"
    for verb, paths in (("written", plan.result.written), ("deleted", plan.result.deleted)):
        yield from (f"  is {verb}  {safe(path)}" for path in paths[:_SHOWN])
        if len(paths) > _SHOWN:
            yield f"  is {verb}  ... and {len(paths) - _SHOWN} more"
    yield from _facts(plan)


def _done_lines(done: Resumed) -> Iterator[str]:
    yield f"resumed {_what(done)} in {safe(done.workdir)}: {numbers_of(done.result)}"
    yield from _facts(done)
    where = shlex.quote(done.workdir)
    for session in done.sessions:
        yield f"the conversation came with it: shadowsnap -C {where} sessions show {safe(session)} --chat"
    if done.result.undo_id:
        yield f"to take it back: shadowsnap -C {where} undo"


def _what(plan: Resumed) -> str:
    return f"{safe(plan.project)} from {safe(plan.machine)}, {one_line(plan.state)} ({ago(plan.captured_at)})"


def _facts(plan: Resumed) -> Iterator[str]:
    """What is missing, and what the state is based on."""
    if plan.missing:
        reasons = Counter(item.why for item in plan.missing)
        told = ", ".join(f"{number} {why}" for why, number in sorted(reasons.items()))
        shown = ", ".join(one_line(item.path) for item in plan.missing[:5])
        yield f"not in it: {told} ({shown}{' ...' if len(plan.missing) > 5 else ''}), and what is ignored there"
    else:
        yield "not in it: what is ignored there"
    if plan.commit:
        branch = f" ({safe(plan.branch)})" if plan.branch else ""
        yield f"based on commit {safe(plan.commit[:12])}{branch}"
        if plan.commit_here and plan.commit_here != plan.commit:
            yield f"this checkout is at {safe(plan.commit_here[:12])}: its history was not touched"
        elif plan.new:
            yield "the repository itself is not part of a lane: clone it if you need its history"
