"""Reading objects: one by one, by the thousand, everything that an object leads to, and
which lines differ between versions of a file.

Loose and packed objects are read in this process. Everything else goes through git: a
`cat-file --batch` process for single objects, one command for many.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject, UnsafeTree
from shadowsnap.files import scratch_folder
from shadowsnap.git.objects import (
    CHUNK,
    EMPTY_TREE,
    KINDS,
    MAX_IN_MEMORY,
    LooseObjects,
    is_object_id,
    loose_size,
    object_id,
    read_loose,
    stream_id,
)
from shadowsnap.git.packs import NewObjects, Packs
from shadowsnap.git.process import Process
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import (
    DIRECTORY,
    GITLINK,
    LONGEST_TARGET,
    Leaf,
    TreeReader,
    link_problem,
    patch_tree,
    tree_entries,
)

FEW = 20
"""Up to this number of objects, single reads are faster than starting git."""
_AT_ONCE = 20_000
_PAIRS_AT_ONCE = 200

Read = tuple[str, bytes, bytes]
"""Id, kind and content of an object."""
Named = tuple[str, bytes]
"""Id and kind of an object."""


class ObjectReader:
    """Reads objects and verifies their ids. Trees that are not in the store yet, loose objects and packed
    ones are read directly, others through a `cat-file` process. That process is the one `git` is bound
    to, or one that starts with the first such object and ends with this reader."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._folders = _object_folders(git)
        shared = _shared_batch(git)
        self._batch = shared or Batch(git)
        self._is_shared = shared is not None

    def __enter__(self) -> ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_shared:
            self._batch.close()

    def read(self, name: str, kind: bytes) -> bytes:
        """Content of an object of this kind. Raises `DamagedObject` if it is missing or damaged."""
        new = self._git.new_objects
        if new is not None:
            if (tree := new.pending_tree(name)) is not None:
                return tree
            if new.pending_size(name) is not None:
                new.flush()
        packs = self._batch.packs
        found, data = packs.read(name, known_only=True) or self._read_loose(name, kind)
        if not found:
            found, data = packs.read(name) or self._batch.read(name)
        self._git.deadline.check("reading objects")
        if found != kind:
            raise DamagedObject(id=name)
        return data

    def tree(self, name: str) -> bytes:
        return self.read(name, b"tree")

    def changed_tree(
        self, tree: str, changes: Mapping[bytes, Leaf | None], objects: LooseObjects | NewObjects
    ) -> str:
        """A tree with other entries at some paths; None removes one. The new trees are added to `objects`."""
        return patch_tree(tree, changes, self.tree, partial(objects.write, b"tree"))

    def size(self, name: str) -> int | None:
        """Size of an object; None if it is not found without git."""
        new = self._git.new_objects
        if new is not None and (size := new.pending_size(name)) is not None:
            return size
        for folder in self._folders:
            try:
                with open(folder / name[:2] / name[2:], "rb") as file:
                    return loose_size(file)
            except (OSError, ValueError, zlib.error):
                continue
        return self._batch.packs.size(name)

    def _read_loose(self, name: str, kind: bytes) -> tuple[bytes, bytes]:
        """Kind and content of a loose object; an empty kind if there is none."""
        for folder in self._folders:
            try:
                with open(f"{folder}/{name[:2]}/{name[2:]}", "rb") as file:
                    _, data = read_loose(file)
            except (OSError, ValueError, zlib.error):
                continue  # not loose here, or damaged; git may have it in a pack
            if object_id(kind, data) == name:
                return kind, data
        return b"", b""


class Batch:
    """The packs of a repository, and one `cat-file --batch` process that starts with the first object it
    is asked for. All readers of a `Git` that is bound to a batch share it."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self.packs = Packs(*_object_folders(git))
        self._stack = ExitStack()
        self._process: Process | None = None

    def serves(self, git: Git) -> bool:
        """Whether `git` reads from the same object directories."""
        ours = self._git
        return (git.objects, git.scratch_objects) == (ours.objects, ours.scratch_objects)

    def read(self, name: str) -> tuple[bytes, bytes]:
        """Kind and content of an object; an empty kind if it is missing or damaged."""
        if not is_object_id(name):
            return b"", b""  # a line end in it would make two requests
        if self._process is None:
            self._process = self._stack.enter_context(self._git.conversation("cat-file", "--batch"))
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(name.encode() + b"\n")
            self._process.stdin.flush()
            header = self._process.stdout.readline().split()
            size = int(header[2]) if len(header) == 3 else -1
            if size > MAX_IN_MEMORY:
                self.close()  # the content is still in the pipe
                return b"", b""
            data = _read_up_to(self._process.stdout, size)
            self._process.stdout.read(1 if size >= 0 else 0)  # the line end behind it
        except OSError:
            header, size, data = [], -1, b""
        if not header or len(data) < size:  # git died of this object; the next one gets a new process
            self.close()
        is_whole = len(data) == size and object_id(header[1], data) == name  # cat-file does not verify ids
        return (header[1], data) if is_whole else (b"", b"")

    def close(self) -> None:
        self._stack.close()
        self._process = None


def _read_up_to(stream: IO[bytes], count: int) -> bytes:
    """Reads up to `count` bytes; fewer at end of file. In chunks: git repeats the size that a damaged pack
    claims, and Python would allocate all of it first."""
    content = BytesIO()
    while count > 0 and (part := stream.read(min(count, CHUNK))):
        count -= content.write(part)
    return content.getvalue()


def _shared_batch(git: Git) -> Batch | None:
    return git.batch if git.batch is not None and git.batch.serves(git) else None


def _object_folders(git: Git) -> list[Path]:
    return [folder for folder in (git.scratch_objects, git.objects) if folder is not None]


def missing_objects(git: Git, names: Collection[str]) -> list[str]:
    """Which of the objects are not in the store, or cannot be opened there."""
    sizes = object_sizes(git, sorted(names))
    return [name for name in sorted(names) if name not in sizes]


def object_sizes(git: Git, names: list[str]) -> dict[str, int]:
    """Id -> size of those objects that are in the store."""
    found: dict[str, int] = {}
    if len(names) <= FEW:
        with ObjectReader(git) as reader:
            found = {name: size for name in names if (size := reader.size(name)) is not None}
        names = [name for name in names if name not in found]
    rows = (row.split() for row in _batch_check(git, names, "%(objectsize)"))
    return found | {name.decode(): int(size) for name, size in rows}


def kinds_of(git: Git, names: Iterable[str]) -> dict[str, bytes]:
    """Id -> kind of those objects that are in the store."""
    rows = (row.split() for row in _batch_check(git, names, "%(objecttype)"))
    return {name.decode(): kind for name, kind in rows}


def kinds_and_sizes(git: Git, names: Iterable[str]) -> dict[str, tuple[bytes, int]]:
    """Id -> kind and size of those objects that are in the store."""
    rows = (row.split() for row in _batch_check(git, names, "%(objecttype) %(objectsize)"))
    return {name.decode(): (kind, int(size)) for name, kind, size in rows}


def _batch_check(git: Git, names: Iterable[str], fields: str) -> Iterator[bytes]:
    """A row for each object that is in the store: its id and these fields."""
    if lines := _lines(names):
        answer = git.run("cat-file", f"--batch-check=%(objectname) {fields}", "--buffer", stdin=lines)
        yield from (row for row in answer.splitlines() if not row.endswith(b" missing"))


def check_stored(git: Git, wanted: Collection[str], irreplaceable: Collection[str]) -> None:
    """Raise `DamagedObject` unless all the objects are in the store. The `wanted` ones only have to exist,
    as they are read soon. The irreplaceable ones must be intact."""
    batch = _shared_batch(git)
    packs = batch.packs if batch is not None else Packs(*_object_folders(git))
    doubtful = {*irreplaceable} - packs.contained(irreplaceable, intact=True)
    packed = packs.contained(doubtful)
    with ObjectReader(git) as reader:
        for name in sorted(packed):  # damaged, or in a pack too large for a checksum of each object
            reader.read(name, b"blob")
    for lost in missing_objects(git, doubtful - packed | ({*wanted} - packs.contained(wanted))):
        raise DamagedObject(id=lost)


def check_contents(git: Git, names: Iterable[str]) -> None:
    """Raise `DamagedObject` for a blob that is missing or not what its id says. Git compares and shows whatever it
    finds under an id."""
    with ObjectReader(git) as reader:
        for name in names:
            try:
                reader.read(name, b"blob")
            except DamagedObject:
                if (size := reader.size(name) or 0) <= MAX_IN_MEMORY:
                    raise
                with git.conversation("cat-file", "blob", name) as process:
                    assert process.stdout is not None
                    if stream_id(process.stdout.fileno(), size) != name:
                        raise


def read_many(git: Git, names: Iterable[str]) -> Iterator[Read]:
    """Those of the objects that are in the store and intact, in any order."""
    waiting = iter(names)
    while some := list(islice(waiting, _AT_ONCE)):
        try:
            answer = git.run("cat-file", "--batch", "--buffer", stdin=_lines(some))
        except GitFailed:
            yield from _read_singly(git, some)  # git stops at a damaged pack
        else:
            yield from _parse_batch(answer)


def _parse_batch(answer: bytes) -> Iterator[Read]:
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        header, at = answer[at:end].split(), end + 1
        if len(header) == 3:
            size = int(header[2])
            name, kind, data = header[0].decode(), header[1], answer[at : at + size]
            if object_id(kind, data) == name:  # cat-file does not verify ids
                yield name, kind, data
            at += size + 1


def _read_singly(git: Git, names: Iterable[str]) -> Iterator[Read]:
    batch = Batch(git)
    try:
        for name in names:
            kind, data = batch.read(name)
            git.deadline.check("reading objects")
            if kind:
                yield name, kind, data
    finally:
        batch.close()


def problem_of_link(reader: ObjectReader, name: str) -> str | None:
    """Why a checkpoint must not contain a link with this content; None if it may."""
    if (reader.size(name) or 0) > LONGEST_TARGET:
        return "no link can be so long"
    return link_problem(reader.read(name, b"blob"))


def check_comparable(git: Git, pairs: Iterable[tuple[str, str]]) -> None:
    """Check pairs of trees before git compares them: it goes through every path, and a few hostile trees stand for
    billions. Raises `UnsafeTree`."""
    for _, problem in _judged(git, pairs):
        if problem is not None:
            raise problem


def comparable(git: Git, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of the pairs of trees that can be read and that git can compare."""
    return [pair for pair, problem in _judged(git, pairs) if problem is None]


def _judged(
    git: Git, pairs: Iterable[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], DamagedObject | MalformedObject | UnsafeTree | None]]:
    with ObjectReader(git) as reader:
        for number, pair in enumerate(pairs):
            if number % _PAIRS_AT_ONCE == 0:  # what was read of the trees is kept for a while
                trees = TreeReader(EMPTY_TREE, reader.tree)
            try:
                trees.check_difference(*pair)
            except (DamagedObject, MalformedObject, UnsafeTree) as problem:
                yield pair, problem
            else:
                yield pair, None


def _lines(names: Iterable[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


class NameSet(Protocol):
    def __contains__(self, name: str, /) -> bool: ...


class Graph:
    """Which objects an object names: a tree its entries, a commit its tree and parents."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._reader = ObjectReader(git)
        self._known: dict[str, tuple[Named, ...] | None] = {}
        """None for an object that could not be read."""

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__(*_)

    def prefetch(self, tips: Mapping[str, bytes]) -> None:
        """Read everything that the tips lead to, with one command per level."""
        level = {name: kind for name, kind in tips.items() if kind != b"blob"}
        while level:
            self._known.update(dict.fromkeys(level))
            for name, kind, data in read_many(self._git, level):
                try:
                    self._known[name] = tuple(_named_in(kind, data))
                except MalformedObject:
                    continue  # as if it could not be read
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
    """The object and everything it leads to, each once. Objects in `known` are left out, with all that
    they lead to."""
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
        yield from _named_in_header(data)


def _named_in_header(data: bytes) -> Iterator[Named]:
    """What a commit (tree, parents) or a tag (object, with its type) names."""
    rows = [line.split(b" ", 1) for line in data.partition(b"\n\n")[0].splitlines()]
    fields = dict(row for row in rows if len(row) == 2)
    for word, *rest in rows:
        if word in (b"tree", b"parent", b"object"):
            name = rest[0].decode("ascii", "replace") if rest else ""
            kind = fields.get(b"type", b"") if word == b"object" else b"tree" if word == b"tree" else b"commit"
            if not is_object_id(name) or kind not in KINDS:
                raise MalformedObject(what="a commit or a tag", why=f"{word.decode()!r} does not name an object")
            yield name, kind


# --- lines that differ -----------------------------------------------------------------------------------


_MOST_PATHS = 500
"""With more paths than this, git compares whole trees."""
# Whatever attributes the files have: what is compared are bytes.
_PATCH = (
    "diff-tree", "-r", "-p", "-U0", "--full-index", "--text", "--minimal", "--no-color", "--no-ext-diff",
    "--no-textconv",
)  # fmt: skip
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(rb"index ([0-9a-f]{40})\.\.([0-9a-f]{40})")
_MOST_RENAMES = 1000
_NOTHING = "0" * 40


class Hunk(NamedTuple):
    """Lines that are replaced by others: where they begin, counted from 0, and how many there are."""

    old: int
    old_count: int
    new: int
    new_count: int


Pair = tuple[str, str]
"""Two objects: trees, or versions of a file."""


def hunks_of_pairs(git: Git, trees: Collection[Pair], paths: Sequence[bytes]) -> dict[Pair, list[Hunk]]:
    """What differs between the versions of these files in pairs of trees, by the ids of the versions. One process
    answers for all of them."""
    asked = "".join(f"{old} {new}\n" for old, new in sorted(set(trees))).encode()
    if not asked:
        return {}
    check_comparable(git, trees)
    limit = [b"--", *paths] if len(paths) <= _MOST_PATHS else []
    found = parse_hunks(git.run(*_PATCH, "--no-renames", "--stdin", *limit, stdin=asked))
    check_contents(git, {version for pair in found for version in pair if version != _NOTHING})
    return found


def renamed_from(git: Git, trees: Pair, path: bytes) -> tuple[bytes, Pair, list[Hunk]] | None:
    """If a file came about by renaming another one: that one, both versions, and what differs between them."""
    check_comparable(git, [trees])
    limit = f"-l{_MOST_RENAMES}"
    words = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "-M", limit, "--diff-filter=R", *trees)
    parts = git.run(*words).split(b"\0")
    for facts, old, new in zip(parts[0::3], parts[1::3], parts[2::3], strict=False):
        if new != path:
            continue
        _, _, old_id, new_id, _ = facts.split(b" ")
        versions = (old_id.decode(), new_id.decode())
        if versions[0] == versions[1]:
            return old, versions, []
        check_contents(git, versions)
        patch = git.run(*_PATCH, "-M", limit, *trees, "--", old, new)
        return old, versions, parse_hunks(patch).get(versions, [])
    return None


def parse_hunks(patch: bytes) -> dict[Pair, list[Hunk]]:
    """Without context, every line of a hunk begins with a sign: no content is taken for a header."""
    found: dict[Pair, list[Hunk]] = {}
    current: list[Hunk] = []
    for line in patch.split(b"\n"):
        if line.startswith(b"@@ ") and (numbers := _HUNK.match(line)):
            old, old_count, new, new_count = (1 if part is None else int(part) for part in numbers.groups())
            # Of an empty side, git names the line before it.
            current.append(Hunk(old - (old_count > 0), old_count, new - (new_count > 0), new_count))
        elif line.startswith(b"index ") and (ids := _INDEX.match(line)):
            current = found[ids[1].decode(), ids[2].decode()] = []
    return found


def hunks_of_texts(git: Git, old: bytes, new: bytes) -> list[Hunk]:
    """What differs between two texts that are not both in the store."""
    with scratch_folder(git.git_dir, "diff") as scratch:
        (scratch / "old").write_bytes(old)
        (scratch / "new").write_bytes(new)
        words = ("diff", "--no-index", *_PATCH[3:], str(scratch / "old"), str(scratch / "new"))
        patch = git.run(*words, ok=(0, 1))
    return next(iter(parse_hunks(patch).values()), [])
