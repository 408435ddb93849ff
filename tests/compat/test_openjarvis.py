"""The faces of OpenJarvis' checkpoint and session stores."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers import ROOT, git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.compat.openjarvis import (
    CheckpointStore,
    ConfigurationError,
    DirtyWorkingTreeError,
    EditOutcome,
    LearningSession,
    RevertConflictError,
    SessionStore,
    StageHandle,
)
from shadowsnap.errors import StoreTooNew

# --- checkpoints -----------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "jarvis"
    (root / "agents").mkdir(parents=True)
    (root / "tools").mkdir()
    (root / "config.toml").write_text("model = 'a'\n")
    (root / "agents" / "writer.toml").write_text("prompt = 'write'\n")
    (root / "notes.txt").write_text("mine\n")
    return root


@pytest.fixture
def store(root: Path, base: Path) -> CheckpointStore:
    store = CheckpointStore(root, base=base)
    store.init()
    return store


def staged(store: CheckpointStore, name: str, text: str, session: str = "s1", edit: str = "e1") -> str:
    handle = store.begin_stage(edit)
    (store.root / name).parent.mkdir(exist_ok=True)
    (store.root / name).write_text(text)
    return store.commit_stage(handle, message=f"change {name}", session_id=session, risk_tier="auto")


def entries(base: Path, root: Path) -> list[Any]:
    return CheckpointManager(base=base, fsync=False).list_checkpoints(root)


def test_the_baseline_is_taken_once(store: CheckpointStore, root: Path, base: Path) -> None:
    sha = store.current_sha()
    store.init()
    CheckpointStore(str(root), base=base).init()
    assert store.current_sha() == sha and len(entries(base, root)) == 1
    assert entries(base, root)[0].id.startswith(sha)
    assert not (root / ".git").exists()


def test_a_new_directory_is_made_and_may_be_empty(tmp_path: Path, base: Path) -> None:
    store = CheckpointStore(tmp_path / "new" / "home", base=base)
    with pytest.raises(RuntimeError, match="init"):
        store.current_sha()
    store.init()
    assert (tmp_path / "new" / "home").is_dir() and store.current_sha()
    staged(store, "config.toml", "first = true\n")


def test_it_refuses_a_directory_in_a_source_tree(tmp_path: Path, base: Path) -> None:
    package = tmp_path / "checkout" / "src" / "openjarvis"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for root in (tmp_path / "checkout", tmp_path / "checkout" / "home"):
        with pytest.raises(ConfigurationError, match="source tree"):
            CheckpointStore(root, base=base).init()
    assert not base.exists() and not (tmp_path / "checkout" / "home").exists()


def test_a_stage_knows_where_it_began(store: CheckpointStore) -> None:
    assert store.begin_stage("edit-7") == StageHandle("edit-7", store.current_sha())
    with pytest.raises(dataclasses.FrozenInstanceError):
        store.begin_stage("x").edit_id = "y"  # type: ignore[misc]


def test_uncommitted_changes_to_what_is_tracked_prevent_a_stage(store: CheckpointStore, root: Path) -> None:
    for name in ("config.toml", "agents/writer.toml", "agents/new.toml", "tools/deep/new.py"):
        old = (root / name).read_text() if (root / name).exists() else None
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("by hand\n")
        with pytest.raises(DirtyWorkingTreeError, match=name):
            store.begin_stage("edit")
        assert (root / name).read_text() == "by hand\n"
        (root / name).unlink() if old is None else (root / name).write_text(old)
    (root / "config.toml").unlink()
    with pytest.raises(DirtyWorkingTreeError):
        store.begin_stage("edit")


def test_other_files_do_not_count(store: CheckpointStore, root: Path) -> None:
    (root / "notes.txt").write_text("changed\n")
    (root / "learning").mkdir()
    (root / "learning" / "session.json").write_text("{}")
    (root / "agentsmith.txt").write_text("not in agents/\n")
    handle = store.begin_stage("edit")
    (root / "config.toml").write_text("model = 'b'\n")
    store.discard_stage(handle)
    assert (root / "notes.txt").read_text() == "changed\n"
    assert (root / "learning" / "session.json").exists() and (root / "agentsmith.txt").exists()
    assert (root / "config.toml").read_text() == "model = 'a'\n"


def test_a_committed_stage_says_whose_it_is(store: CheckpointStore, root: Path, base: Path) -> None:
    before = store.current_sha()
    sha = staged(store, "config.toml", "model = 'b'\n", session="session-1", edit="edit-9")
    assert sha == store.current_sha() != before
    newest = entries(base, root)[0]
    assert newest.short_id == sha and newest.session_id == "session-1" and newest.kind == "stage"
    assert newest.reason.splitlines() == [
        "change config.toml", "", "Edit-ID: edit-9", "Session-ID: session-1", "Risk-Tier: auto"
    ]  # fmt: skip
    assert newest.metadata["edit_id"] == "edit-9" and newest.metadata["risk_tier"] == "auto"


def test_a_stage_may_end_in_another_process(store: CheckpointStore, root: Path, base: Path) -> None:
    handle = store.begin_stage("edit")
    (root / "config.toml").write_text("model = 'b'\n")
    later = CheckpointStore(root, base=base)
    sha = later.commit_stage(handle, message="m", session_id="s", risk_tier="review")
    assert later.current_sha() == sha == store.current_sha()
    store.begin_stage("next")


def test_a_discarded_stage_leaves_no_trace(store: CheckpointStore, root: Path) -> None:
    before, sha = manifest(root), store.current_sha()
    handle = store.begin_stage("edit")
    (root / "config.toml").write_text("model = 'b'\n")
    (root / "agents" / "writer.toml").unlink()
    (root / "agents" / "new.toml").write_text("new\n")
    (root / "tools" / "deep" / "er").mkdir(parents=True)
    (root / "tools" / "deep" / "er" / "tool.py").write_text("new\n")
    (root / "tools" / "empty").mkdir()
    store.discard_stage(handle)
    assert manifest(root) == before and store.current_sha() == sha
    store.begin_stage("the next")


def test_a_stage_is_not_discarded_over_a_commit(store: CheckpointStore, root: Path) -> None:
    handle = store.begin_stage("edit")
    staged(store, "config.toml", "model = 'b'\n")
    with pytest.raises(RuntimeError, match="committed"):
        store.discard_stage(handle)
    assert (root / "config.toml").read_text() == "model = 'b'\n"


def test_a_session_is_reverted_newest_first_and_history_is_kept(
    store: CheckpointStore, root: Path, base: Path
) -> None:
    before = manifest(root)
    one = staged(store, "config.toml", "model = 'b'\n", edit="e1")
    two = staged(store, "config.toml", "model = 'c'\n", edit="e2")
    three = staged(store, "tools/new.py", "new\n", edit="e3")
    earlier = [each.id for each in entries(base, root)]
    made = store.revert_session("s1")
    assert len(made) == 3 and not set(made) & {one, two, three} and made[-1] == store.current_sha()
    assert manifest(root) == before
    now = entries(base, root)
    reverts = [each for each in now if "reverts" in each.metadata]
    assert [each.short_id for each in reversed(reverts)] == made
    assert [each.metadata["reverts"][:8] for each in reversed(reverts)] == [three, two, one]
    assert [each.id for each in now if each.id in earlier] == earlier
    store.begin_stage("goes on")


def test_a_second_revert_does_nothing(store: CheckpointStore, root: Path) -> None:
    staged(store, "config.toml", "model = 'b'\n")
    assert len(store.revert_session("s1")) == 1
    staged(store, "config.toml", "model = 'by another'\n", session="s2")
    sha = store.current_sha()
    assert store.revert_session("s1") == []
    assert store.current_sha() == sha and (root / "config.toml").read_text() == "model = 'by another'\n"


def test_only_the_session_that_is_meant_is_reverted(store: CheckpointStore, root: Path) -> None:
    staged(store, "config.toml", "model = 'b'\n", session="session-1")
    staged(store, "tools/ten.py", "ten\n", session="session-10")
    assert store.revert_session("session") == [] == store.revert_session("session-") == store.revert_session("")
    assert len(store.revert_session("session-1")) == 1
    assert (root / "tools" / "ten.py").exists() and (root / "config.toml").read_text() == "model = 'a'\n"


def test_a_revert_keeps_what_others_did(store: CheckpointStore, root: Path) -> None:
    lines = [f"line {number}" for number in range(9)]
    staged(store, "agents/list.txt", "\n".join(lines), session="s0")
    staged(store, "agents/list.txt", "\n".join(["first, s1", *lines[1:]]), session="s1")
    staged(store, "agents/list.txt", "\n".join(["first, s1", *lines[1:-1], "last, s2"]), session="s2")
    assert len(store.revert_session("s1")) == 1
    assert (root / "agents" / "list.txt").read_text().splitlines() == [*lines[:-1], "last, s2"]


def test_a_revert_that_would_destroy_others_work_is_refused(store: CheckpointStore, root: Path) -> None:
    staged(store, "tools/untouched.py", "s1\n", session="s1")
    staged(store, "config.toml", "model = 'b'\n", session="s1")
    staged(store, "config.toml", "model = 'c'\n", session="s2")
    before, sha = manifest(root), store.current_sha()
    with pytest.raises(RevertConflictError, match=r"config\.toml"):
        store.revert_session("s1")
    assert manifest(root) == before and store.current_sha() == sha
    store.revert_session("s2")
    assert len(store.revert_session("s1")) == 2 and not (root / "tools" / "untouched.py").exists()


def test_a_revert_does_not_swallow_uncommitted_changes(store: CheckpointStore, root: Path) -> None:
    staged(store, "config.toml", "model = 'b'\n")
    (root / "agents" / "writer.toml").write_text("by hand\n")
    with pytest.raises(DirtyWorkingTreeError):
        store.revert_session("s1")
    assert (root / "agents" / "writer.toml").read_text() == "by hand\n"


def test_checkpoints_that_others_take_of_the_directory_do_not_matter(
    store: CheckpointStore, root: Path, base: Path
) -> None:
    sha = store.current_sha()
    CheckpointManager(base=base, fsync=False).snapshot(root, "by a hook")
    assert store.current_sha() == sha
    handle = store.begin_stage("edit")
    (root / "config.toml").write_text("model = 'b'\n")
    store.discard_stage(handle)
    assert (root / "config.toml").read_text() == "model = 'a'\n" and (root / "notes.txt").exists()


def test_history_is_kept_whatever_the_limits_of_the_store(store: CheckpointStore, root: Path, base: Path) -> None:
    before = manifest(root)
    for number in range(3):
        staged(store, "config.toml", f"model = {number}\n")
    CheckpointManager(base=base, fsync=False).snapshot(root, "by a hook")
    CheckpointManager(base=base, fsync=False).prune(max_snapshots=1, retention_days=0.000001)
    assert len(store.revert_session("s1")) == 3 and manifest(root) == before


def test_the_persons_repository_is_left_alone(root: Path, base: Path) -> None:
    git(root, "init", "-q")
    git(root, "add", "config.toml")
    before = snapshot_dotgit(root)
    store = CheckpointStore(root, base=base)
    store.init()
    staged(store, "config.toml", "model = 'b'\n")
    store.revert_session("s1")
    assert snapshot_dotgit(root) == before


# --- beside OpenJarvis ---------------------------------------------------------------------------------

PACKAGE = {
    "__init__.py": "",
    "learning/__init__.py": "",
    "learning/spec_search/__init__.py": "",
    "learning/spec_search/storage/__init__.py": "",
    "learning/spec_search/storage/paths.py": "class ConfigurationError(Exception):\n    pass\n",
    "learning/spec_search/checkpoint/__init__.py": "",
    "learning/spec_search/checkpoint/store.py": """
from dataclasses import dataclass

class DirtyWorkingTreeError(RuntimeError):
    pass

@dataclass(frozen=True)
class StageHandle:
    edit_id: str
    pre_stage_sha: str
""",
    "learning/spec_search/models.py": """
from dataclasses import dataclass, fields
from enum import Enum

class SessionStatus(str, Enum):
    INITIATED = "initiated"

class EditOutcome:
    def __init__(self, **fields):
        vars(self).update(fields)

class LearningSession:
    def __init__(self, **fields):
        vars(self).update(fields)
        self.status = SessionStatus(self.status)

    def __eq__(self, other):
        return type(other) is LearningSession and vars(other) == vars(self)
""",
}
SCRIPT = """
import sys
from datetime import datetime
from pathlib import Path
from openjarvis.learning.spec_search.checkpoint import store as original
from openjarvis.learning.spec_search.models import LearningSession, SessionStatus
from openjarvis.learning.spec_search.storage.paths import ConfigurationError
from shadowsnap.compat import openjarvis as face

here = Path(sys.argv[1])
try:
    face.CheckpointStore(here / "packages" / "openjarvis" / "home", base=here / "base").init()
    raise SystemExit("it was not refused")
except ConfigurationError as problem:
    assert "source tree" in str(problem)
store = face.CheckpointStore(here / "home", base=here / "base")
store.init()
assert type(store.begin_stage("e1")) is original.StageHandle
(here / "home" / "config.toml").write_text("changed")
try:
    store.begin_stage("e2")
    raise SystemExit("it was not refused")
except original.DirtyWorkingTreeError:
    pass
fields = dict(
    id="s1", parent_session_id=None, trigger="manual", trigger_metadata={}, status="initiated",
    autonomy_mode="auto", started_at=datetime(2026, 1, 1), ended_at=None, diagnosis_path=Path("/d"),
    plan_path=Path("/p"), benchmark_before={"overall_score": 0.5}, benchmark_after=None, git_checkpoint_pre="abc",
    git_checkpoint_post=None, teacher_cost_usd=0.0, error=None, edit_outcomes=[],
)
sessions = face.SessionStore(here / "learning.db")
sessions.save_session(LearningSession(**fields))
found = sessions.get_session("s1")
assert found == LearningSession(**fields) and found.status.value == "initiated"
assert sessions.list_sessions(SessionStatus.INITIATED) == [found]
"""


def test_where_openjarvis_is_installed_its_own_types_are_used(tmp_path: Path, base: Path) -> None:
    for name, text in PACKAGE.items():
        path = tmp_path / "packages" / "openjarvis" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "packages"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


# --- sessions --------------------------------------------------------------------------------------------


class Status(str, Enum):
    INITIATED = "initiated"
    COMPLETED = "completed"


@dataclass
class Snapshot:
    overall_score: float
    cluster_scores: dict[str, float] = field(default_factory=dict)


START = datetime(2026, 4, 8, 3, tzinfo=UTC)


def session(id: str = "s1", **more: Any) -> SimpleNamespace:
    """Not one of our classes: anything with these attributes will do."""
    fields = {
        "id": id, "parent_session_id": None, "trigger": "scheduled", "trigger_metadata": {"cron": "0 3 * * *"},
        "status": Status.INITIATED, "autonomy_mode": "tiered", "started_at": START, "ended_at": None,
        "diagnosis_path": Path("/x/diagnosis.md"), "plan_path": Path("/x/plan.json"),
        "benchmark_before": Snapshot(0.6, {"c1": 0.5}), "benchmark_after": None, "git_checkpoint_pre": "abc1234",
        "git_checkpoint_post": None, "teacher_cost_usd": 0.25, "error": None,
    }  # fmt: skip
    return SimpleNamespace(**{**fields, **more})


EDIT = {"pillar": "intelligence", "op": "set", "target": "a.b", "risk_tier": "auto"}


def outcome(edit_id: str = "e1", **more: Any) -> EditOutcome:
    return EditOutcome(edit_id, "applied", 0.04, {"c1": 0.1}, None, START + timedelta(minutes=5), **more)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "learning.db"


@pytest.fixture
def sessions(database: Path) -> Any:
    store = SessionStore(database)
    yield store
    store.close()


def test_a_session_comes_back_as_it_was_saved(sessions: SessionStore) -> None:
    sessions.save_session(session())
    assert sessions.get_session("s1") == LearningSession(
        id="s1", parent_session_id=None, trigger="scheduled", trigger_metadata={"cron": "0 3 * * *"},
        status="initiated", autonomy_mode="tiered", started_at=START, ended_at=None,
        diagnosis_path=Path("/x/diagnosis.md"), plan_path=Path("/x/plan.json"),
        benchmark_before={"overall_score": 0.6, "cluster_scores": {"c1": 0.5}}, benchmark_after=None,
        git_checkpoint_pre="abc1234", git_checkpoint_post=None, teacher_cost_usd=0.25, error=None,
    )  # fmt: skip
    assert sessions.get_session("s1").status == Status.INITIATED


def test_nothing_is_known_at_first(sessions: SessionStore) -> None:
    assert sessions.list_sessions() == [] and sessions.get_session("s1") is None
    assert sessions.list_outcomes("s1") == []


def test_saving_again_replaces_and_keeps_the_outcomes(sessions: SessionStore) -> None:
    sessions.save_session(session())
    sessions.save_outcome("s1", outcome(), **EDIT)
    sessions.save_session(session("child", parent_session_id="s1"))
    sessions.save_session(
        session(status=Status.COMPLETED, ended_at=START, error="none really", git_checkpoint_post="d")
    )
    found = sessions.get_session("s1")
    assert (found.status, found.ended_at, found.error, found.git_checkpoint_post) == (
        "completed",
        START,
        "none really",
        "d",
    )
    assert [each.edit_id for each in found.edit_outcomes] == ["e1"]
    assert sessions.get_session("child").parent_session_id == "s1"
    assert len(sessions.list_sessions()) == 2


def test_outcomes_come_back_in_order(sessions: SessionStore) -> None:
    sessions.save_session(session())
    sessions.save_outcome("s1", outcome("e2"), **EDIT, rationale="because")
    sessions.save_outcome("s1", outcome("e1"), **EDIT)
    failed = SimpleNamespace(
        edit_id="e3", status="failed", benchmark_delta=None, cluster_deltas={}, error="why", applied_at=None
    )
    sessions.save_outcome("s1", failed, **EDIT)
    assert sessions.list_outcomes("s1") == [
        outcome("e2"),
        outcome("e1"),
        EditOutcome("e3", "failed", None, {}, "why", None),
    ]


def test_sessions_are_listed_newest_first(sessions: SessionStore) -> None:
    east = timezone(timedelta(hours=5))
    sessions.save_session(session("middle", started_at=START))
    sessions.save_session(session("newest", started_at=START + timedelta(hours=1), status=Status.COMPLETED))
    # An hour earlier, although it reads as if it were later.
    sessions.save_session(session("oldest", started_at=(START - timedelta(hours=1)).astimezone(east)))
    assert [each.id for each in sessions.list_sessions()] == ["newest", "middle", "oldest"]
    assert [each.id for each in sessions.list_sessions(limit=2)] == ["newest", "middle"]
    assert [each.id for each in sessions.list_sessions(status=Status.INITIATED)] == ["middle", "oldest"]
    assert [each.id for each in sessions.list_sessions(status="completed", limit=5)] == ["newest"]
    assert sessions.list_sessions(limit=0) == []


def test_listing_takes_as_many_queries_for_many_sessions_as_for_one(sessions: SessionStore) -> None:
    queries: list[str] = []
    counts = []
    for number in range(20):
        sessions.save_session(session(f"s{number}"))
        sessions.save_outcome(f"s{number}", outcome(f"e{number}"), **EDIT)
        if number in (0, 19):
            sessions._db.set_trace_callback(queries.append)
            listed = sessions.list_sessions()
            sessions._db.set_trace_callback(None)
            counts.append(len(queries))
            queries.clear()
    assert counts[0] == counts[1] == 2
    assert {each.id: each.edit_outcomes[0].edit_id for each in listed} == {f"s{n}": f"e{n}" for n in range(20)}


def test_the_database_keeps_its_rules(sessions: SessionStore, database: Path) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        sessions.save_outcome("unknown", outcome(), **EDIT)
    with pytest.raises(sqlite3.IntegrityError):
        sessions.save_session(session("orphan", parent_session_id="unknown"))
    assert sessions.list_sessions() == [] and sessions.list_outcomes("unknown") == []
    with sqlite3.connect(database) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert other.execute("PRAGMA user_version").fetchone() == (1,)
    other.close()


def test_opening_it_again_finds_everything(sessions: SessionStore, database: Path) -> None:
    sessions.save_session(session())
    again = SessionStore(str(database))
    assert [each.id for each in again.list_sessions()] == ["s1"]
    again.close()


def test_a_database_of_a_newer_version_is_refused(database: Path) -> None:
    with sqlite3.connect(database) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(StoreTooNew):
        SessionStore(database)


def test_a_database_that_openjarvis_made_is_read(database: Path) -> None:
    with sqlite3.connect(database) as theirs:
        columns = {
            "id": "old", "parent_session_id": None, "trigger": "manual", "trigger_metadata": "{}",
            "status": "completed", "autonomy_mode": "auto", "started_at": "2026-01-01T00:00:00+00:00",
            "ended_at": None, "diagnosis_path": "/d", "plan_path": "/p", "benchmark_before": "{}",
            "benchmark_after": None, "git_checkpoint_pre": "abc", "git_checkpoint_post": None,
            "teacher_cost_usd": 1.5, "error": None,
        }  # fmt: skip
        theirs.execute(f"CREATE TABLE learning_sessions ({', '.join(columns)}, PRIMARY KEY (id))")
        marks = ", ".join("?" * len(columns))
        theirs.execute(f"INSERT INTO learning_sessions VALUES ({marks})", list(columns.values()))
    theirs.close()
    store = SessionStore(database)
    store.save_outcome("old", outcome(), **EDIT)
    assert store.get_session("old").teacher_cost_usd == 1.5
    store.close()


def test_threads_share_one_store(sessions: SessionStore) -> None:
    problems: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(10):
                sessions.save_session(session(f"{name}-{number}"))
                sessions.save_outcome(f"{name}-{number}", outcome(), **EDIT)
                sessions.list_sessions()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == [] and len(sessions.list_sessions()) == 40
    assert all(len(each.edit_outcomes) == 1 for each in sessions.list_sessions())


def write_record(folder: Path, of: SimpleNamespace, *outcomes: dict[str, Any]) -> None:
    data = {**vars(of), "status": of.status.value, "started_at": of.started_at.isoformat().replace("+00:00", "Z")}
    data.update(diagnosis_path="/x/diagnosis.md", plan_path="/x/plan.json", edit_outcomes=list(outcomes))
    data["benchmark_before"] = dataclasses.asdict(of.benchmark_before)
    (folder / of.id).mkdir(parents=True)
    (folder / of.id / "session.json").write_text(json.dumps(data))


def test_it_can_be_made_again_from_the_files(sessions: SessionStore, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    row = {"edit_id": "e1", "status": "applied", "benchmark_delta": 0.04, "applied_at": "2026-04-08T03:05:00Z"}
    write_record(folder, session("a-child", parent_session_id="z-parent"), row)
    write_record(folder, session("z-parent", status=Status.COMPLETED))
    write_record(folder, session("of-a-lost-parent", parent_session_id="lost"))
    (folder / "damaged").mkdir()
    (folder / "damaged" / "session.json").write_text("{")
    sessions.save_session(session("only here"))
    sessions.save_session(session("z-parent"))
    sessions.save_outcome("z-parent", outcome("gone from the file"), **EDIT)
    for _ in range(2):
        assert sessions.rebuild(folder) == 3
    found = {each.id: each for each in sessions.list_sessions()}
    assert set(found) == {"a-child", "z-parent", "of-a-lost-parent", "only here"}
    assert found["a-child"].parent_session_id == "z-parent" and found["a-child"].started_at == START
    assert found["a-child"].edit_outcomes[0].applied_at == START + timedelta(minutes=5)
    assert found["z-parent"].status == "completed" and found["z-parent"].edit_outcomes == []
    assert found["of-a-lost-parent"].parent_session_id is None


def test_a_file_that_lacks_something_does_not_keep_out_the_others(sessions: SessionStore, tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    write_record(folder, session("child", parent_session_id="half"), {"status": "of no edit"})
    (folder / "half").mkdir()
    (folder / "half" / "session.json").write_text('{"id": "half"}')
    file = folder / "child" / "session.json"
    record = json.loads(file.read_text())
    for name in ("error", "ended_at", "teacher_cost_usd", "trigger_metadata"):
        del record[name]
    file.write_text(json.dumps(record))
    assert sessions.rebuild(folder) == 1
    (found,) = sessions.list_sessions()
    assert (found.id, found.parent_session_id, found.edit_outcomes) == ("child", None, [])
    assert (found.teacher_cost_usd, found.trigger_metadata) == (0.0, {})


@pytest.mark.parametrize(
    ("odd", "is_taken"),
    [
        ({"trigger_metadata": None, "teacher_cost_usd": None}, True),
        ({"edit_outcomes": "none"}, True),
        ({"edit_outcomes": [7, {"edit_id": [], "status": "x"}, {"edit_id": "e", "status": {}}]}, True),
        ({"started_at": "yesterday"}, False),
        ({"plan_path": 5}, False),
        ({"status": {}}, False),
        ({"error": {"code": 1}}, False),
        ({"parent_session_id": []}, False),
        ({"teacher_cost_usd": 1 << 70}, False),
    ],
    ids=str,
)
def test_a_file_with_something_else_in_it_does_not_keep_out_the_others(
    sessions: SessionStore, tmp_path: Path, odd: dict[str, Any], is_taken: bool
) -> None:
    folder = tmp_path / "sessions"
    write_record(folder, session("child", parent_session_id="odd"), {"edit_id": "e1", "status": "applied"})
    write_record(folder, session("odd"), {"edit_id": "e2", "status": "applied", "cluster_deltas": None})
    file = folder / "odd" / "session.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | odd))
    assert sessions.rebuild(folder) == 1 + is_taken
    found = {each.id: each for each in sessions.list_sessions()}
    assert set(found) == {"child"} | ({"odd"} if is_taken else set())
    assert [each.edit_id for each in found["child"].edit_outcomes] == ["e1"]
    assert found["child"].parent_session_id == ("odd" if is_taken else None)
    if is_taken and "edit_outcomes" not in odd:
        assert found["odd"].edit_outcomes[0].cluster_deltas == {}
        assert (found["odd"].teacher_cost_usd, found["odd"].trigger_metadata) == (0.0, {})


def test_making_it_again_keeps_what_only_the_index_knows(
    sessions: SessionStore, database: Path, tmp_path: Path
) -> None:
    write_record(tmp_path / "sessions", session(), {"edit_id": "e1", "status": "rejected"})
    sessions.save_session(session())
    sessions.save_outcome("s1", outcome(), **EDIT, rationale="because")
    sessions.rebuild(tmp_path / "sessions")
    rows = sessions._db.execute(
        "SELECT status, pillar, op, target, risk_tier, rationale FROM edit_outcomes"
    ).fetchall()
    assert rows == [("rejected", "intelligence", "set", "a.b", "auto", "because")]
