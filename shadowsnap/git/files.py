"""Small file operations that git itself is careful about. (`tempfile` would cost a hook more
time to import than the work takes.)"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

_numbers = count()
_OPEN_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_temporary(folder: Path, prefix: str) -> tuple[int, Path]:
    """A new file of our own in a folder, which is made if need be."""
    while True:
        path = folder / f"{prefix}{os.getpid()}_{next(_numbers)}"
        try:
            return os.open(path, _OPEN_NEW, 0o600), path
        except FileNotFoundError:
            make_folder(folder)
        except FileExistsError:
            continue  # left by a dead process that had our number


def make_folder(folder: Path) -> None:
    """See to it that a folder is there, although git removes empty ones beside us: it may be gone
    again when this returns."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        pass  # the one above it went
    except FileExistsError:
        if os.path.lexists(folder) and not folder.is_dir():
            raise  # something else is in its place


def make_read_only(file: Path | int) -> None:
    """As git does with objects. Not on Windows, where such a file cannot be replaced or removed."""
    if sys.platform != "win32":
        os.chmod(file, 0o444)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


SYNCS_LATER = sys.platform != "win32"
"""Whether a file can be flushed by who has not written it. (Windows flushes only what is open for
writing.)"""


def sync_files(paths: Iterable[Path]) -> None:
    """Make the content of several files durable. One after the other, each would cost a commit of the
    file system's journal; so writing is begun for all of them before the first is waited for."""
    paths = list(paths)
    if sys.platform != "win32" and hasattr(os, "posix_fadvise") and len(paths) > 1:
        for path in paths:
            _with_open(path, lambda descriptor: os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED))
    for path in paths:
        _with_open(path, os.fsync)


def _with_open(path: Path, deed: Callable[[int], None]) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # upkeep moved the object into a pack meanwhile, and flushed that
    try:
        deed(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(folder: Path) -> None:
    """Make a rename in this folder durable, where the system offers that."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows cannot open directories
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Remove a directory of ours with all that is in it, if it is there."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
