"""Git index files: our own, which is the stat cache of the newest capture, and those of repositories.

Our index has git's format, so git can compare the work tree with it (`diff-files`, `ls-files`). Git
never writes it. We write it without git: recording one changed file in a tree of 80,000 costs a copy
of the file instead of three processes. Entries are grouped in blocks, which are listed in git's
"index entry offset table". Git uses the table to load the file with several threads, we use it
to find a path without reading everything.

The file has the modification time 0. Otherwise git would read again every file that is as young as
the index ("racy"), and on the way open `.gitattributes`, whatever a project has put there. With time 0
git compares times and sizes alone, and a capture itself checks the files that are too young.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from shadowsnap.errors import MalformedObject

_HEADER = struct.Struct(">4sII")
_FIXED = struct.Struct(">IIIIIIIIII20sH")
"""An entry up to its path: two times, device, inode, mode, owner, group, size, object id, flags."""
_CTIME, _LEAF, _KIND = struct.Struct(">II"), struct.Struct(">24xI12x20s2x"), struct.Struct(">24xI32xH")
"""Parts of it; in `_KIND`, what an `Entry` has in place of the flags."""
_FIXED_WITHOUT_STAT = struct.Struct(">24xI12x20s")
_FLAGS_AT = _FIXED.size - 2
_DEVICE_AT, _MODE_AT, _HASH_AT = 16, 24, 40
_BLOCK_ENTRIES = 128
_LONG_NAME = 0xFFF
_32_BITS = 0xFFFFFFFF


class Entry(bytes):
    """An entry to be written: what the index holds before the path, with the permission bits of the file in place
    of the flags. A first capture holds one for every file, so it is a single object."""

    __slots__ = ()
    LENGTH = _FIXED.size

    @classmethod
    def several(cls, entries: bytes) -> Iterator[Entry]:
        """Entries that are written one after the other."""
        return map(cls, (entries[at : at + cls.LENGTH] for at in range(0, len(entries), cls.LENGTH)))

    @classmethod
    def of(cls, mode: int, name: str, seen: os.stat_result) -> Entry:
        return cls(
            _FIXED.pack(
                seen.st_ctime_ns // 10**9 & _32_BITS, seen.st_ctime_ns % 10**9,
                seen.st_mtime_ns // 10**9 & _32_BITS, seen.st_mtime_ns % 10**9,
                seen.st_dev & _32_BITS, _inode(seen), mode,
                seen.st_uid & _32_BITS, seen.st_gid & _32_BITS, seen.st_size & _32_BITS,
                bytes.fromhex(name), stat.S_IMODE(seen.st_mode),
            )
        )  # fmt: skip

    @property
    def mode(self) -> int:
        return self.kind[0]

    @property
    def kind(self) -> tuple[int, int]:
        """The mode, and the permission bits."""
        mode, bits = _KIND.unpack(self)
        return mode, bits

    @property
    def id(self) -> str:
        return self[_HASH_AT:_FLAGS_AT].hex()

    @property
    def ctime(self) -> tuple[int, int]:
        """In seconds, and the nanoseconds beyond them."""
        seconds, nanoseconds = _CTIME.unpack_from(self)
        return seconds, nanoseconds

    def is_on(self, device: int) -> bool:
        return int.from_bytes(self[_DEVICE_AT : _DEVICE_AT + 4]) == device & _32_BITS

    # Of many entries, without a function call for each.

    @staticmethod
    def kinds(entries: Iterable[Entry]) -> Iterator[tuple[int, int]]:
        """The `kind` of each."""
        return map(_KIND.unpack, entries)

    @staticmethod
    def leaves(entries: Iterable[Entry]) -> Iterator[tuple[int, bytes]]:
        """The mode and the binary object id of each."""
        return map(_LEAF.unpack, entries)

    @staticmethod
    def recent(entries: Mapping[bytes, Entry], since_ns: int, device: int) -> dict[bytes, Entry]:
        """Those that changed since then, or are on another device, which may have another time."""
        since, here = _CTIME.pack(*divmod(max(0, since_ns), 10**9)), (device & _32_BITS).to_bytes(4)
        return {
            path: entry
            for path, entry in entries.items()
            if entry[: _CTIME.size] >= since or entry[_DEVICE_AT : _DEVICE_AT + 4] != here
        }


class Known(NamedTuple):
    """An entry as the index holds it."""

    mode: int
    id: str
    ctime_ns: int
    mtime_ns: int
    inode: int
    size: int

    @classmethod
    def of(cls, entry: Entry) -> Known:
        return _decode(entry, 0)

    def is_unwritten(self, seen: os.stat_result) -> bool:
        """Whether the content of a file did not change since. A rename may have changed its ctime."""
        now = (seen.st_mtime_ns, _inode(seen), seen.st_size & _32_BITS)
        return now == (self.mtime_ns, self.inode, self.size)

    def is_untouched(self, seen: os.stat_result) -> bool:
        """Whether nothing at all happened to a file since."""
        return seen.st_ctime_ns == self.ctime_ns and self.is_unwritten(seen)


class _Block(NamedTuple):
    start: int
    end: int
    entries: int


class Index:
    """One index file, as it was when it was read or written. A written one is read again on demand."""

    def __init__(self, path: Path, data: bytes | None = b"", checksum: str = "") -> None:
        self.path = path
        self.checksum = checksum if data is None else data[-20:].hex()
        """Identifies this exact content; empty for an empty index."""
        if data is not None:
            self._data = data

    @classmethod
    def load(cls, path: Path) -> Index:
        """The index at `path`; empty if there is no file. Raises `MalformedObject` if it is damaged."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls(path)
        try:
            # Git does not verify this when it reads an index.
            if hashlib.sha1(memoryview(data)[:-20], usedforsecurity=False).digest() != data[-20:]:
                raise ValueError("its checksum is wrong")
            index = cls(path, data)
            index._firsts  # noqa: B018 (reads the table of blocks)
            return index
        except (struct.error, IndexError, ValueError) as problem:
            raise MalformedObject(what=path.name, why=problem) from None

    @cached_property
    def _data(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def _view(self) -> memoryview:
        return memoryview(self._data)

    @cached_property
    def _blocks(self) -> list[_Block]:
        return list(_read_blocks(self._data)) if self._data else []

    @cached_property
    def _firsts(self) -> list[bytes]:
        """The first path of each block."""
        return [_path_at(self._data, block.start) for block in self._blocks]

    def __len__(self) -> int:
        return sum(block.entries for block in self._blocks)

    def items(self) -> Iterator[tuple[bytes, Known]]:
        for block in self._blocks:
            for path, entry in self._entries(block):
                yield path, _decode(entry, 0)

    def paths(self) -> Iterator[bytes]:
        for block in self._blocks:
            for path, _ in self._entries(block):
                yield path

    def paths_below(self, folder: bytes) -> Iterator[bytes]:
        """Every path inside a directory."""
        prefix = folder + b"/"
        for number in range(max(0, bisect_right(self._firsts, prefix) - 1), len(self._blocks)):
            if self._firsts[number] > prefix and not self._firsts[number].startswith(prefix):
                return
            for path, _ in self._entries(self._blocks[number]):
                if path.startswith(prefix):
                    yield path

    def lookup(self, paths: Iterable[bytes]) -> dict[bytes, Known]:
        """The entries of those of the paths that are in the index."""
        found: dict[bytes, Known] = {}
        for number, wanted in self._by_block(paths).items():
            for path, at in self._locate(self._blocks[number], set(wanted)):
                found[path] = _decode(self._view, at)
        return found

    def _locate(self, block: _Block, names: set[bytes]) -> Iterator[tuple[bytes, int]]:
        """The offsets of the entries with these names. Most others are passed over by the length of their
        name alone: this loop is most of the cost of a lookup."""
        data, at, lengths = self._data, block.start, {len(name) for name in names}
        try:
            for _ in range(block.entries):
                length = (data[at + _FLAGS_AT] & 0x0F) << 8 | data[at + _FLAGS_AT + 1]
                if length in lengths or length == _LONG_NAME:
                    path = _path_at(data, at)
                    length = len(path)
                    if path in names:
                        yield path, at
                at += _entry_size(length)
        except IndexError:
            at = -1
        self._check_end(block, at)

    def _entries(self, block: _Block) -> Iterator[tuple[bytes, memoryview]]:
        at = block.start
        try:
            for _ in range(block.entries):
                path = _path_at(self._view, at)
                end = at + _entry_size(len(path))
                yield path, self._view[at:end]
                at = end
        except IndexError:
            at = -1
        self._check_end(block, at)

    def _check_end(self, block: _Block, at: int) -> None:
        if at != block.end:
            raise MalformedObject(what=self.path.name, why="its blocks do not add up")

    def _by_block(self, paths: Iterable[bytes]) -> dict[int, list[bytes]]:
        grouped: dict[int, list[bytes]] = {}
        if self._blocks:
            for path in sorted(paths):
                grouped.setdefault(max(0, bisect_right(self._firsts, path) - 1), []).append(path)
        return grouped

    def write(self, changes: Mapping[bytes, Entry | None]) -> Index:
        """Write the file anew with these entries set, or removed where the value is None. Blocks without
        changes are copied."""
        chunks: list[tuple[int, bytes | memoryview]] = []
        touched = self._by_block(changes) if self._blocks else {0: sorted(changes)}
        for number in range(max(1, len(self._blocks))):
            if number not in touched:
                block = self._blocks[number]
                chunks.append((block.entries, self._view[block.start : block.end]))
                continue
            old = self._entries(self._blocks[number]) if self._blocks else ()
            entries: dict[bytes, bytes | memoryview] = dict(old)
            for path in touched[number]:
                entry = changes[path]
                if entry is None:
                    entries.pop(path, None)
                else:
                    entries[path] = _encode(path, entry)
            chunks.extend(_into_blocks(entries))
        return self._save(chunks)

    def write_without_stat(self, leaves: Mapping[bytes, tuple[int, str]]) -> None:
        """Write the file anew with entries of files that do not exist yet: mode and object id only."""
        encoded = {
            path: _encode(path, _FIXED_WITHOUT_STAT.pack(mode, bytes.fromhex(name)))
            for path, (mode, name) in leaves.items()
        }
        self._save([*_into_blocks(encoded)])

    def _save(self, chunks: list[tuple[int, bytes | memoryview]]) -> Index:
        digest = hashlib.sha1(usedforsecurity=False)
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:

                def put(data: bytes | memoryview) -> None:
                    digest.update(data)
                    file.write(data)

                put(_HEADER.pack(b"DIRC", 2, sum(count for count, _ in chunks)))
                table, at = [], _HEADER.size
                for count, data in chunks:
                    put(data)
                    if count:
                        table.append(struct.pack(">II", at, count))
                    at += len(data)
                put(_extensions(table, at))
                file.write(digest.digest())
            os.utime(temporary, (0, 0))
            os.replace(temporary, self.path)
        finally:
            temporary.unlink(missing_ok=True)
        return Index(self.path, None, digest.hexdigest())


def _read_blocks(data: bytes) -> Iterator[_Block]:
    """The blocks of an index that was written here, from its offset table (see `_extensions`)."""
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version != 2:
        raise ValueError("not an index of version 2")
    if count == 0:
        return
    tail = len(data) - 20 - 32
    if data[tail : tail + 4] != b"EOIE":
        raise ValueError("no entry table")
    (entries_end,) = struct.unpack_from(">I", data, tail + 8)
    name, size, _ = struct.unpack_from(">4sII", data, entries_end)
    if name != b"IEOT":
        raise ValueError("no entry table")
    rows = list(struct.iter_unpack(">II", data[entries_end + 12 : entries_end + 8 + size]))
    ends = [start for start, _ in rows[1:]] + [entries_end]
    if sum(number for _, number in rows) != count or rows[0][0] != _HEADER.size:
        raise ValueError("the entry table does not add up")
    for (start, number), end in zip(rows, ends, strict=True):
        yield _Block(start, end, number)


def _extensions(table: list[bytes], entries_end: int) -> bytes:
    """The offset table (IEOT), and where the entries end (EOIE)."""
    if not table:
        return b""
    body = struct.pack(">I", 1) + b"".join(table)
    header = b"IEOT" + struct.pack(">I", len(body))
    digest = hashlib.sha1(header, usedforsecurity=False).digest()
    return header + body + b"EOIE" + struct.pack(">II", 24, entries_end) + digest


def _into_blocks(entries: Mapping[bytes, bytes | memoryview]) -> Iterator[tuple[int, bytes]]:
    ordered = sorted(entries)
    # A block may grow to twice the usual size before it is split, so that adding files to a
    # full block does not split it each time.
    size = _BLOCK_ENTRIES if len(ordered) > 2 * _BLOCK_ENTRIES else 2 * _BLOCK_ENTRIES
    for at in range(0, len(ordered), size):
        part = ordered[at : at + size]
        yield len(part), b"".join(entries[path] for path in part)


def _decode(data: bytes | memoryview, at: int) -> Known:
    cs, cn, ms, mn, _, inode, mode, _, _, size, name, _ = _FIXED.unpack_from(data, at)
    return Known(mode, name.hex(), cs * 10**9 + cn, ms * 10**9 + mn, inode, size)


def _encode(path: bytes, entry: bytes) -> bytes:
    length = len(path)
    flags = (length if length < _LONG_NAME else _LONG_NAME).to_bytes(2)
    return b"%b%b%b" % (entry[:_FLAGS_AT], flags, path.ljust(_entry_size(length) - _FIXED.size, b"\0"))


def _entry_size(name_length: int) -> int:
    return (_FIXED.size + name_length + 8) & ~7


def _inode(seen: os.stat_result) -> int:
    return 0 if sys.platform == "win32" else seen.st_ino & _32_BITS  # git for Windows does not use them


def _path_at(data: bytes | memoryview, at: int) -> bytes:
    start = at + _FIXED.size
    length = (data[start - 2] & 0x0F) << 8 | data[start - 1]
    if length < _LONG_NAME:
        return bytes(data[start : start + length])
    end = start + _LONG_NAME
    while data[end]:
        end += 1
    return bytes(data[start:end])


# --- the index of a repository of the user ----------------------------------------------------------

_EXTENDED = 0x4000
_FILE_TYPES = frozenset({0o100000, 0o120000})
_LONGEST_NAME = 1 << 16
_NAME_BYTES_PER_BYTE = 8
"""In version 4, a few bytes can make a name of any length. Real names need less than half of this limit."""

ReadShared = Callable[[str], bytes | None]
"""Reads the shared file of a split index, by the id in its name."""


def tracked_paths(data: bytes, read_shared: ReadShared) -> set[bytes]:
    """Every file in an index of any version. Submodules and sparse directories are not files. Raises
    `MalformedObject` if the index is damaged."""
    for hash_size in (20, 32):  # SHA-1 or SHA-256; the file does not say which
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
    deleted, replaced = set[int](), set[int]()
    if len(link) > hash_size:
        deleted, end = _bitmap(link, hash_size, len(base))
        replaced, _ = _bitmap(link, end, len(base))
    # An entry without a name replaces an entry of the shared file, which has the name. Its type may be another.
    types = dict(zip(sorted(replaced), (is_file for path, is_file in entries if not path), strict=True))
    kept = {path for at, (path, was_file) in enumerate(base) if types.get(at, was_file) and at not in deleted}
    return kept | {path for path, is_file in entries if is_file and path}


def _parse(data: bytes, hash_size: int) -> tuple[list[tuple[bytes, bool]], dict[bytes, bytes]]:
    """The paths in order, each with whether it is a file; and the extensions by name."""
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of version 2, 3 or 4")
    if count * (_HASH_AT + hash_size + 2) > len(data):
        raise ValueError("it is too short for its number of entries")
    entries: list[tuple[bytes, bool]] = []
    at, name, flags_at = _HEADER.size, b"", _HASH_AT + hash_size
    left = _NAME_BYTES_PER_BYTE * len(data)
    for _ in range(count):
        mode = int.from_bytes(data[at + _MODE_AT : at + _MODE_AT + 4], "big")
        start = at + flags_at + 2
        if data[at + flags_at] << 8 & _EXTENDED:
            start += 2
        if version == 4:  # a name starts with part of the previous one
            cut, start = _varint(data, start)
            if cut > len(name):
                raise ValueError("a name shares more than the previous one has")
            end = data.index(b"\0", start, start + _LONGEST_NAME)
            name = name[: len(name) - cut] + data[start:end]
            at = end + 1
        else:
            end = data.index(b"\0", start, start + _LONGEST_NAME)
            name = data[start:end]
            at += (end - at + 8) & ~7
        left -= len(name)
        if left < 0:
            raise ValueError("the names are too long")
        entries.append((name, mode & 0o170000 in _FILE_TYPES))
    return entries, _parse_extensions(data, at, len(data) - hash_size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in git's variable-length encoding, and the position behind it."""
    byte = data[at]
    value, at = byte & 0x7F, at + 1
    while byte & 0x80:
        byte = data[at]
        value, at = (value + 1) << 7 | byte & 0x7F, at + 1
        if value > _LONGEST_NAME:
            raise ValueError("a number is too large")
    return value, at


def _parse_extensions(data: bytes, at: int, end: int) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while at < end:
        name, size = struct.unpack_from(">4sI", data, at)
        if at + 8 + size > end:
            raise ValueError("an extension is cut short")
        found[name] = data[at + 8 : at + 8 + size]
        at += 8 + size
    if at != end:
        raise ValueError("entries and extensions do not add up")
    return found


def _bitmap(data: bytes, at: int, limit: int) -> tuple[set[int], int]:
    """The positions below `limit` that are set in an EWAH bitmap: runs of equal words, each followed
    by some literal words. Also the position behind the bitmap."""
    _, words = struct.unpack_from(">II", data, at)
    if 8 * words > len(data):
        raise ValueError("a bitmap is cut short")
    rows = struct.unpack_from(f">{words}Q", data, at + 8)
    found: set[int] = set()
    position = number = 0
    while number < words and position < limit:
        run = rows[number]
        number += 1
        length = 64 * (run >> 1 & 0xFFFFFFFF)
        if run & 1:
            found.update(range(position, min(position + length, limit)))
        position += length
        for word in rows[number : number + (run >> 33)]:
            found.update(position + bit for bit in range(64) if word >> bit & 1)
            position += 64
        number += run >> 33
    return {each for each in found if each < limit}, at + 8 + 8 * words + 4
