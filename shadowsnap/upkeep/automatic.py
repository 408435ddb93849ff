"""Upkeep that a program calls when it starts: it does nothing if it was done lately, drops what
the rules say, and leaves everything that takes time to the background."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shadowsnap.config import Settings
from shadowsnap.errors import ShadowsnapError
from shadowsnap.git.deadline import Deadline
from shadowsnap.store.layout import open_store
from shadowsnap.store.log import append_log
from shadowsnap.store.marker import last_prune, mark_pruned
from shadowsnap.upkeep.results import PruneResult
from shadowsnap.upkeep.run import drop_by_rules
from shadowsnap.upkeep.starting import start_upkeep


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
