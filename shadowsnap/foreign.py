"""Reading files that a project brings along. Anything may be in their place.

A file is opened only if it is a regular one, the open never waits for a writer (a FIFO would), and no more
than a bound is read, whatever size the file claims to have.
"""

from __future__ import annotations

import os
import stat

_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class OddFile(Exception):
    """Something is there that is not read: `why` is `special`, `too-large`, `unreadable` or `directory`."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def read_foreign(path: str | bytes | os.PathLike[str], most: int) -> bytes | None:
    """The content of a regular file of at most `most` bytes; None if there is nothing. Raises `OddFile` for
    everything else."""
    problem = problem_of(path, most)  # before it is opened: opening a device may already do something
    if problem is None:
        try:
            return _read(path, most)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            problem = "directory"
        except OSError:
            problem = "unreadable"
    raise OddFile(problem)


def problem_of(path: str | bytes | os.PathLike[str], most: int) -> str | None:
    """Why something is not read: `special`, `too-large` or `unreadable`; None for a file that can be, and
    where there is none."""
    try:
        return _problem(os.stat(path), most)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return "unreadable"


def _read(path: str | bytes | os.PathLike[str], most: int) -> bytes:
    descriptor = os.open(path, _OPEN)
    try:
        problem = _problem(os.fstat(descriptor), most)  # it may have been replaced meanwhile
        if problem is not None:
            raise OddFile(problem)
        parts: list[bytes] = []
        left = most + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        if left <= 0:
            raise OddFile("too-large")  # it grew while it was read
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _problem(seen: os.stat_result, most: int) -> str | None:
    if stat.S_ISDIR(seen.st_mode):
        return None  # reading it fails by itself
    if not stat.S_ISREG(seen.st_mode):
        return "special"
    return "too-large" if seen.st_size > most else None
