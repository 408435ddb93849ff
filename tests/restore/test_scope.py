"""Checkpoints of single files, where the directory itself is not captured."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from restoring import assert_sound, checkpoint, file_changes, kept_paths

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchPath, PathRefused, RestoreRefused


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


@pytest.fixture
def full_home(home: Path) -> Path:
    """A home directory with private files."""
    (home / ".bashrc").write_text("alias a=b\n")
    (home / "letter").write_text("private\n")
    (home / ".config").mkdir(exist_ok=True)
    (home / ".config" / "tool.toml").write_text("then\n")
    (home / ".config" / "tool.toml").chmod(0o600)
    return home


def test_a_file_in_the_home_directory_comes_back_alone(
    manager: CheckpointManager, full_home: Path, base: Path
) -> None:
    target = checkpoint(manager, full_home, ".bashrc", full_home / ".config" / "tool.toml")
    assert target.scope == "paths"
    (full_home / ".bashrc").write_text("rm -rf everything\n")
    (full_home / ".config" / "tool.toml").unlink()
    (full_home / "letter").write_text("written meanwhile\n")
    (full_home / "later").write_text("made since\n")
    mutated = manifest(full_home)
    plan = manager.restore(full_home, target.id, dry_run=True)
    result = manager.restore(full_home, target.id)
    assert file_changes(result) == file_changes(plan)
    assert result.written == (".bashrc", ".config/tool.toml") and result.deleted == ()
    assert (full_home / ".bashrc").read_text() == "alias a=b\n"
    assert (full_home / ".config" / "tool.toml").stat().st_mode & 0o777 == 0o600
    assert (full_home / "letter").read_text() == "written meanwhile\n"
    assert (full_home / "later").exists()
    manager.undo(full_home)
    assert manifest(full_home) == mutated
    manager.redo(full_home)
    assert (full_home / ".bashrc").read_text() == "alias a=b\n"
    assert_sound(base, full_home / ".config")


def test_a_file_that_did_not_exist_then_is_deleted_with_the_directories_made_for_it(
    manager: CheckpointManager, full_home: Path
) -> None:
    before = manifest(full_home)
    target = checkpoint(manager, full_home, "new-dir/deeper/file", ".config/new")
    (full_home / "new-dir" / "deeper").mkdir(parents=True)
    (full_home / "new-dir" / "deeper" / "file").write_text("made by the tool\n")
    (full_home / ".config" / "new").write_text("made by the tool\n")
    mutated = manifest(full_home)
    result = manager.restore(full_home, target.id)
    assert result.deleted == (".config/new", "new-dir/deeper/file")
    assert manifest(full_home) == before
    manager.undo(full_home)
    assert manifest(full_home) == mutated
    manager.redo(full_home)
    assert manifest(full_home) == before


def test_a_directory_made_for_a_file_stays_if_it_holds_other_files(
    manager: CheckpointManager, full_home: Path
) -> None:
    target = checkpoint(manager, full_home, "new-dir/file")
    (full_home / "new-dir").mkdir()
    (full_home / "new-dir" / "file").write_text("made by the tool\n")
    (full_home / "new-dir" / "mine").write_text("not the tool's\n")
    manager.restore(full_home, target.id)
    assert sorted(os.listdir(full_home / "new-dir")) == ["mine"]


def test_undo_removes_the_directories_that_a_restore_made(
    manager: CheckpointManager, full_home: Path
) -> None:
    (full_home / "a" / "b").mkdir(parents=True)
    (full_home / "a" / "b" / "c").write_text("then\n")
    (full_home / "a" / "b").chmod(0o700)
    target = checkpoint(manager, full_home, "a/b/c")
    original = manifest(full_home)
    shutil.rmtree(full_home / "a")
    mutated = manifest(full_home)
    manager.restore(full_home, target.id)
    assert manifest(full_home) == original
    manager.undo(full_home)
    assert manifest(full_home) == mutated


def test_types_may_have_changed(manager: CheckpointManager, full_home: Path) -> None:
    (full_home / "link").symlink_to("letter")
    target = checkpoint(manager, full_home, "link", ".bashrc")
    (full_home / "link").unlink()
    (full_home / "link").write_text("a file now\n")
    (full_home / ".bashrc").unlink()
    (full_home / ".bashrc").mkdir()
    (full_home / ".bashrc" / "odd.log").write_text("ignored\n")
    mutated = manifest(full_home)
    manager.restore(full_home, target.id)
    assert os.readlink(full_home / "link") == "letter"
    assert (full_home / ".bashrc").read_text() == "alias a=b\n"
    manager.undo(full_home)
    assert manifest(full_home) == mutated


def test_some_of_the_named_files(manager: CheckpointManager, full_home: Path) -> None:
    target = checkpoint(manager, full_home, ".bashrc", "letter", "absent")
    for name in (".bashrc", "letter", "absent"):
        (full_home / name).write_text("now\n")
    assert manager.restore(full_home, target.id, paths=["letter"]).written == ("letter",)
    assert (full_home / ".bashrc").read_text() == "now\n"
    assert manager.restore(full_home, target.id, paths=["absent"]).deleted == ("absent",)
    with pytest.raises(NoSuchPath):
        manager.restore(full_home, target.id, paths=[".config/tool.toml"])
    with pytest.raises(PathRefused):
        manager.restore(full_home, target.id, paths=["../elsewhere"])


def test_a_secret_in_the_home_directory_is_neither_captured_nor_touched(
    manager: CheckpointManager, full_home: Path
) -> None:
    (full_home / ".netrc").write_text("password\n")
    target = checkpoint(manager, full_home, ".netrc", ".bashrc")
    (full_home / ".netrc").write_text("another\n")
    (full_home / ".bashrc").write_text("now\n")
    result = manager.restore(full_home, target.id)
    assert (full_home / ".netrc").read_text() == "another\n"
    assert kept_paths(result) == {".netrc": "secret at the checkpoint"}


def test_a_named_file_in_the_way_of_a_repository_is_refused(
    manager: CheckpointManager, full_home: Path
) -> None:
    target = checkpoint(manager, full_home, "thing")
    (full_home / "thing" / ".git").mkdir(parents=True)
    (full_home / "thing" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert manager.restore(full_home, target.id).deleted == ()
    (full_home / "note").write_text("then\n")
    target = checkpoint(manager, full_home, "note")
    (full_home / "note").unlink()
    (full_home / "note" / ".git").mkdir(parents=True)
    with pytest.raises(RestoreRefused, match="note/.git"):
        manager.restore(full_home, target.id)


def test_named_files_of_a_project_are_restored_although_ignored(
    manager: CheckpointManager, project: Path, base: Path
) -> None:
    (project / "out.log").write_text("then\n")
    target = checkpoint(manager, project, "out.log")
    assert target.scope == "tree"
    (project / "out.log").unlink()
    mutated = manifest(project)
    manager.restore(project, target.id)
    assert (project / "out.log").read_text() == "then\n"
    for cache in (base / "store" / "indexes").iterdir():  # whatever is remembered between captures is lost
        cache.unlink()
    manager.undo(project)
    assert manifest(project) == mutated


@pytest.mark.parametrize(("name", "content"), [(".env", "SECRET=1\n"), ("large", "x" * 5000)])
def test_undo_removes_files_that_later_captures_leave_out(
    base: Path, project: Path, name: str, content: str
) -> None:
    """The checkpoint was taken under other settings."""
    generous = CheckpointManager(base=base, include_secrets=True, max_file_size_mb=0)
    (project / name).write_text(content)
    target = checkpoint(generous, project)
    (project / name).unlink()
    mutated = manifest(project)
    manager = CheckpointManager(base=base, max_file_size_mb=0.001)
    manager.restore(project, target.id)
    assert (project / name).read_text() == content
    manager.undo(project)
    assert manifest(project) == mutated
    manager.redo(project)
    assert (project / name).read_text() == content
