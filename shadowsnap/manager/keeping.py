"""Keeping: pins and labels, limits, health, and what other tools left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import BadArguments
from shadowsnap.manager.core import Core, PathLike, as_list, once_more
from shadowsnap.model import Checkpoint, Checkup, ClearReport, ImportedItem, ImportReport
from shadowsnap.records import Any, replace
from shadowsnap.steps import step
from shadowsnap.store.checkpoints import delete_checkpoints, find_checkpoint, newest_name, set_label, set_pinned
from shadowsnap.store.layout import Store, mark_pruned
from shadowsnap.store.projects import Project, locked_project, note_emptied

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for what a snapshot does not need
    from shadowsnap.upkeep.purge import PurgeResult
    from shadowsnap.upkeep.reclaim import Reclaimed
    from shadowsnap.upkeep.run import PruneResult
    from shadowsnap.upkeep.status import StoreStatus


class Keeping(Core):
    @once_more
    def pin(self, working_dir: PathLike, ref: str) -> Checkpoint:
        """Keep a checkpoint whatever the limits say."""
        return self._change(working_dir, ref, lambda *known: set_pinned(*known, pinned=True))

    @once_more
    def unpin(self, working_dir: PathLike, ref: str) -> Checkpoint:
        return self._change(working_dir, ref, lambda *known: set_pinned(*known, pinned=False))

    @once_more
    def label(self, working_dir: PathLike, ref: str, label: str | None) -> Checkpoint:
        """Give a checkpoint a name that can be used as a reference, or take it away."""
        return self._change(working_dir, ref, lambda *known: set_label(*known, label=label))

    def delete(self, working_dir: PathLike, refs: str | Iterable[str], now: bool = False) -> list[Checkpoint]:
        """Drop checkpoints, pinned or not. Every other id stays what it is. With `now`, what no checkpoint holds
        any more is gone from the disk when this returns; otherwise upkeep reclaims it when that pays."""
        found = self._delete(working_dir, [refs] if isinstance(refs, str) else list(refs))
        if now:
            reclaimed = self.reclaim()
            if reclaimed.error is not None:
                raise reclaimed.error
        return found

    @once_more
    def _delete(self, working_dir: PathLike, refs: list[str]) -> list[Checkpoint]:
        store, project = self._known(working_dir)
        deadline = self._deadline()
        with locked_project(store, project, "delete", deadline):
            found = [find_checkpoint(store, project, ref, deadline) for ref in refs]
            delete_checkpoints(store, project, found, deadline)
            if newest_name(store, project) is None:
                note_emptied(store, project)
        return found

    def reclaim(self) -> Reclaimed:
        """Remove from the disk what no checkpoint holds any more, however little that is."""
        from shadowsnap.upkeep.reclaim import reclaim_now

        store = self._store()
        return reclaim_now(store, Deadline(self.settings.upkeep_deadline), self._waiting(store))

    def purge(
        self, working_dir: PathLike, paths: Sequence[PathLike] | PathLike, dry_run: bool = False
    ) -> PurgeResult:
        """Take files or directories out of every checkpoint of a project, and their bytes out of the store. The
        checkpoints are recorded anew without them, and their old ids go on answering. What is on disk stays as
        it is. `dry_run` returns the plan. An interrupted purge is finished by the same call."""
        from shadowsnap.upkeep.purge import finish, path_in_history, plan_purge

        self._scribe.wait()  # it may be about to name a checkpoint
        store, project = self._known(working_dir)
        wanted = sorted({path_in_history(project.workdir, path) for path in as_list(paths)})
        if not wanted:
            raise BadArguments(what="purge takes at least one path")
        if dry_run:
            return plan_purge(store, project, wanted, self._deadline())
        if project.workdir.is_dir():
            with self._opened(store, project, "purge"):
                pass  # whatever restore was interrupted is finished now
        taken = self._take_out(project.workdir, wanted)
        deadline = Deadline(self.settings.upkeep_deadline)
        return finish(store, project, taken, deadline, self._waiting(store), step)

    @once_more
    def _take_out(self, working_dir: PathLike, paths: Sequence[bytes]) -> PurgeResult:
        from shadowsnap.upkeep.purge import take_out

        store, project = self._known(working_dir)
        return take_out(store, project, paths, Deadline(self.settings.upkeep_deadline), step)

    def status(self) -> StoreStatus:
        """The store at a glance: sizes, projects, limits, what was not captured, what failed."""
        from shadowsnap.upkeep.status import read_status

        return read_status(self._store(), self.settings, self._deadline())

    def prune(
        self, dry_run: bool = False, *, orphans: bool = True, reclaim: str = "all", **limits: Any
    ) -> PruneResult:
        """Keep the limits now: of the settings, or those given here (`max_snapshots`,
        `retention_days`, `max_total_size_mb` and so on). `dry_run` returns the plan. `reclaim`: `all` that no
        checkpoint holds, `when-it-pays` (as upkeep in the background does), `always` (repack even if there is
        nothing to reclaim) or `never`; `orphans=False` keeps checkpoints of lost directories.
        Upkeep that is under way is waited for, up to `upkeep_deadline`; then the status is `busy`."""
        from shadowsnap.upkeep.run import plan_prune, prune

        settings = replace(self.settings, **limits)
        store = self._store()
        if dry_run:
            return plan_prune(store, settings, orphans=orphans)
        result = prune(store, settings, orphans=orphans, reclaim=reclaim, on_wait=self._waiting(store))
        if settings == self.settings and orphans and result.status == "done":
            with suppress(OSError):  # it only saves the next start-up from doing the same again
                mark_pruned(store.base)
        self._tell("Pruned", store.base, result=result)
        return result

    def auto_prune(self) -> PruneResult:
        """Keep the limits, at most once in `min_interval_hours`; for the start of a program. What
        takes time goes on in the background. Never raises."""
        from shadowsnap.upkeep.run import PruneResult, auto_prune

        try:
            result = auto_prune(self.settings)
        except Exception as problem:  # promise 4
            return PruneResult("failed", error=problem)
        if result.status == "done":
            self._tell("Pruned", self.settings.resolved_base(), result=result)
        return result

    def doctor(self, repair: bool = False) -> Checkup:
        """Look at everything the store consists of: what is wrong, what that means, and what would be
        done about it. With `repair` it is done; what cannot be saved is set aside, never deleted."""
        from shadowsnap.upkeep import doctor

        deed = doctor.repair if repair else doctor.examine
        checkup = deed(self.settings.resolved_base(), self._deadline(), fsync=self.settings.fsync)
        if checkup.repaired:
            self._tell("Healed", checkup.base, checkup=checkup)
        return checkup

    def clear(self, working_dir: PathLike, dry_run: bool = False) -> ClearReport:
        """Let go of every checkpoint of a directory, pinned or not, and of everything that is kept about it below
        the base: nothing of it is left. `dry_run` returns the plan."""
        from shadowsnap.upkeep.clear import clear, plan_clear

        store, project = self._known(working_dir)
        if dry_run:
            return plan_clear(store, project, self._deadline())
        if project.workdir.is_dir():
            with self._opened(store, project, "clear"):
                pass  # whatever restore was interrupted is finished now
        self._scribe.wait()  # it may be about to write something of it
        self._turn.slots.pop(project.id, None)  # what was safe in this turn is not any more
        self._turn.story.places.pop(project.id, None)
        deadline = Deadline(self.settings.upkeep_deadline)
        return clear(store, project, self._deadline(), deadline, self._waiting(store))

    def clear_all(self, dry_run: bool = False) -> ClearReport:
        """Let go of every checkpoint of every directory; `dry_run` returns the plan."""
        from shadowsnap.upkeep.clear import clear_all, plan_clear_all

        return (plan_clear_all if dry_run else clear_all)(self._store(), self._deadline())

    def clear_legacy(self, dry_run: bool = False) -> ClearReport:
        """Remove the archived repositories of older tools; `dry_run` returns the plan."""
        from shadowsnap.upkeep.clear import clear_legacy, plan_clear_legacy

        return (plan_clear_legacy if dry_run else clear_legacy)(self._store())

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
        report = import_from(self._store(), where, NO_DEADLINE, dry_run=dry_run, on_progress=on_progress)
        if report.applied:
            self._tell("Imported", where, report=report)
        return report

    def remove_store(self) -> ClearReport:
        """Remove the store itself with every checkpoint, the archives of older tools, and the base
        directory if nothing else is in it."""
        from shadowsnap.store.layout import open_store
        from shadowsnap.upkeep.clear import remove_store

        return remove_store(open_store(self.settings), self._deadline())

    def _waiting(self, store: Store) -> Callable[[], None]:
        """Tells that upkeep of another process is waited for."""
        doing = "waiting for upkeep that is under way"
        return partial(self._tell, "Slow", store.base, doing=doing, seconds=0.0)

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
