"""Sessions, as the logs of all projects have them: questions by session, path, time and text, and their cost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT
from shadowsnap import CheckpointManager
from shadowsnap.errors import AmbiguousReference, BadArguments, NoSuchSession
from shadowsnap.model import Session
from shadowsnap.store.conversations import session_key
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


def turn(manager: CheckpointManager, project: Path, text: str, session: str | None = "s1", **more: str) -> None:
    manager.new_turn(session, f"write {text}", **more)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text(f"{text}\n")
    manager.end_turn()


# --- what is known --------------------------------------------------------------------------------------


def test_a_session_tells_its_turns_with_the_checkpoints_before_and_after(
    project: Path, manager: CheckpointManager
) -> None:
    began = time.time()
    turn(manager, project, "one", agent="claude", parent="s0")
    turn(manager, project, "two")
    session = manager.session("s1")
    assert (session.id, session.agent, session.parent, session.status) == ("s1", "claude", "s0", "active")
    assert session.started is not None and began - 1 <= session.started.timestamp() <= time.time()
    assert session.ended is None
    assert [each.prompt for each in session.turns] == ["write one", "write two"]
    newest, middle, oldest = (each.id for each in manager.list_checkpoints(project))
    places = [each.places for each in session.turns]
    assert [(place.before, place.after, place.turn) for (place,) in places] == [
        (oldest, middle, 1),
        (middle, newest, 2),  # nothing had changed, so that it began with the end of the first
    ]
    assert {(place.workdir, place.status) for (place,) in places} == {(str(project), "taken")}
    assert all(each.ended and each.ended >= each.began for each in session.turns)
    assert json.loads(json.dumps(session.to_dict()))["turns"][0]["places"][0]["before"] == oldest


def test_a_turn_that_changes_nothing_says_so(project: Path, manager: CheckpointManager) -> None:
    manager.new_turn("s1")
    manager.ensure_checkpoint(project)
    manager.end_turn()
    ((place,),) = (each.places for each in manager.session("s1").turns)
    assert place.status == "unchanged" and place.before == place.after


def test_a_host_may_count_its_sessions(project: Path, manager: CheckpointManager) -> None:
    manager.new_turn(7, conversation=["hello"])  # type: ignore[arg-type]
    taken = manager.ensure_checkpoint(project).checkpoint
    manager.end_turn()
    assert taken is not None and manager.session("7").turns[0].conversation == "kept"
    assert manager.restore(project, taken.id, conversation=True).conversation.data == ["hello"]


def test_a_question_that_changes_nothing_has_no_turn(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one")
    manager.new_turn("s1", "what do you think?")
    manager.end_turn()
    assert [each.prompt for each in manager.session("s1").turns] == ["write one"]


def test_a_turn_that_is_never_ended_is_known_when_it_begins_and_ends_with_the_next(
    project: Path, manager: CheckpointManager
) -> None:
    manager.new_turn("s1", "first")
    manager.ensure_checkpoint(project)
    (open_turn,) = manager.session("s1").turns
    assert open_turn.ended is None and open_turn.places[0].before is not None
    assert open_turn.places[0].after is None and open_turn.places[0].status == ""
    (project / "README.md").write_text("changed\n")
    manager.new_turn("s1", "second")
    manager.ensure_checkpoint(project)
    left, second = manager.session("s1").turns
    assert left.ended is not None and left.places[0].after == second.places[0].before


def test_without_a_session_there_is_a_turn_and_no_session(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one", session=None)
    assert manager.sessions() == [] and manager.timeline(project)[0].prompt == "write one"


def test_a_disabled_manager_records_nothing(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, enabled=False)
    manager.new_turn("s1", "x", [1])
    manager.ensure_checkpoint(project)
    manager.end_turn([1])
    manager.end_session("s1")
    assert not base.exists()


@pytest.mark.parametrize("status", ["completed", "failed", "rolled_back"])
def test_a_session_ends_as_it_is_told_and_goes_on_with_the_next_turn(
    project: Path, manager: CheckpointManager, status: str
) -> None:
    turn(manager, project, "one")
    manager.end_session(status=status)
    assert (manager.session("s1").status, manager.session("s1").ended is None) == (status, False)
    turn(manager, project, "two")
    assert (manager.session("s1").status, manager.session("s1").ended) == ("active", None)


def test_a_strange_end_is_not_recorded_and_does_not_raise(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one")
    manager.end_session("s1", "exploded")
    manager.end_session("never heard of")
    assert manager.session("s1").status == "active"
    assert [each.id for each in manager.sessions()] == ["s1"]


def test_a_reverted_session_is_rolled_back_and_a_reverted_turn_says_so(
    project: Path, manager: CheckpointManager
) -> None:
    turn(manager, project, "one")
    (project / "mine").write_text("by the person\n")
    turn(manager, project, "two")
    turn(manager, project, "three", session="s2")
    manager.revert(project, turn=2, on_conflict="theirs")
    assert [each.reverted for each in manager.session("s1").turns] == [False, True]
    assert manager.session("s1").status == "active"
    manager.revert(project, session_id="s1", dry_run=True)
    assert manager.session("s1").status == "active"
    manager.revert(project, session_id="s1", on_conflict="theirs")
    assert manager.session("s1").status == "rolled_back"
    assert all(each.reverted for each in manager.session("s1").turns)
    assert [entry.status for entry in manager.timeline(project, session_id="s1")] == ["reverted", "reverted"]
    manager.undo(project)
    assert manager.session("s1").status == "active"  # the revert was taken back
    manager.redo(project)
    assert manager.session("s1").status == "rolled_back"
    assert (manager.session("s2").status, manager.session("s2").turns[0].reverted) == ("active", False)


def test_what_became_of_stages_is_in_the_record(project: Path, manager: CheckpointManager) -> None:
    manager.snapshot(project)
    with manager.stage(project, edit_id="e1", session_id="s1", risk_tier="low") as kept:
        (project / "new").write_text("x")
    with manager.stage(project, edit_id="e2", session_id="s1") as dropped:
        (project / "bad").write_text("x")
        dropped.discard()
    edits = manager.session("s1").edits
    assert [(each.edit_id, each.status, each.risk_tier) for each in edits] == [
        ("e1", "committed", "low"),
        ("e2", "discarded", None),
    ]
    assert kept.checkpoint is not None
    assert [each.checkpoint for each in edits] == [kept.checkpoint.id, None]
    assert [each.id for each in manager.sessions(edit_id="e2")] == ["s1"]


def test_an_unknown_session_is_an_error(manager: CheckpointManager) -> None:
    with pytest.raises(NoSuchSession, match="'nobody'"):
        manager.session("nobody")


def test_a_session_is_named_by_a_part_of_its_id(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one", "20261117-aaaa-1111")
    turn(manager, project, "two", "20261117-bbbb-2222")
    assert manager.session("bbbb").id == manager.session("20261117-b").id == "20261117-bbbb-2222"
    assert [entry.prompt for entry in manager.timeline(project, session_id="1111")] == ["write one"]
    with pytest.raises(AmbiguousReference, match="fits 2 sessions"):
        manager.session("20261117")
    with pytest.raises(NoSuchSession):
        manager.session("bbb")  # too short


def test_a_turn_in_two_projects_is_one_turn_of_the_session(
    project: Path, tmp_path: Path, manager: CheckpointManager
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    manager.new_turn("s1", "both")
    for folder in (project, other):
        manager.ensure_checkpoint(folder)
        (folder / "new").write_text("x")
    manager.end_turn()
    (only,) = manager.session("s1").turns
    assert {place.workdir for place in only.places} == {str(project), str(other)}
    assert [each.id for each in manager.sessions(working_dir=other)] == ["s1"]


# --- any id, any prompt -------------------------------------------------------------------------------


STRANGE = [
    "../../etc/passwd", "..", ".", "a/b", "a\\b", "CON", "con", "nul.txt", "Ab", "ab", "aB",
    "\xe9", "e\u0301", "\ud800", "x.y", "a\0b", "a\nb", " ", "-rf", "*", ".hidden", "x." + "0" * 40, '"quoted"',
]  # fmt: skip


@given(st.text(), st.text())
def test_two_ids_never_meet(one: str, other: str) -> None:
    assert (session_key(one).casefold() == session_key(other).casefold()) == (one == other)


def test_a_session_may_have_any_id_and_any_prompt(project: Path, manager: CheckpointManager) -> None:
    for name in STRANGE:
        manager.new_turn(name, "\udcff\0\n" + name)
        assert manager.ensure_checkpoint(project).protected
        manager.end_turn()
    for name in STRANGE:
        found = manager.session(name)
        assert found.id == name and found.turns[0].prompt == "\udcff\0\n" + name
    assert {each.id for each in manager.sessions()} == set(STRANGE)


def test_a_very_long_id_is_cut_to_one_of_its_own(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one", "a" * 5000)
    turn(manager, project, "two", "a" * 4999 + "b")
    assert len({each.id for each in manager.sessions()}) == 2


def test_what_is_in_the_way_of_the_log_is_moved_aside(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    manager.snapshot(project)
    Store(base).log_file(project_of(project).id).unlink()
    Store(base).log_file(project_of(project).id).mkdir()
    manager.new_turn("s1", "x", [1, 2])
    (project / "README.md").write_text("changed\n")
    outcome = manager.ensure_checkpoint(project)
    assert outcome.protected and "repaired" in outcome.note
    assert [entry.prompt for entry in manager.timeline(project) if entry.kind == "turn"] == ["x"]


# --- questions ----------------------------------------------------------------------------------------


@pytest.fixture
def asked(project: Path, tmp_path: Path, manager: CheckpointManager) -> CheckpointManager:
    """Sessions s1 and s2 in the project, s3 in another one."""
    (tmp_path / "other").mkdir()
    turn(manager, project, "one", agent="claude")
    manager.new_turn("s2", "Delete the sources", agent="codex", parent="s1")
    manager.ensure_checkpoint(project)
    (project / "src" / "main.py").unlink()
    manager.end_turn()
    turn(manager, tmp_path / "other", "three", "s3", agent="claude")
    manager.end_session("s3", "failed")
    return manager


def ids(sessions: list[Session]) -> list[str]:
    return [each.id for each in sessions]


def test_sessions_by_what_they_are(asked: CheckpointManager, project: Path) -> None:
    assert ids(asked.sessions()) == ["s3", "s2", "s1"]
    assert ids(asked.sessions(agent="claude")) == ["s3", "s1"]
    assert ids(asked.sessions(parent="s1")) == ["s2"]
    assert ids(asked.sessions("failed")) == ["s3"]
    assert ids(asked.sessions(working_dir=project)) == ["s2", "s1"]
    assert ids(asked.sessions(limit=1)) == ["s3"]
    with pytest.raises(BadArguments):
        asked.sessions("exploded")  # type: ignore[arg-type]


def test_sessions_by_path(asked: CheckpointManager, project: Path, tmp_path: Path) -> None:
    assert ids(asked.sessions(working_dir=project, path="src/main.py")) == ["s2"]
    assert ids(asked.sessions(working_dir=project, path="src")) == ["s2"]
    assert ids(asked.sessions(path=project / "README.md")) == ["s1"]
    assert ids(asked.sessions(path=tmp_path / "other" / "README.md")) == ["s3"]
    assert ids(asked.sessions(path="README.md")) == ["s3", "s1"]
    assert asked.sessions(working_dir=project, path="never.txt") == []


def test_sessions_by_text_and_time(asked: CheckpointManager, project: Path) -> None:
    assert ids(asked.sessions(text="delete THE")) == ["s2"]
    assert ids(asked.sessions(text="write")) == ["s3", "s1"]
    second = asked.session("s2").turns[0]
    assert ids(asked.sessions(since=second.began)) == ["s3", "s2"]
    assert ids(asked.sessions(until=second.began)) == ["s2", "s1"]
    assert ids(asked.sessions(since=second.began.timestamp(), until=second.ended)) == ["s2"]


def test_checkpoints_by_session_path_time_and_text(asked: CheckpointManager, project: Path) -> None:
    everything = asked.search()
    assert len(everything) == 5 and everything == sorted(
        everything, key=lambda each: each.created_at, reverse=True
    )
    assert {each.session_id for each in asked.search("delete")} == {"s2"}
    assert [each.kind for each in asked.search(working_dir=project, path="src/main.py", session_id="s2")] == [
        "turn-end"
    ]
    assert {each.workdir for each in asked.search(status="failed")} == {str(project.parent / "other")}
    assert len(asked.search(kind="turn-end")) == 3 and len(asked.search(limit=2)) == 2
    middle = everything[2].created_at
    assert asked.search(since=middle) == everything[:3] and asked.search(until=middle) == everything[2:]


def test_entries_by_session_and_path(asked: CheckpointManager, project: Path) -> None:
    assert [entry.prompt for entry in asked.timeline(project, path="src")] == ["Delete the sources"]
    assert [entry.prompt for entry in asked.timeline(project, session_id="s1")] == ["write one"]
    assert asked.timeline(project, session_id="s1", path="src") == []
    assert [entry.number for entry in asked.timeline(project, limit=1)] == [2]


def test_nothing_but_logs_and_checkpoints_is_kept_about_sessions(base: Path, asked: CheckpointManager) -> None:
    asked.sessions(path="README.md")
    kept = {path.name for path in base.iterdir()} - {"store", "log"}
    assert all(name.startswith(".") for name in kept), kept


# --- what it costs ------------------------------------------------------------------------------------


def test_a_tool_call_does_not_wait_for_the_conversation(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    import threading

    gate = threading.Event()
    manager._loop.jobs.add(lambda: gate.wait(60) and None)
    manager.new_turn("s1", "x", ["said"])
    assert manager.ensure_checkpoint(project).status == "taken"
    assert not (base / "store" / "refs" / "shadowsnap-meta").exists()
    gate.set()
    assert manager.session("s1").turns[0].conversation == "kept"


def test_where_no_thread_can_be_started_the_end_of_the_turn_does_the_work(
    project: Path, manager: CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    manager.new_turn("s1", "x", ["said"])
    taken = manager.ensure_checkpoint(project)
    assert taken.status == "taken" and taken.checkpoint is not None
    manager.end_turn()
    (turn,) = manager.session("s1").turns
    assert (turn.prompt, turn.conversation, turn.places[0].before) == ("x", "kept", taken.checkpoint.id)


def test_a_child_of_the_program_goes_on_recording(project: Path, manager: CheckpointManager) -> None:
    manager._loop.jobs.add(lambda: None)
    manager._loop.jobs.wait()
    manager._loop.jobs._thread = threading_left_by_a_fork()
    manager.new_turn("s1", "x", ["said"])
    manager.ensure_checkpoint(project)
    assert manager.session("s1").turns[0].conversation == "kept"


def threading_left_by_a_fork() -> Any:
    import threading

    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    return thread


def test_a_snapshot_does_not_load_sqlite(base: Path, project: Path) -> None:
    program = (
        "import sys\nfrom shadowsnap import CheckpointManager\nm = CheckpointManager(base=sys.argv[1])\n"
        "m.resume_turn({'session_id': 's1', 'prompt': 'x', 'places': []})\n"
        "assert m.ensure_checkpoint(sys.argv[2]).status == 'taken'\n"
        "print(*(name for name in sys.modules if 'sqlite' in name or name.startswith('shadowsnap')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, base, project], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "shadowsnap.store.log" in loaded and "sqlite3" not in loaded


# --- letting go ---------------------------------------------------------------------------------------


def test_a_session_goes_with_its_checkpoints(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one", session="old")
    (project / "mine").write_text("mine")
    turn(manager, project, "two", session="other")
    going = [each.id for each in manager.list_checkpoints(project) if each.session_id == "old"]
    manager.delete(project, going[:1])
    manager.prune()
    assert {each.id for each in manager.sessions()} == {"old", "other"}  # one of its states is there
    manager.delete(project, going[1:])
    manager.prune()
    assert {each.id for each in manager.sessions()} == {"other"}


def test_clearing_everything_clears_sessions(base: Path, project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one")
    assert len(manager.sessions()) == 1
    manager.clear_all()
    assert manager.sessions() == [] and not (base / "log").exists()
