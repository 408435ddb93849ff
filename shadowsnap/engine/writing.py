"""Putting what was read into the store: a few files as loose objects, many as one pack."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from shadowsnap.engine.files import Content, Left
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.index import Known

TYPE_CHECKING = False
if TYPE_CHECKING:  # most snapshots write a few loose objects
    from concurrent.futures import Future

    from shadowsnap.git.pack import Deflated, PackWriter

    _Prepared = tuple[bytes, Content | Left, Deflated | None]

_FEW, _FEW_FLUSHED = 100, 8

Read = Callable[[bytes], Content | Left]
Result = tuple[bytes, Content | Left]

_PORTION = 1 << 20
_MOST_FILES = 256


def write_contents(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    """Read each path and store its content, unless the store is known to have it."""
    if len(paths) > few(space):
        packed = _packed if len(paths) > _FEW else _packed_at_once
        yield from packed(space, paths, read, known)
        return
    for path in paths:
        content = read(path)
        if isinstance(content, Content) and not _stored(space, path, content, known):
            content = _write_loose(space, path, content)
        yield path, content


def few(space: Workspace) -> int:
    """Up to so many objects are written loose. Where they are to be flushed, each costs a flush of its
    own; a pack costs two, whatever is in it."""
    return _FEW_FLUSHED if space.store.fsync and space.lasting else _FEW


@contextmanager
def writing_trees(space: Workspace, many: bool) -> Iterator[Callable[[bytes], str]]:
    """How to write trees; many of them are there when the block is over."""
    if not many:
        yield lambda data: space.objects.write(b"tree", data)
        return
    from shadowsnap.git.pack import deflate

    pack = _new_pack(space)
    try:
        yield lambda data: pack.add(deflate(b"tree", data))
        pack.finish()
    finally:
        pack.abandon()


def _packed(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    """One pack for all. This thread reads, others compress; what is read ahead is bounded."""
    from concurrent.futures import ThreadPoolExecutor

    workers = os.cpu_count() or 2
    pack = _new_pack(space)
    try:
        with ThreadPoolExecutor(workers) as pool:
            pending: deque[Future[list[_Prepared]]] = deque()
            late = None
            try:
                for batch in _batches(space, paths, read, known):
                    pending.append(pool.submit(_compressed, batch))
                    if len(pending) > 2 * workers:
                        yield from _added(pack, pending.popleft().result())
            except DeadlineExceeded as problem:
                late = problem  # the next attempt goes on from what was read
            while pending:
                yield from _added(pack, pending.popleft().result())
        pack.finish()
        if late is not None:
            raise late
    finally:
        pack.abandon()


def _packed_at_once(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    """The same for not so many: other threads would cost more than they save."""
    pack = _new_pack(space)
    late = None
    try:
        try:
            for batch in _batches(space, paths, read, known):
                yield from _added(pack, _compressed(batch))
        except DeadlineExceeded as problem:
            late = problem
        pack.finish()
        if late is not None:
            raise late
    finally:
        pack.abandon()


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
                content = _write_loose(space, path, content)
            else:
                size += len(content.data)
        batch.append((path, content))
        if size >= _PORTION or len(batch) >= _MOST_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _compressed(batch: list[Result]) -> list[_Prepared]:
    from shadowsnap.git.pack import deflate

    return [
        (path, content, None)
        if isinstance(content, Left) or content.data is None
        else (path, content.without_data(), deflate(b"blob", content.data, content.id))
        for path, content in batch
    ]


def _added(pack: PackWriter, batch: list[_Prepared]) -> Iterator[Result]:
    for path, content, deflated in batch:
        if deflated is not None:
            pack.add(deflated)
        yield path, content


def _new_pack(space: Workspace) -> PackWriter:
    from shadowsnap.git.pack import PackWriter

    return PackWriter(space.objects.directory, fsync=space.store.fsync and space.lasting)


def _stored(space: Workspace, path: bytes, content: Content, known: Mapping[bytes, Known]) -> bool:
    if path not in known or known[path].id != content.id:
        return False
    try:  # a power cut may have emptied it
        return os.stat(space.store.git_dir / "objects" / content.id[:2] / content.id[2:]).st_size > 0
    except FileNotFoundError:
        return True  # in a pack


def _write_loose(space: Workspace, path: bytes, content: Content) -> Content | Left:
    if content.data is not None:
        space.objects.write(b"blob", content.data)
        return content.without_data()
    try:
        descriptor = space.worktree.open(path)
    except OSError:
        return Left("changing")
    try:
        unchanged = space.objects.write_stream(descriptor, content.stat.st_size, content.id)
    finally:
        os.close(descriptor)
    return content if unchanged else Left("changing")
