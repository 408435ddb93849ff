"""Tree objects: reading, writing, and changing a few paths of a large tree.

A change rewrites only the directories on the way to it, so the cost is that of the change,
not of the tree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from shadowsnap.errors import UnsafeTree
from shadowsnap.git.names import name_problem
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.records import dataclass, replace

DIRECTORY, LINK, REGULAR, EXECUTABLE = 0o040000, 0o120000, 0o100644, 0o100755

Leaf = tuple[int, str]
"""Git mode and object id."""
Changed = tuple[bytes, Leaf | None, Leaf | None]
"""A path, and what was and what is there."""
_Node = dict[bytes, "_Node | Leaf | None"]
ReadTree = Callable[[str], bytes]
WriteTree = Callable[[bytes], str]
ParseTree = Callable[[bytes], dict[bytes, Leaf]]


def parse_tree(data: bytes) -> dict[bytes, Leaf]:
    """The entries of a tree. Raises `UnsafeTree` if one has a name that no checkpoint may hold, or if two have
    the same: one could be a link, and the other a directory that is written through it."""
    entries: dict[bytes, Leaf] = {}
    for name, leaf in tree_entries(data):
        if name in entries:
            raise UnsafeTree(name=os.fsdecode(name), why="there are two of that name")
        if (why := name_problem(name)) is not None:
            raise UnsafeTree(name=os.fsdecode(name), why=why)
        entries[name] = leaf
    return entries


def tree_entries(data: bytes) -> Iterator[tuple[bytes, Leaf]]:
    """Every entry as it stands there, whatever it is called."""
    at = 0
    while at < len(data):
        space = data.index(b" ", at, at + 8)
        end = data.index(b"\0", space)
        name = data[end + 1 : end + 21]
        if len(name) < 20:
            raise ValueError("a tree is cut short")
        yield data[space + 1 : end], (int(data[at:space], 8), name.hex())
        at = end + 21


def format_tree(entries: Mapping[bytes, Leaf]) -> bytes:
    # Git sorts directories as if their names ended in a slash.
    ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == DIRECTORY else item[0])
    return b"".join(b"%o %s\0%s" % (mode, name, bytes.fromhex(object_id)) for name, (mode, object_id) in ordered)


def patch_tree(
    base: str,
    changes: Mapping[bytes, Leaf | None],
    read: ReadTree,
    write: WriteTree,
    parse: ParseTree = parse_tree,
) -> str:
    """The id of `base` with these paths set, or removed where the value is None. Removing a
    directory removes all of it."""
    if not changes:
        return base
    # No recursion: directories may be nested deeper than Python calls.
    top = _Opened.directory(None if base == EMPTY_TREE else base, _nested(changes), read, parse)
    opened = [top]
    for directory in opened:  # grows on the way: what lies above comes first
        opened += directory.change_entries(read, parse)
    for directory in reversed(opened):
        directory.close(write)
    return top.new or write(b"")


def _nested(changes: Mapping[bytes, Leaf | None]) -> _Node:
    """The changes by directory. What is removed and has changes below it (a file that became a
    directory) is marked by an empty name."""
    root: _Node = {}
    for path, leaf in sorted(changes.items(), key=lambda item: item[1] is not None):  # removals first
        *folders, name = path.split(b"/")
        node = root
        for folder in folders:
            below = node.get(folder)
            if not isinstance(below, dict):
                below = node[folder] = {b"": None} if folder in node else {}
            node = below
        there = node.get(name)
        if leaf is None and isinstance(there, dict):
            there[b""] = None
        else:
            node[name] = leaf
    return root


@dataclass
class _Opened:
    """A directory that is being changed."""

    base: str | None
    changes: _Node
    before: bytes
    entries: dict[bytes, Leaf]
    above: _Opened | None = None
    name: bytes = b""
    new: str | None = None

    @classmethod
    def directory(cls, base: str | None, changes: _Node, read: ReadTree, parse: ParseTree) -> _Opened:
        before = b"" if base is None else read(base)
        return cls(base, changes, before, parse(before))

    def change_entries(self, read: ReadTree, parse: ParseTree) -> list[_Opened]:
        """Set and remove what lies in this directory itself; returns the directories below
        that have to be changed."""
        below = []
        for name, change in self.changes.items():
            if isinstance(change, dict):
                if b"" in change:
                    self.entries.pop(name, None)
                old = self.entries.get(name)
                base = old[1] if old is not None and old[0] == DIRECTORY else None
                below.append(replace(_Opened.directory(base, change, read, parse), above=self, name=name))
            elif change is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = change
        return below

    def close(self, write: WriteTree) -> None:
        """Write the directory if it changed and holds anything, and tell the one above."""
        if self.entries:
            after = format_tree(self.entries)
            self.new = self.base if self.base is not None and after == self.before else write(after)
        if self.above is None:
            return
        if self.new is not None:
            self.above.entries[self.name] = (DIRECTORY, self.new)
        elif self.base is not None:
            del self.above.entries[self.name]


def tree_changes(old: str, new: str, read: ReadTree, most: int) -> list[Changed] | None:
    """Every file that differs between two trees, in the order of paths. None if more than so many
    directories differ: then git is quicker."""
    found: list[Changed] = []
    differing: list[tuple[bytes, str | None, str | None]] = [(b"", old, new)]
    for prefix, *sides in differing:  # grows on the way
        if len(differing) > most:
            return None
        was, now = (parse_tree(read(side)) if side not in (None, EMPTY_TREE) else {} for side in sides)
        for name in was.keys() | now.keys():
            before, after = was.get(name), now.get(name)
            if before == after:
                continue
            folders = [leaf[1] if leaf and leaf[0] == DIRECTORY else None for leaf in (before, after)]
            if folders != [None, None]:
                differing.append((prefix + name + b"/", folders[0], folders[1]))
            files = [None if folder else leaf for leaf, folder in zip((before, after), folders, strict=True)]
            if files != [None, None]:
                found.append((prefix + name, files[0], files[1]))
    return sorted(found, key=lambda row: row[0])


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

    def files_below(self, path: bytes) -> Iterator[bytes]:
        """Every file below this path, if it is a directory."""
        found = self.find(path)
        waiting = [(path + b"/" if path else b"", found[1])] if found and found[0] == DIRECTORY else []
        while waiting:
            prefix, tree = waiting.pop()
            for name, (mode, each) in self._entries(tree).items():
                if mode == DIRECTORY:
                    waiting.append((prefix + name + b"/", each))
                else:
                    yield prefix + name

    def _entries(self, tree: str) -> dict[bytes, Leaf]:
        if tree not in self._parsed:
            self._parsed[tree] = {} if tree == EMPTY_TREE else parse_tree(self._read(tree))
        return self._parsed[tree]
