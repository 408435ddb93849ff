"""Going back and forth: restore, undo, redo, revert, stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import BadArguments
from shadowsnap.manager.core import Core, PathLike, as_list, once_more
from shadowsnap.model import Checkpoint, Outcome, RestoreResult
from shadowsnap.records import replace
from shadowsnap.store.checkpoints import find_checkpoint, list_checkpoints
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, project_of, quiet_turns, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for what a snapshot does not need
    from shadowsnap.engine.stage import Stage


class GoingBack(Core):
    @once_more
    def restore(
        self, working_dir: PathLike, ref: str, paths: Sequence[PathLike] = (), dry_run: bool = False
    ) -> RestoreResult:
        """Bring a state back, of everything or of some paths; `dry_run` returns the plan."""
        from shadowsnap.engine.restore import choose_paths, restore

        store, project = self._known(working_dir)
        with self._opened(store, project, "restore", lasting=not dry_run) as (space, note):
            target = find_checkpoint(store, project, ref, space.deadline)
            chosen = choose_paths(space, target, as_list(paths))
            result = replace(restore(space, target, chosen), note=note)
        return self._restored(result, "restore")

    @once_more
    def undo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Return to the state before the last restore."""
        from shadowsnap.engine.restore import undo

        store, project = self._known(working_dir)
        with self._opened(store, project, "undo", lasting=not dry_run) as (space, note):
            result = replace(undo(space), note=note)
        return self._restored(result, "undo")

    @once_more
    def redo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Take the last undo back."""
        from shadowsnap.engine.restore import redo

        store, project = self._known(working_dir)
        with self._opened(store, project, "redo", lasting=not dry_run) as (space, note):
            result = replace(redo(space), note=note)
        return self._restored(result, "redo")

    @once_more
    def revert(
        self,
        working_dir: PathLike,
        turn: int | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        on_conflict: str = "keep",
    ) -> RestoreResult:
        """Take the work of one turn, or of all turns of a session, back out of the files as they are
        now; everyone else's edits stay. Where others changed the same lines the file is left alone
        and reported; `on_conflict` may be `markers` or `theirs` (the state before the turn)."""
        from shadowsnap.engine.revert import revert, work_of_session, work_of_turn

        if (turn is None) == (session_id is None) or on_conflict not in ("keep", "markers", "theirs"):
            raise BadArguments(what="revert takes a turn or a session_id, and on_conflict keep, markers or theirs")
        store, project = self._known(working_dir)
        with self._opened(store, project, "revert", lasting=not dry_run) as (space, note):
            past = list_checkpoints(store, project, space.deadline, statistics=False)
            quiet = quiet_turns(read_record(store, project))
            if session_id is not None:
                work, what = work_of_session(past, session_id, quiet), f"revert of session {session_id}"
            else:
                work, what = work_of_turn(past, turn or 0, quiet), f"revert of turn {turn}"
            result = replace(revert(space, work, what, on_conflict), note=note)
        if result.applied:
            self._tell("Reverted", project.workdir, result=result, turn=turn, session_id=session_id)
        return result

    def stage(
        self,
        working_dir: PathLike,
        edit_id: str | None = None,
        session_id: str | None = None,
        risk_tier: str | None = None,
        message: str = "stage",
    ) -> Stage:
        """Edits that are kept or put back as a whole: `with manager.stage(...) as s:`. It begins only
        on files that a checkpoint holds; an exception, or `s.discard()`, returns to that state."""
        from shadowsnap.engine.stage import Stage

        store, project = self._store(), project_of(working_dir)
        facts = {"edit_id": edit_id, "session_id": session_id, "risk_tier": risk_tier}
        ends = (self._stage_committed, self._stage_discarded)
        return Stage(lambda doing: self._opened_alone(store, project, doing), facts, message, *ends)

    @contextmanager
    def _opened_alone(self, store: Store, project: Project, doing: str) -> Iterator[Workspace]:
        with self._opened(store, project, doing) as (space, _):
            yield space

    def _restored(self, result: RestoreResult, by: str) -> RestoreResult:
        if result.applied:
            self._tell("Restored", result.target.workdir, result=result, by=by)
        return result

    def _stage_committed(self, checkpoint: Checkpoint, new: bool) -> None:
        outcome = Outcome("taken" if new else "unchanged", checkpoint, skipped=checkpoint.skipped)
        self._tell_outcome(checkpoint.workdir, outcome)

    def _stage_discarded(self, result: RestoreResult) -> None:
        self._restored(result, "stage")
