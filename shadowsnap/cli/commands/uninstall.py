"""Take the hook out of an agent's settings again.

If a file was not changed otherwise since it was put in, it is again what it was before, byte for
byte. Checkpoints stay.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.commands.install import add_settings_options, tell_changes
from shadowsnap.cli.context import Context

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.agents.install import uninstall

    changes = uninstall(args.agent, context.workdir if args.project else None, dry_run=args.dry_run)
    return tell_changes(context, args, changes, "uninstalled", "not installed")
