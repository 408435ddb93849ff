"""Putting what was read into the store: a few files as loose objects, many as one pack."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from shadowsnap.engine.files import Content, Left
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.index import Known
from shadowsnap.git.pack import PackWriter, deflate

FEW = 100
"""Up to so many objects are written loose."""

Read = Callable[[bytes], Content | Left]
Result = tuple[bytes, Content | Left]


def write_contents(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    """Read each path and store its content, unless the store is known to have it."""
    if len(paths) > FEW:
        yield from _packed(space, paths, read, known)
        return
    for path in paths:
        content = read(path)
        if isinstance(content, Content) and not _stored(path, content, known):
            content = _write_loose(space, path, content)
        yield path, content


def write_trees(space: Workspace, many: bool) -> tuple[Callable[[bytes], str], Callable[[], None]]:
    """How to write trees, and what to call after the last one."""
    if not many:
        return lambda data: space.objects.write(b"tree", data), lambda: None
    pack = _new_pack(space)
    return lambda data: pack.add(deflate(b"tree", data)), pack.finish


def _packed(
    space: Workspace, paths: Sequence[bytes], read: Read, known: Mapping[bytes, Known]
) -> Iterator[Result]:
    pack = _new_pack(space)
    try:
        for path in paths:
            try:
                content = read(path)
            except DeadlineExceeded:
                pack.finish()  # the next attempt goes on from here
                raise
            if isinstance(content, Content) and not _stored(path, content, known):
                if content.data is None:
                    content = _write_loose(space, path, content)
                else:
                    pack.add(deflate(b"blob", content.data))
                    content = content.without_data()
            yield path, content
        pack.finish()
    finally:
        pack.abandon()


def _new_pack(space: Workspace) -> PackWriter:
    return PackWriter(space.objects.directory, fsync=space.store.fsync and space.lasting)


def _stored(path: bytes, content: Content, known: Mapping[bytes, Known]) -> bool:
    return path in known and known[path].id == content.id


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
