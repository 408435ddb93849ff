"""A git that lacks the fixes we rely on is named; one that has them by another number is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from fakegit import fake_git
from upkeep_stores import other_warnings

from shadowsnap import CheckpointManager
from shadowsnap.git.repository import ATTRIBUTES_FIXED, MINIMUM, has_attributes_fix


def git_that_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, attribute: str | None = None
) -> None:
    """The real git, with another version; and, with `attribute`, with that answer to what tells whether a long
    line of attributes is ignored. (Without the fix the line is cut and the answer is `set`.)"""
    answer = f'*check-attr*) echo "probe: shadowsnap-probe: {attribute}";;' if attribute else ""
    real = shutil.which("git")
    script = f'case "$*" in version|*" version") echo git version {version};; {answer} *) exec {real} "$@";; esac'
    folder = fake_git(tmp_path / "old", script).parent
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("version", ["2.34.1", "2.38.2", "2.39.0", "2.36.3.windows.1"])
def test_an_older_git_is_named_by_status_and_doctor(
    base: Path, project: Path, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    git_that_says(tmp_path, monkeypatch, version, "set")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    assert manager.snapshot(project).status == "taken"
    (warning,) = other_warnings(manager.status())
    assert warning.startswith(f"git {version.split('.w')[0]} lacks the fix of CVE-2022-23521")
    assert [finding.code for finding in manager.doctor().findings] == ["git-old"]
    assert manager.doctor().healthy
    assert not list((base / "store").glob("probe-*"))
    cli = CommandLine(project, base, monkeypatch, capsys)
    assert "CVE-2022-23521" in cli("status").out and "CVE-2022-23521" in cli("doctor").out


def test_a_fix_under_an_older_number_counts(
    base: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Ubuntu 22.04, whose git 2.34.1 has it. The real git here is asked, and behaves as fixed."""
    git_that_says(tmp_path, monkeypatch, "2.34.1")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    assert other_warnings(manager.status()) == [] and manager.doctor().findings == ()


def test_a_newer_git_is_not_asked(
    base: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_that_says(tmp_path, monkeypatch, "2.45.0", "set")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    assert other_warnings(manager.status()) == []


def test_which_versions_are_fixed() -> None:
    for version in ((2, 34, 6), (2, 36, 5), (2, 38, 3), (2, 39, 1), (2, 40), (2, 40, 0), (2, 51, 2), (3, 0)):
        assert has_attributes_fix(version), version
    for version in ((2, 34), (2, 34, 5), (2, 35, 5), (2, 38, 2), (2, 39), (2, 39, 0), (2, 33, 9)):
        assert not has_attributes_fix(version), version
    assert [fixed[:2] for fixed in ATTRIBUTES_FIXED] == [(2, minor) for minor in range(MINIMUM[1], 40)]
