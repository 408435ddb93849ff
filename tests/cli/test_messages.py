"""What the command line says where something is not as the person thought: in the words of the timeline, and with
the command that helps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import CommandLine

from shadowsnap import CheckpointManager
from shadowsnap.agents.slash import RollbackCommand
from shadowsnap.cli.commands import command_parser, load_all
from shadowsnap.hook.session import read_log


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


@pytest.fixture
def turns(cli: CommandLine, project: Path) -> CommandLine:
    """Turn 1 makes notes/, turn 2 changes README.md, then the person edits; 3 is a snapshot."""
    manager = CheckpointManager()
    (project / "notes").mkdir()
    for number, name in ((1, "notes/a.txt"), (2, "README.md")):
        manager.new_turn("0a1b2c3d-4e5f", prompt=f"write {name}", agent="claude")
        manager.ensure_checkpoint(project)
        with (project / name).open("a") as file:
            file.write(f"line of turn {number}\n")
        manager.end_turn()
    (project / "src" / "main.py").write_text("mine\n")
    cli("snap", "-m", "by hand")
    (project / "src" / "main.py").write_text("mine too\n")
    return cli


def error(cli: CommandLine, *words: str, code: int = 3) -> str:
    """The message and the hint of an error."""
    record = cli.json(*words, code=code)["error"]
    return f"{record['message']} / {record['hint']}"


# --- one grammar of references -----------------------------------------------------------------------------


@pytest.mark.parametrize("ref", ["last", "id", "label"])
def test_any_name_of_a_turn_means_the_turn_where_turns_are_meant(
    cli: CommandLine, project: Path, ref: str
) -> None:
    manager = CheckpointManager()
    for number in (1, 2):
        manager.new_turn("session", prompt=f"turn {number}")
        manager.ensure_checkpoint(project)
        (project / f"file-{number}").write_text("x\n")
        manager.end_turn()
    (project / "README.md").write_text("mine\n")
    before = cli.entries()[0]["before"] if cli.entries()[0]["kind"] == "turn" else cli.entries()[1]["before"]
    word = {"last": "last", "id": before[:8], "label": "good"}[ref]
    cli("label", "2", "good")
    whole = cli.json("diff", "2")
    assert [change["path"] for change in whole["changes"]] == ["file-2"]
    assert cli.json("diff", word) == whole
    rollback = RollbackCommand(manager, project)
    assert str(rollback.run(f"diff {word}")) == str(rollback.run("diff 2"))
    assert len(cli.json("diff", word, "@")["changes"]) == 2
    plans = [cli.json("revert", each, "-n") for each in (word, "2")]
    assert plans[0]["deleted"] == plans[1]["deleted"] == ["file-2"]
    assert cli.json("revert", "--turn", word, "-n")["what"] == "turn 2: turn 2"
    assert "took out turn 2" in str(rollback.run(f"turn {word}"))
    assert not (project / "file-2").exists() and (project / "file-1").exists()


def test_last_is_the_turn_that_is_not_undone(cli: CommandLine, project: Path) -> None:
    """The undone turn begins with the same state as the one before it, which changed nothing."""
    manager = CheckpointManager()
    for number in (1, 2):
        manager.new_turn("session", prompt=f"turn {number}")
        manager.before_tool("Bash", {"command": "make"}, project)
        if number == 2:
            (project / "file").write_text("x\n")
        manager.end_turn()
    cli("undo", "-y")
    assert cli.json("show", "last")["entry"]["number"] == 1


def test_what_is_no_turn_is_not_reverted(turns: CommandLine) -> None:
    assert "'2:after' is the end of turn 2, and no turn" in error(turns, "revert", "2:after", code=2)
    assert "'last' is snapshot 3, and no turn" in error(turns, "revert", "last", code=2)
    assert "number 3 of " in (text := error(turns, "revert", "3")) and "is a snapshot" in text
    assert "there is no record of turn 9" in error(turns, "revert", "9")


# --- what is not there ----------------------------------------------------------------------------------------


def test_a_number_that_was_dropped_is_told_from_one_that_never_was(cli: CommandLine, project: Path) -> None:
    for number in range(3):
        (project / "README.md").write_text(f"{number}\n")
        cli.snap()
    cli("delete", "2", "3", "-y")
    for words in (("show", "2"), ("show", "3"), ("diff", "2"), ("revert", "3")):
        assert "is not kept any more / a limit or `shadowsnap delete` dropped it" in error(cli, *words)
    assert "there is no record of number 4" in error(cli, "show", "4")


def test_where_nothing_was_taken_the_hint_names_the_commands(cli: CommandLine, project: Path) -> None:
    assert re.fullmatch(
        f"there are no checkpoints of {project} / shadowsnap snap takes one; shadowsnap install AGENT .*",
        error(cli, "show", "1"),
    )
    cli.snap()
    cli("delete", "1", "-y")
    assert "there are no checkpoints of" in error(cli, "list")
    assert "/nope, which does not exist / shadowsnap list --all-projects" in error(cli, "-C", "/nope", "list")


def test_a_path_that_is_known_nowhere_is_an_error_of_diff_too(turns: CommandLine, project: Path) -> None:
    assert "'nope' is neither in the state before turn 2 nor" in error(turns, "diff", "2", "@", "--", "nope")
    text = error(turns, "diff", "1", "2", "--", "README.md", "nope")
    assert "'nope' is neither in the state before turn 1, nor in the state before turn 2 nor" in text
    assert "'nope' is neither in" in error(turns, "diff", "--", "nope")
    (project / "notes" / "a.txt").unlink()
    (project / "notes").rmdir()
    for path in ("notes", "notes/a.txt", "."):
        assert turns.json("diff", "2", "@", "--", path)["changes"]
    turns("diff", "1", "2", "--", "README.md")


def test_a_state_has_one_name_in_every_message(turns: CommandLine) -> None:
    name = "the state before turn 2"
    for words in (("restore", "2", "x", "-n"), ("ls", "2", "x"), ("cat", "2", "x"), ("diff", "2", "@", "--", "x")):
        text = error(turns, *words)
        assert text.startswith(f"'x' is neither in {name} nor among the captured files now / ")
        assert "shadowsnap ls " in text
    turns("pin", "2")
    assert error(turns, "delete", "2", code=4) == f"{name} is pinned / unpin it first: shadowsnap unpin 2"


def test_a_directory_is_no_file_to_print(turns: CommandLine) -> None:
    text = error(turns, "cat", "2", "notes")
    what = "'notes' is a directory in the state before turn 2"
    assert text == f"{what} / to see what is in it: shadowsnap ls 2 notes"


@pytest.mark.parametrize(
    "words",
    [("ls", "1"), ("cat", "1"), ("restore", "1"), ("diff", "1", "--"), ("blame",), ("list", "--file"), ("purge",)],
)
def test_a_path_outside_is_refused_in_the_same_words(turns: CommandLine, words: Sequence[str]) -> None:
    for path in ("/etc/passwd", "../x"):
        assert f"path '{path}' is refused: it lies outside the project" in error(turns, *words, path, code=4)


def test_a_short_part_of_a_session_is_named_as_such(turns: CommandLine) -> None:
    for words in (("list", "--session", "0a1"), ("sessions", "show", "0a1"), ("revert", "--session", "0a1")):
        assert "give at least 4 characters of its id" in error(turns, *words)
    text = error(turns, "revert", "--session", "zzzz")
    assert "shadowsnap sessions lists those" in text and "session zzzz" in text
    assert turns.json("list", "--session", "0a1b")["entries"]


def test_a_session_without_a_conversation_is_not_called_a_checkpoint(turns: CommandLine) -> None:
    text = error(turns, "sessions", "show", "0a1b", "--chat")
    assert text.startswith("no conversation is kept with any turn of session 0a1b2c3d-4e5f / shadowsnap docs ")


# --- what is shown ---------------------------------------------------------------------------------------------


def test_a_state_is_not_shown_as_what_the_turn_after_it_did(turns: CommandLine) -> None:
    turns("label", "2", "here")
    states = [each for each in turns.json("list", "--checkpoints")["checkpoints"] if each["turn"] == 2]
    state = next(each for each in states if each["kind"] in ("turn", "turn-end"))
    out = turns("show", state["id"][:10]).out
    if state["kind"] == "turn":
        assert "before turn 2:\n" in out
    assert "changed since the checkpoint before it:" in out
    listed = turns("list", "--checkpoints").out
    assert "  1 file, +1" in listed and "in 1 file" not in listed  # counted as in the timeline
    assert "before turn 1: write notes" in listed


def test_an_undo_says_that_it_merged_only_if_it_did(cli: CommandLine, project: Path) -> None:
    manager = CheckpointManager()
    lines = "".join(f"{number}\n" for number in range(20))
    (project / "both").write_text(lines)
    manager.new_turn("session", prompt="change a line")
    manager.ensure_checkpoint(project)
    (project / "both").write_text(lines.replace("3\n", "three\n", 1))
    manager.end_turn()
    (project / "README.md").write_text("mine\n")
    assert cli.json("undo", "-n")["note"] == "" and cli("undo", "-y").err == ""
    cli("redo", "-y")
    with (project / "both").open("a") as file:
        file.write("mine\n")
    assert cli.json("undo", "-n")["note"] == "merged with what was edited since: both"
    assert "merged with what was edited since: both" in cli("undo", "-y").err
    assert (project / "both").read_text() == f"{lines}mine\n"


def test_a_turn_without_a_prompt_has_one_name(cli: CommandLine, project: Path) -> None:
    manager = CheckpointManager()
    manager.new_turn("session")
    manager.before_tool("Bash", {"command": "make"}, project)
    (project / "file").write_text("x\n")
    manager.end_turn()
    texts = cli("list").out, cli("restore", "1", "-n").out, cli("pin", "1").out
    assert all("(no prompt)" in text and "before Bash" not in text for text in texts), texts
    assert "takes out turn 1: (no prompt)" in texts[1]


def test_the_prompts_of_a_blame_have_the_room_that_there_is(
    cli: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager()
    manager.new_turn("session", prompt="a prompt that is somewhat longer than a narrow terminal has room for")
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("by the agent\n")
    manager.end_turn()
    assert "longer than a narrow" not in cli("blame", "README.md").out
    monkeypatch.setenv("COLUMNS", "210")
    assert "a prompt that is somewhat longer than a narrow terminal has room for" in cli("blame", "README.md").out


def test_a_project_whose_directory_is_gone_says_so(turns: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("x\n")
    CheckpointManager().snapshot(other)
    assert "(gone)" not in turns("list", "--all-projects").out
    (other / "file").unlink()
    other.rmdir()
    lines = [line for line in turns("list", "--all-projects").out.splitlines() if "(gone)" in line]
    assert len(lines) == 1 and lines[0].endswith("/other (gone)")


def test_a_session_of_two_projects_says_so(cli: CommandLine, project: Path, tmp_path: Path) -> None:
    manager = CheckpointManager()
    for number, directory in enumerate((project, tmp_path / "other")):
        directory.mkdir(exist_ok=True)
        manager.new_turn("session", prompt=f"turn {number}")
        manager.ensure_checkpoint(directory)
        (directory / "file").write_text("x\n")
        manager.end_turn()
    assert "turns    2, in 2 projects" in cli("sessions", "show", "session").out


def test_a_wrong_status_of_a_session_is_the_fault_of_the_call(turns: CommandLine) -> None:
    CheckpointManager().end_session("0a1b2c3d-4e5f", "foo")  # type: ignore[arg-type]
    (failure,) = turns.json("status", "--store")["failures"]
    assert "'foo' is not one of" in failure["what"] and failure["advice"].startswith("correct the call")


def test_the_hooks_that_status_runs_itself_are_not_what_happened(turns: CommandLine, project: Path) -> None:
    event = {"hook_event_name": "PreToolUse", "tool_name": "Write", "session_id": "s", "cwd": str(project)}
    command = [sys.executable, "-m", "shadowsnap", "hook", "claude"]
    tool, probe = {"tool_input": {"file_path": str(project / "x")}}, {"hook_event_name": "shadowsnap-probe"}
    for given in ({**event, **tool}, {**event, **probe}):
        subprocess.run(command, input=json.dumps(given).encode(), cwd=project, check=True, capture_output=True)
    assert {each["status"] for each in read_log()} >= {"taken", "probe"}
    assert all(each["status"] != "probe" for each in turns.json("status", "--store")["hooks"])


# --- wrong words ------------------------------------------------------------------------------------------------


def test_a_file_in_place_of_a_state_is_explained_by_what_the_command_takes(turns: CommandLine) -> None:
    assert "put -- before it: -- README.md" in error(turns, "diff", "README.md")
    assert "put -- before it: -- README.md" in error(turns, "restore", "README.md")
    assert "shadowsnap list --file README.md" in error(turns, "show", "README.md")
    assert "-- ''" not in error(turns, "diff", "", code=2)
    assert "put -- before paths" in error(turns, "diff", "2", "@", "README.md", code=2)


def test_a_range_that_ends_before_it_begins_is_named_as_such(turns: CommandLine) -> None:
    assert "ends before it begins" in error(turns, "blame", "README.md", "-L", "3,2", code=2)
    assert "the file has 2 lines" in error(turns, "blame", "README.md", "-L", "9,10", code=2)


@pytest.mark.parametrize("words", [("report", "-o", "-"), ("sessions",)])
def test_moments_are_read_in_one_way(turns: CommandLine, words: Sequence[str]) -> None:
    for moment in ("today", "yesterday", "30min", "8h", "2d", "1w", "2026-01-31", "2026-01-31T12:00"):
        turns(*words, "--since", moment)
    text = turns(*words, "--since", "foo", code=2).err
    assert all(form in text for form in ("2026-01-31T12:00", "today", "8h", "2d", "1w"))


def test_every_dry_run_has_a_short_form() -> None:
    for name, command in load_all().items():
        options = [each.option_strings for each in command_parser(command)._actions]
        assert all("-n" in each for each in options if "--dry-run" in each), name


def test_delete_shows_first_what_would_go(turns: CommandLine) -> None:
    before = turns.ids()
    answer = turns.json("delete", "2", "3", "-n")
    assert len(answer["checkpoints"]) == 2 and answer["dry_run"] is True
    assert "2 checkpoints would be gone" in turns("delete", "2", "3", "--dry-run").out
    assert turns.ids() == before
    assert "--dry-run shows what it would do" in error(turns, "delete", "2", code=4)


def test_usage_is_one_line_in_plain_words(turns: CommandLine) -> None:
    texts = [error(turns, "sessions", *words, code=2) for words in (("--limit", "x"), ("foo",))]
    assert len({text.partition("usage: ")[2] for text in texts}) == 1
    assert "usage: shadowsnap report -o FILE [--session ID]" in error(turns, "report", code=2)
    assert turns("purge", "--help").out.startswith("usage: shadowsnap purge PATH... [-n]")
    for words, text in (
        (("sessions", "foo"), "'foo' is none of list, show / "),
        (("revert", "1", "--on-conflict", "x"), "--on-conflict 'x' is none of keep, markers, theirs / "),
        (("list", "--limit", "x"), "--limit 'x' is not a whole number / "),
        (("prune", "--retention-days", "x"), "--retention-days 'x' is not a number / "),
        (("completion",), "missing: bash|zsh|fish|offer / "),
        (("cat", "1"), "missing: PATH / "),
        (("version",), "there is no command 'version' / shadowsnap --version shows it"),
    ):
        assert error(turns, *words, code=2).startswith(text), words


def test_a_question_that_cannot_be_asked_says_how_much_would_go(turns: CommandLine) -> None:
    assert f"{len(turns.ids())} checkpoints would be gone" in error(turns, "clear", code=4)


# --- the machine ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="no /dev")
def test_a_store_that_is_no_directory_is_named_as_such(cli: CommandLine, project: Path, tmp_path: Path) -> None:
    for place in ("/dev/null", project / "README.md"):
        for words in (("snap",), ("list",)):
            done = cli.process(*words, "--json", SHADOWSNAP_HOME=str(place))
            assert b"it is not a directory" in done.stdout and b"SHADOWSNAP_HOME" in done.stdout, done


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_an_answer_that_cannot_be_written_is_named_as_such(turns: CommandLine, project: Path) -> None:
    for words in (("list",), ("cat", "1", "README.md"), ("list", "--json")):
        with open("/dev/full", "wb") as full:
            command = [sys.executable, "-m", "shadowsnap", *words]
            done = subprocess.run(command, cwd=project, stdout=full, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(b"error: the answer could not be written: No space left"), words
        assert b"Exception ignored" not in done.stderr


def test_the_demo_needs_git(cli: CommandLine, tmp_path: Path) -> None:
    done = cli.process("demo", "--json", PATH=str(tmp_path))
    assert b"git was not found on the PATH" in done.stdout


def test_an_early_ctrl_c_is_no_traceback(project: Path) -> None:
    code = """
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "shadowsnap.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from shadowsnap.__main__ import main
sys.argv = ["shadowsnap", "list"]
raise SystemExit(main())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "error: interrupted; nothing was left half done\n")
