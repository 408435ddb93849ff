"""Records of sessions that nothing is left of: they go by age, after their checkpoints."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from shadowsnap.git.deadline import Deadline
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.sessions import FOLDER, checkpoints_named, read_session_record, sessions_lock
from shadowsnap.store.tips import CHECKPOINTS, all_refs


def drop_old_sessions(store: Store, days: float, now: datetime, deadline: Deadline) -> int:
    """Remove records that were not written to for so long, and whose checkpoints are all gone; how
    many those were."""
    if days <= 0:
        return 0
    horizon = (now - timedelta(days=days)).timestamp()
    old = [path for path in _files(store.base / FOLDER) if _written(path) < horizon]
    if not old:
        return 0
    held = {ref.rpartition("-")[2] for ref in all_refs(store.git(deadline)) if ref.startswith(f"{CHECKPOINTS}/")}
    with locked(sessions_lock(store), "prune", deadline):
        going = [path for path in old if _written(path) < horizon and not _is_needed(path, held)]
        for path in going:
            path.unlink(missing_ok=True)
    return len(going)


def _files(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith((".json", ".damaged"))]
    except OSError:
        return []


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return float("inf")  # gone


def _is_needed(path: Path, held: set[str]) -> bool:
    record = read_session_record(path) if path.suffix == ".json" else None
    return record is not None and any(name[:12] in held for name in checkpoints_named(record))
