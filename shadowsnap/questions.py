"""Questions about a timeline: who brought a line in (`blame`), which turn broke something (`bisect`), and a new
directory with one of its states (`fork`).

The first two read the operation log as a sequence of moments: known states in order, each with the turns that were
at work since the one before. A change while no turn was at work is the person's. Lines that a restore brings back
keep their authors.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal

from shadowsnap.deadline import Deadline
from shadowsnap.errors import BadArguments, BisectFailed, ForkRefused, GitFailed, NothingToBlame
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.reading import Hunk, ObjectReader, hunks_of_pairs, renamed_from
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import DIRECTORY, Leaf, TreeReader, parse_tree
from shadowsnap.model import Checkpoint
from shadowsnap.results import Author, Bisection, BlamedLine, Probe
from shadowsnap.snapshot.attribution import additions
from shadowsnap.snapshot.copies import remove_copy, temporary_folder, write_copy
from shadowsnap.snapshot.ignore_rules import UserRepository, find_repository
from shadowsnap.snapshot.states import State
from shadowsnap.snapshot.tools import refusal
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import parents
from shadowsnap.store.checkpoints import list_checkpoints, paths_in_fact
from shadowsnap.store.history import STILL_AT_WORK_SECONDS, Operation, Turn, fold, lines_of
from shadowsnap.store.layout import Store
from shadowsnap.store.log import Line, paths_in
from shadowsnap.store.projects import Project
from shadowsnap.timeline import describe

# --- the moments of a history ------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A known state, and who changed the files since the one before."""

    state: State
    author: Author
    """The author of everything that is new in this state."""
    checkpoint: Checkpoint | None = None
    """None if only the tree is known (after a restore), or for the files as they are now."""
    others: tuple[int, ...] = ()
    """Other turns that were at work at the same time, which may be the authors instead."""
    operation: Operation | None = None
    """The restore that led here."""
    sources: tuple[str, ...] = ()
    """The checkpoints that its lines come from."""
    restored: frozenset[bytes] = frozenset()
    """The paths of a partial restore; empty if it was about all."""
    changes: Mapping[bytes, Leaf | None] = field(default_factory=dict)
    """Differences from the tree of `state`, if the tree of this moment is not stored."""
    keeps_more: bool = False
    """Whether files were kept that the restored state does not hold."""
    named_by: Author | None = None
    """For a state with named files only: the turn that is about to change them."""
    late: frozenset[bytes] = frozenset()
    """Files that were captured late: they existed when the turn began."""
    released: frozenset[bytes] = frozenset()
    """Files that appear or disappear because ignored files were named or the ignore rules changed."""
    is_gap: bool = False
    """Whether states before it were dropped, so that the author of what is new is not known."""


class Story:
    """The moments of a project, oldest first, made by reading its log and following which turns are at work."""

    def __init__(self, store: Store, project: Project, deadline: Deadline) -> None:
        lines = lines_of(store, project, deadline)
        self.history = fold(project, lines)
        found = list_checkpoints(store, project, deadline, statistics=False)
        self.known = {each.id: each for each in found}
        self._additions = additions(found)
        self.moments: list[Moment] = []
        self._store = store
        self._deadline = deadline
        self._ended = {line.get("turn") for line in lines if line["op"] == "end"}
        self._by_call = {line.get("turn") for line in lines if line["op"] in ("call", "call-end")}
        """Turns whose tool calls have states of their own: between two calls they are not at work."""
        self._at_work: dict[int, float] = {}
        """The turns at work, and the time of the last log line of each."""
        self._without_state: set[int] = set()
        """Those that no state followed yet."""
        self._last_number = 0
        self._has_gap = False
        for line in lines:
            self._read(line)

    def add_now(self, state: State, late: Iterable[bytes] = ()) -> None:
        """Add the files as they are now as the last moment."""
        self._add_state(None, state, time.time(), late=frozenset(late))

    # --- the lines of the log ------------------------------------------------------------------------

    def _read(self, line: Line) -> None:
        reader = {
            "begin": self._begin,
            "more": self._more,
            "call": self._call,
            "call-end": self._call_end,
            "end": self._end,
            "snapshot": self._snapshot,
            "stage": self._stage,
            "restore": self._restore,
            "missed": self._missed,
        }.get(line["op"])
        if reader is not None:
            reader(line)

    def _missed(self, line: Line) -> None:
        self._has_gap = True

    def _begin(self, line: Line) -> None:
        turn = self.history.turns.get(line.get("turn") or 0)
        if turn is None or turn.began_at != line["at"]:
            return
        self._check_number(turn.number)
        # Files that the turn named later existed when it began.
        more = [self.known[each] for each in turn.more if each in self.known]
        late = [path for each in more for fact in ("late", "added") for path in paths_in_fact(each, fact)]
        self._add_logged_state(turn.before, line["at"], late=late, begins=turn)
        for number in [*self._at_work]:  # a host may never end its turns: the next turn of the session ends them
            other = self.history.turns[number]
            if other.session_id == turn.session_id and number not in self._ended:
                del self._at_work[number]
        if turn.number not in self._by_call:
            self._begin_work(turn.number, line["at"])

    def _more(self, line: Line) -> None:
        turn = self._turn(line)
        # What amends the state before the turn is in its place already: it says nothing of now.
        if turn is not None and line.get("checkpoint") != line.get("before"):
            self._add_logged_state(line.get("checkpoint"), line["at"], turn.number, begins=turn, boundary=False)

    def _call(self, line: Line) -> None:
        turn = self._turn(line)
        if turn is not None:
            self._add_logged_state(line.get("before"), line["at"])
            self._begin_work(turn.number, line["at"])

    def _call_end(self, line: Line) -> None:
        turn = self._turn(line)
        if turn is not None:
            self._add_logged_state(line.get("after"), line["at"], turn.number)
            self._at_work.pop(turn.number, None)

    def _end(self, line: Line) -> None:
        turn = self._turn(line)
        if turn is None:
            return
        if turn.number not in self._by_call:
            self._add_logged_state(line.get("after"), line["at"], turn.number)
        self._at_work.pop(turn.number, None)

    def _snapshot(self, line: Line) -> None:
        self._check_number(line.get("number"))
        self._add_logged_state(line.get("checkpoint"), line["at"], boundary=False)

    def _stage(self, line: Line) -> None:
        """A stage that a host committed. One that it discarded was taken back by a restore."""
        number = line.get("number")
        self._check_number(number)
        if line.get("status") == "discarded":
            return
        self._add_logged_state(line.get("before"), line["at"])
        state = self.known.get(str(line.get("after") or line.get("checkpoint")))
        if state is None or self._turns_at_work(line["at"]):
            self._add_logged_state(state.id if state else None, line["at"])
            return
        who = Author("turn", number, None, line.get("reason"), line.get("session"), state.id, state.created_at)
        self._add(Moment(State.of_checkpoint(state), who, state))

    def _restore(self, line: Line) -> None:
        operation = self.history.operations.get(str(line.get("id")))
        if operation is None or operation.at != line["at"] or operation.before == operation.target:
            return  # nothing had to be changed
        self._add_logged_state(operation.before, line["at"])
        before = self.known.get(operation.before)
        target = self.known.get(operation.target)
        paths = paths_in(self._store, operation.line) or ()
        if target is None or before is None:
            self._has_gap = True
            return
        state, changes = State.of_checkpoint(target), dict[bytes, Leaf | None]()
        if paths and operation.after != target.tree:
            # Only the id of this tree is known: it is the tree before, with these paths as in the target.
            changes = self._changes(before, target, [os.fsencode(path) for path in paths])
            bits = {path: state.bits(path, leaf[0]) for path, leaf in changes.items() if leaf is not None}
            state = State.of_checkpoint(before)
            modes = replace(state.modes, other={**state.modes.other, **bits})
            state = replace(state, modes=modes)
        undone = operation.line.get("undoes") if operation.kind == "undo" else operation.turn
        turns = [undone] if isinstance(undone, int) else []
        if operation.kind == "revert" and operation.session_id is not None:
            turns += [t.number for t in self.history.turns.values() if t.session_id == operation.session_id]
        befores = [self.history.turns[turn].before for turn in turns if turn in self.history.turns]
        who = Author("person", checkpoint=operation.target, at=_moment(operation.at))
        self.moments.append(
            Moment(
                state=state,
                author=who,
                operation=operation,
                sources=(operation.target, *(each for each in befores if each is not None)),
                restored=frozenset(map(os.fsencode, paths)),
                changes=changes,
                keeps_more=not paths and operation.after != target.tree,
            )
        )

    def _changes(self, before: Checkpoint, target: Checkpoint, paths: Iterable[bytes]) -> dict[bytes, Leaf | None]:
        """The entries that a restore of some paths wrote."""
        found: dict[bytes, Leaf | None] = {}
        with ObjectReader(self._store.git(self._deadline)) as reader:
            old, new = (TreeReader(tree, reader.tree) for tree in (before.tree, target.tree))
            for path in (each.rstrip(b"/") for each in paths):
                found.update(dict.fromkeys([path, *old.files_below(path)]))
                for each in (path, *new.files_below(path)):
                    leaf = new.find(each)
                    found[each] = leaf if leaf is not None and leaf[0] != DIRECTORY else None
        return found

    # --- states --------------------------------------------------------------------------------------

    def _turn(self, line: Line) -> Turn | None:
        turn = self.history.turns.get(line.get("turn") or 0)
        if turn is not None and turn.number in self._at_work:
            self._at_work[turn.number] = line["at"]
        return turn

    def _begin_work(self, number: int, at: float) -> None:
        self._at_work[number] = at
        self._without_state.add(number)

    def _check_number(self, number: Any) -> None:
        """Note a gap if numbers are missing, because their entries were dropped."""
        if isinstance(number, int):
            self._has_gap = self._has_gap or number > self._last_number + 1
            self._last_number = max(self._last_number, number)

    def _add_logged_state(
        self,
        checkpoint: Any,
        at: float,
        ends: int | None = None,
        *,
        begins: Turn | None = None,
        late: Iterable[bytes] = (),
        boundary: bool = True,
    ) -> None:
        """Add a state that the log names. If it was dropped and is a `boundary` between authors, note a gap."""
        state = self.known.get(checkpoint) if isinstance(checkpoint, str) else None
        if state is None:
            self._has_gap = self._has_gap or boundary
        else:
            named_by = _author(begins, state) if begins is not None and state.scope != "tree" else None
            self._add_state(state, State.of_checkpoint(state), at, ends, named_by=named_by, late=frozenset(late))

    def _add_state(
        self, checkpoint: Checkpoint | None, state: State, at: float, ends: int | None = None, **facts: Any
    ) -> None:
        """Add a state. Its author is the turn that ends with it, or else the newest turn at work, or else the
        person."""
        working = self._turns_at_work(at)
        if ends is not None:
            working = [ends, *(number for number in working if number != ends)]
        who = Author("person", checkpoint=checkpoint.id if checkpoint else None, at=_moment(at))
        if working:
            who = _author(self.history.turns[working[0]], checkpoint, at)
        self._add(Moment(state, who, checkpoint, tuple(working[1:]), **facts))

    def _add(self, moment: Moment) -> None:
        late, released = set(moment.late), set[bytes]()
        if (checkpoint := moment.checkpoint) is not None:
            late.update(paths_in_fact(checkpoint, "late"), paths_in_fact(checkpoint, "older"))
            released.update(paths_in_fact(checkpoint, "released"))
            for each in self._additions:
                if each.since <= checkpoint.ref < each.until:
                    released |= each.files
        seen = replace(moment, late=frozenset(late), released=frozenset(released), is_gap=self._has_gap)
        self.moments.append(seen)
        if moment.state.scope == "tree":
            self._without_state.clear()
        self._has_gap = False

    def _turns_at_work(self, at: float) -> list[int]:
        """The turns at work, newest first. A turn without an end is at work until the next state, and after that
        for as long as it may still go on."""
        return [
            number
            for number, heard in reversed(self._at_work.items())
            if number in self._ended or number in self._without_state or at - heard < STILL_AT_WORK_SECONDS
        ]


def _author(turn: Turn, checkpoint: Checkpoint | None, at: float | None = None) -> Author:
    moment = checkpoint.created_at if checkpoint is not None else _moment(at or turn.began_at)
    facts = (turn.number, turn.agent, turn.prompt, turn.session_id)
    return Author("turn", *facts, checkpoint=checkpoint.id if checkpoint is not None else None, at=moment)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


# --- blame -------------------------------------------------------------------------------------------

Origin = tuple[Author, int]
"""The author of a line, and its number when it came in."""
_BEFORE_TIMELINE = Author("before")
_UNKNOWN = object()


@dataclass
class Version:
    """A version of a file (None: it does not exist) and the origins of its lines."""

    blob: str | None
    origins: list[Origin] = field(default_factory=list)


class Tracer:
    """Follows lines through the moments of a history."""

    def __init__(self, git: Git, story: Story) -> None:
        self.git = git
        self._turns = story.history.turns
        self._known = story.known
        self._moments = story.moments
        self._trees: dict[str, dict[bytes, Leaf]] = {}
        self._hunks: dict[tuple[str, str], list[Hunk]] = {}
        self._reader = ObjectReader(git)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.__exit__(*_)

    def prepare(self, paths: Sequence[bytes]) -> None:
        """Compare all versions of these files with one git process."""
        pairs = {pair for path in paths for pair in self._pairs(path, len(self._moments))}
        self._hunks |= hunks_of_pairs(self.git, pairs, paths)

    def trace(self, path: bytes, end: int | None = None) -> list[Version | None]:
        """The version of a file at each moment, or at those before `end`; None where it is not known."""
        end = len(self._moments) if end is None else end
        self._ensure_hunks(path, end)
        current: Version | None = None
        kept: dict[str, Version] = {}
        """The versions in earlier checkpoints."""
        found: list[Version | None] = []
        unseen, named_by, last = False, None, -1
        for index, (moment, blob) in enumerate(zip(self._moments[:end], self._blobs(path, end), strict=True)):
            if blob is _UNKNOWN:
                unseen = unseen or (current is not None and moment.state.scope == "tree" and not moment.keeps_more)
                found.append(None)
                continue
            assert blob is None or isinstance(blob, str)
            if current is None:
                current = Version(blob, self._all_from(_BEFORE_TIMELINE, blob))
            elif moment.operation is not None and self._covers(moment, path):
                current = self._restored_version(path, index, blob, current, kept)
            elif blob != current.blob:
                who = named_by or self._author_by_tools(moment, path)
                if unseen or moment.is_gap or (path in moment.late and current.blob is None):
                    who = _BEFORE_TIMELINE
                current = self._next_version(path, current, blob, who, last, index)
            unseen, last = False, index
            named_by = moment.named_by
            if moment.checkpoint is not None:
                kept[moment.checkpoint.id] = current
            found.append(current)
        return found

    def content(self, blob: str) -> bytes:
        return self._reader.read(blob, b"blob")

    def lookup(self, tree: str, path: bytes) -> Leaf | None:
        found: Leaf | None = (DIRECTORY, tree)
        for name in path.split(b"/"):
            if found is None or found[0] != DIRECTORY:
                return None
            if found[1] not in self._trees:
                empty = found[1] == EMPTY_TREE
                self._trees[found[1]] = {} if empty else parse_tree(self._reader.read(found[1], b"tree"))
            found = self._trees[found[1]].get(name)
        return found

    # --- the versions of a file ----------------------------------------------------------------------

    def _blobs(self, path: bytes, end: int) -> Iterator[object]:
        """The blob at each moment: an id, None if the file did not exist, or `_UNKNOWN`."""
        hidden = False
        for moment in self._moments[:end]:
            blob = self._blob(moment.state, path)
            if path in moment.changes:
                leaf = moment.changes[path]
                blob = leaf[1] if leaf is not None else None
            hidden = blob is None and (hidden or path in moment.released)
            yield _UNKNOWN if hidden or (blob is None and moment.keeps_more) else blob

    def _blob(self, state: State, path: bytes) -> object:
        leaf = self.lookup(state.tree, path)
        if leaf is not None and leaf[0] != DIRECTORY:
            return leaf[1]
        if state.scope != "tree" and path not in state.absent:
            return _UNKNOWN
        return None if state.left_out(path) is None else _UNKNOWN

    def _pairs(self, path: bytes, end: int) -> Iterator[tuple[str, str]]:
        """The pairs of trees between which the history of the file has to be followed."""
        last: tuple[str, str | None] | None = None
        for moment, blob in zip(self._moments[:end], self._blobs(path, end), strict=True):
            if blob is _UNKNOWN:
                continue
            assert blob is None or isinstance(blob, str)
            # After a restore of some paths, the file is in the tree that was restored.
            tree = self._known[moment.sources[0]].tree if path in moment.changes else moment.state.tree
            if last is not None and last[1] and blob and last[1] != blob:
                yield last[0], tree
            for source in moment.sources if blob else ():
                held = self._known.get(source)
                version = self._blob(State.of_checkpoint(held), path) if held is not None else None
                if held is not None and isinstance(version, str) and version != blob:
                    yield held.tree, tree
            last = (tree, blob)

    def _ensure_hunks(self, path: bytes, end: int) -> None:
        missing = [pair for pair in self._pairs(path, end) if self._blob_pair(pair, path) not in self._hunks]
        if missing:
            self._hunks |= hunks_of_pairs(self.git, missing, [path])
        for blobs in {self._blob_pair(pair, path) for pair in missing} - self._hunks.keys():
            # A file became a link, or a link a file: to git that is one thing gone and another one there.
            old, new = (_line_count(self.content(blob)) for blob in blobs)
            self._hunks[blobs] = [Hunk(0, old, 0, new)]

    def _blob_pair(self, trees: tuple[str, str], path: bytes) -> tuple[str, str]:
        old, new = (self.lookup(tree, path) for tree in trees)
        assert old is not None and new is not None
        return old[1], new[1]

    # --- from one version to the next ----------------------------------------------------------------

    def _next_version(
        self, path: bytes, old: Version, blob: str | None, who: Author, last: int, index: int
    ) -> Version:
        if blob is None:
            return Version(None)
        if old.blob is not None:
            return Version(blob, self._carried_origins(old, blob, who))
        tree = self._moments[index].state.tree
        renamed = None if who is _BEFORE_TIMELINE else self._renamed_between(path, last, tree)
        if renamed is None:
            return Version(blob, self._all_from(who, blob))
        return Version(blob, self._carried_origins(renamed, blob, who))

    def _renamed_between(self, path: bytes, last: int, tree: str) -> Version | None:
        """The version of a new file under its old name, if it was renamed."""
        before = self._moments[last]
        trees = [before.state.tree, *(self._known[each].tree for each in before.sources[:1] if before.changes)]
        for old in trees:
            found = renamed_from(self.git, (old, tree), path)
            if found is not None:
                source, versions, hunks = found
                version = self.trace(source, last + 1)[last]
                if version is not None and version.blob == versions[0]:
                    self._hunks[versions] = hunks
                    return version
        return None

    def _carried_origins(self, old: Version, blob: str, who: Author | None) -> list[Any]:
        """The origins of a new version. Those of its new lines are `who` and their number, or None without
        `who`."""
        assert old.blob is not None
        if old.blob == blob:
            return old.origins
        origins: list[Any] = []
        at = 0
        for hunk in self._hunks[old.blob, blob]:
            origins += old.origins[at : hunk.old]
            new = range(hunk.new + 1, hunk.new + 1 + hunk.new_count)
            origins += [None if who is None else (who, number) for number in new]
            at = hunk.old + hunk.old_count
        origins += old.origins[at:]
        self._keep_last_line(old, blob, origins)
        return origins

    def _keep_last_line(self, old: Version, blob: str, origins: list[Any]) -> None:
        """Keep the origin of the last line if only its line end was added or removed, which git sees as another
        line."""
        assert old.blob is not None
        last = next(reversed(self._hunks[old.blob, blob]), None)
        if last is None or not last.old_count or not last.new_count:
            return
        before, after = self.content(old.blob), self.content(blob)
        if before.endswith(b"\n") and after.endswith(b"\n"):
            return
        old_lines, new_lines = (
            lines_in(data + (b"" if data.endswith(b"\n") else b"\n"))[start : start + size]
            for data, start, size in ((before, last.old, last.old_count), (after, last.new, last.new_count))
        )
        ends_old = last.old + last.old_count == len(old.origins)
        ends_new = last.new + last.new_count == len(origins)
        if not before.endswith(b"\n") and ends_old and old_lines[-1] in new_lines:
            origins[last.new + new_lines.index(old_lines[-1])] = old.origins[-1]
        if not after.endswith(b"\n") and ends_new and new_lines[-1] in old_lines:
            origins[-1] = old.origins[last.old + old_lines.index(new_lines[-1])]

    def _restored_version(
        self, path: bytes, index: int, blob: str | None, old: Version, kept: Mapping[str, Version]
    ) -> Version:
        """The version after a restore, in which lines have the authors that they had in the restored state. After
        a merge, lines that were there before keep their authors first."""
        moment = self._moments[index]
        sources = [kept[each] for each in moment.sources if each in kept and kept[each].blob is not None]
        if blob is None:
            return Version(None)
        assert moment.operation is not None
        is_merge = moment.operation.kind == "revert" or len(moment.sources) > 1
        if is_merge and old.blob == blob:
            return old
        for source in sources:
            if source.blob == blob:
                return source
        origins: list[Origin | None] = [None] * _line_count(self.content(blob))
        here = [old] if old.blob is not None else []
        for source in chain(here, sources, self._renamed_sources(path, index)):
            if None not in origins:
                break
            come = self._carried_origins(source, blob, None)
            origins = [mine or theirs for mine, theirs in zip(origins, come, strict=True)]
        whole = [origin or (moment.author, number) for number, origin in enumerate(origins, 1)]
        return Version(blob, whole)

    def _renamed_sources(self, path: bytes, index: int) -> Iterator[Version]:
        """The version under an old name, if the file was renamed since one of the states that a restore took it
        from."""
        moments, sources = self._moments[:index], self._moments[index].sources
        for source in sources:
            seen = [at for at, each in enumerate(moments) if each.checkpoint and each.checkpoint.id == source]
            found = self._renamed_between(path, seen[-1], self._known[sources[0]].tree) if seen else None
            if found is not None:
                yield found
                return

    def _covers(self, moment: Moment, path: bytes) -> bool:
        chosen = moment.restored
        return not chosen or path in chosen or any(parent in chosen for parent in parents(path))

    def _author_by_tools(self, moment: Moment, path: bytes) -> Author:
        """The author of a change. Of several turns at work, it is the only one whose tools named the file, if
        there is exactly one."""
        if not moment.others or moment.author.number is None:
            return moment.author
        turns = [self._turns[number] for number in (moment.author.number, *moment.others)]
        naming = [turn for turn in turns if _names_file(turn, path)]
        if len(naming) != 1 or naming[0].number == moment.author.number:
            return moment.author
        facts = {name: getattr(naming[0], name) for name in ("number", "agent", "prompt", "session_id")}
        return replace(moment.author, **facts)

    def _all_from(self, who: Author, blob: str | None) -> list[Origin]:
        count = 0 if blob is None else _line_count(self.content(blob))
        return [(who, number) for number in range(1, count + 1)]


def blame(
    space: Workspace, story: Story, path: bytes, here: State, late: Iterable[bytes] = ()
) -> list[BlamedLine]:
    """Each line of a file as it is now, and its author. `late` files are older than the turns under way."""
    story.add_now(here, late)
    with Tracer(space.git, story) as tracer:
        leaf = tracer.lookup(here.tree, path) if path else None
        if leaf is None or leaf[0] == DIRECTORY:
            raise _nothing_to_blame(space, path, here, leaf)
        version = tracer.trace(path)[-1]
        assert version is not None
        rows = lines_in(tracer.content(leaf[1]))
        return [
            BlamedLine(number, author, then, text)
            for number, ((author, then), text) in enumerate(zip(version.origins, rows, strict=True), 1)
        ]


def lines_in(data: bytes) -> list[bytes]:
    """Lines as git counts them, each with its end."""
    rows = data.split(b"\n")
    return [row + b"\n" for row in rows[:-1]] + ([rows[-1]] if rows[-1] else [])


def _line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _names_file(turn: Turn, path: bytes) -> bool:
    """Whether a tool of a turn named a file."""
    wanted = os.fsdecode(path)
    abouts = (os.path.normpath(tool[1]) for tool in turn.tools if len(tool) == 2 and tool[1])
    return any(about == wanted or about.endswith(f"/{wanted}") for about in abouts)


def _nothing_to_blame(space: Workspace, path: bytes, here: State, leaf: Leaf | None) -> NothingToBlame:
    why, hint = here.left_out(path), None
    if leaf is not None or not path or space.worktree.is_directory(path):
        hint = "it is a directory: name a file"
    elif why is not None:
        hint = f"it is not captured: {why}"
    elif space.worktree.lstat(path) is not None:
        hint = "the ignore rules leave it out"
    return NothingToBlame(path=os.fsdecode(path) or ".", workdir=space.project.workdir, hint=hint)


# --- bisect ------------------------------------------------------------------------------------------

Verdict = Literal["good", "bad", "skipped", "untested"]
BEGINNING = "the beginning of the timeline"
SKIP = 125
"""The exit code of a command for a state that cannot be tested, as with `git bisect run`."""
Check = Callable[[Path, str], int | None]
"""Runs the command in a directory with a state, whose name is the second argument; returns the exit code, or None
if it took too long."""


@dataclass
class Stop:
    """A state between good and bad, and the entry that led to it."""

    state: State
    name: str
    number: int | None
    kind: str
    prompt: str | None
    agent: str | None
    checkpoints: list[str]
    """Every checkpoint of this state."""
    changes: Mapping[bytes, Leaf | None] = field(default_factory=dict)
    goes_back: bool = False
    copy: Path | None = None
    """A directory that has the state already."""

    def probe(self, verdict: Verdict, status: int | None = None) -> Probe:
        checkpoint = self.checkpoints[0] if self.checkpoints else None
        facts = (checkpoint, self.name, self.number, self.kind)
        return Probe(*facts, verdict, status, self.prompt, self.agent)


def stops_of(story: Story) -> list[Stop]:
    """The states of a history, without those that are the same as the one before."""
    stops: list[Stop] = []
    for moment in story.moments:
        if moment.state.scope != "tree":
            continue
        known = [moment.checkpoint.id] if moment.checkpoint is not None else []
        if stops and not moment.changes and not stops[-1].changes and _same(stops[-1].state, moment.state):
            stops[-1].checkpoints += known
            continue
        who = moment.author
        name, kind = ("your own edits", "edits") if who.who == "person" else (f"turn {who.number}", "turn")
        if moment.operation is not None:
            name, kind = describe(moment.operation, story.history), "restore"
        stop = Stop(moment.state, name, who.number, kind, who.prompt, who.agent, known)
        if not stops:
            stop.name, stop.kind, stop.number = BEGINNING, "beginning", None
        stop.changes, stop.goes_back = moment.changes, moment.operation is not None and not moment.changes
        stops.append(stop)
    return stops


def _same(one: State, other: State) -> bool:
    return (one.tree, one.modes, one.bare) == (other.tree, other.modes, other.bare)


def between(stops: Sequence[Stop], good: str | None, bad: str | None) -> list[Stop]:
    """The stops from good to bad (None: the files as they are now), without those that a restore took back, unless
    good is one of them."""
    ends = [at for at, stop in enumerate(stops) if bad is None or bad in stop.checkpoints]
    end = len(stops) - 1 if bad is None else max(ends, default=-1)
    begins = [at for at, stop in enumerate(stops[:end]) if good is None or good in stop.checkpoints]
    if end < 0 or not begins:
        raise BadArguments(what="the good state must be an older one of this timeline than the bad state")
    if good is None:
        return list(stops[: end + 1])
    way = _route_to_last(stops[: end + 1])
    start = [at for at, stop in enumerate(way[:-1]) if good in stop.checkpoints]
    return way[start[-1] :] if start else list(stops[begins[-1] : end + 1])


def _route_to_last(stops: Sequence[Stop]) -> list[Stop]:
    """The stops that led to the last one. A restore removes those after its state, and an undo of the restore adds
    them again."""
    before: dict[int, int | None] = {}
    here: int | None = None

    def steps_to(at: int | None) -> Iterator[int]:
        while at is not None:
            yield at
            at = before[at]

    for number, stop in enumerate(stops):
        states = chain(steps_to(here), reversed(before)) if stop.goes_back else ()
        same = (at for at in states if not stops[at].changes and _same(stops[at].state, stop.state))
        back = next(same, None)
        if back is None:
            before[number] = here
        here = number if back is None else back
    return [stops[at] for at in steps_to(here)][::-1]


def find_culprit(stops: Sequence[Stop], test: Callable[[Stop], Probe]) -> Bisection:
    """Find the first bad state between a good and a bad one by bisection."""
    probes: dict[int, Probe] = {}

    def probe(at: int) -> str:
        if at not in probes:
            probes[at] = test(stops[at])
        return probes[at].verdict

    low, high = 0, len(stops) - 1
    if probe(low) != "good":
        raise BisectFailed(why=f"the command does not succeed in the good state ({_ended(probes[low])})")
    if probe(high) != "bad":
        raise BisectFailed(why=f"the command does not fail in the bad state ({_ended(probes[high])})")
    while True:
        middle = (low + high) // 2
        left = [at for at in range(low + 1, high) if at not in probes]
        if not left:
            break
        at = min(left, key=lambda each: abs(each - middle))
        verdict = probe(at)
        if verdict == "good":
            low = at
        elif verdict == "bad":
            high = at
    tested = tuple(probes[at] for at in sorted(probes))
    if high - low > 1:
        candidates = tuple(probes.get(at) or stops[at].probe("untested") for at in range(low + 1, high + 1))
        return Bisection(None, probes[low].checkpoint, probes[high].checkpoint, tested, candidates)
    return Bisection(probes[high], probes[low].checkpoint, probes[high].checkpoint, tested)


def test_all(stops: Sequence[Stop], test: Callable[[Stop], Probe]) -> Bisection:
    """Test every state. The culprit led to the first of the bad states at the end, if there are any."""
    probes = [test(stop) for stop in stops]
    way = {id(stop) for stop in _route_to_last(stops)}
    decided = [
        probe for stop, probe in zip(stops, probes, strict=True) if id(stop) in way and probe.verdict != "skipped"
    ]
    last_good = max((at for at, probe in enumerate(decided) if probe.verdict == "good"), default=None)
    if last_good is None or last_good == len(decided) - 1:
        return Bisection(None, None, None, tuple(probes))
    good, bad = decided[last_good : last_good + 2]
    return Bisection(bad, good.checkpoint, bad.checkpoint, tuple(probes))


def run_probe(git: Git, stop: Stop, check: Check) -> Probe:
    """Write a state into a scratch directory and run the command there."""
    with temporary_folder("bisect") as scratch:
        folder = stop.copy or scratch / "files"
        if stop.copy is None:
            folder.mkdir()
            write_copy(git, stop.state, folder, changes=stop.changes)
        status = check(folder, stop.name)
    if status == SKIP:
        return stop.probe("skipped", status)
    return stop.probe("good" if status == 0 else "bad", status)


def _ended(probe: Probe) -> str:
    return "it took too long" if probe.status is None else f"exit code {probe.status}"


# --- fork --------------------------------------------------------------------------------------------


def check_free(folder: Path, base: Path) -> None:
    """Raise ForkRefused unless the directory is new or empty."""
    why = refusal(folder, base)
    if why is None and os.path.lexists(folder):
        if not folder.is_dir() or folder.is_symlink():
            why = "something else is there"
        elif os.listdir(folder):
            why = "it is not empty"
    if why is not None:
        raise ForkRefused(path=folder, why=why)


@contextmanager
def new_directory(folder: Path) -> Iterator[None]:
    """Make a directory to be filled in the block; it is removed if the block fails."""
    was_there, done = folder.is_dir(), False
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
        done = True
    finally:
        if not done:
            remove_copy(folder)
            if was_there:
                folder.mkdir(exist_ok=True)


class GitWorktree:
    """A work tree of the person's repository on a branch of its own, made without files."""

    def __init__(self, executable: str, repository: UserRepository, folder: Path, deadline: Deadline) -> None:
        # No hooks and no file system monitor of the repository may run.
        settings = (f"core.hooksPath={os.devnull}", "core.fsmonitor=false")
        self._git = Git(executable, repository.git_dir, config=settings, deadline=deadline)
        self._folder = folder
        self.branch = ""

    def add(self, head: str | None) -> None:
        """Make it at the commit that the state was taken on, if that still exists, or else at HEAD."""
        commit = self._commit(head) or self._commit("HEAD")
        if commit is None:
            raise BadArguments(what="--worktree needs a repository with a commit")
        self.branch = self._free_branch()
        words = ("worktree", "add", "--quiet", "--no-checkout", "-b", self.branch, str(self._folder), commit)
        self._git.run(*words)
        made = find_repository(self._folder)
        if made is None or made.top != self._folder:
            raise GitFailed(command="worktree add", status=0, stderr="it made no work tree")
        self._git.bound(git_dir=made.git_dir, work_tree=self._folder).run("read-tree", commit)

    def remove(self) -> None:
        if self.branch:
            self._git.run("worktree", "remove", "--force", str(self._folder), ok=range(256))
            self._git.run("worktree", "prune", ok=range(256))
            self._git.run("branch", "-D", "--quiet", self.branch, ok=range(256))

    def _commit(self, name: str | None) -> str | None:
        if not name or name.startswith("-"):
            return None
        found = self._git.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", ok=range(256))
        return found.decode().strip() or None

    def _free_branch(self) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]+", "-", self._folder.name).strip("-") or "copy"
        names = (f"fork/{plain}{f'-{number}' if number > 1 else ''}" for number in count(1))
        return next(name for name in names if self._commit(f"refs/heads/{name}") is None)
