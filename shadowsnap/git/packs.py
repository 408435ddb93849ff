"""Pack files: reading objects from packs and writing new packs, without a git process.

A snapshot needs a few trees, which are usually in one of the newest packs, and it adds a few
objects. Starting git for that would cost more than the rest of the snapshot. Anything unusual is
reported as not found here, and the caller asks git.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import time
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO, FileIO
from itertools import accumulate, chain
from pathlib import Path

from shadowsnap.files import begin_writing, make_read_only, open_temporary, sync_directory, write_all
from shadowsnap.git.objects import (
    MAX_IN_MEMORY,
    USUAL_CODEC,
    Codec,
    LooseObjects,
    fast_codec,
    inflate,
    object_id,
)

_KIND_NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3}
_KINDS = {number: kind for kind, number in _KIND_NUMBERS.items()}
_OFFSET_DELTA, _REF_DELTA = 6, 7
FANOUT = 8
NAMES = FANOUT + 256 * 4
INDEX_VERSION_2 = b"\377tOc\0\0\0\2"
_LARGE_OFFSET = 1 << 31
"""Larger offsets go to a second table of the index: the first one uses this bit as a flag."""
_SMALL_INDEX = 1 << 18
"""An index up to this size is held in memory; of a larger one, only the fan-out table."""
_MEDIUM_INDEX = 1 << 23
"""One up to this size is held in memory, too, once it was read in `_MANY_READS` places."""
_MANY_READS = 64
_SMALL_PACK = 256
"""Up to this number of objects, which a usual snapshot stays below, they are all entered into one table."""
_SET_FACTOR = 16
"""Below this ratio of pack size to wanted objects, one set intersection is faster than single lookups."""
_READ_SIZE, _HASH_SIZE = 4096, 1 << 17
_MAX_DELTAS = 200
_MAX_WITH_DELTAS = 384 << 20
"""Limit of an object, its delta base and the deltas between them, which are in memory at the same time."""
_MAX_UNCHECKED = 1 << 20
_MAX_BUFFERED = 1 << 20
_MAX_OBJECTS = 1 << 18
"""A pack with more is ended and another one begun, so that memory stays bounded."""
_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_UNREADABLE = (OSError, ValueError, IndexError, OverflowError, struct.error, zlib.error)
"""What a damaged pack, or one that a repack removed just now, leads to."""
_REPACKED = "repacked"


class Packs:
    """The packs of some object directories. Each index is read at most once. The directories are listed again
    when an object is not found."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._is_listed = False
        self._unread: list[str] = []
        """Packs that were not needed yet by path without suffix, newest last."""
        self._indexes: dict[str, _PackIndex | None] = {}
        """Those that were needed; None for a damaged index."""
        self._large: list[_PackIndex] = []
        self._positions: dict[bytes, tuple[_PackIndex, int]] = {}
        """Every object of the small ones: searching hundreds of them one by one would cost more than reading."""

    def read(self, name: str, *, known_only: bool = False) -> tuple[bytes, bytes] | None:
        """Kind and content of an object; None if it is absent or unreadable here. With `known_only`,
        packs that appeared since the last listing are ignored."""
        try:
            found = self._read(bytes.fromhex(name), _MAX_DELTAS, 0, known_only=known_only)
        except _UNREADABLE:
            return None
        return found if found is not None and object_id(*found) == name else None

    def size(self, name: str) -> int | None:
        """Size of an object according to its header; None if it is not here."""
        try:
            location = self._find(bytes.fromhex(name))
            return None if location is None else _size_at(*location)
        except _UNREADABLE:
            return None

    def contained(self, names: Iterable[str], *, intact: bool = False) -> set[str]:
        """Which of the objects are in packs that are not cut short. With `intact`, the checksum of each
        object is verified, too."""
        wanted = {bytes.fromhex(name) for name in names}
        found: set[bytes] = set()
        for stem in self._stems():
            index = self._indexes.get(stem) or _open_index(stem)
            if index is None or not wanted:
                continue
            try:
                here = index.contained(wanted)
                if intact and here:
                    here = index.intact(here)
                if here and index.matches_pack():
                    found |= here
                    wanted -= here
            except (OSError, ValueError, IndexError, struct.error):
                continue  # damaged
        return {name.hex() for name in found}

    def _read(
        self, name: bytes, max_deltas: int, held: int, *, known_only: bool = False
    ) -> tuple[bytes, bytes] | None:
        location = self._find(name, known_only=known_only)
        return None if location is None else self._unpack(*location, max_deltas, held)

    def _find(self, name: bytes, *, known_only: bool = False) -> tuple[str, int] | None:
        location = self._find_known(name)
        if location is None and not (known_only and self._is_listed):
            self._list()
            location = self._find_known(name)
        return location

    def _find_known(self, name: bytes) -> tuple[str, int] | None:
        if name in self._positions:
            index, position = self._positions[name]
            return index.stem, index.offset(position)
        for index in chain(self._large, self._read_more()):
            offset = index.find(name)
            if offset is not None:
                return index.stem, offset
        return None

    def _read_more(self) -> Iterator[_PackIndex]:
        """An index is read when no newer pack has the object: with hundreds of packs, most are never read."""
        while self._unread:
            stem = self._unread.pop()
            index = self._indexes[stem] = _open_index(stem)
            if index is not None:
                self._take_in(index)
                yield index

    def _take_in(self, index: _PackIndex) -> None:
        if index.count > _SMALL_PACK:
            self._large.append(index)
        else:
            self._positions.update((name, (index, position)) for position, name in enumerate(index.names()))

    def _list(self) -> None:
        stems = list(self._stems())
        self._is_listed = bool(stems)
        self._unread = [stem for stem in reversed(stems) if stem not in self._indexes]
        if not self._indexes.keys() <= set(stems):  # a repack removed some
            self._indexes = {stem: self._indexes[stem] for stem in stems if stem in self._indexes}
            self._large, self._positions = [], {}
            for index in filter(None, self._indexes.values()):
                self._take_in(index)

    def _stems(self) -> Iterator[str]:
        """Paths of the packs without suffix. Newest first, because one of the last snapshots usually
        wrote what is wanted."""
        for folder in self._folders:
            try:
                with os.scandir(folder / "pack") as entries:
                    indexes = [entry for entry in entries if entry.name.endswith(".idx")]
            except FileNotFoundError:
                continue
            found: list[tuple[int, str]] = []
            for entry in indexes:
                try:
                    found.append((entry.stat().st_mtime_ns, entry.path[:-4]))
                except FileNotFoundError:
                    continue  # removed by a repack
            yield from (stem for _, stem in sorted(found, reverse=True))

    def _unpack(self, stem: str, offset: int, max_deltas: int, held: int) -> tuple[bytes, bytes] | None:
        """Kind and content of the object at an offset. Deltas are collected down to their base; `held` is the
        size of those that are in memory already."""
        deltas: list[bytes] = []
        with _opened(stem + ".pack") as descriptor:
            while len(deltas) < max_deltas:
                kind, size, base, data_at, start = _entry_at(descriptor, offset)
                if held + size > _MAX_WITH_DELTAS:
                    raise ValueError("the object and its deltas are too large to be held in memory")
                data = inflate(_pieces(descriptor, data_at, start), size)
                if kind in _KINDS:
                    return _KINDS[kind], _apply_deltas(data, deltas, held)
                deltas.append(data)
                held += size
                if isinstance(base, int):
                    offset = base
                    continue
                found = self._read(base, max_deltas - len(deltas), held) if base is not None else None
                return None if found is None else (found[0], _apply_deltas(found[1], deltas, held))
        return None


def _open_index(stem: str) -> _PackIndex | None:
    try:
        return _PackIndex(stem)
    except (OSError, ValueError, struct.error):
        return None  # damaged, or removed by a repack


class _PackIndex:
    """The index of one pack: which objects it holds, and at which offsets. It never changes, because a
    repack uses new names. No file stays open: Windows could not remove it."""

    def __init__(self, stem: str) -> None:
        self.stem = stem
        with _opened(stem + ".idx") as descriptor:
            self._size = os.fstat(descriptor).st_size
            self._data = _read_at(descriptor, 0, self._size if self._size <= _SMALL_INDEX else NAMES)
        self._reads = 0
        fan_out = struct.unpack_from(">256I", self._data, FANOUT)
        self.count = fan_out[-1]
        # A wrong count would make Python allocate memory for all of it before reading.
        if self._data[:FANOUT] != INDEX_VERSION_2 or self.count > self._size // 28:
            raise ValueError("not a pack index of version 2")
        if [*fan_out] != sorted(fan_out):
            raise ValueError("the fan-out table is not in order")

    def find(self, name: bytes) -> int | None:
        """Offset of an object in the pack; None if it is not here."""
        position = self._position(name)
        return None if position is None else self.offset(position)

    def names(self) -> list[bytes]:
        """The ids of all objects, sorted."""
        names = self._slice(NAMES, 20 * self.count)
        return [names[at : at + 20] for at in range(0, len(names), 20)]

    def contained(self, wanted: set[bytes]) -> set[bytes]:
        """Which of the objects are here."""
        if self.count < _SET_FACTOR * len(wanted):
            return wanted.intersection(self.names())
        return {name for name in wanted if self.find(name) is not None}

    def matches_pack(self) -> bool:
        """Whether the pack exists and ends with the checksum that the index expects. A pack that was cut
        short has lost its end."""
        try:
            with _opened(self.stem + ".pack") as descriptor:
                end = os.fstat(descriptor).st_size
                return end >= 20 and _read_at(descriptor, end - 20, 20) == self._slice(self._size - 40, 20)
        except FileNotFoundError:
            return False

    def intact(self, names: Collection[bytes]) -> set[bytes]:
        """Which of the objects have the CRC that was recorded when they were packed."""
        offsets = struct.unpack(f">{self.count}I", self._slice(NAMES + 24 * self.count, 4 * self.count))
        checksums = struct.unpack(f">{self.count}I", self._slice(NAMES + 20 * self.count, 4 * self.count))
        found: set[bytes] = set()
        with _opened(self.stem + ".pack") as descriptor:
            ends = sorted((*offsets, os.fstat(descriptor).st_size - 20))
            if ends[-1] >> 31:
                return found  # some offsets are in the table of large ones, which is not read here
            spans = []
            for name, position in self._positions_of(names).items():
                start = offsets[position]
                spans.append((start, ends[bisect_right(ends, start)], checksums[position], name))
            for run in _runs(sorted(spans)):
                first, last = run[0][0], run[-1][1]
                data = memoryview(_read_at(descriptor, first, last - first))
                for start, end, checksum, name in run:
                    if zlib.crc32(data[start - first : end - first]) == checksum:
                        found.add(name)
        return found

    def _positions_of(self, names: Collection[bytes]) -> dict[bytes, int]:
        """The positions of those objects that are here."""
        if self.count < _SET_FACTOR * len(names):
            every = {name: position for position, name in enumerate(self.names())}
            return {name: every[name] for name in names if name in every}
        found = ((name, self._position(name)) for name in names)
        return {name: position for name, position in found if position is not None}

    def _position(self, name: bytes) -> int | None:
        """Position of an object id in the sorted index; None if it is not here."""
        at = FANOUT + 4 * name[0]
        (end,) = struct.unpack_from(">I", self._data, at)
        (first,) = struct.unpack_from(">I", self._data, at - 4) if name[0] else (0,)
        if first == end:
            return None
        names = self._slice(NAMES + 20 * first, 20 * (end - first))
        at = names.find(name)
        while at > 0 and at % 20:  # a match across the border of two ids
            at = names.find(name, at + 1)
        return None if at < 0 else first + at // 20

    def offset(self, position: int) -> int:
        offsets = NAMES + 24 * self.count
        (offset,) = struct.unpack(">I", self._slice(offsets + 4 * position, 4))
        if offset >> 31:
            large = offsets + 4 * self.count + 8 * (offset & 0x7FFFFFFF)
            (offset,) = struct.unpack(">Q", self._slice(large, 8))
        return int(offset)

    def _slice(self, at: int, size: int) -> bytes:
        if len(self._data) > NAMES:
            return self._data[at : at + size]  # callers fail on fewer bytes
        self._reads += 1
        with _opened(self.stem + ".idx") as descriptor:
            if self._reads < _MANY_READS or self._size > _MEDIUM_INDEX:
                return _read_at(descriptor, at, size)
            self._data = _read_at(descriptor, 0, self._size)
        return self._data[at : at + size]


_Span = tuple[int, int, int, bytes]
"""Where an object begins and ends in a pack, its checksum, and its id."""


def _runs(spans: list[_Span]) -> Iterator[list[_Span]]:
    """Objects that lie side by side, as those of one snapshot do, in groups that can be read at once."""
    run: list[_Span] = []
    for span in spans:
        if run and (span[0] != run[-1][1] or span[1] - run[0][0] > _MAX_BUFFERED):
            yield run
            run = []
        run.append(span)
    if run:
        yield run


def _size_at(stem: str, offset: int) -> int:
    with _opened(stem + ".pack") as descriptor:
        kind, size, _, _, start = _entry_at(descriptor, offset)
        if kind in _KINDS:
            return size
        # A delta starts with the sizes of its base and of its result.
        delta = zlib.decompressobj().decompress(start[:64], 32)
        return _varint(delta, _varint(delta, 0)[1])[0]


def _entry_at(descriptor: int, offset: int) -> tuple[int, int, int | bytes | None, int, bytes]:
    """Kind and size of an object, the base of a delta (an offset or an id), the offset of the data, and as much of
    the data as was read with it: all of it, if it is small."""
    head = _read_at(descriptor, offset, _READ_SIZE, at_most=True)
    byte, at, shift = head[0], 1, 4
    kind, size = byte >> 4 & 7, byte & 15
    while byte & 0x80:
        byte = head[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    base: int | bytes | None = None
    if kind == _REF_DELTA:
        base, at = head[at : at + 20], at + 20
    elif kind == _OFFSET_DELTA:
        byte, at = head[at], at + 1
        distance = byte & 0x7F
        while byte & 0x80:
            byte, at = head[at], at + 1
            distance = (distance + 1) << 7 | byte & 0x7F
        base = offset - distance
    return kind, size, base, offset + at, head[at:]


def _apply_deltas(data: bytes, deltas: list[bytes], held: int) -> bytes:
    for delta in reversed(deltas):
        data = _apply_delta(data, delta, held)
    return data


def _apply_delta(base: bytes, delta: bytes, held: int) -> bytes:
    """Follow the instructions of a delta: each copies a part of the base or inserts bytes of its own."""
    base_size, at = _varint(delta, 0)
    size, at = _varint(delta, at)
    if base_size != len(base):
        raise ValueError("the delta has another base")
    if size > MAX_IN_MEMORY or held + len(base) + size > _MAX_WITH_DELTAS:
        raise ValueError("the object is too large to be held in memory")
    result, view, left = BytesIO(), memoryview(base), size
    while at < len(delta) and left >= 0:
        instruction, at = delta[at], at + 1
        if not instruction & 0x80:
            left -= result.write(delta[at : at + instruction])
            at += instruction
            continue
        start = length = 0
        for bit in range(7):
            if instruction >> bit & 1:
                byte, at = delta[at], at + 1
                if bit < 4:
                    start |= byte << 8 * bit
                else:
                    length |= byte << 8 * (bit - 4)
        left -= result.write(view[start : start + (length or 0x10000)])
    if left:
        raise ValueError("the delta does not give the size in its header")
    return result.getvalue()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits per byte, lowest first; and the position behind it. The time to build one grows
    with the square of its length, so it has at most 64 bits."""
    value = 0
    for shift in range(0, 64, 7):
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number is too large")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, _READ)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pieces(descriptor: int, at: int, start: bytes) -> Iterator[bytes]:
    """The bytes from an offset on, of which the first were read already."""
    if start:
        yield start
        at += len(start)
    while piece := _read_at(descriptor, at, _READ_SIZE, at_most=True):
        yield piece
        at += len(piece)


def _read_at(descriptor: int, at: int, size: int, *, at_most: bool = False) -> bytes:
    # Python allocates all of it before reading.
    if size > _MAX_UNCHECKED and size > os.fstat(descriptor).st_size:
        raise ValueError("the file is cut short")
    if sys.platform == "win32":
        os.lseek(descriptor, at, os.SEEK_SET)
        data = os.read(descriptor, size)
    else:
        data = os.pread(descriptor, size, at)
    if len(data) < size and not at_most:
        raise ValueError("the file is cut short")
    return data


class PackWriter:
    """Writes one pack, which git sees only after `finish`. A small pack is built in memory and written
    at once."""

    def __init__(self, objects: Path, *, fsync: bool) -> None:
        self._folder = objects / "pack"
        self._fsync = fsync
        self._parts = [_pack_header(0)]
        self._buffered = 0
        self._file: FileIO | None = None
        self._temporary: Path | None = None
        self._offset = len(self._parts[0])
        # A first capture has one of these for every file.
        self._positions: dict[bytes, int] = {}
        """Object id -> its position in the pack."""
        self._checksums, self._offsets, self._sizes = array("I"), array("Q"), array("Q")

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, kind: bytes, data: bytes, name: str = "", codec: Codec = USUAL_CODEC) -> str:
        """Add an object, of which the id may be known, and return its id."""
        name = name or object_id(kind, data)
        binary = bytes.fromhex(name)
        if binary in self._positions:
            return name
        item = _entry_header(_KIND_NUMBERS[kind], len(data)) + codec.compress(data)
        self._positions[binary] = len(self._positions)
        self._checksums.append(codec.crc32(item))
        self._offsets.append(self._offset)
        self._sizes.append(len(data))
        self._parts.append(item)
        self._offset += len(item)
        self._buffered += len(item)
        if self._buffered > _MAX_BUFFERED:
            self._write_buffer()
        return name

    def size(self, name: str) -> int | None:
        """The size of an object that was added."""
        position = self._positions.get(bytes.fromhex(name))
        return None if position is None else self._sizes[position]

    def finish(self) -> None:
        """Make the pack visible to git. The index comes first: git ignores an index without a pack, and
        upkeep removes it if this process dies in between."""
        if not len(self):
            self.abandon()
            return
        checksum = self._complete_pack()
        name = f"{self._folder / 'pack'}-{checksum.hex()}"
        assert self._file is not None and self._temporary is not None
        descriptor, temporary = open_temporary(self._folder, "tmp_idx_")
        try:
            with self._file as pack, FileIO(descriptor, "r+b") as index:
                write_all(descriptor, self._index(checksum))
                make_read_only(pack.fileno())
                make_read_only(descriptor)
                if self._fsync:
                    begin_writing(pack.fileno(), self._offset)  # the rest was begun before
                    begin_writing(descriptor)
                    os.fsync(pack.fileno())
                    os.fsync(index.fileno())
            os.replace(temporary, f"{name}.idx")
            os.replace(self._temporary, f"{name}.pack")
            self._temporary = None
        finally:
            temporary.unlink(missing_ok=True)
            if not os.path.exists(f"{name}.pack"):
                Path(f"{name}.idx").unlink(missing_ok=True)
        if self._fsync:
            sync_directory(self._folder)

    def abandon(self) -> None:
        """Remove what was written; does nothing after `finish`."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                pass  # the disk is full, and the rest is not wanted
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def _complete_pack(self) -> bytes:
        """Write what is left, the number of objects and the checksum; returns the checksum."""
        digest = hashlib.sha1(usedforsecurity=False)
        if self._file is None:
            self._parts[0] = _pack_header(len(self))
            for part in self._parts:
                digest.update(part)
            file = self._write_buffer()
        else:
            file = self._write_buffer()
            file.seek(0)
            write_all(file.fileno(), _pack_header(len(self)))
            file.seek(0)
            buffer = memoryview(bytearray(_HASH_SIZE))
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
        write_all(file.fileno(), digest.digest())
        return digest.digest()

    def _write_buffer(self) -> FileIO:
        if self._file is None:
            descriptor, self._temporary = open_temporary(self._folder, "tmp_pack_")
            self._file = FileIO(descriptor, "r+b")
        write_all(self._file.fileno(), b"".join(self._parts))
        if self._fsync:
            begin_writing(self._file.fileno(), self._offset - self._buffered)
        self._parts, self._buffered = [], 0
        return self._file

    def _index(self, pack_checksum: bytes) -> bytes:
        names = sorted(self._positions)
        order = [self._positions[name] for name in names]
        counts = [0] * 256
        for name in names:
            counts[name[0]] += 1
        offsets: list[int] = []
        large: list[int] = []
        for position in order:
            offset = self._offsets[position]
            if offset >= _LARGE_OFFSET:
                offsets.append(1 << 31 | len(large))
                large.append(offset)
            else:
                offsets.append(offset)
        body = b"".join((
            b"\377tOc", struct.pack(">I256I", 2, *accumulate(counts)),
            b"".join(names),
            struct.pack(f">{len(names)}I", *(self._checksums[position] for position in order)),
            struct.pack(f">{len(names)}I", *offsets), struct.pack(f">{len(large)}Q", *large),
            pack_checksum,
        ))  # fmt: skip
        return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _pack_header(objects: int) -> bytes:
    return struct.pack(">4sII", b"PACK", 2, objects)


def _entry_header(kind: int, size: int) -> bytes:
    low, size = size & 0x0F, size >> 4
    header = bytearray([kind << 4 | low])
    while size:
        header[-1] |= 0x80
        header.append(size & 0x7F)
        size >>= 7
    return bytes(header)


class NewObjects:
    """The objects that one operation adds to an object directory. `flush` writes them as one pack: as
    loose objects, a snapshot of one changed file would need a dozen new files and directories, and a
    sync of each. Only large files become loose objects, so that changing between two versions of one
    does not store it again each time.

    An object that exists is written again, so that a damaged one is replaced and never trusted.
    """

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        self.directory = directory
        self.fsync = fsync
        self._loose = LooseObjects(directory, fsync=fsync)
        self._pack: PackWriter | None = None
        self._trees: dict[str, bytes] = {}
        self._codec = USUAL_CODEC

    def expect_many(self) -> None:
        """Compress what follows as fast as possible. (For few objects that is not worth an import.)"""
        self._codec = fast_codec()

    def write(self, kind: bytes, data: bytes, name: str = "") -> str:
        """Add an object, of which the id may be known, and return its id."""
        if self._pack is not None and len(self._pack) >= _MAX_OBJECTS:
            self._pack.finish()
            self._pack = None
        if self._pack is None:
            self._pack = PackWriter(self.directory, fsync=self.fsync)
        name = self._pack.add(kind, data, name, self._codec)
        if kind == b"tree":
            self._trees[name] = data
        return name

    def write_stream(self, descriptor: int, size: int, name: str | None = None) -> str | None:
        """Write the blob of `size` bytes that an open file holds, and return its id. Returns None, and writes
        nothing, if the file has another size, or another id than `name`."""
        return self._loose.write_stream(descriptor, size, name)

    def pending_tree(self, name: str) -> bytes | None:
        """A tree that is not in the store yet."""
        return self._trees.get(name)

    def pending_size(self, name: str) -> int | None:
        """The size of an object that is not in the store yet."""
        return None if self._pack is None else self._pack.size(name)

    def flush(self) -> None:
        """Put everything added so far into the store, so that git can read it and it survives a power
        cut. Call it before creating a ref that leads to these objects."""
        if self._pack is not None:
            try:
                self._pack.finish()
            finally:
                self.abandon()
        self._loose.flush()

    def abandon(self) -> None:
        """Discard what is not in the store yet."""
        if self._pack is not None:
            self._pack.abandon()
            self._pack = None
        self._trees.clear()


def note_repacked(git_dir: Path) -> None:
    """Record that packs were removed because other packs hold their objects now."""
    (git_dir / _REPACKED).write_bytes(b"%d" % time.time_ns())


def last_repacked(git_dir: Path) -> str:
    """A value that changes with every repack; empty if there was none. If packs went without one,
    objects may be lost."""
    try:
        return (git_dir / _REPACKED).read_bytes().decode("ascii")
    except (OSError, ValueError):
        return ""
