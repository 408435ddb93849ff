"""Taking back: undo and redo of the last thing that happened, and revert of single turns.

The last thing that the operation log knows is a restore, a revert, a redo, or a turn. A restore is taken back by
restoring the state before it. A turn is taken back exactly if the files are as it left them, else by the three-way
merge of `revert`, which keeps what was edited since. Redo takes back the last undo, as long as nothing else
changed the files.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from shadowsnap.errors import (
    MalformedObject,
    NoSuchCheckpoint,
    NoSuchTurn,
    NothingToRedo,
    NothingToUndo,
    RestoreRefused,
)
from shadowsnap.git.objects import EMPTY_BLOB
from shadowsnap.git.reading import ObjectReader, kinds_of
from shadowsnap.git.repository import merge_text
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, REGULAR, Leaf, TreeReader, is_directory
from shadowsnap.model import Checkpoint, Conflict, RestoreResult, Skipped
from shadowsnap.restore.restore import RESTORE, Why, find_conflicts, is_as_restored, restore
from shadowsnap.snapshot.attribution import Work, work_of_turn
from shadowsnap.snapshot.states import (
    Difference,
    Selection,
    State,
    ignored_by_checkpoint,
    mode_differences,
    open_tree,
    tree_differences,
)
from shadowsnap.snapshot.take import Request, begin_capture, keep_capture, same_state, state_of
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.checkpoints import delete_checkpoints, find_checkpoint, list_checkpoints, record_checkpoint
from shadowsnap.store.history import History, Operation, Step, note, read_history
from shadowsnap.store.log import paths_in
from shadowsnap.store.projects import read_journal

_MOST_NAMED = 3


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
    paths = paths_in(space.store, operation.line)
    if paths is None:
        raise MalformedObject(what="the operation log", why="the list of restored paths is lost")
    return Selection(map(os.fsencode, paths), exact=operation.line.get("exact") is True)


def _note(space: Workspace, why: Why, target: Checkpoint, back: Operation | None) -> None:
    """Log an operation that found the files as it wants them. What it kept may be more than its target holds."""
    after = begin_capture(space).tree()
    reached = target.id if after == target.tree else None
    line: dict[str, Any] = {"target": target.id, "before": target.id, "after": after, "reached": reached}
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
    try:
        target, before = _find(space, operation.target), _find(space, operation.before)
    except NoSuchCheckpoint:  # deleted: what it left is not known
        return False
    returns = operation.line.get("returns") is True
    return is_as_restored(space, target, _paths_of(space, operation), returns, before, operation.after)


def tree_after(space: Workspace, operation: Operation) -> str | None:
    """The tree that an operation led to. No checkpoint holds it, so it is made again if it was cleared away; None
    if that is not possible."""
    if kinds_of(space.git, [operation.after]):
        return operation.after
    paths = paths_in(space.store, operation.line)
    if not paths:
        return None
    before, target = _find(space, operation.before), _find(space, operation.target)
    with ObjectReader(space.git) as reader:
        there = open_tree(reader, target.tree)
        changes = {path: there.find(path) for path in map(os.fsencode, paths) if not path.endswith(b"/")}
        made = reader.changed_tree(before.tree, changes, space.objects)
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
    try:
        after = None if step.after is None else _find(space, step.after)
    except NoSuchCheckpoint as problem:  # deleted: what the turn did is not known
        what = f"the state after turn {turn.number}"
        raise NoSuchTurn(workdir=space.project.workdir, what=what) from problem
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
    return result


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
        tree_id = reader.changed_tree(base.tree, changes, space.objects)
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


# --- taking the work of a turn out -----------------------------------------------------------------------
# The work (see `attribution`) is undone path by path, newest first. A file that is as the turn left it becomes
# what it was before. One that was changed since is merged (base: after the turn, ours: now, theirs: before it).
# The outcome is a state like any other, which a restore brings about. What two sessions may both have done is
# left alone, unless asked otherwise.


_MOST_SHOWN = 64 * 1024
"""The number of bytes of each side of a conflict that are in the result."""
_CHANGED_SINCE = "changed since in another way"

Changes = dict[bytes, Leaf | None]
"""Path -> what it becomes; None: it is deleted."""


def revert(
    space: Workspace,
    work: Sequence[Work],
    reason: str,
    on_conflict: str = "keep",
    facts: Mapping[str, object] | None = None,
    why: Why = RESTORE,
) -> RestoreResult:
    """Undo this work, which is sorted newest first, in the files as they are now. The outcome is recorded as a
    checkpoint, with these facts."""
    if not work:
        raise NoSuchTurn(workdir=space.project.workdir, what=reason.removeprefix("revert of "))
    capture = begin_capture(space)
    now = State.of_capture(capture)
    with ObjectReader(space.git) as reader:
        outcome = _Outcome(space, reader, now, on_conflict)
        for each in work:
            after = State.of_checkpoint(each.after) if each.after is not None else now
            released = each.released if each.after is not None else each.released | capture.released
            before = outcome.with_late(State.of_checkpoint(each.before), each.late)
            after = outcome.with_added(after, each.added, before)
            before = outcome.without_released(before, after, released)
            if each.shared:
                outcome.note_shared(before, after, each.shared)
            if not each.shared or on_conflict == "theirs":
                outcome.undo(before, after)
        target, chosen = outcome.target(capture.facts(), reason)
        while chosen and (in_the_way := find_conflicts(space, target, chosen)):
            if not outcome.leave_alone(in_the_way, chosen):
                raise RestoreRefused(conflicts=", ".join(map(os.fsdecode, in_the_way)))
            target, chosen = outcome.target(capture.facts(), reason)
    conflicts = tuple(outcome.conflicts[path] for path in sorted(outcome.conflicts))
    if not chosen:
        return RestoreResult(target, applied=space.lasting, conflicts=conflicts)
    note = _merged_text(outcome.merged - outcome.conflicts.keys())
    if not space.lasting:
        return replace(restore(space, target, chosen), conflicts=conflicts, note=note)
    body = {**(facts or {}), **target.metadata, "kind": target.kind, "revert": True}
    target = record_checkpoint(space.store, space.project, target.tree, reason, body, objects=space.objects)
    done = False
    try:
        result = restore(space, target, chosen, why)
        done = True
    finally:
        begun = read_journal(space.store, space.project).open
        if not done and (begun is None or begun.target != target.id):  # this state will never be restored
            delete_checkpoints(space.store, space.project, [target], space.deadline)
    return replace(result, conflicts=conflicts, note=note)


def _merged_text(paths: Collection[bytes]) -> str:
    """Which files were edited since the work, so that it is merged out of them. Also read of a plan."""
    if not paths:
        return ""
    names = sorted(map(os.fsdecode, paths))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"merged with what was edited since: {', '.join(names[:_MOST_NAMED])}{more}"


class _Outcome:
    """The state that a revert leads to, as far as the work is undone."""

    def __init__(self, space: Workspace, reader: ObjectReader, now: State, on_conflict: str) -> None:
        self._space = space
        self._reader = reader
        self._now = now
        self._on_conflict = on_conflict
        self._trees: dict[str, TreeReader] = {}
        self._tree = now.tree
        self._bits: dict[bytes, int] = {}
        """Permission bits that are not those of now."""
        self._bare = set(now.bare)
        self._known_absent: set[bytes] = set()
        self._left_out: dict[bytes, str] = {}
        """Files that go, but may have existed before: the checkpoint left them out."""
        self._obstructed: set[bytes] = set()
        self.conflicts: dict[bytes, Conflict] = {}
        self.merged: set[bytes] = set()
        """Files that were edited since, and out of which the work is merged."""

    # --- the states before and after the work ------------------------------------------------------

    def with_late(self, state: State, late: Mapping[bytes, Checkpoint]) -> State:
        """The state with files that existed but were captured only later, as these checkpoints hold them. What the
        state holds itself stays: a file that was deleted and made again is captured anew, too."""
        changes: Changes = {}
        bits = dict(state.modes.other)
        there = self._open(state.tree)
        for path, holder in late.items():
            held = self._open(holder.tree).find(path)
            if held is not None and there.find(path) is None:
                changes[path] = held
                bits[path] = State.of_checkpoint(holder).bits(path, held[0])
        return replace(state, tree=self._patched(state.tree, changes), modes=replace(state.modes, other=bits))

    def with_added(self, after: State, added: Mapping[bytes, Checkpoint], before: State) -> State:
        """The state at the end of work with the files that were added to the one before it, but not to this one:
        the work did not delete them."""
        there = self._open(before.tree)
        return self.with_late(after, {path: each for path, each in added.items() if there.find(path) is not None})

    def without_released(self, before: State, after: State, released: Collection[bytes]) -> State:
        """The state without files that existed all the time, but were left out of captures from some moment on
        because the rules changed: the turn did not delete them."""
        later = self._open(after.tree)
        gone = dict.fromkeys(path for path in released if later.find(path) is None)
        return replace(before, tree=self._patched(before.tree, gone))

    def note_shared(self, before: State, after: State, others: Sequence[str]) -> None:
        """Report what changed between two states as a conflict: it may be the work of others."""
        names = ", ".join(f"session {name}" for name in others)
        changed = [item.path for item in tree_differences(self._space.git, before.tree, after.tree)]
        changed += [item.path for item in mode_differences(self._space.git, after, before, changed)]
        now, then = self._open(self._now.tree), self._open(before.tree)
        for path in changed:
            if path not in self.conflicts:
                why = f"shared: changed while {names} worked here, too"
                self._add_conflict(path, why, now.find(path), then.find(path))

    # --- undoing -----------------------------------------------------------------------------------

    def undo(self, before: State, after: State) -> None:
        """Take what happened between two states out of the outcome, path by path."""
        work = tree_differences(self._space.git, before.tree, after.tree)
        changes = self._follow_renames(before, after, work)
        here = self._open(self._tree)
        for item in work:
            if item.path not in changes:
                self._undo_path(item, here.find(item.path), changes)
        self._resolve_kinds(before, changes)
        self._note_absent(before, [path for path, leaf in changes.items() if leaf is None])
        self._undo_bits(before, after, changes)
        self._tree = self._patched(self._tree, changes)
        self._bare |= before.bare - after.bare
        self._bare -= after.bare - before.bare

    def _follow_renames(self, before: State, after: State, work: list[Difference]) -> Changes:
        """Where a file that the turn changed was renamed since and is otherwise as the turn left it, undo the
        change under the new name. Where the turn itself only renamed a file, what others changed in it since
        goes back with the name. (Similar files do not count as renamed: that would be a guess.)"""
        here, then = self._open(self._tree), self._open(before.tree)
        changes: Changes = {}
        for old, new in _renames(work):
            now = here.find(new)
            if _is_file(now) and here.find(old) is None:
                changes[old], changes[new] = now, None
        worked_on = {item.path for item in work}
        for old, new in _renames(tree_differences(self._space.git, after.tree, self._tree)):
            if old not in worked_on or new in worked_on or old in changes:
                continue
            changes[old] = None
            was = then.find(old)
            if was is not None and was[0] != DIRECTORY:
                changes[new] = was
                self._bits[new] = before.bits(old, was[0])
            else:  # the turn made it: it is not deleted under a name that the turn does not know
                self._add_conflict(old, f"renamed since, to {os.fsdecode(new)}", None, was)
        return changes

    def _undo_path(self, item: Difference, now: Leaf | None, changes: Changes) -> None:
        """Undo the change from `item.old` to `item.new` in what is at that path now. Where others changed the
        same lines, the file stays, unless asked otherwise. A directory stays in any case: others may have
        something in it."""
        path, before, after = item
        if now == after:
            changes[path] = before
            return
        if now == before:
            return  # already undone
        merged = self._merged(before, after, now)
        if merged is not None and not merged[1]:
            changes[path] = merged[0]
            self.merged.add(path)
            return
        why = _CHANGED_SINCE if merged is None else "changed since in the same lines"
        self._add_conflict(path, why, now, before)
        if self._on_conflict == "theirs" and not is_directory(now):
            changes[path] = before
        elif self._on_conflict == "markers" and merged is not None:
            changes[path] = merged[0]

    def _merged(self, before: Leaf | None, after: Leaf | None, now: Leaf | None) -> tuple[Leaf, bool] | None:
        """The file with the change taken out, and whether it has conflicts; None if it cannot be merged."""
        if before is None or after is None or now is None:
            return None
        if not {before[0], after[0], now[0]} <= {REGULAR, EXECUTABLE}:
            return None
        mode = before[0] if now[0] == after[0] else now[0]
        if now[1] == after[1]:
            return (mode, before[1]), False
        if before[1] == after[1]:  # the turn changed the executable bit only
            return (mode, now[1]), False
        ours, base, theirs = (self._reader.read(leaf[1], b"blob") for leaf in (now, after, before))
        labels = ("now", "after the turn", "before the turn")
        merged = merge_text(self._space.git, ours, base, theirs, labels)
        if merged is None:
            return None
        return (mode, self._space.objects.write(b"blob", merged.data)), merged.has_conflicts

    def _resolve_kinds(self, before: State, changes: Changes) -> None:
        """A file cannot come back where others have a directory by now, nor below a file of theirs."""
        here, then = self._open(self._tree), self._open(before.tree)
        for path in sorted(path for path, leaf in changes.items() if leaf is not None):
            files_above = [up for up in parents(path) if _is_file(changes.get(up, here.find(up)))]
            below = [each for each in here.files_below(path) if changes.get(each, each) is not None]
            if files_above or below:
                del changes[path]
                if self.conflicts.keys().isdisjoint(files_above):
                    self._add_conflict(path, _CHANGED_SINCE, here.find(path), then.find(path))

    def _note_absent(self, before: State, gone: list[bytes]) -> None:
        """Note whether files that go are known not to have existed before, or just were not captured."""
        ignored = ignored_by_checkpoint(self._space, self._now, before, gone)
        for path in gone:
            if (why := before.left_out(path)) is not None:
                self._left_out[path] = why
            elif path in ignored and path not in before.absent:
                self._left_out[path] = "ignored"
            else:
                self._known_absent.add(path)

    def _undo_bits(self, before: State, after: State, changes: Changes) -> None:
        then, done, here = self._open(before.tree), self._open(after.tree), self._open(self._tree)
        paths = [item.path for item in mode_differences(self._space.git, after, before, changes)]
        paths += [path for path, leaf in changes.items() if leaf is not None]
        for path in paths:
            was, left, now = then.find(path), done.find(path), here.find(path)
            if was is None:
                continue
            bits = before.bits(path, was[0])
            if now is not None and left is not None:
                current = self._bits.get(path, self._now.bits(path, now[0]))
                if current != after.bits(path, left[0]):
                    bits = current  # changed since
            self._bits[path] = bits

    # --- the outcome -------------------------------------------------------------------------------

    def target(self, facts: dict[str, object], reason: str) -> tuple[Checkpoint, Selection]:
        """The state to restore, and the paths that are to change. `facts` are those of the present."""
        now = self._now
        self._put_back_what_is_left_alone()
        differing = tree_differences(self._space.git, now.tree, self._tree)
        self._drop_impossible()
        bits = {**now.modes.other, **self._bits}
        for item in differing:
            if item.new is not None and item.old is None and item.path not in self._bits:
                bits.pop(item.path, None)
        gone = {item.path for item in differing if item.new is None}
        left_out = {**now.skipped, **{path: why for path, why in self._left_out.items() if path in gone}}
        skipped = [(os.fsdecode(path), why) for path, why in sorted(left_out.items())]
        target = Checkpoint(
            id="",
            project=self._space.project.id,
            workdir=str(self._space.project.workdir),
            created_at=datetime.now(UTC),
            reason=reason,
            kind="manual",
            skipped=tuple(Skipped(path, why) for path, why in skipped),
            metadata={
                **facts,
                "skipped": [[path, why] for path, why in skipped],
                "modes": replace(now.modes, other=bits).to_json(),
                "empty_dirs": sorted(os.fsdecode(path) for path in self._bare),
                "absent": [os.fsdecode(path) for path in sorted(gone & self._known_absent)],
            },
            tree=self._tree,
        )
        changed_bits = {path for path in self._bits if now.modes.other.get(path) != self._bits[path]}
        paths = {item.path for item in differing} | changed_bits | (self._bare ^ now.bare)
        return target, Selection(paths, exact=True)

    def _put_back_what_is_left_alone(self) -> None:
        """A file with a conflict stays as it is now, even if some other change to it could be undone."""
        alone = set(self._obstructed)
        if self._on_conflict == "keep":
            alone |= self.conflicts.keys()
        wanted, now = self._open(self._tree), self._open(self._now.tree)
        back = {path: now.find(path) for path in alone if wanted.find(path) != now.find(path)}
        # A directory stays with what others have in it, but what the turn put there is taken out.
        back = {path: leaf for path, leaf in back.items() if not is_directory(leaf)}
        self._tree = self._patched(self._tree, back)
        for path in alone:
            self._bits.pop(path, None)
        self._bare = (self._bare - alone) | (alone & self._now.bare)

    def _drop_impossible(self) -> None:
        """What undoing one turn brought back, undoing an earlier one may have taken away again; and there is no
        empty directory where others have a file."""
        tree = self._open(self._tree)
        self._bits = {path: bits for path, bits in self._bits.items() if tree.find(path) is not None}
        self._bare = {
            path for path in self._bare if not any(_is_file(tree.find(each)) for each in (path, *parents(path)))
        }

    def leave_alone(self, in_the_way: Mapping[bytes, str], chosen: Selection) -> bool:
        """Leave out what cannot be restored because of something that no checkpoint holds; False if nothing more
        can be left out."""
        before = len(self._obstructed)
        wanted = self._open(self._tree)
        for obstacle, why in in_the_way.items():
            name = obstacle.rstrip(b"/")
            for path in chosen.paths:
                if name in (path, *parents(path)) or path in parents(name):
                    self._add_conflict(path, f"{os.fsdecode(name)}: {why}", None, wanted.find(path))
                    self._obstructed.add(path)
        return len(self._obstructed) > before

    # --- helpers -----------------------------------------------------------------------------------

    def _add_conflict(self, path: bytes, why: str, ours: Leaf | None, theirs: Leaf | None) -> None:
        self.conflicts[path] = Conflict(os.fsdecode(path), why, self._text(ours), self._text(theirs))

    def _text(self, leaf: Leaf | None) -> str | None:
        """The text of one side of a conflict; None if there is no file, or it is not text."""
        if leaf is None or leaf[0] == DIRECTORY:
            return None
        data = self._reader.read(leaf[1], b"blob")
        return None if b"\0" in data[:8000] else data[:_MOST_SHOWN].decode("utf-8", "surrogateescape")

    def _open(self, tree: str) -> TreeReader:
        if tree not in self._trees:
            self._trees[tree] = open_tree(self._reader, tree)
        return self._trees[tree]

    def _patched(self, tree: str, changes: Mapping[bytes, Leaf | None]) -> str:
        return self._reader.changed_tree(tree, changes, self._space.objects)


def _renames(differing: Iterable[Difference]) -> Iterator[tuple[bytes, bytes]]:
    """Old and new name of each file that went and came again with the same content, if no other file could be
    meant."""
    went: dict[Leaf, list[bytes]] = {}
    came: dict[Leaf, list[bytes]] = {}
    for item in differing:
        if item.old is not None and item.new is None:
            went.setdefault(item.old, []).append(item.path)
        elif item.new is not None and item.old is None:
            came.setdefault(item.new, []).append(item.path)
    for leaf, old in went.items():
        new = came.get(leaf, [])
        if len(old) == len(new) == 1 and leaf[1] != EMPTY_BLOB:
            yield old[0], new[0]


def _is_file(leaf: Leaf | None) -> bool:
    return leaf is not None and leaf[0] != DIRECTORY
