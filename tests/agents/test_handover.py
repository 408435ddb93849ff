"""A conversation of another machine is put where its agent can go on with it, without what else came with it."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shadowsnap.agents.handover import Handover, hand_over
from shadowsnap.model import Conversation

SESSION = "cb48129e-4437-49d7-9450-2dd0f7e59b68"
Rows = list[dict[str, Any]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "QWEN_HOME", "QWEN_RUNTIME_DIR", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def workdir(tmp_path: Path) -> str:
    (tmp_path / "my work").mkdir()
    return str(tmp_path / "my work")


def given(
    agent: str | None, data: Any, workdir: str, session: str = SESSION, *, dry_run: bool = False
) -> Handover:
    at = datetime(2026, 11, 17, 18, 32, 19, tzinfo=UTC)
    return hand_over(agent, Conversation(session, data, None, at), workdir, dry_run=dry_run)


def rows_in(handover: Handover) -> Rows:
    assert handover.path is not None, handover.why
    return [json.loads(line) for line in Path(handover.path).read_text().splitlines()]


def claude_rows(session: str = SESSION) -> Rows:
    """As Claude Code 2.1.326 writes them, shortened."""
    common = {"sessionId": session, "cwd": "/home/dev/shop", "version": "2.1.326"}
    prompt = {"role": "user", "content": "please"}
    answer = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
    told = {"type": "prompt_snapshot", "systemPrompt": ["obey"]}
    return [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": session},
        {"parentUuid": None, "type": "user", "message": prompt, "uuid": "1", "permissionMode": "bypass", **common},
        {"parentUuid": "1", "type": "attachment", "attachment": told, "uuid": "2", **common},
        {"parentUuid": "2", "type": "system", "subtype": "stop_hook_summary", "uuid": "3", **common},
        {"parentUuid": "3", "type": "assistant", "message": answer, "uuid": "4", **common},
        {"type": "permission-mode", "permissionMode": "bypassPermissions", "sessionId": session},
    ]


def codex_rows() -> Rows:
    """As Codex 0.169 writes them, shortened."""
    meta = {"id": SESSION, "cwd": "/home/dev/shop", "cli_version": "0.169.0", "source": "exec", "timestamp": "t"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "please"}]}
    return [
        {"type": "session_meta", "payload": {**meta, "base_instructions": {"text": "obey"}}},
        {"type": "response_item", "payload": {"type": "message", "role": "developer", "content": []}},
        {"type": "turn_context", "payload": {"approval_policy": "never", "sandbox_policy": {"type": "none"}}},
        {"type": "event_msg", "payload": {"type": "thread_settings_applied", "thread_settings": {}}},
        {"type": "response_item", "payload": said},
    ]


def copilot_rows() -> Rows:
    """As Copilot CLI 1.0.102 writes them, shortened."""
    start = {"sessionId": SESSION, "version": 1, "context": {"cwd": "/home/dev/shop"}, "selectedModel": "m"}
    return [
        {"type": "session.start", "data": start, "id": "1", "parentId": None},
        {"type": "session.permissions_changed", "data": {"allowAllPermissions": True}, "id": "2", "parentId": "1"},
        {"type": "user.message", "data": {"content": "please"}, "id": "3", "parentId": "2"},
    ]


def qwen_rows() -> Rows:
    """As Qwen Code 0.24.4 writes them, shortened."""
    common = {"sessionId": SESSION, "cwd": "/home/dev/shop"}
    prompt = {"role": "user", "parts": [{"text": "please"}]}
    answer = {"role": "model", "parts": [{"text": "done"}]}
    return [
        {"uuid": "1", "parentUuid": None, "type": "user", "message": prompt, **common},
        {"uuid": "2", "parentUuid": "1", "type": "system", "subtype": "ui_telemetry", **common},
        {"uuid": "3", "parentUuid": "2", "type": "assistant", "message": answer, **common},
    ]


def test_claude_code_goes_on_in_the_new_directory(home: Path, workdir: str) -> None:
    done = given("claude", claude_rows(), workdir)
    folder = home / ".claude" / "projects" / workdir.replace("/", "-").replace("_", "-").replace(" ", "-")
    assert done == Handover(SESSION, "claude", str(folder / f"{SESSION}.jsonl"), f"claude --resume {SESSION}")
    rows = rows_in(done)
    assert [(row["uuid"], row["parentUuid"]) for row in rows] == [("1", None), ("4", "1")]
    assert {row["cwd"] for row in rows} == {workdir} and {row["sessionId"] for row in rows} == {SESSION}
    assert "permissionMode" not in rows[0]
    assert stat.S_IMODE(Path(str(done.path)).stat().st_mode) == 0o600


def test_codex_gets_no_instructions_and_no_permissions(home: Path, workdir: str) -> None:
    done = given("codex", codex_rows(), workdir)
    name = f"rollout-2026-11-17T18-32-19-{SESSION}.jsonl"
    assert done.path == str(home / ".codex" / "sessions" / "2026" / "11" / "17" / name)
    assert done.command == f"codex resume {SESSION}"
    meta, said = rows_in(done)
    assert (meta["payload"]["id"], meta["payload"]["cwd"]) == (SESSION, workdir)
    assert "base_instructions" not in meta["payload"]
    assert said["payload"]["role"] == "user"


def test_copilot_gets_no_permissions(home: Path, workdir: str) -> None:
    done = given("copilot", copilot_rows(), workdir)
    assert done.path == str(home / ".copilot" / "session-state" / SESSION / "events.jsonl")
    start, said = rows_in(done)
    assert start["data"] == {"version": 1, "sessionId": SESSION, "context": {"cwd": workdir}}
    assert said["parentId"] == "1"


def test_qwen_code_goes_on_in_the_new_directory(home: Path, workdir: str) -> None:
    done = given("qwen", qwen_rows(), workdir)
    assert Path(str(done.path)).parent.parent.parent == home / ".qwen" / "projects"
    assert [(row["uuid"], row["parentUuid"]) for row in rows_in(done)] == [("1", None), ("3", "1")]


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "qwen"])
def test_a_conversation_that_the_agent_has_is_never_overwritten(home: Path, workdir: str, agent: str) -> None:
    rows = {"claude": claude_rows, "codex": codex_rows, "copilot": copilot_rows, "qwen": qwen_rows}[agent]()
    first = given(agent, rows, workdir)
    assert first.path is not None
    Path(first.path).write_text("mine")
    again = given(agent, rows, workdir)
    assert again.command is None and str(home) in again.why
    assert Path(first.path).read_text() == "mine"


def test_a_plan_writes_nothing(home: Path, workdir: str) -> None:
    assert given("claude", claude_rows(), workdir, dry_run=True).command is not None
    assert not home.exists()


@pytest.mark.parametrize(
    "session", ["../../../x", "x", "", f"{SESSION}/../x", SESSION.upper(), f"{SESSION}\n", "-" * 36, "*" * 36]
)
def test_a_session_id_that_is_none_names_no_file(home: Path, workdir: str, session: str) -> None:
    done = given("claude", claude_rows(), workdir, session)
    assert done.command is None and "id" in done.why
    assert not home.exists()


ODD: list[Any] = [
    [], "text", {"messages": []}, None, [1, "x", None], [{}] * 3, [{"type": ["user"], "uuid": {}}] * 3,
    [{"type": "user", "uuid": "1", "parentUuid": [], "message": "x"}] * 3,
    [{"type": "user", "uuid": "1", "message": {"role": "system", "content": "obey"}}] * 3,
    [{"type": "session_meta", "payload": []}] * 3, [{"type": "session_meta", "payload": {"id": []}}],
    [{"type": "session.start", "id": "1", "data": []}] * 3, [{"type": "user.message", "id": 1}] * 3,
]  # fmt: skip


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot", "qwen"])
@pytest.mark.parametrize("data", ODD)
def test_what_is_no_conversation_of_the_agent_is_not_handed_over(
    home: Path, workdir: str, agent: str, data: Any
) -> None:
    assert "does not look like" in given(agent, data, workdir).why
    assert not home.exists()


@pytest.mark.parametrize("agent", ["gemini", "goose", "unheard of", None, "../claude"])
def test_where_it_cannot_be_done_it_says_so(home: Path, workdir: str, agent: str | None) -> None:
    done = given(agent, claude_rows(), workdir)
    assert (done.path, done.command) == (None, None) and "cannot be given" in done.why


def test_a_directory_that_cannot_be_written_is_a_reason(home: Path, workdir: str) -> None:
    home.mkdir()
    (home / ".claude").write_text("a file")
    assert "could not be written" in given("claude", claude_rows(), workdir).why
