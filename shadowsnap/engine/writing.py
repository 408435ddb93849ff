"""Putting what was read into the store."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from shadowsnap.engine.files import Content, Left
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.index import Known
from shadowsnap.git.pack import Deflated, deflate

TYPE_CHECKING = False
if TYPE_CHECKING:  # most snapshots need one thread
    from concurrent.futures import Future

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
