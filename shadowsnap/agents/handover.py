"""Handing a conversation of another machine over to its agent here, so that the agent can go on with it.

It is written where the agent keeps its own conversations, under the same session id. It came from a remote, where
it may have been forged. So only the messages of people, the agent and its tools are copied. Instructions,
permissions and settings of the other machine are left out, and every directory is replaced by the one here.
Nothing that exists is overwritten.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shadowsnap.agents.catalog import AGENTS
from shadowsnap.hook.payload import transcripts_folders
from shadowsnap.model import Conversation, Record

_SESSION = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LONGEST_NAME = 200
_FEWEST_ROWS = 2
"""A prompt and an answer, or the record of the session and a prompt."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Handover(Record):
    """The file of a conversation that was handed over, and the command that continues it. Both are None if that is
    not possible, for the reason `why`."""

    session_id: str
    agent: str | None
    path: str | None = None
    command: str | None = None
    why: str = ""


class _NotPossible(Exception):
    """Why a conversation cannot be handed over."""


@dataclass(frozen=True)
class _Session:
    id: str
    workdir: str
    at: datetime


@dataclass(frozen=True)
class _Format:
    """How one agent stores a conversation."""

    rows: Callable[[list[Row], _Session], Iterable[Row]]
    """Makes its rows from those of a transcript."""
    file: Callable[[_Session], str]
    """The path of the file below the directory of transcripts."""
    existing: str
    """A pattern of the files there that belong to the same session."""
    command: str


def hand_over(
    agent: str | None, conversation: Conversation, workdir: str, *, dry_run: bool = False
) -> Handover:
    """Give a conversation to its agent, or with `dry_run` find out whether that is possible."""
    session = str(conversation.session_id)
    try:
        path, command = _write_for_agent(agent, session, conversation, os.path.realpath(workdir), dry_run=dry_run)
    except _NotPossible as problem:
        return Handover(session, agent, why=str(problem))
    except OSError as problem:
        return Handover(session, agent, why=f"its file could not be written ({problem.strerror})")
    return Handover(session, agent, path, command)


def _write_for_agent(
    agent: str | None, session_id: str, conversation: Conversation, workdir: str, *, dry_run: bool
) -> tuple[str, str]:
    form = _FORMATS.get(agent or "")
    if form is None:
        title = AGENTS[agent].title if agent in AGENTS else "the agent that it was with"
        raise _NotPossible(f"{title} cannot be given a conversation from elsewhere")
    if not _SESSION.fullmatch(session_id):
        raise _NotPossible("its session has an id that the agent would not have given")
    session = _Session(session_id, workdir, conversation.at)
    rows = conversation.data if isinstance(conversation.data, list) else []
    kept = list(form.rows([row for row in rows if isinstance(row, dict)], session))
    if len(kept) < _FEWEST_ROWS:
        raise _NotPossible(f"it does not look like a conversation with {AGENTS[str(agent)].title}")
    folder = transcripts_folders(str(agent))[0]
    name = form.file(session)
    if max(map(len, name.split("/"))) > _LONGEST_NAME:
        raise _NotPossible("the path of this directory is too long for the agent's own name for it")
    there = glob.glob(form.existing.format(session=session.id), root_dir=folder, recursive=True)
    if there:
        existing = os.path.join(folder, there[0])
        raise _NotPossible(f"the agent has one of that session here, which stays as it is: {existing}")
    path = os.path.join(folder, name)
    if not dry_run:
        _write_new(Path(path), kept)
    return path, form.command.format(session=shlex.quote(session.id))


def _write_new(path: Path, rows: Iterable[Row]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
    except OSError:
        path.unlink(missing_ok=True)  # half a conversation would look like a whole one
        raise


# --- the agents --------------------------------------------------------------------------------------


def _dashed(path: str) -> str:
    """The name that Claude Code and Qwen Code give to a directory."""
    return re.sub(r"[^A-Za-z0-9]", "-", path)


def _claude(rows: list[Row], session: _Session) -> Iterator[Row]:
    for row in _relinked(rows, "uuid", "parentUuid", _is_claude_message):
        kept = {name: value for name, value in row.items() if name != "permissionMode"}
        yield {**kept, "sessionId": session.id, "cwd": session.workdir}


def _qwen(rows: list[Row], session: _Session) -> Iterator[Row]:
    for row in _relinked(rows, "uuid", "parentUuid", _is_qwen_message):
        yield {**row, "sessionId": session.id, "cwd": session.workdir}


def _is_qwen_message(row: Row) -> bool:
    return row.get("type") in ("user", "assistant", "tool_result") and _role_in(row) in ("user", "model")


def _role_in(row: Row) -> Any:
    message = row.get("message")
    return message.get("role") if isinstance(message, dict) else None


def _is_claude_message(row: Row) -> bool:
    """Whether a row is part of the conversation. Others hold instructions, tools, and what hooks did."""
    inner = row.get("attachment")
    if row.get("type") == "attachment":
        return isinstance(inner, dict) and inner.get("type") in ("file", "directory", "queued_command")
    if row.get("type") == "system":
        return row.get("subtype") == "compact_boundary"
    return row.get("type") in ("user", "assistant") and _role_in(row) == row["type"]


def _relinked(rows: list[Row], name: str, above: str, is_kept: Callable[[Row], bool]) -> Iterator[Row]:
    """The rows to keep. Each names the row before it; links to a row that is left out are moved to the one before
    that."""
    past: dict[Any, Any] = {}
    for row in rows:
        parent = row.get(above)
        parent = past.get(parent, parent) if isinstance(parent, str) else None
        if not isinstance(row.get(name), str):
            continue
        if is_kept(row):
            yield {**row, above: parent}
        else:
            past[row[name]] = parent


def _codex(rows: list[Row], session: _Session) -> Iterator[Row]:
    meta = next((row for row in rows if row.get("type") == "session_meta"), None)
    if meta is None or not isinstance(meta.get("payload"), dict):
        return
    names = ("timestamp", "originator", "cli_version", "source")
    about = {name: meta["payload"][name] for name in names if isinstance(meta["payload"].get(name), str)}
    yield {**meta, "payload": {**about, "id": session.id, "session_id": session.id, "cwd": session.workdir}}
    for row in rows:
        payload = row.get("payload")
        if not isinstance(payload, dict) or payload.get("role") in ("developer", "system"):
            continue
        if row.get("type") in ("response_item", "compacted") or payload.get("type") in _CODEX_EVENTS:
            yield row


_CODEX_EVENTS = (
    "user_message", "agent_message", "item_completed", "task_started", "task_complete", "turn_aborted",
)  # fmt: skip


def _copilot(rows: list[Row], session: _Session) -> Iterator[Row]:
    for row in _relinked(rows, "id", "parentId", lambda row: row.get("type") in _COPILOT_EVENTS):
        data = row.get("data")
        if row["type"] != "session.start":
            yield row
        elif isinstance(data, dict):
            names = ("version", "producer", "copilotVersion", "startTime", "alreadyInUse")
            about = {name: data[name] for name in names if name in data}
            yield {**row, "data": {**about, "sessionId": session.id, "context": {"cwd": session.workdir}}}


_COPILOT_EVENTS = (
    "session.start", "user.message", "assistant.turn_start", "assistant.message", "assistant.turn_end",
    "tool.execution_start", "tool.execution_complete",
)  # fmt: skip


def _codex_file(session: _Session) -> str:
    at = session.at.astimezone(UTC)
    return f"{at:%Y/%m/%d}/rollout-{at:%Y-%m-%dT%H-%M-%S}-{session.id}.jsonl"


_FORMATS = {
    "claude": _Format(
        _claude, lambda session: f"{_dashed(session.workdir)}/{session.id}.jsonl", "*/{session}.jsonl",
        "claude --resume {session}",
    ),
    "codex": _Format(_codex, _codex_file, "**/*{session}.*", "codex resume {session}"),
    "qwen": _Format(
        _qwen, lambda session: f"{_dashed(session.workdir)}/chats/{session.id}.jsonl", "*/chats/{session}.jsonl",
        "qwen --resume {session}",
    ),
    "copilot": _Format(
        _copilot, lambda session: f"{session.id}/events.jsonl", "{session}", "copilot --resume={session}",
    ),
}  # fmt: skip
