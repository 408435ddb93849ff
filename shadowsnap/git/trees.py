"""Tree objects: reading, writing, and changing a few paths of a large tree.

A change rewrites only the directories on the way to it, so the cost is that of the change,
not of the tree.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from shadowsnap.errors import MalformedObject, UnsafeTree
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
    """Every entry as it stands there, whatever it is called. Raises `MalformedObject` for what is no tree."""
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        end = data.find(b"\0", space)
        mode, name = data[at:space], data[end + 1 : end + 21]
        if space < 0 or end < 0 or len(name) < 20:
            raise MalformedObject(what="a tree", why="it is cut short")
        if not mode.isdigit() or b"8" in mode or b"9" in mode:
            raise MalformedObject(what="a tree", why=f"{mode!r} is no mode")
        yield data[space + 1 : end], (int(mode, 8), name.hex())
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


# Code points that HFS+ leaves out when it compares names.
_IGNORED_BY_HFS = {
    code: None
    for first, last in ((0x200C, 0x200F), (0x202A, 0x202E), (0x206A, 0x206F), (0xFEFF, 0xFEFF))
    for code in range(first, last + 1)
}
# The short names that Windows gives to `.git`.
_DOT_GIT = re.compile(r"\.git|git~[0-9]+")
_SUSPICIOUS = re.compile(rb"(?i)git|[\\\0/\x80-\xff]|\A\.{1,2}\Z|\A\Z")
_ON_WINDOWS = re.compile(rb'[\\:*?"<>|\x00-\x1f]|[. ]\Z')


def name_problem(name: bytes) -> str | None:
    """Why a checkpoint must not hold an entry of this name; None if it may."""
    if sys.platform == "win32" and _ON_WINDOWS.search(name):
        return "Windows takes it for something else"
    if _SUSPICIOUS.search(name) is None:
        return None
    if not name or b"/" in name or b"\0" in name:
        return "it is no name"
    text = name.decode("utf-8", "surrogateescape").translate(_IGNORED_BY_HFS).casefold()
    for part in text.split("\\"):  # what Windows takes for a separator
        if part in (".", ".."):
            return "it leads out of its directory"
        # Windows leaves out what follows a colon (a stream of the file), and dots and spaces at the end.
        if _DOT_GIT.fullmatch(part.partition(":")[0].rstrip(". ")):
            return "it is taken for a repository"
    return None


def path_problem(path: bytes) -> str | None:
    """The same for every part of a path."""
    if _SUSPICIOUS.search(path.replace(b"/", b"")) is None and b"//" not in path and sys.platform != "win32":
        names = path.split(b"/")
        return None if not {b"", b".", b".."}.intersection(names) else "it is no path"
    return next((problem for name in path.split(b"/") if (problem := name_problem(name)) is not None), None)


class Sighting(NamedTuple):
    path: bytes
    mode: int
    id: str


class TreeSearch:
    """Looks for entries that a question (name, mode, object id) is answered with yes for, and for second ones
    of a name. What lies below such an entry is not looked at."""

    def __init__(self, read: ReadTree, wanted: Callable[[bytes, int, str], bool]) -> None:
        self._read = read
        self._wanted = wanted
        self._below: dict[str, dict[bytes, str]] = {}
        """Tree -> its subtrees by name."""
        self._right_in: dict[str, list[Sighting]] = {}
        self._above: dict[str, set[str]] = {}

    def find(self, root: str) -> list[Sighting]:
        """All of them below a tree, with their paths."""
        self._explore(root)
        on_the_way = self._on_the_way()
        found: list[Sighting] = []
        stack = [(b"", root)] if root in on_the_way else []
        while stack:
            prefix, tree = stack.pop()
            found += [each._replace(path=prefix + each.path) for each in self._right_in.get(tree, ())]
            stack += [
                (prefix + name + b"/", child) for name, child in self._below[tree].items() if child in on_the_way
            ]
        return sorted(found)

    def _explore(self, root: str) -> None:
        stack = [root]
        while stack:
            tree = stack.pop()
            if tree in self._below:
                continue
            self._below[tree] = {}
            names: set[bytes] = set()
            for name, (mode, child) in () if tree == EMPTY_TREE else tree_entries(self._read(tree)):
                if name in names or self._wanted(name, mode, child):
                    self._right_in.setdefault(tree, []).append(Sighting(name, mode, child))
                elif mode == DIRECTORY:
                    self._below[tree][name] = child
                    self._above.setdefault(child, set()).add(tree)
                    stack.append(child)
                names.add(name)

    def _on_the_way(self) -> set[str]:
        """Trees that have one in them or further down."""
        found, stack = set(self._right_in), list(self._right_in)
        while stack:
            for above in self._above.get(stack.pop(), ()):
                if above not in found:
                    found.add(above)
                    stack.append(above)
        return found
