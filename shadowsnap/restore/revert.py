"""Reverting: taking the work of single turns out of the files as they are now, keeping everyone else's edits.

Work (see `attribution`) is undone path by path, newest first. A file that is as the turn left it becomes what it
was before. One that was changed since is merged (base: after the turn, ours: now, theirs: before it). The outcome
is a state like any other, which a restore brings about. What two sessions may both have done is left alone,
unless asked otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from shadowsnap.errors import NoSuchTurn, RestoreRefused
from shadowsnap.git.objects import EMPTY_BLOB
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import merge_text
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, REGULAR, Leaf, TreeReader, patch_tree
from shadowsnap.model import Checkpoint, Conflict, RestoreResult, Skipped
from shadowsnap.restore.plan import ignored_by_checkpoint, open_tree
from shadowsnap.restore.restore import RESTORE, Why, find_conflicts, restore
from shadowsnap.snapshot.attribution import Work as Work
from shadowsnap.snapshot.states import Difference, Selection, State, mode_differences, tree_differences
from shadowsnap.snapshot.take import begin_capture
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.checkpoints import delete_checkpoints, record_checkpoint
from shadowsnap.store.journal import read_journal

_MOST_SHOWN = 64 * 1024
"""Of each side of a conflict, so many bytes are in the result."""
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
    if not space.lasting:
        return replace(restore(space, target, chosen), conflicts=conflicts)
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
    return replace(result, conflicts=conflicts)


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

    # --- the states before and after the work ------------------------------------------------------

    def with_late(self, before: State, late: Mapping[bytes, Checkpoint]) -> State:
        """The state with files that existed but were captured only later, as these checkpoints hold them."""
        changes: Changes = {}
        bits = dict(before.modes.other)
        for path, holder in late.items():
            held = self._open(holder.tree).find(path)
            if held is not None:
                changes[path] = held
                bits[path] = State.of_checkpoint(holder).bits(path, held[0])
        return replace(before, tree=self._patched(before.tree, changes), modes=replace(before.modes, other=bits))

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
            return
        why = _CHANGED_SINCE if merged is None else "changed since in the same lines"
        self._add_conflict(path, why, now, before)
        if self._on_conflict == "theirs" and not _is_directory(now):
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
        back = {path: leaf for path, leaf in back.items() if not _is_directory(leaf)}
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
        read, write = self._reader.read, self._space.objects.write
        return patch_tree(tree, changes, lambda name: read(name, b"tree"), lambda data: write(b"tree", data))


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


def _is_directory(leaf: Leaf | None) -> bool:
    return leaf is not None and leaf[0] == DIRECTORY
