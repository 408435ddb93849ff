"""Reading an index that git wrote for somebody else, to start our own from it.

Only what every version 2 or 3 index has is understood; anything else is `Unfamiliar`, and
git can be asked to write a plain copy first.

An index has an entry for each of perhaps 80,000 files, and reading one is most of what we do
ourselves in a first snapshot. So entries are no objects here: there is a list for each thing
that is wanted of all of them, and the rest is looked up where it stands.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Collection

from shadowsnap.records import NamedTuple

_HEADER = struct.Struct(">4sII")
_FIELDS = struct.Struct(">I8xI20sH")
"""Mode, size, object id and flags of an entry, from its mode on."""
_MODE_AT, _NAME_AT = 24, 62
_EXTENDED, _STAGE, _NAME_LENGTH = 0x4000, 0x3000, 0xFFF
_PLAIN_EXTENSIONS = {b"TREE", b"REUC", b"UNTR", b"EOIE", b"IEOT"}
_FILES = {0o100644, 0o100755, 0o120000}

STAT = struct.Struct(">IIII4xI12xI")
"""Of an entry: ctime and mtime (each in seconds, and the part below), inode and size."""


class Unfamiliar(Exception):
    """The index is of a kind that this module does not read. Git can write most of them anew in a
    plain way; to expand a sparse one it would write objects too, and freshen existing ones."""

    @property
    def beyond_rewriting(self) -> bool:
        return "sdir" in str(self)


class TheirIndex(NamedTuple):
    data: bytes
    paths: list[bytes]
    modes: list[int]
    ids: list[bytes]
    sizes: list[int]
    starts: list[int]
    """Where in the data each entry begins; they are entries of our own format."""
    others: list[bytes]
    """Paths that are no plain files of the work tree: submodules, files that are not checked
    out or only announced."""

    def blocks(self, without: Collection[bytes], size: int) -> list[tuple[int, bytes]]:
        """The entries as they stand in the file, so many together, except those of some paths."""
        spoiled = {bisect_left(self.paths, path) // size for path in without}
        blocks = []
        for number, first in enumerate(range(0, len(self.paths), size)):
            last = min(first + size, len(self.paths)) - 1
            if number in spoiled or self.others:
                entries = [self._entry(at) for at in range(first, last + 1) if self.paths[at] not in without]
                blocks.append((len(entries), b"".join(entries)))
            else:  # they follow each other
                blocks.append((last + 1 - first, self.data[self.starts[first] : self._end(last)]))
        return [block for block in blocks if block[0]]

    def _entry(self, at: int) -> bytes:
        return self.data[self.starts[at] : self._end(at)]

    def _end(self, at: int) -> int:
        return self.starts[at] + ((_NAME_AT + len(self.paths[at]) + 8) & ~7)


def read_their_index(data: bytes) -> TheirIndex:
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError) as problem:
        raise Unfamiliar(str(problem)) from None


def _read(data: bytes) -> TheirIndex:
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        raise Unfamiliar(f"version {version}")
    paths: list[bytes] = []
    modes: list[int] = []
    ids: list[bytes] = []
    sizes: list[int] = []
    starts: list[int] = []
    others: list[bytes] = []
    fields, at = _FIELDS.unpack_from, _HEADER.size
    for _ in range(count):
        mode, size, name, flags = fields(data, at + _MODE_AT)
        start = at + _NAME_AT
        if flags < _NAME_LENGTH:  # only a length: most are of this kind
            end = start + flags
            path = data[start:end]
            plain = mode in _FILES
        else:
            path, end, plain = _unusual(data, start, flags)
            plain = plain and mode in _FILES
        if plain:
            paths.append(path)
            modes.append(mode)
            ids.append(name)
            sizes.append(size)
            starts.append(at)
        else:
            others.append(path)
        at += (end - at + 8) & ~7
    _check_extensions(data, at)
    return TheirIndex(data, paths, modes, ids, sizes, starts, others)


def _unusual(data: bytes, start: int, flags: int) -> tuple[bytes, int, bool]:
    """Path and end of an entry with a long name or marks, and whether it is a file like any other."""
    if flags & _STAGE:
        raise Unfamiliar("a merge is under way")
    start += 2 if flags & _EXTENDED else 0
    length = flags & _NAME_LENGTH
    end = start + length if length < _NAME_LENGTH else data.index(b"\0", start)
    return data[start:end], end, flags <= _NAME_LENGTH  # marks: extended, assumed to be unchanged


def _check_extensions(data: bytes, at: int) -> None:
    while at < len(data) - 20:
        name, size = struct.unpack_from(">4sI", data, at)
        if name not in _PLAIN_EXTENSIONS:
            raise Unfamiliar(f"extension {name!r}")
        at += 8 + size
