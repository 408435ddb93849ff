"""Drop checkpoints for good.

Every other checkpoint stays what it is, and so do your files. A pinned one has to be unpinned
first. Upkeep reclaims the space later; with --now, what no checkpoint holds any more is gone from the
disk at once. On a terminal you are asked; elsewhere --yes is needed.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import described
from shadowsnap.cli.text import count, safe, size
from shadowsnap.cli.ui import working
from shadowsnap.errors import PinnedCheckpoint

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("refs", metavar="REF", nargs="+", help="the states: numbers of the list, labels, ids")
    parser.add_argument("--now", action="store_true", help="reclaim the space at once")
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    chosen = {checkpoint.id: checkpoint for checkpoint in map(context.checkpoint, args.refs)}
    for checkpoint in chosen.values():
        if checkpoint.pinned:
            raise PinnedCheckpoint(ref=checkpoint.short_id)
    if not args.yes:
        number = count(len(chosen), "checkpoint")
        plan = [f"  {checkpoint.short_id}  {described(checkpoint)}" for checkpoint in chosen.values()]
        if not ui.confirm(f"delete {number} for good?", plan, f"{number} would be gone"):
            return ui.cancelled()
    gone = context.manager.delete(context.workdir, list(chosen))
    answer = {"checkpoints": [checkpoint.to_dict() for checkpoint in gone]}
    lines = [f"deleted {checkpoint.short_id}  {described(checkpoint)}" for checkpoint in gone]
    if not args.now:
        return ui.answer(answer, lines)
    with working(ui, "reclaiming"):
        reclaimed = context.manager.reclaim()
    if not reclaimed.complete:
        ui.say(f"{ui.talk_ink('yellow', 'warning:')} the space was not reclaimed: {safe(reclaimed.why)}")
    lines.append(f"freed {size(reclaimed.bytes_freed)}")
    return ui.answer({**answer, **reclaimed.to_dict()}, lines, code=0 if reclaimed.complete else 1)
