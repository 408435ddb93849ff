"""Quick repair: the next ordinary call works although something was damaged, and reports what was repaired."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import damaging
import pytest
from damaging import WHOLE, Damage, Kept, flip, keep, offset_of, pack_of, packed, truncate, unfitting

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import DamagedObject, DiskFull, GitFailed, LockTimeout, NoSuchProject
from shadowsnap.events import Event, Healed
from shadowsnap.git import repository as runner
from shadowsnap.store.locks import locked
from shadowsnap.store.stat_cache import boot_id

# These need the repair of a checkpoint, which takes too long for an ordinary call.
FOR_THE_DOCTOR = {
    damaging.empty_blob_that_is_on_disk,
    damaging.cut_blob_that_is_on_disk,
    damaging.wrong_blob_that_is_on_disk,
    damaging.no_blob_that_is_on_disk,
}
BY_ITSELF = [damage for damage in WHOLE if damage not in FOR_THE_DOCTOR]
named = pytest.mark.parametrize("damage", BY_ITSELF, ids=lambda damage: damage.__name__)


def another(kept: Kept) -> CheckpointManager:
    """A new process, which has nothing cached."""
    return CheckpointManager(base=kept.base, fsync=False, background_upkeep=False)


# --- the next call ----------------------------------------------------------------------------------


@named
@pytest.mark.every(3)
def test_the_next_snapshot_is_taken(base: Path, project: Path, damage: Damage) -> None:
    kept = keep(base, project)
    damage(kept)
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "third")
    assert outcome.status == "taken", outcome
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change(content="later\n")
    kept.assert_restores(outcome.checkpoint)
    kept.assert_restores(kept.old)


# Git silently leaves out a ref that it cannot read: that is for the doctor, or the next snapshot.
@pytest.mark.parametrize(
    "damage",
    [damage for damage in BY_ITSELF if damage is not damaging.garbage_over_packed_ref],
    ids=lambda damage: damage.__name__,
)
@pytest.mark.every(3)
def test_the_next_listing_shows_every_checkpoint(base: Path, project: Path, damage: Damage) -> None:
    kept = keep(base, project)
    damage(kept)
    assert [each.id for each in another(kept).list_checkpoints(project)] == [kept.new.id, kept.old.id]


@named
@pytest.mark.every(3, start=1)
def test_the_next_restore_works(base: Path, project: Path, damage: Damage) -> None:
    kept = keep(base, project)
    damage(kept)
    kept.assert_restores(kept.old)


@named
@pytest.mark.every(3, start=2)
def test_pinning_and_deleting_work(base: Path, project: Path, damage: Damage) -> None:
    kept = keep(base, project)
    damage(kept)
    assert another(kept).pin(project, kept.old.id).pinned
    another(kept).delete(project, kept.new.id)
    assert [(each.id, each.pinned) for each in another(kept).list_checkpoints(project)] == [(kept.old.id, True)]


# --- reporting --------------------------------------------------------------------------------------


def test_a_repair_is_reported_by_an_event_and_a_note(base: Path, project: Path) -> None:
    kept = keep(base, project)
    damaging.empty_head(kept)
    events: list[Event] = []
    kept.change()
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False, on_event=events.append)
    outcome = manager.ensure_checkpoint(project, "third")
    assert outcome.status == "taken" and "file-damaged" in outcome.note
    (healed,) = [event for event in events if isinstance(event, Healed)]
    assert isinstance(healed.problem, GitFailed)
    assert [finding.subject for finding in healed.checkup.repaired] == ["store/HEAD"]


def test_a_restore_reports_a_repair_in_its_note(base: Path, project: Path) -> None:
    kept = keep(base, project)
    damaging.empty_head(kept)
    assert "file-damaged" in kept.manager.restore(project, kept.old.id).note


def test_without_damage_nothing_is_repaired_and_the_error_stays_the_same(base: Path, project: Path) -> None:
    kept = keep(base, project)
    events: list[Event] = []
    manager = CheckpointManager(base=base, fsync=False, on_event=events.append)
    with pytest.raises(NoSuchProject):
        manager.list_checkpoints(project / "src")
    assert [event for event in events if event.kind == "healed"] == []
    assert kept.manager.doctor().findings == ()


def test_an_operation_is_tried_only_once_more(base: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep(base, project)
    attempts: list[str] = []

    def failing(*_: Any) -> Any:
        attempts.append("tried")
        damaging.garbage_ref(kept)  # so that there is something to mend each time
        raise DamagedObject(id="0" * 40)

    monkeypatch.setattr("shadowsnap.loop.take_snapshot", failing)
    outcome = kept.manager.ensure_checkpoint(project)
    assert outcome.status == "failed" and isinstance(outcome.error, DamagedObject)
    assert len(attempts) == 2


def test_a_named_file_is_captured_after_an_attempt_that_failed(base: Path, project: Path) -> None:
    (project / ".gitignore").write_text("*.secretly\n")
    kept = keep(base, project)
    manager = CheckpointManager(base=base, fsync=False, deadline=0.2)
    manager.ensure_checkpoint(project)
    (project / "named.secretly").write_text("ignored, but a tool is going to write it\n")
    with locked(kept.store / "locks" / f"{kept.id}.lock", "another process", NO_DEADLINE):
        outcome = manager.ensure_checkpoint(project, paths=["named.secretly"])
        assert outcome.status == "failed" and isinstance(outcome.error, LockTimeout)
    manager.settings = replace(manager.settings, deadline=30)
    outcome = manager.ensure_checkpoint(project, paths=["named.secretly"])
    assert outcome.status == "taken" and outcome.checkpoint is not None
    assert "named.secretly" in manager.files(project, outcome.checkpoint.id)


# --- poisoned objects -------------------------------------------------------------------------------


@pytest.mark.parametrize("hurt", [truncate, lambda path: truncate(path, 9), unfitting, os.unlink],
                         ids=["emptied", "cut short", "wrong", "removed"])  # fmt: skip
def test_a_poisoned_object_does_not_count_as_stored(
    base: Path, project: Path, hurt: Callable[[Path], Any]
) -> None:
    kept = keep(base, project)
    (project / "data.bin").write_bytes(b"for a while")
    kept.manager.ensure_checkpoint(project, "third")
    kept.manager.new_turn()
    hurt(kept.object(kept.blob("data.bin", kept.old)))
    (project / "data.bin").write_bytes(bytes(range(256)))  # what the poisoned object should hold
    outcome = kept.manager.ensure_checkpoint(project, "fourth")
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change("data.bin", "changed")
    kept.assert_restores(outcome.checkpoint)
    kept.assert_restores(kept.old)


def test_an_emptied_object_is_written_again_when_its_file_is_read_again(base: Path, project: Path) -> None:
    kept = keep(base, project)
    truncate(kept.object(kept.blob("data.bin")))
    os.utime(project / "data.bin", (1, 1))
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "third")
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    (project / "data.bin").unlink()
    kept.assert_restores(outcome.checkpoint)


@pytest.mark.parametrize("place", ["store", "store/locks"])
def test_a_file_in_the_place_of_the_locks_goes_to_the_quarantine(base: Path, project: Path, place: str) -> None:
    kept = keep(base, project)
    shutil.rmtree(base / place)
    (base / place).write_text("not a folder")
    checkup = another(kept).doctor(repair=True)
    assert checkup.healthy and (Path(checkup.set_aside or "") / place).read_text() == "not a folder"
    shutil.rmtree(base / place)
    (base / place).write_text("again")
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "third")
    assert outcome.status == "taken" and "folder-replaced" in outcome.note


@pytest.mark.skipif(not boot_id(), reason="the system has no boot id")
@pytest.mark.parametrize("hurt", [truncate, os.unlink], ids=["emptied", "removed"])
def test_after_a_restart_of_the_machine_lost_objects_do_not_count_as_stored(
    base: Path, project: Path, hurt: Callable[[Path], Any]
) -> None:
    """The file did not change, so it is only known from the cache that its content is stored."""
    kept = keep(base, project)
    restarted(kept)
    hurt(kept.object(kept.blob("data.bin")))
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "after the power cut")
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    (project / "data.bin").unlink()
    kept.assert_restores(outcome.checkpoint)
    kept.assert_restores(kept.old)


@pytest.mark.skipif(not boot_id(), reason="the system has no boot id")
def test_after_a_restart_without_damage_the_cache_is_used_and_asked_once(base: Path, project: Path) -> None:
    kept = keep(base, project)
    processes = []
    for restart in (False, True, False):
        if restart:
            restarted(kept)
        kept.change(content=f"{len(processes)}\n")
        before = runner.processes_started
        assert another(kept).ensure_checkpoint(project).status == "taken"
        processes.append(runner.processes_started - before)
    assert processes[0] == processes[2] < processes[1] <= processes[0] + 2


def restarted(kept: Kept) -> None:
    path = kept.store / "indexes" / f"{kept.id}.json"
    path.write_text(path.read_text().replace(boot_id(), "the run before"))


def test_a_damaged_pack_does_not_spoil_what_is_stored_after_it(base: Path, project: Path) -> None:
    kept = packed(base, project)
    (project / "data.bin").write_bytes(b"for a while")
    pack, at = pack_of(kept), offset_of(kept, kept.blob("data.bin"))
    kept.manager.ensure_checkpoint(project, "third")
    kept.manager.new_turn()
    flip(pack, at, 12)
    (project / "data.bin").write_bytes(bytes(range(256)))
    outcome = kept.manager.ensure_checkpoint(project, "fourth")
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change("data.bin", "changed")
    kept.assert_restores(outcome.checkpoint)


@pytest.mark.parametrize("which", ["the newest tree", "the newest commit", "everything"])
def test_a_snapshot_is_taken_beside_a_damaged_pack(base: Path, project: Path, which: str) -> None:
    kept = packed(base, project)
    pack = pack_of(kept)
    if which == "everything":
        truncate(pack)
    else:
        name = kept.new.tree if which == "the newest tree" else kept.new.id
        flip(pack, offset_of(kept, name) + 2, 6)
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "third")
    assert outcome.status == "taken", outcome
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change(content="later\n")
    kept.assert_restores(outcome.checkpoint)


def test_a_pack_whose_index_is_gone_is_found_again(base: Path, project: Path) -> None:
    kept = packed(base, project)
    pack_of(kept).with_suffix(".idx").unlink()
    assert [each.id for each in another(kept).list_checkpoints(project)] == [kept.new.id, kept.old.id]
    kept.assert_restores(kept.old)


def test_what_a_tool_named_is_captured_also_after_the_cache_was_forgotten(base: Path, project: Path) -> None:
    (project / ".gitignore").write_text("*.secretly\n")
    (project / "named.secretly").write_text("ignored, but named\n")
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False)
    manager.ensure_checkpoint(project, paths=["named.secretly"])
    kept = keep(base, project)
    shutil.rmtree(kept.store / "objects")
    kept.change()
    assert another(kept).ensure_checkpoint(project, "third").status == "taken"
    assert "named.secretly" in kept.manager.files(project, "last")


def test_a_cache_that_leads_to_missing_objects_is_forgotten(base: Path, project: Path) -> None:
    kept = keep(base, project)
    shutil.rmtree(kept.store / "objects")
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "third")
    assert outcome.status == "taken"
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    git(kept.store, "fsck", "--connectivity-only", outcome.checkpoint.id)
    kept.change("data.bin", "changed")
    kept.assert_restores(outcome.checkpoint)


def test_a_checkpoint_that_lost_a_file_cannot_be_restored_in_full_but_the_rest_can(
    base: Path, project: Path
) -> None:
    kept = keep(base, project)
    truncate(kept.object(kept.blob("README.md", kept.old)))
    before = manifest(project)
    with pytest.raises(DamagedObject):
        another(kept).restore(project, kept.old.id)
    assert manifest(project) == before
    another(kept).restore(project, kept.old.id, paths=["src", "empty"])
    assert (project / "empty").exists() and not (project / "src" / "new.py").exists()


# --- permissions ------------------------------------------------------------------------------------


def snapshot_of_closed(base: Path, project: Path, what: str) -> tuple[str, str, int]:
    kept = keep(base, project)
    place = {"packs": kept.store / "objects" / "pack", "refs": kept.refs, "indexes": kept.store / "indexes",
             "locks": kept.store / "locks", "store": kept.store, "base": base}[what]  # fmt: skip
    place.chmod(0o500)
    kept.change()
    outcome = another(kept).ensure_checkpoint(project, "third")
    return outcome.status, outcome.note, len(kept.manager.list_checkpoints(project))


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
@pytest.mark.parametrize("what", ["packs", "refs", "indexes"])
def test_a_directory_that_lost_its_write_permission_is_opened_again(
    base: Path, project: Path, as_user: Callable[..., Any], what: str
) -> None:
    assert as_user(snapshot_of_closed, base, project, what) == ("taken", "repaired: closed", 3)


def listing_of_closed(base: Path, project: Path) -> list[str]:
    kept = keep(base, project)
    kept.refs.chmod(0)
    return [each.reason for each in another(kept).list_checkpoints(project)]


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
def test_unreadable_refs_do_not_count_as_no_refs(base: Path, project: Path, as_user: Callable[..., Any]) -> None:
    assert as_user(listing_of_closed, base, project) == ["second", "first"]


@pytest.mark.parametrize("which", ["tree", "commit"])
def test_an_object_that_git_names_in_its_error_is_repaired(base: Path, project: Path, which: str) -> None:
    kept = keep(base, project)
    path = kept.object({"tree": kept.old.tree, "commit": kept.old.id}[which])
    path.chmod(0o600)
    with path.open("ab") as file:
        file.write(b"something else")
    assert [each.id for each in another(kept).list_checkpoints(project)] == [kept.new.id, kept.old.id]
    kept.assert_restores(kept.old)


# --- a full disk ------------------------------------------------------------------------------------


def limited(base: Path, project: Path, most: int, many: int) -> tuple[str, str, str]:
    """Take a snapshot in a process whose files may not grow beyond a size."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    outcome = CheckpointManager(base=base, background_upkeep=False).ensure_checkpoint(project, "too much")
    return outcome.status, type(outcome.error).__name__, str(outcome.error)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
@pytest.mark.parametrize("many", [1, 150], ids=["loose", "as a pack"])
def test_a_full_disk_is_reported_as_such_and_leaves_nothing_behind(
    base: Path, project: Path, as_user: Callable[..., Any], many: int
) -> None:
    kept = keep(base, project)
    for number in range(many):
        (project / f"noise{number}").write_bytes(os.urandom(300_000 // many))
    status, kind, message = as_user(limited, base, project, 100_000, many)
    assert (status, kind) == ("failed", "DiskFull") and str(base) in message
    assert [path for path in kept.store.rglob("*") if "tmp" in path.name or path.name.startswith("scratch")] == []
    assert kept.manager.doctor().findings == ()
    outcome = kept.manager.ensure_checkpoint(project, "with room")
    assert outcome.status == "taken"
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.assert_restores(kept.old)
    kept.assert_restores(outcome.checkpoint)


def test_a_full_disk_is_recognised_behind_other_errors() -> None:
    from shadowsnap.upkeep.doctor import is_disk_full

    full = OSError(errno.ENOSPC, "No space left on device")
    behind = GitFailed(command="x", status=1, stderr="y")
    behind.__cause__ = full
    assert is_disk_full(full) and is_disk_full(behind)
    failed = GitFailed(command="checkout-index", status=128, stderr="fatal: write: No space left on device")
    assert is_disk_full(failed)
    assert not is_disk_full(OSError(errno.EACCES, "Permission denied")) and not is_disk_full(None)
    assert DiskFull(path="/base").hint


# --- the clock --------------------------------------------------------------------------------------


def test_checkpoints_keep_their_order_although_the_clock_was_set_back(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    kept = keep(base, project)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    ids = [kept.old.id, kept.new.id]
    for number in range(3):
        kept.manager.new_turn()
        kept.change(content=f"{number}\n")
        outcome = kept.manager.ensure_checkpoint(project, f"back {number}")
        assert outcome.status == "taken"
        ids.append(outcome.checkpoint.id)
    assert [each.id for each in reversed(kept.manager.list_checkpoints(project))] == ids
    assert kept.manager.get(project, "last").reason == "back 2"
    assert kept.manager.get(project, "last").created_at > kept.new.created_at


def looked_at_and_pruned(base: Path, project: Path) -> tuple[int, str, list[str]]:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    checkpoints = manager.status().checkpoints
    pruned = manager.prune(max_snapshots=1, reclaim="never").status
    return checkpoints, pruned, [each.reason for each in manager.list_checkpoints(project)]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on file sizes")
def test_on_a_full_disk_the_store_can_still_be_read_and_pruned(
    base: Path, project: Path, as_user: Callable[..., Any]
) -> None:
    keep(base, project)
    assert as_user(looked_at_and_pruned, base, project) == (2, "done", ["second"])
