"""Checks of what was pulled, before any of it is used. No name, size or id in it is trusted."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterable, Iterator
from pathlib import Path
from typing import Any

from shadowsnap.errors import DamagedObject, LaneRefused, MalformedObject, UnsafeTree
from shadowsnap.files import parse_json
from shadowsnap.git.objects import EMPTY_TREE, is_object_id
from shadowsnap.git.reading import ObjectReader, kinds_and_sizes, object_sizes, problem_of_link, read_many
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, MOST_PATHS, REGULAR, Leaf, parse_tree, path_problem
from shadowsnap.store.lanes import (
    LANE_NAME,
    Identity,
    Machine,
    Mark,
    identity_from,
    mark_from,
    read_rows,
    readable,
)
from shadowsnap.store.log import Line

MOST_CHECKPOINTS = 20_000
MOST_FILES = MOST_PATHS
"""In one checkpoint. A few nested trees can expand to billions of files."""
MOST_FILE_BYTES = 256 << 30
"""In one checkpoint."""
DEEPEST = 1_000
_MOST_TREE_BYTES = 1 << 30
"""Of all commits and trees of a lane."""
MOST_SMALL = 64 << 20
"""No commit, tree or piece of a carrier is larger."""
MOST_LINES = 1_000_000
_LONGEST_TEXT = 1 << 16
_COMMIT = re.compile(
    rb"tree ([0-9a-f]{40})\nauthor shadowsnap <shadowsnap@localhost> (\d{1,11}) \+0000\n"
    rb"committer shadowsnap <shadowsnap@localhost> (\d{1,11}) \+0000\n\n"
)
_MODES = (DIRECTORY, REGULAR, EXECUTABLE, LINK)
_CARRIER = re.compile(rb"about|meta|(?:checkpoints|log)-\d{6}")
# Git's checks of these files do not matter: they are the person's content, and are only written back.
_MODULES = tuple(
    f"gitmodules{each}"
    for each in ("Missing", "Blob", "Large", "Name", "Symlink", "Url", "Path", "Update", "Parse")
)
STREAMED = ("core.bigFileThreshold=64m",)
"""Larger files are never in memory as a whole, unless they arrive as deltas."""
ANY_CONTENT = (*_MODULES, *(f"gitattributes{each}" for each in ("Missing", "Large", "LineLength", "Blob")))


# --- packs -------------------------------------------------------------------------------------------


def index_pack(git: Git, pack: Path, lane: str, known: set[str]) -> set[str]:
    """Let git hash and check every object of a pack, which goes to the scratch directory; returns the ids of the
    objects in it. The base of a delta must be one of the `known` objects, which came with this lane before: git
    would take it from anywhere in the store."""
    end = pack.stat().st_size - 20
    git = git.bound(untrusted=True, config=STREAMED)
    digits = _index(git, pack, ANY_CONTENT)
    digits = digits or _index(git, pack, _MODULES)  # git before 2.39.1 does not look at .gitattributes
    if not digits:
        why = "a pack does not hold what it should: it is damaged, cut short, or claims more than fits into memory"
        raise LaneRefused(lane=lane, why=why)
    assert git.scratch_objects is not None
    index = git.scratch_objects / "pack" / f"pack-{digits}.idx"
    rows = [row.split() for row in git.run("show-index", stdin=index.read_bytes()).decode("ascii").splitlines()]
    # Git appends the bases of deltas that the pack lacks.
    borrowed = {row[1] for row in rows if int(row[0]) >= end}
    _require_known(lane, borrowed, known)
    return {row[1] for row in rows} - borrowed


def _index(git: Git, pack: Path, ignored: Iterable[str]) -> str:
    """The name of the indexed pack; empty if git refused it."""
    strict = ",".join(f"{each}=ignore" for each in ignored)
    with git.conversation("index-pack", "--stdin", "--fix-thin", f"--strict={strict}") as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            with pack.open("rb") as file:
                while piece := file.read(1 << 20):
                    process.stdin.write(piece)
            process.stdin.close()
        except OSError:
            return ""  # git ended before it had read everything
        answer = process.stdout.read(200).decode("ascii", "replace").split()
        return answer[-1] if process.wait() == 0 and answer and is_object_id(answer[-1]) else ""


# --- the carrier -------------------------------------------------------------------------------------


class CheckedCarrier:
    """The description of a lane, after it was checked."""

    def __init__(
        self, lane: str, about: Any, rows: Iterable[Any], lines: Iterable[Any], attachments: dict[bytes, Leaf]
    ) -> None:
        self._lane = lane
        self._read_about(about)
        self.attachments = {name.decode("ascii", "replace"): leaf[1] for name, leaf in attachments.items()}
        if any(leaf[0] != DIRECTORY for leaf in attachments.values()):
            raise self._refused("has a malformed attachment")
        self.rows = [*rows]
        self.marks = [self._mark(row) for row in self.rows]
        if len({mark.id for mark in self.marks}) != len(self.marks):
            raise self._refused("names a checkpoint twice")
        self.lines: list[Line] = [*lines]
        for line in self.lines:
            if (why := line_problem(line)) is not None:
                raise self._refused(f"has a log line that cannot be: {why}")

    @classmethod
    def read(cls, git: Git, tree: str, lane: str, allowed: set[str]) -> CheckedCarrier:
        """Read and check the carrier in a tree."""
        with ObjectReader(git) as reader:
            try:
                top = parse_tree(reader.read(tree, b"tree"))
                if b"about" not in top or not all(map(_CARRIER.fullmatch, top)):
                    raise carrier_refused(lane, "does not have the form of one")
                _check_pieces(git, top, lane, allowed)
                about = parse_json(reader.read(top[b"about"][1], b"blob"))
                rows = list(_bounded(read_rows(reader, top, b"checkpoints-"), MOST_CHECKPOINTS))
                lines = list(_bounded(read_rows(reader, top, b"log-"), MOST_LINES))
                kept = parse_tree(reader.read(top[b"meta"][1], b"tree")) if b"meta" in top else {}
            except (UnsafeTree, MalformedObject, DamagedObject, ValueError, RecursionError) as problem:
                raise carrier_refused(lane, f"cannot be read ({problem})") from None
        return cls(lane, about, rows, lines, kept)

    def _read_about(self, about: Any) -> None:
        self.about: Any = about
        identity = identity_from(about.get("identity") or {}) if isinstance(about, dict) else None
        machine = about.get("machine") if isinstance(about, dict) else None
        if identity is None or not isinstance(machine, dict) or about.get("format") != 1:
            raise self._refused("does not say which project and machine it is of")
        if about.get("lane") != self._lane or f"{identity.id}/{machine.get('id')}" != self._lane:
            raise self._refused("belongs to another lane")
        self.identity: Identity = identity
        self.machine = Machine(str(machine["id"]), readable(machine.get("name")))
        parent = about.get("parent")
        self.parent = parent if isinstance(parent, str) and LANE_NAME.fullmatch(parent) else None

    def _mark(self, row: Any) -> Mark:
        if not isinstance(row, dict) or not isinstance(row.get("id"), str) or not is_object_id(row["id"]):
            raise self._refused("lists something that is no checkpoint")
        if type(row.get("ms")) is not int or not 0 <= row["ms"] < 10**13:
            raise self._refused("has a checkpoint without a time")
        label = row.get("label")
        if label is not None and (not isinstance(label, str) or not label.isprintable() or len(label) > 100):
            raise self._refused("has a label that cannot be one")
        return mark_from(row, self.attachments)

    def _refused(self, why: str) -> LaneRefused:
        return carrier_refused(self._lane, why)


def carrier_refused(lane: str, why: str) -> LaneRefused:
    return LaneRefused(lane=lane, why=f"its carrier {why}")


def _check_pieces(git: Git, top: dict[bytes, Leaf], lane: str, allowed: set[str]) -> None:
    pieces = [leaf for name, leaf in top.items() if name != b"meta"]
    _require_known(lane, [each for _, each in top.values()], allowed)
    if any(mode != REGULAR for mode, _ in pieces):
        raise carrier_refused(lane, "does not have the form of one")
    check_small(git, [each for _, each in pieces], lane)


def check_small(git: Git, names: Collection[str], lane: str) -> None:
    """Check that objects of a carrier exist, and are together small enough to be read."""
    sizes = object_sizes(git, sorted({*names}))
    if len(sizes) < len({*names}) or sum(sizes.values()) > MOST_SMALL:
        raise carrier_refused(lane, "is too large, or not complete")


def _bounded(rows: Iterable[Any], most: int) -> Iterator[Any]:
    for number, row in enumerate(rows):
        if number >= most:
            raise ValueError("it has too many lines")
        yield row


_IDS = ("checkpoint", "before", "after", "target", "amends")
_NUMBERS = ("turn", "number", "messages")


def line_problem(line: Any) -> str | None:
    """Why a log line of another machine is not valid; None if it is."""
    if not isinstance(line, dict) or not isinstance(line.get("op"), str):
        return "it is no operation"
    at = line.get("at")
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < 1e11:
        return "it has no time"
    for name, value in line.items():
        if not isinstance(name, str) or len(name) > 100:
            return "it has an odd name"
        if name in _IDS and not (isinstance(value, str) and (is_object_id(value) or value == "")):
            return f"{name} is no id"
        if name in _NUMBERS and (type(value) is not int or not 0 <= value < 10**12):
            return f"{name} is no number"
        if name == "paths":
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                return "its paths are malformed"
            if any(_is_odd_path(each) for each in value):
                return "it has a path that no checkpoint may hold"
        elif not _is_small(value):
            return f"{name} is too large"
    return None


def _is_odd_path(path: str) -> bool:
    try:
        return path_problem(os.fsencode(path.removesuffix("/"))) is not None
    except UnicodeEncodeError:
        return True


def _is_small(value: Any, depth: int = 0) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT
    if isinstance(value, list):
        return depth < 4 and len(value) <= 10_000 and all(_is_small(each, depth + 1) for each in value)
    if isinstance(value, dict):
        return depth < 4 and len(value) <= 1000 and all(_is_small(each, depth + 1) for each in value.values())
    return value is None or isinstance(value, (bool, int, float))


# --- checkpoints and trees ---------------------------------------------------------------------------


class ArrivedObjects:
    """The objects that came with a lane, with their kinds and sizes. An object that the lane only names, because
    another project of this store has it, is not among them."""

    def __init__(self, git: Git, lane: str, allowed: Iterable[str]) -> None:
        self._git = git
        self._lane = lane
        self._facts = kinds_and_sizes(git, allowed)
        # All of them are held in memory at once.
        if sum(size for kind, size in self._facts.values() if kind != b"blob") > _MOST_TREE_BYTES:
            raise LaneRefused(lane=lane, why="its directories are larger than anything that fits into memory")

    def check_checkpoints(self, marks: Iterable[Mark]) -> None:
        """Check that every checkpoint is a commit as shadowsnap writes them, with trees that may be restored."""
        by_id = {mark.id: mark for mark in marks}
        trees = {}
        for name, _, data in read_many(self._git, self._of_kind(b"commit", by_id)):
            trees[name] = _tree_of(self._lane, by_id[name], data)
        if len(trees) < len(by_id):
            raise self._refused(f"{len(by_id) - len(trees)} of its checkpoints did not come with it")
        self.check_trees({*trees.values()})

    def check_trees(self, roots: set[str]) -> None:
        """Check every name, mode and size below these trees."""
        below: dict[str, list[tuple[int, str]]] = {EMPTY_TREE: []}
        blobs: set[str] = set()
        links: set[str] = set()
        level, depth = roots - {EMPTY_TREE}, 0
        while level:
            depth += 1
            if depth > DEEPEST:
                raise self._refused(f"its directories are nested deeper than {DEEPEST}")
            for name, _, data in read_many(self._git, self._of_kind(b"tree", level)):
                below[name] = list(_read_leaves(self._lane, data))
            if missing := level - below.keys():
                raise self._refused(f"tree {min(missing)[:12]} cannot be read")
            found = [leaf for name in level for leaf in below[name]]
            blobs |= {each for mode, each in found if mode != DIRECTORY}
            links |= {each for mode, each in found if mode == LINK}
            level = {each for mode, each in found if mode == DIRECTORY} - below.keys()
        self._of_kind(b"blob", blobs)
        sizes = {each: self._facts[each][1] for each in blobs}
        _check_expanded_size(self._lane, roots, below, sizes)
        with ObjectReader(self._git) as reader:
            for name in sorted(links):
                if (why := problem_of_link(reader, name)) is not None:
                    raise self._refused(f"it holds a malformed link: {why}")

    def _of_kind(self, kind: bytes, names: Iterable[str]) -> list[str]:
        """The same names, after checking that they came with the lane and are of this kind."""
        names = _require_known(self._lane, names, self._facts)
        for name in names:
            if name in self._facts and self._facts[name][0] != kind:
                raise self._refused(f"{name[:12]} is not a {_KIND_NAMES[kind]}")
        return names

    def _refused(self, why: str) -> LaneRefused:
        return LaneRefused(lane=self._lane, why=why)


_KIND_NAMES = {b"commit": "checkpoint", b"tree": "tree", b"blob": "file"}


def _require_known(lane: str, names: Iterable[str], allowed: Container[str]) -> list[str]:
    names = list(names)
    for name in names:
        if name not in allowed and name != EMPTY_TREE:
            raise LaneRefused(lane=lane, why=f"object {name[:12]} did not come with it")
    return names


def _tree_of(lane: str, mark: Mark, data: bytes) -> str:
    header = _COMMIT.match(data) if len(data) <= MOST_SMALL else None
    if header is None or header[2] != header[3]:
        raise LaneRefused(lane=lane, why=f"{mark.id[:12]} is not a checkpoint")
    try:
        body = parse_json(data[header.end() :].decode("utf-8").partition("\n\n")[2])
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise LaneRefused(lane=lane, why=f"{mark.id[:12]} does not say what it is")
    within = body.get("ms", mark.moment % 1000)
    if type(within) is not int or int(header[2]) * 1000 + within != mark.moment:
        raise LaneRefused(lane=lane, why=f"checkpoint {mark.id[:12]} is listed under another time than its own")
    return header[1].decode()


def _read_leaves(lane: str, data: bytes) -> Iterator[tuple[int, str]]:
    try:
        entries = parse_tree(data)
    except (UnsafeTree, MalformedObject) as problem:
        raise LaneRefused(lane=lane, why=str(problem)) from None
    for leaf in entries.values():
        if leaf[0] not in _MODES:
            raise LaneRefused(lane=lane, why=f"it holds an entry of mode {leaf[0]:o}")
        yield leaf


def _check_expanded_size(
    lane: str, roots: set[str], below: dict[str, list[tuple[int, str]]], sizes: dict[str, int]
) -> None:
    """Check how many files and bytes each tree expands to."""
    expanded: dict[str, tuple[int, int]] = {}
    for root in roots:
        stack = [root]
        while stack:
            tree = stack[-1]
            waiting = [each for mode, each in below[tree] if mode == DIRECTORY and each not in expanded]
            if waiting:
                stack += waiting  # this ends: a tree cannot contain itself, as its id is the hash of its content
                continue
            stack.pop()
            files = total = 0
            for mode, each in below[tree]:
                more = expanded[each] if mode == DIRECTORY else (1, sizes[each])
                files, total = files + 1 + more[0], total + more[1]
            if files > MOST_FILES or total > MOST_FILE_BYTES:
                raise LaneRefused(lane=lane, why="a checkpoint in it spells out more than fits anywhere")
            expanded[tree] = (files, total)
