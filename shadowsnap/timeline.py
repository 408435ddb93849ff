"""The timeline of a project, and the sessions of all projects, made from the operation log.

The log has the operations and names checkpoints, which have the files. An entry joins the two. What changed
between the end of one turn and the beginning of the next, while no turn was under way, is the person's own work.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from shadowsnap.deadline import Deadline
from shadowsnap.errors import AmbiguousReference, NoSuchCheckpoint
from shadowsnap.git.refs import read_refs
from shadowsnap.model import (
    TAKEN_BACK,
    Checkpoint,
    EditOutcome,
    EditStatus,
    Entry,
    PlaceStatus,
    Session,
    SessionStatus,
    SessionTurn,
    TurnPlace,
)
from shadowsnap.store.checkpoints import (
    ATTACHMENTS,
    LAST,
    NUMBER,
    Numbers,
    compared_at,
    count_at,
    count_pairs,
    list_checkpoints,
    newest_name,
    take_inventory,
    touching,
    with_statistics,
)
from shadowsnap.store.history import STILL_AT_WORK_SECONDS, History, Operation, Snapshot, Turn, fold, read_history
from shadowsnap.store.lanes import PulledLane, checkpoints_of, lines_in
from shadowsnap.store.layout import Store
from shadowsnap.store.log import Line, logged_projects, read_lines
from shadowsnap.store.projects import Project, as_moment, known_projects

SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "completed", "failed", "rolled_back")
_SHORTEST_PART = 4
_EPOCH = datetime.fromtimestamp(0, UTC)
_NOT_KEPT = "by turns not kept, or by you"
"""The reason of `edits` between two states where others were, which are gone."""
_MISSED = "by an agent without a snapshot, or by you"
"""The reason of `edits` where a tool ran although its snapshot had failed."""


class State(NamedTuple):
    """A known state of the files: its checkpoint (None: only the tree is known), tree, name and number, and the
    restore that led to it."""

    checkpoint: str | None
    tree: str
    name: str
    number: int | None
    operation: Operation | None = None


@dataclass(frozen=True)
class Timeline:
    """Entries, oldest first, and the newest known state of the files."""

    history: History
    entries: tuple[Entry, ...]
    newest: State | None
    inside: int = 0
    """The entries whose work is in the files, as a bit for the position of each: sets of positions would take a
    gigabyte for ten thousand turns."""
    inside_of: dict[str, int] = field(default_factory=dict)
    """The same for each checkpoint."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """The checkpoints of another machine's timeline, newest first."""

    def exchanged(self, checkpoint: str) -> tuple[list[Entry], list[Entry]]:
        """The entries whose work a restore to this checkpoint takes out of the files, and those whose work it
        brings back, newest first. Both are empty for a state that is not known to the log."""
        then = self.inside_of.get(checkpoint, self.inside)
        out, back = _positions(self.inside & ~then), _positions(then & ~self.inside)
        return [self.entries[at] for at in reversed(out)], [self.entries[at] for at in reversed(back)]


def _positions(bits: int) -> list[int]:
    """The positions of the bits that are set, ascending."""
    return [at for at, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]


def read_timeline(
    store: Store, project: Project, deadline: Deadline, path: bytes | None = None, *, counted: bool = True
) -> Timeline:
    """The whole timeline. With `path`, only entries that changed it; `counted`: with counts of files and lines."""
    history = read_history(store, project, deadline)
    checkpoints = list_checkpoints(store, project, deadline, statistics=False)
    return _timeline(store, history, checkpoints, deadline, path, counted=counted)


def read_lane_timeline(store: Store, lane: PulledLane, deadline: Deadline, *, counted: bool = True) -> Timeline:
    """The timeline of another machine, as far as it was pulled."""
    history = fold(lane.project, lines_in(store, lane, deadline))
    checkpoints = tuple(checkpoints_of(store, lane, deadline))
    return replace(_timeline(store, history, checkpoints, deadline, counted=counted), checkpoints=checkpoints)


def state_in_lane(store: Store, lane: PulledLane, ref: str, deadline: Deadline) -> Checkpoint:
    """The checkpoint of a pulled lane that a number, `N:after`, `last~N`, a label or a prefix of an id names
    there."""
    known = None
    if re.fullmatch(LAST, ref) or re.fullmatch(NUMBER, ref):
        known = fold(lane.project, lines_in(store, lane, deadline)).checkpoint_of(ref)
    word = known or ref
    found = [
        each
        for each in checkpoints_of(store, lane, deadline)
        if each.label == word or (len(word) >= 4 and each.id.startswith(word))
    ]
    if len(found) != 1:
        raise NoSuchCheckpoint(ref=ref, workdir=f"lane {lane.lane}")
    return found[0]


def _timeline(
    store: Store, history: History, checkpoints: Iterable[Checkpoint], deadline: Deadline,
    path: bytes | None = None, *, counted: bool,
) -> Timeline:  # fmt: skip
    project = history.project
    made = _Entries(history, {each.id: each for each in checkpoints})
    entries = [entry for entry, _ in made.rows]
    if counted or path is not None:
        pairs = (pair for _, pair in made.rows if pair is not None)
        numbers = count_pairs(store, project, store.git(deadline), pairs, path)
        entries = [with_counts(entry, numbers.get(pair) if pair else None) for entry, pair in made.rows]
    if path is not None:
        return Timeline(history, tuple(entry for entry in entries if entry.files_changed), made.newest)
    return Timeline(history, tuple(entries), made.newest, made.inside, made.inside_of)


class _Entries:
    """Makes the entries of a history by walking through it in order."""

    def __init__(self, history: History, known: dict[str, Checkpoint]) -> None:
        self._history = history
        self._known = known
        self._open: set[int] = set()
        self._discards = {id for stage in history.snapshots if (id := _discard_of(stage, history))}
        self._targets = {turn.before for turn in history.turns.values()}
        self._targets |= {snapshot.checkpoint for snapshot in history.snapshots}
        """The states that going back to entries restores: their labels and pins are shown there, not at the entry
        before."""
        self.rows: list[tuple[Entry, tuple[str, str] | None]] = []
        """Entries, and the trees before and after each, if both are known."""
        self.newest: State | None = None
        self._numbers = {*history.turns, *history.other_numbers, *(each.number for each in history.snapshots)}
        self._highest = 0
        self._gap = ""
        """Why states after `newest` are missing; empty if none is."""
        self.inside = 0
        self.inside_of: dict[str, int] = {}
        self._inside_before: dict[str, int] = {}
        """The same before each operation."""
        self._walk()

    def _walk(self) -> None:
        for _, _, event in sorted(self._events(), key=lambda each: each[:2]):
            if isinstance(event, Turn):
                self._end(event) if event.number in self._open else self._begin(event)
            elif isinstance(event, Operation):
                self._operation(event)
            elif event is None:
                self._gap = _MISSED
            elif event.checkpoint is not None:  # a discarded stage has a restore as its entry
                self._snapshot(event)

    def _events(self) -> Iterator[tuple[int, int, Turn | Snapshot | Operation | None]]:
        """Everything that happened, with its position; None: a tool ran without a snapshot. If a turn ends where
        another begins, the end is first."""
        for turn in self._history.turns.values():
            yield turn.position, 1, turn
            if turn.end_position is not None:
                yield turn.end_position, 0, turn
        yield from ((each.position, 1, each) for each in self._history.snapshots)
        yield from ((each.position, 1, each) for each in self._history.operations.values())
        yield from ((position, 1, None) for position in self._history.missed)

    def _begin(self, turn: Turn) -> None:
        before = self._known.get(turn.before or "")
        self._note_number(turn.number)
        self._edits(before, turn.began_at)
        status = self._history.status_of(turn)
        if status == "running" and not self._is_at_work(turn, time.time()):
            status = "interrupted"
        after = self._known.get(turn.after or "")
        self._note_inside(turn.before)
        self._add(
            Entry(
                number=turn.number,
                kind="turn",
                prompt=turn.prompt,
                reason=before.reason if before is not None and not turn.held else "",
                session_id=turn.session_id,
                agent=turn.agent,
                status=status,  # type: ignore[arg-type]
                began_at=as_moment(turn.began_at),
                ended_at=as_moment(turn.ended_at),
                before=turn.before,
                after=turn.after,
                **_marks_of(before, after if turn.after not in self._targets else None),
            ),
            _tree(before),
            _tree(after),
        )
        self._open.add(turn.number)
        if before is not None and before.scope == "tree":
            self._reach(State(before.id, before.tree, f"the beginning of turn {turn.number}", turn.number))

    def _end(self, turn: Turn) -> None:
        self._open.discard(turn.number)
        self._note_inside(turn.after)
        after = self._known.get(turn.after or "")
        if after is not None and after.scope == "tree":
            self._reach(State(after.id, after.tree, f"the end of turn {turn.number}", turn.number))
        elif after is None:
            self._gap = _NOT_KEPT

    def _note_number(self, number: int | None) -> None:
        """Note a gap if what had a number before this one is not kept."""
        if number is not None:
            if self._highest and not self._numbers.issuperset(range(self._highest + 1, number)):
                self._gap = _NOT_KEPT
            self._highest = max(self._highest, number)

    def _is_at_work(self, turn: Turn, at: float) -> bool:
        """Whether a turn that began before is under way then. One that never ended counts as over after a while:
        its agent was killed, or gave no notice."""
        return turn.end_position is not None or at - turn.began_at < STILL_AT_WORK_SECONDS

    def _reach(self, state: State | None) -> None:
        self.newest, self._gap = state, ""

    def _snapshot(self, snapshot: Snapshot) -> None:
        self._note_number(snapshot.number)
        taken = self._known.get(snapshot.checkpoint or "")
        before = snapshot.before or _checkpoint_holding(self.newest)
        self._add(
            Entry(
                number=snapshot.number,
                kind="snapshot",
                reason=snapshot.reason,
                session_id=snapshot.session_id,
                began_at=as_moment(snapshot.at),
                ended_at=as_moment(snapshot.at),
                before=before,
                after=snapshot.checkpoint,
                **_marks_of(taken, None),
            ),
            _tree(self._known.get(snapshot.before or "")) or (self.newest.tree if self.newest else None),
            _tree(taken),
        )
        self._note_inside(snapshot.checkpoint)
        if taken is not None and taken.scope == "tree":
            self._reach(State(taken.id, taken.tree, f"snapshot {snapshot.number}", snapshot.number))

    def _operation(self, operation: Operation) -> None:
        before = self._known.get(operation.before)
        if operation.id not in self._discards:
            self._edits(before, operation.at)
        self._note_inside(operation.before)
        self._inside_before[operation.id] = self.inside
        inside = self._inside_after(operation)
        reason = describe(operation, self._history)
        self._add(
            Entry(
                number=None,
                kind="restore",
                reason=reason,
                session_id=operation.session_id,
                status="done",
                began_at=as_moment(operation.at),
                ended_at=as_moment(operation.at),
                before=operation.before,
                after=operation.target if not operation.line.get("paths") else None,
            ),
            _tree(before),
            operation.after or None,
        )
        self.inside = inside
        if operation.after:
            self._reach(State(None, operation.after, f"the {reason}", None, operation))
        elif operation.before != operation.target:
            self._reach(None)  # the log was rebuilt, and the tree after a restore of some paths is not known

    def _inside_after(self, operation: Operation) -> int:
        """The entries whose work is in the files after an operation."""
        if operation.kind == "revert":
            return sum(
                1 << at
                for at in _positions(self.inside)
                if (operation.turn is None or self.rows[at][0].number != operation.turn)
                and (operation.session_id is None or self.rows[at][0].session_id != operation.session_id)
            )
        if operation.kind == "undo":
            undoes = operation.line.get("undoes")
            if isinstance(undoes, int):
                return sum(1 << at for at in _positions(self.inside) if self.rows[at][0].number != undoes)
            return self._inside_before.get(str(undoes), self.inside)
        if operation.kind == "redo":
            return self._inside_before.get(str(operation.line.get("redoes")), self.inside)
        if operation.line.get("paths"):
            return self.inside
        return self.inside_of.get(operation.target, self.inside)

    def _note_inside(self, checkpoint: str | None) -> None:
        """Note the entries whose work is in a checkpoint of the present files."""
        if checkpoint is not None:
            self.inside_of[checkpoint] = self.inside

    def _edits(self, seen: Checkpoint | None, at: float) -> None:
        """An entry for what changed since the newest known state, if no turn was under way: by the person, or also
        by turns that are not kept."""
        at_work = (turn for number in self._open if self._is_at_work(turn := self._history.turns[number], at))
        if seen is None or seen.scope != "tree" or self.newest is None or any(at_work):
            return
        if seen.tree == self.newest.tree:
            return
        began = self._known.get(self.newest.checkpoint or "")
        self._add(
            Entry(
                number=None,
                kind="edits",
                reason=self._gap,
                began_at=began.created_at if began is not None else None,
                ended_at=as_moment(at),
                before=_checkpoint_holding(self.newest),
                after=seen.id,
            ),
            self.newest.tree,
            seen.tree,
        )

    def _add(self, entry: Entry, old: str | None, new: str | None) -> None:
        if entry.kind != "restore":
            self.inside |= 1 << len(self.rows)
        self.rows.append((entry, (old, new) if old and new else None))


def _checkpoint_holding(state: State | None) -> str | None:
    """The checkpoint that holds a state; after a restore, the one that the restore reached."""
    if state is None or state.checkpoint is not None or state.operation is None:
        return state.checkpoint if state is not None else None
    return state.operation.reached


def _discard_of(stage: Snapshot, history: History) -> str | None:
    """The restore that discarded a stage, whose work it replaced."""
    if stage.status != "discarded":
        return None
    earlier = [each for each in history.operations.values() if each.position < stage.position]
    found = max(earlier, key=lambda each: each.position, default=None)
    return found.id if found is not None and found.target == stage.before else None


def describe(operation: Operation, history: History) -> str:
    """An operation in words: `restore to before turn 3`, `undo of turn 3`, `revert of session abc`."""
    if operation.kind == "revert":
        whose = f"turn {operation.turn}" if operation.turn else f"session {operation.session_id}"
        return f"revert of {whose}"
    if operation.kind == "undo":
        undoes = operation.line.get("undoes")
        thing = ("turn", undoes) if isinstance(undoes, int) else ("operation", str(undoes))
        return f"undo of {describe_thing(thing, history)}"
    if operation.kind == "redo":
        undo = history.operations.get(str(operation.line.get("redoes")))
        is_undo = undo is not None and undo.kind == "undo"
        return f"redo of {describe(undo, history).removeprefix('undo of ')}" if undo and is_undo else "redo"
    return f"restore to {name_of_state(operation.target, history)}"


def describe_thing(thing: tuple[str, int | str], history: History) -> str:
    if thing[0] == "turn":
        return f"turn {thing[1]}"
    operation = history.operations.get(str(thing[1]))
    if operation is None:
        return "a restore"
    # An undo never takes back an undo; only a damaged log may claim that, even of itself.
    is_undo = operation.kind in ("undo", "redo")
    return f"the {operation.kind if is_undo else describe(operation, history)}"


def name_of_state(checkpoint: str, history: History) -> str:
    """The name of a checkpoint in a history: `before turn 3`, `the end of turn 3`, `snapshot 2`, or its id."""
    for number, each in reversed(history.numbered().items()):
        if isinstance(each, Snapshot) and each.checkpoint == checkpoint:
            return f"snapshot {number}"
        if isinstance(each, Turn) and checkpoint in (each.before, each.after):
            return f"before turn {number}" if each.before == checkpoint else f"the end of turn {number}"
    return checkpoint[:8]


def _marks_of(state: Checkpoint | None, other: Checkpoint | None) -> dict[str, Any]:
    both = [each for each in (state, other) if each is not None]
    return {
        "pinned": any(each.pinned for each in both),
        "label": next((each.label for each in both if each.label), None),
        "skipped": state.skipped if state is not None else (),
    }


def _tree(checkpoint: Checkpoint | None) -> str | None:
    return checkpoint.tree if checkpoint is not None and checkpoint.scope == "tree" else None


def with_counts(entry: Entry, numbers: Numbers | None) -> Entry:
    """An entry with these counts of files and lines."""
    names = ("files_changed", "insertions", "deletions", "files_added", "files_deleted")
    counts: dict[str, Any] = {} if numbers is None else dict(zip(names, numbers, strict=True))
    return replace(entry, **counts)


# --- sessions ----------------------------------------------------------------------------------------


def read_sessions(store: Store, deadline: Deadline, session_id: str | None = None) -> list[Session]:
    """Every session of every project, newest first; with `session_id` only that one."""
    return _sessions_in(store, _histories(store, deadline, session_id, None), session_id)


def _sessions_in(store: Store, histories: Iterable[History], session_id: str | None = None) -> list[Session]:
    found: dict[str, list[History]] = {}
    for history in histories:
        for name in _session_names(history):
            if session_id in (None, name):
                found.setdefault(name, []).append(history)
    kept: dict[str, set[str]] = {}
    sessions = [_session(store, name, some, kept) for name, some in found.items()]
    return sorted(sessions, key=lambda each: max(_moments_of(each), default=_EPOCH), reverse=True)


def _histories(
    store: Store, deadline: Deadline, session_id: str | None, project: Project | None
) -> Iterator[History]:
    projects = {each.id: each for each in ([project] if project is not None else known_projects(store))}
    logged = set(logged_projects(store))
    for identity, each in projects.items():
        if identity not in logged:
            if newest_name(store, each) is not None:  # of format 1, or its log was lost
                yield read_history(store, each, deadline)
        elif session_id is None or _mentions(store, identity, session_id):
            yield fold(each, read_lines(store, identity))


def _mentions(store: Store, project: str, session_id: str) -> bool:
    """Whether a log may mention a session. Searching its bytes is much faster than parsing it."""
    try:
        return json.dumps(session_id).encode() in store.log_file(project).read_bytes()
    except OSError:
        return False


def projects_of_session(store: Store, deadline: Deadline, session_id: str) -> list[Project]:
    """The projects that a session worked in."""
    histories = _histories(store, deadline, session_id, None)
    return [history.project for history in histories if session_id in _session_names(history)]


def _session_names(history: History) -> set[str]:
    names = {turn.session_id for turn in history.turns.values()} | {each.session_id for each in history.snapshots}
    names |= {str(line["session"]) for line in history.attached if line.get("session")}
    return {name for name in names if name} | set(history.sessions)


def _session(store: Store, name: str, histories: Iterable[History], kept: dict[str, set[str]]) -> Session:
    """What is known of one session from the histories of several projects."""
    placed: dict[str, list[tuple[History, Turn]]] = {}
    edits: list[EditOutcome] = []
    attached: list[tuple[Project, Line]] = []
    ends: list[tuple[float, str]] = []
    for history in histories:
        project = history.project
        for turn in history.turns.values():
            if turn.session_id == name:
                placed.setdefault(turn.key or f"{project.id} {turn.number}", []).append((history, turn))
        for stage in history.snapshots:
            if stage.session_id == name and stage.status:
                status: EditStatus = "committed" if stage.status == "committed" else "discarded"
                state = stage.checkpoint if status == "committed" else None
                at, workdir = as_moment(stage.at) or _EPOCH, str(project.workdir)
                edits.append(EditOutcome(stage.edit_id, status, at, workdir, state, stage.risk_tier))
        attached += [(project, line) for line in history.attached if line.get("session") == name]
        if name in history.sessions:
            ends.append((float(history.sessions[name]["at"]), str(history.sessions[name].get("status"))))
        for operation in history.operations.values():
            stands = any(step.thing == ("operation", operation.id) for step in history.done)
            if operation.kind == "revert" and operation.session_id == name and stands:
                ends.append((operation.at, "rolled_back"))
    turns = [_session_turn(store, places, kept) for places in placed.values()]
    turns += [_attached_turn(store, project, line, kept) for project, line in attached]
    seen = [turn for places in placed.values() for _, turn in places]
    last = max((turn.began_at for turn in seen), default=0.0)
    ended = max((end for end in ends if end[0] >= last), default=None)
    word = ended[1] if ended is not None else "completed" if attached and not seen else "active"
    agents = [turn.agent for turn in seen] + [line.get("agent") for _, line in attached]
    return Session(
        id=name,
        status=next((status for status in SESSION_STATUSES if status == word), "completed"),
        agent=next((agent for agent in reversed(agents) if agent), None),
        parent=next((turn.parent for turn in seen if turn.parent), None),
        started=min([*(turn.began for turn in turns), *(each.at for each in edits)], default=None),
        ended=as_moment(ended[0]) if ended is not None else None,
        turns=tuple(sorted(turns, key=lambda turn: turn.began)),
        edits=tuple(sorted(edits, key=lambda each: each.at)),
    )


def _session_turn(store: Store, places: list[tuple[History, Turn]], kept: dict[str, set[str]]) -> SessionTurn:
    turns = [turn for _, turn in places]
    ends = [turn.ended_at for turn in turns]
    refs = [ref for turn in turns for ref in turn.conversations]
    why = next((turn.not_kept for turn in turns if turn.not_kept), "")
    return SessionTurn(
        began=as_moment(min(turn.began_at for turn in turns)) or _EPOCH,
        ended=None if None in ends else as_moment(max(end for end in ends if end is not None)),
        prompt=turns[0].prompt,
        message_count=next((turn.messages for turn in turns if turn.messages is not None), None),
        places=tuple(_turn_place(history, turn) for history, turn in places),
        conversation=_conversation_state(store, refs, why, kept),
        reverted=all(history.status_of(turn) in TAKEN_BACK for history, turn in places),
    )


def _attached_turn(store: Store, project: Project, line: Line, kept: dict[str, set[str]]) -> SessionTurn:
    refs = [str(ref) for ref in line.get("refs", ())]
    return SessionTurn(
        began=as_moment(line.get("began") or line["at"]) or _EPOCH,
        prompt=line.get("prompt"),
        message_count=line.get("messages"),
        places=(TurnPlace(str(project.workdir), project.id, line.get("turn"), line.get("checkpoint")),),
        conversation=_conversation_state(store, refs, "", kept),
    )


def _turn_place(history: History, turn: Turn) -> TurnPlace:
    status: PlaceStatus = ""
    if turn.ended_at is not None:
        status = "failed" if turn.after is None else "taken" if turn.after != turn.before else "unchanged"
    project = history.project
    return TurnPlace(str(project.workdir), project.id, turn.number, turn.before, turn.after, status)


def _conversation_state(store: Store, refs: Sequence[str], why: str, kept: dict[str, set[str]]) -> str:
    """Whether a conversation is kept. `kept` caches the refs of each project."""
    if not refs:
        return why or "none"
    for ref in refs:
        project, _, name = ref.removeprefix(f"{ATTACHMENTS}/").partition("/")
        if project not in kept:
            kept[project] = set(read_refs(store.git_dir, f"{ATTACHMENTS}/{project}"))
        if name in kept[project]:
            return "kept"
    return "dropped"


def _moments_of(session: Session) -> list[datetime]:
    return [turn.began for turn in session.turns] + [edit.at for edit in session.edits]


def session_by_part(store: Store, deadline: Deadline, part: str, project: Project | None = None) -> str:
    """The id of the only session that contains `part`, of 4 characters or more; an exact id is returned as it
    is."""
    if any(part in _session_names(history) for history in _histories(store, deadline, part, project)):
        return part
    if len(part) < _SHORTEST_PART:
        return part
    names = {name for history in _histories(store, deadline, None, project) for name in _session_names(history)}
    fitting = sorted(name for name in names if part in name)
    if len(fitting) > 1:
        shown = ", ".join(fitting[:5])
        raise AmbiguousReference(ref=part, count=len(fitting), what="sessions", candidates=shown)
    return fitting[0] if fitting else part


def short_part_hint(part: str) -> str | None:
    """What to do if a part of a session's id is too short to be looked for."""
    return f"give at least {_SHORTEST_PART} characters of its id" if len(part) < _SHORTEST_PART else None


_SHORTEST_ID = 8


def short_session_ids(names: Iterable[str]) -> dict[str, str]:
    """For each session id a short part that no other one has. It need not be the beginning, because some agents
    begin their ids with the date."""
    names = sorted(set(names))
    holders: dict[str, list[str]] = {}
    for name in names:
        for part in {name[at : at + _SHORTEST_ID] for at in range(len(name) - _SHORTEST_ID + 1)}:
            holders.setdefault(part, []).append(name)
    return {name: _short_part(name, holders) for name in names}


def _short_part(name: str, holders: dict[str, list[str]]) -> str:
    """The short part of one id. `holders`: the ids that have each part of the shortest length."""
    for length in range(_SHORTEST_ID, len(name)):
        for start in (0, len(name) - length):
            part = name[start : start + length]
            others = (other for other in holders[part[:_SHORTEST_ID]] if other != name)
            if part.strip("-_. ") == part and not any(part in other for other in others):
                return part
    return name


def find_sessions(
    store: Store,
    deadline: Deadline,
    *,
    project: Project | None = None,
    path: bytes | None = None,
    text: str | None = None,
    since: float | None = None,
    until: float | None = None,
    status: str | None = None,
    agent: str | None = None,
    parent: str | None = None,
    edit_id: str | None = None,
    limit: int | None = None,
) -> list[Session]:
    """The sessions that match every criterion, newest first."""
    histories = list(_histories(store, deadline, None, project))
    changed = None if path is None else _sessions_that_changed(store, deadline, project, histories, path)

    def fits(session: Session) -> bool:
        seen = _moments_of(session) + [turn.ended for turn in session.turns if turn.ended is not None]
        moments = [moment.timestamp() for moment in seen]
        prompts = [turn.prompt or "" for turn in session.turns]
        return (
            (status is None or session.status == status)
            and (agent is None or session.agent == agent)
            and (parent is None or session.parent == parent)
            and (edit_id is None or any(edit.edit_id == edit_id for edit in session.edits))
            and (changed is None or session.id in changed)
            and (text is None or any(text.casefold() in prompt.casefold() for prompt in prompts))
            and (since is None or max(moments, default=0.0) >= since)
            and (until is None or min(moments, default=0.0) <= until)
        )

    return [session for session in _sessions_in(store, histories) if fits(session)][:limit]


def _sessions_that_changed(
    store: Store, deadline: Deadline, project: Project | None, histories: Iterable[History], path: bytes
) -> set[str]:
    """The sessions of entries that changed a path, with one git process for all projects."""
    rows: list[tuple[Entry, tuple[str, str] | None]] = []
    if project is None:
        listed = take_inventory(store, deadline).checkpoints
    else:
        listed = {project.id: list_checkpoints(store, project, deadline, statistics=False)}
    for history in histories:
        rows += _Entries(history, {each.id: each for each in listed.get(history.project.id, ())}).rows
    pairs = {pair for entry, pair in rows if entry.session_id and pair is not None and pair[0] != pair[1]}
    numbers = count_at(store.git(deadline), pairs, path)
    return {str(entry.session_id) for entry, pair in rows if pair in numbers and numbers[pair][0]}


def find_checkpoints(
    store: Store,
    deadline: Deadline,
    *,
    project: Project | None = None,
    path: bytes | None = None,
    text: str | None = None,
    session_id: str | None = None,
    status: str | None = None,
    kind: str | None = None,
    since: float | None = None,
    until: float | None = None,
    limit: int | None = None,
    counted: bool = False,
) -> list[Checkpoint]:
    """The checkpoints of every project, or of one, that match every criterion, newest first."""
    sessions = None
    if status is not None:
        sessions = {each.id for each in read_sessions(store, deadline) if each.status == status}

    def fits(each: Checkpoint) -> bool:
        words = (each.reason, str(each.metadata.get("prompt") or ""))
        return (
            (session_id is None or each.session_id == session_id)
            and (sessions is None or each.session_id in sessions)
            and (kind is None or each.kind == kind)
            and (text is None or any(text.casefold() in word.casefold() for word in words))
            and (since is None or each.created_at.timestamp() >= since)
            and (until is None or each.created_at.timestamp() <= until)
        )

    if project is None:
        listed = list(take_inventory(store, deadline).checkpoints.values())
    else:
        has_any = newest_name(store, project) is not None
        listed = [list_checkpoints(store, project, deadline, statistics=False)] if has_any else []
    if counted and path is None:
        git = store.git(deadline)
        listed = [
            with_statistics(store, Project(some[0].project, Path(some[0].workdir)), git, some)
            for some in listed
            if some
        ]
    if path is None:
        found = [each for some in listed for each in some if fits(each)]
    else:
        compared = compared_at(store.git(deadline), listed, path)
        found = touching(store, [each for each in compared if fits(each)], path, deadline)
    return sorted(found, key=lambda each: each.ref.rpartition("/")[2], reverse=True)[:limit]


# --- effects that no rollback takes back ---------------------------------------------------------------------

_LASTING_EFFECTS = (
    ("sends something over the network", r"\b(curl|wget|scp|rsync|ssh|nc|ftp|sftp|http|https)\b"),
    ("pushes to a repository", r"\bgit\s+(?:-\S+\s+)*push\b|\bgh\s+(?:pr|release|repo)\b"),
    ("publishes a package", r"\b(npm|pnpm|yarn|cargo|gem|twine|uv|poetry|hatch)\s+(?:run\s+)?(publish|upload)\b"),
    ("changes a database", r"\b(psql|mysql|sqlite3|mongosh?|redis-cli|alembic|prisma)\b|manage\.py\s+migrate"),
    ("changes infrastructure", r"\b(terraform|tofu|pulumi|kubectl|helm|aws|gcloud|az|ansible-playbook|docker)\b"),
    ("changes the system or other directories", r"\b(sudo|systemctl|apt(?:-get)?|brew|dnf|pacman|crontab)\b"),
    ("sends mail or messages", r"\b(sendmail|mail|mutt)\b"),
)


def lasting_effects(tools: Iterable[Sequence[str]]) -> list[str]:
    """Hints at tool calls that may have had effects outside the directory: `curl ...: sends something over the
    network`. They are found by words of commands, so they are neither complete nor certain."""
    found = []
    for name, about in (each for each in tools if len(each) == 2):
        if not about or "/" in name:
            continue
        effects = [effect for effect, pattern in _LASTING_EFFECTS if re.search(pattern, about)]
        if effects:
            found.append(f"{about[:100]}: {', '.join(effects)}")
    return found
