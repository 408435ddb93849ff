"""Pruning a real store."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from upkeep_stores import a_manager, a_store, check_sound, noise, object_count, other_warnings, take, take_turns

from helpers import git, loose_object, manifest
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.store.locks import if_free
from shadowsnap.store.log import read_troubles
from shadowsnap.store.projects import project_of
from shadowsnap.upkeep.prune import apply_plan, plan_by_rules
from shadowsnap.upkeep.reclaim import read_memory, upkeep_lock, write_memory

DAY = 86400.0


def ids(manager: CheckpointManager, project: Path) -> list[str]:
    return [checkpoint.id for checkpoint in manager.list_checkpoints(project)]


def age(base: Path, project: Path, days: float) -> None:
    """Make every checkpoint of a project, and its last use, so many days older."""
    store, known = a_store(base), project_of(project)
    for line in git(store.git_dir, "for-each-ref", "--format=%(refname) %(objectname)").splitlines():
        ref, name = line.split()
        top, _, last = ref.rpartition("/")
        if top in (known.refs, known.pins):
            moment, _, digits = last.partition("-")
            git(store.git_dir, "update-ref", f"{top}/{int(moment) - int(days * DAY * 1000):013d}-{digits}", name)
            git(store.git_dir, "update-ref", "-d", ref)
    record = store.project_file(known.id)
    facts = json.loads(record.read_text())
    record.write_text(json.dumps({**facts, "last_touch": facts["last_touch"] - days * DAY}))


def missing_for(base: Path, project: Path, days: float) -> None:
    """Pretend that the directory was found missing so many days ago."""
    store = a_store(base)
    memory = read_memory(store)
    since = {**memory.gone_since, project_of(project).id: time.time() - days * DAY}
    write_memory(store, replace(memory, gone_since=since))


# --- count --------------------------------------------------------------------------------------------


def test_the_newest_stay_with_their_ids_and_dates_and_restore_exactly(base: Path, project: Path) -> None:
    manager, states = a_manager(base, max_snapshots=3), {}
    for turn in range(7):
        (project / "src" / "main.py").write_text(f"print({turn})\n")
        states[take(manager, project).id] = manifest(project)
    before = manager.list_checkpoints(project)
    result = manager.prune(reclaim="always")
    after = manager.list_checkpoints(project)
    assert (result.status, len(result.dropped), result.error) == ("done", 4, None)
    assert [(each.id, each.created_at, each.ref) for each in after] == [
        (each.id, each.created_at, each.ref) for each in before[:3]
    ]
    check_sound(a_store(base))
    for checkpoint in after:
        manager.restore(project, checkpoint.id)
        assert manifest(project) == states[checkpoint.id]


def test_a_dry_run_shows_what_prune_does_and_changes_nothing(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    take_turns(manager, project, 5)
    before = manifest(base)
    planned = manager.prune(dry_run=True)
    after = manifest(base)
    locks = {name for name in after if b"locks/" in name}
    assert {name: after[name] for name in after if name not in locks} == {
        name: before[name] for name in before if name not in locks
    }
    assert (planned.status, planned.applied, bool(planned)) == ("planned", False, True)
    done = manager.prune()
    assert [(each.checkpoint.id, each.reason) for each in done.dropped] == [
        (each.checkpoint.id, each.reason) for each in planned.dropped
    ]
    assert [each["checkpoint"]["id"] for each in done.to_dict()["dropped"]] == [
        each.checkpoint.id for each in done.dropped
    ]


def test_limits_can_be_given_for_one_prune(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=20)
    take_turns(manager, project, 5)
    manager.prune(max_snapshots=2)
    assert len(ids(manager, project)) == 2


def test_pins_survive_and_labels_go_with_what_is_dropped(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    taken = take_turns(manager, project, 6)
    manager.pin(project, taken[0].id)
    manager.label(project, taken[2].id, "dropped")
    manager.label(project, taken[5].id, "kept")
    manager.prune(reclaim="always")
    assert ids(manager, project) == [taken[5].id, taken[1].id, taken[0].id]  # the pinned turn ends with the second
    refs = git(a_store(base).git_dir, "for-each-ref", "--format=%(refname)", "refs/shadowsnap-labels").split()
    assert [ref.rpartition("/")[2] for ref in refs] == ["kept"]
    assert manager.get(project, "kept").id == taken[5].id


def test_what_was_pinned_after_the_plan_was_made_stays(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    taken = take_turns(manager, project, 5)
    store = a_store(base)
    plan, _ = plan_by_rules(store, manager.settings, NO_DEADLINE)
    manager.pin(project, taken[1].id)
    dropped = apply_plan(store, plan, NO_DEADLINE)
    assert {verdict.checkpoint.id for verdict in dropped} == {taken[0].id, taken[2].id}
    assert ids(manager, project) == [taken[4].id, taken[3].id, taken[1].id]


def test_what_became_the_newest_after_the_plan_was_made_stays(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    taken = take_turns(manager, project, 4)
    store = a_store(base)
    plan, _ = plan_by_rules(store, manager.settings, NO_DEADLINE)
    manager.delete(project, [taken[2].id, taken[3].id])
    apply_plan(store, plan, NO_DEADLINE)
    assert ids(manager, project) == [taken[1].id]


def test_undo_and_redo_work_after_a_prune(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=1)
    take_turns(manager, project, 3)
    first, now = manager.get(project, "last~2"), manifest(project)
    (project / "unsaved").write_text("new\n")
    edited = manifest(project)
    manager.restore(project, first.id)
    take_turns(manager, project / "elsewhere", 1)
    manager.prune(reclaim="always", retention_days=0.0000001)
    restored = manifest(project)
    manager.undo(project)
    assert {path for path in manifest(project) if b"elsewhere" not in path} == set(edited)
    manager.prune(reclaim="always", retention_days=0.0000001)
    manager.redo(project)
    assert manifest(project) == restored != now


def test_the_beginning_of_an_open_stage_stays(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=1)
    take_turns(manager, project, 3)
    before = manifest(project)
    with manager.stage(project, edit_id="e", session_id="s") as stage:
        take_turns(manager, project, 3)
        manager.prune(reclaim="always")
        stage.discard()
    assert manifest(project) == before


# --- age ----------------------------------------------------------------------------------------------


def test_old_checkpoints_go_but_a_project_that_exists_keeps_its_newest(base: Path, tmp_path: Path) -> None:
    manager = a_manager(base, retention_days=30)
    taken = take_turns(manager, tmp_path / "old", 3)
    age(base, tmp_path / "old", 40)
    fresh = take_turns(manager, tmp_path / "fresh", 3)
    result = manager.prune()
    assert ids(manager, tmp_path / "old") == [taken[2].id]
    assert ids(manager, tmp_path / "fresh") == [each.id for each in reversed(fresh)]
    assert {verdict.reason for verdict in result.dropped} == {"its project was not used for 30 days"}


# --- directories that are gone ------------------------------------------------------------------------


def test_checkpoints_of_a_lost_directory_go_after_a_time_of_grace(base: Path, tmp_path: Path) -> None:
    manager, lost = a_manager(base, orphan_grace_days=7), tmp_path / "projects" / "lost"
    take_turns(manager, lost, 2)
    take_turns(manager, tmp_path / "projects" / "stays", 2)
    age(base, lost, 20)
    manager.prune()
    shutil.rmtree(lost)
    assert not manager.prune().dropped
    missing_for(base, lost, 6)
    assert not manager.prune().dropped
    missing_for(base, lost, 8)
    result = manager.prune(reclaim="always")
    assert {verdict.reason for verdict in result.dropped} == {"its directory is gone"}
    assert len(result.dropped) == 2
    store, known = a_store(base), project_of(lost)
    assert not any(known.id in name for name in os.listdir(store.git_dir / "indexes"))
    assert not store.project_file(known.id).exists()
    assert len(ids(manager, tmp_path / "projects" / "stays")) == 2
    check_sound(store)


def test_a_directory_that_came_back_has_its_full_grace_again(base: Path, tmp_path: Path) -> None:
    manager, lost = a_manager(base, orphan_grace_days=7), tmp_path / "lost"
    take_turns(manager, lost, 2)
    shutil.rmtree(lost)
    manager.prune()
    missing_for(base, lost, 8)
    take_turns(manager, lost, 1)
    shutil.rmtree(lost)
    assert not manager.prune().dropped
    missing_for(base, lost, -1)  # noted by a clock that was wrong
    assert not manager.prune().dropped


@pytest.mark.parametrize("beneath", [None, (), (".keep",)])
def test_an_unmounted_volume_loses_nothing(base: Path, tmp_path: Path, beneath: tuple[str, ...] | None) -> None:
    manager, lost = a_manager(base, orphan_grace_days=0), tmp_path / "volume" / "project"
    taken = take_turns(manager, lost, 3)
    age(base, lost, 400)
    manager.prune(retention_days=0)
    (tmp_path / "volume").rename(tmp_path / "detached")
    if beneath is not None:  # the directory that it was mounted on shows through
        make_files(tmp_path / "volume", beneath)
    assert not manager.prune().dropped
    shutil.rmtree(tmp_path / "volume", ignore_errors=True)
    (tmp_path / "detached").rename(tmp_path / "volume")
    assert len(ids(manager, lost)) == len(taken)


def test_an_empty_directory_says_nothing_about_the_project_that_was_in_it(base: Path, tmp_path: Path) -> None:
    manager, lost = a_manager(base, orphan_grace_days=0), tmp_path / "mount-point" / "project"
    take_turns(manager, lost, 2)
    shutil.rmtree(lost)
    assert not manager.prune().dropped
    make_files(lost.parent, ("another",))
    assert len(manager.prune().dropped) == 2


def make_files(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


# --- size ---------------------------------------------------------------------------------------------


def test_the_size_limit_takes_from_the_noisy_project_and_leaves_quiet_ones_alone(
    base: Path, tmp_path: Path
) -> None:
    manager = a_manager(base, max_total_size_mb=1)
    quiet = take_turns(manager, tmp_path / "quiet", 5, size=10_000)
    noisy = take_turns(manager, tmp_path / "noisy", 12, size=90_000)
    result = manager.prune()
    assert ids(manager, tmp_path / "quiet") == [each.id for each in reversed(quiet)]
    left = ids(manager, tmp_path / "noisy")
    assert left == [each.id for each in reversed(noisy)][: len(left)]
    assert 0 < len(left) < 12
    assert {verdict.reason for verdict in result.dropped} == {"the store is larger than 1 MB"}
    assert result.bytes_after is not None and result.bytes_after <= 2**20
    # One more would not fit: no more was dropped than had to be.
    assert result.bytes_after + 90_000 > 2**20
    check_sound(a_store(base))


def test_what_only_has_to_be_packed_better_is_not_dropped(base: Path, project: Path) -> None:
    manager = a_manager(base, max_total_size_mb=1)
    text = [f"line {number} {noise(number, 20).hex()}\n" for number in range(4000)]
    for turn in range(12):
        text[turn * 7] = f"changed in turn {turn}\n"
        (project / "large.txt").write_text("".join(text))
        take(manager, project)
    result = manager.prune()
    assert (result.bytes_before or 0) > 2**20 > (result.bytes_after or 0)
    assert not result.dropped
    check_sound(a_store(base))


def test_a_limit_that_cannot_be_kept_is_logged_once_and_not_tried_again(base: Path, project: Path) -> None:
    manager = a_manager(base, max_total_size_mb=0.5)
    taken = take_turns(manager, project, 3, size=600_000, files=1)
    first = manager.prune()
    assert ids(manager, project) == [taken[2].id]
    assert "cannot be kept below 0.5 MB" in first.notes[0]
    assert [entry["kind"] for entry in read_troubles(base)] == ["upkeep"]
    (base / "log.jsonl").unlink()
    manager.prune()
    packs = set(os.listdir(a_store(base).git_dir / "objects" / "pack"))
    stamps = {name: (a_store(base).git_dir / "objects" / "pack" / name).stat().st_mtime_ns for name in packs}
    for _ in range(3):
        assert not manager.prune()
    assert {
        name: (a_store(base).git_dir / "objects" / "pack" / name).stat().st_mtime_ns for name in packs
    } == stamps
    assert read_troubles(base) == []
    (project / "more").write_bytes(noise("more", 100_000))
    take(manager, project)
    assert "cannot be kept" in manager.prune().notes[0]  # something changed: it was tried again


def test_a_note_that_cannot_be_written_takes_nothing_from_the_result(base: Path, project: Path) -> None:
    """The disk may be full; here, something else is in the place of the log."""
    manager = a_manager(base, max_total_size_mb=0.5)
    take_turns(manager, project, 3, size=600_000, files=1)
    (base / "log.jsonl").unlink(missing_ok=True)
    (base / "log.jsonl").mkdir()
    result = manager.prune()
    assert result.status == "done" and "cannot be kept below 0.5 MB" in result.notes[0]


def test_history_that_costs_nothing_is_not_dropped_for_a_limit_that_cannot_be_kept(
    base: Path, project: Path
) -> None:
    manager = a_manager(base, max_total_size_mb=0.5)
    (project / "large").write_bytes(noise("large", 2_000_000))
    take_turns(manager, project, 4, size=100, files=1)
    result = manager.prune()
    assert "cannot be kept" in result.notes[0]
    assert not result.dropped


def test_pins_survive_the_size_limit(base: Path, project: Path) -> None:
    manager = a_manager(base, max_total_size_mb=0.5)
    taken = take_turns(manager, project, 4, size=300_000, files=1)
    manager.pin(project, taken[0].id)
    manager.prune()
    assert ids(manager, project) == [taken[3].id, taken[1].id, taken[0].id]


# --- attachments --------------------------------------------------------------------------------------


def attach(base: Path, checkpoint: object, content: bytes) -> str:
    store = a_store(base)
    name = git(store.git_dir, "hash-object", "-w", "--stdin", stdin=content)
    ref = checkpoint.ref.replace("refs/shadowsnap/", "refs/shadowsnap-meta/")  # type: ignore[attr-defined]
    git(store.git_dir, "update-ref", ref, name)
    return ref


def attachments(base: Path) -> set[str]:
    return set(git(a_store(base).git_dir, "for-each-ref", "--format=%(refname)", "refs/shadowsnap-meta").split())


def test_attachments_go_with_their_checkpoint(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    refs = [attach(base, each, noise(each.id, 100)) for each in take_turns(manager, project, 4)]
    manager.prune()
    assert attachments(base) == set(refs[2:])


def test_attachments_have_a_size_limit_of_their_own_that_comes_first(base: Path, project: Path) -> None:
    manager = a_manager(base, max_attachments_mb=0.5, max_total_size_mb=1)
    taken = take_turns(manager, project, 6, size=1000)
    refs = [attach(base, each, noise(each.id, 200_000)) for each in taken]
    result = manager.prune()
    assert attachments(base) == set(refs[4:])
    assert set(result.attachments_dropped) == set(refs[:4])
    assert not result.dropped
    assert len(ids(manager, project)) == 6


def test_attachments_have_an_age_limit_of_their_own(base: Path, project: Path) -> None:
    manager = a_manager(base, attachment_days=10, retention_days=0)
    taken = take_turns(manager, project, 2)
    refs = [attach(base, each, noise(each.id, 100)) for each in taken]
    old = datetime.now(UTC) - timedelta(days=11)
    top, _, last = refs[0].rpartition("/")
    aged = f"{top}/{int(old.timestamp() * 1000):013d}-{last.partition('-')[2]}"
    git(a_store(base).git_dir, "update-ref", aged, refs[0])
    git(a_store(base).git_dir, "update-ref", "-d", refs[0])
    manager.prune()
    assert attachments(base) == {refs[1]}
    assert len(ids(manager, project)) == 2


# --- one at a time, and damage ------------------------------------------------------------------------


def test_two_processes_do_not_prune_at_once(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=1, upkeep_deadline=0.3)
    take_turns(manager, project, 3)
    with if_free(upkeep_lock(a_store(base)), "another process") as held:
        assert held is not None
        assert manager.prune().status == "busy"
        assert len(ids(manager, project)) == 3
    assert a_manager(base, max_snapshots=1).prune().status == "done"


def test_a_damaged_checkpoint_does_not_keep_the_limits_from_holding(base: Path, tmp_path: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    taken = take_turns(manager, tmp_path / "hurt", 4)
    take_turns(manager, tmp_path / "well", 4)
    store = a_store(base)
    name = taken[1].id
    loose_object(store.git_dir, name).unlink()
    result = manager.prune()
    assert result.status == "done"
    assert len(ids(manager, tmp_path / "well")) == 2
    assert len(result.dropped) == 3  # one of the damaged project, two of the other


def test_lost_refs_do_not_count_as_dropped_checkpoints(base: Path, tmp_path: Path) -> None:
    """Their objects are the last chance to get them back."""
    manager = a_manager(base)
    take_turns(manager, tmp_path / "lost", 3)
    take_turns(manager, tmp_path / "well", 3)
    store = a_store(base)
    shutil.rmtree(store.git_dir / project_of(tmp_path / "lost").refs)
    before = object_count(store)
    result = manager.prune(reclaim="always")
    assert type(result.error).__name__ == "CheckpointsLost"
    assert object_count(store) == before
    assert any("doctor" in warning for warning in manager.status().warnings)


def test_after_all_refs_were_lost_nothing_of_them_is_reclaimed_although_snapshots_go_on(
    base: Path, tmp_path: Path
) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, tmp_path / "project", 3)
    shutil.rmtree(base / "store" / "refs")
    take_turns(manager, tmp_path / "project", 1)
    manager.prune(reclaim="always")
    for checkpoint in taken:
        git(a_store(base).git_dir, "rev-list", "--objects", checkpoint.id)


def test_a_project_whose_checkpoints_were_all_deleted_does_not_prevent_reclaiming(
    base: Path, tmp_path: Path
) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, tmp_path / "emptied", 3)
    take_turns(manager, tmp_path / "well", 3)
    manager.delete(tmp_path / "emptied", [each.id for each in taken])
    result = manager.prune(reclaim="always")
    assert result.error is None
    assert not other_warnings(manager.status())
    check_sound(a_store(base))
    take(manager, tmp_path / "emptied")
    check_sound(a_store(base))


@pytest.mark.parametrize("number", ["1e300", "-1e300", "NaN", "Infinity", "[]"])
def test_a_damaged_number_does_not_keep_the_store_from_its_limits(base: Path, project: Path, number: str) -> None:
    manager = a_manager(base, max_snapshots=2)
    take_turns(manager, project, 3)
    store, known = a_store(base), project_of(project)
    record = {"workdir": str(project), "last_touch": 1, "created_at": 1}
    store.project_file(known.id).write_text(json.dumps(record).replace(": 1", f": {number}"))
    memory = {"gone_since": {known.id: 1}, "look": {"on_disk": 1}, "archives": {"x": 1}}
    (store.git_dir / "upkeep.json").write_text(json.dumps(memory).replace(": 1", f": {number}"))
    assert manager.prune().status == "done"
    assert len(ids(manager, project)) == 2
    assert manager.status().checkpoints == 2


# --- the operation log --------------------------------------------------------------------------------


def numbers(manager: CheckpointManager, project: Path) -> list[int | None]:
    return [entry.number for entry in manager.timeline(project) if entry.kind in ("turn", "snapshot")]


def a_turn(manager: CheckpointManager, project: Path, text: str | None) -> None:
    """A turn that writes a text, or nothing."""
    manager.new_turn("a-session", f"write {text}")
    assert manager.ensure_checkpoint(project).protected
    if text is not None:
        (project / "written").write_text(text)
    manager.end_turn()


def log_lines(base: Path, project: Path) -> list[dict[str, object]]:
    path = base / "log" / f"{project_of(project).id}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_turn_that_is_listed_after_a_prune_can_be_restored(base: Path, project: Path) -> None:
    manager, states = a_manager(base, max_snapshots=3), {}
    manager.snapshot(project, "by hand")
    for number in range(2, 9):  # each begins on the state that the one before left
        states[number] = manifest(project)
        a_turn(manager, project, str(number))
    states[9] = manifest(project)
    a_turn(manager, project, None)
    assert not any(entry.before == entry.after for entry in manager.timeline(project)[1:])
    manager.prune(reclaim="always")
    assert numbers(manager, project)[:4] == [9, 8, 7, 6]
    for number in (6, 7, 8, 9):
        manager.restore(project, str(number))
        assert manifest(project) == states[number]
    for number in (6, 7):
        manager.restore(project, f"{number}:after")
        assert manifest(project) == states[number + 1]
    check_sound(a_store(base))


def test_a_turn_on_a_snapshot_outlives_the_snapshots_turn(base: Path, project: Path) -> None:
    """The state before the oldest turn that stays was recorded by a snapshot, which is beyond the limit."""
    manager = a_manager(base, max_snapshots=2)
    manager.snapshot(project, "by hand")
    before = manifest(project)
    a_turn(manager, project, "one")
    a_turn(manager, project, "two")
    for _ in range(3):
        manager.prune(reclaim="always")
    assert numbers(manager, project) == [3, 2, 1]
    manager.restore(project, "2")
    assert manifest(project) == before


def test_pruning_for_size_keeps_the_states_of_turns_that_stay(base: Path, project: Path) -> None:
    manager, states = a_manager(base, max_total_size_mb=1), {}
    for number in range(1, 9):
        states[number] = manifest(project)
        manager.new_turn("a-session")
        manager.ensure_checkpoint(project)
        (project / "large").write_bytes(noise(number, 300_000))
        manager.end_turn()
    result = manager.prune(reclaim="always")
    assert result.dropped
    held = set(ids(manager, project))
    turns = [entry for entry in manager.timeline(project) if entry.kind == "turn" and entry.after in held]
    assert 2 <= len(turns) < 8
    for entry in turns:
        assert entry.number is not None
        manager.restore(project, str(entry.number))
        assert manifest(project) == states[entry.number]


def test_a_prune_drops_the_lines_of_what_is_gone_and_keeps_those_that_the_list_shows(
    base: Path, project: Path
) -> None:
    manager = a_manager(base, max_snapshots=3)
    for number in range(1, 11):
        a_turn(manager, project, str(number))
    manager.undo(project)
    manager.redo(project)
    manager.revert(project, turn=9, on_conflict="theirs")
    before = {entry.number: entry for entry in manager.timeline(project, restores=True)}
    manager.prune(reclaim="always")
    after = manager.timeline(project, restores=True)
    assert {entry.number for entry in after} >= {10, 9, 8, None}
    for entry in after:
        if entry.kind == "turn":
            assert entry == before[entry.number]
    assert [entry.status for entry in after if entry.number in (9, 10)] == ["done", "reverted"]
    left = {line.get("turn") for line in log_lines(base, project) if line["op"] == "begin"}
    assert 10 in left and 1 not in left and len(left) <= 5
    again = log_lines(base, project)
    manager.prune(reclaim="always")
    assert log_lines(base, project) == again


def test_what_was_undone_does_not_come_back_because_a_restore_is_forgotten(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=1)
    a_turn(manager, project, "one")
    a_turn(manager, project, "two")
    manager.pin(project, "1")
    manager.undo(project)
    (project / "mine").write_text("edited")
    manager.restore(project, "2:after")  # from here on there is nothing to redo
    forgotten = manager.timeline(project, restores=True)[0]
    (project / "mine").write_text("edited again")
    a_turn(manager, project, "three")
    before = {entry.number: entry.status for entry in manager.timeline(project)}
    manager.delete(project, [str(forgotten.before), str(forgotten.after)])
    manager.prune(reclaim="always")
    after = {entry.number: entry.status for entry in manager.timeline(project)}
    assert before[2] == after[2] == "done"
    assert after.items() <= before.items()


def test_every_line_of_a_kept_checkpoint_stays(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    a_turn(manager, project, "first")
    manager.pin(project, "1")
    for number in range(5):
        a_turn(manager, project, str(number))
        (project / "mine").write_text(str(number))
        manager.snapshot(project, f"by hand {number}")
        manager.restore(project, "last")
    manager.end_session("a-session", "completed")
    manager.prune(reclaim="always")
    lines = log_lines(base, project)
    mentioned = {value for line in lines for value in line.values() if isinstance(value, str)}
    kept = set(ids(manager, project))
    assert kept <= mentioned
    assert {line["turn"] for line in lines if line["op"] == "begin"} >= {1}
    assert [line["op"] for line in lines].count("session") == 1
    assert len(manager.sessions()) == 1


def test_numbers_are_not_given_again_after_their_lines_were_dropped(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=1)
    for number in range(1, 5):
        a_turn(manager, project, str(number))
    taken = manager.list_checkpoints(project)
    manager.delete(project, [each.id for each in taken])
    manager.prune(reclaim="always")
    assert [line["op"] for line in log_lines(base, project)] == ["numbers"]
    for damage in ("nothing", "record", "log"):
        if damage == "record":
            a_store(base).project_file(project_of(project).id).unlink()
        if damage == "log":
            (base / "log" / f"{project_of(project).id}.jsonl").unlink()
        (project / "written").write_text(damage)
        fresh = a_manager(base, max_snapshots=1)
        a_turn(fresh, project, f"after {damage}")
        fresh.prune(reclaim="always")
    assert numbers(a_manager(base), project)[0] == 7


def test_a_session_of_which_nothing_is_left_is_forgotten(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=1)
    manager.new_turn("an-older-session", "older")
    manager.ensure_checkpoint(project)
    (project / "written").write_text("older")
    manager.end_turn()
    manager.end_session("an-older-session", "completed")
    for number in range(3):
        a_turn(manager, project, str(number))
    assert {each.id for each in manager.sessions()} == {"an-older-session", "a-session"}
    manager.prune(reclaim="always")
    assert {each.id for each in manager.sessions()} == {"a-session"}
