"""Automatic upkeep: at the start of a program, and in the background."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from upkeep_stores import a_manager, a_store, check_sound, noise, take, take_turns

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap import loop as agent_loop
from shadowsnap.git import repository as runner
from shadowsnap.settings import Settings
from shadowsnap.store.layout import last_prune
from shadowsnap.store.locks import if_free
from shadowsnap.store.log import read_troubles
from shadowsnap.store.projects import project_of
from shadowsnap.upkeep import note_started, prune, why_due
from shadowsnap.upkeep.reclaim import upkeep_lock


def count(manager: CheckpointManager, project: Path) -> int:
    return len(manager.list_checkpoints(project))


# --- at the start of a program ------------------------------------------------------------------------


def test_it_keeps_the_limits_once_in_a_while(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2, min_interval_hours=24)
    take_turns(manager, project, 4)
    began = time.time()
    assert manager.auto_prune().status == "done"
    assert count(manager, project) == 2
    marked = last_prune(base)
    assert marked is not None and abs(marked.timestamp() - began) < 60
    take_turns(manager, project, 2)
    assert manager.auto_prune().status == "skipped"
    assert count(manager, project) == 4


def test_it_is_due_again_after_the_interval(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2, min_interval_hours=24)
    take_turns(manager, project, 4)
    (base / ".last_prune").write_text(str(time.time() - 24.1 * 3600))
    assert manager.auto_prune().status == "done"
    (base / ".last_prune").write_text(str(time.time() - 23.9 * 3600))
    assert manager.auto_prune().status == "skipped"


@pytest.mark.parametrize("content", ["", "yesterday", "nan", "1e999", "-1e999", "99999999999", "\ud800"])
def test_a_marker_that_is_damaged_or_of_the_future_counts_as_none(base: Path, project: Path, content: str) -> None:
    manager = a_manager(base, max_snapshots=2)
    take_turns(manager, project, 3)
    (base / ".last_prune").write_text(content, "utf-8", "surrogatepass")
    assert manager.auto_prune().status == "done"
    assert count(manager, project) == 2
    assert manager.auto_prune().status == "skipped"


def test_without_a_store_it_makes_none(base: Path) -> None:
    assert a_manager(base).auto_prune().status == "skipped"
    assert not base.exists()


def test_disabled_it_does_nothing(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 3)
    assert a_manager(base, enabled=False, max_snapshots=1).auto_prune().status == "disabled"
    assert not (base / ".last_prune").exists()


def test_it_never_raises(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 2)
    (base / "store" / "format").write_text("999\n")
    result = manager.auto_prune()
    assert (result.status, type(result.error).__name__) == ("failed", "StoreTooNew")


def test_it_does_not_repack(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    take_turns(manager, project, 5)
    objects = manifest(base / "store" / "objects")
    started = runner.processes_started
    assert manager.auto_prune().status == "done"
    assert manifest(base / "store" / "objects") == objects
    assert runner.processes_started - started <= 4


def test_it_gives_way_to_upkeep_of_another_process(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=2)
    take_turns(manager, project, 3)
    with if_free(upkeep_lock(a_store(base)), "another process"):
        assert manager.auto_prune().status == "busy"


# --- in the background --------------------------------------------------------------------------------


def test_a_detached_process_does_the_rest(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 6, size=200_000, files=1)
    manager = CheckpointManager(base=base, max_snapshots=2, max_total_size_mb=1)
    store = a_store(base)
    assert manager.auto_prune().status == "done"
    assert (store.git_dir / "upkeep-started").exists()
    end = time.monotonic() + 60
    while len(list((store.git_dir / "objects" / "pack").glob("*.pack"))) != 1:
        assert time.monotonic() < end, read_troubles(base)
        os.sched_yield()
    with_lock = False
    while not with_lock:  # until it is done
        with if_free(upkeep_lock(store), "test") as held:
            with_lock = held is not None
    check_sound(store)
    assert count(manager, project) == 2


def test_the_process_runs_with_the_settings_of_the_manager(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 6)
    given = {"base": str(base), "max_snapshots": 3, "excludes": ["x"], "of_a_later_version": 1}
    lower, prune._lower_priority = prune._lower_priority, lambda: None
    try:
        assert prune.main([json.dumps(given)]) == 0
    finally:
        prune._lower_priority = lower
    assert count(a_manager(base), project) == 3


def test_what_it_could_not_do_is_in_the_log(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 2)
    (base / "store" / "format").write_text("999\n")
    lower, prune._lower_priority = prune._lower_priority, lambda: None
    try:
        assert prune.main([json.dumps({"base": str(base)})]) == 1
    finally:
        prune._lower_priority = lower
    assert "newer shadowsnap" in read_troubles(base)[-1]["what"]


# --- whether it is due --------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When background upkeep would have been started; nothing is."""
    moments: list[float] = []

    def note(store: object, settings: Settings) -> bool:
        moments.append(time.monotonic())
        note_started(store)  # type: ignore[arg-type]
        return True

    monkeypatch.setattr(agent_loop, "start_upkeep", note)
    return moments


def test_the_21st_snapshot_of_20_costs_as_many_processes_as_the_5th(base: Path, project: Path) -> None:
    manager, costs = a_manager(base, max_snapshots=20), []
    for turn in range(25):
        (project / "file").write_bytes(noise(turn, 100))
        before = runner.processes_started
        take(manager, project)
        costs.append(runner.processes_started - before)
    assert len(set(costs[4:])) == 1
    assert count(manager, project) == 25  # dropping is left to upkeep


def test_background_upkeep_is_started_by_too_many_checkpoints_and_not_again_at_once(
    base: Path, project: Path, started: list[float]
) -> None:
    manager = CheckpointManager(base=base, max_snapshots=7, fsync=False)
    take_turns(manager, project, 9)
    assert started == []
    take_turns(manager, project, 12)
    assert len(started) == 1
    os.utime(a_store(base).git_dir / "upkeep-started", (time.time() - 700,) * 2)
    take_turns(manager, project, 9)
    assert len(started) == 2


def test_it_is_not_started_where_the_settings_forbid_it(base: Path, project: Path, started: list[float]) -> None:
    take_turns(a_manager(base, max_snapshots=2), project, 12)
    assert started == []


def test_many_loose_objects_many_packs_and_much_data_make_it_due(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 1)
    store, known, settings = a_store(base), project_of(project), Settings()
    objects = store.git_dir / "objects"
    assert why_due(store, known, settings) is None
    for folder in ("17", "a3"):
        (objects / folder).mkdir(exist_ok=True)
        for number in range(20):
            (objects / folder / f"{number:038x}").touch()
    assert why_due(store, known, settings) == "many loose objects"
    for folder in ("17", "a3"):
        for number in range(20):
            (objects / folder / f"{number:038x}").unlink()
    for number in range(29):  # beside that of the snapshot
        (objects / "pack" / f"pack-{number:040x}.pack").write_bytes(bytes(50_000))
    assert why_due(store, known, settings) == "many packs"
    for number in range(1, 29):
        (objects / "pack" / f"pack-{number:040x}.pack").unlink()
    assert why_due(store, known, Settings(max_total_size_mb=0.02)) == "the size limit"
    assert why_due(store, known, settings) is None


def test_a_size_limit_that_cannot_be_kept_does_not_start_it_again_and_again(base: Path, project: Path) -> None:
    manager = a_manager(base, max_total_size_mb=0.1)
    take_turns(manager, project, 2, size=300_000)
    store, known = a_store(base), project_of(project)
    manager.prune()
    assert why_due(store, known, manager.settings) is None


def test_a_start_of_the_future_does_not_count(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 10)
    store, known = a_store(base), project_of(project)
    note_started(store)
    settings = Settings(max_snapshots=5)
    assert why_due(store, known, settings) is None
    os.utime(store.git_dir / "upkeep-started", (time.time() + 7000,) * 2)
    assert why_due(store, known, settings) == "many checkpoints"


def test_the_time_of_the_last_prune_is_in_utc(base: Path) -> None:
    base.mkdir()
    (base / ".last_prune").write_text("1700000000")
    assert last_prune(base) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
