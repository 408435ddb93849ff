"""What differs, for people: one line per path, or a patch in colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.text import columns, count, cut_path, pad, safe
from shadowsnap.cli.ui import Ink

if TYPE_CHECKING:
    from shadowsnap.model import Change

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
