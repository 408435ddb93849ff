"""The store over time: limits, reclaiming space, repairs, deleting for good, and imports from other tools.

This module runs after every snapshot: it decides whether upkeep is due, and starts it in the background. So it
imports little and reads little.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from shadowsnap.files import read_json
from shadowsnap.git.objects import guess_loose, pack_bytes
from shadowsnap.git.process import start_detached
from shadowsnap.git.refs import count_refs
from shadowsnap.git.repository import sealed_environment
from shadowsnap.settings import Settings, settings_to_text
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_PAUSE_SECONDS = 600.0
_MANY_LOOSE = 4_000
_MANY_PACKS = 30
_EVERY_CHECKPOINTS = 10


def why_due(store: Store, project: Project, settings: Settings) -> str | None:
    """Why upkeep is due; None if it is not, or was started lately."""
    if _was_started_lately(store):
        return None
    loose, loose_bytes = guess_loose(store.git_dir)
    packs, packed_bytes = pack_bytes(store.git_dir)
    if loose >= _MANY_LOOSE:
        return "many loose objects"
    if packs >= _MANY_PACKS:
        return "many packs"
    # Checked at every tenth checkpoint only: a turn may have two, so there may be more than the limit.
    count = count_refs(store.git_dir, project.refs)
    if 0 < settings.max_snapshots < count and count % _EVERY_CHECKPOINTS == 0:
        return "many checkpoints"
    if 0 < settings.max_total_size_mb * 2**20 < loose_bytes + packed_bytes:
        is_unmet = (read_json(store.git_dir / "upkeep.json") or {}).get("unmet")  # see `reclaim.Memory`
        return None if is_unmet else "the size limit"
    return None


def _was_started_lately(store: Store) -> bool:
    try:
        age = time.time() - os.stat(_marker(store)).st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age < _PAUSE_SECONDS


def note_started(store: Store) -> None:
    _marker(store).write_bytes(b"")


def _marker(store: Store) -> Path:
    return store.git_dir / "upkeep-started"


def start_upkeep(store: Store, settings: Settings) -> bool:
    """Start upkeep and return at once; False if that is not possible."""
    note_started(store)
    text = settings_to_text(replace(settings, base=store.base))
    return start_detached("shadowsnap.upkeep.prune", text, cwd=store.git_dir, environment=sealed_environment())
