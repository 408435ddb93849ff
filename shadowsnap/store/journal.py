"""The journal of a project: a restore that is under way, and the ways back and forth.

`open` is written before the first file is touched and cleared after the last, so a restore
that died in between is known to whoever comes next. `undo` and `redo` are stacks of the
states to return to.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from shadowsnap.errors import MalformedObject
from shadowsnap.files import read_json, write_json
from shadowsnap.records import Any, dataclass, field, replace
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_DEPTH = 100
_FEW = 100


@dataclass(frozen=True)
class Step:
    """A state to return to, and which paths of it (none: all); `exact`: these alone, nothing below them."""

    checkpoint: str
    paths: tuple[str, ...] = ()
    exact: bool = False
    kept_in: str = ""
    """The file beside the journal that has the paths, if they are many: every snapshot reads the journal."""


@dataclass(frozen=True)
class OpenRestore:
    """A restore that was begun: from `before` towards `target`."""

    before: str
    target: str
    paths: tuple[str, ...]
    staging: tuple[str, ...]
    applying: bool = False
    """Whether files may have been moved; until then only staged copies exist."""
    then: str = "restore"
    """Which stacks the finished restore belongs on: restore, undo or redo."""
    exact: bool = False
    """Whether just these paths are restored, nothing below them."""
    touched: tuple[str, ...] = ()
    """What it changes, if that is a part of the files."""


@dataclass(frozen=True)
class OpenStage:
    """A stage that was begun from `before` and neither kept nor discarded. Its owner holds the lock
    file of this name; a lock that is free means that the owner died."""

    before: str
    lock: str


@dataclass(frozen=True)
class Journal:
    open: OpenRestore | None = None
    undo: tuple[Step, ...] = ()
    redo: tuple[Step, ...] = ()
    stages: tuple[OpenStage, ...] = ()
    at: str = ""
    """The tree that the last restore, undo or redo led to."""
    leftover: tuple[str, ...] = ()
    """Staging directories of finished restores that are still to be removed."""
    told: str = field(default="", compare=False)
    """What the person was not told yet."""


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
            undo=tuple(_step(item) for item in record.get("undo", ())),
            redo=tuple(_step(item) for item in record.get("redo", ())),
            stages=tuple(OpenStage(str(before), str(lock)) for before, lock in record.get("stages", ())),
            at=str(record.get("at", "")),
            leftover=tuple(str(folder) for folder in record.get("leftover", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def paths_of(store: Store, project: Project, step: Step) -> tuple[str, ...]:
    """The paths of a step, wherever they are kept."""
    if not step.kept_in:
        return step.paths
    kept = read_json(store.journal_file(project.id).parent / step.kept_in)
    if kept is None:
        raise MalformedObject(what=step.kept_in, why="the list of what was restored is lost")
    return tuple(str(path) for path in kept["paths"])


def write_journal(store: Store, project: Project, journal: Journal, *, lasting: bool = True) -> None:
    """Write it down; if not `lasting`, a power cut may bring back what it said before."""
    folder = store.journal_file(project.id).parent
    stacks = [[_kept(folder, project, step) for step in stack[-_DEPTH:]] for stack in (journal.undo, journal.redo)]
    record: dict[str, Any] = {
        "open": None if journal.open is None else dict(vars(journal.open)),
        "undo": [[step.checkpoint, step.kept_in or list(step.paths), step.exact] for step in stacks[0]],
        "redo": [[step.checkpoint, step.kept_in or list(step.paths), step.exact] for step in stacks[1]],
        "stages": [[stage.before, stage.lock] for stage in journal.stages],
        "at": journal.at,
        "leftover": list(journal.leftover),
    }
    write_json(store.journal_file(project.id), record, fsync=store.fsync and lasting)
    wanted = {step.kept_in for stack in stacks for step in stack}
    for path in folder.glob(f"{project.id}.*.paths"):
        if path.name not in wanted:
            path.unlink(missing_ok=True)


def _kept(folder: Path, project: Project, step: Step) -> Step:
    if len(step.paths) <= _FEW:
        return step
    digest = hashlib.sha256("\0".join(step.paths).encode("utf-8", "surrogateescape")).hexdigest()
    name = f"{project.id}.{digest[:16]}.paths"
    if not (folder / name).exists():
        write_json(folder / name, {"paths": list(step.paths)})
    return replace(step, paths=(), kept_in=name)


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
    return Journal(told="the record of undo and redo was damaged and starts anew")


def _step(item: list[Any]) -> Step:
    checkpoint, paths, *exact = item
    if isinstance(paths, str):
        return Step(str(checkpoint), (), exact == [True], paths)
    return Step(str(checkpoint), tuple(str(path) for path in paths), exact == [True])


def _open_restore(record: dict[str, Any]) -> OpenRestore:
    return OpenRestore(
        before=str(record["before"]),
        target=str(record["target"]),
        paths=tuple(record["paths"]),
        staging=tuple(record["staging"]),
        applying=bool(record["applying"]),
        then=str(record["then"]),
        exact=record.get("exact") is True,
        touched=tuple(record.get("touched", ())),
    )
