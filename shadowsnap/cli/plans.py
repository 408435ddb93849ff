"""Restoring, undoing, redoing and reverting go the same way: plan, ask, do, tell how to take it
back."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shadowsnap import steps
from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import described
from shadowsnap.cli.text import ago, count, safe
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.model import RestoreResult

_MOST_SHOWN = 20
"""So many paths of a kind are shown before the question."""


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would happen and change nothing")
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def carry_out(
    context: Context,
    args: argparse.Namespace,
    deed: Callable[[bool], RestoreResult],
    *,
    name: str,
    back: str,
    work: str = "",
) -> int:
    """Run `deed(dry_run)`: the plan first, unless nobody needs to see it. `back` is the command
    that takes it back; `work` names what is reverted, if it is not a checkpoint that is gone to."""
    ui, plan = context.ui, None
    if args.dry_run or not args.yes:
        plan = deed(True)
    if plan is not None and args.dry_run:
        return ui.answer(plan.to_dict(), [heading(plan, name, context, work), *plan_lines(plan, ui.ink, work)])
    if plan is not None and (plan.written or plan.deleted):
        would = f"this would write {count(len(plan.written), 'path')} and delete {len(plan.deleted)}"
        shown = [heading(plan, name, context, work), *plan_lines(plan, ui.talk_ink, work, most=_MOST_SHOWN)]
        ui.confirm(f"{name}?", shown, would)
    with careful():
        result = deed(False)
    if result.note:
        ui.say(safe(result.note))
    line = context.line(back, *(() if ui.interactive else ("--yes",))) if result.undo_id else None
    seen = plan is not None and (plan.written, plan.deleted) == (result.written, result.deleted)
    lines = [] if seen else list(plan_lines(result, ui.ink, work, done=True))[:-1]
    lines += [_told(result, name, work), *([f"to take it back: {line}"] if line else [])]
    return ui.answer({**result.to_dict(), "undo": line}, lines)


def heading(plan: RestoreResult, name: str, context: Context, work: str = "") -> str:
    if work:
        return f"{name} {safe(work)} in {safe(str(context.workdir))}"
    target = plan.target
    what = f"{ago(target.created_at)}: {described(target)}"
    return f"{name} {safe(str(context.workdir))} to {target.short_id} ({what})"


def plan_lines(
    plan: RestoreResult, ink: Ink, work: str = "", *, done: bool = False, most: int | None = None
) -> Iterator[str]:
    """One line per path, and a sum."""
    verbs = ("wrote", "deleted", "kept") if done else ("write", "delete", "keep")
    in_the_way = "dispute" if work else "refuse"
    parts = (
        (verbs[0], "green", [safe(path) for path in plan.written]),
        (verbs[1], "red", [safe(path) for path in plan.deleted]),
        (verbs[2], "dim", [f"{safe(kept.path)} ({kept.why})" for kept in plan.kept]),
        (in_the_way, "yellow", [f"{safe(kept.path)} ({kept.why})" for kept in plan.conflicts]),
    )
    for verb, style, lines in parts:
        for line in lines[:most]:
            yield f"  {ink(style, f'{verb:7}')}  {line}"
        if most is not None and len(lines) > most:
            yield f"  {ink(style, f'{verb:7}')}  ... and {len(lines) - most} more (--dry-run lists all)"
    yield _sum(plan, work)


def _sum(plan: RestoreResult, work: str) -> str:
    parts = [f"{len(plan.written)} to write", f"{len(plan.deleted)} to delete", f"{len(plan.kept)} kept"]
    if plan.conflicts:
        parts.append(_disputed(plan) if work else f"{len(plan.conflicts)} in the way, so it would be refused")
    return ", ".join(parts)


def _told(result: RestoreResult, name: str, work: str) -> str:
    numbers = f"{len(result.written)} written, {len(result.deleted)} deleted, {len(result.kept)} kept"
    if work:
        if not (result.written or result.deleted or result.conflicts):
            return f"nothing to {name}: no trace of {safe(work)} is left"
        return f"{name} of {safe(work)}: {numbers}{f', {_disputed(result)}' if result.conflicts else ''}"
    target = result.target.short_id
    if not (result.written or result.deleted):
        return f"nothing to {name}: everything is as in {target}"
    return f"restored to {target}: {numbers}"


def _disputed(plan: RestoreResult) -> str:
    return f"{len(plan.conflicts)} in dispute"


_BETWEEN_DEEDS = ("restore:applying", "restore:deleted-one", "restore:wrote-one")


@contextmanager
def careful() -> Iterator[None]:
    """Within this block Ctrl-C ends a restore only where the way back is known, and does not
    end the way back. Once everything is in place it comes too late."""
    outer = steps.listener
    care = _Care(outer)
    # Only the main thread may decide what a signal does; and a handler that is not Python's own means
    # that somebody else has decided.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    steps.listener = care.on_step
    try:
        if ours:
            signal.signal(signal.SIGINT, care.on_signal)
        yield
    finally:
        steps.listener = outer
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _Care:
    def __init__(self, outer: Callable[[str], None] | None) -> None:
        self._outer = outer
        self._touching = False
        self._wanted = False

    def on_signal(self, *_: object) -> None:
        if not self._touching:
            raise KeyboardInterrupt
        self._wanted = True

    def on_step(self, name: str) -> None:
        if self._outer is not None:
            self._outer(name)
        if name in _BETWEEN_DEEDS:
            self._touching = True
            if self._wanted:
                raise KeyboardInterrupt
        elif name == "restore:cleaned":
            self._touching = self._wanted = False
