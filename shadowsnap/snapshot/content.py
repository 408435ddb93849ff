"""Reading files for a capture and writing their content to the store.

A file is filtered by its stat data before it is opened, and captured only if it does not change while it is read.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.index import Known
from shadowsnap.git.objects import CHUNK, Compress, fast_zlib, object_id, stream_id
from shadowsnap.git.packs import Deflated, deflate
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR, path_problem
from shadowsnap.records import NamedTuple
from shadowsnap.settings import Settings
from shadowsnap.snapshot.secrets import is_secret
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, same_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future

# Larger files are streamed, so that memory stays bounded.
_IN_MEMORY = CHUNK


class Content(NamedTuple):
    """A file as it was read."""

    mode: int
    id: str
    stat: os.stat_result
    data: bytes | None
    """None for a large file, which is read again when it is written."""


class NotCaptured(Exception):
    """A file that is skipped; `why` is None if it does not exist."""

    def __init__(self, why: str | None) -> None:
        super().__init__(why)
        self.why = why


# --- reading -----------------------------------------------------------------------------------------


def read_file(space: Workspace, path: bytes, *, unfiltered: bool = False, tracked: bool = False) -> Content:
    """Read a file, or raise `NotCaptured`. `unfiltered` ignores the limits on sizes and names. A file that the
    user's git tracks is no secret, whatever its name."""
    if path_problem(path) is not None:
        raise NotCaptured("unstorable")
    if not unfiltered and not tracked and is_left_out(path, space.settings):
        raise NotCaptured("secret" if _exists(space, path) else None)
    for _ in range(2):
        try:
            content = _attempt(space, path, None if unfiltered else space.settings.max_file_bytes)
        except OSError:
            raise NotCaptured("unreadable" if _exists(space, path) else None) from None
        if content is not None:
            return content
    raise NotCaptured("changing")


def is_left_out(path: bytes, settings: Settings) -> bool:
    """Whether a file is left out because of its name."""
    return not settings.include_secrets and is_secret(path, settings.capture_secrets)


def _exists(space: Workspace, path: bytes) -> bool:
    """Whether something exists there, other than a directory."""
    try:
        seen = space.worktree.lstat(path)
    except OSError:
        return True  # no permission to look
    return seen is not None and not stat.S_ISDIR(seen.st_mode)


def _attempt(space: Workspace, path: bytes, limit: int | None) -> Content | None:
    """None if the file changed while it was read."""
    seen = space.worktree.lstat(path)
    if seen is None or stat.S_ISDIR(seen.st_mode):
        raise NotCaptured("unreadable" if seen is None and space.worktree.is_too_long(path) else None)
    if stat.S_ISLNK(seen.st_mode):
        return _read_link(space, path, seen)
    if not stat.S_ISREG(seen.st_mode):
        raise NotCaptured("special")
    if limit is not None and seen.st_size > limit:
        raise NotCaptured("too-large")
    descriptor = space.worktree.open(path)
    try:
        if not same_file(seen, os.fstat(descriptor)):  # replaced meanwhile: do not read from it
            return None
        data = None if seen.st_size > _IN_MEMORY else _read_all(descriptor, seen.st_size)
        name = stream_id(descriptor, seen.st_size) if data is None else object_id(b"blob", data)
        if not same_file(seen, os.fstat(descriptor)):
            return None
    finally:
        os.close(descriptor)
    return Content(EXECUTABLE if seen.st_mode & 0o100 else REGULAR, name, seen, data)


def _read_link(space: Workspace, path: bytes, seen: os.stat_result) -> Content | None:
    target = space.worktree.readlink(path)
    if path.rpartition(b"/")[2].lower() == b".gitmodules":
        raise NotCaptured("unstorable")  # git refuses such a link in an index
    again = space.worktree.lstat(path)
    if again is None or not same_file(seen, again):
        return None
    return Content(LINK, object_id(b"blob", target), seen, target)


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


# --- writing -----------------------------------------------------------------------------------------

Read = Callable[[bytes], Content | NotCaptured]
Result = tuple[bytes, Content | NotCaptured]
_Compressed = tuple[bytes, Content | NotCaptured, Deflated | None]

# For so few files, starting threads costs more than it saves.
_FEW = 100
_BATCH_BYTES = 1 << 18
_BATCH_FILES = 64


def write_contents(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    """Read each path and store its content, unless the store is known to have it. If the deadline passes, what was
    read so far is stored before the error is raised: the next attempt continues from there."""
    spread = _by_all_cores if len(paths) > _FEW else _by_this_thread
    yield from spread(space, _batches(space, paths, read, known))


def _by_this_thread(space: Workspace, batches: Iterator[list[Result]]) -> Iterator[Result]:
    for batch in batches:
        yield from _store(space, _compress(batch, zlib.compress))


def _by_all_cores(space: Workspace, batches: Iterator[list[Result]]) -> Iterator[Result]:
    """This thread reads, others compress. What is read ahead is bounded."""
    from concurrent.futures import ThreadPoolExecutor  # a small capture does not need it

    workers, compress = os.cpu_count() or 2, fast_zlib().compress
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[list[_Compressed]]] = deque()
        exceeded = None
        try:
            for batch in batches:
                pending.append(pool.submit(_compress, batch, compress))
                if len(pending) > 8 * workers:
                    yield from _store(space, pending.popleft().result())
        except DeadlineExceeded as problem:
            exceeded = problem
        while pending:
            yield from _store(space, pending.popleft().result())
    if exceeded is not None:
        raise exceeded


def _batches(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[list[Result]]:
    """The files as they are read, in batches that are worth handing to another thread."""
    batch: list[Result] = []
    size = 0
    for path in paths:
        try:
            content = read(path)
        except DeadlineExceeded:
            yield batch
            raise
        if isinstance(content, Content):
            if _is_stored(space, path, content, known):
                content = content._replace(data=None)
            elif content.data is None:
                content = _write_stream(space, path, content)
            else:
                size += len(content.data)
        batch.append((path, content))
        if size >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_stored(space: Workspace, path: bytes, content: Content, known: Mapping[bytes, Known]) -> bool:
    if path not in known or known[path].id != content.id:
        return False
    try:  # a power failure may have left it empty
        return os.stat(space.store.git_dir / "objects" / content.id[:2] / content.id[2:]).st_size > 0
    except FileNotFoundError:
        return True  # in a pack


def _write_stream(space: Workspace, path: bytes, content: Content) -> Content | NotCaptured:
    """Read a large file a second time, into the store."""
    try:
        descriptor = space.worktree.open(path)
    except OSError:
        return NotCaptured("changing")
    try:
        unchanged = space.objects.write_stream(descriptor, content.stat.st_size, content.id)
    finally:
        os.close(descriptor)
    return content if unchanged else NotCaptured("changing")


def _compress(batch: list[Result], compress: Compress) -> list[_Compressed]:
    return [
        (path, content, None)
        if isinstance(content, NotCaptured) or content.data is None
        else (path, content._replace(data=None), deflate(b"blob", content.data, content.id, compress))
        for path, content in batch
    ]


def _store(space: Workspace, batch: list[_Compressed]) -> Iterator[Result]:
    for path, content, deflated in batch:
        if deflated is not None:
            space.objects.add(deflated)
        yield path, content
