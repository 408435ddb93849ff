"""What `status` reports, also from other processes, and what it advises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from upkeep_stores import a_manager, a_store, disk_usage, noise, other_warnings, take, take_turns

from helpers import ROOT, git
from shadowsnap.git import repository as runner
from shadowsnap.store.log import append_trouble, read_troubles
from shadowsnap.store.projects import project_of
from shadowsnap.upkeep.status import FAILURES, SKIPPED

MB = 1024 * 1024


def test_projects_with_what_they_alone_use(base: Path, tmp_path: Path) -> None:
    manager = a_manager(base)
    one = take_turns(manager, tmp_path / "one", 3, size=5000)
    two = take_turns(manager, tmp_path / "two", 2, size=9000)
    manager.pin(tmp_path / "one", one[0].id)
    status = manager.status()
    assert [project.workdir for project in status.projects] == [str(tmp_path / "two"), str(tmp_path / "one")]
    second, first = status.projects
    assert (first.checkpoints, first.pinned, first.exists, first.id) == (
        3,
        1,
        True,
        project_of(tmp_path / "one").id,
    )
    assert (first.newest, second.pinned) == (one[2].created_at, 0)
    store = a_store(base)
    everything = disk_usage(store, [each.id for each in (*one, *two)])
    assert first.bytes_alone == everything - disk_usage(store, [each.id for each in two])
    assert second.bytes_alone == everything - disk_usage(store, [each.id for each in one])
    assert status.checkpoints == 5
    assert status.base == str(base)


def test_a_missing_directory_is_reported(base: Path, tmp_path: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, tmp_path / "lost", 1)
    manager.status()
    (tmp_path / "lost").rename(tmp_path / "elsewhere")
    (project,) = manager.status().projects
    assert (project.exists, project.place) == (False, "gone")


def test_sizes_of_store_attachments_waste_and_archives(base: Path, project: Path) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, project, 3, size=50_000)
    store = a_store(base)
    name = git(store.git_dir, "hash-object", "-w", "--stdin", stdin=noise("attached", 30_000))
    git(store.git_dir, "update-ref", taken[2].ref.replace("shadowsnap/", "shadowsnap-meta/"), name)
    manager.delete(project, taken[1].id)
    (base / "legacy-20200101" / "deep").mkdir(parents=True)
    (base / "legacy-20200101" / "deep" / "file").write_bytes(bytes(12345))
    for _ in range(2):  # the second time from memory
        status = manager.status()
        assert status.legacy_bytes == 12345
        assert 30_000 < (status.attachments_bytes or 0) < 31_000
        assert status.store_bytes > 180_000
        assert 0 < (status.unreachable_bytes or 0) < 1000
    git(store.git_dir, "update-ref", "-d", taken[2].ref.replace("shadowsnap/", "shadowsnap-meta/"))
    after = manager.status()
    assert after.attachments_bytes == 0
    assert (after.unreachable_bytes or 0) > 30_000


def test_what_is_known_is_not_measured_again(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 3)
    costs = []
    for _ in range(3):
        before = runner.processes_started
        manager.status()
        costs.append(runner.processes_started - before)
    assert costs[0] > costs[1] == costs[2] <= 3


def test_an_empty_base_has_a_status_too(base: Path) -> None:
    status = a_manager(base).status()
    assert (status.projects, status.failures, other_warnings(status), status.last_prune) == ((), (), [], None)
    assert json.dumps(status.to_dict())


# --- limits -------------------------------------------------------------------------------------------


def limit(manager: object, name: str) -> object:
    return next(each for each in manager.status().limits if each.name == name)  # type: ignore[attr-defined]


def test_a_store_that_gets_near_its_limit_warns_before_it_is_full(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 1, size=850_000)
    for megabytes, near, exceeded in ((10, False, False), (1, True, False), (0.5, False, True), (0, False, False)):
        manager = a_manager(base, max_total_size_mb=megabytes)
        found = limit(manager, "max_total_size_mb")
        assert (found.near, found.exceeded) == (near, exceeded)  # type: ignore[attr-defined]
        assert found.used == pytest.approx(0.811, abs=0.01)  # type: ignore[attr-defined]
        assert bool(other_warnings(manager.status())) == (near or exceeded)
    assert str(project) in other_warnings(a_manager(base, max_total_size_mb=1).status())[0]


def test_unreachable_objects_do_not_count_against_the_limit(base: Path, project: Path) -> None:
    manager = a_manager(base, max_total_size_mb=1)
    taken = take_turns(manager, project, 2, size=600_000, files=1)
    assert other_warnings(manager.status())
    manager.delete(project, taken[0].id)
    assert not other_warnings(manager.status())


def test_a_prune_by_hand_within_the_limits_counts_as_the_last_one(base: Path, project: Path) -> None:
    manager = a_manager(base, max_snapshots=3)
    take_turns(manager, project, 2)
    manager.prune(dry_run=True)
    manager.prune(max_snapshots=1)
    manager.prune(orphans=False)
    assert manager.status().last_prune is None
    manager.prune()
    assert manager.status().last_prune is not None
    assert manager.auto_prune().status == "skipped"


def test_the_last_prune_is_reported(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 1)
    manager.auto_prune()
    last = manager.status().last_prune
    assert last is not None and 0 <= time.time() - last.timestamp() < 60


# --- what was not captured ----------------------------------------------------------------------------


def test_what_the_last_snapshots_left_out_is_reported_with_advice(base: Path, project: Path) -> None:
    manager = a_manager(base, max_file_size_mb=0.01)
    (project / "large.dat").write_bytes(noise("large", 20_000))
    os.mkfifo(project / "pipe")
    take(manager, project)
    found = {trouble.what: trouble for trouble in manager.status().uncaptured}
    assert found["too-large"].paths == ("large.dat",)
    assert "max_file_size_mb" in found["too-large"].advice
    assert found["special"].paths == ("pipe",)
    assert all(trouble.workdir == str(project) for trouble in found.values())
    (project / "large.dat").unlink()
    (project / "pipe").unlink()
    take(manager, project)
    assert manager.status().uncaptured == ()


def test_every_reason_to_leave_something_out_has_advice() -> None:
    from shadowsnap.model import Skipped

    named = (Skipped.__doc__ or "").split("`")[1::2]
    assert set(named) == set(SKIPPED)
    assert all(FAILURES.values())


# --- what failed --------------------------------------------------------------------------------------


def test_a_failure_in_one_process_is_known_to_the_next(base: Path, project: Path, home: Path) -> None:
    take(a_manager(base), project)
    script = (
        "import sys; from shadowsnap import CheckpointManager\n"
        "m = CheckpointManager(base=sys.argv[1], fsync=False)\n"
        "print(m.ensure_checkpoint(sys.argv[2]).status, m.ensure_checkpoint(sys.argv[3]).status)\n"
    )
    arguments = [sys.executable, "-c", script, base, home, project / "missing"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["refused", "refused"]
    newest, older = a_manager(base).status().failures
    assert (newest.workdir, newest.kind) == (str(project / "missing"), "refused")
    assert (older.workdir, older.kind) == (str(home), "refused")
    assert newest.advice and older.advice and "does not exist" in newest.what
    assert 0 <= time.time() - newest.at.timestamp() < 60


def test_a_snapshot_that_ran_out_of_time_is_reported(base: Path, project: Path) -> None:
    take(a_manager(base), project)
    manager = a_manager(base, deadline=0.000001)
    (project / "more").write_text("x")
    assert manager.ensure_checkpoint(project).status == "failed"
    (failure,) = a_manager(base).status().failures
    assert (failure.kind, failure.workdir) == ("failed", str(project))
    assert failure.advice


def test_successful_and_disabled_snapshots_are_not_logged(base: Path, project: Path) -> None:
    take(a_manager(base), project)
    a_manager(base, enabled=False).ensure_checkpoint(project)
    a_manager(base).ensure_checkpoint(project)
    assert read_troubles(base) == []


def test_the_same_failure_is_logged_once_in_a_while(base: Path, project: Path, home: Path) -> None:
    manager = a_manager(base)
    take(manager, project)
    for _ in range(50):
        assert manager.ensure_checkpoint(home).status == "refused"
    assert len(read_troubles(base)) == 1
    (entry,) = (base / "log.jsonl").read_text().splitlines()
    aged = {**json.loads(entry), "at": time.time() - 3600}
    (base / "log.jsonl").write_text(json.dumps(aged) + "\n")
    manager.ensure_checkpoint(home)
    assert len(read_troubles(base)) == 2
    (failure,) = manager.status().failures
    assert failure.times == 2


def test_the_log_is_bounded_and_keeps_the_newest(base: Path) -> None:
    base.mkdir()
    for number in range(400):
        append_trouble(base, kind="failed", what=f"{number} " + "x" * 1000)
    assert (base / "log.jsonl").stat().st_size <= 200_000
    entries = read_troubles(base)
    assert entries[-1]["what"].startswith("399 ")
    numbers = [int(entry["what"].split()[0]) for entry in entries]
    assert numbers == list(range(numbers[0], 400))


def test_a_damaged_log_line_hides_no_other(base: Path) -> None:
    base.mkdir()
    append_trouble(base, kind="failed", what="first")
    with open(base / "log.jsonl", "ab") as file:
        file.write(b'{"at": 1, "wh\n\xff\xfe\n[]\n{"what": "no time"}\n')
    append_trouble(base, kind="failed", what="second")
    assert [entry["what"] for entry in read_troubles(base)] == ["first", "second"]


def test_many_processes_may_log_at_once(base: Path) -> None:
    base.mkdir()
    script = (
        "import sys; from pathlib import Path; from shadowsnap.store.log import append_trouble\n"
        "base, name = sys.argv[1:]\n"
        "for number in range(50): append_trouble(Path(base), kind='failed', what=f'{name} {number}')\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", script, base, str(number)], cwd=ROOT) for number in range(4)
    ]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert len({entry["what"] for entry in read_troubles(base)}) == 200
