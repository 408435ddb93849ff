"""Take the last undo back."""

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
