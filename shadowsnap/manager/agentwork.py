"""Going back on what an agent wrote, and on nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from shadowsnap.manager.core import PathLike
from shadowsnap.manager.goingback import GoingBack
from shadowsnap.model import Kept, RestoreResult
from shadowsnap.records import replace
from shadowsnap.snapshot.tools import path_inside
from shadowsnap.store.layout import open_store
from shadowsnap.store.projects import locked_project, project_of
from shadowsnap.store.writes import content_of, last_writes, note_write

NOT_THE_AGENTS = "not what an agent wrote"


class AgentWork(GoingBack):
    def record_write(self, working_dir: PathLike, path: PathLike) -> bool:
        """Note that an agent wrote this file just now, so that `restore_agent_work` can tell its work
        from what people write. False if there is no such file."""
        store, project = open_store(self.settings), project_of(working_dir)
        inside = path_inside(project.workdir, path)
        content = content_of(project.workdir / os.fsdecode(inside))
        if content is None:
            return False
        with locked_project(store, project, "noting a write", self._deadline()):
            note_write(store, project, inside, content)
        return True

    def recorded_writes(self, working_dir: PathLike) -> list[str]:
        """The files that an agent is known to have written."""
        return sorted(last_writes(open_store(self.settings), project_of(working_dir)))

    def restore_agent_work(self, working_dir: PathLike, ref: str, dry_run: bool = False) -> RestoreResult:
        """Bring back the files that still are as an agent left them (see `record_write`), or that are
        gone since. Every other file that changed since the checkpoint stays, and is told as kept."""
        plan = self.restore(working_dir, ref, dry_run=True)
        writes = last_writes(open_store(self.settings), project_of(working_dir))
        changed = [path for path in (*plan.written, *plan.deleted) if not path.endswith("/")]
        own = [path for path in changed if _is_own(project_of(working_dir).workdir, path, writes)]
        others = tuple(Kept(path, NOT_THE_AGENTS) for path in changed if path not in set(own))
        if not own:
            return replace(plan, written=(), deleted=(), kept=(*plan.kept, *others), applied=not dry_run)
        result = self.restore(working_dir, ref, own, dry_run=dry_run)
        return replace(result, kept=(*plan.kept, *others))


def _is_own(workdir: Path, path: str, writes: dict[str, str]) -> bool:
    return path in writes and content_of(workdir / path) in (None, writes[path])
