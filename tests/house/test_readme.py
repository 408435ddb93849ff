"""The README can be followed: every code block in it runs, and its picture is what the demo shows."""

from __future__ import annotations

import json
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
SHADOWSNAP = f'"{sys.executable}" -I -m shadowsnap'
# What a person is asked on a terminal is answered with yes.
ANSWERING = f'case "$1" in undo|redo|restore) exec {SHADOWSNAP} "$@" --yes;; "") set -- list;; esac\n'


def blocks(language: str) -> list[str]:
    return [code for found, code in BLOCKS if found == language]


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_block_is_a_picture_or_is_run_here() -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "python", *PICTURES}
    assert README.count("```") == 2 * len(BLOCKS)


def test_installing_comes_first() -> None:
    titles = re.findall(r"^## (.+)$", README, re.MULTILINE)
    assert titles[:3] == ["Install", "I just lost work: what now?", "My agent has its own /rewind: why this?"]
    for way in ("uv tool install", "pipx install", "pip install"):
        assert f"{way} shadowsnap" in section("Install")
    assert "`pip install .`" in section("Install")
    for command in ("scripts/shadowsnap demo", "scripts/test"):
        assert f"\n{command} " in section("Install")


def test_the_promises_are_those_of_their_page() -> None:
    page = (ROOT / "shadowsnap" / "docs" / "promises.md").read_text("utf-8")
    listed = re.findall(r"^- \*\*(.+?)\.\*\* ", section("What is promised"), re.MULTILINE)
    assert listed == re.findall(r"^\d+\. \*\*(.+?)\.\*\* ", page, re.MULTILINE) and len(listed) == 10


def program(path: Path, does: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{does}\n")
    path.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory with the scripts that the README calls, and programs that it takes for installed. The real
    scripts would set up a .venv, and run this test; the real installers would install."""
    checkout = tmp_path / "checkout"
    for name in ("bench", "soak", "test"):
        program(checkout / "scripts" / name, 'echo "$0 $*"')
    program(checkout / "scripts" / "shadowsnap", f'exec {SHADOWSNAP} "$@"')
    for name in ("bench", "soak", "test", "shadowsnap"):
        assert os.access(ROOT / "scripts" / name, os.X_OK)
    for name in ("uv", "pipx", "pip"):
        program(tmp_path / "bin" / name, 'echo "$0 $*"')
    program(tmp_path / "bin" / "shadowsnap", f'{ANSWERING}exec {SHADOWSNAP} "$@"')
    return checkout


@pytest.mark.skipif(sys.platform == "win32", reason="bash")
@pytest.mark.parametrize("code", blocks("sh"))
def test_a_shell_block_runs(
    code: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    where = checkout
    if "shadowsnap undo" in code:  # for somebody who just lost work
        kept = subprocess.run(["shadowsnap", "demo", "--keep", "--json"], capture_output=True, check=True)
        top = Path(json.loads(kept.stdout)["directory"])
        monkeypatch.setenv("HOME", str(top))
        monkeypatch.setenv("SHADOWSNAP_HOME", str(top / "store"))
        where = top / "shop"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    talk = done.stderr.replace("merged with what was edited since", "")
    assert not re.search(r"error|warning|hint|Traceback|NOT|FAILED", talk), done.stderr
    if "demo" in code:
        assert "every byte of the lost files is back, and your edits stay" in done.stderr
    if "uninstall" in code:
        assert "+++ " in done.stdout and "claude    hook installed" in done.stdout
        assert "claude: installed" in done.stderr and "claude: uninstalled" in done.stderr
        assert not (Path.home() / ".claude" / "settings.json").exists()
    if "prune" in code:
        assert "0 checkpoints to drop" in done.stdout and "everything is in order" in done.stdout
    if "shadowsnap undo" in code:
        assert "clean the project up" in done.stdout and "-- vouchers, bundles" in done.stdout
        assert "took back " in done.stdout


def masked(lines: list[str]) -> list[str]:
    """A timeline without the ages, which are other ones each time."""
    rows = [re.sub(r"^(\s*[\d.]+  ).{8}", r"\1        ", line) for line in lines]
    return [re.sub(r"last check .*$", "last check", line) for line in rows]


def test_the_picture_is_what_the_demo_shows() -> None:
    picture = blocks("text")[0].splitlines()
    done = subprocess.run(
        [sys.executable, "-I", "-m", "shadowsnap", "demo", "--json"], capture_output=True, check=True, timeout=120
    )
    assert masked(picture) == masked(json.loads(done.stdout)["picture"])
    assert max(map(len, picture)) <= 80


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
    assert done.stdout == "make it shorter\n2 make it shorter 1\n1 write a haiku 1\n"
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
