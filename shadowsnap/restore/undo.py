"""Undo and redo: taking back the last thing that happened, as the operation log tells it.

The last thing is a restore, a revert, a redo, or a turn. A restore is taken back by restoring the state before
it. A turn is taken back exactly if the files are as it left them, else by a three-way merge that keeps what was
edited since. Redo takes back the last undo, as long as nothing else changed the files.
"""

from __future__ import annotations

import os

from shadowsnap.errors import DamagedObject, GitFailed, MalformedObject, NothingToRedo, NothingToUndo
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.records import Any, replace
from shadowsnap.restore.restore import Why, restore
from shadowsnap.restore.revert import revert
from shadowsnap.snapshot.attribution import work_of_turn
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.content import NotCaptured, read_file
from shadowsnap.snapshot.states import Selection, tree_differences
from shadowsnap.snapshot.take import begin_capture, same_state
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import find_checkpoint, list_checkpoints
from shadowsnap.store.history import History, Operation, Step, Turn, note, read_history, restored_paths


def undo(space: Workspace) -> tuple[RestoreResult, Step]:
    """Take back the last thing that happened; also what that was."""
    history = read_history(space.store, space.project, space.deadline)
    for step in reversed(history.undoable()):
        if step.way_back is not None:
            return _go(space, step.way_back, Why("undo", undoes=step.thing[1], returns=True)), step
        result = _undo_turn(space, history, history.turns[int(step.thing[1])])
        if result is not None:
            return result, step
    raise NothingToUndo(workdir=space.project.workdir)


def redo(space: Workspace) -> tuple[RestoreResult, Step]:
    """Take back the last undo; also what that had taken back."""
    history = read_history(space.store, space.project, space.deadline)
    step = history.undone[-1] if history.undone else None
    if step is None or step.way_back is None or _changed_since(space, history, step.way_back):
        raise NothingToRedo(workdir=space.project.workdir)
    return _go(space, step.way_back, Why("redo", redoes=step.way_back.id, returns=True)), step


def _go(space: Workspace, back: Operation, why: Why) -> RestoreResult:
    """Restore what an operation replaced: just the paths that it changed."""
    target = find_checkpoint(space.store, space.project, back.before, space.deadline)
    paths = restored_paths(space.store, back)
    if paths is None:
        raise MalformedObject(what="the operation log", why="the list of restored paths is lost")
    chosen = Selection(map(os.fsencode, paths), exact=back.line.get("exact") is True)
    result = restore(space, target, chosen, why)
    if space.lasting and result.undo_id is None:  # already there: only the log moves
        _note(space, why, target, back)
    return result


def _undo_turn(space: Workspace, history: History, turn: Turn) -> RestoreResult | None:
    """Take a turn back; None if there is nothing of it in the files."""
    assert turn.before is not None
    before = find_checkpoint(space.store, space.project, turn.before, space.deadline)
    why = Why("undo", undoes=turn.number)
    capture = begin_capture(space)
    if before.scope == "tree" and same_state(capture, before) and turn.status == "running":
        return None  # it has done nothing yet
    if before.scope != "tree" or _is_last_word(space, history, turn, capture):
        return restore(space, before, why=why)
    checkpoints = list_checkpoints(space.store, space.project, space.deadline, statistics=False)
    work = work_of_turn(history, checkpoints, turn.number)
    result = revert(space, work, f"undo of turn {turn.number}", why=why)
    if space.lasting and result.undo_id is None and not result.conflicts:
        _note(space, why, before, None)
    return replace(result, note="files that were edited since the turn were merged")


def _is_last_word(space: Workspace, history: History, turn: Turn, capture: Capture) -> bool:
    """Whether the files are as the turn left them, and all that happened since it began is its own."""
    alone = all(other.position <= turn.position or other.before == turn.after for other in history.turns.values())
    at_once = any(
        other.number != turn.number
        and other.position < turn.position
        and (other.status == "running" or (other.ended_at or 0) > turn.began_at)
        and other.session_id != turn.session_id
        for other in history.turns.values()
    )
    if not alone or at_once:
        return False
    if turn.status == "running" or turn.after is None:
        return True
    after = find_checkpoint(space.store, space.project, turn.after, space.deadline)
    return same_state(capture, after)


def _note(space: Workspace, why: Why, target: Checkpoint, back: Operation | None) -> None:
    line: dict[str, Any] = {"target": target.id, "before": target.id, "after": target.tree}
    if back is not None and back.line.get("paths"):
        line |= {"paths": back.line["paths"], "exact": True, "after": ""}
    note(space.store, space.project, "restore", **{**why.facts(), **line})


def _changed_since(space: Workspace, history: History, last: Operation) -> bool:
    """Whether the files were seen in another state since an operation: then there is no way forward from it."""
    if not last.after:
        return False
    seen = [
        each
        for each in list_checkpoints(space.store, space.project, space.deadline, statistics=False)
        if each.scope == "tree" and each.created_at.timestamp() > last.at and each.kind != "pre-restore"
    ]
    trees = {each.tree for each in seen} - {last.after}
    return any(not _is_what_was_restored(space, last.after, tree) for tree in trees)


def _is_what_was_restored(space: Workspace, restored: str, captured: str) -> bool:
    """Whether a capture differs from a state that was restored only in files that captures leave out now, and
    that are as they were restored."""
    try:
        differing = tree_differences(space.git, restored, captured)
        return all(
            item.old is not None
            and item.new is None
            and read_file(space, item.path, unfiltered=True)[:2] == item.old
            for item in differing
        )
    except (NotCaptured, DamagedObject, GitFailed):
        return False
