"""What an agent loop owns: a `CheckpointManager` that takes one snapshot per directory per
turn, never raises on that path, and brings any state back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from shadowsnap.config import Settings
from shadowsnap.engine.places import path_inside, refusal
from shadowsnap.engine.roots import existing_folder, first_name, places_to_protect, project_root
from shadowsnap.engine.snapshot import Request, capture_same_scope, take_paths, take_snapshot, unprotected
from shadowsnap.engine.tools import may_write
from shadowsnap.engine.workspace import Workspace, open_workspace
from shadowsnap.errors import (
    BadArguments,
    CheckpointsLost,
    DamagedObject,
    DeadlineExceeded,
    DirectoryMissing,
    DirectoryRefused,
    DiskFull,
    GitFailed,
    GitMissing,
    GitTooOld,
    LockTimeout,
    MalformedObject,
    NoSuchProject,
    PathRefused,
    PresentNotSaved,
    RestoreFailed,
    ShadowsnapError,
    StoreTooNew,
    StoreUnusable,
)
from shadowsnap.git.deadline import NO_DEADLINE, Deadline
from shadowsnap.model import (
    Checkpoint,
    Checkup,
    ClearReport,
    Diff,
    Event,
    ImportedItem,
    ImportReport,
    Outcome,
    RestoreResult,
    Skipped,
)
from shadowsnap.records import Any, dataclass, field, replace
from shadowsnap.store.checkpoints import (
    delete_checkpoints,
    files_of,
    find_checkpoint,
    list_checkpoints,
    newest_name,
    set_label,
    set_pinned,
)
from shadowsnap.store.journal import read_journal
from shadowsnap.store.layout import REFS_LOST, Store, open_store
from shadowsnap.store.older import archives, is_due
from shadowsnap.store.projects import (
    Project,
    known_projects,
    locked_project,
    note_emptied,
    project_of,
    quiet_turns,
    read_record,
    was_emptied,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for what a snapshot does not need
    from typing import TypeVar

    from shadowsnap.engine.stage import Stage
    from shadowsnap.upkeep.results import PruneResult, StoreStatus

    _Deed = TypeVar("_Deed", bound=Callable[..., Any])

_REFUSALS = (DirectoryRefused, GitMissing, GitTooOld, StoreTooNew)
_DONE = ("taken", "unchanged", "partial")
_TROUBLE = ("failed", "partial", "refused")
# What the capture of single named files may take after the deadline of the whole ran out.
_GRACE_SECONDS = 5.0
_PROMPT_LENGTH = 2000
# A refusal last: an agent that works in the home directory names the files it writes.
_TELLING = ("failed", "partial", "taken", "unchanged", "already-taken", "refused", "disabled")

PathLike = str | os.PathLike[str]
_CURABLE = (GitFailed, DamagedObject, MalformedObject, StoreUnusable, CheckpointsLost, OSError)


def _once_more(deed: _Deed) -> _Deed:
    """For what is done to one directory: if the store fails it, the store is mended and it is
    tried once more."""

    @wraps(deed)
    def attempt(self: CheckpointManager, where: PathLike | Project, *args: Any, **more: Any) -> Any:
        began = time.time()
        try:
            return deed(self, where, *args, **more)
        except (OSError, ShadowsnapError) as problem:
            if not _is_curable(problem):
                raise
            note = self._mended(where, problem)
        return _after_mending(deed(self, where, *args, **more), note, began)

    return attempt  # type: ignore[return-value]


class CheckpointManager:
    """Snapshots and restores for any number of directories, from any number of threads."""

    def __init__(
        self,
        enabled: bool = True,
        max_snapshots: int = 20,
        max_total_size_mb: float = 500,
        max_file_size_mb: float = 10,
        base: PathLike | None = None,
        on_event: Callable[[Event], None] | None = None,
        **more: Any,
    ) -> None:
        self.settings = Settings(
            enabled, max_snapshots, max_total_size_mb, max_file_size_mb, Path(base) if base else None, **more
        )
        self._on_event = on_event
        self._turn = _Turn()
        self._turn_lock = threading.Lock()

    # --- turns: these never raise ------------------------------------------------------------

    def new_turn(self, session_id: str | None = None, prompt: str | None = None) -> None:
        """A new message of the person: the next writing tool call takes a new snapshot, which
        remembers what they asked for."""
        with self._turn_lock:
            self._turn = _Turn(session_id, str(prompt)[:_PROMPT_LENGTH] if prompt else None)

    def turn_state(self) -> dict[str, Any]:
        """This turn as JSON, for another process of the same agent to go on with."""
        turn = self._turn
        places = [slot.to_json() for slot in list(turn.slots.values()) if slot.project is not None]
        return {"session_id": turn.session_id, "prompt": turn.prompt, "places": places}

    def resume_turn(self, state: dict[str, Any]) -> None:
        """Go on with a turn of another process: what that one took is already taken. A state that
        cannot be read is a turn that just began."""
        turn = _Turn()
        try:
            turn = _Turn(state.get("session_id"), state.get("prompt"))
            slots = [_Slot.from_json(place) for place in state.get("places", ())]
            turn.slots = {slot.project.id: slot for slot in slots if slot.project is not None}
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        with self._turn_lock:
            self._turn = turn

    def before_tool(
        self,
        tool_name: str,
        tool_input: Any = None,
        cwd: PathLike | None = None,
        roots: Iterable[PathLike] = (),
    ) -> Outcome:
        """What an agent loop calls before each tool call: makes sure that everything this tool may
        write to is safe. That is the project around `cwd`, further `roots` of the workspace, and
        the projects of files that the input names; of a named file outside any project, the file
        alone. A tool that only reads is `not-needed`; of several directories, the outcome that
        matters most is returned and its note names the others."""
        if not self.settings.enabled:
            return Outcome("disabled")
        try:
            if not may_write(str(tool_name)):
                return Outcome("not-needed")
            where = os.path.abspath(os.fspath(cwd) if cwd else os.getcwd())
            base = self.settings.resolved_base()
            places = places_to_protect(tool_input, where, [os.fspath(root) for root in roots], base)
        except Exception as problem:  # promise 4, as below
            return Outcome("failed", error=problem)
        reason = f"before {tool_name} {first_name(places)}".rstrip()
        return _most_telling([
            (place.workdir, self._ensured(place.workdir, reason, place.files, tool_name, place.whole))
            for place in places
        ])  # fmt: skip

    def ensure_checkpoint(
        self,
        working_dir: PathLike,
        reason: str = "auto",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
    ) -> Outcome:
        """Make sure that the directory as it was at the beginning of this turn is safe. `paths`
        are files a tool names: they are captured even if ignored."""
        return self._ensured(working_dir, reason, paths, tool)

    def _ensured(
        self,
        working_dir: PathLike,
        reason: str,
        paths: Sequence[PathLike],
        tool: str | None,
        whole: bool = True,
    ) -> Outcome:
        if not self.settings.enabled:
            return Outcome("disabled")
        turn = self._turn
        try:
            named = [os.fspath(path) for path in _listed(paths)]
            outcome = self._ensure(turn, working_dir, str(reason), named, tool, whole)
        except _REFUSALS as problem:
            outcome = Outcome("refused", error=problem)
        except Exception as problem:  # promise 4: an agent is never stopped by its safety net
            outcome = Outcome("failed", error=problem)
        self._tell(f"checkpoint-{outcome.status}", working_dir, outcome=outcome)
        return outcome

    def snapshot(
        self,
        working_dir: PathLike,
        reason: str = "manual",
        paths: Sequence[PathLike] = (),
        tool: str | None = None,
        session_id: str | None = None,
        **labels: Any,
    ) -> Outcome:
        """Take a checkpoint now, whatever the turn. Unlike `ensure_checkpoint` it raises what goes
        wrong; `labels` are the host's own facts about it, kept in its metadata."""
        if not self.settings.enabled:
            return Outcome("disabled")
        project = project_of(working_dir)
        named = [path_inside(project.workdir, path) for path in _listed(paths)]
        facts = (*labels.items(), ("session_id", session_id), ("tool", tool))
        outcome = self._snapshot(project, Request(str(reason), "manual", None, facts), list(filter(None, named)))
        self._tell(f"checkpoint-{outcome.status}", working_dir, outcome=outcome)
        if outcome.checkpoint is None and outcome.error is not None:
            raise outcome.error
        return outcome

    def end_turn(self) -> list[Outcome]:
        """Close the turn with a snapshot of each directory that was touched in it."""
        turn, outcomes = self._turn, []
        for slot in list(turn.slots.values()):
            if slot.done is None or slot.whole is None:
                continue
            try:
                before = slot.done.checkpoint.id if slot.done.checkpoint is not None else None
                facts = (*_facts(turn, None), ("before", before))
                request = Request("end of turn", "turn-end", slot.turn, facts)
                outcomes.append(self._snapshot(slot.whole, request, []))
            except Exception as problem:
                outcomes.append(Outcome("failed", error=problem))
            self._tell(f"checkpoint-{outcomes[-1].status}", slot.whole.workdir, outcome=outcomes[-1])
        return outcomes

    # --- looking -----------------------------------------------------------------------------

    @_once_more
    def list_checkpoints(
        self,
        working_dir: PathLike,
        limit: int | None = None,
        session_id: str | None = None,
        path: PathLike | None = None,
    ) -> list[Checkpoint]:
        """Newest first; of one session, or only those in which one path changed (or, where there is
        nothing before them to compare with, that hold it)."""
        store, project = self._known(working_dir)
        inside = None if path is None else path_inside(project.workdir, path)
        narrow = session_id is not None or inside is not None
        found = list_checkpoints(store, project, self._deadline(), None if narrow else limit, path=inside)
        if inside is not None:
            from shadowsnap.store.touching import touching

            found = touching(store, found, inside, self._deadline())
        if session_id is not None:
            found = [checkpoint for checkpoint in found if checkpoint.session_id == session_id]
        return found[:limit]

    @_once_more
    def get(self, working_dir: PathLike, ref: str) -> Checkpoint:
        """The checkpoint that a hash prefix, `last`, `last~2` or a label names."""
        store, project = self._known(working_dir)
        return find_checkpoint(store, project, ref, self._deadline())

    @_once_more
    def diff(
        self, working_dir: PathLike, ref: str, other: str | None = None, paths: Sequence[PathLike] = ()
    ) -> Diff:
        """What changed from one checkpoint to another, or to the files on disk now."""
        from shadowsnap.engine.compare import compare
        from shadowsnap.engine.state import State

        store, project = self._known(working_dir)
        deadline = self._deadline()
        chosen = [path_inside(project.workdir, path) for path in _listed(paths)]
        first = find_checkpoint(store, project, ref, deadline)
        old = State.of_checkpoint(first)
        if other is not None:
            second = find_checkpoint(store, project, other, deadline)
            changes, text = compare(store.git(deadline), old, State.of_checkpoint(second), chosen)
            return Diff(first.id, second.id, changes, text)
        _check_there(project)
        with open_workspace(store, project, self.settings, deadline, "diff", lasting=False) as space:
            now = State.of_capture(capture_same_scope(space, old))
            return Diff(first.id, None, *compare(space.git, old, now, chosen))

    @_once_more
    def files(self, working_dir: PathLike, ref: str) -> list[str]:
        """Every file that a checkpoint holds."""
        store, project = self._known(working_dir)
        deadline = self._deadline()
        return files_of(store, find_checkpoint(store, project, ref, deadline), deadline)

    def projects(self) -> list[Path]:
        """Every directory that has checkpoints."""
        store = open_store(self.settings)
        return [project.workdir for project in known_projects(store) if newest_name(store, project) is not None]

    def find_project(self, directory: PathLike) -> Path:
        """The project that is meant by someone who stands in this directory: the nearest one at
        or above it that has checkpoints, as far up as their repository reaches. If there is none,
        the one that a snapshot would be taken of."""
        store, start = open_store(self.settings), project_of(directory).workdir
        for folder in (start, *start.parents):
            if folder != start and refusal(folder, store.base) is not None:
                break  # the home directory may have checkpoints of single files
            if newest_name(store, project_of(folder)) is not None:
                return folder
            if (folder / ".git").exists():
                break
        return self.get_working_dir_for_path(start) if start.is_dir() else start

    def get_working_dir_for_path(self, file_path: PathLike) -> Path:
        """The project a file belongs to: the nearest directory above it that looks like the root
        of one, never at or above the home directory; otherwise the file's own directory."""
        path = os.path.abspath(Path(file_path).expanduser())
        return project_root(path, self.settings.resolved_base()) or existing_folder(path)

    # --- going back and forth ----------------------------------------------------------------

    @_once_more
    def restore(
        self, working_dir: PathLike, ref: str, paths: Sequence[PathLike] = (), dry_run: bool = False
    ) -> RestoreResult:
        """Bring a state back, of everything or of some paths; `dry_run` returns the plan."""
        from shadowsnap.engine.restore import restore

        store, project = self._known(working_dir)
        with self._opened(store, project, "restore", lasting=not dry_run) as (space, note):
            target = find_checkpoint(store, project, ref, space.deadline)
            chosen = [path_inside(project.workdir, path, absolute=False) for path in _listed(paths)]
            return self._restored(replace(restore(space, target, chosen), note=note))

    @_once_more
    def undo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Return to the state before the last restore."""
        from shadowsnap.engine.restore import undo

        store, project = self._known(working_dir)
        with self._opened(store, project, "undo", lasting=not dry_run) as (space, note):
            return self._restored(replace(undo(space), note=note))

    @_once_more
    def redo(self, working_dir: PathLike, dry_run: bool = False) -> RestoreResult:
        """Take the last undo back."""
        from shadowsnap.engine.restore import redo

        store, project = self._known(working_dir)
        with self._opened(store, project, "redo", lasting=not dry_run) as (space, note):
            return self._restored(replace(redo(space), note=note))

    @_once_more
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
            return self._restored(replace(revert(space, work, what, on_conflict), note=note))

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

        store, project = open_store(self.settings), project_of(working_dir)
        facts = {"edit_id": edit_id, "session_id": session_id, "risk_tier": risk_tier}
        return Stage(lambda doing: self._opened_alone(store, project, doing), facts, message)

    # --- keeping -----------------------------------------------------------------------------

    @_once_more
    def pin(self, working_dir: PathLike, ref: str) -> Checkpoint:
        """Keep a checkpoint whatever the limits say."""
        return self._change(working_dir, ref, lambda *known: set_pinned(*known, pinned=True))

    @_once_more
    def unpin(self, working_dir: PathLike, ref: str) -> Checkpoint:
        return self._change(working_dir, ref, lambda *known: set_pinned(*known, pinned=False))

    @_once_more
    def label(self, working_dir: PathLike, ref: str, label: str | None) -> Checkpoint:
        """Give a checkpoint a name that can be used as a reference, or take it away."""
        return self._change(working_dir, ref, lambda *known: set_label(*known, label=label))

    @_once_more
    def delete(self, working_dir: PathLike, refs: str | Iterable[str]) -> list[Checkpoint]:
        """Drop checkpoints, pinned or not. Every other id stays what it is."""
        store, project = self._known(working_dir)
        deadline = self._deadline()
        wanted = [refs] if isinstance(refs, str) else list(refs)
        with locked_project(store, project, "delete", deadline):
            found = [find_checkpoint(store, project, ref, deadline) for ref in wanted]
            delete_checkpoints(store, project, found, deadline)
            if newest_name(store, project) is None:
                note_emptied(store, project)
        return found

    # --- upkeep ------------------------------------------------------------------------------

    def status(self) -> StoreStatus:
        """The store at a glance: sizes, projects, limits, what was not captured, what failed."""
        from shadowsnap.upkeep.status import read_status

        return read_status(open_store(self.settings), self.settings, self._deadline())

    def prune(
        self, dry_run: bool = False, *, orphans: bool = True, reclaim: str = "when-it-pays", **limits: Any
    ) -> PruneResult:
        """Keep the limits now: of the settings, or those given here (`max_snapshots`,
        `retention_days`, `max_total_size_mb` and so on). `dry_run` returns the plan. `reclaim`:
        `when-it-pays`, `always` or `never`; `orphans=False` keeps checkpoints of lost directories."""
        from shadowsnap.upkeep.run import plan_prune, prune

        settings = replace(self.settings, **limits)
        store = open_store(settings)
        if dry_run:
            return plan_prune(store, settings, orphans=orphans)
        result = prune(store, settings, orphans=orphans, reclaim=reclaim)
        self._tell("pruned", store.base, result=result)
        return result

    def auto_prune(self) -> PruneResult:
        """Keep the limits, at most once in `min_interval_hours`; for the start of a program. What
        takes time goes on in the background. Never raises."""
        from shadowsnap.upkeep.automatic import auto_prune
        from shadowsnap.upkeep.results import PruneResult

        try:
            result = auto_prune(self.settings)
        except Exception as problem:  # promise 4
            return PruneResult("failed", error=problem)
        if result.status == "done":
            self._tell("pruned", self.settings.resolved_base(), result=result)
        return result

    def doctor(self, repair: bool = False) -> Checkup:
        """Look at everything the store consists of: what is wrong, what that means, and what would be
        done about it. With `repair` it is done; what cannot be saved is set aside, never deleted."""
        from shadowsnap.upkeep import doctor

        deed = doctor.repair if repair else doctor.examine
        checkup = deed(self.settings.resolved_base(), self._deadline(), fsync=self.settings.fsync)
        if checkup.repaired:
            self._tell("healed", checkup.base, checkup=checkup)
        return checkup

    def clear(self, working_dir: PathLike, dry_run: bool = False) -> ClearReport:
        """Let go of every checkpoint of a directory, pinned or not; `dry_run` returns the plan."""
        from shadowsnap.upkeep.clear import clear, plan_clear

        store, project = self._known(working_dir)
        if dry_run:
            return plan_clear(store, project, self._deadline())
        if project.workdir.is_dir():
            with self._opened(store, project, "clear"):
                pass  # whatever restore was interrupted is finished now
        return clear(store, project, self._deadline(), Deadline(self.settings.upkeep_deadline))

    def clear_all(self, dry_run: bool = False) -> ClearReport:
        """Let go of every checkpoint of every directory; `dry_run` returns the plan."""
        from shadowsnap.upkeep.clear import clear_all, plan_clear_all

        return (plan_clear_all if dry_run else clear_all)(open_store(self.settings), self._deadline())

    def clear_legacy(self, dry_run: bool = False) -> ClearReport:
        """Remove the archived repositories of older tools; `dry_run` returns the plan."""
        from shadowsnap.upkeep.clear import clear_legacy, plan_clear_legacy

        return (plan_clear_legacy if dry_run else clear_legacy)(open_store(self.settings))

    def import_from(
        self,
        path: PathLike,
        dry_run: bool = False,
        on_progress: Callable[[int, int, ImportedItem], None] | None = None,
    ) -> ImportReport:
        """Take over the checkpoints of another tool: a store of Hermes or PraisonAI, or a repository with
        shadow branches of Entire. They keep their dates, reasons and trees; nothing is changed there.
        What was imported before is skipped. `on_progress` gets how many are done, of how many, and
        the last one."""
        from shadowsnap.upkeep.importing import import_from

        where = Path(os.path.abspath(Path(path).expanduser()))
        report = import_from(
            open_store(self.settings), where, NO_DEADLINE, dry_run=dry_run, on_progress=on_progress
        )
        if report.applied:
            self._tell("imported", where, report=report)
        return report

    # --- one attempt -------------------------------------------------------------------------

    def _ensure(
        self,
        turn: _Turn,
        working_dir: PathLike,
        reason: str,
        paths: list[str],
        tool: str | None,
        whole: bool,
    ) -> Outcome:
        project = project_of(working_dir)
        slot = turn.slot(project.id)
        began = time.monotonic()
        if not slot.lock.acquire(timeout=self.settings.deadline or -1):
            waited = time.monotonic() - began
            raise LockTimeout(seconds=waited, name=project.id, holder="another thread of this process")
        try:
            named, outside = _named_inside(project, paths)
            if slot.done is not None and not self._still_unprotected(project, slot, named):
                return Outcome("already-taken", slot.done.checkpoint, skipped=slot.done.skipped)
            request = Request(reason, "turn", slot.turn, _facts(turn, tool))
            outcome = self._snapshot(project, request, named, whole)
            if outside:
                outcome = replace(
                    outcome, skipped=(*outcome.skipped, *(Skipped(path, "outside") for path in outside))
                )
            if outcome.status in _DONE and not isinstance(outcome.error, DeadlineExceeded):
                slot.remember(outcome, project, named)
            return outcome
        finally:
            slot.lock.release()

    @_once_more
    def _still_unprotected(self, project: Project, slot: _Slot, named: list[bytes]) -> bool:
        """Whether a tool names something now that the snapshot of this turn does not hold."""
        new = set(named) - slot.named
        if not new or slot.whole is None:
            return bool(new)
        slot.named |= new
        store = open_store(self.settings)
        with open_workspace(store, project, self.settings, self._deadline(), "looking") as space:
            return bool(unprotected(space, new))

    @_once_more
    def _snapshot(
        self, project: Project, request: Request, named: list[bytes], whole: bool = True
    ) -> Outcome:
        store = open_store(self.settings)
        why = refusal(project.workdir, store.base) or _unusable(project.workdir)
        if why is None and not whole:
            why = "it does not look like a project, and the agent works elsewhere"
        if why is not None:
            problem = DirectoryRefused(workdir=project.workdir, why=why)
            return self._paths_alone(store, project, request, named, problem, "refused")
        try:
            with self._opened(store, project, request.kind) as (space, note):
                checkpoint, new = take_snapshot(space, request, named)
        except DeadlineExceeded as problem:
            return self._paths_alone(store, project, request, named, problem, "failed")
        return Outcome("taken" if new else "unchanged", checkpoint, skipped=checkpoint.skipped, note=note)

    def _paths_alone(
        self,
        store: Store,
        project: Project,
        request: Request,
        named: list[bytes],
        problem: Exception,
        otherwise: str,
    ) -> Outcome:
        """The whole directory cannot be had: capture at least what the tool names."""
        if not named or not project.workdir.is_dir():
            return Outcome(otherwise, error=problem)
        deadline = Deadline(_GRACE_SECONDS)
        with self._opened(store, project, request.kind, deadline=deadline) as (space, note):
            checkpoint = take_paths(space, request, named)
        return Outcome("partial", checkpoint, error=problem, skipped=checkpoint.skipped, note=note)

    # --- small steps -------------------------------------------------------------------------

    def _deadline(self) -> Deadline:
        return Deadline(self.settings.deadline)

    def _known(self, working_dir: PathLike) -> tuple[Store, Project]:
        """The store and a project that has checkpoints."""
        store, project = open_store(self.settings), project_of(working_dir)
        self._catch_up(store)
        if newest_name(store, project) is None:
            record = read_record(store, project)
            if record and not was_emptied(record):
                raise CheckpointsLost(workdir=project.workdir)
            raise NoSuchProject(workdir=project.workdir)
        return store, project

    def _catch_up(self, store: Store) -> None:
        """See to what has to be done before checkpoints are looked for."""
        if os.path.exists(store.git_dir / REFS_LOST):
            raise CheckpointsLost(workdir=store.base)
        if any(is_due(archive) for archive in archives(store.base)):
            from shadowsnap.upkeep.importing import import_due

            self._tell("imported", store.base, report=import_due(store, self._deadline()))

    def _mended(self, where: PathLike | Project, problem: Exception) -> str:
        """Mend what made an operation fail, and say what that was; if nothing is found, the problem
        is raised again."""
        from shadowsnap.upkeep.healing import heal, is_full

        base, project = self.settings.resolved_base(), where if isinstance(where, Project) else project_of(where)
        if is_full(problem):
            if isinstance(problem, (RestoreFailed, PresentNotSaved)):
                raise problem  # which says what became of the files
            raise DiskFull(path=base) from problem
        healed = heal(base, project, problem, self._deadline(), fsync=self.settings.fsync)
        if not healed.repaired:
            if isinstance(problem, OSError):
                raise StoreUnusable(path=base, why=problem) from problem
            raise problem
        self._tell("healed", project.workdir, checkup=healed, problem=problem)
        return f"mended: {', '.join(sorted({finding.code for finding in healed.repaired}))}"

    @contextmanager
    def _opened(
        self, store: Store, project: Project, doing: str, *, lasting: bool = True, deadline: Deadline | None = None
    ) -> Iterator[tuple[Workspace, str]]:
        """A locked workspace in which no earlier restore is left half done."""
        _check_there(project)
        deadline = deadline or self._deadline()
        with open_workspace(store, project, self.settings, deadline, doing, lasting=lasting) as space:
            note = _recovered(space) if lasting else ""
            if note:
                self._tell("recovered", project.workdir, note=note)
            yield space, note

    @contextmanager
    def _opened_alone(self, store: Store, project: Project, doing: str) -> Iterator[Workspace]:
        with self._opened(store, project, doing) as (space, _):
            yield space

    def _change(
        self,
        working_dir: PathLike,
        ref: str,
        deed: Callable[[Store, Project, Checkpoint, Deadline], Checkpoint],
    ) -> Checkpoint:
        store, project = self._known(working_dir)
        deadline = self._deadline()
        with locked_project(store, project, "change", deadline):  # so that upkeep does not drop it meanwhile
            return deed(store, project, find_checkpoint(store, project, ref, deadline), deadline)

    def _restored(self, result: RestoreResult) -> RestoreResult:
        if result.applied:
            self._tell("restored", result.target.workdir, result=result)
        return result

    def _tell(self, kind: str, working_dir: PathLike, **facts: Any) -> None:
        if "outcome" in facts:
            self._follow_up(facts["outcome"], working_dir)
        if self._on_event is None:
            return
        try:
            self._on_event(Event(kind, os.fspath(working_dir), facts))
        except Exception:  # a listener's error is the listener's, not the agent's
            pass

    def _follow_up(self, outcome: Outcome, working_dir: PathLike) -> None:
        """Note what went wrong for `status`, and start upkeep in the background if it is due."""
        try:
            if outcome.status in _TROUBLE:
                from shadowsnap.store.log import note_trouble

                note_trouble(self.settings.resolved_base(), os.fspath(working_dir), outcome)
            elif outcome.status == "taken" and outcome.checkpoint and self.settings.background_upkeep:
                from shadowsnap.upkeep.due import why_due

                store = Store(self.settings.resolved_base(), self.settings.fsync)
                if why_due(store, Project(outcome.checkpoint.project, Path()), self.settings):
                    from shadowsnap.upkeep.background import start_upkeep

                    start_upkeep(store, self.settings)
        except Exception:  # the snapshot is what counts
            pass


# --- one turn --------------------------------------------------------------------------------


@dataclass
class _Slot:
    """One directory in one turn: whoever comes second waits for the first."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: Outcome | None = None
    named: set[bytes] = field(default_factory=set)
    turn: int | None = None
    project: Project | None = None
    whole: Project | None = None
    """The same, if all of it was taken."""

    def to_json(self) -> dict[str, Any]:
        workdir = str(self.project.workdir) if self.project else ""
        named = sorted(os.fsdecode(path) for path in self.named)
        return {"workdir": workdir, "turn": self.turn, "named": named, "whole": self.whole is not None}

    @classmethod
    def from_json(cls, place: dict[str, Any]) -> _Slot:
        project = project_of(place["workdir"])
        named = {os.fsencode(path) for path in place["named"]}
        taken, whole = Outcome("already-taken"), project if place["whole"] else None
        return cls(done=taken, named=named, turn=place["turn"], project=project, whole=whole)

    def remember(self, outcome: Outcome, project: Project, named: list[bytes]) -> None:
        self.done, self.project = outcome, project
        self.named.update(named)
        if outcome.status == "taken" and outcome.checkpoint is not None:
            self.turn = outcome.checkpoint.turn
        if outcome.status != "partial":
            self.whole = project


@dataclass
class _Turn:
    session_id: str | None = None
    prompt: str | None = None
    slots: dict[str, _Slot] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def slot(self, project: str) -> _Slot:
        with self.lock:
            return self.slots.setdefault(project, _Slot())


def _is_curable(problem: BaseException) -> bool:
    """Whether the store may be to blame, also behind the error of a restore that changed nothing."""
    if isinstance(problem, (RestoreFailed, PresentNotSaved)) and problem.__cause__ is not None:
        problem = problem.__cause__
    return isinstance(problem, _CURABLE)


def _after_mending(result: Any, note: str, began: float) -> Any:
    """The result of a second attempt, which says what was mended."""
    if not isinstance(result, (Outcome, RestoreResult)):
        return result
    told = replace(result, note="; ".join(filter(None, (note, result.note))))
    if isinstance(told, Outcome) and told.status == "unchanged" and told.checkpoint is not None:
        # The first attempt may have failed just after it had recorded the checkpoint.
        new = told.checkpoint.created_at.timestamp() >= began
        return replace(told, status="taken") if new else told
    return told


def _facts(turn: _Turn, tool: str | None) -> tuple[tuple[str, Any], ...]:
    return (("session_id", turn.session_id), ("prompt", turn.prompt), ("tool", tool))


def _most_telling(found: list[tuple[Path, Outcome]]) -> Outcome:
    """One outcome for several directories: trouble first, then what was taken."""
    chosen = min(found, key=lambda item: _TELLING.index(item[1].status))
    others = [f"{workdir}: {outcome.status}" for workdir, outcome in found if outcome is not chosen[1]]
    return replace(chosen[1], note="; ".join(filter(None, (chosen[1].note, *others))))


def _named_inside(project: Project, paths: list[str]) -> tuple[list[bytes], list[str]]:
    inside, outside = [], []
    for path in paths:
        try:
            inside.append(path_inside(project.workdir, path))
        except PathRefused:
            outside.append(path)
    return [path for path in inside if path], outside


def _recovered(space: Workspace) -> str:
    """Finish or put back what died half way, and say so. There hardly ever is anything."""
    journal = read_journal(space.store, space.project)
    if not (journal.open or journal.leftover or journal.stages):
        return journal.told
    from shadowsnap.engine.restore import recover
    from shadowsnap.engine.stage import recover_stages

    return "; ".join(filter(None, (journal.told, recover(space), recover_stages(space))))


def _check_there(project: Project) -> None:
    if not project.workdir.is_dir():
        raise DirectoryMissing(workdir=project.workdir)


def _unusable(workdir: Path) -> str | None:
    if workdir.is_dir():
        return None
    return "it is not a directory" if workdir.exists() else "it does not exist"


def _listed(paths: Sequence[PathLike] | PathLike) -> Sequence[PathLike]:
    return [paths] if isinstance(paths, (str, os.PathLike)) else paths
