"""Let go of every checkpoint of this project, pinned ones too.

Your files stay as they are, but nothing can be brought back any more: also prompts, conversations and
log lines of this project are removed. With --all, every project's checkpoints. On a terminal you are
asked; elsewhere --yes is needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options
from shadowsnap.cli.text import count, safe, size
from shadowsnap.cli.ui import working

if TYPE_CHECKING:
    from shadowsnap.model import ClearedItem, ClearReport

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="every project")
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    def operation(dry_run: bool) -> ClearReport:
        if args.all:
            return context.manager.clear_all(dry_run)
        return context.manager.clear(context.workdir, dry_run)

    return clear_out(context, args, operation, "every checkpoint" if args.all else "these checkpoints")


def clear_out(
    context: Context, args: argparse.Namespace, operation: Callable[[bool], ClearReport], what: str
) -> int:
    """Run `operation(dry_run)` after showing what will be gone, and asking."""
    ui = context.ui
    with working(ui, "looking"):
        plan = operation(True)
    lines = list(_lines(plan))
    if args.dry_run:
        return ui.answer(plan.to_dict(), lines)
    if not plan.items:
        return ui.answer(operation(False).to_dict(), "nothing to clear")
    if not args.yes and not ui.confirm(f"clear {what} for good?", lines, f"{what} would be gone"):
        return ui.cancelled()
    with working(ui, "clearing"):
        report = operation(False)
    later = f"; {size(report.pending_bytes)} will be freed by upkeep" if report.pending_bytes else ""
    cleared = "\n".join(f"cleared {_item(item)}" for item in report.items)
    return ui.answer(report.to_dict(), [cleared, f"freed {size(report.bytes_freed)}{later}"])


def _lines(plan: ClearReport) -> Iterator[str]:
    yield from (f"  clear  {_item(item)}" for item in plan.items)
    yield f"{size(plan.bytes_freed + plan.pending_bytes)} to free"


def _item(item: ClearedItem) -> str:
    parts = [count(item.checkpoints, "checkpoint")] if item.checkpoints else []
    parts += [f"{item.pinned} pinned"] if item.pinned else []
    parts += [size(item.bytes), *([item.note] if item.note else [])]
    return f"{safe(item.subject)} ({', '.join(parts)})"
