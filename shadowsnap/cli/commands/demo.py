"""The command that shows the main job end to end in a scratch directory.

A scripted agent uses real tools there, with the hook before each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowsnap.agents.install import install, program_words
from shadowsnap.cli.commands import Command, Context
from shadowsnap.cli.commands.timeline import picture
from shadowsnap.cli.ui import Ui
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Entry


class DemoCommand(Command):
    """Show the main job end to end, in a temporary directory.

    A scripted agent works on a small project with real tools, one of them `rm -rf`, with the hook in place. Then
    the timeline, what was lost, undo, redo and restore, and how long hooks and snapshots took.
    """

    name = "demo"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--keep", action="store_true", help="leave the directory for a look around")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        top = Path(tempfile.mkdtemp(prefix="shadowsnap-demo-")).resolve()
        try:
            with _at_home_in(top):
                answer = _Demo(context.ui, top).play()
        finally:
            if not args.keep:
                shutil.rmtree(top, ignore_errors=True)
        answer["directory"] = str(top) if args.keep else None
        look = f"Kept: HOME={top} SHADOWSNAP_HOME={top}/store shadowsnap -C {top}/shop list"
        return context.ui.answer(answer, [look] if args.keep else [], code=0 if answer["ok"] else 1)


@contextmanager
def _at_home_in(top: Path) -> Iterator[None]:
    """The demo has a home of its own: neither the person's settings nor their store have a part in it."""
    names = [name for name in os.environ if name.startswith(("SHADOWSNAP_", "XDG_", "CLAUDE_"))]
    saved = {name: os.environ.get(name) for name in (*names, "HOME")}
    for name in names:
        del os.environ[name]
    os.environ |= {"HOME": str(top), "SHADOWSNAP_HOME": str(top / "store")}
    try:
        yield
    finally:
        for name in ("SHADOWSNAP_HOME", *saved):
            os.environ.pop(name, None)
        os.environ |= {name: value for name, value in saved.items() if value is not None}


class _Plain(Ui):
    """A terminal of 80 columns without colour."""

    def __init__(self) -> None:
        super().__init__(plain=True)

    @property
    def width(self) -> int:
        return 80


class _Demo:
    def __init__(self, ui: Ui, top: Path) -> None:
        self._ui = ui
        self._project = top / "shop"
        self._project.mkdir()
        self._manager: CheckpointManager = CheckpointManager.from_settings()
        self._agent: DemoAgent = DemoAgent(self._project)

    def play(self) -> dict[str, Any]:
        began = time.perf_counter()
        install("claude")
        self._agent.make_project()
        self._title("1. A project, with notes that are committed nowhere")
        self._show(*sorted(_files(self._project)))
        for number, (prompt, calls) in enumerate(TURNS, 1):
            if number == len(TURNS):
                self._agent.edit_by_hand()
            work = _files(self._project)
            self._let_agent_work(number, prompt, calls)
        lost = sorted(set(work) - set(_files(self._project)))
        self._show(f"gone: {', '.join(lost)}", style="red")
        self._agent.edit_later()
        entries, picture = self._timeline()
        patch = self._compare(len(TURNS))
        ok = self._go_back_and_forth(len(TURNS), {name: work[name] for name in lost})
        snapshots = self._time_snapshots()
        return {
            "ok": ok,
            "prompts": [prompt for prompt, _ in TURNS],
            "calls": [str(call) for _, calls in TURNS for call in calls],
            "lost": lost,
            "picture": picture,
            "entries": entries,
            "patch": patch,
            "hook_ms": [round(each, 1) for each in self._agent.hook_ms],
            "snapshot_ms": snapshots,
            "seconds": round(time.perf_counter() - began, 2),
        }

    def _let_agent_work(self, number: int, prompt: str, calls: Sequence[Call]) -> None:
        self._title(f'{number + 1}. You ask: "{prompt}"')
        self._agent.begin_turn(number, prompt)
        for call in calls:
            self._agent.call(number, call)
            self._show(f"{str(call):<44} (hook {self._agent.hook_ms[-1]:.0f} ms)")
        self._agent.end_turn(number)

    def _timeline(self) -> tuple[list[Entry], list[str]]:
        """The timeline as `shadowsnap` shows it on a terminal of 80 columns."""
        self._title("5. What happened: shadowsnap")
        entries, now = self._manager.timeline(self._project), self._manager.now(self._project)
        context = Context(_Plain(), here=str(self._project))
        lines = picture(context, entries, now, hints=True)
        self._show(*lines)
        return entries, lines

    def _compare(self, number: int) -> str:
        self._title(f"6. What turn {number} did: shadowsnap diff {number} --stat")
        diff = self._manager.diff(self._project, number, f"{number}:after")
        for change in diff.changes:
            self._show(f"{change.status:<10} {change.path}")
        return diff.text

    def _go_back_and_forth(self, number: int, lost: dict[str, bytes]) -> bool:
        """Whether everything that was lost comes back, and the person's later edit stays."""
        after = _files(self._project)
        self._title("7. Back: shadowsnap undo")
        result = self._manager.undo(self._project)
        self._show(f"took back {result.what}", *(f"  wrote    {path}" for path in result.written))
        back = _files(self._project)
        whole = all(back.get(name) == data for name, data in lost.items()) and back["cart.py"] == after["cart.py"]
        self._show("every byte of the lost files is back, and your edits stay" if whole else "NOT all is back")
        self._title(f"8. And forth: shadowsnap redo; and back once more: shadowsnap restore {number}")
        self._manager.redo(self._project)
        redone = _files(self._project) == after
        self._manager.restore(self._project, number)
        undone = all(_files(self._project).get(name) == data for name, data in lost.items())
        self._show("redo brought the agent's state, restore yours" if undone and redone else "this FAILED")
        return whole and undone and redone

    def _time_snapshots(self) -> list[float]:
        taken = []
        for number in range(5):
            (self._project / "README.md").write_text(f"# change {number}\n", "utf-8")
            self._manager.new_turn()
            began = time.perf_counter()
            self._manager.ensure_checkpoint(self._project, "timed")
            taken.append(round((time.perf_counter() - began) * 1000, 1))
        hooks = sorted(self._agent.hook_ms)
        hook = f"A hook took {hooks[len(hooks) // 2]:.0f} ms, most of it the start of Python"
        self._title(f"{hook}; a snapshot alone takes {min(taken):.1f} ms.")
        return taken

    def _title(self, text: str) -> None:
        self._ui.say(f"\n{self._ui.talk_ink('bold', text)}")

    def _show(self, *lines: str, style: str = "") -> None:
        for line in lines:
            self._ui.say(f"    {self._ui.talk_ink(style, line) if style else line}")


def _files(project: Path) -> dict[str, bytes]:
    """Every file outside .git with its bytes."""
    return {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(project).parts
    }


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
