"""Reclaiming space: removing debris, merging many small files into few, and repacking without what is not needed;
and the sizes of checkpoints.

One process at a time does this (`begin_upkeep`). Merging drops nothing and runs while snapshots are taken. A
repack never makes a snapshot wait for more than an instant, and never removes an object that a snapshot reuses:

1. The existing packs are listed: only these may be removed.
2. Everything that refs, stat caches and journals reach is packed into a new pack. This is slow; snapshots go on
   meanwhile.
3. For an instant the store is locked exclusively. Whatever refs, caches and journals reach *now* must be in the
   new pack, or in a pack or loose file that stays. An object that is in neither (a snapshot found it in an old
   pack and did not write it again) is packed too. Then the packs of step 1 are removed, and nothing else.

A pack that was written again under the same name since step 1 is another file and stays.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    CheckpointsLost,
    DamagedObject,
    DeadlineExceeded,
    DiskTooFull,
    LockTimeout,
    ShadowsnapError,
)
from shadowsnap.files import read_json, remove_tree, scratch_folder, write_json
from shadowsnap.git.maintenance import (
    Pack,
    PackIndex,
    index_pack,
    list_packs,
    lone_packs,
    loose_file,
    pack_loose,
    pack_objects,
    pack_reachable,
    remove_pack,
    roll_up_packs,
)
from shadowsnap.git.objects import EMPTY_TREE, count_objects, stored_bytes
from shadowsnap.git.reading import Graph, NameSet, kinds_of, reachable
from shadowsnap.git.refs import count_loose_refs, pack_refs
from shadowsnap.git.repository import Git
from shadowsnap.results import Reclaimed
from shadowsnap.store.checkpoints import (
    ATTACHMENTS,
    CHECKPOINTS,
    all_refs,
    newest_name,
    take_inventory,
)
from shadowsnap.store.layout import Store, lost_refs
from shadowsnap.store.locks import alone, if_free, locked
from shadowsnap.store.projects import Project, all_records, locked_project, may_lack_checkpoints, named_in_journals
from shadowsnap.store.stat_cache import CachedTrees, forget_contents

MANY_LOOSE = 1500
MANY_PACKS = 12
MANY_REFS = 400
_BATCH = 20_000
# More objects than this to be packed in step 3 would keep snapshots waiting.
_MOST_STRAYS = 2_000
_ATTEMPTS = 3
_SPARE_BYTES = 64 << 20
# A project that is busy for longer keeps its cache: its next capture replaces it.
_CACHE_LOCK_SECONDS = 2.0
_DEBRIS_LOCK_SECONDS = 5.0
_TRASH = "trash-"


# --- one process at a time ---------------------------------------------------------------------


@dataclass(frozen=True)
class Upkeep:
    """Upkeep of a store that is under way, with its lock and its deadline."""

    store: Store
    deadline: Deadline
    lock: int
    """The descriptor of the upkeep lock. Git inherits it: if this process is killed, the next upkeep waits for git
    to end."""

    @property
    def git(self) -> Git:
        return self.store.git(self.deadline).bound(inherited=(self.lock,))

    @contextmanager
    def writing_packs(self, needed_bytes: int, doing: str) -> Iterator[Git]:
        """Git that writes new packs into a scratch directory, if the disk has room for them."""
        check_disk_space(self.store, needed_bytes, doing)
        with scratch_folder(self.store.git_dir, "upkeep") as scratch:
            yield self.git.bound(scratch_objects=scratch)


def upkeep_lock(store: Store) -> Path:
    return store.git_dir / "locks" / "upkeep.lock"


@contextmanager
def begin_upkeep(
    store: Store, deadline: Deadline, on_wait: Callable[[], None] | None = None
) -> Iterator[Upkeep | None]:
    """Take the upkeep lock; None if another process has it. With `on_wait`, which is called once, wait for that
    process until the deadline."""
    with ExitStack() as stack:
        lock = stack.enter_context(if_free(upkeep_lock(store), "upkeep"))
        if lock is None and on_wait is not None:
            on_wait()
            try:
                lock = stack.enter_context(locked(upkeep_lock(store), "upkeep", deadline))
            except LockTimeout:
                pass
        yield None if lock is None else Upkeep(store, deadline, lock)


def check_disk_space(store: Store, needed_bytes: int, doing: str) -> None:
    free = shutil.disk_usage(store.git_dir).free
    needed = needed_bytes + _SPARE_BYTES
    if free < needed:
        raise DiskTooFull(doing=doing, needed=needed >> 20, free=free >> 20)


# --- debris ------------------------------------------------------------------------------------

_PACK_DEBRIS = re.compile(r"tmp_|\.tmp-|.*\.lock$")
_OBJECT_DEBRIS = re.compile(r"tmp_obj_")
_RECORD_DEBRIS = re.compile(r"\..*\.tmp_|.*\.\d+\.tmp$|.*\.(lock|staging|seed)$")
_STORE_DEBRIS = re.compile(r"scratch-|.*\.lock$")


def find_debris(store: Store) -> Iterator[Path]:
    """Temporary files, scratch directories and lock files. Some may belong to a running process."""
    git_dir, objects = store.git_dir, store.git_dir / "objects"
    yield from _matching(git_dir, _STORE_DEBRIS)
    for folder in ("indexes", "projects", "journal", "purged"):
        yield from _matching(git_dir / folder, _RECORD_DEBRIS)
    yield from _matching(store.base / "log", _RECORD_DEBRIS)
    for name in _listed_names(objects):
        if len(name) == 2:
            yield from _matching(objects / name, _OBJECT_DEBRIS)
    packs = set(_listed_names(objects / "pack"))
    for name in packs:
        stem, dot, _ = name.partition(".")
        # An interrupted removal leaves an index without its pack.
        is_orphan = stem.startswith("pack-") and dot and f"{stem}.pack" not in packs
        if _PACK_DEBRIS.match(name) or is_orphan:
            yield objects / "pack" / name
    for folder in ("refs", "objects/info"):
        for top, _, names in os.walk(git_dir / folder):
            yield from (Path(top, name) for name in names if name.endswith(".lock"))


def _matching(folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    return (folder / name for name in _listed_names(folder) if pattern.match(name))


def _listed_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def clear_debris(store: Store, deadline: Deadline) -> int:
    """Remove what dead processes left; the number of files and directories. A pack that they left without an index
    gets one. The caller holds the upkeep lock.

    While the store is locked exclusively, no other process owns any debris. If it cannot be locked soon, the
    debris is left to the next run."""
    found, unindexed = list(find_debris(store)), lone_packs(store.git_dir / "objects")
    cleared = 0
    if found or unindexed:
        left = deadline.remaining()
        patience = Deadline(_DEBRIS_LOCK_SECONDS if left is None else max(0.001, min(left, _DEBRIS_LOCK_SECONDS)))
        try:
            with alone(store.store_lock(), "clearing up", patience):
                cleared = sum(_remove_debris(store, path) for path in found)
                for pack in unindexed:
                    index_pack(store.git(patience), pack)  # one that is not sound is left to the doctor
        except DeadlineExceeded:
            pass
    for folder in store.git_dir.glob(f"{_TRASH}*"):
        remove_tree(folder)
    return cleared


def _remove_debris(store: Store, path: Path) -> bool:
    try:
        if path.is_dir():
            # Removing it is slow, and snapshots wait: rename it now, remove it later.
            os.replace(path, store.git_dir / f"{_TRASH}{os.getpid()}-{path.name}")
        else:
            path.unlink()
    except OSError:
        return False  # it is gone already, or in use (on Windows), so not debris
    return True


# --- merging -----------------------------------------------------------------------------------


def consolidate(upkeep: Upkeep) -> None:
    """Merge loose objects, packs and refs where there are many of them."""
    totals = count_objects(upkeep.git)
    if totals.loose >= MANY_LOOSE:
        _pack_all_loose(upkeep, totals.loose_bytes, deltas=True)
    if len(list_packs(upkeep.store.git_dir)) > MANY_PACKS:
        check_disk_space(upkeep.store, totals.pack_bytes, "merging packs")
        roll_up_packs(upkeep.git)
    _pack_many_refs(upkeep)


def _pack_all_loose(upkeep: Upkeep, size: int, *, deltas: bool) -> None:
    with upkeep.writing_packs(size, "packing loose objects") as git:
        pack_loose(git, _BATCH, deltas=deltas)


def _pack_many_refs(upkeep: Upkeep) -> None:
    if count_loose_refs(upkeep.store.git_dir, MANY_REFS) >= MANY_REFS:
        pack_refs(upkeep.git)


# --- repacking ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repacked:
    pack: str | None
    """The pack that holds everything that was needed when it was written."""
    complete: bool
    """Whether the old packs are gone; if not, too much changed meanwhile."""


def repack(upkeep: Upkeep, live_bytes: int, *, deltas: bool = True) -> Repacked:
    """Remove every unreachable object."""
    store, git = upkeep.store, upkeep.git
    _pack_many_refs(upkeep)  # they are listed twice, the second time while snapshots wait
    # Afterwards only packs have to be removed. (Git looks for deltas within a pack only once, so it must do so
    # here.)
    _pack_all_loose(upkeep, count_objects(git).loose_bytes, deltas=deltas)
    old, tips = list_packs(store.git_dir), Tips(store)
    needed = tips.read(git)
    check_refs_are_there(store, tips.refs)
    with upkeep.writing_packs(live_bytes, "repacking") as writing:
        new = pack_reachable(writing, sorted(needed), deltas=deltas)
        with alone(store.store_lock(), "removing old packs", upkeep.deadline):
            staying = _StayingObjects(store.git_dir, new, old)
            strays = _find_strays(git, tips.read(git, needed) - needed, staying)
            check_refs_are_there(store, tips.refs)
            if len(strays) > _MOST_STRAYS:
                return Repacked(new, complete=False)
            saved = pack_objects(writing, strays)
            for project, tree in tips.caches.items():
                if tree not in staying and tree not in strays and tree != EMPTY_TREE:
                    # A snapshot must not use a cache whose tree is missing.
                    forget_contents(store, Project(project, Path()))
            _remove_packs(store, old, {new, saved})
    return Repacked(new, complete=True)


class Tips:
    """The objects whose reachable objects must stay. The second reading is quick."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._caches = CachedTrees(store)
        self.refs: dict[str, str] = {}
        self.caches: dict[str, str] = {}

    def read(self, git: Git, known: NameSet = frozenset()) -> set[str]:
        """The tips. Those of refs must exist; those of caches and journals are left out if they are gone. Git is
        not asked about tips that are `known` to exist."""
        self.caches = self._caches.read()
        self.refs = all_refs(git)
        found = set(self.refs.values())
        doubtful = {*self.caches.values(), *named_in_journals(self._store)} - found
        return found | kinds_of(git, (name for name in doubtful if name not in known)).keys()


def check_refs_are_there(store: Store, refs: Iterable[str]) -> None:
    """Raise CheckpointsLost if a project has a record but no checkpoint, and none was dropped on purpose, or if
    all refs are lost: the checkpoints can be recovered from the objects only."""
    if lost_refs(store):
        raise CheckpointsLost(workdir=store.base)
    listed = {ref.split("/")[2] for ref in refs if ref.startswith(f"{CHECKPOINTS}/")}
    for project, record in all_records(store).items():
        if project in listed or may_lack_checkpoints(store, project, record):
            continue
        # Checked again: its first checkpoint may be newer than the list of refs.
        if newest_name(store, Project(project, Path())) is None:
            raise CheckpointsLost(workdir=record.get("workdir", project))


class _StayingObjects:
    """The objects that exist after the old packs are removed."""

    def __init__(self, git_dir: Path, new: str | None, old: Mapping[str, Pack]) -> None:
        self._git_dir = git_dir
        self.new = PackIndex(git_dir, new) if new else frozenset[str]()
        """Complete: it has everything that its objects reach."""
        names = [pack.name for pack in list_packs(git_dir).values() if pack != old.get(pack.name)]
        self._others = [PackIndex(git_dir, name) for name in names if name != new]

    def __contains__(self, name: str) -> bool:
        if name in self.new or any(name in pack for pack in self._others):
            return True
        try:
            return loose_file(self._git_dir, name).stat().st_size > 0  # an empty file holds no object
        except FileNotFoundError:
            return False


def _find_strays(git: Git, late: set[str], staying: _StayingObjects) -> list[str]:
    """Objects that became needed since the new pack was begun, and are only in packs that will be removed."""
    seen: set[str] = set()
    with Graph(git) as graph:
        for name, kind in kinds_of(git, late).items():
            seen.update(reachable(graph, name, kind, _Union(staying.new, seen)))
    return sorted(name for name in seen if name not in staying)


class _Union:
    """The union of sets, without copying them."""

    def __init__(self, *sets: NameSet) -> None:
        self._sets = sets

    def __contains__(self, name: str) -> bool:
        return any(name in each for each in self._sets)


def _remove_packs(store: Store, old: Mapping[str, Pack], keep: set[str | None]) -> None:
    """Remove packs, except those that were written again meanwhile."""
    present = list_packs(store.git_dir)
    for name, pack in old.items():
        if name not in keep and present.get(name) == pack:
            remove_pack(store.git_dir, name)


# --- on request --------------------------------------------------------------------------------


def reclaim_now(store: Store, deadline: Deadline, on_wait: Callable[[], None] = lambda: None) -> Reclaimed:
    """Remove every object that no checkpoint reaches, however little that frees. Waits for upkeep of another
    process, until the deadline."""
    try:
        with begin_upkeep(store, deadline, on_wait) as upkeep:
            if upkeep is None:
                return Reclaimed(complete=False, why="another process is doing upkeep")
            before = count_objects(upkeep.git).bytes
            clear_debris(store, deadline)
            forget_unheld_caches(store, deadline)
            complete = _repack_with_retries(upkeep)
            freed = max(0, before - count_objects(upkeep.git).bytes)
    except ShadowsnapError as problem:
        return Reclaimed(complete=False, why=str(problem), error=problem)
    return Reclaimed(freed, complete, "" if complete else "too much changed meanwhile")


def _repack_with_retries(upkeep: Upkeep) -> bool:
    for _ in range(_ATTEMPTS):  # many snapshots at the same time may make the first one incomplete
        refs = all_refs(upkeep.git)
        usage = measure(upkeep.git, {"": [Holder(ref, tip) for ref, tip in refs.items()]})
        result = repack(upkeep, usage.live)
        if result.complete:
            memory = read_memory(upkeep.store)
            write_memory(upkeep.store, replace(memory, measured=None, compact_pack=result.pack or ""))
            return True
    return False


def forget_unheld_caches(store: Store, deadline: Deadline) -> None:
    """Forget stat caches whose tree no checkpoint holds any more, so that its objects can be removed. The next
    capture of such a project reads every file again."""
    caches = CachedTrees(store).read()
    if not caches:
        return
    checkpoints = take_inventory(store, deadline).checkpoints
    for name, tree in caches.items():
        if any(checkpoint.tree == tree for checkpoint in checkpoints.get(name, ())):
            continue
        project = Project(name, Path())
        try:
            with locked_project(store, project, "reclaim", Deadline(_CACHE_LOCK_SECONDS)):
                if CachedTrees(store).read().get(name) == tree:
                    forget_contents(store, project)
        except LockTimeout:
            continue


# --- sizes -----------------------------------------------------------------------------------------------
# The sizes of checkpoints, and what upkeep remembers of them between runs. Measuring takes a handful of git
# processes for any number of projects: for the types of the tips, for the trees of each level of directories, and
# for the size on disk of every object. (`rev-list --disk-usage` gives one number per process, so 200 projects
# would take 200 walks of the store.) An object is visited once per project, however many checkpoints share it.
# Unreachable objects are not visited.


class Holder(NamedTuple):
    """Something that keeps objects in the store, such as a checkpoint."""

    name: str
    tip: str
    """The object that reaches all of them."""


@dataclass(frozen=True)
class Usage:
    """The sizes of a store and of what its holders share."""

    total: int = 0
    """Bytes of all object files, needed or not."""
    live: int = 0
    """Bytes of the objects that have a holder."""
    shares: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    """Bytes by the holders that share them: of each group, the one that is dropped last."""
    group_of: Mapping[str, str] = field(default_factory=dict)
    objects: int = 0
    """How many objects have a holder."""

    def alone(self, group: str) -> int:
        """Bytes that would be freed if only this group were dropped."""
        return self.all_alone().get(group, 0)

    def all_alone(self) -> dict[str, int]:
        found = dict.fromkeys(self.group_of.values(), 0)
        for names, size in self.shares.items():
            if len(names) == 1:
                found[self.group_of[names[0]]] += size
        return found


def measure(git: Git, groups: Mapping[str, Sequence[Holder]]) -> Usage:
    """Measure the store. In each group the holder that is dropped last comes first: an object is charged to the
    first holder that has it."""
    charged: dict[str, tuple[str, ...]] = {}
    kinds = kinds_of(git, (holder.tip for group in groups.values() for holder in group))
    with Graph(git) as graph:
        graph.prefetch(kinds)
        for group in groups.values():
            seen: set[str] = set()
            for holder in group:
                found: list[str] = []
                with suppress(DamagedObject):  # of a damaged tree, only what can be read is counted
                    if holder.tip in kinds:
                        for name in reachable(graph, holder.tip, kinds[holder.tip], seen):
                            found.append(name)
                for name in found:
                    charged[name] = (*charged.get(name, ()), holder.name)
                seen.update(found)
    shares: dict[tuple[str, ...], int] = {}
    objects = 0
    for name, size in disk_sizes(git, charged):
        shares[charged[name]] = shares.get(charged[name], 0) + size
        objects += size > 0  # git knows the empty tree even if it is not stored
    group_of = {holder.name: group for group, members in groups.items() for holder in members}
    live = sum(shares.values())
    return Usage(stored_bytes(git.git_dir), live, shares, group_of, objects)


def disk_sizes(git: Git, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The bytes that each of these objects takes in the store; missing ones are left out."""
    asked = "".join(f"{name}\n" for name in names).encode()
    if asked:
        rows = git.run("cat-file", "--batch-check=%(objectname) %(objectsize:disk)", stdin=asked).splitlines()
        yield from ((row[:40].decode(), int(row[41:])) for row in rows if not row.endswith(b" missing"))


# --- memory between runs -----------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """What the last measurement found."""

    refs: str = ""
    """The state of all refs at that time (see `fingerprint`)."""
    on_disk: int = 0
    """Disk blocks of the object files, in bytes."""
    total: int = 0
    """Bytes of the object files."""
    live: int = 0
    """Bytes of the objects that have a holder."""
    attachments: int = 0
    alone: dict[str, int] = field(default_factory=dict)
    """Bytes that would be freed with each project."""

    @property
    def unreachable(self) -> int:
        return max(0, self.total - self.live)


def summarize(usage: Usage, live: int, refs: Mapping[str, str], on_disk: int) -> Measurement:
    alone = usage.all_alone()
    attachments = alone.pop(ATTACHMENTS, 0)
    return Measurement(fingerprint(refs), on_disk, usage.total, live, attachments, alone)


def fingerprint(refs: Mapping[str, str], *more: object) -> str:
    digest = hashlib.sha256(repr(more).encode())
    for ref in sorted(refs):
        digest.update(f"{ref} {refs[ref]}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Memory:
    """What upkeep remembers between runs."""

    gone_since: dict[str, float] = field(default_factory=dict)
    """When a project's directory was first found missing."""
    measured: Measurement | None = None
    unmet: str = ""
    """The state of refs and limit for which it is logged already that the size limit cannot be kept."""
    compact_pack: str = ""
    """The pack that the last full repack wrote."""
    archives: dict[str, int] = field(default_factory=dict)
    """Bytes of archived directories, which do not change."""
    too_slow: bool = False
    """The last full repack took too long: the next one looks for no new deltas."""


def memory_file(store: Store) -> Path:
    return store.git_dir / "upkeep.json"


def read_memory(store: Store) -> Memory:
    """The memory; empty if the file is absent or damaged."""
    record = read_json(memory_file(store)) or {}
    return Memory(
        gone_since=_numbers(record.get("gone_since"), float),
        measured=_measurement(record.get("measured")),
        unmet=str(record.get("unmet", "")),
        compact_pack=str(record.get("compact_pack", "")),
        archives=_numbers(record.get("archives"), int),
        too_slow=record.get("too_slow") is True,
    )


def _measurement(record: Any) -> Measurement | None:
    try:
        sizes = {name: int(record[name]) for name in ("on_disk", "total", "live", "attachments")}
        return Measurement(refs=str(record["refs"]), alone=_numbers(record["alone"], int), **sizes)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _numbers(value: Any, kind: type) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    known = ((key, number) for key, number in value.items() if isinstance(number, (int, float)))
    return {str(key): kind(number) for key, number in known if math.isfinite(number)}


def write_memory(store: Store, memory: Memory) -> None:
    with suppress(OSError):  # on a full disk it is measured again the next time
        write_json(memory_file(store), asdict(memory))
