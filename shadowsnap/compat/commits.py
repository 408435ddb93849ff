"""Reading and adding commits in any repository: files, parents, trailers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shadowsnap.errors import DamagedObject
from shadowsnap.git.objects import EMPTY_TREE, LooseObjects
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, REGULAR, Leaf, parse_tree

_NOTHING = "0" * 40


class Folder:
    """One directory of a tree: the ids of its files and directories, by name. Without a tree it is empty."""

    def __init__(self, reader: ObjectReader, tree: str | None) -> None:
        self._reader, self.tree = reader, tree
        entries = parse_tree(reader.read(tree, b"tree")) if tree else {}
        self.folders = {os.fsdecode(name): id for name, (mode, id) in entries.items() if mode == DIRECTORY}
        self.files = {os.fsdecode(name): id for name, (mode, id) in entries.items() if mode != DIRECTORY}

    @classmethod
    def of_commit(cls, reader: ObjectReader, commit: str) -> Folder:
        return cls(reader, _tree_of(reader, commit))

    def below(self, *names: str) -> Folder:
        """A directory below this one; an empty one if it does not exist."""
        folder = self
        for name in names:
            folder = Folder(self._reader, folder.folders.get(name))
        return folder

    def read(self, name: str) -> bytes:
        """The content of a file; empty if it does not exist."""
        return self._reader.read(self.files[name], b"blob") if name in self.files else b""


def with_parents(reader: ObjectReader, commit: str) -> tuple[str, ...]:
    """A commit and its parents; empty if this repository lacks it, as after a rebase elsewhere."""
    try:
        header = reader.read(commit, b"commit").partition(b"\n\n")[0].decode("utf-8", "replace")
    except DamagedObject:
        return ()
    return (commit, *(line[7:] for line in header.splitlines() if line.startswith("parent ")))


def commits_with_trailer(git: Git, key: str) -> dict[str, list[tuple[str, ...]]]:
    """The commits with a trailer, each with its parents, by each word of the trailer's value."""
    shape = f"--format=%H %P%x00%(trailers:key={key},valueonly,separator=%x20)%x01"
    listed = git.run("log", "--all", f"--grep=^{key}: ", shape, ok=(0, 128)).decode("utf-8", "replace")
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in listed.replace("\x01\n", "\x01").split("\x01"):
        commits, _, value = row.partition("\0")
        for word in value.split():
            found.setdefault(word, []).append(tuple(commits.split()))
    return found


def commit_files(
    git: Git,
    ref: str,
    files: Mapping[str, bytes],
    message: str,
    seconds: int,
    *,
    onto: str = "",
    keep: bool = True,
) -> None:
    """Add a commit with these files to a ref, unless its tree has them already. With `keep`, the other files of
    the tree stay. A new ref begins on the commit `onto`, if given. Fails if another process moved the ref
    meanwhile."""
    tip = git.run("rev-parse", "--verify", "-q", f"{ref}^{{commit}}", ok=(0, 1)).decode().strip()
    parent, objects = tip or onto, LooseObjects(git.git_dir / "objects", fsync=True)
    changes: dict[bytes, Leaf | None] = {
        os.fsencode(path): (REGULAR, objects.write(b"blob", content)) for path, content in files.items()
    }
    with ObjectReader(git) as reader:
        before = _tree_of(reader, parent) if parent else EMPTY_TREE
        base = before if keep else EMPTY_TREE
        if base == EMPTY_TREE:
            objects.write(b"tree", b"")
        tree = reader.changed_tree(base, changes, objects)
    if tip and tree == before:
        return
    who = f"shadowsnap <shadowsnap@localhost> {seconds} +0000"
    header = f"tree {tree}\n" + (f"parent {parent}\n" if parent else "")
    text = f"{header}author {who}\ncommitter {who}\n\n{message}"
    commit = objects.write(b"commit", text.encode("utf-8", "surrogateescape"))
    objects.flush()
    git.run("update-ref", ref, commit, tip or _NOTHING)


def _tree_of(reader: ObjectReader, commit: str) -> str:
    return reader.read(commit, b"commit")[5:45].decode("ascii")
