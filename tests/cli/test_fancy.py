"""With rich on a terminal: tables, highlighting, bars; without it, or elsewhere, the same facts in
plain text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, ageless, on_terminal

from shadowsnap import CheckpointManager

pytest.importorskip("rich")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pty")

WITHOUT = (
    "import sys; sys.modules['rich'] = None\n"
    "from shadowsnap.cli.main import main; sys.exit(main(sys.argv[1:]))"
)
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


def fancy(cli: CommandLine, *words: str, columns: int = 80) -> str:
    code, screen = cli.terminal(*words, **{**SIZE, "COLUMNS": str(columns)})
    assert code == 0
    return screen


def plain(cli: CommandLine, *words: str) -> str:
    """On the same terminal, where rich is not installed."""
    command = [sys.executable, "-c", WITHOUT, *words]
    code, screen = on_terminal(command, cli.project, (), SIZE)
    assert code == 0
    return screen


def bare(screen: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", screen)


def words_of(screen: str) -> set[str]:
    return set(bare(screen).split())


def test_the_list_is_the_same_with_rich(cli: CommandLine) -> None:
    with_rich, without = (ageless(bare(show(cli, "list"))) for show in (fancy, plain))
    assert with_rich == without
    assert "\x1b[" in fancy(cli, "list") and max(map(len, with_rich.splitlines())) <= 80


def test_nothing_in_a_name_is_taken_for_markup(cli: CommandLine) -> None:
    screen = fancy(cli, "list", columns=140)
    assert "make [bold]it[/bold] :smile: better\\x1b[2J" in bare(screen) and "\x1b[2J" not in screen
    assert "[red]no markup[/red]" in bare(fancy(cli, "diff", "1"))


def test_a_diff_is_highlighted_and_every_character_of_it_stays(cli: CommandLine) -> None:
    with_rich, without = fancy(cli, "diff", "1"), plain(cli, "diff", "1")
    assert bare(with_rich) == bare(without)
    assert "x" * 200 in with_rich and "\x1b]0;" not in with_rich
    assert with_rich != bare(with_rich) and "\ttab" in with_rich
    assert "\x1b[31m-# A project\x1b[0m" in without


def test_status_has_tables_and_bars_with_the_same_facts(cli: CommandLine) -> None:
    with_rich, without = fancy(cli, "status", "--store"), plain(cli, "status", "--store")
    assert "━" in with_rich and "━" not in without
    paths = {word for word in words_of(without) if word.startswith("...")}
    assert words_of(without) - words_of(with_rich) - paths == set()
    assert max(len(line) for line in bare(with_rich).splitlines() if str(cli.project.parent) not in line) <= 80


@pytest.mark.parametrize("how", [("--no-color",), ("--json",)])
def test_it_is_not_even_imported_where_it_is_not_wanted(cli: CommandLine, how: tuple[str, ...]) -> None:
    script = (
        "import sys; from shadowsnap.cli.main import main; main(sys.argv[1:]); "
        "print('rich' in sys.modules, file=sys.stderr)"
    )
    _, screen = on_terminal([sys.executable, "-c", script, *how, "list"], cli.project, (), SIZE)
    assert screen.splitlines()[-1] == "False"
    elsewhere = [sys.executable, "-c", script, "list"]
    done = subprocess.run(elsewhere, cwd=cli.project, capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "False" and "\x1b" not in done.stdout


def test_a_bar_shows_progress_and_goes_away(cli: CommandLine) -> None:
    script = (
        "from shadowsnap.cli import ui as progress; from shadowsnap.cli.ui import Ui; import time\n"
        "progress._PATIENCE = 0\n"
        "with progress.working(Ui(), 'importing') as update:\n"
        "    end = time.monotonic() + 1.5\n"
        "    while time.monotonic() < end:\n"
        "        update(3, 9)\n"
        "print('done')\n"
    )
    code, screen = on_terminal([sys.executable, "-c", script], cli.project, (), SIZE)
    assert code == 0 and "importing" in screen and "3/9" in bare(screen) and screen.endswith("done\n")
