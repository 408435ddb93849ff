"""Running the command line: in this process, in another one, and on a terminal."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from answers import problems
from forking import exit_code, program, run_program, start_child

from shadowsnap.agents.install import launcher, quoted
from shadowsnap.cli.main import main

COMMAND = [sys.executable, "-m", "shadowsnap"]


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one object on stdout."""
        assert self.out.count("\n") == 1 and self.out.endswith("\n"), self.out
        found = json.loads(self.out)
        assert isinstance(found, dict) and found["schema"] == 2
        return found


class CommandLine:
    """The command line in one project; failing is a failure unless another code is expected."""

    def __init__(
        self, project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.project = project
        self._capsys = capsys
        monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        monkeypatch.delenv("LESS", raising=False)
        monkeypatch.chdir(project)

    def __call__(self, *words: str, code: int | None = 0) -> Ran:
        """In this process; with any exit code if that is None."""
        self._capsys.readouterr()
        found = main(list(words))
        out, err = self._capsys.readouterr()
        err = without_progress(err)
        assert code in (None, found), f"exit code {found} of {words}\n{out}\n{err}"
        return Ran(found, out, err)

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The answer as an object, which has to be what the documentation says."""
        ran = self("--json", *words, code=code)
        assert ran.err == ""
        assert problems(command_of(words), ran.answer) == []
        return ran.answer

    def snap(self, reason: str = "manual") -> str:
        """Take a checkpoint; its id."""
        found: str = self.json("snap", "-m", reason)["checkpoint"]["id"]
        return found

    def ids(self) -> list[str]:
        """The checkpoints, newest first."""
        return [each["id"] for each in self.json("list", "--checkpoints", "--limit", "0")["checkpoints"]]

    def entries(self, *words: str) -> list[dict[str, Any]]:
        """The timeline, newest first."""
        found: list[dict[str, Any]] = self.json("list", "--limit", "0", *words)["entries"]
        return found

    def process(self, *words: str | bytes, **env: str) -> subprocess.CompletedProcess[bytes]:
        """In a process of its own, without a terminal."""
        done = run_program(*words, cwd=self.project, env={**os.environ, **env})
        done.stderr = without_progress(done.stderr.decode("latin-1")).encode("latin-1")
        return done

    def terminal(self, *words: str, answers: Sequence[tuple[str, str]] = (), **env: str) -> tuple[int, str]:
        """In a process of its own on a terminal: each answer is typed once its question is there.
        Returns the exit code and everything that stood on the screen."""
        environment = {"TERM": "xterm", "PAGER": "cat", **env}
        code, screen = on_terminal([*COMMAND, *words], self.project, answers, environment)
        return code, without_progress(screen)


def ageless(text: str) -> str:
    """A list in which everything happened just now, however slow the machine is."""
    text = re.sub(r"^( *(?:\d+|\.)  )(?:now| *\d+) (?:s  |min|h  |   ) ", r"\1now     ", text, flags=re.MULTILINE)
    return re.sub(r"\b\d+ s ago", "now", text)


def without_progress(text: str) -> str:
    """What was written without the progress that is shown where it takes long, as it does on a busy machine."""
    text = re.sub(r"(?:\r\x1b\[K[^\r\n]*)+(?=\r\x1b\[K)|\r\x1b\[K", "", text)
    return re.sub(r"^[a-z][a-z ]*(?: \.\.\.|: \d+ of \d+)(?: \d+ s)?\n", "", text, flags=re.MULTILINE)


def command_of(words: Sequence[str]) -> str:
    """The command among these words."""
    left = list(words)
    while left and left[0].startswith("-"):
        left = left[2:] if left[0] == "-C" else left[1:]
    return left[0] if left else ""


def on_terminal(
    command: Sequence[str], cwd: Path, answers: Sequence[tuple[str, str]], env: dict[str, str]
) -> tuple[int, str]:
    """Any command, in a process of its own on a terminal; the program is forked."""
    import pty

    ours, theirs = pty.openpty()
    if [*command[: len(COMMAND)]] == COMMAND:
        run = program(*command[len(COMMAND) :])
    else:
        run = partial(os.execv, command[0], command)
    child = start_child(run, (theirs, theirs, theirs), cwd, {**os.environ, **env}, prepare=_own_terminal)
    os.close(theirs)
    screen, waiting, seen = b"", list(answers), 0
    end = time.monotonic() + 60
    try:
        while time.monotonic() < end:
            readable, _, _ = select.select([ours], [], [], 1)
            if readable:
                try:
                    piece = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    piece = b""
                if not piece:
                    break
                screen += piece
            if waiting and (at := screen.find(waiting[0][0].encode(), seen)) >= 0:
                seen = at + len(waiting[0][0])
                os.write(ours, waiting.pop(0)[1].encode())
        assert not waiting, f"never asked {waiting[0][0]!r}: {screen!r}"
        child, ended = 0, child
        return exit_code(ended), screen.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(ours)


def _own_terminal() -> None:
    """Make the terminal ours, so that Ctrl-C typed into it reaches us."""
    import fcntl
    import termios

    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def hook_command(agent: str) -> str:
    """The command line of the hook as settings name it, quoted for the shell."""
    return quoted(launcher().hook(agent))
