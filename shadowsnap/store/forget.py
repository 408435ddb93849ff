"""Forgetting a project: everything that is kept about it beside its checkpoints."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from shadowsnap.digests import sha256
from shadowsnap.errors import LockTimeout
from shadowsnap.git.deadline import Deadline
from shadowsnap.records import Any
from shadowsnap.store.atomic import read_json, write_bytes, write_json
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project, known_projects
from shadowsnap.store.purged import FOLDER
from shadowsnap.store.sessions import FOLDER as SESSIONS
from shadowsnap.store.sessions import sessions_lock

# What hooks and `/rollback` keep beside the store. (Their modules stand above this one.)
TURNS, SHOWN, HOOK_LOG, LOG = "turns", "shown", "hook.log.jsonl", "log.jsonl"

# A hook that takes a snapshot holds the lock of its turn file; it writes the file anew afterwards.
_PATIENCE_SECONDS = 2.0


def forget_project(store: Store, project: Project) -> None:
    """Remove record, journal and stat cache of a project without checkpoints. The caller holds
    its lock. (The lock file stays: somebody may be waiting for it.)"""
    for folder in ("indexes", "journal", FOLDER, "projects"):  # the record last: it is what is looked for first
        for path in (store.git_dir / folder).glob(f"*{project.id}*"):  # also what an interrupted write left
            path.unlink(missing_ok=True)


def forget_mentions(store: Store, project: Project, sessions: Iterable[str], deadline: Deadline) -> None:
    """Take a project out of what is kept beside the store: records of sessions, turn files of hooks, logs. The
    sessions are those that its checkpoints name. The caller holds neither its lock nor the store's."""
    is_of = Mentions(project, (each.workdir for each in known_projects(store)))
    involved = {*sessions, *_sessions_logged(store.base / HOOK_LOG, is_of)}
    involved |= _forget_in_sessions(store, project, is_of, deadline)
    (store.base / SHOWN / f"{project.id}.json").unlink(missing_ok=True)
    _forget_in_turns(store.base / TURNS, is_of, {turn_file(name) for name in (*involved, f"in {project.workdir}")})
    _forget_lines(store.base / HOOK_LOG, is_of)
    with locked(store.base / ".log.lock", "log", deadline):
        _forget_lines(store.base / LOG, is_of)


class Mentions:
    """Whether something speaks of a project: of its directory, or of what lies below it and is no other
    project's."""

    def __init__(self, project: Project, projects: Iterable[Path]) -> None:
        self._id = project.id
        self._workdir = str(project.workdir)
        # The end of the name: `/a/project` is not `/a/project-2`.
        self._pattern = re.compile(re.escape(self._workdir) + r"(?=$|[/\\\s\"'`:;,)\]}>]|\.(?:$|\s))")
        self._below = [str(each) for each in projects if project.workdir in each.parents]

    def __call__(self, value: Any) -> bool:
        if isinstance(value, str):
            if self._workdir not in value:
                return value == self._id
            return any(not self._is_others(value[found.start() :]) for found in self._pattern.finditer(value))
        if isinstance(value, dict):
            return any(self(each) for pair in value.items() for each in pair)
        return isinstance(value, list) and any(map(self, value))

    def _is_others(self, path: str) -> bool:
        return any(path == each or path.startswith(each + os.sep) for each in self._below)


def turn_file(session: str) -> str:
    """The name of the file that the hooks of a session share, without its ending (see `agents.turns`)."""
    if len(session) <= 100 and session.replace("-", "").replace("_", "").isalnum() and session.isascii():
        return f"s-{session}"
    return f"x-{sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


# --- sessions --------------------------------------------------------------------------------


def _forget_in_sessions(store: Store, project: Project, is_of: Mentions, deadline: Deadline) -> set[str]:
    """The sessions that worked in the project."""
    found: set[str] = set()
    with (
        locked(store.store_lock(), "session", deadline, shared=True),
        locked(sessions_lock(store), "session", deadline),
    ):
        for path in _files(store.base / SESSIONS):
            record = read_json(path)
            if record is None:
                if path.suffix != ".lock" and is_of(_text(path)):
                    path.unlink(missing_ok=True)  # damaged, or half written
            elif _names(record, project, is_of):
                found.add(str(record.get("id", "")))
                left = _session_without(record, project, is_of)
                if left is None:
                    path.unlink(missing_ok=True)
                elif left != record:
                    write_json(path, left)
    return found


def _names(record: dict[str, Any], project: Project, is_of: Mentions) -> bool:
    places = [place for turn in _rows(record, "turns") for place in _rows(turn, "places")]
    return any(_is_there(place, project) for place in places) or any(map(is_of, _rows(record, "edits")))


def _session_without(record: dict[str, Any], project: Project, is_of: Mentions) -> dict[str, Any] | None:
    """A record without what was done in a project; None if nothing was done elsewhere. A prompt that was worked
    on in two projects stays with the other one."""
    turns = []
    for turn in _rows(record, "turns"):
        places = _rows(turn, "places")
        others = [place for place in places if not _is_there(place, project)]
        if others or not places:
            refs = [ref for ref in turn.get("attachments") or () if f"/{project.id}/" not in str(ref)]
            turns.append({**turn, "places": others, **({"attachments": refs} if "attachments" in turn else {})})
    edits = [edit for edit in _rows(record, "edits") if not is_of(edit)]
    if not edits and not any(turn["places"] for turn in turns):
        return None
    return {**record, "turns": turns, **({"edits": edits} if "edits" in record else {})}


def _is_there(place: dict[str, Any], project: Project) -> bool:
    return place.get("project") == project.id or place.get("workdir") == str(project.workdir)


# --- hooks -----------------------------------------------------------------------------------


def _sessions_logged(log: Path, is_of: Mentions) -> Iterator[str]:
    for line in _lines(log):
        entry = _parsed(line)
        if isinstance(entry, dict) and is_of(entry) and isinstance(entry.get("session"), str):
            yield entry["session"]


def _forget_in_turns(folder: Path, is_of: Mentions, names: set[str]) -> None:
    for path in _files(folder):
        if path.suffix == ".lock" or not (path.stem in names or is_of(read_json(path) or _text(path))):
            continue
        try:
            with locked(path.with_suffix(".lock"), "clear", Deadline(_PATIENCE_SECONDS)):
                left = _turns_without(read_json(path) or {}, is_of)
                if left is None:
                    path.unlink(missing_ok=True)
                else:
                    write_json(path, left)
        except LockTimeout:
            path.unlink(missing_ok=True)


def _turns_without(record: dict[str, Any], is_of: Mentions) -> dict[str, Any] | None:
    """What the hooks of a session know of other projects; None if that is nothing."""
    turns = record.get("turns")
    known = turns.items() if isinstance(turns, dict) else ()
    left = {name: turn for name, turn in known if not is_of(turn)}
    if not left:
        return None
    prompts = record.get("prompts")
    kept = {name: text for name, text in prompts.items() if name in left} if isinstance(prompts, dict) else {}
    return {**record, "turns": left, "prompts": kept}


# --- files -----------------------------------------------------------------------------------


def _forget_lines(log: Path, is_of: Mentions) -> None:
    lines = list(_lines(log))
    left = [line for line in lines if not is_of(_parsed(line))]
    if len(left) < len(lines):
        write_bytes(log, b"".join(left))


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except OSError:
        return []


def _parsed(line: bytes) -> Any:
    """What a line says; its text if it is damaged."""
    try:
        return json.loads(line)
    except ValueError:
        return line.decode("utf-8", "replace")


def _text(path: Path) -> str:
    return "".join(line.decode("utf-8", "replace") for line in _lines(path))


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError:
        return []


def _rows(record: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = record.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
