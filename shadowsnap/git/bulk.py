"""Reading many objects at once: asked one by one, each would cost a change from us to git and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from shadowsnap.errors import GitFailed
from shadowsnap.git.reading import Batch
from shadowsnap.git.runner import Git

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
