"""What every part of the manager stands on: settings, the store, mending, telling."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from shadowsnap.deadline import Deadline, Watch
from shadowsnap.errors import (
    BadArguments,
    CheckpointsLost,
    DamagedObject,
    DirectoryMissing,
    DiskFull,
    GitFailed,
    MalformedObject,
    NoSuchProject,
    PresentNotSaved,
    RestoreFailed,
    ShadowsnapError,
    StoreUnusable,
)
from shadowsnap.manager.scribe import Scribe
from shadowsnap.manager.turnstate import Turn
from shadowsnap.model import Outcome, RestoreResult
from shadowsnap.records import Any, replace
from shadowsnap.settings import CHOICES, Settings
from shadowsnap.snapshot.workspace import Workspace, open_workspace
from shadowsnap.store.checkpoints import newest_name
from shadowsnap.store.journal import read_journal
from shadowsnap.store.layout import OWN_OBJECTS, REFS_LOST, Store, open_store
from shadowsnap.store.projects import Project, project_of, read_record, was_emptied

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for what a snapshot does not need
    from typing import TypeVar

    from shadowsnap.events import Event
    from shadowsnap.settings import Layers
    from shadowsnap.snapshot.watch import Watcher

    _Deed = TypeVar("_Deed", bound=Callable[..., Any])
    _Manager = TypeVar("_Manager", bound="Core")

PathLike = str | os.PathLike[str]

_TOLD_AS = {
    "taken": "CheckpointTaken",
    "partial": "CheckpointTaken",
    "unchanged": "CheckpointUnchanged",
    "already-taken": "CheckpointSkipped",
    "refused": "CheckpointSkipped",
}
_TROUBLE = ("failed", "partial", "refused")
_MOST_TO_OWN_NOW = 16 << 20
_PATIENCE_WITH_UPKEEP = 600.0
_CURABLE = (GitFailed, DamagedObject, MalformedObject, StoreUnusable, CheckpointsLost, OSError)


def once_more(deed: _Deed) -> _Deed:
    """For what is done to one directory: if the store fails it, the store is mended and it is
    tried once more."""

    @wraps(deed)
    def attempt(self: Core, where: PathLike | Project, *args: Any, **more: Any) -> Any:
        began = time.time()
        try:
            return deed(self, where, *args, **more)
        except (OSError, ShadowsnapError) as problem:
            if not _is_curable(problem):
                raise
            note = self._mended(where, problem)
        return _after_mending(deed(self, where, *args, **more), note, began)

    return attempt  # type: ignore[return-value]


class Core:
    """The settings and the ways to a project's files."""

    _slow_after: Sequence[float] = (0.5, 10.0)
    """Seconds after which an operation on a project is told to take long."""

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
        for name, choices in CHOICES.items():
            if getattr(self.settings, name) not in choices:
                raise BadArguments(what=f"{name} must be {' or '.join(choices)}")
        self.warnings: list[str] = []
        """What was ignored in settings files and variables, and why."""
        self._layers: Layers | None = None
        self._on_event = on_event
        self._turn = Turn()
        self._turn_lock = allocate_lock()
        self._scribe = Scribe()
        self._watchers: dict[str, Watcher] = {}

    @classmethod
    def from_settings(
        cls: type[_Manager], on_event: Callable[[Event], None] | None = None, **flags: Any
    ) -> _Manager:
        """With the person's own settings: their settings file, SHADOWSNAP_* variables, and `flags`
        above all. Each project may narrow them for itself."""
        from shadowsnap.settings import load_settings

        manager = cls(on_event=on_event)
        manager._layers = load_settings(**flags)
        manager.settings, manager.warnings = manager._layers.settings, list(manager._layers.warnings)
        return manager

    def _deadline(self, workdir: Path | None = None) -> Deadline:
        """A new one; where it is about a directory, it tells when the time gets long."""
        if self._on_event is None or workdir is None:
            return Deadline(self.settings.deadline)

        def tell(doing: str, seconds: float, done: int | None, total: int | None) -> None:
            self._tell("Slow", workdir, doing=doing, seconds=seconds, done=done, total=total)

        return Deadline(self.settings.deadline, Watch(tell, self._slow_after))

    def _store(self) -> Store:
        """The store, made on first use."""
        store = open_store(self.settings, lambda store: self._tell("StoreCreated", store.base))
        if not os.path.exists(store.git_dir / OWN_OBJECTS):
            self._own_objects(store)
        return store

    def _own_objects(self, store: Store) -> None:
        """Once for a store of an earlier version: nothing in it may depend on files elsewhere. If that takes
        long, upkeep does it in the background."""
        from shadowsnap.store.locks import if_free
        from shadowsnap.upkeep.background import start_upkeep
        from shadowsnap.upkeep.check_store import own_all_objects
        from shadowsnap.upkeep.reclaim import upkeep_lock

        most = _MOST_TO_OWN_NOW if self.settings.background_upkeep else None
        begun = store.git_dir / f"{OWN_OBJECTS}.begun"
        try:
            if begun.exists() and time.time() - begun.stat().st_mtime < _PATIENCE_WITH_UPKEEP:
                return
            with if_free(upkeep_lock(store), "upkeep") as lock:
                done = lock is None or own_all_objects(store, most)
            if not done:
                begun.touch()
                start_upkeep(store, self.settings)
        except OSError:
            pass  # a full or closed disk: the next call tries again

    def _settings_of(self, project: Project) -> Settings:
        if self._layers is None:
            return self.settings
        settings, warnings = self._layers.narrowed_by(project.workdir)
        self.warnings += [text for text in warnings if text not in self.warnings]
        return settings

    def _known(self, working_dir: PathLike) -> tuple[Store, Project]:
        """The store and a project that has checkpoints."""
        store, project = self._store(), project_of(working_dir)
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
        from shadowsnap.store.layout import archives, is_due

        if any(is_due(archive) for archive in archives(store.base)):
            from shadowsnap.upkeep.importing import import_due

            self._tell("Imported", store.base, report=import_due(store, self._deadline()))

    def _mended(self, where: PathLike | Project, problem: Exception) -> str:
        """Mend what made an operation fail, and say what that was; if nothing is found, the problem
        is raised again."""
        from shadowsnap.upkeep.doctor import is_disk_full, repair_quickly

        base, project = self.settings.resolved_base(), where if isinstance(where, Project) else project_of(where)
        if is_disk_full(problem):
            if isinstance(problem, (RestoreFailed, PresentNotSaved)):
                raise problem  # which says what became of the files
            raise DiskFull(path=base) from problem
        healed = repair_quickly(base, project, problem, self._deadline(), fsync=self.settings.fsync)
        if not healed.repaired:
            if isinstance(problem, OSError):
                raise StoreUnusable(path=base, why=problem) from problem
            raise problem
        self._tell("Healed", project.workdir, checkup=healed, problem=problem)
        return f"mended: {', '.join(sorted({finding.code for finding in healed.repaired}))}"

    @contextmanager
    def _opened(
        self, store: Store, project: Project, doing: str, *, lasting: bool = True, deadline: Deadline | None = None
    ) -> Iterator[tuple[Workspace, str]]:
        """A locked workspace in which no earlier restore is left half done."""
        check_there(project)
        deadline, settings = deadline or self._deadline(project.workdir), self._settings_of(project)
        note = ""
        try:
            watcher = self._watchers.get(project.id)
            with open_workspace(
                store, project, settings, deadline, doing, lasting=lasting, watcher=watcher
            ) as space:
                note = _recovered(space) if lasting else ""
                yield space, note
        finally:  # when the project is free again: a listener may want to look at it
            if note:
                self._tell("Recovered", project.workdir, note=note)

    def _tell(self, event: str, working_dir: PathLike, **facts: Any) -> None:
        """Tell whoever listens of an event, by the name of its class."""
        if self._on_event is None:
            return
        try:
            from shadowsnap import events

            self._on_event(getattr(events, event)(os.fspath(working_dir), **facts))
        except Exception:  # a listener's error is the listener's, not the agent's
            _log_listener(event)

    def _tell_outcome(self, working_dir: PathLike, outcome: Outcome) -> None:
        """Tell what came of a snapshot, and see to what follows from it."""
        self._follow_up(outcome, working_dir)
        self._tell(_TOLD_AS.get(outcome.status, "CheckpointFailed"), working_dir, outcome=outcome)

    def _follow_up(self, outcome: Outcome, working_dir: PathLike) -> None:
        """Note what went wrong for `status`, and start upkeep in the background if it is due."""
        try:
            if outcome.status in _TROUBLE:
                from shadowsnap.store.troubles import note_trouble

                note_trouble(self.settings.resolved_base(), os.fspath(working_dir), outcome)
            elif outcome.status == "taken" and outcome.checkpoint and self.settings.background_upkeep:
                from shadowsnap.upkeep.background import why_due

                store = Store(self.settings.resolved_base(), self.settings.fsync)
                if why_due(store, Project(outcome.checkpoint.project, Path()), self.settings):
                    from shadowsnap.upkeep.background import start_upkeep

                    start_upkeep(store, self.settings)
        except Exception:  # the snapshot is what counts
            pass


def _log_listener(event: str) -> None:
    import logging

    logging.getLogger("shadowsnap").exception("on_event failed when it was told of %s", event)


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


def _recovered(space: Workspace) -> str:
    """Finish or put back what died half way, and say so. There hardly ever is anything."""
    journal = read_journal(space.store, space.project)
    if not (journal.open or journal.leftover or journal.stages):
        return journal.told
    from shadowsnap.restore.restore import recover
    from shadowsnap.restore.stage import recover_stages

    return "; ".join(filter(None, (journal.told, recover(space), recover_stages(space))))


def check_there(project: Project) -> None:
    if not project.workdir.is_dir():
        raise DirectoryMissing(workdir=project.workdir)


def as_list(paths: Sequence[PathLike] | PathLike) -> Sequence[PathLike]:
    return [paths] if isinstance(paths, (str, os.PathLike)) else paths
