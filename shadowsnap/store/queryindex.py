"""`index.db`: what sessions and checkpoints say, in SQLite, for questions that would otherwise mean
reading everything.

It is never the truth and no snapshot knows of it. It is brought up to date when somebody asks; where
it is missing, damaged, or of a newer version, it is made anew from the session files and the store.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.reading import read_many
from shadowsnap.git.repository import Git
from shadowsnap.model import Checkpoint
from shadowsnap.records import dataclass, replace
from shadowsnap.store.checkpoints import (
    CHECKPOINTS,
    LABELS,
    PINS,
    all_refs,
    decode_checkpoint,
    label_of,
    moment_of,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project
from shadowsnap.store.sessions import FOLDER, read_session_record, session_files, to_session

NAME = "index.db"

# Each step takes the schema one version further; a version is never changed once it was released.
STEPS = (
    """
    CREATE TABLE sessions (file TEXT PRIMARY KEY, signature TEXT, id TEXT, parent TEXT, agent TEXT, status TEXT,
                           started REAL, ended REAL);
    CREATE TABLE turns (file TEXT, prompt TEXT);
    CREATE TABLE edits (file TEXT, edit_id TEXT, status TEXT, at REAL, checkpoint TEXT);
    CREATE TABLE checkpoints (ref TEXT PRIMARY KEY, id TEXT, project TEXT, workdir BLOB, at REAL, reason TEXT,
                              prompt TEXT, kind TEXT, scope TEXT, session TEXT, tree TEXT, against TEXT);
    CREATE TABLE paths (ref TEXT, path BLOB);
    """,
    """
    CREATE INDEX turns_of ON turns (file);
    CREATE INDEX edits_of ON edits (file);
    CREATE INDEX checkpoints_of ON checkpoints (session, at);
    CREATE INDEX paths_of ON paths (ref);
    CREATE INDEX path ON paths (path);
    """,
)

# What changed up to these was done in the session; what changed up to the beginning of a turn was
# done before it.
_OWN_WORK = "c.kind IN ('turn-end', 'stage')"


@dataclass(frozen=True)
class Question:
    """What is asked for; None is anything. Times are seconds since 1970."""

    text: str | None = None
    """Part of a reason or prompt, whatever its case."""
    session_id: str | None = None
    status: str | None = None
    project: str | None = None
    path: bytes | None = None
    """A file or directory within its project."""
    since: float | None = None
    until: float | None = None
    kind: str | None = None
    agent: str | None = None
    parent: str | None = None
    edit_id: str | None = None
    limit: int | None = None


def find_sessions(store: Store, question: Question, deadline: Deadline) -> list[Path]:
    """The files of the sessions that fit, newest first."""
    with _current(store, deadline) as db:
        rows = db.execute(*_about_sessions(question)).fetchall()
    return [store.base / FOLDER / row[0] for row in rows]


def find_checkpoints(store: Store, question: Question, deadline: Deadline) -> list[Checkpoint]:
    """The checkpoints that fit, of every project, newest first."""
    with _current(store, deadline) as db:
        rows = db.execute(*_about_checkpoints(question)).fetchall()
    return _loaded(store, rows, deadline)


def refresh(store: Store, deadline: Deadline) -> None:
    """Bring the index up to date."""
    with _current(store, deadline):
        pass


def drop_index(store: Store, deadline: Deadline) -> None:
    """Remove the index, with all that it says of any project; the next question makes it anew."""
    with locked(store.git_dir / "locks" / "index.lock", "index", deadline):
        _remove(store)


# --- questions -----------------------------------------------------------------------------------


def _about_sessions(asked: Question) -> tuple[str, list[Any]]:
    where: list[str] = []
    given: list[Any] = []

    def narrow(condition: str, *values: Any) -> None:
        where.append(condition)
        given.extend(values)

    for column, value in (
        ("id", asked.session_id), ("status", asked.status), ("agent", asked.agent), ("parent", asked.parent),
    ):  # fmt: skip
        if value is not None:
            narrow(f"s.{column} = ?", _storable(value))
    if asked.since is not None:
        narrow("coalesce(s.ended, 1e18) >= ?", asked.since)
    if asked.until is not None:
        narrow("s.started <= ?", asked.until)
    if asked.edit_id is not None:
        narrow("EXISTS (SELECT 1 FROM edits e WHERE e.file = s.file AND e.edit_id = ?)", _storable(asked.edit_id))
    if asked.text is not None:
        condition, values = _containing(asked.text, "t.prompt")
        inner, more = _containing(asked.text, "c.reason", "c.prompt")
        narrow(
            f"(EXISTS (SELECT 1 FROM turns t WHERE t.file = s.file AND {condition}) OR "
            f"EXISTS (SELECT 1 FROM checkpoints c WHERE c.session = s.id AND {inner}))",
            *values, *more,
        )  # fmt: skip
    if asked.path is not None or asked.project is not None:
        inner, more = _in_place(asked)
        narrow(f"EXISTS (SELECT 1 FROM checkpoints c WHERE c.session = s.id AND {_OWN_WORK} AND {inner})", *more)
    return _select("SELECT s.file FROM sessions s", where, "s.started", given, asked.limit)


def _about_checkpoints(asked: Question) -> tuple[str, list[Any]]:
    condition, given = _in_place(asked)
    where = [condition]
    for column, value in (("c.session", asked.session_id), ("c.kind", asked.kind), ("s.status", asked.status)):
        if value is not None:
            where.append(f"{column} = ?")
            given.append(_storable(value))
    for sign, moment in ((">=", asked.since), ("<=", asked.until)):
        if moment is not None:
            where.append(f"c.at {sign} ?")
            given.append(moment)
    if asked.text is not None:
        condition, values = _containing(asked.text, "c.reason", "c.prompt")
        where.append(condition)
        given += values
    start = "SELECT c.ref, c.id, c.project, c.workdir FROM checkpoints c LEFT JOIN sessions s ON s.id = c.session"
    return _select(start, where, "c.at", given, asked.limit)


def _select(
    start: str, where: Iterable[str], newest: str, given: list[Any], limit: int | None
) -> tuple[str, list[Any]]:
    conditions = " AND ".join(["1", *where])
    return f"{start} WHERE {conditions} ORDER BY {newest} DESC LIMIT ?", [*given, -1 if limit is None else limit]


def _in_place(asked: Question) -> tuple[str, list[Any]]:
    where, given = ["1"], list[Any]()
    if asked.project is not None:
        where.append("c.project = ?")
        given.append(asked.project)
    if asked.path:
        where.append(
            "EXISTS (SELECT 1 FROM paths p WHERE p.ref = c.ref AND (p.path = ? OR substr(p.path, 1, ?) = ?))"
        )
        given += [asked.path, len(asked.path) + 1, asked.path + b"/"]
    return " AND ".join(where), given


def _containing(text: str, *columns: str) -> tuple[str, list[Any]]:
    wanted = "".join(f"\\{char}" if char in "%_\\" else char for char in text)
    condition = " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for column in columns)
    return f"({condition})", [_storable(f"%{wanted}%")] * len(columns)


# --- opening -------------------------------------------------------------------------------------


@contextmanager
def _current(store: Store, deadline: Deadline) -> Iterator[sqlite3.Connection]:
    """The index as of now. One process at a time: the next one finds the work done."""
    with locked(store.git_dir / "locks" / "index.lock", "index", deadline), ExitStack() as stack:
        try:
            db = stack.enter_context(closing(_opened(store)))
            _catch_up(store, db, deadline)
        except sqlite3.Error:  # damaged, or something else altogether
            stack.close()
            _remove(store)
            db = stack.enter_context(closing(_opened(store)))
            _catch_up(store, db, deadline)
        yield db


def _opened(store: Store) -> sqlite3.Connection:
    if _version(store) > len(STEPS):
        _remove(store)
    db = _connect(store)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")  # what a power cut damages is made anew
        version = db.execute("PRAGMA user_version").fetchone()[0]
        for number in range(version, len(STEPS)):
            db.executescript(f"BEGIN; {STEPS[number]} PRAGMA user_version = {number + 1}; COMMIT;")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _version(store: Store) -> int:
    with closing(_connect(store)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def _connect(store: Store) -> sqlite3.Connection:
    # The base is closed to everyone else, and so is what lies in it.
    return sqlite3.connect(store.base / NAME, timeout=10, isolation_level=None)


def _remove(store: Store) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        (store.base / f"{NAME}{ending}").unlink(missing_ok=True)


# --- catching up ---------------------------------------------------------------------------------


def _catch_up(store: Store, db: sqlite3.Connection, deadline: Deadline) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        _catch_up_sessions(store, db)
        _catch_up_checkpoints(store, db, deadline)
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _catch_up_sessions(store: Store, db: sqlite3.Connection) -> None:
    known = dict(db.execute("SELECT file, signature FROM sessions"))
    found = {entry.name: entry for entry in session_files(store.base)}
    for name in known.keys() - found.keys():
        _forget_file(db, name)
    for name, entry in found.items():
        try:
            seen = entry.stat()
        except FileNotFoundError:
            continue
        signature = f"{seen.st_ino} {seen.st_mtime_ns} {seen.st_size}"
        if known.get(name) != signature:
            _take_in_session(db, Path(entry.path), signature)


def _take_in_session(db: sqlite3.Connection, path: Path, signature: str) -> None:
    _forget_file(db, path.name)
    record = read_session_record(path)
    if record is None:
        return
    session = to_session(record, lambda _: False)
    times = [None if moment is None else moment.timestamp() for moment in (session.started, session.ended)]
    facts = [_storable(text) for text in (session.id, session.parent, session.agent, session.status)]
    db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [path.name, signature, *facts, *times])
    turns = [(path.name, _storable(turn.prompt)) for turn in session.turns]
    db.executemany("INSERT INTO turns VALUES (?, ?)", turns)
    edits = [
        (path.name, _storable(edit.edit_id), edit.status, edit.at.timestamp(), edit.checkpoint)
        for edit in session.edits
    ]
    db.executemany("INSERT INTO edits VALUES (?, ?, ?, ?, ?)", edits)


def _forget_file(db: sqlite3.Connection, name: str) -> None:
    for table in ("sessions", "turns", "edits"):
        db.execute(f"DELETE FROM {table} WHERE file = ?", [name])


def _catch_up_checkpoints(store: Store, db: sqlite3.Connection, deadline: Deadline) -> None:
    git = store.git(deadline)
    refs = {ref: name for ref, name in all_refs(git).items() if ref.startswith(f"{CHECKPOINTS}/")}
    known = dict(db.execute("SELECT ref, id FROM checkpoints"))
    for ref in [ref for ref, name in known.items() if refs.get(ref) != name]:
        db.execute("DELETE FROM checkpoints WHERE ref = ?", [ref])
        db.execute("DELETE FROM paths WHERE ref = ?", [ref])
    new = {ref: name for ref, name in refs.items() if known.get(ref) != name}
    commits = {name: data for name, kind, data in read_many(git, set(new.values())) if kind == b"commit"}
    rows = [_row(ref, name, commits[name]) for ref, name in new.items() if name in commits]
    db.executemany(f"INSERT INTO checkpoints VALUES ({', '.join('?' * 12)})", rows)
    _catch_up_paths(db, git)


def _row(ref: str, name: str, commit: bytes) -> list[Any]:
    project = Project(ref.split("/")[2], Path())
    each = decode_checkpoint(project, ref, name, commit)
    prompt = each.metadata.get("prompt")
    told = (each.reason, prompt if isinstance(prompt, str) else None, each.kind, each.scope, each.session_id)
    workdir = os.fsencode(each.workdir)
    facts = [None if text is None else _storable(str(text)) for text in told]
    return [ref, name, project.id, workdir, moment_of(ref) / 1000, *facts, each.tree, None]


def _catch_up_paths(db: sqlite3.Connection, git: Git) -> None:
    """What each checkpoint changed against the whole one before it. That one may have been dropped
    since it was told, then it is told again."""
    pairs: dict[str, tuple[str, str]] = {}
    before: dict[str, str] = {}
    for ref, project, tree, scope, against in db.execute(
        "SELECT ref, project, tree, scope, against FROM checkpoints ORDER BY project, ref"
    ):
        old = EMPTY_TREE if scope != "tree" else before.get(project, tree)  # the oldest changed nothing
        if old != against:
            pairs[ref] = (old, tree)
        if scope == "tree":
            before[project] = tree
    changed = _changed_paths(git, {pair for pair in pairs.values() if pair[0] != pair[1]})
    for ref, pair in pairs.items():
        db.execute("DELETE FROM paths WHERE ref = ?", [ref])
        db.executemany("INSERT INTO paths VALUES (?, ?)", [(ref, path) for path in changed.get(pair, ())])
        db.execute("UPDATE checkpoints SET against = ? WHERE ref = ?", [pair[0], ref])


def _changed_paths(git: Git, pairs: set[tuple[str, str]]) -> dict[tuple[str, str], list[bytes]]:
    if not pairs:
        return {}
    asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
    answer = git.run("diff-tree", "--stdin", "-r", "--raw", "-z", "--no-renames", stdin=asked)
    found: dict[tuple[str, str], list[bytes]] = {}
    current, at = ("", ""), 0
    while at < len(answer):
        if answer[at : at + 1] != b":":  # a path follows every colon, so this names the next pair
            current = (answer[at : at + 40].decode(), answer[at + 41 : at + 81].decode())
            at += 82
            continue
        start = answer.index(b"\0", at) + 1
        at = answer.index(b"\0", start)
        found.setdefault(current, []).append(answer[start:at])
        at += 1
    return found


# --- answers -------------------------------------------------------------------------------------


def _loaded(store: Store, rows: list[Any], deadline: Deadline) -> list[Checkpoint]:
    """The checkpoints of some rows; one that was dropped in this moment is left out."""
    git = store.git(deadline)
    commits = {name: data for name, _, data in read_many(git, {row[1] for row in rows})}
    marks = all_refs(git) if rows else {}
    labels = {name: ref for ref, name in marks.items() if ref.startswith(f"{LABELS}/")}
    found = []
    for ref, name, project, workdir in rows:
        if name in commits:
            each = decode_checkpoint(Project(project, Path(os.fsdecode(workdir))), ref, name, commits[name])
            pinned = f"{PINS}/{project}/{ref.rpartition('/')[2]}" in marks
            found.append(replace(each, pinned=pinned, label=_label(labels.get(name))))
    return found


def _label(ref: str | None) -> str | None:
    return None if ref is None else label_of(ref.rpartition("/")[2])


def _storable(text: str | None) -> str | None:
    """SQLite takes no lone surrogates, which names that are not UTF-8 are read as."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()
