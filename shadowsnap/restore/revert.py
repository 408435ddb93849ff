"""Taking single turns back out of the files as they are now, keeping everyone else's edits.

The work of a turn (see `attribution`) is undone path by path, newest first. A file that is as the turn left
it becomes what it was before; one that was changed since is merged (base: after the turn, ours: now, theirs:
before it). The outcome is a state like any other, and a restore brings it about. What two sessions may both
have done is left alone, unless asked otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from shadowsnap.errors import NoSuchTurn, RestoreRefused
from shadowsnap.git.objects import EMPTY_BLOB
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import merge_text
from shadowsnap.git.trees import DIRECTORY, EXECUTABLE, REGULAR, Leaf, ReadTree, TreeReader, patch_tree
from shadowsnap.model import Checkpoint, Conflict, RestoreResult, Skipped
from shadowsnap.records import replace
from shadowsnap.restore.plan import ignored_then
from shadowsnap.restore.restore import RESTORE, Why, obstacles, restore
from shadowsnap.snapshot.attribution import Work as Work
from shadowsnap.snapshot.states import Difference, Selection, State, mode_differences, tree_differences
from shadowsnap.snapshot.take import begin_capture
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.checkpoints import delete_checkpoints, record_checkpoint
from shadowsnap.store.journal import read_journal
from shadowsnap.store.stat_cache import Modes

_SHOWN = 64 * 1024


def revert(
    space: Workspace,
    work: Sequence[Work],
    reason: str,
    on_conflict: str = "keep",
    facts: Mapping[str, object] | None = None,
    why: Why = RESTORE,
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
        left = each.released if each.after is not None else each.released | capture.released
        before = undoing.with_late(State.of_checkpoint(each.before), each.late)
        before = undoing.without_released(before, after, left)
        if each.shared:
            undoing.dispute(before, after, each.shared)
        if not each.shared or on_conflict == "theirs":
            undoing.undo(before, after)
    target, chosen = undoing.target(capture.facts(), reason)
    while chosen and (in_the_way := obstacles(space, target, chosen)):
        if not undoing.leave_alone(in_the_way, chosen):
            raise RestoreRefused(conflicts=", ".join(map(os.fsdecode, in_the_way)))
        target, chosen = undoing.target(capture.facts(), reason)
    conflicts = tuple(undoing.conflicts[path] for path in sorted(undoing.conflicts))
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
        self._obstructed: set[bytes] = set()
        self._left_out: dict[bytes, str] = {}
        """Files that may have been there before, for all that the checkpoint could know."""
        self.conflicts: dict[bytes, Conflict] = {}

    def undo(self, before: State, after: State) -> None:
        """Take what happened between two states out of the result, path by path."""
        git, current = self._space.git, self._tree
        with ObjectReader(git) as reader:
            read: ReadTree = lambda name: reader.read(name, b"tree")  # noqa: E731
            then, here = (TreeReader(tree, read) for tree in (before.tree, current))
            changes = self._follow_renames(before, after, current, then, reader)
            for item in tree_differences(git, before.tree, after.tree):
                if item.path not in changes:
                    self._undo_path(item, here.find(item.path), changes, reader)
            self._settle_kinds(changes, here, then, reader)
            self._note_absent(before, [path for path, leaf in changes.items() if leaf is None])
            self._tree = patch_tree(current, changes, read, self._write_tree)
            sides = {"before": then, "after": TreeReader(after.tree, read), "now": here}
            self._undo_bits(before, after, sides, changes)
        self._bare |= before.bare - after.bare
        self._bare -= after.bare - before.bare

    def _note_absent(self, before: State, gone: list[bytes]) -> None:
        """Whether files that go are known not to have existed before, or only were not captured."""
        ignored = ignored_then(self._space, self._now, before, gone)
        for path in gone:
            if (why := before.left_out(path)) is not None:
                self._left_out[path] = why
            elif path in ignored and path not in before.absent:
                self._left_out[path] = "ignored"
            else:
                self._known_absent.add(path)

    def _undo_path(
        self, item: Difference, now: Leaf | None, changes: dict[bytes, Leaf | None], reader: ObjectReader
    ) -> None:
        """Undo the change from `item.old` to `item.new` in what is at that path now."""
        path, before, after = item
        if now == after:
            changes[path] = before
        elif now == before or (now is None and before is None):
            return  # undone already
        else:
            merged = self._merged(before, after, now, reader)
            if merged is not None and not merged[1]:
                changes[path] = merged[0]
            else:
                self._settle(path, now, before, merged[0] if merged is not None else None, changes, reader)

    def _merged(
        self, before: Leaf | None, after: Leaf | None, now: Leaf | None, reader: ObjectReader
    ) -> tuple[Leaf, bool] | None:
        """The file with the change taken out, and whether it has conflicts; None if it cannot be merged."""
        if before is None or after is None or now is None:
            return None
        if not {before[0], after[0], now[0]} <= {REGULAR, EXECUTABLE}:
            return None
        mode = before[0] if now[0] == after[0] else now[0]
        if now[1] == after[1] or before[1] == after[1]:  # at most the bit that makes it executable differs
            return (mode, before[1] if now[1] == after[1] else now[1]), False
        ours, base, theirs = (reader.read(leaf[1], b"blob") for leaf in (now, after, before))
        labels = ("now", "after the turn", "before the turn")
        merged = merge_text(self._space.git, ours, base, theirs, labels)
        if merged is None:
            return None
        return (mode, self._space.objects.write(b"blob", merged.data)), merged.has_conflicts

    def _settle(
        self,
        path: bytes,
        ours: Leaf | None,
        theirs: Leaf | None,
        marked: Leaf | None,
        changes: dict[bytes, Leaf | None],
        reader: ObjectReader,
    ) -> None:
        """What becomes of a path where others changed the same: it stays, unless asked otherwise. A directory
        stays in any case: others may have something in it."""
        why = "changed since in the same place" if marked is not None else "changed since, and not the same way"
        self.conflicts[path] = Conflict(os.fsdecode(path), why, _shown(ours, reader), _shown(theirs, reader))
        if self._on_conflict == "theirs" and (ours is None or ours[0] != DIRECTORY):
            changes[path] = theirs
        elif self._on_conflict == "markers" and marked is not None:
            changes[path] = marked

    def _settle_kinds(
        self, changes: dict[bytes, Leaf | None], here: TreeReader, then: TreeReader, reader: ObjectReader
    ) -> None:
        """A file cannot come back where others have a directory by now, nor below a file of theirs."""
        for path in sorted(path for path, leaf in changes.items() if leaf is not None):
            files_above = [up for up in parents(path) if _is_file(changes.get(up, here.find(up)))]
            below = [each for each in here.files_below(path) if changes.get(each, each) is not None]
            if not files_above and not below:
                continue
            del changes[path]
            if self.conflicts.keys().isdisjoint(files_above):
                why, ours = "changed since, and not the same way", _shown(here.find(path), reader)
                self.conflicts[path] = Conflict(os.fsdecode(path), why, ours, _shown(then.find(path), reader))

    def _follow_renames(
        self, before: State, after: State, current: str, then: TreeReader, reader: ObjectReader
    ) -> dict[bytes, Leaf | None]:
        """Where a file that the turn changed has another name by now and is otherwise just as the turn left it,
        undo the change under the new name. Where the turn itself only renamed a file, what others changed in it
        since goes back with the name. (Similar files are not renamed ones: that would be a guess.)"""
        here = TreeReader(current, lambda name: reader.read(name, b"tree"))
        work = tree_differences(self._space.git, before.tree, after.tree)
        changes: dict[bytes, Leaf | None] = {}
        for old, new in _renames(work):
            now = here.find(new)
            if now is not None and now[0] != DIRECTORY and here.find(old) is None:
                changes[old], changes[new] = now, None
        worked_on = {item.path for item in work}
        for old, new in _renames(tree_differences(self._space.git, after.tree, current)):
            if old not in worked_on or new in worked_on or old in changes:
                continue
            changes[old] = None
            was = then.find(old)
            if was is not None and was[0] != DIRECTORY:
                changes[new] = was
                self._bits[new] = before.bits(old, was[0])
            else:  # the turn made it: it is not deleted under a name that the turn does not know
                why = f"renamed since, to {os.fsdecode(new)}"
                self.conflicts[old] = Conflict(os.fsdecode(old), why, None, _shown(was, reader))
        return changes

    def leave_alone(self, in_the_way: Mapping[bytes, str], chosen: Selection) -> bool:
        """What cannot come about because of something that no checkpoint holds stays as it is; False if nothing
        more can be left out."""
        before = len(self._obstructed)
        with ObjectReader(self._space.git) as reader:
            wanted = TreeReader(self._tree, lambda each: reader.read(each, b"tree"))
            for obstacle, why in in_the_way.items():
                name = obstacle.rstrip(b"/")
                for path in chosen.paths:
                    if name not in (path, *parents(path)) and path not in parents(name):
                        continue
                    theirs = _shown(wanted.find(path), reader)
                    self.conflicts[path] = Conflict(os.fsdecode(path), f"{os.fsdecode(name)}: {why}", None, theirs)
                    self._obstructed.add(path)
        return len(self._obstructed) > before

    def without_released(self, before: State, after: State, released: Collection[bytes]) -> State:
        """A state without files that were there all the time, and that a capture left out from some moment on
        because the rules had changed: the turn did not delete them."""
        with ObjectReader(self._space.git) as reader:
            later = TreeReader(after.tree, lambda each: reader.read(each, b"tree"))
            gone = dict.fromkeys(path for path in released if later.find(path) is None)
            tree = patch_tree(before.tree, gone, lambda each: reader.read(each, b"tree"), self._write_tree)
        return replace(before, tree=tree)

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

    def target(self, facts: dict[str, object], reason: str) -> tuple[Checkpoint, Selection]:
        """The state to restore, and the paths that are to change."""
        now = self._now
        self._put_back_what_is_left_alone()
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
            created_at=datetime.now(UTC),
            reason=reason,
            kind="manual",
            skipped=tuple(Skipped(os.fsdecode(path), why) for path, why in sorted(left_out.items())),
            metadata=told,
            tree=self._tree,
        )
        changed_bits = [path for path, bits in self._bits.items() if now.modes.other.get(path) != bits]
        paths = {item.path for item in differing} | set(changed_bits) | (self._bare ^ now.bare)
        return target, Selection(paths, exact=True)

    def _put_back_what_is_left_alone(self) -> None:
        """A file with a conflict is as it is now, whatever was undone in it elsewhere."""
        alone = set(self._obstructed)
        if self._on_conflict == "keep":
            alone |= self.conflicts.keys()
        with ObjectReader(self._space.git) as reader:
            wanted, now = (
                TreeReader(tree, lambda each: reader.read(each, b"tree")) for tree in (self._tree, self._now.tree)
            )
            back = {path: now.find(path) for path in alone if wanted.find(path) != now.find(path)}
            # A directory stays with what others have in it, but what the turn put there is taken out.
            back = {path: leaf for path, leaf in back.items() if leaf is None or leaf[0] != DIRECTORY}
            self._tree = patch_tree(self._tree, back, lambda each: reader.read(each, b"tree"), self._write_tree)
        for path in alone:
            self._bits.pop(path, None)
            if path in self._now.bare:
                self._bare.add(path)
            else:
                self._bare.discard(path)

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


def _renames(differing: Iterable[Difference]) -> Iterator[tuple[bytes, bytes]]:
    """Old and new name of each file that went and came again under another name, to the byte, where there is
    no other that it could be."""
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


def _has_file_at(tree: TreeReader, path: bytes) -> bool:
    """Whether a file is at a path, or at one above it."""
    names = path.rstrip(b"/").split(b"/")
    found = (tree.find(b"/".join(names[:count])) for count in range(1, len(names) + 1))
    return any(map(_is_file, found))


def _shown(leaf: Leaf | None, reader: ObjectReader) -> str | None:
    """The text of one side of a conflict; None if there is none, or it is not text."""
    if leaf is None or leaf[0] == DIRECTORY:
        return None
    data = reader.read(leaf[1], b"blob")
    return None if b"\0" in data[:8000] else data[:_SHOWN].decode("utf-8", "surrogateescape")
