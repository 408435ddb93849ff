"""The state that the hooks of one session share: a small file in `run/`.

Every hook is a process of its own. The file has the current turn, its prompt, and what is already safe in it, so
that most hooks end after reading it. It is written under a lock that is held while a snapshot is taken. Another
hook waits meanwhile, because its tool must not run yet. The operation log has the history; this file can be lost.

The hook log is here, too: what hooks did and what went wrong, because a hook prints nothing itself.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.base import configured_base
from shadowsnap.deadline import Deadline
from shadowsnap.errors import ShadowsnapError
from shadowsnap.files import (
    append_bounded,
    check_resources,
    make_private_folder,
    parse_json,
    parse_json_lines,
    session_file,
    write_json,
)
from shadowsnap.hook.payload import TOOL, HookEvent, implied_transcript, transcripts_folder, version_in_transcript
from shadowsnap.snapshot.tools import absolute_path, command_projects, named_files, named_folders, project_root
from shadowsnap.store.locks import locked

if TYPE_CHECKING:  # every hook reads its session, and few need the model
    from shadowsnap.model import Outcome

FOLDER = "run"

_SESSIONS_KEPT = 500
_DAYS_KEPT = 14
_MOST_TOOLS = 200
_MOST_NOTED = 1 << 20
_PROMPTS_KEPT = 8
_MOST_PARENTS = 20
# A session that never reported a prompt: after so long a silence, the next tool call is a new turn.
_SILENCE_SECONDS = 60.0


class HookSession:
    """The file of one session, as it was when it was read."""

    def __init__(self, base: str, event: HookEvent) -> None:
        self.base = base
        self.folder = os.path.join(base, FOLDER)
        # Without a session id, a directory is one session.
        self._open_file(event.session or f"in {event.cwd}")
        self.is_child = False
        for _ in range(_MOST_PARENTS):  # a subagent's session uses the file of the session that started it
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
        except OSError as problem:
            check_resources(problem)  # the helper has none left, but the hook's own process will
            record = {}
        except ValueError:
            record = {}
        self.record = _valid_fields(record)

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
        if event.is_subagent or self.is_child:
            # A subagent may go on after the turn that started it, when the person may have edited already.
            return self.record.get("ended") is not True
        if event.turn and (event.turn == turn or event.turn in self.record.get("also", ())):
            return True
        if event.turn:
            # The hook of a tool may come late, when a new prompt has interrupted its turn already.
            is_late = event.kind == TOOL and event.turn in self.record.get("over", ())
            return is_late and self.record.get("ended") is not True
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
        folders, files = _paths_to_protect(event, self.base)
        state = self.record["state"]
        taken = [place["workdir"] for place in state.get("places", ()) if place["whole"]]
        return set(folders) <= set(self.record.get("folders", ())) and all(
            file in self.record.get("files", ()) or _is_new(file, taken) for file in files
        )

    def with_root(self, event: HookEvent) -> HookEvent:
        """The same event with the directory of the session's first prompt as another root: the agent may have used
        `cd` since, and a subdirectory is a project of its own only if it looks like one."""
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
        """The state with which the manager continues or begins the turn."""
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
        """The tool calls of this turn that the hooks noted."""
        return [[str(word) for word in row[:2]] for row in self._noted()[:_MOST_TOOLS]]

    def new_files(self) -> list[str]:
        """The files that tools of this turn named without a snapshot, because they did not exist."""
        return [str(file) for row in self._noted() for file in row[2:]]

    def files_not_taken(self, event: HookEvent) -> list[str]:
        """The files that a tool names and that no snapshot of this turn was asked to hold."""
        known = self.record.get("files", ())
        return [file for file in _paths_to_protect(event, self.base)[1] if file not in known]

    def _noted(self) -> list[list[Any]]:
        try:
            with open(self._tools_path, "rb") as file:
                rows = [parse_json(line) for line in file.read().splitlines()]
        except (OSError, ValueError):
            return []
        return [row for row in rows if isinstance(row, list)]

    @property
    def last_heard(self) -> float:
        """When the last event of the turn came."""
        try:
            return max(self.last_seen, os.stat(self._tools_path).st_mtime)
        except OSError:
            return self.last_seen

    @property
    def _tools_path(self) -> str:
        return os.path.join(self.folder, f"{self.name}.tools")

    # --- writing: only under the lock ----------------------------------------------------------------

    def lock(self, seconds: float) -> AbstractContextManager[int]:
        make_private_folder(os.path.dirname(self.folder))
        return locked(Path(self.folder, f"{self.name}.lock"), "a hook", Deadline(seconds))

    def begin_turn(self, event: HookEvent, prompt: str, *, prompted: bool) -> None:
        """Begin another turn. Its directories and files come with the tool calls."""
        self.record = self.next_turn(event, prompt, prompted=prompted)
        try:
            os.unlink(self._tools_path)
        except OSError:
            pass
        self.write()

    def next_turn(self, event: HookEvent, prompt: str, *, prompted: bool) -> dict[str, Any]:
        """The record of the turn after this one."""
        root = self.record.get("root") or event.cwd
        count = self.record.get("count", 0)
        count = count + 1 if isinstance(count, int) else 1
        asked = dict(self.record.get("asked", {}))
        if event.turn:
            prompt = prompt or asked.get(event.turn, "")
            asked = dict(list({**asked, event.turn: prompt}.items())[-_PROMPTS_KEPT:])
        over = list(self.record.get("over", ()))
        if "state" in self.record and "turn" in self.record:
            over.append(self.record["turn"])
        return {
            "root": root,
            "turn": event.turn or f"#{count}",
            "count": count,
            "key": f"{time.time_ns()}-{os.getpid()}",  # if a hook dies, the next one goes on with the same turn
            "prompt": prompt,
            "asked": asked,
            "over": over[-_PROMPTS_KEPT:],
            "prompted": prompted or self.record.get("prompted") is True,
            "began": time.time(),
            "transcript": self._mark_transcript(event),
            "shell": self.record.get("shell") is True,
        }

    def continue_turn(self, event: HookEvent) -> None:
        """Continue the turn with another message, even if it had ended."""
        if event.turn and event.turn != self.record.get("turn"):
            self.record["also"] = [*self.record.get("also", ()), event.turn][-20:]
        if self.record.get("ended") is True:
            self.record["again"] = self.record.get("again", 0) + 1
        self.record["ended"] = False
        self.write()

    def note_taken(self, event: HookEvent, state: dict[str, Any]) -> None:
        """Note that the directories and files of this event are safe now."""
        folders, files = _paths_to_protect(event, self.base)
        self.record["state"] = state
        self.record["folders"] = sorted({*self.record.get("folders", ()), *folders})
        self.record["files"] = sorted({*self.record.get("files", ()), *files})
        self.write()

    def note_state(self, state: dict[str, Any]) -> None:
        self.record["state"] = state
        self.write()

    def note_ended(self) -> None:
        """Note that the turn ended: what follows is another turn."""
        self.record["ended"] = True
        self.write()

    def note_parent(self, parent: str) -> None:
        """Note that another session started this one for a subagent."""
        self.record["parent"] = parent
        self.write()

    def note_tool(self, tool: str, about: str, new_files: list[str], *, shell: bool) -> None:
        """Add a tool call to the turn. One write, without the lock: most hooks do nothing else."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            descriptor = os.open(self._tools_path, flags, 0o600)
            try:
                if os.fstat(descriptor).st_size < (_MOST_NOTED if new_files else _MOST_TOOLS * 400):
                    os.write(descriptor, json.dumps([tool, about, *new_files]).encode("ascii") + b"\n")
            finally:
                os.close(descriptor)
            if not self.record.get("prompted"):
                os.utime(self.path)  # without prompts, a turn ends after a pause without tool calls
        except OSError:
            pass
        if shell and not self.record.get("shell"):
            self.record["shell"] = True  # written with the next change

    def _mark_transcript(self, event: HookEvent) -> list[str | int] | None:
        """The path of the transcript, its size now, the directory that must contain it, the session, whether the
        turn may have begun in it already, and the id of the turn. It is read after the turn: now the agent
        waits."""
        if event.is_subagent or self.is_child:
            return None  # the transcript of a subagent is another conversation
        implied = None if event.transcript else implied_transcript(event.agent, event.session)
        path, folder = implied or (event.transcript, transcripts_folder(event.agent, event.transcript))
        try:
            in_database = path.endswith(
                ".db"
            )  # its rows are selected by time, which may lack fractions of a second
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
    """Remove old files, and the oldest if there are too many: most sessions end without an event."""
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
            continue  # another hook removed it
    found.sort(reverse=True)
    for place, (seen, path) in enumerate(found):
        if place >= 2 * _SESSIONS_KEPT or now - seen > _DAYS_KEPT * 86400:
            try:
                os.unlink(path)
            except OSError:
                pass


def _valid_fields(record: Any) -> dict[str, Any]:
    """The valid fields of a record: a hook must work with a damaged file, too."""
    if not isinstance(record, dict):
        return {}
    kinds: dict[str, Any] = {"turn": str, "count": int, "prompt": str, "prompted": bool, "state": dict}
    kinds |= {"began": (int, float), "key": str, "again": int}
    kinds |= {"folders": list, "files": list, "also": list, "over": list, "transcript": list, "asked": dict}
    kinds |= {"ended": bool, "shell": bool, "parent": str, "root": str}
    found = {name: record[name] for name, kind in kinds.items() if isinstance(record.get(name), kind)}
    for name in ("folders", "files", "also", "over"):
        if name in found:
            found[name] = [text for text in found[name] if isinstance(text, str)]
    return found


def _paths_to_protect(event: HookEvent, base: str) -> tuple[list[str], list[str]]:
    """The directories and files that must be safe before this tool runs, as the agent names them."""
    named = (absolute_path(each, event.cwd) for each in named_folders(event.tool_input))
    folders = [event.cwd, *event.roots, *named]
    folders += map(str, command_projects(event.tool_input, event.cwd, base))
    return folders, [absolute_path(each, event.cwd) for each in named_files(event.tool_input)]


def _is_new(file: str, taken: list[str]) -> bool:
    """Whether a file does not exist yet, in a directory that is safe: nothing of it can be lost."""
    if os.path.lexists(file):
        return False
    folder = os.path.realpath(os.path.dirname(file))
    return any(folder == workdir or folder.startswith(workdir.rstrip(os.sep) + os.sep) for workdir in taken)


# --- the hook log ----------------------------------------------------------------------------------


_MOST_LOG_BYTES = 256 * 1024
_LONGEST_TEXT = 1000


def log_file() -> Path:
    return Path(configured_base()) / "hook.log.jsonl"


def log_event(
    agent: str,
    event: HookEvent | None,
    what: str,
    problem: Exception | None = None,
    outcome: Outcome | None = None,
) -> None:
    """Add one line to the hook log."""
    entry: dict[str, Any] = {"time": time.time(), "agent": agent, "status": what}
    if event is None:
        with suppress(OSError):  # agents run a hook in their project
            entry["cwd"] = os.getcwd()
    else:
        entry |= {"event": event.kind, "session": event.session, "cwd": event.cwd, "tool": event.tool}
        entry["version"] = event.version or version_in_transcript(agent, event.session, event.transcript)
        if event.problem:
            entry["input"] = event.problem
    if outcome is not None:
        entry["note"] = outcome.note
        if outcome.checkpoint is not None:
            entry |= {"checkpoint": outcome.checkpoint.id, "workdir": outcome.checkpoint.workdir}
    if problem is not None:
        is_ours = isinstance(problem, ShadowsnapError)
        entry["error"] = str(problem) if is_ours else f"{type(problem).__name__}: {problem}"
    path = log_file()
    if make_private_folder(path.parent):
        return  # another user could have replaced the log by a link
    line = json.dumps({key: _cut_text(value) for key, value in entry.items() if value})
    append_bounded(path, line.encode("ascii"), _MOST_LOG_BYTES)


def _cut_text(value: Any) -> Any:
    """Cut a text: agents send texts of any length, and a line longer than the log would empty it."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def read_log(limit: int = 20) -> list[dict[str, Any]]:
    """The newest lines of the hook log, newest first."""
    try:
        data = log_file().read_bytes()
    except OSError:
        return []
    return list(parse_json_lines(data))[: -limit - 1 : -1] if limit > 0 else []
