"""Pruning: drop what is beyond the limits, and reclaim the space.

A plan with a reason for each checkpoint comes first. The rules that need no measuring (count, age, missing
directories) are applied first. Then the store is measured, if it changed since the last time. Checkpoints are
dropped for their size only if better packing is not enough, and everything is repacked only if that frees enough.

`python -m shadowsnap.upkeep.prune SETTINGS` is what runs in the background.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, LockTimeout, ShadowsnapError
from shadowsnap.files import read_json, remove_tree
from shadowsnap.git.maintenance import list_packs
from shadowsnap.git.objects import count_objects
from shadowsnap.git.refs import delete_refs, read_refs, ref_exists
from shadowsnap.results import PruneResult, SweepReport, Verdict
from shadowsnap.settings import Settings, settings_from_text
from shadowsnap.snapshot.copies import verify_newest
from shadowsnap.store.checkpoints import (
    ATTACHMENTS,
    Inventory,
    all_refs,
    attachment_of,
    checkpoint_of,
    delete_checkpoints,
    moment_of,
    newest_name,
    take_inventory,
)
from shadowsnap.store.history import History, compact_log, finish_migration, fold, needed_checkpoints, own_of_host
from shadowsnap.store.layout import OWN_OBJECTS, Store, archives, is_due, is_prune_due, mark_pruned, open_store
from shadowsnap.store.locks import locked
from shadowsnap.store.log import append_trouble, read_lines
from shadowsnap.store.projects import (
    GONE,
    Project,
    as_moment,
    find_place,
    known_projects,
    locked_project,
    read_record,
)
from shadowsnap.store.stat_cache import CachedTrees
from shadowsnap.upkeep import start_upkeep
from shadowsnap.upkeep.check_store import own_all_objects
from shadowsnap.upkeep.clear import forget_project
from shadowsnap.upkeep.reclaim import (
    Holder,
    Memory,
    Upkeep,
    Usage,
    begin_upkeep,
    clear_debris,
    consolidate,
    fingerprint,
    forget_unheld_caches,
    measure,
    read_memory,
    repack,
    summarize,
    write_memory,
)
from shadowsnap.upkeep.retention import (
    ORPHANED,
    Limits,
    Names,
    ProjectFacts,
    TurnStates,
    choose,
    droppable,
    judge,
)

WHEN_IT_PAYS, ALL, ALWAYS, NEVER = "when-it-pays", "all", "always", "never"
"""What to reclaim. `all`: whatever no checkpoint holds, however little; `always`: repack even if nothing is
free."""

# A full repack must free at least this; if the store is over its limit, much less.
_WORTH_BYTES, _WORTH_SHARE = 16 << 20, 0.10
_WORTH_OVER_LIMIT, _WORTH_SHARE_OVER_LIMIT = 64 << 10, 0.01
# A project that is busy for longer is left to the next run.
_PROJECT_LOCK_SECONDS = 2.0


def plan_prune(store: Store, settings: Settings, *, orphans: bool = True) -> PruneResult:
    """The plan of `prune`."""
    deadline = Deadline(settings.upkeep_deadline)
    plan, _ = plan_by_rules(store, settings, deadline, orphans=orphans)
    plan = plan_by_size(store, settings, plan, deadline)
    before = count_objects(store.git(deadline)).bytes
    notes = () if plan.fits else (_unmet_message(plan, settings),)
    return PruneResult("planned", plan.verdicts, plan.attachments, before, plan.live_after, notes)


def prune(
    store: Store,
    settings: Settings,
    *,
    orphans: bool = True,
    reclaim: str = WHEN_IT_PAYS,
    on_wait: Callable[[], None] | None = None,
) -> PruneResult:
    """Keep every limit, and reclaim the space. If reclaiming fails, what was dropped stays dropped, and the result
    has the error. With `on_wait`, wait for upkeep of another process."""
    deadline = Deadline(settings.upkeep_deadline)
    with begin_upkeep(store, deadline, on_wait) as upkeep:
        if upkeep is None:
            return PruneResult("busy")
        clear_debris(store, deadline)
        if not (store.git_dir / OWN_OBJECTS).exists():
            own_all_objects(store)
        finish_migration(store, deadline)
        before = count_objects(upkeep.git).bytes
        plan, memory = plan_by_rules(store, settings, deadline, orphans=orphans)
        dropped = apply_plan(store, plan, deadline)
        fitting = SizeKeeper(upkeep, settings, memory, reclaim)
        problem: ShadowsnapError | None = None
        try:
            plan = fitting.run(plan, dropped)
        except ShadowsnapError as caught:
            problem = caught
            append_trouble(store.base, kind="upkeep", what=str(caught), advice=caught.hint)
        compact_logs(store)
        write_memory(store, fitting.memory)
        after = count_objects(store.git(Deadline(settings.deadline))).bytes
        verdicts = _applied_verdicts(plan, dropped)
        return PruneResult("done", verdicts, plan.attachments, before, after, tuple(fitting.notes), problem)


def auto_prune(settings: Settings) -> PruneResult:
    """Apply the rules that need no measuring, at most once in `min_interval_hours`, and start the rest in the
    background."""
    if not settings.enabled:
        return PruneResult("disabled")
    base = settings.resolved_base()
    if not (base / "store").is_dir() or not is_prune_due(base, settings.min_interval_hours):
        return PruneResult("skipped")
    store = open_store(settings)
    # Marked first: if it fails, or the process ends, it is not tried again at every start.
    mark_pruned(base)
    try:
        result = _prune_by_rules(store, settings)
    except ShadowsnapError as problem:
        append_trouble(base, kind="upkeep", what=str(problem), advice=problem.hint)
        return PruneResult("failed", error=problem)
    if result.status == "done" and settings.background_upkeep:
        start_upkeep(store, settings)
    return result


def _prune_by_rules(store: Store, settings: Settings) -> PruneResult:
    deadline = Deadline(settings.deadline)
    with begin_upkeep(store, deadline) as upkeep:
        if upkeep is None:
            return PruneResult("busy")
        finish_migration(store, deadline)
        plan, memory = plan_by_rules(store, settings, deadline)
        dropped = apply_plan(store, plan, deadline)
        compact_logs(store)
        write_memory(store, memory)
        return PruneResult("done", _applied_verdicts(plan, dropped), plan.attachments)


def _applied_verdicts(plan: Plan, dropped: list[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts of a plan, with those that were not applied as kept."""
    gone = {verdict.checkpoint.ref for verdict in dropped}
    return tuple(
        verdict
        if verdict.keep or verdict.checkpoint.ref in gone
        else replace(verdict, keep=True, reason="in use when it was to be dropped")
        for verdict in plan.verdicts
    )


# --- planning ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What would be dropped, and why."""

    inventory: Inventory
    verdicts: tuple[Verdict, ...]
    attachments: tuple[str, ...] = ()
    """Refs of attachments that are dropped although their checkpoints stay."""
    droppable: Mapping[str, list[Names]] = field(default_factory=dict)
    """What may be dropped for the size limit, by project: refs that are dropped together, oldest first."""
    usage: Usage = Usage()
    """The sizes of what the rules keep, once that was measured."""
    live_after: int = 0
    fits: bool = True
    """Whether the size limit is kept after this."""

    @property
    def dropped(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.keep]


def plan_by_rules(
    store: Store, settings: Settings, deadline: Deadline, *, orphans: bool = True
) -> tuple[Plan, Memory]:
    """The plan by count, age and missing directories, and what to remember."""
    now, inventory = datetime.now(UTC), take_inventory(store, deadline)
    facts, memory = _gather_facts(store, inventory.projects.values(), read_memory(store), now)
    limits = Limits(settings.max_snapshots, settings.retention_days, settings.orphan_grace_days, orphans)
    verdicts = judge(inventory.checkpoints, facts, limits, now)
    candidates = droppable(inventory.checkpoints, facts, limits, now)
    days = settings.attachment_days
    horizon = (now - timedelta(days=days)).timestamp() * 1000 if days > 0 else 0
    old = [
        ref
        for ref in inventory.attachments
        if moment_of(ref) < horizon or checkpoint_of(ref) not in inventory.refs
    ]
    return Plan(inventory, tuple(verdicts), tuple(old), candidates), memory


def _gather_facts(
    store: Store, projects: Iterable[Project], memory: Memory, now: datetime
) -> tuple[dict[str, ProjectFacts], Memory]:
    """The facts that the rules need, and what to remember of them for the next time."""
    facts: dict[str, ProjectFacts] = {}
    gone_since: dict[str, float] = {}
    for project in projects:
        record = read_json(store.project_file(project.id)) or {}
        touched = as_moment(record.get("last_touch"))
        place, since = find_place(project.workdir, record), None
        if place == GONE:
            since = as_moment(memory.gone_since.get(project.id))
            if since is None or since > now or (touched is not None and touched > since):
                since = now  # found missing now, back in between, or the clock was wrong: its grace begins
            gone_since[project.id] = since.timestamp()
        history = fold(project, read_lines(store, project.id))
        facts[project.id] = ProjectFacts(
            place, since, touched, needed_checkpoints(store, history), turn_states(history)
        )
    return facts, replace(memory, gone_since=gone_since)


def turn_states(history: History) -> tuple[TurnStates, ...]:
    return tuple(
        TurnStates(turn.number, datetime.fromtimestamp(turn.began_at, UTC), turn.before, turn.after)
        for turn in history.turns.values()
    )


def plan_by_size(store: Store, settings: Settings, plan: Plan, deadline: Deadline) -> Plan:
    """Measure what the rules keep, and drop more until the size limits are kept: first attachments for their own
    limit, then checkpoints."""
    usage = measure(store.git(deadline), _holders(store, plan))
    plan = _fit_attachments(replace(plan, usage=usage, live_after=usage.live), settings)
    return _fit_checkpoints(plan, settings)


def _holders(store: Store, plan: Plan) -> dict[str, list[Holder]]:
    """What keeps objects in the store, by project; what would be dropped last comes first."""
    candidates = {ref for bundles in plan.droppable.values() for names in bundles for ref in names}
    groups: dict[str, list[Holder]] = {}
    for project, tree in CachedTrees(store).read().items():
        groups.setdefault(project, []).append(Holder(f"cache of {project}", tree))
    for verdict in plan.verdicts:
        if verdict.keep and verdict.checkpoint.ref not in candidates:
            holder = Holder(verdict.checkpoint.ref, verdict.checkpoint.id)
            groups.setdefault(verdict.checkpoint.project, []).append(holder)
    refs = plan.inventory.refs
    for project, bundles in plan.droppable.items():
        newest_first = (ref for names in reversed(bundles) for ref in names)
        groups.setdefault(project, []).extend(Holder(ref, refs[ref]) for ref in newest_first)
    groups[ATTACHMENTS] = [Holder(ref, refs[ref]) for ref in _staying_attachments(plan)]
    return groups


def _staying_attachments(plan: Plan) -> list[str]:
    """The attachments that stay, newest first. One is dropped with its checkpoint at the latest."""
    dropped = {attachment_of(verdict.checkpoint.ref) for verdict in plan.dropped} | set(plan.attachments)
    return [ref for ref in plan.inventory.attachments if ref not in dropped]


def _fit_attachments(plan: Plan, settings: Settings) -> Plan:
    excess = plan.usage.alone(ATTACHMENTS) - _bytes(settings.max_attachments_mb)
    if settings.max_attachments_mb <= 0 or excess <= 0:
        return plan
    oldest_first = [(ref,) for ref in reversed(_staying_attachments(plan))]
    choice = choose(plan.usage, {ATTACHMENTS: oldest_first}, plan.usage.live - excess)
    return replace(plan, attachments=(*plan.attachments, *choice.dropped), live_after=choice.live_after)


def _fit_checkpoints(plan: Plan, settings: Settings) -> Plan:
    limit = _bytes(settings.max_total_size_mb)
    if settings.max_total_size_mb <= 0 or plan.live_after <= limit:
        return plan
    choice = choose(replace(plan.usage, live=plan.live_after), plan.droppable, limit)
    dropped = set(choice.dropped)
    reason = f"the store is larger than {settings.max_total_size_mb:g} MB"
    verdicts = tuple(
        replace(verdict, keep=False, reason=reason) if verdict.checkpoint.ref in dropped else verdict
        for verdict in plan.verdicts
    )
    return replace(plan, verdicts=verdicts, live_after=choice.live_after, fits=choice.met)


def _bytes(megabytes: float) -> int:
    return int(megabytes * 1024 * 1024)


# --- applying ----------------------------------------------------------------------------------


def apply_plan(store: Store, plan: Plan, deadline: Deadline) -> list[Verdict]:
    """Drop what the plan names, and return what was really dropped."""
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
    """Drop checkpoints of one project, except those that became needed since the plan, which was made without its
    lock."""
    orphaned = any(verdict.reason == ORPHANED for verdict in verdicts)
    with locked_project(store, project, "prune", Deadline(_PROJECT_LOCK_SECONDS)):
        if orphaned and find_place(project.workdir, read_json(store.project_file(project.id)) or {}) != GONE:
            return []
        pins = read_refs(store.git_dir, project.pins)
        history = fold(project, read_lines(store, project.id))
        needed = frozenset() if orphaned else needed_checkpoints(store, history)
        newest = None if orphaned else newest_name(store, project)
        dropped = [
            verdict
            for verdict in verdicts
            if verdict.checkpoint.ref.rpartition("/")[2] not in pins
            and verdict.checkpoint.id not in needed
            and verdict.checkpoint.ref != newest
        ]
        delete_checkpoints(store, project, [verdict.checkpoint for verdict in dropped], deadline)
        if orphaned and newest_name(store, project) is None:
            forget_project(store, project)
    return dropped


def _drop_attachments(store: Store, plan: Plan, deadline: Deadline) -> None:
    """Drop attachments whose checkpoints stay; the others went with theirs."""
    with locked(store.store_lock(), "prune", deadline, shared=True):
        dropped = []
        for ref in plan.attachments:
            checkpoint = checkpoint_of(ref)
            # It may seem to lack a checkpoint because both were made while the refs were being listed.
            is_new = checkpoint not in plan.inventory.refs and ref_exists(store.git_dir, checkpoint)
            if ref_exists(store.git_dir, ref) and not is_new:
                dropped.append(ref)
        delete_refs(store.git(deadline), dropped)


def compact_logs(store: Store) -> None:
    """Drop the log lines whose checkpoints are gone, in every project. A log that cannot be written, as on a full
    disk, is left to the next run."""
    for project in known_projects(store):
        try:
            with locked_project(store, project, "prune", Deadline(_PROJECT_LOCK_SECONDS)):
                compact_log(store, project, set(read_refs(store.git_dir, project.refs).values()))
        except (LockTimeout, OSError):
            continue


# --- keeping the size limit --------------------------------------------------------------------


class SizeKeeper:
    """Measures the store if necessary, and drops and repacks what the size limits need."""

    def __init__(self, upkeep: Upkeep, settings: Settings, memory: Memory, reclaim: str = WHEN_IT_PAYS) -> None:
        self._upkeep = upkeep
        self._settings = settings
        self._limit = _bytes(settings.max_total_size_mb)
        self._reclaim = reclaim
        self.memory = memory
        self.notes: list[str] = []

    def run(self, plan: Plan, dropped: list[Verdict]) -> Plan:
        """Bring the store within its limits; adds what is dropped to `dropped`."""
        store, deadline = self._upkeep.store, self._upkeep.deadline
        if self._reclaim == ALL:
            forget_unheld_caches(store, deadline)
        if self._reclaim not in (ALL, ALWAYS) and self._is_settled():
            if self._reclaim != NEVER:
                consolidate(self._upkeep)
            return plan
        measured = plan_by_size(store, self._settings, plan, deadline)
        if self._reclaim != NEVER and self._may_fit_after_repack(measured):
            # Better packing may be enough, so that nothing has to be dropped.
            self._repack(measured)
            measured = plan_by_size(store, self._settings, plan, deadline)
        dropped += apply_plan(store, _only_new(measured, plan), deadline)
        refs, on_disk = all_refs(self._upkeep.git), count_objects(self._upkeep.git).bytes
        measurement = summarize(measured.usage, measured.live_after, refs, on_disk)
        self.memory = replace(self.memory, measured=measurement)
        if measured.fits:
            self.memory = replace(self.memory, unmet="")
        else:
            self._report_unmet(measured, fingerprint(refs, self._limit))
        if self._is_repack_worthwhile(measured):
            self._repack(measured)
        elif self._reclaim != NEVER:
            consolidate(self._upkeep)
        return measured

    def _is_settled(self) -> bool:
        """Whether nothing relevant changed since the last measurement."""
        last, refs = self.memory.measured, all_refs(self._upkeep.git)
        if last is None or last.refs != fingerprint(refs):
            return False
        if self._limit and last.live > self._limit and self.memory.unmet != fingerprint(refs, self._limit):
            return False
        grown = count_objects(self._upkeep.git).bytes - last.on_disk
        return grown < max(_WORTH_BYTES, _WORTH_SHARE * last.on_disk)

    def _may_fit_after_repack(self, measured: Plan) -> bool:
        """Whether the store is too large, and much of it was added since the last full repack."""
        live = measured.usage.live
        if not self._limit or live <= self._limit:
            return False
        compact = list_packs(self._upkeep.store.git_dir).get(self.memory.compact_pack)
        return live - (compact.size if compact else 0) > _WORTH_SHARE * live

    def _is_repack_worthwhile(self, measured: Plan) -> bool:
        """Whether a repack would free enough."""
        usage = measured.usage
        if self._reclaim in (ALWAYS, NEVER):
            return self._reclaim == ALWAYS
        if self._reclaim == ALL:
            totals = count_objects(self._upkeep.git)
            return measured.live_after < usage.live or totals.loose + totals.packed > usage.objects
        is_over_limit = bool(self._limit) and usage.total > self._limit
        least = _WORTH_OVER_LIMIT if is_over_limit else _WORTH_BYTES
        share = _WORTH_SHARE_OVER_LIMIT if is_over_limit else _WORTH_SHARE
        return usage.total - measured.live_after > max(least, share * usage.total)

    def _repack(self, measured: Plan) -> None:
        try:
            done = repack(self._upkeep, measured.live_after, deltas=not self.memory.too_slow)
        except DeadlineExceeded:
            self.memory = replace(self.memory, too_slow=True)
            raise
        # Sizes are different now.
        self.memory = replace(self.memory, measured=None, too_slow=False, compact_pack=done.pack or "")
        if not done.complete:
            self.notes.append("too much changed while repacking; the space is reclaimed by the next run")

    def _report_unmet(self, measured: Plan, state: str) -> None:
        """Log that the limit cannot be kept, once for the same state of refs and limit."""
        message = _unmet_message(measured, self._settings)
        self.notes.append(message)
        if self.memory.unmet != state:
            self.memory = replace(self.memory, unmet=state)
            advice = "raise max_total_size_mb, unpin or delete checkpoints, or drop projects you no longer need"
            append_trouble(self._upkeep.store.base, kind="upkeep", what=message, advice=advice)


def _unmet_message(plan: Plan, settings: Settings) -> str:
    return (
        f"the store cannot be kept below {settings.max_total_size_mb:g} MB: the newest and the pinned "
        f"checkpoints alone need {plan.live_after / 2**20:.0f} MB"
    )


def _only_new(measured: Plan, plan: Plan) -> Plan:
    """The part of a measured plan that the rules did not drop already."""
    before = {verdict.checkpoint.ref for verdict in plan.dropped}
    verdicts = tuple(each for each in measured.verdicts if each.keep or each.checkpoint.ref not in before)
    attachments = tuple(ref for ref in measured.attachments if ref not in plan.attachments)
    return replace(measured, verdicts=verdicts, attachments=attachments)


# --- sweeping: dropping whole projects ---------------------------------------------------------
# Pruning keeps the newest state of every project. This is for a host that drops projects altogether.


@dataclass(frozen=True)
class SweepRules:
    """What a sweep drops: projects and archives that were not used for `unused_days`, and with `gone` projects
    whose directory is gone (of these only `only`, by id). With a `host`, only checkpoints that it recorded."""

    unused_days: float
    gone: bool = True
    host: str | None = None
    only: Collection[str] | None = None

    @property
    def horizon(self) -> float:
        return time.time() - self.unused_days * 86400 if self.unused_days > 0 else 0.0


def sweep_archives(base: Path, rules: SweepRules) -> SweepReport:
    """Remove the archives of older tools that are old enough, and imported."""
    if base.exists() and not base.is_dir():
        return SweepReport(problems=(f"{base} is not a directory",))
    old = [path for path in archives(base) if not is_due(path) and path.stat().st_mtime < rules.horizon]
    for path in old:
        remove_tree(path)
    left = tuple(str(path) for path in old if path.exists())
    return SweepReport(unused=tuple(str(path) for path in old if not path.exists()), problems=left)


def sweep_projects(
    store: Store, rules: SweepRules, clear: Callable[[Project], object], deadline: Deadline, done: SweepReport
) -> SweepReport:
    """Clear the projects that the rules drop, and add them to the report `done`. A project that cannot be cleared
    does not stop the others."""
    for project in known_projects(store):
        try:
            own = own_of_host(store, project, rules.host, deadline).checkpoints
            done = replace(done, scanned=done.scanned + bool(own))
            reason = _reason_to_go(store, project, rules)
            if own and reason and not any(each.pinned for each in own):
                clear(project)
                name = str(project.workdir)
                if reason == GONE:
                    done = replace(done, gone=(*done.gone, name))
                else:
                    done = replace(done, unused=(*done.unused, name))
        except (ShadowsnapError, OSError) as problem:
            done = replace(done, problems=(*done.problems, f"{project.workdir}: {problem}"))
    return done


def _reason_to_go(store: Store, project: Project, rules: SweepRules) -> str:
    """Why a project is dropped; empty if it stays."""
    record = read_record(store, project)
    may_be_gone = rules.gone and (rules.only is None or project.id in rules.only)
    if may_be_gone and find_place(project.workdir, record) == GONE:
        return GONE
    touched = record.get("last_touch")
    return "unused" if isinstance(touched, (int, float)) and 0 < touched < rules.horizon else ""


# --- in the background -------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    settings = settings_from_text(arguments[0])
    _lower_priority()
    try:
        result = prune(store := open_store(settings), settings)
        verify_newest(store, Deadline(settings.upkeep_deadline))
    except (ShadowsnapError, OSError) as problem:
        hint = getattr(problem, "hint", "")
        append_trouble(settings.resolved_base(), kind="upkeep", what=str(problem), advice=hint)
        return 1
    return 0 if result.error is None else 1


def _lower_priority() -> None:
    if hasattr(os, "nice"):  # on Windows the process was started with a low priority
        os.nice(19)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
