"""Reading files for a capture and storing their content.

A file is filtered by its stat data before it is opened, and captured only if it does not change while it is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.files import check_resources
from shadowsnap.git.index import Entry, Known
from shadowsnap.git.objects import CHUNK, Unreadable, object_id, stream_id
from shadowsnap.git.packs import NewObjects
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR
from shadowsnap.snapshot.worktree import LONG_PATH, OPEN_FILE, Worktree, folder_of, same_file

# Larger files are streamed, so that memory stays bounded.
_IN_MEMORY = CHUNK

ReadLarge = Callable[[int, int], str | None]
"""Reads an open file of the given size to its end. Returns the id of the blob, or None if it has another size.
Raises Unreadable if the file cannot be read."""


class Content(NamedTuple):
    """A file as it was read."""

    id: str
    entry: Entry
    size: int
    links: int
    data: bytes | None
    """What is to be stored. None if it was stored already, as a large file is while it is read."""


class NotCaptured(NamedTuple):
    """A file that is skipped; `why` is None if it does not exist."""

    why: str | None


class _NotStored(Exception):
    """The store failed, for example because its disk is full: that says nothing about the file."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(problem)
        self.problem = problem


# --- reading -----------------------------------------------------------------------------------------


def read_file(worktree: Worktree, path: bytes, limit: int | None, large: ReadLarge) -> Content | NotCaptured:
    """Read a file of at most `limit` bytes. What does not fit into memory is left to `large`."""
    for _ in range(2):
        try:
            content = _attempt(worktree, path, limit, large)
        except _NotStored as failure:
            raise failure.problem from None
        except OSError as problem:
            check_resources(problem)
            return NotCaptured("unreadable" if exists(worktree, path) else None)
        if content is not None:
            return content
        worktree.leave()  # its directory may be another one by now
    return NotCaptured("changing")


def read_again(
    worktree: Worktree, path: bytes, limit: int | None, objects: NewObjects, known: Known, stored: Path
) -> Content | NotCaptured:
    """Read a file that may still have the content that it had in the last capture. Then there is nothing to store,
    unless a power failure emptied the object, which is looked for in the directory `stored`."""
    content = read_file(worktree, path, limit, stream_id)
    if isinstance(content, NotCaptured):
        return content
    if content.id == known.id and not _is_empty(stored / known.id[:2] / known.id[2:]):
        return content._replace(data=None)
    return content if content.data is not None else read_file(worktree, path, limit, objects.write_stream)


def _is_empty(file: Path) -> bool:
    try:
        return os.stat(file).st_size == 0
    except FileNotFoundError:
        return False  # the object is in a pack


def exists(worktree: Worktree, path: bytes) -> bool:
    """Whether something exists there, other than a directory."""
    try:
        seen = worktree.lstat(path)
    except OSError:
        return True  # no permission to look
    return seen is not None and not stat.S_ISDIR(seen.st_mode)


def _attempt(worktree: Worktree, path: bytes, limit: int | None, large: ReadLarge) -> Content | NotCaptured | None:
    """None if the file changed while it was read."""
    try:
        if len(path) >= LONG_PATH and worktree.is_too_long(path):
            return NotCaptured("unreadable")  # no restore could write it
        here, name = worktree.place_of(path)
        seen = os.stat(name, dir_fd=here, follow_symlinks=False)
    except OSError as problem:
        check_resources(problem)
        if worktree.lstat(path) is not None:
            return None  # it came just now, or it is behind a link
        return NotCaptured(None)
    if stat.S_ISDIR(seen.st_mode):
        return NotCaptured(None)
    if stat.S_ISLNK(seen.st_mode):
        return _read_link(here, name, seen)
    if not stat.S_ISREG(seen.st_mode):
        return NotCaptured("special")
    size = seen.st_size
    if limit is not None and size > limit:
        return NotCaptured("too-large")
    descriptor = os.open(name, OPEN_FILE, dir_fd=here)
    try:
        if here is None and not worktree.is_at(descriptor, path):
            return None
        data = None if size > _IN_MEMORY else _read_all(descriptor, size)
        blob = _store_large(large, descriptor, size) if data is None else object_id(b"blob", data)
        # Replaced before it was opened, or written to meanwhile.
        if blob is None or not same_file(seen, os.fstat(descriptor)):
            return None
    finally:
        os.close(descriptor)
    mode = EXECUTABLE if seen.st_mode & 0o100 else REGULAR
    return Content(blob, Entry.of(mode, blob, seen), size, seen.st_nlink, data)


def _store_large(large: ReadLarge, descriptor: int, size: int) -> str | None:
    try:
        return large(descriptor, size)
    except Unreadable:
        raise
    except OSError as problem:
        raise _NotStored(problem) from problem


def _read_link(here: int | None, name: bytes, seen: os.stat_result) -> Content | NotCaptured | None:
    if os.path.basename(name).lower() == b".gitmodules":
        return NotCaptured("unstorable")  # git refuses such a link in an index
    target = os.fsencode(os.readlink(name, dir_fd=here))
    if not same_file(seen, os.stat(name, dir_fd=here, follow_symlinks=False)):
        return None
    blob = object_id(b"blob", target)
    return Content(blob, Entry.of(LINK, blob, seen), seen.st_size, seen.st_nlink, target)


def _read_all(descriptor: int, size: int) -> bytes:
    """The content of a file; usually it still has its size, and one call is enough."""
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while (piece := os.read(descriptor, CHUNK)) and sum(map(len, pieces)) <= _IN_MEMORY:
        pieces.append(piece)
    return b"".join(pieces)


def holds(worktree: Worktree, path: bytes, seen: os.stat_result, mode: int, name: str) -> bool:
    """Whether a path has the type and content of a tree entry with this git mode and object id."""
    if stat.S_ISDIR(seen.st_mode) or mode == DIRECTORY:
        return stat.S_ISDIR(seen.st_mode) and mode == DIRECTORY
    if stat.S_ISLNK(seen.st_mode) or mode == LINK:
        both = stat.S_ISLNK(seen.st_mode) and mode == LINK
        return both and object_id(b"blob", worktree.readlink(path)) == name
    if not stat.S_ISREG(seen.st_mode):
        return False
    descriptor = worktree.open(path)
    try:
        return stream_id(descriptor, seen.st_size) == name
    finally:
        os.close(descriptor)


# --- storing -----------------------------------------------------------------------------------------

Read = Callable[[bytes], Content | NotCaptured]

# With more files, they are compressed as fast as possible.
_FEW = 100
BATCH_FILES = 64
_BATCH_BYTES = 4 << 20


class Stored(NamedTuple):
    """What came of some files: those that are captured and stored, and the others."""

    entries: dict[bytes, Entry]
    linked: list[bytes]
    """Captured files with several hard links."""
    left_out: dict[bytes, str | None]
    """Why the others are not captured; None: they do not exist."""

    @property
    def files(self) -> int:
        return len(self.entries) + len(self.left_out)


def store_files(
    worktree: Worktree, paths: Sequence[bytes], read: Read, objects: NewObjects, deadline: Deadline
) -> Iterator[Stored]:
    """Read files and store their content, batch by batch. If the deadline passes, what was read until then is
    returned before the error is raised."""
    if len(paths) > _FEW:
        objects.expect_many()
    done = 0
    while done < len(paths):
        batch = paths[done : done + BATCH_FILES]
        stored = store_batch(worktree, batch, read, objects, deadline, done, len(paths))
        done += stored.files
        yield stored


def store_batch(
    worktree: Worktree,
    paths: Sequence[bytes],
    read: Read,
    objects: NewObjects,
    deadline: Deadline,
    done: int = 0,
    total: int = 0,
) -> Stored:
    """Read files and store their content, one after the other until it was much. If the deadline passes before the
    first of them, the error is raised."""
    contents: dict[bytes, Content | NotCaptured] = {}
    size = 0
    for number, path in enumerate(paths):
        try:
            deadline.check("reading files", done + number, total)
        except DeadlineExceeded:
            if number == 0:
                raise
            break
        content = contents[path] = read(path)
        if isinstance(content, Content):
            size += content.size
            if size > _BATCH_BYTES:
                break
    _read_moved_again(worktree, contents, read)
    stored = Stored({}, [], {})
    for path, content in contents.items():
        if isinstance(content, NotCaptured):
            stored.left_out[path] = content.why
            continue
        if content.data is not None:
            objects.write(b"blob", content.data, content.id)
        stored.entries[path] = content.entry
        if content.links > 1:
            stored.linked.append(path)
    return stored


def _read_moved_again(worktree: Worktree, contents: dict[bytes, Content | NotCaptured], read: Read) -> None:
    """Read files again whose directory was moved meanwhile: it may have been outside the project by then."""
    for attempt in range(3):
        moved = worktree.take_moved()
        if not moved:
            return
        for path in contents:
            if folder_of(path) in moved:
                contents[path] = NotCaptured("changing") if attempt == 2 else read(path)
