"""Planning a prune: what goes, with a reason for everything. Rules that need no measuring come
first; then, if wanted, the store is measured and more goes until it fits."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import LockTimeout
from shadowsnap.files import read_json
from shadowsnap.git.refs import delete_refs, read_refs, ref_exists
from shadowsnap.model import Checkpoint
from shadowsnap.settings import Settings
from shadowsnap.store.checkpoints import (
    ATTACHMENTS,
    CachedTrees,
    Inventory,
    attachment_of,
    checkpoint_of,
    delete_checkpoints,
    moment_of,
    newest_name,
    take_inventory,
)
from shadowsnap.store.history import needed_checkpoints
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project, locked_project
from shadowsnap.upkeep.clear import forget_project
from shadowsnap.upkeep.results import Verdict
from shadowsnap.upkeep.retention import (
    FIRM,
    GONE,
    HERE,
    ORPHANED,
    UNREACHABLE,
    Limits,
    Names,
    ProjectFacts,
    choose,
    judge,
    units,
)
from shadowsnap.upkeep.session import Memory
from shadowsnap.upkeep.size import Holder, Usage, measure


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


# A project that is busy for longer is left to the next run.
_PATIENCE_SECONDS = 2.0


def carry_out(store: Store, plan: Plan, deadline: Deadline) -> list[Verdict]:
    """Drop what the plan says; what was dropped in fact."""
    by_project: dict[str, list[Verdict]] = {}
    for verdict in plan.dropped:
        by_project.setdefault(verdict.checkpoint.project, []).append(verdict)
    done: list[Verdict] = []
    for project, verdicts in by_project.items():
        deadline.check("dropping checkpoints")
        try:
            done += _drop(store, plan.inventory.projects[project], verdicts, deadline)
        except LockTimeout:
            continue
    _drop_attachments(store, plan, deadline)
    return done


def _drop(store: Store, project: Project, verdicts: list[Verdict], deadline: Deadline) -> list[Verdict]:
    with locked_project(store, project, "prune", Deadline(_PATIENCE_SECONDS)):
        if _came_back(project, verdicts):
            return []
        orphaned = _are_orphaned(verdicts)
        safe = _unneeded(store, project, [verdict.checkpoint for verdict in verdicts], orphaned=orphaned)
        going = [verdict for verdict in verdicts if verdict.checkpoint.ref in safe]
        delete_checkpoints(store, project, [verdict.checkpoint for verdict in going], deadline)
        if orphaned and newest_name(store, project) is None:
            forget_project(store, project)
    return going


def _are_orphaned(verdicts: list[Verdict]) -> bool:
    return any(verdict.reason == ORPHANED for verdict in verdicts)


def _came_back(project: Project, verdicts: list[Verdict]) -> bool:
    return _are_orphaned(verdicts) and find_place(project.workdir, None)[0] != GONE


def _unneeded(store: Store, project: Project, checkpoints: Iterable[Checkpoint], *, orphaned: bool) -> set[str]:
    pins = read_refs(store.git_dir, project.pins)
    needed = frozenset() if orphaned else needed_checkpoints(store, project)
    newest = None if orphaned else newest_name(store, project)
    return {
        each.ref
        for each in checkpoints
        if each.ref.rpartition("/")[2] not in pins and each.id not in needed and each.ref != newest
    }


def _drop_attachments(store: Store, plan: Plan, deadline: Deadline) -> None:
    """Those that go alone; the others went with their checkpoints."""
    with locked(store.store_lock(), "prune", deadline, shared=True):
        there = (ref for ref in plan.attachments if ref_exists(store.git_dir, ref))
        delete_refs(store.git(deadline), [ref for ref in there if not _is_new(store, plan, ref)])


def _is_new(store: Store, plan: Plan, ref: str) -> bool:
    """Whether it only seemed to have no checkpoint: both came while the refs were being listed."""
    return checkpoint_of(ref) not in plan.inventory.refs and ref_exists(store.git_dir, checkpoint_of(ref))


_END_OF_TIME = 1e11
"""Seconds; the calendar does not go much further."""


def gather_facts(
    store: Store, projects: Iterable[Project], memory: Memory, now: float | None = None
) -> tuple[dict[str, ProjectFacts], Memory]:
    """The facts, and what is to be remembered of them for the next time."""
    now = time.time() if now is None else now
    facts: dict[str, ProjectFacts] = {}
    gone_since: dict[str, float] = {}
    devices: dict[str, int] = {}
    for project in projects:
        touched = _seconds((read_json(store.project_file(project.id)) or {}).get("last_touch"))
        place, device = find_place(project.workdir, memory.devices.get(project.id))
        if device is not None:
            devices[project.id] = device
        since = None
        if place == GONE:
            since = _seconds(memory.gone_since.get(project.id))
            if since is None or since > now or (touched or 0) > since:
                since = now  # just now, or the clock was wrong, or it came back in between: its grace begins
            gone_since[project.id] = since
        needed = needed_checkpoints(store, project)
        facts[project.id] = ProjectFacts(place, _moment(since), _moment(touched), needed)
    return facts, replace(memory, gone_since=gone_since, devices=devices)


def find_place(workdir: Path, device: int | None) -> tuple[str, int | None]:
    """Whether a directory is here, gone or out of reach, and the file system it is (or was) in.
    An empty mount point looks like a directory that lost its contents; its file system differs."""
    try:
        above = os.stat(workdir.parent).st_dev
    except OSError:
        return UNREACHABLE, device
    try:
        if stat.S_ISDIR(os.stat(workdir).st_mode):
            return HERE, above
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        return UNREACHABLE, device
    return (GONE, device) if device is None or device == above else (UNREACHABLE, device)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _seconds(value: object) -> float | None:
    """A time that can be one; None for what a damaged record says."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < _END_OF_TIME else None
