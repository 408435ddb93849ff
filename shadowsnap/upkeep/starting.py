"""Starting upkeep as a process of its own (see `background`). Light: it happens after a snapshot."""

from __future__ import annotations

import json

from shadowsnap.config import Settings
from shadowsnap.git.detached import start_detached_python
from shadowsnap.store.layout import Store
from shadowsnap.upkeep.due import note_started


def start_upkeep(store: Store, settings: Settings) -> bool:
    """Start a run that goes on by itself; whether that was possible."""
    note_started(store)
    told = {name: getattr(settings, name) for name in Settings.__match_args__}
    arguments = json.dumps({**told, "base": str(store.base)})
    return start_detached_python("shadowsnap.upkeep.background", arguments, cwd=store.git_dir)
