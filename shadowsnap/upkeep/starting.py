"""Starting upkeep as a process of its own (see `background`). Light: it happens after a snapshot."""

from __future__ import annotations

from shadowsnap.config import Settings, settings_to_text
from shadowsnap.git.detached import start_detached_python
from shadowsnap.records import replace
from shadowsnap.store.layout import Store
from shadowsnap.upkeep.due import note_started


def start_upkeep(store: Store, settings: Settings) -> bool:
    """Start a run that goes on by itself; whether that was possible."""
    note_started(store)
    told = settings_to_text(replace(settings, base=store.base))
    return start_detached_python("shadowsnap.upkeep.background", told, cwd=store.git_dir)
