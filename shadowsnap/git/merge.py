"""Three-way merges of whole trees, without touching a file."""

from __future__ import annotations

from shadowsnap.errors import GitFailed, GitTooOld
from shadowsnap.git.newobjects import NewObjects
from shadowsnap.git.runner import Git
from shadowsnap.records import dataclass

_USAGE = 129
_WHO = "shadowsnap <shadowsnap@localhost> 0 +0000"


@dataclass(frozen=True)
class Merge:
    tree: str
    """What came out, with conflict markers where sides disagree."""
    disputed: dict[bytes, frozenset[int]]
    """Paths that could not be merged, and which of base (1), ours (2) and theirs (3) have them."""
    labels: tuple[str, str] = ("", "")
    """What git calls ours and theirs, in conflict markers and in names that it makes up."""

    def real_name(self, path: bytes) -> bytes:
        """Where a file and something else are to be at the same path, git makes up a name for one."""
        for label in filter(None, self.labels):
            path = path.partition(f"~{label}".encode())[0]
        return path


def merge_trees(git: Git, objects: NewObjects, base: str, ours: str, theirs: str) -> Merge:
    """Bring what changed from `base` to `theirs` into `ours`."""
    root = _commit(objects, base)
    sides = [_commit(objects, tree, root) for tree in (ours, theirs)]
    config = ("merge.directoryRenames=false", "merge.conflictStyle=merge")
    try:
        answer = git.bound(config=(*git.config, *config)).run(
            "merge-tree", "--write-tree", "-z", "--no-messages", *sides, ok=(0, 1)
        )
    except GitFailed as problem:
        if problem.facts.get("status") == _USAGE:
            raise GitTooOld(found="in use", needed="2.38 (to merge without touching files)") from None
        raise
    tree, _, rest = answer.partition(b"\0")
    disputed: dict[bytes, frozenset[int]] = {}
    for row in rest.split(b"\0"):
        meta, _, path = row.partition(b"\t")
        if path:
            disputed[path] = disputed.get(path, frozenset()) | {int(meta.split()[2])}
    return Merge(tree.decode().strip(), disputed, (sides[0], sides[1]))


def _commit(objects: NewObjects, tree: str, parent: str | None = None) -> str:
    """A throw-away commit: git takes the base of a merge from the parents."""
    above = f"parent {parent}\n" if parent else ""
    return objects.write(b"commit", f"tree {tree}\n{above}author {_WHO}\ncommitter {_WHO}\n\nmerge\n".encode())
