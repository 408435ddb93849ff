"""The doctor: every damage is made for real, reported, and repaired without losing what is intact."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import damaging
import pytest
from capturing import captured
from damaging import WHOLE, Damage, Kept, flip, keep, offset_of, pack_of, packed, truncate, unfitting
from thorough import depth

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import DeadlineExceeded, LockTimeout, NothingToRedo
from shadowsnap.model import Entry
from shadowsnap.results import Checkup
from shadowsnap.store.locks import locked
from shadowsnap.upkeep import doctor


def codes(checkup: Checkup) -> set[str]:
    return {finding.code for finding in checkup.findings}


def picture(folder: Path) -> dict[bytes, tuple[str, int, bytes | None]]:
    apart = (b"store/locks", b".log.lock", b"log.jsonl")
    return {name: entry for name, entry in manifest(folder).items() if not name.startswith(apart)}


def repaired(kept: Kept) -> Checkup:
    """Repair, and check that nothing is left to be repaired and nothing else changed."""
    before = manifest(kept.project)
    checkup = kept.manager.doctor(repair=True)
    assert checkup.applied and checkup.healthy, checkup
    assert manifest(kept.project) == before
    again = kept.manager.doctor()
    assert [finding for finding in again.findings if finding.severity != "info"] == []
    assert again.intact == again.checkpoints
    git(kept.store, "fsck", "--full", "--strict", "--no-dangling")
    return checkup


# --- a sound store ----------------------------------------------------------------------------------


def test_a_sound_store_has_no_findings_and_is_not_touched(base: Path, project: Path) -> None:
    kept = keep(base, project)
    before = picture(base)
    assert kept.manager.doctor() == Checkup(str(base), checkpoints=2, intact=2)
    assert kept.manager.doctor(repair=True) == Checkup(str(base), checkpoints=2, intact=2)
    assert picture(base) == before


def test_a_sound_packed_store_has_no_findings(base: Path, project: Path) -> None:
    kept = packed(base, project)
    git(kept.store, "pack-refs", "--all", "--prune")
    assert kept.manager.doctor() == Checkup(str(base), checkpoints=2, intact=2)


def test_without_a_store_there_is_nothing_to_examine_and_nothing_is_made(base: Path) -> None:
    assert CheckpointManager(base=base, fsync=False).doctor(repair=True) == Checkup(str(base))
    assert not base.exists()


# --- every damage that can be made good in full -----------------------------------------------------


@pytest.mark.parametrize("damage", WHOLE, ids=lambda damage: damage.__name__)
def test_a_damage_is_reported_and_repaired_and_no_checkpoint_is_lost(
    base: Path, project: Path, damage: Damage
) -> None:
    kept = keep(base, project)
    damage(kept)
    examination_reports(kept, damage)
    checkup = repaired(kept)
    assert WHOLE[damage] in {finding.code for finding in checkup.repaired}
    new, old = kept.manager.list_checkpoints(project)
    assert (new.id, old.id) == (kept.new.id, kept.old.id)
    assert captured(base, new) == kept.pictures[kept.new.id]  # plain git reads it
    kept.assert_restores(old)


def examination_reports(kept: Kept, damage: Damage) -> None:
    """It says what is damaged and what a repair would do, and changes nothing."""
    before = picture(kept.base)
    checkup = kept.manager.doctor()
    (finding, *_) = [finding for finding in checkup.findings if finding.code == WHOLE[damage]]
    assert finding.meaning and finding.repair and finding.subject
    assert checkup.repaired == () and not checkup.applied
    assert picture(kept.base) == before
    json.dumps(checkup.to_dict())


def test_damaged_files_go_to_the_quarantine_and_are_not_deleted(base: Path, project: Path) -> None:
    kept = keep(base, project)
    damaging.garbage_record(kept)
    damaging.garbage_ref(kept)
    damaging.garbage_config(kept)
    aside = repaired(kept).set_aside
    assert aside is not None and Path(aside).parent == base and Path(aside).name.startswith("corrupt-")
    found = {path.read_bytes() for path in Path(aside).rglob("*") if path.is_file()}
    assert {b'{"workdir": "/', b"\0" * 41, b"[core\n\0\0\0"} <= found


def test_a_project_record_is_written_again_from_its_checkpoints(base: Path, project: Path) -> None:
    kept = keep(base, project)
    path = kept.store / "projects" / f"{kept.id}.json"
    before = json.loads(path.read_text())
    damaging.list_for_record(kept)
    repaired(kept)
    after = json.loads(path.read_text())
    assert after["workdir"] == before["workdir"] and after["next_number"] == before["next_number"] == 3
    assert after["created_at"] == pytest.approx(kept.old.created_at.timestamp(), abs=0.01)
    assert after["last_touch"] == pytest.approx(kept.new.created_at.timestamp(), abs=0.01)


def test_lost_refs_come_back_with_their_times(base: Path, project: Path) -> None:
    kept = keep(base, project)
    damaging.no_refs(kept)
    repaired(kept)
    found = kept.manager.list_checkpoints(project)
    assert [(each.id, each.created_at, each.reason) for each in found] == [
        (each.id, each.created_at, each.reason) for each in (kept.new, kept.old)
    ]


def test_a_checkpoint_that_was_deleted_on_purpose_does_not_come_back(base: Path, project: Path) -> None:
    kept = keep(base, project)
    kept.manager.delete(project, [kept.old.id, kept.new.id])
    assert codes(kept.manager.doctor()) == set()
    assert kept.manager.doctor(repair=True).checkpoints == 0


# --- objects that are lost --------------------------------------------------------------------------


@pytest.mark.parametrize("hurt", [truncate, lambda path: truncate(path, 9), unfitting, os.unlink],
                         ids=["emptied", "cut short", "wrong", "removed"])  # fmt: skip
def test_a_checkpoint_that_lost_a_file_is_kept_without_it(
    base: Path, project: Path, hurt: Callable[[Path], Any]
) -> None:
    kept = keep(base, project)
    kept.manager.pin(project, kept.old.id)
    kept.manager.label(project, kept.old.id, "before all")
    hurt(kept.object(kept.blob("README.md", kept.old)))
    checkup = kept.manager.doctor()
    (finding,) = [finding for finding in checkup.findings if finding.code == "checkpoint-incomplete"]
    assert "README.md" in finding.meaning and kept.old.short_id in finding.meaning
    assert (checkup.checkpoints, checkup.intact) == (2, 1)
    repaired(kept)

    new, replacement = kept.manager.list_checkpoints(project)
    assert new.id == kept.new.id
    assert replacement.metadata["mended_from"] == kept.old.id and replacement.created_at == kept.old.created_at
    assert (replacement.reason, replacement.turn, replacement.pinned, replacement.label) == (
        "first",
        1,
        True,
        "before all",
    )
    assert [(item.path, item.why) for item in replacement.skipped] == [("README.md", "damaged")]

    result = kept.manager.restore(project, "before all")
    assert [(item.path, item.why) for item in result.kept] == [("README.md", "damaged at the checkpoint")]
    expected = dict(kept.pictures[kept.old.id])
    expected[b"README.md"] = kept.pictures[kept.new.id][b"README.md"]
    assert manifest(project) == expected
    kept.manager.undo(project)
    assert manifest(project) == kept.pictures[kept.new.id]


def test_a_checkpoint_that_lost_a_directory_is_kept_without_it(base: Path, project: Path) -> None:
    kept = keep(base, project)
    kept.object(git(kept.store, "rev-parse", f"{kept.old.id}:src")).unlink()
    repaired(kept)
    replacement = kept.manager.list_checkpoints(project)[1]
    assert [(item.path, item.why) for item in replacement.skipped] == [("src/", "damaged")]
    kept.manager.restore(project, replacement.id)
    expected = dict(kept.pictures[kept.old.id])
    expected |= {name: entry for name, entry in kept.pictures[kept.new.id].items() if name.startswith(b"src")}
    assert manifest(project) == expected


@pytest.mark.parametrize("which", ["commit", "tree"])
def test_a_checkpoint_without_commit_or_tree_goes_to_the_quarantine_and_the_others_stay(
    base: Path, project: Path, which: str
) -> None:
    kept = keep(base, project)
    truncate(kept.object(kept.old.id if which == "commit" else kept.old.tree))
    aside = repaired(kept).set_aside
    assert [each.id for each in kept.manager.list_checkpoints(project)] == [kept.new.id]
    notes = [path.read_text() for path in Path(aside or "").rglob(f"*{kept.old.id[:12]}*")]
    assert any(kept.old.id in text for text in notes)
    kept.assert_restores(kept.new)


def test_undo_leads_to_the_repaired_checkpoint(base: Path, project: Path) -> None:
    kept = keep(base, project)
    kept.change("run.sh", "#!/bin/sh\nexit 1\n")
    kept.manager.restore(project, kept.old.id)  # undo leads to what was there just now
    before = kept.manager.list_checkpoints(project)[0]
    kept.object(kept.blob("run.sh", before)).unlink()
    repaired(kept)
    result = kept.manager.undo(project)
    assert result.target.metadata["mended_from"] == before.id
    assert (project / "README.md").read_text() == "# Changed\n"


def test_a_repair_that_fails_half_way_is_finished_by_the_next(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = keep(base, project)
    kept.change("run.sh", "#!/bin/sh\nexit 1\n")
    kept.manager.restore(project, kept.old.id)
    before = kept.manager.list_checkpoints(project)[0]
    kept.object(kept.blob("run.sh", before)).unlink()

    def failing(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(doctor, "rename_ids", failing)
        kept.manager.doctor(repair=True)
    repaired(kept)
    assert kept.manager.undo(project).target.metadata["mended_from"] == before.id


def test_content_that_only_the_projects_repository_has_comes_back(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "README.md")
    git(project, "commit", "-q", "-m", "theirs")
    kept = keep(base, project)
    kept.object(kept.blob("README.md", kept.old)).unlink(missing_ok=True)
    repaired(kept)
    assert [each.id for each in kept.manager.list_checkpoints(project)] == [kept.new.id, kept.old.id]
    kept.assert_restores(kept.old)


def test_a_cache_that_counts_lost_content_as_stored_is_forgotten(base: Path, project: Path) -> None:
    """Else the same content, should it come back, would not be stored again."""
    kept = keep(base, project)
    kept.object(kept.blob("data.bin")).unlink()
    (project / "data.bin").write_bytes(b"something else")  # so that it is not found there
    checkup = kept.manager.doctor(repair=True)
    assert "cache-damaged" in {finding.code for finding in checkup.repaired}
    (project / "data.bin").write_bytes(bytes(range(256)))
    outcome = kept.manager.ensure_checkpoint(project, "third")
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change("data.bin", "changed")
    kept.assert_restores(outcome.checkpoint)


def test_when_all_objects_are_gone_the_next_snapshot_starts_a_new_history(base: Path, project: Path) -> None:
    kept = keep(base, project)
    shutil.rmtree(kept.store / "objects")
    assert "folder-missing" in codes(kept.manager.doctor())
    repaired(kept)
    kept.change()
    outcome = kept.manager.ensure_checkpoint(project, "third")
    assert outcome.status == "taken"
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change(content="and again\n")
    kept.assert_restores(outcome.checkpoint)
    assert kept.manager.doctor().findings == ()


# --- packs ------------------------------------------------------------------------------------------


def test_the_readable_objects_of_a_damaged_pack_are_written_again(base: Path, project: Path) -> None:
    kept = packed(base, project)
    flip(pack_of(kept), offset_of(kept, kept.blob("README.md", kept.old)) + 2, 4)
    assert {"pack-damaged", "checkpoint-incomplete"} & codes(kept.manager.doctor()) >= {"pack-damaged"}
    checkup = repaired(kept)
    assert list(Path(checkup.set_aside or "").rglob("*.pack")) != []
    new, replacement = kept.manager.list_checkpoints(project)
    assert new.id == kept.new.id and [item.path for item in replacement.skipped] == ["README.md"]
    kept.assert_restores(kept.new)


def test_a_damaged_pack_costs_nothing_if_its_objects_are_in_the_files(base: Path, project: Path) -> None:
    kept = packed(base, project)
    flip(pack_of(kept), offset_of(kept, kept.blob("data.bin")) + 2, 4)
    repaired(kept)
    assert [each.id for each in kept.manager.list_checkpoints(project)] == [kept.new.id, kept.old.id]
    kept.assert_restores(kept.old)
    kept.assert_restores(kept.new)


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_a_repair_does_not_wait_for_a_pipe_that_is_in_the_place_of_a_lost_file(base: Path, project: Path) -> None:
    kept = packed(base, project)
    flip(pack_of(kept), offset_of(kept, kept.blob("data.bin")) + 2, 4)
    (project / "data.bin").unlink()
    os.mkfifo(project / "data.bin")
    checkup = repaired(kept)
    assert "checkpoint-incomplete" in {finding.code for finding in checkup.repaired}


@pytest.mark.parametrize("how", ["no index", "damaged index", "empty index"])
def test_a_pack_without_a_sound_index_gets_a_new_one(base: Path, project: Path, how: str) -> None:
    kept = packed(base, project)
    index = pack_of(kept).with_suffix(".idx")
    if how == "no index":
        index.unlink()
    elif how == "damaged index":
        flip(index, 1100, 40)
    else:
        truncate(index)
    assert "pack-damaged" in codes(kept.manager.doctor())
    repaired(kept)
    assert [each.id for each in kept.manager.list_checkpoints(project)] == [kept.new.id, kept.old.id]
    kept.assert_restores(kept.old)


def test_of_a_pack_that_is_cut_short_the_beginning_is_saved(base: Path, project: Path) -> None:
    kept = packed(base, project)
    pack = pack_of(kept)
    (project / "README.md").write_text("only this differs\n")
    newest = kept.manager.ensure_checkpoint(project, "third").checkpoint
    kept.pictures[newest.id] = manifest(project)
    truncate(pack, pack.stat().st_size // 2)
    repaired(kept)
    assert newest.id in [each.id for each in kept.manager.list_checkpoints(project)]
    kept.assert_restores(newest)


def test_with_pack_and_index_damaged_git_reads_as_far_as_it_can(base: Path, project: Path) -> None:
    kept = packed(base, project)
    pack = pack_of(kept)
    flip(pack.with_suffix(".idx"), 1100, 40)
    flip(pack, pack.stat().st_size - 30, 4)
    checkup = repaired(kept)
    assert list(Path(checkup.set_aside or "").rglob("*.pack")) != []
    found = [each.metadata.get("mended_from", each.id) for each in kept.manager.list_checkpoints(project)]
    assert kept.new.id in found or kept.old.id in found


@pytest.mark.parametrize("which", ["blob", "tree", "commit"])
def test_an_object_file_with_trailing_bytes_loses_nothing(base: Path, project: Path, which: str) -> None:
    """Git does not read such an object, although all of its content is there."""
    kept = keep(base, project)
    names = {"blob": kept.blob("data.bin", kept.old), "tree": kept.old.tree, "commit": kept.old.id}
    path = kept.object(names[which])
    path.chmod(0o600)
    with path.open("ab") as file:
        file.write(b"something else")
    (project / "data.bin").unlink()
    assert "object-damaged" in codes(repaired(kept))
    assert {each.id for each in kept.manager.list_checkpoints(project)} == {kept.old.id, kept.new.id}
    kept.assert_restores(kept.old)


# --- what cannot be repaired -----------------------------------------------------------------------


def test_a_store_of_a_newer_version_is_refused_and_left_alone(base: Path, project: Path) -> None:
    kept = keep(base, project)
    (kept.store / "format").write_text("99\n")
    damaging.garbage_record(kept)
    before = picture(base)
    checkup = kept.manager.doctor(repair=True)
    (finding,) = checkup.findings
    assert finding.code == "store-newer" and not finding.repair and "99" in finding.meaning
    assert not checkup.applied and not checkup.healthy
    assert kept.manager.ensure_checkpoint(project).status == "refused"
    assert picture(base) == before


def test_a_clock_that_was_set_back_is_reported_and_needs_no_repair(base: Path, project: Path) -> None:
    kept = keep(base, project)
    later = int(time.time() * 1000) + 3_600_000
    os.rename(kept.store / kept.new.ref, kept.refs / f"{later}-{kept.new.id[:12]}")
    (finding,) = kept.manager.doctor().findings
    assert (finding.code, finding.severity, finding.repair) == ("clock-back", "info", "")
    kept.change()
    third = kept.manager.ensure_checkpoint(project, "third").checkpoint
    assert [each.id for each in kept.manager.list_checkpoints(project)] == [third.id, kept.new.id, kept.old.id]


def test_what_a_killed_process_left_is_reported_and_removed(base: Path, project: Path) -> None:
    kept = keep(base, project)
    left = [kept.store / "indexes" / f"{kept.id}.4711.tmp", kept.store / "objects" / "pack" / "tmp_pack_x"]
    for path in left:
        path.write_bytes(b"half")
    assert kept.manager.doctor().findings == ()  # it may belong to a running process
    for path in left:
        os.utime(path, (1, 1))
    scratch = kept.store / "scratch-upkeep-4711"
    (scratch / "pack").mkdir(parents=True)
    os.utime(scratch, (1, 1))
    checkup = kept.manager.doctor()
    assert codes(checkup) == {"leftover"} and len(checkup.findings) == 3 and checkup.healthy
    repaired(kept)
    assert not any(path.exists() for path in (*left, scratch))


# --- permissions ------------------------------------------------------------------------------------


def test_a_base_that_is_open_to_others_is_closed_again(base: Path, project: Path) -> None:
    kept = keep(base, project)
    base.chmod(0o755)
    (finding,) = kept.manager.doctor().findings
    assert (finding.code, finding.severity) == ("base-open", "warning")
    kept.manager.doctor(repair=True)
    assert base.stat().st_mode & 0o777 == 0o700


def closed_by(base: Path, project: Path, what: str) -> tuple[set[str], set[str], list[str], bool]:
    """In a process that is not root: close something of the store, look, repair, look again."""
    kept = keep(base, project)
    place = {
        "an object": kept.object(kept.blob("data.bin")),
        "objects": kept.store / "objects",
        "a fan-out directory": kept.object(kept.old.tree).parent,
        "refs": kept.store / "refs",
        "the refs of the project": kept.refs,
        "the project's record": kept.store / "projects" / f"{kept.id}.json",
        "the index": kept.store / "indexes" / kept.id,
        "the locks": kept.store / "locks",
        "the store's lock": kept.store / "locks" / "store.lock",
        "the store": kept.store,
        "the base": base,
    }[what]
    place.chmod(0)
    seen = codes(kept.manager.doctor()) if what != "the base" else {"closed"}
    after = kept.manager.doctor(repair=True)
    listed = [each.id for each in kept.manager.list_checkpoints(project)]
    kept.assert_restores(kept.old)
    kept.assert_restores(kept.new)
    return seen, {finding.code for finding in after.repaired}, listed, listed == [kept.new.id, kept.old.id]


@pytest.mark.skipif(os.name == "nt", reason="no permission bits")
@pytest.mark.parametrize("what", [
    "an object", "objects", "a fan-out directory", "refs", "the refs of the project", "the project's record",
    "the index", "the locks", "the store's lock", "the store", "the base",
])  # fmt: skip
def test_files_that_deny_access_to_their_owner_are_opened_again(
    base: Path, project: Path, as_user: Callable[..., Any], what: str
) -> None:
    seen, repaired_codes, _, complete = as_user(closed_by, base, project, what)
    assert "closed" in seen and "closed" in repaired_codes
    assert complete


# --- beside others ----------------------------------------------------------------------------------


def test_nothing_is_repaired_while_another_process_works(base: Path, project: Path) -> None:
    kept = keep(base, project)
    damaging.garbage_record(kept)
    before = picture(base)
    hurried = CheckpointManager(base=base, fsync=False, deadline=0.3)
    with locked(kept.store / "locks" / "store.lock", "a snapshot", NO_DEADLINE, shared=True):
        with pytest.raises((DeadlineExceeded, LockTimeout)):
            hurried.doctor(repair=True)
        assert "record-damaged" in codes(hurried.doctor())  # looking does not disturb
        assert picture(base) == before
    assert hurried.doctor(repair=True).healthy


# --- leftovers --------------------------------------------------------------------------------------


def test_staging_of_a_restore_without_a_record_goes_to_the_quarantine(base: Path, project: Path) -> None:
    kept = keep(base, project)
    left = project / ".shadowsnap-restore-1-1"
    (left / "old").mkdir(parents=True)
    (left / "old" / "0").write_text("moved aside")
    (finding,) = kept.manager.doctor().findings
    assert finding.code == "staging-left"
    aside = kept.manager.doctor(repair=True).set_aside
    assert not left.exists()
    assert next(Path(aside or "").rglob("0")).read_text() == "moved aside"


def test_two_repairs_have_directories_of_their_own(base: Path, project: Path) -> None:
    kept = keep(base, project)
    for _ in range(2):
        damaging.garbage_ref(kept)
        repaired(kept)
    assert len(list(base.glob("corrupt-*"))) == 2


def test_several_damages_are_repaired_at_once(base: Path, project: Path) -> None:
    kept = keep(base, project)
    for damage in (
        damaging.empty_blob_that_is_on_disk, damaging.dangling_ref, damaging.garbage_index,
        damaging.garbage_record, damaging.strange_journal, damaging.packed_refs_lock, damaging.garbage_config,
        damaging.no_head,
    ):  # fmt: skip
        damage(kept)
    repaired(kept)
    kept.assert_restores(kept.old)
    kept.assert_restores(kept.new)


# --- the operation log ------------------------------------------------------------------------------


def with_history(kept: Kept) -> list[Entry]:
    """A turn with a prompt, one that changes nothing, a snapshot, and a restore that was undone and redone."""
    manager, project = kept.manager, kept.project
    for text in ("written by the agent\n", None):
        manager.new_turn("a-session", "write it")
        manager.ensure_checkpoint(project)
        if text is not None:
            kept.change("agent.txt", text)
        manager.end_turn()
    kept.change("mine.txt", "edited by hand\n")
    manager.snapshot(project, "by hand")
    kept.change("mine.txt", "edited again\n")
    manager.restore(project, "1")
    manager.undo(project)
    manager.redo(project)
    return manager.timeline(project, restores=True)


def facts(entries: list[Entry]) -> list[tuple[object, ...]]:
    return [(each.number, each.kind, each.prompt, each.reason, each.before, each.after) for each in entries]


def test_a_lost_log_is_written_again_from_the_checkpoints(base: Path, project: Path) -> None:
    kept = keep(base, project)
    before = with_history(kept)
    damaging.no_log(kept)
    assert codes(kept.manager.doctor()) == {"log-lost"}
    repaired(kept)
    after = kept.manager.timeline(project, restores=True)
    # Only the log knew of the turn that changed nothing.
    unchanged = [entry for entry in before if entry.kind == "turn" and entry.before == entry.after]
    assert [entry.number for entry in unchanged] == [4]
    assert facts(after) == facts([entry for entry in before if entry not in unchanged])
    with pytest.raises(NothingToRedo):
        kept.manager.redo(project)


def test_a_number_that_only_the_lost_log_knew_is_not_given_again(base: Path, project: Path) -> None:
    kept = keep(base, project)
    kept.manager.ensure_checkpoint(project)  # a turn on a state that is held already
    kept.manager.end_turn()
    assert [entry.number for entry in kept.manager.timeline(project)] == [3, 2, 1]
    damaging.no_log(kept)
    repaired(kept)
    kept.change()
    kept.manager.new_turn("a-session", "the next")
    kept.manager.ensure_checkpoint(project)
    assert [entry.number for entry in kept.manager.timeline(project) if entry.kind == "turn"] == [4, 2, 1]


@pytest.mark.parametrize("which", depth((0, 2, 4, 5, 9, 10), range(11)))
def test_any_damaged_line_is_written_again_from_the_checkpoints(base: Path, project: Path, which: int) -> None:
    kept = keep(base, project)
    before = with_history(kept)
    log = damaging.log_of(kept)
    rows = log.read_bytes().splitlines(keepends=True)
    assert len(rows) == 10
    if which < len(rows):
        rows[which] = rows[which][:40] + b"\0" * 50 + b"\n"
    else:
        rows.append(b'{"op":"end","at":17')  # torn, as by a crash
    log.write_bytes(b"".join(rows))

    torn = which == len(rows) - 1 == 10
    assert codes(kept.manager.doctor()) == (set() if torn else {"log-damaged"})
    checkup = kept.manager.doctor(repair=True)
    assert kept.manager.doctor().healthy and (torn or checkup.set_aside)
    after = facts(kept.manager.timeline(project, restores=True))
    missing = [entry for entry in before if facts([entry])[0] not in after]
    # Of a turn that changed nothing there is no checkpoint to tell its lines again from.
    assert [entry.number for entry in missing] == ([4] if which in (4, 5) else []), missing
    assert len(after) == len(before) - (which == 4)


def test_lines_about_checkpoints_that_never_existed_do_no_harm(base: Path, project: Path) -> None:
    kept = keep(base, project)
    strange, now = "0123456789" * 4, time.time()
    lines = [
        {"op": "begin", "at": now, "turn": 77, "before": strange, "session": "s", "prompt": "never"},
        {"op": "end", "at": now, "turn": 77, "after": strange, "status": "done"},
        {"op": "snapshot", "at": now, "number": 78, "checkpoint": strange},
        {
            "op": "restore",
            "at": now,
            "id": "x",
            "kind": "undo",
            "target": strange,
            "before": strange,
            "undoes": 76,
        },
        {"op": "something of a later version", "at": now},
    ]
    with damaging.log_of(kept).open("a") as log:
        log.writelines(f"{json.dumps(line)}\n" for line in lines)
    assert kept.manager.doctor() == Checkup(str(base), checkpoints=2, intact=2)
    numbers = [entry.number for entry in kept.manager.timeline(project)]
    assert {1, 2} <= set(numbers)
    kept.assert_restores(kept.old)
    kept.assert_restores(kept.new)
    kept.manager.prune(reclaim="always")
    assert [entry.number for entry in kept.manager.timeline(project) if entry.kind == "turn"] == [2, 1]


def test_a_project_of_format_1_has_no_lost_log(base: Path, project: Path) -> None:
    """A log is written on first use; before that there is nothing to report."""
    kept = keep(base, project)
    record = kept.store / "projects" / f"{kept.id}.json"
    known = json.loads(record.read_text())
    del known["next_number"]
    record.write_text(json.dumps(known))
    damaging.no_log(kept)
    assert kept.manager.doctor().findings == ()


# --- the documentation ------------------------------------------------------------------------------


def test_the_documentation_lists_every_code() -> None:
    package = Path(doctor.__file__).parent
    text = "".join(path.read_text() for path in package.glob("*.py"))
    known = set(re.findall(r'Finding\(\s*"([a-z-]+)"', text)) | doctor.REPAIRABLE
    page = (package.parent / "docs" / "healing.md").read_text()
    table = set(re.findall(r"`([a-z-]+)`", "".join(line for line in page.splitlines() if line.startswith("| `"))))
    assert known == table
