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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from shadowsnap.base import configured_base
from shadowsnap.compat.common import open_manager
from shadowsnap.errors import NoSuchProject, StoreTooNew
from shadowsnap.files import read_json
from shadowsnap.model import Checkpoint

__all__ = [
    "CheckpointStore", "ConfigurationError", "DirtyWorkingTreeError", "EditOutcome", "LearningSession",
    "RevertConflictError", "SessionStore", "StageHandle",
]  # fmt: skip

TRACKED = ("config.toml", "agents", "tools")
_FACE = {"face": "openjarvis"}


def _original(module: str, name: str, otherwise: Any) -> Any:
    """What OpenJarvis itself calls by a name, so that `==` and `except` work in the rest of it, too."""
    try:
        return getattr(import_module(f"openjarvis.learning.spec_search.{module}"), name)
    except (ImportError, AttributeError):
        return otherwise


class ConfigurationError(RuntimeError):
    """The directory lies in a source tree, where no checkpoints of a configuration belong."""


class DirtyWorkingTreeError(RuntimeError):
    """There are changes that no stage committed."""


class RevertConflictError(RuntimeError):
    """Something else changed the same lines since. Nothing was reverted."""


@dataclass(frozen=True)
class StageHandle:
    """Where a stage began. It may end in another process."""

    edit_id: str
    pre_stage_sha: str


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

if not TYPE_CHECKING:
    ConfigurationError = _original("storage.paths", "ConfigurationError", ConfigurationError)
    DirtyWorkingTreeError = _original("checkpoint.store", "DirtyWorkingTreeError", DirtyWorkingTreeError)
    StageHandle = _original("checkpoint.store", "StageHandle", StageHandle)
    LearningSession = _original("models", "LearningSession", LearningSession)
    EditOutcome = _original("models", "EditOutcome", EditOutcome)


class CheckpointStore:
    """Checkpoints of `config.toml`, `agents/` and `tools/` of one directory; whatever else is in it is neither
    captured nor touched. `protected` are source trees in which it refuses to begin; that of OpenJarvis itself
    always is one."""

    def __init__(
        self, root: str | os.PathLike[str], *, base: Path | None = None, protected: Sequence[Path] = ()
    ) -> None:
        self.root = Path(root).expanduser().resolve()
        self._protected = protected
        self._manager = open_manager(base or configured_base(), ["/*", *(f"!/{name}" for name in TRACKED)])

    def init(self) -> None:
        """Take the baseline, if there is none yet."""
        for tree in (*self._protected, *_source_trees(self.root)):
            if self.root.is_relative_to(Path(tree).resolve()):
                raise ConfigurationError(f"{self.root} is inside the source tree {tree}")
        self.root.mkdir(parents=True, exist_ok=True)
        if not self._history():
            self._note("checkpoint baseline")

    def current_sha(self) -> str:
        """The checkpoint that the last stage, revert or `init` ended with."""
        return self._head().short_id

    def begin_stage(self, edit_id: str) -> StageHandle:
        """Refused (`DirtyWorkingTreeError`) while there are changes that no stage committed."""
        head = self._head()
        self._check_clean(head, f"cannot begin the stage of {edit_id}")
        return StageHandle(edit_id, head.short_id)

    def commit_stage(self, handle: StageHandle, *, message: str, session_id: str, risk_tier: str) -> str:
        """Keep what was done since the stage began."""
        trailers = f"Edit-ID: {handle.edit_id}\nSession-ID: {session_id}\nRisk-Tier: {risk_tier}\n"
        made = self._manager.commit_since(
            self.root,
            handle.pre_stage_sha,
            f"{message}\n\n{trailers}",
            edit_id=handle.edit_id,
            session_id=session_id,
            risk_tier=risk_tier,
            **_FACE,
        )
        return self._keep(made)

    def discard_stage(self, handle: StageHandle) -> None:
        """Put everything back as it was when the stage began. What is put back is saved first."""
        if self.current_sha() != handle.pre_stage_sha:
            raise RuntimeError(f"something was committed since the stage of {handle.edit_id} began")
        self._manager.restore(self.root, handle.pre_stage_sha)

    def revert_session(self, session_id: str) -> list[str]:
        """Take back every stage of a session that was not taken back yet, newest first. Each makes a new entry; no
        old one changes."""
        history = self._history()
        done = {each.metadata.get("reverts") for each in history}
        stages = [each for each in history if each.kind == "stage" and each.session_id == session_id]
        going = [each for each in stages if each.id not in done]
        if going:
            self._check_clean(history[0], f"cannot revert {session_id}")
            self._check_no_conflict(session_id)
        return [self._revert(each) for each in going]

    def _revert(self, stage: Checkpoint) -> str:
        reason = f'Revert "{stage.reason.partition(chr(10))[0]}"'
        result = self._manager.revert_stage(self.root, stage.id, reason, False, reverts=stage.id, **_FACE)
        if result.target.id:
            return self._keep(result.target)
        # Its work is gone already, by hand or by a later stage: that is noted all the same.
        return self._note(reason, reverts=stage.id)

    def _note(self, reason: str, **facts: str) -> str:
        taken = self._manager.snapshot(self.root, reason, always=True, **facts, **_FACE).checkpoint
        assert taken is not None
        return self._keep(taken)

    def _keep(self, made: Checkpoint) -> str:
        """Pin it: a stage can only be reverted while its beginning is there, whatever the limits of the store."""
        return self._manager.pin(self.root, made.id).short_id

    def _check_no_conflict(self, session_id: str) -> None:
        conflicts = self._manager.revert(self.root, session_id=session_id, dry_run=True).conflicts
        if conflicts:
            paths = ", ".join(conflict.path for conflict in conflicts)
            raise RevertConflictError(f"cannot revert {session_id}: others changed the same in {paths}")

    def _check_clean(self, head: Checkpoint, otherwise: str) -> None:
        changes = self._manager.diff(self.root, head.id).changes
        if changes:
            paths = ", ".join(change.path for change in changes[:5])
            raise DirtyWorkingTreeError(f"{otherwise}: there are uncommitted changes to {paths}")

    def _head(self) -> Checkpoint:
        history = self._history()
        if not history:
            raise RuntimeError(f"{self.root} has no checkpoints yet: call init() first")
        return history[0]

    def _history(self) -> list[Checkpoint]:
        """Our checkpoints, newest first. (An agent's hook may take others of the same directory.)"""
        try:
            found = self._manager.list_checkpoints(self.root)
        except NoSuchProject:
            return []
        return [each for each in found if each.metadata.get("face") == _FACE["face"]]


def _source_trees(root: Path) -> list[Path]:
    """The checkout of OpenJarvis that a directory is in, and the one that is installed."""
    around = (root, *root.parents)
    trees = [folder for folder in around if (folder / "src" / "openjarvis" / "__init__.py").exists()]
    spec = find_spec("openjarvis")
    package = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
    if package is not None:
        trees.append(package.parents[1] if package.parent.name == "src" else package)
    return trees


# --- sessions ----------------------------------------------------------------------------------------

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
