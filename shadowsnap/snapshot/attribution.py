"""Whose work is it? A pure function of the checkpoints of a project.

What differs between the two checkpoints of a turn is its work; of a turn whose tool calls were closed
one by one, what differs between the two of each call. All else is the person's. Where two sessions
worked at the same time, the checkpoints of both cut the time into pieces: what happened while only
one of them was at work is that one's, the rest is shared.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from shadowsnap.errors import NoSuchTurn
from shadowsnap.model import Checkpoint
from shadowsnap.records import dataclass, field, replace
from shadowsnap.snapshot.take import STILL_AT_WORK_SECONDS

_STILL_AT_WORK = timedelta(seconds=STILL_AT_WORK_SECONDS)

Begun = Sequence[tuple[str, str, float]]
"""Sessions that began to work on what a checkpoint held already: who, its id, and when."""


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
    """Ignored files that somebody named meanwhile: they were there before, as these checkpoints hold them."""
    released: frozenset[bytes] = frozenset()
    """Files that were left out from some moment on because the rules changed meanwhile: they stayed there."""


def work_of_turn(
    checkpoints: Sequence[Checkpoint], turn: int, quiet: Container[int | str] = (), begun: Begun = ()
) -> list[Work]:
    """The work of one turn, newest first; `checkpoints` are all of the project, newest first, and
    `quiet` the turns, and the checkpoints before tool calls, that changed nothing."""
    timeline = _Timeline(checkpoints, quiet, begun)
    return timeline.in_pieces(timeline.of_turn(turn))


def work_of_session(
    checkpoints: Sequence[Checkpoint], session_id: str, quiet: Container[int | str] = (), begun: Begun = ()
) -> list[Work]:
    """The work of every turn and stage of a session, newest first."""
    timeline = _Timeline(checkpoints, quiet, begun)
    mine = [each for each in timeline.whole if each.session_id == session_id]
    found = [work for each in mine for work in timeline.of_stage(each)]
    found += [work for work in timeline.left_open if work.session_id == session_id]
    for turn in {each.turn for each in mine if each.turn is not None}:
        found += timeline.of_turn(turn)
    return timeline.in_pieces(_united(found)[::-1])


def others_at_work(checkpoints: Sequence[Checkpoint], closing: Checkpoint, begun: Begun = ()) -> list[str]:
    """The sessions that were at work between a closing checkpoint and the one before its work, as far as
    can be told when it is taken. `checkpoints` are the latest, newest first, without it."""
    timeline = _Timeline([closing, *checkpoints], (), begun)
    before = timeline.before(closing) or next(reversed(checkpoints), None)
    pieces = timeline.in_pieces([_closed(before, closing)] if before is not None else [])
    return sorted({name for piece in pieces for name in piece.shared})


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


class _Timeline:
    def __init__(self, checkpoints: Sequence[Checkpoint], quiet: Container[int | str], begun: Begun) -> None:
        self.whole = [each for each in checkpoints if each.scope == "tree"]
        self._by_id = {each.id: each for each in checkpoints}
        self._quiet = quiet
        self._turns: dict[int, list[Checkpoint]] = {}
        for each in self.whole:
            if each.turn is not None:
                self._turns.setdefault(each.turn, []).append(each)
        self.by_turn = {turn: self._found(turn) for turn in self._turns}
        stages = [work for each in self.whole for work in self.of_stage(each)]
        self.left_open = [work for each in begun for work in self._of_begun(*each)]
        self._all = [work for works in self.by_turn.values() for work in works] + stages + self.left_open

    def of_turn(self, turn: int) -> list[Work]:
        mine = self._turns.get(turn, [])
        works = self.by_turn.get(turn, [])
        if mine and not works and turn not in self._quiet and not _calls(mine):
            raise NoSuchTurn(workdir=mine[0].workdir, what=f"the state before turn {turn}")
        return works or [Work(each, each, each, each.session_id) for each in mine[-1:]]

    def of_stage(self, stage: Checkpoint) -> list[Work]:
        before = self.before(stage) if stage.kind == "stage" else None
        return [] if before is None else [_closed(before, stage)]

    def in_pieces(self, works: Iterable[Work]) -> list[Work]:
        """The same work, cut where somebody else began or ended, newest first."""
        return [piece for work in works for piece in self._pieces(work)]

    def _found(self, turn: int) -> list[Work]:
        mine = self._turns[turn]  # newest first
        if _calls(mine):
            return self._of_calls(mine)
        closing = next((each for each in mine if each.kind == "turn-end"), None)
        openings = [each for each in mine if each.kind == "turn"]
        if closing is None and turn in self._quiet:
            return []
        first = (self.before(closing) if closing is not None else None) or next(reversed(openings), None)
        if first is None:
            return []
        return [_closed(first, closing) if closing is not None else self._unclosed(first, openings[0])]

    def _of_calls(self, mine: Sequence[Checkpoint]) -> list[Work]:
        """Each call, or several that ran at the same time, from the checkpoint before to the one after."""
        closings = [each for each in mine if each.kind == "turn-end"]
        works = [_closed(before, each) for each in closings if (before := self.before(each)) is not None]
        last = next((each for each in mine if each.kind == "turn"), None)
        if last is not None and not any(each.ref > last.ref for each in closings):
            began = self._by_id.get(last.metadata.get("within", ""), last)
            if began.id not in self._quiet:
                works.insert(0, self._unclosed(began, last))
        return works

    def _unclosed(self, before: Checkpoint, opening: Checkpoint) -> Work:
        """It was never closed. It ended at the latest where the same session went on; else what came next
        is the nearest thing to its end, though it may not have been over."""
        later = [each for each in reversed(self.whole) if each.ref > opening.ref and each.turn != opening.turn]
        next_of_mine = [each for each in later if _is_work(each) and each.session_id == opening.session_id]
        if next_of_mine:
            return Work(before, next_of_mine[0], next_of_mine[0], opening.session_id)
        return Work(before, later[0] if later else None, None, opening.session_id)

    def _of_begun(self, session_id: str, checkpoint: str, moment: float) -> list[Work]:
        """What nobody closed, of a session that began on a checkpoint that was there already."""
        held = self._by_id.get(checkpoint)
        closings = [each for each in self.whole if each.kind == "turn-end" and each.session_id == session_id]
        if held is None or any(each.metadata.get("before") == checkpoint for each in closings):
            return []
        then = replace(held, created_at=datetime.fromtimestamp(moment, UTC))
        return [self._unclosed(then, replace(held, session_id=session_id, turn=-1))]

    def before(self, closing: Checkpoint) -> Checkpoint | None:
        return self._by_id.get(closing.metadata.get("before", ""))

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
            meanwhile = [each for each in self.whole if _begin(piece) < each.ref <= _end(piece.after)]
            late = {path: each for each in meanwhile for path in _listed(each, "late")}  # the oldest one counts
            released = frozenset(path for each in meanwhile for path in _listed(each, "released"))
            pieces.append(replace(piece, shared=tuple(sorted(shared)), late=late, released=released))
        return pieces[::-1]


def _closed(before: Checkpoint, closing: Checkpoint) -> Work:
    return Work(before, closing, closing, closing.session_id)


def _is_other(other: Work, work: Work) -> bool:
    """Work without a session may be anybody's, also of the same one."""
    return other.session_id is not None and other.session_id != work.session_id


def _overlap(other: Work, work: Work) -> bool:
    """Whether somebody was at work between the two states of a piece of work."""
    if _begin(other) >= _end(work.after) or _begin(work) >= _end(other.until):
        return False
    return other.until is not None or other.before.created_at > work.before.created_at - _STILL_AT_WORK


def _begin(work: Work) -> str:
    return work.before.ref


def _end(checkpoint: Checkpoint | None) -> str:
    """The ref at an end, or one that is later than all."""
    return "~" if checkpoint is None else checkpoint.ref


def _is_work(checkpoint: Checkpoint) -> bool:
    return checkpoint.kind in ("turn", "turn-end", "stage")


def _calls(mine: Iterable[Checkpoint]) -> bool:
    return any("call" in each.metadata for each in mine)


def _listed(checkpoint: Checkpoint, fact: str) -> list[bytes]:
    paths = checkpoint.metadata.get(fact, ())
    return [os.fsencode(path) for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
