"""A list of checkpoints that can be read at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shadowsnap.cli.text import age, columns, count, cut, cut_path, one_line, pad, safe
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.model import Checkpoint
    Numbered = tuple[int, Checkpoint]
    from shadowsnap.model import Change

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


_MARKS = {
    "added": ("A", "green"),
    "deleted": ("D", "red"),
    "modified": ("M", "yellow"),
    "typechange": ("T", "cyan"),
}
_IN_HUNK = {"+": "green", "-": "red", "@": "cyan"}
_LEAST_PATH = 20


def change_lines(changes: Sequence[Change], width: int, ink: Ink) -> Iterator[str]:
    """One line per path, and a sum."""
    if not changes:
        return
    numbers = [_numbers(change) for change in changes]
    room = max(_LEAST_PATH, width - max(map(len, numbers)) - 6)
    paths = [cut_path(safe(change.path), room) for change in changes]
    wide = max(map(columns, paths))
    for change, path, lines in zip(changes, paths, numbers, strict=True):
        mark, style = _MARKS.get(change.status, ("?", "dim"))
        yield f"  {ink(style, mark)} {pad(path, wide)}  {lines}".rstrip()
    more, less = (sum(each or 0 for each in side) for side in _sides(changes))
    yield f"  {count(len(changes), 'path')}, +{more} -{less}"


def patch_lines(text: str, ink: Ink) -> Iterator[str]:
    """A patch, harmless and coloured."""
    inside = False
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("diff --git "):
            inside = False
        elif line.startswith("@@"):
            inside = True
        style = _IN_HUNK.get(line[:1]) if inside else "bold"
        shown = safe(line, keep="\t")
        yield ink(style, shown) if style else shown


def _numbers(change: Change) -> str:
    if change.insertions is None or change.deletions is None:
        return "binary"
    if change.path.endswith("/"):
        return "directory"
    return f"+{change.insertions} -{change.deletions}"


def _sides(changes: Sequence[Change]) -> tuple[list[int | None], list[int | None]]:
    return [change.insertions for change in changes], [change.deletions for change in changes]
