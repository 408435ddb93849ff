"""Take files out of every checkpoint of this project for good.

For the day a key was captured. Each checkpoint that holds PATH, a file or a directory, is recorded
anew without it; its old id goes on answering, and everything else in it stays. Your own files stay as
they are: what is still on disk is captured again by the next snapshot, unless you move it away or
exclude it. Prompts and conversations that are kept with checkpoints are not searched. An agent may
have read the key too: replace it. On a terminal you are asked; elsewhere --yes is needed. If it is
interrupted, run it again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options
from shadowsnap.cli.text import count, safe, size
from shadowsnap.cli.ui import working

if TYPE_CHECKING:
    from shadowsnap.upkeep.purge import PurgeResult

GROUP = "keeping"

_MOST_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", metavar="PATH", nargs="*", help="files or directories, as checkpoints hold them")
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.errors import WrongUsage

    ui, manager = context.ui, context.manager
    if not args.paths:
        raise WrongUsage(why="name at least one path to purge")
    paths = context.paths(args.paths)
    if args.dry_run or not args.yes:
        with working(ui, "looking at the checkpoints"):
            plan = manager.purge(context.workdir, paths, dry_run=True)
        if args.dry_run:
            return ui.answer(plan.to_dict(), _lines(plan))
        number = count(len(plan.checkpoints), "checkpoint")
        if not ui.confirm("purge it for good?", _lines(plan, most=_MOST_SHOWN), f"{number} would be changed"):
            return ui.cancelled()
    try:
        with working(ui, "purging"):
            result = manager.purge(context.workdir, paths)
    except KeyboardInterrupt:
        ui.say("every checkpoint can be restored; run the same purge again to finish it")
        raise
    for note in result.notes:
        ui.say(f"{ui.talk_ink('yellow', 'note:')} {safe(note)}")
    return ui.answer(result.to_dict(), _told(result), code=0 if result.reclaimed else 1)


def _lines(plan: PurgeResult, most: int | None = None) -> Iterator[str]:
    yield from (f"  purge  {safe(path)}" for path in plan.files[:most])
    if most is not None and len(plan.files) > most:
        yield f"  purge  ... and {len(plan.files) - most} more (--dry-run lists all)"
    yield f"{count(len(plan.checkpoints), 'checkpoint')} to change, {size(plan.bytes)} of content to remove"
    yield from (f"note: {safe(note)}" for note in plan.notes)


def _told(result: PurgeResult) -> str:
    files, changed = count(len(result.files), "file"), count(len(result.checkpoints), "checkpoint")
    if not result.reclaimed:
        return f"purged {files} from {changed}; the bytes are not reclaimed yet"
    proof = "none of it is left in the store"
    if result.contents_left:
        proof = f"{count(result.contents_left, 'content')} still held elsewhere"
    return f"purged {files} from {changed}, freed {size(result.bytes_freed)}; {proof}"
