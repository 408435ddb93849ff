"""Projects: one directory, its id, and the small files that are kept about it.

The record says where it is and when it was used. The journal knows a restore or a stage that is under way. Beside
them it is noted what an agent left in which file, and what was purged from the checkpoints.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.base import project_id
from shadowsnap.deadline import Deadline
from shadowsnap.errors import StoreTooNew
from shadowsnap.files import is_encodable, read_json, write_json
from shadowsnap.store.layout import FORMAT, Store
from shadowsnap.store.locks import locked

_TOUCH_EVERY = 3600.0
_FORMAT_1_FACTS = ("turn", "quiet_turns", "quiet_calls", "begun", "at_work")
"""What the record of a project had before the log: it goes when the log is there."""
_MOST_WRITES = 2000
"""The newest are enough: what was written long ago is not what is restored."""
PURGED = "purged"
HERE, GONE, UNREACHABLE = "here", "gone", "unreachable"
"""Where the directory of a project is; unreachable, as on a volume that is not mounted."""


@dataclass(frozen=True)
class Project:
    id: str
    workdir: Path

    @property
    def refs(self) -> str:
        return f"refs/shadowsnap/{self.id}"

    @property
    def pins(self) -> str:
        return f"refs/shadowsnap-pins/{self.id}"

    @property
    def labels(self) -> str:
        return f"refs/shadowsnap-labels/{self.id}"

    @property
    def attachments(self) -> str:
        return f"refs/shadowsnap-meta/{self.id}"


def project_of(working_dir: str | os.PathLike[str]) -> Project:
    # Not `Path.expanduser`: it raises if there is no user of a name, and a directory may well be called `~x`.
    workdir = os.path.realpath(os.path.expanduser(working_dir))
    return Project(project_id(workdir), Path(workdir))


def known_projects(store: Store) -> list[Project]:
    """Every project that a sound record is kept about, by directory."""
    named = ((name, record.get("workdir")) for name, record in all_records(store).items())
    found = [
        Project(name, Path(str(workdir)))
        for name, workdir in named
        if re.fullmatch("[0-9a-f]{16}", name) and is_encodable(workdir) and "\0" not in str(workdir)
    ]
    return sorted(found, key=lambda project: project.workdir)


def all_records(store: Store) -> dict[str, dict[str, Any]]:
    """What is kept about each project, by id; a damaged record is an empty one."""
    return {path.stem: read_json(path) or {} for path in (store.git_dir / "projects").glob("[!.]*.json")}


@contextmanager
def locked_project(store: Store, project: Project, doing: str, deadline: Deadline) -> Iterator[None]:
    """Hold the lock of one project; other projects stay free."""
    with (
        locked(store.store_lock(), doing, deadline, shared=True),
        locked(store.project_lock(project.id), doing, deadline),
    ):
        yield


# --- the record --------------------------------------------------------------------------------


def read_record(store: Store, project: Project) -> dict[str, Any]:
    """What is kept about a project. A damaged record is an empty one: all that matters is also
    in the checkpoints."""
    record = read_json(store.project_file(project.id)) or {}
    found = record.get("format", FORMAT)
    if isinstance(found, int) and found > FORMAT:
        raise StoreTooNew(path=store.project_file(project.id), found=found, known=FORMAT)
    return record


def touch_record(store: Store, project: Project, **facts: Any) -> None:
    """Note that the project was used now. Without new facts, at most once an hour."""
    record = read_record(store, project)
    now = time.time()
    if not facts and now - _number(record.get("last_touch")) < _TOUCH_EVERY:
        return
    fixed = {"format": FORMAT, "workdir": str(project.workdir), "last_touch": now}
    if project.workdir.is_dir() and (above := _identity(project.workdir.parent)):
        fixed["above"] = above
    written = {"created_at": now, **record, **fixed, **facts}
    if "next_number" in written:
        written = {name: value for name, value in written.items() if name not in _FORMAT_1_FACTS}
    write_json(store.project_file(project.id), written)


def find_place(workdir: Path, record: dict[str, Any]) -> str:
    """Whether the directory of a project is here, gone or unreachable. It is gone only if its parent directory is
    known to be the one that it was in, and shows its absence: otherwise a volume may just not be mounted."""
    try:
        if stat.S_ISDIR(os.stat(workdir).st_mode):
            return HERE
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return UNREACHABLE
    above = record.get("above")
    was_in = above is not None and _identity(workdir.parent) == above
    return GONE if was_in and _shows_absence(workdir.parent) else UNREACHABLE


def _shows_absence(parent: Path) -> bool:
    """Whether the absence of a directory in it says anything: the empty directory that a volume was mounted on
    looks just like one whose only project was deleted."""
    try:
        with os.scandir(parent) as entries:
            return any(entries) or os.path.ismount(parent)
    except OSError:
        return False


def _identity(folder: Path) -> list[int] | None:
    try:
        seen = os.stat(folder)
    except OSError:
        return None
    return [seen.st_dev, seen.st_ino] if seen.st_ino else None


def note_emptied(store: Store, project: Project, set_aside: str = "") -> None:
    """Note that the last checkpoint of the project was dropped on purpose, or where a repair set it aside."""
    touch_record(store, project, emptied=time.time(), set_aside=set_aside)


def may_lack_checkpoints(store: Store, project: str, record: dict[str, Any]) -> bool:
    """Whether a project may lack checkpoints: the last one was dropped on purpose, or the first
    one is not recorded yet. (First the record has its number, then there is its ref, then `newest` and a line of
    the log.)"""
    if "next_number" in record and "newest" not in record and not os.path.exists(store.log_file(project)):
        return True
    return "emptied" in record and _number(record["emptied"]) >= _number(record.get("last_touch")) - 1


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def as_moment(seconds: Any) -> datetime | None:
    """A time in a record; None for anything else that a damaged one may have there."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if isinstance(seconds, (int, float)) else None
    except (ValueError, OverflowError, OSError):
        return None


# --- the journal: a restore or a stage that is under way ---------------------------------------
# `open` is written before the first file is touched and cleared after the last, so the next operation knows of
# a restore that died in between. What is over is in the operation log.


@dataclass(frozen=True)
class OpenRestore:
    """A restore that was begun: from `before` towards `target`."""

    before: str
    target: str
    paths: tuple[str, ...]
    staging: tuple[str, ...]
    applying: bool = False
    """Whether files may have been moved; until then only staged copies exist."""
    exact: bool = False
    """Whether just these paths are restored, nothing below them."""
    touched: tuple[str, ...] = ()
    """What it changes, if that is a part of the files."""
    operation: dict[str, Any] = field(default_factory=dict)
    """The facts of its log line: id, kind, and what it undoes or reverts."""


@dataclass(frozen=True)
class OpenStage:
    """A stage that was begun from `before` and neither kept nor discarded. Its owner holds the lock
    file of this name; a lock that is free means that the owner died."""

    before: str
    lock: str


@dataclass(frozen=True)
class Journal:
    open: OpenRestore | None = None
    stages: tuple[OpenStage, ...] = ()
    leftover: tuple[str, ...] = ()
    """Staging directories of finished restores that are still to be removed."""
    note: str = field(default="", compare=False)
    """What the person has to know of the journal itself."""


def read_journal(store: Store, project: Project) -> Journal:
    """The journal; a damaged one is an empty one, set aside so that nothing is lost. One that
    cannot be read now raises: it may record an unfinished restore."""
    path = store.journal_file(project.id)
    record = read_json(path)
    if record is None:
        try:
            path.read_bytes()
        except FileNotFoundError:
            return Journal()
    journal = None if record is None else journal_from(record)
    if journal is None:
        path.replace(path.with_suffix(".damaged"))
        return Journal(note="the journal of restores was damaged and starts anew")
    return journal


def journal_from(record: dict[str, Any]) -> Journal | None:
    """The journal that a JSON object is; None if it is none."""
    try:
        begun = record.get("open")
        return Journal(
            open=None if begun is None else _open_restore(begun),
            stages=tuple(OpenStage(str(before), str(lock)) for before, lock in record.get("stages", ())),
            leftover=_paths(record.get("leftover", [])),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _open_restore(record: dict[str, Any]) -> OpenRestore:
    operation = record.get("operation")
    if not isinstance(operation, dict):  # of format 1
        then = str(record.get("then", "restore"))
        operation = {"id": f"{record['target'][:12]}-{record['before'][:12]}", "kind": then}
        operation["returns"] = then != "restore"
    return OpenRestore(
        before=str(record["before"]),
        target=str(record["target"]),
        paths=_paths(record["paths"]),
        staging=_paths(record["staging"]),
        applying=bool(record["applying"]),
        exact=record.get("exact") is True,
        touched=_paths(record.get("touched", [])),
        operation=operation,
    )


def _paths(values: Any) -> tuple[str, ...]:
    """A list of texts as a tuple; raises TypeError if it is none."""
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise TypeError("it is no list of texts")
    return tuple(values)


def write_journal(store: Store, project: Project, journal: Journal, *, lasting: bool = True) -> None:
    """Write it down; if not `lasting`, a power cut may bring back the journal before it."""
    record: dict[str, Any] = {
        "open": None if journal.open is None else dict(vars(journal.open)),
        "stages": [[stage.before, stage.lock] for stage in journal.stages],
        "leftover": list(journal.leftover),
    }
    write_json(store.journal_file(project.id), record, fsync=store.fsync and lasting)


def named_in_journal(path: Path) -> list[str]:
    """Checkpoints that a restore under way and open stages of a project go to. The journal is only looked at:
    the next operation that holds the project's lock repairs it, if need be."""
    record = read_json(path) or {}
    begun, stages = record.get("open"), record.get("stages")
    found = [begun.get("before"), begun.get("target")] if isinstance(begun, dict) else []
    found += [row[0] for row in stages if isinstance(row, list) and row] if isinstance(stages, list) else []
    return _texts(found)


def named_in_journals(store: Store) -> set[str]:
    """The same for all projects. (Undo and redo go only to checkpoints that have their refs.)"""
    journals = (store.git_dir / "journal").glob("[!.]*.json")
    return {name for path in journals for name in named_in_journal(path)}


# --- what an agent wrote last into which file, to tell it from what people wrote since ---------


def note_writes(store: Store, project: Project, writes: Mapping[str, tuple[str, float]]) -> None:
    """Note what an agent left in each file, and when, unless something later is known of it. The caller holds the
    project's lock."""
    noted = _read_writes(store, project)
    for path, (content, moment) in writes.items():
        if path not in noted or noted[path][1] <= moment:
            noted[path] = [content, moment]
    newest = sorted(noted.items(), key=lambda item: item[1][1], reverse=True)[:_MOST_WRITES]
    write_json(store.writes_file(project.id), dict(newest))


def forget_writes(store: Store, project: Project, purged: tuple[bytes, ...]) -> None:
    """Forget what was noted of these paths, and of all below them. The caller holds the project's lock."""
    noted = _read_writes(store, project)
    left = {path: entry for path, entry in noted.items() if not is_at_any(os.fsencode(path), purged)}
    if left != noted:
        write_json(store.writes_file(project.id), left)


def last_writes(store: Store, project: Project) -> dict[str, str]:
    """The content that an agent last left in each file, by path within the project."""
    return {path: content for path, (content, _) in _read_writes(store, project).items()}


def content_of(path: Path) -> str | None:
    """A name for what a file or a link holds now; None if there is neither."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            return f"link:{os.readlink(path)}"
        if not stat.S_ISREG(mode):
            return None
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _read_writes(store: Store, project: Project) -> dict[str, list[Any]]:
    """A damaged entry is none: its file is taken for the person's."""
    noted = read_json(store.writes_file(project.id)) or {}
    return {path: entry for path, entry in noted.items() if _is_write(entry)}


def _is_write(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    return isinstance(entry[0], str) and isinstance(entry[1], (int, float))


# --- what was purged ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Purged:
    ids: dict[str, str] = field(default_factory=dict)
    """Old id -> the id of the checkpoint that took its place."""
    paths: tuple[str, ...] = ()
    """What was purged and is not reclaimed yet."""
    blobs: tuple[str, ...] = ()
    """The objects of those paths."""
    pending: tuple[str, ...] = ()
    """What is being taken out: until that is done, some checkpoints are there twice, with it and without."""


def read_purged(store: Store, project: str) -> Purged:
    """What is noted of a project; nothing, if that is absent or damaged."""
    record = read_json(_purged_file(store, project)) or {}
    ids = record.get("ids")
    pairs = ids.items() if isinstance(ids, dict) else ()
    return Purged(
        {old: new for old, new in pairs if isinstance(new, str) and old != new},
        *(tuple(_texts(record.get(name))) for name in ("paths", "blobs", "pending")),
    )


def unfinished_purges(store: Store) -> list[str]:
    """The projects in which a purge was interrupted, or is under way."""
    projects = (path.stem for path in (store.git_dir / PURGED).glob("*.json"))
    return [project for project in projects if read_purged(store, project).pending]


def write_purged(store: Store, project: str, purged: Purged) -> None:
    path = _purged_file(store, project)
    path.parent.mkdir(exist_ok=True)
    record = {name: value for name, value in vars(purged).items() if value or name != "pending"}
    write_json(path, record, fsync=store.fsync)


def is_at_any(path: bytes, tops: tuple[bytes, ...]) -> bool:
    """Whether a path is one of these, or below one."""
    return any(path == top or path.startswith(top + b"/") for top in tops)


def _purged_file(store: Store, project: str) -> Path:
    return store.git_dir / PURGED / f"{project}.json"


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
