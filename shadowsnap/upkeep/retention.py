"""Which checkpoints stay and which are dropped. Pure functions: no I/O here.

`judge` decides by count, age and missing directories:

- Pinned checkpoints stay, and so do those that an interrupted restore, the next undo or the next redo needs.
- A project keeps its newest checkpoint (and the newest of the whole directory) as long as its directory exists or
  may come back.
- `max_snapshots` counts turns: the closing checkpoint of a turn stays and goes with it. Checkpoints that
  restores take of the state before them are counted apart, so that going back and forth does not push turns
  out. A turn that began where the one before had ended keeps that one checkpoint of it: without the state
  before it, the turn could not be reverted.

`choose` decides what else is dropped to keep a size limit: the oldest of the projects that use most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shadowsnap.model import Checkpoint, _Record
from shadowsnap.upkeep.size import Usage

HERE, GONE, UNREACHABLE = "here", "gone", "unreachable"

BEGINNING = "a turn that stays began with it"
ORPHANED = "its directory is gone"
PINNED, NEEDED, NEWEST = "pinned", "an undo or an interrupted restore needs it", "the newest of its project"
FIRM = (PINNED, NEEDED, NEWEST)
"""Reasons to keep a checkpoint that hold against every limit."""

Unit = tuple[Checkpoint, ...]
"""Checkpoints that stay or go together, newest first."""
Names = tuple[str, ...]


@dataclass(frozen=True)
class Verdict(_Record):
    """Whether a checkpoint stays, and why or why not."""

    checkpoint: Checkpoint
    keep: bool
    reason: str


@dataclass(frozen=True)
class Limits:
    """0 means "no limit"; a grace of 0 days means none."""

    max_snapshots: int = 0
    retention_days: float = 0
    orphan_grace_days: float = 7
    drop_orphans: bool = True


@dataclass(frozen=True)
class ProjectFacts:
    """What the rules need to know of a project, apart from its checkpoints."""

    place: str = HERE
    """Its directory is `here`; `gone` (its parent directory is there); or `unreachable`, as on a volume that is
    not mounted."""
    gone_since: datetime | None = None
    last_touch: datetime | None = None
    needed: frozenset[str] = frozenset()
    """Checkpoints that the journal leads to."""


# --- by count, age and missing directories -----------------------------------------------------


def judge(
    checkpoints: Mapping[str, Sequence[Checkpoint]],
    facts: Mapping[str, ProjectFacts],
    limits: Limits,
    now: datetime,
) -> list[Verdict]:
    """A verdict on every checkpoint. Those of a project are given and returned newest first."""
    return [
        verdict
        for project, timeline in checkpoints.items()
        for verdict in _judge_project(timeline, facts.get(project, ProjectFacts()), limits, now)
    ]


def _judge_project(
    timeline: Sequence[Checkpoint], facts: ProjectFacts, limits: Limits, now: datetime
) -> list[Verdict]:
    orphaned = _is_orphaned(facts, limits, now)
    grouped = units(timeline)
    firm = _firm_reasons(grouped, timeline, facts, orphaned)
    counts = Counter(_is_counted_apart(unit) for unit in grouped if unit[0].ref in firm)
    reasons: dict[str, tuple[bool, str]] = {}
    for unit in grouped:
        reason, drop = firm.get(unit[0].ref, "within the limits"), None
        if unit[0].ref not in firm:
            drop = _reason_to_drop(unit, facts, limits, now, counts[_is_counted_apart(unit)], orphaned)
            counts[_is_counted_apart(unit)] += drop is None
        reasons.update((checkpoint.ref, (drop is None, drop or reason)) for checkpoint in unit)
    begun_at = {checkpoint.metadata.get("before") for checkpoint in timeline if reasons[checkpoint.ref][0]}
    uncounted = replace(limits, max_snapshots=0)
    for checkpoint in timeline:
        if checkpoint.id in begun_at and not reasons[checkpoint.ref][0]:
            drop = _reason_to_drop((checkpoint,), facts, uncounted, now, 0, orphaned)
            reasons[checkpoint.ref] = (drop is None, drop or BEGINNING)
    return [Verdict(checkpoint, *reasons[checkpoint.ref]) for checkpoint in timeline]


def _is_orphaned(facts: ProjectFacts, limits: Limits, now: datetime) -> bool:
    if facts.place != GONE or facts.gone_since is None or not limits.drop_orphans:
        return False
    return now - facts.gone_since >= timedelta(days=limits.orphan_grace_days)


def units(timeline: Iterable[Checkpoint]) -> list[Unit]:
    """The turns of a project, newest first; every other checkpoint is a unit of its own."""
    grouped: dict[object, list[Checkpoint]] = {}
    for checkpoint in timeline:
        of_turn = checkpoint.kind in ("turn", "turn-end") and checkpoint.turn is not None
        grouped.setdefault(checkpoint.turn if of_turn else checkpoint.ref, []).append(checkpoint)
    # A turn is as old as its beginning, however late it was closed.
    return sorted(map(tuple, grouped.values()), key=lambda unit: unit[-1].ref, reverse=True)


def _firm_reasons(
    grouped: Sequence[Unit], timeline: Sequence[Checkpoint], facts: ProjectFacts, orphaned: bool
) -> dict[str, str]:
    """The units that no limit may drop, by the ref of their newest checkpoint."""
    of_tree = [checkpoint for checkpoint in timeline if checkpoint.scope == "tree"]
    newest = {found[0].ref for found in (timeline, of_tree) if found}
    firm: dict[str, str] = {}
    for unit in grouped:
        if any(checkpoint.pinned for checkpoint in unit):
            firm[unit[0].ref] = PINNED
        elif not orphaned and any(checkpoint.id in facts.needed for checkpoint in unit):
            firm[unit[0].ref] = NEEDED
        elif not orphaned and any(checkpoint.ref in newest for checkpoint in unit):
            firm[unit[0].ref] = NEWEST
    return firm


def _is_counted_apart(unit: Unit) -> bool:
    return unit[0].kind == "pre-restore"


def _reason_to_drop(
    unit: Unit, facts: ProjectFacts, limits: Limits, now: datetime, kept_so_far: int, orphaned: bool
) -> str | None:
    if orphaned:
        return ORPHANED
    if 0 < limits.max_snapshots <= kept_so_far:
        return f"more than {limits.max_snapshots} checkpoints"
    # A volume that is not mounted gets no new checkpoints; that must not cost it the old ones.
    if limits.retention_days > 0 and facts.place != UNREACHABLE:
        horizon = now - timedelta(days=limits.retention_days)
        if unit[0].created_at < horizon:
            if facts.last_touch is not None and facts.last_touch < horizon:
                return f"its project was not used for {limits.retention_days:g} days"
            return f"older than {limits.retention_days:g} days"
    return None


# --- by size -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    dropped: tuple[str, ...]
    live_after: int
    met: bool
    """Whether the limit is kept after that."""


def choose(usage: Usage, droppable: Mapping[str, Sequence[Names]], limit: int) -> Choice:
    """Choose what to drop. `droppable` has the checkpoints that may be dropped together, per project, oldest
    first.

    First from the projects that use more than a fair share. If that is not enough, from all; if that is not enough
    either, only what the first step chose is dropped."""
    reduction = _Reduction(usage, droppable)
    share = _fair_share(reduction.uses().values(), limit)
    # A project that can free next to nothing would lose its history for nothing.
    worth = max(1.0, (usage.live - limit) / 100)
    fair = reduction.until(limit, share, worth)
    if fair.met:
        return fair
    for least in (worth, 1.0):
        choice = reduction.until(limit, 0, least)
        if choice.met:
            return choice
    return fair


def _fair_share(uses: Iterable[float], limit: int) -> float:
    """How much each project may use so that all together fit."""
    left, waiting = float(limit), sorted(uses)
    for number, use in enumerate(waiting):
        share = left / (len(waiting) - number)
        if use > share:
            return share
        left -= use
    return left


class _Reduction:
    """Drops checkpoints one after the other, from the project that can free most."""

    def __init__(self, usage: Usage, droppable: Mapping[str, Sequence[Names]]) -> None:
        may_go = {name for bundles in droppable.values() for names in bundles for name in names}
        self._queues = {project: list(reversed(bundles)) for project, bundles in droppable.items()}
        self._dropping = Dropping(usage, may_go)
        self._firm = dict.fromkeys(usage.group_of.values(), 0.0)
        """Bytes that each project cannot free; bytes of several count in parts."""
        for names, size in usage.shares.items():
            staying = [name for name in names if name not in may_go]
            for name in staying:
                self._firm[usage.group_of[name]] += size / len(staying)
        self._dropped: list[str] = []
        self._live = usage.live

    def uses(self) -> dict[str, float]:
        """The bytes that each project uses; bytes of several count in parts."""
        return {project: firm + self._can_free(project) for project, firm in self._firm.items()}

    def until(self, limit: int, share: float, worth: float) -> Choice:
        """Drop from projects that use more than `share` and can free `worth`, until the limit is kept."""
        while self._live > limit:
            uses = self.uses()
            givers = [each for each in self._queues if uses[each] > share and self._can_free(each) >= worth]
            if not givers:
                break
            project = max(givers, key=self._can_free)
            for name in self._queues[project].pop():
                self._dropped.append(name)
                self._live -= self._dropping.drop(name)
        return Choice(tuple(self._dropped), self._live, self._live <= limit)

    def _can_free(self, project: str) -> float:
        return self._dropping.reclaimable.get(project, 0.0) if self._queues.get(project) else 0.0


class Dropping:
    """Follows what is freed while holders are dropped, in each group the last one first."""

    def __init__(self, usage: Usage, droppable: Iterable[str]) -> None:
        self._group_of = usage.group_of
        self._shares: list[tuple[set[str], int]] = []
        self._shares_of: dict[str, list[int]] = {}
        may_go = set(droppable)
        self.reclaimable: dict[str, float] = dict.fromkeys((usage.group_of[name] for name in may_go), 0.0)
        """The bytes that each group could free; bytes of several count in parts."""
        for names, size in usage.shares.items():
            if may_go.issuperset(names):
                for name in names:
                    self._shares_of.setdefault(name, []).append(len(self._shares))
                self._shares.append((set(names), size))
                self._charge(names, size)

    def drop(self, name: str) -> int:
        """The bytes that are freed by dropping one more holder."""
        freed = 0
        for number in self._shares_of.get(name, ()):
            names, size = self._shares[number]
            self._charge(names, -size)
            names.discard(name)
            self._charge(names, size)
            freed += 0 if names else size
        return freed

    def _charge(self, names: Iterable[str], size: int) -> None:
        names = list(names)
        for name in names:
            self.reclaimable[self._group_of[name]] += size / len(names)
