"""Maintenance of the object store: packing, checking and replacing object files.

New packs are written into a scratch directory and moved into the store when they are complete. An
interruption therefore leaves nothing behind among the packs.
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
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject
from shadowsnap.files import make_read_only, scratch_folder, sync_directory, sync_files
from shadowsnap.git.objects import CHUNK, KINDS, read_loose
from shadowsnap.git.packs import FANOUT, INDEX_VERSION_2, NAMES, note_repacked
from shadowsnap.git.reading import ObjectReader, kinds_of
from shadowsnap.git.repository import Git

# The search for deltas must not take all of the memory and processors of the machine.
_MODEST = ("pack.threads=1", "pack.windowMemory=128m", "pack.deltaCacheSize=64m", "pack.compression=6")
_LOOSE_FOLDER = re.compile(r"[0-9a-f]{2}")
_LOOSE_NAME = re.compile(r"[0-9a-f]{38}")
_CHECKSUM = 20
_INDEX_ROW = 20 + 4 + 4
"""Id, CRC and offset of an object in a pack index."""
_VERIFIED_AT_ONCE = 100
TRAILING_DATA = "something follows its content"
"""Git does not read such an object, although its content is complete."""


class Pack(NamedTuple):
    name: str
    identity: tuple[int, int]
    """Changes when a pack of the same name is written again."""
    size: int


def list_packs(git_dir: Path) -> dict[str, Pack]:
    """The packs that git can see (those with an index), by name."""
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
    """Remove a pack, and its index last: git ignores an index without a pack, and it is easily found."""
    for path in _in_order(git_dir / "objects" / "pack", name):
        path.unlink(missing_ok=True)
    note_repacked(git_dir)


def pack_reachable(git: Git, tips: Iterable[str], *, deltas: bool = True) -> str | None:
    """Write a pack of everything that the tips lead to. Returns its name; None if it would be empty."""
    return _write_pack(git, tips, deltas, "--revs")


def pack_objects(git: Git, names: Iterable[str], *, deltas: bool = True) -> str | None:
    """Write a pack of exactly these objects. Returns its name; None if it would be empty."""
    return _write_pack(git, names, deltas)


def _write_pack(git: Git, lines: Iterable[str], deltas: bool, *options: str) -> str | None:
    assert git.scratch_objects is not None
    scratch = git.scratch_objects / "pack"
    scratch.mkdir(parents=True, exist_ok=True)
    stdin = "".join(f"{line}\n" for line in lines).encode()
    if not stdin:
        return None
    search = () if deltas else ("--window=0",)  # existing deltas are kept
    command = ("pack-objects", "-q", "--delta-base-offset", "--non-empty", *options, *search)
    answer = git.bound(config=_MODEST).run(*command, str(scratch / "pack"), stdin=stdin)
    digits = answer.decode().strip()
    if not digits:
        return None
    _put_in_place(git, f"pack-{digits}")
    return f"pack-{digits}"


def _in_order(folder: Path, name: str) -> list[Path]:
    """The files of a pack, the pack first and its index last."""
    others = [path for path in folder.glob(f"{name}.*") if path.suffix not in (".pack", ".idx")]
    return [folder / f"{name}.pack", *others, folder / f"{name}.idx"]


def _put_in_place(git: Git, name: str) -> None:
    """Move a pack from the scratch directory among the store's."""
    assert git.scratch_objects is not None
    target = git.git_dir / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    for path in _in_order(git.scratch_objects / "pack", name):
        _move(path, target / path.name)
    sync_directory(target)


def put_in_place(git: Git) -> None:
    """Move every pack of the scratch directory among the store's. Each has been checked."""
    assert git.scratch_objects is not None
    for index in sorted((git.scratch_objects / "pack").glob("pack-*.idx")):
        sync_files(index.parent.glob(f"{index.stem}.*"))
        _put_in_place(git, index.stem)


def take_packs(source: Git, target: Git, wanted: Collection[str]) -> int:
    """Give a repository copies of the packs of another that have wanted objects which it does not have; their
    size."""
    asked = "".join(f"{name}\n" for name in wanted).encode()
    answer = target.run("cat-file", "--batch-check=%(objectname)", "--buffer", stdin=asked).decode("ascii")
    missing = {row.split()[0] for row in answer.splitlines() if row.endswith(" missing")}
    total, folder = 0, target.git_dir / "objects" / "pack"
    for index in sorted((source.git_dir / "objects" / "pack").glob("pack-*.idx")):
        found = source.run("show-index", stdin=index.read_bytes()).decode("ascii").splitlines()
        if missing.isdisjoint(row.split()[1] for row in found):
            continue
        total += index.with_suffix(".pack").stat().st_size
        folder.mkdir(parents=True, exist_ok=True)
        for path in (index.with_suffix(".pack"), index):
            _copy(path, folder / path.name)
    sync_directory(folder)
    return total


def _copy(source: Path, target: Path) -> None:
    """Copy a file that git made. No hard link: a change of the one would change the other."""
    if target.exists():
        return
    partial = target.with_name(f"tmp_pack_{os.getpid()}_{target.name}")
    try:
        shutil.copy(source, partial)  # with its permission bits
        sync_files([partial])
        partial.replace(target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _move(source: Path, target: Path) -> None:
    """Move a file, also over one of that name: it should have the same bytes, and if it is damaged, this
    repairs it."""
    try:
        os.replace(source, target)
    except PermissionError:  # Windows, while the old one is open
        if not target.exists():
            raise


def roll_up_packs(git: Git) -> None:
    """Merge small packs until each is at least twice as large as the next smaller one."""
    git.bound(config=_MODEST).run("repack", "--geometric=2", "-d", "-q", "-n")
    note_repacked(git.git_dir)


def pack_loose(git: Git, batch: int, *, deltas: bool = True) -> int:
    """Move all loose objects into packs, `batch` at a time. Returns their number. An interruption loses
    nothing, and keeps the batches that are complete."""
    git.run("prune-packed", "-q")  # those that are in a pack already
    count, names = 0, loose_names(git.git_dir)
    while some := list(islice(names, batch)):
        packed = _pack_intact(git, some, deltas)
        _remove_loose(git.git_dir, packed)
        count += len(packed)
    return count


def _pack_intact(git: Git, names: list[str], deltas: bool) -> list[str]:
    """Pack those of the objects that are intact, and return them. Damaged ones stay, for the doctor."""
    try:
        pack_objects(git, names, deltas=deltas)
        return names
    except GitFailed:
        intact = [name for name in names if loose_problem(loose_file(git.git_dir, name), name) is None]
        if len(intact) == len(names):
            raise
        return intact if pack_objects(git, intact, deltas=deltas) is not None else []


def _remove_loose(git_dir: Path, names: Iterable[str]) -> None:
    for name in names:
        try:
            loose_file(git_dir, name).unlink()
        except OSError:
            continue  # already removed, or in use on Windows; it is in a pack as well


def loose_file(git_dir: Path, name: str) -> Path:
    return git_dir / "objects" / name[:2] / name[2:]


def loose_names(git_dir: Path) -> Iterator[str]:
    """Ids of the loose objects; directories that cannot be listed are left out."""
    return (name for name, _ in loose_objects(git_dir / "objects", skip_unreadable=True))


def loose_objects(objects: Path, *, skip_unreadable: bool = False) -> Iterator[tuple[str, Path]]:
    """Id and file of every loose object, intact or not."""
    for folder in _names_in(objects, skip_unreadable):
        if _LOOSE_FOLDER.fullmatch(folder):
            for name in _names_in(objects / folder, skip_unreadable):
                if _LOOSE_NAME.fullmatch(name):
                    yield folder + name, objects / folder / name


def _names_in(folder: Path, skip_unreadable: bool = False) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        if skip_unreadable:
            return []
        raise


def loose_problem(path: Path, name: str) -> str | None:
    """What is wrong with a loose object; None if its content has the id `name`."""
    digest = hashlib.sha1(usedforsecurity=False)
    start, size = b"", 0  # of the header and the content together
    inflater = zlib.decompressobj()
    try:
        with open(path, "rb") as file:
            while pending := file.read(CHUNK):
                while pending:  # in portions, because a few bytes can expand to gigabytes
                    data = inflater.decompress(pending, CHUNK)
                    digest.update(data)
                    start, size = start or data[:40], size + len(data)
                    pending = inflater.unconsumed_tail
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"
    except zlib.error:
        return "it cannot be unpacked"
    if not size:
        return "it is empty"
    if not inflater.eof:
        return "it is cut short"
    if digest.hexdigest() != name:
        return "its content does not fit its name"
    header = start.partition(b"\0")[0]
    kind, _, length = header.partition(b" ")
    if kind not in KINDS or length != b"%d" % (size - len(header) - 1):
        return "its header is wrong"
    return TRAILING_DATA if inflater.unused_data else None


def loose_content(path: Path) -> tuple[bytes, bytes]:
    """Kind and content of a loose object, without what follows it. Raises `MalformedObject` if it is damaged."""
    with open(path, "rb") as file:
        try:
            return read_loose(file)
        except (ValueError, zlib.error) as problem:
            raise MalformedObject(what=path.name, why=problem) from None


class PackIndex:
    """The ids of the objects in a pack, as a set and in order. The index file is mapped into memory."""

    def __init__(self, git_dir: Path, name: str) -> None:
        path = git_dir / "objects" / "pack" / f"{name}.idx"
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < NAMES:
                raise MalformedObject(what=path.name, why="it is cut short")
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if (problem := index_problem(self._data)) is not None:
            self._data.close()
            raise MalformedObject(what=path.name, why=problem)

    def __len__(self) -> int:
        return self._count(255)

    def __iter__(self) -> Iterator[str]:
        for position in range(len(self)):
            yield self._name(position).hex()

    def __contains__(self, name: str) -> bool:
        raw = bytes.fromhex(name)
        low, high = self._count(raw[0] - 1) if raw[0] else 0, self._count(raw[0])
        at = bisect_left(range(high), raw, low, high, key=self._name)
        return at < high and self._name(at) == raw

    def close(self) -> None:
        self._data.close()

    def _count(self, first_byte: int) -> int:
        """Number of ids that start with this byte or a lower one."""
        at = FANOUT + 4 * first_byte
        return int.from_bytes(self._data[at : at + 4], "big")

    def _name(self, position: int) -> bytes:
        at = NAMES + 20 * position
        return self._data[at : at + 20]


def index_problem(data: bytes | mmap.mmap) -> str | None:
    """What is wrong with the header and the size of a pack index; None if nothing. Checksums are not verified."""
    if data[:FANOUT] != INDEX_VERSION_2:
        return "it is not a pack index of version 2"
    if len(data) < NAMES:
        return "it is cut short"
    counts = struct.unpack(">256I", data[FANOUT:NAMES])
    if any(count > after for count, after in pairwise(counts)):
        return "its fan-out table is not in order"
    if NAMES + _INDEX_ROW * counts[-1] + 2 * _CHECKSUM > len(data):
        return "it is too short for its objects"
    return None


def all_packs(objects: Path) -> list[Path]:
    """The path of every pack, also of one that has only a `.pack` or only an `.idx` file."""
    names = {name.rpartition(".")[0] for name in _names_in(objects / "pack") if name.endswith((".pack", ".idx"))}
    return [objects / "pack" / f"{name}.pack" for name in sorted(names) if name.startswith("pack-")]


def lone_packs(objects: Path) -> list[Path]:
    """The packs without an index: git puts a pack in place first, and may be killed before its index follows."""
    return [pack for pack in all_packs(objects) if pack.exists() and not pack.with_suffix(".idx").exists()]


def index_pack(git: Git, pack: Path) -> bool:
    """Make the index of a pack; False if the pack is not sound."""
    try:
        git.run("index-pack", str(pack))
    except GitFailed:
        pack.with_suffix(".idx").unlink(missing_ok=True)
        return False
    return True


def pack_files(pack: Path) -> list[Path]:
    """All files of a pack, its index first."""
    files = (pack.with_suffix(suffix) for suffix in (".idx", ".rev", ".bitmap", ".mtimes", ".keep", ".pack"))
    return [path for path in files if path.exists()]


def pack_problem(pack: Path, deadline: Deadline = NO_DEADLINE) -> str | None:
    """What is wrong with a pack or its index, judged by their checksums; None if nothing."""
    index = pack.with_suffix(".idx")
    if not pack.exists():
        return "only its index is there"
    if not index.exists():
        return "it has no index"
    try:
        expected = _read_index(index)[-2 * _CHECKSUM : -_CHECKSUM]
        return _checksum_problem(pack, expected, deadline)
    except MalformedObject as problem:
        return str(problem)
    except OSError as problem:
        return f"it cannot be read ({problem.strerror})"


def _checksum_problem(pack: Path, expected: bytes, deadline: Deadline) -> str | None:
    digest = hashlib.sha1(usedforsecurity=False)
    with open(pack, "rb") as file:
        left = os.fstat(file.fileno()).st_size - _CHECKSUM
        if left < 12:
            return "it is empty" if left == -_CHECKSUM else "it is cut short"
        while left:
            deadline.check("reading packs")
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                return "it is cut short"
            digest.update(chunk)
            left -= len(chunk)
        checksum = file.read(_CHECKSUM)
    if checksum != digest.digest():
        return "its checksum is wrong"
    return None if checksum == expected else "it is not the pack that its index is of"


def pack_ids(index: Path) -> list[str]:
    """The objects that a pack index lists. Raises `MalformedObject` if the index is damaged."""
    data = _read_index(index)
    (count,) = struct.unpack_from(">I", data, NAMES - 4)
    names = data[NAMES : NAMES + count * 20].hex()
    return [names[at : at + 40] for at in range(0, len(names), 40)]


def _read_index(index: Path) -> bytes:
    data = index.read_bytes()
    if (problem := index_problem(data)) is not None:
        raise MalformedObject(what=index.name, why=problem)
    if hashlib.sha1(memoryview(data)[:-_CHECKSUM], usedforsecurity=False).digest() != data[-_CHECKSUM:]:
        raise MalformedObject(what=index.name, why="its checksum is wrong")
    return data


def mismatched_packs(git: Git, files: list[Path]) -> set[Path]:
    """Which of the packs hold other objects than their indexes list. Git reads and hashes every object."""
    found: set[Path] = set()
    for start in range(0, len(files), _VERIFIED_AT_ONCE):
        some = files[start : start + _VERIFIED_AT_ONCE]
        try:
            git.run("verify-pack", *(str(pack.with_suffix(".idx")) for pack in some))
        except GitFailed:
            if len(some) == 1:
                found.update(some)
            else:
                for pack in some:
                    found |= mismatched_packs(git, [pack])
    return found


def read_intact(git: Git, names: Iterable[str]) -> Iterator[tuple[str, bytes, bytes]]:
    """Id, kind and content of those objects that are intact."""
    names = list(names)
    try:
        kinds = kinds_of(git, names)
    except GitFailed:  # git stopped at one of them, so each is tried as every kind
        kinds = {}
    with ObjectReader(git) as reader:
        for name in names:
            for kind in (kinds[name],) if name in kinds else KINDS:
                try:
                    data = reader.read(name, kind)
                except DamagedObject:
                    continue
                yield name, kind, data
                break


def shared_files(objects: Path) -> Iterator[Path]:
    """Packs and loose objects that have a second hard link somewhere. A pack counts as one file."""
    for pack in all_packs(objects):
        if any(_is_shared(path) for path in pack_files(pack)):
            yield pack
    for _, path in loose_objects(objects):
        if _is_shared(path):
            yield path


def _is_shared(path: Path) -> bool:
    try:
        return os.stat(path).st_nlink > 1
    except OSError:
        return False


def replace_by_copy(git: Git, path: Path) -> bool:
    """Replace a shared pack or loose object by a copy. Returns False if its content does not have the
    ids that it should have."""
    return _copy_pack(git, path) if path.suffix == ".pack" else _copy_loose(path)


def _copy_loose(path: Path) -> bool:
    name = path.parent.name + path.name
    copy = path.with_name(f"tmp_obj_{os.getpid()}_{path.name}")
    try:
        shutil.copyfile(path, copy)
        if loose_problem(copy, name) is not None:
            return False
        _move_into_place(copy, path)
    finally:
        copy.unlink(missing_ok=True)
    return True


def _copy_pack(git: Git, pack: Path) -> bool:
    """Git reads every object of the copy and writes a new index: the old one may list other objects."""
    with scratch_folder(git.git_dir, "own") as scratch:
        copy = scratch / pack.name
        shutil.copyfile(pack, copy)
        try:
            git.run("index-pack", "-o", str(copy.with_suffix(".idx")), str(copy))
        except GitFailed:
            return False
        for path in pack_files(pack):
            if path.suffix not in (".pack", ".idx"):
                path.unlink(missing_ok=True)  # made from the old index, which was not verified
        for suffix in (".pack", ".idx"):
            _move_into_place(copy.with_suffix(suffix), pack.with_suffix(suffix))
        sync_directory(pack.parent)
        note_repacked(git.git_dir)
    return True


def _move_into_place(copy: Path, target: Path) -> None:
    make_read_only(copy)
    sync_files([copy])
    os.replace(copy, target)
