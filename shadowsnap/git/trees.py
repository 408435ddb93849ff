"""Tree objects: parsing, writing, changing a few paths, comparing, and searching.

A change rewrites only the directories on the way to it, so its cost does not depend on the size
of the tree. Nothing recurses: directories can be nested deeper than Python's stack.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from shadowsnap.errors import MalformedObject, UnsafeTree
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.records import dataclass

DIRECTORY, LINK, REGULAR, EXECUTABLE, GITLINK = 0o040000, 0o120000, 0o100644, 0o100755, 0o160000

Leaf = tuple[int, str]
"""Git mode and object id."""
Changed = tuple[bytes, Leaf | None, Leaf | None]
"""A path with its old and its new entry."""
_Node = dict[bytes, "_Node | Leaf | None"]
ReadTree = Callable[[str], bytes]
WriteTree = Callable[[bytes], str]
ParseTree = Callable[[bytes], dict[bytes, Leaf]]


def parse_tree(data: bytes) -> dict[bytes, Leaf]:
    """The entries of a tree. Raises `UnsafeTree` for a name that a checkpoint must not contain, and for two
    entries of the same name: one could be a link, and the other a directory written through it."""
    entries: dict[bytes, Leaf] = {}
    for name, leaf in tree_entries(data):
        if name in entries:
            raise UnsafeTree(name=os.fsdecode(name), why="there are two of that name")
        if (why := name_problem(name)) is not None:
            raise UnsafeTree(name=os.fsdecode(name), why=why)
        entries[name] = leaf
    return entries


def tree_entries(data: bytes) -> Iterator[tuple[bytes, Leaf]]:
    """Every entry of a tree, without a check of its name. Raises `MalformedObject` if it is not a tree."""
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        end = data.find(b"\0", space)
        mode, name = data[at:space], data[end + 1 : end + 21]
        if space < 0 or end < 0 or len(name) < 20:
            raise MalformedObject(what="a tree", why="it is cut short")
        if not mode.isdigit() or b"8" in mode or b"9" in mode:
            raise MalformedObject(what="a tree", why=f"{mode!r} is not a mode")
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
    """Write a copy of `base` with these paths set, or removed where the value is None, and return its id.
    Removing a directory removes everything in it."""
    if not changes:
        return base
    top = _Directory.open(None if base == EMPTY_TREE else base, _nested(changes), read, parse)
    directories = [top]
    for directory in directories:  # grows while it is walked; parents come before children
        directories += directory.change_entries(read, parse)
    for directory in reversed(directories):
        directory.write(write)
    return top.new or write(b"")


def _nested(changes: Mapping[bytes, Leaf | None]) -> _Node:
    """The changes as nested directories. A path that is removed and also has changes below it (a file that
    became a directory) is marked by an empty name."""
    root: _Node = {}
    for path, leaf in sorted(changes.items(), key=lambda item: item[1] is not None):  # removals first
        *folders, name = path.split(b"/")
        node = root
        for folder in folders:
            below = node.get(folder)
            if not isinstance(below, dict):
                below = node[folder] = {b"": None} if folder in node else {}
            node = below
        below = node.get(name)
        if leaf is None and isinstance(below, dict):
            below[b""] = None
        else:
            node[name] = leaf
    return root


@dataclass
class _Directory:
    """A directory that is being changed."""

    base: str | None
    changes: _Node
    before: bytes
    entries: dict[bytes, Leaf]
    parent: _Directory | None = None
    name: bytes = b""
    new: str | None = None
    """Its new id, after `write`; None if it is empty."""

    @classmethod
    def open(
        cls,
        base: str | None,
        changes: _Node,
        read: ReadTree,
        parse: ParseTree,
        parent: _Directory | None = None,
        name: bytes = b"",
    ) -> _Directory:
        before = b"" if base is None else read(base)
        return cls(base, changes, before, parse(before), parent, name)

    def change_entries(self, read: ReadTree, parse: ParseTree) -> list[_Directory]:
        """Set and remove entries of this directory itself. Returns the subdirectories that have changes."""
        below = []
        for name, change in self.changes.items():
            if isinstance(change, dict):
                if b"" in change:
                    self.entries.pop(name, None)
                old = self.entries.get(name)
                base = old[1] if old is not None and old[0] == DIRECTORY else None
                below.append(_Directory.open(base, change, read, parse, self, name))
            elif change is None:
                self.entries.pop(name, None)
            else:
                self.entries[name] = change
        return below

    def write(self, write: WriteTree) -> None:
        """Write the directory if it changed and is not empty, and update its entry in the parent."""
        if self.entries:
            after = format_tree(self.entries)
            self.new = self.base if self.base is not None and after == self.before else write(after)
        if self.parent is None:
            return
        if self.new is not None:
            self.parent.entries[self.name] = (DIRECTORY, self.new)
        elif self.base is not None:
            del self.parent.entries[self.name]


def tree_changes(old: str, new: str, read: ReadTree, limit: int) -> list[Changed] | None:
    """Every file that differs between two trees, sorted by path. None if more than `limit` directories
    differ: git is faster then."""
    found: list[Changed] = []
    differing: list[tuple[bytes, str | None, str | None]] = [(b"", old, new)]
    for prefix, *sides in differing:  # grows while it is walked
        if len(differing) > limit:
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
    """Looks up paths in a tree. Each directory is read once."""

    def __init__(self, root: str, read: ReadTree) -> None:
        self._root = root
        self._read = read
        self._parsed: dict[str, dict[bytes, Leaf]] = {}

    def find(self, path: bytes) -> Leaf | None:
        """The entry at this path; the empty path is the root itself."""
        found: Leaf | None = (DIRECTORY, self._root)
        for name in path.split(b"/") if path else ():
            if found is None or found[0] != DIRECTORY:
                return None
            found = self._entries(found[1]).get(name)
        return found

    def files_below(self, path: bytes) -> Iterator[bytes]:
        """Every file below this path; none if it is not a directory."""
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


# Code points that HFS+ ignores when it compares names.
_IGNORED_BY_HFS = {
    code: None
    for first, last in ((0x200C, 0x200F), (0x202A, 0x202E), (0x206A, 0x206F), (0xFEFF, 0xFEFF))
    for code in range(first, last + 1)
}
# `git~1` is a short name that Windows gives to `.git`.
_DOT_GIT = re.compile(r"\.git|git~[0-9]+")
_SUSPICIOUS = re.compile(rb"(?i)git|[\\\0/\x80-\xff]|\A\.{1,2}\Z|\A\Z")
_ON_WINDOWS = re.compile(rb'[\\:*?"<>|\x00-\x1f]|[. ]\Z')


def name_problem(name: bytes) -> str | None:
    """Why a checkpoint must not contain an entry of this name; None if it may."""
    if sys.platform == "win32" and _ON_WINDOWS.search(name):
        return "Windows takes it for something else"
    if _SUSPICIOUS.search(name) is None:
        return None
    if not name or b"/" in name or b"\0" in name:
        return "it is not a file name"
    text = name.decode("utf-8", "surrogateescape").translate(_IGNORED_BY_HFS).casefold()
    for part in text.split("\\"):  # a separator on Windows
        if part in (".", ".."):
            return "it leads out of its directory"
        # Windows ignores what follows a colon (a stream of the file), and dots and spaces at the end.
        if _DOT_GIT.fullmatch(part.partition(":")[0].rstrip(". ")):
            return "it is taken for a repository"
    return None


def path_problem(path: bytes) -> str | None:
    """Why a checkpoint must not contain this path; None if it may."""
    # The usual case, with one search for the whole path.
    if _SUSPICIOUS.search(path.replace(b"/", b"")) is None and b"//" not in path and sys.platform != "win32":
        names = path.split(b"/")
        return None if not {b"", b".", b".."}.intersection(names) else "it is not a path"
    return next((problem for name in path.split(b"/") if (problem := name_problem(name)) is not None), None)


class TreeMatch(NamedTuple):
    path: bytes
    mode: int
    id: str


class TreeSearch:
    """Finds entries for which `wanted` (name, mode, object id) is true, and second entries of a name.
    What is below such an entry is not searched. Each tree is read once, also for several roots."""

    def __init__(self, read: ReadTree, wanted: Callable[[bytes, int, str], bool]) -> None:
        self._read = read
        self._wanted = wanted
        self._matches: dict[str, list[TreeMatch]] = {}
        """Tree -> matches among its own entries."""
        self._children: dict[str, dict[bytes, str]] = {}
        """Tree -> its subtrees by name."""
        self._parents: dict[str, set[str]] = {}

    def find(self, root: str) -> list[TreeMatch]:
        """All matches below a tree, with their paths."""
        self._explore(root)
        leading = self._trees_with_matches()
        found: list[TreeMatch] = []
        stack = [(b"", root)] if root in leading else []
        while stack:
            prefix, tree = stack.pop()
            found += [each._replace(path=prefix + each.path) for each in self._matches.get(tree, ())]
            children = self._children[tree].items()
            stack += [(prefix + name + b"/", child) for name, child in children if child in leading]
        return sorted(found)

    def _explore(self, root: str) -> None:
        stack = [root]
        while stack:
            tree = stack.pop()
            if tree in self._children:
                continue
            self._children[tree] = {}
            names: set[bytes] = set()
            for name, (mode, child) in () if tree == EMPTY_TREE else tree_entries(self._read(tree)):
                if name in names or self._wanted(name, mode, child):
                    self._matches.setdefault(tree, []).append(TreeMatch(name, mode, child))
                elif mode == DIRECTORY:
                    self._children[tree][name] = child
                    self._parents.setdefault(child, set()).add(tree)
                    stack.append(child)
                names.add(name)

    def _trees_with_matches(self) -> set[str]:
        """Trees with a match in them or anywhere below."""
        found, stack = set(self._matches), list(self._matches)
        while stack:
            for parent in self._parents.get(stack.pop(), ()):
                if parent not in found:
                    found.add(parent)
                    stack.append(parent)
        return found
