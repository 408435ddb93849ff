"""`/rollback` in the chat of an agent that lets a prompt hook answer: our text, word for word, and no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.hook.handle import run_hook
from shadowsnap.hook.payload import SHOW_OUTPUT

PROMPT_EVENT = {"codex": "UserPromptSubmit", "qwen": "UserPromptSubmit", "gemini": "BeforeAgent"}
TOOL_EVENT = {"codex": "PreToolUse", "qwen": "PreToolUse", "gemini": "BeforeTool"}
STOP_WORD = {"codex": "block", "qwen": "block", "gemini": "deny"}


@pytest.fixture
def turn(project: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Any]:
    """A turn that removed a file; returns what was there before."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    (project / "app.py").write_text("x = 1\n")
    (project / "notes.txt").write_text("notes\n")
    return manifest(project)


def say(agent: str, project: Path, prompt: str) -> dict[str, str] | None:
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": PROMPT_EVENT[agent], "prompt": prompt}
    answer = run_hook(agent, json.dumps(event).encode())
    return json.loads(answer) if answer else None


def work(agent: str, project: Path) -> None:
    say(agent, project, "clean up")
    event = {"session_id": "s", "cwd": str(project), "hook_event_name": TOOL_EVENT[agent], "tool_name": "Bash"}
    run_hook(agent, json.dumps({**event, "tool_input": {"command": "rm app.py"}}).encode())
    (project / "app.py").unlink()


@pytest.mark.parametrize("agent", PROMPT_EVENT)
def test_list_restore_and_undo_are_answered(agent: str, project: Path, turn: dict[bytes, Any]) -> None:
    work(agent, project)
    after = manifest(project)
    listed = say(agent, project, "rollback")
    assert listed is not None and listed["decision"] == STOP_WORD[agent] and "clean up" in listed["reason"]
    assert say(agent, project, "rollback 1") is not None
    assert manifest(project) == turn
    assert say(agent, project, "rollback undo") is not None
    assert manifest(project) == after


@pytest.mark.parametrize("agent", PROMPT_EVENT)
@pytest.mark.parametrize("prompt", ["rollback the last commit", "rollback 2 commits please", "rollback 17"])
@pytest.mark.each_value  # the text is read the same way for every agent
def test_what_is_no_command_goes_to_the_model(agent: str, prompt: str, project: Path, turn: Any) -> None:
    work(agent, project)
    assert say(agent, project, prompt) is None


@pytest.mark.parametrize("agent", ["gemini", "qwen"])
def test_the_output_of_the_command_file_is_answered_with_itself(agent: str, project: Path, turn: Any) -> None:
    work(agent, project)
    answer = say(agent, project, f"\n  1  now  clean up  it's 1 file\n\n{SHOW_OUTPUT}\n")
    assert answer == {"decision": STOP_WORD[agent], "reason": "1  now  clean up  it's 1 file"}


def test_the_output_of_a_command_file_begins_no_turn(project: Path, base: Path, turn: Any) -> None:
    work("gemini", project)
    say("gemini", project, f"the list\n\n{SHOW_OUTPUT}")
    (entry,) = [each for each in CheckpointManager(base=base).timeline(project) if each.kind == "turn"]
    assert (entry.prompt, entry.status) == ("clean up", "interrupted")
