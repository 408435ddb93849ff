"""Starting upkeep in the background, as a process of its own.

It happens after a snapshot, so this module imports little, and looks at little to see whether upkeep is due.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shadowsnap.files import read_json
from shadowsnap.git.objects import guess_loose, pack_bytes
from shadowsnap.git.process import own_module
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
    """What has accumulated; None if nothing has, or upkeep was started lately."""
    if _was_started_lately(store):
        return None
    loose, loose_bytes = guess_loose(store.git_dir)
    packs, packed_bytes = pack_bytes(store.git_dir)
    if loose >= _MANY_LOOSE:
        return "many loose objects"
    if packs >= _MANY_PACKS:
        return "many packs"
    # Only every tenth one beyond the limit: a turn may have two checkpoints, so there may rightly be more than the
    # limit.
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
    return start_detached_python("shadowsnap.upkeep.run", text, cwd=store.git_dir)


def start_detached_python(
    module: str, *arguments: str, cwd: Path, environment: dict[str, str] | None = None
) -> bool:
    """Run a module of this package independently of this process and its terminal; False if there is no Python
    to run it. Its environment is sealed unless another one is given."""
    command = own_module(module, *arguments)
    if command is None:
        return False
    try:
        _start(command, cwd, sealed_environment() if environment is None else environment)
    except OSError:
        return False
    return True


def _start(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
    if sys.platform == "win32":
        flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.IDLE_PRIORITY_CLASS
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            creationflags=flags,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        process.returncode = 0  # so that no warning about a running child is given
        return
    # The shell starts it and ends at once. The process then belongs to init, and a host program that runs for days
    # collects no zombies.
    subprocess.run(
        ["/bin/sh", "-c", '"$@" &', "sh", *command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        start_new_session=True,
        timeout=5,
    )
