"""/rollback in a chat."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import ageless

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.agents.slash import HELP, RollbackCommand
from shadowsnap.cli.main import main


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


@pytest.fixture
def chat(manager: CheckpointManager, project: Path) -> RollbackCommand:
    return RollbackCommand(manager, project)


def take(manager: CheckpointManager, project: Path, text: str, prompt: str | None = None) -> None:
    """One turn: a checkpoint, then the agent writes."""
    manager.new_turn("s1", prompt=prompt)
    manager.before_tool("Write", {"path": "README.md"}, project)
    (project / "README.md").write_text(text)
    manager.end_turn()


def content(project: Path) -> str:
    return (project / "README.md").read_text()


def test_without_checkpoints_it_says_so(chat: RollbackCommand) -> None:
    answer = chat.run("/rollback")
    assert (answer.ok, answer.action, answer.entries) == (True, "list", ())
    assert "no history yet" in str(answer)


@pytest.mark.parametrize("line", ["/rollback", "rollback", "", "  ", "/rollback list", "/ROLLBACK"])
def test_the_list(line: str, chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    for text in ("one\n", "two\n"):
        take(manager, project, text, f"write {text}")
    (project / "empty").write_text("mine\n")
    answer = chat.run(line)
    lines = ageless(str(answer)).splitlines()
    assert lines[0] == "  @            now  1 file differs from the end of turn 2"
    assert [row.partition("  now       ")[2].split("  ")[0] for row in lines[1:3]] == ["write two", "write one"]
    assert [row.split()[0] for row in lines[1:3]] == ["2", "1"] == [str(each.number) for each in answer.entries]
    assert "/rollback N" in lines[-1]


def test_the_numbers_and_words_are_those_of_the_command_line(
    manager: CheckpointManager, chat: RollbackCommand, project: Path, base: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:  # fmt: skip
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(project)
    for text in ("one\n", "two\n"):
        take(manager, project, text, f"write {text}")
    chat.run("/rollback undo")
    assert main(["list"]) == 0
    _, *listed = ageless(capsys.readouterr().out).splitlines()
    assert ageless(str(chat.run("/rollback"))).splitlines()[:-1] == listed
    assert main(["--json", "list"]) == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert chat.run("/rollback").to_dict()["entries"] == entries


def test_a_number_brings_everything_back_and_says_how_to_undo(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    before = manifest(project)
    take(manager, project, "changed\n")
    (project / "made by the agent").write_text("x")
    after = manifest(project)
    answer = chat.run("/rollback 1")
    assert manifest(project) == before
    assert answer.action == "restore" and answer.ok
    assert answer.result is not None and answer.result.written == ("README.md",)
    assert "wrote    README.md" in str(answer) and "deleted  made by the agent" in str(answer)
    assert str(answer).endswith("to take it back: /rollback undo")
    assert chat.run("/rollback undo").ok
    assert manifest(project) == after
    assert str(chat.run("/rollback redo")).endswith("to take it back: /rollback undo")
    assert manifest(project) == before


def test_numbers_never_change_their_meaning(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    take(manager, project, "one\n")
    take(manager, project, "two\n")
    chat.run("/rollback")
    take(manager, project, "three\n")
    chat.run("/rollback 2")  # to before "two" was written, however many came since
    assert content(project) == "one\n"
    assert RollbackCommand(manager, project).run("/rollback 1").ok  # another conversation has the same numbers
    assert content(project) == "# A project\n"
    chat.run("/rollback 3:after")
    assert content(project) == "three\n"


def test_undo_takes_back_the_last_turn(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "one\n", "write one")
    take(manager, project, "two\n", "write two")
    answer = chat.run("/rollback undo")
    assert str(answer).startswith("took back turn 2: write two: 1 file written\n")
    assert str(answer).endswith("to take it back: /rollback redo") and content(project) == "one\n"
    assert "(undone) write two" in str(chat.run("/rollback"))
    assert str(chat.run("/rollback redo")).startswith("brought back turn 2: write two: 1 file written\n")
    assert content(project) == "two\n"


def test_a_file_that_was_not_captured_is_never_passed_over(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    take(manager, project, "one\n")
    for line in ("/rollback 1 .env", "/rollback 1 README.md .env"):
        answer = chat.run(line)
        assert not answer.ok and "turn 1 does not hold '.env': it was not captured (secret)" in str(answer)
    assert content(project) == "one\n"


@pytest.mark.skipif(os.name == "nt", reason="permissions")
def test_what_only_looks_works_on_a_store_that_cannot_be_written(
    as_user: Callable[..., Any], project: Path, base: Path
) -> None:
    assert as_user(_looks_at_a_read_only_store, project, base) == []


def _looks_at_a_read_only_store(project: Path, base: Path) -> list[str]:
    """The lines that failed; in a process that is not root."""
    manager = CheckpointManager(base=base, fsync=False)
    take(manager, project, "one\n", "write one")
    take(manager, project, "two\n", "write two")
    places = [base, *base.rglob("*")]
    modes = {place: place.stat().st_mode for place in places}
    for place in places:
        place.chmod(modes[place] & ~0o222)
    try:
        chat = RollbackCommand(CheckpointManager(base=base), project)
        lines = ("", "diff 1", "diff 1 @", "diff 1 2", "help")
        answers = {line: chat.run(line) for line in lines}
        # Where only chmod closed the store, a repair could open it: a disk or a sandbox is not opened like that.
        opened = [str(place) for place in places if place.exists() and place.stat().st_mode & 0o222]
        return [f"{line}: {answer}" for line, answer in answers.items() if not answer.ok] + opened
    finally:
        for place in places:
            place.chmod(modes[place])


def test_ids_and_labels_work_too(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "one\n")
    take(manager, project, "two\n")
    first = manager.list_checkpoints(project)[-1]
    assert chat.run(f"/rollback {first.short_id}").ok
    assert content(project) == "# A project\n"
    chat.run("/rollback undo")
    manager.label(project, first.id, "start")
    assert chat.run("/rollback start").ok
    assert content(project) == "# A project\n"


def test_single_files_with_quoted_names(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    (project / "my file.txt").write_text("mine\n")
    take(manager, project, "changed\n")
    (project / "my file.txt").write_text("theirs\n")
    (project / "src" / "main.py").unlink()
    answer = chat.run("/rollback 1 \"my file.txt\" 'src/main.py'")
    assert answer.ok
    assert (project / "my file.txt").read_text() == "mine\n"
    assert (project / "src" / "main.py").exists()
    assert content(project) == "changed\n"


def test_a_file_may_be_named_in_full(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "changed\n")
    assert chat.run(f"/rollback 1 '{project / 'README.md'}'").ok
    assert content(project) == "# A project\n"


def test_a_diff_against_now_and_between_two(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    take(manager, project, "one\n")
    take(manager, project, "two\n")
    answer = chat.run("/rollback diff 2")
    assert answer.diff is not None and [change.path for change in answer.diff.changes] == ["README.md"]
    assert str(answer).startswith("what turn 2 did:\n") and "-one" in str(answer) and "+two" in str(answer)
    against_now = str(chat.run("/rollback diff 1 @"))
    assert "-# A project" in against_now and "+two" in against_now
    between = str(chat.run("/rollback diff 1 2"))
    assert "-# A project" in between and "+one" in between and "+two" not in between
    assert "no difference" in str(chat.run("/rollback diff 1 1"))


def test_a_long_diff_is_cut_with_a_count(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "".join(f"line {number}\n" for number in range(1000)))
    for number in range(50):
        (project / f"new-{number:02}").write_text("x\n")
    text = str(chat.run("/rollback diff 1 @"))
    assert len(text.splitlines()) < 250
    # Of 51 paths 30 are shown; the patch is cut after 200 lines.
    assert "... and 21 more paths\n  51 paths, +" in text
    shown = len(chat.run("/rollback diff 1 @").diff.text.splitlines())
    assert f"... and {shown - 200} more lines" in text


def test_a_long_line_is_cut_with_a_count(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "x" * 50_000 + "\n")
    text = str(chat.run("/rollback diff 1"))
    assert len(text) < 3000
    assert "x ... and 49001 more characters" in text  # and the plus sign is one


def test_nothing_at_all_is_a_list(
    chat: RollbackCommand, manager: CheckpointManager, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(manager, project, "one\n")
    monkeypatch.setattr("sys.stdin", None)  # never read
    assert chat.run(None).action == "list"  # type: ignore[arg-type]


def test_a_pin_keeps_and_names(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "one\n")
    answer = chat.run("/rollback pin 1 before-the-flood")
    assert answer.checkpoint is not None and answer.checkpoint.pinned
    pinned = manager.get(project, "before-the-flood")
    assert pinned.pinned
    assert chat.run("/rollback pin 1").ok


def test_a_name_that_is_refused_leaves_no_pin(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    take(manager, project, "one\n")
    assert not chat.run("/rollback pin 1 last").ok
    assert not manager.get(project, "last").pinned


def test_help_is_always_there(chat: RollbackCommand) -> None:
    assert str(chat.run("/rollback help")) == HELP


def test_restoring_what_is_there_already_is_no_news(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    take(manager, project, "# A project\n")
    assert "nothing to do" in str(chat.run("/rollback 1"))


@pytest.mark.parametrize(
    "line",
    [
        "/rollback 0", "/rollback 99", "/rollback -1", "/rollback zzzz", "/rollback diff", "/rollback diff 1 1 1",
        "/rollback redo", "/rollback undo now", "/rollback pin", "/rollback 1 'open",
        "/rollback 1 ../outside", "/rollback 1 /etc/passwd", "/rollback 1 no-such-file", "/rollback --help",
        "/rollback \0", "/rollback " + "x" * 5000, "/rollback ²", "/rollback 1 .git/config",
    ],
)  # fmt: skip
def test_nothing_raises_and_every_error_is_told(
    line: str, chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    take(manager, project, "one\n")
    before = manifest(project)
    answer = chat.run(line)
    assert (answer.ok, answer.action) == (False, "error")
    assert answer.error is not None and str(answer)
    assert manifest(project) == before
    assert "error" in answer.to_dict()


def test_a_project_that_is_gone_does_not_raise(manager: CheckpointManager, tmp_path: Path) -> None:
    chat = RollbackCommand(manager, tmp_path / "gone")
    assert chat.run("/rollback").ok
    for line in ("/rollback 1", "/rollback undo", "/rollback diff 1"):
        assert not chat.run(line).ok


def test_names_cannot_play_with_the_terminal(
    chat: RollbackCommand, manager: CheckpointManager, project: Path
) -> None:
    take(manager, project, "one\n")
    (project / "evil\x1b[2J").write_text("x\n")
    for line in ("/rollback diff 1", "/rollback 1"):
        assert "\x1b" not in str(chat.run(line))


def test_answers_are_data_too(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "one\n")
    for line in ("/rollback", "/rollback diff 1", "/rollback 1", "/rollback pin 1", "/rollback nonsense"):
        told = json.loads(json.dumps(chat.run(line).to_dict(), default=str))
        assert told["text"] and told["action"]


# --- from the command line ------------------------------------------------------------------------------


def test_undo_has_an_end(chat: RollbackCommand, manager: CheckpointManager, project: Path) -> None:
    take(manager, project, "one\n")
    assert chat.run("/rollback undo").ok
    assert "is left to undo" in str(chat.run("/rollback undo"))


def test_the_command_line_has_the_same_numbers(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.chdir(project)
    manager = CheckpointManager()
    take(manager, project, "one\n", "write it")
    assert main(["rollback"]) == 0
    assert "write it" in capsys.readouterr().out
    take(manager, project, "two\n")
    assert main(["rollback", "1"]) == 0
    assert content(project) == "# A project\n"
    assert "to take it back: /rollback undo" in capsys.readouterr().out
    assert main(["rollback", "undo"]) == 0
    assert content(project) == "two\n"


def test_the_command_line_takes_the_line_as_words_or_as_one(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.chdir(project)
    (project / "my file").write_text("mine\n")
    take(CheckpointManager(), project, "one\n")
    for words in (["1", "my file"], ['1 "my file"']):
        (project / "my file").write_text("theirs\n")
        assert main(["rollback", *words]) == 0
        assert (project / "my file").read_text() == "mine\n"
    capsys.readouterr()
    assert main(["rollback", "999"]) == 0  # agents hide the output of a command that fails
    assert "there is no record of number 999" in capsys.readouterr().out
    assert main(["rollback", "--json", "diff 1"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["action"] == "diff"
    assert os.getcwd() == str(project)
