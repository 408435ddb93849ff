"""bisect: the turn that broke something, found by running a command in older states."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from stories import Story, ask, run_command

from helpers import manifest, wait_until

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and /bin/sh")
CHECK = [sys.executable, "-c", "import pathlib, sys; sys.exit('broken' in pathlib.Path('a.txt').read_text())"]


@pytest.fixture
def story(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    project, scratch = tmp_path / "work", tmp_path / "scratch"
    project.mkdir()
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (project / "a.txt").write_text("fine\n")
    (project / "run.sh").write_text("#!/bin/sh\nexec grep -q fine a.txt\n")
    (project / "run.sh").chmod(0o755)
    return Story(project, base)


def turn(story: Story, text: str, session: str = "s1") -> int:
    _, number = story.begin(session)
    (story.project / "a.txt").write_text(text)
    story.end(session)
    assert number is not None
    return number


def scratch_is_empty() -> bool:
    return os.listdir(os.environ["TMPDIR"]) == []


# --- finding ----------------------------------------------------------------------------------------------


def test_the_turn_that_broke_it_is_named(story: Story) -> None:
    turn(story, "fine, more\n")
    number = turn(story, "broken\n")
    turn(story, "still broken\n")
    (story.project / "a.txt").write_text("broken, and edited\n")
    before = manifest(story.project)
    found = ask(story.project, story.base, "bisect", "--good", "1", "--", *CHECK)
    assert (found["number"], found["kind"], found["prompt"]) == (number, "turn", "a prompt in s1")
    assert [probe["verdict"] for probe in found["probes"]] == ["good", "good", "bad", "bad"]
    text = run_command(story.project, story.base, "bisect", "--good", "1", "--", *CHECK)
    assert text.stdout.decode().startswith("turn 2 (claude, a prompt in s1) broke it\n")
    assert manifest(story.project) == before
    assert scratch_is_empty()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.every(3)
def test_the_turn_is_found_wherever_it_is(story: Story, seed: int) -> None:
    chance = random.Random(seed)
    count, breaks = 12, chance.randint(1, 12)
    for number in range(1, count + 1):
        turn(story, f"{'broken' if number >= breaks else 'fine'} {number}\n")
        if chance.random() < 0.4:
            (story.project / "b.txt").write_text(f"my edit {number}\n")
    found = ask(story.project, story.base, "bisect", "--good", "1", "--", *CHECK)
    assert found["number"] == breaks
    assert len(found["probes"]) <= 2 + 5  # of at most 25 states


def test_a_persons_own_edit_may_be_what_broke_it(story: Story) -> None:
    turn(story, "fine, more\n")
    (story.project / "a.txt").write_text("broken by hand\n")
    turn(story, "still broken\n")
    found = ask(story.project, story.base, "bisect", "--good", "1", "--", *CHECK)
    assert (found["number"], found["kind"], found["name"]) == (None, "edits", "your own edits")


def test_what_was_undone_did_not_break_what_is_there_now(story: Story) -> None:
    turn(story, "fine, more\n")
    turn(story, "broken, and taken back\n")
    story.manager().undo(story.project)
    number = turn(story, "broken again\n")
    found = ask(story.project, story.base, "bisect", "--good", "1", "--", *CHECK)
    assert found["number"] == number == 3
    assert [probe["name"] for probe in found["probes"]].count("turn 2") == 0


@pytest.mark.parametrize("words", [("--good", "1"), ("--all",)])
def test_a_turn_that_an_undo_brought_back_is_named(story: Story, words: tuple[str, ...]) -> None:
    turn(story, "fine, more\n")
    number = turn(story, "broken\n")
    turn(story, "still broken\n")
    story.manager().restore(story.project, "2")
    story.manager().undo(story.project)
    found = ask(story.project, story.base, "bisect", *words, "--", *CHECK)
    assert (found["number"], found["kind"]) == (number, "turn")


def test_a_restore_of_some_paths_may_be_what_broke_it(story: Story) -> None:
    turn(story, "broken at first\n")
    turn(story, "fine again\n")
    (story.project / "b.txt").write_text("b\n")
    story.manager().restore(story.project, "2", ["a.txt"])
    found = ask(story.project, story.base, "bisect", "--good", "2:after", "--", *CHECK)
    assert (found["number"], found["kind"]) == (None, "restore")


def test_the_bad_state_may_be_an_older_one(story: Story) -> None:
    turn(story, "fine, more\n")
    turn(story, "broken\n")
    turn(story, "fine, mended\n")
    found = ask(story.project, story.base, "bisect", "--good", "1", "--bad", "2:after", "--", *CHECK)
    assert found["number"] == 2
    error = ask(story.project, story.base, "bisect", "--good", "1", "--", *CHECK, code=1)["error"]
    assert error["message"] == "no turn can be named: the command does not fail in the bad state (exit code 0)"
    error = ask(story.project, story.base, "bisect", "--good", "2:after", "--", *CHECK, code=1)["error"]
    assert error["message"] == "no turn can be named: the command does not succeed in the good state (exit code 1)"
    words = ("bisect", "--good", "3:after", "--bad", "1", "--", *CHECK)
    assert ask(story.project, story.base, *words, code=2)["error"]["type"] == "BadArguments"


def test_every_state_can_be_tested(story: Story) -> None:
    turn(story, "fine, more\n")
    turn(story, "broken\n")
    turn(story, "fine, mended\n")
    turn(story, "broken for good\n")
    found = ask(story.project, story.base, "bisect", "--all", "--", *CHECK)
    rows = [(probe["name"], probe["verdict"]) for probe in found["probes"]]
    assert rows == [
        ("the beginning of the timeline", "good"),
        ("turn 1", "good"),
        ("turn 2", "bad"),
        ("turn 3", "good"),
        ("turn 4", "bad"),
    ]
    assert found["number"] == 4
    text = run_command(story.project, story.base, "bisect", "--all", "--", *CHECK).stdout.decode()
    assert [row.split()[0] for row in text.splitlines()[:5]] == ["good", "good", "bad", "good", "bad"]


def test_a_state_that_cannot_be_tested_is_skipped(story: Story) -> None:
    for text in ("fine\n1", "untestable\n", "untestable too\n", "broken\n", "broken\n2"):
        turn(story, text)
    script = "import sys; t = open('a.txt').read(); sys.exit(125 if 'untest' in t else 'broken' in t)"
    error = ask(story.project, story.base, "bisect", "--good", "1", "--", sys.executable, "-c", script, code=1)
    assert "it is one of: turn 2, turn 3, turn 4" in error["error"]["message"]
    assert scratch_is_empty()


# --- the command ------------------------------------------------------------------------------------------


@posix
def test_the_command_runs_in_the_state_with_its_own_files(story: Story) -> None:
    turn(story, "fine, more\n")
    turn(story, "worse\n")
    (story.project / "run.sh").unlink()
    words = ("bisect", "--good", "1", "--bad", "2:after", "--")
    assert ask(story.project, story.base, *words, "./run.sh")["number"] == 2
    assert ask(story.project, story.base, *words, "grep -q fine a.txt && true")["number"] == 2


def test_usage_is_explained(story: Story) -> None:
    turn(story, "broken\n")
    for words in (("--good", "1"), ("--", "true")):
        assert ask(story.project, story.base, "bisect", *words, code=2)["error"]["type"] == "WrongUsage"
    assert ask(story.project, story.base, "bisect", "--good", "77", "--", "true", code=3)["error"]
    error = ask(story.project, story.base, "bisect", "--good", "1", "--", "no-such-command", code=2)["error"]
    assert error["message"] == "there is no command 'no-such-command' on the PATH"
    error = ask(story.project, story.base, "bisect", "--good", "1", "--", "./no-such-command", code=1)["error"]
    assert "exit code 127" in error["message"]


@posix
def test_a_command_that_takes_too_long_has_failed_with_all_that_it_started(story: Story, tmp_path: Path) -> None:
    turn(story, "fine, more\n")
    turn(story, "broken\n")
    mark = tmp_path / "alive"
    script = f"if grep -q broken a.txt; then (sleep 3; touch {mark}) & wait; fi"
    words = ("bisect", "--good", "1", "--timeout", "0.5", "--", "sh", "-c", script)
    found = ask(story.project, story.base, *words)
    assert (found["number"], found["probes"][-1]["exit_code"]) == (2, None)
    time.sleep(3)
    assert not mark.exists()
    assert scratch_is_empty()


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_nothing_behind(story: Story, tmp_path: Path, number: int, code: int) -> None:
    turn(story, "fine, more\n")
    turn(story, "broken\n")
    started, alive = tmp_path / "started", tmp_path / "alive"
    command = f"touch {started}; sleep 20; touch {alive}"
    process = subprocess.Popen(
        [sys.executable, "-m", "shadowsnap", "--json", "bisect", "--good", "1", "--", "sh", "-c", command],
        cwd=story.project, env={**os.environ, "SHADOWSNAP_HOME": str(story.base)}, stdout=subprocess.PIPE,
    )  # fmt: skip
    wait_until(started.exists)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == code
    assert number == signal.SIGTERM or json.loads(out)["error"]["type"] == "Interrupted"
    assert scratch_is_empty()
    assert (story.project / "a.txt").read_text() == "broken\n"
