"""What is known of each session: `sessions/<id>.json` in the base, one file per conversation.

These files are the truth about sessions. A damaged one is set aside and the session goes on with
a new one: nothing that a checkpoint needs is in here.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.files import read_json, write_json
from shadowsnap.git.refs import read_refs
from shadowsnap.model import EditOutcome, Session, SessionTurn, TurnPlace
from shadowsnap.records import Any
from shadowsnap.store.checkpoints import ATTACHMENTS
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked

STATUSES = ("active", "completed", "failed", "rolled_back")
FOLDER = "sessions"
FORMAT = 1

_PATIENCE_SECONDS = 5.0
# The record is written at every turn: it must not grow without end.
_MOST_TURNS, _MOST_EDITS = 1000, 2000
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
# Windows opens a device under these names, whatever the ending.
_DEVICES = re.compile(r"con|prn|aux|nul|com\d|lpt\d")

Record = dict[str, Any]


def session_key(session_id: str) -> str:
    """A name for a file, different for every id. Most ids can be one themselves; capitals cannot, as
    some file systems take them for small letters."""
    if _PLAIN.fullmatch(session_id) and not _DEVICES.fullmatch(session_id):
        return session_id
    return f"x.{hashlib.sha256(session_id.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def session_file(base: Path, session_id: str) -> Path:
    return base / FOLDER / f"{session_key(session_id)}.json"


def sessions_lock(store: Store) -> Path:
    return store.git_dir / "locks" / "sessions.lock"


# --- writing -------------------------------------------------------------------------------------


def note_turn(
    store: Store, session_id: str, turn: Record, agent: str | None = None, parent: str | None = None
) -> None:
    """Note a turn that began or ended; `turn["key"]` tells which one it is."""

    def change(record: Record) -> None:
        turns = [each for each in _rows(record, "turns") if each.get("key") != turn["key"]]
        known = next((each for each in _rows(record, "turns") if each.get("key") == turn["key"]), {})
        record["turns"] = [*turns, {**known, **{name: value for name, value in turn.items() if value is not None}}]
        record["turns"] = record["turns"][-_MOST_TURNS:]
        record["status"], record["ended"] = "active", None
        record["started"] = record.get("started") or turn.get("began")
        record["agent"], record["parent"] = agent or record.get("agent"), parent or record.get("parent")

    _update(store, session_id, change)


def note_status(store: Store, session_id: str, status: str) -> None:
    """Note how a session ended, or that it goes on."""

    def change(record: Record) -> None:
        record["status"] = status
        record["ended"] = None if status == "active" else time.time()

    _update(store, session_id, change)


def note_edit(store: Store, session_id: str, edit: Record) -> None:
    """Note what became of a stage."""

    def change(record: Record) -> None:
        record["edits"] = [*_rows(record, "edits"), edit][-_MOST_EDITS:]

    _update(store, session_id, change)


def note_reverted(store: Store, session_id: str, project: str, turn: int | None) -> None:
    """Note that a turn in a project, or (None) all that a session did there, was taken back."""

    def change(record: Record) -> None:
        for each in _rows(record, "turns"):
            if any(
                place.get("project") == project and turn in (None, place.get("turn")) for place in _places(each)
            ):
                each["reverted"] = True
        if turn is None:
            record["status"], record["ended"] = "rolled_back", time.time()

    if session_file(store.base, session_id).exists():
        _update(store, session_id, change)


def rename_in_sessions(store: Store, renamed: Mapping[str, str], deadline: Deadline) -> None:
    """Let every record speak of checkpoints and attachments by their new ids and refs. The caller shares the
    store's lock."""

    def changed(value: Any) -> Any:
        if isinstance(value, str):
            return renamed.get(value, value)
        if isinstance(value, list):
            return [changed(each) for each in value]
        return {name: changed(each) for name, each in value.items()} if isinstance(value, dict) else value

    with locked(sessions_lock(store), "session", deadline):
        for entry in list(session_files(store.base)):
            record = read_json(Path(entry.path))
            if record is not None and changed(record) != record:
                write_json(Path(entry.path), changed(record))


def _update(store: Store, session_id: str, change: Callable[[Record], None]) -> None:
    path = session_file(store.base, session_id)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    deadline = Deadline(_PATIENCE_SECONDS)
    with (
        locked(store.store_lock(), "session", deadline, shared=True),  # or a file half written is cleared away
        locked(sessions_lock(store), "session", deadline),
    ):
        record = _read(path) or {"format": FORMAT, "id": session_id, "status": "active"}
        change(record)
        record["started"] = record.get("started") or time.time()
        write_json(path, record)


# --- reading -------------------------------------------------------------------------------------


def read_session(store: Store, session_id: str) -> Session | None:
    record = _read(session_file(store.base, session_id))
    return None if record is None else to_session(record, kept_attachments(store))


def session_files(base: Path) -> Iterator[os.DirEntry[str]]:
    """The file of every session."""
    try:
        with os.scandir(base / FOLDER) as entries:
            yield from (each for each in entries if each.name.endswith(".json") and each.name[0] != ".")
    except FileNotFoundError:
        return


def read_session_record(path: Path) -> Record | None:
    """What a file says; None if it is gone, or was damaged and is set aside now."""
    return _read(path)


def kept_attachments(store: Store) -> Callable[[str], bool]:
    """Whether there is an attachment of this ref."""
    known: dict[str, dict[str, str]] = {}

    def is_kept(ref: str) -> bool:
        project, _, name = ref.removeprefix(f"{ATTACHMENTS}/").partition("/")
        if project not in known:
            known[project] = read_refs(store.git_dir, f"{ATTACHMENTS}/{project}")
        return name in known[project]

    return is_kept


def to_session(record: Record, is_kept: Callable[[str], bool]) -> Session:
    """What a record says. Anything in it may be missing or strange."""
    return Session(
        id=str(record["id"]),
        status=record["status"] if record.get("status") in STATUSES else "active",
        agent=_text(record.get("agent")),
        parent=_text(record.get("parent")),
        started=_time(record.get("started")),
        ended=_time(record.get("ended")),
        turns=tuple(_turn(each, is_kept) for each in _rows(record, "turns")),
        edits=tuple(_edit(each) for each in _rows(record, "edits")),
        note=_text(record.get("note")) or "",
    )


def last_attachment(store: Store, session_id: str) -> str | None:
    """The ref of the last conversation of a session that is still kept."""
    is_kept = kept_attachments(store)
    return next((ref for ref in reversed(attachments_of(store, session_id)) if is_kept(ref)), None)


def attachments_of(store: Store, session_id: str) -> list[str]:
    """The refs of all conversations that were ever kept for a session, oldest first."""
    record = _read(session_file(store.base, session_id)) or {}
    return [ref for turn in _rows(record, "turns") for ref in _refs(turn)]


def has_its_own(store: Store, session_id: str, attachment: str) -> bool:
    """Whether a turn of the session itself handed over what was kept there, and not somebody afterwards."""
    record = _read(session_file(store.base, session_id)) or {}
    own = [turn for turn in _rows(record, "turns") if not turn.get("attached")]
    return any(attachment in _refs(turn) for turn in own)


def checkpoints_named(record: Record) -> list[str]:
    """The ids of all checkpoints that a record speaks of."""
    places = [place for turn in _rows(record, "turns") for place in _places(turn)]
    found = [place.get(name) for place in places for name in ("before", "after")]
    found += [edit.get("checkpoint") for edit in _rows(record, "edits")]
    return [name for name in found if isinstance(name, str)]


def _turn(row: Record, is_kept: Callable[[str], bool]) -> SessionTurn:
    refs = _refs(row)
    kept = "kept" if any(is_kept(ref) for ref in refs) else "dropped" if refs else "none"
    skipped = _text(row.get("not_kept"))
    return SessionTurn(
        began=_time(row.get("began")) or datetime.fromtimestamp(0, UTC),
        ended=_time(row.get("ended")),
        prompt=_text(row.get("prompt")),
        message_count=_whole(row.get("messages")),
        places=tuple(_place(each) for each in _places(row)),
        conversation=skipped if skipped and not refs else kept,
        reverted=row.get("reverted") is True,
    )


def _place(row: Record) -> TurnPlace:
    names = ("before", "after", "status")
    before, after, status = (_text(row.get(name)) for name in names)
    workdir, project = str(row.get("workdir", "")), str(row.get("project", ""))
    return TurnPlace(workdir, project, _whole(row.get("turn")), before, after, status or "")


def _edit(row: Record) -> EditOutcome:
    return EditOutcome(
        edit_id=_text(row.get("edit_id")),
        status=str(row.get("status", "")),
        at=_time(row.get("at")) or datetime.fromtimestamp(0, UTC),
        workdir=str(row.get("workdir", "")),
        checkpoint=_text(row.get("checkpoint")),
        risk_tier=_text(row.get("risk_tier")),
    )


def _read(path: Path) -> Record | None:
    record = read_json(path)
    if record is not None and isinstance(record.get("id"), str):
        return record
    if path.is_file():
        _set_aside(path)
    return None


def _set_aside(path: Path) -> None:
    try:
        path.replace(path.with_suffix(f".{time.time_ns() // 10**6}.damaged"))
    except FileNotFoundError:
        pass  # by somebody else


def _rows(record: Record, name: str) -> list[Record]:
    rows = record.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _places(turn: Record) -> list[Record]:
    return _rows(turn, "places")


def _refs(turn: Record) -> list[str]:
    refs = turn.get("attachments")
    return [ref for ref in refs if isinstance(ref, str)] if isinstance(refs, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(value, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
