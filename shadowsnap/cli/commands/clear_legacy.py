"""Remove what older tools left in the store's directory.

Their repositories were archived there, and their checkpoints imported, on first use. On a terminal
you are asked; elsewhere --yes is needed.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.commands.clear import clear_out
from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    return clear_out(context, args, context.manager.clear_legacy, "these archives")
