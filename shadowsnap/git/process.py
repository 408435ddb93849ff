"""Starting git, exchanging data with it and killing it together with its children; running our own modules."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from shadowsnap.deadline import Deadline

if sys.platform == "win32":
    _OPTIONS = {"creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}
else:
    # In its own session, git does not get Ctrl-C from the terminal; we end it in good order.
    _OPTIONS = {"start_new_session": True}

_COMPLAINTS = (b"fatal: ", b"error: ", b"BUG: ")
_FAILED = 255
_PIPE_SIZE = 1 << 16


class Child(Protocol):
    """A process that was started here, in a group of its own."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def stdin(self) -> IO[bytes] | None: ...
    @property
    def stdout(self) -> IO[bytes] | None: ...
    @property
    def stderr(self) -> IO[bytes] | None: ...
    def wait(self) -> int: ...


class Process(subprocess.Popen[bytes]):
    """Git in a folder, with a pipe for its output, and where wanted for its input and its errors. A caller that
    does not read the errors must not ask for them: git would wait forever once the pipe is full."""

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
        super().__init__(  # type: ignore[call-overload]
            [executable, *arguments],
            bufsize=_PIPE_SIZE,
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if with_stderr else subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            pass_fds=tuple(inherited) if sys.platform != "win32" else (),
            **_OPTIONS,
        )

    def wait(self, timeout: float | None = None) -> int:
        """As that of `Popen`, which looks once a millisecond if there is a timeout: Linux says when it is over."""
        if timeout is not None and self.returncode is None and sys.platform == "linux":
            self._wait_for_end(timeout)
        return super().wait(timeout)

    def _wait_for_end(self, seconds: float) -> None:
        try:
            descriptor = os.pidfd_open(self.pid)
        except (OSError, AttributeError):  # reaped by another thread, no more open files, or an older Linux
            return
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(0.0, seconds) * 1000)
        finally:
            os.close(descriptor)

    @contextmanager
    def ending_at(self, deadline: Deadline) -> Iterator[None]:
        """In this block, reading the output ends at the deadline: the process is killed then."""
        left = deadline.remaining()
        if left is None:
            yield
            return
        watchdog = threading.Timer(left, kill_without_reaping, [self])
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            watchdog.join()

    def send_ahead(self, data: bytes) -> bytes:
        """Send as much of the input as fits into the pipe, so that the process can begin; returns the rest."""
        if self.stdin is None or not data or sys.platform == "win32":
            return data
        descriptor = self.stdin.fileno()
        os.set_blocking(descriptor, False)
        try:
            return data[os.write(descriptor, data) :]
        except OSError:  # it has ended; `exchange` shows why
            return data
        finally:
            os.set_blocking(descriptor, True)

    def exchange(self, data: bytes, deadline: Deadline, doing: str) -> tuple[bytes, bytes]:
        """Send the input, read output and errors, and wait for the end of the process."""
        while True:
            # After a timeout, a second `communicate` would lose the input that was not sent yet.
            patience = deadline.remaining() if data else deadline.patience()
            try:
                out, err = self.communicate(data or None, timeout=patience)
            except subprocess.TimeoutExpired:
                if data:
                    raise deadline.exceeded(doing) from None
            else:
                if _host_ignores_children() and (err.startswith(_COMPLAINTS) or b"\nfatal: " in err):
                    self.returncode = _FAILED
                return out, err
            deadline.check(doing)


def _host_ignores_children() -> bool:
    """Whether the exit codes of children are lost, so that only their errors show how it went."""
    return sys.platform != "win32" and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN


def kill_tree(process: Child) -> None:
    """Kill a process with its children, reap it and close its pipes."""
    kill_without_reaping(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # unwritten input of a dead process
                pass
    process.wait()


def kill_without_reaping(process: Child) -> None:
    """For a second thread: the first one may be using the pipes, and reaps the process."""
    # Not `poll`: until the process is reaped, its id is not reused, and children that outlived it are
    # killed through it.
    if process.returncode is not None:
        return
    if sys.platform == "win32":
        # With its full path: Windows looks for programs in the current directory first.
        taskkill = os.path.join(system_folder(), "taskkill.exe")
        subprocess.run([taskkill, "/F", "/T", "/PID", str(process.pid)], capture_output=True, check=False)
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS: the latter, for a group of dead processes
        pass


def system_folder() -> str:
    """The directory of the programs that are part of Windows."""
    return os.path.join(os.environ.get("SYSTEMROOT") or "C:\\Windows", "System32")


def try_command(words: list[str], folder: Path, environment: dict[str, str]) -> bytes:
    """The output of a command; empty if it fails or takes longer than 30 seconds."""
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=30,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""


# --- our own modules in other processes --------------------------------------------------------------

_PACKAGE = Path(__file__).resolve().parents[1]
# An isolated Python (-I) imports neither from its working directory nor from PYTHONPATH, where a project could
# have put a module of any name. So it gets the path of this package.
_START = """
import importlib.util, runpy, sys
package, module, *sys.argv[1:] = sys.argv[1:]
spec = importlib.util.spec_from_file_location(
    "shadowsnap", package + "/__init__.py", submodule_search_locations=[package])
sys.modules["shadowsnap"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["shadowsnap"])
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def own_module(module: str, *arguments: str) -> list[str] | None:
    """The command that runs a module of this package; None if there is no Python to run it."""
    if not sys.executable or getattr(sys, "frozen", False):  # a bundled application is no Python
        return None
    return [sys.executable, "-I", "-B", "-c", _START, str(_PACKAGE), module, *arguments]


def start_detached(module: str, *arguments: str, cwd: Path, environment: Mapping[str, str]) -> bool:
    """Run a module of this package independently of this process and its terminal; False if that is not
    possible."""
    command = own_module(module, *arguments)
    if command is None:
        return False
    options: dict[str, Any] = {"cwd": cwd, "env": environment}
    options |= dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        if sys.platform == "win32":
            flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
            flags |= subprocess.IDLE_PRIORITY_CLASS
            process = subprocess.Popen(command, creationflags=flags, **options)
            process.returncode = 0  # so that no warning about a running child is given
        else:
            # The shell starts it and ends at once. The process then belongs to init, and a host program that runs
            # for days collects no zombies.
            shell = ["/bin/sh", "-c", '"$@" &', "sh", *command]
            subprocess.run(shell, start_new_session=True, timeout=5, check=False, **options)
    except OSError:
        return False
    return True
