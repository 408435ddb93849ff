"""Carrying out a prune plan: deleting refs, project by project under the project's lock. In the
moment of the deed it is made sure again that nothing goes that was pinned, or became needed,
since the plan was made."""

from __future__ import annotations

from collections.abc import Iterable

from shadowsnap.errors import LockTimeout
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.refs import delete_refs, read_refs, ref_exists
from shadowsnap.model import Checkpoint
from shadowsnap.store.checkpoints import delete_checkpoints, newest_name
from shadowsnap.store.forget import forget_project
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import Project, locked_project
from shadowsnap.store.tips import checkpoint_of, needed_by_journal
from shadowsnap.upkeep.facts import find_place
from shadowsnap.upkeep.prune import Plan
from shadowsnap.upkeep.results import Verdict
from shadowsnap.upkeep.retention import GONE, ORPHANED

# A project that is busy for longer is left to the next run.
_PATIENCE_SECONDS = 2.0


def carry_out(store: Store, plan: Plan, deadline: Deadline) -> list[Verdict]:
    """Drop what the plan says; what was dropped in fact."""
    by_project: dict[str, list[Verdict]] = {}
    for verdict in plan.dropped:
        by_project.setdefault(verdict.checkpoint.project, []).append(verdict)
    done: list[Verdict] = []
    for project, verdicts in by_project.items():
        deadline.check("dropping checkpoints")
        try:
            done += _drop(store, plan.inventory.projects[project], verdicts, deadline)
        except LockTimeout:
            continue
    _drop_attachments(store, plan, deadline)
    return done


def _drop(store: Store, project: Project, verdicts: list[Verdict], deadline: Deadline) -> list[Verdict]:
    with locked_project(store, project, "prune", Deadline(_PATIENCE_SECONDS)):
        if _came_back(project, verdicts):
            return []
        orphaned = _are_orphaned(verdicts)
        safe = _unneeded(store, project, [verdict.checkpoint for verdict in verdicts], orphaned=orphaned)
        going = [verdict for verdict in verdicts if verdict.checkpoint.ref in safe]
        delete_checkpoints(store, project, [verdict.checkpoint for verdict in going], deadline)
        if orphaned and newest_name(store, project) is None:
            forget_project(store, project)
    return going


def _are_orphaned(verdicts: list[Verdict]) -> bool:
    return any(verdict.reason == ORPHANED for verdict in verdicts)


def _came_back(project: Project, verdicts: list[Verdict]) -> bool:
    return _are_orphaned(verdicts) and find_place(project.workdir, None)[0] != GONE


def _unneeded(store: Store, project: Project, checkpoints: Iterable[Checkpoint], *, orphaned: bool) -> set[str]:
    pins = read_refs(store.git_dir, project.pins)
    needed = frozenset() if orphaned else needed_by_journal(store.journal_file(project.id))
    newest = None if orphaned else newest_name(store, project)
    return {
        each.ref
        for each in checkpoints
        if each.ref.rpartition("/")[2] not in pins and each.id not in needed and each.ref != newest
    }


def _drop_attachments(store: Store, plan: Plan, deadline: Deadline) -> None:
    """Those that go alone; the others went with their checkpoints."""
    with locked(store.store_lock(), "prune", deadline, shared=True):
        there = (ref for ref in plan.attachments if ref_exists(store.git_dir, ref))
        delete_refs(store.git(deadline), [ref for ref in there if not _is_new(store, plan, ref)])


def _is_new(store: Store, plan: Plan, ref: str) -> bool:
    """Whether it only seemed to have no checkpoint: both came while the refs were being listed."""
    return checkpoint_of(ref) not in plan.inventory.refs and ref_exists(store.git_dir, checkpoint_of(ref))
