"""A cloned repository cannot bring code that runs in our place, or in our processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import ROOT, wait_until
from shadowsnap import CheckpointManager
from shadowsnap.agents import install
from shadowsnap.git import process as processes
from shadowsnap.git.repository import sealed_environment
from shadowsnap.settings import Settings
from shadowsnap.store.layout import open_store
from shadowsnap.upkeep import start_upkeep

CANARY = "import os\nopen(os.environ.get('CANARY', '{canary}'), 'a').write('ran')\nraise SystemExit(0)\n"


def plant(folder: Path, canary: Path, *names: str) -> None:
    """Modules of these names that leave a trace when they are imported."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CANARY.format(canary=canary))


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.mark.parametrize("own", [False, True], ids=["for everybody", "with pip install --user"])
def test_the_command_of_a_hook_imports_nothing_from_the_project(
    project: Path, canary: Path, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own:
        monkeypatch.setattr("site.getusersitepackages", lambda: str(Path(install.__file__).parent.parent.parent))
    words = install.program_words()
    assert "-I" in words or {"-E", "-P"} <= set(words)
    plant(project, canary, "shadowsnap/__init__.py", "shadowsnap/__main__.py", "json.py", "os.py", "types.py")
    environment = {**os.environ, "PYTHONPATH": str(project)}
    subprocess.run(
        [*words, "hook", "claude"], cwd=project, env=environment, input=b"{}", timeout=60, check=True,
        capture_output=True,
    )  # fmt: skip
    assert not canary.exists()


def test_without_a_python_of_its_own_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from shadowsnap.errors import SettingsRefused

    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(SettingsRefused, match="no Python"):
        install.program_words()


def test_a_package_that_an_isolated_python_does_not_find_is_not_installed(tmp_path: Path, project: Path) -> None:
    """It is on PYTHONPATH alone. The command of a hook would fail, or, not isolated, run what a project has."""
    (tmp_path / "copy").mkdir()
    shutil.copytree(Path(install.__file__).parent.parent, tmp_path / "copy" / "shadowsnap")
    script = "from shadowsnap.cli.main import main; raise SystemExit(main(['install', 'claude']))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "copy"), "PYTHONDONTWRITEBYTECODE": "1"}
    bare = [sys.executable, "-S", "-c", script]  # -S: what is installed here is not there
    done = subprocess.run(bare, cwd=project, env=environment, timeout=60, capture_output=True, check=False)
    assert done.returncode != 0
    assert b"uv tool install shadowsnap" in done.stderr
    assert not (Path.home() / ".claude" / "settings.json").exists()


def test_a_hook_can_be_taken_out_although_none_could_be_installed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install("claude")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert {each.agent for each in install.installed()} == {"claude"}
    install.uninstall("claude")
    assert not install.installed()
    assert not (home / ".claude" / "settings.json").exists()


def test_a_process_in_the_background_imports_nothing_from_where_it_is_started(
    base: Path, project: Path, canary: Path
) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    store = open_store(Settings(base=base))
    plant(store.git_dir, canary, "json.py", "shadowsnap/__init__.py", "runpy.py", "importlib/__init__.py", "os.py")
    memory = base / "store" / "upkeep.json"
    before = memory.stat().st_mtime_ns if memory.exists() else None
    assert start_upkeep(store, Settings(base=base))
    wait_until(lambda: canary.exists() or not is_running("shadowsnap.upkeep.prune"))
    assert not canary.exists()
    assert before is None or memory.exists()


def is_running(word: str) -> bool:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if word.encode() in (folder / "cmdline").read_bytes():
                    return True
            except OSError:
                continue
    return False


def test_what_runs_in_the_background_is_this_very_package(tmp_path: Path) -> None:
    """Not another one that the interpreter would find first."""
    out = tmp_path / "out"
    script = tmp_path / "package" / "shadowsnap"
    script.mkdir(parents=True)
    (script / "__init__.py").write_text("")
    (script / "probe.py").write_text(f"import shadowsnap; open({str(out)!r}, 'w').write(shadowsnap.__file__)\n")
    code = processes._START
    subprocess.run(
        [sys.executable, "-I", "-B", "-c", code, str(script), "shadowsnap.probe"], check=True, cwd=ROOT, timeout=60
    )
    assert out.read_text() == str(script / "__init__.py")


@pytest.mark.parametrize("entry", ["", ".", "bin"])
def test_programs_are_not_looked_for_in_the_project(
    project: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", os.pathsep.join((entry, "/usr/bin", entry)))
    assert sealed_environment()["PATH"] == "/usr/bin"
    monkeypatch.setenv("PATH", entry)  # an empty search path would be the current directory
    assert all(map(os.path.isabs, sealed_environment()["PATH"].split(os.pathsep)))


@pytest.mark.parametrize("pager", [None, "less", "less -R"])
@pytest.mark.parametrize("path", [".:{}", ":{}", "{}:", "."])
@pytest.mark.each_value
def test_the_pager_is_not_looked_for_in_the_project(
    project: Path, canary: Path, path: str, pager: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = project / "less"
    program.write_text(f"#!/bin/sh\ntouch {canary}\nexec cat\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", path.format(os.environ["PATH"]))
    if pager:
        monkeypatch.setenv("PAGER", pager)
    script = "from shadowsnap.cli.ui import _paged; _paged('text')"
    subprocess.run([sys.executable, "-c", script], cwd=project, stdin=subprocess.DEVNULL, timeout=60, check=True)
    assert not canary.exists()
