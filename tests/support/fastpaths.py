"""Every shortcut of the engine, forced on or forced off."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers import git
from shadowsnap.git.packs import NewObjects, Packs
from shadowsnap.model import Checkpoint
from shadowsnap.restore import apply
from shadowsnap.snapshot import content as writing
from shadowsnap.snapshot import scan
from shadowsnap.snapshot import worktree as renaming
from shadowsnap.store import checkpoints

WAYS = ("on", "off")
_NO_LIMIT = 10**9


@contextmanager
def forced(way: str) -> Iterator[None]:
    """On: whatever is written is compressed by all cores, and written back by two processes; directories are
    believed when they say that nothing is new in them.
    Off: every object is a file of its own and read through git, everything is read, every snapshot lists
    everything anew and writes its index from nothing, nothing is remembered of what was counted, and files
    do not change places at one stroke."""
    assert way in WAYS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_FEW", 0 if way == "on" else _NO_LIMIT)
        patch.setattr(scan, "directory_times_are_reliable", lambda _: way == "on")
        patch.setattr(apply, "FEW", 0 if way == "on" else apply.FEW)
        patch.setattr(apply, "_MANY", 1 if way == "on" else _NO_LIMIT)
        if way == "off":
            patch.setattr(NewObjects, "write", _write_loose)
            patch.setattr(Packs, "read", lambda *_, **__: None)
            patch.setattr(Packs, "contained", lambda *_, **__: set())
            patch.setattr(scan._Scan, "_changes", lambda _: None)
            patch.setattr(checkpoints, "_remembered", lambda *_: {})
            patch.setattr(renaming, "_system_call", lambda: None)
        yield


def tick() -> None:
    """Let the clock that stamps files advance: nothing else can set the change time of a directory."""
    time.sleep(0.012)


Told = tuple[str, dict[str, object], list[str]]


def told_by(base: Path, checkpoint: Checkpoint) -> Told:
    """Everything a checkpoint says of the files, with the name of every object."""
    listed = git(base / "store", "ls-tree", "-r", "-t", "-z", checkpoint.id).split("\0")
    return checkpoint.tree, checkpoint.metadata, listed


def _write_loose(self: NewObjects, kind: bytes, data: bytes, name: str = "") -> str:
    return self._loose.write(kind, data)
