"""The difference between two states, for people: per path and as unified text."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from shadowsnap.engine.state import Difference, Selection, State, mode_differences, parse_differences
from shadowsnap.git.runner import Git, side_by_side
from shadowsnap.git.trees import DIRECTORY
from shadowsnap.model import Change

_TEXT = ("diff-tree", "-r", "-p", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv")
_LISTED = ("diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev")

_Numbers = tuple[int | None, int | None]


def compare(git: Git, old: State, new: State, paths: Sequence[bytes]) -> tuple[tuple[Change, ...], str]:
    """What differs, of everything or below some paths."""
    chosen = Selection(paths)
    differing, numbers, text = _differences(git, old, new, paths)
    left_out = {item.path: why for item in differing if (why := _why_left_out(item, old, new))}
    if left_out:
        text = _without(left_out, text)
    changes = [
        Change(os.fsdecode(item.path), "modified", None, None)
        if item.path in left_out
        else _change(item, numbers.get(item.path, (0, 0)))
        for item in differing
    ]
    modes = mode_differences(git, old, new, [item.path for item in differing])
    for item in modes:
        if item.path in chosen:
            changes.append(_change(item, (0, 0)))
            text += _mode_text(item, old, new)
    if not (old.complete and new.complete):
        return tuple(sorted(changes, key=lambda change: change.path)), text
    changes += [
        _bare(path, "added") for path in new.bare - old.bare if path in chosen and new.scope == old.scope
    ]
    changes += [
        _bare(path, "deleted")
        for path in old.bare - new.bare
        if path in chosen and _vanished(path, changes, old, new)
    ]
    return tuple(sorted(changes, key=lambda change: change.path)), text


def _vanished(path: bytes, changes: list[Change], old: State, new: State) -> bool:
    below = os.fsdecode(path) + "/"
    filled = any(change.path.startswith(below) for change in changes)
    return new.scope == old.scope and not filled


def _why_left_out(item: Difference, old: State, new: State) -> str | None:
    """Why one of the states does not hold a path that was there all the same."""
    if item.old is None or item.new is None:
        return (old if item.old is None else new).left_out(item.path)
    return None


def _without(left_out: dict[bytes, str], text: str) -> str:
    """The text with a word in place of contents that were not captured: they neither came nor went."""
    headers = {f"{_header(path)}\n": why for path, why in left_out.items()}
    sections = re.split(r"(?m)^(?=diff --git )", text)
    lines = ((section, section[: section.find("\n") + 1]) for section in sections)
    return "".join(
        f"{header}not captured: {headers[header]}\n" if header in headers else section for section, header in lines
    )


def _differences(
    git: Git, old: State, new: State, paths: Sequence[bytes]
) -> tuple[list[Difference], dict[bytes, _Numbers], str]:
    """The files that differ, how many lines each, and the text."""
    if old.tree == new.tree:
        return [], {}, ""
    wanted, chosen = Selection(paths), [path for path in paths if path]
    limits = [b"--", *chosen] if chosen and len(chosen) == len(paths) else []
    listed = git.start(*_LISTED, old.tree, new.tree, *limits)
    text = git.start(*_TEXT, old.tree, new.tree, *limits)
    with side_by_side(listed, text):
        parts = listed.output().split(b"\0")[:-1]
        # First two parts for each file, the first of which begins with a colon; then one with its numbers.
        end = next((at for at in range(0, len(parts), 2) if not parts[at].startswith(b":")), len(parts))
        rows = (row.split(b"\t", 2) for row in parts[end:])
        counted = {path: (_count(added), _count(removed)) for added, removed, path in rows}
        differing = [item for item in parse_differences(parts[:end]) if item.path in wanted]
        return differing, counted, text.output().decode("utf-8", "surrogateescape")


def _change(item: Difference, numbers: _Numbers) -> Change:
    slash = "/" if (item.new or item.old or (0, ""))[0] == DIRECTORY else ""
    return Change(os.fsdecode(item.path) + slash, item.status, *numbers)


def _bare(path: bytes, status: str) -> Change:
    return Change(os.fsdecode(path) + "/", status)


def _mode_text(item: Difference, old: State, new: State) -> str:
    assert item.old is not None and item.new is not None
    kind = item.new[0] & 0o170000
    before, after = old.bits(item.path, item.old[0]), new.bits(item.path, item.new[0])
    return f"{_header(item.path)}\nold mode {kind | before:06o}\nnew mode {kind | after:06o}\n"


def _header(path: bytes) -> str:
    return f"diff --git {_quoted(b'a/' + path)} {_quoted(b'b/' + path)}"


def _quoted(name: bytes) -> str:
    """A name as git writes it in a patch."""
    plain = {byte: chr(byte) for byte in range(32, 127)} | {34: '\\"', 92: "\\\\", 9: "\\t", 10: "\\n"}
    text = "".join(plain.get(byte, f"\\{byte:03o}") for byte in name)
    return text if text.encode() == name else f'"{text}"'


def _count(number: bytes) -> int | None:
    return None if number == b"-" else int(number)
