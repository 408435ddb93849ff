"""Watching a project with inotify (Linux), so that a capture looks only at what was touched.

Inotify is used directly and not through a library. An event is in the queue before the call that caused it
returns, so reading the queue shows everything done before. A library that collects events in a thread cannot
promise that, and does not report lost events.
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
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from shadowsnap.snapshot.scan import directory_times_are_reliable, is_mounted_below
from shadowsnap.snapshot.worktree import Worktree, folder_of, parents
from shadowsnap.store.stat_cache import Kept, ScanCache

# --- inotify -----------------------------------------------------------------------------------------

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF = 0x400, 0x800
UNMOUNT, OVERFLOW, IGNORED, IS_DIRECTORY = 0x2000, 0x4000, 0x8000, 0x40000000

_ONLYDIR, _DONT_FOLLOW, _EXCL_UNLINK = 0x01000000, 0x02000000, 0x04000000
_WATCHED = (
    MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | MOVE_SELF
    | _ONLYDIR | _DONT_FOLLOW | _EXCL_UNLINK
)  # fmt: skip
_HEADER = struct.Struct("iIII")
_READ_SIZE = 1 << 17


class Event(NamedTuple):
    watch: int
    mask: int
    name: bytes
    """The entry of the directory; empty for the directory itself."""


class Inotify:
    """A queue of events in watched directories. Raises OSError where the system has no inotify."""

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("there is no inotify on this system")
        self._library = ctypes.CDLL(None, use_errno=True)
        self.descriptor = _checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, directory: bytes) -> int:
        """Watch a directory. Returns the number that its events carry."""
        return _checked(self._library.inotify_add_watch(self.descriptor, directory, _WATCHED))

    def remove(self, watch: int) -> None:
        # Fails if the directory is gone, and its watch with it.
        self._library.inotify_rm_watch(self.descriptor, watch)

    def events(self) -> Iterator[Event]:
        """The events before this call. Later ones stay in the queue, or a busy writer would keep us here."""
        left = _readable_bytes(self.descriptor)
        while left > 0:
            data = os.read(self.descriptor, _READ_SIZE)
            left -= len(data)
            yield from decode(data)

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "descriptor", -1) >= 0:
            self.close()


def decode(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield Event(watch, mask, data[at : at + length].rstrip(b"\0"))
        at += length


def _readable_bytes(descriptor: int) -> int:
    import fcntl  # not on Windows
    import termios

    answer = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", answer)[0])


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


# --- the watcher -------------------------------------------------------------------------------------

MOST_SNAPSHOTS = 50
MOST_SECONDS = 600.0
"""The number of snapshots, and of seconds, after which a full scan is due. It finds what causes no event: a
write into memory that a program has mapped the file into, without another write since it opened the file."""

# With more unwatched directories, a scan is faster.
_MANY = 1000

_NAMES = CREATE | DELETE | MOVED_FROM | MOVED_TO
_SELF = DELETE_SELF | MOVE_SELF
_LOST = OVERFLOW | UNMOUNT
_LIMIT_REACHED = (errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


def start_watching(workdir: Path, directories: Iterable[bytes]) -> Watcher | None:
    """A watcher of these directories; None where the system or the file system does not support it."""
    if not directory_times_are_reliable(workdir):
        return None  # another machine may write there without an event here
    try:
        watcher = Watcher(workdir)
    except OSError:
        return None
    watcher.follow({b"", *directories})
    return watcher if watcher.is_alive else None


@dataclass(frozen=True)
class Touched:
    """Where to look for changes. Everything else is unchanged."""

    files: frozenset[bytes]
    folders: frozenset[bytes]
    """Directories whose own data changed, or in which a name came or went."""
    renewed: frozenset[bytes]
    """Paths that may have another directory by now: everything below has to be looked at."""
    unwatched: frozenset[bytes]
    """Directories whose events are unknown. Those below them have watches of their own."""

    def directories_among(self, cache: ScanCache) -> set[bytes]:
        """The known directories to look at."""
        known = cache.directories
        # One without a stamp could not be read, or changed during the capture: it is looked at each time.
        found = {path for path, row in known.items() if not row[1]}
        found |= known.keys() & (self.folders | self.unwatched | self.renewed)
        if not self.renewed.isdisjoint(known):
            found |= {path for path in known if not self.renewed.isdisjoint(parents(path))}
        return found

    def files_among(self, cache: ScanCache) -> set[bytes]:
        """The files to look at, known ones or not."""
        found = set(self.files)
        for folder in self.renewed:
            found.update(cache.index.paths_below(folder))
        for folder in self.unwatched:
            below = cache.index.paths_below(folder)
            found.update(path for path in below if folder_of(path) == folder)
        return found


@dataclass
class _Events:
    """What happened since the last capture that was saved."""

    files: set[bytes] = field(default_factory=set)
    folders: set[bytes] = field(default_factory=set)
    renewed: set[bytes] = field(default_factory=set)
    lost: bool = False
    """Some events are missing."""


class Watcher:
    """Collects what is touched in a project between captures. Callers hold the project's lock."""

    def __init__(self, workdir: Path) -> None:
        self.kept: Kept | None = None
        """The cache as it was saved last, so that it need not be read again."""
        self.most_seconds = MOST_SECONDS
        self.compared_at = 0.0
        """When the last comparison of all files began."""
        self._workdir = workdir
        self._process = os.getpid()
        self._lock = Lock()
        self._queue: Inotify | None = Inotify()
        self._root = _identity(workdir)
        self._paths: dict[int, bytes] = {}
        self._watches: dict[bytes, int] = {}
        self._inside: dict[bytes, set[bytes]] = {}
        """The watched directories directly in each directory."""
        self._unwatched: set[bytes] = set()
        """Directories that cannot be watched, or were scanned before their watch began."""
        self._events = _Events()
        self._writing: set[bytes] = set()
        """Files that are open for writing, according to the events."""
        self._written: set[bytes] = set()
        """Captured files that were touched since the last full scan."""
        self._linked: set[bytes] = set()
        """Files with several hard links."""
        self._is_complete = False
        """Whether the events cover everything since `_saved` was saved."""
        self._saved = b""
        self._began: object = None
        self._began_at = 0.0
        self._asked = 0
        self._scanned_at = 0.0

    @property
    def is_alive(self) -> bool:
        """Whether it is watching. False in a forked child, which must not read the shared queue."""
        return self._queue is not None and os.getpid() == self._process

    def begin(self, saved: bytes, began: object) -> Touched | None:
        """Begin a capture that starts from the `saved` cache. Returns what was touched since; None if that is
        unknown and everything has to be scanned."""
        with self._lock:
            if not self.is_alive:
                return None
            self._read_events()
            self._began, self._began_at = began, time.time()
            self._asked += 1
            if self._events.lost or self._root != _identity(self._workdir):
                self._restart()
            elif self._is_complete and saved == self._saved and not self._is_scan_due():
                events = self._events
                files = frozenset(events.files | self._written | self._writing | self._linked)
                folders, renewed = frozenset(events.folders), frozenset(events.renewed)
                return Touched(files, folders, renewed, frozenset(self._unwatched))
            self._is_complete = False
            return None

    @property
    def knows(self) -> bool:
        """Whether the next capture need not scan everything, as far as it is known now."""
        return self.is_alive and self._is_complete

    def note_compared(self, differ: Collection[bytes], began_at: float) -> None:
        """Note that all files were compared. The next capture looks at those that differ, too."""
        with self._lock:
            self._events.files.update(differ)
            self.compared_at = began_at

    def doubt(self) -> None:
        """Let the next capture scan everything."""
        with self._lock:
            self._is_complete = False

    def follow(self, directories: Collection[bytes]) -> None:
        """Watch these directories and no others."""
        for path in set(self._watches).difference(directories):
            self._forget(path)
        self._unwatched = set(directories).difference(self._watches)
        for path in sorted(self._unwatched):  # parents first: their events report a replaced child
            self._watch(path)

    def has_new_link(self, worktree: Worktree, paths: Iterable[bytes]) -> bool:
        """Whether one of these files has hard links that were unknown. It may be another name of a known file, and
        a write through it was reported under this name only."""
        return not self._several_names(worktree, paths) <= self._linked

    def note_links(self, worktree: Worktree, paths: Iterable[bytes]) -> None:
        self._linked = self._several_names(worktree, paths)

    def remembered(self, kept: Kept, directories: Collection[bytes], links: set[bytes], began: object) -> None:
        """Note that the capture which `began` identifies was saved. `links` are the files that it read and that
        have several hard links."""
        with self._lock:
            if not self.is_alive:
                return
            if began is not self._began:  # another capture took the events of the time between
                self._is_complete = False
                return
            self._written |= kept.index.lookup(self._events.files).keys()
            if not self._is_complete:
                self._written = set()
                self._asked, self._scanned_at = 0, time.monotonic()
                self.compared_at = self._began_at
                self._is_complete = kept.complete and not is_mounted_below(self._workdir)
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
                self._note(event)
        except OSError:
            self._events.lost = True

    def _note(self, event: Event) -> None:
        events, mask = self._events, event.mask
        folder = self._paths.get(event.watch)
        if mask & _LOST:
            events.lost = True
        elif folder is None:
            pass  # the directory was moved; whatever has its path now is noted as renewed
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
        """Stop watching what was at this path. The next capture examines what is there now."""
        self._events.renewed.add(path)
        self._forget(path)

    # --- watches -----------------------------------------------------------------------------

    def _watch(self, path: bytes) -> None:
        if self._queue is None:
            return
        try:
            watch = self._queue.add(b"%s/%s" % (os.fsencode(self._workdir), path))
        except OSError as problem:
            if problem.errno in _LIMIT_REACHED:
                self._close()  # watching a part is useless, and other programs may need the remaining watches
            return  # it stays unwatched, and is looked at each time
        self._paths[watch] = path
        self._watches[path] = watch
        if path:
            self._inside.setdefault(folder_of(path), set()).add(path)

    def _forget(self, path: bytes) -> None:
        """Stop watching a directory and everything below it."""
        stack = [path]
        self._inside.get(folder_of(path), set()).discard(path)
        while stack:
            folder = stack.pop()
            stack.extend(self._inside.pop(folder, ()))
            watch = self._watches.pop(folder, None)
            if watch is not None and self._paths.pop(watch, None) is not None and self._queue is not None:
                self._queue.remove(watch)

    def _restart(self) -> None:
        """Begin with new watches: events were lost, so an old watch may belong to a directory that was moved."""
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
        self._queue, self.kept, self._is_complete = None, None, False
        self._paths, self._watches, self._inside = {}, {}, {}

    # --- limits ------------------------------------------------------------------------------

    def _is_scan_due(self) -> bool:
        return (
            self._asked > MOST_SNAPSHOTS
            or time.monotonic() - self._scanned_at > self.most_seconds
            or len(self._unwatched) > _MANY
            or b"" in self._unwatched
            or is_mounted_below(self._workdir)  # a mount causes no event
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
