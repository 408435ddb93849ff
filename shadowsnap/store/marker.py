"""When the store was last pruned within its limits: the time in `<base>/.last_prune`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from shadowsnap.store.atomic import write_bytes


def last_prune(base: Path) -> datetime | None:
    """None if it never was, and also if the marker is damaged or of the future."""
    try:
        seconds = float((base / ".last_prune").read_text("ascii"))
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OSError, ValueError, OverflowError):
        return None
    return moment if seconds <= time.time() else None


def mark_pruned(base: Path) -> None:
    write_bytes(base / ".last_prune", f"{int(time.time())}\n".encode())
