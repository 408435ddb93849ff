"""Stages that need not end in the process, or with the object, that began them."""

from __future__ import annotations

from shadowsnap.errors import NoSuchTurn
from shadowsnap.manager.agentwork import AgentWork
from shadowsnap.manager.core import PathLike, once_more
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.records import Any, replace
from shadowsnap.store.checkpoints import find_checkpoint


class Stages(AgentWork):
    @once_more
    def commit_since(
        self,
        working_dir: PathLike,
        before: str,
        message: str,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        **labels: Any,
    ) -> Checkpoint:
        """Keep what was done since a checkpoint as a stage, which `revert` and `revert_stage` can take
        back. Unlike `stage`, nothing is put back by itself if this is never called."""
        from shadowsnap.snapshot.take import Request, take_snapshot

        store, project = self._known(working_dir)
        with self._opened(store, project, "stage") as (space, _):
            beginning = find_checkpoint(store, project, before, space.deadline)
            facts = {**labels, "edit_id": edit_id, "session_id": session_id, "risk_tier": risk_tier}
            request = Request(message, "stage", facts=(*facts.items(), ("before", beginning.id)), always=True)
            return take_snapshot(space, request)[0]

    @once_more
    def revert_stage(
        self, working_dir: PathLike, ref: str, reason: str = "", dry_run: bool = False, **labels: Any
    ) -> RestoreResult:
        """Take the work of one stage back out of the files as they are now; everyone else's edits
        stay. The state that comes about is a checkpoint, with a reason and labels of its own."""
        from shadowsnap.restore.revert import Work, revert

        store, project = self._known(working_dir)
        with self._opened(store, project, "revert", lasting=not dry_run) as (space, note):
            after = find_checkpoint(store, project, ref, space.deadline)
            if after.kind != "stage" or not after.metadata.get("before"):
                raise NoSuchTurn(workdir=project.workdir, what=f"a stage {ref}")
            before = find_checkpoint(store, project, after.metadata["before"], space.deadline)
            work, what = [Work(before, after)], reason or f"revert of stage {after.short_id}"
            return replace(revert(space, work, what, facts=labels), note=note)
