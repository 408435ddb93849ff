"""Objects on their way into the store."""

from __future__ import annotations

from pathlib import Path

from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.pack import Deflated, PackWriter, deflate


class NewObjects:
    """What one operation adds to an object directory. Together it becomes one pack when `settle` says
    so: each object as a file of its own would cost a snapshot of one changed file a dozen new files
    and directories, and a flush for each of them. A large file is a loose object, so that going
    back and forth between two versions of it does not take up its size each time.

    An object that is in the store already is written again: a damaged or empty one is thereby
    replaced, never trusted.
    """

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        self.directory = directory
        self._fsync = fsync
        self._loose = LooseObjects(directory, fsync=fsync)
        self._pack: PackWriter | None = None
        self._trees: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}

    def write(self, kind: bytes, data: bytes) -> str:
        name = self.add(deflate(kind, data))
        if kind == b"tree":
            self._trees[name] = data
        return name

    def add(self, item: Deflated) -> str:
        if self._pack is None:
            self._pack = PackWriter(self.directory, fsync=self._fsync)
        self._sizes[item.id] = item.size
        return self._pack.add(item)

    def write_stream(self, descriptor: int, size: int, name: str) -> bool:
        """Write the blob `name` of `size` bytes from an open file; False if the file no longer
        holds what was named."""
        return self._loose.write_stream(descriptor, size, name)

    def unsettled_tree(self, name: str) -> bytes | None:
        """A tree that nobody else can read yet."""
        return self._trees.get(name)

    def unsettled_size(self, name: str) -> int | None:
        """How long an object is that nobody else can read yet."""
        return self._sizes.get(name)

    def settle(self) -> None:
        """Make everything written so far readable for git, and make it survive a power cut; to be
        called before a ref is made that needs it."""
        if self._pack is not None:
            try:
                self._pack.finish()
            finally:
                self.abandon()
        self._loose.settle()

    def abandon(self) -> None:
        """Forget what is not settled."""
        if self._pack is not None:
            self._pack.abandon()
            self._pack = None
        self._trees.clear()
        self._sizes.clear()
