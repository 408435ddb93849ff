"""A revert touches only what the turn changed, does what its plan announces, and can be undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from restoring import file_changes

from helpers import git, manifest
from shadowsnap import CheckpointManager, RestoreResult, ShadowsnapError

LINES = "".join(f"line {number}\n" for number in range(40))
HOW = pytest.mark.parametrize("how", ["keep", "markers", "theirs"])


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, background_upkeep=False, fsync=False)


@pytest.fixture
def files(project: Path) -> Path:
    (project / "old.py").write_text(LINES)
    (project / "other.txt").write_text("other\n")
    return project


def turn(
    manager: CheckpointManager, project: Path, work: Callable[[], object], session: str = "s1", *named: str
) -> int:
    """An agent's turn; its number."""
    manager.new_turn(session_id=session)
    outcome = manager.ensure_checkpoint(project, paths=named)
    assert outcome.status in ("taken", "unchanged"), outcome.error
    work()
    for outcome in manager.end_turn():
        assert outcome.status in ("taken", "unchanged"), outcome.error
    number = manager.list_checkpoints(project, session_id=session)[0].turn
    assert number is not None
    return number


def replace_line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number] = text + "\n"
    path.write_text("".join(lines))


def similar(changed: int, text: str) -> str:
    """Lines of which so many are other ones: alike enough for git to see a rename."""
    return "".join(f"{text} {number}\n" if number < changed else f"line {number}\n" for number in range(40))


def reverted(manager: CheckpointManager, project: Path, **arguments: Any) -> RestoreResult:
    """Revert as planned, and undo that and redo it on the way: each is exact."""
    before = manifest(project)
    plan = manager.revert(project, dry_run=True, **arguments)
    assert manifest(project) == before and not plan.applied
    result = manager.revert(project, **arguments)
    assert file_changes(result) == file_changes(plan) and result.applied
    after = manifest(project)
    if after != before:
        manager.undo(project)
        assert manifest(project) == before
        manager.redo(project)
        assert manifest(project) == after
    for path in (*result.written, *result.deleted):
        name = path.rstrip("/").encode()
        assert before.get(name) != after.get(name), f"{path} is reported, and did not change"
    return result


# --- renames ----------------------------------------------------------------------------------------


@HOW
def test_a_file_that_the_person_renamed_and_edited_is_never_deleted(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    number = turn(manager, files, lambda: replace_line(files / "old.py", 3, "by the agent"))
    (files / "old.py").rename(files / "new.py")
    replace_line(files / "new.py", 3, "by the person")
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert "new.py" not in result.deleted
    assert {conflict.path for conflict in result.conflicts} & {"old.py", "new.py"}
    text = (files / "new.py").read_text()
    if how == "theirs":  # the state before the turn, under either name
        left = [path.read_text() for path in (files / "old.py", files / "new.py") if path.exists()]
        assert LINES in left
        assert text in (LINES, LINES.replace("line 3\n", "by the person\n"))
    else:
        assert "by the person\n" in text


@HOW
def test_a_file_that_the_person_only_renamed_keeps_its_new_name(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    """Its content is exactly what the turn left, so nothing is guessed."""
    number = turn(manager, files, lambda: replace_line(files / "old.py", 3, "by the agent"))
    (files / "old.py").rename(files / "new.py")
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert "new.py" not in result.deleted
    assert (files / "new.py").exists()
    if not result.conflicts:
        assert (files / "new.py").read_text() == LINES


@HOW
def test_a_similar_file_of_the_person_stays_where_the_turn_made_one_that_is_gone(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    number = turn(manager, files, lambda: (files / "made.py").write_text(similar(20, "made")))
    (files / "made.py").unlink()
    (files / "mine.py").write_text(similar(12, "made"))
    mine = (files / "mine.py").read_text()
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert (files / "mine.py").read_text() == mine
    assert result.written == () and result.deleted == ()


@HOW
def test_a_similar_file_of_the_person_stays_where_the_turn_edited_one_that_is_gone(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    number = turn(manager, files, lambda: replace_line(files / "old.py", 35, "by the agent"))
    (files / "old.py").unlink()
    (files / "mine.py").write_text(similar(14, "mine").replace("line 35\n", "by the agent\n"))
    mine = (files / "mine.py").read_text()
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert (files / "mine.py").read_text() == mine
    assert "mine.py" not in {*result.written, *result.deleted, *(each.path for each in result.conflicts)}


@HOW
def test_a_similar_file_that_a_later_turn_made_stays(manager: CheckpointManager, files: Path, how: str) -> None:
    first = turn(manager, files, lambda: replace_line(files / "old.py", 35, "by the first turn"))

    def replace_by_a_similar_one() -> None:
        (files / "old.py").unlink()
        (files / "later.py").write_text(similar(14, "later"))

    turn(manager, files, replace_by_a_similar_one)
    later = (files / "later.py").read_text()
    result = reverted(manager, files, turn=first, on_conflict=how)
    assert (files / "later.py").read_text() == later
    assert "later.py" not in {*result.written, *result.deleted}


@HOW
def test_a_similar_file_stays_where_the_turn_exchanged_one_for_another(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    """The turn deletes one file and makes a similar one, which git takes for a rename; the person has a
    third one of the kind since."""

    def exchange() -> None:
        (files / "old.py").unlink()
        (files / "made.py").write_text(similar(10, "made"))

    number = turn(manager, files, exchange)
    (files / "made.py").unlink()
    (files / "mine.py").write_text(similar(14, "mine"))
    mine = (files / "mine.py").read_text()
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert (files / "mine.py").read_text() == mine
    assert "mine.py" not in {*result.written, *result.deleted}
    assert (files / "old.py").exists() or "old.py" in {conflict.path for conflict in result.conflicts}


# --- two sessions at work ---------------------------------------------------------------------------


@pytest.mark.parametrize("edit", ["changed", "made anew", "gone"])
@pytest.mark.parametrize("session", ["s1", "s2"])
@HOW
@pytest.mark.each_value
def test_a_disputed_file_may_have_been_edited_since_the_last_snapshot(
    base: Path, files: Path, how: str, session: str, edit: str
) -> None:
    """The present content is in no checkpoint yet, and the store is in order all the same."""
    one, two = (CheckpointManager(base=base, background_upkeep=False, fsync=False) for _ in range(2))
    one.new_turn(session_id="s1")
    assert one.ensure_checkpoint(files).status == "taken"
    two.new_turn(session_id="s2")
    assert two.ensure_checkpoint(files).status in ("taken", "unchanged")
    replace_line(files / "old.py", 3, "by one of the two")
    (files / "other.txt").write_text("by one of the two\n")
    two.end_turn()
    one.end_turn()
    if edit == "changed":
        (files / "old.py").write_text(LINES.replace("line 30\n", "by the person, in no checkpoint\n"))
    elif edit == "made anew":
        (files / "old.py").unlink()
        (files / "old.py").write_text("something else, in no checkpoint\n")
    else:
        (files / "old.py").unlink()
    now = (files / "old.py").read_text() if edit != "gone" else None
    result = reverted(one, files, session_id=session, on_conflict=how)
    (conflict,) = (each for each in result.conflicts if each.path == "old.py")
    assert conflict.to_dict()["ours"] == now
    assert one.doctor().healthy
    if how == "keep":
        assert result.written == () and result.deleted == ()


# --- plans come true ------------------------------------------------------------------------------


def attempted(manager: CheckpointManager, project: Path, **arguments: Any) -> None:
    """A plan either comes true, with an exact way back, or is refused from the start."""
    before = manifest(project)
    try:
        manager.revert(project, dry_run=True, **arguments)
    except ShadowsnapError as refused:
        with pytest.raises(type(refused)):
            manager.revert(project, **arguments)
        assert manifest(project) == before
    else:
        reverted(manager, project, **arguments)


@HOW
def test_a_file_in_the_place_of_an_ignored_directory_is_planned_for(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    """Their git tracks gen/f although gen is ignored; the turn puts a file there, which nothing captures."""
    git(files, "init", "-q")
    (files / "gen").mkdir()
    (files / "gen" / "f").write_text("tracked\n")
    (files / ".gitignore").write_text("gen\n")
    git(files, "add", "-A", "-f")

    def put_a_file_there() -> None:
        (files / "gen" / "f").unlink()
        (files / "gen").rmdir()
        (files / "gen").write_text("a file now\n")

    number = turn(manager, files, put_a_file_there)
    attempted(manager, files, turn=number, on_conflict=how)


@HOW
def test_a_named_file_comes_back_into_a_directory_that_is_ignored_by_now(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    (files / "gen").mkdir()
    for name in ("f", "stays"):
        (files / "gen" / name).write_text(f"{name}\n")
    (files / ".gitignore").write_text("gen/\n")
    number = turn(manager, files, (files / "gen" / "f").unlink, "s1", "gen/f")
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert result.written == ("gen/f",)
    assert (files / "gen" / "f").read_text() == "f\n"
    assert (files / "gen" / "stays").read_text() == "stays\n"


@HOW
def test_a_file_comes_back_into_a_directory_that_the_person_ignored_since(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    (files / "gen").mkdir()
    for name in ("f", "stays"):
        (files / "gen" / name).write_text(f"{name}\n")
    number = turn(manager, files, (files / "gen" / "f").unlink)
    (files / ".gitignore").write_text("gen/\n")
    result = reverted(manager, files, turn=number, on_conflict=how)
    assert result.written == ("gen/f",)
    assert (files / "gen" / "f").read_text() == "f\n"


@HOW
def test_a_file_that_the_person_put_where_a_directory_was_is_planned_for(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    (files / "gen").mkdir()
    (files / "gen" / "f").write_text("f\n")

    def remove() -> None:
        (files / "gen" / "f").unlink()
        (files / "gen").rmdir()

    number = turn(manager, files, remove)
    (files / ".gitignore").write_text("gen\n")
    (files / "gen").write_text("the person's, and ignored\n")
    attempted(manager, files, turn=number, on_conflict=how)


@pytest.mark.parametrize("rules", ["gen/\n", "gen/*\n", "f\n"])
def test_a_revert_is_undone_although_the_turn_changed_the_rules(
    manager: CheckpointManager, files: Path, rules: str
) -> None:
    (files / "gen").mkdir()
    for name in ("f", "stays"):
        (files / "gen" / name).write_text(f"{name}\n")

    def work() -> None:
        (files / ".gitignore").write_text(rules)
        (files / "gen" / "f").unlink()
        (files / "gen" / "made").write_text("made\n")

    number = turn(manager, files, work, "s1", "gen/f")
    reverted(manager, files, turn=number)
    assert (files / "gen" / "f").read_text() == "f\n" and not (files / ".gitignore").exists()


def test_undo_right_after_a_revert_that_deleted_a_named_file_brings_it_back(
    manager: CheckpointManager, files: Path
) -> None:
    """The turn makes a file and names it; its directory is ignored by now and holds other things."""
    (files / "gen").mkdir()
    (files / "gen" / "stays").write_text("stays\n")
    number = turn(manager, files, lambda: (files / "gen" / "f").write_text("made by the turn\n"), "s1", "gen/f")
    turn(manager, files, lambda: (files / ".gitignore").write_text("gen/\n"), "s2", "gen/f")
    mutated = manifest(files)
    assert manager.revert(files, turn=number).deleted == ("gen/f",)
    manager.undo(files)
    assert manifest(files) == mutated


# --- conflicts of a session -------------------------------------------------------------------------


@pytest.mark.parametrize("disputed", ["first", "second"])
def test_a_file_with_a_conflict_in_one_turn_of_a_session_is_left_alone_in_all(
    manager: CheckpointManager, files: Path, disputed: str
) -> None:
    turn(manager, files, lambda: replace_line(files / "old.py", 3, "the first turn"))
    turn(manager, files, lambda: replace_line(files / "old.py", 30, "the second turn"))
    turn(manager, files, lambda: (files / "other.txt").write_text("the third turn\n"))
    replace_line(files / "old.py", 3 if disputed == "first" else 30, "by the person")
    now = (files / "old.py").read_text()
    result = reverted(manager, files, session_id="s1")
    assert [conflict.path for conflict in result.conflicts] == ["old.py"]
    assert (files / "old.py").read_text() == now
    assert result.written == ("other.txt",)
    assert (files / "other.txt").read_text() == "other\n"


def test_a_file_with_a_conflict_keeps_its_bits_too(manager: CheckpointManager, files: Path) -> None:
    turn(manager, files, lambda: (files / "old.py").chmod(0o755))
    turn(manager, files, lambda: replace_line(files / "old.py", 30, "the second turn"))
    replace_line(files / "old.py", 30, "by the person")
    now = manifest(files)[b"old.py"]
    result = reverted(manager, files, session_id="s1")
    assert [conflict.path for conflict in result.conflicts] == ["old.py"]
    assert manifest(files)[b"old.py"] == now
    assert result.written == ()


def test_a_file_that_one_turn_made_and_a_later_conflict_is_about_is_not_deleted(
    manager: CheckpointManager, files: Path
) -> None:
    turn(manager, files, lambda: (files / "made.py").write_text(LINES))
    turn(manager, files, lambda: replace_line(files / "made.py", 30, "the second turn"))
    replace_line(files / "made.py", 30, "by the person")
    now = (files / "made.py").read_text()
    result = reverted(manager, files, session_id="s1")
    assert [conflict.path for conflict in result.conflicts] == ["made.py"]
    assert (files / "made.py").read_text() == now


@pytest.mark.parametrize("how", ["markers", "theirs"])
def test_with_another_choice_a_conflict_is_settled_as_asked(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    turn(manager, files, lambda: replace_line(files / "old.py", 3, "the first turn"))
    turn(manager, files, lambda: replace_line(files / "old.py", 30, "the second turn"))
    replace_line(files / "old.py", 30, "by the person")
    result = reverted(manager, files, session_id="s1", on_conflict=how)
    text = (files / "old.py").read_text()
    assert "old.py" in {conflict.path for conflict in result.conflicts}
    assert "the first turn" not in text
    assert text == LINES if how == "theirs" else "<<<<<<< now\nby the person\n" in text
