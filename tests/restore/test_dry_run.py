"""A dry run reports exactly what the real run then does, and changes nothing: neither files nor the store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from restoring import all_ids, checkpoint, file_changes, mtimes, store_picture

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NothingToRedo, NothingToUndo, RestoreRefused


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, max_file_size_mb=0.01)


def change_files(project: Path) -> None:
    (project / "README.md").write_text("now\n")
    (project / "src" / "main.py").unlink()
    (project / "new").write_text("made since\n")
    (project / "run.sh").chmod(0o644)


def change_types(project: Path) -> None:
    shutil.rmtree(project / "src")
    (project / "src").symlink_to("nowhere")
    (project / "README.md").unlink()
    (project / "README.md" / "deep").mkdir(parents=True)
    (project / "README.md" / "deep" / "ignored.log").write_text("ignored\n")
    (project / "README.md" / "build").mkdir()
    (project / "link").unlink()
    (project / "link").mkdir()


def change_directories(project: Path) -> None:
    (project / "src").chmod(0o700)
    (project / "hollow" / "inner").mkdir(parents=True)
    (project / "fresh").mkdir()
    (project / "fresh" / "only.log").write_text("ignored\n")
    shutil.rmtree(project / "was-empty")


def make_uncaptured(project: Path) -> None:
    (project / "large").write_bytes(b"x" * 20_000)
    (project / ".env").write_text("SECRET=1\n")
    (project / "README.md").write_bytes(b"x" * 20_000)
    (project / ".gitignore").write_text("# no rules any more\n")
    os.mkfifo(project / "pipe")


CHANGES = [change_files, change_types, change_directories, make_uncaptured]


@pytest.fixture
def target(manager: CheckpointManager, project: Path) -> str:
    (project / ".gitignore").write_text("notes\n")
    (project / "notes").write_text("ignored then\n")
    (project / "was-empty").mkdir()
    return checkpoint(manager, project).id


@pytest.mark.parametrize("paths", [(), ("README.md",), ("src", "link", "run.sh"), ("fresh", "src"), (".",)])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.each_value
def test_a_dry_run_is_the_plan_of_the_real_run(
    manager: CheckpointManager, project: Path, target: str, base: Path, change: Callable[[Path], None],
    paths: tuple[str, ...], warm: bool,
) -> None:  # fmt: skip
    change(project)
    wanted = [path for path in paths if path != "fresh" or change is change_directories]
    if warm:  # the store knows the present already
        checkpoint(manager, project)
    files, times, store = manifest(project), mtimes(project), store_picture(base)
    plan = manager.restore(project, target, paths=wanted, dry_run=True)
    again = manager.restore(project, target, paths=wanted, dry_run=True)
    assert not plan.applied and plan.undo_id is None and plan == again
    assert manifest(project) == files and mtimes(project) == times
    assert store_picture(base) == store
    result = manager.restore(project, target, paths=wanted)
    assert file_changes(result) == file_changes(plan)
    now = manifest(project)
    for path in plan.deleted:
        parents = [each for each in plan.written if each.startswith(path.rstrip("/"))]
        assert os.fsencode(path.rstrip("/")) not in now or parents  # something else came there
    for path in plan.written:
        assert os.fsencode(path.rstrip("/")) in now
    touched = {os.fsencode(path.rstrip("/")) for path in (*plan.written, *plan.deleted)}
    changed = {path for path in files.keys() | now.keys() if files.get(path) != now.get(path)}
    folders = {path for path in changed if (now.get(path) or files[path])[0] == "dir"}
    assert changed - folders <= touched
    before_undo = manager.undo(project, dry_run=True) if result.undo_id else None
    if before_undo is not None:
        assert file_changes(before_undo) == file_changes(manager.undo(project))
        assert manifest(project) == files


def test_a_dry_run_reports_conflicts_where_the_real_run_refuses(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    (project / "README.md").unlink()
    (project / "README.md").mkdir()
    git(project / "README.md", "init")
    (project / "empty").unlink()
    os.mkfifo(project / "empty")
    (project / "data.bin").write_text("now\n")
    files, store = manifest(project), store_picture(base)
    plan = manager.restore(project, target, dry_run=True)
    assert {conflict.path for conflict in plan.conflicts} == {"README.md/.git", "empty"}
    assert store_picture(base) == store
    with pytest.raises(RestoreRefused) as caught:
        manager.restore(project, target)
    for conflict in plan.conflicts:
        assert conflict.path in str(caught.value) and conflict.why in str(caught.value)
    assert manifest(project) == files


def test_a_dry_run_without_changes_reports_nothing(manager: CheckpointManager, project: Path, target: str) -> None:
    plan = manager.restore(project, target, dry_run=True)
    assert file_changes(plan) == ((), (), (), ()) and not plan.applied


def test_a_dry_run_of_undo_and_redo_moves_nothing(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    for walk in (manager.undo, manager.redo):
        with pytest.raises((NothingToUndo, NothingToRedo)):
            walk(project, dry_run=True)
    change_files(project)
    manager.restore(project, target)
    for walk in (manager.undo, manager.redo):
        files, store, ids = manifest(project), store_picture(base), all_ids(manager, project)
        plan = walk(project, dry_run=True)
        assert plan.written and not plan.applied
        assert manifest(project) == files and store_picture(base) == store and all_ids(manager, project) == ids
        assert file_changes(walk(project)) == file_changes(plan)
