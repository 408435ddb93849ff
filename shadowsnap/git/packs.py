"""Reading objects out of packs without a process.

A snapshot needs a few trees that are most often in one of the newest packs; starting git for them
would cost more than everything else it does to make its own. Whatever is out of the ordinary is not
found here, and left to git.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import time
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from shadowsnap.files import make_read_only, open_temporary, sync_directory
from shadowsnap.git.objects import CHUNK, LooseObjects, object_id
from shadowsnap.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from io import BufferedRandom

_KINDS = {1: b"commit", 2: b"tree", 3: b"blob"}
_BY_OFFSET, _BY_NAME = 6, 7
_FANOUT = 8
_NAMES = _FANOUT + 256 * 4
_VERSION_2 = b"\377tOc\0\0\0\2"
_SMALL_INDEX = 1 << 18
"""An index of so many bytes is held in memory; of a larger one, only the head."""
_MANY_TIMES = 16
"""So many times as many names are taken in sooner than each of a few is looked for."""
_PORTION = 4096
MOST_IN_MEMORY = 256 << 20
"""No object that is read as a whole is larger: a few bytes in a pack may claim to be gigabytes."""
_LONGEST_CHAIN = 200


class Packs:
    """The packs of some object directories. They are listed again when something is not found, and each
    index is read once."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._indexes: dict[str, _Index | None] = {}
        """By the name that pack and index have in common, in the order in which they are asked; None for
        one that is damaged."""

    def read(self, name: str, *, in_known: bool = False) -> tuple[bytes, bytes] | None:
        """Kind and content of an object; None if it is not here, or cannot be read. With `in_known`, packs
        that came since the last look are not looked for."""
        try:
            if in_known and self._indexes and _find_in(self._indexes.values(), bytes.fromhex(name)) is None:
                return None
            found = self._read(bytes.fromhex(name), _LONGEST_CHAIN)
        except (OSError, ValueError, IndexError, OverflowError, struct.error, zlib.error):
            return None  # damaged, or packed anew just now
        return found if found is not None and object_id(*found) == name else None

    def size(self, name: str) -> int | None:
        """How long an object is, as far as it says so itself; None if it is not here."""
        try:
            place = self._find(bytes.fromhex(name))
            return None if place is None else _size_at(*place)
        except (OSError, ValueError, IndexError, OverflowError, struct.error, zlib.error):
            return None

    def held(self, names: Iterable[str], *, sound: bool = False) -> set[str]:
        """Those of many objects that are in packs which are as long as they should be; or only those whose
        bytes are found `sound`, too."""
        wanted = {bytes.fromhex(name) for name in names}
        found: set[bytes] = set()
        for stem in self._listed():
            index = self._indexes.get(stem) or _opened(stem)
            if index is None or not wanted:
                continue
            try:
                held = index.among(wanted)
                if sound and held:
                    held = index.sound(held)
                if held and index.is_matched():
                    found |= held
                    wanted -= held
            except (OSError, ValueError, IndexError, struct.error):
                continue  # damaged
        return {name.hex() for name in found}

    def _read(self, name: bytes, patience: int) -> tuple[bytes, bytes] | None:
        place = self._find(name)
        return None if place is None else self._unpacked(*place, patience)

    def _find(self, name: bytes) -> tuple[str, int] | None:
        place = _find_in(self._indexes.values(), name)
        if place is None:
            known = self._indexes
            self._indexes = {stem: known[stem] if stem in known else _opened(stem) for stem in self._listed()}
            new = (index for stem, index in self._indexes.items() if stem not in known)
            place = _find_in(new, name)
        return place

    def _listed(self) -> Iterator[str]:
        """The newest first: what is wanted was most often written by one of the last snapshots."""
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
                    continue  # packed anew just now
            yield from (stem for _, stem in sorted(found, reverse=True))

    def _unpacked(self, stem: str, offset: int, patience: int) -> tuple[bytes, bytes] | None:
        """An object, and first the ones that it is told against."""
        deltas: list[bytes] = []
        descriptor = os.open(stem + ".pack", _READ)
        try:
            while len(deltas) < patience:
                kind, size, data_at, base = _entry(descriptor, offset)
                data = _inflated(descriptor, data_at, size)
                if kind in _KINDS:
                    return _KINDS[kind], _patched(data, deltas)
                deltas.append(data)
                if isinstance(base, int):
                    offset = base
                    continue
                whole = self._read(base, patience - len(deltas)) if base is not None else None
                return None if whole is None else (whole[0], _patched(whole[1], deltas))
        finally:
            os.close(descriptor)
        return None


_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def _find_in(indexes: Iterable[_Index | None], name: bytes) -> tuple[str, int] | None:
    for index in indexes:
        offset = None if index is None else index.find(name)
        if index is not None and offset is not None:
            return index.stem, offset
    return None


def _opened(stem: str) -> _Index | None:
    try:
        return _Index(stem)
    except (OSError, ValueError, struct.error):
        return None  # damaged, or packed anew just now


class _Index:
    """Which objects a pack holds, and where they begin. It never changes: what is packed anew has another
    name."""

    def __init__(self, stem: str) -> None:
        self.stem = stem
        descriptor = os.open(stem + ".idx", _READ)
        try:
            self._size = os.fstat(descriptor).st_size
            self._data = _piece(descriptor, 0, self._size if self._size <= _SMALL_INDEX else _NAMES)
        finally:
            os.close(descriptor)
        (self._count,) = struct.unpack_from(">I", self._data, _NAMES - 4)
        # Asked for more than there is, Python would make room for all of it first.
        if self._data[:_FANOUT] != _VERSION_2 or self._count > self._size // 28:
            raise ValueError("not an index of version 2")

    def _number(self, name: bytes) -> int | None:
        """The how many-th an object is in the order of names; None if it is not here."""
        at = _FANOUT + 4 * name[0]
        (end,) = struct.unpack_from(">I", self._data, at)
        (first,) = struct.unpack_from(">I", self._data, at - 4) if name[0] else (0,)
        if first == end:
            return None
        if not first < end <= self._count:
            raise ValueError("it counts backwards")
        names = self._part(_NAMES + 20 * first, 20 * (end - first))
        at = names.find(name)
        while at > 0 and at % 20:  # by chance across two names
            at = names.find(name, at + 1)
        return None if at < 0 else first + at // 20

    def find(self, name: bytes) -> int | None:
        """Where an object begins; None if it is not here."""
        number = self._number(name)
        return None if number is None else self._offset(number)

    def among(self, wanted: set[bytes]) -> set[bytes]:
        """Those of the objects that are here."""
        names = self._part(_NAMES, 20 * self._count)
        if self._count < _MANY_TIMES * len(wanted):
            return wanted.intersection([names[at : at + 20] for at in range(0, len(names), 20)])
        return {name for name in wanted if self.find(name) is not None}

    def is_matched(self) -> bool:
        """Whether the pack is there and ends as it should: what is missing of a file is missing at its end."""
        try:
            descriptor = os.open(self.stem + ".pack", _READ)
        except OSError:
            return False
        try:
            end = os.fstat(descriptor).st_size
            return end >= 20 and _piece(descriptor, end - 20, 20) == self._part(self._size - 40, 20)
        finally:
            os.close(descriptor)

    def sound(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the objects whose bytes add up to what was noted when they were packed."""
        offsets = struct.unpack(f">{self._count}I", self._part(_NAMES + 24 * self._count, 4 * self._count))
        sums = self._part(_NAMES + 20 * self._count, 4 * self._count)
        found: set[bytes] = set()
        descriptor = os.open(self.stem + ".pack", _READ)
        try:
            ends = sorted((*offsets, os.fstat(descriptor).st_size - 20))
            if ends[-1] >> 31:
                return found  # too large for that
            for name in names:
                number = self._number(name)
                if number is not None:
                    start = offsets[number]
                    data = _piece(descriptor, start, ends[bisect_right(ends, start)] - start)
                    if zlib.crc32(data) == int.from_bytes(sums[4 * number : 4 * number + 4], "big"):
                        found.add(name)
        finally:
            os.close(descriptor)
        return found

    def _offset(self, number: int) -> int:
        offsets = _NAMES + 24 * self._count
        (offset,) = struct.unpack(">I", self._part(offsets + 4 * number, 4))
        if offset >> 31:
            large = offsets + 4 * self._count + 8 * (offset & 0x7FFFFFFF)
            (offset,) = struct.unpack(">Q", self._part(large, 8))
        return int(offset)

    def _part(self, at: int, size: int) -> bytes:
        if len(self._data) > _NAMES:
            return self._data[at : at + size]  # less than that is no number, and no name
        descriptor = os.open(self.stem + ".idx", _READ)
        try:
            return _piece(descriptor, at, size)
        finally:
            os.close(descriptor)


def _size_at(stem: str, offset: int) -> int:
    descriptor = os.open(stem + ".pack", _READ)
    try:
        kind, size, data_at, _ = _entry(descriptor, offset)
        if kind in _KINDS:
            return size
        delta = zlib.decompressobj().decompress(_piece(descriptor, data_at, 64, at_most=True), 32)
        return _number(delta, _number(delta, 0)[1])[0]
    finally:
        os.close(descriptor)


def _entry(descriptor: int, offset: int) -> tuple[int, int, int, int | bytes | None]:
    """Kind, size, where the data begins, and what a delta is told against: an offset or a name."""
    head = _piece(descriptor, offset, 64, at_most=True)
    byte, at, shift = head[0], 1, 4
    kind, size = byte >> 4 & 7, byte & 15
    while byte & 0x80:
        byte = head[at]
        size |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    base: int | bytes | None = None
    if kind == _BY_NAME:
        base, at = head[at : at + 20], at + 20
    elif kind == _BY_OFFSET:
        byte, at = head[at], at + 1
        back = byte & 0x7F
        while byte & 0x80:
            byte, at = head[at], at + 1
            back = (back + 1) << 7 | byte & 0x7F
        base = offset - back
    return kind, size, offset + at, base


def _inflated(descriptor: int, at: int, size: int) -> bytes:
    inflate, parts, left = zlib.decompressobj(), list[bytes](), size
    if size > MOST_IN_MEMORY:
        raise ValueError("an object is too large to be held in memory")
    while not inflate.eof:
        piece = _piece(descriptor, at, _PORTION, at_most=True)
        if not piece:
            raise ValueError("the pack ends within an object")
        at += len(piece)
        while piece and left >= 0:  # in portions: a few bytes may unfold to gigabytes
            parts.append(inflate.decompress(piece, max(1, left + 1)))
            left -= len(parts[-1])
            piece = inflate.unconsumed_tail
        if left < 0:
            break
    if left:
        raise ValueError("an object has another size than it says")
    return b"".join(parts)


def _patched(data: bytes, deltas: list[bytes]) -> bytes:
    for delta in reversed(deltas):
        data = _applied(data, delta)
    return data


def _applied(base: bytes, delta: bytes) -> bytes:
    """What a delta makes of its base: a sequence of pieces of the base and of its own."""
    expected, at = _number(delta, 0)
    size, at = _number(delta, at)
    if expected != len(base):
        raise ValueError("a delta is told against something else")
    if size > MOST_IN_MEMORY:
        raise ValueError("an object is too large to be held in memory")
    parts: list[bytes] = []
    left = size
    while at < len(delta) and left >= 0:
        order, at = delta[at], at + 1
        if not order & 0x80:
            parts.append(delta[at : at + order])
            left -= order
            at += order
            continue
        start = length = 0
        for bit in range(7):
            if order >> bit & 1:
                byte, at = delta[at], at + 1
                if bit < 4:
                    start |= byte << 8 * bit
                else:
                    length |= byte << 8 * (bit - 4)
        parts.append(base[start : start + (length or 0x10000)])
        left -= len(parts[-1])
    whole = b"".join(parts)
    if len(whole) != size:
        raise ValueError("a delta makes something of another size")
    return whole


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at


def _piece(descriptor: int, at: int, size: int, *, at_most: bool = False) -> bytes:
    if sys.platform == "win32":
        os.lseek(descriptor, at, os.SEEK_SET)
        data = os.read(descriptor, size)
    else:
        data = os.pread(descriptor, size, at)
    if len(data) < size and not at_most:
        raise ValueError("the file is shorter than it says")
    return data


_KIND_NUMBERS = {b"commit": 1, b"tree": 2, b"blob": 3}
_LARGE_OFFSET = 1 << 31
"""From here on, an offset does not fit beside the bit that says so."""
_MOST_IN_MEMORY = 1 << 20


class Deflated(NamedTuple):
    """An object ready to be packed."""

    kind: bytes
    id: str
    size: int
    payload: bytes


def deflate(kind: bytes, data: bytes, name: str = "") -> Deflated:
    return Deflated(kind, name or object_id(kind, data), len(data), zlib.compress(data, 1))


class PackWriter:
    """A pack in the making; it exists for git only after `finish`. A small one is made in memory and
    written at once."""

    def __init__(self, objects: Path, *, fsync: bool) -> None:
        self._folder = objects / "pack"
        self._fsync = fsync
        self._parts = [_header(0)]
        self._in_memory = 0
        self._file: BufferedRandom | None = None
        self._temporary: Path | None = None
        self._offset = len(self._parts[0])
        self._rows: dict[str, tuple[int, int]] = {}

    def add(self, item: Deflated) -> str:
        if item.id not in self._rows:
            header = _entry_header(_KIND_NUMBERS[item.kind], item.size)
            self._rows[item.id] = (zlib.crc32(item.payload, zlib.crc32(header)), self._offset)
            self._offset += len(header) + len(item.payload)
            self._parts += (header, item.payload)
            self._in_memory += len(item.payload)
            if self._in_memory > _MOST_IN_MEMORY:
                self._write_down()
        return item.id

    def finish(self) -> None:
        """Make the pack visible to git: first its index, which is nothing to git without the data, and
        is known for waste if we die before that is there."""
        if not self._rows:
            self.abandon()
            return
        checksum = self._seal()
        name = self._folder / f"pack-{checksum.hex()}"
        descriptor, temporary = open_temporary(self._folder, "tmp_idx_")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self._index(checksum))
                make_read_only(file.fileno())
                if self._fsync:
                    file.flush()
                    os.fsync(file.fileno())
            assert self._temporary is not None
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
        """Leave nothing behind; after `finish`, nothing happens."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError:  # a full disk: what was not written is not wanted
                pass
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def _write_down(self) -> BufferedRandom:
        """Move what is in memory to the file."""
        if self._file is None:
            descriptor, self._temporary = open_temporary(self._folder, "tmp_pack_")
            self._file = os.fdopen(descriptor, "w+b")
        self._file.writelines(self._parts)
        self._parts, self._in_memory = [], 0
        return self._file

    def _seal(self) -> bytes:
        """Say how many objects there are, and what all of it adds up to."""
        digest = hashlib.sha1(usedforsecurity=False)
        if self._file is None:
            self._parts[0] = _header(len(self._rows))
            for part in self._parts:
                digest.update(part)
            file = self._write_down()
        else:
            file = self._write_down()
            file.seek(0)
            file.write(_header(len(self._rows)))
            file.seek(0)
            while chunk := file.read(CHUNK):
                digest.update(chunk)
        file.write(digest.digest())
        file.flush()
        make_read_only(file.fileno())
        if self._fsync:
            os.fsync(file.fileno())
        file.close()
        return digest.digest()

    def _index(self, pack_checksum: bytes) -> bytes:
        rows = sorted((bytes.fromhex(name), crc, offset) for name, (crc, offset) in self._rows.items())
        counts = [0] * 256
        for name, _, _ in rows:
            counts[name[0]] += 1
        offsets: list[int] = []
        large: list[int] = []
        for _, _, offset in rows:
            if offset >= _LARGE_OFFSET:
                offsets.append(1 << 31 | len(large))
                large.append(offset)
            else:
                offsets.append(offset)
        body = b"".join((
            b"\377tOc", struct.pack(">I256I", 2, *accumulate(counts)),
            b"".join(name for name, _, _ in rows),
            struct.pack(f">{len(rows)}I", *(crc for _, crc, _ in rows)),
            struct.pack(f">{len(rows)}I", *offsets), struct.pack(f">{len(large)}Q", *large),
            pack_checksum,
        ))  # fmt: skip
        return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _header(objects: int) -> bytes:
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


_NAME = "repacked"


def note_repacked(git_dir: Path) -> None:
    (git_dir / _NAME).write_bytes(b"%d" % time.time_ns())


def last_repacked(git_dir: Path) -> str:
    """Another one whenever packs went in good order."""
    try:
        return (git_dir / _NAME).read_bytes().decode("ascii")
    except (OSError, ValueError):
        return ""
