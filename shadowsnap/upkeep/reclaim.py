"""Getting space back: merging many small files into few, and shedding what nobody needs.

Merging drops nothing and may run beside snapshots. Shedding is done so that a snapshot never
waits for more than an instant and never loses an object, whatever it reuses:

1. The packs that exist are listed: only these may go.
2. Everything that refs, scan caches and journals lead to is packed into a new pack. This may
   take its time; snapshots go on meanwhile.
3. For an instant the store is held alone: no snapshot is under way. Whatever refs, caches and
   journals lead to *now* must be in the new pack, or in a pack or loose file that stays. What
   is in neither (a snapshot found it in an old pack and did not write it again) is packed too.
   Then the packs of step 1 are removed, and nothing else.

A pack that was written again under the same name since step 1 is another file and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import CheckpointsLost, LockTimeout, ShadowsnapError
from shadowsnap.git.maintenance import (
    Pack,
    PackIndex,
    list_packs,
    loose_file,
    pack_loose,
    pack_objects,
    pack_reachable,
    remove_pack,
    roll_up_packs,
)
from shadowsnap.git.objects import EMPTY_TREE, count_objects
from shadowsnap.git.reading import Graph, kinds_of, reachable
from shadowsnap.git.reading import NameSet as Collection
from shadowsnap.git.refs import count_loose_refs, pack_refs
from shadowsnap.git.repository import Git
from shadowsnap.model import _Record
from shadowsnap.store.checkpoints import (
    CHECKPOINTS,
    CachedTrees,
    all_refs,
    begun_in_journals,
    newest_name,
    take_inventory,
)
from shadowsnap.store.layout import Store, lost_refs
from shadowsnap.store.locks import alone
from shadowsnap.store.projects import Project, all_records, locked_project, was_emptied
from shadowsnap.store.stat_cache import forget_contents
from shadowsnap.upkeep.check_store import clear_debris
from shadowsnap.upkeep.session import Session, check_room, read_memory, upkeep_session, write_memory
from shadowsnap.upkeep.size import Holder, measure

MANY_LOOSE = 1500
MANY_PACKS = 12
MANY_REFS = 400
_BATCH = 20_000
# More than so many objects to be saved in step 3 would keep snapshots waiting.
_MOST_STRAYS = 2_000


def consolidate(session: Session) -> None:
    """Merge loose objects, packs and refs, where there are many of them."""
    git_dir = session.store.git_dir
    totals = count_objects(session.git)
    if totals.loose >= MANY_LOOSE:
        _pack_all_loose(session, totals.loose_bytes, deltas=True)
    if len(list_packs(git_dir)) > MANY_PACKS:
        check_room(session.store, totals.pack_bytes, "merging packs")
        roll_up_packs(session.git)
    _pack_many_refs(session)


def _pack_many_refs(session: Session) -> None:
    if count_loose_refs(session.store.git_dir, MANY_REFS) >= MANY_REFS:
        pack_refs(session.git)


def _pack_all_loose(session: Session, size: int, *, deltas: bool) -> None:
    with session.writing_packs(size, "packing loose objects") as aside:
        pack_loose(aside, _BATCH, deltas=deltas)


@dataclass(frozen=True)
class Shed:
    pack: str | None
    """The pack that holds everything that is needed, as of now."""
    complete: bool
    """Whether the old packs are gone; if not, too much changed meanwhile."""


def shed(session: Session, live_bytes: int, *, deltas: bool = True) -> Shed:
    """Remove every object that nothing leads to."""
    store, git = session.store, session.git
    _pack_many_refs(session)  # they are listed twice, the second time while others wait
    # So that only packs have to go. (Git looks for deltas between objects of one pack only once,
    # so this time has to count.)
    _pack_all_loose(session, count_objects(git).loose_bytes, deltas=deltas)
    old, tips = list_packs(store.git_dir), Tips(store)
    needed = tips.read(git)
    check_refs_are_there(store, tips.refs)
    with session.writing_packs(live_bytes, "repacking") as aside:
        new = pack_reachable(aside, sorted(needed), deltas=deltas)
        with alone(store.store_lock(), "removing old packs", session.deadline):
            staying = _Staying(store.git_dir, new, old)
            strays = _find_strays(git, tips.read(git, needed) - needed, staying)
            check_refs_are_there(store, tips.refs)
            if len(strays) > _MOST_STRAYS:
                return Shed(new, complete=False)
            saved = pack_objects(aside, strays)
            _forget_baseless_caches(store, tips.caches, {*strays}, staying)
            _remove_old(store, old, {new, saved})
    return Shed(new, complete=True)


def check_refs_are_there(store: Store, refs: Iterable[str]) -> None:
    """A project that has a record but no checkpoint did not lose them by us: its objects are the
    last chance to get them back. The same goes for all of them if refs got lost as a whole."""
    if lost_refs(store):
        raise CheckpointsLost(workdir=store.base)
    held = {ref.split("/")[2] for ref in refs if ref.startswith(f"{CHECKPOINTS}/")}
    missing = {name: record for name, record in all_records(store).items() if name not in held}
    for project, record in missing.items():
        # Looked for again: its first checkpoint may have come after the refs were listed.
        if not was_emptied(record) and newest_name(store, Project(project, Path())) is None:
            raise CheckpointsLost(workdir=record.get("workdir", project))


class Tips:
    """Objects that, with all they lead to, have to stay. Reading them a second time is quick."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._caches = CachedTrees(store)
        self.refs: dict[str, str] = {}
        self.caches: dict[str, str] = {}

    def read(self, git: Git, known: Collection = frozenset()) -> set[str]:
        """Refs must lead somewhere; what caches and journals name may be gone, and is left out.
        Who is known to be there is not asked for again."""
        self.caches = self._caches.read()
        self.refs = all_refs(git)
        found = set(self.refs.values())
        doubtful = {*self.caches.values(), *begun_in_journals(self._store)} - found
        return found | kinds_of(git, (name for name in doubtful if name not in known)).keys()


class _Staying:
    """The objects that will still be there when the old packs are gone."""

    def __init__(self, git_dir: Path, new: str | None, old: Mapping[str, Pack]) -> None:
        self._git_dir = git_dir
        self.new = PackIndex(git_dir, new) if new else frozenset[str]()
        """Holds each of its objects with all that it leads to."""
        names = [pack.name for pack in list_packs(git_dir).values() if pack != old.get(pack.name)]
        self._others = [PackIndex(git_dir, name) for name in names if name != new]

    def __contains__(self, name: str) -> bool:
        return (
            name in self.new
            or any(name in pack for pack in self._others)
            or self._is_loose(name)
        )

    def _is_loose(self, name: str) -> bool:
        try:
            return loose_file(self._git_dir, name).stat().st_size > 0  # an empty file holds no object
        except FileNotFoundError:
            return False


def _find_strays(git: Git, late: set[str], staying: _Staying) -> list[str]:
    """What was asked for since the new pack was begun and is only in packs that go."""
    seen: set[str] = set()
    with Graph(git) as graph:
        for name, kind in kinds_of(git, late).items():
            seen.update(reachable(graph, name, kind, _Either(staying.new, seen)))
    return sorted(name for name in seen if name not in staying)


class _Either:
    def __init__(self, one: Collection, other: Collection) -> None:
        self._both = (one, other)

    def __contains__(self, name: str) -> bool:
        return any(name in each for each in self._both)


def _forget_baseless_caches(store: Store, caches: Mapping[str, str], saved: set[str], staying: _Staying) -> None:
    """A snapshot must not build on a tree that could not be found."""
    for project, tree in caches.items():
        if tree not in staying and tree not in saved and tree != EMPTY_TREE:
            forget_contents(store, Project(project, Path()))


def _remove_old(store: Store, old: Mapping[str, Pack], stay: set[str | None]) -> None:
    now = list_packs(store.git_dir)
    for name, pack in old.items():
        if name not in stay and now.get(name) == pack:
            remove_pack(store.git_dir, name)


_ATTEMPTS = 3
# A project that is busy for longer keeps its cache: its next capture replaces it.
_PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Reclaimed(_Record):
    """What was reclaimed. If not `complete`, `why` says what is in the way, and the next upkeep does the rest."""

    bytes_freed: int = 0
    complete: bool = True
    why: str = ""
    error: ShadowsnapError | None = None


def reclaim_now(store: Store, deadline: Deadline, on_wait: Callable[[], None] = lambda: None) -> Reclaimed:
    """Remove every object that no checkpoint leads to. Upkeep that is under way is waited for, until the
    deadline."""
    try:
        with upkeep_session(store, deadline, on_wait) as session:
            if session is None:
                return Reclaimed(complete=False, why="another process is doing upkeep")
            before = count_objects(session.git).bytes
            clear_debris(store, deadline)
            forget_unheld_caches(store, deadline)
            complete = _shed(session)
            freed = max(0, before - count_objects(session.git).bytes)
    except ShadowsnapError as problem:
        return Reclaimed(complete=False, why=str(problem), error=problem)
    return Reclaimed(freed, complete, "" if complete else "too much changed meanwhile")


def _shed(session: Session) -> bool:
    done = False
    for _ in range(_ATTEMPTS):  # with very many snapshots at the same time it may take more than one
        refs = all_refs(session.git)
        usage = measure(session.git, {"": [Holder(ref, tip) for ref, tip in refs.items()]})
        result = shed(session, usage.live)
        done = result.complete
        if done:
            memory = read_memory(session.store)
            write_memory(session.store, replace(memory, look=None, compact_pack=result.pack or ""))
            break
    return done


def forget_unheld_caches(store: Store, deadline: Deadline) -> None:
    """What the last capture of a project held has to stay, as the next one builds on it. If it is no checkpoint's
    any more, the next capture reads every file again instead."""
    caches = CachedTrees(store).read()
    if not caches:
        return
    checkpoints = take_inventory(store, deadline).checkpoints
    for name, tree in caches.items():
        held = checkpoints.get(name, [])
        if any(checkpoint.tree == tree for checkpoint in held):
            continue
        project = Project(name, Path())
        try:
            with locked_project(store, project, "reclaim", Deadline(_PATIENCE_SECONDS)):
                if CachedTrees(store).read().get(name) == tree:
                    forget_contents(store, project)
        except LockTimeout:
            continue
