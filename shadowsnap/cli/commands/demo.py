"""Show the main job end to end, in a temporary directory.

A scripted agent works on a small project with real tools, one of them `rm -rf`, with the hook in
place. Then the timeline, what was lost, the rollback, the undo, and how long snapshots took.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.cli.context import Context

if TYPE_CHECKING:
    from shadowsnap.cli.demo_agent import DemoAgent
    from shadowsnap.manager import CheckpointManager

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="leave the directory for a look around")


def run(args: argparse.Namespace, context: Context) -> int:
    import shutil
    import tempfile

    top = Path(tempfile.mkdtemp(prefix="shadowsnap-demo-")).resolve()
    try:
        told = _Demo(context, top).play()
    finally:
        if not args.keep:
            shutil.rmtree(top, ignore_errors=True)
    told["directory"] = str(top) if args.keep else None
    look = f"Kept: SHADOWSNAP_HOME={top}/store shadowsnap -C {top}/project list"
    return context.ui.answer(told, [look] if args.keep else [], code=0 if told["ok"] else 1)


class _Demo:
    def __init__(self, context: Context, top: Path) -> None:
        from shadowsnap.cli.demo_agent import DemoAgent
        from shadowsnap.manager import CheckpointManager

        self._ui = context.ui
        self._project = top / "project"
        self._project.mkdir()
        self._manager: CheckpointManager = CheckpointManager(base=top / "store")
        self._agent: DemoAgent = DemoAgent(self._project, top / "store")

    def play(self) -> dict[str, Any]:
        began = time.perf_counter()
        self._agent.make_project()
        work = _picture(self._project)
        self._title("1. A project, with work that is committed nowhere")
        self._show(*sorted(work))
        turns = self._let_agent_work()
        lost = sorted(set(work) - set(_picture(self._project)))
        self._show(f"gone: {', '.join(lost)}", style="red")
        entries = self._timeline()
        disaster = entries[0]["number"]
        diff = self._compare(disaster)
        ok, snapshots = self._go_back_and_forth(disaster, work)
        return {
            "ok": ok,
            "turns": turns,
            "lost": lost,
            "entries": entries,
            "patch": diff,
            "hook_ms": [round(each, 1) for each in self._agent.hook_ms],
            "snapshot_ms": snapshots,
            "seconds": round(time.perf_counter() - began, 2),
        }

    def _let_agent_work(self) -> list[dict[str, Any]]:
        from shadowsnap.cli.demo_agent import TURNS

        done = []
        for number, (prompt, calls) in enumerate(TURNS, 1):
            self._title(f'{number + 1}. You say: "{prompt}"')
            self._agent.begin_turn(number, prompt)
            for call in calls:
                self._agent.call(number, call)
                self._show(f"{str(call):<44} (hook {self._agent.hook_ms[-1]:.0f} ms)")
            self._agent.end_turn(number)
            done.append({"prompt": prompt, "calls": [str(call) for call in calls]})
        return done

    def _timeline(self) -> list[dict[str, Any]]:
        from shadowsnap.cli.tables import timeline_lines

        self._title("4. The timeline: shadowsnap")
        found, now = self._manager.timeline(self._project), self._manager.now(self._project)
        self._show(*timeline_lines(found, now, self._ui.width - 4, self._ui.talk_ink))
        return [entry.to_dict() for entry in found]

    def _compare(self, number: int) -> str:
        self._title(f"5. What turn {number} did: shadowsnap diff {number}")
        diff = self._manager.diff(self._project, number, f"{number}:after")
        for change in diff.changes:
            self._show(f"{change.status:<10} {change.path}")
        return diff.text

    def _go_back_and_forth(self, number: int, work: dict[str, bytes]) -> tuple[bool, list[float]]:
        self._title("6. Back: shadowsnap undo")
        after = _picture(self._project)
        result = self._manager.undo(self._project)
        self._show(f"took back {result.what}")
        back = _picture(self._project)
        self._show(f"{len(result.written)} files written, {len(result.deleted)} deleted")
        whole = all(back.get(name) == data for name, data in work.items() if name != "greeter/__init__.py")
        self._show("every byte of your uncommitted work is back" if whole else "NOT everything is back")
        self._title(f"7. And forth: shadowsnap redo, and back once more: shadowsnap restore {number}")
        self._manager.redo(self._project)
        redone = _picture(self._project) == after
        self._manager.restore(self._project, number)
        undone = _picture(self._project) == back
        self._show("redo brought the agent's state, restore yours" if undone and redone else "this FAILED")
        snapshots = self._time_snapshots()
        self._title(f"A snapshot of this project takes {min(snapshots):.1f} ms.")
        return whole and undone and redone, snapshots

    def _time_snapshots(self) -> list[float]:
        taken = []
        for number in range(5):
            (self._project / "README.md").write_text(f"# change {number}\n", "utf-8")
            self._manager.new_turn()
            began = time.perf_counter()
            self._manager.ensure_checkpoint(self._project, "timed")
            taken.append(round((time.perf_counter() - began) * 1000, 1))
        return taken

    def _title(self, text: str) -> None:
        self._ui.say(f"\n{self._ui.talk_ink('bold', text)}")

    def _show(self, *lines: str, style: str = "") -> None:
        for line in lines:
            self._ui.say(f"    {self._ui.talk_ink(style, line) if style else line}")


def _picture(project: Path) -> dict[str, bytes]:
    """Every file outside .git with its bytes."""
    return {
        path.relative_to(project).as_posix(): path.read_bytes()
        for path in sorted(project.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(project).parts
    }
