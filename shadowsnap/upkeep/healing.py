"""Healing: when an operation fails, the checks that cost little, and their repairs, for the store
and the one project it was about. After that it is tried once more."""

from __future__ import annotations

import errno
from pathlib import Path

from shadowsnap.errors import (
    DamagedObject,
    DeadlineExceeded,
    DiskFull,
    GitFailed,
    LockTimeout,
    MalformedObject,
    RestoreFailed,
    StoreUnusable,
)
from shadowsnap.git.deadline import Deadline
from shadowsnap.model import Checkup, Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
from shadowsnap.upkeep.doctor import Treatment
from shadowsnap.upkeep.examine_checkpoints import recover_objects
from shadowsnap.upkeep.examine_objects import find_one_loose, find_packs
from shadowsnap.upkeep.examine_projects import find_caches, find_records
from shadowsnap.upkeep.examine_refs import find_refs
from shadowsnap.upkeep.examine_store import find_locks, find_newer, wait_for_locks

CURABLE = (GitFailed, DamagedObject, MalformedObject, StoreUnusable, RestoreFailed, OSError)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_ROOM_TOLD = ("No space left on device", "Disk quota exceeded", "File too large")
# An agent waits for this.
_SECONDS = 10.0


def is_full(problem: BaseException | None) -> bool:
    """Whether an operation failed for want of disk space: then nothing is broken."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.errno in _NO_ROOM:
            return True
        if isinstance(problem, GitFailed) and any(text in str(problem) for text in _NO_ROOM_TOLD):
            return True
        problem = problem.__cause__
    return False


def disk_full(base: Path) -> DiskFull:
    return DiskFull(path=base)


def heal(base: Path, project: Project, problem: Exception, deadline: Deadline, *, fsync: bool) -> Checkup:
    """Mend what may have made an operation on this project fail."""
    store = Store(base, fsync)
    if not store.git_dir.exists() or any(find_newer(store)):
        return Checkup(str(base))
    left = deadline.remaining()
    try:
        with Treatment(store, Deadline(_SECONDS if left is None else max(0.1, min(left, _SECONDS)))) as work:
            work.open_up(thorough=False)
            wait_for_locks(store)
            work.mend(lambda: find_locks(store))
            if _doubts_objects(problem):
                _look_at_objects(work, problem)
            work.mend(lambda: find_refs(store, store.git(), project.id))
            work.mend(lambda: find_records(store, project.id))
            work.mend(lambda: find_caches(store, store.git(), project=project.id))
    except (LockTimeout, DeadlineExceeded):
        pass  # somebody is at work, or it takes too long: what was mended so far is
    used = work.quarantine.used
    return Checkup(
        str(base), tuple(work.repaired), tuple(work.repaired), str(used) if used else None, applied=True
    )


def _doubts_objects(problem: Exception) -> bool:
    return isinstance(problem, (GitFailed, DamagedObject, MalformedObject, RestoreFailed))


def _look_at_objects(work: Treatment, problem: Exception) -> None:
    work.mend(lambda: find_packs(work.store, work.deadline))
    name = problem.facts.get("id", "") if isinstance(problem, DamagedObject) else ""
    work.mend(lambda: find_one_loose(work.store, name))
    if name and recover_objects(work.store, {name: []}):
        meaning = "it was missing from the store"
        work.repaired.append(Finding("object-lost", "error", name, meaning, "written again from the files"))
