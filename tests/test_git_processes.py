"""A process that is ended takes its children along, and nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from fakegit import Lifeline, fake_git

from shadowsnap.git.processes import START_OPTIONS, kill_tree, kill_without_reaping


def started(script: Path) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([str(script)], **pipes, **START_OPTIONS)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


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


def test_a_second_end_does_nothing(tmp_path: Path) -> None:
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


def test_another_thread_may_kill_and_leaves_the_rest_to_the_first(tmp_path: Path) -> None:
    with Lifeline(tmp_path / "line") as line:
        process = started(fake_git(tmp_path, f"{line.hold}\nsleep 1000 & echo ready; wait"))
        kill_without_reaping(process)
        assert line.said_before_the_last_one_died() == b""
        assert process.returncode is None and process.stdout is not None and not process.stdout.closed
        kill_tree(process)
    assert is_reaped(process.pid)


def test_git_is_not_reached_by_the_ctrl_c_of_our_terminal(tmp_path: Path) -> None:
    process = started(fake_git(tmp_path, "echo ready; sleep 1000"))
    try:
        assert os.getsid(process.pid) != os.getsid(0)
        assert os.getpgid(process.pid) == process.pid
    finally:
        kill_tree(process)
