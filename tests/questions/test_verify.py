"""verify: a checkpoint is restored into a scratch directory and compared with what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from stories import ask, run_command

from helpers import call_unprivileged, git, loose_object, manifest
from shadowsnap import CheckpointManager
from shadowsnap.deadline import Deadline
from shadowsnap.settings import settings_to_text
from shadowsnap.snapshot.copies import differences_of_copy, verify_newest, write_copy
from shadowsnap.snapshot.states import State
from shadowsnap.store.layout import open_store


@pytest.fixture
def manager(project: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointManager:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    (project / "closed").mkdir()
    (project / "closed" / "file").write_text("1\n")
    (project / "closed").chmod(0o500)
    (project / "hollow").mkdir()
    manager.snapshot(project, "first")
    return manager


def damage(base: Path, checkpoint: str, name: str) -> None:
    """Lose one file of a checkpoint."""
    loose_object(base / "store", git(base / "store", "rev-parse", f"{checkpoint}:{name}")).unlink()


def test_a_sound_checkpoint_is_verified(manager: CheckpointManager, project: Path, base: Path) -> None:
    before = manifest(project)
    first = manager.get(project, 1)
    (project / "README.md").write_text("changed\n")
    newest = manager.snapshot(project).checkpoint
    assert newest is not None
    found = ask(project, base, "verify")
    assert (found["verified"], found["checkpoint_id"], found["problems"]) == (True, newest.id, [])
    found = ask(project, base, "verify", "1")
    files = sum(kind != "dir" for kind, _, _ in before.values())
    assert (found["verified"], found["checkpoint_id"], found["file_count"]) == (True, first.id, files)
    text = run_command(project, base, "verify", "1").stdout.decode()
    assert text == f"{first.short_id} is exact: {files} files restored and compared\n"
    assert os.listdir(os.environ["TMPDIR"]) == []
    assert ask(project, base, "verify", "77", code=3)["error"]


def test_a_state_with_closed_directories_is_verified(project: Path, base: Path, tmp_path: Path) -> None:
    for bits in (0o000, 0o100, 0o300, 0o400):
        (project / f"closed-{bits:o}").mkdir()
        (project / f"closed-{bits:o}").chmod(bits)
    (tmp_path / "scratch").mkdir()

    def verified() -> tuple[str, ...]:
        tempfile.tempdir = str(tmp_path / "scratch")
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        manager.snapshot(project)
        return manager.verify(project).problems

    assert call_unprivileged(verified, owning=[tmp_path]) == ()


def test_a_damaged_checkpoint_is_not(manager: CheckpointManager, project: Path, base: Path) -> None:
    first = manager.get(project, 1)
    for name in ("data.bin", "run.sh"):
        damage(base, first.id, name)
    found = ask(project, base, "verify", "1", code=1)
    assert found["verified"] is False
    assert found["problems"] == ["data.bin: its content is lost", "run.sh: its content is lost"]
    ran = run_command(project, base, "verify", "1", code=1)
    assert ran.stdout.decode().splitlines()[0] == f"{first.short_id} is damaged: 2 problems"
    assert os.listdir(os.environ["TMPDIR"]) == []


@pytest.mark.parametrize("change", ["content", "bits", "missing", "more", "type", "directory", "its bits"])
def test_the_comparison_notices_everything(
    manager: CheckpointManager, project: Path, tmp_path: Path, change: str
) -> None:
    checkpoint = manager.get(project, 1)
    git_, state, copy = open_store(manager.settings).git(), State.of_checkpoint(checkpoint), tmp_path / "copy"
    copy.mkdir()
    write_copy(git_, state, copy)
    assert manifest(copy) == manifest(project)
    assert differences_of_copy(git_, state, copy) == []
    if change == "content":
        (copy / "data.bin").write_bytes(bytes(range(255)) + b"\0")
    elif change == "bits":
        (copy / "private.txt").chmod(0o640)
    elif change == "missing":
        (copy / "README.md").unlink()
    elif change == "more":
        (copy / "hollow" / "more").touch()
    elif change == "type":
        (copy / "link").unlink()
        (copy / "link").write_text("src/main.py")
    elif change == "directory":
        (copy / "hollow").rmdir()
    else:
        (copy / "hollow").chmod(0o700)
    assert len(differences_of_copy(git_, state, copy)) == 1


# --- upkeep and status ------------------------------------------------------------------------------------


def test_upkeep_verifies_the_newest_checkpoint_now_and_then(
    manager: CheckpointManager, project: Path, base: Path, tmp_path: Path
) -> None:
    assert ask(project, base, "status", "--store")["projects"][0]["verified_at"] is None
    assert "verified    not yet\n" in run_command(project, base, "status", "--store").stdout.decode()
    settings = settings_to_text(manager.settings)
    subprocess.run([sys.executable, "-m", "shadowsnap.upkeep.prune", settings], check=True, timeout=60)
    assert ask(project, base, "status")["here"]["verified_at"] is not None
    at = ask(project, base, "status", "--store")["projects"][0]["verified_at"]
    assert at is not None
    shown = run_command(project, base, "status", "--store").stdout.decode()
    assert "verified    1 project, last " in shown  # just now, or some seconds ago on a busy machine
    store = open_store(manager.settings)
    assert verify_newest(store, Deadline(60)) == []  # it is not due again
    assert ask(project, base, "status", "--store")["projects"][0]["verified_at"] == at
    assert manager.doctor().findings == ()


def test_a_checkpoint_that_is_damaged_is_reported(manager: CheckpointManager, project: Path, base: Path) -> None:
    damage(base, manager.get(project, 1).id, "data.bin")
    (result,) = verify_newest(open_store(manager.settings), Deadline(60))
    assert not result.verified
    status = ask(project, base, "status", "--store")
    assert status["projects"][0]["verified_at"] is None
    (failure,) = status["failures"]
    assert "cannot be restored exactly: data.bin: its content is lost" in failure["what"]
    assert failure["advice"] == "run `shadowsnap doctor --repair`"
