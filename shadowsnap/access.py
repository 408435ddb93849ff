"""How a manager reaches the store and the projects in it: pending work first, then a deadline, repair after an
error, and events."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from shadowsnap.deadline import Deadline, ProgressReporter
from shadowsnap.errors import (
    CheckpointsLost,
    CheckpointsSetAside,
    DamagedObject,
    DeadlineExceeded,
    DirectoryMissing,
    DiskFull,
    GitFailed,
    LockTimeout,
    MalformedObject,
    NoSuchProject,
    NoSuchTurn,
    PresentNotSaved,
    RestoreFailed,
    ShadowsnapError,
    StoreUnusable,
)
from shadowsnap.files import check_resources, read_json
from shadowsnap.model import Checkpoint, Entry, Outcome, RestoreResult
from shadowsnap.settings import Layers, Settings, SettingValues, load_settings
from shadowsnap.snapshot.scan import files_to_examine
from shadowsnap.snapshot.tools import existing_folder, project_root, refusal
from shadowsnap.snapshot.workspace import Workspace, open_workspace
from shadowsnap.store.checkpoints import newest_name
from shadowsnap.store.history import ensure_log, resolve
from shadowsnap.store.layout import OWN_OBJECTS, REFS_LOST, Store, archives, is_due, open_store
from shadowsnap.store.locks import if_free
from shadowsnap.store.projects import (
    PURGED,
    Project,
    may_lack_checkpoints,
    project_of,
    read_journal,
    read_record,
    unfinished_purges,
)
from shadowsnap.store.stat_cache import load_cache
from shadowsnap.upkeep import start_upkeep

if TYPE_CHECKING:  # for annotations: a hook has no listener and watches nothing by itself
    from shadowsnap.events import Event
    from shadowsnap.snapshot.watch import Watcher

PathLike = str | os.PathLike[str]
Reference = str | int | Checkpoint | Entry

_Method = TypeVar("_Method", bound=Callable[..., Any])
_REPAIRABLE = (GitFailed, DamagedObject, MalformedObject, StoreUnusable, CheckpointsLost, OSError)
_MOST_TO_OWN_NOW = 16 << 20
_PATIENCE_WITH_UPKEEP = 600.0


def retry_after_repair(method: _Method) -> _Method:
    """For methods about one directory, of an object that has an `_access`: if the store fails one, the store is
    repaired and it runs once more."""

    @wraps(method)
    def attempt(self: Any, where: PathLike | Project, *args: Any, **more: Any) -> Any:
        began = time.time()
        try:
            return method(self, where, *args, **more)
        except (OSError, ShadowsnapError) as problem:
            if not _is_repairable(problem):
                raise
            repaired = self._access.repair(where, problem)
        return _after_repair(method(self, where, *args, **more), repaired, began)

    return attempt  # type: ignore[return-value]


class Access:
    """What the parts of one manager share: the settings, the way to the store and into its projects, and the
    listener."""

    def __init__(self, settings: Settings, on_event: Callable[[Event], None] | None = None) -> None:
        self.settings = settings
        self.warnings: list[str] = []
        """What was ignored in settings files and variables, and why."""
        self.slow_after: Sequence[float] = (0.5, 10.0)
        """Seconds after which a `Slow` event is emitted for an operation on a project."""
        self.watchers: dict[str, Watcher] = {}
        """What reports changes in a project, by its id."""
        self._layers: Layers | None = None
        self._on_event = on_event

    @classmethod
    def of_person(
        cls, on_event: Callable[[Event], None] | None = None, **flags: Unpack[SettingValues]
    ) -> Access:
        """With the person's own settings: their settings file, SHADOWSNAP_* variables, and `flags` above all. Each
        project may narrow them for itself."""
        layers = load_settings(**flags)
        access = cls(layers.settings, on_event)
        access._layers, access.warnings = layers, list(layers.warnings)
        return access

    def settings_of(self, project: Project) -> Settings:
        if self._layers is None:
            return self.settings
        settings, warnings = self._layers.narrowed_by(project.workdir)
        self.warnings += [text for text in warnings if text not in self.warnings]
        return settings

    def deadline(self, workdir: Path | None = None) -> Deadline:
        """A new one; where it is about a directory, it emits events when the time gets long."""
        if self._on_event is None or workdir is None:
            return Deadline(self.settings.deadline)

        def slow(doing: str, seconds: float, done: int | None, total: int | None) -> None:
            self.emit("Slow", workdir, doing=doing, seconds=seconds, done=done, total=total)

        return Deadline(self.settings.deadline, ProgressReporter(slow, self.slow_after))

    def long_deadline(self) -> Deadline:
        """For what writes a whole state or rewrites the store, and is not on the path of an agent."""
        return Deadline(self.settings.upkeep_deadline)

    def emit(self, event: str, about: PathLike, **facts: Any) -> None:
        """Call the listener with an event, by the name of its class. Without a listener, no event is made."""
        if self._on_event is None:
            return
        import logging  # here, as below: a hook has no listener

        from shadowsnap import events

        try:
            self._on_event(getattr(events, event)(os.fspath(about), **facts))
        except Exception:  # a listener's error is the listener's, not the agent's
            logging.getLogger("shadowsnap").exception("on_event failed on %s", event)

    # --- the store ------------------------------------------------------------------------------------

    def store(self) -> Store:
        """The store, made on first use."""
        store = open_store(self.settings, lambda store: self.emit("StoreCreated", store.base))
        if not os.path.exists(store.git_dir / OWN_OBJECTS):
            self._own_objects(store)
        return store

    def store_to_look_in(self) -> Store | None:
        """The store; None if not even its directory is there. Looking makes none."""
        try:
            os.lstat(self.settings.resolved_base())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            pass  # nothing is known of it: opening it says why
        return self.store()

    def catch_up(self, store: Store) -> None:
        """Do what has to be done before checkpoints are looked for."""
        if os.path.exists(store.git_dir / REFS_LOST):
            raise CheckpointsLost(workdir=store.base)
        self.import_due(store)
        self.finish_purges(store)

    def import_due(self, store: Store) -> None:
        """Import what older tools left in the base, if that is still to be done."""
        if any(is_due(archive) for archive in archives(store.base)):
            from shadowsnap.upkeep import importing  # here, as below: hardly any hook needs it

            report = importing.import_due(store, self.deadline(), self.settings.max_file_bytes)
            self.emit("Imported", store.base, report=report)

    def finish_purges(self, store: Store) -> None:
        """Finish what purges that died began: until then some checkpoints are there twice."""
        if not os.path.exists(store.git_dir / PURGED):
            return
        from shadowsnap.upkeep import clear

        for project in unfinished_purges(store):
            record = read_json(store.project_file(project)) or {}
            with suppress(LockTimeout, DeadlineExceeded):  # the next call tries again
                where = Project(project, Path(str(record.get("workdir", ""))))
                clear.finish_interrupted(store, where, self.deadline())

    def waiting(self, store: Store) -> Callable[[], None]:
        """Reports that upkeep of another process is waited for."""
        doing = "waiting for upkeep that is under way"
        return partial(self.emit, "Slow", store.base, doing=doing, seconds=0.0)

    def _own_objects(self, store: Store) -> None:
        """Once for a store of an earlier version: nothing in it may depend on files elsewhere. If that takes
        long, upkeep does it in the background."""
        from shadowsnap.upkeep import check_store, reclaim

        most = _MOST_TO_OWN_NOW if self.settings.background_upkeep else None
        begun = store.git_dir / f"{OWN_OBJECTS}.begun"
        try:
            if begun.exists() and time.time() - begun.stat().st_mtime < _PATIENCE_WITH_UPKEEP:
                return
            with if_free(reclaim.upkeep_lock(store), "upkeep") as lock:
                done = lock is None or check_store.own_all_objects(store, most)
            if not done:
                begun.touch()
                start_upkeep(store, self.settings)
        except OSError:
            pass  # a full or closed disk: the next call tries again

    # --- a project ------------------------------------------------------------------------------------

    def known(self, working_dir: PathLike) -> tuple[Store, Project]:
        """The store and a project that has checkpoints."""
        store, project = self.store_to_look_in(), project_of(working_dir)
        if store is None:
            raise _no_checkpoints(project)
        self.catch_up(store)
        if newest_name(store, project) is None:
            record = read_record(store, project)
            if record and not may_lack_checkpoints(store, project.id, record):
                raise CheckpointsLost(workdir=project.workdir)
            if isinstance(place := record.get("set_aside"), str) and place:
                raise CheckpointsSetAside(workdir=project.workdir, place=place)
            raise _no_checkpoints(project)
        return store, project

    def project_around(self, path: PathLike) -> Path:
        """The project a file belongs to, see `CheckpointManager.get_working_dir_for_path`."""
        whole = os.path.abspath(Path(path).expanduser())
        return project_root(whole, self.settings.resolved_base()) or existing_folder(whole)

    def resolve(self, store: Store, project: Project, ref: Reference) -> Checkpoint:
        """The checkpoint that a reference stands for."""
        if isinstance(ref, Checkpoint):
            ref = ref.id
        elif isinstance(ref, Entry):
            if ref.state is None:
                raise NoSuchTurn(workdir=project.workdir, what=f"a state before {ref.reason or 'that entry'}")
            ref = ref.state
        return resolve(store, project, str(ref), self.deadline())

    @contextmanager
    def opened(
        self, store: Store, project: Project, doing: str, *, lasting: bool = True, deadline: Deadline | None = None
    ) -> Iterator[tuple[Workspace, str]]:
        """A locked workspace in which no earlier restore is left half done; also what was recovered."""
        check_there(project)
        recovered = ""
        try:
            with self._workspace(store, project, doing, lasting, deadline) as space:
                if lasting:
                    ensure_log(store, project, space.deadline)
                    recovered = _recovered(space)
                yield space, recovered
        finally:  # when the project is free again: a listener may want to look at it
            if recovered:
                self.emit("Recovered", project.workdir, note=recovered)

    @contextmanager
    def opened_alone(self, store: Store, project: Project, doing: str) -> Iterator[Workspace]:
        with self.opened(store, project, doing) as (space, _):
            yield space

    @contextmanager
    def looking(self, store: Store, project: Project, doing: str) -> Iterator[Workspace]:
        """A workspace in which nothing is written."""
        with self._workspace(store, project, doing, lasting=False) as space:
            yield space

    def _workspace(
        self, store: Store, project: Project, doing: str, lasting: bool, deadline: Deadline | None = None
    ) -> AbstractContextManager[Workspace]:
        settings, watcher = self.settings_of(project), self.watchers.get(project.id)
        deadline = deadline or self.deadline(project.workdir)
        return open_workspace(store, project, settings, deadline, doing, lasting=lasting, watcher=watcher)

    # --- watching -------------------------------------------------------------------------------------

    def watch(self, working_dir: PathLike) -> bool:
        """Let the system report what happens in a directory; whether it does."""
        from shadowsnap.snapshot.watch import start_watching  # here: no hook begins to watch by itself

        try:
            project, store = project_of(working_dir), self.store()
            watched = self.watchers.get(project.id)
            if watched is not None and watched.is_alive:
                return True
            refused = not project.workdir.is_dir() or refusal(project.workdir, store.base)
            if refused or not self.settings_of(project).enabled:
                return False
            watcher = start_watching(project.workdir, load_cache(store, project).directories)
            if watcher is None:
                return False
            self.watchers[project.id] = watcher
        except Exception:  # promise 4: the snapshots will report what is wrong
            return False
        return True

    def unwatch(self, working_dir: PathLike) -> None:
        watcher = self.watchers.pop(project_of(working_dir).id, None)
        if watcher is not None:
            watcher.close()

    def compare_watched(self, working_dir: PathLike) -> None:
        """Compare all files of a watched directory by their stat data. Some writes cause no event: through a
        memory map, or through a hard link elsewhere. The next snapshot looks at the files that are found."""
        project = project_of(working_dir)
        watcher = self.watchers.get(project.id)
        if watcher is None or not watcher.knows:
            return
        began_at = time.time()
        try:
            # Without the lock: no tool waits for this, not even if this process is stopped meanwhile.
            store = self.store()
            git = store.git(self.deadline(project.workdir))
            here = git.bound(work_tree=project.workdir, index_file=store.index_file(project.id))
            watcher.note_compared(files_to_examine(here), began_at)
        except BaseException:
            watcher.doubt()
            raise

    # --- repair ---------------------------------------------------------------------------------------

    def repair(self, where: PathLike | Project, problem: Exception) -> str:
        """Repair what made an operation fail, and say what that was; if nothing is found, the problem is raised
        again."""
        from shadowsnap.upkeep import doctor

        if isinstance(problem, OSError):
            check_resources(problem)
        base, project = self.settings.resolved_base(), where if isinstance(where, Project) else project_of(where)
        if doctor.is_disk_full(problem):
            if isinstance(problem, (RestoreFailed, PresentNotSaved)):
                raise problem  # which says what became of the files
            raise DiskFull(path=base) from problem
        healed = doctor.repair_quickly(base, project, problem, self.deadline(), fsync=self.settings.fsync)
        if not healed.repaired:
            if isinstance(problem, OSError):
                raise StoreUnusable(path=base, why=problem) from problem
            raise problem
        self.emit("Healed", project.workdir, checkup=healed, problem=problem)
        return f"repaired: {', '.join(sorted({finding.code for finding in healed.repaired}))}"


def _no_checkpoints(project: Project) -> NoSuchProject:
    if os.path.lexists(project.workdir):
        return NoSuchProject(workdir=project.workdir)
    hint = "shadowsnap list --all-projects shows the directories that have some"
    return NoSuchProject(workdir=f"{project.workdir}, which does not exist", hint=hint)


def check_there(project: Project) -> None:
    if not project.workdir.is_dir():
        raise DirectoryMissing(workdir=project.workdir)


def _recovered(space: Workspace) -> str:
    """Finish or roll back an interrupted restore or stage; returns a note. Usually there is none."""
    journal = read_journal(space.store, space.project)
    if not (journal.open or journal.leftover or journal.stages):
        return journal.note
    from shadowsnap.restore import restore

    return "; ".join(filter(None, (journal.note, restore.recover(space), restore.recover_stages(space))))


def _is_repairable(problem: BaseException) -> bool:
    """Whether the store may be the cause, also behind the error of a restore that changed nothing."""
    if isinstance(problem, (RestoreFailed, PresentNotSaved)) and problem.__cause__ is not None:
        problem = problem.__cause__
    return isinstance(problem, _REPAIRABLE)


def _after_repair(result: Any, repaired: str, began: float) -> Any:
    """The result of a second attempt, with a note of what was repaired."""
    if isinstance(result, tuple) and result and isinstance(result[0], Outcome):
        return (_after_repair(result[0], repaired, began), *result[1:])
    if not isinstance(result, (Outcome, RestoreResult)):
        return result
    result = replace(result, note="; ".join(filter(None, (repaired, result.note))))
    if isinstance(result, Outcome) and result.status == "unchanged" and result.checkpoint is not None:
        # The first attempt may have failed just after it had recorded the checkpoint.
        new = result.checkpoint.created_at.timestamp() >= began
        return replace(result, status="taken") if new else result
    return result
