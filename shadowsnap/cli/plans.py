"""Restoring, undoing, redoing and reverting go the same way: plan, ask, apply, say how to take it back."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shadowsnap import steps
from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import patch_lines
from shadowsnap.cli.text import count, one_line, safe
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.model import Entry, RestoreResult

_MOST_SHOWN = 20
"""So many paths of a kind are shown before the question."""

Operation = Callable[[bool, Sequence[str]], "RestoreResult"]
"""Makes the plan (True) or applies it (False), for some paths or all."""


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would happen and change nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def carry_out(
    context: Context,
    args: argparse.Namespace,
    operation: Operation,
    *,
    title: Callable[[RestoreResult], str],
    done: Callable[[RestoreResult], str],
    back: str,
    paths: Sequence[str] = (),
    also: Callable[[], Sequence[str]] = tuple,
) -> int:
    """Show the plan and ask, unless `--yes`; then apply it. `title` and `done` say what it is before and after;
    `back` is the command that takes it back; `also` names turns and edits that go with it."""
    ui, plan = context.ui, None
    if args.dry_run or not args.yes:
        plan = operation(True, paths)
        plan_text = [title(plan), *plan_lines(plan, context, ui.ink if args.dry_run else ui.talk_ink)]
        plan_text += [f"  {line}" for line in also()]
        if args.dry_run:
            return ui.answer({**plan.to_dict(), "dry_run": True}, plan_text)
        if plan.written or plan.deleted:
            chosen = _confirmed(context, plan, operation, plan_text, paths)
            if chosen is None:
                ui.say("cancelled; nothing was changed")
                return ui.answer({"cancelled": True})
            paths = chosen
    with careful():
        result = operation(False, paths)
    if result.note:
        ui.say(safe(result.note))
    line = context.line(back, *(() if ui.interactive else ("--yes",))) if result.undo_id else None
    lines = [done(result), *_changes(result, plan, context)]
    lines += [f"to take it back: {line}"] if line else []
    return ui.answer({**result.to_dict(), **({"undo": line} if line else {})}, lines)


def _confirmed(
    context: Context, plan: RestoreResult, operation: Operation, plan_text: list[str], paths: Sequence[str]
) -> Sequence[str] | None:
    """The paths that the person agreed to, which are all of them unless they chose some; None if they declined."""
    from shadowsnap.errors import NotConfirmed

    ui = context.ui
    if not ui.interactive:
        would = f"this would write {count(len(plan.written), 'path')} and delete {len(plan.deleted)}"
        raise NotConfirmed(why=f"{would}, and this is no terminal to ask on")
    for line in plan_text:
        ui.say(line)
    while True:
        answer = ui.ask("go ahead? [y]es [N]o [d]iff [s]ome files ").lower()
        if answer in ("y", "yes"):
            return paths
        if answer in ("d", "diff"):
            _show_diff(context, plan)
        elif answer in ("s", "some"):
            chosen = _choose(context, plan)
            if chosen:
                plan = operation(True, chosen)
                paths = chosen
                for line in plan_lines(plan, context, ui.talk_ink):
                    ui.say(line)
        else:
            return None


def _show_diff(context: Context, plan: RestoreResult) -> None:
    """What would change in the files: from how they are now to the state that is gone to."""
    touched = [path.rstrip("/") for path in (*plan.written, *plan.deleted)]
    diff = context.manager.diff(context.workdir, plan.target.id, "@", paths=touched)
    for line in patch_lines(diff.text, context.ui.talk_ink):
        context.ui.say(line)
    context.ui.say("(lines with + would go, lines with - would come back)")


def _choose(context: Context, plan: RestoreResult) -> list[str]:
    ui, offered = context.ui, [*plan.written, *plan.deleted]
    for number, path in enumerate(offered, 1):
        ui.say(f"{number:>4}  {safe(path)}")
    answer = ui.ask("which? (numbers or names, with spaces between them) ")
    chosen = []
    for word in answer.split():
        if word.isdigit() and 1 <= int(word) <= len(offered):
            chosen.append(offered[int(word) - 1].rstrip("/"))
        elif word in offered:
            chosen.append(word)
        else:
            ui.say(f"there is no {safe(word)} in the plan")
    return chosen


# --- a plan in words ---------------------------------------------------------------------------------


def plan_lines(plan: RestoreResult, context: Context, ink: Ink, most: int = _MOST_SHOWN) -> Iterator[str]:
    """What comes back, is overwritten, is deleted, and is kept and why: one line per path, and a sum."""
    parts = _parts(plan, context)
    for verb, style, paths in parts:
        for path in paths[:most]:
            yield f"  {ink(style, f'{verb:14}')}  {path}"
        if len(paths) > most:
            yield f"  {ink(style, f'{verb:14}')}  ... and {len(paths) - most} more"
    yield _sum(plan, parts)


def _parts(plan: RestoreResult, context: Context) -> list[tuple[str, str, list[str]]]:
    """Paths by what happens to them. What is written over a file that is there is overwritten."""
    new: list[str] = []
    over: list[str] = []
    for path in plan.written:
        there = os.path.lexists(os.path.join(context.workdir, path.rstrip("/")))
        (over if there and not plan.applied else new).append(safe(path))
    return [
        ("comes back", "green", new),
        ("is overwritten", "yellow", over),
        ("is deleted", "red", [safe(path) for path in plan.deleted]),
        ("is kept", "dim", [f"{safe(kept.path)} ({kept.why})" for kept in plan.kept]),
        ("conflict", "yellow", [f"{safe(kept.path)} ({kept.why})" for kept in plan.conflicts]),
    ]


def _sum(plan: RestoreResult, parts: list[tuple[str, str, list[str]]]) -> str:
    new, over, gone, kept, conflicts = (len(paths) for _, _, paths in parts)
    if not (new or over or gone or conflicts):
        return "  nothing would change"
    numbers = f"  {count(new, 'path')} back, {over} overwritten, {gone} deleted, {kept} kept"
    return numbers + (f", {count(conflicts, 'conflict')}" if conflicts else "")


def _changes(result: RestoreResult, plan: RestoreResult | None, context: Context) -> list[str]:
    """What was done; short if the plan was shown and is what happened."""
    if plan is not None and (plan.written, plan.deleted) == (result.written, result.deleted):
        return []
    lines = [f"  wrote    {safe(path)}" for path in result.written]
    lines += [f"  deleted  {safe(path)}" for path in result.deleted]
    lines += [f"  kept     {safe(kept.path)} ({kept.why})" for kept in result.kept]
    return lines + [f"  conflict {safe(kept.path)} ({kept.why})" for kept in result.conflicts]


def numbers_of(result: RestoreResult) -> str:
    text = f"{count(len(result.written), 'path')} written, {len(result.deleted)} deleted, {len(result.kept)} kept"
    return text + (f", {count(len(result.conflicts), 'conflict')}" if result.conflicts else "")


def what_goes_with_it(context: Context, entries: Sequence[Entry]) -> list[str]:
    """The turns and the person's own edits that a restore takes out of the files, in words."""
    turns = [entry for entry in entries if entry.kind == "turn" and entry.status not in ("undone", "reverted")]
    edits = [entry for entry in entries if entry.kind == "edits"]
    lines = [f"takes out turn {entry.number}: {one_line(entry.prompt or entry.reason)[:60]}" for entry in turns]
    if edits:
        files = sum(entry.files_changed or 0 for entry in edits)
        lines.append(f"takes out your own edits in {count(files, 'file')}")
    return lines


# --- Ctrl-C while files are changed: all or nothing --------------------------------------------------

_BETWEEN_CHANGES = ("restore:applying", "restore:deleted-one", "restore:wrote-one")


@contextmanager
def careful() -> Iterator[None]:
    """Within this block Ctrl-C ends a restore only where the way back is known, and does not end the way back.
    Once everything is in place it comes too late."""
    outer = steps.listener
    care = _Care(outer)
    # Only the main thread may decide what a signal does; a handler that is not Python's own is somebody's choice.
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
        if name in _BETWEEN_CHANGES:
            self._touching = True
            if self._wanted:
                raise KeyboardInterrupt
        elif name == "restore:cleaned":
            self._touching = self._wanted = False
