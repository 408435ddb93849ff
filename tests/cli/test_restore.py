"""restore, undo and redo on the command line: plans, questions, the picker, Ctrl-C."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, ageless, on_terminal
from forking import program, run_child

from helpers import manifest
from shadowsnap import CheckpointManager, deadline

QUESTION = "go ahead? [y]es [N]o [d]iff [s]ome files "
SHORT_QUESTION = "go ahead? [y]es [N]o [d]iff "
PICK = "? helps) "
WHICH = "with spaces between them: "
needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="no pty")


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """One checkpoint, and since then a changed, a new, a deleted and an uncaptured file."""
    cli = CommandLine(project, base, monkeypatch, capsys)
    (project / ".env").write_text("TOKEN=1\n")
    cli.snap("start")
    (project / "README.md").write_text("# Changed\n")
    (project / "new.txt").write_text("new\n")
    (project / "run.sh").unlink()
    return cli


# --- without a terminal -----------------------------------------------------------------------------------


def test_without_yes_nothing_happens_and_the_exit_code_is_4(cli: CommandLine, project: Path) -> None:
    before = manifest(project)
    ran = cli("restore", "last", code=4)
    assert ran.out == ""
    assert "this would change files (1 back, 1 overwritten, 1 deleted, 1 kept), and there is no" in ran.err
    assert "--yes" in ran.err
    assert cli.json("restore", "last", code=4)["error"]["type"] == "NotConfirmed"
    assert manifest(project) == before
    assert len(cli.ids()) == 1


def test_what_is_wrong_anyway_is_told_before_the_missing_yes(cli: CommandLine) -> None:
    assert cli.json("restore", "abcd", code=3)["error"]["type"] == "NoSuchCheckpoint"
    assert cli.json("restore", "last", "nothing", code=3)["error"]["type"] == "NoSuchPath"
    assert cli.json("restore", code=2)["error"]["type"] == "WrongUsage"
    assert cli.json("restore", "--yes", code=2)["error"]["type"] == "WrongUsage"
    assert cli.json("undo", code=3)["error"]["type"] == "NothingToUndo"


def test_a_dry_run_is_the_plan_and_changes_nothing(cli: CommandLine, project: Path) -> None:
    before = manifest(project)
    lines = cli("restore", "last", "-n").out.splitlines()
    assert lines[0].startswith("restore ") and len(lines[0]) <= 80
    assert lines[1:] == [
        "  comes back      run.sh     +2 -0",
        "  is overwritten  README.md  +1 -1",
        "  is deleted      new.txt    +0 -1",
        "  is kept         .env       (secret at the checkpoint)",
        "  1 back, 1 overwritten, 1 deleted, 1 kept",
        "  takes out your own edits (3 files)",
    ]
    plan = cli.json("restore", "last", "--dry-run", "--yes")
    assert (plan["applied"], plan["dry_run"]) == (False, True)
    assert (plan["written"], plan["deleted"]) == (["README.md", "run.sh"], ["new.txt"])
    counts = {change["path"]: (change["insertions"], change["deletions"]) for change in plan["changes"]}
    assert counts == {"README.md": (1, 1), "new.txt": (0, 1), "run.sh": (2, 0)}
    assert "+# A project" in plan["patch"] and "-# Changed" in plan["patch"]
    assert manifest(project) == before
    assert len(cli.ids()) == 1


def test_restore_tells_what_it_did_and_how_to_take_it_back(cli: CommandLine, project: Path) -> None:
    changed = manifest(project)
    lines = cli("restore", "last", "--yes").out.splitlines()
    assert lines == [
        "restored to snapshot 1: 2 files written, 1 deleted, 1 kept",
        "  wrote    README.md",
        "  wrote    run.sh",
        "  deleted  new.txt",
        "  kept     .env (secret at the checkpoint)",
        "to take it back: shadowsnap undo --yes",
    ]
    assert (project / "README.md").read_text() == "# A project\n"
    restored = manifest(project)
    take_back = lines[-1].partition(": ")[2]
    undone = cli(*shlex.split(take_back)[1:]).out
    assert undone.startswith("took back the restore to snapshot 1\n") and "shadowsnap redo --yes" in undone
    assert manifest(project) == changed
    redone = cli("redo", "-y").out
    assert redone.startswith("brought back the restore to snapshot 1\n") and "shadowsnap undo --yes" in redone
    assert manifest(project) == restored
    for text in (undone, redone):  # never a bare hash
        assert not re.search(r"\b[0-9a-f]{7,}\b", text)


def test_the_line_that_takes_it_back_works_from_where_the_person_is(cli: CommandLine, project: Path) -> None:
    os.chdir(project.parent)
    line = cli.json("-C", "project", "restore", "last", "--yes")["undo"]
    assert line == f"shadowsnap -C {project} undo --yes"
    cli(*shlex.split(line)[1:])
    assert (project / "new.txt").exists()


def test_restoring_what_is_there_needs_no_confirmation(cli: CommandLine, project: Path) -> None:
    cli.snap()
    ran = cli("restore", "last")
    assert ran.out.startswith("nothing to restore: the files are as snapshot 2\n")
    assert "take it back" not in ran.out
    assert "undo" not in cli.json("restore", "last")


@pytest.mark.parametrize("spell", ["relative", "absolute", "dashes", "directory"])
def test_some_paths(cli: CommandLine, project: Path, spell: str) -> None:
    words = {
        "relative": ["./README.md"],
        "absolute": [str(project / "README.md")],
        "dashes": ["--", "README.md"],
        "directory": ["src", "README.md"],
    }[spell]
    result = cli.json("restore", "--yes", "last", *words)
    assert (result["written"], result["deleted"]) == (["README.md"], [])
    assert (project / "new.txt").exists()


def test_options_may_stand_between_the_paths(cli: CommandLine, project: Path) -> None:
    assert cli.json("restore", "last", "--dry-run", "README.md", "-C", ".", "run.sh")["written"] == [
        "README.md",
        "run.sh",
    ]


def test_a_path_through_a_link_that_leads_out_is_refused(cli: CommandLine, project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (project / "door").symlink_to(tmp_path / "outside")
    for word in ("door/x", str(project / "door" / "x"), ".git/config"):
        assert cli.json("restore", "last", word, "--yes", code=4)["error"]["type"] == "PathRefused"


def test_names_in_a_plan_are_harmless(cli: CommandLine, project: Path) -> None:
    (project / "\x1b]0;title\x07\n\u202e").write_text("x")
    out = cli("restore", "last", "--dry-run").out
    assert "  is deleted      \\x1b]0;title\\x07\\n\\u202e " in out
    assert "\x1b" not in out and "\x07" not in out


# --- on a terminal ----------------------------------------------------------------------------------------


@needs_terminal
def test_on_a_terminal_the_plan_is_shown_and_yes_does_it(cli: CommandLine, project: Path) -> None:
    code, screen = cli.terminal("--no-color", "restore", "last", answers=[(QUESTION, "y\n")])
    assert code == 0
    asked, done = screen.split(QUESTION)
    assert "  is overwritten  README.md  +1 -1\n" in asked and "  is deleted      new.txt    +0 -1\n" in asked
    assert "  is kept         .env       (secret at the checkpoint)\n" in asked
    assert "restored to snapshot 1: " in done and "to take it back: shadowsnap undo\n" in done
    assert "wrote" not in done  # it was just shown
    assert not (project / "new.txt").exists()


@needs_terminal
@pytest.mark.parametrize("answer", ["n\n", "\n", "yesterday\n", "\x04"])
def test_on_a_terminal_anything_but_yes_leaves_all_as_it_is(
    cli: CommandLine, project: Path, answer: str
) -> None:
    before = manifest(project)
    code, screen = cli.terminal("restore", "last", answers=[(QUESTION, answer)])
    assert code == 0 and screen.endswith("cancelled; nothing was changed\n")
    assert manifest(project) == before


@needs_terminal
def test_on_a_terminal_yes_does_not_ask(cli: CommandLine, project: Path) -> None:
    code, screen = cli.terminal("--no-color", "restore", "last", "--yes")
    assert code == 0 and "[y]es" not in screen and "wrote    README.md" in screen


@needs_terminal
def test_on_a_terminal_json_does_not_ask(cli: CommandLine, project: Path) -> None:
    code, screen = cli.terminal("restore", "last", "--json")
    assert code == 4 and '"NotConfirmed"' in screen and (project / "new.txt").exists()


@needs_terminal
def test_a_long_plan_is_shortened_before_the_question(cli: CommandLine, project: Path) -> None:
    for number in range(50):
        (project / f"more-{number}").write_text("x")
    _, screen = cli.terminal("--no-color", "restore", "last", answers=[(QUESTION, "n\n")])
    assert screen.count("  is deleted      ") == 21
    assert "  is deleted      ... and 31 more\n" in screen
    assert "51 deleted" in screen
    assert len(cli.json("restore", "last", "-n")["deleted"]) == 51


@needs_terminal
def test_undo_and_redo_ask_too(cli: CommandLine, project: Path) -> None:
    cli("restore", "last", "--yes")
    code, screen = cli.terminal("undo", answers=[(SHORT_QUESTION, "n\n")])
    assert code == 0 and "cancelled; nothing was changed" in screen and "[s]ome" not in screen
    assert not (project / "new.txt").exists()
    code, screen = cli.terminal("--no-color", "undo", answers=[(SHORT_QUESTION, "d\n"), (SHORT_QUESTION, "y\n")])
    assert code == 0 and "to take it back: shadowsnap redo\n" in screen
    assert "+# Changed\n" in screen and "  comes back      new.txt    +1 -0\n" in screen
    assert (project / "new.txt").exists()
    assert cli.terminal("redo", answers=[(SHORT_QUESTION, "y\n")])[0] == 0
    assert not (project / "new.txt").exists()


# --- the picker -------------------------------------------------------------------------------------------


@needs_terminal
@pytest.mark.parametrize("answer", ["\n", "0\n", "\x04"])
def test_the_first_row_of_the_picker_leaves_everything_as_it_is(
    cli: CommandLine, project: Path, answer: str
) -> None:
    before = manifest(project)
    code, screen = cli.terminal("--no-color", "restore", answers=[(PICK, answer)])
    assert code == 0
    lines = ageless(screen).splitlines()
    assert lines[0].startswith("  @            (now) leave everything as it is: 3 files differ")
    assert lines[1].startswith("  1  now       start ") and lines[1].endswith("  1 back, 1 overwritten, 1 deleted")
    assert lines[2] == "1 row"
    assert lines[-1] == "everything is left as it is"
    assert max(map(len, lines[:-2])) <= 80
    assert manifest(project) == before


@needs_terminal
def test_picking_shows_the_plan_and_asks(cli: CommandLine, project: Path) -> None:
    cli.snap("later")
    code, screen = cli.terminal("--no-color", "restore", answers=[(PICK, "1\n"), (QUESTION, "y\n")])
    assert code == 0 and "2 rows\n" in screen and "to snapshot 1" in screen
    assert re.search(r"^  2  now +later +as now$", ageless(screen), re.MULTILINE)
    assert (project / "README.md").read_text() == "# A project\n"


@needs_terminal
def test_the_picker_asks_again_and_takes_any_reference(cli: CommandLine, project: Path) -> None:
    cli("label", "last", "good")
    answers = [(PICK, "17\n"), (PICK, "-x\n"), (PICK, "?\n"), (PICK, "good\n"), (QUESTION, "n\n")]
    code, screen = cli.terminal("restore", answers=answers)
    assert code == 0
    assert "there is no record of number 17" in screen and "'-x' is not a checkpoint reference" in screen
    assert "3:after  go to the end of turn 3" in screen


@needs_terminal
def test_the_picker_finds_and_previews(cli: CommandLine, project: Path) -> None:
    before = manifest(project)
    for number in range(12):
        (project / "empty").write_text(str(number))
        cli.snap(f"step {number:02}")
    answers = [(PICK, "/STEP 07\n"), (PICK, "d 1\n"), (PICK, "d nothing\n"), (PICK, "/\n"), (PICK, "\n")]
    code, screen = cli.terminal("--no-color", "restore", answers=answers, LINES="12")
    assert code == 0
    first, found, preview, wrong, again, _ = screen.split(PICK)
    assert "13 rows, the newest 7 are shown; /text finds the others\n" in first
    assert re.findall(r"^ +(\d+)  ", found, re.MULTILINE) == ["9"] and "1 row\n" in found
    assert "  is overwritten  README.md  +1 -1\n" in preview and "\n+# A project\n" in preview
    assert "there is no checkpoint 'nothing'" in wrong
    assert again.count("step ") == 7
    (project / "empty").write_text("")
    assert manifest(project) == before  # it only looked


@needs_terminal
def test_some_of_the_files_can_be_chosen(cli: CommandLine, project: Path) -> None:
    answers = [(QUESTION, "s\n"), (WHICH, "nothing 9\n")]
    answers += [(QUESTION, "s\n"), (WHICH, "1 new.txt\n"), (QUESTION, "y\n")]
    code, screen = cli.terminal("--no-color", "restore", "last", answers=answers)
    assert code == 0 and "nothing is not in the plan" in screen and "9 is not in the plan" in screen
    assert "   1  README.md\n   2  run.sh\n   3  new.txt\n" in screen
    assert (project / "README.md").read_text() == "# A project\n"
    assert not (project / "new.txt").exists() and not (project / "run.sh").exists()


@needs_terminal
def test_the_diff_is_shown_before_the_answer(cli: CommandLine, project: Path) -> None:
    before = manifest(project)
    code, screen = cli.terminal("--no-color", "restore", "last", answers=[(QUESTION, "d\n"), (QUESTION, "n\n")])
    assert code == 0 and "\n-# Changed\n+# A project\n" in screen and "\n-new\n" in screen
    assert manifest(project) == before


@needs_terminal
def test_numbers_never_shift_while_one_reads(cli: CommandLine, project: Path) -> None:
    """A checkpoint that comes in before the answer does not change what a number means."""
    # The snapshot is taken by the terminal's own program while it is being asked.
    script = (
        "import sys\nfrom shadowsnap.cli import main, ui\nfrom shadowsnap import CheckpointManager\n"
        "ask = ui.Ui.ask\n"
        "def later(self, question):\n"
        f"    CheckpointManager().snapshot({str(project)!r}, 'meanwhile')\n"
        "    return ask(self, question)\n"
        "ui.Ui.ask = later\nsys.exit(main.main(['--no-color', 'restore']))"
    )
    answers = [(PICK, "1\n"), (QUESTION, "n\n")]
    _, screen = on_terminal([sys.executable, "-c", script], project, answers, {"TERM": "dumb"})
    assert "to snapshot 1 (" in screen
    assert cli.json("show", "last")["entry"]["reason"] == "meanwhile"


# --- what goes with it ------------------------------------------------------------------------------------


@pytest.fixture
def turns(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Three turns with the person's own edits before the third, and edits that no checkpoint holds yet."""
    cli = CommandLine(project, base, monkeypatch, capsys)
    manager = CheckpointManager()
    for number in (1, 2, 3):
        if number == 3:
            (project / "README.md").write_text("# Mine\n")
        manager.new_turn("s", prompt=f"write file {number}")
        manager.ensure_checkpoint(project)
        (project / f"file-{number}").write_text(f"{number}\n")
        manager.end_turn()
    (project / "src" / "main.py").write_text("mine too\n")
    return cli


def goes_with(cli: CommandLine, ref: str) -> list[str]:
    lines = cli("restore", ref, "-n").out.splitlines()
    return [line.strip() for line in lines if line.startswith(("  takes out", "  brings back"))]


def test_a_plan_that_changes_nothing_takes_nothing_out(cli: CommandLine, project: Path) -> None:
    cli.snap()
    manager = CheckpointManager()
    manager.new_turn("session")
    manager.before_tool("Bash", {"command": "ls"}, project)
    assert goes_with(cli, "last") == []
    lines = cli("restore", "last", "-n").out
    assert "nothing would change" in lines and "takes out" not in lines


def test_a_plan_names_the_turns_and_own_edits_that_go_with_it(turns: CommandLine, project: Path) -> None:
    edits = "takes out your own edits"  # two times the same file: no number of files is known
    everything = [f"takes out turn {number}: write file {number}" for number in (3, 2, 1)]
    assert goes_with(turns, "1") == [*everything, edits]
    assert goes_with(turns, "2") == [*everything[:2], edits]
    assert goes_with(turns, "3") == [everything[0], "takes out your own edits (1 file)"]
    assert goes_with(turns, "3:after") == ["takes out your own edits (1 file)"]
    turns("restore", "2", "-y")
    assert goes_with(turns, "1") == [everything[2]]
    assert goes_with(turns, "3:after") == [
        "brings back turn 3: write file 3",
        "brings back turn 2: write file 2",
        "brings back your own edits (1 file)",
    ]
    turns("undo", "-y")
    assert goes_with(turns, "2") == [*everything[:2], edits]
    turns("revert", "2", "-y")
    assert goes_with(turns, "2") == [everything[0], edits]


def test_the_plan_of_a_turn_is_named_in_80_columns(turns: CommandLine) -> None:
    lines = turns("restore", "1", "-n").out.splitlines()
    assert max(map(len, lines)) <= 80 and "to before turn 1" in turns("restore", "1", "-y").out


def test_undo_takes_back_turns_and_says_which(turns: CommandLine, project: Path) -> None:
    assert turns("undo", "-n").out.splitlines()[1:] == ["  is deleted      file-3  +0 -1", "  1 deleted"]
    out = turns("undo", "-y").out
    assert out.startswith("took back turn 3: write file 3\n  1 file deleted\n")
    assert not (project / "file-3").exists() and (project / "src" / "main.py").read_text() == "mine too\n"
    assert turns("undo", "-y").out.startswith("took back turn 2: write file 2\n")
    assert turns("list").out.count("(undone)") == 2
    assert turns("redo", "-y").out.startswith("brought back turn 2: write file 2\n")
    assert (project / "file-2").exists() and not (project / "file-3").exists()
    assert [entry["kind"] for entry in turns.entries()].count("restore") == 0
    assert [entry["kind"] for entry in turns.entries("--restores")].count("restore") == 3


def test_an_undo_that_others_are_in_the_way_of_is_a_conflict(turns: CommandLine, project: Path) -> None:
    (project / "file-3").write_text("changed since\n")
    out = turns("undo", "-y", code=1).out
    assert out.startswith("could not take back turn 3: write file 3\n  1 conflict\n")
    assert "file-3" in out and "conflict" in out and (project / "file-3").read_text() == "changed since\n"
    for hint in ("shadowsnap show 3", "shadowsnap revert 3 --on-conflict theirs", "shadowsnap restore 3"):
        assert hint in out and hint in turns("undo", "-n", code=1).out
    turns("revert", "3", "--on-conflict", "theirs", "-y")
    assert not (project / "file-3").exists()


# --- what was not captured --------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["then", "later"])
def test_a_named_file_that_was_not_captured_is_never_passed_over(
    cli: CommandLine, project: Path, when: str
) -> None:
    name = ".env" if when == "then" else "id_rsa"
    (project / name).write_text("TOKEN=2\n")
    for words in (("-n",), ("-y",), ("-y", "README.md")):
        error = cli.json("restore", "1", name, *words, code=3)["error"]
        assert error["type"] == "NotCaptured" and error["message"].startswith(f"snapshot 1 does not hold '{name}'")
    assert (project / name).read_text() == "TOKEN=2\n" and (project / "README.md").read_text() == "# Changed\n"


def test_the_message_speaks_of_turns(turns: CommandLine, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    manager = CheckpointManager()
    manager.new_turn("s", prompt="with a secret")
    manager.ensure_checkpoint(project)
    (project / "file-4").write_text("4\n")
    manager.end_turn()
    assert "turn 4 does not hold '.env': it was not captured (secret)" in turns("restore", "4", ".env", code=3).err
    assert turns.json("cat", "4", ".env", code=3)["error"]["type"] == "NotCaptured"
    assert turns.json("ls", "4", ".env", code=3)["error"]["type"] == "NotCaptured"


# --- Ctrl-C -----------------------------------------------------------------------------------------------


@needs_terminal
@pytest.mark.parametrize("words", [("restore", "last"), ("restore",)])
def test_ctrl_c_at_a_question_is_130(cli: CommandLine, project: Path, words: tuple[str, ...]) -> None:
    before = manifest(project)
    question = QUESTION if len(words) > 1 else PICK
    code, screen = cli.terminal(*words, answers=[(question, "\x03")])
    assert code == 130
    assert "interrupted; nothing was left half done" in screen and "Traceback" not in screen
    assert any(re.match(r"(\x1b\[\d+m)?error:", line) for line in screen.splitlines())  # not behind the question
    assert manifest(project) == before


@needs_terminal
def test_ctrl_c_right_behind_a_question_is_not_lost(cli: CommandLine, project: Path) -> None:
    """It comes when the question is there and nobody reads yet."""
    script = (
        "import os, select, signal, sys\n"
        "from shadowsnap.cli import main\n"
        "wait = select.select\n"
        "def late(*streams):\n"
        "    signal.signal(signal.SIGINT, lambda *_: None)\n"  # noted by the system, not acted upon yet
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    ready = wait(*streams)[0]\n"
        "    print('awake', len(ready), file=sys.stderr)\n"
        "    raise KeyboardInterrupt\n"
        "select.select = late\n"
        "sys.exit(main.main(['--no-color', 'restore', 'last']))"
    )
    code, screen = on_terminal([sys.executable, "-c", script], project, [], {"TERM": "dumb"})
    assert code == 130 and "awake 1" in screen


def interrupted_restore(step: str, times: int, number: int = signal.SIGINT) -> subprocess.CompletedProcess[bytes]:
    """A restore that gets a signal when it passes a step."""

    def listener(name: str) -> None:
        if name == step:
            for _ in range(times):
                os.kill(os.getpid(), number)

    def restore() -> int:
        deadline.step_listener = listener
        return program("--json", "restore", "last", "--yes")()

    return run_child(restore)


UNTOUCHED = ["capture:scanned", "restore:planned", "restore:begun", "restore:staged"]
TOUCHED = ["restore:applying", "restore:deleted-one", "restore:wrote-one"]
DONE = ["restore:applied", "restore:settled", "restore:cleaned"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("step", [*UNTOUCHED, *TOUCHED, *DONE])
@pytest.mark.each_value
def test_ctrl_c_during_a_restore_is_all_or_nothing(
    cli: CommandLine, project: Path, step: str, times: int
) -> None:
    before = manifest(project)
    plan = cli.json("restore", "last", "--dry-run")
    done = interrupted_restore(step, times)
    assert b"Traceback" not in done.stderr
    if step in DONE:
        assert done.returncode == 0
        assert [(project / path).exists() for path in plan["written"] + plan["deleted"]] == [True, True, False]
    else:
        assert done.returncode == 130
        assert b'"Interrupted"' in done.stdout
        assert manifest(project) == before
    # Nothing waits to be repaired: the next restore has nothing to tell.
    assert cli.json("restore", "last", "--yes")["note"] == ""


def test_a_handler_of_somebody_else_is_left_alone(cli: CommandLine) -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        deadline.step_listener = lambda name: name == "restore:applying" and signal.raise_signal(signal.SIGINT)
        cli("restore", "last", "--yes")
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    finally:
        deadline.step_listener = None
        signal.signal(signal.SIGINT, previous)


def test_a_note_about_an_earlier_restore_is_told(cli: CommandLine, project: Path) -> None:
    killed = interrupted_restore("restore:wrote-one", 1, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert "had been interrupted and was finished" in cli("restore", "last", "--yes").err
