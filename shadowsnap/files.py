"""Small file operations that git itself is careful about. (`tempfile` would cost a hook more
time to import than the work takes.)"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

from shadowsnap import lightjson as json
from shadowsnap.records import Any

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


_GET, _SET = 0x8000_6601, 0x4000_6602
_SIZE_OF_LONG = struct.calcsize("l") << 16
_UNRELATED = 0x0002_0000


def set_apart(folder: Path | bytes) -> None:
    """Let directories that are made in this one lie apart from it and from each other (`chattr +T`).

    Ext4 puts a directory beside the one that it is made in, and files beside their directory. There a
    person's programs may have removed files by the thousand, and without a journal ext4 passes by every one
    of the last minutes before it makes a file: 0.4 ms for each instead of 0.03. It is a hint; where it
    is not understood, nothing happens.
    """
    if sys.platform != "linux":
        return
    import fcntl

    flags = bytearray(struct.calcsize("l"))
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.ioctl(descriptor, _GET | _SIZE_OF_LONG, flags)
        struct.pack_into("i", flags, 0, struct.unpack_from("i", flags)[0] | _UNRELATED)
        fcntl.ioctl(descriptor, _SET | _SIZE_OF_LONG, flags)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes, *, fsync: bool = False) -> None:
    descriptor, temporary = open_temporary(path.parent, f".{path.name}.tmp_")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if fsync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if fsync:
        sync_directory(path.parent)


def write_json(path: Path, value: Any, *, fsync: bool = False) -> None:
    # ASCII: names that are not UTF-8 survive as escaped surrogates.
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode("ascii"), fsync=fsync)


def append_line(path: Path, line: bytes) -> int:
    """Add a line to a file with one write, so that lines of several processes do not mix; how long the file is
    now. A line that was cut short, as by a full disk, is ended first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size:
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":
                line = b"\n" + line
        os.write(descriptor, line + b"\n")
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file is absent, damaged or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


FILE_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


def is_encodable(text: object) -> bool:
    """Whether it is a text that the system takes for the name of a file: half a surrogate pair is in none."""
    try:
        return isinstance(text, str) and os.fsencode(text) is not None
    except UnicodeEncodeError:
        return False


class OddFile(Exception):
    """Something is there that is not read: `why` is `special`, `too-large`, `unreadable` or `directory`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class OutsideFolder(Exception):
    """A path that leads out of the directory it must lie in."""


def open_below(folder: str, path: str) -> int:
    """Open a file that must lie below a directory, links resolved, for reading. The directory itself may be a
    link. Below it, nothing that becomes a link after it was looked at is followed. Raises `OutsideFolder`."""
    top, real = os.path.realpath(folder), os.path.realpath(path)
    if not real.startswith(os.path.join(top, "")):
        raise OutsideFolder(path)
    if os.open not in os.supports_dir_fd:  # Windows
        return os.open(real, FILE_FLAGS)
    *folders, name = os.path.relpath(real, top).split(os.sep)
    holder = os.open(top, _FOLDER_FLAGS | _NO_LINK)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER_FLAGS | _NO_LINK, dir_fd=holder)
            os.close(holder)
            holder = inner
        return os.open(name, FILE_FLAGS | _NO_LINK, dir_fd=holder)
    finally:
        os.close(holder)


def read_foreign(path: str | bytes | os.PathLike[str], most: int) -> bytes | None:
    """The content of a regular file of at most `most` bytes; None if there is nothing. Raises `OddFile` for
    everything else."""
    problem = problem_of(path, most)  # before it is opened: opening a device may already do something
    if problem is None:
        try:
            return _read(path, most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            problem = "directory"
        except OSError:
            problem = "unreadable"
    raise OddFile(problem)


def problem_of(path: str | bytes | os.PathLike[str], most: int) -> str | None:
    """Why something is not read: `special`, `too-large` or `unreadable`; None for a file that can be, and
    where there is none."""
    try:
        return _problem(os.stat(path), most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return "unreadable"


def _read(path: str | bytes | os.PathLike[str], most: int) -> bytes:
    descriptor = os.open(path, FILE_FLAGS)
    try:
        problem = _problem(os.fstat(descriptor), most)  # it may have been replaced meanwhile
        if problem is not None:
            raise OddFile(problem)
        parts: list[bytes] = []
        left = most + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise OddFile("too-large")  # it grew while it was read
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _problem(seen: os.stat_result, most: int) -> str | None:
    if stat.S_ISDIR(seen.st_mode):
        return None  # reading it fails by itself
    if not stat.S_ISREG(seen.st_mode):
        return "special"
    return "too-large" if seen.st_size > most else None
