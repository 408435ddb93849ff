"""Forgetting a project: everything that is kept about it beside its checkpoints."""

from __future__ import annotations

from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project
from shadowsnap.store.scancache import forget_cache


def forget_project(store: Store, project: Project) -> None:
    """Remove record, journal and stat cache of a project without checkpoints. The caller holds
    its lock. (The lock file stays: somebody may be waiting for it.)"""
    forget_cache(store, project)
    for path in (
        store.journal_file(project.id), store.exclude_file(project.id), store.statistics_file(project.id),
        store.writes_file(project.id), store.project_file(project.id),
    ):  # fmt: skip
        path.unlink(missing_ok=True)
