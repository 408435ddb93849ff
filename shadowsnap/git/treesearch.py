"""Finding entries of a certain kind below trees, each directory read once however many trees it
is in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.trees import DIRECTORY, ReadTree, tree_entries


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
