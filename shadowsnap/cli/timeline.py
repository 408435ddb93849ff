"""A list of checkpoints that can be read at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.text import age, columns, count, cut, one_line, pad
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:
    from shadowsnap.model import Checkpoint

    Numbered = tuple[int, Checkpoint]

_LEAST_WHAT = 16
_SESSION = 8
_QUIET = ("turn-end", "pre-restore")


def rows(checkpoints: Sequence[Numbered], width: int, ink: Ink) -> list[str]:
    """Number, id, age, what it was taken for, what changed, pin, session: one line each. A
    column that nobody needs is left out."""
    if not checkpoints:
        return []
    numbers = [str(number) for number, _ in checkpoints]
    ages = [age(checkpoint.created_at) for _, checkpoint in checkpoints]
    changes = [changed(checkpoint) for _, checkpoint in checkpoints]
    pins = ["pinned" if checkpoint.pinned else "" for _, checkpoint in checkpoints]
    sessions = [cut_session(checkpoint.session_id) for _, checkpoint in checkpoints]
    wide = [max(map(columns, column)) for column in (numbers, ages, changes, pins, sessions)]
    room = width - sum(size + 2 for size in wide if size) - 10
    if room < _LEAST_WHAT and wide[4]:
        room, wide[4] = room + wide[4] + 2, 0
    room = max(room, _LEAST_WHAT)
    lines = []
    for row, (_, checkpoint) in enumerate(checkpoints):
        cells = [
            numbers[row].rjust(wide[0]),
            ink("yellow", checkpoint.short_id),
            ink("dim", pad(ages[row], wide[1])),
            _what(checkpoint, room, ink),
        ]
        if wide[2]:
            cells.append(_coloured(pad(changes[row], wide[2]), ink))
        if wide[3]:
            cells.append(ink("magenta", pad(pins[row], wide[3])))
        if wide[4]:
            cells.append(ink("dim", sessions[row]))
        lines.append("  ".join(cells).rstrip())
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
    """What a checkpoint was taken for, with its label."""
    label = f"[{one_line(checkpoint.label)}] " if checkpoint.label else ""
    return label + one_line(checkpoint.reason)


def cut_session(session_id: str | None) -> str:
    return cut(one_line(session_id), _SESSION) if session_id else ""


def _what(checkpoint: Checkpoint, room: int, ink: Ink) -> str:
    text = pad(cut(described(checkpoint), room), room)
    if checkpoint.label:
        return ink("cyan", text)
    return ink("dim", text) if checkpoint.kind in _QUIET else text


def _coloured(text: str, ink: Ink) -> str:
    words = text.split(" ")
    styles = {"+": "green", "-": "red"}
    return " ".join(ink(styles[word[0]], word) if word and word[0] in styles else word for word in words)
