"""Reading one file for a capture: filtered before it is read, and only if it holds still."""

from __future__ import annotations

import os
import stat

from shadowsnap.config import Settings
from shadowsnap.engine.secrets import is_secret
from shadowsnap.engine.workspace import Workspace
from shadowsnap.engine.worktree import Worktree, same_file
from shadowsnap.git.names import path_problem
from shadowsnap.git.objects import CHUNK, object_id, stream_id
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR
from shadowsnap.records import NamedTuple

IN_MEMORY = CHUNK
"""Larger files are streamed, so that memory stays bounded."""


class Content(NamedTuple):
    """A file as it was read."""

    mode: int
    id: str
    stat: os.stat_result
    data: bytes | None
    """None for a large file, which is read once more when it is written."""

    def without_data(self) -> Content:
        return Content(self.mode, self.id, self.stat, None)


class Left(Exception):
    """A file that is not captured; `why` is None if there is none."""

    def __init__(self, why: str | None) -> None:
        super().__init__(why)
        self.why = why


def read_file(space: Workspace, path: bytes, *, unfiltered: bool = False, tracked: bool = False) -> Content:
    """Read a file that holds still; raises `Left` for what is not captured. What the person's git tracks is no
    secret any more, whatever its name."""
    if path_problem(path) is not None:
        raise Left("unstorable")
    if not unfiltered and not tracked and is_left_out(path, space.settings):
        raise Left("secret" if _exists(space, path) else None)
    for _ in range(2):
        try:
            content = _attempt(space, path, None if unfiltered else space.settings.max_file_bytes)
        except OSError:
            raise Left("unreadable" if _exists(space, path) else None) from None
        if content is not None:
            return content
    raise Left("changing")


def is_left_out(path: bytes, settings: Settings) -> bool:
    """Whether the settings leave a file out for its name."""
    return not settings.include_secrets and is_secret(path, settings.capture_secrets)


def _attempt(space: Workspace, path: bytes, limit: int | None) -> Content | None:
    """None if the file changed while it was read."""
    seen = space.worktree.lstat(path)
    if seen is None or stat.S_ISDIR(seen.st_mode):
        raise Left("unreadable" if seen is None and space.worktree.is_too_long(path) else None)
    if stat.S_ISLNK(seen.st_mode):
        return _link(space, path, seen)
    if not stat.S_ISREG(seen.st_mode):
        raise Left("special")
    if limit is not None and seen.st_size > limit:
        raise Left("too-large")
    descriptor = space.worktree.open(path)
    try:
        if not same_file(seen, os.fstat(descriptor)):  # whatever it is by now, nothing is taken out of it
            return None
        data = None if seen.st_size > IN_MEMORY else _bytes(descriptor, seen.st_size)
        name = stream_id(descriptor, seen.st_size) if data is None else object_id(b"blob", data)
        if not same_file(seen, os.fstat(descriptor)):
            return None
    finally:
        os.close(descriptor)
    return Content(EXECUTABLE if seen.st_mode & 0o100 else REGULAR, name, seen, data)


def _link(space: Workspace, path: bytes, seen: os.stat_result) -> Content | None:
    target = space.worktree.readlink(path)
    if path.rpartition(b"/")[2].lower() == b".gitmodules":
        raise Left("unstorable")  # git refuses such a link in an index
    again = space.worktree.lstat(path)
    if again is None or not same_file(seen, again):
        return None
    return Content(LINK, object_id(b"blob", target), seen, target)


def _bytes(descriptor: int, size: int) -> bytes:
    """All that a file holds; it is most often as long as it was."""
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while (piece := os.read(descriptor, CHUNK)) and sum(map(len, pieces)) <= IN_MEMORY:
        pieces.append(piece)
    return b"".join(pieces)


def holds(worktree: Worktree, path: bytes, seen: os.stat_result, mode: int, name: str) -> bool:
    """Whether there is what a tree says with this mode and object: a directory, a link, or a file with this
    content."""
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


def _exists(space: Workspace, path: bytes) -> bool:
    """Whether there is anything, other than a directory."""
    try:
        seen = space.worktree.lstat(path)
    except OSError:
        return True  # it cannot even be looked at
    return seen is not None and not stat.S_ISDIR(seen.st_mode)
