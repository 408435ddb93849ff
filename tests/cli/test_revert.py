"""revert on the command line, and /rollback turn and session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import CommandLine

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.agents.slash import RollbackCommand

needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="no pty")
LINES = "".join(f"line {number}\n" for number in range(20))


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Turn 1 of session s1 changes the top of a file and adds another; then the person changes the
    bottom; then turn 2 of session s2 adds a file."""
    cli = CommandLine(project, base, monkeypatch, capsys)
    manager = CheckpointManager()
    (project / "text").write_text(LINES)
    manager.new_turn("s1", prompt="change the top")
    manager.ensure_checkpoint(project)
    (project / "text").write_text(LINES.replace("line 1\n", "by the agent\n"))
    (project / "agent.txt").write_text("new\n")
    manager.end_turn()
    (project / "text").write_text((project / "text").read_text().replace("line 18\n", "by the person\n"))
    manager.new_turn("s2")
    manager.ensure_checkpoint(project)
    (project / "later.txt").write_text("later\n")
    manager.end_turn()
    return cli


def only_the_persons(project: Path) -> bool:
    mine = (project / "text").read_text() == LINES.replace("line 18\n", "by the person\n")
    return mine and not (project / "agent.txt").exists()


def test_a_turn_is_taken_out_and_everything_else_stays(cli: CommandLine, project: Path) -> None:
    before = manifest(project)
    assert cli.json("revert", "--turn", "1", code=4)["error"]["type"] == "NotConfirmed"
    lines = cli("revert", "--turn", "1", "--dry-run").out.splitlines()
    assert lines[0].startswith("from ") and lines[0].endswith(", take out turn 1: change the top")
    assert lines[1:] == [
        "  is overwritten  text       +1 -1",
        "  is deleted      agent.txt  +0 -1",
        "  1 overwritten, 1 deleted",
    ]
    assert cli("revert", "1", "-n").out.splitlines() == lines
    assert manifest(project) == before
    assert cli("revert", "1", "-y").out.splitlines() == [
        "took out turn 1: change the top",
        "  1 file written, 1 deleted",
        "  wrote    text",
        "  deleted  agent.txt",
        "to take it back: shadowsnap undo --yes",
    ]
    assert only_the_persons(project) and (project / "later.txt").exists()
    again = cli("revert", "--turn", "1", "--yes").out
    assert again == "nothing to revert: no trace of turn 1: change the top is left\n"
    assert cli("undo", "--yes").out.startswith("took back the revert of turn 1\n")
    assert manifest(project) == before


def test_a_session_is_taken_out(cli: CommandLine, project: Path) -> None:
    result = cli.json("revert", "--session", "s2", "--yes")
    assert (result["written"], result["deleted"], result["undo"]) == ([], ["later.txt"], "shadowsnap undo --yes")
    assert (project / "agent.txt").exists()


@pytest.mark.parametrize(("how", "code"), [("keep", 1), ("markers", 0), ("theirs", 0)])
def test_a_conflict_is_settled_as_asked(cli: CommandLine, project: Path, how: str, code: int) -> None:
    disputed = (project / "text").read_text().replace("by the agent\n", "by both\n")
    (project / "text").write_text(disputed)
    ran = cli("revert", "--turn", "1", "--yes", "--on-conflict", how, code=code)
    assert "  conflict text (" in ran.out and "1 conflict" in ran.out
    after = (project / "text").read_text()
    if how == "keep":
        assert after == disputed
    elif how == "theirs":
        assert after == LINES
    else:
        assert "<<<<<<<" in after and "by both" in after and "line 1\n" in after
    assert not (project / "agent.txt").exists()


def test_what_is_wrong_is_told(cli: CommandLine) -> None:
    assert cli.json("revert", code=2)["error"]["type"] == "WrongUsage"
    assert cli.json("revert", "--turn", "1", "--session", "s1", code=2)["error"]["type"] == "WrongUsage"
    assert cli.json("revert", "1", "--session", "s1", code=2)["error"]["type"] == "WrongUsage"
    assert cli.json("revert", "--turn", "9", "--yes", code=3)["error"]["type"] == "NoSuchTurn"
    assert cli.json("revert", "--session", "s", "--yes", code=3)["error"]["type"] == "NoSuchTurn"


@needs_terminal
def test_it_asks_on_a_terminal(cli: CommandLine, project: Path) -> None:
    question = "go ahead? [y]es [N]o [d]iff "
    answers = [(question, "d\n"), (question, "n\n")]
    code, screen = cli.terminal("--no-color", "revert", "--turn", "1", answers=answers)
    assert code == 0 and "  is deleted      agent.txt  +0 -1\n" in screen and (project / "agent.txt").exists()
    assert "\n-by the agent\n+line 1\n" in screen and "cancelled; nothing was changed\n" in screen
    code, screen = cli.terminal("--no-color", "revert", "--turn", "1", answers=[(question, "y\n")])
    assert code == 0 and "to take it back: shadowsnap undo\n" in screen
    assert only_the_persons(project)


def test_declining_a_plan_with_conflicts_is_no_failure(cli: CommandLine, project: Path) -> None:
    (project / "text").write_text((project / "text").read_text().replace("by the agent\n", "by both\n"))
    cli("revert", "1", "-n", code=1)
    code, screen = cli.terminal("--no-color", "revert", "1", answers=[("go ahead? ", "n\n")])
    assert code == 0 and "  conflict        text " in screen


def test_the_list_tells_the_turns(cli: CommandLine) -> None:
    assert [(entry["number"], entry["kind"], entry["session_id"]) for entry in cli.entries()] == [
        (2, "turn", "s2"), (None, "edits", None), (1, "turn", "s1"),
    ]  # fmt: skip
    cli("revert", "1", "-y")
    assert [entry["status"] for entry in cli.entries() if entry["number"]] == ["done", "reverted"]


# --- in a chat --------------------------------------------------------------------------------------------


@pytest.fixture
def chat(cli: CommandLine, project: Path) -> RollbackCommand:
    return RollbackCommand(CheckpointManager(), project)


def test_rollback_turn(chat: RollbackCommand, project: Path) -> None:
    before = manifest(project)
    answer = chat.run("/rollback turn 1")
    assert (answer.ok, answer.action) == (True, "turn") and only_the_persons(project)
    assert str(answer).startswith("took out turn 1: change the top: 1 file written, 1 deleted\n")
    assert str(answer).endswith("to take it back: /rollback undo")
    chat.run("/rollback undo")
    assert manifest(project) == before


def test_rollback_turn_tells_conflicts(chat: RollbackCommand, project: Path) -> None:
    (project / "text").write_text((project / "text").read_text().replace("by the agent\n", "by both\n"))
    answer = chat.run("/rollback turn 1")
    assert answer.ok and str(answer).startswith("  conflict text (")
    assert "by both" in (project / "text").read_text()
    again = chat.run("/rollback turn 1")
    assert not again.ok and str(again).startswith("could not take out turn 1: change the top\n  conflict text (")
    assert str(again).endswith("\nlook at it: /rollback diff 1   go back to before all of it: /rollback 1")


@pytest.mark.parametrize("line", ["/rollback session", "/rollback session s2"])
def test_rollback_session(chat: RollbackCommand, project: Path, line: str) -> None:
    assert chat.run(line).ok
    assert not (project / "later.txt").exists() and (project / "agent.txt").exists()


@pytest.mark.parametrize("line", ["turn", "turn x", "turn 1 2", "turn -1", "turn 99", "session s", "session a b"])
def test_rollback_of_what_is_not_there_says_so(chat: RollbackCommand, project: Path, line: str) -> None:
    before = manifest(project)
    assert not chat.run(line).ok
    assert manifest(project) == before
