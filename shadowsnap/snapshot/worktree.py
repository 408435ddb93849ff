"""The files of a project: every touch goes through here, relative to the project's root.

Where the system can, calls are made relative to an open directory: paths may then be as long
as the system allows, and the root cannot be exchanged under us.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from shadowsnap.files import write_all
from shadowsnap.records import NamedTuple

_RELATIVE = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and os.rename in os.supports_dir_fd
_OPEN = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO in place of a file must not make us wait
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Looking at a path without opening what is there, where the system has that.
_SEES_ONLY = hasattr(os, "O_PATH") and sys.platform == "linux"
_SEEN = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if _SEES_ONLY else _OPEN
# One step of a way: a real directory, which need not be readable to lead further.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_NOFOLLOW", 0) | _DIRECTORY
_LONGEST = 255
"""No name in a directory is longer."""
# A path that is too long, or leads through a link to itself: nothing can be there.
_LEADS_NOWHERE = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
# Absolute paths are quicker to list, as long as the system takes them.
_LONG = 1000


class Item(NamedTuple):
    name: bytes
    is_directory: bool
    is_special: bool
    """A socket, a FIFO or a device."""


class Worktree:
    def __init__(self, root: Path | bytes, descriptor: int | None = None) -> None:
        self._root = os.fsencode(root)
        self._fd: int | None = descriptor
        if _RELATIVE and descriptor is None:
            self._fd = os.open(root, os.O_RDONLY | _DIRECTORY)
        self._prefix = b"" if _RELATIVE else self._root + b"/"

    def __enter__(self) -> Worktree:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def within(self, folder: bytes) -> Worktree:
        """A directory of the project as a place of its own: whatever its name leads to later, what is done
        there is done in this very directory. Raises NotADirectoryError if it is no real one."""
        root = b"%s/%s" % (self._root, folder)
        if self._fd is None:
            if not self.is_directory(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            return Worktree(root)
        above = self._fd
        for name in folder.split(b"/") if folder else (b".",):
            try:
                descriptor = os.open(name, _STEP, dir_fd=above)
            except OSError as problem:
                if problem.errno in (errno.ENOENT, errno.ELOOP):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
                raise
            finally:
                if above != self._fd:
                    os.close(above)
            above = descriptor
        return Worktree(root, above)

    def lstat(self, path: bytes) -> os.stat_result | None:
        """What is at this path itself; None if there is nothing."""
        try:
            return os.stat(self._at(path), dir_fd=self._fd, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            if problem.errno in _LEADS_NOWHERE:
                return None
            raise

    def is_too_long(self, path: bytes) -> bool:
        """Whether something may be there that the system does not reach by a path so long."""
        try:
            os.stat(self._at(path), dir_fd=self._fd, follow_symlinks=False)
        except OSError as problem:
            return problem.errno == errno.ENAMETOOLONG and all(len(name) <= _LONGEST for name in path.split(b"/"))
        return False

    def look(self, path: bytes) -> os.stat_result | None:
        """As `lstat`, but None also if it cannot be told what is there."""
        try:
            return self.lstat(path)
        except OSError:
            return None

    def looks(self, paths: Iterable[bytes]) -> Iterator[os.stat_result | None]:
        """As `look` at each of them: for very many."""
        stat_of, prefix, root = os.stat, self._prefix, self._fd
        for path in paths:
            try:
                yield stat_of(prefix + path, dir_fd=root, follow_symlinks=False)
            except OSError:
                yield None

    def reaches(self, path: bytes) -> bool:
        """Whether every directory on the way to this path is a real one, inside the project."""
        parts = path.split(b"/")[:-1]
        for depth in range(1, len(parts) + 1):
            try:
                seen = self.lstat(b"/".join(parts[:depth]))
            except OSError:  # it cannot even be looked at: whoever opens the path will be told
                return True
            if seen is None or not stat.S_ISDIR(seen.st_mode):
                return False
        return True

    def is_searchable(self, path: bytes, seen: os.stat_result) -> bool:
        """Whether what a directory holds can be looked at."""
        if seen.st_mode & 0o111 == 0o111:
            return True
        try:
            self.lstat(path + b"/." if path else b".")
        except OSError:
            return False
        return True

    def is_directory(self, path: bytes) -> bool:
        """Whether a path is a real directory, inside the project."""
        seen = self.look(path) if self.reaches(path) else None
        return seen is not None and stat.S_ISDIR(seen.st_mode)

    def open(self, path: bytes) -> int:
        return os.open(self._at(path), _OPEN, dir_fd=self._fd)

    def beginning(self, path: bytes, size: int) -> bytes | None:
        """The first bytes of a file; None if it cannot be read."""
        try:
            descriptor = self.open(path)
        except OSError:
            return None
        try:
            return os.read(descriptor, size)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def readlink(self, path: bytes) -> bytes:
        return os.fsencode(os.readlink(self._at(path), dir_fd=self._fd))

    def items(self, path: bytes) -> Iterator[Item]:
        """What a directory holds; raises OSError if it cannot be read."""
        descriptor = None
        absolute = b"%s/%s" % (self._root, path)
        where: int | bytes = absolute
        # By its name it is quicker; but this very directory may have another one by now.
        if self._fd is not None and (len(absolute) >= _LONG or not path):
            descriptor = where = os.open(self._at(path), _OPEN | _DIRECTORY, dir_fd=self._fd)
        try:
            with os.scandir(where) as entries:
                for entry in entries:
                    directory = entry.is_dir(follow_symlinks=False)
                    plain = directory or entry.is_file(follow_symlinks=False) or entry.is_symlink()
                    yield Item(os.fsencode(entry.name), directory, not plain)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def everything_below(
        self, folder: bytes, pruned: Container[bytes] = ()
    ) -> Iterator[tuple[bytes, Item | None]]:
        """Every file below a directory (links are not followed); None for a directory that cannot
        be read."""
        stack = [folder]
        while stack:
            path = stack.pop()
            try:
                items = list(self.items(path))
            except OSError:
                yield path + b"/", None
                continue
            for item in items:
                if item.is_directory and item.name.lower() != b".git":
                    if item.name not in pruned:
                        stack.append(path + b"/" + item.name)
                else:
                    yield path + b"/" + item.name, item

    def rename(self, old: bytes, new: bytes, to: Worktree | None = None) -> None:
        """Here, or `to` another place on the same file system."""
        to = to or self
        os.rename(self._at(old), to._at(new), src_dir_fd=self._fd, dst_dir_fd=to._fd)

    def move(self, old: bytes, new: bytes, to: Worktree | None = None) -> None:
        """Rename, but never onto something that is there: that raises FileExistsError."""
        to = to or self
        if rename_if_free(self._at(old), self._fd, to._at(new), to._fd):
            return
        try:
            os.link(
                self._at(old), to._at(new), src_dir_fd=self._fd, dst_dir_fd=to._fd, follow_symlinks=False
            )  # fmt: skip
        except FileExistsError:
            raise
        except (OSError, NotImplementedError):  # a directory, or no hard links here
            if to.lstat(new) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new) from None
            self.rename(old, new, to)
        else:
            self.unlink(old)

    def exchange(self, one: bytes, there: Worktree, other: bytes) -> bool:
        """Let what is at two paths change places; False if the system cannot do that at one stroke."""
        return exchange(self._at(one), self._fd, there._at(other), there._fd)

    def may_change(self, folder: bytes) -> bool:
        """Whether entries can be made and removed in a directory."""
        return os.access(self._at(folder), os.W_OK | os.X_OK, dir_fd=self._fd)

    def create(self, path: bytes, data: bytes, *, link: bool = False) -> None:
        """Make a file that holds this, or a link that leads there; nothing may be at its place."""
        if link:
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

    def chown(self, path: bytes, user: int, group: int) -> None:
        if sys.platform != "win32":
            os.chown(self._at(path), user, group, dir_fd=self._fd, follow_symlinks=False)

    def chmod(self, path: bytes, mode: int) -> None:
        """Never through a link that came to this place just now."""
        if self._fd is None:
            os.chmod(self._at(path), mode)
            return
        descriptor = os.open(self._at(path), _SEEN, dir_fd=self._fd)
        try:
            if stat.S_ISLNK(os.fstat(descriptor).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if _SEES_ONLY:  # what may not be read cannot be opened in any other way
                os.chmod(f"/proc/self/fd/{descriptor}", mode)
            else:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def own_bits(self) -> int:
        """The permission bits of this very directory."""
        return stat.S_IMODE((os.stat(self._root) if self._fd is None else os.fstat(self._fd)).st_mode)

    def set_own_bits(self, mode: int) -> None:
        if self._fd is None:
            os.chmod(self._root, mode)
        elif _SEES_ONLY:
            os.chmod(f"/proc/self/fd/{self._fd}", mode)
        else:
            os.fchmod(self._fd, mode)

    def remove_tree(self, name: bytes) -> None:
        """Remove a directory of ours with all that is in it, if it is there; links are not followed."""
        import shutil

        if self._fd is None or not shutil.rmtree.avoids_symlink_attacks:
            shutil.rmtree(self._at(name), ignore_errors=True)
        else:
            shutil.rmtree(name, ignore_errors=True, dir_fd=self._fd)

    def as_folder(self) -> str:
        """A path that leads to this very directory as long as it is open here, for another process: whatever has
        its name by then."""
        if self._fd is not None and sys.platform == "linux" and os.path.isdir("/proc/self/fd"):
            return f"/proc/{os.getpid()}/fd/{self._fd}"
        return os.fsdecode(self._root)

    def _at(self, path: bytes) -> bytes:
        return self._prefix + path if self._prefix else path or b"."


def parents(path: bytes) -> Iterator[bytes]:
    """The directories above a path, nearest first, without the root."""
    while (cut := path.rfind(b"/")) > 0:
        path = path[:cut]
        yield path


def above(paths: Iterable[bytes]) -> set[bytes]:
    """Every directory on the way to any of the paths."""
    folders = {folder[:-1] for folder in {path[: path.rfind(b"/") + 1] for path in paths}}
    return folders.union(*map(parents, folders))


def same_file(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether nothing happened to a file between two looks at it."""
    return (one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_mode) == (
        other.st_ino, other.st_size, other.st_mtime_ns, other.st_ctime_ns, other.st_mode,
    )  # fmt: skip


def unwritten(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether nobody wrote to a file between two looks at it; it may have been renamed."""
    return (before.st_ino, before.st_size, before.st_mtime_ns) == (after.st_ino, after.st_size, after.st_mtime_ns)


_NOREPLACE, _EXCHANGE = 1, 2
_HERE = -100
"""In place of an open directory: the path leads there by itself (AT_FDCWD)."""
# What the system says if it, or the file system, does not know how.
_UNKNOWN = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})

_Rename = Callable[[int, bytes, int, bytes, int], int]


def exchange(one: bytes, one_in: int | None, other: bytes, other_in: int | None) -> bool:
    """Let two files change places, so that nobody ever finds either name free; False if that is not to be
    had here."""
    return _renamed(one, one_in, other, other_in, _EXCHANGE)


def rename_if_free(old: bytes, old_in: int | None, new: bytes, new_in: int | None) -> bool:
    """Rename onto a free name, else raise FileExistsError; False if that is not to be had here."""
    return _renamed(old, old_in, new, new_in, _NOREPLACE)


def _renamed(old: bytes, old_in: int | None, new: bytes, new_in: int | None, how: int) -> bool:
    rename = _system_call()
    if rename is None:
        return False
    source, target = _HERE if old_in is None else old_in, _HERE if new_in is None else new_in
    sys.audit("os.rename", old, new, source, target)  # as the rename of Python does
    if rename(source, old, target, new, how) == 0:
        return True
    import ctypes

    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), old, None, new)


@lru_cache(maxsize=1)
def _system_call() -> _Rename | None:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (ImportError, OSError, AttributeError):  # a Python without it, or an old library
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    found: _Rename = function
    return found
