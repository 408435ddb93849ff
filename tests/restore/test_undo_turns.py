"""Undo of turns: exactly if nothing was edited since, else by a merge; and what redo makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from restoring import at_step

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchTurn, NothingToRedo, NothingToUndo, RestoreFailed, ShadowsnapError
from shadowsnap.store.layout import Store

LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def files(project: Path) -> Path:
    for name in ("text.txt", "other.txt"):
        (project / name).write_text(LINES)
    (project / "hollow").mkdir()
    return project


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, background_upkeep=False, fsync=False)


def replace_line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number] = text + "\n"
    path.write_text("".join(lines))


def with_lines(**changed: str) -> str:
    return "".join(f"{changed.get(f'l{number}', f'line {number}')}\n" for number in range(40))


def begin(manager: CheckpointManager, files: Path, session: str = "s1") -> None:
    manager.new_turn(session_id=session, prompt="do it")
    assert manager.ensure_checkpoint(files).status in ("taken", "unchanged")


def work(files: Path) -> None:
    """What an agent does in a turn: it edits, makes, deletes, links, and changes permission bits."""
    replace_line(files / "text.txt", 3, "by the agent")
    (files / "made").mkdir()
    (files / "made" / "file.txt").write_text("made\n")
    (files / "README.md").unlink()
    (files / "link").unlink()
    (files / "link").symlink_to("text.txt")
    (files / "run.sh").chmod(0o700)
    (files / "hollow").rmdir()


def turn(manager: CheckpointManager, files: Path, number: int, text: str, session: str = "s1") -> None:
    begin(manager, files, session)
    replace_line(files / "text.txt", number, text)
    manager.end_turn()


def statuses(manager: CheckpointManager, files: Path) -> dict[int | None, str]:
    return {entry.number: entry.status for entry in manager.timeline(files) if entry.kind == "turn"}


def log_lines(base: Path) -> list[dict[str, Any]]:
    (log,) = Store(base).base.glob("log/*.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()]


# --- exactly ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["running", "interrupted", "done"])
def test_a_turn_is_taken_back_exactly(manager: CheckpointManager, files: Path, status: str) -> None:
    before = manifest(files)
    begin(manager, files)
    work(files)
    after = manifest(files)
    if status != "running":
        manager.end_turn(status="interrupted" if status == "interrupted" else "done")
    plan = manager.undo(files, dry_run=True)
    assert manifest(files) == after and statuses(manager, files) == {1: status}
    result = manager.undo(files)
    assert manifest(files) == before
    assert (plan.written, plan.deleted) == (result.written, result.deleted)
    assert result.what == "turn 1: do it" and result.note == "" and not result.conflicts
    assert statuses(manager, files) == {1: "undone"}
    with pytest.raises(NothingToUndo):
        manager.undo(files)
    manager.redo(files)
    assert manifest(files) == after and statuses(manager, files) == {1: status}
    with pytest.raises(NothingToRedo):
        manager.redo(files)
    manager.undo(files)
    assert manifest(files) == before


def test_a_turn_that_the_next_prompt_of_its_session_ended_is_taken_back(
    manager: CheckpointManager, files: Path
) -> None:
    """The agent was stopped, and the next turn has done nothing yet."""
    before = manifest(files)
    begin(manager, files)
    work(files)
    begin(manager, files)
    assert manager.undo(files).what == "turn 1: do it"
    assert manifest(files) == before


def test_undo_twice_takes_back_two(manager: CheckpointManager, files: Path) -> None:
    states = [manifest(files)]
    for number in range(4):
        turn(manager, files, number * 8, f"turn {number + 1}")
        if number == 2:
            turn_that_does_nothing(manager, files)
        states.append(manifest(files))
    for state in states[-2::-1]:
        manager.undo(files)
        assert manifest(files) == state
    with pytest.raises(NothingToUndo):
        manager.undo(files)
    for state in states[1:]:
        manager.redo(files)
        assert manifest(files) == state
    with pytest.raises(NothingToRedo):
        manager.redo(files)
    assert set(statuses(manager, files).values()) == {"done"}


def turn_that_does_nothing(manager: CheckpointManager, files: Path) -> None:
    begin(manager, files, "s2")
    (files / "text.txt").touch()
    manager.end_turn()


def test_a_turn_that_changed_something_and_changed_it_back_is_passed_over(
    manager: CheckpointManager, files: Path
) -> None:
    """Even if a snapshot was taken in between, so that its end is another checkpoint than its beginning."""
    before = manifest(files)
    turn(manager, files, 3, "turn 1")
    begin(manager, files)
    (files / "passing.txt").write_text("made\n")
    manager.snapshot(files)
    (files / "passing.txt").unlink()
    manager.end_turn()
    assert manager.undo(files).what == "turn 1: do it"
    assert manifest(files) == before


def test_an_ignored_file_that_was_named_late_in_a_turn_comes_back_too(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "notes.log").write_text("the person's notes\n")
    (files / "notes.log").chmod(0o600)
    before = manifest(files)
    begin(manager, files)
    work(files)
    assert manager.ensure_checkpoint(files, paths=["notes.log"]).status == "taken"
    (files / "notes.log").write_text("overwritten\n")
    after = manifest(files)
    manager.end_turn()
    result = manager.undo(files)
    assert manifest(files) == before and result.note == ""
    manager.redo(files)
    assert manifest(files) == after


def test_the_same_without_an_end(manager: CheckpointManager, files: Path) -> None:
    (files / "notes.log").write_text("the person's notes\n")
    before = manifest(files)
    begin(manager, files)
    work(files)
    manager.ensure_checkpoint(files, paths=["notes.log"])
    (files / "notes.log").write_text("overwritten\n")
    manager.undo(files)
    assert manifest(files) == before


def test_in_a_directory_of_which_only_named_files_are_captured_all_of_them_come_back(
    manager: CheckpointManager, home: Path
) -> None:
    for name in ("one", "two", "mine"):
        (home / name).write_text("then\n")
    (home / "two").chmod(0o600)
    before = manifest(home)
    manager.new_turn(session_id="s1")
    for name in ("one", "two", "made"):
        assert manager.ensure_checkpoint(home, paths=[name]).status == "partial"
        (home / name).write_text("by the agent\n")
        (home / name).chmod(0o644)
    after = manifest(home)
    plan = manager.undo(home, dry_run=True)
    assert manifest(home) == after
    result = manager.undo(home)
    assert (plan.written, plan.deleted) == (result.written, result.deleted) == (("one", "two"), ("made",))
    assert manifest(home) == before
    manager.redo(home)
    assert manifest(home) == after
    (home / "mine").write_text("edited\n")
    manager.undo(home)
    assert (home / "mine").read_text() == "edited\n" and not (home / "made").exists()


@pytest.mark.parametrize("ended", [False, True], ids=["running", "done"])
def test_a_directory_that_could_be_captured_only_later_in_the_turn_is_not_emptied(
    manager: CheckpointManager, files: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """At first only a named file was captured. What that checkpoint does not know was not made by the turn."""
    before = manifest(files)
    manager.new_turn(session_id="s1")
    with monkeypatch.context() as patch:
        patch.setattr("shadowsnap.loop.refusal", lambda *_: "it is not the time")
        assert manager.ensure_checkpoint(files, paths=["text.txt"]).status == "partial"
    replace_line(files / "text.txt", 3, "before the whole directory was captured")
    assert manager.ensure_checkpoint(files, paths=["other.txt"]).status == "taken"
    replace_line(files / "other.txt", 3, "after")
    (files / "made.txt").write_text("made\n")
    after = manifest(files)
    if ended:
        manager.end_turn()
    manager.undo(files)
    assert manifest(files) == before
    manager.redo(files)
    assert manifest(files) == after
    if ended:
        (files / "mine").write_text("made since\n")
        manager.undo(files)
        assert (files / "mine").exists()
        (files / "mine").unlink()
        assert manifest(files) == before


# --- edits since ------------------------------------------------------------------------------------


def test_edits_since_a_turn_stay_and_it_is_reported(manager: CheckpointManager, files: Path) -> None:
    begin(manager, files)
    work(files)
    manager.end_turn()
    replace_line(files / "text.txt", 30, "by the person")
    (files / "mine.txt").write_text("made since\n")
    edited = manifest(files)
    result = manager.undo(files)
    assert (files / "text.txt").read_text() == with_lines(l30="by the person")
    assert (files / "mine.txt").exists() and (files / "README.md").exists() and not (files / "made").exists()
    assert "merged" in result.note and not result.conflicts
    manager.redo(files)
    assert manifest(files) == edited


def test_edits_of_the_same_lines_are_conflicts_and_stay(manager: CheckpointManager, files: Path) -> None:
    begin(manager, files)
    replace_line(files / "text.txt", 3, "by the agent")
    replace_line(files / "other.txt", 3, "by the agent")
    manager.end_turn()
    replace_line(files / "text.txt", 3, "by the person")
    edited = manifest(files)
    plan = manager.undo(files, dry_run=True)
    assert manifest(files) == edited
    result = manager.undo(files)
    assert [each.path for each in result.conflicts] == ["text.txt"] == [each.path for each in plan.conflicts]
    assert result.written == ("other.txt",)
    assert (files / "text.txt").read_text() == with_lines(l3="by the person")
    assert (files / "other.txt").read_text() == LINES
    assert statuses(manager, files) == {1: "undone"}
    manager.redo(files)
    assert manifest(files) == edited


def test_a_turn_that_is_all_conflicts_is_not_undone(manager: CheckpointManager, files: Path, base: Path) -> None:
    turn(manager, files, 3, "by the agent")
    replace_line(files / "text.txt", 3, "by the person")
    edited, lines = manifest(files), log_lines(base)
    for _ in range(2):
        result = manager.undo(files)
        assert [each.path for each in result.conflicts] == ["text.txt"] and not result.written
    assert manifest(files) == edited and log_lines(base) == lines
    assert statuses(manager, files) == {1: "done"}
    with pytest.raises(NothingToRedo):
        manager.redo(files)


def test_a_turn_that_the_person_has_taken_back_by_hand_counts_as_undone(
    manager: CheckpointManager, files: Path
) -> None:
    before = manifest(files)
    turn(manager, files, 3, "turn 1")
    turn(manager, files, 20, "turn 2")
    replace_line(files / "text.txt", 20, "line 20")
    assert manager.undo(files).what == "turn 2: do it"
    assert manager.undo(files).what == "turn 1: do it"
    assert manifest(files) == before


def test_what_was_edited_between_two_turns_stays_when_both_are_taken_back(
    manager: CheckpointManager, files: Path
) -> None:
    turn(manager, files, 3, "turn 1")
    replace_line(files / "text.txt", 20, "by the person")
    between = manifest(files)
    turn(manager, files, 35, "turn 2")
    assert manager.undo(files).note == ""
    assert manifest(files) == between
    assert "merged" in manager.undo(files).note
    assert (files / "text.txt").read_text() == with_lines(l20="by the person")


def test_what_the_person_did_between_two_calls_of_a_turn_stays(base: Path, files: Path) -> None:
    manager = CheckpointManager(base=base, granularity="tool", background_upkeep=False, fsync=False)
    manager.new_turn(session_id="s1")
    for number in (3, 35):
        manager.before_tool("edit", {"line": number}, cwd=files)
        replace_line(files / "text.txt", number, "agent")
        manager.after_tool("edit", {"line": number}, cwd=files)
        if number == 3:
            replace_line(files / "text.txt", 20, "person")
    manager.end_turn()
    manager.undo(files)
    assert (files / "text.txt").read_text() == with_lines(l20="person")


def test_what_the_person_does_after_a_call_of_a_running_turn_stays(base: Path, files: Path) -> None:
    manager = CheckpointManager(base=base, granularity="tool", background_upkeep=False, fsync=False)
    manager.new_turn(session_id="s1")
    manager.before_tool("edit", {"n": 1}, cwd=files)
    replace_line(files / "text.txt", 3, "agent")
    manager.after_tool("edit", {"n": 1}, cwd=files)
    replace_line(files / "text.txt", 20, "person")
    assert "merged" in manager.undo(files).note
    assert (files / "text.txt").read_text() == with_lines(l20="person")
    manager.redo(files)
    manager.before_tool("edit", {"n": 2}, cwd=files)
    replace_line(files / "text.txt", 35, "agent, in a call that runs")
    manager.undo(files)
    assert (files / "text.txt").read_text() == with_lines(l20="person")


def test_a_turn_of_calls_without_edits_in_between_goes_exactly(base: Path, files: Path) -> None:
    manager = CheckpointManager(base=base, granularity="tool", background_upkeep=False, fsync=False)
    before = manifest(files)
    manager.new_turn(session_id="s1")
    for number, action in enumerate((work, lambda files: (files / "second").mkdir())):
        manager.before_tool("edit", {"n": number}, cwd=files)
        action(files)
        manager.after_tool("edit", {"n": number}, cwd=files)
    after = manifest(files)
    manager.end_turn()
    assert manager.undo(files).note == ""
    assert manifest(files) == before
    manager.redo(files)
    assert manifest(files) == after


def test_a_turn_that_was_redone_and_built_upon_keeps_the_edits_when_it_goes_again(
    manager: CheckpointManager, files: Path
) -> None:
    turn(manager, files, 3, "by the agent")
    manager.undo(files)
    manager.redo(files)
    replace_line(files / "text.txt", 30, "by the person")
    assert "merged" in manager.undo(files).note
    assert (files / "text.txt").read_text() == with_lines(l30="by the person")


# --- together with restores and reverts -------------------------------------------------------------


def test_restores_and_turns_are_taken_back_in_their_order(manager: CheckpointManager, files: Path) -> None:
    states = [manifest(files)]

    def done() -> None:
        states.append(manifest(files))

    turn(manager, files, 3, "turn 1")
    done()
    turn(manager, files, 10, "turn 2")
    done()
    manager.restore(files, "1")
    done()
    turn(manager, files, 20, "turn 3")
    done()
    manager.restore(files, "2:after", paths=["text.txt"])
    done()
    manager.revert(files, turn=1)
    done()
    for state in states[-2::-1]:
        manager.undo(files)
        assert manifest(files) == state
    with pytest.raises(NothingToUndo):
        manager.undo(files)
    for state in states[1:]:
        manager.redo(files)
        assert manifest(files) == state


def test_a_turn_whose_end_was_deleted_is_not_said_to_be_taken_back(
    manager: CheckpointManager, files: Path
) -> None:
    turn(manager, files, 3, "turn 1")
    manager.delete(files, "1:after")
    before = manifest(files)
    for take_back in (lambda: manager.revert(files, turn=1), lambda: manager.undo(files)):
        with pytest.raises(NoSuchTurn, match="the state after turn 1"):
            take_back()
    assert manifest(files) == before and statuses(manager, files) == {1: "done"}


@pytest.mark.parametrize("taken_back", ["undone", "reverted"])
def test_a_turn_whose_end_was_restored_is_done_as_long_as_that_stands(
    manager: CheckpointManager, files: Path, taken_back: str
) -> None:
    turn(manager, files, 3, "turn 1")
    turn(manager, files, 20, "turn 2")
    if taken_back == "undone":
        manager.undo(files)
    else:
        manager.revert(files, turn=2)
    without, with_it = {1: "done", 2: taken_back}, {1: "done", 2: "done"}
    assert statuses(manager, files) == without
    manager.restore(files, "2:after")
    assert statuses(manager, files) == with_it
    manager.undo(files)
    assert statuses(manager, files) == without
    manager.redo(files)
    assert statuses(manager, files) == with_it


def test_a_revert_is_taken_back_without_what_was_edited_since(manager: CheckpointManager, files: Path) -> None:
    turn(manager, files, 3, "turn 1")
    turn(manager, files, 20, "turn 2")
    both = manifest(files)
    manager.revert(files, turn=1)
    assert statuses(manager, files) == {1: "reverted", 2: "done"}
    (files / "mine.txt").write_text("made since\n")
    result = manager.undo(files)
    assert result.what == "the revert of turn 1" and statuses(manager, files) == {1: "done", 2: "done"}
    (files / "mine.txt").unlink()
    assert manifest(files) == both


def test_a_restore_does_not_make_an_undone_turn_done(manager: CheckpointManager, files: Path) -> None:
    for number in (1, 2, 3):
        turn(manager, files, number * 8, f"turn {number}")
    manager.undo(files)
    manager.restore(files, "1")
    assert statuses(manager, files) == {1: "done", 2: "done", 3: "undone"}
    assert manager.get(files, "last").id == manager.get(files, "2").id
    manager.undo(files)
    assert (files / "text.txt").read_text() == with_lines(l8="turn 1", l16="turn 2")


@pytest.mark.parametrize("restored", ["undo", "restore"])
def test_a_turn_that_goes_on_after_the_files_were_restored_is_taken_back_from_there(
    manager: CheckpointManager, files: Path, restored: str
) -> None:
    """The person takes back what the agent did so far, and the agent has not finished."""
    before = manifest(files)
    begin(manager, files)
    replace_line(files / "text.txt", 3, "first")
    first = manifest(files)
    if restored == "undo":
        manager.undo(files)
    else:
        manager.restore(files, "1")
    assert manifest(files) == before
    replace_line(files / "text.txt", 20, "second")
    second = manifest(files)
    manager.end_turn()
    assert statuses(manager, files) == {1: "done"}
    manager.undo(files)
    assert manifest(files) == before
    if restored == "restore":
        manager.undo(files)
        assert manifest(files) == first
        manager.undo(files)
        assert manifest(files) == before and statuses(manager, files) == {1: "undone"}
        manager.redo(files)
        manager.redo(files)
    manager.redo(files)
    assert manifest(files) == second and statuses(manager, files) == {1: "done"}


def test_what_a_turn_did_before_and_after_a_restore_goes_with_edits_since(
    manager: CheckpointManager, files: Path
) -> None:
    begin(manager, files)
    replace_line(files / "text.txt", 3, "first")
    manager.restore(files, "1")
    replace_line(files / "text.txt", 20, "second")
    manager.end_turn()
    replace_line(files / "text.txt", 35, "by the person")
    assert "merged" in manager.undo(files).note
    assert (files / "text.txt").read_text() == with_lines(l35="by the person")
    manager.undo(files)
    assert (files / "text.txt").read_text() == with_lines(l3="first")


def test_an_undo_that_an_agent_runs_in_a_turn_of_its_own_does_not_stand_in_the_way(
    manager: CheckpointManager, files: Path
) -> None:
    """A person says "undo" to the agent twice. Each time, a turn begins before the command runs."""
    states = [manifest(files)]
    for number in (1, 2):
        turn(manager, files, number * 8, f"turn {number}")
        states.append(manifest(files))
    for state in states[-2::-1]:
        begin(manager, files)
        manager.undo(files)
        manager.end_turn()
        assert manifest(files) == state
    with pytest.raises(NothingToUndo):
        manager.undo(files)


def test_an_agent_that_runs_undo_and_goes_on_is_taken_back_to_after_the_undo(
    manager: CheckpointManager, files: Path
) -> None:
    before = manifest(files)
    turn(manager, files, 3, "turn 1")
    begin(manager, files)
    manager.undo(files)
    replace_line(files / "text.txt", 20, "turn 2")
    manager.end_turn()
    assert manager.undo(files).what == "turn 2: do it"
    assert manifest(files) == before
    with pytest.raises(NothingToUndo):
        manager.undo(files)


def test_a_snapshot_during_a_turn_does_not_take_its_work_away(manager: CheckpointManager, files: Path) -> None:
    before = manifest(files)
    begin(manager, files)
    replace_line(files / "text.txt", 3, "before the snapshot")
    manager.snapshot(files)
    replace_line(files / "text.txt", 20, "after it")
    manager.undo(files)
    assert manifest(files) == before


# --- two sessions at once ---------------------------------------------------------------------------


def test_the_turn_that_began_last_goes_first_and_the_other_session_keeps_its_work(
    base: Path, files: Path
) -> None:
    one, two = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    begin(one, files, "s1")
    replace_line(files / "text.txt", 3, "s1 alone")
    begin(two, files, "s2")
    replace_line(files / "other.txt", 3, "s1 or s2")
    one.end_turn()
    replace_line(files / "text.txt", 35, "s2 alone")
    two.end_turn()
    result = two.undo(files)
    assert result.what == "turn 2: do it"
    assert [each.path for each in result.conflicts] == ["other.txt"] and "session s1" in result.conflicts[0].why
    assert (files / "text.txt").read_text() == with_lines(l3="s1 alone")
    result = one.undo(files)
    assert result.what == "turn 1: do it"
    assert (files / "text.txt").read_text() == LINES
    assert (files / "other.txt").read_text() == with_lines(l3="s1 or s2")


def test_a_running_turn_of_another_session_keeps_its_work(base: Path, files: Path) -> None:
    one, two = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    begin(one, files, "s1")
    replace_line(files / "text.txt", 3, "s1 alone")
    begin(two, files, "s2")
    replace_line(files / "other.txt", 3, "s1 or s2")
    two.end_turn()
    result = two.undo(files)
    assert [each.path for each in result.conflicts] == ["other.txt"] and not result.written
    assert (files / "text.txt").read_text() == with_lines(l3="s1 alone")


def test_turns_of_two_sessions_one_after_the_other_go_exactly(base: Path, files: Path) -> None:
    one, two = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    states = [manifest(files)]
    for number, manager in enumerate((one, two, one)):
        turn(manager, files, 3, f"turn {number}", f"s{1 + number % 2}")  # the same line
        states.append(manifest(files))
    for state in states[-2::-1]:
        assert not two.undo(files).conflicts
        assert manifest(files) == state


# --- failures ---------------------------------------------------------------------------------------


def test_a_restore_that_fails_at_the_very_end_is_not_in_the_log(
    manager: CheckpointManager, files: Path, base: Path
) -> None:
    """The files were put back, so nothing happened that undo could take back."""
    turn(manager, files, 3, "turn 1")
    after, lines = manifest(files), log_lines(base)

    def fail() -> None:
        raise OSError("the disk is on fire")

    failing: list[Callable[[], object]] = [
        lambda: manager.restore(files, "1"),
        lambda: manager.undo(files),
        lambda: manager.revert(files, turn=1),
    ]
    for action in failing:
        with pytest.raises(RestoreFailed), at_step("restore:logged", fail):
            action()
        assert manifest(files) == after and log_lines(base) == lines
    assert manager.undo(files).what == "turn 1: do it"


def test_an_undo_whose_states_are_gone_is_an_error_and_changes_nothing(
    manager: CheckpointManager, files: Path
) -> None:
    turn(manager, files, 3, "turn 1")
    turn(manager, files, 20, "turn 2")
    manager.delete(files, "2")
    after = manifest(files)
    with pytest.raises(ShadowsnapError):
        manager.undo(files)
    assert manifest(files) == after


def test_pruning_keeps_what_the_next_undo_and_redo_need_and_what_is_undone(
    manager: CheckpointManager, files: Path
) -> None:
    states = [manifest(files)]
    for number in range(1, 6):
        turn(manager, files, number * 6, f"turn {number}")
        states.append(manifest(files))
    manager.undo(files)
    manager.undo(files)
    manager.prune(max_snapshots=1)
    shown = statuses(manager, files)
    assert {number: status for number, status in shown.items() if number in (4, 5)} in (
        {4: "undone", 5: "undone"}, {4: "undone"},
    )  # fmt: skip
    manager.redo(files)
    assert manifest(files) == states[4]
    manager.undo(files)
    manager.undo(files)
    assert manifest(files) == states[2]


def test_the_directories_of_a_restore_are_in_no_state_whatever_the_rules_take_back(
    manager: CheckpointManager, files: Path
) -> None:
    """A restore that brings rules back captures the files while its own directories are still there."""
    (files / ".gitignore").write_text("!*/\n")
    begin(manager, files)
    (files / ".gitignore").write_text("*.log\n")
    (files / "text.txt").write_text("by the agent\n")
    manager.restore(files, 1)
    states = manager.list_checkpoints(files)
    assert not [path for each in states for path in manager.files(files, each) if "shadowsnap-restore" in path]
    left = manifest(files)
    (files / "text.txt").write_text("by the agent again\n")
    manager.end_turn()
    manager.undo(files)
    assert manifest(files) == left


@pytest.mark.parametrize("name", ["text.txt", "ignored.log"])
def test_a_named_file_that_a_turn_deleted_and_made_again_comes_back(
    manager: CheckpointManager, files: Path, name: str
) -> None:
    (files / name).write_text("the person's\n")
    manager.new_turn(session_id="s1", prompt="do it")
    manager.ensure_checkpoint(files, paths=[name])
    before = manifest(files)
    (files / name).unlink()
    manager.snapshot(files)
    (files / name).write_text("the agent's\n")
    manager.snapshot(files)
    manager.end_turn()
    manager.undo(files)
    assert manifest(files) == before


def test_an_undo_that_changes_nothing_beside_a_file_that_it_keeps_is_redone(base: Path, files: Path) -> None:
    (files / "large").write_bytes(b"x" * (3 << 19))
    strict = CheckpointManager(base=base, background_upkeep=False, fsync=False, max_file_size_mb=1)
    strict.snapshot(files)
    (files / "text.txt").write_text("edited\n")
    strict.restore(files, 1)
    (files / "text.txt").write_text("edited\n")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    undone = manager.undo(files)
    assert (undone.written, [each.path for each in undone.kept]) == ((), ["large"])
    assert manager.redo(files).applied
    assert manager.undo(files).applied


def test_a_redo_does_not_mind_an_empty_directory_that_was_ignored_until_the_undo(
    manager: CheckpointManager, files: Path
) -> None:
    (files / ".gitignore").write_text("# nothing\n")
    manager.snapshot(files)
    (files / ".gitignore").write_text("!build/\n")
    manager.restore(files, 1)
    (files / "build" / "empty").mkdir(parents=True)
    before = manifest(files)
    manager.undo(files)
    assert b"build/empty" in manifest(files)
    manager.redo(files)
    assert manifest(files) == before
    manager.undo(files)
    (files / "by the person").mkdir()
    with pytest.raises(NothingToRedo):
        manager.redo(files)


@pytest.mark.parametrize("rules", ["", "kept\n", "gen/\n", "*\n!gen\n", "gen/*\n"])
@pytest.mark.parametrize("inside", ["file", "noise.log"])
def test_a_file_that_a_tool_named_and_a_directory_replaced_comes_back(
    base: Path, project: Path, rules: str, inside: str
) -> None:
    """What lies in the directory is ignored, and is captured because its name was given: it is no file that was
    there before the turn."""
    manager = CheckpointManager(base=base, background_upkeep=False)
    (project / ".gitignore").write_text(rules)
    (project / "gen").mkdir()
    kept = project / "gen" / "kept"
    kept.write_text("precious\n")
    manager.new_turn("s1", "replace it")
    manager.before_tool("write_file", {"path": "gen/kept"}, project)
    kept.unlink()
    kept.mkdir()
    (kept / inside).write_text("in its place\n")
    manager.end_turn()
    manager.undo(project)
    assert kept.read_text() == "precious\n"
