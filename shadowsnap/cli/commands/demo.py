"""The command that shows the main job end to end: a scripted agent uses real tools in a scratch directory, with
the hook before each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shadowsnap.agents.install import install, program_words
from shadowsnap.cli.commands import Command, Context
from shadowsnap.cli.commands.timeline import timeline_view
from shadowsnap.cli.tables import change_lines
from shadowsnap.cli.ui import Ui
from shadowsnap.errors import GitMissing
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
            with _scratch_home(top):
                answer = _Demo(context.ui, top / "shop").play()
        finally:
            if not args.keep:
                shutil.rmtree(top, ignore_errors=True)
        answer["directory"] = str(top) if args.keep else None
        look = f"Kept: HOME={top} SHADOWSNAP_HOME={top}/store shadowsnap -C {top}/shop list"
        return context.ui.answer(answer, [look] if args.keep else [], code=0 if answer["ok"] else 1)


@contextmanager
def _scratch_home(top: Path) -> Iterator[None]:
    """Give the demo a home of its own, so that it neither reads the person's settings nor touches their store."""
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


_NOTES = "- vouchers, bundles, prices per country (two hours of thinking, committed nowhere)\n"
_FILES = {
    "README.md": "# shop\n\nA cart and its total.\n",
    "cart.py": "def total(items):\n    return sum(price for _, price in items)\n",
    "tests/test_cart.py": 'from cart import total\n\nassert total([("tea", 4), ("cup", 6)]) == 10\n',
    ".gitignore": "*.local\n",
}
_CART_CLASS = '''\
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
_SUM = "sum(price for _, price in items)"
_DISCOUNTED = f"whole = {_SUM}\n    return whole * (100 - discount) // 100"
_TEST = 'assert total([("tea", 4), ("cup", 6)], discount=50) == 5\n'

_Call = tuple[str, dict[str, str]]
"""A tool and its input."""
_TURNS: tuple[tuple[str, list[_Call]], ...] = (
    (
        "add a discount parameter to total() and test it",
        [
            ("patch", {"path": "cart.py", "old": "(items):", "new": "(items, discount=0):"}),
            ("patch", {"path": "cart.py", "old": f"return {_SUM}", "new": _DISCOUNTED}),
            ("patch", {"path": "tests/test_cart.py", "old": "== 10\n", "new": f"== 10\n{_TEST}"}),
        ],
    ),
    (
        "Now please refactor the cart into a class, and keep total() working",
        [("write_file", {"path": "cart.py", "content": _CART_CLASS})],
    ),
    ("clean the project up", [("terminal", {"command": "rm -rf notes tests"})]),
)


class _Plain(Ui):
    """A terminal of 80 columns without colour."""

    def __init__(self) -> None:
        super().__init__(plain=True)

    @property
    def width(self) -> int:
        return 80


class _Demo:
    """Plays a person and an agent, which runs its hooks before every tool call as Claude Code does."""

    def __init__(self, ui: Ui, project: Path) -> None:
        self._ui = ui
        self._project = project
        self._manager: CheckpointManager = CheckpointManager.from_settings()
        self._hook_ms: list[float] = []

    def play(self) -> dict[str, Any]:
        began, last = time.perf_counter(), len(_TURNS)
        if shutil.which("git") is None:
            raise GitMissing()
        install("claude")
        self._make_project()
        self._title("1. A project, with notes that are committed nowhere")
        self._show(*sorted(self._files()))
        calls: list[str] = []
        for number, (prompt, some) in enumerate(_TURNS, 1):
            if number == last:  # between two turns the person edits something
                self._write("README.md", f"{_FILES['README.md']}Ask Mina about vouchers.\n")
            work = self._files()
            calls += self._play_turn(number, prompt, some)
        lost = {name: data for name, data in work.items() if name not in self._files()}
        self._show(f"gone: {', '.join(sorted(lost))}", style="red")
        with open(self._project / "cart.py", "a", encoding="utf-8") as file:
            file.write("# where did everything go?\n")
        entries, lines = self._timeline()
        patch = self._compare(last)
        return {
            "ok": self._go_back_and_forth(last, lost),
            "prompts": [prompt for prompt, _ in _TURNS],
            "calls": calls,
            "lost": sorted(lost),
            "picture": lines,
            "entries": entries,
            "patch": patch,
            "hook_ms": [round(each, 1) for each in self._hook_ms],
            "snapshot_ms": self._time_snapshots(),
            "seconds": round(time.perf_counter() - began, 2),
        }

    def _make_project(self) -> None:
        for name, text in _FILES.items():
            self._write(name, text)
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "A cart")):
            self._run("git", "-c", "user.name=demo", "-c", "user.email=demo@localhost", *words)
        self._write("notes/ideas.md", _NOTES)

    def _play_turn(self, number: int, prompt: str, calls: Sequence[_Call]) -> Iterator[str]:
        self._title(f'{number + 1}. You ask: "{prompt}"')
        self._hook("UserPromptSubmit", number, prompt=prompt)
        for tool, given in calls:
            self._hook("PreToolUse", number, tool_name=tool, tool_input=given)
            if tool == "terminal":
                self._run("sh", "-c", given["command"])
            elif tool == "write_file":
                self._write(given["path"], given["content"])
            else:
                text = (self._project / given["path"]).read_text("utf-8")
                self._write(given["path"], text.replace(given["old"], given["new"]))
            line = f"{tool}  {given.get('command') or given['path']}"
            self._show(f"{line:<44} (hook {self._hook_ms[-1]:.0f} ms)")
            yield line
        self._hook("Stop", number)

    def _timeline(self) -> tuple[list[Entry], list[str]]:
        """The timeline as `shadowsnap` shows it on a terminal of 80 columns."""
        self._title("5. What happened: shadowsnap")
        entries, now = self._manager.timeline(self._project), self._manager.now(self._project)
        lines = timeline_view(Context(_Plain(), here=str(self._project)), entries, now, hints=True)
        self._show(*lines)
        return entries, lines

    def _compare(self, number: int) -> str:
        self._title(f"6. What turn {number} did: shadowsnap diff {number} --stat")
        diff = self._manager.diff(self._project, number, f"{number}:after")
        self._show(*change_lines(diff.changes, _Plain().width, _Plain().ink))
        return diff.text

    def _go_back_and_forth(self, number: int, lost: dict[str, bytes]) -> bool:
        """Undo, redo and restore; whether all lost files come back each time, and the person's later edit
        stays."""
        after = self._files()
        self._title("7. Back: shadowsnap undo")
        result = self._manager.undo(self._project)
        self._show(f"took back {result.what}", *(f"  wrote    {path}" for path in result.written))
        back = self._files()
        whole = lost.items() <= back.items() and back["cart.py"] == after["cart.py"]
        self._show("every byte of the lost files is back, and your edits stay" if whole else "NOT all is back")
        self._title(f"8. And forth: shadowsnap redo; and back once more: shadowsnap restore {number}")
        self._manager.redo(self._project)
        redone = self._files() == after
        self._manager.restore(self._project, number)
        undone = lost.items() <= self._files().items()
        self._show("redo brought the agent's state, restore yours" if undone and redone else "this FAILED")
        return whole and undone and redone

    def _time_snapshots(self) -> list[float]:
        taken = []
        for number in range(5):
            self._write("README.md", f"# change {number}\n")
            self._manager.new_turn()
            began = time.perf_counter()
            self._manager.ensure_checkpoint(self._project, "timed")
            taken.append(round((time.perf_counter() - began) * 1000, 1))
        middle = sorted(self._hook_ms)[len(self._hook_ms) // 2]
        hook = f"A hook took {middle:.0f} ms, most of it the start of Python"
        self._title(f"{hook}; a snapshot alone takes {min(taken):.1f} ms.")
        return taken

    # --- what the person and the agent do ---------------------------------------------------------------

    def _files(self) -> dict[str, bytes]:
        """Every file outside .git with its bytes."""
        files = [path for path in sorted(self._project.rglob("*")) if path.is_file()]
        names = {path.relative_to(self._project).as_posix(): path for path in files}
        return {name: path.read_bytes() for name, path in names.items() if not name.startswith(".git/")}

    def _write(self, name: str, text: str) -> None:
        path = self._project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def _hook(self, event: str, turn: int, **more: Any) -> None:
        facts = {"session_id": "7f3c1e52-demo", "prompt_id": str(turn), "cwd": str(self._project)}
        facts["hook_event_name"] = event
        began = time.perf_counter()
        self._run(*program_words(), "hook", "claude", stdin=json.dumps({**facts, **more}).encode())
        if event == "PreToolUse":
            self._hook_ms.append((time.perf_counter() - began) * 1000)

    def _run(self, *words: str, stdin: bytes = b"") -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        subprocess.run(
            words, cwd=self._project, env=environment, input=stdin, capture_output=True, check=True
        )

    def _title(self, text: str) -> None:
        self._ui.say(f"\n{self._ui.talk_ink('bold', text)}")

    def _show(self, *lines: str, style: str = "") -> None:
        for line in lines:
            self._ui.say(f"    {self._ui.talk_ink(style, line) if style else line}")
