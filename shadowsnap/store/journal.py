"""The journal of a project: a restore or a stage that is under way.

`open` is written before the first file is touched and cleared after the last, so the next operation knows of
a restore that died in between. What is over is in the operation log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowsnap.files import read_json, write_json
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project


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
    cannot be read now raises: it may well know of a restore that is half done."""
    path = store.journal_file(project.id)
    record = read_json(path)
    if record is None:
        return _set_aside(store, project) if _is_readable(path) else Journal()
    return journal_from(record) or _set_aside(store, project)


def journal_from(record: dict[str, Any]) -> Journal | None:
    """The journal that a JSON object is; None if it is none."""
    try:
        begun = record.get("open")
        return Journal(
            open=None if begun is None else _open_restore(begun),
            stages=tuple(OpenStage(str(before), str(lock)) for before, lock in record.get("stages", ())),
            leftover=_texts(record.get("leftover", [])),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def write_journal(store: Store, project: Project, journal: Journal, *, lasting: bool = True) -> None:
    """Write it down; if not `lasting`, a power cut may bring back the journal before it."""
    path = store.journal_file(project.id)
    record: dict[str, Any] = {
        "open": None if journal.open is None else dict(vars(journal.open)),
        "stages": [[stage.before, stage.lock] for stage in journal.stages],
        "leftover": list(journal.leftover),
    }
    write_json(path, record, fsync=store.fsync and lasting)


def _is_readable(path: Path) -> bool:
    """False if there is no journal; raises if there is one that cannot be read."""
    try:
        path.read_bytes()
    except FileNotFoundError:
        return False
    return True


def _set_aside(store: Store, project: Project) -> Journal:
    path = store.journal_file(project.id)
    path.replace(path.with_suffix(".damaged"))
    return Journal(note="the journal of restores was damaged and starts anew")


def _open_restore(record: dict[str, Any]) -> OpenRestore:
    operation = record.get("operation")
    if not isinstance(operation, dict):  # of format 1
        then = str(record.get("then", "restore"))
        operation = {"id": f"{record['target'][:12]}-{record['before'][:12]}", "kind": then}
        operation["returns"] = then != "restore"
    return OpenRestore(
        before=str(record["before"]),
        target=str(record["target"]),
        paths=_texts(record["paths"]),
        staging=_texts(record["staging"]),
        applying=bool(record["applying"]),
        exact=record.get("exact") is True,
        touched=_texts(record.get("touched", [])),
        operation=operation,
    )


def _texts(values: Any) -> tuple[str, ...]:
    """A list of texts as a tuple; raises TypeError if it is none."""
    if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
        raise TypeError("it is no list of texts")
    return tuple(values)
