"""Processes that read, hash, compress and store the files of a large first capture.

For small files this is mostly Python, of which one thread in a process runs at a time. So other processes help,
as soon as the first files are listed. Each writes a pack of its own, and returns no more than the index entries of
the files. They do what this process would do, and are never needed: what they do not store, this process reads
itself.
"""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.process import Process, kill_tree, kill_without_reaping, own_module
from shadowsnap.git.repository import sealed_environment
from shadowsnap.snapshot.content import BATCH_FILES, Content, NotCaptured, Stored, read_file, store_batch
from shadowsnap.snapshot.reader import from_answer
from shadowsnap.snapshot.secrets import why_left_out
from shadowsnap.snapshot.workspace import Workspace

# Starting a process takes as long as reading this number of files.
_MANY = 1000
# With this number of files, this process has enough to do with listing them and with what the others return.
_VERY_MANY = 10_000
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
        self._cores = os.cpu_count() or 1
        self.given: set[bytes] = set()
        """The files that are read by this object: `results` returns all of them."""
        self._processes: list[Process] = []
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
        """Start as many processes as this number of files is worth. They need some time until they are ready."""
        wanted = 0 if files < _MANY or self._cores == 1 else self._cores - (files < _VERY_MANY)
        for _ in range(wanted - len(self._processes)):
            process = _start(self._space)
            if process is None:
                return
            thread = Thread(target=self._attend, args=[process], daemon=True)
            self._processes.append(process)
            self._threads.append(thread)
            thread.start()

    def give(self, paths: Sequence[bytes]) -> None:
        """Have files read, if there are enough of them. Those that are left out because of their names are not."""
        self.expect(len(self.given) + len(paths))
        if self._processes:
            settings = self._space.settings
            paths = [path for path in paths if why_left_out(path, settings) is None]
            self.given.update(paths)
            for at in range(0, len(paths), BATCH_FILES):
                self._batches.put(paths[at : at + BATCH_FILES])

    # --- what came of them -------------------------------------------------------------------

    def results(self) -> Iterator[Stored]:
        """What came of the files that were given. With few processes, this one reads, too, while it waits. If the
        deadline passes, what is under way is returned before the error is raised."""
        self._end_input()
        if self._threads:
            self._space.objects.expect_many()
        self._running = len(self._threads)
        try:
            yield from self._collect(self._space.deadline, reads_too=self._running < self._cores)
        except DeadlineExceeded:
            self._take_back()
            with suppress(DeadlineExceeded):
                yield from self._collect(Deadline(_GRACE_SECONDS), reads_too=False)
            raise

    def _collect(self, deadline: Deadline, *, reads_too: bool) -> Iterator[Stored]:
        done, batch, heard = 0, None, time.monotonic()
        while self._running:
            deadline.check("reading files", done, len(self.given))
            if reads_too and self._answers.empty() and (batch := batch or self._next_batch()):
                stored = store_batch(batch, self._read, self._space.objects, deadline, done, len(self.given))
                batch = batch[stored.files :]
            else:
                left = deadline.patience()
                try:
                    seconds = _PATIENCE_SECONDS if left is None else min(left, _PATIENCE_SECONDS)
                    answer = self._answers.get(timeout=seconds)
                except Empty:
                    if time.monotonic() - heard >= _PATIENCE_SECONDS:
                        self._end_processes()
                    continue
                if answer is None:
                    self._running -= 1
                    continue
                stored = answer
            done += stored.files
            yield stored
            heard = time.monotonic()

    def _read(self, path: bytes) -> Content | NotCaptured:
        space = self._space
        return read_file(space.worktree, path, space.settings.max_file_bytes, space.objects.write_stream)

    def lost(self) -> set[bytes]:
        """Wait until all of it is in the store. Returns the files that are not, because a process failed."""
        left = self._space.deadline.remaining()
        for process, thread in zip(self._processes, self._threads, strict=True):
            thread.join(_COMPLETION_SECONDS if left is None else max(left, _GRACE_SECONDS))
            if thread.is_alive():
                kill_without_reaping(process)
                thread.join()
        return self._lost.union(*self._take_back())  # if all of them failed, batches are left

    def _next_batch(self) -> Batch | None:
        try:
            batch = self._batches.get_nowait()
        except Empty:
            return None
        if batch is None:
            self._batches.put(None)  # a thread waits for it
        return batch

    def _take_back(self) -> list[Batch]:
        """The batches that no process has got yet."""
        found: list[Batch] = []
        while (batch := self._next_batch()) is not None:
            found.append(batch)
        return found

    def _end_input(self) -> None:
        for _ in self._threads:
            self._batches.put(None)

    def _attend(self, process: Process) -> None:
        """Pass batches to a process and on what it answers; at the end, have it complete its pack. What a process
        stored before it fails is lost with its pack."""
        answered: list[Batch] = []
        is_complete = False
        try:
            while (batch := self._batches.get()) is not None:
                answered.append(batch)
                while batch:
                    stored = from_answer(batch, _ask(process, list(batch)))
                    self._answers.put(stored)
                    batch = batch[stored.files :]
            self._answers.put(None)
            is_complete = _ask(process, []) is True
        except (OSError, EOFError, ValueError, TypeError):  # it could not start, or was killed
            self._answers.put(None)
        if not is_complete:
            self._lost.update(*answered)


def _start(space: Workspace) -> Process | None:
    worktree, settings = space.worktree, space.settings
    descriptor, root = worktree.descriptor, os.fsdecode(worktree.root)
    command = own_module(
        "shadowsnap.snapshot.reader", str(descriptor), root, str(space.objects.directory),
        str(settings.max_file_bytes), str(space.objects.fsync),
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


def _ask(process: Process, paths: list[bytes]) -> Any:
    assert process.stdin is not None and process.stdout is not None
    marshal.dump(paths, process.stdin)
    process.stdin.flush()
    return marshal.load(process.stdout)
