"""What happens, and which entries it has: every row of the table in `docs how-it-works`."""

from __future__ import annotations

import inspect
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forking import run_program

from helpers import ROOT, git
from shadowsnap import CheckpointManager
from shadowsnap.errors import CheckpointsSetAside
from shadowsnap.model import Entry
from shadowsnap.store.layout import Store
from shadowsnap.store.log import change_lines, read_lines
from shadowsnap.store.projects import project_of

DOCS = ROOT / "shadowsnap" / "docs"
PAGE = (DOCS / "how-it-works.md").read_text("utf-8")
TABLE = re.findall(r"^\| (.+?) \| ((?:`[^`]+`(?:, )?)+|none) \| ?(.*?) ?\|$", PAGE, re.MULTILINE)


class Scene:
    """A directory, and an agent that works in it by the API or by hooks."""

    def __init__(self, base: Path, project: Path) -> None:
        self.base, self.project = base, project
        self.manager = self.another()

    def another(self, **settings: Any) -> CheckpointManager:
        return CheckpointManager(base=self.base, fsync=False, background_upkeep=False, **settings)

    def write(self, text: str, name: str = "README.md") -> None:
        (self.project / name).write_text(f"{text}\n")

    def begin(self, prompt: str = "do it", session: str = "s1", manager: CheckpointManager | None = None) -> None:
        manager = manager or self.manager
        manager.new_turn(session, prompt)
        assert manager.before_tool("Write", {"file_path": "README.md"}, self.project).protected

    def turn(self, text: str, session: str = "s1") -> None:
        self.begin(f"write {text}", session)
        self.write(text)
        self.manager.end_turn()

    def hook(self, event: str, **facts: Any) -> None:
        about = {"session_id": "s1", "cwd": str(self.project), "hook_event_name": event, **facts}
        variables = {"SHADOWSNAP_HOME": str(self.base), "SHADOWSNAP_BACKGROUND_UPKEEP": "false"}
        environment = {**os.environ, **variables}
        told = json.dumps(about).encode()
        run_program("hook", "claude", stdin=told, env=environment, check=True, cwd=self.project)

    def tool(self, **facts: Any) -> None:
        self.hook("PreToolUse", tool_name="Write", tool_input={"file_path": "README.md"}, **facts)

    def entries(self) -> list[Entry]:
        return self.manager.timeline(self.project)


def finishes(scene: Scene) -> None:
    scene.turn("one")
    (entry,) = scene.entries()
    assert (entry.prompt, entry.session_id, entry.files_changed) == ("write one", "s1", 1)


def under_way(scene: Scene) -> None:
    scene.begin()
    scene.write("half")
    assert scene.entries()[0].after is None
    assert scene.manager.undo(scene.project).what == "turn 1: do it"
    assert (scene.project / "README.md").read_text() == "# A project\n"
    scene.manager.redo(scene.project)


def next_prompt_comes(scene: Scene) -> None:
    scene.hook("UserPromptSubmit", prompt="one", prompt_id="t1")
    scene.tool(prompt_id="t1")
    scene.write("one")
    scene.hook("UserPromptSubmit", prompt="two", prompt_id="t2")
    scene.tool(prompt_id="t2")
    scene.write("two")
    scene.hook("Stop", prompt_id="t2")
    entries = [entry for entry in scene.entries() if entry.kind == "turn"]
    text = scene.manager.contents(scene.project, "1:after", ["README.md"])["README.md"]
    assert text == b"one\n" and entries[1].ended_at is not None


def hour_later(scene: Scene) -> None:
    scene.begin()
    scene.write("half")
    store, project = Store(scene.base, fsync=False), project_of(scene.project)
    change_lines(store, project.id, lambda line: {**line, "at": time.time() - 3700})


def host_never_closes(scene: Scene) -> None:
    scene.begin("one")
    scene.write("one")
    scene.begin("two")
    scene.write("two")
    second, first = scene.entries()
    assert first.after == second.before and first.files_changed == 1


def held(scene: Scene) -> None:
    scene.turn("one")
    scene.turn("two")
    second, first = scene.entries()
    assert second.before == first.after
    assert len(scene.manager.list_checkpoints(scene.project)) == 3


def changes_nothing(scene: Scene) -> None:
    scene.begin()
    scene.manager.end_turn()
    (entry,) = scene.entries()
    assert entry.before == entry.after and entry.files_changed == 0


def only_a_question(scene: Scene) -> None:
    scene.manager.take_first(scene.project)  # as at the start of a session: no entry either
    scene.manager.new_turn("s1", "what is in here?")
    assert scene.manager.before_tool("Read", {"file_path": "README.md"}, scene.project).status == "not-needed"
    scene.manager.end_turn()


def edits_between(scene: Scene) -> None:
    scene.turn("one")
    scene.write("mine")
    scene.turn("two")
    second, edits, first = scene.entries()
    assert (edits.before, edits.after) == (first.after, second.before)
    assert edits.files_changed == 1 and edits.number is None


def two_sessions(scene: Scene) -> None:
    other = scene.another()
    scene.begin("one", "s1")
    scene.write("one", "one.txt")
    scene.begin("two", "s2", other)
    scene.write("both were at work")
    scene.manager.end_turn()
    scene.write("two", "two.txt")
    other.end_turn()
    assert [entry.session_id for entry in scene.entries()] == ["s2", "s1"]
    plan = scene.manager.revert(scene.project, turn=1, dry_run=True)
    assert [kept.path for kept in plan.conflicts] == ["README.md"] and plan.deleted == ("one.txt",)


def two_directories(scene: Scene) -> None:
    other = scene.project.parent / "other"
    other.mkdir()
    scene.begin()
    scene.manager.before_tool("Write", {"file_path": str(other / "x")}, other)
    for folder in (scene.project, other):
        (folder / "x").write_text("x")
    scene.manager.end_turn()
    assert described(scene.manager.timeline(other)) == "`turn 1 done`"
    (only,) = scene.manager.session("s1").turns
    assert len(only.places) == 2


def subagent(scene: Scene) -> None:
    scene.hook("UserPromptSubmit", prompt="ask a helper", prompt_id="t1")
    scene.tool(prompt_id="t1")
    scene.hook("UserPromptSubmit", prompt="you are a helper", prompt_id="t1", agent_id="helper-1")
    scene.tool(prompt_id="t1", agent_id="helper-1")
    scene.write("by the helper")
    scene.hook("SubagentStop", prompt_id="t1", agent_id="helper-1")
    scene.hook("Stop", prompt_id="t1")
    (entry,) = scene.entries()
    assert (entry.prompt, entry.files_changed) == ("ask a helper", 1)


def message_added(scene: Scene) -> None:
    scene.hook("UserPromptSubmit", prompt="do it", prompt_id="t1")
    scene.tool(prompt_id="t1")
    scene.write("one")
    scene.hook("UserPromptSubmit", prompt="and hurry", prompt_id="t1")
    scene.write("two")
    scene.hook("Stop", prompt_id="t1")
    assert scene.entries()[0].prompt == "do it"


def background_task(scene: Scene) -> None:
    running = [{"id": "b1", "type": "shell", "status": "running"}]
    scene.hook("UserPromptSubmit", prompt="start the build", prompt_id="t1")
    scene.tool(prompt_id="t1")
    scene.hook("Stop", prompt_id="t1", background_tasks=running)
    scene.write("by the task")
    assert scene.entries()[0].status == "done"
    scene.hook("UserPromptSubmit", prompt="<task-notification>b1 is done</task-notification>", prompt_id="t2")
    scene.hook("Stop", prompt_id="t2")
    (entry,) = scene.entries()
    assert entry.files_changed == 1 and entry.prompt == "start the build"


def tool_by_tool(scene: Scene) -> None:
    manager = scene.another(granularity="tool")
    manager.new_turn("s1", "two calls")
    for number in (1, 2):
        manager.before_tool("Write", {"n": number}, scene.project)
        scene.write("by the agent", f"agent{number}.txt")
        manager.after_tool("Write", {"n": number}, scene.project)
        scene.write("by the person", f"mine{number}.txt")
    manager.end_turn()
    plan = manager.revert(scene.project, turn=1, dry_run=True)
    assert plan.deleted == ("agent1.txt", "agent2.txt")


def by_hand(scene: Scene) -> None:
    scene.manager.snapshot(scene.project, "by hand")


def stage_kept(scene: Scene) -> None:
    scene.manager.snapshot(scene.project)
    with scene.manager.stage(scene.project) as stage:
        scene.write("staged")
        stage.commit("kept")


def stage_put_back(scene: Scene) -> None:
    scene.manager.snapshot(scene.project)
    with scene.manager.stage(scene.project) as stage:
        scene.write("staged")
        stage.discard()
    assert scene.manager.timeline(scene.project, restores=True)[0].kind == "restore"


def undone(scene: Scene) -> None:
    scene.turn("one")
    scene.manager.undo(scene.project)


def reverted(scene: Scene) -> None:
    scene.turn("one")
    scene.manager.revert(scene.project, turn=1)


def restored(scene: Scene) -> None:
    scene.turn("one")
    scene.manager.restore(scene.project, 1)
    assert [entry.kind for entry in scene.manager.timeline(scene.project, restores=True)] == ["restore", "turn"]


CASES: dict[str, Callable[[Scene], None]] = {
    "a turn that the agent finishes": finishes,
    "a turn that is under way": under_way,
    "the next prompt comes while a turn is open": next_prompt_comes,
    "a turn that is never closed, an hour later": hour_later,
    "a host that never closes a turn": host_never_closes,
    "a turn that begins on a state that is held": held,
    "a turn that changes nothing": changes_nothing,
    "a question, and only reading tools": only_a_question,
    "edits of the person between two turns": edits_between,
    "two sessions at once in one directory": two_sessions,
    "one turn in two directories": two_directories,
    "a subagent inside a turn": subagent,
    "a message added while the agent works": message_added,
    "a background task that writes after the stop": background_task,
    'each tool call on its own (`granularity = "tool"`)': tool_by_tool,
    "a snapshot by hand or by a host": by_hand,
    "a stage that is kept": stage_kept,
    "a stage that is put back": stage_put_back,
    "a turn that is undone": undone,
    "a turn that is reverted": reverted,
    "a restore": restored,
}


def described(entries: list[Entry]) -> str:
    words = [(each.kind, str(each.number or ""), each.status or "") for each in entries]
    return ", ".join(f"`{' '.join(filter(None, each))}`" for each in words) or "none"


def test_the_table_has_exactly_these_cases() -> None:
    assert [row[0] for row in TABLE] == list(CASES)


@pytest.mark.parametrize(("case", "entries"), [row[:2] for row in TABLE])
def test_a_row_of_the_table(base: Path, project: Path, case: str, entries: str) -> None:
    scene = Scene(base, project)
    CASES[case](scene)
    assert described(scene.entries()) == entries


def test_the_page_about_the_api_is_complete() -> None:
    text = (DOCS / "api.md").read_text("utf-8")
    for name, _ in inspect.getmembers(CheckpointManager, inspect.isroutine):
        assert name.startswith("_") or f"#### {name}\n" in text, name


@pytest.mark.parametrize("cleared", [False, True], ids=["stored", "cleared away"])
def test_what_changed_since_some_files_were_restored_is_known(base: Path, project: Path, cleared: bool) -> None:
    scene = Scene(base, project)
    scene.write("one", "other.txt")
    scene.turn("one")
    scene.begin("both")
    scene.write("two")
    scene.write("two", "other.txt")
    scene.manager.end_turn()
    scene.manager.restore(scene.project, 2, ["README.md"])
    if cleared:  # nothing but the log leads to the tree that the files had then
        git(base / "store", "repack", "-adq")
    scene.write("mine", "other.txt")
    now = scene.manager.now(scene.project)
    assert [each.path for each in now.changes] == ["other.txt"]
    assert (now.files_changed, now.insertions, now.deletions) == (1, 1, 1)
    scene.turn("three")
    assert cleared or [each.files_changed for each in scene.entries() if each.kind == "edits"] == [1]


def test_a_project_whose_objects_are_all_lost_does_not_look_like_a_new_one(project: Path, base: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.new_turn("s1", "do it")
    manager.ensure_checkpoint(project)
    for path in (base / "store" / "objects").rglob("*"):
        if path.is_file():
            path.unlink()
    for _ in range(2):
        with pytest.raises(CheckpointsSetAside, match="was damaged"):
            manager.timeline(project)
    (project / "new").write_text("new\n")
    assert manager.snapshot(project).status == "taken" and manager.timeline(project)


@pytest.mark.parametrize("edited", [False, True], ids=["nothing in between", "edits in between"])
@pytest.mark.parametrize("gone", ["2", "2:after", "last~1"])
def test_what_a_deleted_turn_did_is_not_called_the_persons_work(
    base: Path, project: Path, gone: str, edited: bool
) -> None:
    scene = Scene(base, project)
    for number in range(1, 4):
        scene.turn(f"{number}\n" * number)
        if edited:
            scene.write(f"of mine {number}", "mine.txt")
    scene.manager.delete(project, gone)
    edits = [entry for entry in scene.manager.timeline(project) if entry.kind == "edits"]
    for entry in edits:
        files = {change.path for change in scene.manager.diff(project, entry.before, entry.after).changes}
        assert entry.reason or files == {"mine.txt"}
    if gone == "2" and not edited:  # the states around turn 2 were the end of turn 1 and the beginning of turn 3
        assert [entry.whose for entry in edits] == ["changes by turns not kept, or by you"]


def test_what_dropped_turns_did_after_a_pinned_one_is_not_called_the_persons(base: Path, project: Path) -> None:
    scene = Scene(base, project)
    for number in range(1, 7):
        scene.turn(f"{number}")
        if number == 1:
            scene.manager.pin(project, "1")
    scene.manager.prune(max_snapshots=2)
    entries = [(entry.number, entry.whose) for entry in scene.manager.timeline(project)]
    assert [number for number, _ in entries] == [6, 5, None, 2, 1]
    assert entries[2][1] == "changes by turns not kept, or by you"


def test_a_turn_that_nothing_ended_does_not_claim_all_later_edits(base: Path, project: Path) -> None:
    scene = Scene(base, project)
    scene.begin("is killed", "s1")
    scene.write("of the agent")
    change_lines(Store(base), project_of(project).id, lambda line: {**line, "at": time.time() - 7200})
    for number in (2, 3):
        scene.write(f"of the person {number}", "mine.txt")
        scene.turn(f"{number}", "s2")
    found = [(entry.number, entry.kind, entry.status) for entry in scene.manager.timeline(project)]
    assert found == [
        (3, "turn", "done"), (None, "edits", None), (2, "turn", "done"), (None, "edits", None),
        (1, "turn", "interrupted"),
    ]  # fmt: skip


def test_what_an_agent_wrote_without_a_snapshot_is_not_called_the_persons_work(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(base, project)
    scene.turn("one")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(base))
        scene.manager.new_turn("s1", "two")
        for _ in range(3):
            assert not scene.manager.before_tool("Write", {"file_path": "README.md"}, project).protected
        scene.write("two")
        scene.manager.end_turn()
    scene.turn("three")
    scene.write("of mine", "mine.txt")
    scene.turn("four")
    found = [(entry.kind, entry.whose) for entry in scene.manager.timeline(project) if entry.kind == "edits"]
    assert found == [("edits", "your own edits"), ("edits", "changes by an agent without a snapshot, or by you")]
    lines = read_lines(Store(base), project_of(project).id)
    assert [line["op"] for line in lines].count("missed") == 1


def test_a_snapshot_of_a_state_that_was_captured_ahead_of_time_has_an_entry(base: Path, project: Path) -> None:
    (project / "a").write_text("1\n")
    manager = CheckpointManager(base=base, background_upkeep=False)
    assert manager.take_first(project).status == "taken"
    taken = manager.snapshot(project, "before my refactoring")
    assert [(entry.number, entry.reason) for entry in manager.timeline(project)] == [(1, "before my refactoring")]
    assert taken.checkpoint is not None and manager.get(project, "last").id == taken.checkpoint.id
