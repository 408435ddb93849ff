"""The functions of Hermes Agent for the store as a whole: pruning, sizes, clearing. None raises."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from shadowsnap.compat.hermes_older import (
    is_inhabited,
    remove_old_archives,
    shadow_repositories,
    why_shadow_goes,
)
from shadowsnap.errors import ShadowsnapError
from shadowsnap.git.files import remove_tree
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.store.layout import Store
from shadowsnap.store.marker import last_prune, mark_pruned
from shadowsnap.store.older import archives
from shadowsnap.store.projects import all_records, was_in
from shadowsnap.upkeep.clear import bytes_of
from shadowsnap.upkeep.results import ProjectStatus
from shadowsnap.upkeep.retention import GONE

_TROUBLE = (ShadowsnapError, OSError, ValueError)
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
    base = _base_or(checkpoint_base)
    counts = dict.fromkeys(("scanned", "deleted_orphan", "deleted_stale", "errors", "bytes_freed"), 0)
    before = bytes_of(base)
    cutoff = time.time() - retention_days * _DAY if retention_days > 0 else 0.0
    removed, failed = remove_old_archives(base, cutoff)
    counts["deleted_stale"] += removed
    counts["errors"] += failed
    for folder, workdir in shadow_repositories(base):
        allowed = delete_orphans and (orphan_allowlist is None or str(folder) in orphan_allowlist)
        why = why_shadow_goes(folder, workdir, cutoff, allowed)
        _count(counts, why)
        if why:
            remove_tree(folder)
            counts["errors"] += folder.exists()
    if has_store(base):
        try:
            _prune_store(Manager(base=base), cutoff, delete_orphans, orphan_allowlist, max_total_size_mb, counts)
        except _TROUBLE:
            counts["errors"] += 1
    counts["bytes_freed"] = max(0, before - bytes_of(base))
    return counts


def maybe_auto_prune_checkpoints(
    retention_days: float = 7,
    min_interval_hours: float = 24,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
) -> dict[str, Any]:
    """`prune_checkpoints`, at most once in `min_interval_hours`."""
    base = _base_or(checkpoint_base)
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


def store_status(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Sizes, projects and archives."""
    base = _base_or(checkpoint_base)
    shadows = [
        {"path": str(folder), "workdir": workdir, "exists": Path(workdir).exists() if workdir else False}
        for folder, workdir in shadow_repositories(base)
    ]
    old = [
        {"name": path.name, "size_bytes": bytes_of(path), "mtime": path.stat().st_mtime} for path in archives(base)
    ]
    projects = _projects(base)
    return {
        "base": str(base),
        "store_size_bytes": bytes_of(base / "store"),
        "legacy_size_bytes": sum(archive["size_bytes"] for archive in old),
        "total_size_bytes": bytes_of(base),
        "project_count": len(projects),
        "projects": projects,
        "pre_v2_projects": shadows,
        "legacy_archives": old,
    }


def clear_all(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Remove every checkpoint of every project, and the archives; nothing is left of the base if
    nothing else is in it."""
    base = _base_or(checkpoint_base)
    if not base.is_dir():
        return {"bytes_freed": 0, "deleted": False}
    before = bytes_of(base)
    try:
        for folder, _ in shadow_repositories(base):
            remove_tree(folder)
        Manager(base=base).remove_store()
    except _TROUBLE:
        return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": False}
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": True}


def clear_legacy(checkpoint_base: Path | None = None) -> dict[str, int]:
    """Remove the archives of older layouts."""
    base = _base_or(checkpoint_base)
    before, found = bytes_of(base), archives(base)
    for archive in found:
        remove_tree(archive)
    deleted = sum(not archive.exists() for archive in found)
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": deleted}


def has_store(base: Path) -> bool:
    """Whether anything was ever kept there. (Looking must not make a store.)"""
    return (base / "store" / "HEAD").exists()


def _base_or(given: Path | None) -> Path:
    from shadowsnap.compat.hermes import current_base

    return Path(given) if given is not None else current_base()


# --- the store ---------------------------------------------------------------------------------


def _prune_store(
    manager: Manager, cutoff: float, orphans: bool, allowed: set[str] | None, max_mb: float, counts: dict[str, int]
) -> None:
    records = all_records(Store(manager.settings.resolved_base()))
    for project in manager.status().projects:
        may_go = orphans and (allowed is None or project.id in allowed)
        may_go = may_go and was_in(records.get(project.id, {}), Path(project.workdir).parent)
        why = _why_project_goes(project, cutoff, may_go)
        try:
            if why:
                manager.clear(project.workdir)
            _count(counts, why)
        except _TROUBLE:
            counts["errors"] += 1
    kept = manager.prune(orphans=False, retention_days=0, max_snapshots=0, max_total_size_mb=max_mb)
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


def _projects(base: Path) -> list[dict[str, Any]]:
    try:
        found = Manager(base=base).status().projects if has_store(base) else ()
    except _TROUBLE:
        return []
    return [
        {
            "hash": each.id,
            "workdir": each.workdir,
            "exists": each.exists,
            "created_at": _seconds(each.created_at),
            "last_touch": _seconds(each.last_touch),
            "commits": each.checkpoints,
        }
        for each in found
    ]


def _seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
