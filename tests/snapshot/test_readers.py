"""Processes that help to read a large first capture: the same objects with them, without them, and if they die."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import checkpoint_of, everything_old, store_git
from fastpaths import told_by

from shadowsnap import CheckpointManager
from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.process import Process
from shadowsnap.snapshot import content, readers
from shadowsnap.snapshot.capture import Capture
from shadowsnap.snapshot.content import Stored


def make_large(project: Path) -> Path:
    """A project that is large enough for help, the same each time."""
    project.mkdir(exist_ok=True)
    for number in range(300):
        folder = project / f"folder-{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"file-{number}.txt").write_text(f"{number}\n" * number)
    (project / "large.bin").write_bytes(random.Random(1).randbytes(3 << 20))
    (project / "too-large.bin").write_bytes(bytes(5 << 20))
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o700)
    (project / "id_rsa").write_text("a key")
    (project / "dangling").symlink_to("nowhere")
    os.link(project / "run", project / "linked")
    os.mkfifo(project / "pipe")
    return project


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_large(tmp_path_factory.mktemp("readers") / "project")


@pytest.fixture
def _helped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "_FEW", 0)
    monkeypatch.setattr(readers, "_MANY", 0)
    monkeypatch.setattr(readers, "_MANY_FOR_COPIES", 0)


@pytest.fixture
def large(untouched: Path, _helped: None) -> Path:
    """For tests that only read it."""
    return untouched


@pytest.fixture
def own(project: Path, _helped: None) -> Path:
    """For tests that change it."""
    return make_large(project)


@pytest.fixture(params=[True, False], ids=["copies", "new processes"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param and sys.platform != "linux":
        pytest.skip("this process is copied on Linux alone")
    # pytest has threads
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    monkeypatch.setattr(readers, "_may_fork", lambda: request.param)


def taken(base: Path, project: Path) -> Any:
    outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).snapshot(project)
    checkpoint = checkpoint_of(outcome)
    assert {item.path: item.why for item in checkpoint.skipped} == {
        "id_rsa": "secret", "pipe": "special", "too-large.bin": "too-large"
    }  # fmt: skip
    assert store_git(base, "fsck", "--full", "--strict", "--no-dangling") == b""
    return told_by(base, checkpoint)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, untouched: Path) -> Any:
    """What this process finds by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "_FEW", 0)
        patch.setattr(readers.Readers, "expect", lambda self, files: None)
        return taken(tmp_path_factory.mktemp("alone") / "base", untouched)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Process, list[bytes]]]:
    """What each process was asked and has answered."""
    found: list[tuple[Process, list[bytes]]] = []
    real = readers._ask

    def ask(process: Process, paths: list[bytes]) -> Any:
        answer = real(process, paths)
        found.append((process, paths))
        return answer

    monkeypatch.setattr(readers, "_ask", ask)
    return found


@pytest.mark.usefixtures("either")
def test_they_give_the_same_objects(
    tmp_path: Path, large: Path, alone: Any, asked: list[tuple[Process, list[bytes]]]
) -> None:
    assert taken(tmp_path / "helped", large) == alone
    assert asked and all(process.returncode is not None for process, _ in asked)


@pytest.mark.usefixtures("either")
def test_batches_that_are_answered_in_parts_give_the_same_objects(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, real = list[bytes](), readers.Readers.lost
    monkeypatch.setattr(readers.Readers, "lost", lambda self: lost.extend(found := real(self)) or found)
    for number in range(200):
        size = 3 << 20 if number % 20 == 0 else 10
        (own / f"part-{number:03}").write_bytes(b"%d" % number * (size // 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers.Readers, "expect", lambda self, files: None)
        alone = taken(tmp_path / "alone", own)
    assert taken(tmp_path / "together", own) == alone
    assert not lost


def test_an_answer_to_another_batch_is_not_taken_for_one_to_this() -> None:
    stored = Stored({}, [], {b"a": "unreadable"})
    with pytest.raises(ValueError):
        readers._from_answer([b"b"], readers._to_answer([b"a"], stored))


@pytest.mark.shortcut
@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("moment", ["at once", "after some batches", "before the pack is complete"])
def test_what_a_killed_one_did_not_store_is_read_here(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real, killed = readers._ask, []

    def ask(process: Process, paths: list[bytes]) -> Any:
        is_last = not paths
        if is_last if moment == "before the pack is complete" else not is_last:
            killed.append(process.pid)
        if moment == "after some batches" and killed.count(process.pid) < 2:
            return real(process, paths)
        if process.pid in killed:
            process.send_signal(signal.SIGKILL)
        return real(process, paths)

    monkeypatch.setattr(readers, "_ask", ask)
    assert taken(tmp_path / "killed", large) == alone
    assert killed
    packs = tmp_path / "killed" / "store" / "objects" / "pack"
    assert {path.suffix for path in packs.iterdir()} == {".idx", ".pack"}


@pytest.mark.usefixtures("either")
def test_what_changed_before_it_was_read_again_is_captured_as_it_is_then(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, killed = readers._ask, []

    def ask(process: Process, paths: list[bytes]) -> Any:
        if not paths:
            if not killed:
                for path in (own / "folder-1").iterdir():
                    path.unlink()
                (own / "folder-2" / "file-2.txt").chmod(0o600)
                (own / "folder-2" / "file-9.txt").write_bytes(bytes(5 << 20))
            killed.append(process.pid)
            process.send_signal(signal.SIGKILL)
        return real(process, paths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_ask", ask)
        checkpoint = checkpoint_of(CheckpointManager(base=tmp_path / "killed", max_file_size_mb=4).snapshot(own))
    assert killed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers.Readers, "expect", lambda self, files: None)
        later = checkpoint_of(CheckpointManager(base=tmp_path / "later", max_file_size_mb=4).snapshot(own))
    assert told_by(tmp_path / "killed", checkpoint) == told_by(tmp_path / "later", later)
    assert {"folder-2/file-9.txt"} < {item.path for item in checkpoint.skipped}


@pytest.mark.usefixtures("either")
def test_one_that_is_stopped_keeps_no_capture_waiting(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, stopped = readers._ask, []

    def ask(process: Process, paths: list[bytes]) -> Any:
        stopped.append(process)
        process.send_signal(signal.SIGSTOP)
        return real(process, paths)

    monkeypatch.setattr(readers, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(readers, "_ask", ask)
    assert taken(tmp_path / "stopped", large) == alone
    assert stopped and all(process.returncode == -signal.SIGKILL for process in stopped)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("killed", [False, True])
def test_a_snapshot_that_ran_out_of_time_is_completed_by_the_next(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    base, read = tmp_path / "hurried", []
    real = readers.Readers.results

    def results(self: readers.Readers) -> Iterator[Stored]:
        for stored in real(self):
            read.append(stored.files)
            yield stored
            if killed and len(read) == 2:
                for process in self._processes:
                    process.send_signal(signal.SIGKILL)

    class OverAfterTwoBatches(Deadline):
        def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
            if len(read) >= 2:
                raise self.exceeded(doing)

    monkeypatch.setattr(readers.Readers, "results", results)
    with pytest.MonkeyPatch.context() as patch, everything_old():
        patch.setattr("shadowsnap.access.Deadline", OverAfterTwoBatches)
        outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).ensure_checkpoint(large)
    assert outcome.status == "failed" and isinstance(outcome.error, DeadlineExceeded)
    first, read[:] = sum(read), []
    assert taken(base, large)[::2] == alone[::2]
    assert killed or 0 < sum(read) < first  # what was stored is not read again


@pytest.mark.usefixtures("either")
def test_a_time_that_is_over_before_anything_is_collected_ends_the_snapshot(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this process reads what the others were not given, they wait for more."""
    base, over = tmp_path / "hurried", list[bool]()
    (large / ".gitignore").write_text("named.txt\n")
    (large / "named.txt").write_text("ignored, and named by a tool\n")
    real = readers.Readers.results

    def results(self: readers.Readers) -> Iterator[Stored]:
        over.append(True)
        return real(self)

    class OverBeforeTheFirst(Deadline):
        def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
            if over:
                raise self.exceeded(doing)

    monkeypatch.setattr(readers, "_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(readers.Readers, "results", results)
    outcomes = list[Any]()

    def snapshot() -> None:
        manager = CheckpointManager(base=base, fsync=False, max_file_size_mb=4)
        outcomes.append(manager.ensure_checkpoint(large, paths=["named.txt"]))

    with pytest.MonkeyPatch.context() as patch, everything_old():
        patch.setattr("shadowsnap.access.Deadline", OverBeforeTheFirst)
        thread = threading.Thread(target=snapshot, daemon=True)
        thread.start()
        thread.join(60)
    assert [(each.status, each.checkpoint.scope) for each in outcomes] == [("partial", "paths")]
    (large / ".gitignore").unlink()
    (large / "named.txt").unlink()
    assert taken(base, large)[::2] == alone[::2]


@pytest.mark.parametrize("executable", ["", "/bin/false", "/nowhere/python"])
def test_nothing_is_missing_where_there_is_no_python_to_run(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(readers, "_may_fork", lambda: False)
    assert taken(tmp_path / "without", large) == alone


def test_a_process_with_threads_is_not_copied() -> None:
    """Else a lock that another thread holds would be held in the copy for ever."""
    program = (
        "import threading; from shadowsnap.snapshot.readers import _may_fork; print(_may_fork()); "
        "end = threading.Event(); thread = threading.Thread(target=end.wait); thread.start(); "
        "print(_may_fork()); end.set(); thread.join()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(sys.platform == "linux"), "False"]


@pytest.mark.skipif(sys.platform != "linux", reason="this process is copied on Linux alone")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_copy_has_no_open_file_of_this_process_and_ends_with_it(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that held a lock or a connection open would keep others waiting after this process was killed."""
    here, there = os.pipe()
    open_there: list[list[str]] = []
    real = readers._ask

    def ask(process: readers.Copy, paths: list[bytes]) -> Any:
        answer = real(process, paths)
        folder = f"/proc/{process.pid}/fd"
        open_there.append([os.readlink(f"{folder}/{name}") for name in os.listdir(folder)] if paths else [])
        return answer

    monkeypatch.setattr(readers, "_may_fork", lambda: True)
    monkeypatch.setattr(readers, "_ask", ask)
    assert taken(tmp_path / "copied", large) == alone
    pipe = os.readlink(f"/proc/self/fd/{here}")
    os.close(here)
    os.close(there)
    seen = [names for names in open_there if names]
    assert seen and all(pipe not in names and not any("lock" in name for name in names) for names in seen)


@pytest.mark.usefixtures("either")
def test_one_that_fails_at_its_pack_costs_no_file_of_another(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results of the other one are waited for, although the first one has nothing more to return."""
    real, first_to_end, has_failed = readers._ask, list[int](), threading.Event()
    slow = list[int]()

    def ask(process: Process, paths: list[bytes]) -> Any:
        if paths:
            if not slow:
                slow.append(process.pid)
            if process.pid == slow[0]:
                assert has_failed.wait(20)
                time.sleep(0.1)  # so that what follows the failure is done by then
            return real(process, paths)
        if not first_to_end:
            first_to_end.append(process.pid)
            process.send_signal(signal.SIGKILL)
        try:
            return real(process, paths)
        finally:
            has_failed.set()

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(readers, "_PATIENCE_SECONDS", 20)
    monkeypatch.setattr(readers, "_ask", ask)
    assert taken(tmp_path / "failed", large) == alone
    assert first_to_end and first_to_end != slow


def test_what_is_lost_when_the_time_is_over_is_not_part_of_what_the_next_snapshot_starts_from(
    tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, over = tmp_path / "hurried", list[bool]()
    real_tree, real_lost, real_ask = Capture.tree, readers.Readers.lost, readers._ask

    def ask(process: Process, paths: list[bytes]) -> Any:
        if not paths:
            process.send_signal(signal.SIGKILL)
        return real_ask(process, paths)

    class Ending(Deadline):
        def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
            if over:
                raise self.exceeded(doing)

    def tree(self: Capture) -> str:
        name = real_tree(self)
        over.append(True)
        return name

    gone: set[bytes] = set()

    def lost(self: readers.Readers) -> set[bytes]:
        gone.update(real_lost(self))
        return real_lost(self)

    monkeypatch.setattr(readers, "_may_fork", lambda: False)
    with pytest.MonkeyPatch.context() as patch, everything_old():
        patch.setattr("shadowsnap.access.Deadline", Ending)
        patch.setattr(Capture, "tree", tree)
        patch.setattr(readers.Readers, "lost", lost)
        patch.setattr(readers, "_ask", ask)
        outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).ensure_checkpoint(own)
    assert isinstance(outcome.error, DeadlineExceeded) and gone
    path = min(gone)
    (own / os.fsdecode(path)).unlink()
    checkpoint = checkpoint_of(CheckpointManager(base=base, fsync=False, max_file_size_mb=4).snapshot(own))
    assert path not in store_git(base, "ls-tree", "-r", "-z", "--name-only", checkpoint.id).split(b"\0")
    assert store_git(base, "fsck", "--full", "--strict", "--no-dangling") == b""


@pytest.mark.skipif(sys.platform != "linux", reason="this process is copied on Linux alone")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("allowed", [0, 1])
def test_nothing_is_missing_where_no_more_processes_are_allowed(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    forks = list[int]()
    real = os.fork

    def fork() -> int:
        if len(forks) >= allowed:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        forks.append(1)
        return real()

    monkeypatch.setattr(readers, "_may_fork", lambda: True)
    monkeypatch.setattr(os, "fork", fork)
    before = len(os.listdir("/proc/self/fd"))
    assert taken(tmp_path / "few", large) == alone
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.usefixtures("either")
def test_nothing_is_missing_where_no_more_threads_are_allowed(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(readers, "Thread", NoThread)
    assert taken(tmp_path / "single", large) == alone


HOST = """
import os, signal, sys, threading, time
from shadowsnap import CheckpointManager
from shadowsnap.snapshot import readers

how, base, project, answer = sys.argv[1:]
readers._MANY = 0
descriptor = os.dup2(os.open(answer, os.O_WRONLY | os.O_CREAT), 50)
if how == "closed streams":
    for number in (0, 1, 2):
        os.close(number)
    threading.Thread(target=time.sleep, args=[60], daemon=True).start()
else:
    real = readers._ask

    def ask(process, paths):
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return real(process, paths)

    readers._ask = ask
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).snapshot(project)
os.write(descriptor, outcome.checkpoint.tree.encode())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX descriptors and signals")
@pytest.mark.parametrize("how", ["closed streams", "dies of writing to a dead process"])
def test_nothing_is_missing_in_a_host_that(tmp_path: Path, large: Path, alone: Any, how: str) -> None:
    """The project must not be opened as 0, 1 or 2, which are other files in a process that inherits it."""
    answer = tmp_path / "answer"
    command = [sys.executable, "-c", HOST, how, str(tmp_path / "host"), str(large), str(answer)]
    subprocess.run(command, check=True, timeout=60)
    assert answer.read_text() == alone[0]


ENDING_HOST = """
import os, signal, sys, threading
from shadowsnap import CheckpointManager
from shadowsnap.snapshot import readers

base, project, answer, closed = sys.argv[1:]
readers._MANY_FOR_COPIES = 0
os.cpu_count = lambda: 2
descriptor = os.dup2(os.open(answer, os.O_WRONLY | os.O_CREAT), 50)
real, asked, one_at_a_time = readers._ask, set(), threading.Lock()

def ask(process, paths):
    answered = real(process, paths)
    with one_at_a_time:
        asked.add(process.pid)
        if len(asked) == 2:
            os.write(descriptor, b" ".join(b"%d" % pid for pid in asked))
            os.kill(os.getpid(), signal.SIGKILL)
    return answered

readers._ask = ask
for number in closed:
    os.close(int(number))
CheckpointManager(base=base, fsync=False).snapshot(project)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="this process is copied on Linux alone")
@pytest.mark.parametrize("closed", ["", "01", "12", "02", "012"])
def test_copies_end_with_a_host_that_is_killed_whatever_streams_it_has(
    tmp_path: Path, large: Path, closed: str
) -> None:
    """A copy must not hold the other end of its own pipe, which may have the number of a closed stream."""
    answer = tmp_path / "copies"
    command = [sys.executable, "-c", ENDING_HOST, str(tmp_path / "base"), str(large), str(answer), closed]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL and done.stdout == b""
    copies = [Path("/proc", pid) for pid in answer.read_text().split()]
    until = time.monotonic() + 10
    while any(is_running(copy) for copy in copies) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(copies) == 2 and not any(is_running(copy) for copy in copies)
    assert not list((tmp_path / "base/store/objects/pack").glob("tmp_*"))


def is_running(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
