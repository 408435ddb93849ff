"""Whether upkeep should run: asked after every snapshot, so it must cost next to nothing. A few
directory entries are looked at; nothing heavy is imported."""

from __future__ import annotations

import os
import time
from pathlib import Path

from shadowsnap.config import Settings
from shadowsnap.git.refs import count_refs
from shadowsnap.git.totals import guess_loose, pack_bytes
from shadowsnap.store.atomic import read_json
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project

_PAUSE_SECONDS = 600.0
_MANY_LOOSE = 4_000
_MANY_PACKS = 30
_EVERY_CHECKPOINTS = 10


def why_due(store: Store, project: Project, settings: Settings) -> str | None:
    """What has piled up; None if nothing has, or upkeep was started just now."""
    if _started_lately(store):
        return None
    loose, loose_bytes = guess_loose(store.git_dir)
    packs, packed_bytes = pack_bytes(store.git_dir)
    if loose >= _MANY_LOOSE:
        return "many loose objects"
    if packs >= _MANY_PACKS:
        return "many packs"
    if _too_many_checkpoints(store, project, settings):
        return "many checkpoints"
    if 0 < settings.max_total_size_mb * 2**20 < loose_bytes + packed_bytes and _may_become_smaller(store):
        return "the size limit"
    return None


def note_started(store: Store) -> None:
    _marker(store).write_bytes(b"")


def _too_many_checkpoints(store: Store, project: Project, settings: Settings) -> bool:
    """With every tenth beyond the limit: a turn may have two checkpoints, so that there may be
    more than the limit with good reason."""
    count = count_refs(store.git_dir, project.refs)
    return 0 < settings.max_snapshots < count and count % _EVERY_CHECKPOINTS == 0


def _may_become_smaller(store: Store) -> bool:
    """Whether the last look did not find that the limit cannot be kept."""
    return not (read_json(store.git_dir / "upkeep.json") or {}).get("told_unmet")


def _started_lately(store: Store) -> bool:
    try:
        age = time.time() - os.stat(_marker(store)).st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age < _PAUSE_SECONDS


def _marker(store: Store) -> Path:
    return store.git_dir / "upkeep-started"
