"""The README can be followed: every code block in it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import ROOT
from shadowsnap.settings import Settings

README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PICTURES = {"text"}


def blocks(language: str) -> list[str]:
    return [code for found, code in BLOCKS if found == language]


def test_every_block_is_a_picture_or_is_run_here() -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "python", *PICTURES}
    assert README.count("```") == 2 * len(BLOCKS)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with the scripts that the README calls. The real ones would set up a .venv, and run
    this test."""
    scripts = tmp_path / "checkout" / "scripts"
    scripts.mkdir(parents=True)
    stand_ins = dict.fromkeys(("bench", "soak", "test"), 'echo "$0 $*"')
    stand_ins["shadowsnap"] = f'exec "{sys.executable}" -I -m shadowsnap "$@"'
    for name, does in stand_ins.items():
        assert os.access(ROOT / "scripts" / name, os.X_OK)
        (scripts / name).write_text(f"#!/usr/bin/env bash\n{does}\n")
        (scripts / name).chmod(0o755)
    return scripts.parent


@pytest.mark.skipif(sys.platform == "win32", reason="bash")
@pytest.mark.parametrize("code", blocks("sh"))
def test_a_shell_block_runs(code: str, checkout: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=checkout,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"error|warning|hint|Traceback|NOT|FAILED", done.stderr), done.stderr
    if "demo" in code:
        assert "every byte of your uncommitted work is back" in done.stderr
    if "uninstall" in code:
        assert "+++ " in done.stdout and "claude    user" in done.stdout
        assert "claude: installed" in done.stderr and "claude: uninstalled" in done.stderr
        assert not (Path.home() / ".claude" / "settings.json").exists()
    if "prune" in code:
        assert "0 checkpoints to drop" in done.stdout and "everything is in order" in done.stdout
    if "restore" in code:
        assert "+oops" in done.stdout
        assert "  deleted  junk.txt" in done.stdout
        assert done.stdout.count("1 written, 1 deleted") + done.stdout.count("2 written, 0 deleted") == 2


@pytest.mark.parametrize("code", blocks("python"))
def test_a_python_block_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "make it shorter\n"
    assert (tmp_path / "project" / "haiku.txt").read_text() == "make it shorter"


def test_the_settings_in_the_table_are_the_real_ones() -> None:
    defaults = Settings()
    rows = re.findall(r"^\| `(\w+)` \| `?([^|`]+)`? \|", README, re.MULTILINE)
    assert len(rows) >= 8
    for name, told in rows:
        if name != "base":
            assert str(getattr(defaults, name)) in (told.strip(), f"{told.strip()}.0"), name


def test_the_package_shows_it() -> None:
    assert 'readme = "README.md"' in (ROOT / "pyproject.toml").read_text("utf-8")
