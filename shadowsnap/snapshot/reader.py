"""One of the processes that help with a large first capture (see `readers`).

It imports little, because the files are read by the time it would have imported much.
"""

from __future__ import annotations

import marshal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.git.index import Entry
from shadowsnap.git.packs import NewObjects
from shadowsnap.snapshot.content import Content, NotCaptured, Stored, read_file, store_batch
from shadowsnap.snapshot.worktree import Worktree

Answer = tuple[bytes, list[int], dict[int, str | None]]
"""The entries of the files that are captured, one after the other; the positions of those with several links; the
positions of those that are not captured, and why."""


def from_answer(paths: Sequence[bytes], answer: Answer) -> Stored:
    entries, linked, left_out = answer
    count = len(entries) // Entry.LENGTH + len(left_out)
    captured = [path for at, path in enumerate(paths[:count]) if at not in left_out] if left_out else paths[:count]
    return Stored(
        dict(zip(captured, Entry.several(entries), strict=True)),
        [paths[at] for at in linked],
        {paths[at]: why for at, why in left_out.items()},
    )


def to_answer(paths: Sequence[bytes], stored: Stored) -> Answer:
    at = {path: number for number, path in enumerate(paths)}
    left_out = {at[path]: why for path, why in stored.left_out.items()}
    return b"".join(stored.entries.values()), [at[path] for path in stored.linked], left_out


def main(descriptor: str, root: str, directory: str, limit: str, fsync: str) -> None:
    """Answer one batch of paths after another. An empty one completes the pack; without it, nothing is left."""
    worktree = Worktree(Path(root), None if descriptor == "None" else int(descriptor))
    objects = NewObjects(Path(directory), fsync=fsync == "True")
    objects.expect_many()
    most = None if limit == "None" else int(limit)

    def read(path: bytes) -> Content | NotCaptured:
        return read_file(worktree, path, most, objects.write_stream)

    def send(answer: Any) -> None:
        marshal.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()

    try:
        while paths := marshal.load(sys.stdin.buffer):
            send(to_answer(paths, store_batch(paths, read, objects, NO_DEADLINE)))
        objects.flush()
        send(True)
    except EOFError:
        pass  # the other process was killed
    finally:
        objects.abandon()


if __name__ == "__main__":
    main(*sys.argv[1:])
