"""The doctor: looks at everything the store consists of, says what is wrong and what would be
done about it, and does it if asked to.

The order matters: what git needs to open the store comes first, then the object files, then
what is made of them. Each step finds more once the one before it is mended.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, GitFailed, ShadowsnapError
from shadowsnap.git.reading import missing_objects
from shadowsnap.model import Checkup, Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import alone, locked
from shadowsnap.store.projects import Project
from shadowsnap.upkeep import check_checkpoints, check_objects, check_store
from shadowsnap.upkeep.check_checkpoints import (
    checkpoint_refs,
    find_attachments,
    find_caches,
    find_clock,
    find_incomplete,
    find_journals,
    find_lost_refs,
    find_records,
    find_refs,
    find_staging,
    find_unsafe,
    recover_objects,
)
from shadowsnap.upkeep.check_objects import find_one_loose, find_packs, find_shared, inspect_objects
from shadowsnap.upkeep.check_store import (
    find_blocked_locks,
    find_closed,
    find_layout,
    find_leading,
    find_leftovers,
    find_locks,
    find_newer,
    find_old_git,
    wait_for_locks,
)
from shadowsnap.upkeep.quarantine import Quarantine
from shadowsnap.upkeep.session import upkeep_lock

Mend = Callable[[Store, Finding, Quarantine], None]
_ROUNDS = 20
"""A closed directory hides what is wrong inside it, and so on down."""

REPAIRS: dict[str, Mend] = {
    **check_store.REPAIRS,
    **check_objects.REPAIRS,
    **check_checkpoints.REPAIRS,
}


def examine(base: Path, deadline: Deadline, *, fsync: bool = True) -> Checkup:
    """Everything that is not as it should be. Nothing is changed."""
    store = Store(base, fsync)
    if not base.is_dir():
        return Checkup(str(base))
    first = [*find_newer(store)]
    if first:
        return Checkup(str(base), tuple(first))
    first = [*find_closed(store)]
    if not _hinder(first):
        if not os.path.lexists(store.git_dir):
            return Checkup(str(base), tuple(first))
        first += [*find_leading(store), *find_blocked_locks(store), *find_layout(store), *find_lost_refs(store)]
    if _hinder(first):
        meaning = "git cannot open the store as it is, so its checkpoints were not looked at"
        first.append(Finding("not-examined", "info", "store", meaning))
        return Checkup(str(base), tuple(first))
    with locked(store.store_lock(), "doctor", deadline, shared=True):
        return _whole(store, first)


def _hinder(findings: list[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def repair(base: Path, deadline: Deadline, *, fsync: bool = True) -> Checkup:
    """Mend what an examination finds. What cannot be saved is set aside."""
    before = examine(base, deadline, fsync=fsync)
    if not any(finding.code in REPAIRS for finding in before.findings):
        return before
    store = Store(base, fsync)
    with Treatment(store, deadline) as work:
        work.open_up()
        work.mend(lambda: find_locks(store))
        work.mend(lambda: find_leftovers(store))
        work.mend(lambda: inspect_objects(store)[0])
        work.mend(lambda: find_shared(store))
        work.mend(lambda: find_records(store))
        _, sound = inspect_objects(store)
        while back := recover_objects(store, _missing(store, sound)):
            sound |= back  # a tree that is back may show that more is missing
        work.mend(lambda: find_refs(store, store.git()))
        work.mend(lambda: find_unsafe(store, store.git(), sound))
        work.mend(lambda: find_incomplete(store, store.git(), sound))
        work.mend(lambda: find_attachments(store, store.git(), sound))
        work.mend(lambda: [*find_journals(store), *find_staging(store)])
        work.mend(lambda: find_caches(store, store.git(), sound))
        after = _whole(store, [*find_closed(store)])
    used = work.quarantine.used
    # Some vanish together with others: a checkpoint is complete again once its object is back.
    mended = [finding for finding in before.findings if finding.code in REPAIRS and finding not in after.findings]
    mended += [finding for finding in work.repaired if finding not in mended and finding not in after.findings]
    return replace(
        after,
        findings=(*mended, *after.findings),
        repaired=tuple(mended),
        set_aside=str(used) if used else None,
        applied=True,
    )


def _whole(store: Store, first: list[Finding]) -> Checkup:
    """The examination of a store that git can open."""
    git = store.git()
    refs = checkpoint_refs(store)  # before the objects: what they need was written before them
    damaged, sound = inspect_objects(store)
    bad_refs = [*find_refs(store, git)]
    incomplete = [*find_incomplete(store, git, sound), *find_unsafe(store, git, sound)]
    findings = [
        *first, *find_old_git(store), *find_locks(store), *damaged, *find_shared(store), *bad_refs, *incomplete,
        *find_attachments(store, git, sound), *find_records(store), *find_journals(store), *find_staging(store),
        *find_caches(store, git, sound), *find_clock(store), *find_leftovers(store),
    ]  # fmt: skip
    hurt = {finding.subject for finding in (*bad_refs, *incomplete)}
    intact = sum(ref.name not in hurt for ref in refs)
    return Checkup(str(store.base), tuple(findings), checkpoints=len(refs), intact=intact)


def _missing(store: Store, sound: set[str]) -> dict[str, list[bytes]]:
    """Objects that checkpoints need and the store does not hold, and the files they were of."""
    git = store.git()
    missing: dict[str, list[bytes]] = {}
    for finding in find_incomplete(store, git, sound):
        for name, path in zip(finding.facts["objects"], finding.facts["missing"], strict=True):
            missing.setdefault(name, []).append(os.fsencode(os.path.join(finding.facts["workdir"], path)))
    for finding in find_refs(store, git):
        for name in finding.facts.get("lost", ()):
            missing.setdefault(name, [])
    return missing


# --- one treatment ---------------------------------------------------------------------------


class Treatment:
    """A repair under way, with the store to ourselves."""

    def __init__(self, store: Store, deadline: Deadline) -> None:
        self.store = store
        self.quarantine = Quarantine(store.base)
        self.repaired: list[Finding] = []
        self.deadline = deadline
        self._stack = ExitStack()

    def __enter__(self) -> Treatment:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open_up(self, *, thorough: bool = True) -> None:
        """Make the store one that git opens and that can be locked, then lock it."""
        self.mend(lambda: find_closed(self.store))
        self.mend(lambda: find_leading(self.store))
        self.mend(lambda: find_blocked_locks(self.store))
        if thorough:
            self._stack.enter_context(locked(upkeep_lock(self.store), "doctor", self.deadline))
        self._stack.enter_context(alone(self.store.store_lock(), "doctor", self.deadline))
        lost = [*find_lost_refs(self.store)]
        self.mend(lambda: find_layout(self.store))
        self._apply(lost)

    def mend(self, find: Callable[[], Iterable[Finding]]) -> None:
        """Mend what is found until nothing more is."""
        tried: list[Finding] = []
        for _ in range(_ROUNDS):
            found = [finding for finding in find() if finding.code in REPAIRS and finding not in tried]
            if not found:
                return
            self._apply(found)
            tried += found

    def _apply(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            try:
                REPAIRS[finding.code](self.store, finding, self.quarantine)
            except (OSError, ShadowsnapError):
                continue  # it is found again at the end, and told
            self.repaired.append(finding)


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
