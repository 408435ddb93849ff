"""Undo takes back the last thing that happened, here mostly restores, again and again; redo goes forward."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from restoring import all_ids, checkpoint, mtimes
from thorough import depth

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchCheckpoint, NothingToRedo, NothingToUndo


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


@pytest.fixture
def three(manager: CheckpointManager, project: Path) -> list[str]:
    """Three checkpoints, the files being as in the last."""
    ids = []
    for number in range(3):
        (project / "README.md").write_text(f"version {number}\n")
        (project / f"file-{number}").write_text("made\n")
        ids.append(checkpoint(manager, project).id)
    return ids


def version(project: Path) -> str:
    return (project / "README.md").read_text().strip()


def test_without_a_change_there_is_nothing_to_undo_or_redo(manager: CheckpointManager, project: Path) -> None:
    before = manifest(project)
    for _ in range(2):
        manager.new_turn(session_id="s1")
        manager.ensure_checkpoint(project)
        manager.end_turn()
    (project / "mine").write_text("by the person\n")
    manager.snapshot(project)
    manager.new_turn(session_id="s2")
    manager.ensure_checkpoint(project)
    for dry_run in (True, False):
        with pytest.raises(NothingToUndo):
            manager.undo(project, dry_run=dry_run)
        with pytest.raises(NothingToRedo):
            manager.redo(project, dry_run=dry_run)
    (project / "mine").unlink()
    assert manifest(project) == before


def test_many_steps_back_and_many_steps_forth(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    states = [manifest(project)]
    for number in range(8):
        if number % 2:
            (project / "edited").write_text(f"between restores {number}\n")
            states[-1] = manifest(project)
        manager.restore(project, three[number % 3])
        states.append(manifest(project))
    steps = [step for step in zip(states, states[1:], strict=False) if step[0] != step[1]]
    for before, _ in reversed(steps):
        manager.undo(project)
        assert manifest(project) == before
    for number in (1, 0):  # the turns before the first restore
        steps.insert(0, (manifest(project), manifest(project)))
        manager.undo(project)
        assert version(project) == f"version {number}" and not (project / f"file-{number + 1}").exists()
        steps[0] = (manifest(project), steps[0][1])
    with pytest.raises(NothingToUndo):
        manager.undo(project)
    for _, after in steps:
        manager.redo(project)
        assert manifest(project) == after
    with pytest.raises(NothingToRedo):
        manager.redo(project)
    for before, _ in reversed(steps):
        manager.undo(project)
        assert manifest(project) == before


def test_a_restore_ends_the_way_forth(manager: CheckpointManager, project: Path, three: list[str]) -> None:
    manager.restore(project, three[0])
    manager.undo(project)
    manager.restore(project, three[1])
    with pytest.raises(NothingToRedo):
        manager.redo(project)
    manager.undo(project)
    assert version(project) == "version 2"


def test_a_snapshot_of_changed_files_ends_the_way_forth(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    manager.restore(project, three[0])
    manager.undo(project)
    (project / "README.md").write_text("changed after the undo\n")
    checkpoint(manager, project)
    with pytest.raises(NothingToRedo):
        manager.redo(project)
    assert version(project) == "changed after the undo"


def test_a_snapshot_of_unchanged_files_does_not_end_the_way_forth(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    """A new turn takes one although the person has only looked around."""
    manager.restore(project, three[0])
    manager.undo(project)
    for _ in range(2):
        checkpoint(manager, project)
    manager.redo(project)
    assert version(project) == "version 0"
    checkpoint(manager, project)
    manager.undo(project)
    assert version(project) == "version 2"


def test_a_snapshot_of_a_subset_that_was_undone_does_not_end_the_way_forth(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    manager.restore(project, three[0], paths=["README.md"])
    manager.undo(project)
    checkpoint(manager, project)
    manager.redo(project)
    assert version(project) == "version 0" and (project / "file-2").exists()


def test_edits_made_after_a_restore_come_back_with_redo(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    manager.restore(project, three[0])
    (project / "README.md").write_text("edited after the restore\n")
    (project / "idea").write_text("made after the restore\n")
    edited = manifest(project)
    manager.undo(project)
    assert version(project) == "version 2" and not (project / "idea").exists()
    manager.redo(project)
    assert manifest(project) == edited


def test_undo_of_some_paths_touches_only_those(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    manager.restore(project, three[0], paths=["README.md", "file-1"])
    assert version(project) == "version 0" and not (project / "file-1").exists()
    (project / "file-2").write_text("edited meanwhile\n")
    (project / "new").write_text("made meanwhile\n")
    (project / "run.sh").chmod(0o700)
    before, times = manifest(project), mtimes(project)
    result = manager.undo(project)
    assert result.written == ("README.md", "file-1") and result.deleted == ()
    after, now = manifest(project), mtimes(project)
    assert {path for path in after if after[path] != before.get(path)} == {b"README.md", b"file-1"}
    assert {path for path in now if now[path] != times.get(path)} == {b"README.md", b"file-1"}
    manager.redo(project)
    assert version(project) == "version 0" and (project / "new").exists()


def test_undo_of_a_path_that_somebody_removed_already_succeeds(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    """It is as it was before the restore: the step is done, and the one before it comes next."""
    (project / "file-0").unlink()
    manager.restore(project, three[0], paths=["README.md"])
    manager.restore(project, three[0], paths=["file-0"])
    (project / "file-0").unlink()
    result = manager.undo(project)
    assert result.applied and result.undo_id is None
    manager.undo(project)
    assert version(project) == "version 2"
    manager.redo(project)
    assert version(project) == "version 0"


def test_restores_that_changed_nothing_are_not_steps(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    manager.restore(project, three[0])
    for _ in range(3):
        manager.restore(project, three[0])
        manager.restore(project, three[0], paths=["README.md"])
    manager.undo(project)
    assert version(project) == "version 2"


def test_an_undo_whose_checkpoint_was_deleted_is_a_clear_error(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    result = manager.restore(project, three[0])
    assert result.undo_id == three[2]  # the present was captured already
    manager.delete(project, three[2])
    before = manifest(project)
    for dry_run in (True, False):
        with pytest.raises(NoSuchCheckpoint, match=three[2][:8]):
            manager.undo(project, dry_run=dry_run)
    assert manifest(project) == before
    (project / "README.md").write_text("a new beginning\n")
    manager.restore(project, three[1])
    manager.undo(project)
    assert version(project) == "a new beginning"


def test_the_newest_checkpoint_serves_as_the_way_back_if_it_holds_the_present(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    count = len(all_ids(manager, project))
    result = manager.restore(project, three[0])
    assert result.undo_id == three[2] and len(all_ids(manager, project)) == count
    manager.undo(project)
    assert version(project) == "version 2" and (project / "file-2").exists()


def test_a_checkpoint_that_holds_the_same_files_but_not_the_ignored_one_does_not_serve(
    manager: CheckpointManager, project: Path
) -> None:
    """The newest checkpoint equals the present but for an ignored file that is in the way."""
    (project / "thing").write_text("then\n")
    target = checkpoint(manager, project)
    (project / "thing").unlink()
    (project / ".gitignore").write_text("thing\n")
    newest = checkpoint(manager, project)
    (project / "thing").write_text("ignored now\n")
    assert manager.ensure_checkpoint(project).status == "already-taken"
    result = manager.restore(project, target.id)
    assert result.undo_id != newest.id
    manager.undo(project)
    assert (project / "thing").read_text() == "ignored now\n"


def test_another_process_goes_on_where_this_one_stopped(
    manager: CheckpointManager, project: Path, base: Path, three: list[str]
) -> None:
    manager.restore(project, three[1])
    CheckpointManager(base=base, fsync=False).undo(project)
    assert version(project) == "version 2"
    CheckpointManager(base=base, fsync=False).redo(project)
    assert version(project) == "version 1"


def test_projects_do_not_share_their_steps(
    manager: CheckpointManager, project: Path, three: list[str], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("then\n")
    target = checkpoint(manager, other).id
    (other / "file").write_text("now\n")
    manager.restore(other, target)
    manager.restore(project, three[0])
    manager.undo(other)
    assert (other / "file").read_text() == "now\n" and version(project) == "version 0"
    manager.undo(other)  # the turn that changed the file
    assert (other / "file").read_text() == "then\n" and version(project) == "version 0"
    with pytest.raises(NothingToUndo):
        manager.undo(other)
    manager.undo(project)
    assert version(project) == "version 2"


def test_a_damaged_journal_is_reported_and_set_aside(
    manager: CheckpointManager, project: Path, base: Path, three: list[str]
) -> None:
    manager.restore(project, three[0])
    (journal,) = (base / "store" / "journal").glob("*.json")
    journal.write_text('{"open": {"before": 1')
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status in ("taken", "unchanged")
    assert "journal of restores was damaged" in outcome.note
    assert [path for path in journal.parent.iterdir() if path != journal and "damaged" in path.name]
    manager.undo(project)  # the log knows of the restore, not the journal
    assert version(project) == "version 2"
    manager.restore(project, three[1])
    manager.undo(project)
    assert version(project) == "version 2"


def test_any_number_of_steps_is_remembered(project: Path, base: Path) -> None:
    quick = CheckpointManager(base=base, fsync=False)
    ids = []
    for number in range(2):
        (project / "README.md").write_text(f"version {number}\n")
        ids.append(quick.snapshot(project).checkpoint.id)  # type: ignore[union-attr]
    steps = depth(9, 25)
    for number in range(steps):
        quick.restore(project, ids[number % 2])
    (journal,) = (base / "store" / "journal").glob("*.json")
    assert os.path.getsize(journal) < 1000
    for number in reversed(range(steps)):
        assert version(project) == f"version {number % 2}"
        quick.undo(project)
    with pytest.raises(NothingToUndo):
        quick.undo(project)
    for number in range(steps):
        quick.redo(project)
        assert version(project) == f"version {number % 2}"


def test_edits_after_an_undo_end_the_way_forth(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    """Also if no snapshot has seen them. Without them, the way is open again."""
    manager.restore(project, three[0])
    manager.undo(project)
    (project / "idea").write_text("made after the undo\n")
    edited = manifest(project)
    for dry_run in (True, False):
        with pytest.raises(NothingToRedo):
            manager.redo(project, dry_run=dry_run)
    assert manifest(project) == edited
    (project / "idea").unlink()
    manager.redo(project)
    assert version(project) == "version 0"


def test_a_turn_after_an_undo_ends_the_way_forth(
    manager: CheckpointManager, project: Path, three: list[str]
) -> None:
    """Also where it changed other files than the undo did."""
    manager.restore(project, three[0], paths=["README.md"])
    manager.undo(project)
    manager.new_turn()
    manager.ensure_checkpoint(project)
    manager.end_turn()
    assert manager.redo(project, dry_run=True).written == ("README.md",)
    manager.new_turn()
    manager.ensure_checkpoint(project)
    (project / "file-2").write_text("by the agent\n")
    for ended in (False, True):
        if ended:
            manager.end_turn()
        with pytest.raises(NothingToRedo):
            manager.redo(project)
    assert version(project) == "version 2" and (project / "file-2").read_text() == "by the agent\n"
