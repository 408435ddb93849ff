"""What stays and what goes, by count, age and lost directories: a pure function of the
checkpoints, what is known of their projects, the limits and the time. No I/O here.

- Pinned checkpoints stay, and so do those that a restore under way, or the next undo or redo,
  would go to.
- A project keeps its newest checkpoint (and the newest of the whole directory) as long as its
  directory is there, or may come back.
- `max_snapshots` counts turns: a closing checkpoint lives and goes with its turn. Checkpoints
  that restores take of the state before them are counted apart, so that going back and forth
  does not push turns out. A turn that began where the one before had ended keeps that one checkpoint
  of it: without the state before it, it could not be taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shadowsnap.model import Checkpoint
from shadowsnap.upkeep.results import Verdict
from shadowsnap.upkeep.size import Dropping, Usage

HERE, GONE, UNREACHABLE = "here", "gone", "unreachable"

BEGINNING = "a turn that stays began with it"
ORPHANED = "its directory is gone"
PINNED, NEEDED, NEWEST = "pinned", "an undo or an interrupted restore needs it", "the newest of its project"
FIRM = (PINNED, NEEDED, NEWEST)
"""Reasons to keep a checkpoint that hold against every limit."""

Unit = tuple[Checkpoint, ...]
"""Checkpoints that live and go together, newest first."""


@dataclass(frozen=True)
class Limits:
    """0 means "no limit"; a grace of 0 days means none."""

    max_snapshots: int = 0
    retention_days: float = 0
    orphan_grace_days: float = 7
    drop_orphans: bool = True


@dataclass(frozen=True)
class ProjectFacts:
    """What has to be known of a project, apart from its checkpoints."""

    place: str = HERE
    """Its directory is `here`; `gone` (but the directory it was in is there); or `unreachable`,
    as on a volume that is not mounted."""
    gone_since: datetime | None = None
    last_touch: datetime | None = None
    needed: frozenset[str] = frozenset()
    """Checkpoints that the journal leads to."""


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


def units(timeline: Iterable[Checkpoint]) -> list[Unit]:
    """The turns of a project, newest first; every other checkpoint is a unit of its own."""
    grouped: dict[object, list[Checkpoint]] = {}
    for checkpoint in timeline:
        of_turn = checkpoint.kind in ("turn", "turn-end") and checkpoint.turn is not None
        grouped.setdefault(checkpoint.turn if of_turn else checkpoint.ref, []).append(checkpoint)
    # A turn is as old as its beginning, however late it was closed.
    return sorted(map(tuple, grouped.values()), key=lambda unit: unit[-1].ref, reverse=True)


def _judge_project(
    timeline: Sequence[Checkpoint], facts: ProjectFacts, limits: Limits, now: datetime
) -> list[Verdict]:
    orphaned = _is_orphaned(facts, limits, now)
    grouped = units(timeline)
    firm = _firm_reasons(grouped, timeline, facts, orphaned)
    counts = Counter(_counted_apart(unit) for unit in grouped if unit[0].ref in firm)
    reasons: dict[str, tuple[bool, str]] = {}
    for unit in grouped:
        reason, drop = firm.get(unit[0].ref, "within the limits"), None
        if unit[0].ref not in firm:
            drop = _dropped_for(unit, facts, limits, now, counts[_counted_apart(unit)], orphaned)
            counts[_counted_apart(unit)] += drop is None
        reasons.update((checkpoint.ref, (drop is None, drop or reason)) for checkpoint in unit)
    begun_at = {checkpoint.metadata.get("before") for checkpoint in timeline if reasons[checkpoint.ref][0]}
    uncounted = replace(limits, max_snapshots=0)
    for checkpoint in timeline:
        if checkpoint.id in begun_at and not reasons[checkpoint.ref][0]:
            drop = _dropped_for((checkpoint,), facts, uncounted, now, 0, orphaned)
            reasons[checkpoint.ref] = (drop is None, drop or BEGINNING)
    return [Verdict(checkpoint, *reasons[checkpoint.ref]) for checkpoint in timeline]


def _counted_apart(unit: Unit) -> bool:
    return unit[0].kind == "pre-restore"


def _firm_reasons(
    grouped: Sequence[Unit], timeline: Sequence[Checkpoint], facts: ProjectFacts, orphaned: bool
) -> dict[str, str]:
    """The units that no limit may take, by the ref of their newest checkpoint."""
    whole = [checkpoint for checkpoint in timeline if checkpoint.scope == "tree"]
    newest = {found[0].ref for found in (timeline, whole) if found}
    firm: dict[str, str] = {}
    for unit in grouped:
        if any(checkpoint.pinned for checkpoint in unit):
            firm[unit[0].ref] = PINNED
        elif not orphaned and any(checkpoint.id in facts.needed for checkpoint in unit):
            firm[unit[0].ref] = NEEDED
        elif not orphaned and any(checkpoint.ref in newest for checkpoint in unit):
            firm[unit[0].ref] = NEWEST
    return firm


def _is_orphaned(facts: ProjectFacts, limits: Limits, now: datetime) -> bool:
    if facts.place != GONE or facts.gone_since is None or not limits.drop_orphans:
        return False
    return now - facts.gone_since >= timedelta(days=limits.orphan_grace_days)


def _dropped_for(
    unit: Unit, facts: ProjectFacts, limits: Limits, now: datetime, kept_so_far: int, orphaned: bool
) -> str | None:
    if orphaned:
        return ORPHANED
    if 0 < limits.max_snapshots <= kept_so_far:
        return f"more than {limits.max_snapshots} checkpoints"
    # On a volume that is not mounted nothing can become newer; it must not lose anything by that.
    if limits.retention_days > 0 and facts.place != UNREACHABLE:
        horizon = now - timedelta(days=limits.retention_days)
        if unit[0].created_at < horizon:
            if facts.last_touch is not None and facts.last_touch < horizon:
                return f"its project was not used for {limits.retention_days:g} days"
            return f"older than {limits.retention_days:g} days"
    return None


Names = tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    dropped: tuple[str, ...]
    live_after: int
    met: bool
    """Whether the limit is kept after that."""


def choose(usage: Usage, droppable: Mapping[str, Sequence[Names]], limit: int) -> Choice:
    """What goes. `droppable`: per project, what may go together, oldest first."""
    giving = _Giving(usage, droppable)
    share = _fair_share(giving.uses().values(), limit)
    # Who has next to nothing to give loses its past for nothing.
    worth = max(1.0, (usage.live - limit) / 100)
    fair = giving.until(limit, share, worth)
    for least in (worth, 1.0):
        all_together = fair if fair.met else giving.until(limit, 0, least)
        if all_together.met:
            return all_together
    return fair


class _Giving:
    def __init__(self, usage: Usage, droppable: Mapping[str, Sequence[Names]]) -> None:
        may_go = {name for bundles in droppable.values() for names in bundles for name in names}
        self._queues = {group: list(reversed(bundles)) for group, bundles in droppable.items()}
        self._dropping = Dropping(usage, may_go)
        self._firm = _firm_uses(usage, may_go)
        self._dropped: list[str] = []
        self._live = usage.live

    def uses(self) -> dict[str, float]:
        """What each project uses; what several hold counts in parts."""
        return {group: firm + self._can_give(group) for group, firm in self._firm.items()}

    def until(self, limit: int, share: float, worth: float) -> Choice:
        """Let those who use more than their share, and have something worth it, give until the
        limit is kept."""
        while self._live > limit:
            uses = self.uses()
            givers = [group for group in self._queues if uses[group] > share and self._can_give(group) >= worth]
            if not givers:
                break
            group = max(givers, key=self._can_give)
            for name in self._queues[group].pop():
                self._dropped.append(name)
                self._live -= self._dropping.drop(name)
        return Choice(tuple(self._dropped), self._live, self._live <= limit)

    def _can_give(self, group: str) -> float:
        return self._dropping.reclaimable.get(group, 0.0) if self._queues.get(group) else 0.0


def _firm_uses(usage: Usage, may_go: set[str]) -> dict[str, float]:
    """What each group holds and cannot let go of."""
    found = dict.fromkeys(usage.group_of.values(), 0.0)
    for names, size in usage.shares.items():
        staying = [name for name in names if name not in may_go]
        for name in staying:
            found[usage.group_of[name]] += size / len(staying)
    return found


def _fair_share(uses: Iterable[float], limit: int) -> float:
    """How much each may use so that all together fit."""
    left, waiting = float(limit), sorted(uses)
    for number, use in enumerate(waiting):
        share = left / (len(waiting) - number)
        if use > share:
            return share
        left -= use
    return left
