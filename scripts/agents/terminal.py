"""A conversation on a terminal, by tmux: several turns in one process, and Esc."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from stage import TURN_SECONDS, Chat, Failed, Stage, wait_for

_START_SECONDS = 180.0
_SHOW_SECONDS = 40.0
_TAG = re.compile(r"\[\[([\w-]+)\]\]$")


class TerminalChat(Chat):
    """The agent's own interface on a terminal."""

    def __init__(
        self, stage: Stage, project: Path, *, arguments: list[str] | None = None, must_ask: bool = False
    ) -> None:
        super().__init__(stage, project)
        self._socket = str(stage.home.path / "tmux")
        command = ["env", "-i", *(f"{name}={value}" for name, value in stage.environment().items())]
        command += [*stage.program.start(), *(stage.program.chat(stage.home) if arguments is None else arguments)]
        self._tmux("kill-server")
        self._tmux(
            "new-session", "-d", "-s", "agent", "-x", "160", "-y", "50", "-c", str(project), shlex.join(command)
        )
        self._get_ready(must_ask)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-f", "/dev/null", "-S", self._socket, *words]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        return done.stdout

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", "agent")

    def _settle(self, seconds: float = 30.0) -> None:
        """Wait until the screen shows something and stays the same for a while."""
        end, before, since = time.monotonic() + seconds, "", time.monotonic()
        while time.monotonic() < end:
            now = self.screen().strip()
            if now != before:
                before, since = now, time.monotonic()
            elif now and time.monotonic() - since > 2.5:
                return
            time.sleep(0.3)

    def _get_ready(self, must_ask: bool) -> None:
        """Answer what it asks at the start, until a prompt can be typed. Codex asks only after the first one."""
        program, end = self.stage.program, time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            self._settle()
            shown = self.screen().rstrip()
            asked = [at for at, (question, _) in enumerate(program.dialogs) if re.search(question, shown)]
            keys = program.dialogs[asked[0]][1] if asked else None
            if keys is None and program.ready in shown and not must_ask:
                return
            if keys is not None:
                must_ask = must_ask and asked[0] != 0
                self.stage.notes.append(f"asked:\n{shown}")
            elif must_ask and program.ready in shown:
                self._type("hello")
            for key in keys or ():
                self._tmux("send-keys", "-t", "agent", key)
                time.sleep(0.5)
        raise self._fail(Failed("it was not ready for a prompt"))

    def _type(self, prompt: str) -> None:
        """Type a prompt. What is typed while an agent still starts may be lost, so it is looked for."""
        for attempt in range(3):
            if attempt:
                self._tmux("send-keys", "-t", "agent", "C-u")
            self._tmux("send-keys", "-t", "agent", "-l", prompt)
            end = time.monotonic() + 20
            while not (shown := prompt in self.screen()) and time.monotonic() < end:
                time.sleep(0.3)
            if shown:
                break
        time.sleep(0.7)
        self._tmux("send-keys", "-t", "agent", "Enter")

    def _fail(self, problem: Failed) -> Failed:
        lines = [line.rstrip() for line in self.screen().splitlines() if line.strip()]
        self.stage.notes.append("the screen:\n" + "\n".join(lines))
        return Failed(f"{problem}; the screen ends with {' / '.join(lines[-4:])[-200:]!r}")

    def say(self, prompt: str, *, shows: str = "") -> str:
        self._type(prompt)
        found = _TAG.search(prompt)
        if found:
            try:
                wait_for(lambda: self.stage.model.has_finished(found[1]), TURN_SECONDS, f"the end of {prompt!r}")
            except Failed as problem:
                raise self._fail(problem) from None
        self._settle()
        end = time.monotonic() + _SHOW_SECONDS  # a busy machine may be silent for a while first
        while shows not in self.screen() and time.monotonic() < end:
            time.sleep(0.3)
        self.stage.notes.append(f"> {prompt}\n{self.screen()}")
        return self.screen()

    def interrupt(self, prompt: str, under_way: Callable[[], bool]) -> None:
        self._type(prompt)
        try:
            wait_for(under_way, TURN_SECONDS, "the turn to be under way")
        except Failed as problem:
            raise self._fail(problem) from None
        time.sleep(1)
        for pause in (0.15, 0.3, 0.5, 0.8):  # how fast two keys must follow depends on the agent and the machine
            for key in self.stage.program.escape:
                self._tmux("send-keys", "-t", "agent", key)
                time.sleep(pause)
            self._settle()
            if not self.stage.program.working or self.stage.program.working not in self.screen():
                break
        self.stage.notes.append(f"> {prompt} (interrupted)\n{self.screen()}")

    def close(self) -> None:
        self._tmux("kill-server")
