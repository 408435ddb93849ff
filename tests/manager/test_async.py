"""`AsyncCheckpointManager` is the same manager for programs with an event loop."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import pydoc
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
from reference import STUB, stub_text
from shadowsnap import AsyncCheckpointManager, CheckpointManager, Settings, deadline
from shadowsnap.errors import DirtyWorkingTree, NoSuchProject, StageClosed
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of, read_journal

T = TypeVar("T")


@pytest.fixture
def manager(base: Path) -> AsyncCheckpointManager:
    return AsyncCheckpointManager(base=base, background_upkeep=False, fsync=False)


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

    deadline.step_listener = stop
    try:
        yield gate
    finally:
        deadline.step_listener = None
        gate.open.set()


# --- the same methods -------------------------------------------------------------------------------


def public(kind: type) -> set[str]:
    """The names of the public methods."""
    return {name for name in dir(kind) if name[0] != "_" and not isinstance(getattr(kind, name), property)}


def test_it_has_every_method_with_the_same_arguments(base: Path) -> None:
    ours = AsyncCheckpointManager(base=base, fsync=False)
    assert public(CheckpointManager) | {"of"} == public(AsyncCheckpointManager)
    properties = {name for name, value in vars(CheckpointManager).items() if isinstance(value, property)}
    assert properties == {"settings", "warnings"} <= set(dir(ours))
    for name in public(CheckpointManager):
        theirs, mine = getattr(CheckpointManager, name), getattr(AsyncCheckpointManager, name)
        assert inspect.iscoroutinefunction(mine) == (name != "stage"), name
        assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters, name
        if name not in ("stage", "from_settings"):
            assert inspect.signature(mine).return_annotation == inspect.signature(theirs).return_annotation
        assert mine.__doc__ == theirs.__doc__
    initial = inspect.signature(CheckpointManager.__init__)
    assert inspect.signature(AsyncCheckpointManager.__init__) == initial


def test_the_stub_is_current() -> None:
    assert STUB.read_text("utf-8") == stub_text(), "run: scripts/reference"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What a type checker says of each program, which it sees all at once."""
    folder = tmp_path_factory.mktemp("typed")
    programs = {f"correct_{kind}": CORRECT.format(**words) for kind, words in KINDS.items()}
    programs |= {f"wrong_{kind}": wrong(kind)[0] for kind in KINDS}
    for name, program in programs.items():
        (folder / f"{name}.py").write_text(program)
    options = ["--strict", "--follow-imports=silent", f"--cache-dir={folder}/cache"]
    command = [sys.executable, "-m", "mypy", *options, *sorted(folder.glob("*.py"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "checked 4 source files" in done.stdout, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    return {name: [line for line in lines if f"{name}.py:" in line] for name in programs}


CORRECT = """
from shadowsnap import CheckpointManager, Entry, Event, Outcome

def heard(event: Event) -> None: ...

{begin}
    m = {await_}{Manager}.from_settings(heard, max_snapshots=50, granularity="tool")
    m = {Manager}(base="x", on_event=heard, granularity="turn", retention_days=3)
    {await_}m.new_turn("s1", "do it", [{{"role": "user"}}], agent="mine")
    outcome: Outcome = {await_}m.before_tool("Write", {{"file_path": "a"}}, ".")
    if outcome.status == "already-taken" or outcome.protected:
        {await_}m.end_turn(status="interrupted")
    entries: list[Entry] = {await_}m.timeline(".", limit=3)
    if entries[0].status == "undone" and entries[0].kind == "turn":
        {await_}m.restore(".", entries[0])
    for ref in ("3:after", 3, {await_}m.get(".", "last")):
        {await_}m.diff(".", ref)
    {await_}m.revert(".", turn=3, on_conflict="markers")
    {await_}m.end_session("s1", "failed")
    {await_}m.prune(dry_run=True, max_snapshots=5, reclaim="never")
    if ({await_}m.session("s1")).status == "rolled_back":
        {await_}m.sessions("completed")
    {with_} m.stage(".") as stage:
        reveal_type({await_}stage.commit("x"))
"""
KINDS = {
    "sync": {"begin": "def story() -> None:", "await_": "", "with_": "with", "Manager": "CheckpointManager"},
    "async": {
        "begin": "from shadowsnap import AsyncCheckpointManager\nasync def story() -> None:",
        "await_": "await ",
        "with_": "async with",
        "Manager": "AsyncCheckpointManager",
    },
}
WRONG = [
    ("{Manager}(max_snapshot=3)", 'Unexpected keyword argument "max_snapshot"'),
    ('{Manager}(granularity="file")', 'Argument "granularity"'),
    ("{await_}{Manager}.from_settings(max_snapshot=3)", 'Unexpected keyword argument "max_snapshot"'),
    ("{await_}m.prune(max_snapshot=3)", 'Unexpected keyword argument "max_snapshot"'),
    ('{await_}m.prune(reclaim="some")', 'Argument "reclaim"'),
    ('{await_}m.restor(".", 3)', 'has no attribute "restor"'),
    ('{await_}m.restore(".", 3.5)', 'Argument 2 to "restore"'),
    ('{await_}m.revert(".", turn=3, on_conflict="mine")', 'Argument "on_conflict"'),
    ('{await_}m.end_turn(status="stopped")', 'Argument "status"'),
    ('{await_}m.end_session("s1", "exploded")', 'Argument 2 to "end_session"'),
    ('({await_}m.before_tool("Write")).status == "token"', "Non-overlapping equality check"),
    ('({await_}m.timeline("."))[0].status == "finished"', "Non-overlapping equality check"),
    ('({await_}m.session("s1")).status == "done"', "Non-overlapping equality check"),
]


def wrong(kind: str) -> tuple[str, int]:
    """A program in which every line from that one on is a mistake."""
    words = KINDS[kind]
    lines = [f"    {line.format(**words)}" for line, _ in WRONG]
    head = f"from shadowsnap import CheckpointManager\n{words['begin']}\n    m = {words['Manager']}()\n"
    return head + "\n".join(lines) + "\n", head.count("\n") + 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_checker_accepts_a_correct_program(checked: dict[str, list[str]], kind: str) -> None:
    said = checked[f"correct_{kind}"]
    assert any('Revealed type is "shadowsnap.model.Checkpoint"' in line for line in said), said
    assert not any(": error" in line for line in said), said


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_checker_rejects_every_mistake(checked: dict[str, list[str]], kind: str) -> None:
    said = checked[f"wrong_{kind}"]
    for number, (line, expected) in enumerate(WRONG, wrong(kind)[1]):
        errors = [each for each in said if f".py:{number}: error" in each]
        assert any(expected in each for each in errors), (line, errors)
    assert len([line for line in said if ": error" in line]) == len(WRONG), said


def test_help_is_one_page_about_one_class() -> None:
    page = pydoc.plain(pydoc.render_doc(CheckpointManager))
    assert "inherited from" not in page and "Method resolution order" not in page
    for name in public(CheckpointManager):
        assert name in page and getattr(CheckpointManager, name).__doc__, name
    assert " _snapshot(" not in page and "__annotations__" not in page


def test_settings_are_written_down_alike_wherever_they_are() -> None:
    """The fields, the arguments of a manager, and those of `from_settings` and `prune`."""
    names = {field.name for field in dataclasses.fields(Settings)}
    arguments = inspect.signature(CheckpointManager.__init__).parameters
    assert set(arguments) - {"self", "on_event"} == names
    defaults = {name: arguments[name].default for name in names}
    assert defaults == {name: getattr(Settings(), name) for name in names}
    tree = ast.parse(Path(inspect.getfile(Settings)).read_text())
    (values,) = (
        each for each in ast.walk(tree) if isinstance(each, ast.ClassDef) and each.name == "SettingValues"
    )
    given = [each.target for each in values.body if isinstance(each, ast.AnnAssign)]
    assert {each.id for each in given if isinstance(each, ast.Name)} == names


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
