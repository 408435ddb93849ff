"""A scripted agent for the demo: real tools in a real project, with the hook before each."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowsnap.agents.launcher import program_words

_SESSION = "demo-session"

PROJECT = {
    "README.md": "# greeter\n\nSays hello.\n",
    "greeter/__init__.py": 'def greet(name):\n    return f"Hello, {name}."\n',
    "greeter/__main__.py": 'from greeter import greet\n\nprint(greet("world"))\n',
    "tests/test_greet.py": 'from greeter import greet\n\nassert greet("you") == "Hello, you."\n',
    ".gitignore": "*.local\n",
}
UNCOMMITTED = {
    "notes/ideas.md": "- greet in other languages (two hours of thinking, committed nowhere)\n",
    "greeter/languages.py": 'GREETINGS = {"de": "Hallo", "fr": "Bonjour", "eo": "Saluton"}\n',
}


@dataclass(frozen=True)
class Call:
    """One tool call, as the model asks for it."""

    tool: str
    arguments: dict[str, str]

    def __str__(self) -> str:
        shown = self.arguments.get("command") or self.arguments.get("path", "")
        return f"{self.tool}  {shown}"


TURNS: tuple[tuple[str, tuple[Call, ...]], ...] = (
    (
        "make the greeting friendlier",
        (
            Call("patch", {"path": "greeter/__init__.py", "old": "Hello, {name}.", "new": "Hello, dear {name}!"}),
            Call("write_file", {"path": "CHANGES.md", "content": "- friendlier greeting\n"}),
        ),
    ),
    (
        "clean the project up",
        (
            Call("terminal", {"command": "rm -rf notes greeter tests"}),
            Call("write_file", {"path": "README.md", "content": "# cleaned up\n"}),
        ),
    ),
)


@dataclass
class DemoAgent:
    """The loop of an agent: before every tool call it runs its hooks, as Claude Code and others do."""

    project: Path
    base: Path
    hook_ms: list[float] = field(default_factory=list)

    def make_project(self) -> None:
        for name, text in PROJECT.items():
            _write(self.project / name, text)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "A greeter")):
            self._run("git", "-c", "user.name=demo", "-c", "user.email=demo@localhost", *words)
        for name, text in UNCOMMITTED.items():
            _write(self.project / name, text)

    def begin_turn(self, number: int, prompt: str) -> None:
        self._hook("UserPromptSubmit", number, prompt=prompt)

    def call(self, number: int, call: Call) -> None:
        self._hook("PreToolUse", number, tool_name=call.tool, tool_input=call.arguments)
        tools: dict[str, Callable[..., None]] = {
            "write_file": self._write_file,
            "patch": self._patch,
            "terminal": self._terminal,
        }
        tools[call.tool](**call.arguments)

    def end_turn(self, number: int) -> None:
        self._hook("Stop", number)

    # --- tools -------------------------------------------------------------------------------

    def _write_file(self, path: str, content: str) -> None:
        _write(self.project / path, content)

    def _patch(self, path: str, old: str, new: str) -> None:
        text = (self.project / path).read_text("utf-8")
        (self.project / path).write_text(text.replace(old, new), "utf-8")

    def _terminal(self, command: str) -> None:
        self._run("sh", "-c", command)

    # --- the hook ----------------------------------------------------------------------------

    def _hook(self, event: str, turn: int, **more: Any) -> None:
        told = {"session_id": _SESSION, "prompt_id": str(turn), "cwd": str(self.project), "hook_event_name": event}
        began = time.perf_counter()
        payload = json.dumps({**told, **more}).encode()
        self._run(*program_words(), "hook", "claude", stdin=payload)
        if event == "PreToolUse":
            self.hook_ms.append((time.perf_counter() - began) * 1000)

    def _run(self, *words: str, stdin: bytes = b"") -> None:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        ours = {"SHADOWSNAP_HOME": str(self.base)}
        subprocess.run(
            words, cwd=self.project, env={**usual, **ours}, input=stdin, capture_output=True, check=True
        )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
