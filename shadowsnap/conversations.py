"""Keeping conversations with the checkpoints of turns, and finding them again. The manager imports this where a
turn ends or a person asks: a hook before a tool has no use for it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject
from shadowsnap.git.refs import ref_exists
from shadowsnap.model import Checkpoint, Conversation
from shadowsnap.settings import Settings
from shadowsnap.store.checkpoints import attachment_of, ref_of
from shadowsnap.store.conversations import (
    ConversationContent,
    before_prompt,
    from_file,
    from_json,
    from_transcript,
    keep_conversation,
    read_conversation,
)
from shadowsnap.store.databases import from_database, is_database
from shadowsnap.store.history import History, ensure_log, note, read_history
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import Project, locked_project
from shadowsnap.store.redaction import redacted_beginning, redacted_text
from shadowsnap.turns import OpenTurn, Transcript, TurnInProject, conversation_now

_PROMPT_LENGTH = 2000
_DOING = "keeping a conversation"


def redacted_prompt(prompt: Any, settings: Settings) -> str:
    """What a person asked for, without secrets and not too long: checkpoints and the log keep it."""
    return redacted_beginning(str(prompt), _PROMPT_LENGTH, settings.redact)


def keep_at_beginning(turn: OpenTurn, part: TurnInProject, settings: Settings) -> None:
    """Keep the conversation before a turn with the state before it."""
    if part.before is not None:
        _keep(turn, turn.conversation, [(part, part.before)], settings, up_to=turn.prompt)


def keep_at_end(turn: OpenTurn, conversation: Any, settings: Settings) -> None:
    """Keep what was not kept yet, and the conversation at the end with the state after the turn."""
    parts = [part for part in turn.projects.values() if part.project is not None]
    late = [(part, part.before) for part in parts if not part.conversation_kept and part.before]
    _keep(turn, turn.conversation or turn.not_kept or None, late, settings, up_to=turn.prompt)
    ends = [
        (part, part.after.checkpoint.id)
        for part in parts
        if part.after is not None and part.after.checkpoint is not None and part.after.status == "taken"
    ]
    _keep(turn, conversation_now(conversation, settings), ends, settings)


def _keep(
    turn: OpenTurn,
    content: Any,
    places: list[tuple[TurnInProject, str]],
    settings: Settings,
    up_to: str | None = None,
) -> None:
    """Keep a conversation with checkpoints, and write the log lines. A transcript is kept up to a prompt."""
    if content is None or not places or not settings.keep_conversations:
        return
    store, deadline = Store(settings.resolved_base(), settings.fsync), Deadline(settings.deadline)
    if not store.git_dir.is_dir():
        return
    if isinstance(content, Transcript):
        answered = content.answered
        content = _read(content, settings.max_conversation_bytes)
        if up_to and not isinstance(content, str):
            content = before_prompt(
                content, lambda text: redacted_prompt(text.strip(), settings) == up_to.strip(), answered=answered
            )
    session = str(turn.session_id) if turn.session_id else None
    for part, checkpoint in places:
        project = part.project
        ref = ref_of(store, project, checkpoint) if project is not None else None
        if project is None or ref is None:
            continue
        facts: dict[str, Any] = {"turn": part.number}
        if isinstance(content, str):
            facts["why"] = turn.not_kept = content
        else:
            like = _last_conversation(read_history(store, project, deadline), session)
            place = [(project, ref)]
            refs = keep_conversation(store, content, session, place, deadline, own=settings.redact, like=like)
            facts |= {"refs": refs, "messages": content.spoken}
            part.conversation_kept = True
        with locked_project(store, project, _DOING, deadline):
            note(store, project, "conversation", **facts)


def _read(content: Transcript, most_bytes: int | None) -> ConversationContent | str:
    if is_database(content.path):
        return from_database(content.path, content.session or "", content.size, most_bytes)
    return from_file(content.path, most_bytes, content.size, content.folder)


def conversation_at(
    store: Store, target: Checkpoint, history: History, sessions: list[str], asked: str | None, deadline: Deadline
) -> tuple[Conversation | None, str]:
    """What is kept with a checkpoint, of the first of these sessions that has something there, or of `asked`
    alone; if nothing, then why."""
    try:
        found = read_conversation(store, target.ref, [asked] if asked else sessions, deadline)
    except DamagedObject as problem:
        return None, f", as what is left of it cannot be read: {problem}"
    if found is not None and asked is not None and found.session_id != asked:
        return None, f" for session {asked}"
    if found is not None:
        return found, ""
    had_one = any(attachment_of(target.ref) in turn.conversations for turn in history.turns.values())
    return None, " any more" if had_one else ""


def attach_conversation(
    store: Store,
    project: Project,
    checkpoint: Checkpoint,
    conversation: Any,
    session_id: str | None,
    deadline: Deadline,
    *,
    patterns: tuple[str, ...],
    replace_own: bool,
    prompt: str | None,
    began: datetime | None,
    **facts: Any,
) -> Conversation | None:
    """Keep a conversation that came from elsewhere; None if the session itself had handed one over."""
    kept, history = attachment_of(checkpoint.ref), read_history(store, project, deadline)
    mine = [turn for turn in history.turns.values() if turn.session_id == session_id]
    own = any(kept in turn.conversations for turn in mine)
    if own and not replace_own and ref_exists(store.git_dir, kept):
        return None
    content = from_transcript(conversation) if isinstance(conversation, bytes) else from_json(conversation)
    like, place = _last_conversation(history, session_id), [(project, checkpoint.ref)]
    refs = keep_conversation(store, content, session_id, place, deadline, own=patterns, like=like)
    if not refs:
        return None
    if session_id:
        facts |= {"checkpoint": checkpoint.id, "session": session_id, "refs": refs, "messages": content.spoken}
        facts |= {"prompt": redacted_text(prompt, patterns) if prompt else None, "turn": checkpoint.turn}
        facts["began"] = (began or checkpoint.created_at).timestamp()
        facts["key"] = facts.get("key") or f"attached-{checkpoint.id[:12]}"
        with locked_project(store, project, _DOING, deadline):
            ensure_log(store, project, deadline)
            known = read_history(store, project, deadline).attached
            if not any(line.get("key") == facts["key"] for line in known):
                note(store, project, "attach", **facts)
    return read_conversation(store, checkpoint.ref, [session_id], deadline)


def _last_conversation(history: History, session_id: str | None) -> str | None:
    """The ref of the last conversation of a session: the next one most likely begins like it."""
    refs = [ref for turn in history.turns.values() if turn.session_id == session_id for ref in turn.conversations]
    return refs[-1] if session_id and refs else None
