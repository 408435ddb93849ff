"""Take back the last thing that happened: a restore, a revert, or a turn.

Again takes back the one before it; redo goes forward. A turn is taken back exactly if nothing was edited since,
else by a merge that keeps the edits. Asks like restore.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out, numbers_of
from shadowsnap.cli.text import one_line, safe

if TYPE_CHECKING:
    from shadowsnap.model import RestoreResult

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    def operation(dry_run: bool, paths: Sequence[str]) -> RestoreResult:
        return context.manager.undo(context.workdir, dry_run)

    return carry_out(
        context,
        args,
        operation,
        title=lambda plan: f"undo {one_line(plan.what)} in {safe(str(context.workdir))}",
        done=lambda result: f"took back {one_line(result.what)}: {numbers_of(result)}",
        back="redo",
    )
