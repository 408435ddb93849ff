"""Starting a git process, and ending it together with its children, on each platform."""

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
from shadowsnap.git.paths import system_folder
from shadowsnap.records import Any

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from typing import TypeAlias

    from shadowsnap.git.opened import Opened
    Process: TypeAlias = "Spawned | Opened"

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

            # By its whole path: Windows looks for programs in the current directory first.
            taskkill = os.path.join(system_folder(), "taskkill.exe")
            subprocess.run([taskkill, "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        else:
            kill_group(process.pid)


def try_command(words: list[str], folder: Path, environment: dict[str, str]) -> bytes:
    """What a command prints that ends well in a few seconds; nothing if it does not."""
    import subprocess

    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


def run_command(words: list[str], folder: Path, environment: dict[str, str], stdin: bytes = b"") -> bytes:
    """Run a command of a scripted agent in its project, and return what it printed."""
    import subprocess

    return subprocess.run(
        words, cwd=folder, env=environment, input=stdin, capture_output=True, check=True
    ).stdout


try:
    import _signal as signal  # type: ignore[import-not-found] # `signal` first makes enums of the numbers
except ImportError:
    import signal

_CHUNK = 1 << 16
_UNKNOWN, _FAILED = -1000, 255
_COMPLAINTS = (b"fatal: ", b"error: ", b"BUG: ")
# Python ignores these, and what is ignored stays so in a new program.
_IGNORED = [getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)]


class CannotSpawn(Exception):
    """Not on this system, or not with these descriptors: it has to be started in another way."""


class Spawned:
    """A process in a session of its own, with pipes to it."""

    def __init__(
        self,
        executable: str,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        talks: bool = False,
        heard: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        words = (executable, *_into(folder), *arguments)
        ours: list[int] = []
        theirs: list[int] = []
        is_started = False
        try:
            for is_output in (True, True, False) if talks else (True, True):
                readable, writable = os.pipe()
                ours.append(readable if is_output else writable)
                theirs.append(writable if is_output else readable)
            self.pid = _spawn(words, environment, _descriptors(theirs, inherited, heard))
            is_started = True
        finally:
            for descriptor in theirs if is_started else (*theirs, *ours):
                os.close(descriptor)
        self.returncode: int | None = None
        self.stdout = BufferedReader(_Output(ours[0], self.pid), _CHUNK)
        self.stderr = open(ours[1], "rb")  # noqa: SIM115
        self.stdin = open(ours[2], "wb") if talks else None  # noqa: SIM115

    @contextmanager
    def ending_at(self, deadline: Deadline) -> Iterator[None]:
        """Inside, whoever waits for an answer has it, or the end of it, by the deadline."""
        self.stdout.raw.deadline = deadline
        yield

    def exchange(self, data: bytes, deadline: Deadline, doing: str) -> tuple[bytes, bytes]:
        """Hand over the input, hear what is printed, and wait for the end."""
        said: dict[int, list[bytes]] = {self.stdout.fileno(): [], self.stderr.fileno(): []}
        busy = select.poll()
        for descriptor in said:
            busy.register(descriptor, select.POLLIN)
        open_ends, unsent = len(said), memoryview(data)
        if self.stdin is not None:
            os.set_blocking(self.stdin.fileno(), False)
            busy.register(self.stdin.fileno(), select.POLLOUT)
            open_ends += 1
        while open_ends:
            for descriptor, _ in busy.poll(_milliseconds(deadline)):
                if descriptor in said:
                    piece = os.read(descriptor, _CHUNK)
                    said[descriptor].append(piece)
                    is_done = not piece
                else:
                    unsent = _write_some(descriptor, unsent)
                    is_done = not unsent
                if is_done:
                    busy.unregister(descriptor)
                    open_ends -= 1
                    if descriptor not in said and self.stdin is not None:
                        self.stdin.close()
            deadline.check(doing)
        self._wait_until(deadline, doing)
        out, err = (b"".join(pieces) for pieces in said.values())
        if self.returncode == _UNKNOWN:
            self.returncode = _FAILED if err.startswith(_COMPLAINTS) or b"\nfatal: " in err else 0
        return out, err

    def wait(self) -> int:
        while self.returncode is None:
            self._reap(0)
        return self.returncode

    def _wait_until(self, deadline: Deadline, doing: str) -> None:
        """As its outputs are closed, it is most often gone in the next moment."""
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
        except ChildProcessError:  # a host that ignores the end of its children: only what it said can tell
            self.returncode = _UNKNOWN
        else:
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)


class _Output(FileIO):
    """What a process says; at the deadline it is killed with all that it started, and says no more."""

    deadline = NO_DEADLINE

    def __init__(self, descriptor: int, pid: int) -> None:
        super().__init__(descriptor)
        self._pid = pid
        self._coming = select.poll()
        self._coming.register(descriptor, select.POLLIN)

    def readinto(self, buffer: Any) -> int:
        left = self.deadline.remaining()
        if left is not None and not self._coming.poll(left * 1000):
            kill_group(self._pid)
            return 0
        return super().readinto(buffer)


def kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of the dead
        pass


def _into(folder: Path | None) -> list[str]:
    """The words that make git work in a folder. What is wrong with it is said as Python says it: git
    would just fail."""
    if folder is None:
        return []
    try:
        os.stat(os.path.join(folder, os.curdir))
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, folder) from None
    return ["-C", str(folder)]


def _descriptors(pipes: Sequence[int], inherited: Sequence[int], heard: bool) -> list[tuple[Any, ...]]:
    """What the new process makes of its ends of stdout, stderr and perhaps stdin, in this order."""
    if min(*pipes, *inherited) <= 2:  # in a host without standard streams: one would overwrite the other
        raise CannotSpawn
    steps: list[tuple[Any, ...]] = []
    for descriptor in inherited:
        # There and back: a copy stays open in a new program, the original would be closed.
        steps += [(os.POSIX_SPAWN_DUP2, descriptor, 0), (os.POSIX_SPAWN_DUP2, 0, descriptor)]
    if len(pipes) == 3:
        steps.append((os.POSIX_SPAWN_DUP2, pipes[2], 0))
    else:
        steps.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    steps.append((os.POSIX_SPAWN_DUP2, pipes[0], 1))
    if heard:
        return [*steps, (os.POSIX_SPAWN_DUP2, pipes[1], 2)]
    return [*steps, (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]


def _spawn(words: tuple[str | bytes, ...], environment: Mapping[str, str], steps: list[tuple[Any, ...]]) -> int:
    try:
        return os.posix_spawn(words[0], words, environment, file_actions=steps, setsid=True, setsigdef=_IGNORED)
    except NotImplementedError:  # without `setsid`, Ctrl-C would reach git, and its children would outlive it
        raise CannotSpawn from None


def _write_some(descriptor: int, data: memoryview) -> memoryview:
    """Write as much as fits; returns the rest."""
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]  # it does not want the rest


def _milliseconds(deadline: Deadline) -> float | None:
    patience = deadline.patience()
    return None if patience is None else patience * 1000
