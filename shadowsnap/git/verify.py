"""Checking object files byte by byte, without git: it stops at the first damage, we want all of it.

A pack carries a checksum of itself, so one read tells whether it is sound; a loose object is
its own checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject
from shadowsnap.git.deadline import NO_DEADLINE, Deadline
from shadowsnap.git.objects import CHUNK, object_id
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.runner import Git

_FANOUT = re.compile(r"[0-9a-f]{2}")
_REST = re.compile(r"[0-9a-f]{38}")
_TRAILER = 20
_AT_ONCE = 100
KINDS = (b"commit", b"tree", b"blob", b"tag")


def loose_objects(objects: Path) -> Iterator[tuple[str, Path]]:
    """Id and file of every loose object, sound or not."""
    for folder in _listed(objects):
        if _FANOUT.fullmatch(folder):
            for name in _listed(objects / folder):
                if _REST.fullmatch(name):
                    yield folder + name, objects / folder / name


FOLLOWED = "something follows its content"
"""Git does not read such an object, although nothing of it is lost."""


def loose_problem(path: Path, name: str) -> str | None:
    """What is wrong with a loose object; None if it holds just what its name says."""
    digest = hashlib.sha1(usedforsecurity=False)
    head, size = b"", 0
    unpack = zlib.decompressobj()
    try:
        with open(path, "rb") as file:
            while packed := file.read(CHUNK):
                # In portions: a few bytes on disk may unfold to gigabytes.
                while packed:
                    data = unpack.decompress(packed, CHUNK)
                    digest.update(data)
                    head, size = (head or data[:40]), size + len(data)
                    packed = unpack.unconsumed_tail
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    except zlib.error:
        return "it cannot be unpacked"
    if not size:
        return "it is empty"
    if not unpack.eof:
        return "it is cut short"
    if digest.hexdigest() != name:
        return "its content does not fit its name"
    return FOLLOWED if unpack.unused_data else None


def loose_content(path: Path) -> tuple[bytes, bytes]:
    """Kind and content of a loose object, whatever follows it."""
    header, _, data = zlib.decompressobj().decompress(path.read_bytes()).partition(b"\0")
    return header.partition(b" ")[0], data


def packs(objects: Path) -> list[Path]:
    """Every pack that has a `.pack` or an `.idx` file, as the path of the former."""
    names = {name.rpartition(".")[0] for name in _listed(objects / "pack") if name.endswith((".pack", ".idx"))}
    return [objects / "pack" / f"{name}.pack" for name in sorted(names) if name.startswith("pack-")]


def pack_files(pack: Path) -> list[Path]:
    """The pack with everything that belongs to it; the index that announces it comes first."""
    belonging = (pack.with_suffix(end) for end in (".idx", ".rev", ".bitmap", ".mtimes", ".keep", ".pack"))
    return [path for path in belonging if path.exists()]


def pack_problem(pack: Path, deadline: Deadline = NO_DEADLINE) -> str | None:
    """What is wrong with a pack or its index."""
    index = pack.with_suffix(".idx")
    if not pack.exists():
        return "only its index is there"
    if not index.exists():
        return "it has no index"
    try:
        announced = _checked_index(index)
        return _body_problem(pack, announced[-2 * _TRAILER : -_TRAILER], deadline)
    except MalformedObject as problem:
        return str(problem)
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"


def lying_packs(git: Git, files: list[Path]) -> set[Path]:
    """Those of the packs that hold other objects than their indexes say: git reads and hashes each object."""
    found: set[Path] = set()
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        try:
            git.run("verify-pack", *(str(pack.with_suffix(".idx")) for pack in some))
        except GitFailed:
            found |= {*some} if len(some) == 1 else {each for pack in some for each in lying_packs(git, [pack])}
    return found


def pack_ids(index: Path) -> list[str]:
    """The objects that a pack index announces; raises if the index is damaged."""
    data = _checked_index(index)
    (count,) = struct.unpack_from(">I", data, 8 + 255 * 4)
    names = data[8 + 256 * 4 : 8 + 256 * 4 + count * 20].hex()
    return [names[at : at + 40] for at in range(0, len(names), 40)]


def read_whole(git: Git, names: Iterable[str]) -> Iterator[tuple[str, bytes, bytes]]:
    """Those of the objects that can be read and hold what their names say: id, kind, content."""
    names = list(names)
    kinds = _kinds(git, names)
    with ObjectReader(git) as reader:
        for name in names:
            for kind in (kinds[name],) if name in kinds else KINDS:
                try:
                    data = reader.read(name, kind)
                except DamagedObject:
                    continue
                if object_id(kind, data) == name:
                    yield name, kind, data
                    break


def _kinds(git: Git, names: list[str]) -> dict[str, bytes]:
    asked = "".join(f"{name}\n" for name in names).encode()
    try:
        answer = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked) if names else b""
    except GitFailed:  # it died of one of them: each is tried as everything
        return {}
    rows = (line.split() for line in answer.splitlines())
    return {name.decode(): kind for name, kind in rows if kind in KINDS}


def _checked_index(index: Path) -> bytes:
    data = index.read_bytes()
    if len(data) < 8 + 256 * 4 + 2 * _TRAILER or data[:8] != b"\377tOc\0\0\0\2":
        raise MalformedObject(what=index.name, why="it is not a pack index")
    if hashlib.sha1(memoryview(data)[:-_TRAILER], usedforsecurity=False).digest() != data[-_TRAILER:]:
        raise MalformedObject(what=index.name, why="its checksum is wrong")
    return data


def _body_problem(pack: Path, checksum: bytes, deadline: Deadline) -> str | None:
    digest = hashlib.sha1(usedforsecurity=False)
    with open(pack, "rb") as file:
        left = os.fstat(file.fileno()).st_size - _TRAILER
        if left < 12:
            return "it is empty" if left == -_TRAILER else "it is cut short"
        while left:
            deadline.check("reading packs")
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                return "it is cut short"
            digest.update(chunk)
            left -= len(chunk)
        trailer = file.read(_TRAILER)
    if trailer != digest.digest():
        return "its checksum is wrong"
    return None if trailer == checksum else "it is not the pack that its index is of"


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
