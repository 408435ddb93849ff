"""Restoring: a checkpoint of the present first, then plan, journal and deeds. Undo, redo and
the recovery of a restore that died are restores too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from shadowsnap.engine.apply import Application, Staging, remove_staging
from shadowsnap.engine.capture import Capture
from shadowsnap.engine.compare import selected
from shadowsnap.engine.plan import Plan, plan_restore
from shadowsnap.engine.snapshot import Request, capture_same_scope, keep_capture
from shadowsnap.engine.state import State
from shadowsnap.engine.steps import step
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import (
    DamagedObject,
    NoSuchPath,
    NothingToRedo,
    NothingToUndo,
    RestoreFailed,
    RestoreRefused,
    RestoreStranded,
    ShadowsnapError,
)
from shadowsnap.git.objects import missing_objects
from shadowsnap.model import Checkpoint, Kept, RestoreResult
from shadowsnap.store.checkpoints import find_checkpoint
from shadowsnap.store.journal import Journal, OpenRestore, Step, read_journal, write_journal


def restore(
    space: Workspace, target: Checkpoint, paths: Sequence[bytes] = (), then: str = "restore"
) -> RestoreResult:
    """Bring a state back, of everything or of some paths. In a workspace that is not lasting,
    only the plan is made."""
    capture, plan = _prepare(space, target, paths)
    result = _result(target, plan)
    if not space.lasting:
        return result
    if plan.conflicts:
        raise RestoreRefused(conflicts=_listed(plan.conflicts))
    if plan.empty:
        return replace(result, applied=True)
    broken = missing_objects(space.git, sorted({leaf[1] for leaf, _ in plan.write.values()}))
    if broken:
        raise DamagedObject(id=broken[0])
    step("restore:planned")
    before, _ = keep_capture(capture, Request(f"before {then} to {target.short_id}", kind="pre-restore"))
    step("restore:saved")
    _carry_out(space, capture, plan, before, target, paths, then)
    return replace(result, applied=True, undo_id=before.id)


def undo(space: Workspace) -> RestoreResult:
    """Return to the state before the last restore."""
    journal = read_journal(space.store, space.project)
    if not journal.undo:
        raise NothingToUndo(workdir=space.project.workdir)
    return _walk(space, journal.undo[-1], "undo")


def redo(space: Workspace) -> RestoreResult:
    """Return to the state before the last undo."""
    journal = read_journal(space.store, space.project)
    if not journal.redo:
        raise NothingToRedo(workdir=space.project.workdir)
    return _walk(space, journal.redo[-1], "redo")


def recover(space: Workspace) -> str:
    """Finish a restore that died half way; says what was done, if anything was. If it cannot be
    finished, that is said too: it must not keep anyone from taking snapshots."""
    journal = read_journal(space.store, space.project)
    begun = journal.open
    if begun is None:
        return journal.told
    staging = [os.fsencode(folder) for folder in begun.staging]
    closed = replace(journal, open=None)
    if not begun.applying:
        remove_staging(space, staging)
        write_journal(space.store, space.project, closed)
        return f"a restore to {begun.target[:8]} had been interrupted before it changed any file"
    try:
        target = find_checkpoint(space.store, space.project, begun.target, space.deadline)
        find_checkpoint(space.store, space.project, begun.before, space.deadline)
    except ShadowsnapError as problem:
        write_journal(space.store, space.project, closed)
        return (
            f"an interrupted restore cannot be finished ({problem}); moved files are in {', '.join(begun.staging)}"
        )
    try:
        restore(space, target, [os.fsencode(path) for path in begun.paths], begun.then)
    except ShadowsnapError as problem:
        return f"an interrupted restore to {target.short_id} could not be finished yet: {problem}"
    remove_staging(space, staging)
    # The way back leads to before the first attempt, not to the half restored files.
    write_journal(space.store, space.project, _moved(closed, begun.then, Step(begun.before, begun.paths)))
    return f"a restore to {target.short_id} had been interrupted and was finished"


# --- steps -----------------------------------------------------------------------------------


def _walk(space: Workspace, to: Step, then: str) -> RestoreResult:
    target = find_checkpoint(space.store, space.project, to.checkpoint, space.deadline)
    paths = [os.fsencode(path) for path in to.paths]
    result = restore(space, target, paths, then)
    if space.lasting and result.undo_id is None:  # already there: only the stacks move
        journal = read_journal(space.store, space.project)
        write_journal(space.store, space.project, _moved(journal, then, to))
    return result


def _prepare(space: Workspace, target: Checkpoint, paths: Sequence[bytes]) -> tuple[Capture, Plan]:
    """Capture the present with everything that is about to change, and plan from there."""
    state = State.of_checkpoint(target)
    capture = capture_same_scope(space, state)
    plan = plan_restore(capture, state, paths)
    unsaved = plan.unsaved
    if unsaved:
        capture.include(unsaved, unfiltered=True)
        plan = plan_restore(capture, state, paths)
        for path in unsaved & capture.skipped.keys():
            plan.conflicts[path] = f"it cannot be saved first: {capture.skipped[path]}"
    for path in paths:
        if path and not _is_known(path, capture, plan, state, space):
            raise NoSuchPath(path=os.fsdecode(path), ref=target.short_id)
    return capture, plan


def _is_known(path: bytes, capture: Capture, plan: Plan, state: State, space: Workspace) -> bool:
    """Whether a chosen path names anything, then or now."""
    mentioned = (
        *plan.write,
        *plan.delete,
        *plan.make,
        *plan.clear,
        *plan.chmod,
        *plan.chmod_directories,
        *plan.kept,
    )
    if any(selected(each.rstrip(b"/"), [path]) for each in mentioned):
        return True
    if capture.known(path) is not None or path in state.bare or path in capture.cache.directories:
        return True
    return bool(space.git.run("ls-tree", "-z", "--name-only", state.tree, "--", path))


def _carry_out(
    space: Workspace, capture: Capture, plan: Plan, before: Checkpoint, target: Checkpoint, paths: Sequence[bytes],
    then: str,
) -> None:  # fmt: skip
    journal = read_journal(space.store, space.project)
    staging = Staging(space, plan)
    chosen = tuple(os.fsdecode(path) for path in paths)
    folders = tuple(os.fsdecode(folder) for folder in staging.folders)
    begun = OpenRestore(before.id, target.id, chosen, folders, then=then)
    write_journal(space.store, space.project, replace(journal, open=begun))
    step("restore:begun")
    outcome = "failed"
    try:
        _stage(staging, plan)
        step("restore:staged")
        write_journal(space.store, space.project, replace(journal, open=replace(begun, applying=True)))
        step("restore:applying")
        _apply(Application(capture, plan, staging), begun)
        outcome = "applied"
        step("restore:applied")
        write_journal(space.store, space.project, _moved(journal, then, Step(before.id, chosen)))
        step("restore:settled")
    except RestoreStranded:
        outcome = "stranded"  # the journal stays open and the staging directory stays: nothing is lost
        raise
    finally:
        if outcome == "failed":
            write_journal(space.store, space.project, journal)
        if outcome != "stranded":
            staging.remove()
    step("restore:cleaned")


def _stage(staging: Staging, plan: Plan) -> None:
    try:
        staging.fill(plan)
    except (OSError, ShadowsnapError) as problem:
        raise RestoreFailed(why=problem) from problem


def _apply(application: Application, begun: OpenRestore) -> None:
    try:
        application.carry_out()
    except OSError as problem:  # raised on the way back: what was put back is put back
        raise RestoreStranded(
            why=problem, before=begun.before[:8], target=begun.target[:8], staging=", ".join(begun.staging)
        ) from problem


def _moved(journal: Journal, then: str, step_back: Step) -> Journal:
    """The stacks after a restore of this kind."""
    if then == "undo":
        return replace(journal, open=None, undo=journal.undo[:-1], redo=(*journal.redo, step_back))
    if then == "redo":
        return replace(journal, open=None, undo=(*journal.undo, step_back), redo=journal.redo[:-1])
    return replace(journal, open=None, undo=(*journal.undo, step_back), redo=())


def _result(target: Checkpoint, plan: Plan) -> RestoreResult:
    written = [os.fsdecode(path) for path in (*plan.write, *plan.chmod)]
    written += [os.fsdecode(path) + "/" for path in {*plan.make, *plan.chmod_directories} - _implied(plan)]
    deleted = [os.fsdecode(path) for path in plan.delete] + [os.fsdecode(path) + "/" for path in plan.clear]
    return RestoreResult(
        target=target,
        written=tuple(sorted(written)),
        deleted=tuple(sorted(deleted)),
        kept=_kept(plan.kept),
        conflicts=_kept(plan.conflicts),
    )


def _implied(plan: Plan) -> set[bytes]:
    """Directories that are made because a file comes into them."""
    return {path for path in plan.make if any(each.startswith(path + b"/") for each in plan.write)}


def _kept(reasons: dict[bytes, str]) -> tuple[Kept, ...]:
    return tuple(Kept(os.fsdecode(path), why) for path, why in sorted(reasons.items()))


def _listed(reasons: dict[bytes, str]) -> str:
    shown = [f"{os.fsdecode(path)} ({why})" for path, why in sorted(reasons.items())]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return ", ".join(shown[:10]) + more
