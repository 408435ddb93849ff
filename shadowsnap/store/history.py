"""The history of a project, folded from its operation log: turns, snapshots, restores, what can be undone.

The log is the one record of what happened. For a checkpoint that it does not mention (the process died between
recording it and writing the line, or the log was lost) the line is made from the checkpoint's own facts. A store
of format 1 is taken over the same way.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import NoSuchCheckpoint, NoSuchTurn, NotATurn, NumberDropped
from shadowsnap.files import remove_tree
from shadowsnap.git.refs import ref_names
from shadowsnap.model import Checkpoint
from shadowsnap.store.checkpoints import (
    LAST,
    NUMBER,
    find_checkpoint,
    list_checkpoints,
    newest_name,
    read_checkpoint,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.log import (
    Line,
    append_line,
    identity_of,
    last_lines,
    lines_from,
    next_number,
    read_lines,
    read_log,
    rebuilt_lines,
    write_lines,
)
from shadowsnap.store.projects import (
    Project,
    known_projects,
    locked_project,
    named_in_journal,
    read_record,
    touch_record,
)

_FEW = 20
_OF_TURN = ("begin", "more", "call", "call-end", "end", "conversation")
_DROPPED = (*_OF_TURN, "snapshot", "stage", "restore", "attach", "missed", "numbers")
"""The lines that go when nothing is kept of what they are about."""
STILL_AT_WORK_SECONDS = 3600.0
"""A turn that was never closed may still go on; after this time it counts as over."""
_FORGOTTEN_AFTER = 86400.0
"""Seconds after which a turn that never ended counts as over, if the state before it is gone."""
FORMAT_1_RECORDS = ("sessions", "index.db", "index.db-wal", "index.db-shm", "index.db-journal", "turns", "shown")


@dataclass
class Turn:
    """One turn in one project, from the person's message to the end of the agent's work on it."""

    number: int
    began_at: float
    as_of_ns: int = 0
    """The file system's time when the state before it was captured; 0 if it is unknown."""
    before: str | None = None
    held: bool = False
    """Whether `before` was there already when the turn began."""
    session_id: str | None = None
    agent: str | None = None
    parent: str | None = None
    prompt: str | None = None
    key: str = ""
    """The same in every project that the turn wrote to."""
    more: list[str] = field(default_factory=list)
    """Further checkpoints, of files that it named later."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """The states before and after its tool calls, where each has checkpoints of its own."""
    open_call: str | None = None
    ended_at: float | None = None
    after: str | None = None
    status: str = "running"
    """`running`, `done` or `interrupted`; the timeline adds `undone` and `reverted`."""
    tools: list[list[str]] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)
    messages: int | None = None
    not_kept: str = ""
    """Why its conversation was not kept."""
    position: int = 0
    end_position: int | None = None
    left_open: bool = False
    """Whether nothing but the next turn of its session ended it."""

    @property
    def states(self) -> list[str]:
        """Every checkpoint that it knows of."""
        calls = [state for call in self.calls for state in call]
        return [state for state in (self.before, self.after, *self.more, *calls) if state is not None]

    @property
    def changed(self) -> bool:
        """Whether it did anything to the files, as far as is known."""
        return self.before is not None and self.after != self.before


@dataclass
class Snapshot:
    """A checkpoint taken by hand or by a host; with `before`, a stage that was kept or put back."""

    number: int | None
    at: float
    checkpoint: str | None
    reason: str = ""
    session_id: str | None = None
    before: str | None = None
    edit_id: str | None = None
    risk_tier: str | None = None
    status: str = ""
    position: int = 0


@dataclass
class Operation:
    """A restore, revert, undo or redo: it went to `target`, and `before` holds what was there."""

    id: str
    at: float
    kind: str
    target: str
    before: str
    after: str = ""
    """The tree that it led to."""
    reached: str | None = None
    """The checkpoint that holds all files as they were after it, if there is one."""
    line: Line = field(default_factory=dict)
    position: int = 0

    @property
    def turn(self) -> int | None:
        return _number(self.line.get("turn"))

    @property
    def session_id(self) -> str | None:
        return _text(self.line.get("session"))


Thing = tuple[str, int | str]
"""What can be undone: ("turn", number) or ("operation", id)."""


@dataclass(frozen=True)
class Step:
    """Something that happened, and the operation that leads back from it (None: a turn, by its own states).

    A turn has several steps if files were restored while it ran: one up to there, and one from there on.
    """

    thing: Thing
    way_back: Operation | None = None
    before: str | None = None
    """Of a turn: the state that this part of it began with."""
    after: str | None = None
    """Of a turn: the state that this part of it ended with; None while it runs."""
    seen: str = ""
    """Of a turn: the fingerprint of the files at its end, where `after` holds more than that, because it was
    taken before a restore."""
    position: int = 0
    """Where this part of a turn began."""


@dataclass
class History:
    """What happened in one project, oldest first."""

    project: Project
    turns: dict[int, Turn] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    other_numbers: dict[int, int] = field(default_factory=dict)
    """Further numbers that a turn was given, and the one that it goes by."""
    number_of_key: dict[str, int] = field(default_factory=dict)
    closing_sessions: set[str | None] = field(default_factory=set)
    """The sessions whose host closes turns."""
    sessions: dict[str, Line] = field(default_factory=dict)
    """The newest `session` line of each session."""
    purges: list[Line] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    """Where in the log a tool ran without a snapshot."""
    attached: list[Line] = field(default_factory=list)
    """Conversations that were kept with checkpoints afterwards."""
    done: list[Step] = field(default_factory=list)
    """Steps that are not undone, the newest last."""
    undone: list[Step] = field(default_factory=list)
    """What `redo` brings back, the next one last."""
    undone_turns: dict[int, int] = field(default_factory=dict)
    """Turns that an undo took back, and where that is in the log."""
    running: dict[int, Turn] = field(default_factory=dict)
    """Turns that did not end, nor did their session go on to another."""
    last_operation: Operation | None = None
    inside: int = 0
    """The turns whose work is in the files, as a bit for each number: sets would take a gigabyte for ten thousand
    turns."""
    inside_of: dict[str, int] = field(default_factory=dict)
    """The same for each state."""
    inside_before: dict[str, int] = field(default_factory=dict)
    """The same before each operation."""
    next_number: int = 1
    """Every number below it was given to a turn or a snapshot, which may be dropped by now."""

    # --- undo and redo ---------------------------------------------------------------------------

    def undoable(self) -> list[Step]:
        """What `undo` takes back, the next one last. Turns that changed nothing are left out."""
        return [
            step
            for step in self.done
            if step.thing[0] != "turn" or (step.before is not None and step.before != step.after)
        ]

    def is_undone(self, number: int) -> bool:
        return number in self.undone_turns and not self.has_inside(number)

    def has_inside(self, number: int) -> bool:
        """Whether the work of a turn is in the files, as far as restores tell."""
        return bool(self.inside >> number & 1)

    def is_reverted(self, number: int) -> bool:
        """Whether a revert of the turn, or of its session, stands."""
        turn = self.turns[number]

        def is_about_it(each: Operation) -> bool:
            whole = each.session_id is not None and each.session_id == turn.session_id
            return each.kind == "revert" and (each.turn == number or (whole and turn.position < each.position))

        return self._last_standing(is_about_it) is not None and not self.has_inside(number)

    def _last_standing(self, is_wanted: Callable[[Operation], bool]) -> int | None:
        """Where in the log the newest wanted operation is that was not undone."""
        found = {("operation", each.id): each.position for each in self.operations.values() if is_wanted(each)}
        standing = [found[step.thing] for step in self.done if step.thing in found] if found else []
        return max(standing, default=None)

    def status_of(self, turn: Turn) -> str:
        if self.is_undone(turn.number):
            return "undone"
        return "reverted" if self.is_reverted(turn.number) else turn.status

    # --- references ------------------------------------------------------------------------------

    def numbered(self) -> dict[int, Turn | Snapshot]:
        """Turns and snapshots by their numbers, oldest first."""
        found: dict[int, Turn | Snapshot] = dict(self.turns)
        found.update({each.number: each for each in self.snapshots if each.number is not None})
        return dict(sorted(found.items(), key=lambda item: (item[1].position, item[0])))

    def reachable(self) -> list[int]:
        """What `last` counts back through, newest first: turns and snapshots that are not undone."""
        found = [
            number
            for number, each in self.numbered().items()
            if not (isinstance(each, Turn) and (each.before is None or self.is_undone(number)))
            and not (isinstance(each, Snapshot) and each.checkpoint is None)
        ]
        return found[::-1]

    def checkpoint_of(self, ref: str) -> str | None:
        """The id that a number, `N:after` or `last~N` stands for; None for another kind of reference."""
        if last := re.fullmatch(LAST, ref):
            numbers, back = self.reachable(), int(last[1] or 0)
            if back >= len(numbers):
                raise NoSuchCheckpoint(ref=ref, workdir=self.project.workdir)
            return self._state(numbers[back], after=False, ref=ref)
        if number := re.fullmatch(NUMBER, ref):
            return self._state(int(number[1]), after=number[2] is not None, ref=ref)
        return None

    def _state(self, number: int, *, after: bool, ref: str) -> str:
        found = self.numbered().get(number)
        if found is None:
            raise self.unknown_number(number, "number")
        state = found.checkpoint if isinstance(found, Snapshot) else found.after if after else found.before
        if state is None:
            what = "the end of turn" if after else "the state before turn"
            raise NoSuchTurn(workdir=self.project.workdir, what=f"{what} {number}")
        return state

    def unknown_number(self, number: int, noun: str = "turn") -> NoSuchTurn:
        """The error for a number that no turn has."""
        if isinstance(self.numbered().get(number), Snapshot):
            return NotATurn(workdir=self.project.workdir, number=number)
        if 0 < number < self.next_number:
            return NumberDropped(workdir=self.project.workdir, number=number)
        return NoSuchTurn(workdir=self.project.workdir, what=f"{noun} {number}")


def read_history(store: Store, project: Project, deadline: Deadline) -> History:
    """The history, from the log and from checkpoints that it does not mention. Nothing is written."""
    lines = lines_of(store, project, deadline)
    history = fold(project, lines)
    history.next_number = max(next_number(lines), _number(read_record(store, project).get("next_number")) or 1)
    return history


def lines_of(store: Store, project: Project, deadline: Deadline, *, thorough: bool = False) -> list[Line]:
    """The lines of the log, completed from checkpoints that it does not mention; if `thorough`, or if lines are
    damaged, from every checkpoint whose own line is missing."""
    lines, damaged = read_log(store, project.id)
    names = ref_names(store.git_dir, project.refs)
    if not lines and not names:
        return []
    if not lines:
        return rebuilt_lines(store, project, list_checkpoints(store, project, deadline, statistics=False))
    first: dict[str, int] = {}
    for position, line in enumerate(lines):
        for value in line.values():
            if isinstance(value, str) and len(value) == 40:
                first.setdefault(value[:12], position)
    missing = [name for name in names if thorough or damaged or name[-12:] not in first]
    if not missing:
        return lines
    found = _read_some(store, project, missing, deadline)
    if not damaged:  # a restore whose line was never written did not come to an end
        found = [each for each in found if each.kind != "pre-restore"]
    return _with_missing(lines, names, first, found)


def _read_some(store: Store, project: Project, names: list[str], deadline: Deadline) -> list[Checkpoint]:
    """The checkpoints of these names, oldest first."""
    if len(names) > _FEW:
        wanted, found = set(names), list_checkpoints(store, project, deadline, statistics=False)
        return [each for each in reversed(found) if each.ref.rpartition("/")[2] in wanted]
    return [read_checkpoint(store, project, f"{project.refs}/{name}", deadline) for name in names]


def _with_missing(
    lines: list[Line], names: Sequence[str], first: Mapping[str, int], missing: Iterable[Checkpoint]
) -> list[Line]:
    """Put the lines of these checkpoints where they belong. Checkpoints are in order by their names, whatever the
    clock did; between the lines of its neighbours, a line goes where its time is."""
    added: dict[int, list[Line]] = {}
    there = {identity_of(line) for line in lines}
    known = [(name, first[name[-12:]]) for name in names if name[-12:] in first]
    for each, new in lines_from(missing, lines):
        name = each.ref.rpartition("/")[2]
        place = 1 + max((at for other, at in known if other < name), default=-1)
        end = min((at for other, at in known if other > name and at >= place), default=len(lines))
        while place < end and lines[place]["at"] <= each.created_at.timestamp():
            place += 1
        added.setdefault(place, []).extend(line for line in new if identity_of(line) not in there)
    return [line for at in range(len(lines) + 1) for line in (*added.get(at, ()), *lines[at : at + 1])]


def ensure_log(store: Store, project: Project, deadline: Deadline) -> None:
    """Write the log of a project that has checkpoints and no log: it is of format 1, or the log was lost. The
    caller holds the project's lock."""
    if not os.path.exists(store.log_file(project.id)) and newest_name(store, project) is not None:
        rebuild_log(store, project, deadline)


def complete_log(store: Store, project: Project, deadline: Deadline) -> None:
    """Write the lines of checkpoints that the log does not mention, because the process that recorded them died.
    The caller holds the project's lock."""
    if len(lines_of(store, project, deadline)) != len(read_lines(store, project.id)):
        rebuild_log(store, project, deadline)


def rebuild_log(store: Store, project: Project, deadline: Deadline) -> None:
    """Write the log again: the lines that can be read, and what the checkpoints know of the others. Numbers that
    only lost lines had stay used. The caller holds the project's lock."""
    lines = lines_of(store, project, deadline, thorough=True)
    write_lines(store, project.id, lines)
    used = _number(read_record(store, project).get("next_number")) or 1
    touch_record(store, project, next_number=max(used, next_number(lines)))


def finish_migration(store: Store, deadline: Deadline) -> None:
    """Give every project a log, then remove the records that format 1 kept instead. No lock is held."""
    left = [store.base / name for name in FORMAT_1_RECORDS]
    if not any(os.path.lexists(path) for path in left):
        return
    for project in known_projects(store):
        with locked_project(store, project, "taking over the log", deadline):
            ensure_log(store, project, deadline)
    for path in left:
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def note(store: Store, project: Project, op: str, **facts: Any) -> None:
    """Append one line. The caller holds the project's lock."""
    append_line(store, project.id, op, **facts)


def is_logged(store: Store, project: Project, operation: str) -> bool:
    """Whether the log has a line about the restore with this id."""
    return any(line["op"] == "restore" and line.get("id") == operation for line in read_lines(store, project.id))


def begun_turn(store: Store, project: Project, key: str | None) -> Turn | None:
    """The turn with this key, if it began in this project just now: the process died, or ran out of time, and the
    next one tries again. Only the end of the log is searched."""
    lines = last_lines(store, project.id, mentioned=key) if key else ()
    history = fold(project, (line for line in lines if line["op"] in ("begin", "more")))
    return history.turns.get(history.number_of_key.get(key or "", 0))


def logged_end(store: Store, project: Project, number: int | None, again: int) -> Line | None:
    """The line that ended a turn, or ended it again after it was continued `again` times. A process that died may
    have written it without reporting it. Only the end of the log is searched."""
    ends = (line for line in last_lines(store, project.id) if line["op"] == "end" and line.get("turn") == number)
    return next((line for line in ends if line.get("again", 0) == again), None)


def take_number(store: Store, project: Project, deadline: Deadline) -> int:
    """The next number of the project: never used before, never used again. The caller holds the lock."""
    number = _number(read_record(store, project).get("next_number"))
    if number is None:  # the record is new, or was damaged
        number = next_number(lines_of(store, project, deadline))
    touch_record(store, project, next_number=number + 1)
    return number


def needed_checkpoints(store: Store, history: History) -> frozenset[str]:
    """The checkpoints that a restore under way, open stages, the next undo and the next redo go to."""
    needed = set(named_in_journal(store.journal_file(history.project.id)))
    for step in (*history.undoable()[-1:], *history.undone[-1:]):
        states = [step.before, step.after]
        if step.way_back is not None:
            states += [step.way_back.before, step.way_back.target]
        needed |= {state for state in states if state is not None}
    return frozenset(needed)


def compact_log(store: Store, project: Project, kept: Container[str], deadline: Deadline = NO_DEADLINE) -> None:
    """Drop the lines of turns, snapshots and restores none of whose checkpoints is kept, and complete a damaged
    log. The caller holds the project's lock.

    A restore is dropped only with everything before it: whether a turn counts as undone, and what can be redone,
    follows from the order of all restores since. The highest number stays in the log, so it is not given again
    even if the project's record is lost."""
    lines, damaged = read_log(store, project.id)
    if damaged:
        lines = lines_of(store, project, deadline)
    gone = _gone_turns(fold(project, lines), kept)
    anchors = [_is_anchor(line, gone, kept) for line in lines]
    first = anchors.index(True) if True in anchors else len(lines)
    left = [
        line
        for position, (line, anchor) in enumerate(zip(lines, anchors, strict=True))
        if anchor or (position > first and _follows(line)) or line["op"] not in _DROPPED
    ]
    sessions = {line.get("session") for line in left if line["op"] != "session"}
    left = [line for line in left if line["op"] != "session" or line.get("session") in sessions]
    highest = next_number(lines) - 1
    if highest >= next_number(left):
        left.insert(0, {"op": "numbers", "at": lines[0]["at"], "number": highest})
    if left != lines or damaged:
        write_lines(store, project.id, left)


def _gone_turns(history: History, kept: Container[str]) -> set[int]:
    """Turns that cannot be listed any more, as the state before them is gone. One stays if only its lines mention
    some checkpoint that is kept, or if it may be running."""
    started = time.time() - _FORGOTTEN_AFTER
    gone = {
        turn.number: [state for state in turn.states if state in kept]
        for turn in history.turns.values()
        if turn.before not in kept and (turn.status != "running" or turn.began_at < started)
    }
    mentioned = {state for turn in history.turns.values() if turn.number not in gone for state in turn.states}
    return {number for number, states in gone.items() if mentioned.issuperset(states)}


def _is_anchor(line: Line, gone: Container[int], kept: Container[str]) -> bool:
    """Whether a line belongs to something that is kept."""
    if line["op"] in _OF_TURN:
        return line.get("turn") not in gone
    states = [line.get(name) for name in ("checkpoint", "before", "after", "target")]
    return line["op"] in _DROPPED and any(isinstance(state, str) and state in kept for state in states)


def _follows(line: Line) -> bool:
    """Whether a line without a kept checkpoint stays because of what is kept before it."""
    return line["op"] in ("restore", "missed") or (line["op"] == "stage" and not {"before", "after"} & line.keys())


def resolve(store: Store, project: Project, ref: str, deadline: Deadline) -> Checkpoint:
    """The checkpoint that a number, `N:after`, `last~N`, a label or a hash prefix stands for."""
    known = None
    if re.fullmatch(LAST, ref) or re.fullmatch(NUMBER, ref):
        known = read_history(store, project, deadline).checkpoint_of(ref)
    try:
        return find_checkpoint(store, project, known or ref, deadline)
    except NoSuchCheckpoint as problem:
        raise NoSuchCheckpoint(ref=ref, workdir=project.workdir) from problem


class HostsOwn(NamedTuple):
    """What a host may drop of a project, newest first, and whether that is all of it."""

    checkpoints: list[Checkpoint]
    is_everything: bool


def own_of_host(store: Store, project: Project, host: str | None, deadline: Deadline) -> HostsOwn:
    """The checkpoints that a host recorded (None: all). What restores saved says no host: it is the host's own if
    no other one has checkpoints in the project. If one has, what other turns begin or end with is not to be
    dropped."""
    listed = list_checkpoints(store, project, deadline, statistics=False)
    if host is None:
        return HostsOwn(listed, is_everything=True)
    own = [each for each in listed if each.host == host]
    others = [each for each in listed if each.host != host and each.kind != "pre-restore"]
    recorded = {each.turn for each in own if each.kind in ("turn", "turn-end")}
    turns = read_history(store, project, deadline).turns.values()
    other_turns = [turn for turn in turns if turn.number not in recorded]
    if own and not others and not any(turn.agent for turn in other_turns):
        return HostsOwn(listed, is_everything=True)
    # A turn that nothing ended is only taken to end where the host's next one began.
    ends = {turn.after for turn in other_turns if not turn.left_open}
    lent = ends.union(*({turn.before, *turn.more, *sum(turn.calls, ())} for turn in other_turns))
    return HostsOwn([each for each in own if each.id not in lent], is_everything=False)


# --- folding -----------------------------------------------------------------------------------------


def fold(project: Project, lines: Iterable[Line]) -> History:
    """The history that follows from some lines. Malformed facts are ignored."""
    history = History(project)
    for position, line in enumerate(lines):
        reader = _READERS.get(line["op"])
        if reader is not None:
            reader(history, line, position)
    for turn in history.turns.values():
        if turn.left_open and turn.session_id in history.closing_sessions:
            turn.status = "interrupted"
    return history


def _begin(history: History, line: Line, position: int) -> None:
    number, key = _number(line.get("turn")), _text(line.get("key")) or ""
    if number is None or number in history.turns:
        return
    same = history.number_of_key.setdefault(key, number) if key else number
    if same != number:  # an attempt that failed half way had begun it already
        history.other_numbers[number] = same
        return
    turn = Turn(
        number=number,
        began_at=line["at"],
        as_of_ns=_number(line.get("as_of_ns")) or 0,
        before=_text(line.get("before")),
        held=line.get("held") is True,
        session_id=_text(line.get("session")),
        agent=_text(line.get("agent")),
        parent=_text(line.get("parent")),
        prompt=_text(line.get("prompt")),
        key=key,
        position=position,
    )
    for left in [each for each in history.running.values() if each.session_id == turn.session_id]:
        _close(history, left, turn)
    history.turns[number] = history.running[number] = turn
    history.done.append(Step(("turn", number), before=turn.before, position=position))
    _note_inside(history, turn.before)
    history.inside |= 1 << number


def _close(history: History, turn: Turn, later: Turn) -> None:
    """The next turn of a session ends one that was left open. That one was interrupted, unless the host of the
    session never closes its turns."""
    turn.left_open = True
    turn.status, turn.ended_at, turn.end_position = "done", later.began_at, later.position
    turn.after = turn.after or later.before
    del history.running[turn.number]
    _end_step(history, turn, turn.after)


def _more(history: History, line: Line, position: int) -> None:
    turn, checkpoint = _turn_of(history, line), _text(line.get("checkpoint"))
    if turn is None or checkpoint is None:
        return
    turn.more.append(checkpoint)
    amended = _text(line.get("before"))
    if amended is not None:
        own = ("turn", turn.number)
        history.done = [
            replace(step, before=amended) if (step.thing, step.before) == (own, turn.before) else step
            for step in history.done
        ]
        history.inside_of[amended] = history.inside_of.get(turn.before or "", history.inside)
        turn.before = amended


def _call(history: History, line: Line, position: int) -> None:
    turn = _turn_of(history, line)
    if turn is not None:
        turn.open_call = turn.open_call or _text(line.get("before"))


def _call_end(history: History, line: Line, position: int) -> None:
    turn, before, after = _turn_of(history, line), _text(line.get("before")), _text(line.get("after"))
    if turn is not None and before is not None and after is not None:
        turn.calls.append((before, after))
        turn.open_call = None
        turn.after = after


def _end(history: History, line: Line, position: int) -> None:
    turn = _turn_of(history, line)
    if turn is None:
        return
    turn.after, turn.ended_at, turn.open_call = _text(line.get("after")) or turn.after, line["at"], None
    turn.status = "interrupted" if line.get("status") == "interrupted" else "done"
    turn.end_position, turn.left_open = position, False
    _note_inside(history, turn.after)
    history.closing_sessions.add(turn.session_id)
    history.running.pop(turn.number, None)
    tools = line.get("tools")
    if isinstance(tools, list):
        turn.tools = [[str(word) for word in each] for each in tools if isinstance(each, list)]
    last = history.last_operation
    if last is None or last.position < turn.position:
        _end_step(history, turn, turn.after)
    elif last.reached and turn.after not in (None, last.reached) and line.get("tree") != last.after:
        # Files were restored while it ran, perhaps by an undo of this very turn, and it went on from there.
        thing: Thing = ("turn", turn.number)
        history.done.append(Step(thing, before=last.reached, after=turn.after, position=last.position))
        history.undone_turns.pop(turn.number, None)
        history.inside |= 1 << turn.number


def _note_inside(history: History, state: str | None) -> None:
    if state is not None:
        history.inside_of[state] = history.inside


def _inside_after(history: History, operation: Operation) -> int:
    """The turns whose work is in the files after an operation."""
    line, inside = operation.line, history.inside
    if operation.kind == "revert":
        session = operation.session_id
        for turn in history.turns.values():
            if turn.number == operation.turn or (session is not None and turn.session_id == session):
                inside &= ~(1 << turn.number)
        return inside
    if operation.kind in ("undo", "redo"):
        of = line.get("undoes" if operation.kind == "undo" else "redoes")
        if operation.kind == "undo" and isinstance(of, int):
            return inside & ~(1 << of)
        return history.inside_before.get(str(of), inside)
    return inside if line.get("paths") else history.inside_of.get(operation.target, inside)


def _end_step(history: History, turn: Turn, after: str | None, seen: str = "") -> None:
    """Note the state that the newest part of a turn ended with."""
    for place in reversed(range(len(history.done))):
        if history.done[place].thing == ("turn", turn.number):
            history.done[place] = replace(history.done[place], after=after, seen=seen)
            return


def _conversation(history: History, line: Line, position: int) -> None:
    turn = _turn_of(history, line)
    if turn is None:
        return
    refs = line.get("refs")
    turn.conversations += [ref for ref in refs if isinstance(ref, str)] if isinstance(refs, list) else []
    turn.messages = _number(line.get("messages")) if turn.messages is None else turn.messages
    turn.not_kept = _text(line.get("why")) or turn.not_kept


def _snapshot(history: History, line: Line, position: int) -> None:
    checkpoint = _text(line.get("checkpoint")) or _text(line.get("after"))
    if checkpoint is not None and any(each.checkpoint == checkpoint for each in history.snapshots):
        return
    _note_inside(history, checkpoint)
    history.snapshots.append(
        Snapshot(
            number=_number(line.get("number")),
            at=line["at"],
            checkpoint=checkpoint,
            reason=_text(line.get("reason")) or "",
            session_id=_text(line.get("session")),
            before=_text(line.get("before")),
            edit_id=_text(line.get("edit_id")),
            risk_tier=_text(line.get("risk_tier")),
            status=_text(line.get("status")) or "",
            position=position,
        )
    )


def _restore(history: History, line: Line, position: int) -> None:
    names = ("id", "target", "before")
    identity, target, before = (_text(line.get(name)) for name in names)
    if identity is None or identity in history.operations:
        return
    if target is None or before is None or len(target) != 40 or len(before) != 40:
        return  # there is no way to where it says
    kind = _text(line.get("kind")) or "restore"
    after, reached = _text(line.get("after")) or "", _text(line.get("reached"))
    operation = Operation(identity, line["at"], kind, target, before, after, reached, line, position)
    for turn in history.running.values():
        if history.last_operation is None or history.last_operation.position < turn.position:
            if turn.open_call is None and turn.after is not None:
                _end_step(history, turn, turn.after)  # between two calls
            else:
                _end_step(history, turn, before, _text(line.get("seen")) or "")
    history.operations[identity] = history.last_operation = operation
    _note_inside(history, before)
    history.inside_before[identity] = history.inside
    history.inside = _inside_after(history, operation)
    _note_inside(history, reached)
    if kind == "undo":
        undoes = line.get("undoes")
        step = Step(("turn", undoes) if isinstance(undoes, int) else ("operation", str(undoes)))
        step = _taken_out(history.done, lambda each: each.thing == step.thing) or step
        history.undone.append(replace(step, way_back=operation))
        if isinstance(undoes, int) and all(each.thing != step.thing for each in history.done):
            history.undone_turns[undoes] = position
    elif kind == "redo":
        redoes = line.get("redoes")
        found = _taken_out(history.undone, lambda each: each.way_back is not None and each.way_back.id == redoes)
        step = found or Step(("operation", identity))
        history.done.append(replace(step, way_back=operation))
        if step.thing[0] == "turn":
            history.undone_turns.pop(int(step.thing[1]), None)
    else:
        history.undone.clear()
        history.done.append(Step(("operation", identity), operation))


def _taken_out(steps: list[Step], wanted: Callable[[Step], bool]) -> Step | None:
    """Remove the newest step that is wanted."""
    for place in reversed(range(len(steps))):
        if wanted(steps[place]):
            return steps.pop(place)
    return None


def _session(history: History, line: Line, position: int) -> None:
    session = _text(line.get("session"))
    if session is not None:
        history.sessions[session] = line


def _attach(history: History, line: Line, position: int) -> None:
    history.attached.append(line)


def _missed(history: History, line: Line, position: int) -> None:
    history.missed.append(position)


def _purge(history: History, line: Line, position: int) -> None:
    history.purges.append(line)


_READERS = {
    "begin": _begin,
    "more": _more,
    "call": _call,
    "call-end": _call_end,
    "end": _end,
    "conversation": _conversation,
    "snapshot": _snapshot,
    "stage": _snapshot,
    "restore": _restore,
    "session": _session,
    "attach": _attach,
    "missed": _missed,
    "purge": _purge,
}


def _turn_of(history: History, line: Line) -> Turn | None:
    number = _number(line.get("turn")) or 0
    return history.turns.get(history.other_numbers.get(number, number))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
