"""Reading objects out of packs without a process.

A snapshot needs a few trees that are most often in one of the newest packs; starting git for them
would cost more than everything else it does to make its own. Whatever is out of the ordinary is not
found here, and left to git.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.git.objects import object_id

_KINDS = {1: b"commit", 2: b"tree", 3: b"blob"}
_BY_OFFSET, _BY_NAME = 6, 7
_FANOUT = 8
_NAMES = _FANOUT + 256 * 4
_VERSION_2 = b"\377tOc\0\0\0\2"
_PORTION = 4096
_LONGEST_CHAIN = 200


class Packs:
    """The packs of some object directories. They are listed again when something is not found."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._stems: list[str] = []

    def read(self, name: str) -> tuple[bytes, bytes] | None:
        """Kind and content of an object; None if it is not here, or cannot be read."""
        try:
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

    def _read(self, name: bytes, patience: int) -> tuple[bytes, bytes] | None:
        place = self._find(name)
        return None if place is None else self._unpacked(*place, patience)

    def _find(self, name: bytes) -> tuple[str, int] | None:
        place = _find_in(self._stems, name)
        if place is None:
            known, self._stems = set(self._stems), list(self._listed())
            place = _find_in([stem for stem in self._stems if stem not in known], name)
        return place

    def _listed(self) -> Iterator[str]:
        """The newest first: what is wanted was most often written by one of the last snapshots."""
        for folder in self._folders:
            try:
                with os.scandir(folder / "pack") as entries:
                    indexes = [entry for entry in entries if entry.name.endswith(".idx")]
            except FileNotFoundError:
                continue
            found = [(entry.stat().st_mtime_ns, entry.path[:-4]) for entry in indexes]
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


def _find_in(stems: list[str], name: bytes) -> tuple[str, int] | None:
    for stem in stems:
        offset = _offset_in(stem, name)
        if offset is not None:
            return stem, offset
    return None


def _offset_in(stem: str, name: bytes) -> int | None:
    """Where in a pack an object begins."""
    descriptor = os.open(stem + ".idx", _READ)
    try:
        head = _piece(descriptor, 0, _NAMES)
        fanout = struct.unpack_from(">256I", head, _FANOUT)
        first, end, count = fanout[name[0] - 1] if name[0] else 0, fanout[name[0]], fanout[255]
        # Asked for more than there is, Python would make room for all of it first.
        if head[:_FANOUT] != _VERSION_2 or not first <= end <= count <= os.fstat(descriptor).st_size // 28:
            raise ValueError("not an index of version 2")
        names = _piece(descriptor, _NAMES + 20 * first, 20 * (end - first))
        at = names.find(name)
        while at > 0 and at % 20:  # by chance across two names
            at = names.find(name, at + 1)
        if at < 0:
            return None
        number = first + at // 20
        offsets = _NAMES + 24 * count
        (offset,) = struct.unpack(">I", _piece(descriptor, offsets + 4 * number, 4))
        if offset >> 31:
            large = offsets + 4 * count + 8 * (offset & 0x7FFFFFFF)
            (offset,) = struct.unpack(">Q", _piece(descriptor, large, 8))
        return int(offset)
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
    while not inflate.eof:
        piece = _piece(descriptor, at, _PORTION, at_most=True)
        if not piece:
            raise ValueError("the pack ends within an object")
        at += len(piece)
        parts.append(inflate.decompress(piece))
        left -= len(parts[-1])
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
    parts: list[bytes] = []
    while at < len(delta):
        order, at = delta[at], at + 1
        if not order & 0x80:
            parts.append(delta[at : at + order])
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
    os.lseek(descriptor, at, os.SEEK_SET)
    data = os.read(descriptor, size)
    if len(data) < size and not at_most:
        raise ValueError("the file is shorter than it says")
    return data
