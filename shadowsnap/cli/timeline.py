"""A list of checkpoints that can be read at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.text import age, columns, count, cut, one_line, pad
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:
    from shadowsnap.model import Checkpoint

    Numbered = tuple[int, Checkpoint]

_LEAST_WHAT = 12
_SESSION = 8
_QUIET = ("turn-end", "pre-restore")


def rows(checkpoints: Sequence[Numbered], width: int, ink: Ink) -> list[str]:
    """Number, id, age, what it was taken for, what changed, turn, pin, session: one line each. A
    column that nobody needs is left out, and so is one that there is no room for."""
    numbers = [str(number) for number, _ in checkpoints]
    ages = [age(each.created_at) for _, each in checkpoints]
    changes = [changed(each) for _, each in checkpoints]
    turns = [f"turn {each.turn}" if each.turn else "" for _, each in checkpoints]
    pins = ["pinned" if each.pinned else "" for _, each in checkpoints]
    sessions = [_clipped(one_line(each.session_id or "")) for _, each in checkpoints]

    def room() -> int:
        taken = sum(size + 2 for size in map(_widest, (numbers, ages, changes, turns, pins, sessions)) if size)
        return width - taken - 10

    for column in (sessions, turns, changes):
        if room() < _LEAST_WHAT:
            column[:] = [""] * len(column)
    what = max(room(), _LEAST_WHAT)
    lines = []
    for at, (_, each) in enumerate(checkpoints):
        cells = [
            numbers[at].rjust(_widest(numbers)),
            ink("yellow", each.short_id),
            ink("dim", pad(ages[at], _widest(ages))),
            _what(each, what, ink),
            _signs(pad(changes[at], _widest(changes)), ink),
            ink("dim", pad(turns[at], _widest(turns))),
            ink("magenta", pad(pins[at], _widest(pins))),
            ink("dim", sessions[at]),
        ]
        lines.append("  ".join(cell for cell in cells if cell).rstrip())
    return lines


def changed(checkpoint: Checkpoint) -> str:
    """`+12 -3 in 2 files`, against the checkpoint before it."""
    if checkpoint.scope == "paths":
        return "named files only"
    files, more, less = checkpoint.files_changed, checkpoint.insertions, checkpoint.deletions
    if files is None:
        return ""
    if files == 0:
        return "same content"
    return f"+{more} -{less} in {count(files, 'file')}" if more or less else count(files, "file")


def described(checkpoint: Checkpoint) -> str:
    """What a checkpoint was taken for, with its label: a person knows a turn by what they asked."""
    label = f"[{one_line(checkpoint.label)}] " if checkpoint.label else ""
    return label + one_line(prompt_of(checkpoint) or checkpoint.reason)


def prompt_of(checkpoint: Checkpoint) -> str:
    prompt = checkpoint.metadata.get("prompt")
    return prompt if isinstance(prompt, str) and checkpoint.kind == "turn" else ""


def _what(checkpoint: Checkpoint, room: int, ink: Ink) -> str:
    text = pad(cut(described(checkpoint), room), room)
    if checkpoint.label:
        return ink("cyan", text)
    return ink("dim", text) if checkpoint.kind in _QUIET else text


def _signs(text: str, ink: Ink) -> str:
    words = text.split(" ")
    styles = {"+": "green", "-": "red"}
    return " ".join(ink(styles[word[0]], word) if word and word[0] in styles else word for word in words)


def _clipped(text: str) -> str:
    while columns(text) > _SESSION:
        text = text[:-1]
    return text


def _widest(column: list[str]) -> int:
    return max(map(columns, column), default=0)
