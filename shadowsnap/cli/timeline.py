"""A list of checkpoints that can be read at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shadowsnap.cli.text import age, columns, count, cut, one_line, pad
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:
    from shadowsnap.model import Checkpoint

    Numbered = tuple[int, Checkpoint]

_LEAST_WHAT = 12
_SESSION = 8
_QUIET = ("turn-end", "pre-restore")


class Columns(NamedTuple):
    """A list by columns. One that nobody needs is empty, and so is one that there is no room for."""

    numbers: list[str]
    ages: list[str]
    changes: list[str]
    turns: list[str]
    pins: list[str]
    sessions: list[str]

    def room(self, width: int) -> int:
        """What is left for the text, beside the id and the space between columns."""
        return width - sum(size + 2 for size in map(widest, self) if size) - 10


def columns_of(checkpoints: Sequence[Numbered], width: int) -> Columns:
    found = Columns(
        [str(number) for number, _ in checkpoints],
        [age(each.created_at) for _, each in checkpoints],
        [changed(each) for _, each in checkpoints],
        [f"turn {each.turn}" if each.turn else "" for _, each in checkpoints],
        ["pinned" if each.pinned else "" for _, each in checkpoints],
        [_clipped(one_line(each.session_id or "")) for _, each in checkpoints],
    )
    for column in (found.sessions, found.turns, found.changes):
        if found.room(width) < _LEAST_WHAT:
            column[:] = [""] * len(column)
    return found


def rows(checkpoints: Sequence[Numbered], width: int, ink: Ink) -> list[str]:
    """Number, id, age, what it was taken for, what changed, turn, pin, session: one line each."""
    numbers, ages, changes, turns, pins, sessions = found = columns_of(checkpoints, width)
    what = max(found.room(width), _LEAST_WHAT)
    lines = []
    for at, (_, each) in enumerate(checkpoints):
        cells = [
            numbers[at].rjust(widest(numbers)),
            ink("yellow", each.short_id),
            ink("dim", pad(ages[at], widest(ages))),
            _what(each, what, ink),
            _signs(pad(changes[at], widest(changes)), ink),
            ink("dim", pad(turns[at], widest(turns))),
            ink("magenta", pad(pins[at], widest(pins))),
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


def widest(column: list[str]) -> int:
    return max(map(columns, column), default=0)
