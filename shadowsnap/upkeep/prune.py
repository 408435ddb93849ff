"""Planning a prune: what goes, with a reason for everything. Rules that need no measuring come
first; then, if wanted, the store is measured and more goes until it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from shadowsnap.config import Settings
from shadowsnap.git.deadline import Deadline
from shadowsnap.store.inventory import Inventory, moment_of, take_inventory
from shadowsnap.store.layout import Store
from shadowsnap.store.tips import ATTACHMENTS, CachedTrees, attachment_of, checkpoint_of
from shadowsnap.upkeep.accounting import Holder, Usage, measure
from shadowsnap.upkeep.capacity import Names, choose
from shadowsnap.upkeep.facts import gather_facts
from shadowsnap.upkeep.memory import Memory
from shadowsnap.upkeep.results import Verdict
from shadowsnap.upkeep.retention import FIRM, Limits, ProjectFacts, judge, units


@dataclass(frozen=True)
class Plan:
    """What would be dropped, and why."""

    inventory: Inventory
    facts: Mapping[str, ProjectFacts]
    verdicts: tuple[Verdict, ...]
    attachments: tuple[str, ...] = ()
    """Refs of attachments that go, although their checkpoints stay."""
    usage: Usage | None = None
    """What everything costs that stays by the rules; None if it was not measured."""
    live_after: int = 0
    fits: bool = True
    """Whether the size limit is kept after this."""

    @property
    def dropped(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.keep]

    @property
    def empty(self) -> bool:
        return not self.dropped and not self.attachments


def plan_by_rules(
    store: Store, settings: Settings, memory: Memory, deadline: Deadline, now: datetime, *, orphans: bool = True
) -> tuple[Plan, Memory]:
    """What goes by count, age and lost directories, and what is to be remembered."""
    inventory = take_inventory(store, deadline)
    facts, memory = gather_facts(store, inventory.projects.values(), memory, now.timestamp())
    limits = Limits(settings.max_snapshots, settings.retention_days, settings.orphan_grace_days, orphans)
    verdicts = judge(inventory.checkpoints, facts, limits, now)
    old = _old_attachments(inventory, settings.attachment_days, now)
    return Plan(inventory, facts, tuple(verdicts), old), memory


def plan_by_size(store: Store, settings: Settings, plan: Plan, deadline: Deadline) -> Plan:
    """Measure what stays by the rules, and let go of more until the size limits are kept:
    attachments within their own limit first, then checkpoints."""
    droppable = _droppable(plan)
    usage = measure(store.git(deadline), _holders(store, plan, droppable))
    plan = _fit_attachments(replace(plan, usage=usage, live_after=usage.live), usage, settings)
    return _fit_checkpoints(plan, usage, droppable, settings)


def _fit_attachments(plan: Plan, usage: Usage, settings: Settings) -> Plan:
    excess = usage.alone(ATTACHMENTS) - _bytes(settings.max_attachments_mb)
    if settings.max_attachments_mb <= 0 or excess <= 0:
        return plan
    oldest_first = [(ref,) for ref in reversed(_staying_attachments(plan))]
    choice = choose(usage, {ATTACHMENTS: oldest_first}, usage.live - excess)
    return replace(plan, attachments=(*plan.attachments, *choice.dropped), live_after=choice.live_after)


def _fit_checkpoints(plan: Plan, usage: Usage, droppable: Mapping[str, list[Names]], settings: Settings) -> Plan:
    limit = _bytes(settings.max_total_size_mb)
    if settings.max_total_size_mb <= 0 or plan.live_after <= limit:
        return plan
    choice = choose(replace(usage, live=plan.live_after), droppable, limit)
    going = set(choice.dropped)
    reason = f"the store is larger than {settings.max_total_size_mb:g} MB"
    verdicts = tuple(
        replace(verdict, keep=False, reason=reason) if verdict.checkpoint.ref in going else verdict
        for verdict in plan.verdicts
    )
    return replace(plan, verdicts=verdicts, live_after=choice.live_after, fits=choice.met)


def _droppable(plan: Plan) -> dict[str, list[Names]]:
    """What the size limit may take: by project, turn by turn, oldest first."""
    firm = {verdict.checkpoint.ref for verdict in plan.verdicts if not verdict.keep or verdict.reason in FIRM}
    return {
        project: [
            tuple(checkpoint.ref for checkpoint in unit)
            for unit in reversed(units(timeline))
            if not any(checkpoint.ref in firm for checkpoint in unit)
        ]
        for project, timeline in plan.inventory.checkpoints.items()
    }


def _holders(store: Store, plan: Plan, droppable: Mapping[str, list[Names]]) -> dict[str, list[Holder]]:
    """Who holds objects: by project, in the order in which they stay."""
    may_go = {ref for bundles in droppable.values() for names in bundles for ref in names}
    groups: dict[str, list[Holder]] = {}
    for project, tree in CachedTrees(store).read().items():
        groups.setdefault(project, []).append(Holder(f"cache of {project}", tree))
    for verdict in plan.verdicts:
        if verdict.keep and verdict.checkpoint.ref not in may_go:
            holder = Holder(verdict.checkpoint.ref, verdict.checkpoint.id)
            groups.setdefault(verdict.checkpoint.project, []).append(holder)
    refs = plan.inventory.refs
    for project, bundles in droppable.items():
        newest_first = (ref for names in reversed(bundles) for ref in names)
        groups.setdefault(project, []).extend(Holder(ref, refs[ref]) for ref in newest_first)
    groups[ATTACHMENTS] = [Holder(ref, refs[ref]) for ref in _staying_attachments(plan)]
    return groups


def _old_attachments(inventory: Inventory, days: float, now: datetime) -> tuple[str, ...]:
    """Those that are too old, and those whose checkpoint is gone."""
    horizon = (now - timedelta(days=days)).timestamp() * 1000 if days > 0 else 0
    return tuple(
        ref
        for ref in inventory.attachments
        if moment_of(ref) < horizon or checkpoint_of(ref) not in inventory.refs
    )


def _staying_attachments(plan: Plan) -> list[str]:
    """Newest first. An attachment goes with its checkpoint at the latest."""
    going = {attachment_of(verdict.checkpoint.ref) for verdict in plan.dropped} | set(plan.attachments)
    return [ref for ref in plan.inventory.attachments if ref not in going]


def _bytes(megabytes: float) -> int:
    return int(megabytes * 1024 * 1024)
