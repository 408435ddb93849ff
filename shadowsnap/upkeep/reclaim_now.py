"""Reclaiming everything that no checkpoint holds, because a person asked for it.

Background upkeep repacks only if that pays. After a delete, a purge or a clear the bytes have to be gone, however
few they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.errors import LockTimeout, ShadowsnapError
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.totals import count_objects
from shadowsnap.model import _Record
from shadowsnap.store.inventory import take_inventory
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, locked_project
from shadowsnap.store.scancache import forget_contents
from shadowsnap.store.tips import CachedTrees, all_refs
from shadowsnap.upkeep.accounting import Holder, measure
from shadowsnap.upkeep.debris import clear_debris
from shadowsnap.upkeep.memory import read_memory, write_memory
from shadowsnap.upkeep.reclaim import shed
from shadowsnap.upkeep.session import Session, upkeep_session

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
