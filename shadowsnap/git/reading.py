"""Reading objects, without a process where that is possible: loose ones and those in packs are read
here, and whatever else there is, is asked of one `cat-file --batch`."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from shadowsnap.errors import DamagedObject
from shadowsnap.git.objects import CHUNK, object_id
from shadowsnap.git.packed import MOST_IN_MEMORY, Packs
from shadowsnap.git.runner import Git

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    from shadowsnap.git.processes import Process

FEW = 20
"""So many objects are looked up sooner than git is started."""


class ObjectReader:
    """Reads objects: trees that are still on their way into the store, loose objects and packed ones
    directly, all others through one git process that is started when the first of them is wanted,
    or through the one that `git` is bound to."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._folders = _folders(git)
        shared = git.batch if git.batch is not None and git.batch.serves(git) else None
        self._batch = shared or Batch(git)
        self._is_shared = shared is not None

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_shared:
            self._batch.close()

    def read(self, name: str, kind: bytes) -> bytes:
        if self._git.new is not None:
            if (tree := self._git.new.unsettled_tree(name)) is not None:
                return tree
            if self._git.new.unsettled_size(name) is not None:
                self._git.new.settle()
        packs = self._batch.packs
        found, data = packs.read(name, in_known=True) or self._loose(name, kind)
        if not found:
            found, data = packs.read(name) or self._batch.ask(name)
            if found and object_id(found, data) != name:  # git does not check what it answers
                found = b""
        self._git.deadline.check("reading objects")
        if found != kind:
            raise DamagedObject(id=name)
        return data

    def size(self, name: str) -> int | None:
        """How long an object is; None if it is not found without git."""
        if self._git.new is not None and (size := self._git.new.unsettled_size(name)) is not None:
            return size
        for folder in self._folders:
            try:
                with open(folder / name[:2] / name[2:], "rb") as file:
                    header = zlib.decompressobj().decompress(file.read(128), 64).partition(b"\0")[0]
                return int(header.split(b" ")[1])
            except (OSError, zlib.error, IndexError, ValueError):
                continue
        return self._batch.packs.size(name)

    def _loose(self, name: str, kind: bytes) -> tuple[bytes, bytes]:
        """Kind and content of an object that is a file of its own; no kind if there is none."""
        for folder in self._folders:
            try:
                with open(f"{folder}/{name[:2]}/{name[2:]}", "rb") as file:
                    data = _inflated(file)
            except (OSError, ValueError, IndexError, zlib.error):
                continue  # not loose here, or damaged: git may still have it in a pack
            if object_id(kind, data) == name:  # else something else is under this name
                return kind, data
        return b"", b""


class Batch:
    """The packs, and one `cat-file --batch` for many questions, started by
    the first. A `Git` that is bound to it shares it among all readers."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self.packs = Packs(*_folders(git))
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
            if size > MOST_IN_MEMORY:
                self.close()  # whatever is behind it is not read
                return b"", b""
            data = _received(self._process.stdout, size + 1)[:-1]
        except OSError:
            header, size, data = [], -1, b""
        if not header or len(data) < size:  # git died of it: the next object gets another
            self.close()
        return (header[1], data) if len(data) == size else (b"", b"")

    def close(self) -> None:
        self._stack.close()
        self._process = None


def _inflated(file: IO[bytes]) -> bytes:
    """The content of a loose object: as much as it says that it has, and no more than fits into memory."""
    inflate = zlib.decompressobj()
    packed = file.read(CHUNK)
    header, _, data = inflate.decompress(packed, 64).partition(b"\0")
    size = int(header.split(b" ")[1])
    if size > MOST_IN_MEMORY:
        raise ValueError("it is too large")
    parts, left = [data], size - len(data)
    packed = inflate.unconsumed_tail
    while left > 0 and not inflate.eof:
        packed = packed or file.read(CHUNK)
        if not packed:
            break
        parts.append(inflate.decompress(packed, min(left + 1, CHUNK)))
        left -= len(parts[-1])
        packed = inflate.unconsumed_tail
    if left:
        raise ValueError("it has another size than it says")
    return b"".join(parts)


def _received(stream: IO[bytes], size: int) -> bytes:
    """So many bytes, if they come. Git believes the size that a damaged pack tells; Python would make room
    for all of it first."""
    parts: list[bytes] = []
    while size > 0 and (part := stream.read(min(size, CHUNK))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _folders(git: Git) -> list[Path]:
    """Where objects are looked for, in this order."""
    return [folder for folder in (git.scratch_objects, git.git_dir / "objects") if folder is not None]


def missing_objects(git: Git, names: Collection[str]) -> list[str]:
    """Which of these are not in the store, or cannot even be opened there."""
    there = object_sizes(git, sorted(names))
    return [name for name in sorted(names) if name not in there]


def check_stored(git: Git, wanted: Collection[str], irreplaceable: Collection[str]) -> None:
    """See to it that objects are in the store. Those that are `wanted` will be read soon, so it is enough that
    they are there; what is irreplaceable must prove to be what was stored."""
    packs = git.batch.packs if git.batch is not None and git.batch.serves(git) else Packs(*_folders(git))
    doubtful = {*irreplaceable} - packs.held(irreplaceable, sound=True)
    packed = packs.held(doubtful)
    with ObjectReader(git) as reader:
        for name in sorted(packed):  # its pack is very large, or it is damaged there
            reader.read(name, b"blob")
    for lost in missing_objects(git, doubtful - packed | ({*wanted} - packs.held(wanted))):
        raise DamagedObject(id=lost)


def object_sizes(git: Git, names: list[str]) -> dict[str, int]:
    """Name -> size of those that are in the store."""
    found: dict[str, int] = {}
    if len(names) <= FEW:
        with ObjectReader(git) as reader:
            found = {name: size for name in names if (size := reader.size(name)) is not None}
        names = [name for name in names if name not in found]
    if not names:
        return found
    answer = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer", stdin=_lines(names))
    rows = (line.split() for line in answer.splitlines() if not line.endswith(b" missing"))
    return found | {name.decode(): int(size) for name, size in rows}


def _lines(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
