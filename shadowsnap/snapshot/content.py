"""Reading files for a capture and writing their content to the store.

A file is filtered by its stat data before it is opened, and captured only if it does not change while it is read.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.index import Entry, Known
from shadowsnap.git.objects import CHUNK, Compress, fast_zlib, object_id, stream_id
from shadowsnap.git.packs import Deflated, deflate
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, LINK, REGULAR, path_problem
from shadowsnap.settings import Settings
from shadowsnap.snapshot.secrets import is_secret
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree, same_file

# Larger files are streamed, so that memory stays bounded.
_IN_MEMORY = CHUNK


class Content(NamedTuple):
    """A file as it was read."""

    id: str
    entry: Entry
    size: int
    links: int
    data: bytes | None
    """None for a large file, which is read again when it is written."""
    is_stored: bool = False


class NotCaptured(NamedTuple):
    """A file that is skipped; `why` is None if it does not exist."""

    why: str | None


# --- reading -----------------------------------------------------------------------------------------


def read_file(
    worktree: Worktree, settings: Settings, path: bytes, *, unfiltered: bool = False, tracked: bool = False
) -> Content | NotCaptured:
    """Read a file. `unfiltered` ignores the limits on sizes and names. A file that the user's git tracks is no
    secret, whatever its name."""
    if path_problem(path) is not None:
        return NotCaptured("unstorable")
    if not unfiltered and not tracked and is_left_out(path, settings):
        return NotCaptured("secret" if _exists(worktree, path) else None)
    for _ in range(2):
        try:
            content = _attempt(worktree, path, None if unfiltered else settings.max_file_bytes)
        except OSError:
            return NotCaptured("unreadable" if _exists(worktree, path) else None)
        if content is not None:
            return content
    return NotCaptured("changing")


def is_left_out(path: bytes, settings: Settings) -> bool:
    """Whether a file is left out because of its name."""
    return not settings.include_secrets and is_secret(path, settings.capture_secrets)


def _exists(worktree: Worktree, path: bytes) -> bool:
    """Whether something exists there, other than a directory."""
    try:
        seen = worktree.lstat(path)
    except OSError:
        return True  # no permission to look
    return seen is not None and not stat.S_ISDIR(seen.st_mode)


def _attempt(worktree: Worktree, path: bytes, limit: int | None) -> Content | NotCaptured | None:
    """None if the file changed while it was read."""
    seen = worktree.lstat(path)
    if seen is None or stat.S_ISDIR(seen.st_mode):
        return NotCaptured("unreadable" if seen is None and worktree.is_too_long(path) else None)
    if stat.S_ISLNK(seen.st_mode):
        return _read_link(worktree, path, seen)
    if not stat.S_ISREG(seen.st_mode):
        return NotCaptured("special")
    size = seen.st_size
    if limit is not None and size > limit:
        return NotCaptured("too-large")
    descriptor = worktree.open(path)
    try:
        if not same_file(seen, os.fstat(descriptor)):  # replaced meanwhile: do not read from it
            return None
        data = None if size > _IN_MEMORY else _read_all(descriptor, size)
        name = stream_id(descriptor, size) if data is None else object_id(b"blob", data)
        if not same_file(seen, os.fstat(descriptor)):
            return None
    finally:
        os.close(descriptor)
    mode = EXECUTABLE if seen.st_mode & 0o100 else REGULAR
    return Content(name, Entry.of(mode, name, seen), size, seen.st_nlink, data)


def _read_link(worktree: Worktree, path: bytes, seen: os.stat_result) -> Content | NotCaptured | None:
    target = worktree.readlink(path)
    if path.rpartition(b"/")[2].lower() == b".gitmodules":
        return NotCaptured("unstorable")  # git refuses such a link in an index
    again = worktree.lstat(path)
    if again is None or not same_file(seen, again):
        return None
    name = object_id(b"blob", target)
    return Content(name, Entry.of(LINK, name, seen), seen.st_size, seen.st_nlink, target)


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
Compressed = tuple[bytes, Content | NotCaptured, Deflated | None]
Batch = tuple[list[Compressed], Sequence[bytes]]
"""Files that were read, and the paths that are left."""

# For so few files, starting threads costs more than it saves.
_FEW = 100
# For more new files than this, other processes help: it takes the time of a thousand files to start one.
_MANY = 4000
_BATCH_BYTES = 1 << 18
_BATCH_FILES = 64
# A process that takes longer for a batch was stopped, or hangs: this process can do without it.
_PATIENCE_SECONDS = 3.0


def write_contents(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known], *, plain: bool = False
) -> Iterator[Result]:
    """Read each path and store its content, unless the store is known to have it. If the deadline passes, what was
    read so far is stored before the error is raised: the next attempt continues from there. `plain`: `read` does
    the same as `read_file`, so that another process can do it."""

    def read_new(path: bytes) -> Content | NotCaptured:
        content = read(path)
        if isinstance(content, Content) and path in known and _is_stored(space, content, known[path]):
            return content._replace(data=None, is_stored=True)
        return content

    batches = deque(paths[at : at + _BATCH_FILES] for at in range(0, len(paths), _BATCH_FILES))
    if len(paths) <= _FEW:
        answers = _by_this_thread(space, batches, read_new)
    else:
        answers = _by_all_cores(space, batches, read_new, helped=plain and not known and len(paths) > _MANY)
    done, exceeded = 0, None
    for batch in answers:
        for path, content, deflated in batch:
            try:
                if exceeded is None:
                    space.deadline.check("reading files", done, len(paths))
            except DeadlineExceeded as problem:
                exceeded = problem
            if deflated is not None:
                space.objects.add(deflated)
            elif isinstance(content, Content) and not content.is_stored:
                content = _write_stream(space, path, content)
            done += 1
            yield path, content
        if exceeded is not None:
            batches.clear()  # what is under way still comes
    if exceeded is not None:
        raise exceeded


def _by_this_thread(space: Workspace, batches: deque[Sequence[bytes]], read: Read) -> Iterator[list[Compressed]]:
    while batches:
        batch, rest = read_batch(batches.popleft(), read, zlib.compress, space.deadline)
        if rest:
            batches.appendleft(rest)
        yield batch


def _by_all_cores(
    space: Workspace, batches: deque[Sequence[bytes]], read: Read, *, helped: bool
) -> Iterator[list[Compressed]]:
    """Other threads, or processes, read, hash and compress. What waits to be stored is bounded."""
    from shadowsnap.snapshot.readers import reading_processes  # here: it imports this module

    workers, compress = os.cpu_count() or 2, fast_zlib().compress
    pending: deque[Future[Batch]] = deque()
    with (
        reading_processes(space.worktree, space.settings, workers if helped else 0) as (ask, give_up),
        ThreadPoolExecutor(workers) as pool,
    ):

        def work(paths: Sequence[bytes]) -> Batch:
            return ask(paths) or read_batch(paths, read, compress, space.deadline)

        while batches or pending:
            while batches and len(pending) < 4 * workers:
                pending.append(pool.submit(work, batches.popleft()))
            answer = pending.popleft()
            if not wait([answer], _PATIENCE_SECONDS).done:
                give_up()
            batch, rest = answer.result()
            if rest:
                batches.appendleft(rest)
            yield batch


def read_batch(paths: Sequence[bytes], read: Read, compress: Compress, deadline: Deadline) -> Batch:
    """Read and compress files until there are enough bytes or the time is over."""
    batch: list[Compressed] = []
    size = 0
    for path in paths:
        if size >= _BATCH_BYTES or (batch and deadline.remaining() == 0):
            break
        content, deflated = read(path), None
        if isinstance(content, Content) and content.data is not None:
            deflated = deflate(b"blob", content.data, content.id, compress)
            content = content._replace(data=None)
            size += len(deflated.payload)
        batch.append((path, content, deflated))
    return batch, paths[len(batch) :]


def _is_stored(space: Workspace, content: Content, known: Known) -> bool:
    if known.id != content.id:
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
        unchanged = space.objects.write_stream(descriptor, content.size, content.id)
    finally:
        os.close(descriptor)
    return content if unchanged else NotCaptured("changing")
