"""Restoring, undoing and redoing go the same way: plan, ask, do, tell how to take it back."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.interrupts import careful
from shadowsnap.cli.text import ago, count, safe
from shadowsnap.cli.timeline import described
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import NotConfirmed

if TYPE_CHECKING:
    from shadowsnap.model import RestoreResult

_MOST_SHOWN = 20
"""So many paths of a kind are shown before the question."""


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would happen and change nothing")
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def carry_out(
    context: Context, args: argparse.Namespace, deed: Callable[[bool], RestoreResult], *, name: str, back: str
) -> int:
    """Run `deed(dry_run)`: the plan first, unless nobody needs to see it. `back` is the command
    that takes it back."""
    ui, plan = context.ui, None
    if args.dry_run or not args.yes:
        plan = deed(True)
    if plan is not None and args.dry_run:
        return ui.answer(plan.to_dict(), [heading(plan, name, context), *plan_lines(plan, ui.ink)])
    if plan is not None and (plan.written or plan.deleted):
        _confirm(context, plan, name)
    with careful():
        result = deed(False)
    if result.note:
        ui.say(safe(result.note))
    line = context.line(back, *(() if ui.interactive else ("--yes",))) if result.undo_id else None
    seen = plan is not None and (plan.written, plan.deleted) == (result.written, result.deleted)
    lines = [] if seen else list(plan_lines(result, ui.ink, done=True))
    return ui.answer(
        {**result.to_dict(), "undo": line},
        [*lines[:-1], _told(result, name), *([f"to take it back: {line}"] if line else [])],
    )


def heading(plan: RestoreResult, name: str, context: Context) -> str:
    target = plan.target
    what = f"{ago(target.created_at)}: {described(target)}"
    return f"{name} {safe(str(context.workdir))} to {target.short_id} ({what})"


def plan_lines(plan: RestoreResult, ink: Ink, *, done: bool = False, most: int | None = None) -> Iterator[str]:
    """One line per path, and a sum."""
    verbs = ("wrote", "deleted", "kept") if done else ("write", "delete", "keep")
    parts = (
        (verbs[0], "green", [safe(path) for path in plan.written]),
        (verbs[1], "red", [safe(path) for path in plan.deleted]),
        (verbs[2], "dim", [f"{safe(kept.path)} ({kept.why})" for kept in plan.kept]),
        ("refuse", "yellow", [f"{safe(kept.path)} ({kept.why})" for kept in plan.conflicts]),
    )
    for verb, style, lines in parts:
        for line in lines[:most]:
            yield f"  {ink(style, f'{verb:7}')}  {line}"
        if most is not None and len(lines) > most:
            yield f"  {ink(style, f'{verb:7}')}  ... and {len(lines) - most} more (--dry-run lists all)"
    yield _sum(plan)


def _confirm(context: Context, plan: RestoreResult, name: str) -> None:
    ui = context.ui
    if not ui.interactive:
        raise NotConfirmed(why=f"this would {_sum(plan, would=True)}, and there is nobody to ask")
    ui.say(heading(plan, name, context))
    for line in plan_lines(plan, ui.talk_ink, most=_MOST_SHOWN):
        ui.say(line)
    if ui.ask(f"{name}? [y/N] ").lower() not in ("y", "yes"):
        raise NotConfirmed(why="you did not say yes")


def _sum(plan: RestoreResult, *, would: bool = False) -> str:
    if would:
        return f"write {count(len(plan.written), 'path')} and delete {len(plan.deleted)}"
    parts = [f"{len(plan.written)} to write", f"{len(plan.deleted)} to delete", f"{len(plan.kept)} kept"]
    if plan.conflicts:
        parts.append(f"{len(plan.conflicts)} in the way, so it would be refused")
    return ", ".join(parts)


def _told(result: RestoreResult, name: str) -> str:
    target = result.target.short_id
    if not (result.written or result.deleted):
        return f"nothing to {name}: everything is as in {target}"
    numbers = f"{len(result.written)} written, {len(result.deleted)} deleted, {len(result.kept)} kept"
    return f"restored to {target}: {numbers}"
