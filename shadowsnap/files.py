"""Writing files atomically and durably, reading what others wrote within bounds, and who owns a directory."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from shadowsnap.errors import OutOfResources

SYNCS_LATER = sys.platform != "win32"
"""Whether a file can be synced after it was closed. (Windows syncs only files that are open for writing.)"""

_numbers = count()
_CLOSED_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOSED_ON_EXEC
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | _CLOSED_ON_EXEC
READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _CLOSED_ON_EXEC
"""Opens a file for reading; a named pipe without a writer does not block."""
_READ_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# Linux: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS (without the size of a long) and FS_TOPDIR_FL.
_GET_FLAGS, _SET_FLAGS, _TOP_DIRECTORY = 0x8000_6601, 0x4000_6602, 0x0002_0000
_SIZE_OF_LONG = struct.calcsize("l") << 16


def write_bytes(path: Path, data: bytes, *, fsync: bool = False) -> None:
    """Write a file through a temporary one, so that no reader sees half of it. Makes the folder."""
    write_several({path: data}, fsync=fsync)


def write_several(contents: Mapping[Path, bytes], *, fsync: bool = False) -> None:
    """Write files as `write_bytes` does. They get their names in the order given, and are synced together: one
    after the other, each would cost a commit of the file system's journal."""
    temporaries: list[Path] = []
    try:
        with ExitStack() as closing:
            descriptors: list[int] = []
            for path, data in contents.items():
                descriptor, temporary = open_temporary(path.parent, f".{path.name}.tmp_")
                temporaries.append(temporary)
                closing.callback(os.close, descriptor)
                write_all(descriptor, data)
                descriptors.append(descriptor)
            if fsync:
                sync_open(descriptors)
        for temporary, path in zip(temporaries, contents, strict=True):
            os.replace(temporary, path)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
    if fsync:
        for folder in dict.fromkeys(path.parent for path in contents):
            sync_directory(folder)


def write_json(path: Path, value: Any, *, fsync: bool = False) -> None:
    # ASCII: names that are not UTF-8 survive as escaped surrogates.
    write_bytes(path, json.dumps(value, separators=(",", ":")).encode("ascii"), fsync=fsync)


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None if the file is absent, damaged or holds something else."""
    try:
        value = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


_DEEPEST = 200
"""JSON that is nested deeper is refused: code that walks through it would run out of stack."""


def parse_json(data: str | bytes, strict: bool = True) -> Any:
    """The value of a JSON text. Raises ValueError for malformed or too deeply nested text."""
    try:
        value = json.loads(data) if strict else json.loads(data, strict=False)  # the first reuses its decoder
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    brackets = ("[", "{") if isinstance(data, str) else (b"[", b"{")
    if sum(map(data.count, brackets)) > _DEEPEST and _is_deep(value):  # type: ignore[arg-type]
        raise ValueError("it is nested too deeply")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for each in level if isinstance(each, (dict, list)) for inner in _members(each)]
        if not level:
            return False
    return True


def _members(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def append_line(path: Path, line: bytes, *, fsync: bool = False) -> int:
    """Add a line with one write, so that lines of several processes do not mix. Returns the new size of the
    file. An incomplete last line, left by a full disk, is ended first."""
    descriptor = os.open(path, _APPEND, 0o600)
    try:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size:
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":
                line = b"\n" + line
        if os.write(descriptor, line + b"\n") <= len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        if fsync:
            os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def append_bounded(path: Path, line: bytes, most: int) -> None:
    """Add a line. Of a file that is larger than `most` bytes then, the newer half is kept."""
    if append_line(path, line) > most:
        kept = path.read_bytes()[-most // 2 :]
        write_bytes(path, kept[kept.find(b"\n") + 1 :])


def parse_json_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects in a file with one per line. A line that was cut or damaged is left out."""
    for line in data.split(b"\n"):
        if not line.startswith(b"{"):
            continue  # an error for each of many such lines would take long
        try:
            entry = parse_json(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def behind_standard_streams(descriptor: int) -> int:
    """The same open file with a number above 2. Where the host has closed its standard streams, an opened file
    gets one of their numbers, and a child that inherits it has its own input, output or errors there."""
    if descriptor > 2 or sys.platform == "win32":
        return descriptor
    import fcntl  # not on Windows

    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def open_temporary(folder: Path, prefix: str) -> tuple[int, Path]:
    """Create a file that no other process uses. Makes the folder."""
    while True:
        path = folder / f"{prefix}{os.getpid()}_{next(_numbers)}"
        try:
            return os.open(path, _CREATE, 0o600), path
        except FileNotFoundError:
            make_folder(folder)
        except FileExistsError:
            continue  # left by a dead process that had our process id


def make_folder(folder: Path) -> None:
    """Make a folder where git may remove empty ones at the same time. It can be gone again when this
    returns."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        pass  # its parent was removed meanwhile
    except FileExistsError:
        if os.path.lexists(folder) and not folder.is_dir():
            raise  # a file of that name


def make_read_only(file: Path | int) -> None:
    """As git does with objects. Not on Windows, where such a file could not be replaced or removed."""
    if sys.platform != "win32":
        os.chmod(file, 0o444)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_files(paths: Iterable[Path]) -> None:
    """Make the content of files durable, as `sync_open` does for open ones. One is open at a time."""
    paths = list(paths)
    if len(paths) > 1:
        for path in paths:
            _with_open(path, begin_writing)
    for path in paths:
        _with_open(path, os.fsync)


def _with_open(path: Path, operation: Callable[[int], None]) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # upkeep moved the object into a pack meanwhile, and synced that
    try:
        operation(descriptor)
    finally:
        os.close(descriptor)


def sync_open(descriptors: Sequence[int]) -> None:
    """Make the content of open files durable. The system begins to write all of them before the first is waited
    for: one after the other, each would cost a commit of the file system's journal."""
    if len(descriptors) > 1:
        for descriptor in descriptors:
            begin_writing(descriptor)
    for descriptor in descriptors:
        os.fsync(descriptor)


def begin_writing(descriptor: int, start: int = 0) -> None:
    """Have the system write out an open file, from an offset on, so that a sync has little to wait for. (Linux
    does so if it is asked to forget what is not written yet.)"""
    if sys.platform == "linux":
        os.posix_fadvise(descriptor, start, 0, os.POSIX_FADV_DONTNEED)


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
    """Remove a directory of ours with everything in it, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def scratch_folder(parent: Path, purpose: str, inside: str = ".") -> Iterator[Path]:
    """A new directory in the store, with the folder `inside` it. It is removed at the end, or as debris if the
    process dies."""
    folder = new_scratch_folder(parent, purpose)
    try:
        (folder / inside).mkdir(parents=True, exist_ok=True)
        yield folder
    finally:
        remove_tree(folder)


def new_scratch_folder(parent: Path, purpose: str) -> Path:
    """A new directory in the store. Its name is random: other threads may do the same thing at the same time, and
    a process in another container may have the same process id."""
    folder = parent / f"scratch-{purpose}-{os.getpid()}-{os.urandom(6).hex()}"
    folder.mkdir()
    return folder


def spread_subdirectories(folder: Path | bytes) -> None:
    """Ask ext4 to place new subdirectories of this one apart from it and from each other (`chattr +T`).

    Ext4 places a directory near its parent, and files near their directory. If the user's programs have
    just removed thousands of files there, ext4 without a journal skips every recently freed inode before
    it creates a file: 0.4 ms each instead of 0.03. Other file systems ignore this.
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
        fcntl.ioctl(descriptor, _GET_FLAGS | _SIZE_OF_LONG, flags)
        struct.pack_into("i", flags, 0, struct.unpack_from("i", flags)[0] | _TOP_DIRECTORY)
        fcntl.ioctl(descriptor, _SET_FLAGS | _SIZE_OF_LONG, flags)
    except OSError:
        pass
    finally:
        os.close(descriptor)


# EAGAIN: no more processes. (Files are regular, so that reading one never gives it.)
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def check_resources(problem: OSError) -> None:
    """Raise OutOfResources for an error that says nothing about the file that was to be opened, listed or run: a
    limit of this process or of the system is reached. To be called before an error is taken for an answer."""
    if problem.errno in _EXHAUSTED:
        raise OutOfResources(why=problem.strerror) from problem


class UnreadableFile(Exception):
    """A file that is not read: `why` is `special`, `too-large`, `unreadable` or `directory`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def read_bounded(path: str | bytes | os.PathLike[str], most: int) -> bytes | None:
    """The content of a regular file of at most `most` bytes; None if there is no file. Raises `UnreadableFile`
    for everything else."""
    problem = reading_problem(path, most)  # before opening: that alone can make a device do something
    if problem is None:
        try:
            return _read(path, most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            problem = "directory"
        except OSError as error:
            check_resources(error)
            problem = "unreadable"
    raise UnreadableFile(problem)


def reading_problem(path: str | bytes | os.PathLike[str], most: int) -> str | None:
    """Why a file is not read: `special`, `too-large` or `unreadable`; None if it can be, or is absent."""
    try:
        return _problem(os.stat(path), most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return "unreadable"


def _read(path: str | bytes | os.PathLike[str], most: int) -> bytes:
    descriptor = os.open(path, READ_FLAGS)
    try:
        problem = _problem(os.fstat(descriptor), most)  # the file may have been replaced meanwhile
        if problem is not None:
            raise UnreadableFile(problem)
        parts: list[bytes] = []
        left = most + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise UnreadableFile("too-large")  # it grew while it was read
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _problem(seen: os.stat_result, most: int) -> str | None:
    if stat.S_ISDIR(seen.st_mode):
        return None  # reading it fails by itself
    if not stat.S_ISREG(seen.st_mode):
        return "special"
    return "too-large" if seen.st_size > most else None


class OutsideFolder(Exception):
    """A path that leads out of the directory it must be in."""


def open_below(folder: str, path: str) -> int:
    """Open a file for reading that must be inside a directory after all links are resolved. The directory
    itself may be a link. A component below it that is replaced by a link meanwhile is not followed. Raises
    `OutsideFolder`."""
    top, real = os.path.realpath(folder), os.path.realpath(path)
    if not real.startswith(os.path.join(top, "")):
        raise OutsideFolder(path)
    if os.open not in os.supports_dir_fd:  # Windows
        return os.open(real, READ_FLAGS)
    *folders, name = os.path.relpath(real, top).split(os.sep)
    holder = os.open(top, _READ_FOLDER | _NO_LINK)
    try:
        for part in folders:
            inner = os.open(part, _READ_FOLDER | _NO_LINK, dir_fd=holder)
            os.close(holder)
            holder = inner
        return os.open(name, READ_FLAGS | _NO_LINK, dir_fd=holder)
    finally:
        os.close(holder)


def is_encodable(text: object) -> bool:
    """Whether it is a string that can be a file name: one with half a surrogate pair cannot."""
    try:
        return isinstance(text, str) and os.fsencode(text) is not None
    except UnicodeEncodeError:
        return False


def session_file(session: str) -> str:
    """The name, without a suffix, of the file that the hooks of a session share. Most ids can be the name of a
    file; the others are hashed."""
    if len(session) <= 100 and session.replace("-", "").replace("_", "").isalnum() and session.isascii():
        return f"s-{session}"
    return f"x-{hashlib.sha256(session.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


# --- ownership --------------------------------------------------------------------------------------
# The content of a directory that another user owns or may write to is not trusted: a record in it could
# claim that everything is saved, and a link could redirect what is written.

WRITABLE_BY_OTHERS = "others may write to it"


def ownership_problem(folder: str | os.PathLike[str]) -> str:
    """Why a directory is not only the current user's to write to; empty if it is, or does not exist."""
    if sys.platform == "win32":
        return ""
    try:
        seen = os.lstat(folder)
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(seen.st_mode):
        return "it is a link"
    if seen.st_uid != os.geteuid():
        return f"it belongs to user {seen.st_uid}, not {os.geteuid()}"
    return WRITABLE_BY_OTHERS if seen.st_mode & 0o022 else ""


def make_private_folder(folder: str | os.PathLike[str]) -> str:
    """Make a directory that only its owner can use, with any umask. Returns its `ownership_problem`, which
    an existing one may have."""
    real = os.path.realpath(folder)
    if not os.path.lexists(real):
        _make_private(real)
    return ownership_problem(real)


def _make_private(folder: str) -> None:
    """Missing parents are private, too, so that no other user can replace the directory."""
    if not os.path.isdir(os.path.dirname(folder)):
        _make_private(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    except FileExistsError:
        pass  # another process was faster
