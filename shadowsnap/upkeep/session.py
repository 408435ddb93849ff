"""One run of upkeep: only one at a time in a store, with a deadline and a place for its scraps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shadowsnap.errors import DiskTooFull
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.files import remove_tree
from shadowsnap.git.runner import Git
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import if_free

_SPARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Session:
    store: Store
    deadline: Deadline
    lock: int
    """The upkeep lock. Git inherits it: should we be killed, the next run waits for git to end."""

    @property
    def git(self) -> Git:
        return self.store.git(self.deadline).bound(inherited=(self.lock,))

    @contextmanager
    def writing_packs(self, needed_bytes: int, doing: str) -> Iterator[Git]:
        """Git that writes new packs aside, if the disk has room for them."""
        check_room(self.store, needed_bytes, doing)
        scratch = self.store.git_dir / f"scratch-upkeep-{os.getpid()}"
        remove_tree(scratch)
        scratch.mkdir()
        try:
            yield self.git.bound(scratch_objects=scratch)
        finally:
            remove_tree(scratch)


def upkeep_lock(store: Store) -> Path:
    return store.git_dir / "locks" / "upkeep.lock"


@contextmanager
def upkeep_session(store: Store, deadline: Deadline) -> Iterator[Session | None]:
    """The right to do upkeep, or None if another process is at it."""
    with if_free(upkeep_lock(store), "upkeep") as lock:
        yield None if lock is None else Session(store, deadline, lock)


def check_room(store: Store, needed_bytes: int, doing: str) -> None:
    import shutil

    free = shutil.disk_usage(store.git_dir).free
    if free < needed_bytes + _SPARE_BYTES:
        needed = (needed_bytes + _SPARE_BYTES) >> 20
        raise DiskTooFull(doing=doing, needed=needed, free=free >> 20)
