"""Ending a git process together with its children, on each platform."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started with `START_OPTIONS`, reap it and close its pipes."""
    kill_without_reaping(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # unwritten input of a dead process
                pass
    process.wait()


def kill_without_reaping(process: subprocess.Popen[bytes]) -> None:
    """For a second thread: the first one may be using the pipes, and reaps."""
    # Not `poll`: as long as nobody reaped it, its number is its own, and children that outlived
    # it are reached through it.
    if process.returncode is None:
        if sys.platform == "win32":
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        else:
            _kill_group(process.pid)


def run_command(words: list[str], folder: Path, environment: dict[str, str], stdin: bytes = b"") -> bytes:
    """Run a command of a scripted agent in its project, and return what it printed."""
    return subprocess.run(
        words, cwd=folder, env=environment, input=stdin, capture_output=True, check=True
    ).stdout


if sys.platform == "win32":
    START_OPTIONS = {"creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}
else:
    import signal

    # A session of its own: Ctrl-C in the terminal reaches us, and we end git in good order.
    START_OPTIONS = {"start_new_session": True}

    def _kill_group(pid: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of the dead
            pass
