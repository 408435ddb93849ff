"""Where a story is played: an agent in a home of its own, its projects, and a conversation with it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from model import Answer, Model
from programs import Home, Program

TURN_SECONDS = 240.0
_FILES = {
    "README.md": "# demo\n",
    "notes.txt": "notes of the person\n",
    "src/app.py": 'print("hello")\n',
    "src/run.sh": "#!/bin/sh\nexec python3 app.py\n",
    "src/it's a name.txt": "odd\n",
}

Manifest = dict[str, tuple[int, bytes]]


class Failed(Exception):
    """What a story found wrong."""


class Stage:
    """One agent, ready to play."""

    def __init__(self, program: Program, model: Model, home: Home, notes: list[str]) -> None:
        self.program, self.model, self.home = program, model, home
        self.notes = notes
        """What agents printed, for the log of the run."""

    def make_project(self, name: str) -> Path:
        project = self.home.projects / name
        for path, text in _FILES.items():
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text)
        (project / "src" / "run.sh").chmod(0o755)
        for words in (["init", "-q", "-b", "main"], ["add", "README.md"], ["commit", "-q", "-m", "begin"]):
            self._run(["git", "-c", "user.name=p", "-c", "user.email=p@localhost", *words], project)
        return project

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.home.bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home.path),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "SHELL": "/bin/bash",
            "USER": "person",
            "GIT_CONFIG_NOSYSTEM": "1",
            **self.program.environment(self.home),
        }

    def shadowsnap(self, project: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run(["shadowsnap", *words], project)

    def asked(self, project: Path, *words: str) -> Any:
        """The JSON answer of a shadowsnap command."""
        done = self.shadowsnap(project, *words, "--json")
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Failed(f"shadowsnap {shlex.join(words)} printed no JSON: {done.stderr[-200:]}") from None

    def _run(self, command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=cwd, env=self.environment(), capture_output=True, text=True, timeout=120, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def turns(self, project: Path) -> list[dict[str, Any]]:
        """The turns of the timeline, oldest first."""
        entries = self.asked(project, "list", "--limit", "0").get("entries", ())
        return [entry for entry in entries if entry["kind"] == "turn"][::-1]

    def play(self, script: str, *answers: Answer) -> str:
        """Give the model a script; returns the tag that a prompt needs to ask for it."""
        self.model.scripts[script] = list(answers)
        return f"[[{script}]]"


def manifest(project: Path) -> Manifest:
    """Every file of a project with its permission bits and content, except those of git."""
    found = {}
    for folder, folders, files in os.walk(project):
        folders[:] = [name for name in folders if name != ".git"]
        for name in files:
            path = Path(folder, name)
            found[str(path.relative_to(project))] = (stat.S_IMODE(path.lstat().st_mode), path.read_bytes())
    return found


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.2)


class Chat:
    """A conversation by commands: each turn is a process, and the next one goes on with the session."""

    def __init__(self, stage: Stage, project: Path, *, resume: bool = False) -> None:
        self.stage, self.project = stage, project
        self._begun = resume

    def _arguments(self, prompt: str) -> list[str]:
        program, home = self.stage.program, self.stage.home
        if not self._begun:
            self._begun = True
            return program.ask(home, prompt)
        turns = self.stage.turns(self.project)
        session = str(turns[-1]["session_id"] or "") if turns else ""
        return program.go_on(home, prompt, session)

    def _start(self, prompt: str) -> subprocess.Popen[str]:
        command = [*self.stage.program.start(), *self._arguments(prompt)]
        return subprocess.Popen(
            command, cwd=self.project, env=self.stage.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip

    def say(self, prompt: str, *, shows: str = "") -> str:
        """One turn, until it is over and `shows` can be seen; returns what was printed."""
        process = self._start(prompt)
        try:
            shown = process.communicate(timeout=TURN_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            shown = process.communicate()[0]
            raise Failed(f"{prompt!r} did not end; it printed {shown[-300:]!r}") from None
        self.stage.notes.append(f"$ {prompt}\n{shown}")
        return shown

    def interrupt(self, prompt: str, under_way: Callable[[], bool]) -> None:
        """Begin a turn and stop it with Ctrl-C when it is under way."""
        process = self._start(prompt)
        try:
            wait_for(lambda: under_way() or process.poll() is not None, TURN_SECONDS, "the turn to be under way")
            if process.poll() is not None:
                raise Failed(f"the agent ended by itself: {process.communicate()[0][-300:]!r}")
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                self.stage.notes.append(f"$ {prompt}\n(did not end after an interrupt; killed)")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def close(self) -> None:
        pass
