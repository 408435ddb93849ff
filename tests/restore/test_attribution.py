"""Attribution of changes: turns, single tool calls, and two sessions at once in one directory."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from helpers import manifest
from shadowsnap import Checkpoint, CheckpointManager
from shadowsnap.errors import BadArguments, NoSuchTurn
from shadowsnap.snapshot.attribution import Work, work_of_session, work_of_turn
from shadowsnap.store.history import History, fold
from shadowsnap.store.projects import Project

LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def files(project: Path) -> Path:
    for name in ("text.txt", "other.txt"):
        (project / name).write_text(LINES)
    return project


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, background_upkeep=False, fsync=False)


@pytest.fixture
def by_tool(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, background_upkeep=False, granularity="tool", fsync=False)


def replace_line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number] = text + "\n"
    path.write_text("".join(lines))


def kinds(manager: CheckpointManager, project: Path) -> list[str]:
    """Oldest first."""
    return [checkpoint.kind for checkpoint in reversed(manager.list_checkpoints(project))]


def with_lines(**changed: str) -> str:
    return "".join(f"{changed.get(f'l{number}', f'line {number}')}\n" for number in range(40))


# --- the end of a turn ------------------------------------------------------------------------------


def test_a_turn_that_is_ended_twice_is_still_reverted(manager: CheckpointManager, files: Path) -> None:
    manager.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "by the agent")
    manager.end_turn()
    (again,) = manager.end_turn()
    assert again.status == "unchanged" and kinds(manager, files) == ["turn", "turn-end"]
    assert manager.revert(files, turn=1).written == ("text.txt",)


def test_a_snapshot_taken_during_a_turn_does_not_take_its_work_away(
    manager: CheckpointManager, files: Path
) -> None:
    manager.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "by the agent")
    manager.snapshot(files, "taken by the person, right now")
    manager.end_turn()
    assert kinds(manager, files) == ["turn", "manual"]  # which is the end of the turn, too
    assert manager.revert(files, turn=1).written == ("text.txt",)
    assert (files / "text.txt").read_text() == LINES


def test_an_ignored_file_that_is_named_late_in_a_turn_gets_its_content_back(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "notes.log").write_text("the person's notes\n")
    (files / "notes.log").chmod(0o600)
    before = manifest(files)
    manager.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "by the agent")
    assert manager.ensure_checkpoint(files, paths=["notes.log"]).status == "taken"
    (files / "notes.log").write_text("overwritten\n")
    manager.end_turn()
    result = manager.revert(files, turn=1)
    assert set(result.written) == {"text.txt", "notes.log"} and result.deleted == ()
    assert manifest(files) == before


def test_an_ignored_file_that_is_named_after_the_rules_changed_gets_its_content_back(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "notes.log").write_text("the person's notes\n")
    before = manifest(files)
    manager.ensure_checkpoint(files)
    (files / "sub.d").mkdir()
    (files / "sub.d" / ".gitignore").write_text("*.tmp\n")  # so everything is scanned
    manager.ensure_checkpoint(files, paths=["notes.log"])
    (files / "notes.log").write_text("overwritten\n")
    manager.end_turn()
    manager.revert(files, turn=1)
    assert manifest(files) == before


@pytest.mark.parametrize("another_process", [False, True])
def test_a_file_that_the_turn_stopped_ignoring_before_it_was_named_gets_its_content_back(
    base: Path, manager: CheckpointManager, files: Path, another_process: bool
) -> None:
    (files / ".gitignore").write_text("*.tmp\n")
    (files / "mine.tmp").write_text("the person's\n")
    before = manifest(files)
    manager.before_tool("shell", {"command": "make"}, cwd=files)
    (files / ".gitignore").unlink()
    if another_process:
        state = manager.turn_state()
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        manager.resume_turn(state)
    manager.before_tool("write", {"path": "mine.tmp"}, cwd=files)
    (files / "mine.tmp").write_text("overwritten\n")
    manager.end_turn()
    manager.revert(files, turn=1)
    assert manifest(files) == before


def test_a_file_that_the_turn_moved_from_an_ignored_place_is_captured_before_a_tool_writes_to_it(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "mine.log").write_text("the person's\n")
    manager.ensure_checkpoint(files)
    (files / "mine.log").rename(files / "mine.txt")
    outcome = manager.ensure_checkpoint(files, paths=["mine.txt"])
    assert outcome.status == "taken" and outcome.checkpoint is not None
    (files / "mine.txt").write_text("overwritten\n")
    assert manager.contents(files, outcome.checkpoint.id, ["mine.txt"]) == {"mine.txt": b"the person's\n"}


def test_ignored_files_in_a_directory_that_is_named_late_get_their_content_back(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "made" / "deep").mkdir(parents=True)
    (files / "made" / "deep" / "mine.log").write_text("the person's\n")
    (files / "made" / "kept.txt").write_text("captured anyway\n")
    before = manifest(files)
    manager.ensure_checkpoint(files)
    assert manager.ensure_checkpoint(files, paths=["made"]).status == "taken"
    shutil.rmtree(files / "made")
    manager.end_turn()
    manager.revert(files, turn=1)
    assert manifest(files) == before


def test_a_file_that_is_named_late_where_everything_is_ignored_gets_its_content_back(
    manager: CheckpointManager, project: Path
) -> None:
    (project / ".gitignore").write_text("*\n")
    before = manifest(project)
    manager.ensure_checkpoint(project)
    manager.ensure_checkpoint(project, paths=[".gitignore"])
    (project / ".gitignore").write_text("overwritten\n")
    manager.end_turn()
    manager.revert(project, turn=1)
    assert manifest(project) == before


def test_a_file_that_was_captured_once_the_turn_stopped_ignoring_it_gets_its_content_back(
    manager: CheckpointManager, files: Path
) -> None:
    (files / ".gitignore").write_text("*.tmp\n")
    (files / "mine.tmp").write_text("the person's\n")
    (files / "notes.log").write_text("the person's notes\n")
    before = manifest(files)
    manager.ensure_checkpoint(files)
    (files / ".gitignore").unlink()
    manager.ensure_checkpoint(files, paths=["notes.log"])  # takes a snapshot, which holds mine.tmp too
    assert manager.ensure_checkpoint(files, paths=["mine.tmp"]).status == "already-taken"
    (files / "mine.tmp").write_text("overwritten\n")
    manager.end_turn()
    manager.revert(files, turn=1)
    assert manifest(files) == before


def test_a_directory_that_the_turn_moved_is_not_part_of_the_state_before_it(
    manager: CheckpointManager, files: Path
) -> None:
    (files / ".gitignore").write_text("hidden/\n")
    (files / "hidden").mkdir()
    (files / "hidden" / "old.txt").write_text("from before the turn\n")
    manager.ensure_checkpoint(files)
    (files / "hidden").rename(files / "moved")
    assert manager.ensure_checkpoint(files, paths=["moved/old.txt"]).status == "taken"
    manager.end_turn()
    result = manager.revert(files, turn=1)
    assert result.deleted == ("moved/old.txt",) and not (files / "moved").exists()


def test_a_file_that_the_turn_made_and_then_named_is_deleted(manager: CheckpointManager, files: Path) -> None:
    before = manifest(files)
    manager.ensure_checkpoint(files)
    (files / "made.txt").write_text("by a command\n")
    manager.ensure_checkpoint(files, paths=["made.txt"])
    (files / "made.txt").write_text("by a tool\n")
    manager.end_turn()
    assert manager.revert(files, turn=1).deleted == ("made.txt",)
    assert manifest(files) == before


def test_a_directory_of_which_everything_is_held_needs_no_further_checkpoint(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "made").mkdir()
    (files / "made" / "kept.txt").write_text("captured anyway\n")
    manager.ensure_checkpoint(files)
    assert manager.ensure_checkpoint(files, paths=["made", "text.txt", "new.txt"]).status == "already-taken"


def test_files_that_a_turn_stopped_ignoring_are_not_deleted(
    manager: CheckpointManager, files: Path
) -> None:
    (files / ".gitignore").write_text("*.tmp\n")
    (files / "mine.tmp").write_text("the person's\n")
    before = manifest(files)
    manager.ensure_checkpoint(files)
    (files / ".gitignore").write_text("")
    (files / "made.txt").write_text("by the agent\n")
    manager.end_turn()
    result = manager.revert(files, turn=1)
    assert [(kept.path, kept.why) for kept in result.kept] == [("mine.tmp", "ignored at the checkpoint")]
    assert result.deleted == ("made.txt",) and manifest(files) == before


def test_a_file_that_was_too_large_before_is_not_deleted(base: Path, files: Path) -> None:
    manager = CheckpointManager(base=base, max_file_size_mb=0.01, background_upkeep=False)
    (files / "large.txt").write_bytes(b"x" * 20_000)
    manager.ensure_checkpoint(files)
    (files / "large.txt").write_bytes(b"shortened by the agent")
    manager.end_turn()
    for dry_run in (True, False):
        result = manager.revert(files, turn=1, dry_run=dry_run)
        assert [(kept.path, kept.why) for kept in result.kept] == [("large.txt", "too-large at the checkpoint")]
    assert (files / "large.txt").exists()


# --- single tool calls ------------------------------------------------------------------------------


def call(manager: CheckpointManager, project: Path, path: str, number: int, text: str) -> None:
    arguments = {"path": path, "line": number}
    assert manager.before_tool("edit", arguments, cwd=project).status in ("taken", "unchanged")
    replace_line(project / path, number, text)
    assert manager.after_tool("edit", arguments, cwd=project).status == "taken"


def test_each_call_has_a_checkpoint_before_and_after(by_tool: CheckpointManager, files: Path) -> None:
    by_tool.new_turn(session_id="s1")
    call(by_tool, files, "text.txt", 3, "first call")
    call(by_tool, files, "text.txt", 4, "second call")
    assert by_tool.end_turn() == []
    checkpoints = by_tool.list_checkpoints(files)[::-1]
    # The state before the second call is the one after the first.
    assert [checkpoint.kind for checkpoint in checkpoints] == ["turn", "turn-end", "turn-end"]
    assert [checkpoint.turn for checkpoint in checkpoints] == [1, 1, 1]
    assert [checkpoint.metadata["call"] for checkpoint in checkpoints] == [1, 1, 2]
    by_tool.restore(files, checkpoints[1].id)
    assert (files / "text.txt").read_text() == with_lines(l3="first call")


def test_what_the_person_does_between_two_calls_is_theirs(by_tool: CheckpointManager, files: Path) -> None:
    by_tool.new_turn(session_id="s1")
    call(by_tool, files, "text.txt", 3, "agent")
    replace_line(files / "text.txt", 20, "person")
    (files / "person.txt").write_text("made between two calls\n")
    call(by_tool, files, "text.txt", 35, "agent")
    replace_line(files / "other.txt", 20, "person, at last")
    by_tool.end_turn()
    assert by_tool.revert(files, turn=1).conflicts == ()
    assert (files / "text.txt").read_text() == with_lines(l20="person")
    assert (files / "other.txt").read_text() == with_lines(l20="person, at last")
    assert (files / "person.txt").exists()


def test_with_turns_alone_the_same_is_the_agents(manager: CheckpointManager, files: Path) -> None:
    """The counterpart of the test above: it can fail."""
    manager.new_turn(session_id="s1")
    manager.before_tool("edit", {"path": "text.txt"}, cwd=files)
    replace_line(files / "text.txt", 3, "agent")
    assert manager.after_tool("edit", {"path": "text.txt"}, cwd=files).status == "not-needed"
    replace_line(files / "text.txt", 20, "person")
    manager.end_turn()
    manager.revert(files, turn=1)
    assert (files / "text.txt").read_text() == LINES


def test_a_call_that_changes_nothing_costs_no_checkpoint(by_tool: CheckpointManager, files: Path) -> None:
    by_tool.new_turn(session_id="s1")
    call(by_tool, files, "text.txt", 3, "agent")
    replace_line(files / "text.txt", 20, "person")
    assert by_tool.before_tool("bash", {"command": "true"}, cwd=files).status == "taken"
    assert by_tool.after_tool("bash", {"command": "true"}, cwd=files).status == "unchanged"
    replace_line(files / "text.txt", 21, "person")
    by_tool.end_turn()
    assert kinds(by_tool, files) == ["turn", "turn-end", "turn"]
    by_tool.revert(files, turn=1)
    assert (files / "text.txt").read_text() == with_lines(l20="person", l21="person")


def test_calls_that_run_at_the_same_time_are_one_piece_of_work(by_tool: CheckpointManager, files: Path) -> None:
    one, two = {"path": "text.txt"}, {"path": "other.txt"}
    by_tool.before_tool("edit", one, cwd=files)
    replace_line(files / "text.txt", 3, "first call")
    by_tool.before_tool("edit", two, cwd=files)
    replace_line(files / "other.txt", 3, "second call")
    assert by_tool.after_tool("edit", one, cwd=files).status == "not-needed"
    replace_line(files / "other.txt", 4, "second call")
    assert by_tool.after_tool("edit", two, cwd=files).status == "taken"
    replace_line(files / "text.txt", 20, "person")
    by_tool.end_turn()
    by_tool.revert(files, turn=1)
    assert (files / "text.txt").read_text() == with_lines(l20="person")
    assert (files / "other.txt").read_text() == LINES


def test_an_ignored_file_that_a_second_call_names_is_not_deleted(by_tool: CheckpointManager, files: Path) -> None:
    (files / "notes.log").write_text("the person's notes\n")
    before = manifest(files)
    by_tool.before_tool("edit", {"path": "text.txt"}, cwd=files)
    by_tool.before_tool("edit", {"path": "notes.log"}, cwd=files)
    (files / "notes.log").write_text("overwritten\n")
    by_tool.end_turn()
    by_tool.revert(files, turn=1)
    assert manifest(files) == before


def test_without_after_tool_a_turn_is_one_piece_of_work(
    by_tool: CheckpointManager, files: Path
) -> None:
    for number in (3, 4):
        assert by_tool.before_tool("edit", {"path": "text.txt"}, cwd=files).status == "taken"
        replace_line(files / "text.txt", number, "agent")
    (closing,) = by_tool.end_turn()
    assert closing.status == "taken" and kinds(by_tool, files) == ["turn", "turn", "turn-end"]
    by_tool.revert(files, turn=1)
    assert (files / "text.txt").read_text() == LINES


def test_a_call_that_never_ended_is_reverted_up_to_now(by_tool: CheckpointManager, files: Path) -> None:
    by_tool.new_turn(session_id="s1")
    call(by_tool, files, "text.txt", 3, "agent")
    replace_line(files / "text.txt", 20, "person")
    by_tool.before_tool("edit", {"path": "text.txt"}, cwd=files)
    replace_line(files / "text.txt", 35, "agent, and then it died")
    by_tool.revert(files, turn=1)
    assert (files / "text.txt").read_text() == with_lines(l20="person")


def test_another_process_goes_on_with_the_calls(base: Path, files: Path) -> None:
    def resumed(state: dict[str, object]) -> CheckpointManager:
        manager = CheckpointManager(base=base, granularity="tool", background_upkeep=False, fsync=False)
        manager.resume_turn(state)
        return manager

    first = resumed({"session_id": "s1"})
    first.before_tool("edit", {"path": "text.txt"}, cwd=files)
    replace_line(files / "text.txt", 3, "agent")
    second = resumed(first.turn_state())
    assert second.after_tool("edit", {"path": "text.txt"}, cwd=files).status == "taken"
    replace_line(files / "text.txt", 20, "person")
    third = resumed(second.turn_state())
    third.before_tool("edit", {"path": "text.txt"}, cwd=files)
    replace_line(files / "text.txt", 35, "agent")
    resumed(third.turn_state()).end_turn()
    third.revert(files, session_id="s1")
    assert (files / "text.txt").read_text() == with_lines(l20="person")


def test_ensure_checkpoint_begins_a_call_too(by_tool: CheckpointManager, files: Path) -> None:
    assert by_tool.ensure_checkpoint(files, tool="edit").status == "taken"
    replace_line(files / "text.txt", 3, "agent")
    assert by_tool.after_tool("edit", cwd=files).status == "taken"
    replace_line(files / "text.txt", 20, "person")
    assert by_tool.ensure_checkpoint(files).status == "taken"
    replace_line(files / "text.txt", 35, "agent")
    assert by_tool.after_tool("whatever it is called", cwd=files / "src").status == "taken"
    by_tool.revert(files, turn=1)
    assert (files / "text.txt").read_text() == with_lines(l20="person")


def test_max_snapshots_counts_turns_and_their_calls_go_with_them(by_tool: CheckpointManager, files: Path) -> None:
    for turn in range(4):
        by_tool.new_turn(session_id="s1")
        for number in range(3):
            call(by_tool, files, "text.txt", number, f"turn {turn}, call {number}")
    assert {checkpoint.turn for checkpoint in by_tool.list_checkpoints(files)} == {1, 2, 3, 4}
    by_tool.prune(max_snapshots=2)
    left = by_tool.list_checkpoints(files)
    # All of the calls of these turns, and the state before them.
    assert [checkpoint.turn for checkpoint in left] == [4] * 3 + [3] * 3 + [2]
    by_tool.prune(max_snapshots=2)
    assert by_tool.list_checkpoints(files) == left
    by_tool.revert(files, turn=3, on_conflict="theirs")
    assert by_tool.prune(max_snapshots=1).dropped


def test_an_unknown_granularity_is_refused(base: Path) -> None:
    with pytest.raises(BadArguments, match="turn or tool"):
        CheckpointManager(base=base, granularity="line", fsync=False)


def test_after_tool_never_raises(by_tool: CheckpointManager, files: Path, base: Path) -> None:
    assert by_tool.after_tool("edit").status == "not-needed"
    assert by_tool.before_tool("edit", {object(): 1}, cwd=files).status == "taken"
    assert by_tool.after_tool("edit", {object(): 2}, cwd="\0").status == "unchanged"
    by_tool.before_tool("edit", {"path": "text.txt"}, cwd=files)
    os.rename(files, files.with_name("elsewhere"))
    assert by_tool.after_tool("edit", {"path": "text.txt"}, cwd=files).status in ("failed", "refused")
    assert CheckpointManager(base=base, enabled=False).after_tool("edit").status == "disabled"


# --- two sessions at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("ended", [False, True])
def test_an_ignored_file_that_another_session_names_first_belongs_to_the_state_before_both_turns(
    base: Path, files: Path, ended: bool
) -> None:
    """What the one captures is held; so the other's turn must have it as well, before either of them writes."""
    (files / "notes.log").write_text("the person's notes\n")
    one, two = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    one.new_turn("s1", "first")
    one.ensure_checkpoint(files)
    two.new_turn("s2", "second")
    two.ensure_checkpoint(files, paths=["notes.log"])
    if ended:
        two.end_turn()
    assert one.ensure_checkpoint(files, paths=["notes.log"]).status in ("already-taken", "unchanged", "taken")
    (files / "notes.log").write_text("overwritten by s1\n")
    one.end_turn()
    two.end_turn()
    one.restore(files, 1)
    assert (files / "notes.log").read_text() == "the person's notes\n"


def test_what_a_hand_snapshot_finds_after_the_rules_changed_belongs_to_the_state_before_a_running_turn(
    base: Path, files: Path
) -> None:
    (files / ".gitignore").write_text("*.tmp\n")
    (files / "mine.tmp").write_text("the person's\n")
    one = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    one.new_turn("s1", "first")
    one.ensure_checkpoint(files)
    (files / ".gitignore").unlink()
    CheckpointManager(base=base, background_upkeep=False, fsync=False).snapshot(files)
    one.ensure_checkpoint(files, paths=["mine.tmp"])
    (files / "mine.tmp").write_text("overwritten by s1\n")
    one.end_turn()
    one.restore(files, 1)
    assert (files / "mine.tmp").read_text() == "the person's\n"
    assert (files / ".gitignore").read_text() == "*.tmp\n"


def test_a_file_that_a_turn_wrote_before_another_session_named_it_is_no_part_of_the_state_before_it(
    base: Path, files: Path
) -> None:
    one, two = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    one.new_turn("s1", "first")
    one.ensure_checkpoint(files)
    (files / "notes.log").write_text("made by s1\n")
    two.new_turn("s2", "second")
    two.ensure_checkpoint(files, paths=["notes.log"])
    before = one.get(files, 1)
    assert before is not None
    assert one.contents(files, before.id, ["notes.log", "text.txt"]) == {"text.txt": LINES.encode()}


@pytest.mark.parametrize("ended", [False, True])
def test_a_file_that_was_added_to_the_state_before_a_turn_was_not_deleted_by_it(
    base: Path, files: Path, ended: bool
) -> None:
    """The states in between do not hold it either."""
    (files / "notes.log").write_text("the person's notes\n")
    one, two, three = (CheckpointManager(base=base, background_upkeep=False) for _ in range(3))
    one.new_turn("s1", "first")
    one.ensure_checkpoint(files)
    (files / "made.txt").write_text("by s1\n")
    two.new_turn("s2", "second")
    two.ensure_checkpoint(files)
    if ended:
        two.end_turn()
    three.new_turn("s3", "third")
    three.ensure_checkpoint(files, paths=["notes.log"])
    (files / "notes.log").unlink()
    three.end_turn()
    result = one.revert(files, session_id="s1", dry_run=True)
    assert "notes.log" not in result.written


def test_a_call_gives_the_file_that_it_names_to_the_state_before_its_turn(
    by_tool: CheckpointManager, files: Path
) -> None:
    (files / "notes.log").write_text("the person's notes\n")
    by_tool.new_turn("s1", "write")
    call(by_tool, files, "text.txt", 3, "first call")
    by_tool.before_tool("write_file", {"path": "notes.log"}, cwd=files)
    (files / "notes.log").write_text("overwritten\n")
    by_tool.after_tool("write_file", {"path": "notes.log"}, cwd=files)
    by_tool.end_turn()
    by_tool.restore(files, 1)
    assert (files / "notes.log").read_text() == "the person's notes\n"
    assert (files / "text.txt").read_text() == LINES


def test_a_file_that_a_call_stopped_ignoring_belongs_to_the_state_before_its_turn(
    by_tool: CheckpointManager, files: Path
) -> None:
    """What the end of one call captures is held when the next one names it."""
    (files / ".gitignore").write_text("*.tmp\n")
    (files / "mine.tmp").write_text("the person's\n")
    by_tool.new_turn("s1", "write")
    by_tool.before_tool("shell", {"command": "rm .gitignore"}, cwd=files)
    (files / ".gitignore").unlink()
    by_tool.after_tool("shell", {"command": "rm .gitignore"}, cwd=files)
    by_tool.before_tool("write_file", {"path": "mine.tmp"}, cwd=files)
    (files / "mine.tmp").write_text("overwritten\n")
    by_tool.after_tool("write_file", {"path": "mine.tmp"}, cwd=files)
    by_tool.end_turn()
    by_tool.restore(files, 1)
    assert (files / "mine.tmp").read_text() == "the person's\n"



@pytest.fixture
def two(base: Path) -> tuple[CheckpointManager, CheckpointManager]:
    made = [CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2)]
    for manager, session in zip(made, ("s1", "s2"), strict=True):
        manager.new_turn(session_id=session)
    return made[0], made[1]


def overlapping(two: tuple[CheckpointManager, CheckpointManager], files: Path) -> None:
    """Turn 1 of s1 alone, then both, then turn 2 of s2 alone."""
    one, other = two
    one.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "s1 alone")
    (files / "s1.txt").write_text("s1 alone\n")
    other.ensure_checkpoint(files)
    replace_line(files / "other.txt", 3, "s1 or s2")
    (files / "both.txt").write_text("s1 or s2\n")
    one.end_turn()
    replace_line(files / "text.txt", 35, "s2 alone")
    other.end_turn()


def test_what_was_done_while_both_were_at_work_is_left_alone_and_reported(
    two: tuple[CheckpointManager, CheckpointManager], files: Path
) -> None:
    overlapping(two, files)
    plan = two[0].revert(files, session_id="s1", dry_run=True)
    result = two[0].revert(files, session_id="s1")
    assert (plan.written, plan.deleted, plan.conflicts) == (result.written, result.deleted, result.conflicts)
    assert [conflict.path for conflict in result.conflicts] == ["both.txt", "other.txt"]
    assert {conflict.why for conflict in result.conflicts} == {"shared: changed while session s2 worked here, too"}
    assert result.conflicts[1].to_dict()["theirs"] == LINES
    assert (files / "text.txt").read_text() == with_lines(l35="s2 alone")
    assert not (files / "s1.txt").exists()
    assert (files / "both.txt").exists() and (files / "other.txt").read_text() == with_lines(l3="s1 or s2")


def test_an_interrupted_turn_that_began_on_a_held_state_goes_with_its_session(
    manager: CheckpointManager, files: Path
) -> None:
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    (files / "first.txt").write_text("1\n")
    manager.end_turn()
    manager.new_turn(session_id="s1")
    assert manager.ensure_checkpoint(files).status == "unchanged"
    (files / "interrupted.txt").write_text("2\n")
    assert manager.revert(files, session_id="s1", dry_run=True).deleted == ("first.txt", "interrupted.txt")
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    (files / "third.txt").write_text("3\n")
    manager.end_turn()
    (files / "person.txt").write_text("mine\n")
    result = manager.revert(files, session_id="s1")
    assert result.deleted == ("first.txt", "interrupted.txt", "third.txt") and not result.conflicts
    assert (files / "person.txt").exists()
    assert not manager.revert(files, session_id="s1", dry_run=True).written


def test_a_session_whose_every_change_is_disputed_is_not_rolled_back(
    manager: CheckpointManager, files: Path
) -> None:
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "by the agent")
    manager.end_turn()
    replace_line(files / "text.txt", 3, "by the person")
    assert [each.path for each in manager.revert(files, session_id="s1").conflicts] == ["text.txt"]
    session = manager.session("s1")
    assert session.status == "active" and not session.turns[0].reverted
    assert manager.revert(files, session_id="s1", on_conflict="theirs").written == ("text.txt",)
    assert manager.session("s1").status == "rolled_back"


def test_a_quiet_turn_on_a_held_state_claims_no_work(manager: CheckpointManager, files: Path) -> None:
    manager.snapshot(files)
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    manager.end_turn()
    (files / "person.txt").write_text("mine\n")
    result = manager.revert(files, session_id="s1")
    assert result.written == result.deleted == result.conflicts == () and result.undo_id is None
    assert (files / "person.txt").exists()


def test_two_turns_that_did_nothing_claim_no_work_although_one_was_interrupted(
    manager: CheckpointManager, files: Path
) -> None:
    for _ in range(2):
        manager.new_turn(session_id="s1")
        manager.ensure_checkpoint(files)
    manager.end_turn()
    (files / "person.txt").write_text("mine\n")
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    (files / "agent.txt").write_text("3\n")
    manager.end_turn()
    assert manager.revert(files, session_id="s1").deleted == ("agent.txt",)
    assert (files / "person.txt").exists()


def test_an_interrupted_call_that_began_on_a_held_state_goes_with_its_session(
    by_tool: CheckpointManager, files: Path
) -> None:
    by_tool.new_turn(session_id="s1")
    by_tool.before_tool("edit", {"n": 1}, cwd=files)
    (files / "first.txt").write_text("1\n")
    by_tool.after_tool("edit", {"n": 1}, cwd=files)
    assert by_tool.before_tool("edit", {"n": 2}, cwd=files).status == "unchanged"
    (files / "interrupted.txt").write_text("2\n")
    assert by_tool.revert(files, session_id="s1").deleted == ("first.txt", "interrupted.txt")


def test_sessions_that_both_began_on_a_held_state_share_what_they_did(
    two: tuple[CheckpointManager, CheckpointManager], files: Path
) -> None:
    two[0].snapshot(files)
    assert [each.ensure_checkpoint(files).status for each in two] == ["unchanged", "unchanged"]
    (files / "s1.txt").write_text("1\n")
    (files / "s2.txt").write_text("2\n")
    assert [each.end_turn()[0].status for each in two] == ["taken", "unchanged"]
    for session in ("s1", "s2"):
        result = two[0].revert(files, session_id=session)
        assert not result.deleted and [each.path for each in result.conflicts] == ["s1.txt", "s2.txt"]
    for number, other in ((2, "s2"), (3, "s1")):
        plan = two[0].revert(files, turn=number, dry_run=True)
        assert {each.why for each in plan.conflicts} == {shared_with(other)}


def test_the_other_session_keeps_its_work_too(
    two: tuple[CheckpointManager, CheckpointManager], files: Path
) -> None:
    overlapping(two, files)
    result = two[1].revert(files, turn=2)
    assert {conflict.why for conflict in result.conflicts} == {"shared: changed while session s1 worked here, too"}
    assert (files / "text.txt").read_text() == with_lines(l3="s1 alone")
    assert (files / "both.txt").exists() and (files / "s1.txt").exists()


def test_shared_work_is_reverted_if_asked(two: tuple[CheckpointManager, CheckpointManager], files: Path) -> None:
    overlapping(two, files)
    result = two[0].revert(files, session_id="s1", on_conflict="theirs")
    assert [conflict.path for conflict in result.conflicts] == ["both.txt", "other.txt"]
    assert not (files / "both.txt").exists() and (files / "other.txt").read_text() == LINES
    assert (files / "text.txt").read_text() == with_lines(l35="s2 alone")


def test_a_turn_that_is_alone_again_shares_nothing(
    two: tuple[CheckpointManager, CheckpointManager], files: Path
) -> None:
    overlapping(two, files)
    two[0].new_turn(session_id="s1")
    two[0].ensure_checkpoint(files)
    replace_line(files / "text.txt", 20, "alone again")
    two[0].end_turn()
    assert conflicts(two[0], files, 1) == {"both.txt", "other.txt"} == conflicts(two[0], files, 2)
    assert conflicts(two[0], files, 3) == set()


def conflicts(manager: CheckpointManager, project: Path, turn: int) -> set[str]:
    """The files that a revert of a turn would leave alone."""
    return {each.path for each in manager.revert(project, turn=turn, dry_run=True).conflicts}


def shared_with(session: str) -> str:
    return f"shared: changed while session {session} worked here, too"


def test_a_turn_that_is_still_open_counts_as_well(
    two: tuple[CheckpointManager, CheckpointManager], files: Path
) -> None:
    one, other = two
    one.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "s1 alone")
    other.ensure_checkpoint(files)
    replace_line(files / "text.txt", 20, "s1, which is not done yet")
    other.end_turn()
    result = other.revert(files, session_id="s2")
    assert [conflict.path for conflict in result.conflicts] == ["text.txt"]
    assert (files / "text.txt").read_text() == with_lines(l3="s1 alone", l20="s1, which is not done yet")


def test_tool_calls_show_whose_work_it_was(base: Path, files: Path) -> None:
    """Two turns at once, but no two calls: nothing is shared."""
    one, other = (CheckpointManager(base=base, granularity="tool", background_upkeep=False) for _ in range(2))
    one.new_turn(session_id="s1")
    other.new_turn(session_id="s2")
    for number in range(3):
        call(one, files, "text.txt", number, f"s1 {number}")
        call(other, files, "text.txt", 20 + number, f"s2 {number}")
        call(one, files, "other.txt", number, f"s1 {number}")
    one.end_turn()
    other.end_turn()
    assert conflicts(one, files, 1) == set() == conflicts(one, files, 2)
    assert one.revert(files, session_id="s1").conflicts == ()
    assert (files / "text.txt").read_text() == with_lines(l20="s2 0", l21="s2 1", l22="s2 2")
    assert (files / "other.txt").read_text() == LINES


def test_tool_calls_at_the_same_time_are_shared(base: Path, files: Path) -> None:
    one, other = (CheckpointManager(base=base, granularity="tool", background_upkeep=False) for _ in range(2))
    one.new_turn(session_id="s1")
    other.new_turn(session_id="s2")
    call(one, files, "text.txt", 3, "s1 alone")
    one.before_tool("bash", {"command": "make"}, cwd=files)
    call(other, files, "other.txt", 3, "s1 or s2")
    replace_line(files / "text.txt", 35, "s1 alone again")
    one.after_tool("bash", {"command": "make"}, cwd=files)
    result = one.revert(files, session_id="s1")
    assert [conflict.path for conflict in result.conflicts] == ["other.txt"]
    assert (files / "text.txt").read_text() == LINES


def test_subagents_of_one_session_share_nothing(base: Path, files: Path) -> None:
    one, other = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    before = manifest(files)
    for manager in (one, other):
        manager.new_turn(session_id="s1")
        manager.ensure_checkpoint(files)
        replace_line(files / "text.txt", 3 if manager is one else 30, "by a subagent")
    one.end_turn()
    replace_line(files / "other.txt", 3, "by a subagent")
    other.end_turn()
    assert one.revert(files, session_id="s1").conflicts == ()
    assert manifest(files) == before


def test_turns_one_after_the_other_share_nothing(
    two: tuple[CheckpointManager, CheckpointManager], files: Path
) -> None:
    for number, manager in enumerate((*two, *two)):
        manager.new_turn(session_id=f"s{1 + number % 2}")
        manager.ensure_checkpoint(files)
        replace_line(files / "text.txt", number * 8, f"turn {number}")
        manager.end_turn()
    assert all(conflicts(two[0], files, turn) == set() for turn in (1, 2, 3, 4))
    assert two[0].revert(files, session_id="s1").conflicts == ()
    assert (files / "text.txt").read_text() == with_lines(l8="turn 1", l24="turn 3")


# --- the function itself ----------------------------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: float, kind: str, turn: int | None, session: str | None, **metadata: object) -> Checkpoint:
    moment = START + timedelta(minutes=minute)
    name = f"{int(moment.timestamp() * 1000):013d}"
    return Checkpoint(
        id=f"{minute:g}", project="p", workdir="/w", created_at=moment, reason="", kind=kind, turn=turn,
        session_id=session, metadata=dict(metadata), ref=f"refs/shadowsnap/p/{name}-x",
    )  # fmt: skip


def described(work: list[Work]) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [(each.before.id, each.after.id if each.after else None, each.shared) for each in work]


def happened(*lines: tuple[str, float, dict[str, object]]) -> History:
    """The history that some lines tell: what happened, in which minute, and its facts."""
    return fold(Project("p", Path("/w")), [{"op": op, "at": minute * 60, **facts} for op, minute, facts in lines])


def begin(minute: float, turn: int, session: str | None) -> tuple[str, float, dict[str, object]]:
    return "begin", minute, {"turn": turn, "session": session, "before": f"{minute:g}"}


def end(minute: float, turn: int) -> tuple[str, float, dict[str, object]]:
    return "end", minute, {"turn": turn, "after": f"{minute:g}", "status": "done"}


def test_an_unclosed_turn_ends_where_its_session_goes_on() -> None:
    past = [
        at(4, "turn", 2, "s1"),
        at(3, "manual", None, None),
        at(1, "turn", 1, "s1"),
    ]
    history = happened(begin(1, 1, "s1"), begin(4, 2, "s1"))
    assert described(work_of_turn(history, past, 1)) == [("1", "4", ())]
    assert described(work_of_turn(history, past, 2)) == [("4", None, ())]
    # The nearest thing to an end.
    assert described(work_of_turn(happened(begin(1, 1, "s1")), past[1:], 1)) == [("1", "3", ())]


def test_a_turn_that_was_left_open_long_ago_is_not_at_work_any_more() -> None:
    def work(minute: float) -> list[tuple[str, str | None, tuple[str, ...]]]:
        past = [
            at(minute + 1, "turn-end", 2, "s2", before=f"{minute:g}"),
            at(minute, "turn", 2, "s2"),
            at(1, "turn", 1, "s1"),
        ]
        history = happened(begin(1, 1, "s1"), begin(minute, 2, "s2"), end(minute + 1, 2))
        return described(work_of_turn(history, past, 2))

    assert work(30) == [("30", "31", ("s1",))]
    assert work(90) == [("90", "91", ())]


def test_a_turn_without_its_beginning_cannot_be_attributed() -> None:
    past = [at(3, "turn-end", 2, "s1", before="gone")]
    history = happened(("begin", 2, {"turn": 2, "before": "gone", "session": "s1"}), end(3, 2))
    with pytest.raises(NoSuchTurn, match="before turn 2"):
        work_of_turn(history, past, 2)
    with pytest.raises(NoSuchTurn, match="turn 7"):
        work_of_turn(history, past, 7)


def test_a_stage_of_another_session_cuts_a_turn_too() -> None:
    past = [
        at(5, "turn-end", 1, "s1", before="1"),
        at(4, "stage", None, "s2", before="3"),
        at(3, "manual", None, None),
        at(1, "turn", 1, "s1"),
    ]
    stage = ("stage", 4.0, {"number": 2, "before": "3", "after": "4", "session": "s2"})
    history = happened(begin(1, 1, "s1"), stage, end(5, 1))
    assert described(work_of_session(history, past, "s1")) == [("4", "5", ()), ("3", "4", ("s2",)), ("1", "3", ())]
    assert described(work_of_session(history, past, "s2")) == [("3", "4", ("s1",))]


def test_turns_that_changed_nothing_are_ignored() -> None:
    past = [
        at(5, "turn-end", 2, "s2", before="4"),
        at(4, "turn", 2, "s2"),
        at(1, "turn", 1, "s1"),
    ]
    quiet = ("end", 6.0, {"turn": 1, "after": "1", "status": "done"})
    history = happened(begin(1, 1, "s1"), begin(4, 2, "s2"), end(5, 2), quiet)
    assert described(work_of_turn(history, past, 2)) == [("4", "5", ())]
    assert described(work_of_turn(history, past, 1)) == [("1", "1", ())]


def test_a_turn_of_which_only_named_files_were_captured_at_first_begins_with_all_files() -> None:
    """The files that the first checkpoint does not know were not made by the turn."""
    past = [
        at(5, "turn-end", 1, "s1", before="2"),
        at(2, "turn", 1, "s1"),
        replace(at(1, "turn", 1, "s1"), scope="paths"),
    ]
    more = ("more", 2.0, {"turn": 1, "checkpoint": "2"})
    assert described(work_of_turn(happened(begin(1, 1, "s1"), more, end(5, 1)), past, 1)) == [("2", "5", ())]
    unclosed = happened(begin(1, 1, "s1"))
    assert described(work_of_turn(unclosed, past[2:], 1)) == [("1", "1", ())]


# --- which turns changed a file ---------------------------------------------------------------------


def test_the_turns_that_changed_a_file_are_listed(manager: CheckpointManager, files: Path) -> None:
    """A closing checkpoint shows what its turn did, an opening one what happened between the turns."""
    for turn in range(1, 6):
        manager.new_turn(session_id="s1")
        manager.ensure_checkpoint(files)
        replace_line(files / ("text.txt" if turn % 2 else "other.txt"), turn, f"turn {turn}")
        manager.end_turn()
        if turn == 3:
            replace_line(files / "text.txt", 30, "person")
    found = manager.list_checkpoints(files, path="text.txt")
    assert [(each.kind, each.turn) for each in found] == [
        ("turn-end", 5), ("turn", 4), ("turn-end", 3), ("turn-end", 1), ("turn", 1),
    ]  # fmt: skip
    closing = [each for each in manager.list_checkpoints(files, path="other.txt") if each.kind == "turn-end"]
    assert [each.turn for each in closing] == [4, 2]


# --- what a revert is ---------------------------------------------------------------------------------


def test_a_revert_is_a_restore_with_a_checkpoint_of_the_state_before(
    manager: CheckpointManager, files: Path
) -> None:
    manager.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "by the agent")
    manager.end_turn()
    replace_line(files / "text.txt", 30, "by the person")
    now = manifest(files)
    result = manager.revert(files, turn=1)
    assert result.undo_id is not None
    before = manager.get(files, result.undo_id)
    assert before.kind == "pre-restore"
    manager.restore(files, before.id)
    assert manifest(files) == now


def test_the_end_of_a_turn_closes_every_directory_it_touched(
    manager: CheckpointManager, files: Path, tmp_path: Path
) -> None:
    second, third = tmp_path / "second", tmp_path / "third"
    for folder in (second, third):
        folder.mkdir()
        (folder / "file").write_text("x\n")
    manager.new_turn(session_id="s1")
    for folder in (files, second, third):
        manager.ensure_checkpoint(folder)
    replace_line(files / "text.txt", 3, "by the agent")
    (second / "file").write_text("by the agent\n")
    assert sorted(outcome.status for outcome in manager.end_turn()) == ["taken", "taken", "unchanged"]
    assert [kinds(manager, folder) for folder in (files, second, third)] == [
        ["turn", "turn-end"], ["turn", "turn-end"], ["turn"],
    ]  # fmt: skip


@pytest.mark.parametrize("session", ["s1", None])
def test_stages_within_stages_within_a_turn_go_with_their_session(
    manager: CheckpointManager, files: Path, session: str | None
) -> None:
    """Also if the host does not name the session of each stage."""
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    with manager.stage(files, session_id=session):
        replace_line(files / "text.txt", 3, "outer")
        with manager.stage(files, session_id=session):
            replace_line(files / "text.txt", 3, "inner")
            (files / "inner.txt").write_text("inner\n")
        replace_line(files / "text.txt", 4, "outer again")
    replace_line(files / "other.txt", 3, "the turn")
    manager.end_turn()
    replace_line(files / "text.txt", 30, "person")
    result = manager.revert(files, session_id="s1")
    assert result.conflicts == () and result.deleted == ("inner.txt",)
    assert (files / "text.txt").read_text() == with_lines(l30="person")
    assert (files / "other.txt").read_text() == LINES


def test_a_file_that_one_session_made_and_another_one_names_is_the_work_of_the_first(
    manager: CheckpointManager, base: Path, files: Path
) -> None:
    manager.new_turn(session_id="a", prompt="make it")
    manager.ensure_checkpoint(files)
    (files / "made.py").write_text("made = True\n")
    other = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    other.new_turn(session_id="b", prompt="look at it")
    other.ensure_checkpoint(files, paths=["made.py"])
    other.end_turn()
    manager.end_turn()
    (line,) = manager.blame(files, "made.py")
    assert (line.author.who, line.author.session_id) == ("turn", "a")
    assert manager.revert(files, turn=1).deleted == ("made.py",)
