"""The private index: git's own file format, used as the stat cache of the newest capture.

Git reads this file (`diff-files`, `ls-files`) and never writes it; we write it without git,
so that recording one changed file in a tree of 80,000 costs a copy of the file and not three
processes. Entries are grouped in blocks, announced in git's "index entry offset table": git
uses it to load the file with several threads, we use it to find a path without reading all.

Racy files: git reads a file again if it is as young as the index. It would read `.gitattributes` files on the
way, and whatever a project has put in their place. So the index file has no time at all (0): then git compares
times and sizes alone, and a capture looks itself at files whose times prove nothing yet.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from shadowsnap.errors import MalformedObject
from shadowsnap.records import NamedTuple

_HEADER = struct.Struct(">4sII")
_FIXED = struct.Struct(">IIIIIIIIII20sH")
_UNSEEN = struct.Struct(">24xI12x20sH")
"""The same without anything about a file."""
_BLOCK_ENTRIES = 128
_LONG_NAME = 0xFFF
_LOW = 0xFFFFFFFF


class Entry(NamedTuple):
    mode: int
    id: str
    stat: os.stat_result


class Known(NamedTuple):
    """What the index says about a path."""

    mode: int
    id: str
    ctime_ns: int
    mtime_ns: int
    inode: int
    size: int

    @classmethod
    def of(cls, entry: Entry) -> Known:
        seen = entry.stat
        times = seen.st_ctime_ns, seen.st_mtime_ns
        return cls(entry.mode, entry.id, *times, _inode(seen), seen.st_size & _LOW)

    def is_unwritten(self, seen: os.stat_result) -> bool:
        """Whether a file was not written to since; its ctime may have changed by a rename."""
        now = (seen.st_mtime_ns, _inode(seen), seen.st_size & _LOW)
        return now == (self.mtime_ns, self.inode, self.size)

    def is_untouched(self, seen: os.stat_result) -> bool:
        """Whether nothing at all happened to a file since."""
        return seen.st_ctime_ns == self.ctime_ns and self.is_unwritten(seen)


class _Block(NamedTuple):
    start: int
    end: int
    entries: int


class Index:
    """One index file, as it was when it was read."""

    def __init__(self, path: Path, data: bytes | None = b"", checksum: str = "") -> None:
        self.path = path
        self.checksum = checksum if data is None else data[-20:].hex()
        """Names this exact content; empty for an empty index."""
        if data is not None:
            self._bytes = data

    @cached_property
    def _bytes(self) -> bytes:
        """What was written here just now. (Few look at it again.)"""
        return self.path.read_bytes()

    @cached_property
    def _data(self) -> memoryview:
        return memoryview(self._bytes)

    @cached_property
    def _blocks(self) -> list[_Block]:
        return list(_read_blocks(self._bytes)) if self._bytes else []

    @cached_property
    def _firsts(self) -> list[bytes]:
        return [_path_at(self._bytes, block.start) for block in self._blocks]

    @classmethod
    def load(cls, path: Path) -> Index:
        """The index at `path`; an absent one is an empty one."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls(path)
        try:
            # Git does not check this when it reads: what was damaged on disk would be believed.
            if hashlib.sha1(memoryview(data)[:-20], usedforsecurity=False).digest() != data[-20:]:
                raise ValueError("its checksum is wrong")
            index = cls(path, data)
            index._firsts  # noqa: B018 (reads the table of blocks)
            return index
        except (struct.error, IndexError, ValueError) as problem:
            raise MalformedObject(what=path.name, why=problem) from None

    def __len__(self) -> int:
        return sum(block.entries for block in self._blocks)

    def items(self) -> Iterator[tuple[bytes, Known]]:
        """Every path with what is known of it."""
        for block in self._blocks:
            for path, entry in self._entries(block):
                yield path, _known(entry, 0)

    def lookup(self, paths: Iterable[bytes]) -> dict[bytes, Known]:
        """What is known of those of the paths that are in the index."""
        found: dict[bytes, Known] = {}
        for number, wanted in self._by_block(paths).items():
            for path, at in self._located(self._blocks[number], set(wanted)):
                found[path] = _known(self._data, at)
        return found

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

    def write(self, changes: Mapping[bytes, Entry | None]) -> Index:
        """Write the file anew with these entries set or removed."""
        chunks: list[tuple[int, bytes | memoryview]] = []
        touched = self._by_block(changes) if self._blocks else {0: sorted(changes)}
        for number in range(max(1, len(self._blocks))):
            if number not in touched:
                block = self._blocks[number]
                chunks.append((block.entries, self._data[block.start : block.end]))
                continue
            old = self._entries(self._blocks[number]) if self._blocks else ()
            entries: dict[bytes, bytes | memoryview] = dict(old)
            for path in touched[number]:
                entry = changes[path]
                if entry is None:
                    entries.pop(path, None)
                else:
                    entries[path] = _encode(path, entry)
            chunks.extend(_chunked(entries))
        return self._save(chunks)

    def write_unseen(self, leaves: Mapping[bytes, tuple[int, str]]) -> None:
        """Write the file anew with these entries, of files that are yet to be made."""
        encoded = {path: _encode_unseen(path, mode, name) for path, (mode, name) in leaves.items()}
        self._save([*_chunked(encoded)])

    def _by_block(self, paths: Iterable[bytes]) -> dict[int, list[bytes]]:
        grouped: dict[int, list[bytes]] = {}
        if self._blocks:
            for path in sorted(paths):
                grouped.setdefault(max(0, bisect_right(self._firsts, path) - 1), []).append(path)
        return grouped

    def _entries(self, block: _Block) -> Iterator[tuple[bytes, memoryview]]:
        at = block.start
        for _ in range(block.entries):
            path = _path_at(self._data, at)
            end = at + _entry_size(len(path))
            yield path, self._data[at:end]
            at = end
        if at != block.end:
            raise MalformedObject(what=self.path.name, why="its blocks do not add up")

    def _located(self, block: _Block, names: set[bytes]) -> Iterator[tuple[bytes, int]]:
        """Where the entries of these names begin. Most others are passed by after a look at the
        length of their name: this loop is most of what a lookup costs."""
        data, at, flags, lengths = self._bytes, block.start, _FIXED.size - 2, {len(name) for name in names}
        for _ in range(block.entries):
            length = (data[at + flags] & 0x0F) << 8 | data[at + flags + 1]
            if length in lengths or length == _LONG_NAME:
                path = _path_at(data, at)
                length = len(path)
                if path in names:
                    yield path, at
            at += _entry_size(length)
        if at != block.end:
            raise MalformedObject(what=self.path.name, why="its blocks do not add up")

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


def _known(data: memoryview, at: int) -> Known:
    cs, cn, ms, mn, _, inode, mode, _, _, size, name, _ = _FIXED.unpack_from(data, at)
    return Known(mode, name.hex(), cs * 10**9 + cn, ms * 10**9 + mn, inode, size)


def _encode(path: bytes, entry: Entry) -> bytes:
    seen = entry.stat
    fixed = _FIXED.pack(
        seen.st_ctime_ns // 10**9 & _LOW, seen.st_ctime_ns % 10**9,
        seen.st_mtime_ns // 10**9 & _LOW, seen.st_mtime_ns % 10**9,
        seen.st_dev & _LOW, _inode(seen), entry.mode, seen.st_uid & _LOW, seen.st_gid & _LOW, seen.st_size & _LOW,
        bytes.fromhex(entry.id), min(len(path), _LONG_NAME),
    )  # fmt: skip
    return (fixed + path).ljust(_entry_size(len(path)), b"\0")


def _encode_unseen(path: bytes, mode: int, name: str) -> bytes:
    fixed = _UNSEEN.pack(mode, bytes.fromhex(name), min(len(path), _LONG_NAME))
    return (fixed + path).ljust(_entry_size(len(path)), b"\0")


def _inode(seen: os.stat_result) -> int:
    return 0 if sys.platform == "win32" else seen.st_ino & _LOW  # git for Windows knows none


def _entry_size(name_length: int) -> int:
    return (_FIXED.size + name_length + 8) & ~7


def _path_at(data: bytes | memoryview, at: int) -> bytes:
    start = at + _FIXED.size
    length = (data[start - 2] & 0x0F) << 8 | data[start - 1]
    if length < _LONG_NAME:
        return bytes(data[start : start + length])
    end = start + _LONG_NAME
    while data[end]:
        end += 1
    return bytes(data[start:end])


def _chunked(entries: Mapping[bytes, bytes | memoryview]) -> Iterator[tuple[int, bytes]]:
    ordered = sorted(entries)
    # Blocks may grow to twice the usual size before they are cut, so that adding files to a
    # full block does not cut it anew each time.
    size = _BLOCK_ENTRIES if len(ordered) > 2 * _BLOCK_ENTRIES else 2 * _BLOCK_ENTRIES
    for at in range(0, len(ordered), size):
        part = ordered[at : at + size]
        yield len(part), b"".join(entries[path] for path in part)


def _extensions(table: list[bytes], entries_end: int) -> bytes:
    if not table:
        return b""
    body = struct.pack(">I", 1) + b"".join(table)
    offsets = b"IEOT" + struct.pack(">I", len(body))
    named = hashlib.sha1(offsets, usedforsecurity=False).digest()
    return offsets + body + b"EOIE" + struct.pack(">II", 24, entries_end) + named


def _read_blocks(data: bytes) -> Iterator[_Block]:
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


_FOREIGN_HEADER = struct.Struct(">4sII")
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
    signature, version, count = _FOREIGN_HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of version 2, 3 or 4")
    if count * (_HASH_AT + hash_size + 2) > len(data):
        raise ValueError("more entries than there is room for")
    entries: list[tuple[bytes, bool]] = []
    at, name, flags_at = _FOREIGN_HEADER.size, b"", _HASH_AT + hash_size
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
    return entries, _foreign_extensions(data, at, len(data) - hash_size)


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


def _foreign_extensions(data: bytes, at: int, end: int) -> dict[bytes, bytes]:
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
