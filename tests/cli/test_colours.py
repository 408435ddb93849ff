"""On a terminal with colours: the same facts as elsewhere, and nothing in them is taken for a code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, ageless, on_terminal

from shadowsnap import CheckpointManager

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pty")

SIZE = {"COLUMNS": "80", "TERM": "xterm-256color", "PAGER": "cat"}


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    cli = CommandLine(project, base, monkeypatch, capsys)
    manager = CheckpointManager()
    manager.new_turn("0f8fad5b-d9cb", prompt="make [bold]it[/bold] :smile: better\x1b[2J")
    manager.ensure_checkpoint(project)
    lines = ["# Changed", "x" * 200, "\x1b]0;title\x07\ttab", "[red]no markup[/red]"]
    (project / "README.md").write_text("".join(f"{line}\n" for line in lines))
    manager.end_turn()
    cli("pin", "last")
    return cli


def coloured(cli: CommandLine, *words: str, columns: int = 80) -> str:
    code, screen = cli.terminal(*words, **{**SIZE, "COLUMNS": str(columns)})
    assert code == 0
    return screen


def plain(cli: CommandLine, *words: str) -> str:
    return coloured(cli, "--no-color", *words)


def bare(screen: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", screen)


def test_the_list_is_the_same_without_colours(cli: CommandLine) -> None:
    with_colours = coloured(cli, "list")
    assert ageless(bare(with_colours)) == ageless(plain(cli, "list"))
    assert "\x1b[" in with_colours and max(map(len, bare(with_colours).splitlines())) <= 80


def test_nothing_in_a_name_is_taken_for_a_code(cli: CommandLine) -> None:
    screen = coloured(cli, "list", columns=140)
    assert "make [bold]it[/bold] :smile: better\\x1b[2J" in bare(screen) and "\x1b[2J" not in screen
    assert "[red]no markup[/red]" in bare(coloured(cli, "diff", "1"))


def test_nothing_in_a_file_is_taken_for_a_code(cli: CommandLine) -> None:
    screen = coloured(cli, "cat", "1:after", "README.md")
    assert "\\x1b]0;title\\x07\ttab" in screen and "\x1b]0;" not in screen
    assert "\x1b]0;title\x07" in cli("cat", "1:after", "README.md").out


def test_a_diff_is_coloured_and_every_character_of_it_stays(cli: CommandLine) -> None:
    with_colours = coloured(cli, "diff", "1")
    assert bare(with_colours) == plain(cli, "diff", "1")
    assert "x" * 200 in with_colours and "\x1b]0;" not in with_colours and "\ttab" in with_colours
    assert "\x1b[31m-# A project\x1b[0m" in with_colours


def test_status_has_bars_and_the_same_facts(cli: CommandLine) -> None:
    with_colours, without = coloured(cli, "status", "--store"), plain(cli, "status", "--store")
    assert "━" in with_colours and "━" not in without
    assert set(ageless(without).split()) <= set(ageless(bare(with_colours)).split())
    lines = bare(with_colours).splitlines()
    assert max(len(line) for line in lines if str(cli.project.parent) not in line) <= 80


def test_a_line_shows_progress_and_goes_away(cli: CommandLine) -> None:
    script = (
        "from shadowsnap.cli import ui as progress; from shadowsnap.cli.ui import Ui; import time\n"
        "progress._QUIET_SECONDS = 0\n"
        "with progress.working(Ui(), 'importing') as update:\n"
        "    end = time.monotonic() + 1.5\n"
        "    while time.monotonic() < end:\n"
        "        update(3, 9)\n"
        "print('done')\n"
    )
    code, screen = on_terminal([sys.executable, "-c", script], cli.project, (), SIZE)
    assert code == 0 and "importing: 3 of 9" in screen and screen.endswith("done\n")
