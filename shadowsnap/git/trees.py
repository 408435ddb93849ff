"""Tree objects: parsing, writing, changing a few paths, comparing, and searching.

A change rewrites only the directories on the way to it, so its cost does not depend on the size
of the tree. Nothing recurses: directories can be nested deeper than Python's stack.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from shadowsnap.errors import DamagedObject, MalformedObject, TreeTooLarge, UnsafeTree
from shadowsnap.git.objects import EMPTY_TREE

DIRECTORY, LINK, REGULAR, EXECUTABLE, GITLINK = 0o040000, 0o120000, 0o100644, 0o100755, 0o160000
_MODES = frozenset((DIRECTORY, LINK, REGULAR, EXECUTABLE))
_ROW_STARTS = {mode: b"%o " % mode for mode in _MODES}
_USUAL_MODES = {b"%o" % mode: mode for mode in _MODES}
"""As git writes them in a tree."""
MOST_PATHS = 4_000_000
"""A checkpoint with more paths is not read: a few small trees that name each other stand for billions."""
MOST_PATH_BYTES = 1 << 29
"""The same for the length of all these paths together."""
MANY_PATHS = MOST_PATHS // 4
"""Fewer paths are never too long together, unless each has hundreds of characters."""

MANY_DIRECTORIES = 5_000
"""Up to this number of directories, a comparison of two trees reads only those that differ."""
_MANY_ENTRIES = 1_000_000

Leaf = tuple[int, str]
"""Git mode and object id."""
Changed = tuple[bytes, Leaf | None, Leaf | None]
"""A path with its old and its new entry."""
_Node = dict[bytes, "_Node | Leaf | None"]
ReadTree = Callable[[str], bytes]
WriteTree = Callable[[bytes], str]
ParseTree = Callable[[bytes], dict[bytes, Leaf]]


def parse_tree(data: bytes) -> dict[bytes, Leaf]:
    """The entries of a tree. Raises `UnsafeTree` for an entry that a checkpoint must not contain, and for two
    entries of the same name: one could be a link, and the other a directory written through it. (Names that differ
    in case only are two names where most people work: a restore asks the file system, see `TreeReader.alike`.)"""
    if (usual := _parse_usual_tree(data)) is not None:
        return usual
    entries: dict[bytes, Leaf] = {}
    for name, leaf in tree_entries(data):
        if name in entries:
            raise UnsafeTree(name=os.fsdecode(name), why="there are two of that name")
        if (why := entry_problem(name, leaf[0])) is not None:
            raise UnsafeTree(name=os.fsdecode(name), why=why)
        entries[name] = leaf
    return entries


def _parse_usual_tree(data: bytes) -> dict[bytes, Leaf] | None:
    """The entries of a tree, in a third of the time, if a few steps for all of them together show that there is
    nothing wrong with any. None if that has to be looked at one by one."""
    rows = _USUAL_ENTRY.findall(data)
    names = [name for _, name, _ in rows]
    # The expression passes over what it does not match. Nothing was passed over if the rows are all there is.
    if sum(map(len, chain.from_iterable(rows))) + 2 * len(rows) != len(data):
        return None
    if sys.platform == "win32" or _SUSPICIOUS_LINE.search(b"\n".join(names)):
        return None
    entries = {name: (_USUAL_MODES[mode], object_id.hex()) for mode, name, object_id in rows}
    return entries if len(entries) == len(rows) else None


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


def is_directory(leaf: Leaf | None) -> bool:
    return leaf is not None and leaf[0] == DIRECTORY


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
    top = _Directory(None if base == EMPTY_TREE else base, _nested(changes), read, parse)
    directories = [top]
    for directory in directories:  # grows while it is walked; parents come before children
        directories += directory.change_entries(read, parse)
    for directory in reversed(directories):
        directory.write(write)
    return top.new or write(b"")


def build_tree(files: Iterable[tuple[bytes, tuple[int, bytes]]], write: WriteTree) -> str:
    """Write the trees of these files, each with its path, mode and binary id, and return the id of the uppermost.
    Does the same as `patch_tree` with an empty base, in a third of the time."""
    rows: dict[bytes, dict[bytes, tuple[bytes, bytes]]] = {b"": {}}
    """Directory -> name -> what the entries are sorted by, and the entry."""
    for path, (mode, object_id) in files:
        folder, _, name = path.rpartition(b"/")
        row = name, b"%s%s\0%s" % (_ROW_STARTS[mode], name, object_id)
        if folder in rows:
            rows[folder][name] = row
        else:
            rows[folder] = {name: row}
    for folder in list(rows):
        while (folder := folder.rpartition(b"/")[0]) not in rows:
            rows[folder] = {}
    # A directory comes after those inside it. Where a file became a directory meanwhile, the directory stays.
    for folder in sorted(rows.keys() - {b""}, reverse=True):
        above, _, name = folder.rpartition(b"/")
        tree = write(b"".join([row for _, row in sorted(rows.pop(folder).values())]))
        rows[above][name] = name + b"/", b"%s%s\0%s" % (_ROW_STARTS[DIRECTORY], name, bytes.fromhex(tree))
    top = sorted(rows[b""].values())
    return write(b"".join([row for _, row in top])) if top else EMPTY_TREE


def _nested(changes: Mapping[bytes, Leaf | None]) -> _Node:
    """The changes as nested directories. A path that is removed and also has changes below it (a file that
    became a directory) is marked by an empty name."""
    root: _Node = {}
    removed = ((path, leaf) for path, leaf in changes.items() if leaf is None)
    for path, leaf in chain(removed, ((path, leaf) for path, leaf in changes.items() if leaf is not None)):
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


class _Directory:
    """A directory that is being changed."""

    def __init__(
        self,
        base: str | None,
        changes: _Node,
        read: ReadTree,
        parse: ParseTree,
        parent: _Directory | None = None,
        name: bytes = b"",
    ) -> None:
        self.base = base
        self.changes = changes
        self.before = b"" if base is None else read(base)
        self.entries = parse(self.before)
        self.parent = parent
        self.name = name
        self.new: str | None = None
        """Its new id, after `write`; None if it is empty."""

    def change_entries(self, read: ReadTree, parse: ParseTree) -> list[_Directory]:
        """Set and remove entries of this directory itself. Returns the subdirectories that have changes."""
        below = []
        for name, change in self.changes.items():
            if isinstance(change, dict):
                if b"" in change:
                    self.entries.pop(name, None)
                old = self.entries.get(name)
                base = old[1] if old is not None and old[0] == DIRECTORY else None
                below.append(_Directory(base, change, read, parse, self, name))
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


def tree_changes(old: str, new: TreeReader, limit: int) -> list[Changed] | None:
    """Every file that differs between two trees, sorted by path. None if more than `limit` directories differ.
    Later the reader of the new tree does not read again what it read here."""
    found: list[Changed] = []
    differing: list[tuple[bytes, str, str]] = [(b"", old, new.root)]
    for prefix, old_side, new_side in differing:  # grows while it is walked
        if len(differing) > limit:
            return None
        was, now = new.parse(old_side), new.entries(new_side)
        for name in {name for name, _ in was.items() ^ now.items()}:
            before, after = was.get(name), now.get(name)
            folders = [leaf[1] if leaf and leaf[0] == DIRECTORY else None for leaf in (before, after)]
            if folders != [None, None]:
                differing.append((prefix + name + b"/", folders[0] or EMPTY_TREE, folders[1] or EMPTY_TREE))
            files = [None if folder else leaf for leaf, folder in zip((before, after), folders, strict=True)]
            if files != [None, None]:
                found.append((prefix + name, files[0], files[1]))
    return sorted(found, key=lambda row: row[0])


class TreeReader:
    """Looks up paths in a tree. Each directory is read once."""

    def __init__(self, root: str, read: ReadTree) -> None:
        self.root = root
        self._read = read
        self._parsed: dict[str, dict[bytes, Leaf]] = {}
        self._counted: dict[str, _Count] = {}

    def find(self, path: bytes) -> Leaf | None:
        """The entry at this path; the empty path is the root itself."""
        found: Leaf | None = (DIRECTORY, self.root)
        for name in path.split(b"/") if path else ():
            if found is None or found[0] != DIRECTORY:
                return None
            found = self.entries(found[1]).get(name)
        return found

    def alike(self, folder: bytes, names: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The entries with these names in a directory, each with every other one there that some file system takes
        for the same."""
        found = self.find(folder)
        entries = self.entries(found[1]) if found is not None and found[0] == DIRECTORY else {}
        if len(set(map(bytes.lower, entries))) == len(entries) and all(map(bytes.isascii, entries)):
            return  # as almost everywhere
        same: dict[str, list[bytes]] = {}
        for each in entries:
            same.setdefault(folded(each), []).append(each)
        for name in names:
            if name in entries:
                yield from ((name, each) for each in same[folded(name)] if each != name)

    def files_below(self, path: bytes) -> Iterator[bytes]:
        """Every file below this path; none if it is not a directory. Raises `TreeTooLarge` before the first one
        if there are too many."""
        found = self.find(path)
        if found is not None and found[0] == DIRECTORY:
            self.check(found[1])
        waiting = [(path + b"/" if path else b"", found[1])] if found and found[0] == DIRECTORY else []
        while waiting:
            prefix, tree = waiting.pop()
            for name, (mode, each) in self.entries(tree).items():
                if mode == DIRECTORY:
                    waiting.append((prefix + name + b"/", each))
                else:
                    yield prefix + name

    def check(self, tree: str | None = None) -> None:
        """Read everything below a tree, the root if none is given. Raises `UnsafeTree` if a checkpoint must not
        contain it, and `TreeTooLarge` if there are too many paths."""
        _count_paths(self.root if tree is None else tree, self._names, self._counted)

    def check_difference(self, old: str, new: str) -> None:
        """Like `check`, for what differs between two trees. Unchanged directories are not read, unless so much
        differs, or the same in so many places, that both trees are checked as a whole."""
        seen, looked_at, is_repeated = {(old, new)}, 0, False
        waiting: list[tuple[str, str]] = [(old, new)]
        while waiting:
            was, now = (self.entries(tree) for tree in waiting.pop())
            looked_at += len(was) + len(now)
            if is_repeated or len(seen) > MANY_DIRECTORIES or looked_at > _MANY_ENTRIES:
                self.check(old)
                self.check(new)
                return
            for name in was.keys() | now.keys():
                sides = [side.get(name) for side in (was, now)]
                if sides[0] != sides[1]:
                    before, after = (
                        side[1] if side is not None and side[0] == DIRECTORY else EMPTY_TREE for side in sides
                    )
                    if before != after:
                        is_repeated = is_repeated or (before, after) in seen
                        seen.add((before, after))
                        waiting.append((before, after))

    def _names(self, tree: str) -> Iterator[tuple[bytes, str | None]]:
        for name, (mode, child) in self.entries(tree).items():
            yield name, child if mode == DIRECTORY else None

    def entries(self, tree: str) -> dict[bytes, Leaf]:
        """The entries of a directory, given by its id."""
        if tree not in self._parsed:
            self._parsed[tree] = self.parse(tree)
        return self._parsed[tree]

    def parse(self, tree: str) -> dict[bytes, Leaf]:
        """The same, without keeping them for later."""
        return {} if tree == EMPTY_TREE else parse_tree(self._read(tree))


class _Count(NamedTuple):
    paths: int
    """Files and empty directories."""
    length: int
    """Of all these paths together."""


def _count_paths(
    root: str, names: Callable[[str], Iterable[tuple[bytes, str | None]]], counted: dict[str, _Count]
) -> None:
    """Count the paths below a tree, each tree once however often it occurs. `names` are the entries of a tree,
    each with its subtree if it is a directory. Raises `TreeTooLarge`."""
    stack = [root]
    while stack:
        tree = stack[-1]
        if tree in counted:
            stack.pop()
            continue
        below = [(len(name), child) for name, child in names(tree)]
        if unknown := {child for _, child in below if child is not None and child not in counted}:
            stack += unknown
            continue
        paths = length = 0
        for size, child in below:
            inside = counted[child] if child is not None else _Count(1, 0)
            paths += max(inside.paths, 1)
            length += inside.length + (size + 1) * max(inside.paths, 1)
        check_size(paths, length)
        counted[tree] = _Count(paths, length)


def check_size(paths: int, length: int) -> None:
    """Raise `TreeTooLarge` if a checkpoint must not contain so many paths, of this length together."""
    if paths > MOST_PATHS or length > MOST_PATH_BYTES:
        raise TreeTooLarge(most=MOST_PATHS, length=MOST_PATH_BYTES >> 20)


# --- what a checkpoint may contain -----------------------------------------------------------------

# Code points that file systems ignore when they compare names: Unicode's "default ignorable" ones. HFS+, and ext4
# and f2fs in directories that ignore case.
_IGNORABLE = {
    code: None
    for first, last in (
        (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5),
        (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
        (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
    )
    for code in range(first, last + 1)
}  # fmt: skip
# `git~1` is a short name that Windows gives to `.git`.
_DOT_GIT = re.compile(r"\.git|git~[0-9]+")
_SUSPICIOUS = re.compile(rb"(?i)git|[\\\0/\x80-\xff]|\A\.{1,2}\Z|\A\Z")
_SUSPICIOUS_LINE = re.compile(rb"(?im)git|[\\\0/\x80-\xff]|^\.{0,2}$")
"""The same for many names, one on each line. In a name of several lines it finds the same, or more."""
# No name that is as long as this is usual. Without a limit, a tree without any NUL would be searched for one again
# and again.
_USUAL_ENTRY = re.compile(rb"(?s)(100644|100755|120000|40000) ([^\0]{1,255}+)\0(.{20})")
_USUAL = bytes({*range(1, 0x80)} - {*b"\\"})
_ON_WINDOWS = re.compile(rb'[\\:*?"<>|\x00-\x1f]|[. ]\Z')
_LONGEST_NAME = 1024
"""More than any file system takes. To fold a name can take time by the square of its length."""
LONGEST_TARGET = 4095
"""What a link may lead to, in bytes, on the system that takes most."""


def entry_problem(name: bytes, mode: int) -> str | None:
    """Why a checkpoint must not contain an entry of this name and mode; None if it may. (For what a link leads to
    see `link_problem`.)"""
    if mode not in _MODES:
        return f"mode {mode:o} is neither a file nor a link nor a directory"
    return name_problem(name)


def name_problem(name: bytes) -> str | None:
    """Why a checkpoint must not contain an entry of this name; None if it may."""
    if len(name) > _LONGEST_NAME:
        return "it is longer than any file system takes"
    if sys.platform == "win32" and _ON_WINDOWS.search(name):
        return "Windows takes it for something else"
    if _SUSPICIOUS.search(name) is None:
        return None
    if not name or b"/" in name or b"\0" in name:
        return "it is not a file name"
    for part in re.split(r"[\\/]", folded(name)):  # a separator on Windows; some write it as another character
        if part in (".", ".."):
            return "it leads out of its directory"
        # Windows ignores what follows a colon (a stream of the file), and dots and spaces at the end.
        if _DOT_GIT.fullmatch(part.partition(":")[0].rstrip(". ")):
            return "it is taken for a repository"
    return None


def folded(name: bytes) -> str:
    """A name as file systems compare it that fold the most: equal for names that one of them takes for the same.
    ZFS can compare compatible characters (NFKC), ext4 and f2fs drop what is ignorable."""
    text = name.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text.lower()
    for _ in range(2):  # what is ignorable may appear, or disappear, by folding
        text = unicodedata.normalize("NFKC", text.translate(_IGNORABLE)).casefold()
    return text.translate(_IGNORABLE)


def link_problem(target: bytes) -> str | None:
    """Why a checkpoint must not contain a link that leads there; None if it may."""
    if not target or b"\0" in target:
        return "no link can lead there"
    return "no link can be so long" if len(target) > LONGEST_TARGET else None


def path_problem(path: bytes) -> str | None:
    """Why a checkpoint must not contain this path; None if it may."""
    if are_usual(path):
        return None
    return next((problem for name in path.split(b"/") if (problem := name_problem(name)) is not None), None)


def are_usual(*paths: bytes) -> bool:
    """Whether no name in any of these paths has to be looked at more closely. Asked about all at once, as they
    usually are."""
    names = b"/%s/" % b"/".join(paths)
    return (
        not names.translate(None, _USUAL)
        and b"//" not in names
        and b"/." not in names
        and b"git" not in names.lower()
        and (len(names) <= _LONGEST_NAME or max(map(len, paths)) <= _LONGEST_NAME)
        and sys.platform != "win32"
    )


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
        self._others: dict[str, list[bytes]] = {}
        """Tree -> the names of everything else in it."""
        self._parents: dict[str, set[str]] = {}
        self._unreadable: dict[str, Exception] = {}
        self._counted: dict[str, _Count] = {}

    def find(self, root: str) -> list[TreeMatch]:
        """All matches below a tree, with their paths. Raises `TreeTooLarge` if there are too many paths."""
        self.explore(root)
        _count_paths(root, self._names, self._counted)
        leading = self._leading_to(self._matches)
        found: list[TreeMatch] = []
        stack = [(b"", root)] if root in leading else []
        while stack:
            prefix, tree = stack.pop()
            found += [each._replace(path=prefix + each.path) for each in self._matches.get(tree, ())]
            children = self._children[tree].items()
            stack += [(prefix + name + b"/", child) for name, child in children if child in leading]
        return sorted(found)

    def first(self, root: str) -> TreeMatch | None:
        """One match below a tree, with its path, however many there are."""
        self.explore(root)
        leading = self._leading_to(self._matches)
        prefix, tree = b"", root
        while tree in leading:
            if tree in self._matches:
                match = self._matches[tree][0]
                return match._replace(path=prefix + match.path)
            name, tree = next((name, child) for name, child in self._children[tree].items() if child in leading)
            prefix += name + b"/"
        return None

    def explore(self, root: str) -> None:
        """Read everything below a tree, each tree once. Raises what reading one of them raised."""
        stack = [root]
        while stack:
            tree = stack.pop()
            if tree not in self._children:
                try:
                    stack += self._explore_one(tree)
                except (DamagedObject, MalformedObject) as problem:
                    self._unreadable[tree] = problem
        broken = self._leading_to(self._unreadable) if self._unreadable else set()
        if root in broken:
            tree = root
            while tree not in self._unreadable:
                tree = next(child for child in self._children[tree].values() if child in broken)
            raise self._unreadable[tree]

    def _explore_one(self, tree: str) -> list[str]:
        """Returns the subtrees."""
        children = self._children[tree] = {}
        others: list[bytes] = []
        matches: list[TreeMatch] = []
        names: set[bytes] = set()
        for name, (mode, child) in () if tree == EMPTY_TREE else tree_entries(self._read(tree)):
            if name in names or self._wanted(name, mode, child):
                matches.append(TreeMatch(name, mode, child))
            elif mode == DIRECTORY:
                children[name] = child
                self._parents.setdefault(child, set()).add(tree)
            else:
                others.append(name)
            names.add(name)
        if matches:
            self._matches[tree] = matches
        self._others[tree] = [*others, *(each.path for each in matches)]
        return list(children.values())

    def _names(self, tree: str) -> Iterator[tuple[bytes, str | None]]:
        yield from self._children[tree].items()
        for name in self._others.get(tree, ()):
            yield name, None

    def _leading_to(self, trees: Iterable[str]) -> set[str]:
        """The trees, and those that lead to one of them."""
        found, stack = set(trees), list(trees)
        while stack:
            for parent in self._parents.get(stack.pop(), ()):
                if parent not in found:
                    found.add(parent)
                    stack.append(parent)
        return found
