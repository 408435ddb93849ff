"""Reading one file for a capture: filtered before it is read, and only if it holds still."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.index import Known
from shadowsnap.git.objects import CHUNK, object_id, stream_id
from shadowsnap.git.packs import Deflated, deflate
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR, path_problem
from shadowsnap.records import NamedTuple
from shadowsnap.settings import Settings
from shadowsnap.snapshot.secrets import is_secret
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, same_file

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from concurrent.futures import Future

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


_Prepared = tuple[bytes, Content | Left, Deflated | None]

_FEW = 100
"""For so few files, other threads would cost more than they save."""

Read = Callable[[bytes], Content | Left]
Result = tuple[bytes, Content | Left]

_PORTION = 1 << 18
_MOST_FILES = 64


def write_contents(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    """Read each path and store its content, unless the store is known to have it. If the deadline ends
    it, what was read until then is stored, so that the next attempt can go on from there."""
    spread = _by_all_cores if len(paths) > _FEW else _by_this_thread
    yield from spread(space, _batches(space, paths, read, known))


def _by_this_thread(space: Workspace, batches: Iterator[list[Result]]) -> Iterator[Result]:
    for batch in batches:
        yield from _added(space, _compressed(batch))


def _by_all_cores(space: Workspace, batches: Iterator[list[Result]]) -> Iterator[Result]:
    """This thread reads, others compress; what is read ahead is bounded."""
    from concurrent.futures import ThreadPoolExecutor

    workers = os.cpu_count() or 2
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[list[_Prepared]]] = deque()
        late = None
        try:
            for batch in batches:
                pending.append(pool.submit(_compressed, batch))
                if len(pending) > 8 * workers:
                    yield from _added(space, pending.popleft().result())
        except DeadlineExceeded as problem:
            late = problem
        while pending:
            yield from _added(space, pending.popleft().result())
    if late is not None:
        raise late


def _batches(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[list[Result]]:
    """Files that were read, in portions that are worth handing to another thread."""
    batch: list[Result] = []
    size = 0
    for path in paths:
        try:
            content = read(path)
        except DeadlineExceeded:
            yield batch
            raise
        if isinstance(content, Content):
            if _stored(space, path, content, known):
                content = content.without_data()
            elif content.data is None:
                content = _write_stream(space, path, content)
            else:
                size += len(content.data)
        batch.append((path, content))
        if size >= _PORTION or len(batch) >= _MOST_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compressed(batch: list[Result]) -> list[_Prepared]:
    return [
        (path, content, None)
        if isinstance(content, Left) or content.data is None
        else (path, content.without_data(), deflate(b"blob", content.data, content.id))
        for path, content in batch
    ]


def _added(space: Workspace, batch: list[_Prepared]) -> Iterator[Result]:
    for path, content, deflated in batch:
        if deflated is not None:
            space.objects.add(deflated)
        yield path, content


def _stored(space: Workspace, path: bytes, content: Content, known: Mapping[bytes, Known]) -> bool:
    if path not in known or known[path].id != content.id:
        return False
    try:  # a power cut may have emptied it
        return os.stat(space.store.git_dir / "objects" / content.id[:2] / content.id[2:]).st_size > 0
    except FileNotFoundError:
        return True  # in a pack


def _write_stream(space: Workspace, path: bytes, content: Content) -> Content | Left:
    """Read a large file once more, into the store."""
    try:
        descriptor = space.worktree.open(path)
    except OSError:
        return Left("changing")
    try:
        unchanged = space.objects.write_stream(descriptor, content.stat.st_size, content.id)
    finally:
        os.close(descriptor)
    return content if unchanged else Left("changing")
