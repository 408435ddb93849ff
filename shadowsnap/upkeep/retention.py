"""Which checkpoints stay and which are dropped. Pure functions: no I/O here.

`judge` decides by count, age and missing directories:

- Pinned checkpoints stay, and so do those that an interrupted restore, the next undo or the next redo needs.
- A project keeps its newest checkpoint (and the newest of the whole directory) while its directory exists or may
  come back.
- `max_snapshots` counts turns; the closing checkpoint of a turn stays and goes with it. Three kinds are counted
  separately, so that they do not push out other turns: checkpoints that restores and reverts take, turns without
  a checkpoint of their own (they changed nothing), and the turns of each host that gives its name. A host may ask
  to `keep` more of its own.
- A turn that stays keeps the states that it begins and ends with, however old they are: without them it could be
  neither shown nor taken back. Another turn may have recorded such a state. That turn can still be dropped, and
  only the state stays, so that one turn does not keep the whole chain before it.

`droppable` and `choose` decide what else is dropped to keep a size limit: the oldest of the projects that use
most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from shadowsnap.model import Checkpoint
from shadowsnap.results import Verdict
from shadowsnap.store.projects import GONE, HERE, UNREACHABLE
from shadowsnap.upkeep.reclaim import Usage

USED_BY_A_TURN = "a turn that stays begins or ends with it"
ORPHANED = "its directory is gone"
PINNED, NEEDED, NEWEST = "pinned", "an undo or an interrupted restore needs it", "the newest of its project"
FIRM = (PINNED, NEEDED, NEWEST)
"""Reasons that keep a checkpoint whatever the limits are."""

Names = tuple[str, ...]


@dataclass(frozen=True)
class Limits:
    """0 means "no limit"; a grace of 0 days means none."""

    max_snapshots: int = 0
    retention_days: float = 0
    orphan_grace_days: float = 7
    drop_orphans: bool = True


@dataclass(frozen=True)
class TurnStates:
    """A turn of the history, with the ids of the checkpoints before and after it, which an earlier turn or a
    snapshot may have recorded."""

    number: int
    began_at: datetime
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class ProjectFacts:
    """What the rules need to know of a project, apart from its checkpoints."""

    place: str = HERE
    """Its directory is `here`; `gone` (its parent directory is there); or `unreachable`, as on a volume that is
    not mounted."""
    gone_since: datetime | None = None
    last_touch: datetime | None = None
    needed: frozenset[str] = frozenset()
    """The checkpoints that an open restore, an open stage, the next undo and the next redo need."""
    turns: tuple[TurnStates, ...] = ()


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
    decided = _decide(timeline, facts, limits, now)
    reasons = {each.ref: (keep, reason) for unit, keep, reason in decided for each in unit.checkpoints}
    lent = {state for unit, keep, _ in decided if keep for state in unit.states}
    if _is_orphaned(facts, limits, now):
        lent = set()
    return [
        Verdict(each, True, USED_BY_A_TURN)
        if each.id in lent and not reasons[each.ref][0]
        else Verdict(each, *reasons[each.ref])
        for each in timeline
    ]


@dataclass(frozen=True)
class Unit:
    """What is kept or dropped together: a turn, or any other checkpoint alone."""

    checkpoints: tuple[Checkpoint, ...]
    """Its own, newest first; none if it is a turn that changed nothing, on a state that had a checkpoint."""
    states: frozenset[str]
    """The ids of the checkpoints that it begins and ends with, its own or others."""
    began: datetime
    ended: datetime

    @property
    def counted_as(self) -> str:
        if not self.checkpoints:
            return "without checkpoint"
        newest = self.checkpoints[0]
        if newest.kind == "pre-restore" or newest.metadata.get("revert"):
            return "restore"
        return f"turn of {newest.host}"

    @property
    def kept_by_host(self) -> int:
        """How many of its own the host wants to be kept."""
        wanted = self.checkpoints[0].metadata.get("keep") if self.checkpoints else 0
        return wanted if isinstance(wanted, int) else 0


def units(timeline: Sequence[Checkpoint], turns: Iterable[TurnStates] = ()) -> list[Unit]:
    """The turns and the other checkpoints of a project, newest first by their beginning."""
    known = {turn.number: turn for turn in turns}
    grouped: dict[int | str, list[Checkpoint]] = {}
    for each in timeline:
        of_turn = each.kind in ("turn", "turn-end") and each.turn is not None
        grouped.setdefault(each.turn if of_turn and each.turn is not None else each.ref, []).append(each)
    found = []
    for key, own in grouped.items():
        turn = known.pop(key, None) if isinstance(key, int) else None
        states = _states_of(turn) | {str(each.metadata["before"]) for each in own if each.metadata.get("before")}
        found.append(Unit(tuple(own), states, own[-1].created_at, own[0].created_at))
    recorded = {each.id: each.created_at for each in timeline}
    for turn in known.values():
        held = [recorded[state] for state in _states_of(turn) if state in recorded]
        if held:
            began = max(turn.began_at, *held)  # the clock may have been set back since
            found.append(Unit((), _states_of(turn), began, began))
    return sorted(found, key=lambda unit: unit.began, reverse=True)


def _states_of(turn: TurnStates | None) -> frozenset[str]:
    return frozenset(state for state in (turn.before, turn.after) if state) if turn else frozenset()


def _decide(
    timeline: Sequence[Checkpoint], facts: ProjectFacts, limits: Limits, now: datetime
) -> list[tuple[Unit, bool, str]]:
    """Every unit, newest first, whether it stays, and why or why not."""
    orphaned = _is_orphaned(facts, limits, now)
    grouped = units(timeline, facts.turns)
    of_tree = [each for each in timeline if each.scope == "tree"]
    newest = () if orphaned else {found[0].ref for found in (timeline, of_tree) if found}
    needed = () if orphaned else facts.needed
    firm_reasons = [_firm_reason(unit, newest, needed) for unit in grouped]
    counts = Counter(unit.counted_as for unit, reason in zip(grouped, firm_reasons, strict=True) if reason)
    newer_turns = 0
    decided = []
    for unit, reason in zip(grouped, firm_reasons, strict=True):
        drop = None
        if reason is None:
            # A turn without a checkpoint stays at most as long as the turns around it.
            count = max(counts[unit.counted_as], 0 if unit.checkpoints else newer_turns)
            drop = _reason_to_drop(unit, facts, limits, now, count, orphaned)
            counts[unit.counted_as] += drop is None
        newer_turns += drop is None and unit.counted_as.startswith("turn")
        decided.append((unit, drop is None, drop or reason or "within the limits"))
    return decided


def _is_orphaned(facts: ProjectFacts, limits: Limits, now: datetime) -> bool:
    if facts.place != GONE or facts.gone_since is None or not limits.drop_orphans:
        return False
    return now - facts.gone_since >= timedelta(days=limits.orphan_grace_days)


def _firm_reason(unit: Unit, newest: Collection[str], needed: Collection[str]) -> str | None:
    """Why no limit may drop a unit; None if one may."""
    if any(each.pinned for each in unit.checkpoints):
        return PINNED
    if any(each.id in needed for each in unit.checkpoints):
        return NEEDED
    return NEWEST if any(each.ref in newest for each in unit.checkpoints) else None


def _reason_to_drop(
    unit: Unit, facts: ProjectFacts, limits: Limits, now: datetime, kept_so_far: int, orphaned: bool
) -> str | None:
    if orphaned:
        return ORPHANED
    most = max(limits.max_snapshots, unit.kept_by_host) if limits.max_snapshots > 0 else 0
    if 0 < most <= kept_so_far:
        return f"more than {most} {_named(unit.counted_as, most)}"
    # A project on a volume that is not mounted gets no new checkpoints, and must not lose its old ones.
    if limits.retention_days > 0 and facts.place != UNREACHABLE:
        horizon = now - timedelta(days=limits.retention_days)
        if unit.ended < horizon:
            if facts.last_touch is not None and facts.last_touch < horizon:
                return f"its project was not used for {limits.retention_days:g} days"
            return f"older than {limits.retention_days:g} days"
    return None


def _named(counted_as: str, number: int) -> str:
    noun = "turn" if counted_as.startswith("turn") else "state before a restore"
    return noun if number == 1 else noun.replace("turn", "turns").replace("state", "states")


def counted(timeline: Sequence[Checkpoint], turns: Iterable[TurnStates]) -> int:
    """How many turns of a project `max_snapshots` counts: the most of any kind that is counted apart."""
    kinds = Counter(unit.counted_as for unit in units(timeline, turns) if not unit.kept_by_host)
    return max(kinds.values(), default=0)


# --- by size -----------------------------------------------------------------------------------


def droppable(
    checkpoints: Mapping[str, Sequence[Checkpoint]],
    facts: Mapping[str, ProjectFacts],
    limits: Limits,
    now: datetime,
) -> dict[str, list[Names]]:
    """What the rules keep but a size limit may drop, by project: refs that are dropped together, oldest first."""
    return {
        project: _bundles(timeline, _decide(timeline, facts.get(project, ProjectFacts()), limits, now))
        for project, timeline in checkpoints.items()
    }


def _bundles(timeline: Sequence[Checkpoint], decided: Sequence[tuple[Unit, bool, str]]) -> list[Names]:
    """Group refs by unit. A state that several turns begin or end with is dropped with the newest of them."""
    staying = [(unit, reason) for unit, keep, reason in decided if keep]
    claimed = {state for unit, reason in staying if reason in FIRM for state in _held_by(unit)}
    bundles = []
    for unit, _ in staying:
        going = _held_by(unit) - claimed
        claimed |= going
        names = tuple(each.ref for each in timeline if each.id in going)
        if names:
            bundles.append(names)
    return bundles[::-1]


def _held_by(unit: Unit) -> set[str]:
    return {*unit.states, *(each.id for each in unit.checkpoints)}


@dataclass(frozen=True)
class Choice:
    dropped: tuple[str, ...]
    live_after: int
    met: bool
    """Whether the limit is kept after that."""


def choose(usage: Usage, candidates: Mapping[str, Sequence[Names]], limit: int) -> Choice:
    """Choose what to drop for a size limit, of what may be dropped (see `droppable`): first from the projects that
    use more than a fair share; if that is not enough, from all. If the limit cannot be met, only the first step is
    done."""
    dropping = Dropping(usage, candidates)
    share = _fair_share(dropping.uses().values(), limit)
    # A project that could free almost nothing keeps its history.
    worth = max(1.0, (usage.live - limit) / 100)
    fair = dropping.until(limit, share, worth)
    if fair.met:
        return fair
    for least in (worth, 1.0):
        choice = dropping.until(limit, 0, least)
        if choice.met:
            return choice
    return fair


def _fair_share(uses: Iterable[float], limit: int) -> float:
    """How much each project may use so that all projects fit into the limit."""
    left, waiting = float(limit), sorted(uses)
    for number, use in enumerate(waiting):
        share = left / (len(waiting) - number)
        if use > share:
            return share
        left -= use
    return left


class Dropping:
    """Chooses checkpoints one by one, from the project that can free most, and counts the bytes that are freed."""

    def __init__(self, usage: Usage, candidates: Mapping[str, Sequence[Names]]) -> None:
        going = {name for bundles in candidates.values() for names in bundles for name in names}
        self._queues = {project: list(reversed(bundles)) for project, bundles in candidates.items()}
        self._group_of = usage.group_of
        self._live, self._dropped = usage.live, list[str]()
        self._fixed = dict.fromkeys(usage.group_of.values(), 0.0)
        """Bytes that each project cannot free; shared bytes are divided."""
        self._freeable = dict.fromkeys(usage.group_of.values(), 0.0)
        """Bytes that each project could free."""
        self._shares_of: dict[str, list[tuple[set[str], int]]] = {}
        for names, size in usage.shares.items():
            staying = [name for name in names if name not in going]
            self._charge(self._fixed if staying else self._freeable, staying or names, size)
            if not staying:
                share = (set(names), size)
                for name in names:
                    self._shares_of.setdefault(name, []).append(share)

    def uses(self) -> dict[str, float]:
        """The bytes that each project uses; shared bytes are divided."""
        return {project: fixed + self._can_free(project) for project, fixed in self._fixed.items()}

    def until(self, limit: int, share: float, worth: float) -> Choice:
        """Drop from projects that use more than `share` and can free `worth`, until the limit is kept."""
        while self._live > limit:
            uses = self.uses()
            donors = [each for each in self._queues if uses[each] > share and self._can_free(each) >= worth]
            if not donors:
                break
            project = max(donors, key=self._can_free)
            for name in self._queues[project].pop():
                self._dropped.append(name)
                self._live -= self.drop(name)
        return Choice(tuple(self._dropped), self._live, self._live <= limit)

    def drop(self, name: str) -> int:
        """The bytes that dropping one more holder frees. In each project, holders are dropped in reverse order."""
        freed = 0
        for names, size in self._shares_of.get(name, ()):
            self._charge(self._freeable, names, -size)
            names.discard(name)
            self._charge(self._freeable, names, size)
            freed += 0 if names else size
        return freed

    def _can_free(self, project: str) -> float:
        return self._freeable.get(project, 0.0) if self._queues.get(project) else 0.0

    def _charge(self, account: dict[str, float], names: Collection[str], size: int) -> None:
        for name in names:
            account[self._group_of[name]] += size / len(names)
