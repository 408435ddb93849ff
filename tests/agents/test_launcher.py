"""The scripts that agents start: their path never changes, and they never stop an agent."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import hook_command

from helpers import ROOT
from shadowsnap.agents import install as launcher
from shadowsnap.agents.install import install, interpreter_in, launcher_problem, program_words
from shadowsnap.errors import SettingsRefused
from shadowsnap.hook.session import read_log


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the scripts are, after installing."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "it's mine"))
    install("claude")
    return tmp_path / "it's mine" / "bin"


def run(*words: str | Path, stdin: str = "", cwd: Path = ROOT) -> tuple[int, str, str]:
    done = subprocess.run([*map(str, words)], input=stdin, capture_output=True, text=True, check=False, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def replace_python(folder: Path, python: str) -> None:
    script = folder / "shadowsnap"
    lines = script.read_text().splitlines(keepends=True)
    script.write_text("".join(f"python={python}\n" if line.startswith("python=") else line for line in lines))


def test_the_path_is_the_same_whatever_python_runs_shadowsnap(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = hook_command("codex")
    moved = tmp_path / "new environment" / "bin" / "python3"
    moved.parent.mkdir(parents=True)
    moved.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(moved))
    monkeypatch.setattr("site.getsitepackages", lambda: [str(Path(launcher.__file__).parents[2])])
    install("codex")
    assert hook_command("codex") == before
    assert interpreter_in((folder / "shadowsnap").read_text()) == str(moved)
    assert (folder / "shadowsnap").stat().st_mode & 0o777 == 0o755


def test_scripts_that_are_up_to_date_are_not_written_again(folder: Path) -> None:
    """Hermes keeps the time of the script that a person agreed to."""
    before = (folder / "shadowsnap").stat()
    install("claude")
    after = (folder / "shadowsnap").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_script_that_lost_its_permission_gets_it_back(folder: Path) -> None:
    (folder / "shadowsnap").chmod(0o644)
    install("claude")
    assert os.access(folder / "shadowsnap", os.X_OK)


def test_the_base_directory_is_private(folder: Path) -> None:
    assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_it_is_the_command_line(folder: Path, project: Path) -> None:
    assert run(folder / "shadowsnap", "--version", cwd=project)[1].startswith("shadowsnap ")
    assert run(folder / "shadowsnap", "no-such-command", cwd=project)[0] == 2


def test_it_imports_nothing_from_the_project(folder: Path, project: Path) -> None:
    (project / "shadowsnap").mkdir()
    for name in ("shadowsnap/__init__.py", "os.py", "json.py"):
        (project / name).write_text("open('canary', 'w')\nraise SystemExit(3)\n")
    environment = {**os.environ, "PYTHONPATH": str(project)}
    subprocess.run(
        [folder / "shadowsnap", "hook", "claude"], cwd=project, env=environment, input=b"{}", check=True
    )
    assert not (project / "canary").exists()


@pytest.mark.parametrize("python", ["/nowhere/python3", "/etc/passwd"])
def test_without_its_python_the_hook_is_silent_and_everything_else_is_loud(folder: Path, python: str) -> None:
    """Copilot denies every tool whose hook fails."""
    replace_python(folder, python)
    assert run(folder / "shadowsnap", "hook", "copilot", "preToolUse", stdin="{}") == (0, "", "")
    code, out, _ = run(folder / "shadowsnap", "statusline", "claude")
    assert code == 1 and out.startswith(f"NOT protected: the Python of shadowsnap is missing ({python})")
    code, out, _ = run(folder / "shadowsnap-rollback", "2")
    assert code == 0 and out.startswith("NOT protected: ")
    assert launcher_problem() == f"the Python of shadowsnap is missing: {python}"


def test_with_a_python_that_lost_shadowsnap_as_well(folder: Path) -> None:
    bare = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if bare is None or run(bare, "-I", "-c", "import shadowsnap")[0] == 0:
        pytest.skip("needs a Python without shadowsnap")
    replace_python(folder, bare)
    assert run(folder / "shadowsnap", "hook", "gemini", stdin="{}") == (0, "", "")
    code, out, _ = run(folder / "shadowsnap", "statusline", "claude")
    assert code == 1 and out.startswith("NOT protected: shadowsnap is no longer installed for ")


@pytest.mark.parametrize(
    "line", ["it's", 'a "quote', "$(touch canary) `touch canary`", "2 ; touch canary", "\\", "--nonsense"]
)
def test_rollback_takes_any_line_and_always_exits_with_0(folder: Path, project: Path, line: str) -> None:
    for words, stdin in (((line,), ""), (("-",), line)):
        code, out, errors = run(folder / "shadowsnap-rollback", *words, stdin=stdin, cwd=project)
        assert code == 0 and out and not errors
    assert not (project / "canary").exists()


def test_rollback_runs_no_program_of_a_project(
    folder: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat", "sh", "read", "python3", "env"):
        (project / name).write_text("#!/bin/sh\ntouch canary\n")
        (project / name).chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert "no history yet" in run(folder / "shadowsnap-rollback", "-", stdin="list\n", cwd=project)[1]
    assert not (project / "canary").exists()


def test_rollback_without_a_line_lists(folder: Path, project: Path) -> None:
    listed = run(folder / "shadowsnap-rollback", cwd=project)
    assert listed[0] == 0 and "no history yet" in listed[1]
    assert run(folder / "shadowsnap-rollback", "-", cwd=project) == listed
    assert run(folder / "shadowsnap-rollback", "", cwd=project) == listed


@pytest.mark.parametrize(
    "python",
    [
        "/home/dev/.cache/uv/archive-v0/Ab3dEf/bin/python",
        "/mnt/big/uv-cache/builds-v0/.tmp1Ab/bin/python",
        "/home/dev/.cache/uv/environments-v2/tool-1a2b/bin/python3",
        "/home/dev/.cache/pipx/0a1b2c/bin/python",
        "/home/dev/.local/pipx/.cache/0a1b2c/bin/python",
        "/Users/dev/Library/Caches/pipx/0a1b2c/bin/python",
    ],
)
def test_a_python_in_a_cache_is_refused_and_nothing_is_written(
    python: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(SettingsRefused, match="in a cache") as caught:
        install("claude")
    assert "uv tool install shadowsnap" in caught.value.hint
    assert not (home / ".claude").exists()


@pytest.mark.parametrize(
    "python",
    [
        "/home/dev/.local/share/uv/tools/shadowsnap/bin/python",
        "/home/dev/.local/pipx/venvs/shadowsnap/bin/python",
        "/home/dev/.cache/pypoetry/virtualenvs/shop-py3.12/bin/python",
        "/home/dev/shop/.venv/bin/python",
        "/usr/bin/python3",
    ],
)
def test_a_python_that_stays_is_fine(python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", python)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(Path(launcher.__file__).parents[2])])
    assert program_words() == (python, "-I", "-m", "shadowsnap")


def test_packages_of_a_person_are_found_without_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site.getusersitepackages", lambda: str(Path(launcher.__file__).parents[2]))
    monkeypatch.setattr("site.ENABLE_USER_SITE", True)
    (script, _) = launcher.scripts().values()
    assert 'exec "$python" -E -P -c ' in script


def test_a_probe_leaves_one_line_in_the_log_and_nothing_else(folder: Path, project: Path) -> None:
    event = '{"hook_event_name": "shadowsnap-probe", "session_id": "abc", "tool_name": "Bash", "tool_input": {}}'
    assert run(folder / "shadowsnap", "hook", "claude", stdin=event, cwd=project) == (0, "", "")
    (line,) = read_log()
    assert (line["agent"], line["status"], line["session"]) == ("claude", "probe", "abc")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["bin", "hook.log.jsonl"]
