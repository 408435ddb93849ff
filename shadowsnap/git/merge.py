"""A three-way merge of one text."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from shadowsnap.git.files import remove_tree
from shadowsnap.git.runner import Git
from shadowsnap.records import NamedTuple

_MOST_CONFLICTS = 127
_BINARY_WITHIN = 8000
_numbers = count()


class MergedText(NamedTuple):
    data: bytes
    has_conflicts: bool
    """Whether sides disagree somewhere: there are conflict markers there."""


def merge_text(
    git: Git, ours: bytes, base: bytes, theirs: bytes, labels: tuple[str, str, str]
) -> MergedText | None:
    """Bring what changed from `base` to `theirs` into `ours`; None if one of them is no text. The labels name
    ours, the base and theirs in conflict markers."""
    if any(b"\0" in side[:_BINARY_WITHIN] for side in (ours, base, theirs)):
        return None
    # A directory of its own for each merge: other threads may be at work on other projects.
    scratch = git.git_dir / f"scratch-merge-{os.getpid()}-{next(_numbers)}"
    sides = {"ours": ours, "base": base, "theirs": theirs}
    remove_tree(scratch)
    try:
        scratch.mkdir()
        for name, data in sides.items():
            Path(scratch, name).write_bytes(data)
        words = [word for label in labels for word in ("-L", label)]
        names = [str(scratch / name) for name in sides]
        asking = git.bound(config=("merge.conflictStyle=merge",)).start(
            "merge-file", "-p", *words, *names, ok=range(_MOST_CONFLICTS + 1)
        )
        merged = asking.output()
    finally:
        remove_tree(scratch)
    return MergedText(merged, asking.status != 0)
