"""The description of a lane that goes with its checkpoints, in two forms.

The carrier is a git tree, for object stores, directories and encrypted lanes:

    about            JSON: format, lane, identity of the project, machine, parent lane
    checkpoints-N    pieces of JSON lines: id, time, pin and label of each checkpoint, oldest first
    log-N            pieces of the operation log
    meta/<name>      the conversations kept with a checkpoint, if the lane carries them

The lines of a piece alone determine where it ends. So a push that adds a line changes the last piece only, and one
that drops the oldest line the first.

The chain is for plain lanes on git servers: commits whose objects are git's own. Each push adds one to the lane's
ref. Its tree is that of the newest checkpoint; its parents are the commit before it and the checkpoints that are
new. So git knows what the server has and sends only what changed, as deltas. Its message has the head that `lanes`
shows, and then what changed since the last push, in lines of JSON:

    {"about": ...}              which lane it is; only in the commit that a generation begins with
    {"id", "ms", ...}           a checkpoint that is new, or that was pinned or labelled
    {"gone": [...]}             checkpoints that were dropped, by id, and lines of the log, by digest
    {"meta": commit}            a commit whose tree has the conversations, if the lane carries them
    {"op", ...}                 a line of the operation log

When enough was dropped, or something was purged, the owner begins a new generation: a commit without a
predecessor, which describes everything again and whose parents are the checkpoints that are left. What the last
push sent is kept in `<base>/remote/<project>.chain`, for the next one to build on. It does not keep the
checkpoints in the store.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, MalformedObject, UnsafeTree
from shadowsnap.files import parse_json, read_json, write_json
from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.refs import read_refs
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, format_tree, parse_tree
from shadowsnap.remote.checking import MOST_CHECKPOINTS, MOST_LINES, CheckedCarrier, carrier_refused, check_small
from shadowsnap.remote.git_storage import write_commit
from shadowsnap.remote.manifest import HEADS, LONGEST_CHAIN, parse_head
from shadowsnap.store.checkpoints import ATTACHMENTS, label_of
from shadowsnap.store.history import ensure_log, fold, lines_of
from shadowsnap.store.lanes import OwnLane, machine_name
from shadowsnap.store.layout import Store
from shadowsnap.store.log import Line, paths_in
from shadowsnap.store.projects import Project, locked_project

FORMAT = 1
_MOST_PATHS = 200
_LINES_PER_PIECE = 16
_MOST_IN_PIECE = 128


@dataclass(frozen=True)
class Contents:
    """What the lane of a project should hold, read at one moment."""

    checkpoints: dict[str, str]
    """Ids by name (`<ms>-<hash12>`), oldest first."""
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
        lines = [_portable_line(store, line) for line in lines]
    turns = len(fold(project, lines).turns)
    attachments = {name: tree for name, tree in sorted(attachments.items()) if name in checkpoints}
    return Contents(checkpoints, pins, labels, attachments, lines, turns)


def _portable_line(store: Store, line: Line) -> Line:
    """A log line without the refs of this store, and with a bounded number of paths."""
    line = {name: value for name, value in line.items() if name != "refs"}
    if line.get("paths"):
        line["paths"] = (paths_in(store, line) or ["?"])[:_MOST_PATHS]
    return line


# --- the carrier -------------------------------------------------------------------------------------


def write_carrier(objects: LooseObjects, contents: Contents, lane: OwnLane) -> tuple[str, tuple[str, ...]]:
    """Write the tree of a lane; returns its id and the ids of its blobs."""
    return write_carrier_rows(objects, about_lane(lane), mark_rows(contents), contents.lines, contents.attachments)


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


def write_carrier_rows(
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
        if ends(row) % _LINES_PER_PIECE == 0 or len(piece) >= _MOST_IN_PIECE:
            yield b"".join(piece)
            piece = []
    if piece:
        yield b"".join(piece)


# --- the chain ---------------------------------------------------------------------------------------


class NextCommit(NamedTuple):
    """The commit that a push adds, and whether it begins a generation."""

    commit: str
    anew: bool


def add_commit(
    git: Git, objects: LooseObjects, contents: Contents, lane: OwnLane, head: str, *, anew: bool
) -> NextCommit | None:
    """Write the next commit of a lane; None if there is nothing new."""
    folder = objects.directory
    sent = None if anew else read_json(folder / f"{lane.digest}.json")
    marks = {row["id"]: row for row in mark_rows(contents)}
    lines = {_line_digest(encoded(line)): line for line in contents.lines}
    meta = _attachments(objects, contents)
    new_lines = None if sent is None else _appended(sent["lines"], lines)
    if sent is None or new_lines is None:
        anew, sent = True, {"lines": [], "marks": {}, "meta": ""}
        new_lines = list(lines)
    gone = [each for each in sent["marks"] if each not in marks]
    gone += [each for each in sent["lines"] if each not in lines]
    changed = [row for each, row in marks.items() if sent["marks"].get(each) != row]
    rows: list[Line] = [{"about": about_lane(lane)}] if anew else []
    rows += [*changed, *([{"gone": gone}] if gone else ()), *([{"meta": meta}] if meta != sent["meta"] else ())]
    rows += [lines[each] for each in new_lines]
    if not rows:
        return None
    newest = contents.checkpoints[max(contents.checkpoints)]
    new = [each for each in marks if each not in sent["marks"]]
    with ObjectReader(git) as reader:
        tree = reader.read(newest, b"commit")[5:45].decode("ascii")
        for each in new:
            # Kept for the next push: git 2.45 and newer reads every ancestor then, also those that were dropped
            # from the store meanwhile.
            objects.write(b"commit", reader.read(each, b"commit"))
    parents = [*([] if anew else [lane.digest]), *new, *([meta] if meta and meta != sent["meta"] else ())]
    text = b"".join(map(encoded, rows)).decode("ascii")
    commit = write_commit(objects, tree, parents, f"{head}\n{text}".rstrip("\n"))
    write_json(folder / f"{commit}.json", {"lines": list(lines), "marks": marks, "meta": meta})
    return NextCommit(commit, anew)


def forget_older_pushes(folder: Path, commit: str) -> None:
    """Remove the records of all pushes but this one."""
    for path in folder.glob("*.json"):
        if path.stem != commit:
            path.unlink(missing_ok=True)


def _attachments(objects: LooseObjects, contents: Contents) -> str:
    """A commit whose tree has the conversations, the same for the same ones; empty if there are none."""
    if not contents.attachments:
        return ""
    return write_commit(objects, write_attachments(objects, contents.attachments), (), "conversations", at=0)


def _appended(before: list[str], lines: Iterable[str]) -> list[str] | None:
    """The lines that were appended; None if the log changed in another way than by dropping and appending
    lines."""
    known, current = {*before}, [*lines]
    kept = [each for each in current if each in known]
    if kept != current[: len(kept)] or kept != [each for each in before if each in {*kept}]:
        return None
    return current[len(kept) :]


def _line_digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:16]


def read_chain_carrier(git: Git, tip: str, lane: str, allowed: set[str]) -> tuple[CheckedCarrier, int]:
    """The checked carrier that the commits of a lane make together, and the number of the push."""
    texts: list[bytes] = []
    words = ("rev-list", "--first-parent", f"--max-count={LONGEST_CHAIN}", tip)
    commits, number = git.run(*words).decode("ascii").split(), 0
    check_small(git, commits, lane)
    with ObjectReader(git) as reader:
        for commit in commits:
            first, _, body = _read(reader, commit, b"commit", lane).partition(b"\n\n")[2].partition(b"\n\n")
            head = parse_head(f"{HEADS}{lane}/{first.decode('ascii', 'replace')}")
            if head is None or (texts and head.number != number - len(texts)):
                raise carrier_refused(lane, "does not have the form of one")
            number = number or head.number
            texts.append(body.partition(b"\n")[2])
            if texts[-1].startswith(b'{"about":'):
                break
        else:
            raise carrier_refused(lane, "does not have a beginning")
        about, marks, lines, meta = _fold_rows(lane, reversed(texts))
        attachments: dict[bytes, Leaf] = {}
        if meta:
            if meta not in allowed:
                raise carrier_refused(lane, "has a malformed attachment")
            check_small(git, [meta], lane)
            tree = _read(reader, meta, b"commit", lane)[5:45].decode("ascii", "replace")
            check_small(git, [tree], lane)
            try:
                attachments = parse_tree(_read(reader, tree, b"tree", lane))
            except (UnsafeTree, MalformedObject) as problem:
                raise carrier_refused(lane, str(problem)) from None
    return CheckedCarrier(lane, about, marks, lines, attachments), number


def _read(reader: ObjectReader, name: str, kind: bytes, lane: str) -> bytes:
    try:
        return reader.read(name, kind)
    except (DamagedObject, MalformedObject) as problem:
        raise carrier_refused(lane, f"cannot be read ({problem})") from None


def _fold_rows(lane: str, texts: Iterable[bytes]) -> tuple[Any, list[Any], list[Any], str]:
    about: Any = None
    marks: dict[str, Any] = {}
    lines: dict[str, Any] = {}
    meta = ""
    try:
        for line in (line for text in texts for line in text.splitlines(keepends=True)):
            row = parse_json(line)
            if "op" in row:
                lines[_line_digest(line)] = row
            elif "about" in row:
                about = row["about"]
            elif "gone" in row:
                for each in row["gone"]:
                    marks.pop(each, None)
                    lines.pop(each, None)
            elif "meta" in row:
                meta = str(row["meta"])
            else:
                marks[row["id"]] = row
            if len(marks) > MOST_CHECKPOINTS or len(lines) > MOST_LINES:
                raise carrier_refused(lane, "has too many lines")
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise carrier_refused(lane, f"cannot be read ({problem})") from None
    return about, sorted(marks.values(), key=lambda row: str(row.get("ms")).zfill(13)), [*lines.values()], meta
