"""The session store of OpenJarvis: what the learning loop did, in SQLite. Only an index: the
`session.json` files are the truth, and it can be made again from them."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from shadowsnap.compat.openjarvis_records import (
    DEFAULTS,
    OF_EDIT,
    OUTCOME,
    REQUIRED,
    SESSION,
    EditOutcome,
    LearningSession,
    plain,
    read_row,
    stored,
)
from shadowsnap.errors import StoreTooNew
from shadowsnap.store.atomic import read_json

_VERSION = 1
_MIGRATIONS: dict[int, str] = {
    # from nothing, or from a database that OpenJarvis itself made
    0: """
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
    """,
}
_ORDER = "ORDER BY julianday(started_at) DESC, started_at DESC, rowid DESC"


class SessionStore:
    """Sessions and outcomes, from any thread. It takes any objects with the attributes of the classes
    above; what it hands out are those, or whatever `session_type` and `outcome_type` make of the same
    keyword arguments (the models of OpenJarvis do)."""

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
            self._migrate(Path(db_path))
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
        where, values = ("", []) if status is None else ("WHERE status = ?", [plain(status)])
        return self._sessions(f"{where} {_ORDER} LIMIT ?", [*values, -1 if limit is None else limit])

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
            edit = {"pillar": pillar, "op": op, "target": target, "risk_tier": risk_tier, "rationale": rationale}
            self._put_outcome(session_id, outcome, edit)

    def list_outcomes(self, session_id: str) -> list[Any]:
        """In the order in which they were saved."""
        return self._outcomes([session_id]).get(session_id, [])

    def rebuild(self, sessions_dir: str | os.PathLike[str]) -> int:
        """Take in every `<session>/session.json` below a directory; how many there were. What is known
        of other sessions stays, and what only this index knows of an edit (its pillar, for example). A
        file that cannot be read, or lacks what a session must have, does not keep out the others."""
        records = {}
        for path in sorted(Path(sessions_dir).glob("*/session.json")):
            record = read_json(path)
            if record is not None and all(record.get(name) is not None for name in REQUIRED):
                records[record["id"]] = {**dict.fromkeys(SESSION), **DEFAULTS, **record}
        with self._writing():
            known = {*records, *(row[0] for row in self._db.execute("SELECT id FROM learning_sessions"))}
            for record in records.values():
                lost = record.get("parent_session_id") not in known
                self._put_session(SimpleNamespace(**{**record, **({"parent_session_id": None} if lost else {})}))
                self._put_outcomes_again(record["id"], record.get("edit_outcomes") or ())
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

    def _migrate(self, path: Path) -> None:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        if found > _VERSION:
            raise StoreTooNew(path=path, found=found, known=_VERSION)
        for version in range(found, _VERSION):
            self._db.executescript(f"BEGIN; {_MIGRATIONS[version]} PRAGMA user_version={version + 1}; COMMIT")

    def _put_session(self, session: Any) -> None:
        values = [stored(name, getattr(session, name)) for name in SESSION]
        self._db.execute(
            f"INSERT INTO learning_sessions ({', '.join(SESSION)}) VALUES ({_marks(SESSION)}) "
            f"ON CONFLICT(id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in SESSION[1:])}",
            values,
        )

    def _put_outcome(self, session_id: str, outcome: Any, edit: dict[str, str]) -> None:
        columns = ("session_id", *OUTCOME, *OF_EDIT)
        values = [stored(name, getattr(outcome, name, None)) for name in OUTCOME]
        self._db.execute(
            f"INSERT INTO edit_outcomes ({', '.join(columns)}) VALUES ({_marks(columns)})",
            [session_id, *values, *(edit[name] for name in OF_EDIT)],
        )

    def _put_outcomes_again(self, session_id: str, outcomes: Iterable[dict[str, Any]]) -> None:
        select = f"SELECT edit_id, {', '.join(OF_EDIT)} FROM edit_outcomes WHERE session_id = ?"
        edits = {
            row[0]: dict(zip(OF_EDIT, row[1:], strict=True)) for row in self._db.execute(select, [session_id])
        }
        self._db.execute("DELETE FROM edit_outcomes WHERE session_id = ?", [session_id])
        for outcome in outcomes:
            if outcome.get("edit_id") is None or outcome.get("status") is None:
                continue
            told = {name: str(outcome.get(name) or "") for name in OF_EDIT}
            edit = edits.get(outcome["edit_id"], told)
            self._put_outcome(session_id, SimpleNamespace(**{"cluster_deltas": {}, **outcome}), edit)

    def _sessions(self, clause: str, values: list[Any]) -> list[Any]:
        with self._lock:
            rows = self._db.execute(
                f"SELECT {', '.join(SESSION)} FROM learning_sessions {clause}", values
            ).fetchall()
            outcomes = self._outcomes([row[0] for row in rows])
        return [
            self._session_type(**read_row(SESSION, row), edit_outcomes=outcomes.get(row[0], [])) for row in rows
        ]

    def _outcomes(self, sessions: list[str]) -> dict[str, list[Any]]:
        query = (
            f"SELECT session_id, {', '.join(OUTCOME)} FROM edit_outcomes "
            "WHERE session_id IN (SELECT value FROM json_each(?)) ORDER BY id"
        )
        found: dict[str, list[Any]] = {}
        with self._lock:
            rows = self._db.execute(query, [json.dumps(sessions)]).fetchall()
        for row in rows:
            found.setdefault(row[0], []).append(self._outcome_type(**read_row(OUTCOME, row[1:])))
        return found


def _marks(columns: tuple[str, ...]) -> str:
    return ", ".join("?" * len(columns))
