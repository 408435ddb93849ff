"""Stores for the tests of upkeep: real projects, real snapshots, and asking git about them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.model import Checkpoint
from shadowsnap.results import StoreStatus
from shadowsnap.settings import Settings
from shadowsnap.store.layout import Store, open_store


def a_manager(base: Path, **settings: object) -> CheckpointManager:
    """One that starts no process by itself."""
    return CheckpointManager(base=base, background_upkeep=False, fsync=False, **settings)  # type: ignore[arg-type]


def a_store(base: Path) -> Store:
    return open_store(Settings(base=base, fsync=False))


def other_warnings(status: StoreStatus) -> list[str]:
    """The warnings of a status, without the one that tests lie in a directory of temporary files."""
    return [text for text in status.warnings if not text.startswith("the store lies ")]


def noise(seed: object, size: int) -> bytes:
    """Bytes that cannot be compressed, the same for the same seed."""
    return random.Random(str(seed)).randbytes(size)


def take(manager: CheckpointManager, project: Path) -> Checkpoint:
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken", outcome
    assert outcome.checkpoint is not None
    return outcome.checkpoint


def take_turns(
    manager: CheckpointManager, project: Path, turns: int, size: int = 2000, files: int = 5
) -> list[Checkpoint]:
    """Snapshots of a project in which one of so many files changes each time; oldest first."""
    project.mkdir(parents=True, exist_ok=True)
    taken = []
    for turn in range(turns):
        (project / f"file{turn % files}").write_bytes(noise((project, turn, os.urandom(4)), size))
        taken.append(take(manager, project))
    return taken


def disk_usage(store: Store, tips: Iterable[str]) -> int:
    """What git says that these tips cost together."""
    names = sorted(set(tips))
    asked = "".join(f"{name}\n" for name in names).encode()
    return int(git(store.git_dir, "rev-list", "--disk-usage", "--objects", "--stdin", stdin=asked)) if names else 0


def object_count(store: Store) -> int:
    rows = git(store.git_dir, "cat-file", "--batch-check=%(objectname)", "--batch-all-objects").splitlines()
    return len(rows)


def check_sound(store: Store) -> None:
    """Everything that a ref leads to is there and intact."""
    git(store.git_dir, "fsck", "--full", "--strict", "--no-dangling")
