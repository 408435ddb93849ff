"""The scripts are sound, and cost next to nothing once .venv is set up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import ROOT

COMMANDS = [
    "scripts/bench", "scripts/fuzz", "scripts/screenshots", "scripts/shadowsnap", "scripts/soak", "scripts/test",
    ".ci/run",
]  # fmt: skip

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="bash scripts")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_script_is_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    assert (ROOT / name).read_text().startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("name", [*COMMANDS, "scripts/_env"])
def test_a_script_parses(name: str) -> None:
    done = subprocess.run(["bash", "-n", ROOT / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose .venv is ready, with a python that only says how it was called."""
    checkout = tmp_path / "a checkout"
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    (checkout / "pyproject.toml").write_text("[project]\n")
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "<%s>" "$PWD" "$@"\n')
    python.chmod(0o755)
    (checkout / ".venv" / ".ready-runtime").write_text(f"{checkout.resolve()}\n[project]\n")
    return checkout


def run(script: Path, *args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHON": "", **env}
    return subprocess.run(
        ["bash", script, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def test_a_ready_checkout_runs_at_once_in_the_callers_directory(checkout: Path, project: Path) -> None:
    snap = checkout / "scripts" / "shadowsnap"
    done = run(snap, "list", "a b", cwd=project, HOME="", PYTHON="/nonexistent")
    assert done.stdout == f"<{project}><-I><-m><shadowsnap><list><a b>"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_script_works_through_a_link(checkout: Path, project: Path) -> None:
    (project / "snap").symlink_to(checkout / "scripts" / "shadowsnap")
    assert run(project / "snap", "list", cwd=project).stdout.endswith("<shadowsnap><list>")


@pytest.mark.parametrize("change", ["pyproject", "moved", "python gone"])
def test_a_checkout_that_changed_is_set_up_again(checkout: Path, project: Path, change: str) -> None:
    if change == "pyproject":
        (checkout / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    elif change == "moved":
        checkout = checkout.rename(checkout.with_name("elsewhere"))
    else:
        (checkout / ".venv" / "bin" / "python").unlink()
    empty = project / "empty-path"
    empty.mkdir()
    for tool in ("bash", "dirname", "readlink"):
        (empty / tool).symlink_to(shutil.which(tool) or tool)
    done = run(checkout / "scripts" / "shadowsnap", "list", cwd=project, PATH=str(empty))
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Python 3.11 or newer" in done.stderr


def test_the_agents_are_played_by_a_program_of_their_own(checkout: Path, project: Path) -> None:
    done = run(checkout / "scripts" / "test", "--agents", "codex", cwd=project, PYTHON="/nonexistent")
    assert done.stdout == f"<{project}><{checkout}/scripts/agents><codex>"
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["frameworks", "remotes"])
def test_what_needs_more_packages_has_a_venv_of_its_own(checkout: Path, project: Path, name: str) -> None:
    venv = checkout / f".venv-{name}"
    shutil.copytree(checkout / ".venv", venv)
    (venv / ".ready-runtime").rename(venv / f".ready-dev,{name}")
    shutil.rmtree(checkout / ".venv")
    done = run(checkout / "scripts" / "test", f"--{name}", "-k", "x", cwd=project, PYTHON="/nonexistent")
    workers = len(os.sched_getaffinity(0)) + 2
    started = f"<{checkout}><-m><pytest><-n><{workers}><--dist><worksteal><{checkout}/tests/{name}><-k><x>"
    assert started in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
