"""Take the last undo back.

A new checkpoint of changed files ends what can be redone. Asks like restore.
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
        context, args, lambda dry_run: context.manager.redo(context.workdir, dry_run), name="redo", back="undo"
    )
