"""Healing: when an operation fails, the checks that cost little, and their repairs, for the store
and the one project it was about. After that it is tried once more."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from shadowsnap.errors import DamagedObject, GitFailed, ShadowsnapError
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.reading import missing_objects
from shadowsnap.model import Checkup, Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
from shadowsnap.upkeep.doctor import Treatment
from shadowsnap.upkeep.examine_checkpoints import recover_objects
from shadowsnap.upkeep.examine_objects import find_one_loose, find_packs
from shadowsnap.upkeep.examine_projects import find_caches, find_records
from shadowsnap.upkeep.examine_refs import find_refs
from shadowsnap.upkeep.examine_store import find_locks, find_newer, wait_for_locks

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_ROOM_TOLD = ("No space left on device", "Disk quota exceeded", "File too large")
_OBJECT = re.compile(r"\b[0-9a-f]{40}\b")
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


def heal(base: Path, project: Project, problem: Exception, deadline: Deadline, *, fsync: bool) -> Checkup:
    """Mend what may have made an operation on this project fail."""
    store = Store(base, fsync)
    if not base.is_dir() or any(find_newer(store)):
        return Checkup(str(base))
    left = deadline.remaining()
    work = Treatment(store, Deadline(_SECONDS if left is None else max(0.1, min(left, _SECONDS))))
    try:
        with work:
            _treat(work, project.id, problem)
    except (ShadowsnapError, OSError):
        pass  # somebody is at work, it takes too long, or it is beyond this: what was mended so far is
    used = str(work.quarantine.used) if work.quarantine.used else None
    return Checkup(str(base), tuple(work.repaired), tuple(work.repaired), used, applied=True)


def _treat(work: Treatment, project: str, problem: Exception) -> None:
    store = work.store
    work.open_up(thorough=False)
    wait_for_locks(store)
    work.mend(lambda: find_locks(store))
    if isinstance(problem, OSError):
        work.mend(lambda: find_records(store, project))
        work.mend(lambda: find_caches(store, store.git(), project=project))
        return
    work.mend(lambda: find_packs(store, work.deadline))
    name = problem.facts.get("id", "") if isinstance(problem, DamagedObject) else _object_told_of(problem)
    work.mend(lambda: find_one_loose(store, name))
    _recover(work, project, name)
    work.mend(lambda: find_refs(store, store.git(), project))
    work.mend(lambda: find_records(store, project))
    work.mend(lambda: find_caches(store, store.git(), project=project))


def _object_told_of(problem: Exception) -> str:
    """The object that git could not read, if it says which."""
    found = _OBJECT.search(str(problem))
    return found[0] if found else ""


def _recover(work: Treatment, project: str, name: str) -> None:
    """Look for the object that was missing, and for what refs lead to, where it may still be."""
    store = work.store
    dangling = [finding for finding in find_refs(store, store.git(), project) if finding.facts.get("lost")]
    wanted = {lost for finding in dangling for lost in finding.facts["lost"]}
    if len(name) == 40 and missing_objects(store.git(), [name]):
        wanted.add(name)
    back = recover_objects(store, dict.fromkeys(wanted, ()))
    work.repaired += [finding for finding in dangling if back.issuperset(finding.facts["lost"])]
    if name in back:
        work.repaired.append(Finding("object-missing", "error", name, "it was not in the store", "write it again"))
