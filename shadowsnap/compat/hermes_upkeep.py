"""The functions of Hermes Agent for the store as a whole: pruning, sizes, clearing. None raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap.compat.hermes_older import (
    shadow_repositories,
)
from shadowsnap.errors import ShadowsnapError
from shadowsnap.git.files import remove_tree
from shadowsnap.manager import CheckpointManager as Manager
from shadowsnap.store.older import archives
from shadowsnap.upkeep.clear import bytes_of

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
