"""The carrier: a git tree that says everything about a lane which its checkpoints do not say themselves.

    about            JSON: format, lane, identity of the project, machine, parent lane
    checkpoints-N    pieces of JSON lines: id, time, pin and label of each checkpoint, oldest first
    log-N            pieces of the operation log
    meta/<name>      the conversations kept with a checkpoint, if the lane carries them

Where a piece ends depends on the lines in it alone. So a push that adds a line changes the last piece, and one
that drops the oldest changes the first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from shadowsnap import lightjson as json
from shadowsnap.deadline import Deadline
from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.refs import read_refs
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, format_tree
from shadowsnap.store.checkpoints import ATTACHMENTS, label_of
from shadowsnap.store.history import ensure_log, fold, lines_of
from shadowsnap.store.lanes import OwnLane, machine_name
from shadowsnap.store.layout import Store
from shadowsnap.store.log import Line, paths_in
from shadowsnap.store.projects import Project, locked_project

FORMAT = 1
_MOST_PATHS = 200
_PER_PIECE = 16
_MOST_IN_PIECE = 128


@dataclass(frozen=True)
class Contents:
    """What a project's lane is to hold, as of one moment."""

    checkpoints: dict[str, str]
    """Names `<ms>-<hash12>`, oldest first, and ids."""
    pins: frozenset[str]
    labels: dict[str, str]
    """By id."""
    attachments: dict[str, str]
    """By name: the tree of the conversations."""
    lines: list[Line]
    turns: int

    @property
    def newest(self) -> int:
        return int(max(self.checkpoints, default="0")[:13])


def read_contents(store: Store, project: Project, deadline: Deadline, *, conversations: bool) -> Contents:
    """Everything of a project that goes into its lane, read at one moment."""
    with locked_project(store, project, "push", deadline):
        ensure_log(store, project, deadline)
        lines = lines_of(store, project, deadline)
        checkpoints = dict(sorted(read_refs(store.git_dir, project.refs).items()))
        pins = frozenset(read_refs(store.git_dir, project.pins))
        labels = {of: label_of(key) for key, of in read_refs(store.git_dir, project.labels).items()}
        attachments = read_refs(store.git_dir, f"{ATTACHMENTS}/{project.id}") if conversations else {}
        lines = [_portable(store, line) for line in lines]
    turns = len(fold(project, lines).turns)
    attachments = {name: tree for name, tree in sorted(attachments.items()) if name in checkpoints}
    return Contents(checkpoints, pins, labels, attachments, lines, turns)


def _portable(store: Store, line: Line) -> Line:
    """A log line as another machine can read it: without the refs of this store, and with few paths."""
    line = {name: value for name, value in line.items() if name != "refs"}
    if line.get("paths"):
        line["paths"] = (paths_in(store, line) or ["?"])[:_MOST_PATHS]
    return line


def write_carrier(objects: LooseObjects, contents: Contents, lane: OwnLane) -> tuple[str, tuple[str, ...]]:
    """Write the tree of a lane; its id, and the blobs it is made of."""
    return write_rows(objects, about_lane(lane), mark_rows(contents), contents.lines, contents.attachments)


def about_lane(lane: OwnLane) -> Line:
    return {
        "format": FORMAT,
        "lane": lane.lane,
        "identity": lane.identity.to_dict(),
        "machine": {"id": lane.machine, "name": machine_name()},
        "parent": lane.parent,
    }


def mark_rows(contents: Contents) -> list[Line]:
    return [_mark(contents, name, commit) for name, commit in contents.checkpoints.items()]


def write_rows(
    objects: LooseObjects, about: Line, marks: Iterable[Line], lines: Iterable[Line], attachments: dict[str, str]
) -> tuple[str, tuple[str, ...]]:
    blobs: list[str] = []

    def piece(data: bytes) -> Leaf:
        blobs.append(objects.write(b"blob", data))
        return REGULAR, blobs[-1]

    top = {b"about": piece(encoded(about))}
    for name, rows in ((b"checkpoints", marks), (b"log", lines)):
        pieces = _pieces(map(encoded, rows))
        top |= {b"%s-%06d" % (name, number): piece(data) for number, data in enumerate(pieces)}
    if attachments:
        top[b"meta"] = (DIRECTORY, write_attachments(objects, attachments))
    return objects.write(b"tree", format_tree(top)), tuple(blobs)


def write_attachments(objects: LooseObjects, attachments: dict[str, str]) -> str:
    kept = {name.encode(): (DIRECTORY, tree) for name, tree in attachments.items()}
    return objects.write(b"tree", format_tree(kept))


def _mark(contents: Contents, name: str, commit: str) -> Line:
    mark: Line = {"id": commit, "ms": int(name[:13])}
    if name in contents.pins:
        mark["pinned"] = True
    if commit in contents.labels:
        mark["label"] = contents.labels[commit]
    return mark


def encoded(value: Line) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"


def _pieces(rows: Iterable[bytes], ends: Callable[[bytes], int] = zlib.crc32) -> Iterator[bytes]:
    piece: list[bytes] = []
    for row in rows:
        piece.append(row)
        if ends(row) % _PER_PIECE == 0 or len(piece) >= _MOST_IN_PIECE:
            yield b"".join(piece)
            piece = []
    if piece:
        yield b"".join(piece)
