"""Sessions as other tools keep them: what is known of each turn in one record, and the conversations of a foreign
log with the checkpoints that they belong to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shadowsnap.errors import NoConversation, NoSuchCheckpoint, NoSuchProject, ShadowsnapError
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint, Session, SessionTurn, TurnPlace

_GONE = (NoSuchCheckpoint, NoSuchProject)


@dataclass(frozen=True)
class TurnRecord:
    """One turn, as far as it is known. An absent text is empty."""

    began: datetime
    ended: datetime | None
    prompt: str
    transcript: bytes | None
    """The conversation up to its end, a message or row in each line."""
    model: str
    """The one that the last message names."""
    files: tuple[str, ...]
    """What it changed."""
    branch: str
    commit: str
    """Where the person's repository was when it began."""


def turn_records(manager: CheckpointManager, session: Session) -> Iterator[TurnRecord]:
    """The turns of a session, oldest first."""
    for turn in session.turns:
        transcript = _transcript(manager, session, turn)
        facts = _facts(manager, turn)
        yield TurnRecord(
            began=turn.began,
            ended=turn.ended,
            prompt=turn.prompt or "",
            transcript=transcript,
            model=_model(transcript or b""),
            files=tuple(sorted({path for place in turn.places for path in _changed(manager, place)})),
            branch=str(facts.get("git_branch") or ""),
            commit=str(facts.get("git_head") or ""),
        )


def _transcript(manager: CheckpointManager, session: Session, turn: SessionTurn) -> bytes | None:
    wanted: dict[str, Any] = {"dry_run": True, "files": False, "conversation": True, "session_id": session.id}
    for place in turn.places:
        for checkpoint in filter(None, (place.after, place.before)):
            try:
                found = manager.restore(place.workdir, checkpoint, **wanted)
            except (NoConversation, *_GONE):
                continue
            return _lines(found.conversation.data)
    return None


def _lines(data: Any) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    messages = data if isinstance(data, list) else [data]
    return b"".join(json.dumps(message, ensure_ascii=True).encode() + b"\n" for message in messages)


def cut_at_lines(transcript: bytes, most: int) -> list[bytes]:
    """Parts of at most so many bytes that end with a line, without the end of that line; joined by line ends they
    are the same. A line that is longer than a part begins the last one."""
    parts, start = [], 0
    while len(transcript) - start > most:
        cut = transcript.rfind(b"\n", start, start + most)
        if cut <= start:
            break
        parts.append(transcript[start:cut])
        start = cut + 1
    return [*parts, transcript[start:]]


def _model(transcript: bytes) -> str:
    """The model that the last message names, in it or around it; empty if none does."""
    for line in reversed(transcript.splitlines()):
        try:
            message = json.loads(line) if b'"model"' in line else None
        except ValueError:
            continue
        for part in (message, message.get("message")) if isinstance(message, dict) else ():
            if isinstance(part, dict) and isinstance(part.get("model"), str):
                return str(part["model"])
    return ""


def _changed(manager: CheckpointManager, place: TurnPlace) -> list[str]:
    if not place.before or not place.after:
        return []
    try:
        changes = manager.diff(place.workdir, place.before, place.after).changes
    except _GONE:
        return []
    return [change.path for change in changes if not change.path.endswith("/")]


def _facts(manager: CheckpointManager, turn: SessionTurn) -> dict[str, Any]:
    for place in turn.places:
        try:
            return manager.get(place.workdir, place.before or place.after or "").metadata
        except _GONE:
            continue
    return {}


# --- foreign logs ------------------------------------------------------------------------------------

_SLACK = timedelta(minutes=1)
"""A log may be written some time after what it is about."""


@dataclass(frozen=True)
class ForeignConversation:
    """A conversation in the log of another tool."""

    key: str
    """Names it: the same each time, so that it is kept once."""
    session_id: str
    """As the agent calls the session; something may stand before it, with a dash."""
    read: Callable[[], bytes | None] = field(repr=False, compare=False)
    """Its transcript; None if it has none."""
    at: datetime | None = None
    commits: tuple[tuple[str, ...], ...] = ()
    """The commits that it is about, each with its parents."""
    prompt: str | None = None
    agent: str | None = None


@dataclass(frozen=True)
class Match:
    """What became of a conversation: the id of the checkpoint that it is kept with now, or else why not."""

    conversation: ForeignConversation
    checkpoint_id: str | None = None
    why: str = ""


@dataclass(frozen=True)
class AttachReport:
    """What became of the conversations of a foreign log."""

    items: tuple[Match, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def attached(self) -> tuple[Match, ...]:
        return tuple(item for item in self.items if item.checkpoint_id is not None)


def attach_conversations(
    manager: CheckpointManager, working_dir: str | Path, conversations: Iterable[ForeignConversation]
) -> list[Match]:
    """Keep each conversation with the checkpoint that it belongs to, and note it in the record of its session.
    That is the last one of the same session that is not later; else the one before a commit that it is about. What
    the session itself handed over to us stays. Doing it again changes nothing."""
    try:
        ours = manager.list_checkpoints(working_dir)
    except NoSuchProject:
        ours = []
    matches = []
    for each in conversations:
        of_commits = (_of_commit(ours, commit) for commit in each.commits)
        target = _of_session(ours, each) or next(filter(None, of_commits), None)
        try:
            matches.append(_attach(manager, working_dir, each, target))
        except ShadowsnapError as problem:
            matches.append(Match(each, why=str(problem)))
    return matches


def _attach(
    manager: CheckpointManager, working_dir: str | Path, each: ForeignConversation, target: Checkpoint | None
) -> Match:
    if target is None:
        return Match(each, why="no checkpoint here is of the same session or commit")
    transcript = each.read()
    if transcript is None:
        return Match(each, why="it has no transcript")
    session = target.session_id if _is_of(target, each) else each.session_id or target.session_id
    kept = manager.attach(
        working_dir, target.id, transcript, session, prompt=each.prompt, agent=each.agent, began=each.at,
        key=each.key, replace_own=False,
    )  # fmt: skip
    if kept is None:
        return Match(each, why="what the session itself handed over is kept there")
    return Match(each, target.id)


def _of_session(ours: list[Checkpoint], each: ForeignConversation) -> Checkpoint | None:
    """The last checkpoint of the session, newest first, that is not later."""
    moment = each.at.astimezone() + _SLACK if each.at is not None else None  # a naive time is a local one
    same = (checkpoint for checkpoint in ours if _is_of(checkpoint, each))
    return next((checkpoint for checkpoint in same if moment is None or checkpoint.created_at <= moment), None)


def _is_of(checkpoint: Checkpoint, each: ForeignConversation) -> bool:
    own = checkpoint.session_id
    return bool(own) and (each.session_id == own or each.session_id.endswith(f"-{own}"))


def _of_commit(ours: list[Checkpoint], commits: tuple[str, ...]) -> Checkpoint | None:
    """The newest checkpoint that was taken on the parent of a commit, or else the first one after it."""
    for commit in commits[1:]:
        for each in ours:
            if each.metadata.get("git_head") == commit:
                return each
    after = [each for each in ours if commits and each.metadata.get("git_head") == commits[0]]
    return after[-1] if after else None
