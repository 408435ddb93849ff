"""Random stories of turns, edits, restores, reverts, undo and redo, against an oracle that keeps its own stacks.

The oracle knows files only by their contents. Every content is written once and is one line, so that a merge of
two changes to a file is always a conflict. `x.gen` is ignored or not, as the rules of the moment say: of it, only
what was captured can come back.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from hypothesis import given, note
from hypothesis import strategies as st
from restoring import assert_sound

from shadowsnap import CheckpointManager
from shadowsnap.errors import NothingToRedo, NothingToUndo

Picture = dict[str, str]

PLAIN = ("a.txt", "b.txt", "d/e.txt", ".gitignore")
IGNORABLE = "x.gen"
RULES = ("", "x.gen\n", "*.gen\n", None)


def picture(project: Path) -> Picture:
    found = (*PLAIN, IGNORABLE)
    return {name: (project / name).read_text() for name in found if (project / name).exists()}


def is_ignored(files: Picture) -> bool:
    return ".gen" in files.get(".gitignore", "")


def visible(files: Picture) -> Picture:
    """What a capture sees."""
    return {name: text for name, text in files.items() if name != IGNORABLE or not is_ignored(files)}


def plain(files: Picture) -> Picture:
    return {name: text for name, text in files.items() if name != IGNORABLE}


@dataclass(frozen=True)
class Change:
    """What an operation did to the files: of all of them, or of some paths."""

    before: Picture
    after: Picture
    paths: frozenset[str] | None = None

    def stands_in(self, now: Picture) -> bool:
        """Whether the files that it is about are as it left them, as far as that can be seen."""
        names = self.paths or frozenset(PLAIN)
        return all(now.get(name) == self.after.get(name) for name in names - {IGNORABLE})

    def taken_back(self, now: Picture) -> Picture:
        names = self.paths or frozenset((*PLAIN, IGNORABLE))
        kept = {name: text for name, text in now.items() if name not in names}
        return kept | {name: text for name, text in self.before.items() if name in names}


@dataclass(frozen=True)
class Thing:
    """Something that happened: a turn, with the states before and after it, or an operation."""

    number: int | None = None
    before: Picture = field(default_factory=dict)
    after: Picture | None = None
    back: Change | None = None


@dataclass
class Ended:
    number: int
    before: Picture
    after: Picture


def merged(before: Picture, after: Picture, now: Picture) -> tuple[Picture, set[str]]:
    """The files without a change from one state to another, and the conflicts."""
    found, conflicts = dict(now), set()
    for name in PLAIN:
        was, became, there = before.get(name), after.get(name), now.get(name)
        if was == became or there == was:
            continue
        if there != became:
            conflicts.add(name)
        elif was is None:
            del found[name]
        else:
            found[name] = was
    return found, conflicts


class Story:
    def __init__(self, where: Path) -> None:
        self.base, self.project = where / "base", where / "project"
        (self.project / "d").mkdir(parents=True)
        self.manager = CheckpointManager(base=self.base, background_upkeep=False, fsync=False)
        self.count = 0
        self.done: list[Thing] = []
        self.undone: list[tuple[Thing, Change]] = []
        self.known: list[tuple[str, Picture]] = []
        self.ended: list[Ended] = []
        self.open: int | None = None
        self.began: Picture = {}
        self.last: Change | None = None
        """The last operation since the open turn began."""
        self.changed_since_undo = False
        for name in PLAIN[:3]:
            self.write(name)

    @property
    def now(self) -> Picture:
        return picture(self.project)

    # --- what changes files ---------------------------------------------------------------------

    def write(self, name: str) -> None:
        self.count += 1
        (self.project / name).write_text(f"content {self.count}\n")

    def edit(self, number: int, delete: bool) -> None:
        name = ("a.txt", "b.txt", "d/e.txt", IGNORABLE)[number % 4]
        if delete:
            (self.project / name).unlink(missing_ok=True)
        else:
            (self.project / "d").mkdir(exist_ok=True)
            self.write(name)

    def rules(self, number: int, _: bool) -> None:
        text = RULES[number % 4]
        if text is None:
            (self.project / ".gitignore").unlink(missing_ok=True)
        else:
            (self.project / ".gitignore").write_text(text)

    # --- turns and snapshots --------------------------------------------------------------------

    def begin(self, number: int, _: bool) -> None:
        if self.open is not None:
            self.end(number, False)
        self.manager.new_turn(session_id="s1", prompt="do it")
        checkpoint = self.manager.ensure_checkpoint(self.project).checkpoint
        assert checkpoint is not None
        self.began, self.last = self.now, None
        self.known.append((checkpoint.id, self.began))
        turns = [entry.number for entry in self.manager.timeline(self.project) if entry.kind == "turn"]
        self.open = max(number for number in turns if number is not None)
        self.done.append(Thing(self.open, self.began))

    def end(self, _: int, interrupted: bool) -> None:
        if self.open is None:
            return
        (outcome,) = self.manager.end_turn(status="interrupted" if interrupted else "done")
        assert outcome.checkpoint is not None
        now = self.now
        self.known.append((outcome.checkpoint.id, now))
        self.ended.append(Ended(self.open, self.began, now))
        if self.last is None:
            assert self.done[-1].number == self.open
            self.done[-1] = replace(self.done[-1], after=now)
        elif visible(now) != visible(self.last.after):
            self.done.append(Thing(self.open, self.last.after, now))
        if visible(now) != visible(self.began if self.last is None else self.last.after):
            self.changed_since_undo = True
        self.open = None

    def snapshot(self, *_: object) -> None:
        checkpoint = self.manager.snapshot(self.project).checkpoint
        assert checkpoint is not None
        self.known.append((checkpoint.id, self.now))

    # --- back and forth -------------------------------------------------------------------------

    def restore(self, number: int, part: bool) -> None:
        if not self.known:
            return
        identity, then = self.known[number % len(self.known)]
        now, paths = self.now, [PLAIN[number % 3]] if part and self.open is None else []
        if paths and paths[0] not in then and paths[0] not in now:
            return
        result = self.manager.restore(self.project, identity, paths)
        after = self.now
        expected = {**plain(now), **{name: then[name] for name in paths if name in then}} if paths else plain(then)
        for name in paths:
            if name not in then:
                expected.pop(name, None)
        assert plain(after) == expected
        if result.undo_id is not None:
            self._happened(Change(now, after, frozenset(paths) or None))

    def revert(self, number: int, _: bool) -> None:
        if self.open is not None or not self.ended:
            return
        turn = self.ended[number % len(self.ended)]
        now = self.now
        result = self.manager.revert(self.project, turn=turn.number)
        after = self.now
        expected, conflicts = merged(turn.before, turn.after, now)
        assert plain(after) == plain(expected)
        assert {each.path for each in result.conflicts} - {IGNORABLE} == conflicts
        if result.undo_id is not None:
            self._happened(Change(now, after, _differing(now, after)))

    def undo(self, *_: object) -> None:
        """One by one, the newest first, without what did nothing."""
        now, left = self.now, list(self.done)
        while left and left[-1].number is not None and not self._did_something(left[-1], now):
            left.pop()
        if not left:
            try:
                result = self.manager.undo(self.project)
            except NothingToUndo:
                assert self.now == now
                return
            raise AssertionError(f"there was nothing to undo, but {result}")
        thing = left[-1]
        if self.open is not None and thing.back is not None and thing.back.paths is not None:
            return  # what a turn does around the restore of some paths is not told apart
        result = self.manager.undo(self.project)
        after = self.now
        assert result.what.startswith(f"turn {thing.number}:") == (thing.number is not None), result.what
        if thing.back is not None and (thing.number is None or thing.back.stands_in(now)):
            change = Change(now, after, thing.back.paths)
            assert plain(after) == plain(thing.back.taken_back(now))
            if now == thing.back.after:
                assert after == thing.back.before, "what an operation did is taken back exactly"
        else:
            change = self._check_undo_of_turn(thing, now, after, {each.path for each in result.conflicts})
            if result.undo_id is None and result.conflicts:
                assert after == now
                return  # nothing but conflicts: it stands
        del self.done[len(left) - 1]
        if thing.number is not None and thing.number == self.open and thing.after is None:
            thing = replace(thing, after=now)
        self._in_turn(change)
        self.undone.append((thing, change))
        self.changed_since_undo = False

    def _did_something(self, thing: Thing, now: Picture) -> bool:
        if thing.back is not None and thing.back.stands_in(now):
            return True
        return visible(thing.before) != visible(now if thing.after is None else thing.after)

    def _check_undo_of_turn(self, thing: Thing, now: Picture, after: Picture, reported: set[str]) -> Change:
        left = now if thing.after is None else thing.after
        if plain(left) == plain(now):
            assert plain(after) == plain(thing.before), "a turn is taken back exactly"
            if not is_ignored(thing.before) and not is_ignored(left) and not is_ignored(now):
                if left.get(IGNORABLE) == now.get(IGNORABLE):
                    assert after == thing.before
            elif is_ignored(thing.before) and IGNORABLE in now:
                assert IGNORABLE in after, "what was ignored is kept"
            return Change(now, after, None if visible(left) == visible(now) else _differing(now, after))
        expected, conflicts = merged(thing.before, left, now)
        assert plain(after) == plain(expected)
        assert reported - {IGNORABLE} == conflicts
        return Change(now, after, _differing(now, after))

    def redo(self, *_: object) -> None:
        now = self.now
        if not self.undone:
            try:
                self.manager.redo(self.project)
            except NothingToRedo:
                assert self.now == now
                return
            raise AssertionError("there was nothing to redo")
        thing, change = self.undone[-1]
        if self.open is not None and change.paths is not None:
            return
        must_not = self.changed_since_undo or not change.stands_in(now)
        if self.open is not None and visible(now) != visible(self.began):
            must_not = must_not or self.last is None
        try:
            self.manager.redo(self.project)
        except NothingToRedo:
            assert must_not or now.get(IGNORABLE) != change.after.get(IGNORABLE), "nothing changed since"
            assert self.now == now
            return
        assert not must_not, "something changed since"
        after = self.now
        assert plain(after) == plain(change.taken_back(now))
        if now == change.after:
            assert after == change.before, "redo is exact"
        back = Change(now, after, change.paths)
        self.undone.pop()
        self._in_turn(back)
        self.done.append(replace(thing, back=back))

    def _happened(self, change: Change) -> None:
        self._in_turn(change)
        self.undone.clear()
        self.done.append(Thing(back=change))

    def _in_turn(self, change: Change) -> None:
        """A restore while a turn runs ends the first part of the turn."""
        if self.open is not None and self.last is None:
            for place, thing in enumerate(self.done):
                if thing.number == self.open and thing.after is None:
                    self.done[place] = replace(thing, after=change.before)
        self.last = change


def _differing(one: Picture, two: Picture) -> frozenset[str]:
    return frozenset(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))


OFTEN = ("edit", "edit", "end", "undo")
ACTIONS = ("edit", "rules", "begin", "end", "snapshot", "restore", "revert", "undo", "redo", *OFTEN)


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.booleans()), min_size=8, max_size=40))
def test_whatever_happened_undo_takes_back_the_last_thing(
    tmp_path: Path, story: list[tuple[str, int, bool]]
) -> None:
    here = Story(Path(tempfile.mkdtemp(dir=tmp_path)))
    here.begin(0, False)
    for action, number, flag in story:
        note(f"{action} {number} {flag}: {here.now}")
        getattr(here, action)(number, flag)
    here.end(0, False)
    for _ in range(len(story) + 1):
        undone = len(here.undone)
        here.undo()
        if len(here.undone) == undone:
            break
    assert_sound(here.base, here.project)
