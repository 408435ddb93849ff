"""The hook log: what hooks did and what went wrong. A hook prints nothing itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from shadowsnap.base import configured_base
from shadowsnap.files import append_bounded, make_private_folder, parse_json_lines
from shadowsnap.hook.payload import HookEvent
from shadowsnap.hook.transcripts import version_in_transcript
from shadowsnap.model import Outcome

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
