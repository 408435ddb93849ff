"""One run of upkeep, from clearing up to the last repack. `prune` does all of it; `drop_by_rules`
only what is quick enough for the start of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from shadowsnap.config import Settings
from shadowsnap.errors import ShadowsnapError
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.totals import count_objects
from shadowsnap.store.layout import OWN_OBJECTS, Store
from shadowsnap.store.log import append_log
from shadowsnap.upkeep.debris import clear_debris
from shadowsnap.upkeep.dropping import carry_out
from shadowsnap.upkeep.examine_objects import own_all_objects
from shadowsnap.upkeep.memory import read_memory, write_memory
from shadowsnap.upkeep.old_sessions import drop_old_sessions
from shadowsnap.upkeep.prune import Plan, plan_by_rules, plan_by_size
from shadowsnap.upkeep.results import PruneResult, Verdict
from shadowsnap.upkeep.session import upkeep_session
from shadowsnap.upkeep.sizing import WHEN_IT_PAYS, Sizing, unmet


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
        drop_old_sessions(store, settings.retention_days, _now(), deadline)
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
        drop_old_sessions(store, settings.retention_days, _now(), deadline)
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
