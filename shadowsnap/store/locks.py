"""Locks between threads and processes: one per project, one for the whole store.

A snapshot or restore holds its project's lock and shares the store's; upkeep that removes
objects holds the store's alone. A lock that was left by a dead process is no lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shadowsnap.errors import LockTimeout
from shadowsnap.git.deadline import Deadline
from shadowsnap.store.filelock import try_lock


@contextmanager
def locked(path: Path, doing: str, deadline: Deadline, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file at `path`, waiting for it until the deadline."""
    descriptor = _open(path)
    try:
        _wait(descriptor, path, deadline, shared)
        if not shared:
            _sign(descriptor, doing)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _wait(descriptor: int, path: Path, deadline: Deadline, shared: bool) -> None:
    began, pause = time.monotonic(), 0.0005
    while not try_lock(descriptor, shared=shared):
        left = deadline.remaining()
        if left == 0:
            waited = time.monotonic() - began
            raise LockTimeout(seconds=waited, name=path.stem, holder=_holder(descriptor))
        time.sleep(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, 0.02)


def _sign(descriptor: int, doing: str) -> None:
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    os.write(descriptor, f"process {os.getpid()} ({doing}, since {since})".encode("utf-8", "replace"))


def _holder(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 500).decode("utf-8", "replace") or "an unknown process"
