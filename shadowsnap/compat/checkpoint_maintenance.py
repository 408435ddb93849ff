"""The second module of Hermes Agent's checkpoints: maintenance of the whole store.

`shadowsnap.compat.checkpoint_maintenance` in place of `tools.checkpoint_maintenance`. In the store that all hosts
share only checkpoints that Hermes recorded are touched. Nothing here raises; an error is an answer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.compat.common import ERRORS, drop_own, is_shared, own_checkpoints
from shadowsnap.files import remove_tree
from shadowsnap.manager import CheckpointManager
from shadowsnap.store.layout import WORKDIR_MARKER, Store, archives, is_due, is_shadow_repository
from shadowsnap.store.projects import all_records, was_in
from shadowsnap.upkeep.clear import bytes_of

_MB = 1024 * 1024
_SHADOW_NAME = re.compile(r"[0-9a-f]{16}")


def store_status(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Sizes, projects and archives. What cannot be read is left out."""
    base, projects = _base(checkpoint_base), []
    try:
        for each in CheckpointManager(base=base).status().projects if has_store(base) else ():
            about = {"hash": each.id, "workdir": each.workdir, "exists": each.exists}
            about["created_at"] = each.created_at and each.created_at.timestamp()
            about["last_touch"] = each.last_touch and each.last_touch.timestamp()
            projects.append({**about, "commits": each.checkpoints})
    except ERRORS:
        pass
    found = [(path, path.stat().st_mtime) for path in _archives(base)]
    old = [{"name": path.name, "size_bytes": bytes_of(path), "mtime": mtime} for path, mtime in found]
    return {
        "base": str(base),
        "store_size_bytes": bytes_of(base / "store"),
        "legacy_size_bytes": sum(archive["size_bytes"] for archive in old),
        "total_size_bytes": bytes_of(base),
        "project_count": len(projects),
        "projects": projects,
        "pre_v2_projects": [
            {"path": str(folder), "workdir": workdir, "exists": bool(workdir) and Path(workdir or "").exists()}
            for folder, workdir in _shadow_repositories(base)
        ],
        "legacy_archives": old,
    }


def clear_all(checkpoint_base: Path | None = None) -> dict[str, Any]:
    """Remove every checkpoint that Hermes recorded, and the archives. Of a base of its own nothing is left, if
    nothing else is in it."""
    base, deleted = _base(checkpoint_base), False
    before = bytes_of(base)
    try:
        if base.is_dir():
            for folder in (*_archives(base), *(folder for folder, _ in _shadow_repositories(base))):
                remove_tree(folder)
            manager = CheckpointManager(base=base)
            if is_shared(base):
                for workdir in manager.projects():
                    drop_own(manager, str(workdir), "hermes")
                manager.reclaim()
            else:
                manager.remove_store()
            deleted = True
    except ERRORS:
        pass  # `deleted` says so
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": deleted}


def clear_legacy(checkpoint_base: Path | None = None) -> dict[str, int]:
    """Remove the archives of older layouts; `errors` counts those whose space could not be recovered."""
    base = _base(checkpoint_base)
    found, before = _archives(base), bytes_of(base)
    for archive in found:
        remove_tree(archive)
    errors = sum(archive.exists() for archive in found)
    return {"bytes_freed": max(0, before - bytes_of(base)), "deleted": len(found) - errors, "errors": errors}


def prune_checkpoints(
    retention_days: float = 7,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
    orphan_allowlist: set[str] | None = None,
) -> dict[str, int]:
    """Let go of projects whose directory is gone, or that were not used for `retention_days`, unless something of
    them is pinned. `orphan_allowlist`: what may go as an orphan, by hash. The size of the store that all hosts
    share is left to the person's own limit; `errors` counts whatever space could not be recovered."""
    base = _base(checkpoint_base)
    counts = dict.fromkeys(("scanned", "deleted_orphan", "deleted_stale", "errors", "bytes_freed"), 0)
    cutoff = time.time() - retention_days * 86400 if retention_days > 0 else 0.0
    before = bytes_of(base)

    def drop(as_what: str, remove: Callable[[], object]) -> None:
        try:
            remove()
            counts[f"deleted_{as_what}"] += 1
        except ERRORS:
            counts["errors"] += 1  # the others go on

    try:
        for archive in archives(base):
            if not is_due(archive) and archive.stat().st_mtime < cutoff:
                drop("stale", partial(_remove, archive))
        for each in _candidates(base):
            counts["scanned"] += 1
            if delete_orphans and each.is_gone and (orphan_allowlist is None or each.name in orphan_allowlist):
                drop("orphan", each.remove)
            elif 0 < each.last_touch < cutoff:
                drop("stale", each.remove)
        if max_total_size_mb > 0 and has_store(base) and not is_shared(base):
            kept = CheckpointManager(base=base).prune(
                orphans=False, retention_days=0, max_snapshots=0, max_total_size_mb=max_total_size_mb
            )
            counts["errors"] += kept.error is not None or (kept.bytes_after or 0) > max_total_size_mb * _MB
    except ERRORS:
        counts["errors"] += 1
    counts["bytes_freed"] = max(0, before - bytes_of(base))
    return counts


class _Candidate(NamedTuple):
    name: str
    is_gone: bool
    last_touch: float
    remove: Callable[[], object]


def _candidates(base: Path) -> Iterator[_Candidate]:
    """What there is to prune: what is left of repositories of single directories, then the projects."""
    for folder, workdir in _shadow_repositories(base):
        if not is_shadow_repository(folder):  # one that git can read is imported when the store is opened
            gone = workdir is None or not Path(workdir).exists() and _shows_absence(Path(workdir).parent)
            touched = max((path.lstat().st_mtime for path in folder.rglob("*")), default=0.0)
            yield _Candidate(str(folder), gone, touched, partial(_remove, folder))
    if not has_store(base):
        return
    manager, records = CheckpointManager(base=base), all_records(Store(base))
    for project in manager.status().projects:
        own = own_checkpoints(manager, project.workdir, "hermes") if project.checkpoints else []
        if not own or project.pinned:
            continue
        record, parent = records.get(project.id, {}), Path(project.workdir).parent
        # An identity that is not known is no evidence: the directory may be on a volume that is not mounted.
        known = record.get("above") is not None and was_in(record, parent)
        gone = project.place == "gone" and known and _shows_absence(parent)
        touched = project.last_touch.timestamp() if project.last_touch else 0.0
        yield _Candidate(project.id, gone, touched, partial(drop_own, manager, project.workdir, "hermes"))


def _archives(base: Path) -> list[Path]:
    return archives(base) if base.is_dir() else []


def _shadow_repositories(base: Path) -> Iterator[tuple[Path, str | None]]:
    """The repositories of single directories right in the base, and whose they are."""
    for folder in sorted(base.iterdir()) if base.is_dir() else ():
        marker = folder / WORKDIR_MARKER
        if not (_SHADOW_NAME.fullmatch(folder.name) or marker.exists()) or not (folder / "HEAD").is_file():
            continue
        try:
            yield folder, marker.read_text("utf-8").strip()
        except FileNotFoundError:
            yield folder, None
        except (OSError, ValueError):
            yield folder, str(folder)  # its owner is unknown, so it counts as in use


def _shows_absence(parent: Path) -> bool:
    """Whether the absence of a directory in it says anything: the empty directory that a volume was mounted on
    looks just like one whose only project was deleted."""
    try:
        with os.scandir(parent) as entries:
            return any(entries) or os.path.ismount(parent)
    except OSError:
        return False


def _remove(folder: Path) -> None:
    remove_tree(folder)
    if folder.exists():
        raise OSError(f"{folder} cannot be removed")


def maybe_auto_prune_checkpoints(
    retention_days: float = 7,
    min_interval_hours: float = 24,
    delete_orphans: bool = True,
    checkpoint_base: Path | None = None,
    max_total_size_mb: float = 0,
) -> dict[str, Any]:
    """`prune_checkpoints`, at most once in `min_interval_hours`. The interval begins before it: a prune that dies
    must not be tried at every start."""
    base, out = _base(checkpoint_base), dict[str, Any](skipped=False)
    # The usual marker is that of the manager, which prunes for all hosts.
    marker = base / (".last_prune-hermes" if is_shared(base) else ".last_prune")
    try:
        out["skipped"] = 0 <= time.time() - float(marker.read_text("utf-8-sig")) < min_interval_hours * 3600
    except (OSError, ValueError):
        pass  # it never ran, or the marker is damaged
    if not out["skipped"]:
        try:
            if base.is_dir():
                marker.write_text(f"{time.time()}\n")
        except OSError as problem:
            out["error"] = str(problem)
        out["result"] = prune_checkpoints(retention_days, delete_orphans, base, max_total_size_mb)
    return out


def auto_prune_from_config() -> dict[str, Any]:
    """`maybe_auto_prune_checkpoints` as Hermes is configured. Nothing goes because its directory is missing:
    unattended, that may be a volume that is not mounted."""
    try:
        config = _config()
        if not config.get("auto_prune", False):
            return {"skipped": True}
        days, hours = float(config.get("retention_days", 7)), float(config.get("min_interval_hours", 24))
        size = float(config.get("max_total_size_mb", 500))
        return maybe_auto_prune_checkpoints(days, hours, delete_orphans=False, max_total_size_mb=size)
    except Exception as problem:  # reading a configuration may raise anything
        return {"skipped": True, "error": str(problem)}


def checkpoint_footprint_notice() -> str | None:
    """A line for people whose checkpoints are on and use more than the limit; None otherwise."""
    try:
        config, status = _config(), store_status()
        limit, size = float(config.get("max_total_size_mb", 500) or 0), status["total_size_bytes"] / _MB
        if not config.get("enabled", False) or not 0 < limit <= size:
            return None
        return (
            f"Checkpoints for /rollback are on and use {size:.0f} MB for {status['project_count']} project(s); "
            f"the limit is {limit:g} MB, and the newest of each project always stays. To do without them: "
            "`hermes config set checkpoints.enabled false`, then `hermes checkpoints clear`."
        )
    except Exception:  # as above
        return None


def _config() -> dict[str, Any]:
    """What Hermes' own configuration says of checkpoints."""
    return import_module("hermes_cli.config").load_config().get("checkpoints") or {}


def _base(given: Path | None) -> Path:
    from shadowsnap.compat.hermes import current_base  # whose CHECKPOINT_BASE a program may replace

    return Path(given) if given is not None else current_base()


def has_store(base: Path) -> bool:
    """Whether anything is kept there, by us or by Hermes. (Looking must not make a store.)"""
    if os.path.exists(base / "store" / "HEAD"):
        return True
    return base.is_dir() and any(is_shadow_repository(folder) for folder in base.iterdir())
