"""What the hooks of one session know of each other: a small file in `run/`.

Every hook is a process of its own. The file says which turn it is, what the person asked, and what is already
safe in it, so that most hooks end after reading it. It is written under a lock that is held while a snapshot is
taken: a hook that comes meanwhile waits, as the tool that it stands before must not run yet. What happened is in
the operation log; this file can be lost.

The hook log is here, too: what hooks did and what went wrong, since a hook prints nothing itself.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.base import configured_base
from shadowsnap.deadline import Deadline
from shadowsnap.files import (
    append_bounded,
    make_private_folder,
    parse_json,
    parse_json_lines,
    session_file,
    write_json,
)
from shadowsnap.hook.payload import TOOL, HookEvent, implied_transcript, transcripts_folder, version_in_transcript
from shadowsnap.snapshot.tools import command_projects, named_files, named_folders, project_root
from shadowsnap.store.locks import locked

if TYPE_CHECKING:  # every hook reads its session, and few need the model
    from shadowsnap.model import Outcome

FOLDER = "run"

_SESSIONS_KEPT = 500
_DAYS_KEPT = 14
_MOST_TOOLS = 200
_PROMPTS_KEPT = 8
_DEEPEST_HELPER = 20
# A session that never reported a prompt: after so long a silence, the next tool call is a new turn.
_SILENCE_SECONDS = 60.0


class HookSession:
    """The file of one session, as it was when it was read."""

    def __init__(self, base: str, event: HookEvent) -> None:
        self.base = base
        self.folder = os.path.join(base, FOLDER)
        # Without a session id, all that happens in one directory is one session.
        self._open_file(event.session or f"in {event.cwd}")
        self.is_child = False
        for _ in range(_DEEPEST_HELPER):  # a helper with a session of its own works for the one that started it
            parent = self.record.get("parent")
            if not isinstance(parent, str):
                break
            self.is_child = True
            self._open_file(parent)

    def _open_file(self, session: str) -> None:
        self.id = session
        self.name = session_file(session)
        self.path = os.path.join(self.folder, f"{self.name}.json")
        self.last_seen = 0.0
        self.record: dict[str, Any] = {}
        self.read()

    def read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                self.last_seen = os.fstat(file.fileno()).st_mtime
                record = parse_json(file.read())
        except (OSError, ValueError):
            record = {}
        self.record = _sound(record)

    # --- reading -------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a turn took snapshots and has not ended."""
        return isinstance(self.record.get("state"), dict) and self.record.get("ended") is not True

    def is_same_turn(self, event: HookEvent) -> bool:
        """Whether an event belongs to the turn of the record."""
        turn = self.record.get("turn")
        if turn is None:
            return False
        if event.is_helper or self.is_child:
            # A helper may go on after the turn that started it. The person has edited since.
            return self.record.get("ended") is not True
        if event.turn:
            return event.turn == turn or event.turn in self.record.get("also", ())
        if self.record.get("ended") is True:
            return False
        silent = time.time() - self.last_seen > _SILENCE_SECONDS
        return bool(self.record.get("prompted")) or not silent

    def is_earlier_turn(self, event: HookEvent) -> bool:
        """Whether an event belongs to a turn before that of the record."""
        return event.turn in self.record.get("asked", ()) and not self.is_same_turn(event)

    def covers(self, event: HookEvent) -> bool:
        """Whether everything that the tool may write to is safe in this turn."""
        if not self.is_same_turn(event) or not self.is_open or self.counts_calls():
            return False
        folders, files = _wanted(event, self.base)
        state = self.record["state"]
        taken = [place["workdir"] for place in state.get("places", ()) if place["whole"]]
        return set(folders) <= set(self.record.get("folders", ())) and all(
            file in self.record.get("files", ()) or _is_new(file, taken) for file in files
        )

    def with_root(self, event: HookEvent) -> HookEvent:
        """The same event, in the directory of the session's first prompt as well: an agent may have used `cd`
        since. Where that led to is a project of its own only if it looks like one."""
        root = str(self.record.get("root") or event.cwd)
        below = event.cwd.startswith(os.path.join(root, ""))
        if not below or project_root(event.cwd, Path(self.base)) is not None:
            return event
        return replace(event, roots=(root, *event.roots))

    def counts_calls(self) -> bool:
        """Whether each tool call of this turn has checkpoints of its own."""
        state = self.record.get("state")
        return isinstance(state, dict) and state.get("granularity") == "tool"

    def state_of(self, event: HookEvent) -> dict[str, Any]:
        """What the manager needs to go on with the turn, or to begin it."""
        state = self.record.get("state")
        if isinstance(state, dict):
            return state
        return {
            "session_id": self.id if event.session else None,
            "prompt": self.record.get("prompt") or None,
            "agent": event.agent or None,
            "key": self.record.get("key"),
            "began": self.record.get("began") or time.time(),
            "transcript": self.record.get("transcript") or self._mark_transcript(event),
            "places": [],
        }

    def tools(self) -> list[list[str]]:
        """The tools that ran in this turn, as the hooks noted them one by one."""
        try:
            with open(self._tools_path, "rb") as file:
                rows = [parse_json(line) for line in file.read().splitlines()[:_MOST_TOOLS]]
        except (OSError, ValueError):
            return []
        return [[str(word) for word in row] for row in rows if isinstance(row, list)]

    @property
    def _tools_path(self) -> str:
        return os.path.join(self.folder, f"{self.name}.tools")

    # --- writing: only under the lock ----------------------------------------------------------------

    def lock(self, seconds: float) -> AbstractContextManager[int]:
        make_private_folder(os.path.dirname(self.folder))
        return locked(Path(self.folder, f"{self.name}.lock"), "a hook", Deadline(seconds))

    def begin_turn(self, event: HookEvent, prompt: str, *, prompted: bool) -> None:
        """Another turn begins; what it does comes with the tool calls."""
        root = self.record.get("root") or event.cwd
        count = self.record.get("count", 0)
        count = count + 1 if isinstance(count, int) else 1
        asked = dict(self.record.get("asked", {}))
        if event.turn:
            prompt = prompt or asked.get(event.turn, "")
            asked = dict(list({**asked, event.turn: prompt}.items())[-_PROMPTS_KEPT:])
        self.record = {
            "root": root,
            "turn": event.turn or f"#{count}",
            "count": count,
            "key": f"{time.time_ns()}-{os.getpid()}",  # if a hook dies, the next one goes on with the same turn
            "prompt": prompt,
            "asked": asked,
            "prompted": prompted or self.record.get("prompted") is True,
            "began": time.time(),
            "transcript": self._mark_transcript(event),
            "shell": self.record.get("shell") is True,
        }
        try:
            os.unlink(self._tools_path)
        except OSError:
            pass
        self.write()

    def continue_turn(self, event: HookEvent) -> None:
        """A message that belongs to the turn that is there: it goes on, also if it had ended."""
        if event.turn and event.turn != self.record.get("turn"):
            self.record["also"] = [*self.record.get("also", ()), event.turn][-20:]
        if self.record.get("ended") is True:
            self.record["again"] = self.record.get("again", 0) + 1
        self.record["ended"] = False
        self.write()

    def note_taken(self, event: HookEvent, state: dict[str, Any]) -> None:
        """All that this event is about is safe now."""
        folders, files = _wanted(event, self.base)
        self.record["state"] = state
        self.record["folders"] = sorted({*self.record.get("folders", ()), *folders})
        self.record["files"] = sorted({*self.record.get("files", ()), *files})
        self.write()

    def note_state(self, state: dict[str, Any]) -> None:
        self.record["state"] = state
        self.write()

    def note_ended(self) -> None:
        """The agent is done: what comes next is another turn."""
        self.record["ended"] = True
        self.write()

    def note_parent(self, parent: str) -> None:
        """This session is a helper of another one."""
        self.record["parent"] = parent
        self.write()

    def note_tool(self, tool: str, about: str, *, shell: bool) -> None:
        """Add a tool call to the turn. One write, without the lock: most hooks do nothing else."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open(self._tools_path, flags, 0o600)
            try:
                if os.fstat(descriptor).st_size < _MOST_TOOLS * 400:
                    os.write(descriptor, json.dumps([tool, about]).encode("ascii") + b"\n")
            finally:
                os.close(descriptor)
            if not self.record.get("prompted"):
                os.utime(self.path)  # a turn that only silence can end has not ended yet
        except OSError:
            pass
        if shell and not self.record.get("shell"):
            self.record["shell"] = True  # written with the next change

    def _mark_transcript(self, event: HookEvent) -> list[str | int] | None:
        """A transcript, how long it is now, the directory that it must lie in, the session, whether the turn may
        have begun in it, and the turn's id. It is read when the turn is over: now the agent waits."""
        if event.is_helper or self.is_child:
            return None  # the instructions of a helper are another conversation
        implied = None if event.transcript else implied_transcript(event.agent, event.session)
        path, folder = implied or (event.transcript, transcripts_folder(event.agent, event.transcript))
        try:
            in_database = path.endswith(".db")  # where times may be known to the second only
            size = int(time.time() * 1000) if in_database else os.stat(path).st_size
            answered = in_database or event.kind == TOOL
            return [path, size, folder, event.session, answered, event.turn] if folder else None
        except (OSError, ValueError):
            return None  # not written yet, or no path

    def write(self) -> None:
        if not os.path.exists(self.path):
            remove_old_sessions(self.folder)
        write_json(Path(self.path), self.record)


def remove_old_sessions(folder: str) -> None:
    """Sessions end without a word. Their files go by age, and by number if there are too many."""
    now, found = time.time(), []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.name.endswith((".json", ".lock", ".tools")):
                found.append((entry.stat().st_mtime, entry.path))
        except OSError:
            continue  # another hook was faster
    found.sort(reverse=True)
    for place, (seen, path) in enumerate(found):
        if place >= 2 * _SESSIONS_KEPT or now - seen > _DAYS_KEPT * 86400:
            try:
                os.unlink(path)
            except OSError:
                pass


def _sound(record: Any) -> dict[str, Any]:
    """What can be used of a record. The rest is left out: a damaged file must not keep a hook from its work."""
    if not isinstance(record, dict):
        return {}
    kinds: dict[str, Any] = {"turn": str, "count": int, "prompt": str, "prompted": bool, "state": dict}
    kinds |= {"began": (int, float), "key": str, "again": int}
    kinds |= {"folders": list, "files": list, "also": list, "ended": bool, "shell": bool, "parent": str}
    kinds |= {"transcript": list, "asked": dict, "root": str}
    found = {name: record[name] for name, kind in kinds.items() if isinstance(record.get(name), kind)}
    for name in ("folders", "files", "also"):
        if name in found:
            found[name] = [text for text in found[name] if isinstance(text, str)]
    return found


def _wanted(event: HookEvent, base: str) -> tuple[list[str], list[str]]:
    """The directories and files that must be safe before this tool runs, as the agent writes them."""
    folders = [event.cwd, *event.roots, *(_absolute(each, event.cwd) for each in named_folders(event.tool_input))]
    folders += map(str, command_projects(event.tool_input, event.cwd, base))
    return folders, [_absolute(each, event.cwd) for each in named_files(event.tool_input)]


def _is_new(file: str, taken: list[str]) -> bool:
    """Whether a file is not there yet, in a directory that is safe: nothing of it can be lost."""
    if os.path.lexists(file):
        return False
    folder = os.path.realpath(os.path.dirname(file))
    return any(folder == workdir or folder.startswith(workdir.rstrip(os.sep) + os.sep) for workdir in taken)


def _absolute(path: str, cwd: str) -> str:
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))


# --- the hook log ----------------------------------------------------------------------------------


_MOST_BYTES = 256 * 1024
_LONGEST = 1000


def log_file() -> Path:
    return Path(configured_base()) / "hook.log.jsonl"


def log_event(
    agent: str,
    event: HookEvent | None,
    what: str,
    problem: Exception | None = None,
    outcome: Outcome | None = None,
) -> None:
    """Add one line."""
    entry: dict[str, Any] = {"time": time.time(), "agent": agent, "status": what}
    if event is not None:
        entry |= {"event": event.kind, "session": event.session, "cwd": event.cwd, "tool": event.tool}
        entry["version"] = event.version or version_in_transcript(agent, event.session, event.transcript)
        if event.problem:
            entry["input"] = event.problem
    if outcome is not None:
        entry["note"] = outcome.note
        if outcome.checkpoint is not None:
            entry |= {"checkpoint": outcome.checkpoint.id, "workdir": outcome.checkpoint.workdir}
    if problem is not None:
        entry["error"] = f"{type(problem).__name__}: {problem}"
    path = log_file()
    if make_private_folder(path.parent):
        return  # another user could have made a link of the log
    line = json.dumps({key: _bounded(value) for key, value in entry.items() if value})
    append_bounded(path, line.encode("ascii"), _MOST_BYTES)


def _bounded(value: Any) -> Any:
    """What an agent sends can be of any length, and a line that is longer than the log would empty it."""
    return value[:_LONGEST] if isinstance(value, str) else value


def read_log(limit: int = 20) -> list[dict[str, Any]]:
    """The newest entries, newest first."""
    try:
        data = log_file().read_bytes()
    except OSError:
        return []
    return list(parse_json_lines(data))[: -limit - 1 : -1] if limit > 0 else []
