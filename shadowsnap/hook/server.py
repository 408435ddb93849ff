"""The resident helper: one process per base that has everything imported, and does the work of hooks.

A hook that finds no helper does its work itself and then starts one. The helper hands requests to a worker, a
forked process that also watches the projects of live sessions. A request that comes while the worker is busy gets
a process of its own. Settings, sessions and the store are read from the disk for each request, as a hook reads
them; what a watcher reports counts only for the state on the disk. A request that hangs or dies takes its process
with it, and its hook does the work itself. The helper takes nothing from a request but the input of the hook and
its directory: if a variable that matters differs from its own, it refuses.

It leaves after some idle time, and when its own files, the settings or the base have changed. How it is started,
found and stopped comes last.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import shadowsnap
from shadowsnap.access import Access
from shadowsnap.base import config_file
from shadowsnap.errors import ShadowsnapError
from shadowsnap.files import read_json
from shadowsnap.git.process import start_detached
from shadowsnap.hook import client, handle
from shadowsnap.hook.client import RECORD
from shadowsnap.hook.payload import PROMPT
from shadowsnap.snapshot.watch import Watcher
from shadowsnap.store.locks import is_free, try_lock
from shadowsnap.store.redaction import redacted_beginning

_IDLE_SECONDS = 1800.0
_LOOK_SECONDS = 15.0
_REQUEST_SECONDS = 5
_WORK_SECONDS = 20
_MOST_WORKERS = 32
_MOST_WATCHED = 4
# Every project is scanned as a whole at least so often: a turn must not rely on an old scan.
_SCAN_SECONDS = 60.0
_MOST_REQUESTS = 2000
"""A worker is replaced after this number of requests."""
_MOST_WORDS = 1 << 20
_MOST_FILES = 256
"""More are never open at once."""
# What hooks import late, to be there before the first of them comes.
_ROOMS = ("git", "store", "snapshot", "hook")
_MODULES = ("loop", "manager")


def main(arguments: list[str]) -> int:
    base = arguments[0]
    os.umask(0o077)
    os.chdir("/")
    record = os.open(os.path.join(base, client.RECORD), os.O_RDWR | os.O_CLOEXEC)
    if not any(_tries(record)) or not _may_open_enough_files():
        return 0  # another one was faster, or every request would fail
    # At once: while the record names an earlier helper, `helper stop` would end a process that has its id now.
    about = {"pid": os.getpid(), "started_at": time.time(), "version": shadowsnap.__version__}
    os.ftruncate(record, 0)
    os.pwrite(record, json.dumps(about).encode(), 0)
    _import_everything()
    Helper(base, record).run()
    return 0


def _may_open_enough_files() -> bool:
    """Whether this process can do the work of any hook. The one that started it may have had a lower limit."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _MOST_FILES:  # -1 is no limit
        soft = _MOST_FILES if hard < 0 else min(_MOST_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft < 0 or soft >= _MOST_FILES


def _tries(record: int) -> Iterator[bool]:
    """More than one: a process that looks whether a helper runs holds the lock for a moment."""
    for _ in range(5):
        yield try_lock(record, shared=False)
        time.sleep(0.02)


def _import_everything() -> None:
    package = Path(str(shadowsnap.__file__)).parent
    rooms = (f"{room}.{file.stem}" for room in _ROOMS for file in sorted((package / room).glob("[!_]*.py")))
    for name in (*rooms, *_MODULES):
        importlib.import_module(f"shadowsnap.{name}")
    redacted_beginning("a" * 20, 20)  # compiles its patterns
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of memory
    gc.disable()


class Helper:
    """Accepts connections of hooks, and gives them to a worker."""

    def __init__(self, base: str, record: int) -> None:
        self._path = os.path.join(base, client.SOCKET)
        self._record = record
        self._facts = client.facts(base)
        self._files = dict(_files())
        self._processes: set[int] = set()
        self._worker: socket.socket | None = None
        """Our end of the connection to the worker; None if there is none."""
        self._worker_is_idle = False
        self._wakened, self._waking = os.pipe()
        """Carries the numbers of signals, and SIGTERM from a child that finds the helper outdated."""
        self._is_leaving = False
        self._listener = self._listen()
        self._socket_file = _inode(self._path)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Under another name until it accepts connections: a hook that finds the socket can use it.
        early = os.path.join(os.path.dirname(self._path), "new.socket")
        with suppress(FileNotFoundError):
            os.unlink(early)  # left by one that was killed
        listener.bind(early)
        listener.listen(64)
        os.rename(early, self._path)
        listener.setblocking(False)
        return listener

    def run(self) -> None:
        for end in (self._wakened, self._waking):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._leave)
        used = time.monotonic()
        while not self._is_leaving and self._is_in_place() and time.monotonic() - used < _IDLE_SECONDS:
            waited_for = [self._listener.fileno(), self._wakened]
            waited_for += [self._worker.fileno()] if self._worker else []
            ready, _, _ = select.select(waited_for, [], [], _LOOK_SECONDS)
            if self._wakened in ready and signal.SIGTERM in os.read(self._wakened, 4096):
                self._leave()
            self._reap()
            if self._worker and self._worker.fileno() in ready:
                self._hear_from_worker()
            if self._listener.fileno() in ready and self._accept():
                used = time.monotonic()
        if self._is_in_place():
            os.unlink(self._path)

    def _leave(self, *_: object) -> None:
        self._is_leaving = True

    def _is_in_place(self) -> bool:
        """Whether our socket is still where hooks look for it: the base may be gone, or have another helper."""
        return self._socket_file is not None and _inode(self._path) == self._socket_file

    def _reap(self) -> None:
        for process in list(self._processes):
            if os.waitpid(process, os.WNOHANG)[0]:
                self._processes.discard(process)

    def _hear_from_worker(self) -> None:
        """The worker is ready for the next request, or it has ended."""
        assert self._worker is not None
        try:
            self._worker_is_idle = bool(self._worker.recv(1))
        except OSError:
            self._worker_is_idle = False
        if not self._worker_is_idle:
            self._worker.close()
            self._worker = None

    def _accept(self) -> bool:
        """Begin with one request. Whether there was one; if it is not served, its hook does the work."""
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return False
        with connection:
            if len(self._processes) >= _MOST_WORKERS or client.peer_uid(connection) != os.geteuid():
                return False
            try:
                if self._worker is None:
                    self._start_worker()
                if self._worker_is_idle and self._hand_over(connection):
                    return True
                self._fork(lambda: self._answer(connection))
            except OSError:
                return False
        return True

    def _start_worker(self) -> None:
        self._worker, theirs = socket.socketpair()
        with theirs:
            self._fork(lambda: self._work(theirs))
        self._worker_is_idle = True

    def _hand_over(self, connection: socket.socket) -> bool:
        assert self._worker is not None
        self._worker_is_idle = False
        try:
            socket.send_fds(self._worker, [b"r"], [connection.fileno()])
        except OSError:
            return False  # it has ended: the next look shows that
        return True

    def _fork(self, job: Callable[[], None]) -> None:
        process = os.fork()
        if process:
            self._processes.add(process)
            return
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            self._listener.close()
            if self._worker is not None:
                self._worker.close()  # only the helper has this end: the worker hears of the helper's end by it
            os.close(self._record)  # a child that outlives the helper must not hold its lock
            job()
        finally:
            os._exit(0)

    # --- in a child --------------------------------------------------------------------------

    def _work(self, helper: socket.socket) -> None:
        """The life of the worker: one request after the other, until the helper leaves."""
        watchers: dict[str, Watcher] = {}
        handle.watchers = watchers
        for _ in range(_MOST_REQUESTS):
            word, descriptors, _, _ = socket.recv_fds(helper, 1, 1)
            if not word or not descriptors:
                return
            with socket.socket(fileno=descriptors[0]) as connection, suppress(OSError, EOFError, ValueError):
                self._answer(connection)
            signal.alarm(_WORK_SECONDS)
            with suppress(ShadowsnapError, OSError):
                _watch_project(watchers, handle.directory)
            os.chdir("/")
            gc.collect()
            signal.alarm(0)
            helper.sendall(b"i")

    def _answer(self, connection: socket.socket) -> None:
        """Do the work of one hook, if it is what the hook's own process would do."""
        signal.alarm(_REQUEST_SECONDS)
        facts, words = _receive(connection, _MOST_WORDS), _receive(connection, _MOST_WORDS)
        data = _receive(connection, client.MOST_INPUT)
        if self._serves(facts) and _begin(connection):
            done = _do(words.decode("utf-8", "surrogateescape").split("\0"), data)
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            connection.sendall(client.DONE if done else client.REFUSED)
        signal.alarm(0)

    def _serves(self, facts: bytes) -> bool:
        """Whether a hook with these facts would do exactly what this process does."""
        changed = any(_stamp(path) != stamp for path, stamp in self._files.items())
        if changed or facts.split(b"\0")[:2] != self._facts.split(b"\0")[:2]:
            # Not by a signal: if the helper was killed, the parent of this process is another one.
            os.write(self._waking, bytes([signal.SIGTERM]))
            return False
        return facts == self._facts


def _watch_project(watchers: dict[str, Watcher], directory: str) -> None:
    """Watch the project that the last request was about, after it was answered. After a prompt, all its files are
    compared: a turn must not begin without what was written before and caused no event. No hook waits for that:
    the model is busy."""
    access = Access.of_person()
    access.watchers = watchers
    if directory:
        workdir = access.project_around(directory)
        if access.watch(workdir) and handle.kind == PROMPT:
            access.compare_watched(workdir)
    for project in list(watchers)[:-_MOST_WATCHED]:
        watchers.pop(project).close()
    for watcher in watchers.values():
        watcher.most_seconds = _SCAN_SECONDS


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _files() -> Iterator[tuple[str, tuple[int, ...]]]:
    """The files that decide what this program does: its modules and the settings, as they are now."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] == "shadowsnap"]
    for path in (config_file(), *(str(getattr(module, "__file__", "")) for module in modules)):
        yield path, _stamp(path)


def _stamp(path: str) -> tuple[int, ...]:
    try:
        seen = os.stat(path)
    except OSError:
        return ()
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def _receive(connection: socket.socket, most: int) -> bytes:
    size = int.from_bytes(_exactly(connection, 4), "big")
    if size > most:
        raise ValueError("a request is too large")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    pieces = []
    while size:
        piece = connection.recv(min(size, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _begin(connection: socket.socket) -> bool:
    """Say that we are ready, and wait for the hook to say so too: it may have begun by itself meanwhile. From
    then on this process ends with its hook, as the work in the hook's own process would."""
    import fcntl

    connection.sendall(client.READY + os.getpid().to_bytes(4, "big"))
    if connection.recv(1) != client.GO:
        return False
    signal.alarm(_WORK_SECONDS)
    signal.signal(signal.SIGIO, lambda *_: os._exit(0))
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    return not select.select([connection], [], [], 0)[0]  # readable: the hook has gone


def _do(words: list[str], data: bytes) -> bool:
    """Do the work of a hook; False if its own process has to."""
    handle.in_helper = True
    try:
        agent, event_name, cwd = words
        os.chdir(cwd)
        handle.run_hook(agent, data, event_name)
    except (handle.NotDone, OSError, MemoryError, ValueError):
        return False
    return True


# --- starting, finding and stopping it -------------------------------------------------------------


_STOP_SECONDS = 2.0


def start_helper(base: str) -> bool:
    """Start a helper in the background; False if that is not possible."""
    try:
        Path(base, RECORD).touch(0o600)
    except OSError:
        return False
    return start_detached("shadowsnap.hook.server", base, cwd=Path(base), environment=dict(os.environ))


@dataclass(frozen=True)
class RunningHelper:
    """The helper of a base."""

    pid: int
    started_at: datetime
    version: str

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "started_at": self.started_at.isoformat(), "version": self.version}


def running_helper(base: str) -> RunningHelper | None:
    """The helper that runs now."""
    record = Path(base, RECORD)
    try:
        if is_free(record):
            return None
        about = read_json(record) or {}
        started_at = datetime.fromtimestamp(about["started_at"], UTC)
        return RunningHelper(int(about["pid"]), started_at, str(about["version"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def stop_helper(base: str) -> RunningHelper | None:
    """End the helper; returns the one that ran. What it is doing for a hook is finished."""
    found = running_helper(base)
    if found is None:
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(found.pid, number)
        except ProcessLookupError:
            break
        end = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < end and running_helper(base) == found:
            time.sleep(0.01)
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
