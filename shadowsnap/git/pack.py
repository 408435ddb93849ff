"""Writing objects as one pack, instead of one file per object.

Whether a snapshot has five new objects or thousands, they go into one file; the pack's own index
follows from what was learned on the way.
"""

from __future__ import annotations

import os
import struct
import zlib
from itertools import accumulate
from pathlib import Path

from shadowsnap.digests import sha1
from shadowsnap.git.files import make_read_only, open_temporary, sync_directory
from shadowsnap.git.objects import CHUNK, object_id
from shadowsnap.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedRandom

_KINDS = {b"commit": 1, b"tree": 2, b"blob": 3}
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
            header = _entry_header(_KINDS[item.kind], item.size)
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
        digest = sha1(more=self._offset)
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
        return body + sha1(body).digest()


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
