"""The index for questions: it answers as the records and checkpoints do, and nothing depends on it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from helpers import git, loose_object
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import BadArguments
from shadowsnap.store import queryindex
from shadowsnap.store.layout import Store
from shadowsnap.store.queryindex import NAME, STEPS, refresh


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


@pytest.fixture
def filled(project: Path, manager: CheckpointManager) -> CheckpointManager:
    """s1 changes README.md, the person adds notes, s2 changes two files in src; s3 discards a stage."""
    turn(manager, project, "s1", "Fix the README", {"README.md": "fixed\n"}, agent="claude")
    manager.end_session("s1")
    (project / "notes").write_text("by the person\n")
    turn(
        manager, project, "s2", "100% of src_", {"src/main.py": "new\n", "src/deep/x": "x\n"},
        agent="codex", parent="s1",
    )  # fmt: skip
    manager.end_session("s2", "failed")
    with manager.stage(project, edit_id="e1", session_id="s3") as stage:
        (project / "README.md").write_text("worse\n")
        stage.discard()
    return manager


def turn(
    manager: CheckpointManager, project: Path, session: str, prompt: str, files: dict[str, str], **more: Any
) -> None:
    manager.new_turn(session, prompt, **more)
    manager.ensure_checkpoint(project, reason=f"before {session} writes")
    for name, text in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    manager.end_turn()


def ids(found: list[Any]) -> list[str]:
    return [each.id for each in found]


def everything(base: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What the index holds; signatures and numbers of rows aside."""
    refresh(Store(base), NO_DEADLINE)
    with closing(sqlite3.connect(base / NAME)) as db:
        tables = ("sessions", "turns", "edits", "checkpoints", "paths")
        return {table: sorted(map(repr, db.execute(f"SELECT * FROM {table}"))) for table in tables}  # type: ignore[misc]


# --- questions ----------------------------------------------------------------------------------------


def test_sessions_are_found_by_what_is_known_of_them(filled: CheckpointManager, project: Path) -> None:
    assert ids(filled.sessions()) == ["s3", "s2", "s1"]
    assert ids(filled.sessions(limit=2)) == ["s3", "s2"]
    assert ids(filled.sessions("completed")) == ["s1"]
    assert ids(filled.sessions("failed")) == ["s2"]
    assert ids(filled.sessions("active")) == ["s3"]
    assert ids(filled.sessions("rolled_back")) == []
    assert ids(filled.sessions(agent="codex")) == ["s2"]
    assert ids(filled.sessions(parent="s1")) == ["s2"]
    assert ids(filled.sessions(edit_id="e1")) == ["s3"]
    assert ids(filled.sessions("failed", agent="claude")) == []
    with pytest.raises(BadArguments, match="rolled_back"):
        filled.sessions("sleeping")


def test_sessions_are_found_by_what_they_changed_and_not_by_what_the_person_did(
    filled: CheckpointManager, project: Path
) -> None:
    assert ids(filled.sessions(working_dir=project, path="README.md")) == ["s1"]
    assert ids(filled.sessions(path=project / "README.md")) == ["s1"]
    assert ids(filled.sessions(path="src")) == ["s2"]
    assert ids(filled.sessions(path="src/deep")) == ["s2"]
    assert ids(filled.sessions(path="sr")) == []
    assert ids(filled.sessions(path="notes")) == []
    assert ids(filled.sessions(working_dir=project.parent, path="README.md")) == []


def test_sessions_are_found_by_words(filled: CheckpointManager) -> None:
    assert ids(filled.sessions(text="fix the readme")) == ["s1"]
    assert ids(filled.sessions(text="BEFORE S2")) == ["s2"]  # the reason of a checkpoint
    assert ids(filled.sessions(text="100% of src_")) == ["s2"]
    assert ids(filled.sessions(text="1%src")) == []  # no wildcards
    assert ids(filled.sessions(text="'; DROP TABLE sessions --")) == []


def test_sessions_are_found_by_time(filled: CheckpointManager) -> None:
    one, now = filled.session("s1"), datetime.now(UTC)
    assert one.ended is not None and one.started is not None
    assert ids(filled.sessions(until=one.started)) == ["s1"]
    assert ids(filled.sessions(since=one.ended + timedelta(microseconds=1))) == ["s3", "s2"]
    assert ids(filled.sessions(since=now + timedelta(hours=1))) == ["s3"]  # it still goes on
    assert ids(filled.sessions(until=(now - timedelta(hours=1)).timestamp())) == []


def test_checkpoints_are_found_of_every_project(filled: CheckpointManager, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "README.md").write_text("x")
    turn(filled, other, "s1", "elsewhere", {"README.md": "y\n"})
    both = [*filled.list_checkpoints(other), *filled.list_checkpoints(project)]
    assert ids(filled.search()) == ids(both)
    assert ids(filled.search(working_dir=project)) == ids(filled.list_checkpoints(project))
    assert ids(filled.search(session_id="s1")) == [each.id for each in both if each.session_id == "s1"]
    assert {each.kind for each in filled.search(kind="turn-end")} == {"turn-end"}
    assert {each.session_id for each in filled.search(status="failed")} == {"s2"}
    assert [each.workdir for each in filled.search(path="README.md", kind="turn-end")] == [
        str(other),
        str(project),
    ]
    assert ids(filled.search(path="README.md", working_dir=project)) == ids(
        [each for each in filled.list_checkpoints(project, path="README.md") if each.files_changed]
    )
    assert len(filled.search("elsewhere")) == 2
    oldest = both[-1]
    assert ids(filled.search(until=oldest.created_at)) == [oldest.id]
    assert oldest.id not in ids(filled.search(since=oldest.created_at + timedelta(milliseconds=1)))


def test_a_found_checkpoint_is_what_it_is(filled: CheckpointManager, project: Path) -> None:
    filled.pin(project, "last")
    filled.label(project, "last", "Good One")
    (found,) = filled.search(limit=1)
    told = filled.get(project, "last")
    assert found == told and found.pinned and found.label == "Good One"


def test_names_that_are_no_text_can_be_asked_for(project: Path, manager: CheckpointManager) -> None:
    name = os.fsdecode(b"no\xfftext\n:x")
    turn(manager, project, "s1", "write \udcff", {name: "x"})
    turn(manager, project, "s1", "again", {name: "y"})
    assert ids(manager.sessions(path=name)) == ["s1"]
    assert len(manager.search(path=name)) == 2
    assert len(manager.search(text="\udcff")) == 2


# --- it is made from the truth ------------------------------------------------------------------------


def test_without_the_file_every_answer_is_the_same(base: Path, filled: CheckpointManager, project: Path) -> None:
    before = everything(base)
    asked = (filled.sessions(), filled.search(), filled.sessions(path="src"), filled.search("readme"))
    for ending in ("", "-wal", "-shm"):
        (base / f"{NAME}{ending}").unlink(missing_ok=True)
    assert (filled.sessions(), filled.search(), filled.sessions(path="src"), filled.search("readme")) == asked
    assert everything(base) == before
    assert ids(filled.list_checkpoints(project)) == ids(asked[1])


def damage_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = b"\xa5" * (len(data) - 100)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"this is no database, and it is longer than a header" * 50),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        damage_middle,
    ],
    ids=["empty", "other", "cut", "middle"],
)
def test_a_damaged_file_is_made_anew(base: Path, filled: CheckpointManager, damage: Any) -> None:
    before = everything(base)
    (base / f"{NAME}-wal").unlink(missing_ok=True)
    (base / f"{NAME}-shm").unlink(missing_ok=True)
    damage(base / NAME)
    assert ids(filled.sessions()) == ["s3", "s2", "s1"]
    assert everything(base) == before


def test_a_file_of_a_newer_version_is_made_anew(base: Path, filled: CheckpointManager) -> None:
    before = everything(base)
    with closing(sqlite3.connect(base / NAME)) as db:
        db.executescript(f"DROP TABLE paths; PRAGMA user_version = {len(STEPS) + 1};")
    assert ids(filled.sessions(path="src")) == ["s2"]
    assert everything(base) == before
    with closing(sqlite3.connect(base / NAME)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(STEPS),)


@pytest.mark.parametrize("version", range(len(STEPS)))
def test_a_file_of_an_older_version_is_taken_further(
    base: Path, filled: CheckpointManager, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(base)
    after = schema(base)
    (base / NAME).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(queryindex, "STEPS", STEPS[:version])
        if version:
            refresh(Store(base), NO_DEADLINE)
    if version:
        with closing(sqlite3.connect(base / NAME)) as db:
            db.execute("INSERT INTO edits VALUES ('a mark', NULL, NULL, NULL, NULL)")
            db.commit()
    assert ids(filled.sessions()) == ["s3", "s2", "s1"]
    assert schema(base) == after
    with closing(sqlite3.connect(base / NAME)) as db:  # taken further, not made anew
        assert db.execute("SELECT count(*) FROM edits WHERE file = 'a mark'").fetchone() == (min(version, 1),)


def schema(base: Path) -> list[Any]:
    with closing(sqlite3.connect(base / NAME)) as db:
        return sorted(db.execute("SELECT type, name, sql FROM sqlite_master"))


def test_it_uses_a_write_ahead_log_and_is_closed_to_others(base: Path, filled: CheckpointManager) -> None:
    filled.sessions()
    with closing(sqlite3.connect(base / NAME)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    if os.name == "posix":
        assert base.stat().st_mode & 0o077 == 0
    assert filled.doctor().healthy


# --- it is brought up to date when asked --------------------------------------------------------------


def test_nothing_but_a_question_makes_it(base: Path, filled: CheckpointManager, project: Path) -> None:
    filled.restore(project, "last~1")
    filled.list_checkpoints(project)
    filled.prune()
    assert filled.session("s1").status == "completed"
    assert not (base / NAME).exists()
    filled.sessions()
    assert (base / NAME).exists()


def test_it_follows_what_happened_since(base: Path, filled: CheckpointManager, project: Path) -> None:
    filled.sessions()
    turn(filled, project, "s4", "more", {"more.txt": "x\n"})
    filled.end_session("s4")
    assert ids(filled.sessions("completed")) == ["s4", "s1"]
    assert ids(filled.sessions(path="more.txt")) == ["s4"]
    (base / "sessions" / "s4.json").unlink()
    assert ids(filled.sessions(path="more.txt")) == []
    assert ids(filled.sessions("completed", limit=1)) == ["s1"]


def test_it_follows_checkpoints_that_went(base: Path, filled: CheckpointManager, project: Path) -> None:
    turn(filled, project, "s4", "readme again", {"README.md": "third\n"})
    turn(filled, project, "s5", "more", {"more.txt": "x\n"})
    assert len(filled.search()) == len(filled.list_checkpoints(project))
    # Without what lies between, the last one changed all of it.
    newest, *between = filled.list_checkpoints(project)
    filled.delete(project, ids(between[:-1]))
    assert ids(filled.search()) == [newest.id, between[-1].id]
    assert ids(filled.search(path="src/main.py")) == [newest.id]
    kept = everything(base)
    (base / NAME).unlink()
    assert everything(base) == kept


def test_a_checkpoint_of_named_files_changed_those(home: Path, base: Path, manager: CheckpointManager) -> None:
    (home / "a.txt").write_text("x")
    outcome = manager.ensure_checkpoint(home, paths=["a.txt"])
    assert outcome.status == "partial"
    assert len(manager.search(path=home / "a.txt")) == 1
    assert manager.search(path=home / "b.txt") == []


def test_a_damaged_checkpoint_is_left_out(base: Path, filled: CheckpointManager, project: Path) -> None:
    newest = filled.list_checkpoints(project)[0]
    path = loose_object(base / "store", newest.id)
    path.chmod(0o600)
    path.write_bytes(b"damaged")
    assert newest.id not in ids(filled.search())


def test_questions_from_many_sides_at_once(base: Path, filled: CheckpointManager, project: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    managers = [CheckpointManager(base=base, fsync=False) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda each: (ids(each.sessions()), len(each.search())), managers))
    assert len(set(map(repr, answers))) == 1


def test_git_packs_and_refs_make_no_difference(base: Path, filled: CheckpointManager) -> None:
    before = ids(filled.search())
    git(base / "store", "pack-refs", "--all", "--prune")
    filled.prune(reclaim="always")
    (base / NAME).unlink()
    assert ids(filled.search()) == before
