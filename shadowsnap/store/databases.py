"""Conversations that agents keep in SQLite databases. They are only read, up to a bound of bytes and time."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from shadowsnap.store.conversations import ConversationContent, from_json

MOST_BYTES = 64 << 20
_SECONDS = 2.0
_STEPS = 10_000
"""How often SQLite asks whether to go on, in steps of its machine."""

# The role, the content and more of each message of a session up to a moment in milliseconds, oldest first.
_QUERIES = {
    "opencode.db": """
        SELECT m.id, json_extract(m.data, '$.role'), p.data
        FROM message AS m LEFT JOIN part AS p ON p.message_id = m.id
        WHERE m.session_id = ? AND m.time_created <= ? ORDER BY m.time_created, m.id, p.id""",
    "sessions.db": """
        SELECT id, role, content_json FROM messages
        WHERE session_id = ? AND created_timestamp * 1000 <= ? ORDER BY id""",
    "state.db": """
        SELECT id, role, json_array(json_object('type', iif(role = 'tool', 'tool', 'text'), 'text', content))
        FROM messages WHERE session_id = ? AND timestamp * 1000 <= ? AND content != '' ORDER BY id""",
}
"""By the name of the file: opencode, Goose and Hermes."""


def is_database(path: str) -> bool:
    """Whether a conversation is in a database of a known kind."""
    return os.path.basename(path) in _QUERIES


def from_database(
    path: str, session: str, moment: int | None, most_bytes: int | None
) -> ConversationContent | str:
    """The conversation of a session, up to a moment in milliseconds; a text says why there is none."""
    try:
        import sqlite3  # here: few turns need it, and some builds of Python lack it

        known = os.lstat(path)
    except (ImportError, OSError, ValueError):
        return "unreadable"
    if not stat.S_ISREG(known.st_mode):
        return "unreadable"
    if sys.platform != "win32" and known.st_uid != os.geteuid():
        return "of-another-user"
    end = time.monotonic() + _SECONDS
    try:
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_SECONDS)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            query = _QUERIES[os.path.basename(path)]
            rows = connection.execute(query, (session, (1 << 62) if moment is None else moment))
            messages = list(_messages(rows, min(most_bytes or MOST_BYTES, MOST_BYTES)))
        finally:
            connection.close()
    except sqlite3.Error:
        return "unreadable"
    except _TooLarge:
        return "too-large"
    return from_json(messages)


class _TooLarge(Exception):
    """There is more than may be kept."""


def _messages(rows: Iterable[tuple[Any, Any, Any]], most_bytes: int) -> Iterator[dict[str, Any]]:
    """Rows with a message or a part of one, as messages."""
    message: dict[str, Any] = {}
    size = 0
    for identity, role, text in rows:
        size += len(text or "")
        if size > most_bytes:
            raise _TooLarge
        if message.get("id") != str(identity):
            if message:
                yield message
            message = {"id": str(identity), "role": str(role), "content": []}
        message["content"] += _parts(text)
    if message:
        yield message


def _parts(text: str | None) -> list[Any]:
    """What was said or done in a part of a message: not the marks that an agent sets between them."""
    try:
        value = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return [text]
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if not (isinstance(part, dict) and part.get("type") in _MARKS)]


_MARKS = ("step-start", "step-finish", "snapshot", "patch")
