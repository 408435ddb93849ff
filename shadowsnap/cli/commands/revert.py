"""Take out what one turn or session did and keep all other edits.

The changes are taken out of the files as they are now. Where the same lines were changed since, the file is a
conflict and left alone (the exit code is 1 then), unless --on-conflict says otherwise: markers writes both sides
into the file, theirs takes the state before the turn. Asks like restore, and undo takes it back.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out, headline
from shadowsnap.cli.states import short_path
from shadowsnap.cli.text import one_line
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import RestoreResult

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", metavar="N", type=int, nargs="?", help="the turn of this number")
    parser.add_argument("--turn", metavar="N", type=int, help="the same")
    parser.add_argument("--session", metavar="ID", help="every turn of this session; a part of its id will do")
    parser.add_argument(
        "--on-conflict", choices=("keep", "markers", "theirs"), default="keep", help="what becomes of a conflict"
    )
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
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
