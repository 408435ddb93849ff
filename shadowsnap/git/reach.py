"""What an object leads to: walking commits and trees without a process for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from shadowsnap.git.objects import EMPTY_TREE, ObjectReader
from shadowsnap.git.runner import Git
from shadowsnap.git.trees import DIRECTORY, parse_tree

GITLINK = 0o160000


class Collection(Protocol):
    def __contains__(self, name: str, /) -> bool: ...


def kinds_of(git: Git, names: Iterable[str]) -> dict[str, bytes]:
    """What each of the objects is; those that are not in the store are left out."""
    asked = "".join(f"{name}\n" for name in names).encode()
    if not asked:
        return {}
    rows = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked).splitlines()
    return {row[:40].decode(): row[41:] for row in rows if not row.endswith(b" missing")}


def reachable(reader: ObjectReader, name: str, kind: bytes, known: Collection) -> Iterator[str]:
    """The object and everything it leads to, each once, except what is known together with all
    that it leads to."""
    seen: set[str] = set()
    stack = [(name, kind)]
    while stack:
        name, kind = stack.pop()
        if name in seen or name in known:
            continue
        seen.add(name)
        yield name
        if kind == b"tree":
            if name != EMPTY_TREE:
                stack += _in_tree(reader.read(name, kind))
        elif kind != b"blob":
            stack += _in_header(reader.read(name, kind))


def _in_tree(data: bytes) -> Iterator[tuple[str, bytes]]:
    for mode, name in parse_tree(data).values():
        if mode != GITLINK:
            yield name, b"tree" if mode == DIRECTORY else b"blob"


def _in_header(data: bytes) -> Iterator[tuple[str, bytes]]:
    """What a commit (tree, parents) or a tag (object, with its type) names."""
    rows = [line.split(b" ", 1) for line in data.partition(b"\n\n")[0].splitlines()]
    facts = dict(row for row in rows if len(row) == 2)
    for row in rows:
        if row[0] in (b"tree", b"parent"):
            yield row[1].decode(), b"tree" if row[0] == b"tree" else b"commit"
        elif row[0] == b"object":
            yield row[1].decode(), facts[b"type"]
