"""Reading objects, without a process where that is possible: loose ones and those in packs are read
here, and whatever else there is, is asked of one `cat-file --batch`."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Protocol

from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject
from shadowsnap.git.objects import CHUNK, EMPTY_TREE, is_object_id, object_id
from shadowsnap.git.packs import MOST_IN_MEMORY, Packs
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, tree_entries

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from typing import IO

    from shadowsnap.git.process import Process

FEW = 20
"""So many objects are looked up sooner than git is started."""


class ObjectReader:
    """Reads objects: trees that are still on their way into the store, loose objects and packed ones
    directly, all others through one git process that is started when the first of them is wanted,
    or through the one that `git` is bound to."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._folders = _folders(git)
        shared = git.batch if git.batch is not None and git.batch.serves(git) else None
        self._batch = shared or Batch(git)
        self._is_shared = shared is not None

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_shared:
            self._batch.close()

    def read(self, name: str, kind: bytes) -> bytes:
        if self._git.new is not None:
            if (tree := self._git.new.unsettled_tree(name)) is not None:
                return tree
            if self._git.new.unsettled_size(name) is not None:
                self._git.new.settle()
        packs = self._batch.packs
        found, data = packs.read(name, in_known=True) or self._loose(name, kind)
        if not found:
            found, data = packs.read(name) or self._batch.ask(name)
            if found and object_id(found, data) != name:  # git does not check what it answers
                found = b""
        self._git.deadline.check("reading objects")
        if found != kind:
            raise DamagedObject(id=name)
        return data

    def size(self, name: str) -> int | None:
        """How long an object is; None if it is not found without git."""
        if self._git.new is not None and (size := self._git.new.unsettled_size(name)) is not None:
            return size
        for folder in self._folders:
            try:
                with open(folder / name[:2] / name[2:], "rb") as file:
                    header = zlib.decompressobj().decompress(file.read(128), 64).partition(b"\0")[0]
                return _declared_size(header)
            except (OSError, zlib.error, IndexError, ValueError):
                continue
        return self._batch.packs.size(name)

    def _loose(self, name: str, kind: bytes) -> tuple[bytes, bytes]:
        """Kind and content of an object that is a file of its own; no kind if there is none."""
        for folder in self._folders:
            try:
                with open(f"{folder}/{name[:2]}/{name[2:]}", "rb") as file:
                    _, data = inflated(file)
            except (OSError, ValueError, IndexError, zlib.error):
                continue  # not loose here, or damaged: git may still have it in a pack
            if object_id(kind, data) == name:  # else something else is under this name
                return kind, data
        return b"", b""


class Batch:
    """The packs, and one `cat-file --batch` for many questions, started by
    the first. A `Git` that is bound to it shares it among all readers."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self.packs = Packs(*_folders(git))
        self._stack = ExitStack()
        self._process: Process | None = None

    def serves(self, git: Git) -> bool:
        """Whether another `Git` would give the same answers."""
        ours = self._git
        return (git.git_dir, git.scratch_objects) == (ours.git_dir, ours.scratch_objects)

    def ask(self, name: str) -> tuple[bytes, bytes]:
        """Kind and content of an object; no kind if it is missing or damaged."""
        if not is_object_id(name):
            return b"", b""  # with a line end in it, it would be two questions
        if self._process is None:
            self._process = self._stack.enter_context(self._git.conversation("cat-file", "--batch"))
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            header = self._process.stdout.readline().split()
            size = int(header[2]) if len(header) == 3 else -1
            if size > MOST_IN_MEMORY:
                self.close()  # whatever is behind it is not read
                return b"", b""
            data = _received(self._process.stdout, size)
            self._process.stdout.read(1 if size >= 0 else 0)  # the end of the line
        except OSError:
            header, size, data = [], -1, b""
        if not header or len(data) < size:  # git died of it: the next object gets another
            self.close()
        return (header[1], data) if len(data) == size else (b"", b"")

    def close(self) -> None:
        self._stack.close()
        self._process = None


def inflated(file: IO[bytes]) -> tuple[bytes, bytes]:
    """Kind and content of a loose object: as much as it says that it has, and no more than fits into memory."""
    inflate = zlib.decompressobj()
    packed = file.read(CHUNK)
    header, _, data = inflate.decompress(packed, 64).partition(b"\0")
    size = _declared_size(header)
    if size > MOST_IN_MEMORY:
        raise ValueError("it is too large")
    whole, left = BytesIO(), size - len(data)  # it gives away its buffer; joining pieces takes twice the memory
    whole.write(data)
    packed = inflate.unconsumed_tail
    while left > 0 and not inflate.eof:
        packed = packed or file.read(CHUNK)
        if not packed:
            break
        left -= whole.write(inflate.decompress(packed, min(left + 1, CHUNK)))
        packed = inflate.unconsumed_tail
    if left:
        raise ValueError("it has another size than it says")
    return header.partition(b" ")[0], whole.getvalue()


def _declared_size(header: bytes) -> int:
    digits = header.partition(b" ")[2]
    if not digits.isdigit():
        raise ValueError("it does not say its size")
    return int(digits)


def _received(stream: IO[bytes], size: int) -> bytes:
    """So many bytes, if they come. Git believes the size that a damaged pack tells; Python would make room
    for all of it first."""
    whole = BytesIO()
    while size > 0 and (part := stream.read(min(size, CHUNK))):
        size -= whole.write(part)
    return whole.getvalue()


def _folders(git: Git) -> list[Path]:
    """Where objects are looked for, in this order."""
    return [folder for folder in (git.scratch_objects, git.git_dir / "objects") if folder is not None]


def missing_objects(git: Git, names: Collection[str]) -> list[str]:
    """Which of these are not in the store, or cannot even be opened there."""
    there = object_sizes(git, sorted(names))
    return [name for name in sorted(names) if name not in there]


def check_stored(git: Git, wanted: Collection[str], irreplaceable: Collection[str]) -> None:
    """See to it that objects are in the store. Those that are `wanted` will be read soon, so it is enough that
    they are there; what is irreplaceable must prove to be what was stored."""
    packs = git.batch.packs if git.batch is not None and git.batch.serves(git) else Packs(*_folders(git))
    doubtful = {*irreplaceable} - packs.held(irreplaceable, sound=True)
    packed = packs.held(doubtful)
    with ObjectReader(git) as reader:
        for name in sorted(packed):  # its pack is very large, or it is damaged there
            reader.read(name, b"blob")
    for lost in missing_objects(git, doubtful - packed | ({*wanted} - packs.held(wanted))):
        raise DamagedObject(id=lost)


def object_sizes(git: Git, names: list[str]) -> dict[str, int]:
    """Name -> size of those that are in the store."""
    found: dict[str, int] = {}
    if len(names) <= FEW:
        with ObjectReader(git) as reader:
            found = {name: size for name in names if (size := reader.size(name)) is not None}
        names = [name for name in names if name not in found]
    if not names:
        return found
    answer = git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer", stdin=_lines(names))
    rows = (line.split() for line in answer.splitlines() if not line.endswith(b" missing"))
    return found | {name.decode(): int(size) for name, size in rows}


def _lines(names: list[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


_AT_ONCE = 20_000

Read = tuple[str, bytes, bytes]
"""Name, kind and content of an object."""


def read_many(git: Git, names: Iterable[str]) -> Iterator[Read]:
    """Those of the objects that are there and sound, in any order."""
    waiting = iter(names)
    while some := list(islice(waiting, _AT_ONCE)):
        asked = "".join(f"{name}\n" for name in some).encode()
        try:
            answer = git.run("cat-file", "--batch", "--buffer", stdin=asked)
        except GitFailed:
            yield from _one_by_one(git, some)  # git dies of a damaged pack
        else:
            yield from _parsed(answer)


def _parsed(answer: bytes) -> Iterator[Read]:
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        header, at = answer[at:end].split(), end + 1
        if len(header) == 3:
            size = int(header[2])
            yield header[0].decode(), header[1], answer[at : at + size]
            at += size + 1


def _one_by_one(git: Git, names: Iterable[str]) -> Iterator[Read]:
    batch = Batch(git)
    try:
        for name in names:
            kind, data = batch.ask(name)
            git.deadline.check("reading objects")
            if kind:
                yield name, kind, data
    finally:
        batch.close()


GITLINK = 0o160000
_KINDS = (b"commit", b"tree", b"blob", b"tag")

Named = tuple[str, bytes]
"""An object and its kind."""


class NameSet(Protocol):
    def __contains__(self, name: str, /) -> bool: ...


def kinds_of(git: Git, names: Iterable[str]) -> dict[str, bytes]:
    """What each of the objects is; those that are not in the store are left out."""
    asked = "".join(f"{name}\n" for name in names).encode()
    if not asked:
        return {}
    rows = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).splitlines()
    return {row[:40].decode(): row[41:] for row in rows if not row.endswith(b" missing")}


class Graph:
    """Which objects each object names."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._reader = ObjectReader(git)
        self._known: dict[str, tuple[Named, ...] | None] = {}

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__(*_)

    def prefetch(self, tips: Mapping[str, bytes]) -> None:
        """Read everything that the tips lead to, level by level."""
        level = {name: kind for name, kind in tips.items() if kind != b"blob"}
        while level:
            self._known.update(dict.fromkeys(level))  # what does not come is not there
            for name, kind, data in read_many(self._git, level):
                try:
                    self._known[name] = tuple(_named_in(kind, data))
                except MalformedObject:
                    continue  # as good as not there
            below = (each for name in level for each in self._known[name] or ())
            level = {name: kind for name, kind in below if kind != b"blob" and name not in self._known}

    def named_by(self, name: str, kind: bytes) -> tuple[Named, ...]:
        if kind == b"blob" or name == EMPTY_TREE:
            return ()
        if name not in self._known:
            try:
                return tuple(_named_in(kind, self._reader.read(name, kind)))
            except MalformedObject:
                raise DamagedObject(id=name) from None
        found = self._known[name]
        if found is None:
            raise DamagedObject(id=name)
        return found


def reachable(graph: Graph, name: str, kind: bytes, known: NameSet) -> Iterator[str]:
    """The object and everything it leads to, each once, except what is known together with all
    that it leads to."""
    seen: set[str] = set()
    stack = [(name, kind)]
    while stack:
        name, kind = stack.pop()
        if name not in seen and name not in known:
            seen.add(name)
            yield name
            stack += graph.named_by(name, kind)


def _named_in(kind: bytes, data: bytes) -> Iterator[Named]:
    if kind == b"tree":
        for _, (mode, name) in tree_entries(data):
            if mode != GITLINK:
                yield name, b"tree" if mode == DIRECTORY else b"blob"
    elif kind != b"blob":
        yield from _in_header(data)


def _in_header(data: bytes) -> Iterator[Named]:
    """What a commit (tree, parents) or a tag (object, with its type) names."""
    rows = [line.split(b" ", 1) for line in data.partition(b"\n\n")[0].splitlines()]
    facts = dict(row for row in rows if len(row) == 2)
    for word, *rest in rows:
        if word in (b"tree", b"parent", b"object"):
            name = rest[0].decode("ascii", "replace") if rest else ""
            kind = facts.get(b"type", b"") if word == b"object" else b"tree" if word == b"tree" else b"commit"
            if not is_object_id(name) or kind not in _KINDS:
                raise MalformedObject(what="a commit or a tag", why=f"what follows {word.decode()!r} is no object")
            yield name, kind
