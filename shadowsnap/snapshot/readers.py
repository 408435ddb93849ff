"""Processes that read, hash, compress and store the files of a large first capture.

For small files this is mostly Python, of which one thread in a process runs at a time. So other processes help,
as soon as the first files are listed: copies of this one (`fork`) if it has a single thread, else new ones, which
take longer to start. Each writes a pack of its own, and returns no more than the index entries of the files. They
do what this process would do, and are never needed: what they do not store, this process reads itself.
"""

from __future__ import annotations

import gc
import marshal
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.files import behind_standard_streams, write_all
from shadowsnap.git.index import Entry
from shadowsnap.git.objects import fast_codec
from shadowsnap.git.packs import NewObjects
from shadowsnap.git.process import Process, kill_tree, kill_without_reaping, own_module
from shadowsnap.git.repository import sealed_environment
from shadowsnap.snapshot.content import BATCH_FILES, Content, NotCaptured, Stored, read_file, store_batch
from shadowsnap.snapshot.secrets import not_left_out
from shadowsnap.snapshot.workspace import Workspace
from shadowsnap.snapshot.worktree import Worktree

# As many files are read while copies of this process, or new processes, start.
_MANY_FOR_COPIES = 200
_MANY = 3000
_MOST_PROCESSES = 8
# The time for what is under way when the deadline has passed.
_GRACE_SECONDS = 5.0
# If no process answers for this time, they were stopped, or hang: this process can do without them.
_PATIENCE_SECONDS = 3.0
# The time for completing a pack where there is no deadline.
_COMPLETION_SECONDS = 60.0

Batch = Sequence[bytes]


class Readers:
    """The processes that help with one capture. They end with the block."""

    def __init__(self, space: Workspace) -> None:
        self._space = space
        self._cores = min(os.cpu_count() or 1, _MOST_PROCESSES)
        self.given: set[bytes] = set()
        """The files that are read by this object: `results` returns all of them."""
        self._processes: list[Process | Copy] = []
        self._threads: list[Thread] = []
        """Each talks to one process."""
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        """What is to be read; None ends a thread."""
        self._answers: SimpleQueue[Stored | None] = SimpleQueue()
        """What was read; None from each thread when it has nothing more to return."""
        self._running = 0
        """Threads that have something to return."""
        self._lost: set[bytes] = set()

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_processes()
        self._end_input()
        for thread in self._threads:
            thread.join()
        pack = self._space.objects.directory / "pack"
        for process in self._processes:
            kill_tree(process)
            for left in pack.glob(f"tmp_*_{process.pid}_*"):  # what it had not completed
                left.unlink(missing_ok=True)

    def _end_processes(self) -> None:
        """The threads that talk to them end, too."""
        for process in self._processes:
            kill_without_reaping(process)

    # --- giving files ------------------------------------------------------------------------

    def expect(self, files: int) -> None:
        """Start the processes if this number of files is worth it. They need some time until they are ready."""
        if self._processes or self._cores == 1 or files < _MANY_FOR_COPIES:
            return
        copies = _may_fork()
        if files < _MANY and not copies:
            return
        started: list[Process | Copy] = []
        for _ in range(self._cores):
            process = _copy(self._space) if copies else _start(self._space)
            if process is None:
                break
            started.append(process)
        for process in started:  # now, because a process with threads cannot be copied
            thread = Thread(target=self._attend, args=[process], daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads are allowed
                kill_tree(process)
                continue
            self._processes.append(process)
            self._threads.append(thread)

    def give(self, paths: list[bytes]) -> None:
        """Have files read, if there are enough of them. Those that are left out because of their names are not."""
        self.expect(len(self.given) + len(paths))
        if self._processes:
            settings = self._space.settings
            for at in range(0, len(paths), BATCH_FILES):
                batch = not_left_out(paths[at : at + BATCH_FILES], settings)
                self.given.update(batch)
                self._batches.put(batch)

    # --- what came of them -------------------------------------------------------------------

    def results(self) -> Iterator[Stored]:
        """What came of the files that were given. If the deadline passes, what is under way is returned before the
        error is raised."""
        self._end_input()
        if self._threads:
            self._space.objects.expect_many()
        self._running = len(self._threads)
        try:
            yield from self._collect(self._space.deadline)
        except DeadlineExceeded:
            self._take_back()
            with suppress(DeadlineExceeded):
                yield from self._collect(Deadline(_GRACE_SECONDS))
            raise

    def _collect(self, deadline: Deadline) -> Iterator[Stored]:
        done, heard = 0, time.monotonic()
        while self._running:
            deadline.check("reading files", done, len(self.given))
            left = deadline.patience()
            try:
                seconds = _PATIENCE_SECONDS if left is None else min(left, _PATIENCE_SECONDS)
                stored = self._answers.get(timeout=seconds)
            except Empty:
                if time.monotonic() - heard >= _PATIENCE_SECONDS:
                    self._end_processes()
                continue
            if stored is None:
                self._running -= 1
                continue
            done += stored.files
            yield stored
            heard = time.monotonic()

    def lost(self) -> set[bytes]:
        """Wait until all of it is in the store. Returns the files that are not, because a process failed."""
        # All of them failed, or the deadline passed first: a thread that waits for more must not wait for ever.
        self._lost.update(*self._take_back())
        left = self._space.deadline.remaining()
        for process, thread in zip(self._processes, self._threads, strict=True):
            thread.join(_COMPLETION_SECONDS if left is None else max(left, _GRACE_SECONDS))
            if thread.is_alive():
                kill_without_reaping(process)
                thread.join()
        return self._lost

    def _take_back(self) -> list[Batch]:
        """The batches that no process has got yet."""
        found: list[Batch] = []
        with suppress(Empty):
            while (batch := self._batches.get_nowait()) is not None:
                found.append(batch)
        self._end_input()  # a thread may wait for what was taken out
        return found

    def _end_input(self) -> None:
        for _ in self._threads:
            self._batches.put(None)

    def _attend(self, process: Process | Copy) -> None:
        """Pass batches to a process and on what it answers; at the end, have it complete its pack. What a process
        stored before it fails is lost with its pack."""
        taken: list[Batch] = []
        asked: deque[Batch] = deque()
        """What it has not answered yet."""
        is_complete = False
        _do_not_die_of_its_end()
        try:
            try:
                while self._ask_ahead(process, taken, asked):
                    batch = asked.popleft()
                    stored = _from_answer(batch, _answer(process))
                    self._answers.put(stored)
                    if rest := batch[stored.files :]:
                        _ask(process, rest)
                        asked.append(rest)
            finally:
                # Exactly once, whatever happens: `_collect` counts it, and waits for every process.
                self._answers.put(None)
            _ask(process, [])
            is_complete = _answer(process) is True
        except (OSError, EOFError, ValueError, TypeError, MemoryError):  # it could not start, or was killed
            pass
        finally:
            if not is_complete:
                self._lost.update(*taken)

    def _ask_ahead(self, process: Process | Copy, taken: list[Batch], asked: deque[Batch]) -> bool:
        """Give a process its next batch before it has answered the last one: this thread may have to wait until
        others let it run. Returns whether an answer is to come. (One answer fits into a pipe, so that neither side
        waits for the other to read.)"""
        while len(asked) < 2:
            try:
                batch = self._batches.get(block=not asked)
            except Empty:
                break
            if batch is None:
                if asked:
                    self._batches.put(None)  # for the time when all of them are answered
                break
            taken.append(batch)
            asked.append(batch)
            _ask(process, batch)
        return bool(asked)


def _ask(process: Process | Copy, paths: Batch) -> None:
    assert process.stdin is not None
    write_all(process.stdin.fileno(), marshal.dumps(list(paths)))  # not buffered: closing must not write again


def _answer(process: Process | Copy) -> Any:
    assert process.stdout is not None
    return marshal.load(process.stdout)


def _do_not_die_of_its_end() -> None:
    """Have writing to a process that was killed raise an error in this thread, also if the host lets such a write
    end the host."""
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})


# --- starting them -----------------------------------------------------------------------------------


def _may_fork() -> bool:
    """Whether a copy of this process can work: a lock that another thread holds would be held in it for ever."""
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _copy(space: Workspace) -> Copy | None:
    try:
        return Copy(space)
    except OSError:  # no more processes or open files are allowed, or no memory is left
        return None


class Copy:
    """A copy of this process that reads files; used like a `Process`."""

    stderr = None

    def __init__(self, space: Workspace) -> None:
        objects = space.objects
        fast_codec()  # once for all copies
        with ExitStack() as closing:  # everything, if this fails
            requests, to_it = _pipe(closing)
            from_it, answers = _pipe(closing)
            self.pid = os.fork()
            if self.pid == 0:
                try:
                    _leave_parent(keep={requests, answers, space.worktree.descriptor})
                    with open(requests, "rb") as stdin, open(answers, "wb") as stdout:
                        limit = space.settings.max_file_bytes
                        _serve(space.worktree, objects.directory, objects.fsync, limit, stdin, stdout)
                finally:
                    os._exit(0)
            closing.pop_all()
        with suppress(OSError):  # it may have done so itself, or have ended
            os.setpgid(self.pid, self.pid)
        os.close(requests)
        os.close(answers)
        self.stdin, self.stdout = open(to_it, "wb"), open(from_it, "rb")  # noqa: SIM115
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:  # the host ignores its children
                self.returncode = 0
        return self.returncode


def _pipe(closing: ExitStack) -> tuple[int, int]:
    source, target = (behind_standard_streams(end) for end in os.pipe())
    closing.callback(os.close, source)
    closing.callback(os.close, target)
    return source, target


def _leave_parent(keep: set[int | None]) -> None:
    """Keep nothing of the parent that could change what it does: its files, signals and process group."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGIO, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # if the parent is killed, temporary files are removed first
    gc.disable()  # the finalizers of the host's objects are not ours to run
    # Also its standard streams, of which a program may wait for the end. If it closed them, they may be anything.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):  # the listing itself
                os.close(int(name))


def _start(space: Workspace) -> Process | None:
    worktree, settings = space.worktree, space.settings
    descriptor, root = worktree.descriptor, os.fsdecode(worktree.root)
    command = own_module(
        __name__, str(descriptor), root, str(space.objects.directory), str(settings.max_file_bytes),
        str(space.objects.fsync),
    )  # fmt: skip
    if command is None:
        return None
    inherited = () if descriptor is None else (descriptor,)
    try:
        return Process(
            command[0], command[1:], sealed_environment(), space.store.base,
            with_stdin=True, with_stderr=False, inherited=inherited,
        )  # fmt: skip
    except OSError:
        return None


# --- in such a process -------------------------------------------------------------------------------

Answer = tuple[bytes, bytes, list[int], dict[int, str | None]]
"""The first path of the batch; the entries of the files that are captured, one after the other; the positions of
those with several links; the positions of those that are not captured, and why."""


def main(descriptor: str, root: str, directory: str, limit: str, fsync: str) -> None:
    worktree = Worktree(Path(root), None if descriptor == "None" else int(descriptor))
    most = None if limit == "None" else int(limit)
    _serve(worktree, Path(directory), fsync == "True", most, sys.stdin.buffer, sys.stdout.buffer)


def _serve(
    worktree: Worktree, directory: Path, fsync: bool, limit: int | None, stdin: IO[bytes], stdout: IO[bytes]
) -> None:
    """Answer one batch of paths after another. An empty one completes the pack; without it, nothing is left."""
    objects = NewObjects(directory, fsync=fsync)
    objects.expect_many()

    def read(path: bytes) -> Content | NotCaptured:
        return read_file(worktree, path, limit, objects.write_stream)

    def send(answer: Any) -> None:
        marshal.dump(answer, stdout)
        stdout.flush()

    try:
        while paths := marshal.load(stdin):
            stored = store_batch(worktree, paths, read, objects, NO_DEADLINE)
            send(_to_answer(paths, stored))
        objects.flush()
        send(True)
    except EOFError:
        pass  # the other process was killed
    finally:
        objects.abandon()


def _to_answer(paths: Sequence[bytes], stored: Stored) -> Answer:
    at = {path: number for number, path in enumerate(paths)}
    left_out = {at[path]: why for path, why in stored.left_out.items()}
    return paths[0], b"".join(stored.entries.values()), [at[path] for path in stored.linked], left_out


def _from_answer(paths: Sequence[bytes], answer: Answer) -> Stored:
    first, entries, linked, left_out = answer
    if first != paths[0]:
        raise ValueError("the answer is to another batch")
    count = len(entries) // Entry.LENGTH + len(left_out)
    captured = [path for at, path in enumerate(paths[:count]) if at not in left_out] if left_out else paths[:count]
    return Stored(
        dict(zip(captured, Entry.several(entries), strict=True)),
        [paths[at] for at in linked],
        {paths[at]: why for at, why in left_out.items()},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
