"""Keeping the store within its size: look only if something changed, let go of checkpoints only
if packing things better is not enough, and repack everything only if that pays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded, ShadowsnapError
from shadowsnap.git.maintenance import list_packs
from shadowsnap.git.repository import count_objects
from shadowsnap.settings import Settings, settings_from_text
from shadowsnap.store.checkpoints import CHECKPOINTS, all_refs
from shadowsnap.store.history import compact_log, finish_migration
from shadowsnap.store.layout import OWN_OBJECTS, Store, last_prune, mark_pruned, open_store
from shadowsnap.store.projects import known_projects, locked_project
from shadowsnap.store.troubles import append_log
from shadowsnap.upkeep.background import start_upkeep
from shadowsnap.upkeep.check_objects import own_all_objects
from shadowsnap.upkeep.check_store import clear_debris
from shadowsnap.upkeep.prune import Plan, carry_out, plan_by_rules, plan_by_size
from shadowsnap.upkeep.reclaim import consolidate, forget_unheld_caches, shed
from shadowsnap.upkeep.results import PruneResult, Verdict
from shadowsnap.upkeep.session import Memory, Session, fingerprint, read_memory, upkeep_session, write_memory
from shadowsnap.upkeep.size import as_look
from shadowsnap.upkeep.verify import verify_newest

WHEN_IT_PAYS, ALL, ALWAYS, NEVER = "when-it-pays", "all", "always", "never"
"""`all`: whatever no checkpoint holds, however little that is; `always`: repack even if there is nothing of it."""

# Less waste than this is not worth a repack of everything; if the store is over its limit, much
# less is.
_WORTH, _WORTH_SHARE = 16 << 20, 0.10
_WORTH_OVER_LIMIT, _WORTH_SHARE_OVER_LIMIT = 64 << 10, 0.01


class Sizing:
    """One look at the size of the store and what follows from it."""

    def __init__(self, session: Session, settings: Settings, memory: Memory, reclaim: str = WHEN_IT_PAYS) -> None:
        self._session = session
        self._settings = settings
        self._reclaim = reclaim
        self.memory = memory
        self.notes: list[str] = []

    def keep(self, plan: Plan, dropped: list[Verdict]) -> Plan:
        """Bring the store within its limits; what more was dropped is added to `dropped`."""
        if self._reclaim == ALL:
            forget_unheld_caches(self._session.store, self._session.deadline)
        if self._reclaim not in (ALL, ALWAYS) and self._is_settled():
            if self._reclaim != NEVER:
                consolidate(self._session)
            return plan
        measured = self._measure(plan)
        if self._reclaim != NEVER and self._is_too_large(measured) and self._may_shrink(measured):
            # What was never compressed together may fit once it is; then nothing has to go.
            self._shed(measured)
            measured = self._measure(plan)
        dropped += carry_out(self._session.store, _what_is_new(measured, plan), self._session.deadline)
        self._remember(measured)
        if measured.fits:
            self.memory = replace(self.memory, told_unmet="")
        else:
            self._say_unmet(measured)
        if self._pays(measured):
            self._shed(measured)
        elif self._reclaim != NEVER:
            consolidate(self._session)
        return measured

    # --- looking -------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        """Whether nothing happened since the last look that would lead to anything."""
        look, refs = self.memory.look, all_refs(self._session.git)
        if look is None or look.refs != fingerprint(refs):
            return False
        if self._limit and look.live > self._limit and self.memory.told_unmet != fingerprint(refs, self._limit):
            return False
        grown = count_objects(self._session.git).bytes - look.on_disk
        return grown < max(_WORTH, _WORTH_SHARE * look.on_disk)

    def _measure(self, plan: Plan) -> Plan:
        return plan_by_size(self._session.store, self._settings, plan, self._session.deadline)

    def _remember(self, measured: Plan) -> None:
        assert measured.usage is not None
        git = self._session.git
        look = as_look(measured.usage, measured.live_after, all_refs(git), count_objects(git).bytes)
        self.memory = replace(self.memory, look=look)

    # --- deciding ------------------------------------------------------------------------------

    @property
    def _limit(self) -> int:
        return int(self._settings.max_total_size_mb * 1024 * 1024)

    def _is_too_large(self, measured: Plan) -> bool:
        assert measured.usage is not None
        return bool(self._limit) and measured.usage.live > self._limit

    def _may_shrink(self, measured: Plan) -> bool:
        """Whether much came since everything was packed together."""
        assert measured.usage is not None
        compact = list_packs(self._session.store.git_dir).get(self.memory.compact_pack)
        return measured.usage.live - (compact.size if compact else 0) > _WORTH_SHARE * measured.usage.live

    def _pays(self, measured: Plan) -> bool:
        """Whether enough could be freed by packing anew what is needed."""
        assert measured.usage is not None
        if self._reclaim in (ALWAYS, NEVER):
            return self._reclaim == ALWAYS
        if self._reclaim == ALL:
            totals = count_objects(self._session.git)
            stored = totals.loose + totals.packed
            return measured.live_after < measured.usage.live or stored > measured.usage.objects
        size = measured.usage.total
        over = bool(self._limit) and size > self._limit
        least = _WORTH_OVER_LIMIT if over else _WORTH
        share = _WORTH_SHARE_OVER_LIMIT if over else _WORTH_SHARE
        return size - measured.live_after > max(least, share * size)

    # --- doing ---------------------------------------------------------------------------------

    def _shed(self, measured: Plan) -> None:
        try:
            done = shed(self._session, measured.live_after, deltas=not self.memory.too_slow)
        except DeadlineExceeded:
            self.memory = replace(self.memory, too_slow=True)
            raise
        # Sizes are different now; whoever wants to know looks again.
        self.memory = replace(self.memory, look=None, too_slow=False, compact_pack=done.pack or "")
        if not done.complete:
            self.notes.append("too much changed while repacking; the space is reclaimed by the next run")

    def _say_unmet(self, measured: Plan) -> None:
        """In the log only once for the same state of things."""
        message, state = unmet(measured, self._settings), fingerprint(all_refs(self._session.git), self._limit)
        self.notes.append(message)
        if self.memory.told_unmet != state:
            self.memory = replace(self.memory, told_unmet=state)
            advice = "raise max_total_size_mb, unpin or delete checkpoints, or drop projects you no longer need"
            append_log(self._session.store.base, kind="upkeep", what=message, advice=advice)


def unmet(plan: Plan, settings: Settings) -> str:
    return (
        f"the store cannot be kept below {settings.max_total_size_mb:g} MB: the newest and the pinned "
        f"checkpoints alone need {plan.live_after / 2**20:.0f} MB"
    )


def _what_is_new(measured: Plan, plan: Plan) -> Plan:
    before = {verdict.checkpoint.ref for verdict in plan.dropped}
    verdicts = tuple(each for each in measured.verdicts if each.keep or each.checkpoint.ref not in before)
    attachments = tuple(ref for ref in measured.attachments if ref not in plan.attachments)
    return replace(measured, verdicts=verdicts, attachments=attachments)


def plan_prune(store: Store, settings: Settings, *, orphans: bool = True) -> PruneResult:
    """What `prune` would do. Nothing is changed, nothing remembered."""
    deadline = Deadline(settings.upkeep_deadline)
    plan, _ = plan_by_rules(store, settings, read_memory(store), deadline, _now(), orphans=orphans)
    plan = plan_by_size(store, settings, plan, deadline)
    before = count_objects(store.git(deadline)).bytes
    notes = () if plan.fits else (unmet(plan, settings),)
    return PruneResult("planned", plan.verdicts, plan.attachments, before, plan.live_after, notes)


def drop_by_rules(store: Store, settings: Settings, deadline: Deadline) -> PruneResult:
    """Let go of what is too many, too old or without a directory; no file's content is looked at."""
    with upkeep_session(store, deadline) as session:
        if session is None:
            return PruneResult("busy")
        plan, memory = plan_by_rules(store, settings, read_memory(store), deadline, _now())
        dropped = carry_out(store, plan, deadline)
        compact_logs(store, deadline)
        write_memory(store, memory)
        return PruneResult("done", _told(plan, dropped), plan.attachments)


def prune(
    store: Store,
    settings: Settings,
    *,
    orphans: bool = True,
    reclaim: str = WHEN_IT_PAYS,
    on_wait: Callable[[], None] | None = None,
) -> PruneResult:
    """Keep every limit, and give back the space of what went. What was dropped stays dropped,
    also if reclaiming fails: then the result says why. With `on_wait`, upkeep that is under way is waited for."""
    deadline = Deadline(settings.upkeep_deadline)
    with upkeep_session(store, deadline, on_wait) as session:
        if session is None:
            return PruneResult("busy")
        clear_debris(store, deadline)
        if not (store.git_dir / OWN_OBJECTS).exists():
            own_all_objects(store)
        before = count_objects(session.git).bytes
        plan, memory = plan_by_rules(store, settings, read_memory(store), deadline, _now(), orphans=orphans)
        dropped = carry_out(store, plan, deadline)
        compact_logs(store, deadline)
        sizing = Sizing(session, settings, memory, reclaim)
        problem: ShadowsnapError | None = None
        try:
            plan = sizing.keep(plan, dropped)
        except ShadowsnapError as caught:
            problem = caught
            append_log(store.base, kind="upkeep", what=str(caught), advice=caught.hint)
        write_memory(store, sizing.memory)
        after = count_objects(store.git(Deadline(settings.deadline))).bytes
        told = _told(plan, dropped)
        return PruneResult("done", told, plan.attachments, before, after, tuple(sizing.notes), problem)


def _told(plan: Plan, dropped: list[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts of a plan as they were carried out."""
    gone = {verdict.checkpoint.ref for verdict in dropped}
    return tuple(
        verdict
        if verdict.keep or verdict.checkpoint.ref in gone
        else replace(verdict, keep=True, reason="in use when it was to go")
        for verdict in plan.verdicts
    )


def _now() -> datetime:
    return datetime.now(UTC)


def auto_prune(settings: Settings) -> PruneResult:
    if not settings.enabled:
        return PruneResult("disabled")
    base = settings.resolved_base()
    if not (base / "store").is_dir() or not _is_due(settings):
        return PruneResult("skipped")
    store = open_store(settings)
    # Before the deed: should it fail, or end with the process, it is not tried at every start.
    mark_pruned(base)
    try:
        result = drop_by_rules(store, settings, Deadline(settings.deadline))
    except ShadowsnapError as problem:
        append_log(base, kind="upkeep", what=str(problem), advice=problem.hint)
        return PruneResult("failed", error=problem)
    if result.status == "done" and settings.background_upkeep:
        start_upkeep(store, settings)
    return result


def _is_due(settings: Settings) -> bool:
    last = last_prune(settings.resolved_base())
    if last is None:
        return True
    return datetime.now(UTC) - last >= timedelta(hours=settings.min_interval_hours)


def compact_logs(store: Store, deadline: Deadline) -> None:
    """Drop the log lines that no kept checkpoint has to do with, in every project."""
    finish_migration(store, deadline)
    held = {name for ref, name in all_refs(store.git(deadline)).items() if ref.startswith(f"{CHECKPOINTS}/")}
    for project in known_projects(store):
        with locked_project(store, project, "prune", deadline):
            compact_log(store, project, held)


def main(arguments: list[str]) -> int:
    settings = settings_from_text(arguments[0])
    _be_modest()
    try:
        result = prune(store := open_store(settings), settings)
        verify_newest(store, Deadline(settings.upkeep_deadline))
    except (ShadowsnapError, OSError) as problem:
        hint = getattr(problem, "hint", "")
        append_log(settings.resolved_base(), kind="upkeep", what=str(problem), advice=hint)
        return 1
    return 0 if result.error is None else 1


def _be_modest() -> None:
    if hasattr(os, "nice"):  # Windows was told when we were started
        os.nice(19)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
