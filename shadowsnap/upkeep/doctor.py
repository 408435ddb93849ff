"""The doctor: a table of checks, and three ways to walk it.

`examine` reports what is wrong, `repair` also repairs it, and `repair_quickly` runs after an operation failed:
only the checks that can explain the failure, for one project, and within seconds.

The order matters: first what git needs to open the store, then the object files, then what is made of them. Each
check finds more once the ones before it are repaired.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, GitFailed, ShadowsnapError
from shadowsnap.results import Checkup, Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import alone, locked
from shadowsnap.store.projects import Project
from shadowsnap.upkeep import check_checkpoints as checkpoints
from shadowsnap.upkeep import check_store as files
from shadowsnap.upkeep.check_store import Examination
from shadowsnap.upkeep.reclaim import upkeep_lock

# Nested damage shows itself level by level: closed directories, trees that were missing.
_MOST_ROUNDS = 100
# An agent waits for a quick repair.
_QUICK_SECONDS = 10.0
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_SPACE_MESSAGES = ("No space left on device", "Disk quota exceeded", "File too large")

Repair = Callable[[Examination, Finding], None]
NEVER, AFTER_GIT_ERROR, AFTER_ANY_ERROR = "never", "after an error of git", "after any error"


@dataclass(frozen=True)
class Check:
    name: str
    """What it looks at."""
    find: Callable[[Examination], Iterable[Finding]]
    repairs: Mapping[str, Repair]
    """How to repair each kind of finding, by its code. A finding of another code is only reported."""
    recover: Callable[[Examination, Sequence[Finding]], bool] | None = None
    """Tried before `repairs`, for all findings together: looks for lost content elsewhere. If it finds any, the
    check starts again."""
    quick: str = NEVER
    """When a quick repair makes this check."""
    full: bool = True
    """Whether an examination of the whole store makes this check."""


# Before the store can be locked.
ACCESS = (
    Check("permissions", files.find_permissions, {
        "base-open": files.close_to_others,
        "closed": files.open_to_owner,
    }, quick=AFTER_ANY_ERROR),
    Check("files that lead elsewhere", files.find_leads_elsewhere, {
        "leads-elsewhere": files.quarantine_file,
    }, quick=AFTER_ANY_ERROR),
    Check("places of lock files", files.find_blocked_locks, {
        "folder-replaced": files.make_folder,
        "lock-replaced": files.quarantine_file,
    }, quick=AFTER_ANY_ERROR),
)  # fmt: skip
# Before git can open the store.
STRUCTURE = (
    Check("folders and files of the store", files.find_layout, {
        "folder-missing": files.make_folder,
        "folder-replaced": files.make_folder,
        "file-damaged": files.write_file,
    }, quick=AFTER_ANY_ERROR),
    Check("projects without refs", checkpoints.find_lost_refs, {
        "refs-lost": checkpoints.recover_refs,
    }, quick=AFTER_ANY_ERROR),
)  # fmt: skip
CONTENT = (
    Check("git", files.find_old_git, {}),
    Check("lock files of git", files.find_stale_locks, {
        "lock-stale": files.remove_lock,
    }, quick=AFTER_ANY_ERROR),
    Check("temporary files", files.find_leftovers, {
        "leftover": files.remove_leftover,
    }),
    Check("object files", files.find_damaged_objects, {
        "pack-damaged": files.repair_pack,
        "object-damaged": files.repair_object,
        "object-shared": files.own_object,
    }, quick=AFTER_GIT_ERROR),
    # Before refs and checkpoints: lost objects are looked for in every project that has a record.
    Check("records of projects", checkpoints.find_records, {
        "record-damaged": checkpoints.rewrite_record,
    }, quick=AFTER_ANY_ERROR),
    Check("the object that could not be read", checkpoints.find_missing_object, {},
          recover=checkpoints.recover_lost, quick=AFTER_GIT_ERROR, full=False),
    Check("refs", checkpoints.find_refs, {
        "packed-refs-damaged": checkpoints.repair_packed_refs,
        "ref-strange": checkpoints.quarantine_checkpoint_ref,
        "ref-damaged": checkpoints.repair_ref,
        "ref-dangling": checkpoints.repair_ref,
    }, recover=checkpoints.recover_lost, quick=AFTER_GIT_ERROR),
    Check("files of checkpoints", checkpoints.find_incomplete, {
        "checkpoint-incomplete": checkpoints.record_without_lost,
    }, recover=checkpoints.recover_lost),
    Check("names in checkpoints", checkpoints.find_unsafe, {
        "checkpoint-unsafe": checkpoints.quarantine_checkpoint_ref,
    }),
    Check("conversations", checkpoints.find_conversations, {
        "conversation-damaged": checkpoints.quarantine_ref,
    }),
    Check("operation logs", checkpoints.find_logs, {
        "log-damaged": checkpoints.rebuild_operation_log,
        "log-lost": checkpoints.rebuild_operation_log,
    }, quick=AFTER_ANY_ERROR),
    Check("journals", checkpoints.find_journals, {
        "journal-damaged": files.quarantine_file,
        "journal-left": files.quarantine_file,
    }),
    Check("staging directories", checkpoints.find_staging, {
        "staging-left": files.quarantine_file,
    }),
    Check("stat caches", checkpoints.find_caches, {
        "cache-damaged": checkpoints.forget_index,
    }, quick=AFTER_ANY_ERROR),
    Check("clock", checkpoints.find_clock, {}),
)  # fmt: skip
CHECKS = (*ACCESS, *STRUCTURE, *CONTENT)
REPAIRABLE = {code for check in CHECKS for code in check.repairs}
"""The codes of findings that can be repaired."""


def examine(base: Path, deadline: Deadline, *, fsync: bool = True) -> Checkup:
    """Report everything that is wrong, and change nothing."""
    store = Store(base, fsync)
    if not base.is_dir():
        return Checkup(str(base))
    newer = files.find_newer_format(store)
    if newer is not None:
        return Checkup(str(base), (newer,))
    examination = Examination(store)
    found = list(files.find_permissions(examination))
    if not _has_error(found):
        if not os.path.lexists(store.git_dir):
            return Checkup(str(base), tuple(found))
        found += _find(examination, [*ACCESS[1:], *STRUCTURE])
    if _has_error(found):
        meaning = "git cannot open the store as it is, so its checkpoints were not examined"
        return Checkup(str(base), (*found, Finding("not-examined", "info", "store", meaning)))
    with locked(store.store_lock(), "doctor", deadline, shared=True, looking=True):
        return _examine_content(examination, found)


def _find(examination: Examination, checks: Iterable[Check]) -> list[Finding]:
    return [finding for check in checks if check.full for finding in check.find(examination)]


def _has_error(findings: Iterable[Finding]) -> bool:
    return any(finding.severity == "error" for finding in findings)


def _examine_content(examination: Examination, found: list[Finding]) -> Checkup:
    """Examine a store that git can open."""
    # Listed before the objects are read: what a snapshot records meanwhile does not count as missing.
    refs = checkpoints.checkpoint_refs(examination.store)
    found = [*found, *_find(examination, CONTENT)]
    damaged = {finding.subject for finding in found}
    intact = sum(ref.name not in damaged for ref in refs)
    return Checkup(str(examination.store.base), tuple(found), checkpoints=len(refs), intact=intact)


def repair(base: Path, deadline: Deadline, *, fsync: bool = True) -> Checkup:
    """Repair what an examination finds. What cannot be saved goes to the quarantine. Nothing is run or written in
    a store of another user."""
    before = examine(base, deadline, fsync=fsync)
    if not any(finding.code in REPAIRABLE for finding in before.findings) or files.is_foreign(Store(base, fsync)):
        return before
    repairing, done = Examination(Store(base, fsync)), list[Finding]()
    with ExitStack() as locks:
        _repair(repairing, [check for check in CHECKS if check.full], done, deadline, locks)
        examination = Examination(repairing.store)
        after = _examine_content(examination, _find(examination, ACCESS))
    # Some findings disappear with others: a checkpoint is complete again once its object is back.
    repaired: list[Finding] = []
    for finding in (*(finding for finding in before.findings if finding.code in REPAIRABLE), *done):
        if finding not in repaired and finding not in after.findings:
            repaired.append(finding)
    quarantine = repairing.quarantine.used
    return replace(
        after,
        findings=(*repaired, *after.findings),
        repaired=tuple(repaired),
        set_aside=str(quarantine) if quarantine else None,
        applied=True,
    )


def _repair(
    examination: Examination, checks: Iterable[Check], done: list[Finding], deadline: Deadline, locks: ExitStack
) -> None:
    """Make checks and repair what they find; `done` gets what was repaired. The store is locked as soon as that is
    possible."""
    is_locked = False
    for check in checks:
        if check not in ACCESS and not is_locked:
            if files.is_foreign(examination.store):  # which could not be seen as long as the base was closed
                return
            if not examination.quick:
                locks.enter_context(locked(upkeep_lock(examination.store), "doctor", deadline))
            locks.enter_context(alone(examination.store.store_lock(), "doctor", deadline))
            is_locked = True
        for finding in _repair_until_clean(examination, check):
            done.append(finding)  # one by one: the next repair may fail


def _repair_until_clean(examination: Examination, check: Check) -> Iterator[Finding]:
    """Repair what a check finds until it finds nothing new. Yields what was repaired."""
    found, tried = list(check.find(examination)), list[Finding]()
    for _ in range(_MOST_ROUNDS):
        if not found:
            return
        if check.recover is not None and check.recover(examination, found):
            left = list(check.find(examination))
            if left != found:
                yield from (finding for finding in found if finding not in left)
                found = [finding for finding in left if finding not in tried]
                continue
        for finding in found:
            if finding.code in check.repairs:
                try:
                    check.repairs[finding.code](examination, finding)
                except (OSError, ShadowsnapError):
                    continue  # it is found again at the end, and reported
                yield finding
        tried += found
        found = [finding for finding in check.find(examination) if finding not in tried]


# --- after an operation failed -----------------------------------------------------------------


def is_disk_full(problem: BaseException | None) -> bool:
    """Whether an operation failed for lack of disk space: then nothing is damaged."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.errno in _NO_SPACE:
            return True
        if isinstance(problem, GitFailed) and any(text in str(problem) for text in _NO_SPACE_MESSAGES):
            return True
        problem = problem.__cause__
    return False


def repair_quickly(
    base: Path, project: Project, problem: Exception, deadline: Deadline, *, fsync: bool
) -> Checkup:
    """Repair what may have made an operation on this project fail."""
    store = Store(base, fsync)
    if not base.is_dir() or files.find_newer_format(store) is not None:
        return Checkup(str(base))
    left = deadline.remaining()
    deadline = Deadline(_QUICK_SECONDS if left is None else max(0.1, min(left, _QUICK_SECONDS)))
    examination = Examination(store, deadline, project.id, _unreadable_object(problem))
    when = (AFTER_ANY_ERROR,) if isinstance(problem, OSError) else (AFTER_ANY_ERROR, AFTER_GIT_ERROR)
    done: list[Finding] = []
    with ExitStack() as locks, suppress(ShadowsnapError, OSError):
        # If another process holds the lock, or it takes too long, what was repaired so far counts.
        _repair(examination, [check for check in CHECKS if check.quick in when], done, deadline, locks)
    quarantine = examination.quarantine.used
    return Checkup(str(base), tuple(done), tuple(done), str(quarantine) if quarantine else None, applied=True)


def _unreadable_object(problem: Exception) -> str:
    """The object that could not be read, if the error names it."""
    if isinstance(problem, DamagedObject):
        return str(problem.facts.get("id", ""))
    found = re.search(r"\b[0-9a-f]{40}\b", str(problem))
    return found[0] if found else ""
