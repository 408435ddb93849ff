"""Subagents with sessions of their own: what they do belongs to the turn of the session that started them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.hook.handle import run_hook


def hermes(project: Path, name: str, session: str, tool: str | None = None, **extra: object) -> None:
    """An event as Hermes 0.19 writes it."""
    given = {"command": "echo"} if tool else None
    event = {"hook_event_name": name, "tool_name": tool, "tool_input": given, "session_id": session}
    assert run_hook("hermes", json.dumps({**event, "cwd": str(project), "extra": extra}).encode()) is None


def start_helper(project: Path, parent: str, child: str) -> None:
    hermes(project, "subagent_start", parent, child_session_id=child, parent_turn_id="t1", child_goal="help")
    hermes(project, "on_session_start", child, platform="subagent")
    hermes(project, "pre_llm_call", child, turn_id=f"{child}:t", user_message="help with it")


@pytest.mark.parametrize("depth", [1, 2])
def test_a_helper_of_hermes_has_no_turn_of_its_own(
    depth: int, project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    (project / "app.py").write_text("x = 1\n")
    before = manifest(project)
    hermes(project, "pre_llm_call", "root", turn_id="t1", user_message="let it be done")
    hermes(project, "pre_tool_call", "root", tool="delegate_task", turn_id="t1")
    sessions = ["root", "child", "grandchild"][: depth + 1]
    for parent, child in zip(sessions, sessions[1:], strict=False):
        start_helper(project, parent, child)
    hermes(project, "pre_tool_call", sessions[-1], tool="terminal", turn_id="c:t")
    (project / "app.py").unlink()
    for session in reversed(sessions):
        hermes(project, "on_session_end", session, turn_id="t1" if session == "root" else f"{session}:t")
    manager = CheckpointManager(base=base, fsync=False)
    (turn,) = [entry for entry in manager.timeline(project) if entry.kind == "turn"]
    assert (turn.prompt, turn.status, turn.session_id) == ("let it be done", "done", "root")
    manager.revert(project, turn=turn.number)
    assert manifest(project) == before


def test_a_helper_that_goes_on_after_the_turn_loses_none_of_the_edits_since(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    hermes(project, "pre_llm_call", "root", turn_id="t1", user_message="let it be done")
    hermes(project, "pre_tool_call", "root", tool="delegate_task", turn_id="t1")
    start_helper(project, "root", "child")
    hermes(project, "on_session_end", "root", turn_id="t1")
    (project / "mine.txt").write_text("edited after the turn\n")
    edited = manifest(project)
    for number in range(2):
        hermes(project, "pre_tool_call", "child", tool="terminal", turn_id="child:t")
        (project / "mine.txt").write_text(f"overwritten {number}\n")
    hermes(project, "pre_llm_call", "root", turn_id="t2", user_message="and now")
    manager = CheckpointManager(base=base, fsync=False)
    late, first = [entry for entry in manager.timeline(project) if entry.kind == "turn"]
    assert (first.status, late.session_id) == ("done", "root")
    manager.restore(project, late)
    assert manifest(project) == edited


def test_a_start_that_is_reported_twice_leaves_the_parent_as_it_is(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    for _ in range(2):
        hermes(project, "subagent_start", "root", child_session_id="child")
    hermes(project, "pre_llm_call", "root", turn_id="t1", user_message="mine")
    hermes(project, "pre_tool_call", "root", tool="terminal", turn_id="t1")
    (turn,) = [entry for entry in CheckpointManager(base=base).timeline(project) if entry.kind == "turn"]
    assert turn.prompt == "mine"
