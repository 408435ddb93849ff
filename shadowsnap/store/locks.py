"""Locks between threads and processes: one per project, one for the whole store.

A snapshot or restore holds its project's lock and shares the store's; upkeep that removes
objects holds the store's alone, for an instant. A lock that was left by a dead process is no
lock.

Under constant snapshots there is no moment in which no process shares the store's lock. So a
process that wants to share it passes a gate first, and one that wants it alone closes the gate for
a moment: those inside finish, and no new one comes in.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import LockTimeout, StoreUnusable
from shadowsnap.files import behind_standard_streams

# How long the gate stays closed at a time (a snapshot that comes meanwhile waits that long), and
# how long it stays open until the next attempt.
_CLOSED_SECONDS = 0.15
_OPEN_SECONDS = 0.3

_SIGNATURE_BYTES = 200
# What the system says of a store that is on a disk, or belongs to a user, that allows no writing.
_CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@contextmanager
def locked(
    path: Path, doing: str, deadline: Deadline, *, shared: bool = False, looking: bool = False
) -> Iterator[int]:
    """Hold the lock file at `path`, waiting for it until the deadline; its descriptor. (A child that inherits
    it holds the lock too.) With `looking` also in a store that cannot be written."""
    descriptor = _open(path, looking=looking)
    try:
        if shared:
            with _passing(_gate(path), deadline, looking=looking):
                _wait(descriptor, path, deadline, shared)
        else:
            _wait(descriptor, path, deadline, shared)
            _sign(descriptor, doing)
        yield descriptor
    finally:
        _close(descriptor)


@contextmanager
def alone(path: Path, doing: str, deadline: Deadline) -> Iterator[None]:
    """Hold a lock that others share, without them, however many they are. For an instant: they
    all wait."""
    descriptor = _open(path)
    try:
        while not _closing_gate(descriptor, path, deadline):
            deadline.check(f"waiting for the {path.stem} lock")
            time.sleep(_OPEN_SECONDS)
        _sign(descriptor, doing)
        yield
    finally:
        _close(descriptor)


@contextmanager
def if_free(path: Path, doing: str) -> Iterator[int | None]:
    """Hold a lock only if no other process does: its descriptor (a child that inherits it holds the
    lock too), or None."""
    descriptor = _open(path)
    try:
        free = try_lock(descriptor, shared=False)
        if free:
            _sign(descriptor, doing)
        yield descriptor if free else None
    finally:
        os.close(descriptor)


def _gate(path: Path) -> Path:
    return path.with_suffix(".gate")


@contextmanager
def _passing(gate: Path, deadline: Deadline, *, looking: bool) -> Iterator[None]:
    descriptor = _open(gate, looking=looking)
    try:
        _wait(descriptor, gate, deadline, shared=True)
        yield
    finally:
        _close(descriptor)


def _closing_gate(descriptor: int, path: Path, deadline: Deadline) -> bool:
    """Try to get the lock while no new one is let in."""
    left = deadline.remaining()
    patience = Deadline(_CLOSED_SECONDS if left is None else max(0.001, min(left, _CLOSED_SECONDS)))
    try:
        with locked(_gate(path), "closing", deadline):
            _wait(descriptor, path, patience, shared=False)
    except LockTimeout:
        return False
    return True


def is_free(path: Path) -> bool:
    """Whether no process holds the lock file at `path`, or there is none."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor, shared=False)
    finally:
        os.close(descriptor)


def _open(path: Path, *, looking: bool = False) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    try:
        try:
            return behind_standard_streams(os.open(path, flags, 0o600))
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            return behind_standard_streams(os.open(path, flags, 0o600))
    except OSError as problem:
        if problem.errno in _CLOSED:
            if looking:
                with suppress(OSError):
                    return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            raise StoreUnusable(path=path.parent.parent.parent, why=problem) from problem
        raise


def _close(descriptor: int) -> None:
    unlock(descriptor)
    os.close(descriptor)


def _wait(descriptor: int, path: Path, deadline: Deadline, shared: bool) -> None:
    began, pause = time.monotonic(), 0.0005
    while not try_lock(descriptor, shared=shared):
        left = deadline.remaining()
        if left == 0:
            waited = time.monotonic() - began
            raise LockTimeout(seconds=waited, name=path.stem, holder=_holder(descriptor))
        deadline.report_progress(f"waiting for the {path.stem} lock")
        time.sleep(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, 0.02)


def _sign(descriptor: int, doing: str) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    text = f"process {os.getpid()} ({doing}, since {since})".encode("utf-8", "replace")
    os.lseek(descriptor, 0, os.SEEK_SET)
    # Padded instead of cut off: ext4 takes "truncate, write, close" for the replacement of a file,
    # and lets the close wait for the disk.
    with suppress(OSError):  # on a full disk the lock holds without a name: that is when space is to be freed
        os.write(descriptor, text[:_SIGNATURE_BYTES].ljust(_SIGNATURE_BYTES))


def _holder(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 500).decode("utf-8", "replace").strip() or "an unknown process"


if sys.platform == "win32":
    import msvcrt

    # Far behind the text that names the holder: Windows locks also keep readers out.
    _WHERE = 1 << 30
    # Such a lock cannot be shared. So a shared holder locks one byte, an exclusive one all of them.
    _SHARES = 64

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        if shared:
            return any(_try_bytes(descriptor, _WHERE + number, 1) for number in range(_SHARES))
        return _try_bytes(descriptor, _WHERE, _SHARES)

    def _try_bytes(descriptor: int, start: int, length: int) -> bool:
        os.lseek(descriptor, start, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, length)
        except OSError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Closing the file is enough."""

else:

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        import fcntl

        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(descriptor: int) -> None:
        """Closing the file is not enough if the host forked meanwhile: its child has it open too."""
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)
