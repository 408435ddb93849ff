"""The history that is folded from the log: numbers, references, and what is left after damage and death."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from restoring import at_step

from shadowsnap import CheckpointManager, deadline
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import (
    MalformedLabel,
    MalformedReference,
    NoSuchCheckpoint,
    NoSuchTurn,
    ShadowsnapError,
)
from shadowsnap.model import Entry
from shadowsnap.store.history import compact_log, fold, read_history, rebuild_log
from shadowsnap.store.layout import Store
from shadowsnap.store.log import Line, read_lines, remove_log, write_lines
from shadowsnap.store.projects import Project, project_of


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


@pytest.fixture
def store(base: Path) -> Store:
    return Store(base, fsync=False)


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


def turn(manager: CheckpointManager, project: Path, text: str, session: str = "s1") -> None:
    manager.new_turn(session, f"write {text}", agent="tests")
    manager.ensure_checkpoint(project, tool="Write")
    (project / "README.md").write_text(f"{text}\n")
    manager.end_turn()


def numbers(manager: CheckpointManager, project: Path) -> list[int | None]:
    return [entry.number for entry in manager.timeline(project) if entry.kind in ("turn", "snapshot")]


def text(manager: CheckpointManager, project: Path, ref: str | int) -> str:
    return manager.contents(project, ref, ["README.md"])["README.md"].decode().strip()


# --- numbers ----------------------------------------------------------------------------------------


def test_turns_and_snapshots_are_counted_together_in_the_order_they_begin(
    manager: CheckpointManager, project: Path
) -> None:
    turn(manager, project, "one")
    (project / "README.md").write_text("by hand\n")
    manager.snapshot(project, "mine")
    turn(manager, project, "two")
    with manager.stage(project) as stage:
        (project / "README.md").write_text("staged\n")
        stage.commit("kept")
    turn(manager, project, "three")
    assert numbers(manager, project) == [5, 4, 3, 2, 1]
    kinds = [entry.kind for entry in manager.timeline(project) if entry.number]
    assert kinds == ["turn", "snapshot", "turn", "snapshot", "turn"]


def test_a_number_keeps_its_meaning_whatever_happens_next(manager: CheckpointManager, project: Path) -> None:
    for each in ("one", "two", "three"):
        turn(manager, project, each)

    def states() -> list[tuple[str, str]]:
        return [(text(manager, project, n), text(manager, project, f"{n}:after")) for n in (1, 2, 3)]

    seen = states()
    assert seen[1] == ("one", "two")

    def same() -> None:
        assert states() == seen

    manager.restore(project, 2)
    same()
    manager.undo(project)
    manager.undo(project)
    same()
    manager.redo(project)
    same()
    manager.revert(project, turn=1, on_conflict="theirs")
    same()
    turn(manager, project, "four", "s2")
    assert max(each for each in numbers(manager, project) if each) == 4
    same()


@pytest.mark.parametrize("lose_log", [False, True])
@pytest.mark.parametrize("lose_record", [False, True])
def test_a_number_is_never_used_again(
    manager: CheckpointManager, project: Path, store: Store, known: Project, lose_log: bool, lose_record: bool
) -> None:
    for each in ("one", "two", "three"):
        turn(manager, project, each)
    manager.delete(project, [each.id for each in manager.list_checkpoints(project)[:2]])
    manager.prune()
    if lose_log:
        remove_log(store, known.id)
    if lose_record:
        store.project_file(known.id).unlink()
    turn(manager, project, "new")
    newest = manager.timeline(project)[0].number
    assert newest is not None
    assert newest >= 4 or (lose_log and lose_record)  # nothing is left that knows
    assert newest not in [entry.number for entry in manager.timeline(project)[1:]]


def test_compacting_drops_what_is_gone_and_keeps_every_number(
    manager: CheckpointManager, project: Path, store: Store, known: Project
) -> None:
    for each in ("one", "two", "three", "four"):
        turn(manager, project, each)
    kept = {entry.number: entry for entry in manager.timeline(project) if entry.number in (3, 4)}
    gone = [each.id for each in manager.list_checkpoints(project)[3:]]
    manager.delete(project, gone)
    held = {each.id for each in manager.list_checkpoints(project)}
    compact_log(store, known, held)
    found = {entry.number: entry for entry in manager.timeline(project)}
    assert found == {**kept, **{number: found[number] for number in found if number not in kept}}
    assert 1 not in found
    store.project_file(known.id).unlink()
    turn(manager, project, "five")
    assert manager.timeline(project)[0].number == 5
    before = store.log_file(known.id).stat().st_ino
    compact_log(store, known, {each.id for each in manager.list_checkpoints(project)})
    assert store.log_file(known.id).stat().st_ino == before  # nothing was dropped


# --- references -------------------------------------------------------------------------------------


@pytest.fixture
def three(manager: CheckpointManager, project: Path) -> CheckpointManager:
    """Turn 1, snapshot 2, turn 3."""
    turn(manager, project, "one")
    (project / "README.md").write_text("by hand\n")
    manager.snapshot(project)
    turn(manager, project, "two")
    return manager


def test_digits_are_a_number(three: CheckpointManager, project: Path) -> None:
    assert [text(three, project, ref) for ref in ("1", "2", "3")] == ["# A project", "by hand", "by hand"]
    assert [text(three, project, ref) for ref in (1, 2, 3)] == ["# A project", "by hand", "by hand"]
    assert text(three, project, "03") == text(three, project, 3)
    for unknown in ("0", "4", "1234", "999999", 4, 0):
        with pytest.raises(NoSuchTurn, match="number"):
            three.get(project, unknown)


def test_digits_are_a_number_also_where_an_id_begins_with_them(three: CheckpointManager, project: Path) -> None:
    """An id that begins with `1`, or with six digits, is not meant."""
    for each in three.list_checkpoints(project):
        for length in range(1, 7):
            if each.id[:length].isdigit() and int(each.id[:length]) not in (1, 2, 3):
                with pytest.raises(NoSuchTurn):
                    three.get(project, each.id[:length])


def test_after(three: CheckpointManager, project: Path) -> None:
    assert [text(three, project, f"{number}:after") for number in (1, 2, 3)] == ["one", "by hand", "two"]
    three.new_turn("s1", "not over")
    three.ensure_checkpoint(project)
    with pytest.raises(NoSuchTurn, match="the end of turn 4"):
        three.get(project, "4:after")
    for odd in ("3:", "3:before", "3:AFTER", ":after", "x:after"):
        with pytest.raises((NoSuchCheckpoint, MalformedReference)):
            three.get(project, odd)


def test_last_is_the_newest_that_is_not_undone_and_never_a_saved_state(
    three: CheckpointManager, project: Path
) -> None:
    assert three.get(project, "last") == three.get(project, "last~0") == three.get(project, 3)
    assert three.get(project, "last~1") == three.get(project, 2)
    assert three.get(project, "last~2") == three.get(project, 1)
    with pytest.raises(NoSuchCheckpoint, match="last~3"):
        three.get(project, "last~3")
    three.restore(project, 1)  # saves a state
    assert three.get(project, "last") == three.get(project, 3)
    three.undo(project)
    three.undo(project)  # turn 3
    assert three.get(project, "last") == three.get(project, 2)
    three.redo(project)
    assert three.get(project, "last") == three.get(project, 3)


def test_restoring_last_twice_does_not_toggle(three: CheckpointManager, project: Path) -> None:
    for _ in range(3):
        three.restore(project, "last")
        assert (project / "README.md").read_text() == "by hand\n"


def test_ids_need_a_letter_or_seven_digits(three: CheckpointManager, project: Path) -> None:
    for each in three.list_checkpoints(project):
        for length in range(1, 41):
            part = each.id[:length]
            is_id = length >= 7 or (length >= 4 and not part.isdigit())
            if part.isdigit() and int(part) in (1, 2, 3):
                continue
            if is_id:
                assert three.get(project, part).id.startswith(part)
            else:
                with pytest.raises(ShadowsnapError):
                    three.get(project, part)


def test_seven_digits_without_a_letter_are_an_id(three: CheckpointManager, project: Path) -> None:
    with pytest.raises(NoSuchCheckpoint, match="1234567"):
        three.get(project, "1234567")


@pytest.mark.parametrize(
    "label", ["3", "03", "12", "1234", "1234567", "9" * 30, "3:after", "last", "last~2", "@", "9c2f", "deadbeef"]
)
def test_a_label_that_looks_like_another_reference_is_refused(
    three: CheckpointManager, project: Path, label: str
) -> None:
    with pytest.raises(MalformedLabel):
        three.label(project, 3, label)


@pytest.mark.parametrize("label", ["v3", "3 files", "release-12", "lastly", "last~", "abc", "g123", "3:before"])
def test_a_label_is_a_reference(three: CheckpointManager, project: Path, label: str) -> None:
    three.label(project, 3, label)
    assert three.get(project, label) == three.get(project, 3)


def test_entries_and_checkpoints_are_references(three: CheckpointManager, project: Path) -> None:
    for entry in three.timeline(project):
        assert three.get(project, entry).id == entry.state
        assert three.get(project, three.get(project, entry)).id == entry.state
    with pytest.raises(NoSuchTurn):
        three.get(project, Entry(None, "edits"))


# --- a lost or damaged log --------------------------------------------------------------------------


def story(manager: CheckpointManager, project: Path) -> None:
    """A bit of everything that a checkpoint can speak of."""
    said = [{"role": "user", "content": "hello"}]
    manager.new_turn("s1", "first", said, agent="tests")
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("one\n")
    manager.end_turn([*said, {"role": "assistant", "content": "done"}])
    (project / "README.md").write_text("mine\n")
    manager.snapshot(project, "by hand")
    turn(manager, project, "two", "s2")
    with manager.stage(project, edit_id="e1", session_id="s2") as stage:
        (project / "README.md").write_text("staged\n")
        stage.commit("kept")
    each = CheckpointManager(base=manager.settings.base, fsync=False, background_upkeep=False, granularity="tool")
    each.new_turn("s3", "tool by tool")
    for number in (1, 2):
        each.before_tool("Write", {"file_path": "README.md"}, project)
        (project / "README.md").write_text(f"tool {number}\n")
        each.after_tool("Write", {"file_path": "README.md"}, project)
        (project / "notes").write_text(f"mine {number}\n")
    each.end_turn()
    manager.restore(project, 2)
    manager.restore(project, 1, ["README.md"])
    manager.undo(project)
    turn(manager, project, "last")


def facts(entries: list[Entry]) -> list[tuple[Any, ...]]:
    """What a rebuilt log has to say in the same way."""
    return [
        (each.number, each.kind, each.prompt, each.session_id, each.before, each.after, each.files_changed)
        for each in entries
    ]


def test_a_lost_log_is_rebuilt(manager: CheckpointManager, project: Path, store: Store, known: Project) -> None:
    story(manager, project)
    then, sessions = facts(manager.timeline(project)), manager.sessions()
    remove_log(store, known.id)
    assert facts(manager.timeline(project)) == then  # without a log
    rebuild_log(store, known, NO_DEADLINE)
    assert facts(manager.timeline(project)) == then
    now = manager.sessions()
    assert [(each.id, [turn.prompt for turn in each.turns]) for each in now] == [
        (each.id, [turn.prompt for turn in each.turns]) for each in sessions
    ]
    assert [[turn.conversation for turn in each.turns] for each in now] == [
        [turn.conversation for turn in each.turns] for each in sessions
    ]
    edits = [[(edit.edit_id, edit.status, edit.checkpoint) for edit in each.edits] for each in sessions]
    assert [[(edit.edit_id, edit.status, edit.checkpoint) for edit in each.edits] for each in now] == edits
    turn(manager, project, "after it was rebuilt")
    assert manager.timeline(project)[0].number == 7


def test_undo_and_redo_work_from_a_rebuilt_log(
    manager: CheckpointManager, project: Path, store: Store, known: Project
) -> None:
    turn(manager, project, "one")
    turn(manager, project, "two")
    (project / "mine").write_text("mine")  # so that the restore has something to save
    manager.restore(project, 1)
    remove_log(store, known.id)
    seen = []
    for _ in range(3):
        seen.append((manager.undo(project).what, (project / "README.md").read_text().strip()))
    assert seen == [
        ("the restore to before turn 1", "two"),
        ("turn 2: write two", "one"),
        ("turn 1: write one", "# A project"),
    ]
    manager.redo(project)
    assert (project / "README.md").read_text() == "one\n"


def test_every_single_line_may_be_lost(
    manager: CheckpointManager, project: Path, store: Store, known: Project
) -> None:
    """Of each turn and snapshot at least the number, the prompt and the state before stay known."""
    story(manager, project)
    then = {
        entry.number: (entry.prompt, entry.before) for entry in manager.timeline(project) if entry.kind == "turn"
    }
    rows = store.log_file(known.id).read_bytes().splitlines(keepends=True)
    held = {line.get("turn") for line in map(json.loads, rows) if line["op"] == "begin" and line.get("held")}
    for lost in range(len(rows)):
        damaged = [b"\0" * (len(row) - 1) + b"\n" if number == lost else row for number, row in enumerate(rows)]
        store.log_file(known.id).write_bytes(b"".join(damaged))
        found = {
            entry.number: (entry.prompt, entry.before)
            for entry in manager.timeline(project)
            if entry.kind == "turn"
        }
        assert found.keys() == then.keys(), rows[lost]
        assert {number: found[number] for number in found if number not in held} == {
            number: then[number] for number in then if number not in held
        }, rows[lost]
        assert manager.get(project, "last").id
    store.log_file(known.id).write_bytes(b"".join(rows))


def test_a_missing_line_goes_where_its_checkpoint_belongs_whatever_the_clock_did(
    manager: CheckpointManager, project: Path, store: Store, known: Project
) -> None:
    for each in ("one", "two", "three"):
        turn(manager, project, each)
    then = facts(manager.timeline(project))
    lines = read_lines(store, known.id)
    # The clock was set back by a day after the first turn.
    moved = [{**line, "at": line["at"] - 86400 * (line["turn"] > 1)} for line in lines]
    for lost in range(len(moved)):
        write_lines(store, known.id, [line for number, line in enumerate(moved) if number != lost])
        if moved[lost]["op"] == "end":
            assert facts(manager.timeline(project)) == then


# --- killed -----------------------------------------------------------------------------------------

SNAPSHOT_STEPS = ["snapshot:captured", "snapshot:recorded", "snapshot:logged", "snapshot:remembered"]
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def killed_at(step: str, doing: Callable[[], None]) -> None:
    """Do it in a child process that is killed at a step."""
    child = os.fork()
    if child == 0:
        try:
            deadline.step_listener = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == step else None
            doing()
        finally:
            os._exit(3)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, f"{step} was not reached"


@forks
@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
def test_killed_while_a_turn_begins(manager: CheckpointManager, project: Path, step: str) -> None:
    turn(manager, project, "one")
    (project / "mine").write_text("mine")

    def begin() -> None:
        manager.new_turn("s2", "killed")
        manager.ensure_checkpoint(project)

    killed_at(step, begin)
    found = {entry.prompt: entry for entry in manager.timeline(project) if entry.kind == "turn"}
    assert ("killed" in found) == (step != "snapshot:captured")
    if "killed" in found:
        assert (found["killed"].number, found["killed"].status) == (2, "running")
        assert text(manager, project, 2) == "one"
    (project / "README.md").write_text("by the tool that ran all the same\n")
    turn(manager, project, "next", "s2")
    entries = [entry for entry in manager.timeline(project) if entry.kind == "turn"]
    assert entries[0].prompt == "write next" and entries[0].number in (2, 3)
    assert len({entry.number for entry in entries}) == len(entries)
    if "killed" in found:
        assert entries[1].prompt == "killed" and entries[1].after == entries[0].before
        assert entries[1].status == "interrupted"
    manager.undo(project)
    assert (project / "README.md").read_text() == "by the tool that ran all the same\n"


@forks
@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
def test_killed_while_a_turn_ends(manager: CheckpointManager, project: Path, step: str) -> None:
    turn(manager, project, "one")
    manager.new_turn("s2", "killed")
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("two\n")
    killed_at(step, lambda: manager.end_turn() and None)
    (entry,) = (each for each in manager.timeline(project) if each.prompt == "killed")
    ended = step != "snapshot:captured"
    assert entry.status == ("done" if ended else "running") and (entry.after is not None) == ended
    again = CheckpointManager(base=manager.settings.base, fsync=False, background_upkeep=False)
    assert again.undo(project).what == "turn 2: killed"
    assert (project / "README.md").read_text() == "one\n"
    again.redo(project)
    assert (project / "README.md").read_text() == "two\n"


@forks
@pytest.mark.parametrize("step", SNAPSHOT_STEPS)
@pytest.mark.parametrize("kind", ["snapshot", "stage"])
def test_killed_while_a_snapshot_is_taken(manager: CheckpointManager, project: Path, step: str, kind: str) -> None:
    turn(manager, project, "one")

    def take() -> None:
        if kind == "snapshot":
            (project / "README.md").write_text("two\n")
            manager.snapshot(project, "killed")
        else:
            with manager.stage(project, session_id="s1", edit_id="e") as stage:
                (project / "README.md").write_text("two\n")
                stage.commit("killed")

    killed_at(step, take)
    found = [entry for entry in manager.timeline(project) if entry.reason == "killed"]
    assert [(entry.number, entry.kind) for entry in found] == (
        [] if step == "snapshot:captured" else [(2, "snapshot")]
    )
    (project / "other").write_text("x")
    manager.snapshot(project, "next")
    assert manager.timeline(project)[0].number in (2, 3)
    assert len(set(numbers(manager, project))) == len(numbers(manager, project))


RESTORE_STEPS = [
    "restore:planned", "restore:begun", "snapshot:recorded", "snapshot:logged", "restore:saved", "restore:staged",
    "restore:applying", "restore:logged", "restore:settled", "restore:cleaned",
]  # fmt: skip


@forks
@pytest.mark.parametrize("step", RESTORE_STEPS)
def test_killed_while_it_restores(manager: CheckpointManager, project: Path, step: str) -> None:
    turn(manager, project, "one")
    (project / "README.md").write_text("mine\n")
    killed_at(step, lambda: manager.restore(project, 1) and None)
    manager.snapshot(project, "the next call")  # which finishes it, or finds nothing done
    restored = (project / "README.md").read_text() == "# A project\n"
    assert restored == (RESTORE_STEPS.index(step) >= RESTORE_STEPS.index("restore:applying"))
    kinds = [entry.kind for entry in manager.timeline(project, restores=True)]
    assert kinds.count("restore") == int(restored), kinds
    before = (project / "README.md").read_text()
    result = manager.undo(project)
    if restored:
        assert result.what == "the restore to before turn 1"
        assert (project / "README.md").read_text() == "mine\n"
    else:
        assert result.what.startswith("turn 1") and before == "mine\n"


def test_a_failure_between_checkpoint_and_line_is_retried_in_the_same_turn(
    manager: CheckpointManager, project: Path
) -> None:
    def fail() -> None:
        raise RuntimeError("out of luck")

    manager.new_turn("s1", "once")
    with at_step("snapshot:recorded", fail):
        assert manager.ensure_checkpoint(project).status == "failed"
    assert manager.ensure_checkpoint(project).protected
    assert [entry.prompt for entry in manager.timeline(project)] == ["once"]


# --- folding ----------------------------------------------------------------------------------------

ids = st.integers(0, 5).map(lambda number: f"{number:040x}")
names = st.sampled_from("abcd")
OPS = ["begin", "end", "more", "call", "call-end", "snapshot", "stage", "restore", "session", "attach", "numbers"]
FACTS = {
    "turn": st.integers(-1, 5) | st.text(max_size=2),
    "number": st.integers(-1, 9),
    "before": ids | st.none(),
    "after": ids | st.just(""),
    "target": ids,
    "checkpoint": ids,
    "id": names,
    "key": names,
    "session": names,
    "kind": st.sampled_from(["restore", "undo", "redo", "revert", "?"]),
    "undoes": st.integers(0, 5) | names,
    "redoes": names,
    "status": st.sampled_from(["done", "interrupted", ""]),
}
lines = st.lists(st.fixed_dictionaries({"op": st.sampled_from(OPS)}, optional=FACTS), max_size=25)


@given(lines=lines)
def test_any_order_of_lines_is_a_history(lines: list[Line]) -> None:
    history = fold(Project("0" * 16, Path("/nowhere")), [{"at": float(n), **line} for n, line in enumerate(lines)])
    for step in (*history.undoable(), *history.undone):
        kind, which = step.thing
        assert kind == "operation" or step in history.undone or which in history.turns
        assert step.way_back is None or step.way_back.id in history.operations
    things = [step.thing for step in history.done]
    assert len(set(things)) == len(things)
    for number in history.reachable():
        assert history.checkpoint_of(str(number)) is not None and not history.is_undone(number)
    for turn in history.turns.values():
        assert history.status_of(turn) in ("running", "done", "interrupted", "undone", "reverted")


def test_a_project_without_anything_has_an_empty_history(store: Store, known: Project) -> None:
    assert read_history(store, known, NO_DEADLINE).numbered() == {}
