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

_SESSION = "7f3c1e52-demo"

COMMITTED = {
    "README.md": "# shop\n\nA cart and its total.\n",
    "cart.py": "def total(items):\n    return sum(price for _, price in items)\n",
    "tests/test_cart.py": 'from cart import total\n\nassert total([("tea", 4), ("cup", 6)]) == 10\n',
    ".gitignore": "*.local\n",
}
UNCOMMITTED = {
    "notes/ideas.md": "- vouchers, bundles, prices per country (two hours of thinking, committed nowhere)\n",
}
OWN_EDITS = ("README.md", "# shop\n\nA cart and its total.\nAsk Mina about vouchers.\n")
"""What the person changes between the second and the third turn."""
LATER_EDITS = ("cart.py", "# where did everything go?\n")
"""What the person adds after the last turn."""

_CLASS = '''\
class Cart:
    def __init__(self, items=()):
        self.items = list(items)

    def add(self, name, price):
        self.items.append((name, price))

    def total(self, discount=0):
        whole = sum(price for _, price in self.items)
        return whole * (100 - discount) // 100


def total(items, discount=0):
    return Cart(items).total(discount)
'''


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
        "add a discount parameter to total() and test it",
        (
            Call("patch", {"path": "cart.py", "old": "(items):", "new": "(items, discount=0):"}),
            Call(
                "patch",
                {
                    "path": "cart.py",
                    "old": "return sum(price for _, price in items)",
                    "new": "whole = sum(price for _, price in items)\n    return whole * (100 - discount) // 100",
                },
            ),
            Call(
                "patch",
                {
                    "path": "tests/test_cart.py",
                    "old": "== 10\n",
                    "new": '== 10\nassert total([("tea", 4), ("cup", 6)], discount=50) == 5\n',
                },
            ),
        ),
    ),
    (
        "Now please refactor the cart into a class, and keep total() working",
        (Call("write_file", {"path": "cart.py", "content": _CLASS}),),
    ),
    (
        "clean the project up",
        (Call("terminal", {"command": "rm -rf notes tests"}),),
    ),
)


@dataclass
class DemoAgent:
    """The loop of an agent: before every tool call it runs its hooks, as Claude Code and others do."""

    project: Path
    hook_ms: list[float] = field(default_factory=list)

    def make_project(self) -> None:
        for name, text in COMMITTED.items():
            _write(self.project / name, text)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "A cart")):
            self._run("git", "-c", "user.name=demo", "-c", "user.email=demo@localhost", *words)
        for name, text in UNCOMMITTED.items():
            _write(self.project / name, text)

    def edit_by_hand(self) -> None:
        name, text = OWN_EDITS
        _write(self.project / name, text)

    def edit_later(self) -> None:
        name, text = LATER_EDITS
        with open(self.project / name, "a", encoding="utf-8") as file:
            file.write(text)

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
        facts = {"session_id": _SESSION, "prompt_id": str(turn), "cwd": str(self.project)}
        facts["hook_event_name"] = event
        began = time.perf_counter()
        self._run(*program_words(), "hook", "claude", stdin=json.dumps({**facts, **more}).encode())
        if event == "PreToolUse":
            self.hook_ms.append((time.perf_counter() - began) * 1000)

    def _run(self, *words: str, stdin: bytes = b"") -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        subprocess.run(
            words, cwd=self.project, env=environment, input=stdin, capture_output=True, check=True
        )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
