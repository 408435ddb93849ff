"""Pack files: which there are, what they hold, writing new ones aside and putting them in place.

New packs are written into a scratch directory and moved in when they are complete: whatever
interrupts the writing leaves nothing among the packs.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import shutil
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject
from shadowsnap.files import make_read_only, remove_tree, sync_directory, sync_files
from shadowsnap.git.objects import CHUNK, object_id
from shadowsnap.git.packs import note_repacked
from shadowsnap.git.reading import ObjectReader, inflated
from shadowsnap.git.repository import Git

_FANOUT, _NAMES = 8, 8 + 256 * 4
_ROW, _TRAILERS = 20 + 4 + 4, 2 * 20
# A long search for deltas must not need all of the memory, nor all of the processor.
_MODEST = ("pack.threads=1", "pack.windowMemory=128m", "pack.deltaCacheSize=64m", "pack.compression=6")
_QUIET = ("pack-objects", "-q", "--delta-base-offset", "--non-empty")


class Pack(NamedTuple):
    name: str
    identity: tuple[int, int]
    """Changes when a pack of the same name is written again."""
    size: int


def list_packs(git_dir: Path) -> dict[str, Pack]:
    """The packs that git can see, by name."""
    found: dict[str, Pack] = {}
    try:
        entries = {entry.name: entry for entry in os.scandir(git_dir / "objects" / "pack")}
    except FileNotFoundError:
        return found
    for file, entry in entries.items():
        name = file.removesuffix(".pack")
        if name != file and f"{name}.idx" in entries:
            try:
                seen = entry.stat()
            except FileNotFoundError:
                continue
            found[name] = Pack(name, (seen.st_ino, seen.st_mtime_ns), seen.st_size)
    return found


def remove_pack(git_dir: Path, name: str) -> None:
    """The data first: an index without its pack is nothing to git, and recognisable as waste."""
    folder = git_dir / "objects" / "pack"
    others = [path for path in folder.glob(f"{name}.*") if path.suffix not in (".pack", ".idx")]
    for path in (folder / f"{name}.pack", *others, folder / f"{name}.idx"):
        path.unlink(missing_ok=True)
    note_repacked(git_dir)


def pack_reachable(git: Git, tips: Iterable[str], *, deltas: bool = True) -> str | None:
    """Write a pack of everything that the tips lead to; its name, None if that is nothing."""
    return _write_pack(git, tips, "--revs", *_search(deltas))


def pack_objects(git: Git, names: Iterable[str], *, deltas: bool = True) -> str | None:
    """Write a pack of exactly these objects."""
    return _write_pack(git, names, *_search(deltas))


def _search(deltas: bool) -> list[str]:
    return [] if deltas else ["--window=0"]  # deltas that there are stay


def roll_up_packs(git: Git) -> None:
    """Merge small packs until each is at least twice as large as the next smaller one."""
    git.bound(config=_MODEST).run("repack", "--geometric=2", "-d", "-q", "-n")
    note_repacked(git.git_dir)


def _write_pack(git: Git, lines: Iterable[str], *options: str) -> str | None:
    assert git.scratch_objects is not None
    folder = git.scratch_objects / "pack"
    folder.mkdir(parents=True, exist_ok=True)
    asked = "".join(f"{line}\n" for line in lines).encode()
    if not asked:
        return None
    answer = git.bound(config=_MODEST).run(*_QUIET, *options, str(folder / "pack"), stdin=asked)
    digits = answer.decode().strip()
    return _put_in_place(git, f"pack-{digits}") if digits else None


def _put_in_place(git: Git, name: str) -> str:
    assert git.scratch_objects is not None
    source, target = git.scratch_objects / "pack", git.git_dir / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    extras = [path for path in source.glob(f"{name}.*") if path.suffix not in (".pack", ".idx")]
    for path in (source / f"{name}.pack", *extras, source / f"{name}.idx"):
        _move(path, target / path.name)
    sync_directory(target)
    return name


def put_in_place(git: Git) -> None:
    """Move every pack of the scratch directory among the store's. Each has been checked."""
    assert git.scratch_objects is not None
    for index in sorted((git.scratch_objects / "pack").glob("pack-*.idx")):
        sync_files(index.parent.glob(f"{index.stem}.*"))
        _put_in_place(git, index.stem)


def _move(source: Path, target: Path) -> None:
    """Also over a file of that name: it should hold the same bytes, and if it does not any more,
    it is mended thereby."""
    try:
        os.replace(source, target)
    except PermissionError:  # Windows, while somebody has the old one open
        if not target.exists():
            raise


class PackIndex:
    """Answers whether a pack holds an object, straight from its index file."""

    def __init__(self, git_dir: Path, name: str) -> None:
        path = git_dir / "objects" / "pack" / f"{name}.idx"
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < _NAMES:
                raise MalformedObject(what=path.name, why="it is cut short")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        problem = index_problem(self._data)
        if problem is not None:
            self._data.close()
            raise MalformedObject(what=path.name, why=problem)

    def __len__(self) -> int:
        return self._count(255)

    def __iter__(self) -> Iterator[str]:
        for number in range(len(self)):
            yield self._name(number).hex()

    def __contains__(self, name: str) -> bool:
        raw = bytes.fromhex(name)
        low, high = self._count(raw[0] - 1) if raw[0] else 0, self._count(raw[0])
        at = bisect_left(_Names(self), raw, low, high)
        return at < high and self._name(at) == raw

    def close(self) -> None:
        self._data.close()

    def _count(self, first_byte: int) -> int:
        at = _FANOUT + 4 * first_byte
        return int.from_bytes(self._data[at : at + 4], "big")

    def _name(self, number: int) -> bytes:
        at = _NAMES + 20 * number
        return self._data[at : at + 20]


def index_problem(data: bytes | mmap.mmap) -> str | None:
    """What is wrong with the head of a pack index, whose checksum is not looked at; None if it fits the file."""
    if data[:_FANOUT] != b"\377tOc\0\0\0\2":
        return "it is no pack index of version 2"
    if len(data) < _NAMES:
        return "it is cut short"
    counts = struct.unpack(">256I", data[_FANOUT:_NAMES])
    if any(count > after for count, after in pairwise(counts)):
        return "it counts backwards"
    if _NAMES + _ROW * counts[-1] + _TRAILERS > len(data):
        return "it is too short for its objects"
    return None


class _Names:
    """The sorted names of a pack index, for `bisect`."""

    def __init__(self, index: PackIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, number: int) -> bytes:
        return self._index._name(number)


_LOOSE_FOLDER = re.compile(r"[0-9a-f]{2}")
_LOOSE_NAME = re.compile(r"[0-9a-f]{38}")


def loose_names(git_dir: Path) -> Iterator[str]:
    for folder in _names(git_dir / "objects"):
        if _LOOSE_FOLDER.fullmatch(folder):
            for name in _names(git_dir / "objects" / folder):
                if _LOOSE_NAME.fullmatch(name):
                    yield folder + name


def loose_file(git_dir: Path, name: str) -> Path:
    return git_dir / "objects" / name[:2] / name[2:]


def pack_loose(git: Git, batch: int, *, deltas: bool = True) -> int:
    """Move all loose objects into packs, so many at a time; how many there were. Each batch is
    complete when the next begins: whatever interrupts it loses nothing, and keeps the rest."""
    git.run("prune-packed", "-q")  # those that are in a pack already
    done, names = 0, loose_names(git.git_dir)
    while some := list(islice(names, batch)):
        packed = _pack_sound(git, some, deltas)
        _remove(git.git_dir, packed)
        done += len(packed)
    return done


def _pack_sound(git: Git, names: list[str], deltas: bool) -> list[str]:
    """Pack these objects; which of them are in a pack now."""
    try:
        pack_objects(git, names, deltas=deltas)
        return names
    except GitFailed:
        sound = [name for name in names if loose_problem(loose_file(git.git_dir, name), name) is None]
        if len(sound) == len(names):
            raise
        # Damaged ones stay where they are, for the doctor to see.
        return sound if pack_objects(git, sound, deltas=deltas) is not None else []


def _remove(git_dir: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            loose_file(git_dir, name).unlink()
        except OSError:
            continue  # gone meanwhile, or in use on Windows: it is in a pack as well


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


_TRAILER = 20
_AT_ONCE = 100
KINDS = (b"commit", b"tree", b"blob", b"tag")


def loose_objects(objects: Path) -> Iterator[tuple[str, Path]]:
    """Id and file of every loose object, sound or not."""
    for folder in _listed(objects):
        if _LOOSE_FOLDER.fullmatch(folder):
            for name in _listed(objects / folder):
                if _LOOSE_NAME.fullmatch(name):
                    yield folder + name, objects / folder / name


FOLLOWED = "something follows its content"
"""Git does not read such an object, although nothing of it is lost."""


def loose_problem(path: Path, name: str) -> str | None:
    """What is wrong with a loose object; None if it holds just what its name says."""
    digest = hashlib.sha1(usedforsecurity=False)
    head, size = b"", 0  # of all that is in the file: a header and the content
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
    header, _, _ = head.partition(b"\0")
    kind, _, length = header.partition(b" ")
    if kind not in KINDS or length != b"%d" % (size - len(header) - 1):
        return "its header is wrong"
    return FOLLOWED if unpack.unused_data else None


def loose_content(path: Path) -> tuple[bytes, bytes]:
    """Kind and content of a loose object, whatever follows it."""
    with open(path, "rb") as file:
        try:
            return inflated(file)
        except (ValueError, IndexError, zlib.error) as problem:
            raise MalformedObject(what=path.name, why=problem) from None


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
    problem = index_problem(data)
    if problem is not None:
        raise MalformedObject(what=index.name, why=problem)
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


def shared_files(objects: Path) -> Iterator[Path]:
    """Packs (one file for each) and loose objects that have another name somewhere."""
    for pack in packs(objects):
        if any(_is_shared(path) for path in pack_files(pack)):
            yield pack
    for _, path in loose_objects(objects):
        if _is_shared(path):
            yield path


def replace_by_copy(git: Git, path: Path) -> bool:
    """Make a pack or a loose object our own; False if it does not hold what its name says."""
    return _copy_pack(git, path) if path.suffix == ".pack" else _copy_loose(path)


def _copy_loose(path: Path) -> bool:
    name = path.parent.name + path.name
    copy = path.with_name(f"tmp_obj_{os.getpid()}_{path.name}")
    try:
        shutil.copyfile(path, copy)
        if loose_problem(copy, name) is not None:
            return False
        _place(copy, path)
    finally:
        copy.unlink(missing_ok=True)
    return True


def _copy_pack(git: Git, pack: Path) -> bool:
    """Git reads every object of the copy and writes the index anew: the old one may name other objects than
    there are."""
    scratch = pack.parent / f"tmp_own_{os.getpid()}"
    remove_tree(scratch)
    try:
        scratch.mkdir()
        copy = scratch / pack.name
        shutil.copyfile(pack, copy)
        try:
            git.run("index-pack", "-o", str(copy.with_suffix(".idx")), str(copy))
        except GitFailed:
            return False
        for path in pack_files(pack):
            if path.suffix not in (".pack", ".idx"):
                path.unlink(missing_ok=True)  # a table beside the pack, made from what was not checked
        for suffix in (".pack", ".idx"):
            _place(copy.with_suffix(suffix), pack.with_suffix(suffix))
        sync_directory(pack.parent)
        note_repacked(git.git_dir)
    finally:
        remove_tree(scratch)
    return True


def _place(copy: Path, target: Path) -> None:
    make_read_only(copy)
    sync_files([copy])
    os.replace(copy, target)


def _is_shared(path: Path) -> bool:
    try:
        return os.stat(path).st_nlink > 1
    except OSError:
        return False
