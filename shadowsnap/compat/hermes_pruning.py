"""Pruning as Hermes Agent does it: whole projects go, by their age or because they are gone. Nothing raises."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.compat.hermes_older import (
    is_inhabited,
    remove_old_archives,
    shadow_repositories,
    why_shadow_goes,
)
from shadowsnap.compat.hermes_upkeep import TROUBLE, base_or, has_store
from shadowsnap.git.files import remove_tree
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.store.layout import Store
from shadowsnap.store.marker import last_prune, mark_pruned
from shadowsnap.store.projects import all_records, was_in
from shadowsnap.upkeep.clear import bytes_of
from shadowsnap.upkeep.results import ProjectStatus
from shadowsnap.upkeep.retention import GONE

_DAY = 86400.0


def prune_checkpoints(
    retention_days: float = 7,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
    orphan_allowlist: set[str] | None = None,
) -> dict[str, int]:
    """Let go of projects whose directory is gone, or that were not used for `retention_days`, unless
    something of them is pinned. `orphan_allowlist`: the projects (by hash) that may go as orphans."""
    base = base_or(checkpoint_base)
    counts = dict.fromkeys(("scanned", "deleted_orphan", "deleted_stale", "errors", "bytes_freed"), 0)
    rules = _Rules(retention_days, delete_orphans, orphan_allowlist, max_total_size_mb)
    for prune in (_prune_archives, _prune_shadows, _prune_store):
        try:
            before = bytes_of(base)
            prune(base, rules, counts)
            counts["bytes_freed"] += max(0, before - bytes_of(base))
        except TROUBLE:
            counts["errors"] += 1  # which does not keep the others from going
    return counts


def maybe_auto_prune_checkpoints(
    retention_days: float = 7,
    min_interval_hours: float = 24,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
) -> dict[str, Any]:
    """`prune_checkpoints`, at most once in `min_interval_hours`."""
    base = base_or(checkpoint_base)
    last = last_prune(base)
    if last is not None and time.time() - last.timestamp() < min_interval_hours * 3600:
        return {"skipped": True}
    out: dict[str, Any] = {"skipped": False}
    out["result"] = prune_checkpoints(retention_days, delete_orphans, base, max_total_size_mb)
    try:
        if base.is_dir():
            mark_pruned(base)
    except OSError as problem:
        out["error"] = str(problem)
    return out


class _Rules(NamedTuple):
    retention_days: float
    orphans: bool
    allowed: set[str] | None
    max_mb: float

    @property
    def cutoff(self) -> float:
        return time.time() - self.retention_days * _DAY if self.retention_days > 0 else 0.0

    def may_be_orphan(self, name: str) -> bool:
        return self.orphans and (self.allowed is None or name in self.allowed)


def _prune_archives(base: Path, rules: _Rules, counts: dict[str, int]) -> None:
    removed, failed = remove_old_archives(base, rules.cutoff)
    counts["deleted_stale"] += removed
    counts["errors"] += failed


def _prune_shadows(base: Path, rules: _Rules, counts: dict[str, int]) -> None:
    for folder, workdir in shadow_repositories(base):
        why = why_shadow_goes(folder, workdir, rules.cutoff, rules.may_be_orphan(str(folder)))
        _count(counts, why)
        if why:
            remove_tree(folder)
            counts["errors"] += folder.exists()


def _prune_store(base: Path, rules: _Rules, counts: dict[str, int]) -> None:
    if not has_store(base):
        return
    manager, records = Manager(base=base), all_records(Store(base))
    for project in manager.status().projects:
        known = was_in(records.get(project.id, {}), Path(project.workdir).parent)
        why = _why_project_goes(project, rules.cutoff, known and rules.may_be_orphan(project.id))
        try:
            if why:
                manager.clear(project.workdir)
            _count(counts, why)
        except TROUBLE:
            counts["errors"] += 1
    kept = manager.prune(orphans=False, retention_days=0, max_snapshots=0, max_total_size_mb=rules.max_mb)
    counts["errors"] += kept.error is not None


def _why_project_goes(project: ProjectStatus, cutoff: float, may_be_orphan: bool) -> str:
    if project.pinned or not project.checkpoints:
        return ""
    if may_be_orphan and project.place == GONE and is_inhabited(Path(project.workdir).parent):
        return "orphan"
    return "stale" if project.last_touch and 0 < project.last_touch.timestamp() < cutoff else ""


def _count(counts: dict[str, int], why: str) -> None:
    counts["scanned"] += 1
    if why:
        counts[f"deleted_{why}"] += 1
