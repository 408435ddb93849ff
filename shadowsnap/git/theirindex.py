"""Reading an index that git wrote for somebody else, to start our own from it.

Only what every version 2 or 3 index has is understood; anything else is `Unfamiliar`, and
git can be asked to write a plain copy first.
"""

from __future__ import annotations

import struct

from shadowsnap.records import NamedTuple

_HEADER = struct.Struct(">4sII")
_FIELDS = struct.Struct(">I8xI20sH")
"""Mode, size, object id and flags of an entry, from its mode on."""
_MODE_AT, _NAME_AT = 24, 62
_EXTENDED, _ASSUMED_VALID, _STAGE, _NAME_LENGTH = 0x4000, 0x8000, 0x3000, 0xFFF
_PLAIN_EXTENSIONS = {b"TREE", b"REUC", b"UNTR", b"EOIE", b"IEOT"}
_FILES = {0o100644, 0o100755, 0o120000}


class Unfamiliar(Exception):
    """The index is of a kind that this module does not read. Git can write most of them anew in a
    plain way; to expand a sparse one it would write objects too, and freshen existing ones."""

    @property
    def beyond_rewriting(self) -> bool:
        return "sdir" in str(self)


class TheirEntry(NamedTuple):
    path: bytes
    mode: int
    id: bytes
    size: int
    raw: bytes
    """As it stands in the file; an entry of our own format."""

    @property
    def changed_ns(self) -> int:
        """The part of its ctime below a second; 0 if that was not noted."""
        return int.from_bytes(self.raw[4:8], "big")


class TheirIndex(NamedTuple):
    entries: list[TheirEntry]
    others: list[bytes]
    """Paths that are no plain files of the work tree: submodules, files that are not checked
    out or only announced."""


def read_their_index(data: bytes) -> TheirIndex:
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as problem:
        raise Unfamiliar(str(problem)) from None


def _read(data: bytes) -> TheirIndex:
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        raise Unfamiliar(f"version {version}")
    entries: list[TheirEntry] = []
    others: list[bytes] = []
    at = _HEADER.size
    for _ in range(count):
        mode, size, name, flags = _FIELDS.unpack_from(data, at + _MODE_AT)
        if flags & _STAGE:
            raise Unfamiliar("a merge is under way")
        start = at + _NAME_AT + (2 if flags & _EXTENDED else 0)
        length = flags & _NAME_LENGTH
        end = start + length if length < _NAME_LENGTH else data.index(b"\0", start)
        following = at + ((end - at + 8) & ~7)
        path = data[start:end]
        if flags & (_EXTENDED | _ASSUMED_VALID) or mode not in _FILES:
            others.append(path)
        else:
            entries.append(TheirEntry(path, mode, name, size, data[at:following]))
        at = following
    _check_extensions(data, at)
    return TheirIndex(entries, others)


def _check_extensions(data: bytes, at: int) -> None:
    while at < len(data) - 20:
        name, size = struct.unpack_from(">4sI", data, at)
        if name not in _PLAIN_EXTENSIONS:
            raise Unfamiliar(f"extension {name!r}")
        at += 8 + size
