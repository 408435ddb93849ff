"""The doctor: looks at everything the store consists of, says what is wrong and what would be
done about it, and does it if asked to.

The order matters: what git needs to open the store comes first, then the object files, then
what is made of them. Each step finds more once the one before it is mended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from shadowsnap.errors import ShadowsnapError
from shadowsnap.git.deadline import Deadline
from shadowsnap.model import Checkup, Finding
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import alone, locked
from shadowsnap.upkeep import (
    debris,
    examine_attachments,
    examine_checkpoints,
    examine_objects,
    examine_projects,
    examine_refs,
    examine_store,
)
from shadowsnap.upkeep.debris import find_leftovers
from shadowsnap.upkeep.examine_attachments import find_attachments
from shadowsnap.upkeep.examine_checkpoints import find_incomplete, find_unsafe, recover_objects
from shadowsnap.upkeep.examine_objects import find_shared, inspect_objects
from shadowsnap.upkeep.examine_projects import (
    find_caches,
    find_clock,
    find_journals,
    find_records,
    find_staging,
)
from shadowsnap.upkeep.examine_refs import checkpoint_refs, find_lost_refs, find_refs
from shadowsnap.upkeep.examine_store import (
    find_blocked_locks,
    find_closed,
    find_layout,
    find_locks,
    find_newer,
)
from shadowsnap.upkeep.quarantine import Quarantine
from shadowsnap.upkeep.session import upkeep_lock

Mend = Callable[[Store, Finding, Quarantine], None]
_ROUNDS = 20
"""A closed directory hides what is wrong inside it, and so on down."""

MENDS: dict[str, Mend] = {
    **examine_store.MENDS,
    **examine_objects.MENDS,
    **examine_refs.MENDS,
    **examine_checkpoints.MENDS,
    **examine_attachments.MENDS,
    **examine_projects.MENDS,
    **debris.MENDS,
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
        first += [*find_blocked_locks(store), *find_layout(store), *find_lost_refs(store)]
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
    if not any(finding.code in MENDS for finding in before.findings):
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
    mended = [finding for finding in before.findings if finding.code in MENDS and finding not in after.findings]
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
        *first, *find_locks(store), *damaged, *find_shared(store), *bad_refs, *incomplete,
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
            found = [finding for finding in find() if finding.code in MENDS and finding not in tried]
            if not found:
                return
            self._apply(found)
            tried += found

    def _apply(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            try:
                MENDS[finding.code](self.store, finding, self.quarantine)
            except (OSError, ShadowsnapError):
                continue  # it is found again at the end, and told
            self.repaired.append(finding)
