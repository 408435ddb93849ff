"""What every adapter promises, whatever the framework. Each test module drives a real agent of its
framework with a model that calls the tools it is told to."""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers import ROOT
from shadowsnap import Checkpoint, CheckpointManager

Call = tuple[str, dict[str, Any]]
Script = Sequence[Sequence[Call] | Exception]
"""What the model does step by step: calls these tools at once, or fails. Then it says "done"."""

PAGE = (ROOT / "shadowsnap" / "docs" / "frameworks.md").read_text("utf-8")


def write(path: str, content: str) -> Call:
    return "write_file", {"path": path, "content": content}


def read(path: str) -> Call:
    return "read_file", {"path": path}


class Tools:
    """The tools of an agent that works in a directory."""

    def __init__(self, project: Path) -> None:
        self.project = project

    def all(self) -> list[Callable[..., str]]:
        def write_file(path: str, content: str) -> str:
            """Write a file.

            Args:
                path: where
                content: what
            """
            (self.project / path).write_text(content)
            return "written"

        def read_file(path: str) -> str:
            """Read a file.

            Args:
                path: which
            """
            return (self.project / path).read_text()

        return [write_file, read_file]


class Driver:
    """One adapter in one program: any number of runs of agents that use it."""

    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        raise NotImplementedError

    async def arun(self, prompt: str, script: Script) -> None:
        raise NotImplementedError

    def run(self, prompt: str, script: Script) -> None:
        asyncio.run(self.arun(prompt, script))


class Watched(CheckpointManager):
    """Remembers in which threads snapshots were taken."""

    def __init__(self, **settings: Any) -> None:
        self.threads: list[threading.Thread] = []
        super().__init__(
            fsync=False, on_event=lambda event: self.threads.append(threading.current_thread()), **settings
        )


class Broken(CheckpointManager):
    """Fails in ways that no manager should."""

    def new_turn(self, *args: Any, **named: Any) -> None:
        raise RuntimeError("broken")

    def before_tool(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("broken")

    def after_tool(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("broken")

    def end_turn(self, *args: Any, **named: Any) -> Any:
        raise RuntimeError("broken")


class Contract:
    driver: type[Driver]
    heading: str
    """The section of the documentation."""

    @pytest.fixture
    def manager(self, base: Path) -> Watched:
        return Watched(base=base)

    @pytest.fixture
    def drive(self, manager: Watched, project: Path) -> Driver:
        return self.driver(manager, project)

    def test_the_state_before_the_write_is_kept(self, manager: Watched, project: Path, drive: Driver) -> None:
        drive.run("shout", [[write("README.md", "LOUD\n")]])
        assert (project / "README.md").read_text() == "LOUD\n"
        (before,) = begun(manager, project)
        assert (before.metadata["prompt"], before.reason) == ("shout", "before write_file README.md")
        manager.restore(project, before.id)
        assert (project / "README.md").read_text() == "# A project\n"

    def test_the_turn_is_closed_when_the_run_ends(self, manager: Watched, project: Path, drive: Driver) -> None:
        drive.run("shout", [[write("README.md", "LOUD\n")]])
        newest, before = manager.list_checkpoints(project)
        assert (newest.kind, newest.turn) == ("turn-end", before.turn)

    def test_writes_of_one_run_share_one_snapshot(self, manager: Watched, project: Path, drive: Driver) -> None:
        drive.run("work", [[write("one", "1")], [read("one")], [write("two", "2"), write("three", "3")]])
        assert [(project / name).read_text() for name in ("one", "two", "three")] == ["1", "2", "3"]
        (before,) = begun(manager, project)
        assert not {"one", "two", "three"} & set(manager.files(project, before.id))

    def test_the_first_tools_at_once_share_one_snapshot(
        self, manager: Watched, project: Path, drive: Driver
    ) -> None:
        drive.run("work", [[write("one", "1"), write("two", "2"), write("three", "3")]])
        (before,) = begun(manager, project)
        assert not {"one", "two", "three"} & set(manager.files(project, before.id))

    def test_every_run_is_a_turn(self, manager: Watched, project: Path, drive: Driver) -> None:
        drive.run("first", [[write("README.md", "by the agent\n")]])
        (project / "README.md").write_text("by me\n")
        drive.run("second", [[write("README.md", "by the agent again\n")]])
        assert [each.metadata["prompt"] for each in begun(manager, project)] == ["second", "first"]
        manager.restore(project, begun(manager, project)[0].id)
        assert (project / "README.md").read_text() == "by me\n"

    def test_what_each_call_did_is_kept_if_the_manager_wants_it(self, base: Path, project: Path) -> None:
        manager = Watched(base=base, granularity="tool")
        self.driver(manager, project).run("work", [[write("one", "1")], [read("one")], [write("two", "2")]])
        kept = reversed(manager.list_checkpoints(project))
        states = [sorted({"one", "two"} & set(manager.files(project, each.id))) for each in kept]
        assert states == [[], ["one"], ["one", "two"]]
        assert all(each.reason.startswith("after ") for each in manager.list_checkpoints(project)[:2])

    def test_a_run_that_failed_does_not_cover_the_next(
        self, manager: Watched, project: Path, drive: Driver
    ) -> None:
        failed = False
        try:
            drive.run("first", [[write("README.md", "by the agent\n")], RuntimeError("the model is gone")])
        except Exception:
            failed = True
        assert failed or not self.raises
        (project / "README.md").write_text("by me\n")
        drive.run("second", [[write("README.md", "by the agent again\n")]])
        manager.restore(project, begun(manager, project)[0].id)
        assert (project / "README.md").read_text() == "by me\n"

    raises = True
    """Whether an error of the model is one of the run."""

    def test_a_run_that_only_reads_takes_nothing(self, base: Path, manager: Watched, drive: Driver) -> None:
        drive.run("look", [[read("README.md")], [read("src/main.py"), read("empty")]])
        assert not base.exists()
        assert manager.threads == []

    def test_the_run_goes_on_without_git(
        self, manager: Watched, project: Path, drive: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        drive.run("shout", [[write("README.md", "LOUD\n")]])
        assert (project / "README.md").read_text() == "LOUD\n"
        assert manager.threads  # it was tried

    def test_the_run_goes_on_without_a_working_manager(self, base: Path, project: Path) -> None:
        broken = Broken(base=base, granularity="tool")
        self.driver(broken, project).run("shout", [[write("README.md", "LOUD\n")], [read("README.md")]])
        assert (project / "README.md").read_text() == "LOUD\n"

    def test_the_example_in_the_documentation_works(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        section = PAGE.partition(f"\n## {self.heading}\n")[2].partition("\n## ")[0]
        (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        self.example(code, project)
        assert (project / "haiku.txt").read_text() == "snow\n"
        manager = CheckpointManager()
        (before,) = begun(manager, project)
        assert before.metadata["prompt"] == "write a haiku"
        assert "haiku.txt" not in manager.files(project, before.id)

    def example(self, code: str, project: Path) -> None:
        """Run the example, with `model` and `write_file` as it needs them."""
        raise NotImplementedError


class AsyncContract(Contract):
    """Of frameworks that run on an event loop."""

    def test_an_async_run_does_not_block_the_loop(self, manager: Watched, project: Path, drive: Driver) -> None:
        async def loop() -> threading.Thread:
            await drive.arun("shout", [[write("README.md", "LOUD\n")]])
            return threading.current_thread()

        loop_thread = asyncio.run(loop())
        assert len(manager.threads) >= 2  # before and after
        assert loop_thread not in manager.threads

    def test_runs_at_the_same_time_are_turns_of_their_own(
        self, manager: Watched, project: Path, drive: Driver
    ) -> None:
        async def both() -> None:
            await asyncio.gather(
                drive.arun("one", [[write("one-1", "1")], [write("one-2", "2")]]),
                drive.arun("two", [[write("two-1", "1")], [write("two-2", "2")]]),
            )

        asyncio.run(both())
        assert {(project / name).read_text() for name in ("one-2", "two-2")} == {"2"}
        for name in ("one", "two"):
            mine = [each for each in manager.list_checkpoints(project) if each.metadata["prompt"] == name]
            started = [each for each in mine if each.kind == "turn"]
            assert len(started) <= 1  # none if the other run took the very same state
            assert not any(path.startswith(name) for each in started for path in manager.files(project, each.id))
        assert begun(manager, project)


HAIKU: Script = [[write("haiku.txt", "snow\n")]]


def run_example(code: str, **names: Any) -> None:
    """An example may await, as in a notebook."""
    import ast

    compiled = compile(code, "frameworks.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        exec(compiled, names)


def begun(manager: CheckpointManager, project: Path) -> list[Checkpoint]:
    """The checkpoints from before the writes of a turn, newest first."""
    return [each for each in manager.list_checkpoints(project) if each.kind == "turn"]
