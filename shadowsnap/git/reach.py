"""What an object leads to: walking commits and trees without a process for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from shadowsnap.errors import DamagedObject
from shadowsnap.git.bulk import read_many
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.runner import Git
from shadowsnap.git.trees import DIRECTORY, tree_entries

GITLINK = 0o160000

Named = tuple[str, bytes]
"""An object and its kind."""


class Collection(Protocol):
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
                self._known[name] = tuple(_named_in(kind, data))
            below = (each for name in level for each in self._known[name] or ())
            level = {name: kind for name, kind in below if kind != b"blob" and name not in self._known}

    def named_by(self, name: str, kind: bytes) -> tuple[Named, ...]:
        if kind == b"blob" or name == EMPTY_TREE:
            return ()
        if name not in self._known:
            return tuple(_named_in(kind, self._reader.read(name, kind)))
        found = self._known[name]
        if found is None:
            raise DamagedObject(id=name)
        return found


def reachable(graph: Graph, name: str, kind: bytes, known: Collection) -> Iterator[str]:
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
    for row in rows:
        if row[0] in (b"tree", b"parent"):
            yield row[1].decode(), b"tree" if row[0] == b"tree" else b"commit"
        elif row[0] == b"object":
            yield row[1].decode(), facts[b"type"]
