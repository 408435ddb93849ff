"""The session store of OpenJarvis' learning loop: sessions and the outcomes of their edits, in SQLite.

Where OpenJarvis can be imported, its own classes are handed out. Otherwise they are the two below, which have the
same fields with plain values.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from shadowsnap.errors import StoreTooNew
from shadowsnap.files import read_json


def original(module: str, name: str, otherwise: Any) -> Any:
    """What OpenJarvis itself calls by a name, so that `==` and `except` work in the rest of it, too."""
    try:
        return getattr(import_module(f"openjarvis.learning.spec_search.{module}"), name)
    except (ImportError, AttributeError):
        return otherwise


@dataclass
class EditOutcome:
    """What became of one edit."""

    edit_id: str
    status: str
    benchmark_delta: float | None = None
    cluster_deltas: dict[str, float] = field(default_factory=dict)
    error: str | None = None
    applied_at: datetime | None = None


@dataclass
class LearningSession:
    """One session of the learning loop."""

    id: str
    parent_session_id: str | None
    trigger: str
    trigger_metadata: dict[str, Any]
    status: str
    autonomy_mode: str
    started_at: datetime
    ended_at: datetime | None
    diagnosis_path: Path
    plan_path: Path
    benchmark_before: Any
    benchmark_after: Any
    git_checkpoint_pre: str
    git_checkpoint_post: str | None = None
    teacher_cost_usd: float = 0.0
    error: str | None = None
    edit_outcomes: list[Any] = field(default_factory=list)


_SESSION = tuple(name for name in LearningSession.__dataclass_fields__ if name != "edit_outcomes")
_OUTCOME = tuple(EditOutcome.__dataclass_fields__)
_EDIT = ("pillar", "op", "target", "risk_tier", "rationale")
_REQUIRED = (
    "id", "trigger", "status", "autonomy_mode", "started_at", "diagnosis_path", "plan_path", "benchmark_before",
    "git_checkpoint_pre",
)  # fmt: skip
_DEFAULTS: dict[str, Any] = {**dict.fromkeys(_SESSION), "trigger_metadata": {}, "teacher_cost_usd": 0.0}
_JSON = ("trigger_metadata", "benchmark_before", "benchmark_after", "cluster_deltas")
_TIMES = ("started_at", "ended_at", "applied_at")
_PATHS = ("diagnosis_path", "plan_path")
_NEWEST_FIRST = "ORDER BY julianday(started_at) DESC, started_at DESC, rowid DESC"

_VERSION = 1
_SCHEMA = """
    CREATE TABLE IF NOT EXISTS learning_sessions (
        id TEXT PRIMARY KEY, parent_session_id TEXT, trigger TEXT NOT NULL,
        trigger_metadata TEXT NOT NULL DEFAULT '{}', status TEXT NOT NULL, autonomy_mode TEXT NOT NULL,
        started_at TEXT NOT NULL, ended_at TEXT, diagnosis_path TEXT NOT NULL, plan_path TEXT NOT NULL,
        benchmark_before TEXT NOT NULL, benchmark_after TEXT, git_checkpoint_pre TEXT NOT NULL,
        git_checkpoint_post TEXT, teacher_cost_usd REAL NOT NULL DEFAULT 0.0, error TEXT,
        FOREIGN KEY (parent_session_id) REFERENCES learning_sessions(id) DEFERRABLE INITIALLY DEFERRED
    );
    CREATE TABLE IF NOT EXISTS edit_outcomes (
        id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, edit_id TEXT NOT NULL,
        pillar TEXT NOT NULL, op TEXT NOT NULL, target TEXT NOT NULL, risk_tier TEXT NOT NULL,
        status TEXT NOT NULL, benchmark_delta REAL, cluster_deltas TEXT NOT NULL DEFAULT '{}',
        rationale TEXT NOT NULL DEFAULT '', error TEXT, applied_at TEXT,
        FOREIGN KEY (session_id) REFERENCES learning_sessions(id)
    );
    CREATE INDEX IF NOT EXISTS sessions_by_start ON learning_sessions(started_at);
    CREATE INDEX IF NOT EXISTS outcomes_by_session ON edit_outcomes(session_id);
"""
"""Also for a database that OpenJarvis itself made, which has no version."""

if not TYPE_CHECKING:
    LearningSession = original("models", "LearningSession", LearningSession)
    EditOutcome = original("models", "EditOutcome", EditOutcome)


class SessionStore:
    """Sessions and outcomes, from any thread. It takes any objects with the attributes of the classes above; what
    it hands out is what `session_type` and `outcome_type` make of the same keyword arguments."""

    def __init__(
        self,
        db_path: str | os.PathLike[str],
        session_type: Callable[..., Any] = LearningSession,
        outcome_type: Callable[..., Any] = EditOutcome,
    ) -> None:
        self._session_type, self._outcome_type = session_type, outcome_type
        self._lock = threading.RLock()
        self._db = sqlite3.connect(db_path, check_same_thread=False, isolation_level=None, timeout=30)
        with ExitStack() as if_it_fails:
            if_it_fails.callback(self._db.close)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA foreign_keys=ON")
            (found,) = self._db.execute("PRAGMA user_version").fetchone()
            if found > _VERSION:
                raise StoreTooNew(path=Path(db_path), found=found, known=_VERSION)
            if found < _VERSION:
                self._db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version={_VERSION}; COMMIT")
            if_it_fails.pop_all()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def save_session(self, session: Any) -> None:
        """Insert it, or replace what is known of the session with this id."""
        with self._writing():
            self._put_session(session)

    def get_session(self, session_id: str) -> Any | None:
        """The session with its outcomes; None if there is none."""
        found = self._sessions("WHERE id = ?", [session_id])
        return found[0] if found else None

    def list_sessions(self, status: Any = None, limit: int | None = None) -> list[Any]:
        """Newest first, with their outcomes. Two queries, however many there are."""
        where, values = ("", []) if status is None else ("WHERE status = ?", [_plain(status)])
        return self._sessions(f"{where} {_NEWEST_FIRST} LIMIT ?", [*values, -1 if limit is None else limit])

    def save_outcome(
        self,
        session_id: str,
        outcome: Any,
        *,
        pillar: str,
        op: str,
        target: str,
        risk_tier: str,
        rationale: str = "",
    ) -> None:
        with self._writing():
            self._put_outcome(session_id, outcome, (pillar, op, target, risk_tier, rationale))

    def list_outcomes(self, session_id: str) -> list[Any]:
        """In the order in which they were saved."""
        return self._outcomes([session_id]).get(session_id, [])

    def rebuild(self, sessions_dir: str | os.PathLike[str]) -> int:
        """Take in every `<session>/session.json` below a directory; how many there were. What is known of other
        sessions stays, and what only this index knows of an edit (its pillar, for example). A file that cannot be
        read, or lacks what a session must have, does not keep out the others."""
        records = {}
        for path in sorted(Path(sessions_dir).glob("*/session.json")):
            record = read_json(path)
            if record is not None and all(record.get(name) is not None for name in _REQUIRED):
                records[record["id"]] = {**_DEFAULTS, **record}
        with self._writing():
            known = {*records, *(row[0] for row in self._db.execute("SELECT id FROM learning_sessions"))}
            for record in records.values():
                parent = record["parent_session_id"]
                found = {**record, "parent_session_id": parent if parent in known else None}
                self._put_session(SimpleNamespace(**found))
                self._replace_outcomes(record["id"], record.get("edit_outcomes") or ())
        return len(records)

    # --- rows --------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _put_session(self, session: Any) -> None:
        update = ", ".join(f"{name} = excluded.{name}" for name in _SESSION[1:])
        values = [_stored(name, getattr(session, name)) for name in _SESSION]
        self._insert("learning_sessions", _SESSION, values, f"ON CONFLICT(id) DO UPDATE SET {update}")

    def _put_outcome(self, session_id: str, outcome: Any, edit: Iterable[str]) -> None:
        values = [_stored(name, getattr(outcome, name, None)) for name in _OUTCOME]
        self._insert("edit_outcomes", ("session_id", *_OUTCOME, *_EDIT), [session_id, *values, *edit])

    def _insert(self, table: str, columns: tuple[str, ...], values: list[Any], more: str = "") -> None:
        marks = ", ".join("?" * len(columns))
        self._db.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {more}", values)

    def _replace_outcomes(self, session_id: str, outcomes: Iterable[dict[str, Any]]) -> None:
        select = f"SELECT edit_id, {', '.join(_EDIT)} FROM edit_outcomes WHERE session_id = ?"
        edits = {row[0]: row[1:] for row in self._db.execute(select, [session_id])}
        self._db.execute("DELETE FROM edit_outcomes WHERE session_id = ?", [session_id])
        for outcome in outcomes:
            if outcome.get("edit_id") is not None and outcome.get("status") is not None:
                named = [str(outcome.get(name) or "") for name in _EDIT]
                found = SimpleNamespace(**{"cluster_deltas": {}, **outcome})
                self._put_outcome(session_id, found, edits.get(outcome["edit_id"], named))

    def _sessions(self, clause: str, values: list[Any]) -> list[Any]:
        select = f"SELECT {', '.join(_SESSION)} FROM learning_sessions {clause}"
        with self._lock:
            rows = [_read(_SESSION, row) for row in self._db.execute(select, values).fetchall()]
            outcomes = self._outcomes([row["id"] for row in rows])
        return [self._session_type(**row, edit_outcomes=outcomes.get(row["id"], [])) for row in rows]

    def _outcomes(self, sessions: list[str]) -> dict[str, list[Any]]:
        query = (
            f"SELECT session_id, {', '.join(_OUTCOME)} FROM edit_outcomes "
            "WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY id"
        )
        found: dict[str, list[Any]] = {}
        with self._lock:
            rows = self._db.execute(query, [json.dumps(sessions)]).fetchall()
        for row in rows:
            found.setdefault(row[0], []).append(self._outcome_type(**_read(_OUTCOME, row[1:])))
        return found


def _stored(name: str, value: Any) -> Any:
    """A field as the database has it."""
    if name in _JSON:
        return None if value is None else json.dumps(value, default=_plain)
    return str(value) if name in _PATHS else _plain(value)


def _plain(value: Any) -> Any:
    """What JSON or SQLite can hold of a value: of an enumeration its value, of a model its fields."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return vars(value) if isinstance(value, SimpleNamespace) else getattr(value, "value", value)


def _read(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    """The fields of a row, as they were handed in."""
    return {name: None if value is None else _value(name, value) for name, value in zip(names, row, strict=True)}


def _value(name: str, stored: Any) -> Any:
    if name in _JSON:
        return json.loads(stored)
    if name in _TIMES:
        return datetime.fromisoformat(stored)
    return Path(stored) if name in _PATHS else stored
