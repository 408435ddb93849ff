"""Stages: committed or put back together, also when their process dies."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import DirtyWorkingTree, NothingToUndo, RevertRefused, StageClosed
from shadowsnap.model import Checkpoint


@pytest.fixture
def manager(base: Path, project: Path) -> CheckpointManager:
    manager = CheckpointManager(base=base, fsync=False)
    assert manager.snapshot(project).status == "taken"
    return manager


def edit_everything(project: Path) -> None:
    for path in sorted(project.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (project / "new/deep").mkdir(parents=True)
    (project / "new/deep/file").write_text("made in the stage\n")
    (project / "empty").mkdir()


def fail_within_a_stage(manager: CheckpointManager, project: Path, action: Callable[[], None]) -> None:
    with manager.stage(project):
        action()
        raise ZeroDivisionError


def spoil(project: Path) -> None:
    (project / "outer.txt").write_text("changed by the inner stage\n")
    (project / "inner.txt").write_text("inner\n")


def test_a_stage_commits_a_checkpoint_with_its_data(manager: CheckpointManager, project: Path) -> None:
    with manager.stage(project, edit_id="e1", session_id="s1", risk_tier="low") as stage:
        (project / "made.txt").write_text("made\n")
        checkpoint = stage.commit("make a file")
    newest = manager.list_checkpoints(project)[0]
    assert newest.id == checkpoint.id
    assert (newest.kind, newest.reason, newest.session_id) == ("stage", "make a file", "s1")
    assert (newest.metadata["edit_id"], newest.metadata["risk_tier"]) == ("e1", "low")


def test_a_stage_that_ends_well_is_committed(manager: CheckpointManager, project: Path) -> None:
    with manager.stage(project, edit_id="e1", message="given beforehand") as stage:
        (project / "made.txt").write_text("made\n")
    assert stage.checkpoint is not None
    assert manager.list_checkpoints(project)[0].reason == "given beforehand"


def test_an_exception_puts_everything_back(manager: CheckpointManager, project: Path) -> None:
    before = manifest(project)
    with pytest.raises(ZeroDivisionError):
        fail_within_a_stage(manager, project, lambda: edit_everything(project))
    assert manifest(project) == before


def test_discard_puts_everything_back(manager: CheckpointManager, project: Path) -> None:
    before = manifest(project)
    with manager.stage(project) as stage:
        edit_everything(project)
        result = stage.discard()
    assert manifest(project) == before
    assert "new/deep/file" in result.deleted
    assert [each.kind for each in manager.list_checkpoints(project)] == ["pre-restore", "manual"]


def test_it_refuses_changes_that_no_checkpoint_holds(manager: CheckpointManager, project: Path) -> None:
    (project / "unsaved.txt").write_text("only here\n")
    with pytest.raises(DirtyWorkingTree, match=r"unsaved\.txt"), manager.stage(project):
        pass
    assert (project / "unsaved.txt").read_text() == "only here\n"


def test_it_refuses_a_directory_without_any_checkpoint(base: Path, project: Path) -> None:
    with pytest.raises(DirtyWorkingTree), CheckpointManager(base=base, fsync=False).stage(project):
        pass


def test_stray_ignored_files_do_not_count(manager: CheckpointManager, project: Path) -> None:
    (project / "node_modules").mkdir()
    (project / "node_modules/stray.js").write_text("ignored\n")
    with manager.stage(project) as stage:
        (project / "made.txt").write_text("made\n")
        stage.discard()
    assert (project / "node_modules/stray.js").exists()
    assert not (project / "made.txt").exists()


def test_a_stage_may_begin_on_an_older_checkpoint_that_holds_the_files(
    manager: CheckpointManager, project: Path
) -> None:
    first = manager.get(project, "last")
    (project / "later.txt").write_text("later\n")
    manager.new_turn()
    assert manager.ensure_checkpoint(project)
    (project / "later.txt").unlink()
    with manager.stage(project) as stage:
        assert stage.before is not None
        assert stage.before.tree == first.tree


def test_a_stage_ends_once(manager: CheckpointManager, project: Path) -> None:
    with manager.stage(project) as stage:
        (project / "made.txt").write_text("made\n")
        stage.commit("once")
        with pytest.raises(StageClosed, match="committed"):
            stage.commit("twice")
        with pytest.raises(StageClosed, match="committed"):
            stage.discard()


def test_an_inner_stage_is_put_back_alone(manager: CheckpointManager, project: Path) -> None:
    with manager.stage(project, edit_id="outer") as outer:
        (project / "outer.txt").write_text("outer\n")
        with pytest.raises(ZeroDivisionError):
            fail_within_a_stage(manager, project, lambda: spoil(project))
        assert (project / "outer.txt").read_text() == "outer\n"
        assert not (project / "inner.txt").exists()
        outer.commit("outer")
    assert (project / "outer.txt").exists()


def test_discarding_an_outer_stage_undoes_a_committed_inner_one(manager: CheckpointManager, project: Path) -> None:
    before = manifest(project)
    with manager.stage(project, edit_id="outer") as outer:
        (project / "outer.txt").write_text("outer\n")
        with manager.stage(project, edit_id="inner") as inner:
            (project / "inner.txt").write_text("inner\n")
            inner.commit("inner")
        outer.discard()
    assert manifest(project) == before


def die_within_a_stage(base: Path, project: Path, depth: int) -> None:
    """In a child process: begin stages, change everything, and die."""
    child = os.fork()
    if child == 0:
        try:
            manager = CheckpointManager(base=base, fsync=False)
            for number in range(depth):
                manager.stage(project, edit_id=str(number)).__enter__()
                (project / f"depth{number}.txt").write_text("half done\n")
            edit_everything(project)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_stage_whose_process_died_is_put_back_by_the_next_operation(
    manager: CheckpointManager, base: Path, project: Path, depth: int
) -> None:
    before = manifest(project)
    die_within_a_stage(base, project, depth)
    assert manifest(project) != before
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status in ("taken", "unchanged"), outcome.error
    assert "put back" in outcome.note
    assert manifest(project) == before
    assert not list((base / "store/locks").glob("stage-*"))
    manager.undo(project)
    assert (project / "new/deep/file").read_text() == "made in the stage\n"


def test_a_stage_that_is_alive_is_left_alone(manager: CheckpointManager, base: Path, project: Path) -> None:
    with manager.stage(project) as stage:
        (project / "made.txt").write_text("made\n")
        other = CheckpointManager(base=base, fsync=False)
        assert other.ensure_checkpoint(project).status == "taken"
        assert (project / "made.txt").exists()
        with pytest.raises(NothingToUndo):
            other.undo(project)
        stage.commit("kept")


# --- stages over several processes ----------------------------------------------------------------------


def staged(manager: CheckpointManager, project: Path, name: str, text: str, session: str = "s1") -> Checkpoint:
    before = manager.get(project, "last")
    (project / name).write_text(text)
    return manager.commit_since(project, before.id, f"change {name}\n\nmore", session_id=session, host="a")


def test_the_stages_of_a_session_are_taken_back_one_by_one(manager: CheckpointManager, project: Path) -> None:
    before = manifest(project)
    stages = [staged(manager, project, "new.txt", "one\n"), staged(manager, project, "new.txt", "two\n")]
    made = manager.revert_stages(project, "s1", host="a")
    assert manifest(project) == before
    assert [each.metadata["reverts"] for each in made] == [stage.id for stage in reversed(stages)]
    assert [(each.reason, each.host) for each in made] == [('Revert "change new.txt"', "a")] * 2
    assert manager.revert_stages(project, "s1") == [] == manager.revert_stages(project, "unknown")


def test_a_stage_whose_work_is_gone_already_is_noted(manager: CheckpointManager, project: Path) -> None:
    stage = staged(manager, project, "new.txt", "one\n")
    (project / "new.txt").unlink()
    (made,) = manager.revert_stages(project, "s1")
    assert made.metadata["reverts"] == stage.id and manager.revert_stages(project, "s1") == []


def test_stages_that_others_changed_since_are_not_taken_back(manager: CheckpointManager, project: Path) -> None:
    staged(manager, project, "free.txt", "one\n")
    staged(manager, project, "new.txt", "one\n")
    staged(manager, project, "new.txt", "two\n", session="s2")
    before = manifest(project)
    with pytest.raises(RevertRefused, match=r"new\.txt"):
        manager.revert_stages(project, "s1")
    assert manifest(project) == before and len(manager.list_checkpoints(project)) == 4
