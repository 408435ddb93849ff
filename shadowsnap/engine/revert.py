"""Taking single turns back out of the files as they are now, keeping everyone else's edits.

The work of a turn (see `attribution`) is undone by a three-way merge (base: after the turn, ours:
now, theirs: before it), piece by piece, newest first; the outcome is a state like any other, and a
restore brings it about. What two sessions may both have done is left alone, unless asked otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from shadowsnap.engine.attribution import Work as Work
from shadowsnap.engine.restore import restore
from shadowsnap.engine.snapshot import begin_capture
from shadowsnap.engine.state import Difference, State, mode_differences, tree_differences
from shadowsnap.engine.workspace import Workspace
from shadowsnap.errors import NoSuchTurn
from shadowsnap.git.merge import merge_trees
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import DIRECTORY, Leaf, TreeReader, patch_tree
from shadowsnap.model import Checkpoint, Conflict, RestoreResult, Skipped
from shadowsnap.records import replace
from shadowsnap.store.checkpoints import delete_checkpoints, record_checkpoint
from shadowsnap.store.journal import read_journal
from shadowsnap.store.scancache import Modes

_SHOWN = 64 * 1024


def revert(
    space: Workspace,
    work: Sequence[Work],
    reason: str,
    on_conflict: str = "keep",
    facts: Mapping[str, object] | None = None,
) -> RestoreResult:
    """Undo this work, which is sorted newest first, in the files as they are now. The state that comes
    about is a checkpoint; `facts` are kept with it."""
    if not work:
        raise NoSuchTurn(workdir=space.project.workdir, what=reason.removeprefix("revert of "))
    capture = begin_capture(space)
    now = State.of_capture(capture)
    undoing = _Undoing(space, now, on_conflict)
    for each in work:
        after = State.of_checkpoint(each.after) if each.after is not None else now
        before = undoing.with_late(State.of_checkpoint(each.before), each.late)
        if each.shared:
            undoing.dispute(before, after, each.shared)
        if not each.shared or on_conflict == "theirs":
            undoing.undo(before, after)
    target, paths = undoing.target(capture.facts(), reason)
    conflicts = tuple(undoing.conflicts[path] for path in sorted(undoing.conflicts))
    if not paths:
        return RestoreResult(target, applied=space.lasting, conflicts=conflicts)
    if not space.lasting:
        return replace(restore(space, target, paths), conflicts=conflicts)
    body = {**(facts or {}), **target.metadata, "kind": target.kind}
    target = record_checkpoint(space.store, space.project, target.tree, reason, body, objects=space.objects)
    done = False
    try:
        result = restore(space, target, paths)
        done = True
    finally:
        begun = read_journal(space.store, space.project).open
        if not done and (begun is None or begun.target != target.id):  # the state will never come about
            delete_checkpoints(space.store, space.project, [target], space.deadline)
    return replace(result, conflicts=conflicts)


class _Undoing:
    """The state that results, as far as it got."""

    def __init__(self, space: Workspace, now: State, on_conflict: str) -> None:
        self._space = space
        self._now = now
        self._on_conflict = on_conflict
        self._tree = now.tree
        self._bits: dict[bytes, int] = {}
        self._bare = set(now.bare)
        self._known_absent: set[bytes] = set()
        self._left_out: dict[bytes, str] = {}
        """Files that may have been there before, for all that the checkpoint could know."""
        self.conflicts: dict[bytes, Conflict] = {}

    def undo(self, before: State, after: State) -> None:
        current = self._tree
        merge = merge_trees(self._space.git, self._space.objects, after.tree, current, before.tree)
        with ObjectReader(self._space.git) as reader:
            sides = {
                name: TreeReader(tree, lambda each: reader.read(each, b"tree"))
                for name, tree in (("before", before.tree), ("after", after.tree), ("now", current))
            }
            changes = {item.path: item.new for item in tree_differences(self._space.git, current, merge.tree)}
            for path, stages in merge.disputed.items():
                real = merge.real_name(path)
                if real == path:
                    merged = self._with_labels(changes.get(path), merge.labels, reader)
                    changes[path] = self._settle(path, stages, sides, merged, reader)
                elif real not in merge.disputed:
                    self._settle_kinds(real, sides, changes, reader)
            for path in [path for path in changes if not any(side.find(path) for side in sides.values())]:
                del changes[path]  # a name that the merge made up for one side of a dispute
            for path in [path for path, leaf in changes.items() if leaf is None]:
                if (why := before.left_out(path)) is not None:
                    self._left_out[path] = why
                elif path in before.absent:
                    self._known_absent.add(path)
            self._tree = patch_tree(current, changes, lambda each: reader.read(each, b"tree"), self._write_tree)
            self._undo_bits(before, after, sides, changes)
        self._bare |= before.bare - after.bare
        self._bare -= after.bare - before.bare

    def with_late(self, before: State, late: Mapping[bytes, Checkpoint]) -> State:
        """A state with files that it did not capture although they were there, as a later one holds them."""
        if not late:
            return before
        leaves, modes = dict[bytes, Leaf | None](), dict(before.modes.other)
        with ObjectReader(self._space.git) as reader:
            for path, holder in late.items():
                held = TreeReader(holder.tree, lambda each: reader.read(each, b"tree")).find(path)
                if held is not None:
                    leaves[path] = held
                    modes[path] = State.of_checkpoint(holder).bits(path, held[0])
            tree = patch_tree(before.tree, leaves, lambda each: reader.read(each, b"tree"), self._write_tree)
        usual = before.modes
        return replace(before, tree=tree, modes=Modes(usual.file, usual.executable, usual.directory, modes))

    def dispute(self, before: State, after: State, others: Sequence[str]) -> None:
        """What happened between two states may be the work of others."""
        names = ", ".join(f"session {name}" for name in others)
        changed = [item.path for item in tree_differences(self._space.git, before.tree, after.tree)]
        changed += [item.path for item in mode_differences(self._space.git, after, before, changed)]
        with ObjectReader(self._space.git) as reader:
            now, then = (
                TreeReader(tree, lambda each: reader.read(each, b"tree")) for tree in (self._now.tree, before.tree)
            )
            for path in changed:
                sides = _shown(now.find(path), reader), _shown(then.find(path), reader)
                why = f"shared: changed while {names} worked here, too"
                self.conflicts.setdefault(path, Conflict(os.fsdecode(path), why, *sides))

    def target(self, facts: dict[str, object], reason: str) -> tuple[Checkpoint, list[bytes]]:
        """The state to restore, and the paths that are to change."""
        now = self._now
        differing = tree_differences(self._space.git, now.tree, self._tree)
        self._forget_what_cannot_be()
        modes = Modes(now.modes.file, now.modes.executable, now.modes.directory, dict(now.modes.other))
        modes.other.update(self._bits)
        for item in differing:
            if item.new is not None and item.path not in self._bits and item.old is None:
                modes.other.pop(item.path, None)
        gone = {item.path for item in differing if item.new is None}
        absent = [os.fsdecode(path) for path in sorted(gone & self._known_absent)]
        left_out = {**now.skipped, **{path: why for path, why in self._left_out.items() if path in gone}}
        told = {
            **facts,
            "skipped": [[os.fsdecode(path), why] for path, why in sorted(left_out.items())],
            "modes": modes.to_json(),
            "empty_dirs": sorted(os.fsdecode(path) for path in self._bare),
            "absent": absent,
        }
        target = Checkpoint(
            id="",
            project=self._space.project.id,
            workdir=str(self._space.project.workdir),
            created_at=datetime.now(timezone.utc),
            reason=reason,
            kind="manual",
            skipped=tuple(Skipped(os.fsdecode(path), why) for path, why in sorted(left_out.items())),
            metadata=told,
            tree=self._tree,
        )
        changed_bits = [path for path, bits in self._bits.items() if now.modes.other.get(path) != bits]
        paths = {item.path for item in differing} | set(changed_bits) | (self._bare ^ now.bare)
        return target, sorted(paths)

    def _settle(
        self,
        path: bytes,
        stages: frozenset[int],
        sides: dict[str, TreeReader],
        merged: Leaf | None,
        reader: ObjectReader,
    ) -> Leaf | None:
        """What becomes of a path where others changed the same: it stays, unless asked otherwise."""
        ours, theirs = sides["now"].find(path), sides["before"].find(path)
        why = "changed since in the same place" if {2, 3} <= stages else "changed since, and not the same way"
        self.conflicts[path] = Conflict(os.fsdecode(path), why, _shown(ours, reader), _shown(theirs, reader))
        if self._on_conflict == "theirs":
            return theirs
        if self._on_conflict == "markers" and stages == {1, 2, 3} and merged is not None:
            return merged
        return ours

    def _settle_kinds(
        self, path: bytes, sides: dict[str, TreeReader], changes: dict[bytes, Leaf | None], reader: ObjectReader
    ) -> None:
        """The same where a file is now what was a directory before, or the other way round. A directory
        stays in any case: others may have something in it."""
        ours, theirs = sides["now"].find(path), sides["before"].find(path)
        why = "changed since, and not the same way"
        self.conflicts[path] = Conflict(os.fsdecode(path), why, _shown(ours, reader), _shown(theirs, reader))
        if self._on_conflict == "theirs":
            if theirs is not None and DIRECTORY not in (theirs[0], ours[0] if ours else None):
                changes[path] = theirs
        elif ours is not None and ours[0] != DIRECTORY:
            for each in [each for each in changes if each == path or each.startswith(path + b"/")]:
                del changes[each]

    def _with_labels(self, merged: Leaf | None, labels: tuple[str, str], reader: ObjectReader) -> Leaf | None:
        """A merged file whose conflict markers say what the sides are."""
        if self._on_conflict != "markers" or merged is None or merged[0] == DIRECTORY:
            return merged
        data = told = reader.read(merged[1], b"blob")
        for mark, label, name in ((b"<<<<<<< ", labels[0], b"now"), (b">>>>>>> ", labels[1], b"before the turn")):
            told = told.replace(mark + label.encode(), mark + name)
        return merged if told == data else (merged[0], self._space.objects.write(b"blob", told))

    def _undo_bits(
        self,
        before: State,
        after: State,
        sides: dict[str, TreeReader],
        changes: dict[bytes, Leaf | None],
    ) -> None:
        differing = mode_differences(self._space.git, after, before, changes)
        for item in (*differing, *(Difference(path, None, leaf) for path, leaf in changes.items())):
            path, leaf, was = item.path, item.new, sides["before"].find(item.path)
            if leaf is None or was is None:
                continue
            then = before.bits(path, was[0])
            here, done = sides["now"].find(path), sides["after"].find(path)
            if here is not None and done is not None:
                current = self._bits.get(path, self._now.bits(path, here[0]))
                if current != after.bits(path, done[0]):
                    then = current  # someone changed it since
            self._bits[path] = then

    def _forget_what_cannot_be(self) -> None:
        """What one turn's undoing brought, an earlier turn's may have taken away again; and where others
        have a file, there is no empty directory."""
        with ObjectReader(self._space.git) as reader:
            result = TreeReader(self._tree, lambda each: reader.read(each, b"tree"))
            self._bits = {path: bits for path, bits in self._bits.items() if result.find(path) is not None}
            self._bare = {path for path in self._bare if not _has_file_at(result, path)}

    def _write_tree(self, data: bytes) -> str:
        return self._space.objects.write(b"tree", data)


def _has_file_at(tree: TreeReader, path: bytes) -> bool:
    """Whether a file is at a path, or at one above it."""
    names = path.rstrip(b"/").split(b"/")
    found = (tree.find(b"/".join(names[:count])) for count in range(1, len(names) + 1))
    return any(leaf is not None and leaf[0] != DIRECTORY for leaf in found)


def _shown(leaf: Leaf | None, reader: ObjectReader) -> str | None:
    """The text of one side of a conflict; None if there is none, or it is not text."""
    if leaf is None or leaf[0] == DIRECTORY:
        return None
    data = reader.read(leaf[1], b"blob")
    return None if b"\0" in data[:8000] else data[:_SHOWN].decode("utf-8", "surrogateescape")
