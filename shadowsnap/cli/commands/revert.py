"""Take out what one turn or session did and keep all other edits.

The changes are undone in the files as they are now. Where somebody else changed the same lines
since, the file is in dispute and left alone (the exit code is 1 then), unless --on-conflict says
otherwise: markers writes both sides into the file, theirs takes the state before the turn. `show`
and the list tell the numbers of turns. Asks like restore, and undo takes it back.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import RestoreResult

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--turn", metavar="N", type=int, help="the turn of this number")
    parser.add_argument("--session", metavar="ID", help="every turn of this session")
    parser.add_argument(
        "--on-conflict", choices=("keep", "markers", "theirs"), default="keep", help="what becomes of a dispute"
    )
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    if (args.turn is None) == (args.session is None):
        raise WrongUsage(why="give either --turn or --session")
    disputes: list[object] = []

    def deed(dry_run: bool) -> RestoreResult:
        result = context.manager.revert(context.workdir, args.turn, args.session, dry_run, args.on_conflict)
        disputes[:] = result.conflicts
        return result

    work = f"turn {args.turn}" if args.session is None else f"session {args.session}"
    carry_out(context, args, deed, name="revert", back="undo", work=work)
    return 1 if disputes and args.on_conflict == "keep" else 0
