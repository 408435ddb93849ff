"""restore, undo and redo on the command line: plans, questions, the picker, Ctrl-C."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, on_terminal

from helpers import manifest
from shadowsnap import steps

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
    assert "this would write 2 paths and delete 1, and there is nobody to ask" in ran.err
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
    lines = cli("restore", "last", "--dry-run").out.splitlines()
    assert lines[0].startswith(f"restore {project} to ") and lines[0].endswith("(just now: start)")
    assert lines[1:] == [
        "  write    README.md",
        "  write    run.sh",
        "  delete   new.txt",
        "  keep     .env (secret at the checkpoint)",
        "2 to write, 1 to delete, 1 kept",
    ]
    plan = cli.json("restore", "last", "--dry-run", "--yes")
    assert plan["applied"] is False
    assert (plan["written"], plan["deleted"]) == (["README.md", "run.sh"], ["new.txt"])
    assert manifest(project) == before
    assert len(cli.ids()) == 1


def test_restore_tells_what_it_did_and_how_to_take_it_back(cli: CommandLine, project: Path) -> None:
    changed = manifest(project)
    lines = cli("restore", "last", "--yes").out.splitlines()
    target = cli.ids()[-1][:8]
    assert lines == [
        "  wrote    README.md",
        "  wrote    run.sh",
        "  deleted  new.txt",
        "  kept     .env (secret at the checkpoint)",
        f"restored to {target}: 2 written, 1 deleted, 1 kept",
        "to take it back: shadowsnap undo --yes",
    ]
    assert (project / "README.md").read_text() == "# A project\n"
    restored = manifest(project)
    take_back = lines[-1].partition(": ")[2]
    assert "shadowsnap redo --yes" in cli(*shlex.split(take_back)[1:]).out
    assert manifest(project) == changed
    assert "shadowsnap undo --yes" in cli("redo", "--yes").out
    assert manifest(project) == restored


def test_the_line_that_takes_it_back_works_from_where_the_person_is(cli: CommandLine, project: Path) -> None:
    os.chdir(project.parent)
    line = cli.json("-C", "project", "restore", "last", "--yes")["undo"]
    assert line == f"shadowsnap -C {project} undo --yes"
    cli(*shlex.split(line)[1:])
    assert (project / "new.txt").exists()


def test_restoring_what_is_there_needs_no_confirmation(cli: CommandLine, project: Path) -> None:
    cli.snap()
    ran = cli("restore", "last")
    assert ran.out.startswith("nothing to restore: everything is as in ")
    assert "take it back" not in ran.out
    assert cli.json("restore", "last")["undo"] is None


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
    assert "  delete   \\x1b]0;title\\x07\\n\\u202e\n" in out
    assert "\x1b" not in out and "\x07" not in out


# --- on a terminal ----------------------------------------------------------------------------------------


@needs_terminal
def test_on_a_terminal_the_plan_is_shown_and_yes_does_it(cli: CommandLine, project: Path) -> None:
    code, screen = cli.terminal("--no-color", "restore", "last", answers=[("restore? [y/N] ", "y\n")])
    assert code == 0
    asked, done = screen.split("restore? [y/N] ")
    assert "  write    README.md\n" in asked and "  delete   new.txt\n" in asked
    assert "  keep     .env (secret at the checkpoint)\n" in asked
    assert "restored to " in done and "to take it back: shadowsnap undo\n" in done
    assert "wrote" not in done  # it was just shown
    assert not (project / "new.txt").exists()


@needs_terminal
@pytest.mark.parametrize("answer", ["n\n", "\n", "yesterday\n", "\x04"])
def test_on_a_terminal_anything_but_yes_leaves_all_as_it_is(
    cli: CommandLine, project: Path, answer: str
) -> None:
    before = manifest(project)
    code, screen = cli.terminal("restore", "last", answers=[("[y/N] ", answer)])
    assert code == 4 and "nothing was changed: you did not say yes" in screen
    assert manifest(project) == before


@needs_terminal
def test_on_a_terminal_yes_does_not_ask(cli: CommandLine, project: Path) -> None:
    code, screen = cli.terminal("--no-color", "restore", "last", "--yes")
    assert code == 0 and "[y/N]" not in screen and "wrote    README.md" in screen


@needs_terminal
def test_on_a_terminal_json_does_not_ask(cli: CommandLine, project: Path) -> None:
    code, screen = cli.terminal("restore", "last", "--json")
    assert code == 4 and '"NotConfirmed"' in screen and (project / "new.txt").exists()


@needs_terminal
def test_a_long_plan_is_shortened_before_the_question(cli: CommandLine, project: Path) -> None:
    for number in range(50):
        (project / f"more-{number}").write_text("x")
    _, screen = cli.terminal("--no-color", "restore", "last", answers=[("[y/N] ", "n\n")])
    assert screen.count("  delete   ") == 21
    assert "  delete   ... and 31 more (--dry-run lists all)\n" in screen


@needs_terminal
def test_undo_and_redo_ask_too(cli: CommandLine, project: Path) -> None:
    cli("restore", "last", "--yes")
    assert cli.terminal("undo", answers=[("undo? [y/N] ", "n\n")])[0] == 4
    assert not (project / "new.txt").exists()
    code, screen = cli.terminal("undo", answers=[("undo? [y/N] ", "y\n")])
    assert code == 0 and "to take it back: shadowsnap redo\n" in screen
    assert (project / "new.txt").exists()
    assert cli.terminal("redo", answers=[("redo? [y/N] ", "y\n")])[0] == 0
    assert not (project / "new.txt").exists()


# --- the picker -------------------------------------------------------------------------------------------


@needs_terminal
@pytest.mark.parametrize("answer", ["\n", "0\n", "\x04"])
def test_the_first_row_of_the_picker_leaves_everything_as_it_is(
    cli: CommandLine, project: Path, answer: str
) -> None:
    before = manifest(project)
    code, screen = cli.terminal("--no-color", "restore", answers=[("which one? [0] ", answer)])
    assert code == 0
    lines = screen.splitlines()
    assert lines[0] == "0  leave everything as it is"
    assert lines[1].startswith("1  ") and "start" in lines[1]
    assert lines[-1] == "everything is left as it is"
    assert manifest(project) == before


@needs_terminal
def test_picking_shows_the_plan_and_asks(cli: CommandLine, project: Path) -> None:
    cli.snap("later")
    answers = [("which one? [0] ", "2\n"), ("restore? [y/N] ", "y\n")]
    code, screen = cli.terminal("--no-color", "restore", answers=answers)
    assert code == 0 and ": start)" in screen
    assert (project / "README.md").read_text() == "# A project\n"


@needs_terminal
def test_the_picker_asks_again_and_takes_any_reference(cli: CommandLine, project: Path) -> None:
    cli("label", "last", "good")
    answers = [
        ("which one? [0] ", "17\n"),
        ("which one? [0] ", "-x\n"),
        ("which one? [0] ", "good\n"),
        ("restore? [y/N] ", "n\n"),
    ]
    code, screen = cli.terminal("restore", answers=answers)
    assert code == 4
    assert "there is no checkpoint '17'" in screen and "'-x' is not a checkpoint reference" in screen


@needs_terminal
def test_the_picker_means_the_list_as_shown(cli: CommandLine, project: Path) -> None:
    """A checkpoint that comes in before the answer does not shift the numbers."""
    shown = cli.ids()[0]
    # The snapshot is taken by the terminal's own program while it is being asked.
    script = (
        "import sys\nfrom shadowsnap.cli import main, ui\nfrom shadowsnap import CheckpointManager\n"
        "ask = ui.Ui.ask\n"
        "def later(self, question):\n"
        f"    CheckpointManager().snapshot({str(project)!r}, 'meanwhile')\n"
        "    return ask(self, question)\n"
        "ui.Ui.ask = later\nsys.exit(main.main(['--no-color', 'restore']))"
    )
    answers = [("which one? [0] ", "1\n"), ("restore? [y/N] ", "n\n")]
    _, screen = on_terminal([sys.executable, "-c", script], project, answers, {"TERM": "dumb"})
    assert f"to {shown[:8]} (" in screen
    assert cli.json("show", "last")["checkpoint"]["reason"] == "meanwhile"


# --- Ctrl-C -----------------------------------------------------------------------------------------------


@needs_terminal
@pytest.mark.parametrize("words", [("restore", "last"), ("restore",)])
def test_ctrl_c_at_a_question_is_130(cli: CommandLine, project: Path, words: tuple[str, ...]) -> None:
    before = manifest(project)
    question = "[y/N] " if len(words) > 1 else "[0] "
    code, screen = cli.terminal(*words, answers=[(question, "\x03")])
    assert code == 130
    assert "interrupted; nothing was left half done" in screen and "Traceback" not in screen
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


INTERRUPTED = """\
import os, signal, sys
from shadowsnap.cli.main import main
from shadowsnap import steps

step, times = sys.argv[1], int(sys.argv[2])

def listener(name):
    if name == step:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)

steps.listener = listener
raise SystemExit(main(["--json", "restore", "last", "--yes"]))
"""

UNTOUCHED = ["capture:scanned", "restore:planned", "restore:begun", "restore:staged"]
TOUCHED = ["restore:applying", "restore:deleted-one", "restore:wrote-one"]
DONE = ["restore:applied", "restore:settled", "restore:cleaned"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("step", [*UNTOUCHED, *TOUCHED, *DONE])
def test_ctrl_c_during_a_restore_is_all_or_nothing(
    cli: CommandLine, project: Path, step: str, times: int
) -> None:
    before = manifest(project)
    plan = cli.json("restore", "last", "--dry-run")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, step, str(times)], capture_output=True, check=False, timeout=60
    )
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
        steps.listener = lambda name: signal.raise_signal(signal.SIGINT) if name == "restore:applying" else None
        cli("restore", "last", "--yes")
        assert seen == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    finally:
        steps.listener = None
        signal.signal(signal.SIGINT, previous)


def test_a_note_about_an_earlier_restore_is_told(cli: CommandLine, project: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.replace("SIGINT", "SIGKILL"), "restore:wrote-one", "1"], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert "had been interrupted and was finished" in cli("restore", "last", "--yes").err
