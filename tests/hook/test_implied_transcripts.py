"""Conversations of agents whose events do not name the transcript: its place follows from the session."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shadowsnap import CheckpointManager
from shadowsnap.agents.state import last_run, read_runs
from shadowsnap.errors import NoConversation
from shadowsnap.hook import payload
from shadowsnap.hook.client import VARIABLES
from shadowsnap.hook.handle import run_hook
from shadowsnap.hook.payload import implied_transcript


@pytest.fixture(autouse=True)
def own_home(home: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    for name in ("XDG_DATA_HOME", "COPILOT_HOME", "HERMES_HOME"):
        monkeypatch.delenv(name, raising=False)


def copilot_says(home: Path, role: str, text: str) -> None:
    transcript = home / ".copilot" / "session-state" / "s1" / "events.jsonl"
    transcript.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"type": f"{role}.message", "data": {"content": text}}]
    if role == "user":  # it writes down that it runs our hook, with its input
        rows.insert(0, {"type": "hook.start", "data": {"input": {"prompt": text}}})
    with open(transcript, "a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def goose_says(home: Path, role: str, text: str) -> None:
    folder = home / ".local" / "share" / "goose" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    columns = "session_id TEXT, role TEXT, content_json TEXT, created_timestamp INTEGER"
    names = columns.replace(" TEXT", "").replace(" INTEGER", "")
    with closing(sqlite3.connect(folder / "sessions.db")) as db:
        db.execute(f"CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, {columns})")
        row = ("s1", role, json.dumps([{"type": "text", "text": text}]), int(time.time()))
        db.execute(f"INSERT INTO messages ({names}) VALUES (?, ?, ?, ?)", row)
        db.commit()


@pytest.mark.parametrize(("agent", "says"), [("copilot", copilot_says), ("goose", goose_says)])
def test_the_conversation_before_a_turn_is_kept(
    agent: str, says: Callable[[Path, str, str], None], home: Path, project: Path, base: Path
) -> None:
    for number in (1, 2):
        prompt = f"prompt {number}." + " x" * 1500  # its beginning is kept, up to a space
        says(home, "user", prompt)  # before the event: the worst case
        send(agent, project, "UserPromptSubmit", prompt=prompt)
        send(agent, project, "PreToolUse", tool_name="write", tool_input={"path": "a.txt"})
        (project / "a.txt").write_text(f"{number}\n")
        says(home, "assistant", f"answer {number}")
        send(agent, project, "Stop")
    manager = CheckpointManager(base=base, fsync=False)
    entries = [entry for entry in manager.timeline(project) if entry.kind == "turn"][::-1]
    first, second = (manager.restore(project, each, conversation=True, files=False) for each in entries)
    assert first.conversation is not None and first.conversation.message_count == 0
    assert second.conversation is not None
    text = json.dumps(second.conversation.data)
    assert "prompt 1" in text and "answer 1" in text and "prompt 2" not in text


def test_a_transcript_that_comes_after_the_prompt_is_cut_at_the_prompt(
    home: Path, project: Path, base: Path
) -> None:
    """Claude Code may begin the file of a session only when the model answers."""
    transcript = home / ".claude" / "projects" / "p" / "s1.jsonl"
    send("claude", project, "UserPromptSubmit", prompt="add it", transcript_path=str(transcript))
    transcript.parent.mkdir(parents=True)
    rows = [{"role": "user", "content": "add it"}, {"role": "assistant", "content": [{"type": "tool_use"}]}]
    transcript.write_text("".join(json.dumps({"type": row["role"], "message": row}) + "\n" for row in rows))
    send("claude", project, "PreToolUse", tool_name="Write", tool_input={}, transcript_path=str(transcript))
    (project / "a.txt").write_text("1\n")
    send("claude", project, "Stop", transcript_path=str(transcript))
    manager = CheckpointManager(base=base, fsync=False)
    (entry,) = [each for each in manager.timeline(project) if each.kind == "turn"]
    before = manager.restore(project, entry, conversation=True, files=False).conversation
    assert before is not None and before.data == []


@pytest.mark.parametrize(
    "asked",
    ["x" * 1999 + "\n" + "y" * 99, "the token ghp_" + "aB3dE5gH7j" * 4, "/fix it", ""],
    ids=["long", "secret", "command", "no-prompt-event"],
)
def test_a_conversation_is_cut_at_any_prompt(asked: str, home: Path, project: Path, base: Path) -> None:
    """One that is kept in part, one with a secret, one that the agent expands, and one that was not reported."""
    transcript = home / ".claude" / "projects" / "p" / "s1.jsonl"
    transcript.parent.mkdir(parents=True)
    said = asked if asked and not asked.startswith("/") else "<command-name>fix</command-name>"
    rows = [{"promptId": "t0", "message": {"role": "user", "content": "before"}}]
    rows += [{"promptId": "t1", "message": {"role": "user", "content": said}}]
    rows += [{"message": {"role": "assistant", "content": "I look."}}]
    transcript.write_text("".join(json.dumps(row) + "\n" for row in rows))
    facts = {"transcript_path": str(transcript), "prompt_id": "t1"}
    if asked:
        send("claude", project, "UserPromptSubmit", prompt=asked, **facts)
    send("claude", project, "PreToolUse", tool_name="Write", tool_input={}, **facts)
    (project / "a.txt").write_text("1\n")
    send("claude", project, "Stop", **facts)
    manager = CheckpointManager(base=base, fsync=False)
    (entry,) = [each for each in manager.timeline(project) if each.kind == "turn"]
    before = manager.restore(project, entry, conversation=True, files=False).conversation
    assert before is not None and before.data == rows[:1]


def send(agent: str, project: Path, name: str, **facts: object) -> None:
    event = {"session_id": "s1", "cwd": str(project), "hook_event_name": name, **facts}
    assert run_hook(agent, json.dumps(event).encode()) is None


@pytest.mark.parametrize("session", ["", "..", "../other", "a/b", ".hidden"])
def test_a_session_id_cannot_lead_elsewhere(session: str, home: Path) -> None:
    copilot_says(home, "user", "x")
    assert implied_transcript("copilot", session) is None
    assert implied_transcript("copilot", "s1") is not None


def test_the_resident_helper_serves_nobody_whose_transcripts_lie_elsewhere() -> None:
    places = [place for each in payload._TRANSCRIPT_FOLDERS.values() for place in each]
    places += [implied.folder for implied in payload._IMPLIED_TRANSCRIPTS.values()]
    assert {place.variable for place in places if place.variable} <= VARIABLES


def test_the_version_of_an_agent_is_read_from_its_transcript(home: Path, project: Path) -> None:
    transcript = home / ".claude" / "projects" / "p" / "s1.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text('{"type":"user","text":"\\"version\\":\\"9.9\\""}\n{"type":"user","version":"2.1.326"}\n')
    elsewhere = project / "s1.jsonl"
    elsewhere.write_text(transcript.read_text())
    for path in (elsewhere, transcript):
        (project / "a.txt").write_text(f"{path}\n")
        send("claude", project, "UserPromptSubmit", prompt="go", transcript_path=str(path))
        send("claude", project, "PreToolUse", tool_name="Write", tool_input={}, transcript_path=str(path))
        send("claude", project, "Stop", transcript_path=str(path))
        last = last_run("claude", read_runs())
        assert last is not None and last.version == ("2.1.326" if path == transcript else "")


def test_what_a_helper_was_told_is_not_taken_for_the_conversation(home: Path, project: Path, base: Path) -> None:
    """A helper of Codex reports a transcript of its own, and may be the first that writes."""
    folder = home / ".codex" / "sessions"
    folder.mkdir(parents=True)
    own, helpers = folder / "s1.jsonl", folder / "helper.jsonl"
    helpers.write_text(json.dumps({"payload": {"role": "user", "content": "for the helper"}}) + "\n")
    send("codex", project, "UserPromptSubmit", prompt="help", turn_id="t1", transcript_path=str(own))
    facts = {"turn_id": "h1", "agent_id": "a1", "transcript_path": str(helpers)}
    send("codex", project, "PreToolUse", tool_name="Bash", tool_input={"command": "make"}, **facts)
    (project / "a.txt").write_text("1\n")
    own.write_text(json.dumps({"payload": {"role": "user", "content": "help", "turn_id": "t1"}}) + "\n")
    send("codex", project, "Stop", turn_id="t1", transcript_path=str(own))
    manager = CheckpointManager(base=base, fsync=False)
    (entry,) = [each for each in manager.timeline(project) if each.kind == "turn"]
    with pytest.raises(NoConversation):
        manager.restore(project, entry, conversation=True, files=False)
