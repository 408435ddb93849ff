"""What checkpoints cost: who holds which objects, and what dropping someone would free.

A handful of git processes whatever the number of projects: what the tips are, one per level of
directories to read trees, and the size on disk of every object that is held. (`rev-list
--disk-usage` gives one number per process: what each of 200 projects alone uses would take 200
processes that each walk the whole store.) Objects that many checkpoints share are visited once
per project; those that nobody holds, such as the history that came with a checkout's packs,
not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, DeadlineExceeded
from shadowsnap.git.objects import count_objects, stored_bytes
from shadowsnap.git.reading import Graph, kinds_of, reachable
from shadowsnap.git.repository import Git
from shadowsnap.store.checkpoints import ATTACHMENTS, CHECKPOINTS, CachedTrees
from shadowsnap.store.layout import Store
from shadowsnap.upkeep.session import Look, fingerprint, read_memory, upkeep_session, write_memory


class Holder(NamedTuple):
    """Something that keeps objects in the store, such as a checkpoint."""

    name: str
    tip: str
    """The object that leads to all of them."""


@dataclass(frozen=True)
class Usage:
    total: int = 0
    """Bytes of all object files, whether anyone holds what is in them or not."""
    live: int = 0
    """Bytes of the objects that are held."""
    shares: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Bytes by holders: in each group that has the objects, the one that goes last."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    damaged: frozenset[str] = frozenset()
    """Holders whose objects are not all there."""
    objects: int = 0
    """How many objects are held."""

    def alone(self, group: str) -> int:
        """What would be freed if a group went and nothing else did."""
        return sum(
            size for names, size in self.shares.items() if len(names) == 1 and self.group_of[names[0]] == group
        )

    def all_alone(self) -> dict[str, int]:
        found = dict.fromkeys(self.group_of.values(), 0)
        for names, size in self.shares.items():
            if len(names) == 1:
                found[self.group_of[names[0]]] += size
        return found


def measure(git: Git, groups: Mapping[str, Sequence[Holder]]) -> Usage:
    """Account for the whole store. The holders of a group are given in the order in which they
    stay: an object is charged to the first that has it, the last to let go of it."""
    holders: dict[str, tuple[str, ...]] = {}
    damaged: set[str] = set()
    kinds = kinds_of(git, (holder.tip for group in groups.values() for holder in group))
    with Graph(git) as graph:
        graph.prefetch(kinds)
        for group in groups.values():
            seen: set[str] = set()
            for holder in group:
                if not _collect(graph, holder, kinds.get(holder.tip), seen, holders):
                    damaged.add(holder.name)
    shares: dict[tuple[str, ...], int] = {}
    objects = 0
    for name, size in disk_sizes(git, holders):
        shares[holders[name]] = shares.get(holders[name], 0) + size
        objects += size > 0  # git knows the empty tree even if it is not stored
    group_of = {holder.name: group for group, members in groups.items() for holder in members}
    live = sum(shares.values())
    return Usage(stored_bytes(git.git_dir), live, shares, group_of, frozenset(damaged), objects)


def _collect(
    graph: Graph, holder: Holder, kind: bytes | None, seen: set[str], holders: dict[str, tuple[str, ...]]
) -> bool:
    """Charge everything a holder is the first of its group to have; False if something is
    missing."""
    if kind is None:
        return False
    found: list[str] = []
    whole = True
    try:
        for name in reachable(graph, holder.tip, kind, seen):
            found.append(name)
    except DamagedObject:
        whole = False
    for name in found:
        holders[name] = (*holders.get(name, ()), holder.name)
    seen.update(found)
    return whole


def disk_sizes(git: Git, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """What each of these objects takes in the store; those that are missing are left out."""
    asked = "".join(f"{name}\n" for name in names).encode()
    if asked:
        rows = git.run("cat-file", "--batch-check=%(objectname) %(objectsize:disk)", stdin=asked).splitlines()
        yield from ((row[:40].decode(), int(row[41:])) for row in rows if not row.endswith(b" missing"))


# --- dropping --------------------------------------------------------------------------------


class Dropping:
    """Follows what is freed while holders go one after the other, in each group the last first."""

    def __init__(self, usage: Usage, droppable: Iterable[str]) -> None:
        self._group_of = usage.group_of
        self._waiting: list[tuple[set[str], int]] = []
        self._held_by: dict[str, list[int]] = {}
        may_go = set(droppable)
        self.reclaimable: dict[str, float] = dict.fromkeys((usage.group_of[name] for name in may_go), 0.0)
        """What each group holds and could let go of; what several hold counts in parts."""
        for names, size in usage.shares.items():
            if may_go.issuperset(names):
                for name in names:
                    self._held_by.setdefault(name, []).append(len(self._waiting))
                self._waiting.append((set(names), size))
                self._charge(names, size, 1)

    def drop(self, name: str) -> int:
        """Bytes that are freed by dropping one more holder."""
        freed = 0
        for number in self._held_by.get(name, ()):
            names, size = self._waiting[number]
            self._charge(names, size, -1)
            names.discard(name)
            if names:
                self._charge(names, size, 1)
            else:
                freed += size
        return freed

    def _charge(self, names: Iterable[str], size: int, sign: int) -> None:
        names = list(names)
        for name in names:
            self.reclaimable[self._group_of[name]] += sign * size / len(names)


_ARCHIVES = ("legacy-", "corrupt-")


def look_at(store: Store, refs: Mapping[str, str], deadline: Deadline) -> Look | None:
    """What everything costs under these refs; None if that cannot be found out in time."""
    known = read_memory(store).look
    if known is not None and known.refs == fingerprint(refs):
        return known
    try:
        look = _measure(store, refs, deadline)
    except DeadlineExceeded:
        return None
    with upkeep_session(store, deadline) as session:
        if session is not None:  # otherwise whoever is at it knows better
            write_memory(store, replace(read_memory(store), look=look))
    return look


def as_look(usage: Usage, live: int, refs: Mapping[str, str], on_disk: int) -> Look:
    """What is to be remembered of a measurement."""
    alone = usage.all_alone()
    attachments = alone.pop(ATTACHMENTS, 0)
    return Look(fingerprint(refs), on_disk, usage.total, live, attachments, alone)


def archived_bytes(store: Store) -> int:
    """Bytes in archives of older layouts and of damaged things. They are walked once: nobody
    changes them."""
    paths = [path for path in store.base.iterdir() if path.name.startswith(_ARCHIVES)]
    known = read_memory(store).archives
    if all(_version(path) in known for path in paths):
        return sum(known[_version(path)] for path in paths)
    found = {_version(path): _size_of(path) for path in paths}
    with upkeep_session(store, Deadline(1)) as session:
        if session is not None:
            write_memory(store, replace(read_memory(store), archives=found))
    return sum(found.values())


def _measure(store: Store, refs: Mapping[str, str], deadline: Deadline) -> Look:
    groups: dict[str, list[Holder]] = {ATTACHMENTS: []}
    for project, tree in CachedTrees(store).read().items():
        groups.setdefault(project, []).append(Holder(f"cache of {project}", tree))
    for ref, name in refs.items():
        top, _, project = ref.rpartition("/")[0].rpartition("/")
        if top == CHECKPOINTS:
            groups.setdefault(project, []).append(Holder(ref, name))
        elif top == ATTACHMENTS:
            groups[ATTACHMENTS].append(Holder(ref, name))
    git = store.git(deadline)
    usage = measure(git, groups)
    return as_look(usage, usage.live, refs, count_objects(git).bytes)


def _version(path: Path) -> str:
    return f"{path.name} {path.lstat().st_mtime_ns}"


def _size_of(path: Path) -> int:
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    return sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names
    )
