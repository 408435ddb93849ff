"""The examples of `shadowsnap docs questions` are what the commands really print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from forking import run_program
from stories import Story

from shadowsnap.cli.commands.help import DOCS_FOLDER

PAGE = (DOCS_FOLDER / "questions.md").read_text("utf-8")

BEFORE = "def total(prices):\n    return sum(prices)\n"
HEAD = "def total(prices, discount=0):\n"
ROUNDED = "    return round(sum(prices) - discount, -1)\n"
TURNS = [
    ("claude", "add a discount", HEAD + "    return sum(prices) - discount\n"),
    ("claude", "round the total", HEAD + ROUNDED),
    ("codex", "say what it is for", HEAD + '    """What a cart costs."""\n' + ROUNDED),
]
OWN = "# the cart of the shop\n"


@pytest.fixture
def shop(tmp_path: Path, base: Path) -> Story:
    story = Story(tmp_path / "shop", base)
    story.project.mkdir()
    (story.project / "cart.py").write_text(BEFORE)
    manager, own = story.manager(), ""
    for agent, prompt, text in TURNS:
        manager.new_turn(agent, prompt=prompt, agent=agent)
        manager.before_tool("Bash", {"command": "python edit.py"}, story.project)
        (story.project / "cart.py").write_text(own + text)
        manager.end_turn()
        own = OWN
        (story.project / "cart.py").write_text(own + text)
    return story


def examples() -> list[tuple[str, str]]:
    """Each command of the page, and what it prints."""
    blocks = re.findall(r"(?m)^    \$ (.+)\n((?:    (?!\$ ).*\n)*)", PAGE)
    return [(command, re.sub(r"(?m)^    ", "", output)) for command, output in blocks]


@pytest.mark.skipif(sys.platform == "win32", reason="the examples are for a Unix shell")
def test_the_examples_print_what_the_page_says(shop: Story, tmp_path: Path) -> None:
    found = examples()
    assert len(found) == 7
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, words in (("shadowsnap", f"{sys.executable} -m shadowsnap"), ("python3", sys.executable)):
        (binaries / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (binaries / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "SHADOWSNAP_HOME": str(shop.base)}
    for command, expected in found:
        done = subprocess.run(
            ["sh", "-c", command], cwd=shop.project, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        assert masked(done.stdout.replace(str(tmp_path), "/home/me")) == masked(expected), command


def masked(text: str) -> str:
    """Ids differ each time."""
    return re.sub(r"\b[0-9a-f]{8}\b", "xxxxxxxx", text)


def test_every_command_of_the_page_exists_and_is_explained() -> None:
    for name in ("blame", "bisect", "fork", "verify", "export", "mcp"):
        done = run_program(name, "--help", check=True)
        assert done.stdout.decode().startswith(f"usage: shadowsnap {name}")
        assert f"shadowsnap {name}" in PAGE
