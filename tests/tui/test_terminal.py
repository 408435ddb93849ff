"""The viewer as a real program: on a terminal (tmux), without one, and without its packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from viewing import Shop


class Terminal:
    """A terminal of 80 columns and 24 lines in which a command runs."""

    def __init__(self, socket: str, directory: Path, command: str) -> None:
        self._tmux = ["tmux", "-S", socket, "-f", os.devnull]
        size = ("-x", "80", "-y", "24", "-c", str(directory))
        self._run("new-session", "-d", *size, f"{command}; echo it ended with $?; cat")

    def _run(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=True).stdout

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def until(self, text: str) -> str:
        """The screen, once it has this text."""
        end = time.monotonic() + 60
        while text not in (screen := self._run("capture-pane", "-p")):
            assert time.monotonic() < end, screen
            time.sleep(0.05)
        return screen

    def coloured(self) -> str:
        return self._run("capture-pane", "-p", "-e")

    def close(self) -> None:
        self._run("kill-server")


@pytest.fixture
def open_terminal(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], Terminal]]:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    folder, opened = tempfile.mkdtemp(prefix="ss-tmux-"), []  # the path of a socket has to be short

    def open_terminal(directory: Path) -> Terminal:
        command = f"'{sys.executable}' -m shadowsnap ui"
        opened.append(Terminal(os.path.join(folder, f"s{len(opened)}"), directory, command))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()
    shutil.rmtree(folder)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux, a real terminal that a program can drive")
def test_a_file_comes_back_on_a_real_terminal(
    tmp_path: Path, base: Path, open_terminal: Callable[[Path], Terminal]
) -> None:
    shop = Shop(tmp_path / "shop", base).tell()
    terminal = open_terminal(shop.directory)
    screen = terminal.until("now: 1 file differs")
    assert "3 clean the project up" in screen and len(screen.splitlines()) <= 24
    terminal.press("Down")
    terminal.until("-my own note")
    assert "\x1b[31m" in terminal.coloured()
    terminal.press("Enter")
    terminal.until("go ahead?")
    terminal.press("y")
    terminal.until("z takes it back")
    assert (shop.directory / "README.md").read_text() == "# shop\nmy own note\n"
    terminal.press("q")
    terminal.until("it ended with 0")


def test_without_a_terminal_it_says_so(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = CommandLine(project, base, monkeypatch, capsys)("ui", code=2)
    assert "ui needs a terminal" in ran.err and "shadowsnap list" in ran.err and ran.out == ""


def test_without_the_extra_it_says_how_to_get_it(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    ran = CommandLine(project, base, monkeypatch, capsys)("ui", code=1)
    assert "pip install 'shadowsnap[ui]'" in ran.err and "shadowsnap restore" in ran.err


def test_only_the_viewer_imports_textual() -> None:
    code = "import sys; from shadowsnap.cli.commands import load_all; load_all(); print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
