"""What real agents send, replayed with the writes that it describes: every turn is in the timeline with what was
asked, the state before it comes back exactly, and helpers, empty prompts and notifications are no turns.

The oracle reads the recordings by itself: which message begins a turn, when it ends, and what the files were
before its first tool that may write.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers import ROOT, Entry, manifest
from shadowsnap import CheckpointManager
from shadowsnap.hook.handle import run_hook

RECORDED = ROOT / "tests" / "data" / "recorded"
READERS = {
    "Read", "read_file", "read_files", "view", "read", "glob", "grep", "list", "ls", "search_files", "todowrite",
    "Agent", "task", "spawn_agent", "TodoWrite", "report_intent", "ReadFolder", "read_many_files", "rg",
}  # fmt: skip
NESTED = ("extra", "tool_call", "sessionContext", "info", "preToolUse")
OLD = ("old_string", "oldString", "old_str", "old_text", "before")
NEW = ("content", "new_string", "newString", "new_str", "new_text", "after", "file_text")
PROGRAMS = {"rm", "cat", "echo", "printf", "touch", "mkdir", "cp", "mv", "ls", "true", "false", "cd", "head"}
FILES = {
    "README.md": "# demo\n", "src/app.py": 'print("hello")\n', "src/util.py": "x = 1\n", "notes.txt": "notes\n",
    "old.txt": "old\n",
}  # fmt: skip


@dataclass
class Turn:
    """What the oracle expects of one turn."""

    prompt: str
    before: dict[bytes, Entry]
    status: str = "running"


@dataclass
class Oracle:
    """Follows one agent's recording."""

    open: dict[str, Turn] = field(default_factory=dict)
    pending: dict[str, str] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)

    def prompt(self, session: str, turn: str, text: str) -> None:
        if not text.strip() or text.lstrip().startswith("<task-notification>"):
            return
        if session in self.open and turn and self.asked.get(session) == turn:
            return
        self.begin(session, turn, text)

    def begin(self, session: str, turn: str, text: str) -> None:
        self._close(session, "interrupted")
        self.pending[session], self.asked[session] = text, turn

    def tool(self, session: str, files: dict[bytes, Entry]) -> None:
        if session not in self.open:
            self.open[session] = Turn(self.pending.pop(session, ""), files)
            self.turns.append(self.open[session])

    def stop(self, session: str, status: str) -> None:
        self._close(session, status)
        self.pending.pop(session, None)

    def _close(self, session: str, status: str) -> None:
        if session in self.open:
            self.open.pop(session).status = status


def recorded_sessions(agent: str) -> Iterator[dict[str, Any]]:
    (path,) = RECORDED.glob(f"{agent}-*.jsonl")
    for line in path.read_text("utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


def hook(agent: str, payload: dict[str, Any], name: str = "") -> None:
    """Deliver one event. (That a hook is a silent process of its own is tested in test_hook.py.)"""
    answer = run_hook(agent, json.dumps(payload).encode("utf-8", "surrogateescape"), name)
    assert answer is None or b'"decision"' in answer


def write_what_it_says(project: Path, tool: str, given: Any) -> None:
    """Do what a tool call describes, inside the project only."""
    if not isinstance(given, dict):
        return
    command = given.get("command") or given.get("cmd") or " && ".join(map(str, given.get("commands") or ()))
    if isinstance(command, str) and command.startswith("*** Begin Patch"):
        _patch(project, command)
        return
    if isinstance(command, str) and command:
        words = set(re.split(r"[\s;&|]+", command))
        first = [part.split()[0] for part in re.split(r"[;&|]+", command) if part.split()]
        if set(first) <= PROGRAMS and not any(word.startswith("/") and str(project) not in word for word in words):
            subprocess.run(["/bin/sh", "-c", command], cwd=project, check=False, capture_output=True)
        return
    where = given.get("file_path") or given.get("filePath") or given.get("path")
    if not isinstance(where, str) or not where:
        return
    path = project / where if not where.startswith("/") else Path(where)
    if not path.is_relative_to(project):
        return
    old = next((given[key] for key in OLD if key in given), None)
    new = next((given[key] for key in NEW if key in given), None)
    if not isinstance(new, str):
        return
    if isinstance(old, str) and old and path.is_file():
        path.write_text(path.read_text().replace(old, new))
    elif not isinstance(old, str) or not old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new)


def _patch(project: Path, text: str) -> None:
    for match in re.finditer(r"\*\*\* (Add|Delete|Update) File: (.+)", text):
        path = project / match[2].strip()
        if not path.resolve().is_relative_to(project):
            continue
        if match[1] == "Delete":
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.read_text() + "# patched\n" if path.exists() else "added\n")


def first(payload: dict[str, Any], *names: str) -> Any:
    places = [payload, *(payload[key] for key in NESTED if isinstance(payload.get(key), dict))]
    return next((place[name] for place in places for name in names if place.get(name) not in (None, "")), "")


def judge(agent: str, project: Path, base: Path, oracle: Oracle) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    entries = [entry for entry in manager.timeline(project) if entry.kind == "turn"][::-1]
    assert [(entry.prompt or "").strip() for entry in entries] == [turn.prompt.strip() for turn in oracle.turns]
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.status for entry in entries] == [turn.status for turn in oracle.turns]
    assert {entry.agent for entry in entries} <= {agent}
    now = manifest(project)
    for entry, turn in zip(entries, oracle.turns, strict=True):
        result = manager.restore(project, entry)
        assert manifest(project) == turn.before, f"the state before turn {entry.number}"
        if result.undo_id is not None:  # else there was nothing to restore, and undo would take back a turn
            manager.undo(project)
        assert manifest(project) == now


@pytest.fixture
def shop(project: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return project


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "hermes", "goose", "copilot", "cline"])
def test_a_recording_becomes_the_timeline(agent: str, shop: Path, base: Path) -> None:
    oracle = Oracle()
    texts = json.dumps(str(shop))[1:-1]
    for raw in recorded_sessions(agent):
        payload = json.loads(json.dumps(raw).replace("/home/dev/shop", texts))
        name = payload.pop("_event_arg", "")
        where = payload.get("cwd", payload.get("working_dir", ""))
        if not where.startswith(str(shop)) and agent not in ("cline", "goose"):
            continue  # other projects of the same recording
        event = (first(payload, "hook_event_name", "hookName", "event") or name).lower().replace("_", "")
        session = first(payload, "parentAgentId", "rootSessionId", "session_id", "sessionId")
        turn = first(payload, "turn_id", "prompt_id")
        helper = bool(payload.get("parentAgentId") or payload.get("parent_agent_id"))
        helper = helper or (agent in ("claude", "codex") and bool(payload.get("agent_id")))
        tool = first(payload, "tool_name", "toolName", "name") if event in TOOL_EVENTS else ""
        given = first(payload, "tool_input", "toolArgs", "input") if tool else None
        if agent == "goose":
            payload.setdefault("working_dir", str(shop))
        if is_rollback(payload):
            continue
        _expect(oracle, event, session, turn, payload, helper, shop, tool)
        hook(agent, payload, name)
        if tool and tool not in READERS:
            write_what_it_says(shop, tool, given)
    for session in list(oracle.open):
        oracle.open.pop(session)
    judge(agent, shop, base, oracle)


def is_rollback(payload: dict[str, Any]) -> bool:
    """Whether an event is about a `/rollback`. In the recordings the model answered it; here the hook would."""
    return str(payload.get("prompt", "")).startswith(("/rollback", "rollback")) or "command_name" in payload


TOOL_EVENTS = {"pretooluse", "beforetool", "pretoolcall", "toolcall"}
PROMPT_EVENTS = {"userpromptsubmit", "userpromptsubmitted", "beforeagent", "prellmcall"}
STOP_EVENTS = {"stop", "agentstop", "afteragent", "onsessionend", "agentend"}
END_EVENTS = {"sessionend", "onsessionfinalize"}


def _expect(
    oracle: Oracle,
    event: str,
    session: str,
    turn: str,
    payload: dict[str, Any],
    helper: bool,
    shop: Path,
    tool: str,
) -> None:
    tasks = payload.get("background_tasks") or ()
    going_on = any(each.get("status") == "running" and each.get("type") != "shell" for each in tasks)
    if tool and tool not in READERS:
        oracle.tool(session, manifest(shop))
    elif helper:
        return
    elif event == "agentstart":
        oracle.begin(session, turn, "")
    elif event in PROMPT_EVENTS:
        oracle.prompt(session, turn, str(first(payload, "prompt", "message", "user_message")))
    elif event in STOP_EVENTS and not going_on:
        oracle.stop(session, "interrupted" if first(payload, "interrupted") is True else "done")
    elif event in END_EVENTS:
        oracle.stop(session, "interrupted")
