"""The functions of Hermes Agent for the store as a whole: pruning, sizes, clearing. None raises."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from shadowsnap.errors import ShadowsnapError
from shadowsnap.files import remove_tree
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.store.layout import ARCHIVE, WORKDIR_MARKER, Store, archives, is_due, last_prune, mark_pruned
from shadowsnap.store.projects import all_records, was_in
from shadowsnap.upkeep.clear import bytes_of
from shadowsnap.upkeep.retention import GONE
from shadowsnap.upkeep.status import ProjectStatus

TROUBLE = (ShadowsnapError, OSError, ValueError)
_DAY = 86400.0
_T = TypeVar("_T")


def store_status(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Sizes, projects and archives; of what cannot be read, nothing."""
    base = base_or(checkpoint_base)
    projects, shadows, old = (_if_readable(look, base) for look in (_projects, _shadows, _archives))
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
    base = base_or(checkpoint_base)
    before, deleted = bytes_of(base), False
    try:
        if base.is_dir():
            for folder, _ in shadow_repositories(base):
                remove_tree(folder)
            Manager(base=base).remove_store()
            deleted = True
    except TROUBLE:
        pass  # `deleted` says so
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": deleted}


def clear_legacy(checkpoint_base: Path | None = None) -> dict[str, int]:
    """Remove the archives of older layouts."""
    base = base_or(checkpoint_base)
    before, found = bytes_of(base), _if_readable(archives, base)
    for archive in found:
        remove_tree(archive)
    deleted = sum(not archive.exists() for archive in found)
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": deleted}


def has_store(base: Path) -> bool:
    """Whether anything was ever kept there. (Looking must not make a store.)"""
    return os.path.exists(base / "store" / "HEAD")


def base_or(given: Path | None) -> Path:
    """The base that is meant where none is given."""
    from shadowsnap.compat.hermes import current_base

    return Path(given) if given is not None else current_base()


def _if_readable(look: Callable[[Path], list[_T]], base: Path) -> list[_T]:
    try:
        return look(base)
    except TROUBLE:
        return []


def _archives(base: Path) -> list[dict[str, Any]]:
    return [
        {"name": path.name, "size_bytes": bytes_of(path), "mtime": path.stat().st_mtime} for path in archives(base)
    ]


def _shadows(base: Path) -> list[dict[str, Any]]:
    return [
        {"path": str(folder), "workdir": workdir, "exists": Path(workdir).exists() if workdir else False}
        for folder, workdir in shadow_repositories(base)
    ]


def _projects(base: Path) -> list[dict[str, Any]]:
    found = Manager(base=base).status().projects if has_store(base) else ()
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


_DAY_SECONDS = 86400.0


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
        return time.time() - self.retention_days * _DAY_SECONDS if self.retention_days > 0 else 0.0

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


_NAME = re.compile(r"[0-9a-f]{16}")


def remove_old_archives(base: Path, cutoff: float) -> tuple[int, int]:
    """Except those whose checkpoints are still to be imported; how many went, and how many could not."""
    old = [path for path in archives(base) if not is_due(path) and path.stat().st_mtime < cutoff]
    for archive in old:
        remove_tree(archive)
    failed = sum(archive.exists() for archive in old)
    return len(old) - failed, failed


def shadow_repositories(base: Path) -> Iterator[tuple[Path, str | None]]:
    """Repositories of single directories right in the base, and whose they are."""
    if not base.is_dir():
        return
    for folder in sorted(base.iterdir()):
        marked = _NAME.fullmatch(folder.name) or (folder / WORKDIR_MARKER).exists()
        if folder.name.startswith(("store", ARCHIVE, "corrupt-")) or not marked or not (folder / "HEAD").is_file():
            continue
        try:
            yield folder, (folder / WORKDIR_MARKER).read_text("utf-8").strip()
        except FileNotFoundError:
            yield folder, None
        except (OSError, ValueError):
            yield folder, str(folder)  # somebody's, but nobody can tell whose


def why_shadow_goes(folder: Path, workdir: str | None, cutoff: float, may_be_orphan: bool) -> str:
    """`orphan` if its directory is gone, `stale` if nobody used it since; empty if it stays."""
    gone = workdir is None or not Path(workdir).exists() and is_inhabited(Path(workdir).parent)
    if may_be_orphan and gone:
        return "orphan"
    touched = max((path.lstat().st_mtime for path in folder.rglob("*")), default=0.0)
    return "stale" if 0 < touched < cutoff else ""


def is_inhabited(parent: Path) -> bool:
    """Whether the absence of a directory in it says anything: the empty directory that a volume was
    mounted on looks just like one whose only project was deleted."""
    try:
        with os.scandir(parent) as entries:
            return any(entries) or os.path.ismount(parent)
    except OSError:
        return False
