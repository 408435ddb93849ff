"""The system's own word about what happens in directories (Linux).

Asked for directly and not by way of a library: an event is in the queue before the call that caused
it returns, so whoever reads the queue knows of everything that was done before. A thread in between,
which collects events for a while, could not promise that, nor say that some were lost.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from threading import Lock

from shadowsnap.records import NamedTuple, dataclass, field
from shadowsnap.snapshot.scan import directory_times_are_reliable, is_mounted_below
from shadowsnap.snapshot.worktree import Worktree, parents
from shadowsnap.store.stat_cache import Kept, ScanCache

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_DIRECTORY = 0x2000, 0x4000, 0x8000, 0x40000000

_DIRECTORIES_ONLY, _NO_LINKS, _NOT_UNLINKED = 0x01000000, 0x02000000, 0x04000000
_WANTED = (
    MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | _DIRECTORIES_ONLY | _NO_LINKS | _NOT_UNLINKED
)  # fmt: skip
_HEAD = struct.Struct("iIII")
_PIECE = 1 << 17


class Event(NamedTuple):
    watch: int
    mask: int
    name: bytes
    """Of what is in the directory; empty for the directory itself."""


class Inotify:
    """A queue of events, and the directories that it is about. Raises OSError where the system has none."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("there is no inotify on this system")
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = _checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: bytes) -> int:
        """Watch a directory; the number that its events will have."""
        return _checked(self._library.inotify_add_watch(self.descriptor, directory, _WANTED))

    def remove(self, watch: int) -> None:
        # It fails where the directory is gone, and its watch with it.
        self._library.inotify_rm_watch(self.descriptor, watch)

    def events(self) -> Iterator[Event]:
        """Everything that happened before this call. (Not all that can be read: somebody may write on
        without end.)"""
        left = _readable_bytes(self.descriptor)
        while left > 0:
            data = os.read(self.descriptor, _PIECE)
            left -= len(data)
            yield from decoded(data)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def decoded(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield Event(watch, mask, data[at : at + length].rstrip(b"\0"))
        at += length


def _readable_bytes(descriptor: int) -> int:
    import fcntl
    import termios

    answer = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


MOST_SNAPSHOTS = 50
"""After so many snapshots without a scan, or so many seconds, there is one."""
MOST_SECONDS = 600.0

# To look at more directories than that one by one takes longer than a scan.
_MANY = 1000

_NAMES = CREATE | DELETE | MOVED_FROM | MOVED_TO
_SELF = DELETE_SELF | MOVE_SELF
_LOST = OVERFLOW | UNMOUNT
_TOO_MANY = (errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def start_watching(workdir: Path, directories: Iterable[bytes]) -> Watcher | None:
    """A watcher of these directories; None where the system or the file system has no such thing."""
    if not directory_times_are_reliable(workdir):
        return None  # others may write there without this machine knowing
    try:
        watcher = Watcher(workdir)
    except OSError:
        return None
    watcher.follow({b"", *directories})
    return watcher if watcher.is_alive else None


@dataclass(frozen=True)
class Touched:
    """Where to look. Whatever is not named here is as it was."""

    files: frozenset[bytes]
    folders: frozenset[bytes]
    """Directories that were changed themselves, or in which a name came or went."""
    renewed: frozenset[bytes]
    """What is here now may be another directory than before: everything in it has to be looked at."""
    unwatched: frozenset[bytes]
    """What happened in these directories is not known. (What lies below them is watched by itself.)"""

    def directories_among(self, cache: ScanCache) -> set[bytes]:
        """Which of the known directories to look at."""
        known = cache.directories
        # Those without a time could not be read, or were not at rest: they are looked at each time.
        found = {path for path, row in known.items() if not row[1]}
        found |= known.keys() & (self.folders | self.unwatched | self.renewed)
        if not self.renewed.isdisjoint(known):
            found |= {path for path in known if not self.renewed.isdisjoint(parents(path))}
        return found

    def files_among(self, cache: ScanCache) -> set[bytes]:
        """Which files to look at, known ones or not."""
        found = set(self.files)
        for folder in self.renewed:
            found.update(cache.index.paths_below(folder))
        for folder in self.unwatched:
            below = cache.index.paths_below(folder)
            found.update(path for path in below if path.rpartition(b"/")[0] == folder)
        return found


@dataclass
class _Events:
    """What happened since the last capture that was remembered."""

    files: set[bytes] = field(default_factory=set)
    folders: set[bytes] = field(default_factory=set)
    renewed: set[bytes] = field(default_factory=set)
    lost: bool = False
    """Some of it is not known."""


class Watcher:
    """Whoever asks it holds the lock of the project."""

    def __init__(self, workdir: Path) -> None:
        self.kept: Kept | None = None
        """What was remembered last, so that it is not read again."""
        self._workdir = workdir
        self._process = os.getpid()
        self._lock = Lock()
        self._queue: Inotify | None = Inotify()
        self._root = _identity(workdir)
        self._paths: dict[int, bytes] = {}
        self._watches: dict[bytes, int] = {}
        self._inside: dict[bytes, set[bytes]] = {}
        """The watched directories in a directory."""
        self._unwatched: set[bytes] = set()
        """Directories that cannot be watched, or that were looked at before they were."""
        self._events = _Events()
        self._writing: set[bytes] = set()
        """Files that are being written to, as far as events tell."""
        self._written: set[bytes] = set()
        self._linked: set[bytes] = set()
        """Files with several names."""
        self._knows = False
        self._saved = b""
        self._began: object = None
        self._asked = 0
        self._scanned_at = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether it watches, and in this process: a child that was forked must leave the queue alone."""
        return self._queue is not None and os.getpid() == self._process

    def begin(self, saved: bytes, began: object) -> Touched | None:
        """A capture begins that starts from what was `saved`: what was touched since then; None if that is
        not known, and everything has to be scanned."""
        with self._lock:
            if not self.is_alive:
                return None
            self._read_events()
            self._began = began
            self._asked += 1
            if self._events.lost or self._root != _identity(self._workdir):
                self._start_anew()
            elif self._knows and saved == self._saved and not self._is_scan_due():
                events = self._events
                files = frozenset(events.files | self._written | self._writing | self._linked)
                folders, renewed = frozenset(events.folders), frozenset(events.renewed)
                return Touched(files, folders, renewed, frozenset(self._unwatched))
            self._knows = False
            return None

    def follow(self, directories: Collection[bytes]) -> None:
        """Watch these directories and no others."""
        for path in set(self._watches).difference(directories):
            self._forget(path)
        self._unwatched = set(directories).difference(self._watches)
        for path in sorted(self._unwatched):  # what lies above first: it tells if what lies below is replaced
            self._watch(path)

    def has_new_link(self, worktree: Worktree, paths: Iterable[bytes]) -> bool:
        """Whether one of these files has several names and is not known to: it may be another name of a
        known file, and what was written through it was told of this name alone."""
        return not self._several_names(worktree, paths) <= self._linked

    def note_links(self, worktree: Worktree, paths: Iterable[bytes]) -> None:
        self._linked = self._several_names(worktree, paths)

    def remembered(self, kept: Kept, directories: Collection[bytes], links: set[bytes], began: object) -> None:
        """The capture that `began` stands for was saved; `links` are the files in it that have several names, of
        those that were read."""
        with self._lock:
            if not self.is_alive:
                return
            if began is not self._began:  # another one began meanwhile: what it was told is not in this one
                self._knows = False
                return
            self._written |= kept.index.lookup(self._events.files).keys()
            if not self._knows:
                self._written = set()
                self._asked, self._scanned_at = 0, time.monotonic()
                self._knows = kept.complete and not is_mounted_below(self._workdir)
            self._events = _Events()
            self._linked |= links
            self.kept, self._saved = kept, kept.saved
            self.follow(directories)

    def close(self) -> None:
        with self._lock:
            self._close()

    # --- events ------------------------------------------------------------------------------

    def _read_events(self) -> None:
        assert self._queue is not None
        try:
            for event in self._queue.events():
                self._take(event)
        except OSError:
            self._events.lost = True

    def _take(self, event: Event) -> None:
        events, mask = self._events, event.mask
        folder = self._paths.get(event.watch)
        if mask & _LOST:
            events.lost = True
        elif folder is None:
            pass  # of a directory that is elsewhere by now; what is in its place is looked at as a whole
        elif mask & IGNORED or mask & _SELF:
            events.lost = events.lost or not folder
            self._renew(folder)
        elif not event.name:
            events.folders.add(folder)
        else:
            path = folder + b"/" + event.name if folder else event.name
            if mask & _NAMES:
                events.folders.add(folder)
            if not mask & IS_DIRECTORY:
                events.files.add(path)
                self._note_writing(path, mask)
            elif mask & _NAMES:
                self._renew(path)
            else:
                events.folders.add(path)

    def _note_writing(self, path: bytes, mask: int) -> None:
        if mask & (CREATE | MODIFY):
            self._writing.add(path)
        elif mask & (CLOSE_WRITE | DELETE | MOVED_FROM):
            self._writing.discard(path)

    def _renew(self, path: bytes) -> None:
        """Whatever was there is watched no longer, until somebody has looked at what is there now."""
        self._events.renewed.add(path)
        self._forget(path)

    # --- watches -----------------------------------------------------------------------------

    def _watch(self, path: bytes) -> None:
        if self._queue is None:
            return
        try:
            watch = self._queue.add(b"%s/%s" % (os.fsencode(self._workdir), path))
        except OSError as problem:
            if problem.errno in _TOO_MANY:
                self._close()  # a part of them is of no use, and others may need what is left
            return  # else it cannot be watched, or is gone: it is looked at each time
        self._paths[watch] = path
        self._watches[path] = watch
        if path:
            self._inside.setdefault(path.rpartition(b"/")[0], set()).add(path)

    def _forget(self, path: bytes) -> None:
        """Stop watching a directory and all below it."""
        stack = [path]
        self._inside.get(path.rpartition(b"/")[0], set()).discard(path)
        while stack:
            folder = stack.pop()
            stack.extend(self._inside.pop(folder, ()))
            watch = self._watches.pop(folder, None)
            if watch is not None and self._paths.pop(watch, None) is not None and self._queue is not None:
                self._queue.remove(watch)

    def _start_anew(self) -> None:
        """Events were lost, so that a watch may be of a directory that is elsewhere by now."""
        directories = {*self._watches, *self._unwatched, b""}
        self._close()
        self._events, self._root = _Events(), _identity(self._workdir)
        try:
            self._queue = Inotify()
        except OSError:
            return
        self.follow(directories)

    def _close(self) -> None:
        if self._queue is not None:
            self._queue.close()
        self._queue, self.kept, self._knows = None, None, False
        self._paths, self._watches, self._inside = {}, {}, {}

    # --- doubts ------------------------------------------------------------------------------

    def _is_scan_due(self) -> bool:
        return (
            self._asked > MOST_SNAPSHOTS
            or time.monotonic() - self._scanned_at > MOST_SECONDS
            or len(self._unwatched) > _MANY
            or b"" in self._unwatched
            or is_mounted_below(self._workdir)  # nobody is told when something is mounted
        )

    def _several_names(self, worktree: Worktree, paths: Iterable[bytes]) -> set[bytes]:
        looks = ((path, worktree.look(path)) for path in paths)
        return {path for path, seen in looks if seen and seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode)}


def _identity(workdir: Path) -> tuple[int, int]:
    try:
        seen = os.stat(workdir)
    except OSError:
        return 0, 0
    return seen.st_dev, seen.st_ino
