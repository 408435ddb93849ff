"""Return to the state before the last restore.

Again and again: each undo goes one restore further back; redo goes forward. Asks like restore.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    return carry_out(
        context, args, lambda dry_run: context.manager.undo(context.workdir, dry_run), name="undo", back="redo"
    )
