"""Take back the last thing that happened: a turn, restore, revert.

Again takes back the one before it; redo goes forward. A turn is taken back exactly if nothing was edited since,
else by a merge that keeps the edits; where both changed the same lines, the file is a conflict and left alone
(the exit code is 1 then). Asks like restore.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out, headline
from shadowsnap.cli.states import short_path
from shadowsnap.cli.text import one_line

if TYPE_CHECKING:
    from shadowsnap.model import RestoreResult

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
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
