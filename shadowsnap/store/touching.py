"""Which checkpoints have to do with one path."""

from __future__ import annotations

from collections.abc import Iterable

from shadowsnap.errors import DamagedObject, MalformedObject
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import TreeReader
from shadowsnap.model import Checkpoint
from shadowsnap.store.layout import Store


def touching(store: Store, listed: Iterable[Checkpoint], path: bytes, deadline: Deadline) -> list[Checkpoint]:
    """Those in which a path changed. Where there is nothing to compare with (the oldest, or named
    files alone), those that hold it. `listed` was counted for this path. At most one process."""
    with ObjectReader(store.git(deadline)) as reader:
        return [
            each
            for each in listed
            if each.files_changed or (each.files_changed is None and _holds(reader, each.tree, path))
        ]


def _holds(reader: ObjectReader, tree: str, path: bytes) -> bool:
    try:
        return TreeReader(tree, lambda name: reader.read(name, b"tree")).find(path) is not None
    except (DamagedObject, MalformedObject, ValueError):
        return True  # nobody can tell any more, and unknown is not no
