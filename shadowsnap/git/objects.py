"""Git objects: naming them, and writing each as a file of its own."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from shadowsnap.files import SYNCS_LATER, make_read_only, open_temporary, sync_directory, sync_files, write_all

EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

CHUNK = 1 << 20


def object_id(kind: bytes, data: bytes) -> str:
    digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def stream_id(descriptor: int, size: int) -> str:
    """The name of the blob that an open file holds."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while chunk := os.read(descriptor, CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


class LooseObjects:
    """Writes objects into one object directory. An object that is there already is written
    again: a damaged or empty file under the right name is thereby replaced, never trusted."""

    def __init__(self, directory: Path, *, fsync: bool) -> None:
        self.directory = directory
        self._fsync = fsync
        self._unsettled: set[Path] = set()

    def settle(self) -> None:
        """Make everything written so far survive a power cut; to be called before a ref is made
        that needs it."""
        if self._unsettled:
            files = sorted(self._unsettled)
            if SYNCS_LATER:
                sync_files(files)
            for folder in (*sorted({file.parent for file in files}), self.directory):  # where they may be new
                sync_directory(folder)
            self._unsettled.clear()

    def write(self, kind: bytes, data: bytes) -> str:
        name = object_id(kind, data)
        packed = zlib.compress(b"%s %d\0" % (kind, len(data)) + data, 1)
        self._place(name, lambda descriptor: write_all(descriptor, packed))
        return name

    def write_stream(self, descriptor: int, size: int, name: str) -> bool:
        """Write the blob `name` of `size` bytes from an open file; False if the file no longer
        holds what was named."""
        digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)

        def copy(target: int) -> None:
            squeeze = zlib.compressobj(1)
            write_all(target, squeeze.compress(b"blob %d\0" % size))
            while chunk := os.read(descriptor, CHUNK):
                digest.update(chunk)
                write_all(target, squeeze.compress(chunk))
            write_all(target, squeeze.flush())

        return self._place(name, copy, lambda: digest.hexdigest() == name)

    def _place(self, name: str, fill: Callable[[int], None], check: Callable[[], bool] = lambda: True) -> bool:
        folder = self.directory / name[:2]
        place = folder / name[2:]
        descriptor, temporary = open_temporary(folder, "tmp_obj_")
        try:
            try:
                fill(descriptor)
                make_read_only(temporary)
                # A new object waits for `settle`; one that others may rely on is not replaced by what
                # a power cut could take away.
                if self._fsync and (not SYNCS_LATER or place.exists()):
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if not check():
                return False
            os.replace(temporary, place)
            if self._fsync:
                self._unsettled.add(place)
            return True
        finally:
            temporary.unlink(missing_ok=True)
