"""Clearing a project or everything: a plan first, bytes freed, and no other checkpoints touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from damaging import Kept, garbage_journal, keep

from helpers import git, manifest
from shadowsnap import CheckpointManager, deadline
from shadowsnap.errors import ClearRefused, NoSuchProject


@pytest.fixture
def other(tmp_path: Path) -> Path:
    other = tmp_path / "other"
    other.mkdir()
    (other / "own.bin").write_bytes(os.urandom(50_000))
    return other


def two_projects(base: Path, project: Path, other: Path) -> Kept:
    (project / "large.bin").write_bytes(os.urandom(200_000))
    kept = keep(base, project)
    kept.manager.ensure_checkpoint(other, "of the other")
    kept.manager.pin(project, kept.old.id)
    kept.manager.label(project, kept.new.id, "a name")
    return kept


def left_of(kept: Kept) -> list[str]:
    return [path.name for path in kept.store.rglob(f"*{kept.id}*") if path.parent.name != "locks"]


# --- one project ------------------------------------------------------------------------------------


def test_the_plan_of_a_clear_shows_what_would_be_dropped_and_changes_nothing(
    base: Path, project: Path, other: Path
) -> None:
    kept = two_projects(base, project, other)
    before = manifest(base)
    plan = kept.manager.clear(project, dry_run=True)
    (item,) = plan.items
    assert (plan.applied, item.subject, item.checkpoints, item.pinned) == (False, str(project), 2, 1)
    assert 200_000 < item.bytes == plan.pending_bytes < 260_000
    assert manifest(base) == before


def test_a_cleared_project_is_gone_with_its_pins_and_its_bytes(base: Path, project: Path, other: Path) -> None:
    kept = two_projects(base, project, other)
    files = manifest(project)
    report = kept.manager.clear(project)
    assert report.applied and report.items[0].checkpoints == 2
    assert report.bytes_freed > 200_000 and report.pending_bytes == 0
    with pytest.raises(NoSuchProject):
        kept.manager.list_checkpoints(project)
    assert left_of(kept) == []
    assert kept.id not in git(kept.store, "for-each-ref")
    assert manifest(project) == files
    assert kept.manager.doctor().findings == ()


def test_the_checkpoints_of_others_stay(base: Path, project: Path, other: Path) -> None:
    kept = two_projects(base, project, other)
    before = manifest(other)
    kept.manager.clear(project)
    (other / "own.bin").write_bytes(b"")
    kept.manager.restore(other, "last")
    assert manifest(other) == before


def test_what_two_projects_share_is_not_freed(base: Path, project: Path, tmp_path: Path) -> None:
    (project / "large.bin").write_bytes(os.urandom(200_000))
    twin = tmp_path / "twin"
    twin.mkdir()
    (twin / "large.bin").write_bytes((project / "large.bin").read_bytes())
    kept = keep(base, project)
    kept.manager.ensure_checkpoint(twin)
    assert kept.manager.clear(project, dry_run=True).pending_bytes < 20_000
    kept.manager.clear(project)
    (twin / "large.bin").unlink()
    kept.manager.restore(twin, "last")
    assert (twin / "large.bin").read_bytes() == (project / "large.bin").read_bytes()


def test_after_a_clear_the_next_snapshot_starts_a_new_history(base: Path, project: Path) -> None:
    kept = keep(base, project)
    kept.manager.clear(project)
    outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(project, "anew")
    assert outcome.status == "taken" and outcome.checkpoint.turn == 1
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change()
    kept.assert_restores(outcome.checkpoint)


def test_a_project_whose_directory_is_gone_can_be_cleared(base: Path, project: Path) -> None:
    kept = keep(base, project)
    project.rename(project.with_name("moved"))
    assert kept.manager.clear(project).items[0].checkpoints == 2
    assert left_of(kept) == []


def test_a_directory_without_checkpoints_cannot_be_cleared(base: Path, project: Path) -> None:
    with pytest.raises(NoSuchProject):
        CheckpointManager(base=base, fsync=False).clear(project)


# --- a restore that died half way -------------------------------------------------------------------


def die_in_a_restore(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop at a point from which nothing is put back, as a kill would."""

    def listener(name: str) -> None:
        if name == "restore:applying":
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(deadline, "step_listener", listener)
            kept.manager.restore(kept.project, kept.old.id)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a child to kill")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the test runner has threads; the child only exits
def test_a_clear_finishes_an_interrupted_restore_first(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(base, project)
    die_in_a_restore(kept, monkeypatch)
    kept.manager.clear(project)
    assert manifest(project) == kept.pictures[kept.old.id]
    assert left_of(kept) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a child to kill")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_at_all_is_cleared_while_a_restore_is_unfinished(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(base, project)
    die_in_a_restore(kept, monkeypatch)
    with pytest.raises(ClearRefused) as caught:
        kept.manager.clear_all()
    assert str(project) in str(caught.value) and caught.value.exit_code == 4
    assert len(kept.manager.list_checkpoints(project)) == 2
    kept.manager.ensure_checkpoint(project)  # finishes it
    kept.manager.clear_all()
    with pytest.raises(NoSuchProject):
        kept.manager.list_checkpoints(project)


# --- everything -------------------------------------------------------------------------------------


def test_clearing_everything_has_a_plan_and_frees_the_bytes(base: Path, project: Path, other: Path) -> None:
    kept = two_projects(base, project, other)
    before = manifest(base)
    plan = kept.manager.clear_all(dry_run=True)
    (item,) = plan.items
    assert (plan.applied, item.checkpoints, item.pinned) == (False, 3, 1)
    assert manifest(base) == before
    report = kept.manager.clear_all()
    size = sum(path.stat().st_size for path in base.rglob("*") if path.is_file())
    assert report.applied and report.bytes_freed > 250_000 and size < 20_000
    for each in (project, other):
        with pytest.raises(NoSuchProject):
            kept.manager.list_checkpoints(each)
    assert kept.manager.doctor().findings == ()
    assert list(kept.store.glob("trash-*")) == []


def test_after_everything_was_cleared_snapshots_go_on(base: Path, project: Path) -> None:
    kept = keep(base, project)
    kept.manager.clear_all()
    kept.manager.new_turn()
    outcome = kept.manager.ensure_checkpoint(project, "anew")
    assert outcome.status == "taken"
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change()
    kept.assert_restores(outcome.checkpoint)


def test_the_quarantine_and_archives_are_not_cleared(base: Path, project: Path) -> None:
    kept = keep(base, project)
    garbage_journal(kept)
    aside = kept.manager.doctor(repair=True).set_aside
    (base / "legacy-20200101-000000").mkdir()
    report = kept.manager.clear_all()
    assert "stay" in report.items[0].note
    assert Path(aside or "").is_dir() and (base / "legacy-20200101-000000").is_dir()
