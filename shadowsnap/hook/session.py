"""What the hooks of one session know of each other.

Every hook is a process of its own. One small file per session tells the next one which turn it
is and what is already safe in it, so that most hooks end after reading it. It is written under
a lock that is held while a snapshot is taken: a hook that comes meanwhile waits, as the tool
that it stands before must not run yet.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from shadowsnap.hook.payload import PROMPT, STOP, HookEvent
from shadowsnap.snapshot.tools import command_projects, named_files, named_folders

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for imports that only say what is what
    from contextlib import AbstractContextManager
    from typing import Any

FOLDER = "turns"

_TURNS_KEPT = 8
_SESSIONS_KEPT = 500
_DAYS_KEPT = 14
# A session that never told of a prompt: after so long a silence, the next tool call is a new turn.
_SILENCE = 60.0


class Session:
    """The file of one session, as it was when it was read."""

    def __init__(self, base: str, event: HookEvent) -> None:
        # Without a session id, all that happens in one directory is one session.
        self.name = _file_name(event.session or f"in {event.cwd}")
        self.base = base
        self.folder = os.path.join(base, FOLDER)
        self.path = os.path.join(self.folder, f"{self.name}.json")
        self.heard = 0.0
        self.record: dict[str, Any] = {}
        self.read()

    def read(self) -> None:
        from shadowsnap.lightjson import loads

        try:
            with open(self.path, "rb") as file:
                self.heard = os.fstat(file.fileno()).st_mtime
                record = loads(file.read())
        except (OSError, ValueError):
            record = {}
        self.record = record if isinstance(record, dict) else {}

    # --- reading -----------------------------------------------------------------------------

    def turn_of(self, event: HookEvent) -> str:
        """What this turn is called: by the agent, or else by our count of prompts."""
        if event.turn:
            return event.turn
        silent = time.time() - self.heard > _SILENCE and not self.record.get("prompts")
        return f"#{self._count() + 1 if silent else self._count()}"

    def covers(self, event: HookEvent) -> bool:
        """Whether everything that the tool may write to is safe in this turn."""
        turn = self._turn(self.turn_of(event))
        if turn.get("ended") or self.counts_calls(event):
            return False
        folders, files = _wanted(event, self.base)
        taken = [place["workdir"] for place in turn.get("state", {}).get("places", ()) if place["whole"]]
        return set(folders) <= set(turn.get("folders", ())) and all(
            file in turn.get("files", ()) or _is_new(file, taken) for file in files
        )

    def counts_calls(self, event: HookEvent) -> bool:
        """Whether each tool call of this turn has checkpoints of its own."""
        state = self._turn(self.turn_of(event)).get("state")
        return isinstance(state, dict) and state.get("granularity") == "tool"

    def state_of(self, event: HookEvent) -> dict[str, Any]:
        """What the manager needs to go on with the turn."""
        name = self.turn_of(event)
        state = self._turn(name).get("state")
        if isinstance(state, dict):
            return state
        prompts = self.record.get("prompts", {})
        prompt = prompts.get(name) or next(reversed(prompts.values()), None)
        story = {"agent": event.agent or None, "began": time.time(), "transcript": _marked(event.transcript)}
        return {"session_id": event.session or None, "prompt": prompt, "places": [], "story": story}

    def state_to_end(self, event: HookEvent) -> dict[str, Any] | None:
        """The last turn as the manager knows it; None if nothing was taken since it ended."""
        turns = self._turns()
        turn = self._turn(event.turn if event.turn in turns else next(reversed(turns), ""))
        return None if turn.get("ended") else turn.get("state")

    def _turn(self, name: str) -> dict[str, Any]:
        turn = self._turns().get(name)
        return turn if isinstance(turn, dict) else {}

    def _turns(self) -> dict[str, Any]:
        turns = self.record.get("turns")
        return turns if isinstance(turns, dict) else {}

    def _count(self) -> int:
        count = self.record.get("count", 0)
        return count if isinstance(count, int) else 0

    # --- writing: only under the lock --------------------------------------------------------

    def lock(self, seconds: float) -> AbstractContextManager[int]:
        from shadowsnap.deadline import Deadline
        from shadowsnap.store.locks import locked

        return locked(Path(self.folder, f"{self.name}.lock"), "a hook", Deadline(seconds))

    def note_prompt(self, event: HookEvent) -> None:
        """A new message of the person begins a turn."""
        if not event.turn:
            self.record["count"] = self._count() + 1
        name = event.turn or f"#{self._count()}"
        prompts = {**self.record.get("prompts", {}), name: event.prompt[:2000]}
        self.record["prompts"] = dict(list(prompts.items())[-_TURNS_KEPT:])
        self.write()

    def note_taken(self, event: HookEvent, state: dict[str, Any]) -> None:
        """All that this event is about is safe now."""
        name = self.turn_of(event)
        folders, files = _wanted(event, self.base)
        turn = self._turns().pop(name, {})
        turn.pop("ended", None)
        turn["state"] = state
        turn["folders"] = sorted({*turn.get("folders", ()), *folders})
        turn["files"] = sorted({*turn.get("files", ()), *files})
        self._keep_turns({**self._turns(), name: turn})
        if not event.turn:
            self.record["count"] = int(name[1:])
        self.write()

    def note_state(self, event: HookEvent, state: dict[str, Any]) -> None:
        """The turn goes on from here."""
        name = self.turn_of(event)
        self._keep_turns({**self._turns(), name: {**self._turn(name), "state": state}})
        self.write()

    def note_ended(self) -> None:
        """The agent is done: what comes next is another turn."""
        self._keep_turns({name: {**turn, "ended": True} for name, turn in self._turns().items()})
        self.record["count"] = self._count() + 1
        self.write()

    def note_heard(self, event: HookEvent) -> None:
        """A turn that only silence can end has not ended yet."""
        if event.turn or self.record.get("prompts"):
            return
        try:
            os.utime(self.path)
        except OSError:
            pass  # then the next tool call is taken for a new turn

    def _keep_turns(self, turns: dict[str, Any]) -> None:
        self.record["turns"] = dict(list(turns.items())[-_TURNS_KEPT:])

    def write(self) -> None:
        from shadowsnap.files import write_json

        if not os.path.exists(self.path):
            remove_old_sessions(self.folder)
        write_json(Path(self.path), self.record)


def remove_old_sessions(folder: str) -> None:
    """Sessions end without telling. Their files go by age, and by number if there are too many."""
    now, found = time.time(), []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            found.append((entry.stat().st_mtime, entry.path))
        except OSError:
            continue  # another hook was faster
    found.sort(reverse=True)
    for place, (heard, path) in enumerate(found):
        if place >= 2 * _SESSIONS_KEPT or now - heard > _DAYS_KEPT * 86400:
            try:
                os.unlink(path)
            except OSError:
                pass


# --- what an event is about ------------------------------------------------------------------


def _wanted(event: HookEvent, base: str) -> tuple[list[str], list[str]]:
    """The directories and files that must be safe before this tool runs, as the agent writes them."""
    if event.kind in (PROMPT, STOP):
        return [], []
    folders = [event.cwd, *event.roots, *(_absolute(each, event.cwd) for each in named_folders(event.tool_input))]
    folders += map(str, command_projects(event.tool_input, event.cwd, Path(base)))
    return folders, [_absolute(each, event.cwd) for each in named_files(event.tool_input)]


def _marked(transcript: str) -> list[str | int] | None:
    """A transcript and how long it is now. It is read when the turn is over: now a tool waits."""
    try:
        return [transcript, os.stat(transcript).st_size] if transcript else None
    except OSError:
        return None  # not written yet


def _is_new(file: str, taken: list[str]) -> bool:
    """Whether a file is not there yet, in a directory that is safe: nothing of it can be lost."""
    if os.path.lexists(file):
        return False
    folder = os.path.realpath(os.path.dirname(file))
    return any(folder == workdir or folder.startswith(workdir.rstrip(os.sep) + os.sep) for workdir in taken)


def _absolute(path: str, cwd: str) -> str:
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(path)))


def _file_name(session: str) -> str:
    """Most ids can be the name of a file; the others are hashed."""
    if len(session) <= 100 and session.replace("-", "").replace("_", "").isalnum() and session.isascii():
        return f"s-{session}"
    from shadowsnap.digests import sha256

    return f"x-{sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"
