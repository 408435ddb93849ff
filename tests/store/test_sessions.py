"""The record of each session: what it tells, that it survives damage, and that no snapshot waits for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchSession
from shadowsnap.store.layout import Store
from shadowsnap.store.sessions import note_turn, read_session, session_file, session_key


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


def turn(manager: CheckpointManager, project: Path, text: str, session: str | None = "s1", **more: str) -> None:
    manager.new_turn(session, f"write {text}", **more)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text(f"{text}\n")
    manager.end_turn()


# --- what it tells ------------------------------------------------------------------------------------


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


def test_a_turn_of_talk_alone_is_a_turn_too(project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one")
    manager.new_turn("s1", "what do you think?")
    manager.end_turn()
    assert [(each.prompt, len(each.places)) for each in manager.session("s1").turns] == [
        ("write one", 1),
        ("what do you think?", 0),
    ]


def test_a_turn_that_nobody_ended_is_known_when_it_begins_and_ends_with_the_next(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    manager.new_turn("s1", "first")
    manager.ensure_checkpoint(project)
    (open_turn,) = manager.session("s1").turns
    assert open_turn.ended is None and open_turn.places[0].before is not None
    assert open_turn.places[0].after is None and open_turn.places[0].status == ""
    manager.new_turn("s1", "second")
    (left,) = manager.session("s1").turns
    assert left.ended is not None and left.places == open_turn.places


def test_without_a_session_nothing_is_recorded(base: Path, project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one", session=None)
    assert not (base / "sessions").exists() and manager.sessions() == []


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


# --- files --------------------------------------------------------------------------------------------


STRANGE = [
    "../../etc/passwd", "..", ".", "", "a/b", "a\\b", "CON", "con", "nul.txt", "Ab", "ab", "aB", "a" * 5000,
    "\xe9", "e\u0301", "\ud800", "x.y", "a\0b", "a\nb", " ", "-rf", "*", ".hidden", "x." + "0" * 40,
]  # fmt: skip


def test_every_id_has_a_file_of_its_own_below_the_folder(base: Path) -> None:
    files = [session_file(base, each) for each in STRANGE]
    assert len({file.name.casefold() for file in files}) == len(STRANGE)
    for file in files:
        assert file.parent == base / "sessions"
        assert file.name.isascii() and len(file.name) < 120 and not set(file.name) & set('/\\:*?"<>|\0\n')
        assert file.name[0] not in ".-" and file.stem.split(".")[0] not in ("con", "nul")


@given(st.text(), st.text())
def test_two_ids_never_meet(one: str, other: str) -> None:
    assert (session_key(one).casefold() == session_key(other).casefold()) == (one == other)


def test_a_session_may_have_any_id(base: Path, project: Path, manager: CheckpointManager) -> None:
    store = Store(base, fsync=False)
    manager.snapshot(project)
    for name in STRANGE:
        note_turn(store, name, {"key": "1", "began": 1.0, "prompt": "\udcff"})
    for name in STRANGE:
        found = manager.session(name)
        assert found.id == name and found.turns[0].prompt == "\udcff"
    assert {each.id for each in manager.sessions()} == set(STRANGE)
    assert len(list((base / "sessions").iterdir())) == len(STRANGE)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"id": 3}', b'{"turns": []}'])
def test_a_damaged_record_is_set_aside_and_the_session_goes_on(
    base: Path, project: Path, manager: CheckpointManager, damage: bytes
) -> None:
    turn(manager, project, "one")
    session_file(base, "s1").write_bytes(damage)
    assert manager.sessions() == []
    turn(manager, project, "two")
    assert [each.prompt for each in manager.session("s1").turns] == ["write two"]
    aside = [path for path in (base / "sessions").iterdir() if path.name.endswith(".damaged")]
    assert [path.read_bytes() for path in aside] == [damage]
    assert len(manager.list_checkpoints(project)) == 3
    assert manager.doctor().healthy


@pytest.mark.parametrize(
    "strange",
    [
        {"turns": 5, "edits": "x", "status": "weird", "started": "yesterday", "agent": 7},
        {"turns": [3, {"places": [None, {"turn": "x", "before": 9}], "began": None, "attachments": "no"}]},
        {"edits": [{}], "turns": [{}], "ended": 1e30},
    ],
)
def test_strange_facts_in_a_record_do_no_harm(
    base: Path, project: Path, manager: CheckpointManager, strange: dict[str, object]
) -> None:
    turn(manager, project, "one")
    session_file(base, "s1").write_text(json.dumps({"id": "s1", **strange}))
    assert manager.session("s1").id == "s1"
    assert [each.id for each in manager.sessions()] == ["s1"]
    turn(manager, project, "two")
    assert manager.session("s1").turns[-1].prompt == "write two"


def test_a_record_that_cannot_be_written_fails_no_snapshot(
    base: Path, project: Path, manager: CheckpointManager
) -> None:
    base.mkdir()
    (base / "sessions").write_text("in the way")
    manager.new_turn("s1", "x", [1, 2])
    assert manager.ensure_checkpoint(project).status == "taken"
    (project / "README.md").write_text("changed\n")
    assert [each.status for each in manager.end_turn([1, 2, 3])] == ["taken"]
    assert "a session could not be recorded" in (base / "log.jsonl").read_text()


def test_killed_while_it_writes_the_old_record_or_the_new_one_is_there(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    turn(manager, project, "one")
    program = (
        "import itertools, sys\nfrom pathlib import Path\nfrom shadowsnap.store.layout import Store\n"
        "from shadowsnap.store.sessions import note_turn\n"
        "store = Store(Path(sys.argv[1]), False)\nprint('go', flush=True)\n"
        "for n in itertools.count():\n    note_turn(store, 's1', {'key': str(n % 50), 'prompt': 'x' * 2000})\n"
    )
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", program, base], cwd=ROOT, stdout=subprocess.PIPE)
        assert child.stdout is not None and child.stdout.readline() == b"go\n"
        before = session_file(base, "s1").stat().st_mtime_ns
        while session_file(base, "s1").stat().st_mtime_ns == before and child.poll() is None:
            pass
        assert child.poll() is None
        child.kill()
        child.wait()
        child.stdout.close()
        assert manager.session("s1").turns[0].prompt == "write one"
    assert not list((base / "sessions").glob("*.damaged"))
    (base / "sessions" / ".s1.json.tmp_0").write_text("half")
    manager.prune()
    assert [path.name for path in (base / "sessions").iterdir()] == ["s1.json"]  # nothing half written is left


def test_many_at_once_lose_no_turn(base: Path, project: Path, manager: CheckpointManager) -> None:
    manager.snapshot(project)
    store = Store(base, fsync=False)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: note_turn(store, "s1", {"key": str(n), "began": float(n)}), range(60)))
    found = read_session(store, "s1")
    assert found is not None and len(found.turns) == 60


def test_the_record_does_not_grow_without_end(base: Path, project: Path, manager: CheckpointManager) -> None:
    manager.snapshot(project)
    store = Store(base, fsync=False)
    rows = [{"key": str(n), "prompt": f"p{n}"} for n in range(1000)]
    session_file(base, "s1").parent.mkdir()
    session_file(base, "s1").write_text(json.dumps({"id": "s1", "turns": rows}))
    note_turn(store, "s1", {"key": "new", "prompt": "new"})
    found = read_session(store, "s1")
    assert found is not None and len(found.turns) == 1000
    assert (found.turns[0].prompt, found.turns[-1].prompt) == ("p1", "new")


# --- what it costs ------------------------------------------------------------------------------------


def test_a_tool_call_does_not_wait_for_the_record(base: Path, project: Path, manager: CheckpointManager) -> None:
    import threading

    gate = threading.Event()
    manager._scribe.later(lambda: gate.wait(60) and None)
    manager.new_turn("s1", "x")
    assert manager.ensure_checkpoint(project).status == "taken"
    assert not (base / "sessions").exists()
    gate.set()
    assert manager.session("s1").turns[0].prompt == "x"


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


def test_a_child_of_the_program_goes_on_recording(base: Path, project: Path, manager: CheckpointManager) -> None:
    manager._scribe.later(lambda: None)
    manager._scribe.wait()
    manager._scribe._thread = threading_left_by_a_fork()
    turn(manager, project, "one")
    assert len(manager.session("s1").turns) == 1


def threading_left_by_a_fork() -> Any:
    import threading

    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    return thread


def test_a_snapshot_loads_neither_sqlite_nor_the_rest(base: Path, project: Path) -> None:
    program = (
        "import sys\nfrom shadowsnap.manager.turns import Turns\n"
        "m = Turns(base=sys.argv[1])\nm.resume_turn({'session_id': 's1', 'prompt': 'x', 'places': []})\n"
        "assert m.ensure_checkpoint(sys.argv[2]).status == 'taken'\n"
        "print(*(name for name in sys.modules if 'sqlite' in name or name.startswith('shadowsnap.store')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, base, project], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    unwanted = ("sessions", "attachments", "redaction", "queryindex", "chunks")
    assert "shadowsnap.store.layout" in loaded and "sqlite3" not in loaded
    assert not loaded & {f"shadowsnap.store.{name}" for name in unwanted}


# --- letting go ---------------------------------------------------------------------------------------


def test_an_old_record_goes_after_its_checkpoints(base: Path, project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one", session="old")
    turn(manager, project, "two", session="other")
    long_ago = time.time() - 40 * 86400
    for name in ("old", "other"):
        os.utime(session_file(base, name), (long_ago, long_ago))
    manager.prune()
    assert {each.id for each in manager.sessions()} == {"old", "other"}  # its checkpoints are there
    going = [each.id for each in manager.list_checkpoints(project) if each.session_id == "old"]
    manager.delete(project, going)
    manager.prune(retention_days=0)
    assert {each.id for each in manager.sessions()} == {"old", "other"}
    os.utime(session_file(base, "old"))
    manager.prune()
    assert {each.id for each in manager.sessions()} == {"old", "other"}  # not long enough ago
    os.utime(session_file(base, "old"), (long_ago, long_ago))
    manager.prune()
    # The other one began with a checkpoint of the first, and ended with its own.
    assert {each.id for each in manager.sessions()} == {"other"}


def test_clearing_everything_clears_sessions(base: Path, project: Path, manager: CheckpointManager) -> None:
    turn(manager, project, "one")
    assert len(manager.sessions()) == 1
    manager.clear_all()
    assert manager.sessions() == [] and not (base / "sessions").exists()
