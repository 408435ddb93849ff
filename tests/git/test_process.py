"""A killed process takes its children along, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakegit import Lifeline, fake_git

from helpers import ROOT
from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.git.process import Process, kill_tree, kill_without_reaping

if TYPE_CHECKING:
    from shadowsnap.git.process import Process


def started(script: Path) -> Process:
    process = Process(str(script), [], {"PATH": os.defpath}, with_stdin=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def printed(
    script: Path, deadline: Deadline = NO_DEADLINE, folder: Path | None = None, **options: Any
) -> bytes:
    process = Process(str(script), [], {"PATH": os.defpath}, folder, **options)
    try:
        return process.exchange(b"", deadline, "a test was running")[0]
    finally:
        kill_tree(process)


def open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def is_reaped(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


@pytest.mark.parametrize("script", [
    "sleep 1000 & (sleep 1000 & sleep 1000) & echo ready; wait",
    "trap '' TERM INT HUP; (trap '' TERM; sleep 1000) & echo ready; wait",
    "sleep 1000 <&- >&- 2>&- & echo ready; exit 0",  # the children outlive it
])  # fmt: skip
def test_children_and_their_children_die_with_the_process(tmp_path: Path, script: str) -> None:
    with Lifeline(tmp_path / "line") as line:
        process = started(fake_git(tmp_path, f"{line.hold}\n{script}"))
        kill_tree(process)
        assert line.said_before_the_last_one_died() == b""
    assert is_reaped(process.pid)
    assert all(pipe is not None and pipe.closed for pipe in (process.stdin, process.stdout, process.stderr))


def test_killing_twice_is_no_error(tmp_path: Path) -> None:
    process = started(fake_git(tmp_path, "echo ready; sleep 1000"))
    kill_tree(process)
    kill_tree(process)
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_ended_by_itself_keeps_its_status(tmp_path: Path) -> None:
    process = started(fake_git(tmp_path, "echo ready; exit 3"))
    process.wait()
    kill_tree(process)
    assert process.returncode == 3


def test_unread_input_of_a_dead_process_is_no_error(tmp_path: Path) -> None:
    process = started(fake_git(tmp_path, "echo ready; sleep 1000"))
    assert process.stdin is not None
    process.stdin.write(b"never read")
    kill_tree(process)
    assert process.stdin.closed


def test_another_thread_may_kill_and_the_first_one_reaps(tmp_path: Path) -> None:
    with Lifeline(tmp_path / "line") as line:
        process = started(fake_git(tmp_path, f"{line.hold}\nsleep 1000 & echo ready; wait"))
        kill_without_reaping(process)
        assert line.said_before_the_last_one_died() == b""
        assert process.returncode is None and process.stdout is not None and not process.stdout.closed
        kill_tree(process)
    assert is_reaped(process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python looks again and again")
def test_waiting_with_a_time_limit_ends_with_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps = list[float]()
    monkeypatch.setattr(time, "sleep", naps.append)
    assert printed(fake_git(tmp_path, "echo done; exec >&- 2>&-; sleep 0.05"), Deadline(60)) == b"done\n"
    assert naps == []


def test_waiting_with_a_time_limit_ends_with_it(tmp_path: Path) -> None:
    process = started(fake_git(tmp_path, "echo ready; exec sleep 1000"))
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
    finally:
        kill_tree(process)
    assert process.wait(0.01) < 0


def test_ctrl_c_in_the_terminal_does_not_reach_git(tmp_path: Path) -> None:
    process = started(fake_git(tmp_path, "echo ready; sleep 1000"))
    try:
        assert os.getsid(process.pid) != os.getsid(0)
        assert os.getpgid(process.pid) == process.pid
    finally:
        kill_tree(process)


def test_git_is_started_in_its_folder(tmp_path: Path) -> None:
    git = shutil.which("git")
    assert git is not None
    subprocess.run([git, "init", "-q", str(tmp_path)], check=True)
    process = Process(git, ["rev-parse", "--show-toplevel"], {"PATH": os.defpath}, tmp_path)
    try:
        assert process.exchange(b"", NO_DEADLINE, "a test was running") == (f"{tmp_path}\n".encode(), b"")
    finally:
        kill_tree(process)


@pytest.mark.parametrize(
    ("error", "make"),
    [
        (FileNotFoundError, lambda folder: None),
        (NotADirectoryError, lambda folder: folder.touch()),
        (PermissionError, lambda folder: folder.mkdir(0o600)),
    ],
)
def test_the_error_names_a_folder_that_cannot_be_entered(
    error: type[OSError], make: Callable[[Path], object], tmp_path: Path
) -> None:
    if error is PermissionError and os.geteuid() == 0:
        pytest.skip("root may enter everything")
    make(tmp_path / "folder")
    with pytest.raises(error) as caught:
        printed(fake_git(tmp_path / "bin", "echo never"), folder=tmp_path / "folder")
    assert caught.value.filename == tmp_path / "folder"


def test_the_error_names_an_executable_that_cannot_be_run(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(FileNotFoundError) as caught:
        printed(tmp_path / "gone")
    assert caught.value.filename == str(tmp_path / "gone")
    (tmp_path / "none").touch()
    with pytest.raises(PermissionError):
        printed(tmp_path / "none")
    assert open_files() == before


def test_git_has_its_three_streams_and_what_it_is_to_keep_open(tmp_path: Path) -> None:
    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("this system does not show open files")
    with open(tmp_path / "kept", "wb") as kept, open(tmp_path / "other", "wb"):
        number = kept.fileno()
        listed = printed(fake_git(tmp_path, "exec ls -l /proc/self/fd"), inherited=(number,))
        assert not os.get_inheritable(number)
    files = dict(line.split()[-3::2] for line in listed.decode().splitlines() if "->" in line)
    assert files.pop(str(number)) == str(tmp_path / "kept")
    assert files.pop("0") == os.devnull
    assert files.pop("1") != files.pop("2")
    assert all(file.startswith("/proc/") for file in files.values())  # what is being listed


def test_git_dies_of_a_closed_pipe_as_usual(tmp_path: Path) -> None:
    """Python ignores SIGPIPE, and a new program would inherit that."""
    process = started(fake_git(tmp_path, "echo ready; kill -s PIPE $$; sleep 1000"))
    assert process.wait() == -signal.SIGPIPE
    kill_tree(process)


HOSTS = {
    "has no standard streams": "for number in range(3): os.close(number)",
    "has only an output": "os.close(0); os.close(2)",
    "lets the system reap its children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "ignores closed pipes no longer": "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
}


@pytest.mark.parametrize("habit", HOSTS.values(), ids=HOSTS.keys())
def test_git_runs_in_a_host_that(habit: str, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from shadowsnap.deadline import NO_DEADLINE\n"
        "from shadowsnap.git.process import Process, kill_tree\n"
        "fd = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)\n"
        f"{habit}\n"
        "process = Process(sys.argv[1], [], {'PATH': os.defpath}, with_stdin=True, inherited=(fd,))\n"
        "out, err = process.exchange(b'input', NO_DEADLINE, '')\n"
        "kill_tree(process)\n"
        "os.write(fd, b'%s %s %d' % (out, err, process.returncode))"
    )
    git = fake_git(tmp_path, "cat; printf oops >&2")
    words = [sys.executable, "-c", script, str(git), str(tmp_path / "result")]
    subprocess.run(words, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, timeout=30)
    assert (tmp_path / "result").read_text() == "input oops 0"
