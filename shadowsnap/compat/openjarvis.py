"""The checkpoint store and the session store of OpenJarvis' learning loop, served by shadowsnap.

`from shadowsnap.compat.openjarvis import CheckpointStore` in place of
`openjarvis.learning.spec_search.checkpoint.store`, and `SessionStore` in place of
`openjarvis.learning.spec_search.storage.session_store`. Unlike there, no repository is made in the directory.
Where OpenJarvis can be imported, its own types are used; otherwise those below, which have the same fields.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, make_dataclass
from datetime import datetime
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap.base import configured_base
from shadowsnap.compat.common import open_manager
from shadowsnap.errors import NoSuchProject, RevertRefused, StoreTooNew
from shadowsnap.files import read_json
from shadowsnap.model import Checkpoint

_HOST = "openjarvis"
_TRACKED = ("config.toml", "agents", "tools")
_Class = TypeVar("_Class", bound=type)


def _prefer_original(module: str) -> Callable[[_Class], _Class]:
    """Decorate a class to be replaced by OpenJarvis' own of the same name, if that can be imported. So `==` and
    `except` work in the rest of OpenJarvis, too."""

    def replace(ours: _Class) -> _Class:
        try:
            theirs: _Class = getattr(import_module(f"openjarvis.learning.spec_search.{module}"), ours.__name__)
            return theirs
        except (ImportError, AttributeError):
            return ours

    return replace


@_prefer_original("storage.paths")
class ConfigurationError(RuntimeError):
    """The directory lies in a source tree, where no checkpoints of a configuration belong."""


@_prefer_original("checkpoint.store")
class DirtyWorkingTreeError(RuntimeError):
    """There are changes that no stage committed."""


class RevertConflictError(RuntimeError):
    """Something else changed the same lines since. Nothing was reverted."""


@_prefer_original("checkpoint.store")
@dataclass(frozen=True)
class StageHandle:
    """Where a stage began. It may end in another process."""

    edit_id: str
    pre_stage_sha: str


class CheckpointStore:
    """Checkpoints of `config.toml`, `agents/` and `tools/` of one directory; whatever else is in it is neither
    captured nor touched. It refuses to begin in a source tree of OpenJarvis."""

    def __init__(self, root: str | os.PathLike[str], *, base: Path | None = None) -> None:
        self.root = Path(root).expanduser().resolve()
        self._manager = open_manager(base or configured_base(), ["/*", *(f"!/{name}" for name in _TRACKED)])

    def init(self) -> None:
        """Take the baseline, if there is none yet."""
        for tree in _source_trees(self.root):
            if self.root.is_relative_to(tree):
                raise ConfigurationError(f"{self.root} is inside the source tree {tree}")
        self.root.mkdir(parents=True, exist_ok=True)
        if self._head() is None:
            taken = self._manager.snapshot(self.root, "checkpoint baseline", always=True, host=_HOST).checkpoint
            assert taken is not None
            self._pin(taken)

    def current_sha(self) -> str:
        """The checkpoint that the last stage, revert or `init` ended with."""
        head = self._head()
        if head is None:
            raise RuntimeError(f"{self.root} has no checkpoints yet: call init() first")
        return head.short_id

    def begin_stage(self, edit_id: str) -> StageHandle:
        """Refused (`DirtyWorkingTreeError`) while there are changes that no stage committed."""
        sha = self.current_sha()
        self._check_clean(sha)
        return StageHandle(edit_id, sha)

    def commit_stage(self, handle: StageHandle, *, message: str, session_id: str, risk_tier: str) -> str:
        """Keep what was done since the stage began."""
        facts = {"edit_id": handle.edit_id, "session_id": session_id, "risk_tier": risk_tier, "host": _HOST}
        reason = f"{message}\n\nEdit-ID: {handle.edit_id}\nSession-ID: {session_id}\nRisk-Tier: {risk_tier}\n"
        return self._pin(self._manager.commit_since(self.root, handle.pre_stage_sha, reason, **facts))

    def discard_stage(self, handle: StageHandle) -> None:
        """Put everything back as it was when the stage began. What is put back is saved first."""
        if self.current_sha() != handle.pre_stage_sha:
            raise RuntimeError(f"something was committed since the stage of {handle.edit_id} began")
        self._manager.restore(self.root, handle.pre_stage_sha)

    def revert_session(self, session_id: str) -> list[str]:
        """Take back every stage of a session that was not taken back yet, newest first. Each makes a new entry; no
        old one changes."""
        if self._manager.list_checkpoints(self.root, session_id=session_id, host=_HOST):
            self._check_clean(self.current_sha())
        try:
            made = self._manager.revert_stages(self.root, session_id, host=_HOST)
        except RevertRefused as problem:
            raise RevertConflictError(str(problem)) from problem
        return [self._pin(each) for each in made]

    def _pin(self, made: Checkpoint) -> str:
        """Pin a checkpoint against the limits of the store: a stage can be reverted only while its beginning
        exists."""
        return self._manager.pin(self.root, made.id).short_id

    def _check_clean(self, head: str) -> None:
        changes = self._manager.diff(self.root, head).changes
        if changes:
            paths = ", ".join(change.path for change in changes[:5])
            raise DirtyWorkingTreeError(f"there are uncommitted changes to {paths}")

    def _head(self) -> Checkpoint | None:
        """The newest of our checkpoints. (An agent's hook may take others of the same directory.)"""
        try:
            return next(iter(self._manager.list_checkpoints(self.root, 1, host=_HOST)), None)
        except NoSuchProject:
            return None


def _source_trees(root: Path) -> list[Path]:
    """The checkout of OpenJarvis that a directory is in, and the one that is installed."""
    marker = Path("src", "openjarvis", "__init__.py")
    trees = [folder for folder in (root, *root.parents) if (folder / marker).exists()]
    spec = find_spec("openjarvis")
    package = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
    if package is not None:
        trees.append(package.parents[1] if package.parent.name == "src" else package)
    return trees


# --- sessions ----------------------------------------------------------------------------------------

_VERSION = 1
_SESSION = {
    "id": "TEXT PRIMARY KEY NOT NULL",
    "parent_session_id": "TEXT REFERENCES learning_sessions(id) DEFERRABLE INITIALLY DEFERRED",
    "trigger": "TEXT NOT NULL", "trigger_metadata": "TEXT NOT NULL DEFAULT '{}'", "status": "TEXT NOT NULL",
    "autonomy_mode": "TEXT NOT NULL", "started_at": "TEXT NOT NULL", "ended_at": "TEXT",
    "diagnosis_path": "TEXT NOT NULL", "plan_path": "TEXT NOT NULL", "benchmark_before": "TEXT NOT NULL",
    "benchmark_after": "TEXT", "git_checkpoint_pre": "TEXT NOT NULL", "git_checkpoint_post": "TEXT",
    "teacher_cost_usd": "REAL NOT NULL DEFAULT 0.0", "error": "TEXT",
}  # fmt: skip
_OUTCOME = {
    "edit_id": "TEXT NOT NULL", "status": "TEXT NOT NULL", "benchmark_delta": "REAL",
    "cluster_deltas": "TEXT NOT NULL DEFAULT '{}'", "error": "TEXT", "applied_at": "TEXT",
}  # fmt: skip
_EDIT = {
    **dict.fromkeys(("pillar", "op", "target", "risk_tier"), "TEXT NOT NULL"),
    "rationale": "TEXT NOT NULL DEFAULT ''",
}
"""The columns of the tables: as OpenJarvis has them, whose databases are opened as they are."""
_KEYS = {"session_id": "TEXT NOT NULL REFERENCES learning_sessions(id)"}
_JSON = ("trigger_metadata", "benchmark_before", "benchmark_after", "cluster_deltas")
_TYPED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("started_at", "ended_at", "applied_at"), datetime.fromisoformat),
    **dict.fromkeys(("diagnosis_path", "plan_path"), Path),
}
"""What a column is as a field, where that is not the same."""
_DEFAULTS: dict[str, Any] = {"trigger_metadata": {}, "cluster_deltas": {}, "teacher_cost_usd": 0.0}
_MALFORMED = (TypeError, ValueError, AttributeError, OverflowError, sqlite3.Error)

EditOutcome = _prefer_original("models")(make_dataclass("EditOutcome", _OUTCOME))
LearningSession = _prefer_original("models")(
    make_dataclass("LearningSession", [*_SESSION, ("edit_outcomes", list[Any], field(default_factory=list))])
)


class SessionStore:
    """Sessions and their outcomes, usable from any thread. It accepts any objects with the attributes of the
    classes above."""

    def __init__(self, db_path: str | os.PathLike[str]) -> None:
        self._lock = threading.RLock()
        self._db = sqlite3.connect(db_path, check_same_thread=False, isolation_level="IMMEDIATE", timeout=30)
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON")
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found > _VERSION:
            self._db.close()
            raise StoreTooNew(path=Path(db_path), found=found, known=_VERSION)
        if found < _VERSION:
            self._db.executescript(f"BEGIN; {_schema()} PRAGMA user_version={_VERSION}; COMMIT")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def save_session(self, session: Any) -> None:
        """Insert a session, or replace the one with its id."""
        with self._lock, self._db:
            self._write_session(session)

    def get_session(self, session_id: str) -> Any | None:
        """The session with its outcomes; None if there is none."""
        return next(iter(self._sessions("WHERE id = ?", [session_id])), None)

    def list_sessions(self, status: Any = None, limit: int | None = None) -> list[Any]:
        """Newest first, with their outcomes. Two queries, however many there are."""
        where, values = ("", []) if status is None else ("WHERE status = ?", [_storable(status)])
        order = "ORDER BY julianday(started_at) DESC, started_at DESC, rowid DESC"
        return self._sessions(f"{where} {order} LIMIT ?", [*values, -1 if limit is None else limit])

    def save_outcome(
        self, session_id: str, outcome: Any, *, pillar: str, op: str, target: str, risk_tier: str,
        rationale: str = "",
    ) -> None:  # fmt: skip
        with self._lock, self._db:
            self._write_outcome(session_id, outcome, (pillar, op, target, risk_tier, rationale))

    def list_outcomes(self, session_id: str) -> list[Any]:
        """In the order in which they were saved."""
        return self._outcomes([session_id]).get(session_id, [])

    def rebuild(self, sessions_dir: str | os.PathLike[str]) -> int:
        """Import every `<session>/session.json` below a directory; how many there were. Other sessions stay, and
        so do the facts of an edit that only this index has (its pillar, for example). A file that is not a session
        is skipped."""
        read = (read_json(path) for path in sorted(Path(sessions_dir).glob("*/session.json")))
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            taken = {record["id"] for record in read if record is not None and self._import_session(record)}
            parent, known = "parent_session_id", "(SELECT id FROM learning_sessions)"
            self._db.execute(f"UPDATE learning_sessions SET {parent} = NULL WHERE {parent} NOT IN {known}")
        return len(taken)

    def _import_session(self, record: dict[str, Any]) -> bool:
        """Import one session; False if it is not one."""
        self._db.execute("SAVEPOINT session")
        try:
            self._write_session(LearningSession(**_from_json(_SESSION, record)))
            self._replace_outcomes(record["id"], record.get("edit_outcomes"))
        except _MALFORMED:
            self._db.execute("ROLLBACK TO session")
            return False
        return True

    # --- rows --------------------------------------------------------------------------------------

    def _write_session(self, session: Any) -> None:
        update = ", ".join(f"{name} = excluded.{name}" for name in _SESSION if name != "id")
        values = [_column_value(name, getattr(session, name)) for name in _SESSION]
        self._insert("learning_sessions", _SESSION, values, f"ON CONFLICT(id) DO UPDATE SET {update}")

    def _write_outcome(self, session_id: str, outcome: Any, edit: Iterable[str]) -> None:
        values = [_column_value(name, getattr(outcome, name, None)) for name in _OUTCOME]
        self._insert("edit_outcomes", (*_KEYS, *_OUTCOME, *_EDIT), [session_id, *values, *edit])

    def _insert(self, table: str, columns: Collection[str], values: list[Any], more: str = "") -> None:
        marks = ", ".join("?" * len(columns))
        self._db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {more}", values)

    def _replace_outcomes(self, session_id: str, outcomes: Any) -> None:
        select = f"SELECT edit_id, {', '.join(_EDIT)} FROM edit_outcomes WHERE session_id = ?"
        edits = {row[0]: row[1:] for row in self._db.execute(select, [session_id])}
        self._db.execute("DELETE FROM edit_outcomes WHERE session_id = ?", [session_id])
        for outcome in outcomes if isinstance(outcomes, list) else ():
            with suppress(*_MALFORMED):  # a malformed outcome is skipped
                named = [str(outcome.get(name) or "") for name in _EDIT]
                found = EditOutcome(**_from_json(_OUTCOME, outcome))
                self._write_outcome(session_id, found, edits.get(outcome["edit_id"], named))

    def _sessions(self, clause: str, values: list[Any]) -> list[Any]:
        select = f"SELECT {', '.join(_SESSION)} FROM learning_sessions {clause}"
        with self._lock:
            rows = [_fields_of_row(_SESSION, row) for row in self._db.execute(select, values).fetchall()]
            outcomes = self._outcomes([row["id"] for row in rows])
        return [LearningSession(**row, edit_outcomes=outcomes.get(row["id"], [])) for row in rows]

    def _outcomes(self, sessions: list[str]) -> dict[str, list[Any]]:
        query = (
            f"SELECT session_id, {', '.join(_OUTCOME)} FROM edit_outcomes "
            "WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY id"
        )
        found: dict[str, list[Any]] = {}
        with self._lock:
            rows = self._db.execute(query, [json.dumps(sessions)]).fetchall()
        for id, *row in rows:
            found.setdefault(id, []).append(EditOutcome(**_fields_of_row(_OUTCOME, row)))
        return found


def _schema() -> str:
    outcome = {"id": "INTEGER PRIMARY KEY AUTOINCREMENT", **_KEYS, **_OUTCOME, **_EDIT}
    sessions, outcomes = (", ".join(map(" ".join, columns.items())) for columns in (_SESSION, outcome))
    return f"""
        CREATE TABLE IF NOT EXISTS learning_sessions ({sessions});
        CREATE TABLE IF NOT EXISTS edit_outcomes ({outcomes});
        CREATE INDEX IF NOT EXISTS sessions_by_start ON learning_sessions(started_at);
        CREATE INDEX IF NOT EXISTS outcomes_by_session ON edit_outcomes(session_id);
    """


def _from_json(columns: dict[str, str], record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a session or an outcome in a file. Raises ValueError if a required one is missing."""
    known = {name: record[name] for name in columns if record.get(name) is not None}
    found = {name: known.get(name, _DEFAULTS.get(name)) for name in columns}
    for name, kind in columns.items():
        if found[name] is None and kind.endswith("NOT NULL"):
            raise ValueError(f"there is no {name}")
    return _with_types(found)


def _fields_of_row(columns: Iterable[str], row: Iterable[Any]) -> dict[str, Any]:
    """The fields of a row, with the types that they were saved with."""
    found = dict(zip(columns, row, strict=True))
    return _with_types(found | {name: json.loads(found[name]) for name in _JSON if found.get(name) is not None})


def _with_types(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {name: make(fields[name]) for name, make in _TYPED.items() if fields.get(name) is not None}


def _column_value(name: str, value: Any) -> Any:
    """The value that the database holds for a field."""
    return json.dumps(value, default=_storable) if name in _JSON and value is not None else _storable(value)


def _storable(value: Any) -> Any:
    """A value as JSON or SQLite can hold it: the value of an enumeration member, the fields of a model or another
    object."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else vars(value)
