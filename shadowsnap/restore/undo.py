"""Undo and redo: taking back the last thing that happened, according to the operation log.

The last thing is a restore, a revert, a redo, or a turn. A restore is taken back by restoring the state before
it. A turn is taken back exactly if the files are as it left them, else by the three-way merge of `revert`, which
keeps what was edited since. Redo takes back the last undo, as long as nothing else changed the files.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from shadowsnap.errors import MalformedObject, NothingToRedo, NothingToUndo
from shadowsnap.git.reading import ObjectReader, kinds_of
from shadowsnap.git.trees import Leaf, patch_tree
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.restore.plan import open_tree
from shadowsnap.restore.restore import Why, is_as_restored, restore
from shadowsnap.restore.revert import revert
from shadowsnap.snapshot.attribution import Work, work_of_turn
from shadowsnap.snapshot.states import Selection, State
from shadowsnap.snapshot.take import Request, begin_capture, keep_capture, same_state, state_of
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.store.checkpoints import find_checkpoint, list_checkpoints, record_checkpoint
from shadowsnap.store.history import History, Operation, Step, note, read_history, restored_paths

_MERGED = "files that were edited since the turn were merged"


def undo(space: Workspace) -> tuple[RestoreResult, Step]:
    """Take back the last thing that happened; also what that was."""
    history = read_history(space.store, space.project, space.deadline)
    for step in reversed(history.undoable()):
        back, thing = step.way_back, step.thing[1]
        # A turn that was redone and built upon since is taken back like any other turn.
        if back is not None and (step.thing[0] == "operation" or _is_as_left(space, back)):
            return _go_back(space, back, Why("undo", undoes=thing, returns=True)), step
        result = _undo_turn(space, history, step)
        if result is not None:
            return result, step
    raise NothingToUndo(workdir=space.project.workdir)


def redo(space: Workspace) -> tuple[RestoreResult, Step]:
    """Take back the last undo; also what that had taken back."""
    history = read_history(space.store, space.project, space.deadline)
    step = history.undone[-1] if history.undone else None
    if step is None or step.way_back is None or _changed_since(space, history, step.way_back):
        raise NothingToRedo(workdir=space.project.workdir)
    return _go_back(space, step.way_back, Why("redo", redoes=step.way_back.id, returns=True)), step


# --- restores ----------------------------------------------------------------------------------------


def _go_back(space: Workspace, back: Operation, why: Why) -> RestoreResult:
    """Restore what an operation replaced: just the paths that it changed."""
    target = _find(space, back.before)
    result = restore(space, target, _paths_of(space, back), why)
    if space.lasting and result.undo_id is None:  # already there: only the log moves
        _note(space, why, target, back)
    return result


def _paths_of(space: Workspace, operation: Operation) -> Selection:
    paths = restored_paths(space.store, operation)
    if paths is None:
        raise MalformedObject(what="the operation log", why="the list of restored paths is lost")
    return Selection(map(os.fsencode, paths), exact=operation.line.get("exact") is True)


def _note(space: Workspace, why: Why, target: Checkpoint, back: Operation | None) -> None:
    """Log an operation that found the files as it wants them."""
    line: dict[str, Any] = {"target": target.id, "before": target.id, "after": target.tree, "reached": target.id}
    if back is not None and back.line.get("paths"):
        line |= {"paths": back.line["paths"], "exact": True, "after": "", "reached": None}
    note(space.store, space.project, "restore", **{**why.facts(), **line})


def _changed_since(space: Workspace, history: History, undo: Operation) -> bool:
    """Whether a turn or an edit changed the files since an undo: then there is no way forward from it."""
    turns = [step for step in history.undoable() if step.thing[0] == "turn" and step.position >= undo.position]
    return any(_did_something(space, step) for step in turns) or not _is_as_left(space, undo)


def _did_something(space: Workspace, step: Step) -> bool:
    """Whether this part of a turn changed anything."""
    before = _find(space, step.before or "")
    if step.after is None:
        return before.scope == "tree" and not same_state(begin_capture(space), before)
    return state_of(before) != (step.seen or state_of(_find(space, step.after)))


def _is_as_left(space: Workspace, operation: Operation) -> bool:
    """Whether the files that an operation changed are as it left them."""
    if operation.target == operation.before and operation.after:  # its target is not known: it is of format 1
        return begin_capture(space).tree() == operation.after
    target, returns = _find(space, operation.target), operation.line.get("returns") is True
    return is_as_restored(space, target, _paths_of(space, operation), returns, operation.after)


def tree_after(space: Workspace, operation: Operation) -> str | None:
    """The tree that an operation led to. No checkpoint holds it, so it is made again if it was cleared away; None
    if that is not possible."""
    if kinds_of(space.git, [operation.after]):
        return operation.after
    paths = restored_paths(space.store, operation)
    if not paths:
        return None
    before, target = _find(space, operation.before), _find(space, operation.target)
    with ObjectReader(space.git) as reader:
        there, read = open_tree(reader, target.tree), reader.read
        changes = {path: there.find(path) for path in map(os.fsencode, paths) if not path.endswith(b"/")}
        made = patch_tree(
            before.tree, changes, lambda name: read(name, b"tree"), lambda data: space.objects.write(b"tree", data)
        )
    space.objects.flush()
    return made if made == operation.after else None


def _find(space: Workspace, checkpoint: str) -> Checkpoint:
    return find_checkpoint(space.store, space.project, checkpoint, space.deadline)


# --- turns -------------------------------------------------------------------------------------------


def _undo_turn(space: Workspace, history: History, step: Step) -> RestoreResult | None:
    """Take a turn back, or the part of it since files were restored while it ran; None if it did nothing."""
    turn = history.turns[int(step.thing[1])]
    if step.after is None and turn.open_call is None:  # between two calls, what the last one left is its work
        step = replace(step, after=turn.after)
    before = _find(space, step.before or "")
    after = None if step.after is None else _find(space, step.after)
    why = Why("undo", undoes=turn.number)
    if before.scope != "tree":
        before = _composed(space, [before, *(_find(space, each) for each in turn.more)], why)
    if before.scope != "tree":  # only these files are known
        result = restore(space, before, why=why)
        return result if result.written or result.deleted else None
    capture = begin_capture(space)
    now = capture.fingerprint()
    left = now if after is None else step.seen or state_of(after)
    if left == state_of(before):
        return None
    work = _work(space, history, step, before, after)
    is_as_left = left == now
    if is_as_left and _is_everything(work, before, after):
        result = restore(space, before, why=why)
        return result if result.written or result.deleted else None
    result = revert(space, work, f"undo of turn {turn.number}", why=why)
    if space.lasting and result.undo_id is None and not result.conflicts:
        saved = keep_capture(capture, Request(f"before undo of turn {turn.number}", kind="pre-restore")).checkpoint
        _note(space, why, saved, None)
    return result if is_as_left else replace(result, note=_MERGED)


def _work(
    space: Workspace, history: History, step: Step, before: Checkpoint, after: Checkpoint | None
) -> list[Work]:
    turn = history.turns[int(step.thing[1])]
    checkpoints = list_checkpoints(space.store, space.project, space.deadline, statistics=False)
    if before.id == turn.before and step.after in (turn.after, None):
        return work_of_turn(history, checkpoints, turn.number)
    # It began with a restore, or with some files alone: that state is no moment between the others.
    others = {
        other.session_id
        for other in history.turns.values()
        if other.session_id not in (None, turn.session_id)
        and other.changed
        and (turn.end_position is None or other.position < turn.end_position)
        and (other.end_position is None or other.end_position > step.position)
    }
    return [Work(before, after, after, turn.session_id, shared=tuple(sorted(others)))]


def _is_everything(work: list[Work], before: Checkpoint, after: Checkpoint | None) -> bool:
    """Whether all that happened between two states is the work of one turn, and the first of them shows all files
    as they were."""
    pieces = work[::-1]
    if any(piece.shared or piece.late for piece in pieces):
        return False
    if not pieces or pieces[0].before.tree != before.tree:
        return False
    if after is not None and (pieces[-1].after is None or pieces[-1].after.tree != after.tree):
        return False
    joints = zip(pieces, pieces[1:], strict=False)
    return all(one.after is not None and one.after.tree == two.before.tree for one, two in joints)



def _composed(space: Workspace, states: list[Checkpoint], why: Why) -> Checkpoint:
    """The state before a turn of which several checkpoints know a part, because at first only named files could be
    captured. What was captured first counts. If it is put together from several, it is a new checkpoint."""
    base = next((each for each in states if each.scope == "tree"), states[0])
    place = states.index(base)
    # Where the directory was captured as a whole, later ones add only what it left out.
    parts = [(each, base.scope != "tree") for each in states[:place:-1]]
    parts += [(each, True) for each in reversed(states[:place])]
    if not parts:
        return base
    known = State.of_checkpoint(base)
    changes: dict[bytes, Leaf | None] = {}
    bits, absent = dict(known.modes.other), set(known.absent)
    with ObjectReader(space.git) as reader:
        held = open_tree(reader, base.tree)
        for each, whole in parts:
            state, tree = State.of_checkpoint(each), open_tree(reader, each.tree)
            earlier = states.index(each) < place
            files = {*tree.files_below(b"")} if whole else {*map(os.fsencode, each.metadata.get("late", ()))}
            if not earlier:
                files = {path for path in files if held.find(path) is None and path not in known.absent}
            for path in files:
                leaf = tree.find(path)
                if leaf is not None:
                    changes[path], bits[path] = leaf, state.bits(path, leaf[0])
                    absent.discard(path)
            gone = {path for path in state.absent if earlier or held.find(path.rstrip(b"/")) is None}
            changes.update(dict.fromkeys(path for path in gone - files if not path.endswith(b"/")))
            absent |= gone - files
        read, write = reader.read, space.objects.write
        tree_id = patch_tree(
            base.tree, changes, lambda name: read(name, b"tree"), lambda data: write(b"tree", data)
        )
    facts: dict[str, Any] = {
        **{name: base.metadata[name] for name in ("empty_dirs", "excludes", "rules") if name in base.metadata},
        "scope": base.scope,
        "skipped": [[item.path, item.why] for item in base.skipped],
        "modes": replace(known.modes, other=bits).to_json(),
        "absent": sorted(map(os.fsdecode, absent)),
    }
    if not space.lasting:
        metadata = {name: value for name, value in facts.items() if name not in ("scope", "skipped")}
        return replace(base, id="", tree=tree_id, metadata=metadata)
    reason = f"undo of turn {why.undoes}"
    body = {**facts, "kind": "manual", "revert": True}
    return record_checkpoint(space.store, space.project, tree_id, reason, body, objects=space.objects)
