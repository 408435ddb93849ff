"""Tree objects: reading, writing, and changing a few paths of a large tree.

A change rewrites only the directories on the way to it, so the cost is that of the change,
not of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Union

from shadowsnap.git.objects import EMPTY_TREE

DIRECTORY, LINK, REGULAR, EXECUTABLE = 0o040000, 0o120000, 0o100644, 0o100755

Leaf = tuple[int, str]
"""Git mode and object id."""
_Node = dict[bytes, Union["_Node", Leaf, None]]

ReadTree = Callable[[str], bytes]
WriteTree = Callable[[bytes], str]


def parse_tree(data: bytes) -> dict[bytes, Leaf]:
    entries: dict[bytes, Leaf] = {}
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        entries[data[space + 1 : end]] = (int(data[at:space], 8), data[end + 1 : end + 21].hex())
        at = end + 21
    return entries


def format_tree(entries: Mapping[bytes, Leaf]) -> bytes:
    # Git sorts directories as if their names ended in a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == DIRECTORY else item[0])
    return b"".join(b"%o %s\0%s" % (mode, name, bytes.fromhex(object_id)) for name, (mode, object_id) in ordered)


def patch_tree(base: str, changes: Mapping[bytes, Leaf | None], read: ReadTree, write: WriteTree) -> str:
    """The id of `base` with these paths set, or removed where the value is None. Removing a
    directory removes all of it."""
    if not changes:
        return base
    return _patch(None if base == EMPTY_TREE else base, _nested(changes), read, write) or write(b"")


def _nested(changes: Mapping[bytes, Leaf | None]) -> _Node:
    root: _Node = {}
    # Removals first: a file that became a directory is removed *and* has paths set below it.
    for path, leaf in sorted(changes.items(), key=lambda item: item[1] is not None):
        *folders, name = path.split(b"/")
        node = root
        for folder in folders:
            below = node.get(folder)
            if not isinstance(below, dict):
                below = node[folder] = {}
            node = below
        if leaf is not None or name not in node:
            node[name] = leaf
    return root


def _patch(base: str | None, node: _Node, read: ReadTree, write: WriteTree) -> str | None:
    before = b"" if base is None else read(base)
    entries = parse_tree(before)
    for name, change in node.items():
        if isinstance(change, dict):
            old = entries.get(name)
            below = old[1] if old is not None and old[0] == DIRECTORY else None
            new = _patch(below, change, read, write)
            if new is not None:
                entries[name] = (DIRECTORY, new)
            elif below is not None:
                del entries[name]
        elif change is None:
            entries.pop(name, None)
        else:
            entries[name] = change
    if not entries:
        return None
    after = format_tree(entries)
    return base if base is not None and after == before else write(after)


class TreeReader:
    """Looks paths up in a tree, reading each directory once."""

    def __init__(self, root: str, read: ReadTree) -> None:
        self._root = root
        self._read = read
        self._parsed: dict[str, dict[bytes, Leaf]] = {}

    def find(self, path: bytes) -> Leaf | None:
        """What is at this path; the root itself is the empty path."""
        found: Leaf | None = (DIRECTORY, self._root)
        for name in path.split(b"/") if path else ():
            if found is None or found[0] != DIRECTORY:
                return None
            found = self._entries(found[1]).get(name)
        return found

    def _entries(self, tree: str) -> dict[bytes, Leaf]:
        if tree not in self._parsed:
            self._parsed[tree] = {} if tree == EMPTY_TREE else parse_tree(self._read(tree))
        return self._parsed[tree]
