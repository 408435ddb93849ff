"""Keep the limits now, and reclaim what no checkpoint holds.

Upkeep keeps the limits by itself from time to time, and reclaims space when that pays. Pinned
checkpoints and the newest of each project stay. If limits are given here and something would go, it
asks on a terminal; elsewhere --yes is needed. A limit of 0 means no limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options
from shadowsnap.cli.tables import described
from shadowsnap.cli.text import age, count, cut, safe, size
from shadowsnap.cli.ui import working
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.upkeep.run import PruneResult

GROUP = "keeping"

_LIMITS = {
    "max_snapshots": ("N", int, "turns to keep of each project"),
    "retention_days": ("DAYS", float, "drop what is older"),
    "max_total_size_mb": ("MB", float, "size of the store"),
    "max_attachments_mb": ("MB", float, "size of kept conversations"),
}
_WORDS = {
    "busy": "another process is pruning",
    "skipped": "nothing is stored yet",
    "disabled": "shadowsnap is disabled by its settings",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (metavar, kind, text) in _LIMITS.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, metavar=metavar, type=kind, help=f"{text}, instead of the setting")
    parser.add_argument("--keep-orphans", action="store_true", help="keep those of directories that are gone")
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    ui, manager = context.ui, context.manager
    limits = {name: getattr(args, name) for name in _LIMITS if getattr(args, name) is not None}
    for name, value in limits.items():
        if not 0 <= value < float("inf"):
            raise WrongUsage(why=f"--{name.replace('_', '-')} must be a number that is not negative")
    orphans = not args.keep_orphans
    if args.dry_run or (limits and not args.yes):
        with working(ui, "looking at the store"):
            plan = manager.prune(dry_run=True, orphans=orphans, **limits)
        if args.dry_run:
            return ui.answer(plan.to_dict(), _lines(plan, ui.width))
        if plan.dropped:
            number = count(len(plan.dropped), "checkpoint")
            if not ui.confirm(f"drop {number} for good?", _lines(plan, ui.width), f"{number} would be gone"):
                return ui.cancelled()
    with working(ui, "pruning"):
        result = manager.prune(orphans=orphans, **limits)
    for note in result.notes:
        ui.say(safe(note))
    if result.error is not None:
        ui.say(f"{ui.talk_ink('yellow', 'warning:')} space was not given back: {safe(str(result.error))}")
    done = result.applied and result.error is None
    return ui.answer(result.to_dict(), _lines(result, ui.width), code=0 if done else 1)


def _lines(result: PruneResult, width: int) -> Iterator[str]:
    if result.status in _WORDS:
        yield _WORDS[result.status]
        return
    workdir = None
    for verdict in sorted(result.dropped, key=lambda each: each.checkpoint.workdir):
        checkpoint = verdict.checkpoint
        if checkpoint.workdir != workdir:
            workdir = checkpoint.workdir
            yield safe(workdir)
        why = f"({verdict.reason})"
        start = f"  {checkpoint.short_id}  {age(checkpoint.created_at):10}  "
        yield f"{start}{cut(described(checkpoint), max(12, width - len(start) - len(why) - 2))}  {why}"
    if result.attachments_dropped:
        yield f"  and {count(len(result.attachments_dropped), 'conversation')}"
    yield _sum(result)
    if not result.applied:
        yield from (safe(note) for note in result.notes)


def _sum(result: PruneResult) -> str:
    number = count(len(result.dropped), "checkpoint")
    kept = len(result.verdicts) - len(result.dropped)
    if not result.applied:
        now = "" if result.bytes_before is None else f"; the store has {size(result.bytes_before)}"
        then = "" if result.bytes_after is None else f", what stays needs {size(result.bytes_after)}"
        return f"{number} to drop, {kept} to keep{now}{then}"
    return f"dropped {number}, kept {kept}, freed {size(result.bytes_freed)}"
