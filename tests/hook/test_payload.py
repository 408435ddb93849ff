"""Every agent's own words for the same few events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shadowsnap.hook.payload import HookEvent, read_event

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-a\n+b\n*** End Patch"

WHOLE_EVENT = {"stands": "for an event that is nothing but the input"}

# agent, what it sends, what is to be understood
TOOLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "claude",
        {
            "session_id": "s", "transcript_path": "/t.jsonl", "cwd": "/p", "permission_mode": "default",
            "prompt_id": "t", "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_use_id": "toolu_1",
            "tool_input": {"file_path": "/p/a.py", "content": "x"},
        },
        {"tool": "Write", "tool_input": {"file_path": "/p/a.py", "content": "x"}, "transcript": "/t.jsonl"},
    ),
    (
        "codex",
        {
            "session_id": "s", "turn_id": "t", "transcript_path": None, "cwd": "/p", "model": "m",
            "hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_use_id": "1",
            "tool_input": {"command": PATCH},
        },
        {"tool": "apply_patch", "tool_input": {"command": PATCH}},
    ),
    (
        "gemini",
        {
            "session_id": "s", "transcript_path": "", "cwd": "/p", "hook_event_name": "BeforeTool",
            "timestamp": "2026-10-01T00:00:00Z", "tool_name": "replace", "tool_input": {"file_path": "a.py"},
        },
        {"turn": "", "tool": "replace", "tool_input": {"file_path": "a.py"}},
    ),
    (
        "cursor",
        {
            "conversation_id": "s", "generation_id": "t", "hook_event_name": "preToolUse",
            "workspace_roots": ["/p", "/q"], "tool_name": "Shell", "tool_input": {"command": "ls"},
            "cwd": "/p/src",
        },
        {"cwd": "/p/src", "roots": ("/p", "/q"), "tool": "Shell", "tool_input": {"command": "ls"}},
    ),
    (
        "cursor",
        {
            "conversation_id": "s", "generation_id": "t", "hook_event_name": "beforeShellExecution",
            "workspace_roots": ["/p"], "command": "rm -rf x", "cwd": "",
        },
        {"roots": ("/p",), "tool": "Shell", "tool_input": WHOLE_EVENT},
    ),
    (
        "copilot",
        {
            "sessionId": "s", "timestamp": 1704614600000, "cwd": "/p", "toolName": "bash",
            "toolArgs": "{\"command\":\"rm -rf dist\"}",
        },
        {"turn": "", "tool": "bash", "tool_input": {"command": "rm -rf dist"}},
    ),
    (
        "copilot",
        {"sessionId": "s", "cwd": "/p", "toolName": "edit", "toolArgs": {"path": "/p/a.py"}},
        {"turn": "", "tool": "edit", "tool_input": {"path": "/p/a.py"}},
    ),
    (
        "copilot",
        {"sessionId": "s", "cwd": "/p", "toolName": "apply_patch", "toolArgs": PATCH},
        {"turn": "", "tool": "apply_patch", "tool_input": {"input": PATCH}},
    ),
    (
        "qwen",
        {
            "session_id": "s", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "run_shell_command",
            "tool_input": {"command": "ls"},
        },
        {"turn": "", "tool": "run_shell_command", "tool_input": {"command": "ls"}},
    ),
    (
        "hermes",
        {
            "hook_event_name": "pre_tool_call", "tool_name": "terminal", "tool_input": {"command": "ls"},
            "session_id": "s", "cwd": "/p", "extra": {"turn_id": "t", "tool_call_id": "c"},
        },
        {"tool": "terminal", "tool_input": {"command": "ls"}},
    ),
    (
        "goose",
        {
            "event": "PreToolUse", "session_id": "s", "matcher_context": "developer__shell",
            "tool_name": "developer__shell", "tool_input": {"command": "rg"}, "working_dir": "/p",
        },
        {"turn": "", "tool": "developer__shell", "tool_input": {"command": "rg"}},
    ),
    (
        "kiro",
        {
            "hook_event_name": "preToolUse", "cwd": "/p", "tool_name": "fs_write",
            "tool_input": {"command": "create", "path": "/p/a.py"},
        },
        {"session": "", "turn": "", "tool": "fs_write", "tool_input": {"command": "create", "path": "/p/a.py"}},
    ),
    (
        "windsurf",
        {
            "agent_action_name": "pre_write_code", "trajectory_id": "s", "execution_id": "t",
            "tool_info": {"file_path": "/p/a.py", "edits": [{"old_string": "a", "new_string": "b"}], "cwd": "/p"},
        },
        {
            "tool": "write_code",
            "tool_input": {"file_path": "/p/a.py", "edits": [{"old_string": "a", "new_string": "b"}], "cwd": "/p"},
        },
    ),
    (
        "windsurf",
        {
            "agent_action_name": "pre_run_command", "trajectory_id": "s", "execution_id": "t",
            "tool_info": {"command_line": "make", "cwd": "/p"},
        },
        {"tool": "run_command", "tool_input": {"command_line": "make", "cwd": "/p"}},
    ),
    (
        "cline",
        {
            "clineVersion": "3.36", "hookName": "PreToolUse", "timestamp": "1", "taskId": "s", "userId": "u",
            "workspaceRoots": ["/p", "/q"],
            "preToolUse": {"toolName": "write_to_file", "parameters": {"path": "a.py", "content": "x"}},
        },
        {
            "turn": "", "roots": ("/p", "/q"), "version": "3.36", "tool": "write_to_file",
            "tool_input": {"path": "a.py", "content": "x"},
        },
    ),
    (
        "generic",
        {
            "event": "tool", "session": "s", "turn": "t", "cwd": "/p", "roots": ["/p"], "tool": "write_file",
            "input": {"path": "a.py"},
        },
        {"roots": ("/p",), "tool": "write_file", "tool_input": {"path": "a.py"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("agent", "sent", "understood"), TOOLS)
def test_a_tool_event(agent: str, sent: dict[str, Any], understood: dict[str, Any]) -> None:
    event = read_event(agent, json.dumps(sent).encode())
    if understood["tool_input"] is WHOLE_EVENT:
        understood = {**understood, "tool_input": sent}
    expected = {"kind": "tool", "agent": agent, "session": "s", "turn": "t", "cwd": "/p", **understood}
    assert event == HookEvent(**{**expected, "version": event.version})


@pytest.mark.parametrize(
    ("sent", "text", "turn"),
    [
        ({"hook_event_name": "UserPromptSubmit", "prompt_id": "t", "prompt": "do it"}, "do it", "t"),
        ({"hook_event_name": "UserPromptSubmit", "turn_id": "t", "prompt": "do it"}, "do it", "t"),
        ({"hook_event_name": "BeforeAgent", "prompt": "do it"}, "do it", ""),
        ({"hook_event_name": "beforeSubmitPrompt", "generation_id": "t", "prompt": "do it"}, "do it", "t"),
        ({"sessionId": "s", "timestamp": 1, "prompt": "do it"}, "do it", ""),
        ({"hook_event_name": "UserPromptSubmit", "prompt": "more", "submitted_prompt": "do it"}, "do it", ""),
        ({"hook_event_name": "UserPromptSubmit", "prompt": ""}, "", ""),
        ({"event": "UserPromptSubmit", "message": "do it", "matcher_context": "do it"}, "do it", ""),
        ({"hook_event_name": "userPromptSubmit", "prompt": "do it"}, "do it", ""),
        ({"agent_action_name": "pre_user_prompt", "tool_info": {"user_prompt": "do it"}}, "do it", ""),
        ({"hookName": "UserPromptSubmit", "taskId": "s", "userPromptSubmit": {"prompt": "do it"}}, "do it", ""),
        ({"hook_event_name": "pre_llm_call", "extra": {"user_message": "do it", "turn_id": "t"}}, "do it", "t"),
        ({"event": "prompt", "session": "s", "turn": "t", "prompt": "do it"}, "do it", "t"),
    ],
)  # fmt: skip
def test_a_prompt_event(sent: dict[str, Any], text: str, turn: str) -> None:
    event = read_event("any", json.dumps({"cwd": "/p", **sent}).encode())
    assert (event.kind, event.prompt, event.turn) == ("prompt", text, turn)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SessionStart", "session-start"),
        ("sessionStart", "session-start"),
        ("agentSpawn", "session-start"),
        ("TaskStart", "session-start"),
        ("on_session_start", "session-start"),
        ("session-start", "session-start"),
        ("Stop", "stop"),
        ("stop", "stop"),
        ("agentStop", "stop"),
        ("AfterAgent", "stop"),
        ("TaskComplete", "stop"),
        ("SessionEnd", "stop"),
        ("post_cascade_response", "stop"),
        ("PostToolUse", "other"),
        ("SubagentStop", "other"),
        ("PreCompact", "other"),
        ("Notification", "other"),
        ("pre_read_code", "other"),
        ("SomethingNew", "other"),
    ],
)
def test_the_other_events(name: str, kind: str) -> None:
    assert read_event("any", json.dumps({"hook_event_name": name, "cwd": "/p"}).encode()).kind == kind
    assert read_event("any", b'{"cwd": "/p"}', event_name=name).kind == kind


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("PostToolUse", "Write"),
        ("AfterTool", "Write"),
        ("after-tool", "Write"),
        ("post_run_command", "run_command"),
    ],
)
def test_a_tool_that_is_done_is_known_by_the_name_it_had_before(name: str, tool: str) -> None:
    said = {"tool_name": "Write", "tool_input": {"path": "x"}} if tool == "Write" else {}
    event = read_event("any", json.dumps({"hook_event_name": name, **said}).encode())
    assert (event.kind, event.after, event.tool) == ("other", True, tool)
    assert not read_event("any", b'{"hook_event_name": "Notification"}').after


def test_a_result_is_not_a_tool_about_to_run() -> None:
    assert read_event("copilot", b'{"toolName": "bash", "toolArgs": "{}", "toolResult": {}}').kind == "other"


# --- input that is not as it should be ------------------------------------------------------------------

WHOLE = json.dumps(
    {
        "session_id": "s", "turn_id": "t", "cwd": "/p", "hook_event_name": "PreToolUse", "tool_name": "Write",
        "tool_input": {"file_path": "/p/a.py", "content": "long " * 50},
    }
)  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + WHOLE.encode(),
        WHOLE.encode("utf-16"),
        b"\r\n  " + WHOLE.encode() + b"\r\n\0\0",
        WHOLE.replace("long", "lo\nng\x01\t").encode(),
        WHOLE.replace("long", "\xff").encode("latin-1"),
    ],
)
def test_marks_controls_and_bytes_that_are_no_text(data: bytes) -> None:
    event = read_event("claude", data)
    assert (event.session, event.turn, event.cwd, event.tool) == ("s", "t", "/p", "Write")
    assert event.tool_input["file_path"] == "/p/a.py"
    assert event.problem == ""


def test_input_that_is_cut_short_still_tells_what_it_can() -> None:
    event = read_event("claude", WHOLE[:-60].encode())
    assert (event.kind, event.session, event.turn, event.cwd, event.tool) == ("tool", "s", "t", "/p", "Write")
    assert event.tool_input["file_path"] == "/p/a.py"
    assert "unreadable" in event.problem


def test_input_that_is_nested_too_deeply_still_tells_what_it_can() -> None:
    deep = "[" * 100_000
    whole = WHOLE.replace('"tool_input"', f'"more": {deep}, "tool_input"', 1).encode()
    event = read_event("claude", whole)
    assert (event.kind, event.session, event.cwd, event.tool) == ("tool", "s", "/p", "Write")
    told = read_event("copilot", json.dumps({"toolName": "edit", "toolArgs": deep, "cwd": "/p"}).encode())
    assert (told.kind, told.cwd, told.tool_input) == ("tool", "/p", {"input": deep})


@pytest.mark.parametrize("data", [b"", b"\n", b"null", b"[]", b"7", b"not json", b"{", b'{"a":', b"\x00\xff\xfe"])
def test_input_that_tells_nothing_is_a_tool_that_may_write(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    event = read_event("claude", data)
    assert (event.kind, event.tool, event.session) == ("tool", "", "")
    assert event.cwd == os.getcwd()
    assert event.problem


@pytest.mark.parametrize("cut", range(0, len(WHOLE), 7))
def test_no_cut_raises(cut: int) -> None:
    assert read_event("claude", WHOLE[:cut].encode()).kind in ("tool", "other")


@pytest.mark.parametrize(
    "sent",
    [
        {"session_id": {"a": 1}, "cwd": ["/p"], "tool_name": None, "tool_input": 7, "hook_event_name": 3},
        {"hook_event_name": "PreToolUse", "workspace_roots": "nope", "tool_input": None},
        {"hook_event_name": "PreToolUse", "workspace_roots": [None, 7, {"uri": "file:///q"}, {"path": "/r"}]},
        {"event": {"type": "x"}, "extra": "y"},
    ],
)
def test_fields_of_odd_types_do_not_raise(sent: dict[str, Any]) -> None:
    event = read_event("any", json.dumps(sent).encode())
    assert isinstance(event.session, str) and isinstance(event.cwd, str)
    assert all(isinstance(root, str) for root in event.roots)


def test_roots_may_be_objects() -> None:
    roots = [{"uri": "file:///q%20r"}, {"path": "/r"}]
    event = read_event("any", json.dumps({"event": "tool", "workspaceRoots": roots}).encode())
    assert event.roots == ("/q r", "/r")
