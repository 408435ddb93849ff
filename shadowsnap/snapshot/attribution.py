"""Attribution: which turn or person made a change. A pure function of a project's history and checkpoints.

What differs between the two states of a turn is its work; of a turn whose tool calls were closed one by one,
what differs between the two states of each call. All else is the person's. Where two sessions worked at the
same time, the states of both cut the time into pieces: what happened while only one of them was at work is
that one's, the rest is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import NamedTuple

from shadowsnap.errors import NoSuchTurn
from shadowsnap.model import Checkpoint
from shadowsnap.store.checkpoints import paths_in_fact
from shadowsnap.store.history import STILL_AT_WORK_SECONDS, History, Snapshot, Turn

_STILL_AT_WORK = timedelta(seconds=STILL_AT_WORK_SECONDS)


@dataclass(frozen=True)
class Work:
    """A piece of work: the states before and after it (None: it is not over, so now)."""

    before: Checkpoint
    after: Checkpoint | None
    until: Checkpoint | None = None
    """When it was over for certain; None: it may still go on."""
    session_id: str | None = None
    shared: tuple[str, ...] = ()
    """Who else was at work meanwhile."""
    late: Mapping[bytes, Checkpoint] = field(default_factory=dict)
    """Ignored files that were named meanwhile: they were there before, as these checkpoints hold them."""
    added: Mapping[bytes, Checkpoint] = field(default_factory=dict)
    """Files that the state at the end could not know of: later checkpoints hold them. They did not
    change in between."""
    released: frozenset[bytes] = frozenset()
    """Files that were left out from some moment on because the rules changed meanwhile: they stayed there."""


class Addition(NamedTuple):
    """Files that were added to the state before a turn later: they were there, unchanged, in between."""

    since: str
    until: str
    """The ref of the state, and that of the one that holds them."""
    holder: Checkpoint
    files: frozenset[bytes]


def additions(checkpoints: Sequence[Checkpoint]) -> list[Addition]:
    """What was added to states later on; the checkpoints are given newest first."""
    known = {each.id: each for each in checkpoints}
    since: dict[str, str] = {}
    found = []
    for each in reversed(checkpoints):
        origin = known.get(each.metadata.get("amends", ""))
        if origin is not None:  # which may have been added to itself
            since[each.id] = since.get(origin.id, origin.ref)
            found.append(Addition(since[each.id], each.ref, each, frozenset(paths_in_fact(each, "added"))))
    return found


def work_of_turn(history: History, checkpoints: Sequence[Checkpoint], number: int) -> list[Work]:
    """The work of one turn, newest first; `checkpoints` are all of the project, newest first."""
    pieces = _Pieces(history, checkpoints)
    return pieces.cut(pieces.of_turn(number))


def work_of_session(history: History, checkpoints: Sequence[Checkpoint], session_id: str) -> list[Work]:
    """The work of every turn and stage of a session, newest first."""
    pieces = _Pieces(history, checkpoints)
    stages = [stage for stage in history.snapshots if stage.session_id == session_id]
    found = [work for stage in stages for work in pieces.of_stage(stage)]
    for turn in history.turns.values():
        if turn.session_id == session_id:
            found += pieces.of_turn(turn.number)
    return pieces.cut(_united(found)[::-1])


def _united(works: Iterable[Work]) -> list[Work]:
    """Work of one session, oldest first. What happened at the same time, as a stage within a turn, is one
    piece: it is not to be undone twice."""
    found: list[Work] = []
    for work in sorted(works, key=_begin):
        if not found or _begin(work) >= _end(found[-1].after):
            found.append(work)
        elif _end(work.after) > _end(found[-1].after):
            found[-1] = replace(found[-1], after=work.after, until=work.until)
    return found


class _Pieces:
    """All work that is known, to cut one piece of it by the others."""

    def __init__(self, history: History, checkpoints: Sequence[Checkpoint]) -> None:
        self._history = history
        self._whole = [each for each in checkpoints if each.scope == "tree" and "amends" not in each.metadata]
        self._by_id = {each.id: each for each in checkpoints}
        self._additions = additions(checkpoints)
        for each in reversed(checkpoints):  # oldest first: what amends a state stands for the same moment
            origin = self._by_id.get(each.metadata.get("amends", ""))
            if origin is not None:
                self._by_id[each.id] = replace(each, ref=origin.ref, created_at=origin.created_at)
        stages = [work for stage in history.snapshots for work in self.of_stage(stage)]
        self._all = [work for turn in history.turns.values() for work in self._of(turn)] + stages

    def of_turn(self, number: int) -> list[Work]:
        turn = self._history.turns.get(number)
        if turn is None:
            raise self._history.unknown_number(number)
        before = self._state(turn.before)
        ends = [state for call in turn.calls for state in call] or ([turn.after] if turn.after else [])
        if before is None or None in map(self._state, ends):  # deleted: what it did is not known
            what = f"the state {'before' if before is None else 'after'} turn {number}"
            raise NoSuchTurn(workdir=self._history.project.workdir, what=what)
        return self._of(turn) or [Work(before, before, before, turn.session_id)]

    def of_stage(self, stage: Snapshot) -> list[Work]:
        before, after = self._state(stage.before), self._state(stage.checkpoint)
        return [] if before is None or after is None else [_closed(before, after, stage.session_id)]

    def cut(self, works: Iterable[Work]) -> list[Work]:
        """The same work, cut where another session began or ended, newest first."""
        return [piece for work in works for piece in self._pieces(work)]

    def _of(self, turn: Turn) -> list[Work]:
        """The work of a turn, newest first; none if it changed nothing or its states are gone."""
        if turn.calls or turn.open_call is not None:
            states = [(self._state(before), self._state(after)) for before, after in reversed(turn.calls)]
            works = [_closed(old, new, turn.session_id) for old, new in states if old and new]
            began = self._state(turn.open_call)
            return [*([self._unclosed(began, turn)] if began is not None else []), *works]
        before, after = self._state(turn.before), self._state(turn.after)
        if before is not None and before.scope != "tree":  # at first, only named files could be captured
            later = [self._state(checkpoint) for checkpoint in turn.more]
            before = next((each for each in later if each is not None and each.scope == "tree"), None)
        if before is None or before == after or (after is not None and after.scope != "tree"):
            return []
        if turn.status == "running":
            return [self._unclosed(before, turn)]
        return [] if after is None else [_closed(before, after, turn.session_id)]

    def _unclosed(self, before: Checkpoint, turn: Turn) -> Work:
        """It was never closed: what came next is the nearest thing to its end, though it may not be over."""
        later = [each for each in reversed(self._whole) if each.ref > before.ref and each.turn != turn.number]
        return Work(before, later[0] if later else None, None, turn.session_id)

    def _state(self, checkpoint: str | None) -> Checkpoint | None:
        return None if checkpoint is None else self._by_id.get(checkpoint)

    def _pieces(self, work: Work) -> list[Work]:
        others = [each for each in self._all if _is_other(each, work) and _overlap(each, work)]
        ends = [end for each in others for end in (each.before, each.until) if end is not None]
        cuts = {end.ref: end for end in ends if end.scope == "tree" and _begin(work) < end.ref < _end(work.after)}
        states: list[Checkpoint | None] = [work.before, *(cuts[ref] for ref in sorted(cuts)), work.after]
        pieces = []
        for before, after in zip(states, states[1:], strict=False):
            assert before is not None
            piece = replace(work, before=before, after=after, until=after)
            shared = {each.session_id or "?" for each in others if _overlap(each, piece)}
            meanwhile = [each for each in self._whole if _begin(piece) < each.ref <= _end(piece.after)]
            # The oldest one counts.
            late = {path: each for each in meanwhile for path in paths_in_fact(each, "late")}
            released = frozenset(path for each in meanwhile for path in paths_in_fact(each, "released"))
            end = _end(piece.after)
            unknown = [each for each in self._additions if each.since <= end < each.until]
            added = {path: each.holder for each in unknown for path in each.files}
            pieces.append(replace(piece, shared=tuple(sorted(shared)), late=late, added=added, released=released))
        return pieces[::-1]


def _closed(before: Checkpoint, after: Checkpoint, session_id: str | None) -> Work:
    return Work(before, after, after, session_id)


def _is_other(other: Work, work: Work) -> bool:
    """Work without a session may belong to any session, also to the same one."""
    return other.session_id is not None and other.session_id != work.session_id


def _overlap(other: Work, work: Work) -> bool:
    """Whether anything was written between the two states of a piece of work."""
    if _begin(other) >= _end(work.after) or _begin(work) >= _end(other.until):
        return False
    return other.until is not None or other.before.created_at > work.before.created_at - _STILL_AT_WORK


def _begin(work: Work) -> str:
    return work.before.ref


def _end(checkpoint: Checkpoint | None) -> str:
    """The ref at an end, or one that is later than all."""
    return "~" if checkpoint is None else checkpoint.ref
