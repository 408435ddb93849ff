"""A store that sandboxed agents can write to is warned about."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from command_line import CommandLine

from shadowsnap import CheckpointManager
from shadowsnap.agents.state import writable_folders
from shadowsnap.upkeep.status import exposure

HOME = Path("/home/dev")


@pytest.fixture
def safe_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests lie in the directory of temporary files, which is warned about: here it is another one."""
    monkeypatch.setattr("shadowsnap.upkeep.status._TEMPORARY", ("/nowhere",))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/nowhere-else")


def store_warnings(manager: CheckpointManager) -> list[str]:
    return [text for text in manager.status().warnings if text.startswith("the store lies")]


@pytest.mark.usefixtures("safe_tmp")
def test_a_store_of_its_own_is_not_warned_about(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    assert store_warnings(manager) == []
    assert "the store lies" not in CommandLine(project, base, monkeypatch, capsys)("status").out


@pytest.mark.usefixtures("safe_tmp")
@pytest.mark.parametrize("inside", [".shadowsnap", "deep/er/base"])
def test_a_store_inside_a_project_is_warned_about(
    project: Path, tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = project / inside
    cli = CommandLine(project, base, monkeypatch, capsys)
    found = cli.json("status", "--store")["warnings"]  # the current project, before anything was captured
    assert found[0].startswith(f"the store lies inside the project {project}")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    assert store_warnings(manager) == []
    manager.snapshot(project)
    assert store_warnings(manager)[0].startswith(f"the store lies inside the project {project}")
    monkeypatch.chdir(tmp_path)
    assert "where agents write" in " ".join(cli("status").out.split())


@pytest.mark.usefixtures("safe_tmp")
def test_a_store_that_a_link_hides_in_a_project_is_warned_about(project: Path, tmp_path: Path) -> None:
    (project / "hidden").mkdir()
    (tmp_path / "link").symlink_to(project / "hidden")
    manager = CheckpointManager(base=tmp_path / "link" / "base", background_upkeep=False, fsync=False)
    manager.snapshot(project)
    assert store_warnings(manager)


def test_a_store_among_temporary_files_is_warned_about(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    assert "most sandboxes let agents write to" in store_warnings(manager)[0]


@pytest.mark.parametrize("base", ["/tmp/x", "/var/tmp/x/y", "/tmp", "~/.cache/shadowsnap", "~/.gemini/x"])
def test_places_that_sandboxes_let_agents_write_to(base: str) -> None:
    assert exposure(Path(base).expanduser(), [])


@pytest.mark.parametrize("base", ["/tmpfs/x", "~/.local/state/shadowsnap", "/srv/tmp/x"])
def test_places_that_they_do_not(base: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(HOME))  # the home of a test lies among temporary files
    assert exposure(Path(base).expanduser(), [HOME / "project", ""]) == ""


@pytest.mark.usefixtures("safe_tmp")
def test_what_the_settings_of_agents_open_up_is_warned_about(
    home: Path, base: Path, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".codex").mkdir()
    codex, claude = home / ".codex" / "config.toml", home / ".claude" / "settings.json"
    codex.write_text(f'[sandbox_workspace_write]\nwritable_roots = ["{base.parent}", 3, "relative"]\n')
    assert writable_folders() == [str(base.parent)]
    cli = CommandLine(project, base, monkeypatch, capsys)
    assert "which the settings of an agent let it write to" in cli.json("status", "--store")["warnings"][0]
    codex.write_text("[[[")
    claude.parent.mkdir()
    claude.write_text(json.dumps({"sandbox": {"filesystem": {"allowWrite": [f"/{base}", "~/x", "./y"]}}}))
    assert writable_folders() == [str(base), str(home / "x")]
    assert "which the settings of an agent let it write to" in cli.json("status", "--store")["warnings"][0]
    for text in ("[" * 100_000, '{"sandbox": []}', "null", '{"sandbox": {"filesystem": {"allowWrite": {}}}}'):
        claude.write_text(text)
        assert writable_folders() == []
