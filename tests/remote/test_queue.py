"""Pushing by itself: after turns, in the background, never in the way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from lanes import MachineUnderTest

from shadowsnap import CheckpointManager
from shadowsnap.remote import push as queue
from shadowsnap.settings import Settings, load_settings
from shadowsnap.store.lanes import Waiting, note_unpushed, read_queue, read_waiting, remove_waiting, write_waiting


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def machine(tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    made = MachineUnderTest.make("m", tmp_path, monkeypatch)
    made.turn("work", a__txt="1")
    made.here().set_remote(made.project, "shelf", str(shelf), plain=True)
    return made


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = time.time()
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def push_queue(machine: MachineUnderTest, clock: Clock) -> int:
    return queue.push_queue(machine.store, Settings(base=machine.base), clock.sleep, clock)


def test_what_waits_is_pushed_once(machine: MachineUnderTest) -> None:
    clock = Clock()
    note_unpushed(machine.store, machine.project_id)
    note_unpushed(machine.store, machine.project_id)
    assert push_queue(machine, clock) == 1
    assert read_queue(machine.store) == [] and machine.own_lane().number == 1
    assert push_queue(machine, clock) == 0


def test_two_rounds_are_30_seconds_apart(machine: MachineUnderTest) -> None:
    clock = Clock()
    note_unpushed(machine.store, machine.project_id)
    push_queue(machine, clock)
    assert clock.slept == []
    machine.turn("more", a__txt="2")
    note_unpushed(machine.store, machine.project_id)
    push_queue(machine, clock)
    assert len(clock.slept) == 1 and 29 < clock.slept[0] <= 30


def test_what_came_while_it_was_pushed_is_pushed_too(
    machine: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, pushes = Clock(), []

    def push_and_more(*args: object) -> object:
        report = real(*args)  # type: ignore[arg-type]
        pushes.append(report)
        if len(pushes) == 1:
            machine.turn("meanwhile", a__txt="2")
        return report

    real = queue.push
    note_unpushed(machine.store, machine.project_id)
    waiting = read_waiting(machine.store, machine.project_id)
    assert waiting is not None
    note_unpushed(machine.store, machine.project_id)
    remove_waiting(machine.store, waiting)
    assert len(read_queue(machine.store)) == 1
    monkeypatch.setattr(queue, "push", push_and_more)
    push_queue(machine, clock)
    assert len(pushes) == 1 and read_queue(machine.store) == []


def test_a_push_that_fails_rests_longer_each_time_and_does_not_keep_others_waiting(
    machine: MachineUnderTest, shelf: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.txt").write_text("1")
    machine.manager.snapshot(other)
    (tmp_path / "second shelf").mkdir()
    machine.manager.set_remote(other, "second", str(tmp_path / "second shelf"), plain=True)
    from shadowsnap.store.projects import project_of

    shelf.rename(tmp_path / "gone")
    clock = Clock()
    write_waiting(machine.store, Waiting(machine.project_id, clock.now - 100))
    write_waiting(machine.store, Waiting(project_of(other).id, clock.now - 50))
    assert push_queue(machine, clock) == 1
    (left,) = read_queue(machine.store)
    assert left.project == machine.project_id and left.attempts == 3
    assert left.due - clock.now > queue._LONGEST_WAIT_SECONDS
    assert "no such directory" in left.error
    (status,) = machine.manager.remote_status(machine.project)
    assert status.attempts == 3 and "no such directory" in status.error
    # Back again: a push by hand takes it out of the queue.
    (tmp_path / "gone").rename(shelf)
    machine.push()
    assert read_queue(machine.store) == []


def test_what_rests_until_a_time_that_a_wrong_clock_named_is_due(machine: MachineUnderTest) -> None:
    clock = Clock()
    write_waiting(machine.store, Waiting(machine.project_id, clock.now, attempts=1, due=clock.now + 30 * 86400))
    assert push_queue(machine, clock) == 1 and read_queue(machine.store) == []


def test_a_remote_that_was_removed_is_not_waited_for(machine: MachineUnderTest) -> None:
    note_unpushed(machine.store, machine.project_id)
    machine.manager.remove_remote(machine.project)
    note_unpushed(machine.store, machine.project_id)
    assert push_queue(machine, Clock()) == 0 and read_queue(machine.store) == []


def test_turns_are_pushed_by_themselves_if_the_person_says_so(machine: MachineUnderTest) -> None:
    machine.manager = CheckpointManager(base=machine.base, background_upkeep=False, sync=True)
    machine.turn("by itself", a__txt="2")
    end = time.monotonic() + 30
    while time.monotonic() < end and (read_queue(machine.store) or not machine.own_lane().number):
        time.sleep(0.05)
    assert machine.own_lane().number == 1
    (status,) = machine.manager.remote_status(machine.project)
    assert status.unpushed == 0


def test_without_the_setting_or_a_remote_nothing_happens(machine: MachineUnderTest, tmp_path: Path) -> None:
    machine.turn("quietly", a__txt="2")
    assert not (machine.base / "remote" / "queue").exists()
    machine.manager.remove_remote(machine.project)
    machine.manager = CheckpointManager(base=machine.base, background_upkeep=False, sync=True)
    machine.turn("without a remote", a__txt="3")
    assert not (machine.base / "remote" / "queue").exists()


def test_a_clone_cannot_switch_it_on(machine: MachineUnderTest) -> None:
    (machine.project / ".shadowsnap.toml").write_text("sync = true\n")
    settings, warnings = load_settings().narrowed_by(machine.project)
    assert settings.sync is False and "only you can set it" in warnings[0]
