"""Which paths another repository's index names. Everything in that file is foreign: it is read with
bounds, and whatever does not add up raises `MalformedObject`.

Git writes four kinds: version 2 and 3, version 4 (each name is told by what it shares with the one before),
and a split index (most entries are in a second file, and bitmaps say which of them are gone).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from shadowsnap.errors import MalformedObject

_HEADER = struct.Struct(">4sII")
_MODE_AT, _HASH_AT = 24, 40
_EXTENDED = 0x4000
_KINDS_OF_FILES = frozenset({0o100000, 0o120000})
_SUBMODULE, _SPARSE_DIRECTORY = 0o160000, 0o040000
_LONGEST_NAME = 1 << 16

ReadShared = Callable[[str], bytes | None]
"""Reads the second file of a split index, by the name of its content."""


def tracked_paths(data: bytes, read_shared: ReadShared) -> set[bytes]:
    """Every file that an index names. Submodules and directories of a sparse index are no files."""
    for hash_size in (20, 32):
        try:
            return _tracked(data, hash_size, read_shared)
        except (struct.error, IndexError, ValueError, OverflowError) as problem:
            why = problem
    raise MalformedObject(what="the index", why=why)


def _tracked(data: bytes, hash_size: int, read_shared: ReadShared) -> set[bytes]:
    entries, extensions = _parse(data, hash_size)
    link = extensions.get(b"link")
    if link is None or not any(link[:hash_size]):
        return {path for path, is_file in entries if is_file}
    shared = read_shared(link[:hash_size].hex())
    if shared is None:
        raise ValueError("the shared part of a split index is missing")
    base, _ = _parse(shared, hash_size)
    deleted = _bitmap(link, hash_size, len(base)) if len(link) > hash_size else set[int]()
    kept = {path for at, (path, is_file) in enumerate(base) if is_file and at not in deleted}
    # An entry without a name replaces one of the shared file, which has the name.
    return kept | {path for path, is_file in entries if is_file and path}


def _parse(data: bytes, hash_size: int) -> tuple[list[tuple[bytes, bool]], dict[bytes, bytes]]:
    """Path and whether it is a file, in the order of the index; and the extensions."""
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of version 2, 3 or 4")
    if count * (_HASH_AT + hash_size + 2) > len(data):
        raise ValueError("more entries than there is room for")
    entries: list[tuple[bytes, bool]] = []
    at, name, flags_at = _HEADER.size, b"", _HASH_AT + hash_size
    for _ in range(count):
        mode = int.from_bytes(data[at + _MODE_AT : at + _MODE_AT + 4], "big")
        start = at + flags_at + 2
        if data[at + flags_at] << 8 & _EXTENDED:
            start += 2
        if version == 4:
            cut, start = _varint(data, start)
            if cut > len(name):
                raise ValueError("a name that shares more than there is")
            end = data.index(b"\0", start, start + _LONGEST_NAME)
            name = name[: len(name) - cut] + data[start:end]
            at = end + 1
        else:
            end = data.index(b"\0", start, start + _LONGEST_NAME)
            name = data[start:end]
            at += (end - at + 8) & ~7
        entries.append((name, mode & 0o170000 in _KINDS_OF_FILES))
    return entries, _extensions(data, at, len(data) - hash_size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in git's variable-length encoding, and where it ends."""
    byte = data[at]
    value, at = byte & 0x7F, at + 1
    while byte & 0x80:
        byte = data[at]
        value, at = (value + 1) << 7 | byte & 0x7F, at + 1
        if value > _LONGEST_NAME:
            raise ValueError("a number that is too large")
    return value, at


def _extensions(data: bytes, at: int, end: int) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while at < end:
        name, size = struct.unpack_from(">4sI", data, at)
        if at + 8 + size > end:
            raise ValueError("an extension that does not fit")
        found[name] = data[at + 8 : at + 8 + size]
        at += 8 + size
    if at != end:
        raise ValueError("entries and extensions do not add up")
    return found


def _bitmap(data: bytes, at: int, most: int) -> set[int]:
    """The positions that an EWAH bitmap has set, below `most`."""
    _, words = struct.unpack_from(">II", data, at)
    if 8 * words > len(data):
        raise ValueError("a bitmap that does not fit")
    rows = struct.unpack_from(f">{words}Q", data, at + 8)
    found: set[int] = set()
    position = number = 0
    while number < words and position < most:
        run = rows[number]
        number += 1
        length = 64 * (run >> 1 & 0xFFFFFFFF)
        if run & 1:
            found.update(range(position, min(position + length, most)))
        position += length
        for word in rows[number : number + (run >> 33)]:
            found.update(position + bit for bit in range(64) if word >> bit & 1)
            position += 64
        number += run >> 33
    return {each for each in found if each < most}
