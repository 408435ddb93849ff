"""The hook log: what hooks did and what went wrong, as they cannot say it to anybody."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from shadowsnap import lightjson as json
from shadowsnap.records import Any
from shadowsnap.settings import configured_base

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.hook.payload import HookEvent
    from shadowsnap.model import Outcome

_MOST_BYTES = 256 * 1024


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
        entry["error"] = f"{type(problem).__name__}: {problem}"[:1000]
    _append(log_file(), json.dumps({key: value for key, value in entry.items() if value}) + "\n")


def read_log(limit: int = 20) -> list[dict[str, Any]]:
    """The newest entries, newest first."""
    return list(_entries())[: -limit - 1 : -1] if limit > 0 else []


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, line.encode("ascii"))  # one write: lines of several hooks do not mix
        full = os.fstat(descriptor).st_size > _MOST_BYTES
    finally:
        os.close(descriptor)
    if full:
        _drop_older_half(path)


def _drop_older_half(path: Path) -> None:
    from shadowsnap.files import write_bytes

    kept = path.read_bytes()[-_MOST_BYTES // 2 :]
    write_bytes(path, kept[kept.find(b"\n") + 1 :])


def _entries() -> Iterator[dict[str, Any]]:
    try:
        lines = log_file().read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # a line that a full disk cut short
        if isinstance(entry, dict):
            yield entry
