"""Sessions and conversations where people and agents meet them: hooks, /rollback, the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from forking import run_program

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.agents.slash import RollbackCommand
from shadowsnap.hook.payload import read_event
from shadowsnap.store.conversations import spoken_messages

TOKEN = "ghp_" + "aB3dE5gH7j" * 4


def lines(count: int) -> str:
    return "".join(json.dumps({"type": "message", "number": number}) + "\n" for number in range(count))


# --- hooks --------------------------------------------------------------------------------------------


@pytest.fixture
def manager(home: Path) -> CheckpointManager:
    """As the hooks have it."""
    return CheckpointManager(base=home / ".local" / "state" / "shadowsnap", fsync=False)


def hook(event: str, project: Path, agent: str = "claude", **more: Any) -> None:
    told = {"session_id": "s1", "prompt_id": "t1", "cwd": str(project), "hook_event_name": event, **more}
    done = run_program("hook", agent, stdin=json.dumps(told).encode())
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def transcripts(home: Path) -> Path:
    """Where Claude Code keeps its transcripts."""
    folder = home / ".claude" / "projects" / "-project"
    folder.mkdir(parents=True)
    return folder


def write(project: Path, transcript: Path | str, turn: str = "t1", **more: Any) -> None:
    tool = {"tool_name": "Write", "tool_input": {"file_path": "README.md"}}
    hook("PreToolUse", project, prompt_id=turn, transcript_path=str(transcript), **tool, **more)
    (project / "README.md").write_text(f"by turn {turn}\n")


def test_a_hook_keeps_the_transcript_when_the_agent_stops(
    transcripts: Path, project: Path, manager: CheckpointManager
) -> None:
    transcript = transcripts / "s1.jsonl"
    transcript.write_text(lines(2))
    hook("UserPromptSubmit", project, prompt="please write", transcript_path=str(transcript))
    write(project, transcript)
    base = manager.settings.resolved_base()
    assert not (base / "store" / "refs" / "shadowsnap-meta").exists()  # the tool did not wait for that
    assert not (base / "sessions").exists()
    transcript.write_text(lines(5))
    hook("Stop", project, transcript_path=str(transcript))
    after, before = manager.list_checkpoints(project)
    for taken, count in ((before, 2), (after, 5)):
        found = manager.restore(project, taken.id, conversation=True, files=False).conversation
        assert (found.session_id, found.message_count) == ("s1", count)
        assert found.data[-1] == {"type": "message", "number": count - 1}
    session = manager.session("s1")
    (turn,) = session.turns
    assert (session.agent, session.status, turn.prompt) == ("claude", "active", "please write")
    assert [(place.before, place.after, place.turn) for place in turn.places] == [(before.id, after.id, 1)]
    assert (turn.conversation, turn.message_count) == ("kept", 2)
    assert turn.ended is not None and turn.ended >= turn.began


def test_the_end_of_a_session_completes_it(tmp_path: Path, project: Path, manager: CheckpointManager) -> None:
    write(project, "")
    hook("Stop", project)
    hook("SessionEnd", project)
    assert manager.session("s1").status == "completed"
    write(project, "", turn="t2")
    hook("SessionEnd", project, prompt_id="t2")  # without a stop before it
    assert [each.ended is not None for each in manager.session("s1").turns] == [True, True]
    assert manager.session("s1").status == "completed"
    write(project, "", turn="t3", agent="cline", session_id="s2")
    hook("TaskCancel", project, agent="cline", session_id="s2")
    assert manager.session("s2").status == "failed"


def test_a_session_that_wrote_nothing_leaves_no_record(project: Path, manager: CheckpointManager) -> None:
    hook("UserPromptSubmit", project, prompt="just talk")
    hook("Stop", project)
    hook("SessionEnd", project)
    assert not (manager.settings.resolved_base() / "sessions").exists()


def test_a_transcript_that_is_gone_or_too_large_stops_nothing(
    transcripts: Path, project: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, transcripts / "none.jsonl")
    hook("Stop", project, transcript_path=str(transcripts / "none.jsonl"))
    monkeypatch.setenv("SHADOWSNAP_MAX_CONVERSATION_MB", "0.001")
    (transcripts / "large.jsonl").write_text(lines(100))
    write(project, transcripts / "large.jsonl", turn="t2")
    hook("Stop", project, prompt_id="t2", transcript_path=str(transcripts / "large.jsonl"))
    assert [each.kind for each in manager.list_checkpoints(project)] == ["turn-end", "turn-end", "turn"]
    assert [each.conversation for each in manager.session("s1").turns] == ["unreadable", "too-large"]


def test_hooks_keep_no_transcript_if_the_person_does_not_want_it(
    transcripts: Path, project: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_KEEP_CONVERSATIONS", "no")
    (transcripts / "s1.jsonl").write_text(lines(3))
    write(project, transcripts / "s1.jsonl")
    hook("Stop", project, transcript_path=str(transcripts / "s1.jsonl"))
    assert not (manager.settings.resolved_base() / "store" / "refs" / "shadowsnap-meta").exists()
    assert manager.session("s1").turns[0].conversation == "none"


def test_a_prompt_is_kept_without_its_secrets(project: Path, manager: CheckpointManager) -> None:
    hook("UserPromptSubmit", project, prompt=f"use {TOKEN} for it")
    write(project, "")
    (taken,) = manager.list_checkpoints(project)
    assert taken.metadata["prompt"] == "use [redacted: github-token] for it"
    for path in manager.settings.resolved_base().rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("event", "ends"),
    [("Stop", ""), ("SessionEnd", "completed"), ("on_session_end", ""), ("TaskCancel", "failed")],
)
def test_an_event_tells_whether_it_ends_the_session(event: str, ends: str) -> None:
    told = read_event("any", json.dumps({"hook_event_name": event}).encode())
    assert (told.kind, told.ends) == ("stop", ends)


# --- /rollback ----------------------------------------------------------------------------------------


def two_turns(manager: CheckpointManager, project: Path) -> None:
    for number in (1, 2):
        (project / "notes").write_text(f"before turn {number}\n")
        manager.new_turn("s1", f"turn {number}", [{"number": each} for each in range(number)], agent="test")
        manager.ensure_checkpoint(project)
        (project / "README.md").write_text(f"by turn {number}\n")
        manager.end_turn()


@pytest.fixture
def chat(manager: CheckpointManager, project: Path) -> RollbackCommand:
    two_turns(manager, project)
    command = RollbackCommand(manager, project)
    command.run("")
    return command


def test_rollback_brings_back_files_chat_or_both(chat: RollbackCommand, project: Path) -> None:
    before = manifest(project)
    only = chat.run("/rollback 2 --chat")
    assert only.ok and only.result is not None and manifest(project) == before
    assert only.text == "the conversation as it was, with 2 messages, at before turn 2 (turn 2)"
    assert only.result.conversation.data == [{"number": 0}, {"number": 1}]
    assert only.to_dict()["restored"]["conversation"]["message_count"] == 2
    files = chat.run("/rollback --files 2")
    assert files.result is not None and files.result.conversation is None and files.result.written
    assert chat.run("/rollback undo").ok and manifest(project) == before
    both = chat.run("/rollback 1 --both README.md")
    assert both.result is not None and both.result.written == ("README.md",)
    assert both.text.splitlines()[-1] == "the conversation as it was, with 1 message"
    plain = chat.run("/rollback 1")
    assert plain.result is not None and plain.result.conversation is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("2 --chat --files", "--chat and --files cannot stand together"),
        ("2 --chat README.md", "--chat leaves all files alone"),
        ("--both", "back to which turn?"),
        ("2:after --chat", "no conversation is kept with checkpoint"),
    ],
)
def test_what_cannot_be_is_said(chat: RollbackCommand, project: Path, line: str, why: str) -> None:
    before = manifest(project)
    answer = chat.run(line)
    assert not answer.ok and why in answer.text and manifest(project) == before


def test_both_without_a_conversation_says_so(chat: RollbackCommand) -> None:
    answer = chat.run("2:after --both")
    assert answer.ok and answer.text.endswith("note: no conversation is kept with it")


# --- the command line ---------------------------------------------------------------------------------


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    cli = CommandLine(project, base, monkeypatch, capsys)
    manager = CheckpointManager(base=base, fsync=False)
    two_turns(manager, project)
    manager.end_session("s1")
    with manager.stage(project, edit_id="edit-1", session_id="Other Session", risk_tier="high"):
        (project / "staged").write_text("x")
    return cli


def test_sessions_are_listed_newest_first(cli: CommandLine) -> None:
    lines = cli("sessions").out.splitlines()
    rows = [re.sub(r"  (now|\d+ s)  ", "  now  ", line).split() for line in lines]
    assert rows == [
        ["Other", "Se", "active", "now", "0", "turns"],
        ["s1", "completed", "now", "2", "turns", "test", "turn", "1", "..", "turn", "2"],
    ]
    assert max(map(len, lines)) <= 80
    assert cli("sessions", "list").out == cli("sessions").out
    told = cli.json("sessions")
    assert [(each["id"], each["status"]) for each in told["sessions"]] == [
        ("Other Session", "active"),
        ("s1", "completed"),
    ]
    assert told["more"] == 0


def test_sessions_are_those_of_this_project_unless_asked_otherwise(
    cli: CommandLine, base: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    manager = CheckpointManager(base=base, fsync=False)
    manager.new_turn("elsewhere-1234", "a long prompt " * 20, agent="codex")
    manager.ensure_checkpoint(other)
    (other / "x").write_text("y")
    manager.end_turn()
    assert [each["id"] for each in cli.json("sessions")["sessions"]] == ["Other Session", "s1"]
    everywhere = cli.json("sessions", "--all-projects")["sessions"]
    assert [each["id"] for each in everywhere] == ["elsewhere-1234", "Other Session", "s1"]
    assert max(map(len, cli("sessions", "--all-projects").out.splitlines())) <= 80
    assert cli.json("sessions", "show", "where-12")["session"]["id"] == "elsewhere-1234"
    assert "no session yet" in cli("-C", str(tmp_path), "sessions").err


def test_sessions_are_chosen(cli: CommandLine) -> None:
    def chosen(*words: str) -> list[str]:
        return [each["id"] for each in cli.json("sessions", *words)["sessions"]]

    assert chosen("--status", "completed") == ["s1"]
    assert chosen("--file", "README.md") == ["s1"]
    assert chosen("--file", "notes") == []
    assert chosen("--text", "TURN 2") == ["s1"]
    assert chosen("--since", "2999-01-01") == []
    assert chosen("--since", "2020-01-01") == ["Other Session", "s1"]
    assert chosen("--limit", "1") == ["Other Session"] and cli.json("sessions", "--limit", "1")["more"] == 1
    assert chosen("--limit", "0") == ["Other Session", "s1"]
    assert "no session matches" in cli("sessions", "--status", "failed").err


def test_a_session_is_shown_with_its_turns(cli: CommandLine, project: Path) -> None:
    shown = cli("sessions", "show", "s1").out.splitlines()
    assert shown[:3] == ["session s1", "agent    test", "status   completed"]
    newest, *_ = cli.json("sessions", "show", "s1")["session"]["turns"][::-1]
    assert (newest["places"][0]["turn"], newest["conversation_state"], newest["message_count"]) == (2, "kept", 2)
    at = next(at for at, line in enumerate(shown) if line.startswith("turn 2  ("))
    assert shown[at].endswith(", conversation kept, 2 messages)")
    assert shown[at + 1 : at + 3] == ["  turn 2", f"  in {project}"]
    cli("revert", "2", "-y")
    assert "2 messages, taken back)" in cli("sessions", "show", "s1").out
    other = cli("sessions", "show", "Other Session").out
    assert "  edit-1: committed as " in other and "risk high" in other


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (("show", "nobody"), 3, "NoSuchSession"),
        (("show",), 2, "WrongUsage"),
        (("list", "s1"), 2, "WrongUsage"),
        (("--status", "asleep"), 2, "BadArguments"),
        (("--since", "someday"), 2, "WrongUsage"),
        (("--limit", "-1"), 2, "WrongUsage"),
    ],
)
def test_wrong_questions_are_errors(cli: CommandLine, words: tuple[str, ...], code: int, kind: str) -> None:
    assert cli.json("sessions", *words, code=code)["error"]["type"] == kind


def test_a_strange_id_cannot_do_anything_to_a_terminal(cli: CommandLine, base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.new_turn("\x1b[31m\nevil", "prompt \x1b]0;x\x07")
    manager.ensure_checkpoint(project)
    manager.end_turn()
    for words in (("sessions",), ("sessions", "show", "\x1b[31m\nevil")):
        assert "\x1b" not in cli(*words).out and "\x07" not in cli(*words).out


def test_rollback_on_the_command_line_takes_the_same_words(cli: CommandLine, project: Path) -> None:
    before = manifest(project)
    told = cli.json("rollback", "1", "--chat")
    assert told["restored"]["conversation"]["data"] == [{"number": 0}] and manifest(project) == before
    assert cli.json("rollback", "/rollback 1 --chat")["restored"]["conversation"] is not None
    both = cli.json("rollback", "--both", "1")
    assert both["restored"]["conversation"]["message_count"] == 1 and manifest(project) != before


def test_a_conversation_is_printed_or_written_to_a_file(cli: CommandLine, project: Path) -> None:
    for words in (("show", "2", "--chat"), ("sessions", "show", "s1", "--chat")):
        assert cli(*words).out == '{"number": 0}\n{"number": 1}\n'
        told = cli.json(*words)
        assert (told["messages"], told["conversation"]["data"]) == (2, [{"number": 0}, {"number": 1}])
        written = project / "chat.jsonl"
        assert cli(*words, "-o", "chat.jsonl").out == f"wrote {written}, 2 messages\n"
        assert written.read_text() == '{"number": 0}\n{"number": 1}\n'
        assert cli.json(*words, "-o", "chat.jsonl")["path"] == str(written)
        written.unlink()
    assert cli.json("show", "2:after", "--chat", code=3)["error"]["type"] == "NoConversation"


TRANSCRIPT = [
    {"type": "summary", "summary": "an old one"},
    {"type": "user", "message": {"role": "user", "content": "please write"}},
    {"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": [{"type": "text"}]}},
    {"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": [{"type": "tool_use"}]}},
    {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}},
    {"type": "file-history-snapshot"},
    {"type": "assistant", "message": {"id": "m2", "role": "assistant", "content": [{"type": "text"}]}},
]


@pytest.mark.parametrize(
    ("rows", "number"),
    [
        (TRANSCRIPT, 3),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "tool"}], 2),
        ({"messages": [{"role": "human", "content": "a"}, {"role": "ai", "content": "b"}]}, 2),
        ([{"number": 0}, {"number": 1}], 2),  # of no known shape
        ([], 0),
        ("plain text", None),
    ],
)
def test_messages_of_people_and_agents_are_counted_not_lines(rows: Any, number: int | None) -> None:
    assert spoken_messages(rows) == number


def test_a_transcript_is_counted_in_messages(
    transcripts: Path, project: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    transcript = transcripts / "s1.jsonl"
    transcript.write_text("".join(json.dumps(row) + "\n" for row in TRANSCRIPT))
    write(project, transcript)
    hook("Stop", project, transcript_path=str(transcript))
    assert manager.session("s1").turns[0].message_count == 3
    answer = RollbackCommand(manager, project).run("1 --chat")
    assert answer.text.startswith("the conversation as it was, with 3 messages, at before turn 1")
