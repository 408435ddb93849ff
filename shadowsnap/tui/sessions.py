"""Sessions, their conversations, and projects as rows to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from shadowsnap.cli.commands.sessions import last_conversation, session_lines, session_rows
from shadowsnap.cli.states import tilde
from shadowsnap.cli.text import safe
from shadowsnap.cli.ui import Ink
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Session
from shadowsnap.tui.dialogs import Row

_MOST_LINES = 20_000
_MOST_OF_TOOL = 200


def session_choices(manager: CheckpointManager, workdir: Path, width: int) -> list[Row]:
    """A row for each session of a project, with its prompts."""
    room = max(40, width - 16)
    found = manager.sessions(working_dir=workdir)
    lines = zip(session_rows(found, found, room), found, strict=True)
    return [Row(Text(line), session, partial(_about, session, room)) for line, session in lines]


def _about(session: Session, width: int) -> list[Text]:
    return [Text(safe(line)) for line in session_lines(session, width, Ink(False))]


def project_rows(manager: CheckpointManager) -> list[Row]:
    return [Row(Text(tilde(workdir)), workdir) for workdir in manager.projects()]


def conversation_of(manager: CheckpointManager, session: Session, width: int) -> tuple[str, Sequence[Text]]:
    """A heading, and the newest conversation that is kept of a session, to be read."""
    data = last_conversation(manager, session).data
    room, lines = max(30, min(100, width - 10)), list[Text]()
    for who, text in _messages(data):
        lines.append(Text(safe(who), "bold"))
        for line in text.splitlines():
            shown = safe(line, keep="\t").expandtabs(4)
            lines += [Text(f"  {shown[at : at + room]}") for at in range(0, len(shown) or 1, room)]
        if len(lines) > _MOST_LINES:
            break
    return f"Conversation of session {safe(session.id)}", lines[:_MOST_LINES]


def _messages(data: Any) -> Iterator[tuple[str, str]]:
    """Who said what, from messages or the rows of a transcript; rows in which nothing is said are left out."""
    if isinstance(data, dict):
        data = data.get("messages", [data])
    if not isinstance(data, list):
        yield "", str(data)
        return
    for row in data:
        inner = row.get("message") if isinstance(row, dict) else None
        message = inner if isinstance(inner, dict) else row
        if not isinstance(message, dict):
            yield "", str(message)
            continue
        who = str(message.get("role") or (row.get("type") if isinstance(row, dict) else "") or "")
        text = "\n".join(_said(message.get("content", message.get("text"))))
        if text.strip():
            yield who, text


def _said(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
        elif isinstance(part, dict) and str(part.get("type", "")).startswith("tool"):
            about = part.get("input", part.get("content", ""))
            yield f"({part.get('name') or 'tool'}) {about}"[:_MOST_OF_TOOL]
