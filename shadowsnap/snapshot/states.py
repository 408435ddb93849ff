"""A state of the files, as a checkpoint or a capture tells it, and what differs between two."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence

from shadowsnap.errors import GitFailed, UnsafeTree
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git, side_by_side
from shadowsnap.git.trees import DIRECTORY, LINK, Leaf, TreeReader, path_problem, tree_changes
from shadowsnap.model import Change, Checkpoint
from shadowsnap.records import NamedTuple, dataclass
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.stat_cache import Modes

_FEW_DIRECTORIES = 50
"""So many are compared sooner than git is started."""


@dataclass(frozen=True)
class State:
    tree: str
    modes: Modes
    bare: frozenset[bytes]
    """Directories without captured files."""
    skipped: dict[bytes, str]
    absent: frozenset[bytes]
    """Paths that were looked for and did not exist. (With a slash: directories on the way.)"""
    scope: str
    patterns: tuple[str, ...]
    """Exclude patterns of the project, beside the defaults."""
    rules: dict[bytes, bytes]
    """The .gitignore files that were not captured, and what they said."""
    complete: bool = True
    """False for a checkpoint of another tool: it knows no permission bits and no empty directories."""

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> State:
        told = checkpoint.metadata
        return cls(
            tree=checkpoint.tree,
            modes=Modes.from_json(told.get("modes", {})),
            bare=_paths(told.get("empty_dirs", ())),
            skipped={os.fsencode(item.path): item.why for item in checkpoint.skipped},
            absent=_paths(told.get("absent", ())),
            scope=checkpoint.scope,
            patterns=tuple(told.get("excludes", {}).get("own", ())),
            rules={os.fsencode(path): os.fsencode(text) for path, text in told.get("rules", {}).items()},
            complete="modes" in told,
        )

    @classmethod
    def of_capture(cls, capture: Capture) -> State:
        return cls(
            tree=capture.tree(),
            modes=capture.modes,
            bare=frozenset(capture.bare),
            skipped=dict(capture.skipped),
            absent=frozenset(capture.absent),
            scope=capture.scope,
            patterns=tuple(capture.space.patterns),
            rules=capture.hidden_rules(),
        )

    def left_out(self, path: bytes) -> str | None:
        """Why a path that was there is not in this state, or a directory above it."""
        places = (path, *(parent + b"/" for parent in parents(path)))
        return next((self.skipped[place] for place in places if place in self.skipped), None)

    def bits(self, path: bytes, mode: int) -> int:
        """Permission bits of a path whose git mode is known."""
        usual = self.modes.directory if mode == DIRECTORY else self.modes.usual(mode)
        return self.modes.other.get(path, usual)


class Selection:
    """Which paths an operation is about: all of them, some with everything below, or exactly some."""

    def __init__(self, paths: Iterable[bytes] = (), *, exact: bool = False) -> None:
        self.paths = frozenset(paths)
        self.exact = exact

    def __bool__(self) -> bool:
        """Whether there is a choice at all."""
        return bool(self.paths)

    def __contains__(self, path: bytes) -> bool:
        chosen = self.paths
        if not chosen or path in chosen or b"" in chosen:
            return True
        return not self.exact and any(parent in chosen for parent in parents(path))


class Difference(NamedTuple):
    """One path that differs: what was and what is there, None for nothing."""

    path: bytes
    old: Leaf | None
    new: Leaf | None

    @property
    def status(self) -> str:
        if self.old is None:
            return "added"
        if self.new is None:
            return "deleted"
        return "typechange" if _kind(self.old) != _kind(self.new) else "modified"


def tree_differences(git: Git, old: str, new: str) -> list[Difference]:
    """Every file that differs between two trees."""
    if old == new:
        return []
    with ObjectReader(git) as reader:
        rows = tree_changes(old, new, lambda name: reader.read(name, b"tree"), _FEW_DIRECTORIES)
    if rows is not None:
        return [Difference(*row) for row in rows]
    try:
        answer = git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", old, new)
    except GitFailed:
        with ObjectReader(git) as reader:  # it says more precisely what is wrong
            tree_changes(old, new, lambda name: reader.read(name, b"tree"), sys.maxsize)
        raise
    found = parse_differences(answer.split(b"\0")[:-1])
    _check_paths(found)
    return found


def _check_paths(differing: list[Difference]) -> None:
    """As `parse_tree` does for trees that we read ourselves."""
    paths: set[bytes] = set()
    for item in differing:
        why = path_problem(item.path) or ("there are two of that name" if item.path in paths else None)
        if why is not None:
            raise UnsafeTree(name=os.fsdecode(item.path), why=why)
        paths.add(item.path)


def parse_differences(parts: list[bytes]) -> list[Difference]:
    """What `--raw -z` says, cut at every NUL."""
    return [_parsed(meta, path) for meta, path in zip(parts[0::2], parts[1::2], strict=True)]


def mode_differences(git: Git, old: State, new: State, changed: Iterable[bytes]) -> list[Difference]:
    """Files and directories that are in both states and differ in permission bits only."""
    if not (old.complete and new.complete):
        return []
    doubtful = set(old.modes.other.keys() | new.modes.other.keys()) - set(changed)
    if _usual(old.modes) != _usual(new.modes):
        listed = git.run("ls-tree", "-r", "-t", "-z", "--name-only", new.tree).split(b"\0")[:-1]
        doubtful |= set(listed) - set(changed)
    if not doubtful:
        return []
    found = []
    with ObjectReader(git) as reader:
        before, after = (
            TreeReader(tree, lambda name: reader.read(name, b"tree")) for tree in (old.tree, new.tree)
        )
        for path in sorted(doubtful):
            was = before.find(path) or ((DIRECTORY, "") if path in old.bare else None)
            now = after.find(path) or ((DIRECTORY, "") if path in new.bare else None)
            if was is None or now is None or was[0] != now[0] or now[0] == LINK:
                continue
            if old.bits(path, was[0]) != new.bits(path, now[0]):
                found.append(Difference(path, was, now))
    return found


def _parsed(meta: bytes, path: bytes) -> Difference:
    old_mode, new_mode, old_id, new_id, _ = meta[1:].split(b" ")
    return Difference(path, _leaf(old_mode, old_id), _leaf(new_mode, new_id))


def _leaf(mode: bytes, name: bytes) -> Leaf | None:
    return (int(mode, 8), name.decode()) if int(mode, 8) else None


def _kind(leaf: Leaf) -> int:
    return leaf[0] & 0o170000


def _usual(modes: Modes) -> tuple[int, int, int]:
    return modes.file, modes.executable, modes.directory


def _paths(names: Iterable[str]) -> frozenset[bytes]:
    return frozenset(os.fsencode(name) for name in names)


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
