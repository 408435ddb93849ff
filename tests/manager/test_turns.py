"""One snapshot per directory per turn: for threads, after failures, against the clock, where it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from capturing import (
    captured,
    checkpoint_of,
    content,
    deadline_after,
    everything_old,
    names,
    objects,
    skipped,
    snap,
)

from helpers import ROOT, git, manifest
from shadowsnap import CheckpointManager, Outcome, deadline
from shadowsnap import deadline as deadlines
from shadowsnap.errors import DeadlineExceeded, DirectoryRefused, LockTimeout, NoSuchTurn
from shadowsnap.store.locks import locked

ORDINARY = {"README.md", "src/main.py", "data.bin", "empty", "run.sh", "private.txt", "link"}
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX directories")


@contextmanager
def at_step(name: str, deed: Callable[[], None]) -> Iterator[None]:
    """Do something the first time an operation reaches a step."""
    waiting = [deed]

    def listener(reached: str) -> None:
        if reached == name and waiting:
            waiting.pop()()

    deadline.step_listener = listener
    try:
        yield
    finally:
        deadline.step_listener = None


# --- one per turn -----------------------------------------------------------------------------------


def test_the_second_call_of_a_turn_gets_the_first_ones_checkpoint(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    first = manager.ensure_checkpoint(project, "one")
    (project / "README.md").write_text("the agent was here")
    second = manager.ensure_checkpoint(project, "two")
    assert (first.status, second.status) == ("taken", "already-taken")
    assert bool(first) and not second
    assert checkpoint_of(second).id == checkpoint_of(first).id
    assert len(manager.list_checkpoints(project)) == 1


def test_a_new_turn_takes_a_new_snapshot(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("changed")
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken"
    assert content(base, checkpoint_of(outcome), "README.md") == b"changed"


def test_unchanged_files_are_a_truthful_answer_and_no_new_checkpoint(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    first = manager.ensure_checkpoint(project)
    manager.new_turn()
    before = objects(base)
    second = manager.ensure_checkpoint(project)
    assert second.status == "unchanged" and not second
    assert checkpoint_of(second).id == checkpoint_of(first).id
    assert objects(base) == before
    assert manager.ensure_checkpoint(project).status == "already-taken"


def test_every_directory_has_its_own_turn(base: Path, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    manager = CheckpointManager(base=base, fsync=False)
    assert [manager.ensure_checkpoint(path).status for path in (project, other, project, other)] == [
        "taken", "taken", "already-taken", "already-taken",
    ]  # fmt: skip


@posix
def test_one_directory_by_many_names_is_one_directory(
    base: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "way").symlink_to(project)
    monkeypatch.chdir(project)
    manager = CheckpointManager(base=base, fsync=False)
    assert manager.ensure_checkpoint(project).status == "taken"
    for name in (str(project), f"{project}/", f"{project}/src/..", ".", tmp_path / "way", "./src/../"):
        assert manager.ensure_checkpoint(name).status == "already-taken", name


def test_a_disabled_manager_does_nothing(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, enabled=False)
    assert manager.ensure_checkpoint(project).status == "disabled"
    assert not base.exists()


def test_more_named_files_in_a_turn_take_no_second_snapshot(base: Path, project: Path) -> None:
    """They are in the snapshot already, or nothing is there yet."""
    manager = CheckpointManager(base=base, fsync=False)
    first = manager.ensure_checkpoint(project, paths=["README.md", "new.py"])
    (project / "README.md").write_text("edited by a tool")
    (project / "new.py").write_text("made by a tool")
    for path in ("src/main.py", "README.md", "new.py", "not/there/yet", project / "empty"):
        outcome = manager.ensure_checkpoint(project, paths=[path])
        assert outcome.status == "already-taken", path
        assert checkpoint_of(outcome).id == checkpoint_of(first).id


def test_a_file_that_a_command_made_is_captured_once_when_a_tool_names_it(base: Path, project: Path) -> None:
    """It may be one that was ignored elsewhere, and moved here."""
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (project / "new.py").write_text("made by a command")
    outcome = manager.ensure_checkpoint(project, paths=["new.py"])
    assert outcome.status == "taken"
    assert content(base, checkpoint_of(outcome), "new.py") == b"made by a command"
    (project / "new.py").write_text("edited by a tool")
    assert manager.ensure_checkpoint(project, paths=["new.py"]).status == "already-taken"
    (entry,) = manager.timeline(project)
    assert entry.before and "new.py" not in manager.files(project, 1)


def test_an_ignored_file_that_is_named_later_in_a_turn_is_captured_then(base: Path, project: Path) -> None:
    (project / "x.log").write_text("ignored")
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    outcome = manager.ensure_checkpoint(project, paths=["x.log"])
    assert outcome.status == "taken"
    assert content(base, checkpoint_of(outcome), "x.log") == b"ignored"
    assert manager.ensure_checkpoint(project, paths=["x.log"]).status == "already-taken"
    assert {each.turn for each in manager.list_checkpoints(project)} == {1}
    (entry,) = manager.timeline(project)  # and the state before the turn has it, too
    assert entry.before and content(base, manager.get(project, 1), "x.log") == b"ignored"


def test_an_ignored_file_that_an_earlier_tool_of_the_turn_wrote_is_no_part_of_the_state_before_it(
    base: Path, project: Path
) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    (project / "old.log").write_text("the person's")
    manager.ensure_checkpoint(project)
    (project / "old.log").write_text("by the agent")
    (project / "new.log").write_text("by the agent")
    captured = checkpoint_of(manager.ensure_checkpoint(project, paths=["old.log", "new.log"]))
    assert content(base, captured, "new.log") == content(base, captured, "old.log") == b"by the agent"
    assert not {"old.log", "new.log"} & set(manager.files(project, 1))


def test_a_file_that_is_named_late_is_captured_although_the_state_before_the_turn_was_deleted(
    base: Path, project: Path
) -> None:
    (project / ".gitignore").write_text("*.log\n")
    (project / "notes.log").write_text("the person's\n")
    manager = CheckpointManager(base=base, fsync=False)
    manager.snapshot(project)
    (project / "README.md").write_text("so that the turn has a state of its own\n")
    before = manager.ensure_checkpoint(project).checkpoint
    assert before is not None
    manager.snapshot(project, always=True)
    manager.delete(project, [before.id])
    outcome = manager.ensure_checkpoint(project, paths=["notes.log"])
    assert (outcome.status, outcome.error) == ("taken", None)
    assert outcome.checkpoint is not None
    assert content(base, outcome.checkpoint, "notes.log") == b"the person's\n"


def test_turns_are_numbered_in_the_order_they_begin_also_on_a_held_state(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    for text in ("a", "a", "b", "b", "c"):
        (project / "README.md").write_text(text)
        manager.new_turn()
        manager.ensure_checkpoint(project)
    assert [checkpoint.turn for checkpoint in manager.list_checkpoints(project)] == [5, 3, 1]
    turns = [entry for entry in manager.timeline(project) if entry.kind == "turn"]
    assert [entry.number for entry in turns] == [5, 4, 3, 2, 1]
    assert turns[0].before != turns[1].before == turns[2].before  # the fourth began where the third did


def test_a_checkpoint_says_why_and_for_whom_it_was_taken(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.new_turn(session_id="session-7")
    checkpoint = checkpoint_of(manager.ensure_checkpoint(project, "before Write", tool="Write"))
    assert (checkpoint.reason, checkpoint.kind, checkpoint.scope) == ("before Write", "turn", "tree")
    assert (checkpoint.session_id, checkpoint.turn, checkpoint.tool) == ("session-7", 1, "Write")
    assert checkpoint.created_at.tzinfo is not None and checkpoint.workdir == str(project)


def test_the_end_of_a_turn_captures_what_it_did(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("what the agent did")
    (outcome,) = manager.end_turn()
    checkpoint = checkpoint_of(outcome)
    assert (checkpoint.kind, checkpoint.turn) == ("turn-end", 1)
    assert content(base, checkpoint, "README.md") == b"what the agent did"


# --- failed attempts --------------------------------------------------------------------------------


def test_a_failed_attempt_is_retried_in_the_same_turn(base: Path, project: Path) -> None:
    base.write_text("in the way")
    manager = CheckpointManager(base=base, fsync=False)
    first = manager.ensure_checkpoint(project)
    assert first.status == "failed" and first.checkpoint is None and first.error is not None
    base.unlink()
    second = manager.ensure_checkpoint(project)
    assert second.status == "taken" and captured(base, checkpoint_of(second)) == manifest(project)


@pytest.mark.parametrize(
    "step", ["capture:scanned", "capture:read", "snapshot:captured", "capture:index-written", "snapshot:recorded"]
)
def test_an_attempt_that_fails_at_any_step_is_retried(base: Path, project: Path, step: str) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("changed")
    (project / "src" / "main.py").unlink()
    manager.new_turn()

    def fail() -> None:
        raise RuntimeError("out of luck")

    with at_step(step, fail):
        assert manager.ensure_checkpoint(project).status == "failed"
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status in ("taken", "unchanged")  # it may have been recorded before the failure
    assert captured(base, checkpoint_of(outcome)) == manifest(project)
    assert git(base, "--git-dir=store", "fsck", "--full", "--strict", "--no-dangling") == ""


def test_a_failed_snapshot_never_passes_an_older_one_off_as_current(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("two days of work")
    manager.new_turn()

    def fail() -> None:
        raise OSError(28, "No space left on device")

    for _ in range(3):
        with at_step("snapshot:captured", fail):
            outcome = manager.ensure_checkpoint(project)
        assert outcome.status == "failed" and outcome.checkpoint is None and not outcome


@pytest.mark.parametrize("strange", [None, 7, b"bytes", "", "\0", "x" * 5000, object()])
def test_a_strange_directory_is_no_exception(base: Path, strange: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(strange)
    assert outcome.status in ("failed", "refused") and outcome.error is not None


@pytest.mark.parametrize("strange", [7, [7], [None], [b"bytes"], [object()]])
def test_strange_paths_are_no_exception(base: Path, project: Path, strange: Any) -> None:
    assert CheckpointManager(base=base).ensure_checkpoint(project, paths=strange).status in ("failed", "taken")


def test_a_listener_that_fails_is_no_exception(base: Path, project: Path) -> None:
    told = []

    def listen(event: Any) -> None:
        told.append(event.kind)
        raise RuntimeError("not our problem")

    manager = CheckpointManager(base=base, on_event=listen, fsync=False)
    assert manager.ensure_checkpoint(project).status == "taken"
    assert told == ["store-created", "checkpoint-taken"]


@posix
def test_a_full_disk_during_a_snapshot_is_told_and_got_over(base: Path, project: Path) -> None:
    """A limit on the size of files does as well as a small disk."""
    (project / "noise").write_bytes(os.urandom(300_000))
    limited = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
from shadowsnap import CheckpointManager
print(CheckpointManager(base={str(base)!r}).ensure_checkpoint({str(project)!r}).status)
"""
    assert run_python(limited) == "failed"
    checkpoint = snap(base, project, status="taken")
    assert captured(base, checkpoint) == manifest(project)
    assert not [path for path in objects(base) if "tmp" in path]


# --- threads and processes --------------------------------------------------------------------------


def together(count: int, deed: Callable[[int], Any]) -> list[Any]:
    """Call it from many threads at the same moment."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        results[number] = deed(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_threads_of_one_turn_wait_for_the_first(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    outcomes: list[Outcome] = together(8, lambda _: manager.ensure_checkpoint(project))
    assert sorted(outcome.status for outcome in outcomes) == ["already-taken"] * 7 + ["taken"]
    assert len({checkpoint_of(outcome).id for outcome in outcomes}) == 1
    assert captured(base, checkpoint_of(outcomes[0])) == manifest(project)


def test_a_thread_that_waits_gets_its_answer_only_after_the_snapshot(base: Path, project: Path) -> None:
    manager, order = CheckpointManager(base=base, fsync=False), []
    inside = threading.Event()

    def second() -> None:
        inside.wait()
        order.append(manager.ensure_checkpoint(project).status)

    thread = threading.Thread(target=second)
    thread.start()

    def pause() -> None:
        inside.set()
        thread.join(0.05)  # it must not come through meanwhile
        order.append("still at work")

    with at_step("snapshot:recorded", pause):
        assert manager.ensure_checkpoint(project).status == "taken"
    thread.join()
    assert order == ["still at work", "already-taken"]


def test_a_thread_that_waited_for_a_failure_tries_itself(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)

    def fail() -> None:
        raise RuntimeError("out of luck")

    with at_step("capture:scanned", fail):
        outcomes = together(4, lambda _: manager.ensure_checkpoint(project))
    assert sorted(outcome.status for outcome in outcomes) == ["already-taken", "already-taken", "failed", "taken"]


def test_eight_managers_in_eight_threads_on_one_directory(base: Path, project: Path) -> None:
    managers = [CheckpointManager(base=base, fsync=False) for _ in range(8)]
    for round_number in range(3):
        (project / "README.md").write_text(f"round {round_number}")
        outcomes = together(8, lambda number: managers[number].ensure_checkpoint(project))
        assert sorted(outcome.status for outcome in outcomes) == ["taken"] + ["unchanged"] * 7
        for outcome in outcomes:
            assert captured(base, checkpoint_of(outcome)) == manifest(project)
        for manager in managers:
            manager.new_turn()


def test_eight_threads_on_eight_directories(base: Path, tmp_path: Path) -> None:
    projects = [tmp_path / f"project-{number}" for number in range(8)]
    for project in projects:
        project.mkdir()
        (project / "file").write_text(project.name)
    manager = CheckpointManager(base=base, fsync=False)
    outcomes = together(8, lambda number: manager.ensure_checkpoint(projects[number]))
    for outcome, project in zip(outcomes, projects, strict=True):
        assert outcome.status == "taken"
        assert captured(base, checkpoint_of(outcome)) == manifest(project)


def test_files_that_change_under_eight_threads_leave_only_true_states(base: Path, project: Path) -> None:
    """Each checkpoint is some state that the file really had."""
    stop, written = threading.Event(), []

    def agent() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            new = project.parent / "new"
            new.write_text(f"{number}\n" * 100)
            new.rename(project / "README.md")
            written.append(number)

    thread = threading.Thread(target=agent)
    thread.start()
    outcomes = together(8, lambda _: CheckpointManager(base=base, fsync=False).ensure_checkpoint(project))
    stop.set()
    thread.join()
    for outcome in outcomes:
        checkpoint = checkpoint_of(outcome)
        if skipped(checkpoint) != {"README.md": "changing"}:
            first, *rest = content(base, checkpoint, "README.md").decode().splitlines()
            assert all(line == first for line in rest)


PROCESS = """
import sys
from shadowsnap import CheckpointManager
base, *projects = sys.argv[1:]
manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
for project in projects * 3:
    manager.new_turn()
    sys.stdin.readline()  # until everybody is ready
    outcome = manager.ensure_checkpoint(project)
    print(outcome.status, outcome.checkpoint.id if outcome.checkpoint else outcome.error, flush=True)
"""


def test_eight_processes_at_once(base: Path, tmp_path: Path) -> None:
    """All in one directory, then each in its own, and so on."""
    together, alone = [tmp_path / "project"] * 8, [tmp_path / f"project-{number}" for number in range(8)]
    for project in {*together, *alone}:
        (project / "src").mkdir(parents=True)
        for number in range(30):
            (project / "src" / f"{number}.py").write_text(f"{project.name} {number}")
    command = [sys.executable, "-c", PROCESS, str(base)]
    workers = [
        subprocess.Popen([*command, *map(str, both)], stdin=PIPE, stdout=PIPE, text=True, cwd=ROOT)
        for both in zip(together, alone, strict=True)
    ]
    try:
        for number, projects in enumerate((together, alone) * 3):
            for project in set(projects):
                (project / "src" / "0.py").write_text(f"{project.name} in round {number}")
            for worker in workers:
                assert worker.stdin is not None
                worker.stdin.write("go\n")
                worker.stdin.flush()
            answers = [worker.stdout.readline().split(maxsplit=1) for worker in workers if worker.stdout]
            expected = ["taken"] * 8 if projects is alone else ["taken"] + ["unchanged"] * 7
            assert sorted(status for status, _ in answers) == expected, answers
            for project, (_, told) in zip(projects, answers, strict=True):
                checkpoint = CheckpointManager(base=base, fsync=False).get(project, told.strip())
                assert captured(base, checkpoint) == manifest(project)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert git(base, "--git-dir=store", "fsck", "--full", "--strict", "--no-dangling") == ""


def test_a_lock_that_is_held_is_waited_for_and_its_holder_named(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    project_id = checkpoint_of(manager.ensure_checkpoint(project)).project
    lock = base / "store" / "locks" / f"{project_id}.lock"
    with locked(lock, "a long restore", deadlines.NO_DEADLINE):
        outcome = CheckpointManager(base=base, deadline=0.2, fsync=False).ensure_checkpoint(project)
    assert outcome.status == "failed" and isinstance(outcome.error, LockTimeout)
    assert f"process {os.getpid()}" in str(outcome.error) and "a long restore" in str(outcome.error)
    manager.new_turn()
    assert manager.ensure_checkpoint(project).status == "unchanged"


# --- the deadline -----------------------------------------------------------------------------------


@pytest.fixture
def larger(tmp_path: Path) -> Path:
    project = tmp_path / "larger"
    for number in range(400):
        path = project / f"folder-{number % 20}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n" * 20)
    (project / "x.log").write_text("ignored")
    return project


def test_a_deadline_that_runs_out_is_a_failure_that_says_so(base: Path, larger: Path) -> None:
    outcome = CheckpointManager(base=base, deadline=1e-6).ensure_checkpoint(larger)
    assert outcome.status == "failed" and isinstance(outcome.error, DeadlineExceeded)
    assert "1e-06 s" in str(outcome.error)


def test_named_files_are_safe_although_the_deadline_runs_out(base: Path, larger: Path) -> None:
    manager = CheckpointManager(base=base, deadline=1e-6)
    outcome = manager.ensure_checkpoint(larger, paths=["x.log", "folder-1/file-1", "no/such/file"])
    assert outcome.status == "partial" and bool(outcome)
    assert isinstance(outcome.error, DeadlineExceeded)
    checkpoint = checkpoint_of(outcome)
    assert checkpoint.scope == "paths"
    assert names(base, checkpoint) == {"x.log", "folder-1/file-1"}
    assert checkpoint.metadata["absent"] == ["no/", "no/such/", "no/such/file"]


def test_a_partial_snapshot_is_tried_again_as_a_whole_in_the_same_turn(base: Path, larger: Path) -> None:
    hurried = CheckpointManager(base=base, deadline=1e-6)
    assert hurried.ensure_checkpoint(larger, paths=["x.log"]).status == "partial"
    state = hurried.turn_state()
    calm = CheckpointManager(base=base, fsync=False)
    calm.resume_turn(state)
    outcome = calm.ensure_checkpoint(larger, paths=["x.log"])
    assert outcome.status == "taken"
    assert captured(base, checkpoint_of(outcome)) == manifest(larger)


@pytest.mark.parametrize("looks", [0, 1, 2, 5, 30, 60, 150, 300, 410])
def test_a_snapshot_that_ran_out_of_time_anywhere_is_completed_by_the_next(
    base: Path, larger: Path, looks: int
) -> None:
    with deadline_after(looks):
        outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(larger)
    assert outcome.status == "failed" and isinstance(outcome.error, DeadlineExceeded), outcome
    checkpoint = snap(base, larger, status="taken")
    (larger / "x.log").unlink()
    assert captured(base, checkpoint) == manifest(larger)


def test_attempts_that_run_out_of_time_get_there_together(
    base: Path, larger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each goes on from where the last one stopped, also when three are not enough."""
    monkeypatch.setattr("shadowsnap.snapshot.content.BATCH_FILES", 4)  # else all files are read at once
    statuses = []
    for _ in range(8):
        with deadline_after(150), everything_old():  # else the files read last are read again
            outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(larger)
        statuses.append(outcome.status)
        if outcome.checkpoint is not None:
            break
    assert statuses[-1] == "taken" and 2 <= statuses.count("failed") <= 6, statuses
    (larger / "x.log").unlink()
    assert captured(base, checkpoint_of(outcome)) == manifest(larger)


def test_an_interrupted_attempt_does_not_hide_later_changes(base: Path, larger: Path) -> None:
    with deadline_after(200):
        assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(larger).status == "failed"
    for number in range(0, 400, 7):
        (larger / f"folder-{number % 20}" / f"file-{number}").write_text("changed meanwhile")
    (larger / "folder-3" / "file-3").unlink()
    (larger / "x.log").unlink()
    assert captured(base, snap(base, larger)) == manifest(larger)


def test_a_deadline_of_zero_is_none(base: Path, larger: Path) -> None:
    assert CheckpointManager(base=base, deadline=0, fsync=False).ensure_checkpoint(larger).status == "taken"


# --- refused directories ----------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("place", ["/", "/tmp", "/usr", "/etc", "/etc/ssl", "/var", "/home", "/usr/lib", "/proc"])
def test_system_directories_are_refused(base: Path, place: str) -> None:
    outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(place)
    assert outcome.status == "refused" and isinstance(outcome.error, DirectoryRefused)
    assert outcome.checkpoint is None and not outcome


def test_the_home_directory_and_everything_above_it_are_refused(base: Path, home: Path) -> None:
    for place in (home, home.parent, home.parent.parent):
        assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(place).status == "refused", place
    (home / "project").mkdir()
    assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(home / "project").status == "taken"


@posix
def test_a_home_directory_by_another_name_is_refused(base: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "way home").symlink_to(home)
    assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(tmp_path / "way home").status == "refused"


def test_the_stores_own_directories_are_refused(base: Path, project: Path) -> None:
    snap(base, project)
    for place in (base, base / "store", base / "store" / "refs"):
        assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(place).status == "refused", place


def test_the_inside_of_a_repository_is_refused(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    for place in (project / ".git", project / ".git" / "objects"):
        assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(place).status == "refused", place


def test_what_is_no_directory_is_refused(base: Path, project: Path) -> None:
    for place in (project / "README.md", project / "not there"):
        outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(place)
        assert outcome.status == "refused" and isinstance(outcome.error, DirectoryRefused)


def test_a_directory_below_the_temporary_one_is_a_project_like_any_other(base: Path, project: Path) -> None:
    assert str(project).startswith("/tmp") or sys.platform != "linux"
    assert snap(base, project, status="taken").scope == "tree"


def test_named_files_in_a_refused_directory_are_captured_alone(base: Path, home: Path) -> None:
    (home / ".bashrc").write_text("export EDITOR=vi\n")
    (home / ".bashrc").chmod(0o600)
    (home / "other").write_text("not named")
    (home / "folder").mkdir()
    (home / "folder" / "x.log").write_text("named")
    manager = CheckpointManager(base=base, fsync=False)
    outcome = manager.ensure_checkpoint(home, paths=[".bashrc", home / "folder" / "x.log", "not there", ".netrc"])
    assert outcome.status == "partial" and bool(outcome)
    assert isinstance(outcome.error, DirectoryRefused)
    checkpoint = checkpoint_of(outcome)
    assert checkpoint.scope == "paths"
    assert captured(base, checkpoint) == {
        b".bashrc": ("file", 0o600, b"export EDITOR=vi\n"),
        b"folder": ("dir", 0o755, None),
        b"folder/x.log": ("file", 0o644, b"named"),
    }
    assert checkpoint.metadata["absent"] == [".netrc", "not there"]
    assert manager.ensure_checkpoint(home, paths=[".bashrc"]).status == "already-taken"
    assert manager.ensure_checkpoint(home, paths=["other"]).status == "partial"


def test_a_named_directory_in_a_refused_one_is_never_called_absent(base: Path, home: Path) -> None:
    """A restore would delete what a checkpoint says did not exist."""
    (home / "folder" / "deep").mkdir(parents=True)
    (home / "folder" / "deep" / "file").write_text("")
    (home / "hollow").mkdir()
    checkpoint = checkpoint_of(CheckpointManager(base=base).ensure_checkpoint(home, paths=["folder", "hollow"]))
    assert names(base, checkpoint) == {"folder/deep/file"}
    assert "absent" not in checkpoint.metadata


def test_the_size_cap_and_secrets_hold_for_single_files_too(base: Path, home: Path) -> None:
    (home / ".netrc").write_text("machine example login me")
    (home / "large").write_bytes(b"x" * (1 << 20) + b"x")
    outcome = CheckpointManager(base=base, max_file_size_mb=1).ensure_checkpoint(home, paths=[".netrc", "large"])
    assert skipped(checkpoint_of(outcome)) == {".netrc": "secret", "large": "too-large"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout.strip()


def test_a_host_can_put_facts_of_its_own_into_the_checkpoint_of_a_turn(base: Path, project: Path) -> None:
    checkpoint = checkpoint_of(CheckpointManager(base=base).ensure_checkpoint(project, "first", face="hermes"))
    assert checkpoint.metadata["face"] == "hermes"
    assert CheckpointManager(base=base, fsync=False).get(project, checkpoint.id).metadata["face"] == "hermes"


def test_a_restore_brings_back_every_undone_turn_whose_work_is_in_it(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False)
    for number in (1, 2, 3):
        manager.new_turn("s1", f"append {number}")
        manager.before_tool("write_file", {"path": "file"}, project)
        with (project / "file").open("a") as file:
            file.write(f"{number}\n")
        manager.end_turn()
    for _ in range(3):
        manager.undo(project)
    manager.restore(project, "2:after")
    statuses = {entry.number: entry.status for entry in manager.timeline(project) if entry.kind == "turn"}
    assert statuses == {3: "undone", 2: "done", 1: "done"}
    assert [manager.get(project, ref).id for ref in ("last", "last~1")] == [
        manager.get(project, number).id for number in (2, 1)
    ]
    manager.restore(project, "3:after")
    assert manager.get(project, "last").id == manager.get(project, 3).id
    manager.undo(project)
    manager.undo(project)
    statuses = {entry.number: entry.status for entry in manager.timeline(project) if entry.kind == "turn"}
    assert statuses == {3: "undone", 2: "undone", 1: "undone"}


def test_an_undo_that_needs_a_deleted_state_says_which(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False)
    for number in (1, 2):
        manager.new_turn("s1", f"write {number}")
        manager.before_tool("write_file", {"path": "file"}, project)
        (project / "file").write_text(f"{number}\n")
        manager.end_turn()
    manager.undo(project)
    manager.redo(project)
    manager.delete(project, "2:after")
    with pytest.raises(NoSuchTurn, match="the state after turn 2"):
        manager.undo(project)
