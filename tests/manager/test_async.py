"""`AsyncCheckpointManager` is the same manager for programs with an event loop."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import shadowsnap
from helpers import ROOT, manifest
from shadowsnap import AsyncCheckpointManager, CheckpointManager, steps
from shadowsnap.errors import DirtyWorkingTree, NoSuchProject, StageClosed
from shadowsnap.store.journal import read_journal
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of

T = TypeVar("T")


@pytest.fixture
def manager(base: Path) -> AsyncCheckpointManager:
    return AsyncCheckpointManager(base=base, background_upkeep=False)


def run(story: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(story, 60))


class Gate:
    """Stops the thread that comes to a step until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 60)


@contextmanager
def stopping_at(name: str) -> Iterator[Gate]:
    gate = Gate()

    def stop(step: str) -> None:
        if step == name and not gate.reached.is_set():
            gate.reached.set()
            gate.open.wait(60)

    steps.listener = stop
    try:
        yield gate
    finally:
        steps.listener = None
        gate.open.set()


# --- the same methods -------------------------------------------------------------------------------


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_it_has_every_method_with_the_same_arguments(base: Path) -> None:
    ours = AsyncCheckpointManager(base=base)
    assert public(CheckpointManager) | {"sync", "settings", "warnings"} == public(AsyncCheckpointManager) | {
        "sync"
    }
    assert {name for name in vars(CheckpointManager(base=base)) if name[0] != "_"} <= set(dir(ours))
    for name in public(CheckpointManager):
        theirs, mine = getattr(CheckpointManager, name), getattr(AsyncCheckpointManager, name)
        assert inspect.iscoroutinefunction(mine) == (name != "stage"), name
        assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters, name
        if name not in ("stage", "from_settings"):
            assert inspect.signature(mine).return_annotation == inspect.signature(theirs).return_annotation
        assert mine.__doc__ == theirs.__doc__
    initial = inspect.signature(CheckpointManager.__init__)
    assert inspect.signature(AsyncCheckpointManager.__init__) == initial


def test_a_type_checker_knows_what_is_awaited(tmp_path: Path) -> None:
    script = tmp_path / "typed.py"
    script.write_text(
        "from shadowsnap import AsyncCheckpointManager, CheckpointManager\n"
        "async def story(m: AsyncCheckpointManager) -> None:\n"
        "    reveal_type(await m.ensure_checkpoint('.'))\n"
        "    reveal_type(await m.list_checkpoints('.'))\n"
        "    async with m.stage('.') as s:\n"
        "        reveal_type(await s.commit('x'))\n"
        "    await m.restore('.', 7)\n"
        "reveal_type(CheckpointManager().restore('.', 'last'))\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-incremental",
        "--follow-imports=silent",
        str(script),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for told in (
        'typed.py:3: note: Revealed type is "shadowsnap.model.Outcome"',
        'list[shadowsnap.model.Checkpoint]"',
        'typed.py:6: note: Revealed type is "shadowsnap.model.Checkpoint"',
        'typed.py:7: error: Argument 2 to "restore" of "AsyncCheckpointManager" has incompatible type "int"',
        'typed.py:8: note: Revealed type is "shadowsnap.model.RestoreResult"',
    ):
        assert told in done.stdout
    assert "Found 1 error" in done.stdout


def test_the_package_names_it_and_loads_it_only_then() -> None:
    assert shadowsnap.AsyncCheckpointManager is AsyncCheckpointManager
    script = "import shadowsnap, sys; shadowsnap.CheckpointManager; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- awaiting ---------------------------------------------------------------------------------------


def test_a_turn_a_restore_and_a_revert(manager: AsyncCheckpointManager, project: Path) -> None:
    before = manifest(project)

    async def story() -> None:
        await manager.new_turn(session_id="s1", prompt="please")
        outcome = await manager.before_tool("write_file", {"path": "README.md"}, cwd=project)
        assert outcome.status == "taken" and outcome.checkpoint is not None
        (project / "README.md").write_text("by the agent\n")
        (closing,) = await manager.end_turn()
        assert closing.checkpoint is not None and closing.checkpoint.kind == "turn-end"
        with_work = manifest(project)
        assert [change.path for change in (await manager.diff(project, outcome.checkpoint.id)).changes] == [
            "README.md"
        ]
        await manager.restore(project, outcome.checkpoint.id)
        assert manifest(project) == before
        await manager.undo(project)
        assert manifest(project) == with_work
        assert (await manager.revert(project, session_id="s1")).written == ("README.md",)
        assert manifest(project) == before
        assert len(await manager.list_checkpoints(project, limit=2)) == 2
        assert (await manager.doctor()).healthy
        with pytest.raises(NoSuchProject):
            await manager.get(project / "src", "last")

    run(story())


def test_settings_of_the_person_are_read(base: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHADOWSNAP_MAX_SNAPSHOTS", "7")
    monkeypatch.setenv("SHADOWSNAP_DEADLINE", "soon")

    async def story() -> None:
        manager = await AsyncCheckpointManager.from_settings(base=base)
        assert isinstance(manager, AsyncCheckpointManager)
        assert manager.settings.max_snapshots == 7 and "DEADLINE" in manager.warnings[0]
        assert await manager.ensure_checkpoint(project)

    run(story())


def test_the_loop_goes_on_while_a_snapshot_is_taken(manager: AsyncCheckpointManager, project: Path) -> None:
    """The snapshot stands still until something else has run on the loop."""

    async def story() -> None:
        with stopping_at("snapshot:captured") as gate:
            taking = asyncio.create_task(manager.ensure_checkpoint(project))
            await gate.wait()
            gate.open.set()
            assert (await taking).status == "taken"

    run(story())


def test_many_at_once(manager: AsyncCheckpointManager, project: Path) -> None:
    async def story() -> None:
        outcomes = await asyncio.gather(*(manager.ensure_checkpoint(project) for _ in range(8)))
        assert sorted(outcome.status for outcome in outcomes) == ["already-taken"] * 7 + ["taken"]

    run(story())


# --- being cancelled --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["capture:scanned", "snapshot:captured", "snapshot:recorded"])
def test_a_cancelled_snapshot_is_finished_in_its_thread(
    manager: AsyncCheckpointManager, project: Path, step: str
) -> None:
    async def story() -> None:
        with stopping_at(step) as gate:
            taking = asyncio.create_task(manager.ensure_checkpoint(project))
            await gate.wait()
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking  # although the thread still stands at its step
        outcome = await manager.ensure_checkpoint(project)
        assert outcome.status == "already-taken"
        assert len(await manager.list_checkpoints(project)) == 1
        checkup = await manager.doctor()
        assert checkup.healthy and checkup.findings == ()

    run(story())


@pytest.mark.parametrize("step", ["restore:planned", "restore:begun", "restore:applying", "restore:settled"])
def test_a_cancelled_restore_is_finished_in_its_thread(
    manager: AsyncCheckpointManager, base: Path, project: Path, step: str
) -> None:
    before = manifest(project)

    async def story() -> None:
        await manager.ensure_checkpoint(project)
        (project / "README.md").write_text("changed\n")
        (project / "src" / "main.py").unlink()
        (project / "new.txt").write_text("new\n")
        changed = manifest(project)
        with stopping_at(step) as gate:
            restoring = asyncio.create_task(manager.restore(project, "last"))
            await gate.wait()
            restoring.cancel()
            with pytest.raises(asyncio.CancelledError):
                await restoring
        result = await manager.undo(project)  # waits for the lock of the restore
        assert result.note == ""  # nothing had to be recovered
        assert manifest(project) == changed
        await manager.redo(project)
        assert manifest(project) == before
        assert (await manager.doctor()).findings == ()

    run(story())


def test_a_failure_that_nobody_waits_for_is_silent(
    manager: AsyncCheckpointManager, base: Path, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        await manager.ensure_checkpoint(project)
        (project / "README.md").write_text("not in any checkpoint\n")
        with stopping_at("capture:scanned") as gate:
            entering = asyncio.create_task(manager.stage(project).__aenter__())
            await gate.wait()
            entering.cancel()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await entering

    run(story())
    assert caplog.records == []


# --- stages -----------------------------------------------------------------------------------------


def open_stages(base: Path, project: Path) -> int:
    return len(read_journal(Store(base), project_of(project)).stages)


def test_a_stage_is_committed(manager: AsyncCheckpointManager, base: Path, project: Path) -> None:
    async def story() -> None:
        await manager.ensure_checkpoint(project)
        async with manager.stage(project, edit_id="e1", session_id="s1", risk_tier="low") as stage:
            (project / "README.md").write_text("staged\n")
            assert open_stages(base, project) == 1
            checkpoint = await stage.commit("done")
        assert stage.checkpoint == checkpoint and stage.before is not None
        assert (checkpoint.kind, checkpoint.reason, checkpoint.session_id) == ("stage", "done", "s1")
        assert checkpoint.metadata["edit_id"] == "e1" and checkpoint.metadata["risk_tier"] == "low"
        async with manager.stage(project, message="by itself") as stage:
            (project / "README.md").write_text("staged again\n")
        assert stage.checkpoint is not None and stage.checkpoint.reason == "by itself"
        with pytest.raises(StageClosed):
            await stage.discard()
        assert open_stages(base, project) == 0

    run(story())


def test_a_stage_is_put_back(manager: AsyncCheckpointManager, base: Path, project: Path) -> None:
    before = manifest(project)

    async def fail() -> None:
        async with manager.stage(project):
            (project / "README.md").unlink()
            (project / "made" / "deep").mkdir(parents=True)
            raise KeyError("the agent's own")

    async def story() -> None:
        await manager.ensure_checkpoint(project)
        with pytest.raises(KeyError, match="own"):
            await fail()
        assert manifest(project) == before
        async with manager.stage(project) as stage:
            (project / "README.md").write_text("never mind\n")
            assert (await stage.discard()).written == ("README.md",)
        assert manifest(project) == before and open_stages(base, project) == 0
        (project / "README.md").write_text("not in any checkpoint\n")
        with pytest.raises(DirtyWorkingTree):
            await manager.stage(project).__aenter__()

    run(story())


def test_who_is_cancelled_in_a_stage_finds_everything_put_back(
    manager: AsyncCheckpointManager, base: Path, project: Path
) -> None:
    before = manifest(project)

    async def edit(inside: asyncio.Event) -> None:
        async with manager.stage(project):
            (project / "README.md").write_text("half done\n")
            inside.set()
            await asyncio.Event().wait()

    async def story() -> None:
        await manager.ensure_checkpoint(project)
        inside = asyncio.Event()
        editing = asyncio.create_task(edit(inside))
        await inside.wait()
        with stopping_at("restore:applying") as gate:
            editing.cancel()
            await gate.wait()
            editing.cancel()  # once more, while the files are being put back
            await asyncio.sleep(0)
            assert not editing.done()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await editing
        assert manifest(project) == before and open_stages(base, project) == 0

    run(story())


def test_who_is_cancelled_while_a_stage_begins_leaves_none_behind(
    manager: AsyncCheckpointManager, base: Path, project: Path
) -> None:
    async def story() -> None:
        await manager.ensure_checkpoint(project)
        before, count = manifest(project), len(await manager.list_checkpoints(project))
        with stopping_at("capture:scanned") as gate:
            entering = asyncio.create_task(manager.stage(project).__aenter__())
            await gate.wait()
            entering.cancel()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError):
                await entering
        assert open_stages(base, project) == 0
        assert manifest(project) == before and len(await manager.list_checkpoints(project)) == count
        async with manager.stage(project):
            assert open_stages(base, project) == 1

    run(story())


def test_a_stage_that_was_not_begun_cannot_end(manager: AsyncCheckpointManager, project: Path) -> None:
    with pytest.raises(StageClosed):
        run(manager.stage(project).commit())
