"""A three-way merge of one text."""

from __future__ import annotations

import os
from pathlib import Path

from shadowsnap.git.files import remove_tree
from shadowsnap.git.runner import Git
from shadowsnap.records import NamedTuple

_MOST_CONFLICTS = 127
_BINARY = 255


class MergedText(NamedTuple):
    data: bytes
    has_conflicts: bool
    """Whether sides disagree somewhere: there are conflict markers there."""


def merge_text(
    git: Git, ours: bytes, base: bytes, theirs: bytes, labels: tuple[str, str, str]
) -> MergedText | None:
    """Bring what changed from `base` to `theirs` into `ours`; None if one of them is no text. The labels name
    ours, the base and theirs in conflict markers."""
    scratch = git.git_dir / f"scratch-merge-{os.getpid()}"
    sides = {"ours": ours, "base": base, "theirs": theirs}
    remove_tree(scratch)
    try:
        scratch.mkdir()
        for name, data in sides.items():
            Path(scratch, name).write_bytes(data)
        words = [word for label in labels for word in ("-L", label)]
        names = [str(scratch / name) for name in sides]
        asking = git.bound(config=("merge.conflictStyle=merge",)).start(
            "merge-file", "-p", *words, *names, ok=(*range(_MOST_CONFLICTS + 1), _BINARY)
        )
        data = asking.output()
    finally:
        remove_tree(scratch)
    if asking.status == _BINARY:
        return None
    return MergedText(data, asking.status != 0)
