"""Starting, finding and stopping the resident helper (`server.py`), which does the work of hooks faster."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.files import read_json
from shadowsnap.git.process import start_detached
from shadowsnap.hook.client import RECORD
from shadowsnap.store.locks import is_free

_STOP_SECONDS = 2.0


def start_helper(base: str) -> bool:
    """Start a helper in the background; False if that is not possible."""
    try:
        Path(base, RECORD).touch(0o600)
    except OSError:
        return False
    return start_detached("shadowsnap.hook.server", base, cwd=Path(base), environment=dict(os.environ))


@dataclass(frozen=True)
class RunningHelper:
    """The helper of a base."""

    pid: int
    started_at: datetime
    version: str

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "started_at": self.started_at.isoformat(), "version": self.version}


def running_helper(base: str) -> RunningHelper | None:
    """The helper that runs now."""
    record = Path(base, RECORD)
    try:
        if is_free(record):
            return None
        about = read_json(record) or {}
        started_at = datetime.fromtimestamp(about["started_at"], UTC)
        return RunningHelper(int(about["pid"]), started_at, str(about["version"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def stop_helper(base: str) -> RunningHelper | None:
    """End the helper; returns the one that ran. What it is doing for a hook is finished."""
    found = running_helper(base)
    if found is None:
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(found.pid, number)
        except ProcessLookupError:
            break
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end and running_helper(base) == found:
            time.sleep(0.01)
    return found
