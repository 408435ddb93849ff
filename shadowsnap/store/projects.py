"""Projects: one directory, its id, and the small record kept about it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import StoreTooNew
from shadowsnap.files import is_encodable, read_json, write_json
from shadowsnap.store.layout import FORMAT, Store
from shadowsnap.store.locks import locked
from shadowsnap.store.log import has_log

_TOUCH_EVERY = 3600.0
_FORMAT_1_FACTS = ("turn", "quiet_turns", "quiet_calls", "begun", "at_work")
"""What the record of a project had before the log: it goes when the log is there."""


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


def project_of(working_dir: str | os.PathLike[str]) -> Project:
    # Not `Path.expanduser`: it raises if there is no user of a name, and a directory may well be called `~x`.
    workdir = os.path.realpath(os.path.expanduser(working_dir))
    return Project(project_id(workdir), Path(workdir))


def project_id(workdir: str) -> str:
    """The id of the project at a canonical path."""
    return hashlib.sha256(os.fsencode(workdir)).hexdigest()[:16]


def known_projects(store: Store) -> list[Project]:
    """Every project that a record is kept about, by directory."""
    records = (read_json(path) or {} for path in (store.git_dir / "projects").glob("*.json"))
    named = (record.get("workdir") for record in records)
    workdirs = (each for each in named if isinstance(each, str) and is_encodable(each) and "\0" not in each)
    return sorted(map(project_of, workdirs), key=_directory)


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
    fixed = {"format": FORMAT, "workdir": str(project.workdir), "last_touch": now, **_above(project.workdir)}
    written = {"created_at": now, **record, **fixed, **facts}
    if "next_number" in written:
        written = {name: value for name, value in written.items() if name not in _FORMAT_1_FACTS}
    write_json(store.project_file(project.id), written)


def was_in(record: dict[str, Any], folder: Path) -> bool:
    """Whether this is the very directory that a project was last seen in, and not one that came to the
    same place, as when a volume is not mounted any more. False if it is not known."""
    known = record.get("above")
    return known is not None and _identity(folder) == known


def _above(workdir: Path) -> dict[str, Any]:
    found = _identity(workdir.parent) if workdir.is_dir() else None
    return {"above": found} if found else {}


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
    """Whether it is in order that a project has no checkpoint: the last one was dropped on purpose, or the first
    one is not recorded yet. (First the record has its number, then there is its ref, then `newest` and a line of
    the log.)"""
    if "next_number" in record and "newest" not in record and not has_log(store, project):
        return True
    return "emptied" in record and _number(record["emptied"]) >= _number(record.get("last_touch")) - 1


def _directory(project: Project) -> Path:
    return project.workdir


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
