"""Sweeping: whole projects go that nobody uses any more, or whose directory is gone, and old archives.

Pruning keeps the newest state of every project. This is for a host that lets go of a project altogether.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import ShadowsnapError
from shadowsnap.files import remove_tree
from shadowsnap.results import SweepReport
from shadowsnap.store.history import own_of_host
from shadowsnap.store.layout import Store, archives, is_due
from shadowsnap.store.projects import Project, known_projects, read_record
from shadowsnap.upkeep.retention import GONE
from shadowsnap.upkeep.run import find_place

_DAY = 86400


@dataclass(frozen=True)
class SweepRules:
    """What goes: projects and archives that were not used for so many days, and projects whose directory is `gone`
    (of `only` these, by id). With a `host`, only what that one recorded."""

    unused_days: float
    gone: bool = True
    host: str | None = None
    only: Collection[str] | None = None

    @property
    def horizon(self) -> float:
        return time.time() - self.unused_days * _DAY if self.unused_days > 0 else 0.0


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
    """Clear the projects that go; what was done before is part of the report. One that cannot be cleared does not
    stop the others."""
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
    """Empty if the project stays."""
    record = read_record(store, project)
    may_be_gone = rules.gone and (rules.only is None or project.id in rules.only)
    if may_be_gone and find_place(project.workdir, record) == GONE:
        return GONE
    touched = record.get("last_touch")
    return "unused" if isinstance(touched, (int, float)) and 0 < touched < rules.horizon else ""
