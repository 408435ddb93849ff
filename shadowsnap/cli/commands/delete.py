"""Drop checkpoints for good.

Every other checkpoint stays what it is, and so do your files. A pinned one has to be unpinned
first. On a terminal you are asked; elsewhere --yes is needed.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count
from shadowsnap.cli.timeline import described
from shadowsnap.errors import PinnedCheckpoint

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("refs", metavar="ID", nargs="+", help="the checkpoints")
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    chosen = {checkpoint.id: checkpoint for checkpoint in map(context.checkpoint, args.refs)}
    for checkpoint in chosen.values():
        if checkpoint.pinned:
            raise PinnedCheckpoint(ref=checkpoint.short_id)
    if not args.yes:
        number = count(len(chosen), "checkpoint")
        plan = [f"  {checkpoint.short_id}  {described(checkpoint)}" for checkpoint in chosen.values()]
        ui.confirm(f"delete {number} for good?", plan, f"{number} would be gone")
    gone = context.manager.delete(context.workdir, list(chosen))
    return ui.answer(
        {"deleted": [checkpoint.to_dict() for checkpoint in gone]},
        [f"deleted {checkpoint.short_id}  {described(checkpoint)}" for checkpoint in gone],
    )
