"""The hook log: what hooks did and what went wrong. A hook prints nothing itself."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shadowsnap.base import configured_base
from shadowsnap.files import append_line, make_private_folder, parse_json, write_bytes
from shadowsnap.hook.payload import HookEvent
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
        entry["version"] = event.version
        if event.problem:
            entry["input"] = event.problem
    if outcome is not None:
        entry["note"] = outcome.note
        if outcome.checkpoint is not None:
            entry |= {"checkpoint": outcome.checkpoint.id, "workdir": outcome.checkpoint.workdir}
    if problem is not None:
        entry["error"] = f"{type(problem).__name__}: {problem}"
    _append(log_file(), json.dumps({key: _bounded(value) for key, value in entry.items() if value}))


def _bounded(value: Any) -> Any:
    """What an agent sends can be of any length, and a line that is longer than the log would empty it."""
    return value[:_LONGEST] if isinstance(value, str) else value


def read_log(limit: int = 20) -> list[dict[str, Any]]:
    """The newest entries, newest first."""
    return list(_entries())[: -limit - 1 : -1] if limit > 0 else []


def _append(path: Path, line: str) -> None:
    if make_private_folder(path.parent):
        return  # another user could have made a link of the log
    if append_line(path, line.encode("ascii")) > _MOST_BYTES:
        _drop_older_half(path)


def _drop_older_half(path: Path) -> None:
    kept = path.read_bytes()[-_MOST_BYTES // 2 :]
    write_bytes(path, kept[kept.find(b"\n") + 1 :])


def _entries() -> Iterator[dict[str, Any]]:
    try:
        lines = log_file().read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        if not line.startswith(b"{"):
            continue  # cut, or damaged: an error for each of many such lines takes long
        try:
            entry = parse_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry
