"""The files of a project. Every access goes through `Worktree`, with paths relative to the project's root.

Where the system allows it, calls are made relative to an open directory. Paths may then be as long as the system
permits, and replacing the root by another directory does not redirect them.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.errors import UnsafeTree
from shadowsnap.files import behind_standard_streams, check_resources, write_all
from shadowsnap.git.trees import link_problem

_HAS_DIR_FD = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.rename in os.supports_dir_fd
OPEN_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must not block
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# O_PATH opens a file without permission to read it. Its mode can then be set through /proc.
_HAS_PATH_FD = hasattr(os, "O_PATH") and sys.platform == "linux"
_OPEN_FOR_CHMOD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if _HAS_PATH_FD else OPEN_FILE
# For one component of a path: a real directory, which need not be readable.
_OPEN_COMPONENT = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_NOFOLLOW", 0) | _DIRECTORY
_LONGEST_NAME = 255
# The path is too long, or leads through a link to itself: nothing can exist there.
_CANNOT_EXIST = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
# Every system accepts a path that is shorter, whatever name follows.
LONG_PATH = 700


class Names(NamedTuple):
    """The names in a directory."""

    files: list[bytes]
    """Links are files, too."""
    directories: list[bytes]
    special: list[bytes]
    """Sockets, FIFOs and devices."""


class Item(NamedTuple):
    """One entry of a directory."""

    name: bytes
    is_directory: bool
    is_special: bool
    """A socket, a FIFO or a device."""


class Worktree:
    """A project directory, held open. Links are never followed, except the root itself."""

    def __init__(self, root: Path | bytes, descriptor: int | None = None) -> None:
        self._root = os.fsencode(root)
        self._fd: int | None = descriptor
        if _HAS_DIR_FD and descriptor is None:
            self._fd = behind_standard_streams(os.open(root, os.O_RDONLY | _DIRECTORY))
        self._prefix = b"" if _HAS_DIR_FD else self._root + b"/"
        self._place: tuple[bytes, int] | None = None
        self._moved: set[bytes] = set()

    @property
    def root(self) -> bytes:
        return self._root

    @property
    def descriptor(self) -> int | None:
        """The open directory; None where the system has no calls relative to one."""
        return self._fd

    def __enter__(self) -> Worktree:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def within(self, folder: bytes) -> Worktree:
        """Open a subdirectory as a worktree of its own. It stays this directory even if its path is later given
        to another one. Raises NotADirectoryError if it is no real directory."""
        root = b"%s/%s" % (self._root, folder)
        if self._fd is None:
            if not self.is_directory(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            return Worktree(root)
        return Worktree(root, self._open_components(folder))

    def _open_components(self, folder: bytes) -> int:
        """Open a directory name by name, so that no link is followed."""
        assert self._fd is not None
        parent = self._fd
        for name in folder.split(b"/") if folder else (b".",):
            try:
                descriptor = os.open(name, _OPEN_COMPONENT, dir_fd=parent)
            except OSError as problem:
                if problem.errno in (errno.ENOENT, errno.ELOOP):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
                raise
            finally:
                if parent != self._fd:
                    os.close(parent)
            parent = descriptor
        return parent

    def place_of(self, path: bytes) -> tuple[int | None, bytes]:
        """The directory that a path is in, open and reached through no link, and the name there. It is open until
        the next call, or `leave`. Raises OSError if it is no real directory."""
        folder, _, name = path.rpartition(b"/")
        if not folder or self._fd is None:
            return self._fd, self._at(path)
        if self._place is None or self._place[0] != folder:
            self.leave()
            descriptor = os.open(folder, _OPEN_COMPONENT, dir_fd=self._fd)
            if not self._is_where(descriptor, folder):
                # A directory above it is a link, or the system does not say where it is.
                os.close(descriptor)
                descriptor = self._open_components(folder)
            self._place = folder, descriptor
        return self._place[1], name

    def leave(self) -> None:
        """Close the directory that `place_of` opened, and note whether it was moved meanwhile."""
        if self._place is not None:
            folder, descriptor = self._place
            self._place = None
            try:
                if not self._is_still(descriptor, folder):
                    self._moved.add(folder)
            finally:
                os.close(descriptor)

    def take_moved(self) -> set[bytes]:
        """The directories that were moved while `place_of` had them open, since the last call: what was read
        there may have been written elsewhere."""
        self.leave()
        moved, self._moved = self._moved, set()
        return moved

    def _is_where(self, descriptor: int, folder: bytes) -> bool:
        return _where(descriptor) == b"%s/%s" % (self._where, folder)

    def _is_still(self, descriptor: int, folder: bytes) -> bool:
        """Whether an open directory is the one at this path."""
        if self._is_where(descriptor, folder):
            return True
        try:
            now = self._open_components(folder)
        except OSError as problem:
            check_resources(problem)
            return False
        try:
            return os.path.samestat(os.fstat(now), os.fstat(descriptor))
        finally:
            os.close(now)

    # --- looking -----------------------------------------------------------------------------

    def lstat(self, path: bytes) -> os.stat_result | None:
        """The stat data of a path; None if nothing exists there."""
        try:
            return os.stat(self._at(path), dir_fd=self._fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            if problem.errno in _CANNOT_EXIST:
                return None
            raise

    def look(self, path: bytes) -> os.stat_result | None:
        """Like `lstat`, but also None where the system refuses to say what exists there."""
        try:
            return self.lstat(path)
        except OSError:
            return None

    def is_refused(self, path: bytes) -> bool:
        """Whether the system refuses to say what exists at a path."""
        try:
            self.lstat(path)
        except OSError:
            return True
        return False

    def looks(self, paths: Iterable[bytes]) -> Iterator[os.stat_result | None]:
        """`look` for many paths, without a function call for each."""
        stat_of, prefix, root = os.stat, self._prefix, self._fd
        for path in paths:
            try:
                yield stat_of(prefix + path or b".", dir_fd=root, follow_symlinks=False)
            except OSError:
                yield None

    def is_too_long(self, path: bytes) -> bool:
        """Whether something may exist at a path that is too long for the system."""
        try:
            os.stat(self._at(path), dir_fd=self._fd, follow_symlinks=False)
        except OSError as problem:
            names_fit = all(len(name) <= _LONGEST_NAME for name in path.split(b"/"))
            return problem.errno == errno.ENAMETOOLONG and names_fit
        return False

    def reaches(self, path: bytes, *, so_far: bool = False) -> bool:
        """Whether every directory above this path is a real one, inside the project; with `so_far`, every one that
        exists."""
        parts = path.split(b"/")[:-1]
        for depth in range(1, len(parts) + 1):
            try:
                seen = self.lstat(b"/".join(parts[:depth]))
            except OSError:  # no permission: opening the path will raise
                return True
            if seen is None:
                return so_far
            if not stat.S_ISDIR(seen.st_mode):
                return False
        return True

    def is_directory(self, path: bytes) -> bool:
        """Whether a path is a real directory, inside the project."""
        seen = self.look(path) if self.reaches(path) else None
        return seen is not None and stat.S_ISDIR(seen.st_mode)

    def is_searchable(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether the entries of a directory can be examined."""
        if seen.st_mode & 0o111 == 0o111:
            return True
        try:
            self.lstat(path + b"/." if path else b".")
        except OSError:
            return False
        return True

    def may_change(self, folder: bytes) -> bool:
        """Whether entries can be created and removed in a directory."""
        return os.access(self._at(folder), os.W_OK | os.X_OK, dir_fd=self._fd)

    def names(self, path: bytes) -> Names:
        """The names in a directory; raises OSError if it cannot be read."""
        found = Names([], [], [])
        files, directories, special = found
        with self._listing(path) as entries:
            for entry in entries:
                name = entry.name
                if isinstance(name, str):  # listed through a descriptor
                    name = os.fsencode(name)
                if entry.is_file(follow_symlinks=False):
                    files.append(name)
                elif entry.is_dir(follow_symlinks=False):
                    directories.append(name)
                else:
                    (files if entry.is_symlink() else special).append(name)
        return found

    def items(self, path: bytes) -> Iterator[Item]:
        """The entries of a directory; raises OSError if it cannot be read."""
        with self._listing(path) as entries:
            for entry in entries:
                directory = entry.is_dir(follow_symlinks=False)
                plain = directory or entry.is_file(follow_symlinks=False) or entry.is_symlink()
                yield Item(os.fsencode(entry.name), directory, not plain)

    @contextmanager
    def _listing(self, path: bytes) -> Iterator[Iterator[os.DirEntry[Any]]]:
        descriptor = None
        absolute = b"%s/%s" % (self._root, path)
        where: int | bytes = absolute
        # Listing by absolute path is faster, as long as the system accepts the length. The root is listed through
        # its descriptor: its path may lead to another directory by now.
        if self._fd is not None and (len(absolute) >= LONG_PATH or not path):
            descriptor = where = os.open(self._at(path), OPEN_FILE | _DIRECTORY, dir_fd=self._fd)
        try:
            with os.scandir(where) as entries:
                yield entries
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def everything_below(
        self, folder: bytes, pruned: Container[bytes] = ()
    ) -> Iterator[tuple[bytes, Item | None]]:
        """Every file below a directory, and every `.git`. A directory that cannot be read comes with None and a
        slash at its end. Directories whose name is in `pruned` are left out."""
        stack = [folder]
        while stack:
            path = stack.pop()
            try:
                items = list(self.items(path))
            except OSError as problem:
                check_resources(problem)
                yield path + b"/", None
                continue
            for item in items:
                if item.is_directory and item.name.lower() != b".git":
                    if item.name not in pruned:
                        stack.append(path + b"/" + item.name)
                else:
                    yield path + b"/" + item.name, item

    def files_below(
        self, folder: bytes, pruned: Container[bytes], max_entries: int, max_bytes: int
    ) -> set[bytes] | None:
        """Every file below a directory, apart from directories that are `pruned` or a `.git`; None if there are
        more entries or bytes. The walk ends as soon as a limit is exceeded."""
        files: set[bytes] = set()
        count = size = 0
        stack = [folder]
        while stack:
            path = stack.pop()
            try:
                for item in self.items(path):
                    count += 1
                    below = path + b"/" + item.name
                    if not item.is_directory:
                        files.add(below)
                        seen = self.look(below)
                        size += seen.st_size if seen is not None else 0
                    elif item.name not in pruned and item.name.lower() != b".git":
                        stack.append(below)
                    if count > max_entries or size > max_bytes:
                        return None
            except OSError as problem:
                check_resources(problem)
                continue  # it cannot be read
        return files

    # --- reading -----------------------------------------------------------------------------

    def open(self, path: bytes) -> int:
        return os.open(self._at(path), OPEN_FILE, dir_fd=self._fd)

    def is_at(self, descriptor: int, path: bytes) -> bool:
        """Whether an open file is really the one at this path. A directory above it may have been a link when it
        was opened, to files that only this process may read."""
        folder, _, name = path.rpartition(b"/")
        if not folder:
            return True
        if _where(descriptor) == b"%s/%s" % (self._where, path):
            return True  # the usual case, on Linux
        try:
            with self.within(folder) as here:
                seen = here.lstat(name)
        except OSError as problem:
            check_resources(problem)
            return False
        return seen is not None and os.path.samestat(seen, os.fstat(descriptor))

    @cached_property
    def _where(self) -> bytes:
        return b"" if self._fd is None else _where(self._fd)

    def beginning(self, path: bytes, size: int) -> bytes | None:
        """The first `size` bytes of a file; None if it cannot be read."""
        try:
            descriptor = self.open(path)
        except OSError as problem:
            check_resources(problem)
            return None
        try:
            return os.read(descriptor, size) if self.is_at(descriptor, path) else None
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def readlink(self, path: bytes) -> bytes:
        folder, _, name = path.rpartition(b"/")
        if folder and self._fd is not None:
            with self.within(folder) as here:
                return here.readlink(name)
        return os.fsencode(os.readlink(self._at(path), dir_fd=self._fd))

    # --- changing ----------------------------------------------------------------------------

    def rename(self, old: bytes, new: bytes, to: Worktree | None = None) -> None:
        """Rename here, or into another open directory on the same file system."""
        to = to or self
        os.rename(self._at(old), to._at(new), src_dir_fd=self._fd, dst_dir_fd=to._fd)

    def move(self, old: bytes, new: bytes, to: Worktree | None = None) -> None:
        """Rename, but raise FileExistsError instead of replacing something."""
        to = to or self
        if _renameat2(self._at(old), self._fd, to._at(new), to._fd, _NOREPLACE):
            return
        try:
            os.link(
                self._at(old), to._at(new), src_dir_fd=self._fd, dst_dir_fd=to._fd, follow_symlinks=False
            )  # fmt: skip
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):  # a directory, or a file system without hard links
            if to.lstat(new) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
            self.rename(old, new, to)
        else:
            self.unlink(old)

    def exchange(self, one: bytes, there: Worktree, other: bytes) -> bool:
        """Swap two paths atomically, so that neither is ever missing; False if the system cannot do that."""
        return _renameat2(self._at(one), self._fd, there._at(other), there._fd, _EXCHANGE)

    def create(self, path: bytes, data: bytes, *, link: bool = False) -> None:
        """Create a file with this content, or a link with this target; nothing may exist there."""
        if link:
            if (why := link_problem(data)) is not None:
                raise UnsafeTree(name=os.fsdecode(path), why=why)
            os.symlink(data, self._at(path), dir_fd=self._fd)
            return
        descriptor = os.open(self._at(path), _CREATE, 0o600, dir_fd=self._fd)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def mkdir(self, path: bytes, mode: int = 0o777) -> None:
        os.mkdir(self._at(path), mode, dir_fd=self._fd)

    def rmdir(self, path: bytes) -> None:
        os.rmdir(self._at(path), dir_fd=self._fd)

    def unlink(self, path: bytes) -> None:
        os.unlink(self._at(path), dir_fd=self._fd)

    def remove_tree(self, name: bytes) -> None:
        """Remove one of our own directories with its content, if it exists; links are not followed."""
        if self._fd is None or not shutil.rmtree.avoids_symlink_attacks:
            shutil.rmtree(self._at(name), ignore_errors=True)
        else:
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)

    def chown(self, path: bytes, user: int, group: int) -> None:
        if sys.platform != "win32":
            os.chown(self._at(path), user, group, dir_fd=self._fd, follow_symlinks=False)

    def chmod(self, path: bytes, mode: int) -> None:
        """Set permission bits; raises OSError for a link instead of following it."""
        if self._fd is None:
            os.chmod(self._at(path), mode)
            return
        descriptor = os.open(self._at(path), _OPEN_FOR_CHMOD, dir_fd=self._fd)
        try:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            _chmod_open(descriptor, mode)
        finally:
            os.close(descriptor)

    def own_bits(self) -> int:
        """The permission bits of the directory itself."""
        return stat.S_IMODE((os.stat(self._root) if self._fd is None else os.fstat(self._fd)).st_mode)

    def set_own_bits(self, mode: int) -> None:
        if self._fd is None:
            os.chmod(self._root, mode)
        else:
            _chmod_open(self._fd, mode)

    def as_folder(self) -> str:
        """A path that leads to this directory while it is open, whatever has its name by then: for this process
        and for a child that inherits the descriptor."""
        # Not by our process id: /proc may belong to another process namespace, where that is another process, and
        # a process that changed its user may not look at itself that way.
        if self._fd is not None and sys.platform == "linux" and os.path.isdir("/proc/self/fd"):
            return f"/proc/self/fd/{self._fd}"
        return os.fsdecode(self._root)

    def _at(self, path: bytes) -> bytes:
        return self._prefix + path if self._prefix else path or b"."


def _where(descriptor: int) -> bytes:
    """The path of what is open, without any link; empty where the system does not say."""
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)
    except OSError:
        return b""


def _chmod_open(descriptor: int, mode: int) -> None:
    if _HAS_PATH_FD:  # fchmod refuses a descriptor opened with O_PATH
        os.chmod(f"/proc/self/fd/{descriptor}", mode)
    else:
        os.fchmod(descriptor, mode)


# --- renameat2 (Linux) -------------------------------------------------------------------------------

_NOREPLACE, _EXCHANGE = 1, 2
_AT_FDCWD = -100
# The errors of a system or a file system that does not support the flags.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})

_Rename = Callable[[int, bytes, int, bytes, int], int]


def _renameat2(old: bytes, old_in: int | None, new: bytes, new_in: int | None, flag: int) -> bool:
    """Rename with a flag that `os.rename` does not have; False where that is not supported."""
    rename = _system_call()
    if rename is None:
        return False
    source, target = _AT_FDCWD if old_in is None else old_in, _AT_FDCWD if new_in is None else new_in
    sys.audit("os.rename", old, new, source, target)  # as os.rename does
    if rename(source, old, target, new, flag) == 0:
        return True
    import ctypes  # only a restore needs it

    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), old, None, new)


@lru_cache(maxsize=1)
def _system_call() -> _Rename | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):  # Python without ctypes, or an old C library
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    found: _Rename = function
    return found


# --- paths and stat data -----------------------------------------------------------------------------


def folder_of(path: bytes) -> bytes:
    """The directory that a path is in; empty for the root."""
    return path.rpartition(b"/")[0]


def parents(path: bytes) -> Iterator[bytes]:
    """The directories above a path, nearest first, without the root."""
    while (cut := path.rfind(b"/")) > 0:
        path = path[:cut]
        yield path


def folders_above(paths: Iterable[bytes]) -> set[bytes]:
    """The directories above any of the paths, without the root. Files of one directory cost one step each."""
    found: set[bytes] = set()
    for folder in {path.rpartition(b"/")[0] for path in paths}:
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition(b"/")[0]
    return found


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two stats are of the same file, unchanged in between."""
    return (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_mode) == (
        other.st_ino, other.st_size, other.st_mtime_ns, other.st_ctime_ns, other.st_mode,
    )  # fmt: skip


def unwritten(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether a file was not written to between two stats; it may have been renamed."""
    return (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)
