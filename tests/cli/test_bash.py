"""Completion in a real bash: what is typed, what stands in the line then, and what the command gets of it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowsnap import CheckpointManager
from shadowsnap.cli.bash_words import read_line
from shadowsnap.cli.commands.help import _BASH

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None or os.name == "nt", reason="no bash")

NAMES = [
    "a$(touch PWNED)b.txt", "c`touch PWNED`d", "e;touch PWNED;f", "g&touch PWNED&h", "i|touch PWNED", "j>PWNED",
    "my file.txt", "it's", 'say "so"', "k\ntouch PWNED\n", "l\ttab", "m\x1b]0;title\x07", "n\\backslash",
    "o!touch!", "p*?[x]", "q{x,y}", "r~", "~s", "#t", "u:v", "w=x", "y@z", "${IFS}A", "$HOME", "B'$(touch PWNED)'",
    "C\"`touch PWNED`", "D ", " E", "F\u202etxt", "Gé", "H$((a[$(touch PWNED)]))", "K\\$(touch PWNED)",
    "L\'$(touch PWNED)",
]  # fmt: skip


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with a `shadowsnap` that completes, and keeps the words of every other command."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "shadowsnap"
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = completion ]; then exec "{sys.executable}" -I -m shadowsnap "$@"; fi
printf '%s\\0' "$@" > '{tmp_path}/words.new'
mv '{tmp_path}/words.new' '{tmp_path}/words'
"""
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def environment(programs: Path) -> dict[str, str]:
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8", "INPUTRC": "/dev/null"}


Typed = Callable[[str], list[str]]


@pytest.fixture
def typed(project: Path, tmp_path: Path, environment: dict[str, str]) -> object:
    """Types a line and Enter in an interactive bash; returns the words that the command got."""
    assert BASH is not None
    script = tmp_path / "rc"
    script.write_text(f"{_BASH}\nPS1='READY''> '\nunset PROMPT_COMMAND\n")
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        [BASH, "--noprofile", "--rcfile", str(script), "-i"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=project, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)

    def read_to_prompt() -> str:
        seen, end = b"", time.monotonic() + 60
        while not seen.endswith(b"READY> "):
            assert select.select([ours], [], [], max(0, end - time.monotonic()))[0], seen
            seen += os.read(ours, 65536)
        return seen.decode(errors="replace")

    def run(line: str) -> list[str]:
        words = tmp_path / "words"
        words.unlink(missing_ok=True)
        os.write(ours, os.fsencode(f"{line}\n"))
        screen = read_to_prompt()
        assert words.exists(), screen
        return os.fsdecode(words.read_bytes()).split("\0")[:-1]

    read_to_prompt()
    yield run
    shell.kill()
    shell.wait()
    os.close(ours)


def test_a_name_that_bash_would_run_is_only_a_name(typed: Typed, project: Path) -> None:
    (project / "a$(touch PWNED)b.txt").write_text("x")
    CheckpointManager().snapshot(project)
    assert typed("shadowsnap cat 1 a\t") == ["cat", "1", "a$(touch PWNED)b.txt"]
    assert not (project / "PWNED").exists()


STARTS = {"in\\ here/": "", "'in here/": "'", '"in here/': '"', '"in here"/': ""}
"""Ways to type the beginning of a word, and the quotes that are open then."""


@pytest.mark.parametrize("at", range(4))
def test_every_name_comes_out_as_it_is_in_whatever_quotes_are_open(typed: Typed, project: Path, at: int) -> None:
    for number, name in enumerate(NAMES):
        (project / "in here" / f"{number}{name}").parent.mkdir(exist_ok=True)
        (project / "in here" / f"{number}{name}").write_text("x")
    CheckpointManager().snapshot(project)
    for number, name in list(enumerate(NAMES))[at::4]:
        start = list(STARTS)[(number // 4) % 4]
        word = f"in here/{number}{name}"
        more = "" if number > 3 else name[0] if name[0].isalnum() else f"\\{name[0]}"
        assert typed(f"shadowsnap cat 1 {start}{number}{more}\t") == ["cat", "1", word], (start, name)
    assert not list(project.rglob("PWNED"))


def test_bash_reads_a_quoted_word_as_it_was(tmp_path: Path) -> None:
    """Each character that is special anywhere, in all quotes; the line editor is in the test above."""
    names = [*NAMES, "\udcff\udc80", "\u202e"]
    names += [f"{char}x{char}" for char in map(chr, range(1, 128)) if char != "/"]
    lines, words = [], []
    for name in names:
        for start, quote in STARTS.items():
            read = read_line(f"shadowsnap cat 1 {start}", "")
            assert read is not None
            text = read.completion(f"in here/{name}")
            assert text is not None and text.isprintable()
            closing = "" if text.endswith(quote) else quote
            lines.append(f"printf '%s\\0' {start}{text}{closing}\n")
            words.append(f"in here/{name}")
    (tmp_path / "lines").write_bytes(os.fsencode("".join(lines)))
    done = subprocess.run([BASH or "", "lines"], cwd=tmp_path, capture_output=True, check=True)
    assert os.fsdecode(done.stdout).split("\0")[:-1] == words and done.stderr == b""
    assert os.listdir(tmp_path) == ["lines"]


def test_what_several_names_have_in_common_is_quoted_too(typed: Typed, project: Path) -> None:
    for end in ("x", "y"):
        (project / f"a$(touch PWNED) {end}").write_text("x")
    CheckpointManager().snapshot(project)
    assert typed("shadowsnap cat 1 a\t") == ["cat", "1", "a$(touch PWNED) "]
    assert typed("shadowsnap cat 1 a\ty\t") == ["cat", "1", "a$(touch PWNED) y"]
    assert typed('shadowsnap cat 1 "a\ty\t') == ["cat", "1", "a$(touch PWNED) y"]
    assert not (project / "PWNED").exists()


def test_a_directory_is_gone_into_within_open_quotes(typed: Typed, project: Path) -> None:
    (project / "my dir").mkdir()
    (project / "my dir" / "my file").write_text("x")
    CheckpointManager().snapshot(project)
    for start in ("my", '"my', "'my", "my\\ "):
        assert typed(f"shadowsnap cat 1 {start}\t\t") == ["cat", "1", "my dir/my file"], start


def test_a_label_with_spaces_is_one_word(typed: Typed, project: Path) -> None:
    manager = CheckpointManager()
    checkpoint = manager.snapshot(project).checkpoint
    assert checkpoint is not None
    manager.label(project, checkpoint.id, "my label")
    for start in ("my", '"my', "'my", "my\\ la", '"my la'):
        assert typed(f"shadowsnap show {start}\t") == ["show", "my label"], start


@pytest.fixture
def complete(environment: dict[str, str], project: Path) -> object:
    """What bash offers for a line that is typed up to here."""
    assert BASH is not None

    def offered(*words: str, listing: bool = False) -> list[str]:
        asking = 'COMP_TYPE=$1 COMP_LINE=$2 COMP_POINT=${#2}; _shadowsnap shadowsnap "$3"; '
        asking += "printf '%s\\n' \"${COMPREPLY[@]}\""
        line = " ".join(("shadowsnap", *words))
        done = subprocess.run(
            [BASH, "-c", _BASH + asking, "bash", "63" if listing else "9", line, words[-1]],
            cwd=project, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return [line for line in done.stdout.splitlines() if line]

    return offered


def test_words_are_offered_with_what_they_mean_only_in_a_list(complete, project: Path) -> None:  # type: ignore[no-untyped-def]
    manager = CheckpointManager()
    for number in (1, 2):
        manager.new_turn("session", f"what was asked\nin turn {number}")
        manager.ensure_checkpoint(project)
        (project / "src" / f"file-{number}").write_text("x\n")
        manager.end_turn()
    assert complete("restor") == ["restore"]
    assert complete("show", "") == ["2", "1", "last"]
    shown = ["2     (what was asked in turn 2)", "1     (what was asked in turn 1)"]
    assert complete("show", "", listing=True)[:2] == shown
    assert complete("show", "2", listing=True) == ["2"]
    assert complete("restore", "2", "src/m") == ["src/main.py"]
    assert complete("snap", "READ") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("shadowsnap ", [""]),
        ("shadowsnap  cat 1 ", ["cat", "1", ""]),
        ("shadowsnap show 'my la", ["show", "my la"]),
        ("shadowsnap show my\\ la", ["show", "my la"]),
        ('shadowsnap show "a\\"b\\c"d', ["show", 'a"b\\cd']),
        ("shadowsnap show '' x", ["show", "", "x"]),
        ("shadowsnap show $'a\\012\\'\\303\\251'b", ["show", "a\n'éb"]),
        ("shadowsnap show a\\", ["show", "a"]),
        ("shadowsnap show 3:af", ["show", "3:af"]),
    ],
)
def test_a_typed_line_is_read_as_bash_reads_it(line: str, words: list[str]) -> None:
    read = read_line(line, "")
    assert read is not None and read.words == words


@pytest.mark.parametrize("line", ["shadowsnap list > f", "shadowsnap show $'a", "shadowsnap show $'\\q'", "a $(b"])
def test_a_line_with_more_than_words_is_not_completed(line: str) -> None:
    assert read_line(line, "") is None


def test_a_line_of_another_word_is_not_completed() -> None:
    assert read_line("shadowsnap show ab", "xy") is None
