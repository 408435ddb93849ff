"""Processes that read, hash and compress the files of a large first capture.

For small files this is mostly Python, of which one thread in a process runs at a time. So other processes help.
They do what this process would do, and are never needed: what they do not answer, this process reads itself.
"""

from __future__ import annotations

import os
import pickle
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from threading import Lock

from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.git.objects import fast_zlib
from shadowsnap.git.process import own_module
from shadowsnap.git.repository import sealed_environment
from shadowsnap.settings import Settings, settings_from_text, settings_to_text
from shadowsnap.snapshot.content import Batch, read_batch, read_file
from shadowsnap.snapshot.worktree import Worktree

Ask = Callable[[Sequence[bytes]], Batch | None]
GiveUp = Callable[[], None]
_READY = b"ready"


@contextmanager
def reading_processes(worktree: Worktree, settings: Settings, count: int) -> Iterator[tuple[Ask, GiveUp]]:
    """Start so many processes; they end with the block. The first function that is returned asks one that is idle
    to read a batch, and returns None if there is none, as long as they are starting, too. The second one ends all
    of them, so that no call waits for one that hangs."""
    processes: list[Popen[bytes]] = []
    starting: list[Popen[bytes]] = []
    idle: list[Popen[bytes]] = []
    lock = Lock()

    def ask(paths: Sequence[bytes]) -> Batch | None:
        with lock:
            for process in [each for each in starting if _is_ready(each)]:
                starting.remove(process)
                idle.append(process)
            if not idle:
                return None
            process = idle.pop()
        answer = _ask(process, paths)
        if answer is not None:
            idle.append(process)
        return answer

    def give_up() -> None:
        for process in processes:
            process.kill()

    with ExitStack() as stack:
        for _ in range(count if sys.platform != "win32" else 0):  # where a pipe can be asked whether it is ready
            started = _start(worktree, settings)
            if started is not None:
                stack.callback(_end, started)
                processes.append(started)
        starting += processes
        yield ask, give_up


def _is_ready(process: Popen[bytes]) -> bool:
    """Whether it has said that it is ready, or died, which asking it shows."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], 0)[0]:
        return False
    process.stdout.read(len(_READY))
    return True


def _start(worktree: Worktree, settings: Settings) -> Popen[bytes] | None:
    descriptor, root, base = worktree.descriptor, os.fsdecode(worktree.root), settings.resolved_base()
    command = own_module("shadowsnap.snapshot.readers", str(descriptor), root, settings_to_text(settings))
    if command is None:
        return None
    inherited = () if descriptor is None else (descriptor,)
    try:
        return Popen(
            command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=sealed_environment(), cwd=base,
            pass_fds=inherited, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None


def _ask(process: Popen[bytes], paths: Sequence[bytes]) -> Batch | None:
    assert process.stdin is not None and process.stdout is not None
    try:
        pickle.dump(paths, process.stdin)
        process.stdin.flush()
        answer: Batch = pickle.load(process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
        return None  # it could not start, or was killed
    return answer


def _end(process: Popen[bytes]) -> None:
    process.kill()
    process.communicate()


def main(descriptor: str, root: str, settings: str) -> None:
    """Answer one batch of paths after another, until the input ends."""
    worktree = Worktree(Path(root), None if descriptor == "None" else int(descriptor))
    read, compress = partial(read_file, worktree, settings_from_text(settings)), fast_zlib().compress
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    while True:
        try:
            paths = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(read_batch(paths, read, compress, NO_DEADLINE), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
