"""Revert takes back what one turn or one session did, and keeps what everyone else did."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import git as run_git
from helpers import manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.errors import BadArguments, NoSuchTurn

LINES = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


@pytest.fixture
def files(project: Path) -> Path:
    (project / "text.txt").write_text(LINES)
    (project / "other.txt").write_text("other\n")
    (project / "data.bin").write_bytes(bytes(range(256)))
    return project


class Turn:
    """An agent's turn, as its host runs it."""

    def __init__(self, manager: CheckpointManager, project: Path, session: str = "s1") -> None:
        self.manager, self.project, self.session = manager, project, session

    def __enter__(self) -> None:
        self.manager.new_turn(session_id=self.session)
        outcome = self.manager.ensure_checkpoint(self.project)
        assert outcome.status in ("taken", "unchanged"), outcome.error

    def __exit__(self, *_: object) -> None:
        for outcome in self.manager.end_turn():
            assert outcome.status in ("taken", "unchanged"), outcome.error


def replace_line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    lines[number] = text + "\n"
    path.write_text("".join(lines))


def test_the_person_keeps_their_edits_in_the_same_file(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
    replace_line(files / "text.txt", 30, "by the person")
    manager.revert(files, turn=1)
    expected = LINES.replace("line 30\n", "by the person\n")
    assert (files / "text.txt").read_text() == expected


def test_files_made_deleted_renamed_and_chmodded_by_the_turn(manager: CheckpointManager, files: Path) -> None:
    before = manifest(files)
    with Turn(manager, files):
        (files / "made/deep").mkdir(parents=True)
        (files / "made/deep/new.txt").write_text("new\n")
        (files / "other.txt").unlink()
        (files / "text.txt").rename(files / "renamed.txt")
        (files / "data.bin").chmod(0o600)
        (files / "bare").mkdir()
    result = manager.revert(files, turn=1)
    assert manifest(files) == before
    assert "renamed.txt" in result.deleted
    assert {"text.txt", "other.txt", "data.bin"} <= set(result.written)


def test_an_edit_of_a_renamed_file_follows_it_back(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        (files / "text.txt").rename(files / "renamed.txt")
    replace_line(files / "renamed.txt", 20, "by the person")
    manager.revert(files, turn=1)
    assert not (files / "renamed.txt").exists()
    assert (files / "text.txt").read_text() == LINES.replace("line 20\n", "by the person\n")


def test_later_turns_stay(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "first turn")
    with Turn(manager, files):
        replace_line(files / "text.txt", 30, "second turn")
        (files / "second.txt").write_text("second\n")
    manager.revert(files, turn=1)
    assert (files / "text.txt").read_text() == LINES.replace("line 30\n", "second turn\n")
    assert (files / "second.txt").exists()


def test_a_session_is_reverted_newest_turn_first(manager: CheckpointManager, files: Path) -> None:
    before = manifest(files)
    for number in range(4):
        with Turn(manager, files, "s1"):
            replace_line(files / "text.txt", 5, f"turn {number}")
            (files / f"made{number}.txt").write_text("x\n")
        with Turn(manager, files, "s10"):
            replace_line(files / "text.txt", 25, f"the other session {number}")
    manager.revert(files, session_id="s1")
    assert (files / "text.txt").read_text() == LINES.replace("line 25\n", "the other session 3\n")
    assert set(manifest(files)) == set(before)


def test_session_ids_match_exactly(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files, "s10"):
        replace_line(files / "text.txt", 3, "s10")
    with pytest.raises(NoSuchTurn):
        manager.revert(files, session_id="s1")
    assert "s10\n" in (files / "text.txt").read_text()


def conflicting(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
        (files / "made.txt").write_text("agent\n")
    replace_line(files / "text.txt", 3, "by the person, since")


def test_the_same_lines_are_a_conflict_and_stay(manager: CheckpointManager, files: Path) -> None:
    conflicting(manager, files)
    now = (files / "text.txt").read_text()
    result = manager.revert(files, turn=1)
    assert (files / "text.txt").read_text() == now
    assert not (files / "made.txt").exists()
    (conflict,) = result.conflicts
    assert conflict.path == "text.txt"
    assert conflict.to_dict()["ours"] == now
    assert conflict.to_dict()["theirs"] == LINES


def test_a_conflict_can_be_marked(manager: CheckpointManager, files: Path) -> None:
    conflicting(manager, files)
    manager.revert(files, turn=1, on_conflict="markers")
    text = (files / "text.txt").read_text()
    assert "<<<<<<< now\n" in text and ">>>>>>> before the turn\n" in text
    assert "by the person, since" in text
    assert "line 3\n" in text


def test_a_conflict_can_be_decided_for_the_state_before(manager: CheckpointManager, files: Path) -> None:
    conflicting(manager, files)
    manager.revert(files, turn=1, on_conflict="theirs")
    assert (files / "text.txt").read_text() == LINES


@pytest.mark.parametrize("how", ["keep", "markers", "theirs"])
def test_a_file_in_the_place_of_a_directory_stays_if_others_changed_it(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    (files / "place").mkdir()
    (files / "place" / "inside.txt").write_text("before\n")
    with Turn(manager, files):
        (files / "place" / "inside.txt").unlink()
        (files / "place").rmdir()
        (files / "place").write_text("agent\n")
    (files / "place").write_text("agent\nperson\n")
    (conflict,) = manager.revert(files, turn=1, on_conflict=how).conflicts
    assert (conflict.path, conflict.to_dict()["ours"]) == ("place", "agent\nperson\n")
    if how == "theirs":
        assert (files / "place" / "inside.txt").read_text() == "before\n"
    else:
        assert (files / "place").read_text() == "agent\nperson\n"


@pytest.mark.parametrize("how", ["keep", "theirs"])
def test_a_directory_in_the_place_of_a_file_stays_with_what_others_put_there(
    manager: CheckpointManager, files: Path, how: str
) -> None:
    (files / "place").write_text("before\n")
    with Turn(manager, files):
        (files / "place").unlink()
        (files / "place").mkdir()
        (files / "place" / "agent.txt").write_text("agent\n")
    (files / "place" / "person.txt").write_text("person\n")
    (conflict,) = manager.revert(files, turn=1, on_conflict=how).conflicts
    assert (conflict.path, conflict.to_dict()["theirs"]) == ("place", "before\n")
    assert [path.name for path in (files / "place").iterdir()] == ["person.txt"]


@pytest.mark.parametrize(("how", "expected"), [("keep", "link"), ("markers", "link"), ("theirs", "file")])
def test_a_link_in_the_place_of_a_file_is_one_conflict(
    manager: CheckpointManager, files: Path, how: str, expected: str
) -> None:
    (files / "place").write_text("before\n")
    with Turn(manager, files):
        (files / "place").unlink()
        (files / "place").symlink_to("text.txt")
    (files / "place").unlink()
    (files / "place").symlink_to("data.bin")
    (conflict,) = manager.revert(files, turn=1, on_conflict=how).conflicts
    assert conflict.path == "place"
    assert ("link" if (files / "place").is_symlink() else "file") == expected


def test_a_file_in_the_place_of_an_empty_directory_stays_if_others_changed_it(
    manager: CheckpointManager, files: Path
) -> None:
    (files / "place").mkdir()
    with Turn(manager, files):
        (files / "place").rmdir()
        (files / "place").write_text("agent\n")
    (files / "place").write_text("agent\nperson\n")
    (conflict,) = manager.revert(files, turn=1).conflicts
    assert conflict.path == "place" and (files / "place").read_text() == "agent\nperson\n"


def test_binary_files_come_back_or_conflict(manager: CheckpointManager, files: Path) -> None:
    original = (files / "data.bin").read_bytes()
    with Turn(manager, files):
        (files / "data.bin").write_bytes(b"\0agent" * 50)
    manager.revert(files, turn=1)
    assert (files / "data.bin").read_bytes() == original
    with Turn(manager, files):
        (files / "data.bin").write_bytes(b"\0agent" * 60)
    (files / "data.bin").write_bytes(b"\0person" * 70)
    result = manager.revert(files, turn=manager.get(files, "last").turn)
    assert [conflict.path for conflict in result.conflicts] == ["data.bin"]
    assert (files / "data.bin").read_bytes() == b"\0person" * 70


def test_a_file_of_the_turn_that_was_edited_since_is_kept(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        (files / "made.txt").write_text("agent\n")
    (files / "made.txt").write_text("the person made it theirs\n")
    result = manager.revert(files, turn=1)
    assert (files / "made.txt").read_text() == "the person made it theirs\n"
    assert [conflict.path for conflict in result.conflicts] == ["made.txt"]


def test_dry_run_returns_the_plan_and_changes_nothing(manager: CheckpointManager, files: Path, base: Path) -> None:
    conflicting(manager, files)
    before, checkpoints = manifest(files), manager.list_checkpoints(files)
    plan = manager.revert(files, turn=1, dry_run=True)
    assert manifest(files) == before
    assert manager.list_checkpoints(files) == checkpoints
    result = manager.revert(files, turn=1)
    assert not plan.applied and result.applied
    reported = [(each.written, each.deleted, each.kept, each.conflicts) for each in (plan, result)]
    assert reported[0] == reported[1]


def test_it_can_be_undone_and_redone(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
        (files / "made.txt").write_text("agent\n")
    (files / "person.txt").write_text("person\n")
    with_work = manifest(files)
    manager.revert(files, turn=1)
    without = manifest(files)
    manager.undo(files)
    assert manifest(files) == with_work
    manager.redo(files)
    assert manifest(files) == without


def test_reverting_twice_changes_nothing_more(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
    manager.revert(files, turn=1)
    after, count = manifest(files), len(manager.list_checkpoints(files))
    result = manager.revert(files, turn=1)
    assert (result.written, result.deleted) == ((), ())
    assert manifest(files) == after
    assert len(manager.list_checkpoints(files)) == count


def test_a_turn_that_was_never_closed_ends_where_the_next_began(manager: CheckpointManager, files: Path) -> None:
    manager.new_turn(session_id="s1")
    manager.ensure_checkpoint(files)
    replace_line(files / "text.txt", 3, "by the agent")
    manager.new_turn(session_id="s1")
    assert manager.ensure_checkpoint(files).status == "taken"
    replace_line(files / "text.txt", 30, "second turn")
    manager.revert(files, turn=1)
    assert (files / "text.txt").read_text() == LINES.replace("line 30\n", "second turn\n")


def test_stages_of_a_session_are_reverted_newest_first(manager: CheckpointManager, files: Path) -> None:
    assert manager.ensure_checkpoint(files)
    before = manifest(files)
    for number in range(3):
        with manager.stage(files, edit_id=str(number), session_id="s1") as stage:
            replace_line(files / "text.txt", 5, f"stage {number}")
            stage.commit(f"stage {number}")
    ids = [checkpoint.id for checkpoint in manager.list_checkpoints(files)]
    manager.revert(files, session_id="s1")
    assert manifest(files) == before
    assert ids == [each.id for each in manager.list_checkpoints(files) if each.id in ids]


def test_the_persons_repository_is_untouched(manager: CheckpointManager, files: Path) -> None:
    run_git(files, "init", "-q")
    run_git(files, "add", "-A")
    run_git(files, "commit", "-q", "-m", "x")
    before = snapshot_dotgit(files)
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
    manager.revert(files, turn=1)
    assert snapshot_dotgit(files) == before


@pytest.mark.parametrize(
    "arguments", [{}, {"turn": 1, "session_id": "s1"}, {"turn": 1, "on_conflict": "shrug"}]
)
def test_unclear_arguments_are_refused(
    manager: CheckpointManager, files: Path, arguments: dict[str, object]
) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
    with pytest.raises(BadArguments):
        manager.revert(files, **arguments)  # type: ignore[arg-type]


def test_an_unknown_turn_is_an_error(manager: CheckpointManager, files: Path) -> None:
    with Turn(manager, files):
        replace_line(files / "text.txt", 3, "by the agent")
    with pytest.raises(NoSuchTurn, match="turn 7"):
        manager.revert(files, turn=7)


# --- the property ------------------------------------------------------------------------------

# The agent works in the upper half of each file and in files of its own, the person in the lower
# half and in theirs: nothing overlaps, so everything of the person must stay and nothing else.
NAMES = st.sampled_from(["one", "two", "dir/three"])
AGENT_LINES, PERSON_LINES = st.integers(0, 12), st.integers(24, 39)
AGENT = st.lists(
    st.one_of(
        st.tuples(st.just("line"), NAMES, AGENT_LINES, st.text("ab", max_size=3)),
        st.tuples(st.just("make"), st.sampled_from(["agent1", "dir/agent2", "new/agent3"]), st.binary(max_size=9)),
        st.tuples(st.just("drop"), st.sampled_from(["agent1", "dir/agent2", "victim"])),
        st.tuples(st.just("chmod"), st.sampled_from(["victim", "exec"]), st.sampled_from([0o600, 0o755, 0o640])),
    ),
    max_size=4,
)
PERSON = st.lists(
    st.one_of(
        st.tuples(st.just("line"), NAMES, PERSON_LINES, st.text("yz", max_size=3)),
        st.tuples(st.just("make"), st.sampled_from(["person1", "dir/person2", "own/p"]), st.binary(max_size=9)),
        st.tuples(st.just("drop"), st.sampled_from(["person1", "dir/person2"])),
        st.tuples(st.just("chmod"), st.sampled_from(["person1", "quiet"]), st.sampled_from([0o600, 0o755, 0o640])),
    ),
    max_size=4,
)


Edit = tuple[object, ...]
FEWER = max(1, settings().max_examples // 4)


def act(project: Path, edits: list[Edit]) -> None:
    for name, target, *rest in edits:
        path = project / str(target)
        if name == "line":
            replace_line(path, rest[0], f"{rest[1]} at {rest[0]}")  # type: ignore[arg-type]
        elif name == "make":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rest[0])  # type: ignore[arg-type]
        elif name == "drop":
            path.unlink(missing_ok=True)
        elif path.exists():
            os.chmod(path, rest[0])  # type: ignore[arg-type]


def scene(top: Path) -> Path:
    (top / "dir").mkdir(parents=True)
    for name in ("one", "two", "dir/three"):
        (top / name).write_text(LINES)
    for name in ("victim", "exec", "quiet"):
        (top / name).write_text(name)
    return top


@given(st.lists(st.tuples(AGENT, PERSON), min_size=1, max_size=4))
def test_reverting_the_agents_turns_leaves_exactly_the_persons_edits(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[list[Edit], list[Edit]]]
) -> None:
    top = tmp_path_factory.mktemp("story")
    project, alone = scene(top / "project"), scene(top / "alone")
    manager = CheckpointManager(base=top / "base", fsync=False, background_upkeep=False)
    for agent, person in story:
        with Turn(manager, project, "agent"):
            act(project, agent)
        act(project, person)
        act(alone, person)
    manager.new_turn(session_id="agent")
    if any(each.session_id == "agent" for each in manager.list_checkpoints(project)):
        result = manager.revert(project, session_id="agent")
        assert result.conflicts == ()
    assert manifest(project) == manifest(alone)


@settings(max_examples=FEWER)
@given(st.lists(st.lists(st.tuples(AGENT, PERSON), min_size=1, max_size=3), min_size=1, max_size=3))
def test_by_tool_calls_the_person_may_work_between_them(
    tmp_path_factory: pytest.TempPathFactory, story: list[list[tuple[list[Edit], list[Edit]]]]
) -> None:
    top = tmp_path_factory.mktemp("story")
    project, alone = scene(top / "project"), scene(top / "alone")
    manager = CheckpointManager(base=top / "base", granularity="tool", fsync=False, background_upkeep=False)
    for turn in story:
        manager.new_turn(session_id="agent")
        for agent, person in turn:
            assert manager.before_tool("bash", {}, cwd=project).status in ("taken", "unchanged")
            act(project, agent)
            assert manager.after_tool("bash", {}, cwd=project).status in ("taken", "unchanged")
            act(project, person)
            act(alone, person)
        manager.end_turn()
    if any(each.session_id == "agent" for each in manager.list_checkpoints(project)):
        assert manager.revert(project, session_id="agent").conflicts == ()
    assert manifest(project) == manifest(alone)


@settings(max_examples=FEWER)
@given(st.lists(st.tuples(AGENT, PERSON), min_size=1, max_size=4))
def test_two_agents_whose_calls_take_turns_are_kept_apart(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[list[Edit], list[Edit]]]
) -> None:
    """What the person does above, a second agent does here, in a turn that begins and ends with that of
    the first."""
    top = tmp_path_factory.mktemp("story")
    project, alone = scene(top / "project"), scene(top / "alone")
    options = {"base": top / "base", "granularity": "tool", "fsync": False, "background_upkeep": False}
    first, second = (CheckpointManager(**options) for _ in range(2))  # type: ignore[arg-type]
    first.new_turn(session_id="first")
    second.new_turn(session_id="second")
    for edits in story:
        for manager, mine in zip((first, second), edits, strict=True):
            manager.before_tool("bash", {}, cwd=project)
            act(project, mine)
            manager.after_tool("bash", {}, cwd=project)
        act(alone, edits[1])
    for manager in (first, second):
        manager.end_turn()
    if any(each.session_id == "first" for each in first.list_checkpoints(project)):
        assert first.revert(project, session_id="first").conflicts == ()
    assert manifest(project) == manifest(alone)
