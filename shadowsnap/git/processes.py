"""Starting a git process, and ending it together with its children, on each platform."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from shadowsnap.git.spawned import CannotSpawn, Spawned, kill_group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from shadowsnap.git.opened import Opened

    Process: TypeAlias = Spawned | Opened


def start_process(
    executable: str,
    arguments: Sequence[str | bytes],
    environment: Mapping[str, str],
    folder: Path | None = None,
    *,
    talks: bool = False,
    heard: bool = True,
    inherited: Sequence[int] = (),
) -> Process:
    """Start git in a folder and with pipes to it: for its input only if it `talks` with us, for its complaints
    only if they are `heard`. (Where nobody reads them, they fill the pipe, and git waits for ever.)"""
    if hasattr(os, "posix_spawn"):
        try:
            return Spawned(
                executable, arguments, environment, folder, talks=talks, heard=heard, inherited=inherited
            )
        except CannotSpawn:
            pass
    from shadowsnap.git.opened import Opened

    return Opened(executable, arguments, environment, folder, talks=talks, heard=heard, inherited=inherited)


def kill_tree(process: Process) -> None:
    """Kill a process that was started here, reap it and close its pipes."""
    kill_without_reaping(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # unwritten input of a dead process
                pass
    process.wait()


def kill_without_reaping(process: Process) -> None:
    """For a second thread: the first one may be using the pipes, and reaps."""
    # Not `poll`: as long as nobody reaped it, its number is its own, and children that outlived
    # it are reached through it.
    if process.returncode is None:
        if sys.platform == "win32":
            import subprocess

            subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        else:
            kill_group(process.pid)


def run_command(words: list[str], folder: Path, environment: dict[str, str], stdin: bytes = b"") -> bytes:
    """Run a command of a scripted agent in its project, and return what it printed."""
    import subprocess

    return subprocess.run(
        words, cwd=folder, env=environment, input=stdin, capture_output=True, check=True
    ).stdout
