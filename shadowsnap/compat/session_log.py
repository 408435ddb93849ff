"""Sessions for and from other tools: one record for each turn, and attaching the conversations of a foreign log to
the checkpoints that they belong to."""

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
    """What is known of one turn. Texts are empty if they are not known."""

    began: datetime
    ended: datetime | None
    prompt: str
    transcript: bytes | None
    """The conversation up to its end, a message or row in each line."""
    model: str
    """The model that the last message names."""
    files: tuple[str, ...]
    """The files that it changed."""
    branch: str
    commit: str
    """The commit of the person's repository when the turn began."""


def turn_records(manager: CheckpointManager, session: Session) -> Iterator[TurnRecord]:
    """The turns of a session, oldest first."""
    for turn in session.turns:
        transcript = _transcript(manager, session, turn)
        facts = _metadata(manager, turn)
        yield TurnRecord(
            began=turn.began,
            ended=turn.ended,
            prompt=turn.prompt or "",
            transcript=transcript,
            model=_model_in(transcript or b""),
            files=tuple(sorted({path for place in turn.places for path in _changed_files(manager, place)})),
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
            return _as_lines(found.conversation.data)
    return None


def _as_lines(data: Any) -> bytes:
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    messages = data if isinstance(data, list) else [data]
    return b"".join(json.dumps(message, ensure_ascii=True).encode() + b"\n" for message in messages)


def split_at_lines(transcript: bytes, most: int) -> list[bytes]:
    """Split at line ends into parts of at most `most` bytes; joined by line ends they are the transcript again. A
    line that is longer begins the last part."""
    parts, start = [], 0
    while len(transcript) - start > most:
        cut = transcript.rfind(b"\n", start, start + most)
        if cut <= start:
            break
        parts.append(transcript[start:cut])
        start = cut + 1
    return [*parts, transcript[start:]]


def _model_in(transcript: bytes) -> str:
    """The model that the last message names; empty if none does."""
    for line in reversed(transcript.splitlines()):
        try:
            message = json.loads(line) if b'"model"' in line else None
        except ValueError:
            continue
        for part in (message, message.get("message")) if isinstance(message, dict) else ():
            if isinstance(part, dict) and isinstance(part.get("model"), str):
                return str(part["model"])
    return ""


def _changed_files(manager: CheckpointManager, place: TurnPlace) -> list[str]:
    if not place.before or not place.after:
        return []
    try:
        changes = manager.diff(place.workdir, place.before, place.after).changes
    except _GONE:
        return []
    return [change.path for change in changes if not change.path.endswith("/")]


def _metadata(manager: CheckpointManager, turn: SessionTurn) -> dict[str, Any]:
    for place in turn.places:
        try:
            return manager.get(place.workdir, place.before or place.after or "").metadata
        except _GONE:
            continue
    return {}


# --- foreign logs ------------------------------------------------------------------------------------

_LOG_DELAY = timedelta(minutes=1)
"""A log may be written some time after what it is about."""


@dataclass(frozen=True)
class ForeignConversation:
    """A conversation in the log of another tool."""

    key: str
    """The same each time, so that the conversation is kept once."""
    session_id: str
    """The agent's id of the session, which may have a prefix and a dash before it."""
    read: Callable[[], bytes | None] = field(repr=False, compare=False)
    """Its transcript; None if it has none."""
    at: datetime | None = None
    commits: tuple[tuple[str, ...], ...] = ()
    """The commits that it is about, each with its parents."""
    prompt: str | None = None
    agent: str | None = None


@dataclass(frozen=True)
class Match:
    """The checkpoint that a conversation is attached to now, or why it is not attached."""

    conversation: ForeignConversation
    checkpoint_id: str | None = None
    why: str = ""


@dataclass(frozen=True)
class AttachReport:
    """What `attach_conversations` did with a foreign log."""

    items: tuple[Match, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def attached(self) -> tuple[Match, ...]:
        return tuple(item for item in self.items if item.checkpoint_id is not None)


def attach_conversations(
    manager: CheckpointManager, working_dir: str | Path, conversations: Iterable[ForeignConversation]
) -> list[Match]:
    """Attach each conversation to the checkpoint that it belongs to: the last one of the same session that is not
    later, or else the one before a commit that it is about. A conversation that the session itself handed over
    stays. Doing it again changes nothing."""
    try:
        ours = manager.list_checkpoints(working_dir)
    except NoSuchProject:
        ours = []
    matches = []
    for each in conversations:
        of_commits = (_checkpoint_of_commit(ours, commit) for commit in each.commits)
        target = _checkpoint_of_session(ours, each) or next(filter(None, of_commits), None)
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
    session = target.session_id if _is_same_session(target, each) else each.session_id or target.session_id
    kept = manager.attach(
        working_dir, target.id, transcript, session, prompt=each.prompt, agent=each.agent, began=each.at,
        key=each.key, replace_own=False,
    )  # fmt: skip
    if kept is None:
        return Match(each, why="what the session itself handed over is kept there")
    return Match(each, target.id)


def _checkpoint_of_session(ours: list[Checkpoint], each: ForeignConversation) -> Checkpoint | None:
    """The last checkpoint of the session, newest first, that is not later."""
    moment = each.at.astimezone() + _LOG_DELAY if each.at is not None else None  # a naive time is a local one
    same = (checkpoint for checkpoint in ours if _is_same_session(checkpoint, each))
    return next((checkpoint for checkpoint in same if moment is None or checkpoint.created_at <= moment), None)


def _is_same_session(checkpoint: Checkpoint, each: ForeignConversation) -> bool:
    own = checkpoint.session_id
    return bool(own) and (each.session_id == own or each.session_id.endswith(f"-{own}"))


def _checkpoint_of_commit(ours: list[Checkpoint], commits: tuple[str, ...]) -> Checkpoint | None:
    """The newest checkpoint that was taken on the parent of a commit, or else the first one after it."""
    for commit in commits[1:]:
        for each in ours:
            if each.metadata.get("git_head") == commit:
                return each
    after = [each for each in ours if commits and each.metadata.get("git_head") == commits[0]]
    return after[-1] if after else None
