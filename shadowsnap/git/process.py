"""Starting a git process, exchanging data with it, and killing it together with its children.

Processes are started by `posix_spawn`, because importing `subprocess` would cost a hook several
milliseconds. Where `posix_spawn` does not work, `opened.py` uses `subprocess`.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.records import Any

try:
    import _signal as signal  # type: ignore[import-not-found] # `signal` builds enums of all numbers first
except ImportError:
    import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from typing import TypeAlias

    from shadowsnap.git.opened import Opened

    Process: TypeAlias = "Spawned | Opened"

_CHUNK = 1 << 16
_UNKNOWN, _FAILED = -1000, 255
_COMPLAINTS = (b"fatal: ", b"error: ", b"BUG: ")
# Python ignores these signals, and a new program would inherit that.
_RESET_SIGNALS = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


def start_process(
    executable: str,
    arguments: Sequence[str | bytes],
    environment: Mapping[str, str],
    folder: Path | None = None,
    *,
    with_stdin: bool = False,
    with_stderr: bool = True,
    inherited: Sequence[int] = (),
) -> Process:
    """Start git in a folder, with a pipe for its output, and where wanted for its input and its errors. A
    caller that does not read the errors must not ask for them: git would wait forever once the pipe
    is full."""
    options = {"with_stdin": with_stdin, "with_stderr": with_stderr}
    if hasattr(os, "posix_spawn"):
        try:
            return Spawned(executable, arguments, environment, folder, inherited=inherited, **options)
        except CannotSpawn:
            pass
    from shadowsnap.git.opened import Opened  # here: `subprocess` is expensive to import

    return Opened(executable, arguments, environment, folder, inherited=inherited, **options)


def kill_tree(process: Process) -> None:
    """Kill a process with its children, reap it and close its pipes."""
    kill_without_reaping(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # unwritten input of a dead process
                pass
    process.wait()


def kill_without_reaping(process: Process) -> None:
    """For a second thread: the first one may be using the pipes, and reaps the process."""
    # Not `poll`: until the process is reaped, its id is not reused, and children that outlived it are
    # killed through it.
    if process.returncode is None:
        if sys.platform == "win32":
            import subprocess

            from shadowsnap.git.repository import system_folder  # here: it imports this module

            # With its full path: Windows looks for programs in the current directory first.
            taskkill = os.path.join(system_folder(), "taskkill.exe")
            subprocess.run([taskkill, "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        else:
            kill_group(process.pid)


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS: the latter, for a group of dead processes
        pass


def try_command(words: list[str], folder: Path, environment: dict[str, str]) -> bytes:
    """The output of a command; empty if it fails or takes longer than 30 seconds."""
    import subprocess

    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


class CannotSpawn(Exception):
    """`posix_spawn` does not work on this system or with these descriptors."""


class Spawned:
    """A process in its own session, started by `posix_spawn`."""

    def __init__(
        self,
        executable: str,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        with_stdin: bool = False,
        with_stderr: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        words = (executable, *_folder_option(folder), *arguments)
        ours: list[int] = []
        theirs: list[int] = []
        is_started = False
        try:
            for is_output in (True, True, False) if with_stdin else (True, True):
                readable, writable = os.pipe()
                ours.append(readable if is_output else writable)
                theirs.append(writable if is_output else readable)
            self.pid = _spawn(words, environment, _file_actions(theirs, inherited, with_stderr))
            is_started = True
        finally:
            for descriptor in theirs if is_started else (*theirs, *ours):
                os.close(descriptor)
        self.returncode: int | None = None
        self.stdout = BufferedReader(_Output(ours[0], self.pid), _CHUNK)
        self.stderr = open(ours[1], "rb")  # noqa: SIM115
        self.stdin = open(ours[2], "wb") if with_stdin else None  # noqa: SIM115

    @contextmanager
    def ending_at(self, deadline: Deadline) -> Iterator[None]:
        """In this block, reading the output ends at the deadline: the process is killed then."""
        self.stdout.raw.deadline = deadline
        yield

    def exchange(self, data: bytes, deadline: Deadline, doing: str) -> tuple[bytes, bytes]:
        """Send the input, read output and errors, and wait for the end of the process."""
        received: dict[int, list[bytes]] = {self.stdout.fileno(): [], self.stderr.fileno(): []}
        ready = select.poll()
        for descriptor in received:
            ready.register(descriptor, select.POLLIN)
        open_ends, unsent = len(received), memoryview(data)
        if self.stdin is not None:
            os.set_blocking(self.stdin.fileno(), False)
            ready.register(self.stdin.fileno(), select.POLLOUT)
            open_ends += 1
        while open_ends:
            for descriptor, _ in ready.poll(_milliseconds(deadline)):
                if descriptor in received:
                    piece = os.read(descriptor, _CHUNK)
                    received[descriptor].append(piece)
                    is_done = not piece
                else:
                    unsent = _write_some(descriptor, unsent)
                    is_done = not unsent
                if is_done:
                    ready.unregister(descriptor)
                    open_ends -= 1
                    if descriptor not in received and self.stdin is not None:
                        self.stdin.close()
            deadline.check(doing)
        self._wait_until(deadline, doing)
        out, err = (b"".join(pieces) for pieces in received.values())
        if self.returncode == _UNKNOWN:
            self.returncode = _FAILED if err.startswith(_COMPLAINTS) or b"\nfatal: " in err else 0
        return out, err

    def wait(self) -> int:
        while self.returncode is None:
            self._reap(0)
        return self.returncode

    def _wait_until(self, deadline: Deadline, doing: str) -> None:
        """Wait with short pauses at first: the outputs are closed, so the process usually ends at once."""
        pause = 0.0001
        self._reap(os.WNOHANG)
        while self.returncode is None:
            patience = deadline.patience()
            if patience is None:
                self.wait()
            else:
                time.sleep(min(pause, patience))
                pause = min(2 * pause, 0.05)
                self._reap(os.WNOHANG)
                deadline.check(doing)

    def _reap(self, options: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, options)
        except ChildProcessError:  # the host program ignores SIGCHLD; only the errors show how it went
            self.returncode = _UNKNOWN
        else:
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)


class _Output(FileIO):
    """The output of a process. At the deadline the process is killed with its children, and the output
    ends."""

    deadline = NO_DEADLINE

    def __init__(self, descriptor: int, pid: int) -> None:
        super().__init__(descriptor)
        self._pid = pid
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLIN)

    def readinto(self, buffer: Any) -> int:
        left = self.deadline.remaining()
        if left is not None and not self._ready.poll(left * 1000):
            kill_group(self._pid)
            return 0
        return super().readinto(buffer)


def _folder_option(folder: Path | None) -> list[str]:
    """The option that makes git work in a folder. A folder that cannot be entered raises what Python
    would raise: git would only fail."""
    if folder is None:
        return []
    try:
        os.stat(os.path.join(folder, os.curdir))
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, folder) from None
    return ["-C", str(folder)]


def _file_actions(pipes: Sequence[int], inherited: Sequence[int], with_stderr: bool) -> list[tuple[Any, ...]]:
    """What the new process does with its ends of the pipes: stdout, stderr and perhaps stdin."""
    if min(*pipes, *inherited) <= 2:  # the host has no standard streams: one copy would overwrite another
        raise CannotSpawn
    actions: list[tuple[Any, ...]] = []
    for descriptor in inherited:
        # There and back: a copy stays open in the new program, the original would be closed.
        actions += [(os.POSIX_SPAWN_DUP2, descriptor, 0), (os.POSIX_SPAWN_DUP2, 0, descriptor)]
    if len(pipes) == 3:
        actions.append((os.POSIX_SPAWN_DUP2, pipes[2], 0))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    actions.append((os.POSIX_SPAWN_DUP2, pipes[0], 1))
    if with_stderr:
        return [*actions, (os.POSIX_SPAWN_DUP2, pipes[1], 2)]
    return [*actions, (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]


def _spawn(words: tuple[str | bytes, ...], environment: Mapping[str, str], actions: list[tuple[Any, ...]]) -> int:
    try:
        return os.posix_spawn(
            words[0], words, environment, file_actions=actions, setsid=True, setsigdef=_RESET_SIGNALS
        )
    except NotImplementedError:  # without `setsid`, Ctrl-C would reach git, and its children would outlive it
        raise CannotSpawn from None


def _write_some(descriptor: int, data: memoryview) -> memoryview:
    """Write as much as fits; returns the rest."""
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]  # the process does not read the rest


def _milliseconds(deadline: Deadline) -> float | None:
    patience = deadline.patience()
    return None if patience is None else patience * 1000
