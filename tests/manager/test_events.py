"""`on_event` is told what happens, by typed events, and whatever it does harms nothing."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import damaging
import pytest
from damaging import keep
from fakegit import fake_git

import shadowsnap
from helpers import ROOT, manifest
from shadowsnap import CheckpointManager, events
from shadowsnap.deadline import NO_DEADLINE, Deadline, ProgressReporter
from shadowsnap.events import (
    CheckpointFailed,
    CheckpointSkipped,
    CheckpointTaken,
    CheckpointUnchanged,
    Event,
    Healed,
    Pruned,
    Recovered,
    Restored,
    Reverted,
    Slow,
    StoreCreated,
)
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import project_of

EMBEDDING = ROOT / "shadowsnap" / "docs" / "embedding.md"
EVERY_EVENT = [
    each
    for each in vars(events).values()
    if isinstance(each, type) and issubclass(each, Event) and each not in (Event, events.CheckpointEvent)
]
EVERY_MILLISECOND = tuple(number / 1000 for number in range(60_000))


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def manager(base: Path, told: list[Event]) -> CheckpointManager:
    return CheckpointManager(base=base, on_event=told.append, background_upkeep=False, fsync=False)


def of(kind: type[events.Any], told: list[Event]) -> list[events.Any]:
    return [event for event in told if isinstance(event, kind)]


# --- every event ------------------------------------------------------------------------------------


def test_the_first_use_of_a_base_creates_the_store(
    manager: CheckpointManager, base: Path, project: Path, told: list[Event]
) -> None:
    manager.ensure_checkpoint(project)
    manager.status()
    assert of(StoreCreated, told) == [StoreCreated(str(base))]
    (base / "store" / "config").unlink()  # mended on the way, which is no creation
    (base / "store" / "format").unlink()
    manager.status()
    assert len(of(StoreCreated, told)) == 1


def test_a_checkpoint_is_taken_then_skipped_then_unchanged(
    manager: CheckpointManager, project: Path, told: list[Event]
) -> None:
    outcome = manager.ensure_checkpoint(project)
    manager.ensure_checkpoint(project)
    manager.new_turn()
    manager.ensure_checkpoint(project)
    _, *rest = told
    assert [type(event) for event in rest] == [CheckpointTaken, CheckpointSkipped, CheckpointUnchanged]
    assert {event.workdir for event in rest} == {str(project)}
    assert [event.outcome.status for event in of(events.CheckpointEvent, told)] == [
        "taken", "already-taken", "unchanged",
    ]  # fmt: skip
    assert all(event.checkpoint == outcome.checkpoint for event in of(events.CheckpointEvent, told))


def test_snapshots_and_ends_of_turns_are_told_too(
    manager: CheckpointManager, project: Path, told: list[Event]
) -> None:
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("by the agent\n")
    manager.end_turn()
    (project / "README.md").write_text("by the person\n")
    manager.snapshot(project, "mine")
    assert [event.checkpoint.kind for event in of(CheckpointTaken, told)] == ["turn", "turn-end", "manual"]


def test_a_directory_that_is_refused_is_skipped(manager: CheckpointManager, home: Path, told: list[Event]) -> None:
    manager.ensure_checkpoint(home)
    (event,) = of(CheckpointSkipped, told)
    assert event.outcome.status == "refused" and "home" in str(event.outcome.error)
    (home / "notes.txt").write_text("x")
    manager.ensure_checkpoint(home, paths=["notes.txt"])
    (event,) = of(CheckpointTaken, told)
    assert event.outcome.status == "partial" and event.checkpoint.scope == "paths"


def test_a_snapshot_that_cannot_be_had_fails(base: Path, project: Path, told: list[Event]) -> None:
    hurried = CheckpointManager(base=base, on_event=told.append, deadline=1e-9)
    hurried.ensure_checkpoint(project)
    (event,) = of(CheckpointFailed, told)
    assert "time limit" in str(event.outcome.error) or "lock" in str(event.outcome.error)


def test_going_back_and_forth_is_told_with_what_was_done(
    manager: CheckpointManager, project: Path, told: list[Event]
) -> None:
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("changed\n")
    results = [manager.restore(project, "last"), manager.undo(project), manager.redo(project)]
    assert of(Restored, told) == [
        Restored(str(project), result, by) for result, by in zip(results, ["restore", "undo", "redo"], strict=True)
    ]
    manager.restore(project, "last", dry_run=True)
    assert len(of(Restored, told)) == 3


def test_a_revert_is_told_with_its_turn_or_session(
    manager: CheckpointManager, project: Path, told: list[Event]
) -> None:
    for text in ("one\n", "two\n"):
        manager.new_turn(session_id="s1")
        manager.ensure_checkpoint(project)
        (project / "README.md").write_text(text)
        manager.end_turn()
    second = manager.get(project, "last").turn
    manager.revert(project, turn=second, dry_run=True)
    result = manager.revert(project, turn=second)
    (event,) = of(Reverted, told)
    assert (event.result, event.turn, event.session_id) == (result, second, None)
    manager.revert(project, session_id="s1")
    assert of(Reverted, told)[1].session_id == "s1"
    assert of(Restored, told) == []


def test_stages_tell_how_they_ended(manager: CheckpointManager, project: Path, told: list[Event]) -> None:
    manager.ensure_checkpoint(project)
    with manager.stage(project, edit_id="e1"):
        (project / "README.md").write_text("staged\n")
    assert of(CheckpointTaken, told)[-1].checkpoint.metadata["edit_id"] == "e1"
    with manager.stage(project):
        pass
    assert isinstance(told[-1], CheckpointUnchanged)
    with manager.stage(project) as stage:
        (project / "README.md").write_text("never mind\n")
        stage.discard()
    (event,) = of(Restored, told)
    assert event.by == "stage" and event.result.written == ("README.md",)


def test_a_prune_is_told(manager: CheckpointManager, project: Path, told: list[Event]) -> None:
    for text in ("one\n", "two\n"):
        manager.new_turn()
        (project / "README.md").write_text(text)
        manager.ensure_checkpoint(project)
    manager.prune(dry_run=True, max_snapshots=1)
    assert of(Pruned, told) == []
    result = manager.prune(max_snapshots=1)
    assert [event.result for event in of(Pruned, told)] == [result]
    assert len(result.dropped) == 1


def test_healing_is_told_with_the_problem_or_by_the_doctor(base: Path, project: Path, told: list[Event]) -> None:
    kept = keep(base, project)
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False, on_event=told.append)
    damaging.empty_head(kept)
    kept.change()
    assert manager.ensure_checkpoint(project)
    damaging.empty_head(kept)
    manager.doctor(repair=True)
    by_itself, by_the_doctor = of(Healed, told)
    assert by_itself.problem is not None and by_itself.checkup.repaired
    assert by_the_doctor.problem is None and by_the_doctor.checkup.repaired


def test_a_stage_that_died_is_told_when_it_is_put_back(
    manager: CheckpointManager, base: Path, project: Path, told: list[Event]
) -> None:
    manager.ensure_checkpoint(project)
    before = manifest(project)
    dying = f"""
import os
from shadowsnap import CheckpointManager
with CheckpointManager(base={str(base)!r}).stage({str(project)!r}):
    open({str(project / "README.md")!r}, "w").write("half done")
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", dying], check=True, cwd=ROOT)
    manager.snapshot(project)
    (event,) = of(Recovered, told)
    assert "put back" in event.note
    assert manifest(project) == before


def test_every_event_says_what_it_is_and_is_documented() -> None:
    kinds = {each.kind for each in EVERY_EVENT}
    assert len(kinds) == len(EVERY_EVENT) == 12
    text = EMBEDDING.read_text("utf-8")
    for each in EVERY_EVENT:
        assert f"| `{each.__name__}` | `{each.kind}` |" in text
        for field in dataclasses.fields(each):
            assert field.name == "workdir" or f"`{field.name}`" in text, (each, field.name)
    assert shadowsnap.Event is Event


def test_events_are_frozen_and_can_be_json(manager: CheckpointManager, project: Path, told: list[Event]) -> None:
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("changed\n")
    manager.restore(project, "last")
    manager.prune()
    for event in told:
        assert json.loads(json.dumps(event.to_dict()))["kind"] == event.kind
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.workdir = "elsewhere"  # type: ignore[misc]


# --- a listener of any kind -------------------------------------------------------------------------


def everything(manager: CheckpointManager, project: Path) -> list[object]:
    """Each deed that tells something, and what it returned."""
    answers: list[object] = [manager.ensure_checkpoint(project).status, manager.ensure_checkpoint(project).status]
    (project / "README.md").write_text("by the agent\n")
    answers.append([outcome.status for outcome in manager.end_turn()])
    answers.append(manager.revert(project, turn=1).written)
    answers.append(manager.undo(project).written)
    with manager.stage(project) as stage:
        (project / "README.md").write_text("staged\n")
        stage.discard()
    with manager.stage(project):
        (project / "README.md").write_text("staged\n")
    answers.append(manager.prune().status)
    answers.append(manager.doctor(repair=True).healthy)
    return [*answers, manifest(project)]


def test_a_listener_that_raises_changes_nothing_and_is_logged(
    tmp_path: Path, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(event: Event) -> None:
        told.append(event)
        raise RuntimeError("the listener's own fault")

    told: list[Event] = []
    options = {"fsync": False, "background_upkeep": False}
    before = manifest(project)
    quiet = everything(CheckpointManager(base=tmp_path / "one", **options), project)  # type: ignore[arg-type]
    (project / "README.md").write_text("# A project\n")
    assert manifest(project) == before
    loud = CheckpointManager(base=tmp_path / "two", on_event=raising, **options)  # type: ignore[arg-type]
    loud._access.slow_after = (0.0, 0.0)
    with caplog.at_level(logging.ERROR, "shadowsnap"):
        assert everything(loud, project) == quiet
    assert len(caplog.records) == len(told) > 10
    assert {type(event) for event in told} >= {
        StoreCreated, CheckpointTaken, CheckpointSkipped, Restored, Reverted, Pruned, Slow,
    }  # fmt: skip
    record = caplog.records[0]
    assert record.name == "shadowsnap" and "StoreCreated" in record.getMessage()
    assert record.exc_info is not None and "own fault" in str(record.exc_info[1])


def test_a_listener_may_look_at_the_project_it_is_told_of(base: Path, project: Path) -> None:
    """Everything but `Slow` is told when the project is free again."""
    seen: list[object] = []

    def look(event: Event) -> None:
        if not isinstance(event, (Slow, StoreCreated)):
            seen.append(manager.diff(project, "last").changes)

    manager = CheckpointManager(base=base, on_event=look, deadline=5, background_upkeep=False, fsync=False)
    everything(manager, project)
    assert len(seen) >= 8


# --- slow -------------------------------------------------------------------------------------------


def many_files(project: Path, number: int = 300) -> None:
    for count in range(number):
        (project / f"{count}.txt").write_text(f"file {count}\n")


def test_a_long_snapshot_tells_its_progress_while_it_runs(base: Path, project: Path) -> None:
    many_files(project)
    told: list[Slow] = []
    refs: list[int] = []

    def listen(event: Event) -> None:
        if isinstance(event, Slow):
            told.append(event)
            refs.append(len(list((base / "store" / "refs" / "shadowsnap").rglob("*-*"))))

    manager = CheckpointManager(base=base, on_event=listen, fsync=False)
    manager._access.slow_after = EVERY_MILLISECOND
    assert manager.ensure_checkpoint(project)
    reading = [event for event in told if event.doing == "reading files"]
    total = len([path for path in project.rglob("*") if path.is_file()])
    assert {event.total for event in reading} == {total}
    done = [event.done for event in reading]
    assert done == sorted(set(done)) and set(done) <= set(range(total))
    assert "looking for files" in {event.doing for event in told}
    assert {event.workdir for event in told} == {str(project)}
    assert sorted(event.seconds for event in told) == [event.seconds for event in told]
    assert set(refs) == {0}  # the checkpoint was not there yet when any of this was told


def test_it_is_told_twice_at_most(manager: CheckpointManager, project: Path, told: list[Event]) -> None:
    assert manager._access.slow_after == (0.5, 10.0)
    many_files(project)
    manager._access.slow_after = (0.0, 0.0)
    assert manager.ensure_checkpoint(project)
    assert len(of(Slow, told)) == 2


def test_what_is_quick_is_not_called_slow(manager: CheckpointManager, project: Path, told: list[Event]) -> None:
    manager._access.slow_after = (1000.0, 2000.0)
    everything(manager, project)
    assert of(Slow, told) == []


def test_moments_pass_one_by_one() -> None:
    told: list[tuple[str, int | None, int | None]] = []
    watch = ProgressReporter(lambda doing, _, done, total: told.append((doing, done, total)), (0.0, 1000.0))
    deadline = Deadline(2000.0, watch)
    assert deadline.patience() == 0.0
    deadline.check("first", 1, 2)
    deadline.check("second", 2, 2)
    assert told == [("first", 1, 2)]
    patience = deadline.patience()
    assert patience is not None and 0 < patience <= 1000.0
    reporter = ProgressReporter(lambda *_: None, (5.0,))
    watched, limited = Deadline(0, reporter), Deadline(3.0, reporter)
    assert 3.0 < (watched.patience() or 0) <= 5.0 and 0 < (limited.patience() or 0) <= 3.0
    assert NO_DEADLINE.patience() is None


def test_waiting_for_a_lock_is_told(base: Path, project: Path) -> None:
    """The lock is let go when the event comes: without it, nothing would ever go on."""
    CheckpointManager(base=base, fsync=False).ensure_checkpoint(project)
    (project / "README.md").write_text("changed\n")
    told: list[Slow] = []
    held, waited_for = threading.Event(), threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, Slow):
            told.append(event)
            waited_for.set()

    def hold() -> None:
        with locked(Store(base).project_lock(project_of(project).id), "a test", NO_DEADLINE):
            held.set()
            waited_for.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)
    manager = CheckpointManager(base=base, on_event=listen, deadline=60, fsync=False)
    manager._access.slow_after = (0.01,)
    assert manager.ensure_checkpoint(project).status == "taken"
    holder.join()
    assert "waiting for the" in told[0].doing and "lock" in told[0].doing


@pytest.mark.skipif(sys.platform == "win32", reason="a script that is called git")
def test_a_git_that_takes_long_is_told(
    base: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git goes on when the event comes."""
    CheckpointManager(base=base, fsync=False).ensure_checkpoint(project)
    (project / "README.md").write_text("changed\n")
    go_on = tmp_path / "go-on"
    os.mkfifo(go_on)
    real = subprocess.run(
        ["sh", "-c", "command -v git"], capture_output=True, text=True, check=True
    ).stdout.strip()
    waiting = f'case "$*" in *diff-files*) read line < "{go_on}";; esac\nexec "{real}" "$@"'
    fake = fake_git(tmp_path / "bin", waiting)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    told: list[Slow] = []

    def listen(event: Event) -> None:
        if isinstance(event, Slow) and event.doing == "git diff-files was running":
            told.append(event)
            if len(told) == 1:
                go_on.write_text("go on\n")

    manager = CheckpointManager(base=base, on_event=listen, deadline=60, fsync=False)
    manager._access.slow_after = tuple(number / 100 for number in range(1, 6000))
    assert manager.ensure_checkpoint(project).status == "taken"
    assert told


def test_a_restore_tells_when_it_takes_long(manager: CheckpointManager, project: Path, told: list[Event]) -> None:
    many_files(project)
    manager.ensure_checkpoint(project)
    for path in project.glob("*.txt"):
        path.write_text("overwritten\n")
    manager._access.slow_after = EVERY_MILLISECOND
    manager.restore(project, "last")
    assert of(Slow, told)


@pytest.mark.parametrize("look", ["list_checkpoints", "status"])
def test_looking_is_never_called_slow(
    manager: CheckpointManager, project: Path, told: list[Event], look: str
) -> None:
    manager.ensure_checkpoint(project)
    manager._access.slow_after = EVERY_MILLISECOND
    deed: Callable[..., object] = getattr(manager, look)
    deed(*([project] if look == "list_checkpoints" else []))
    assert of(Slow, told) == []


# --- the documentation ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", re.findall(r"^```python\n(.*?)^```$", EMBEDDING.read_text("utf-8"), re.MULTILINE | re.DOTALL)
)
def test_an_example_in_the_documentation_runs(code: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    words = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
