"""Plain functions as tools: a snapshot comes before a tool that may write."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.integrations.guard import guard


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


def test_a_tool_runs_after_its_snapshot(manager: CheckpointManager, project: Path) -> None:
    @guard(manager, project)
    def write_file(path: str, content: str) -> str:
        """Write a file."""
        (project / path).write_text(content)
        return "done"

    assert write_file("README.md", content="new\n") == "done"
    taken = manager.list_checkpoints(project)
    assert [(each.tool, each.reason) for each in taken] == [("write_file", "before write_file README.md")]
    manager.restore(project, "last")
    assert (project / "README.md").read_text() == "# A project\n"


def test_name_docstring_and_signature_of_a_tool_stay(manager: CheckpointManager) -> None:
    def write_file(path: str, *, content: str = "") -> str:
        """Write a file."""
        return path

    guarded = guard(manager)(write_file)
    assert (guarded.__name__, guarded.__doc__) == ("write_file", "Write a file.")
    assert inspect.signature(guarded) == inspect.signature(write_file)


def test_arguments_are_known_by_name_however_they_are_given(manager: CheckpointManager, project: Path) -> None:
    git(project, "init")
    (project / ".gitignore").write_text("*.local\n")
    for name in ("a", "b", "c"):
        (project / f"{name}.local").write_text(name)

    @guard(manager, project)
    def tool(path: Any, **more: Any) -> None: ...

    tool(project / "a.local")
    tool(path="b.local")
    tool("x", file_path="c.local")
    assert {"a.local", "b.local", "c.local"} <= set(manager.files(project, manager.list_checkpoints(project)[0]))


def test_a_tool_that_reads_takes_nothing(manager: CheckpointManager, project: Path, base: Path) -> None:
    @guard(manager, project)
    def read_file(path: str) -> str:
        return (project / path).read_text()

    assert read_file("README.md") == "# A project\n"
    assert not base.exists()


def test_another_name_can_be_given(manager: CheckpointManager, project: Path) -> None:
    guard(manager, project, name="shell")(lambda command: command)("ls")
    assert manager.get(project, "last").tool == "shell"


def test_the_current_directory_counts_if_none_is_given(
    manager: CheckpointManager, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    guard(manager)(lambda: None)()
    assert manager.list_checkpoints(project)


def test_an_async_tool_does_not_block_the_loop(manager: CheckpointManager, project: Path) -> None:
    threads = []
    real = manager.before_tool

    def watched(*args: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*args, **named)

    manager.before_tool = watched  # type: ignore[method-assign]

    @guard(manager, project)
    async def write_file(path: str) -> str:
        (project / path).write_text("new\n")
        return "done"

    assert inspect.iscoroutinefunction(write_file)
    assert asyncio.run(write_file("README.md")) == "done"
    assert threads and threads[0] is not threading.main_thread()
    manager.restore(project, "last")
    assert (project / "README.md").read_text() == "# A project\n"


def test_a_tool_that_streams_is_guarded_before_its_first_item(manager: CheckpointManager, project: Path) -> None:
    @guard(manager, project)
    async def work(path: str) -> AsyncIterator[str]:
        for word in ("one", "two"):
            (project / path).write_text(word)
            yield word

    async def collect() -> list[str]:
        return [word async for word in work("README.md")]

    assert asyncio.run(collect()) == ["one", "two"]
    manager.restore(project, "last")
    assert (project / "README.md").read_text() == "# A project\n"


def test_objects_that_can_be_called_are_tools_too(manager: CheckpointManager, project: Path) -> None:
    class Writer:
        async def __call__(self, path: str) -> str:
            return path

    assert asyncio.run(guard(manager, project)(Writer())("README.md")) == "README.md"
    assert manager.get(project, "last").tool == "Writer"


def test_parallel_tools_of_one_turn_share_one_snapshot(manager: CheckpointManager, project: Path) -> None:
    @guard(manager, project)
    async def write_file(path: str) -> None:
        (project / path).write_text("new\n")

    async def run() -> None:
        await asyncio.gather(*(write_file(f"file-{number}") for number in range(8)))

    asyncio.run(run())
    assert len(manager.list_checkpoints(project)) == 1
    assert not any(path.startswith("file-") for path in manager.files(project, "last"))


def test_a_failing_safety_net_does_not_stop_the_tool(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = CheckpointManager(base=tmp_path / "file")
    assert guard(broken, project)(lambda: "done")() == "done"


def test_errors_of_the_tool_are_its_own(manager: CheckpointManager, project: Path) -> None:
    @guard(manager, project)
    def tool(path: str) -> None:
        raise KeyError(path)

    with pytest.raises(KeyError):
        tool("x")
    with pytest.raises(TypeError):
        tool()  # type: ignore[call-arg]
