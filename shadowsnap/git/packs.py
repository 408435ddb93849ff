"""Pack files: which there are, what they hold, writing new ones aside and putting them in place.

New packs are written into a scratch directory and moved in when they are complete: whatever
interrupts the writing leaves nothing among the packs.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from shadowsnap.errors import MalformedObject
from shadowsnap.git.files import sync_directory
from shadowsnap.git.repacked import note_repacked
from shadowsnap.git.runner import Git

_FANOUT, _NAMES = 8, 8 + 256 * 4
# A long search for deltas must not need all of the memory, nor all of the processor.
_MODEST = ("pack.threads=1", "pack.windowMemory=128m", "pack.deltaCacheSize=64m", "pack.compression=6")
_QUIET = ("pack-objects", "-q", "--delta-base-offset", "--non-empty")


class Pack(NamedTuple):
    name: str
    identity: tuple[int, int]
    """Changes when a pack of the same name is written again."""
    size: int


def list_packs(git_dir: Path) -> dict[str, Pack]:
    """The packs that git can see, by name."""
    found: dict[str, Pack] = {}
    try:
        entries = {entry.name: entry for entry in os.scandir(git_dir / "objects" / "pack")}
    except FileNotFoundError:
        return found
    for file, entry in entries.items():
        name = file.removesuffix(".pack")
        if name != file and f"{name}.idx" in entries:
            try:
                seen = entry.stat()
            except FileNotFoundError:
                continue
            found[name] = Pack(name, (seen.st_ino, seen.st_mtime_ns), seen.st_size)
    return found


def remove_pack(git_dir: Path, name: str) -> None:
    """The data first: an index without its pack is nothing to git, and recognisable as waste."""
    folder = git_dir / "objects" / "pack"
    others = [path for path in folder.glob(f"{name}.*") if path.suffix not in (".pack", ".idx")]
    for path in (folder / f"{name}.pack", *others, folder / f"{name}.idx"):
        path.unlink(missing_ok=True)
    note_repacked(git_dir)


def pack_reachable(git: Git, tips: Iterable[str], *, deltas: bool = True) -> str | None:
    """Write a pack of everything that the tips lead to; its name, None if that is nothing."""
    return _write_pack(git, tips, "--revs", *_search(deltas))


def pack_objects(git: Git, names: Iterable[str], *, deltas: bool = True) -> str | None:
    """Write a pack of exactly these objects."""
    return _write_pack(git, names, *_search(deltas))


def _search(deltas: bool) -> list[str]:
    return [] if deltas else ["--window=0"]  # deltas that there are stay


def roll_up_packs(git: Git) -> None:
    """Merge small packs until each is at least twice as large as the next smaller one."""
    git.bound(config=_MODEST).run("repack", "--geometric=2", "-d", "-q", "-n")
    note_repacked(git.git_dir)


def _write_pack(git: Git, lines: Iterable[str], *options: str) -> str | None:
    assert git.scratch_objects is not None
    folder = git.scratch_objects / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    asked = "".join(f"{line}\n" for line in lines).encode()
    if not asked:
        return None
    answer = git.bound(config=_MODEST).run(*_QUIET, *options, str(folder / "pack"), stdin=asked)
    digits = answer.decode().strip()
    return _put_in_place(git, f"pack-{digits}") if digits else None


def _put_in_place(git: Git, name: str) -> str:
    assert git.scratch_objects is not None
    source, target = git.scratch_objects / "pack", git.git_dir / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    extras = [path for path in source.glob(f"{name}.*") if path.suffix not in (".pack", ".idx")]
    for path in (source / f"{name}.pack", *extras, source / f"{name}.idx"):
        _move(path, target / path.name)
    sync_directory(target)
    return name


def _move(source: Path, target: Path) -> None:
    """Also over a file of that name: it should hold the same bytes, and if it does not any more,
    it is mended thereby."""
    try:
        os.replace(source, target)
    except PermissionError:  # Windows, while somebody has the old one open
        if not target.exists():
            raise


class PackIndex:
    """Answers whether a pack holds an object, straight from its index file."""

    def __init__(self, git_dir: Path, name: str) -> None:
        path = git_dir / "objects" / "pack" / f"{name}.idx"
        with open(path, "rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self._data[:8] != b"\377tOc\0\0\0\2":
            raise MalformedObject(what=path.name, why="it is no pack index of version 2")

    def __len__(self) -> int:
        return self._count(255)

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self)):
            yield self._name(number).hex()

    def __contains__(self, name: str) -> bool:
        raw = bytes.fromhex(name)
        low, high = self._count(raw[0] - 1) if raw[0] else 0, self._count(raw[0])
        at = bisect_left(_Names(self), raw, low, high)
        return at < high and self._name(at) == raw

    def close(self) -> None:
        self._data.close()

    def _count(self, first_byte: int) -> int:
        at = _FANOUT + 4 * first_byte
        return int.from_bytes(self._data[at : at + 4], "big")

    def _name(self, number: int) -> bytes:
        at = _NAMES + 20 * number
        return self._data[at : at + 20]


class _Names:
    """The sorted names of a pack index, for `bisect`."""

    def __init__(self, index: PackIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, number: int) -> bytes:
        return self._index._name(number)
