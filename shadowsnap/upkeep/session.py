"""One run of upkeep: only one at a time in a store, with a deadline and a place for its scraps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from shadowsnap.errors import DiskTooFull, LockTimeout
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.files import remove_tree
from shadowsnap.git.runner import Git
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import if_free, locked

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
def upkeep_session(
    store: Store, deadline: Deadline, on_wait: Callable[[], None] | None = None
) -> Iterator[Session | None]:
    """The right to do upkeep; None if another process is at it. With `on_wait`, which is called once, that
    process is waited for until the deadline."""
    with if_free(upkeep_lock(store), "upkeep") as lock:
        if lock is not None or on_wait is None:
            yield None if lock is None else Session(store, deadline, lock)
            return
    on_wait()
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(locked(upkeep_lock(store), "upkeep", deadline))
        except LockTimeout:
            lock = None
        yield None if lock is None else Session(store, deadline, lock)


def check_room(store: Store, needed_bytes: int, doing: str) -> None:
    import shutil

    free = shutil.disk_usage(store.git_dir).free
    if free < needed_bytes + _SPARE_BYTES:
        needed = (needed_bytes + _SPARE_BYTES) >> 20
        raise DiskTooFull(doing=doing, needed=needed, free=free >> 20)
