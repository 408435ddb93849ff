"""What files held at a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from shadowsnap.git.deadline import Deadline
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import DIRECTORY, TreeReader
from shadowsnap.model import Checkpoint
from shadowsnap.store.layout import Store


def contents_of(
    store: Store, checkpoint: Checkpoint, paths: Iterable[str], deadline: Deadline
) -> dict[str, bytes]:
    """The bytes of those of the files that the checkpoint has; of a link, where it leads."""
    found = {}
    with ObjectReader(store.git(deadline)) as reader:
        lookup = TreeReader(checkpoint.tree, partial(reader.read, kind=b"tree"))
        for path in paths:
            leaf = lookup.find(os.fsencode(path))
            if leaf is not None and leaf[0] != DIRECTORY:
                found[path] = reader.read(leaf[1], b"blob")
    return found
