"""Scripts that are called git: for a git that hangs, is too old, or is none."""

from __future__ import annotations

import os
import select
from pathlib import Path


def fake_git(folder: Path, script: str) -> Path:
    """An executable called git in a directory of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "git"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


class Lifeline:
    """Tells without waiting around when the last of a family of processes is dead: each of them has
    the writing end of a pipe open, and only then does reading come to the end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.hold = f"exec 9>'{path}'; printf + >&9"
        """What a script says first, so that it and its children hold the line."""
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        # Without anybody who ever held the line, reading would not come to an end.
        self._own = os.open(path, os.O_WRONLY)

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def break_off(self, scripts: int, seconds: float = 60) -> None:
        """Raise a KeyError once so many scripts hold the line: one that is killed earlier never does."""
        for _ in range(scripts):
            assert select.select([self._descriptor], [], [], seconds)[0], "a script did not start"
            assert os.read(self._descriptor, 1) == b"+"
        raise KeyError

    def said_before_the_last_one_died(self, seconds: float = 20) -> bytes:
        """What the family wrote to the line; fails if one of them outlives the time."""
        os.close(self._own)
        said = b""
        while select.select([self._descriptor], [], [], seconds)[0]:
            piece = os.read(self._descriptor, 1000)
            if not piece:
                return said.replace(b"+", b"")
            said += piece
        raise AssertionError("a process is still alive")
