"""Let the limits drop checkpoints again."""

from __future__ import annotations

import argparse

from shadowsnap.cli.commands.pin import GROUP, add_arguments, set_pins
from shadowsnap.cli.context import Context

__all__ = ["GROUP", "add_arguments", "run"]


def run(args: argparse.Namespace, context: Context) -> int:
    return set_pins(args.refs, context, pinned=False)
