"""Restoring, undoing, redoing and reverting go the same way: plan, ask, apply, say how to take it back."""

from __future__ import annotations

import argparse
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from shadowsnap import steps
from shadowsnap.cli.commands import Context
from shadowsnap.cli.tables import line_counts, patch_lines
from shadowsnap.cli.text import columns, count, cut, cut_path, one_line, pad, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import NotConfirmed
from shadowsnap.model import Entry, Kept, RestoreResult

_MOST_SHOWN = 20
"""So many paths of a kind are shown."""
_LEAST_PATH = 20

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
    verb: str,
    title: Callable[[RestoreResult], str],
    done: Callable[[RestoreResult], str],
    back: str,
    paths: Sequence[str] = (),
    also: Callable[[], Sequence[str]] = tuple,
    selectable: bool = False,
) -> int:
    """Show the plan and ask, unless `--yes`; then apply it. `verb` is what takes long (`restoring`); `title` and
    `done` say what it is before and after; `back` is the command that takes it back; `also` names turns and edits
    that go with it; `selectable`: it can be done for some of the files."""
    ui, plan = context.ui, None
    if args.dry_run or not args.yes:
        with context.working("making the plan"):
            plan = operation(True, paths)
            lines = [cut(title(plan), ui.width)]
            lines += plan_lines(plan, context, ui.ink if args.dry_run else ui.talk_ink)
            lines += [cut(f"  {line}", ui.width) for line in also()]
            lines += _ways_on(plan, args, context)
        if args.dry_run:
            return ui.answer({**plan.to_dict(), "dry_run": True}, lines)
        if plan.written or plan.deleted:
            chosen = _agreed(context, plan, operation, lines, paths, selectable)
            if chosen is None:
                return ui.cancelled()
            plan, paths = chosen
    with context.working(verb) as update, careful(_counting(update, plan)):
        result = operation(False, paths)
    if result.note:
        ui.say(safe(result.note))
    line = context.line(back, *(() if ui.interactive else ("--yes",))) if result.undo_id else None
    lines = [done(result), *what_was_done(result, plan)]
    lines += [f"to take it back: {line}"] if line else []
    lines += _ways_on(result, args, context)
    return ui.answer({**result.to_dict(), "dry_run": False, **({"undo": line} if line else {})}, lines)


def _agreed(
    context: Context,
    plan: RestoreResult,
    operation: Operation,
    lines: Sequence[str],
    paths: Sequence[str],
    selectable: bool,
) -> tuple[RestoreResult, Sequence[str]] | None:
    """The plan and the paths that the person agreed to; None if they declined."""
    ui = context.ui
    if not ui.interactive:
        would = f"this would change files ({_sum(plan, context)})"
        raise NotConfirmed(why=f"{would}, and this is no terminal to ask on")
    for line in lines:
        ui.say(line)
    question = f"go ahead? [y]es [N]o [d]iff{' [s]ome files' if selectable else ''} "
    while True:
        answer = ui.ask(question).lower()
        if answer in ("y", "yes"):
            return plan, paths
        if answer in ("d", "diff"):
            show_patch(context, plan)
        elif selectable and answer in ("s", "some"):
            chosen = _choose(context, plan)
            if chosen:
                plan, paths = operation(True, chosen), chosen
                for line in plan_lines(plan, context, ui.talk_ink):
                    ui.say(line)
        else:
            return None


def show_patch(context: Context, plan: RestoreResult, most: int | None = None) -> None:
    """What a plan would do to the contents of the files."""
    ui = context.ui
    if not plan.patch:
        ui.say("these files are too many to show, or no text" if plan.written or plan.deleted else "no change")
        return
    lines = list(patch_lines(plan.patch, ui.talk_ink))
    for line in lines[:most]:
        ui.say(line)
    if most is not None and len(lines) > most:
        ui.say(f"... and {count(len(lines) - most, 'more line')}")


def _choose(context: Context, plan: RestoreResult) -> list[str]:
    ui, offered = context.ui, [*plan.written, *plan.deleted]
    for number, path in enumerate(offered, 1):
        ui.say(f"{number:>4}  {safe(path)}")
    answer = ui.ask("which ones? numbers or names, with spaces between them: ")
    chosen = []
    for word in answer.split():
        if word.isascii() and word.isdigit() and 1 <= int(word) <= len(offered):
            chosen.append(offered[int(word) - 1].rstrip("/"))
        elif word in offered:
            chosen.append(word.rstrip("/"))
        else:
            ui.say(f"{safe(word)} is not in the plan")
    return chosen


# --- a plan in words ---------------------------------------------------------------------------------


def plan_lines(plan: RestoreResult, context: Context, ink: Ink, most: int = _MOST_SHOWN) -> Iterator[str]:
    """What comes back, is overwritten, is deleted, and is kept and why: one line per path, and a sum."""
    counts = {change.path: line_counts(change) for change in plan.changes}
    rows = []
    for verb, style, paths in _parts(plan, context):
        rows += [(verb, style, safe(path), why or counts.get(path, "")) for path, why in paths[:most]]
        if len(paths) > most:
            rows.append((verb, style, f"... and {len(paths) - most} more", ""))
    room = max(_LEAST_PATH, context.ui.width - max((columns(end) for *_, end in rows), default=0) - 20)
    names = [cut_path(path, room) for _, _, path, _ in rows]
    wide = max(map(columns, names), default=0)
    for (verb, style, _, end), name in zip(rows, names, strict=True):
        yield f"  {ink(style, f'{verb:14}')}  {pad(name, wide)}  {end}".rstrip()
    yield f"  {_sum(plan, context)}"


_Paths = list[tuple[str, str]]
"""Paths, and why each is left as it is."""


def _parts(plan: RestoreResult, context: Context) -> list[tuple[str, str, _Paths]]:
    """Paths by what happens to them. What is written where something is now is overwritten."""
    new: _Paths = []
    over: _Paths = []
    for path in plan.written:
        there = os.path.lexists(os.path.join(context.workdir, path.rstrip("/")))
        (over if there else new).append((path, ""))
    return [
        ("comes back", "green", new),
        ("is overwritten", "yellow", over),
        ("is deleted", "red", [(path, "") for path in plan.deleted]),
        ("is kept", "dim", [(kept.path, f"({kept.why})") for kept in plan.kept]),
        ("conflict", "yellow", [(kept.path, f"({kept.why})") for kept in plan.conflicts]),
    ]


def _sum(plan: RestoreResult, context: Context) -> str:
    numbers = {verb: len(paths) for verb, _, paths in _parts(plan, context)}
    parts = [f"{numbers[verb]} {verb.split()[-1]}" for verb in list(numbers)[:4] if numbers[verb]]
    parts += [count(len(plan.conflicts), "conflict")] if plan.conflicts else []
    if not (plan.written or plan.deleted or plan.conflicts):
        parts.insert(0, "nothing would change")
    return ", ".join(parts)


def what_was_done(result: RestoreResult, plan: RestoreResult | None) -> list[str]:
    """What was done; nothing if the plan was shown and is what happened."""
    if plan is not None and (plan.written, plan.deleted) == (result.written, result.deleted):
        return [] if result.written or result.deleted else [f"  kept     {_why(kept)}" for kept in result.kept]
    parts = (
        ("wrote", [safe(path) for path in result.written]),
        ("deleted", [safe(path) for path in result.deleted]),
        ("kept", [_why(kept) for kept in result.kept]),
        ("conflict", [_why(kept) for kept in result.conflicts]),
    )
    lines = []
    for verb, paths in parts:
        lines += [f"  {verb:8} {path}" for path in paths[:_MOST_SHOWN]]
        if len(paths) > _MOST_SHOWN:
            lines.append(f"  {verb:8} ... and {len(paths) - _MOST_SHOWN} more (--json has all)")
    return lines


def _why(kept: Kept) -> str:
    return f"{safe(kept.path)} ({kept.why})"


def numbers_of(result: RestoreResult) -> str:
    """`2 files written, 1 deleted, 1 kept`."""
    numbers = ((len(result.written), "written"), (len(result.deleted), "deleted"), (len(result.kept), "kept"))
    parts = [f"{number} {verb}" for number, verb in numbers if number]
    if parts:
        number, _, verb = parts[0].partition(" ")
        parts[0] = f"{count(int(number), 'file')} {verb}"
    parts += [count(len(result.conflicts), "conflict")] if result.conflicts else []
    return ", ".join(parts) or "no file changed"


_INFINITIVES = {"took back": "take back", "brought back": "bring back", "took out": "take out"}


def what_happened(verb: str, result: RestoreResult) -> str:
    """`took back turn 3: clean the project up`, or that it could not be done."""
    failed = bool(result.conflicts) and not (result.written or result.deleted)
    return f"{f'could not {_INFINITIVES[verb]}' if failed else verb} {one_line(result.what)}"


def headline(verb: str, result: RestoreResult, context: Context) -> str:
    """What happened, and below it the numbers."""
    return f"{cut(what_happened(verb, result), context.ui.width)}\n  {numbers_of(result)}"


def _ways_on(result: RestoreResult, args: argparse.Namespace, context: Context) -> list[str]:
    """What can be done about conflicts: without that, a person only knows that it did not work."""
    number = stuck_turn(result)
    if number is None or getattr(args, "on_conflict", "keep") != "keep":
        return []
    return [
        f"look at it:                    {context.line('show', number)}",
        f"take it out all the same:      {context.line('revert', number, '--on-conflict', 'theirs')}",
        f"go back to before all of it:   {context.line('restore', number)}",
    ]


def stuck_turn(result: RestoreResult) -> str | None:
    """The number of the turn that could not be taken out of some files, or None."""
    found = re.match(r"turn (\d+)", result.what) if result.conflicts else None
    return found[1] if found else None


def exchanged_in_words(out: Sequence[Entry], back: Sequence[Entry], unseen: int) -> list[str]:
    """The turns and the person's own edits that a restore takes out of the files, and those that it brings back;
    `unseen` files differ from the newest known state."""
    return [*_in_words("takes out", out, unseen), *_in_words("brings back", back, 0)]


def _in_words(verb: str, entries: Sequence[Entry], unseen: int) -> Iterator[str]:
    for entry in (entry for entry in entries if entry.kind == "turn" and entry.files_changed != 0):
        about = one_line(entry.prompt or entry.reason)
        yield f"{verb} turn {entry.number}{f': {about}' if about else ''}"
    own = [entry.files_changed or 0 for entry in entries if entry.kind in ("edits", "snapshot")]
    files = sum(own) + unseen
    if files:
        yield f"{verb} your own edits ({count(files, 'file')})"


# --- progress, and Ctrl-C while files are changed: all or nothing ------------------------------------

_BETWEEN_CHANGES = ("restore:applying", "restore:deleted-one", "restore:wrote-one")
_CHANGES = ("restore:deleted-one", "restore:wrote-one")


def _counting(update: Callable[[int, int], None], plan: RestoreResult | None) -> Callable[[str], None]:
    """Calls `update` after each file that was changed, if it is known how many there are."""
    total = len(plan.written) + len(plan.deleted) if plan is not None else 0
    done = 0

    def on_step(name: str) -> None:
        nonlocal done
        if name in _CHANGES:
            done += 1
            if done <= total:
                update(done, total)

    return on_step


@contextmanager
def careful(on_step: Callable[[str], None] | None = None) -> Iterator[None]:
    """Within this block Ctrl-C ends a restore only where the way back is known, and does not end the way back.
    Once everything is in place it comes too late. `on_step` is called with each step."""
    outer = steps.listener
    care = _Care(outer, on_step)
    # Only the main thread may decide what a signal does; a handler that is not Python's own is a host's choice.
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
    def __init__(self, outer: Callable[[str], None] | None, also: Callable[[str], None] | None) -> None:
        self._listeners = [each for each in (outer, also) if each is not None]
        self._touching = False
        self._wanted = False

    def on_signal(self, *_: object) -> None:
        if not self._touching:
            raise KeyboardInterrupt
        self._wanted = True

    def on_step(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)
        if name in _BETWEEN_CHANGES:
            self._touching = True
            if self._wanted:
                raise KeyboardInterrupt
        elif name == "restore:cleaned":
            self._touching = self._wanted = False
