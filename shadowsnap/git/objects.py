"""Git objects: their ids, and loose objects, which are files of their own.

An object id is the SHA-1 of a header (`blob 12\\0`) and the content. A loose object is the same
bytes, compressed, in `objects/<first two digits>/<the other 38>`.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from shadowsnap.files import (
    SYNCS_LATER,
    make_folder,
    make_read_only,
    open_temporary,
    sync_directory,
    sync_files,
    write_all,
)

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.git.repository import Git

EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

KINDS = (b"commit", b"tree", b"blob", b"tag")
HEX_DIGITS = frozenset("0123456789abcdef")
CHUNK = 1 << 20
MAX_IN_MEMORY = 256 << 20
"""Larger objects are not read into memory: a few bytes in a damaged file may claim to be gigabytes."""
_LARGE = 1 << 16
# Object ids are evenly distributed, so two of the 256 directories are a fair sample.
_SAMPLE = ("17", "a3")


def is_object_id(name: str) -> bool:
    return len(name) == 40 and HEX_DIGITS.issuperset(name)


class Unreadable(OSError):
    """A file whose content was to be stored could not be read. (Other errors are those of the store.)"""


def object_id(kind: bytes, data: bytes) -> str:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def stream_id(descriptor: int, size: int) -> str:
    """The id of the blob that an open file holds."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while chunk := _read_source(descriptor):
        digest.update(chunk)
    return digest.hexdigest()


def compress(data: bytes) -> bytes:
    return zlib.compress(data, 1)


class Codec(NamedTuple):
    """How the objects of a pack are deflated, and the checksum of the result is computed."""

    compress: Callable[[bytes], bytes]
    crc32: Callable[[bytes], int]


USUAL_CODEC = Codec(compress, zlib.crc32)


def fast_codec() -> Codec:
    """For much data: one that is six times as fast if the extra `fast` is installed, which has to be imported."""
    try:
        from isal import isal_zlib
    except ImportError:
        return USUAL_CODEC
    deflate = isal_zlib.compress
    # Level 0 is twice as fast for small objects and about a tenth larger. For large ones both take as long.
    return Codec(lambda data: deflate(data, 0 if len(data) < _LARGE else 1), isal_zlib.crc32)


class LooseObjects:
    """Writes loose objects into one object directory. An object that exists is written again, so that
    a damaged or empty file of that name is replaced and never trusted."""

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        self.directory = directory
        self._fsync = fsync
        self._unsynced: set[Path] = set()

    def write(self, kind: bytes, data: bytes) -> str:
        name = object_id(kind, data)
        compressed = compress(b"%s %d\0" % (kind, len(data)) + data)

        def fill(target: int) -> str:
            write_all(target, compressed)
            return name

        self._write_file(fill)
        return name

    def write_stream(self, descriptor: int, size: int, name: str | None = None) -> str | None:
        """Write the blob of `size` bytes that an open file holds, and return its id. Returns None, and writes
        nothing, if the file has another size, or another id than `name`. Raises Unreadable if it cannot be read,
        and another OSError if the object cannot be written."""

        def fill(target: int) -> str | None:
            header, left = b"blob %d\0" % size, size
            digest, compressor = hashlib.sha1(header, usedforsecurity=False), _fast_compressobj()
            write_all(target, compressor.compress(header))
            while left >= 0 and (chunk := _read_source(descriptor)):
                left -= len(chunk)
                digest.update(chunk)
                write_all(target, compressor.compress(chunk))
            write_all(target, compressor.flush())
            found = digest.hexdigest()
            return found if left == 0 and name in (None, found) else None

        return self._write_file(fill)

    def flush(self) -> None:
        """Make everything written so far survive a power cut. Call it before creating a ref that
        leads to these objects."""
        if self._unsynced:
            files = sorted(self._unsynced)
            if SYNCS_LATER:
                sync_files(files)
            for folder in (*sorted({file.parent for file in files}), self.directory):  # the folders may be new
                sync_directory(folder)
            self._unsynced.clear()

    def _write_file(self, fill: Callable[[int], str | None]) -> str | None:
        """`fill` writes the object and returns its id, or None if it is not to be kept. As that comes last, the
        temporary file is beside the packs, where upkeep finds it, too."""
        descriptor, temporary = open_temporary(self.directory / "pack", "tmp_obj_")
        try:
            try:
                name = fill(descriptor)
                if name is None:
                    return None
                path = self.directory / name[:2] / name[2:]
                make_read_only(temporary)
                # A new object is synced by `flush`. An existing one may be in use already, so it must not be
                # replaced by a file that a power cut could empty.
                if self._fsync and (not SYNCS_LATER or path.exists()):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _move(temporary, path)
            if self._fsync:
                self._unsynced.add(path)
            return name
        finally:
            temporary.unlink(missing_ok=True)


def _read_source(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except OSError as problem:
        raise Unreadable(problem.errno, problem.strerror) from problem


def _fast_compressobj() -> Any:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compressobj(1)
    return isal_zlib.compressobj(1)


def _move(temporary: Path, path: Path) -> None:
    make_folder(path.parent)
    try:
        os.replace(temporary, path)
    except FileNotFoundError:  # git removed the folder just now, because it was empty
        make_folder(path.parent)
        os.replace(temporary, path)


def read_loose(file: IO[bytes]) -> tuple[bytes, bytes]:
    """Kind and content of a loose object. Raises ValueError or zlib.error if it is damaged."""
    inflater = zlib.decompressobj()
    header, _, data = inflater.decompress(file.read(CHUNK), 64).partition(b"\0")
    rest = iter(partial(file.read, CHUNK), b"")
    return header.partition(b" ")[0], inflate(rest, _size_in(header), inflater, data)


def loose_size(file: IO[bytes]) -> int:
    """Size of a loose object according to its header. Raises ValueError or zlib.error if it is damaged."""
    return _size_in(zlib.decompressobj().decompress(file.read(128), 64).partition(b"\0")[0])


def _size_in(header: bytes) -> int:
    digits = header.partition(b" ")[2]
    if not digits.isdigit():
        raise ValueError("the header has no size")
    return int(digits)


def inflate(
    chunks: Iterator[bytes], size: int, inflater: zlib._Decompress | None = None, start: bytes = b""
) -> bytes:
    """Decompress exactly `size` bytes, of which an `inflater` may have given the `start`. Raises ValueError if
    there are fewer or more. The limit is enforced while decompressing, because a few bytes can expand to
    gigabytes."""
    if size > MAX_IN_MEMORY:
        raise ValueError("the object is too large to be held in memory")
    inflater = inflater or zlib.decompressobj()
    content = BytesIO(start)  # hands over its buffer; joining pieces would take twice the memory
    left, pending = size - content.seek(0, os.SEEK_END), inflater.unconsumed_tail
    while left > 0 and not inflater.eof:
        pending = pending or next(chunks, b"")
        if not pending:
            break
        left -= content.write(inflater.decompress(pending, min(left + 1, CHUNK)))
        pending = inflater.unconsumed_tail
    if left:
        raise ValueError("the object does not have the size in its header")
    return content.getvalue()


class Totals(NamedTuple):
    """Number and size of the objects in a store."""

    loose: int
    loose_bytes: int
    packs: int
    pack_bytes: int
    garbage_bytes: int
    packed: int = 0
    """Objects in packs; an object in two packs counts twice."""

    @property
    def bytes(self) -> int:
        return self.loose_bytes + self.pack_bytes + self.garbage_bytes


def count_objects(git: Git) -> Totals:
    rows = [line.split(b": ") for line in git.run("count-objects", "-v").splitlines()]
    counts = {row[0].decode(): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    loose_bytes, pack_bytes, garbage_bytes = (
        1024 * counts.get(name, 0) for name in ("size", "size-pack", "size-garbage")
    )
    return Totals(
        counts.get("count", 0), loose_bytes, counts.get("packs", 0), pack_bytes, garbage_bytes,
        counts.get("in-pack", 0),
    )  # fmt: skip


def stored_bytes(git_dir: Path) -> int:
    """Exact size of all object files. (`git count-objects` counts disk blocks of loose objects.)"""
    folders = [name for name in os.listdir(git_dir / "objects") if len(name) == 2]
    return pack_bytes(git_dir)[1] + sum(_files_in(git_dir, folder)[1] for folder in folders)


def guess_loose(git_dir: Path) -> tuple[int, int]:
    """Approximate number of loose objects, and their bytes."""
    sample = [_files_in(git_dir, folder) for folder in _SAMPLE]
    scale = 256 // len(_SAMPLE)
    return scale * sum(count for count, _ in sample), scale * sum(size for _, size in sample)


def pack_bytes(git_dir: Path) -> tuple[int, int]:
    """Number of packs, and their bytes."""
    return _files_in(git_dir, "pack", ".pack")


def _files_in(git_dir: Path, folder: str, ending: str = "") -> tuple[int, int]:
    count = size = 0
    try:
        with os.scandir(git_dir / "objects" / folder) as entries:
            for entry in entries:
                if entry.name.endswith(ending):
                    size += entry.stat().st_size
                    count += 1
    except OSError:
        pass  # absent, or removed while it was listed
    return count, size
