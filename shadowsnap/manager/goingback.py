"""Going back and forth: restore, undo, redo, revert, stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shadowsnap.errors import BadArguments, NoConversation
from shadowsnap.manager.core import PathLike, as_list, once_more
from shadowsnap.manager.recalling import Recalling
from shadowsnap.model import Checkpoint, Outcome, RestoreResult
from shadowsnap.records import replace
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import find_checkpoint, list_checkpoints
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, begun_work, project_of, quiet_work, read_record

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for what a snapshot does not need
    from shadowsnap.restore.stage import Stage


class GoingBack(Recalling):
    @once_more
    def restore(
        self,
        working_dir: PathLike,
        ref: str,
        paths: Sequence[PathLike] = (),
        dry_run: bool = False,
        *,
        conversation: bool = False,
        files: bool = True,
        session_id: str | None = None,
    ) -> RestoreResult:
        """Bring a state back, of everything or of some paths; `dry_run` returns the plan. With
        `conversation` the result has what was said up to then, of this session, or the checkpoint's own;
        `files=False` leaves the files as they are."""
        from shadowsnap.restore.restore import choose_paths, restore
        from shadowsnap.snapshot.states import Selection

        if not files and not conversation:
            raise BadArguments(what="restore brings back files, a conversation, or both")
        self._scribe.wait()  # before the lock, which it may need
        store, project = self._known(working_dir)
        if not files:
            target = find_checkpoint(store, project, ref, self._deadline())
            said, lacking = self._conversation_at(store, target, session_id)
            if said is None:
                raise NoConversation(ref=target.short_id, why=lacking)
            return RestoreResult(target, applied=not dry_run, conversation=said)
        with self._opened(store, project, "restore", lasting=not dry_run) as (space, note):
            target = find_checkpoint(store, project, ref, space.deadline)
            chosen = choose_paths(space, target, as_list(paths))
            result = restore(space, target, Selection(chosen))
            if conversation:
                said, lacking = self._conversation_at(store, target, session_id)
                lack = "" if said else f"no conversation is kept with it{lacking}"
                result, note = replace(result, conversation=said), "; ".join(filter(None, (note, lack)))
        return self._restored(replace(result, note=note), "restore")

    @once_more
    def undo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Return to the state before the last restore."""
        from shadowsnap.restore.restore import undo

        store, project = self._known(working_dir)
        with self._opened(store, project, "undo", lasting=not dry_run) as (space, note):
            result = replace(undo(space), note=note)
        return self._restored(result, "undo")

    @once_more
    def redo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Take the last undo back."""
        from shadowsnap.restore.restore import redo

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
        and reported; `on_conflict` may be `markers` or `theirs` (the state before the turn). So is what
        was changed while two sessions were at work, which may be the other's."""
        from shadowsnap.restore.revert import revert
        from shadowsnap.snapshot.attribution import work_of_session, work_of_turn

        if (turn is None) == (session_id is None) or on_conflict not in ("keep", "markers", "theirs"):
            raise BadArguments(what="revert takes a turn or a session_id, and on_conflict keep, markers or theirs")
        store, project = self._known(working_dir)
        with self._opened(store, project, "revert", lasting=not dry_run) as (space, note):
            past = list_checkpoints(store, project, space.deadline, statistics=False)
            record = read_record(store, project)
            known = quiet_work(record), begun_work(record)
            if session_id is not None:
                work, what = work_of_session(past, session_id, *known), f"revert of session {session_id}"
            else:
                work, what = work_of_turn(past, turn or 0, *known), f"revert of turn {turn}"
            result = replace(revert(space, work, what, on_conflict), note=note)
        if result.applied:
            self._tell("Reverted", project.workdir, result=result, turn=turn, session_id=session_id)
            if result.written or result.deleted or not result.conflicts:  # else everything is as it was
                self._note_reverted(store, project, past, turn, session_id)
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
        from shadowsnap.restore.stage import Stage

        store, project = self._store(), project_of(working_dir)
        facts = {"edit_id": edit_id, "session_id": session_id, "risk_tier": risk_tier}

        def committed(checkpoint: Checkpoint, new: bool) -> None:
            self._stage_committed(checkpoint, new)
            self._note_edit(store, project, facts, "committed", checkpoint.id)

        def discarded(result: RestoreResult) -> None:
            self._stage_discarded(result)
            self._note_edit(store, project, facts, "discarded", None)

        return Stage(lambda doing: self._opened_alone(store, project, doing), facts, message, committed, discarded)

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
