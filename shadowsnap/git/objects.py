"""Git objects: naming, writing and reading them without a process where that is possible.

A snapshot writes a handful of objects; starting git for each would cost more than the work.
Loose objects are written here; what is not loose is asked of one `cat-file --batch`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from shadowsnap.digests import sha1
from shadowsnap.errors import DamagedObject
from shadowsnap.git.files import (
    SYNCS_LATER,
    make_read_only,
    open_temporary,
    sync_directory,
    sync_files,
    write_all,
)
from shadowsnap.git.runner import Git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.git.processes import Process

EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

CHUNK = 1 << 20


def object_id(kind: bytes, data: bytes) -> str:
    digest = sha1(b"%s %d\0" % (kind, len(data)), len(data))
    digest.update(data)
    return digest.hexdigest()


def stream_id(descriptor: int, size: int) -> str:
    """The name of the blob that an open file holds."""
    digest = sha1(b"blob %d\0" % size, size)
    while chunk := os.read(descriptor, CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


class LooseObjects:
    """Writes objects into one object directory. An object that is there already is written
    again: a damaged or empty file under the right name is thereby replaced, never trusted."""

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        self.directory = directory
        self._fsync = fsync
        self._unsettled: set[Path] = set()

    def settle(self) -> None:
        """Make everything written so far survive a power cut; to be called before a ref is made
        that needs it."""
        if self._unsettled:
            files = sorted(self._unsettled)
            if SYNCS_LATER:
                sync_files(files)
            for folder in (*sorted({file.parent for file in files}), self.directory):  # where they may be new
                sync_directory(folder)
            self._unsettled.clear()

    def write(self, kind: bytes, data: bytes) -> str:
        name = object_id(kind, data)
        packed = zlib.compress(b"%s %d\0" % (kind, len(data)) + data, 1)
        self._place(name, lambda descriptor: write_all(descriptor, packed))
        return name

    def write_stream(self, descriptor: int, size: int, name: str) -> bool:
        """Write the blob `name` of `size` bytes from an open file; False if the file no longer
        holds what was named."""
        digest = sha1(b"blob %d\0" % size, size)

        def copy(target: int) -> None:
            squeeze = zlib.compressobj(1)
            write_all(target, squeeze.compress(b"blob %d\0" % size))
            while chunk := os.read(descriptor, CHUNK):
                digest.update(chunk)
                write_all(target, squeeze.compress(chunk))
            write_all(target, squeeze.flush())

        return self._place(name, copy, lambda: digest.hexdigest() == name)

    def _place(self, name: str, fill: Callable[[int], None], check: Callable[[], bool] = lambda: True) -> bool:
        folder = self.directory / name[:2]
        place = folder / name[2:]
        descriptor, temporary = open_temporary(folder, "tmp_obj_")
        try:
            try:
                fill(descriptor)
                make_read_only(temporary)
                # A new object waits for `settle`; one that others may rely on is not replaced by what
                # a power cut could take away.
                if self._fsync and (not SYNCS_LATER or place.exists()):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not check():
                return False
            os.replace(temporary, place)
            if self._fsync:
                self._unsettled.add(place)
            return True
        finally:
            temporary.unlink(missing_ok=True)


class ObjectReader:
    """Reads objects: loose ones directly, all others through one git process that is started
    when the first of them is wanted, or through the one that `git` is bound to."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._folders = [git.git_dir / "objects"]
        if git.scratch_objects is not None:
            self._folders.insert(0, git.scratch_objects)
        shared = git.batch if git.batch is not None and git.batch.serves(git) else None
        self._batch = shared or Batch(git)
        self._is_shared = shared is not None

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_shared:
            self._batch.close()

    def read(self, name: str, kind: bytes) -> bytes:
        data = self._loose(name, kind)
        if data is not None:
            return data
        found, data = self._batch.ask(name)
        self._git.deadline.check("reading objects")
        if found != kind:
            raise DamagedObject(id=name)
        return data

    def _loose(self, name: str, kind: bytes) -> bytes | None:
        for folder in self._folders:
            try:
                whole = zlib.decompress((folder / name[:2] / name[2:]).read_bytes())
            except (OSError, zlib.error):
                continue  # not loose here, or damaged: git may still have it in a pack
            header, _, data = whole.partition(b"\0")
            if header == b"%s %d" % (kind, len(data)):
                return data
        return None


class Batch:
    """One `cat-file --batch` for many questions, started by the first. A `Git` that is bound to
    it shares it among all readers."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._stack = ExitStack()
        self._process: Process | None = None

    def serves(self, git: Git) -> bool:
        """Whether another `Git` would give the same answers."""
        ours = self._git
        return (git.git_dir, git.scratch_objects) == (ours.git_dir, ours.scratch_objects)

    def ask(self, name: str) -> tuple[bytes, bytes]:
        """Kind and content of an object; no kind if it is missing or damaged."""
        if self._process is None:
            self._process = self._stack.enter_context(self._git.conversation("cat-file", "--batch"))
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            header = self._process.stdout.readline().split()
            size = int(header[2]) if len(header) == 3 else -1
            data = self._process.stdout.read(size + 1)[:-1] if size >= 0 else b""
        except OSError:
            header, size, data = [], -1, b""
        if not header or len(data) < size:  # git died of it: the next object gets another
            self.close()
        return (header[1], data) if len(data) == size else (b"", b"")

    def close(self) -> None:
        self._stack.close()
        self._process = None


def missing_objects(git: Git, names: list[str]) -> list[str]:
    """Which of these are not in the store, or cannot even be opened there."""
    there = object_sizes(git, names)
    return [name for name in names if name not in there]


def object_sizes(git: Git, names: list[str]) -> dict[str, int]:
    """Name -> size of those that are in the store."""
    if not names:
        return {}
    answer = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=_lines(names))
    rows = (line.split() for line in answer.splitlines() if not line.endswith(b" missing"))
    return {name.decode(): int(size) for name, size in rows}


def _lines(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
