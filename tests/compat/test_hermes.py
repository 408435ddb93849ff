"""The face of Hermes Agent's checkpoint manager: its calls, its dictionaries, its error texts."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import pwd
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from older_tools import hermes_directory, hermes_store

from helpers import call_unprivileged, git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.compat import checkpoint_maintenance, hermes
from shadowsnap.store.log import append_trouble
from shadowsnap.store.projects import project_of

MB = 1024 * 1024
DAYS = 86400


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", tmp_path / "checkpoints")
    return tmp_path / "checkpoints"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return make(tmp_path / "work")


@pytest.fixture
def manager() -> hermes.CheckpointManager:
    return hermes.CheckpointManager(enabled=True)


def make(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in {"main.py": "print('hello')\n", "notes.md": "# Notes\n", **files}.items():
        (folder / name).write_text(text)
    return folder


def first(manager: hermes.CheckpointManager, work: Path) -> str:
    assert manager.ensure_checkpoint(str(work), "first") is True
    manager.new_turn()
    return str(manager.list_checkpoints(str(work))[0]["hash"])


def agent_writes(manager: hermes.CheckpointManager, path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    manager.record_agent_write(str(path))


# --- the same signatures ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "parameters"),
    [
        (
            hermes.CheckpointManager,
            {"enabled": False, "max_snapshots": 20, "max_total_size_mb": 500, "max_file_size_mb": 10},
        ),
        (hermes.CheckpointManager.restore, {"file_path": None, "safe": False}),
        (
            hermes.prune_checkpoints,
            {"retention_days": 7, "delete_orphans": True, "checkpoint_base": None, "max_total_size_mb": 0},
        ),
        (
            hermes.maybe_auto_prune_checkpoints,
            {
                "retention_days": 7, "min_interval_hours": 24, "delete_orphans": True, "checkpoint_base": None,
                "max_total_size_mb": 0,
            },
        ),
        (hermes.store_status, {"checkpoint_base": None}),
        (hermes.clear_all, {"checkpoint_base": None}),
        (hermes.clear_legacy, {"checkpoint_base": None}),
    ],
)  # fmt: skip
def test_the_defaults_are_those_of_hermes(call: Callable[..., Any], parameters: dict[str, Any]) -> None:
    found = {name: each.default for name, each in inspect.signature(call).parameters.items()}
    assert [found[name] for name in parameters] == list(parameters.values())
    in_order = [name for name in found if name in parameters]
    assert in_order == list(parameters)


def test_the_second_module_has_the_same_functions() -> None:
    names = [
        "auto_prune_from_config", "checkpoint_footprint_notice", "clear_all", "clear_legacy",
        "maybe_auto_prune_checkpoints", "prune_checkpoints", "store_status",
    ]  # fmt: skip
    for name in names:
        assert getattr(checkpoint_maintenance, name) is getattr(hermes, name)


# --- inside Hermes -------------------------------------------------------------------------------------


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    """A module of Hermes that the face asks, if it is there."""
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType(name.partition(".")[0]))
    monkeypatch.setitem(sys.modules, name, module)


def configured(monkeypatch: pytest.MonkeyPatch, **checkpoints: Any) -> None:
    pretend(monkeypatch, "hermes_cli.config", load_config=lambda: {"checkpoints": checkpoints})


def test_a_task_in_a_container_has_no_checkpoints_and_says_why(
    manager: hermes.CheckpointManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manager.unsupported_backend_reason() is None
    backends = {"default": None, "boxed": "docker"}
    pretend(monkeypatch, "tools.file_tools_paths", container_backend_for_task=backends.get)
    assert manager.unsupported_backend_reason() is None
    reason = manager.unsupported_backend_reason("boxed")
    assert reason is not None and "terminal.backend=docker" in reason


def test_pruning_follows_the_configuration_of_hermes(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = hermes.auto_prune_from_config()
    assert outside["skipped"] is True and "hermes_cli" in outside["error"]
    gone, stale = make(tmp_path / "gone"), make(tmp_path / "stale")
    for project in (work, gone, stale):
        first(manager, project)
    shutil.rmtree(gone)
    last_touched(base, stale, 4)
    configured(monkeypatch, auto_prune=False)
    assert hermes.auto_prune_from_config() == {"skipped": True}
    configured(monkeypatch, auto_prune=True, retention_days=3, min_interval_hours="2")
    out = hermes.auto_prune_from_config()
    assert (out["result"]["deleted_orphan"], out["result"]["deleted_stale"]) == (0, 1)
    assert reasons(manager) == ["gone", "work"]
    assert hermes.auto_prune_from_config() == {"skipped": True}
    configured(monkeypatch, auto_prune=True, retention_days="many")
    assert hermes.auto_prune_from_config()["skipped"] is True


def test_a_large_store_is_worth_a_line(
    manager: hermes.CheckpointManager, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "large").write_bytes(os.urandom(2 * MB))
    first(manager, work)
    assert hermes.checkpoint_footprint_notice() is None  # not inside Hermes
    configured(monkeypatch, enabled=True, max_total_size_mb=1)
    notice = hermes.checkpoint_footprint_notice()
    assert notice is not None and "2 MB for 1 project" in notice and "checkpoints.enabled false" in notice
    for settings in ({"enabled": True, "max_total_size_mb": 500}, {"enabled": False, "max_total_size_mb": 1}, {}):
        configured(monkeypatch, **settings)
        assert hermes.checkpoint_footprint_notice() is None
    configured(monkeypatch, enabled=True, max_total_size_mb="much")
    assert hermes.checkpoint_footprint_notice() is None


# --- taking and listing --------------------------------------------------------------------------------


def test_a_disabled_manager_does_nothing(work: Path, base: Path) -> None:
    manager = hermes.CheckpointManager()
    manager.new_turn()
    assert manager.ensure_checkpoint(str(work), "no") is False
    manager.record_agent_write(str(work / "main.py"))
    assert not base.exists()


def test_one_checkpoint_per_directory_and_turn_and_none_without_changes(
    manager: hermes.CheckpointManager, work: Path
) -> None:
    assert manager.ensure_checkpoint(str(work), "first") is True
    (work / "main.py").write_text("changed\n")
    assert manager.ensure_checkpoint(str(work), "second") is False
    manager.new_turn()
    assert manager.ensure_checkpoint(str(work), "third") is True
    manager.new_turn()
    assert manager.ensure_checkpoint(str(work), "nothing changed") is False
    assert [each["reason"] for each in manager.list_checkpoints(str(work))] == ["third", "first"]


def test_of_many_threads_one_takes_the_checkpoint(manager: hermes.CheckpointManager, work: Path) -> None:
    begin = threading.Barrier(4)

    def ensure(_: int) -> bool:
        begin.wait()
        return manager.ensure_checkpoint(str(work), "at once")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(ensure, range(4))) == [False, False, False, True]


def test_broad_directories_are_left_alone(manager: hermes.CheckpointManager, home: Path) -> None:
    assert manager.ensure_checkpoint("/", "root") is False
    assert manager.ensure_checkpoint(str(home), "home") is False
    assert manager.ensure_checkpoint(str(home / "missing"), "missing") is False


def test_entries_have_the_keys_of_hermes(manager: hermes.CheckpointManager, work: Path) -> None:
    first(manager, work)
    (work / "main.py").write_text("one\ntwo\n")
    manager.ensure_checkpoint(str(work), "before terminal: rm -rf x")
    newest, oldest = manager.list_checkpoints(str(work))
    keys = ["hash", "short_hash", "timestamp", "reason", "files_changed", "insertions", "deletions"]
    assert list(newest) == keys == list(oldest)
    assert re.fullmatch("[0-9a-f]{40}", newest["hash"]) and newest["hash"].startswith(newest["short_hash"])
    assert newest["reason"] == "before terminal: rm -rf x"
    assert (newest["files_changed"], newest["insertions"], newest["deletions"]) == (1, 2, 1)
    moments = [datetime.fromisoformat(each["timestamp"]) for each in (newest, oldest)]
    assert moments[0] > moments[1] and moments[0].utcoffset() is not None


def test_at_most_max_snapshots_are_listed(work: Path) -> None:
    manager = hermes.CheckpointManager(enabled=True, max_snapshots=2)
    for number in range(4):
        (work / "main.py").write_text(f"{number}\n")
        manager.new_turn()
        manager.ensure_checkpoint(str(work), f"step {number}")
    assert [each["reason"] for each in manager.list_checkpoints(str(work))] == ["step 3", "step 2"]


def test_nothing_is_listed_and_nothing_made_where_nothing_was_taken(
    manager: hermes.CheckpointManager, work: Path, base: Path
) -> None:
    assert manager.list_checkpoints(str(work)) == []
    assert manager.list_all_checkpoints() == []
    assert manager.session_diff(str(work)) == {"success": True, "stat": "", "diff": "", "empty": True}
    assert hermes.store_status()["project_count"] == 0
    assert hermes.prune_checkpoints()["scanned"] == 0
    assert not base.exists()


def test_all_checkpoints_of_all_projects_are_listed_newest_first(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path
) -> None:
    other = make(tmp_path / "other")
    first(manager, work)
    first(manager, other)
    (work / "main.py").write_text("changed\n")
    manager.ensure_checkpoint(str(work), "third")
    found = manager.list_all_checkpoints()
    assert [(each["reason"], each["workdir"]) for each in found] == [
        ("third", str(work)), ("first", str(other)), ("first", str(work))
    ]  # fmt: skip
    assert [each["reason"] for each in manager.list_checkpoints(str(other))] == ["first"]


def test_the_base_is_read_at_every_call(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first(manager, work)
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", str(tmp_path / "elsewhere"))
    assert manager.list_checkpoints(str(work)) == []
    assert manager.ensure_checkpoint(str(work), "again") is True
    assert (tmp_path / "elsewhere" / "store").is_dir()
    assert hermes.store_status()["base"] == str(tmp_path / "elsewhere")


def test_without_a_replaced_base_it_is_that_of_shadowsnap(
    manager: hermes.CheckpointManager, work: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("SHADOWSNAP_HOME", str(home / "ours"))
    first(manager, work)
    assert (home / "ours" / "store").is_dir()


def test_the_layout_has_the_names_of_hermes(manager: hermes.CheckpointManager, work: Path, base: Path) -> None:
    first(manager, work)
    store, project = base / "store", project_of(work).id
    assert re.fullmatch("[0-9a-f]{16}", project)
    assert (store / "HEAD").exists() and (store / "indexes").is_dir()
    record = json.loads((store / "projects" / f"{project}.json").read_text())
    assert record["workdir"] == str(work)
    assert time.time() - 60 < record["created_at"] <= record["last_touch"] <= time.time()
    assert "node_modules/" in (store / "info" / "exclude").read_text()
    assert "node_modules/" in hermes.DEFAULT_EXCLUDES
    assert not (work / ".git").exists()


def test_large_files_are_not_captured(work: Path) -> None:
    (work / "weights.bin").write_bytes(b"\0" * (2 * MB))
    manager = hermes.CheckpointManager(enabled=True, max_file_size_mb=1)
    found = first(manager, work)
    (work / "weights.bin").unlink()
    (work / "main.py").unlink()
    assert manager.restore(str(work), found)["success"] is True
    assert sorted(path.name for path in work.iterdir()) == ["main.py", "notes.md"]


def test_it_works_with_signing_forced_on(manager: hermes.CheckpointManager, work: Path, home: Path) -> None:
    (home / ".gitconfig").write_text(
        "[commit]\n\tgpgsign = true\n[tag]\n\tgpgSign = true\n[gpg]\n\tprogram = /nonexistent/gpg\n"
    )
    found = first(manager, work)
    (work / "main.py").write_text("changed\n")
    assert manager.restore(str(work), found)["success"] is True


def test_without_git_everything_answers(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = first(manager, work)
    (work / "main.py").write_text("changed\n")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    fresh = make(tmp_path / "fresh")
    assert manager.ensure_checkpoint(str(fresh), "no git") is False
    for answer in (manager.restore(str(work), found), manager.diff(str(work), found)):
        assert answer["success"] is False and "git" in answer["error"]
    assert manager.list_checkpoints(str(work)) == []
    assert manager.list_all_checkpoints() == []
    assert hermes.store_status()["store_size_bytes"] > 0
    assert hermes.prune_checkpoints()["errors"] == 1
    assert hermes.clear_all()["deleted"] is False
    assert (work / "main.py").read_text() == "changed\n"


def test_a_tilde_is_the_home_directory(manager: hermes.CheckpointManager, home: Path) -> None:
    work = make(home / "work")
    assert manager.ensure_checkpoint("~/work", "first") is True
    found = manager.list_checkpoints(str(work))[0]["hash"]
    (work / "main.py").write_text("changed\n")
    assert "main.py" in manager.diff("~/work", found)["diff"]
    assert manager.restore("~/work", found)["success"] is True
    assert (work / "main.py").read_text() == "print('hello')\n"


# --- looking -------------------------------------------------------------------------------------------


def test_a_difference_has_a_summary_and_a_text(manager: hermes.CheckpointManager, work: Path) -> None:
    found = first(manager, work)
    (work / "main.py").write_text("changed\n")
    (work / "feature.py").write_text("x = 1\n")
    (work / "notes.md").unlink()
    answer = manager.diff(str(work), found)
    assert list(answer) == ["success", "stat", "diff"] and answer["success"] is True
    assert "-print('hello')" in answer["diff"] and "+x = 1" in answer["diff"]
    assert answer["stat"].splitlines() == [
        " feature.py | 1 +",
        " main.py    | 2 +-",
        " notes.md   | 1 -",
        " 3 files changed, 2 insertions(+), 2 deletions(-)",
    ]


def test_a_session_difference_is_against_the_oldest_checkpoint(
    manager: hermes.CheckpointManager, work: Path
) -> None:
    oldest = first(manager, work)
    assert manager.session_diff(str(work))["empty"] is True
    (work / "main.py").write_text("second\n")
    manager.ensure_checkpoint(str(work), "second")
    (work / "main.py").write_text("third\n")
    answer = manager.session_diff(str(work))
    assert answer["success"] is True and answer["baseline"] == oldest and "empty" not in answer
    assert "-print('hello')" in answer["diff"] and "+third" in answer["diff"] and "second" not in answer["diff"]


def test_the_list_for_people_is_numbered_and_says_what_to_do(
    manager: hermes.CheckpointManager, work: Path
) -> None:
    first(manager, work)
    (work / "main.py").write_text("changed\n")
    manager.ensure_checkpoint(str(work), "second")
    listed = manager.list_checkpoints(str(work))
    lines = hermes.format_checkpoint_list(listed, str(work)).splitlines()
    assert str(work) in lines[0]
    assert lines[2].startswith(f"  1. {listed[0]['short_hash']}  ") and "second  (1 file, +1/-1)" in lines[2]
    assert lines[3].startswith(f"  2. {listed[1]['short_hash']}  ") and "first" in lines[3]
    hints = [line.split("  ")[1] for line in lines[-3:]]
    assert hints == ["/rollback <N>", "/rollback diff <N>", "/rollback <N> <file>"]
    assert "[work]" in hermes.format_checkpoint_list(manager.list_all_checkpoints(), "all directories")
    assert hermes.format_checkpoint_list([], "/nowhere") == "No checkpoints found for /nowhere"


# --- restoring -----------------------------------------------------------------------------------------


def test_a_restore_brings_everything_back_and_says_what(manager: hermes.CheckpointManager, work: Path) -> None:
    before, found = manifest(work), first(manager, work)
    (work / "main.py").write_text("changed\n")
    (work / "notes.md").unlink()
    answer = manager.restore(str(work), found)
    assert answer == {"success": True, "restored_to": found[:8], "reason": "first", "directory": str(work)}
    assert manifest(work) == before
    newest = manager.list_checkpoints(str(work))[0]
    assert manager.restore(str(work), newest["hash"])["success"] is True
    assert (work / "main.py").read_text() == "changed\n"


def test_a_restore_removes_what_came_later_and_saves_it(manager: hermes.CheckpointManager, work: Path) -> None:
    found = first(manager, work)
    (work / "later.txt").write_text("later\n")
    assert manager.restore(str(work), found)["success"] and not (work / "later.txt").exists()
    newest = manager.list_checkpoints(str(work))[0]
    assert newest["reason"].startswith("pre-rollback snapshot")
    assert manager.restore(str(work), newest["hash"])["success"]
    assert (work / "later.txt").read_text() == "later\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs files of two users")
def test_a_restore_that_fails_changes_nothing(work: Path, base: Path, as_user: Callable[..., Any]) -> None:
    (work / "theirs").mkdir()
    (work / "theirs" / "inside.txt").write_text("first\n")
    found = as_user(checkpoint_and_write, base, work)
    (work / "theirs" / "inside.txt").write_text("changed\n")
    user = pwd.getpwnam("nobody").pw_uid
    for path in (work, *work.rglob("*")):
        os.chown(path, user, -1)
    os.chown(work / "theirs", 0, 0)  # in which the user may not replace a file any more
    before = manifest(work)
    answer = call_unprivileged(plain_restore, base, work, found, owning=[base])
    assert answer["success"] is False and manifest(work) == before
    os.chown(work / "theirs", user, -1)
    assert call_unprivileged(plain_restore, base, work, found, owning=[base])["success"]
    assert (work / "theirs" / "inside.txt").read_text() == "first\n"


def plain_restore(base: Path, work: Path, found: str) -> dict[str, Any]:
    hermes.CHECKPOINT_BASE = base
    return hermes.CheckpointManager(enabled=True).restore(str(work), found)


def test_one_file_can_be_restored(manager: hermes.CheckpointManager, work: Path) -> None:
    (work / "sub").mkdir()
    (work / "sub" / "deep.txt").write_text("deep\n")
    found = first(manager, work)
    (work / "main.py").write_text("changed\n")
    (work / "sub" / "deep.txt").write_text("changed\n")
    answer = manager.restore(str(work), found, file_path="sub/deep.txt")
    assert answer["success"] is True and answer["file"] == "sub/deep.txt"
    assert (work / "sub" / "deep.txt").read_text() == "deep\n"
    assert (work / "main.py").read_text() == "changed\n"


def test_a_hash_that_is_none_is_an_error(manager: hermes.CheckpointManager, work: Path) -> None:
    wrong = {
        "--patch": "must not start with '-'",
        "-p": "must not start with '-'",
        "abc; rm -rf /": "expected 4-64 hex characters",
        "abc": "expected 4-64 hex characters",
        "last": "expected 4-64 hex characters",
        "a" * 65: "expected 4-64 hex characters",
        "": "Empty",
        "deadbeef1234": "deadbeef1234",
        "d" * 64: "d" * 64,
    }
    for commit_hash in wrong:
        for answer in (manager.restore(str(work), commit_hash), manager.diff(str(work), commit_hash)):
            assert answer["success"] is False and set(answer) == {"success", "error"}
    first(manager, work)
    for commit_hash, text in wrong.items():
        for answer in (manager.restore(str(work), commit_hash), manager.diff(str(work), commit_hash)):
            assert answer["success"] is False and text in answer["error"]
    for something_else in (None, 5, ["abcd"]):
        assert manager.restore(str(work), something_else)["success"] is False  # type: ignore[arg-type]
        assert manager.diff(str(work), something_else)["success"] is False  # type: ignore[arg-type]


def test_a_path_that_is_none_is_an_error(manager: hermes.CheckpointManager, work: Path) -> None:
    found = first(manager, work)
    for path, text in {
        "/etc/passwd": "got absolute path",
        "../outside.txt": "escapes the working directory",
        "sub/../../outside.txt": "escapes the working directory",
        " ": "Empty file path",
        "no-such-file": "no-such-file",
    }.items():
        answer = manager.restore(str(work), found, file_path=path)
        assert answer["success"] is False and text in answer["error"]


def test_a_checkpoint_of_another_project_is_refused(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path
) -> None:
    other = make(tmp_path / "other", secret="theirs\n")
    first(manager, work)
    answer = manager.restore(str(work), first(manager, other))
    assert answer["success"] is False and not (work / "secret").exists()


def test_odd_arguments_do_not_raise(manager: hermes.CheckpointManager, work: Path) -> None:
    assert manager.ensure_checkpoint("bad\0name", "odd") is False
    assert manager.restore("bad\0name", "abcd")["success"] is False
    assert manager.restore(str(work), None)["success"] is False  # type: ignore[arg-type]
    assert manager.list_checkpoints("bad\0name") == []
    manager.record_agent_write(str(work / "missing"))
    manager.record_agent_write("bad\0name")
    assert manager.get_working_dir_for_path("/x/bad\0name") == "/x"


def test_a_base_that_is_none_is_an_answer(manager: hermes.CheckpointManager, work: Path, base: Path) -> None:
    base.write_text("something else\n")
    assert manager.ensure_checkpoint(str(work), "x") is False
    assert manager.list_checkpoints(str(work)) == [] == manager.list_all_checkpoints()
    for answer in (manager.diff(str(work), "abcd"), manager.restore(str(work), "abcd", safe=True)):
        assert answer["success"] is False and "checkpoints" in answer["error"]
    manager.record_agent_write(str(work / "main.py"))
    assert manager.get_working_dir_for_path(str(work / "main.py")) == str(work)
    assert hermes.prune_checkpoints()["errors"] == 1
    assert hermes.maybe_auto_prune_checkpoints()["result"]["errors"] == 1
    assert hermes.store_status()["project_count"] == 0
    assert hermes.clear_all() == {"bytes_freed": 0, "deleted": False}
    assert hermes.clear_legacy() == {"bytes_freed": 0, "deleted": 0, "errors": 0}
    assert base.read_text() == "something else\n"


# --- safe restores -------------------------------------------------------------------------------------


def test_a_safe_restore_takes_back_the_agents_work_and_nothing_else(
    manager: hermes.CheckpointManager, work: Path
) -> None:
    found = first(manager, work)
    agent_writes(manager, work / "main.py", "agent\n")
    agent_writes(manager, work / "created.txt", "agent\n")
    (work / "notes.md").write_text("person\n")
    (work / "mine.txt").write_text("person\n")
    answer = manager.restore(str(work), found, safe=True)
    assert answer == {
        "success": True, "restored_to": found[:8], "reason": "first", "directory": str(work),
        "restored_files": ["created.txt", "main.py"], "skipped_user_edits": ["mine.txt", "notes.md"],
        "skipped_oversize": [],
    }  # fmt: skip
    assert (work / "main.py").read_text() == "print('hello')\n" and not (work / "created.txt").exists()
    assert (work / "notes.md").read_text() == "person\n" == (work / "mine.txt").read_text()


def test_a_safe_restore_keeps_what_a_person_made_of_the_agents_file(
    manager: hermes.CheckpointManager, work: Path
) -> None:
    found = first(manager, work)
    agent_writes(manager, work / "main.py", "agent\n")
    (work / "main.py").write_text("agent, improved\n")
    answer = manager.restore(str(work), found, safe=True)
    assert answer["success"] is True and answer["restored_files"] == []
    assert answer["skipped_user_edits"] == ["main.py"]
    assert (work / "main.py").read_text() == "agent, improved\n"


def test_a_safe_restore_brings_back_a_file_that_is_gone(manager: hermes.CheckpointManager, work: Path) -> None:
    found = first(manager, work)
    agent_writes(manager, work / "main.py", "agent\n")
    (work / "main.py").unlink()
    assert manager.restore(str(work), found, safe=True)["restored_files"] == ["main.py"]
    assert (work / "main.py").read_text() == "print('hello')\n"


def test_a_safe_restore_without_any_record_restores_everything(
    manager: hermes.CheckpointManager, work: Path
) -> None:
    found = first(manager, work)
    (work / "main.py").write_text("changed\n")
    answer = manager.restore(str(work), found, safe=True)
    assert answer["success"] is True and "skipped_user_edits" not in answer
    assert (work / "main.py").read_text() == "print('hello')\n"


def test_a_restore_that_is_not_safe_brings_everything_back(manager: hermes.CheckpointManager, work: Path) -> None:
    before, found = manifest(work), first(manager, work)
    agent_writes(manager, work / "main.py", "agent\n")
    (work / "notes.md").write_text("person\n")
    assert "restored_files" not in manager.restore(str(work), found)
    assert manifest(work) == before


def test_a_safe_restore_keeps_what_was_too_large_and_says_so(work: Path) -> None:
    manager = hermes.CheckpointManager(enabled=True, max_file_size_mb=1)
    (work / "fits").write_bytes(b"o" * MB)
    (work / "large").write_bytes(b"o" * (MB + 1))
    (work / "grew").write_bytes(b"small\n")
    found = first(manager, work)
    agent_writes(manager, work / "fits", b"a" * MB)
    agent_writes(manager, work / "large", b"a" * (MB + 1))
    agent_writes(manager, work / "grew", b"a" * (MB + 1))
    assert manager.safe_restore_plan(str(work), found)["skipped"] == ["large"]
    answer = manager.restore(str(work), found, safe=True)
    assert answer["restored_files"] == ["fits", "grew"] and answer["skipped_oversize"] == ["large"]
    assert (work / "fits").read_bytes() == b"o" * MB and (work / "grew").read_bytes() == b"small\n"
    assert (work / "large").read_bytes() == b"a" * (MB + 1)


def test_a_plan_says_what_a_safe_restore_would_do(manager: hermes.CheckpointManager, work: Path) -> None:
    found = first(manager, work)
    (work / "notes.md").write_text("person\n")
    empty = {"success": True, "restore": [], "skipped": [], "ledger_empty": True}
    assert manager.safe_restore_plan(str(work), found) == empty
    agent_writes(manager, work / "main.py", "agent\n")
    agent_writes(manager, work / "created.txt", "agent\n")
    agent_writes(manager, work / "edited.txt", "agent\n")
    (work / "edited.txt").write_text("person\n")
    before = manifest(work)
    plan = manager.safe_restore_plan(str(work), found)
    assert plan == {"success": True, "restore": ["created.txt", "main.py"], "skipped": ["edited.txt", "notes.md"]}
    assert manifest(work) == before
    assert manager.restore(str(work), found, safe=True)["restored_files"] == plan["restore"]
    assert manager.restore(str(work), found, safe=True)["restored_files"] == []
    assert (work / "notes.md").read_text() == "person\n"


def test_a_base_that_cannot_be_read_is_an_error_that_is_counted(tmp_path: Path) -> None:
    base = tmp_path / "loop"
    base.symlink_to(base)
    assert hermes.clear_legacy(base) == {"bytes_freed": 0, "deleted": 0, "errors": 1}
    status = hermes.store_status(base)
    assert status["projects"] == [] and status["legacy_archives"] == []


def test_a_plan_that_fails_does_not_become_a_restore_of_everything(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path
) -> None:
    found = first(manager, work)
    other = first(manager, make(tmp_path / "other"))
    agent_writes(manager, work / "main.py", "agent\n")
    before = manifest(work)
    for hash in ("--all", "0" * 40, other):
        for answer in (
            manager.safe_restore_plan(str(work), hash),
            manager.restore(str(work), hash, safe=True),
        ):
            assert answer["success"] is False and answer["error"]
    assert manifest(work) == before and manager.restore(str(work), found, safe=True)["success"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs files of two users")
def test_a_safe_restore_says_what_it_could_not_delete(work: Path, base: Path, as_user: Callable[..., Any]) -> None:
    (work / "shared").mkdir()
    found = as_user(checkpoint_and_write, base, work)
    created = work / "shared" / "created.txt"
    created.write_text("agent\n")
    os.chown(work / "shared", 0, 0)
    (work / "shared").chmod(0o1777)  # a sticky directory: only its owner may delete other people's files
    if os.geteuid() == 0:  # all but the sticky directory and what is in it
        for path in (work, work / "main.py"):
            os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    answer = call_unprivileged(safe_restore, base, work, found, created, owning=[base])
    assert answer["success"] is True
    assert answer["failed_deletes"] == ["shared/created.txt"] and answer["restored_files"] == ["main.py"]
    assert (work / "main.py").read_text() == "print('hello')\n" and created.read_text() == "agent\n"


def checkpoint_and_write(base: Path, work: Path) -> str:
    hermes.CHECKPOINT_BASE = base
    manager = hermes.CheckpointManager(enabled=True)
    found = first(manager, work)
    agent_writes(manager, work / "main.py", "agent\n")
    return found


def safe_restore(base: Path, work: Path, found: str, created: Path) -> dict[str, Any]:
    hermes.CHECKPOINT_BASE = base
    manager = hermes.CheckpointManager(enabled=True)
    manager.record_agent_write(str(created))
    return manager.restore(str(work), found, safe=True)


# --- which directory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "marker",
    [".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile"],
)
def test_markers_make_a_project(manager: hermes.CheckpointManager, tmp_path: Path, marker: str) -> None:
    root = tmp_path / "root"
    (root / "src" / "deep").mkdir(parents=True)
    (root / marker).touch()
    assert manager.get_working_dir_for_path(str(root / "src" / "deep" / "new.py")) == str(root)
    assert manager.get_working_dir_for_path(str(root)) == str(root)


def test_a_file_outside_any_project_has_its_own_directory(
    manager: hermes.CheckpointManager, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "loose").mkdir()
    assert manager.get_working_dir_for_path(str(tmp_path / "loose" / "x")) == str(tmp_path / "loose")
    (home / "pyproject.toml").touch()
    (home / "random").mkdir()
    assert manager.get_working_dir_for_path("~/random/x") == str(home / "random")


def test_the_home_directory_is_no_project_although_files_of_it_have_checkpoints(
    manager: hermes.CheckpointManager, home: Path, base: Path
) -> None:
    (home / "random").mkdir()
    (home / "notes.txt").write_text("mine\n")
    assert CheckpointManager(base=base).ensure_checkpoint(home, paths=["notes.txt"]).status == "partial"
    assert manager.get_working_dir_for_path("~/random/x") == str(home / "random")


def test_a_project_that_has_checkpoints_wins_over_markers(
    manager: hermes.CheckpointManager, tmp_path: Path
) -> None:
    outer = make(tmp_path / "outer", **{"pyproject.toml": "[project]\n"})
    inner = make(outer / "inner")
    assert manager.get_working_dir_for_path(str(inner / "main.py")) == str(outer)
    found = first(manager, inner)
    assert manager.get_working_dir_for_path(str(inner / "main.py")) == str(inner)
    agent_writes(manager, inner / "main.py", "agent\n")
    (inner / "main.py").write_text("person\n")
    assert manager.restore(str(inner), found, safe=True)["skipped_user_edits"] == ["main.py"]


# --- the store as a whole ------------------------------------------------------------------------------


def age(path: Path, days: float) -> None:
    moment = time.time() - days * DAYS
    for each in (*path.rglob("*"), path):
        os.utime(each, (moment, moment))


def last_touched(base: Path, work: Path, days: float) -> None:
    path = base / "store" / "projects" / f"{project_of(work).id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "last_touch": time.time() - days * DAYS}))


def shadow_repository(base: Path, name: str, workdir: Path) -> Path:
    folder = base / (name * 16)
    folder.mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "HERMES_WORKDIR").write_text(f"{workdir}\n")
    return folder


def reasons(manager: hermes.CheckpointManager) -> list[str]:
    return sorted(Path(each["workdir"]).name for each in manager.list_all_checkpoints())


def test_pruning_lets_go_of_projects_that_are_gone(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, base: Path
) -> None:
    gone = make(tmp_path / "gone")
    first(manager, work)
    first(manager, gone)
    shutil.rmtree(gone)
    assert hermes.prune_checkpoints(retention_days=0, delete_orphans=False)["deleted_orphan"] == 0
    assert hermes.prune_checkpoints(retention_days=0, orphan_allowlist=set())["deleted_orphan"] == 0
    counts = hermes.prune_checkpoints(retention_days=0, checkpoint_base=base)
    assert set(counts) == {"scanned", "deleted_orphan", "deleted_stale", "errors", "bytes_freed"}
    assert (counts["scanned"], counts["deleted_orphan"], counts["deleted_stale"], counts["errors"]) == (2, 1, 0, 0)
    assert counts["bytes_freed"] > 0
    assert not (base / "store" / "projects" / f"{project_of(gone).id}.json").exists()
    assert reasons(manager) == ["work"]


def test_pruning_keeps_projects_that_may_only_be_out_of_reach(
    manager: hermes.CheckpointManager, tmp_path: Path
) -> None:
    vanished, unmounted = make(tmp_path / "a" / "b" / "vanished"), make(tmp_path / "mnt" / "unmounted")
    covered = make(tmp_path / "volume" / "covered")
    for project in (vanished, unmounted, covered):
        first(manager, project)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(unmounted)
    (tmp_path / "volume").rename(tmp_path / "detached")  # and what lay beneath it shows through
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / ".keep").touch()
    assert hermes.prune_checkpoints(retention_days=0)["deleted_orphan"] == 0
    assert reasons(manager) == ["covered", "unmounted", "vanished"]


def test_a_directory_whose_identity_was_never_seen_is_not_taken_for_deleted(
    manager: hermes.CheckpointManager, tmp_path: Path, base: Path
) -> None:
    gone = make(tmp_path / "gone")
    first(manager, gone)
    record = base / "store" / "projects" / f"{project_of(gone).id}.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps({name: value for name, value in known.items() if name != "above"}))
    shutil.rmtree(gone)
    assert hermes.prune_checkpoints(retention_days=0)["deleted_orphan"] == 0
    assert reasons(manager) == ["gone"]


def test_pruning_lets_go_of_what_was_not_used_for_long(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, base: Path
) -> None:
    stale = make(tmp_path / "stale")
    first(manager, work)
    first(manager, stale)
    last_touched(base, stale, 60)
    archive = base / "legacy-20200101-000000"
    archive.mkdir()
    (archive / "junk").write_bytes(b"x" * 1000)
    age(archive, 60)
    (base / "legacy-20260101-000000").mkdir()
    counts = hermes.prune_checkpoints(retention_days=30, delete_orphans=False)
    assert (counts["scanned"], counts["deleted_stale"], counts["deleted_orphan"]) == (2, 2, 0)
    assert reasons(manager) == ["work"] and not archive.exists() and (base / "legacy-20260101-000000").exists()


def test_pruning_keeps_what_is_pinned(manager: hermes.CheckpointManager, work: Path, base: Path) -> None:
    CheckpointManager(base=base, fsync=False).pin(work, first(manager, work))
    last_touched(base, work, 60)
    assert hermes.prune_checkpoints(retention_days=30)["deleted_stale"] == 0
    assert reasons(manager) == ["work"]


def test_pruning_changes_no_hash(work: Path, base: Path) -> None:
    manager = hermes.CheckpointManager(enabled=True)
    for _ in range(3):
        (work / "random").write_bytes(os.urandom(MB))
        manager.new_turn()
        assert manager.ensure_checkpoint(str(work), "large") is True
    before = [each["hash"] for each in manager.list_checkpoints(str(work))]
    hermes.prune_checkpoints(retention_days=0, max_total_size_mb=2)
    after = [each["hash"] for each in manager.list_checkpoints(str(work))]
    assert 1 <= len(after) < 3 and after == before[: len(after)]


def test_pruning_keeps_the_size_limit(work: Path, base: Path) -> None:
    manager = hermes.CheckpointManager(enabled=True)
    for _ in range(3):
        (work / "random").write_bytes(os.urandom(MB))
        manager.new_turn()
        assert manager.ensure_checkpoint(str(work), "large") is True
    counts = hermes.prune_checkpoints(retention_days=0, max_total_size_mb=2)
    assert counts["errors"] == 0 and counts["bytes_freed"] > MB
    assert 1 <= len(manager.list_checkpoints(str(work))) < 3


def test_repositories_of_single_directories_that_git_cannot_read_become_an_archive(
    work: Path, tmp_path: Path, base: Path
) -> None:
    folders = [shadow_repository(base, "a", work), shadow_repository(base, "b", tmp_path / "was-deleted")]
    (base / "something").mkdir()
    status = hermes.store_status()
    (archive,) = [base / each["name"] for each in status["legacy_archives"]]
    assert status["projects"] == [] == status["pre_v2_projects"]
    assert not any(folder.exists() for folder in folders)
    assert all((archive / folder.name / "HEAD").is_file() for folder in folders)
    assert hermes.prune_checkpoints(retention_days=30)["deleted_stale"] == 0
    age(archive, 60)
    assert hermes.prune_checkpoints(retention_days=30)["deleted_stale"] == 1
    assert not archive.exists() and (base / "something").is_dir()


def test_pruning_keeps_archives_that_are_still_to_be_imported(base: Path) -> None:
    for name in ("legacy-1", "legacy-2"):
        (base / name).mkdir(parents=True)
    (base / "legacy-1" / "to-import").touch()
    age(base, 60)
    assert hermes.prune_checkpoints(retention_days=30)["deleted_stale"] == 1
    assert [path.name for path in base.iterdir()] == ["legacy-1"]


def test_automatic_pruning_happens_once_in_a_while(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, base: Path
) -> None:
    def lose(name: str) -> None:
        first(manager, make(tmp_path / name))
        shutil.rmtree(tmp_path / name)

    assert hermes.maybe_auto_prune_checkpoints()["result"]["scanned"] == 0 and not base.exists()
    base.mkdir()
    (base / ".last_prune").write_text("not a time")
    lose("gone")
    out = hermes.maybe_auto_prune_checkpoints()
    assert out["skipped"] is False and out["result"]["deleted_orphan"] == 1 and "error" not in out
    assert reasons(manager) == [] and abs(float((base / ".last_prune").read_text()) - time.time()) < 60
    lose("again")
    assert hermes.maybe_auto_prune_checkpoints() == {"skipped": True}
    assert reasons(manager) == ["again"]
    (base / ".last_prune").write_text(str(time.time() - 2 * 3600))
    assert hermes.maybe_auto_prune_checkpoints(min_interval_hours=3)["skipped"] is True
    assert hermes.maybe_auto_prune_checkpoints(min_interval_hours=1)["result"]["deleted_orphan"] == 1


def test_automatic_pruning_says_what_went_wrong(base: Path) -> None:
    base.mkdir()
    (base / ".last_prune").mkdir()
    out = hermes.maybe_auto_prune_checkpoints()
    assert out["skipped"] is False and ".last_prune" in out["error"]


def test_the_status_has_sizes_projects_and_archives(
    manager: hermes.CheckpointManager, work: Path, tmp_path: Path, base: Path
) -> None:
    first(manager, work)
    first(manager, make(tmp_path / "other"))
    shutil.rmtree(tmp_path / "other")
    archive = base / "legacy-20200101-000000"
    archive.mkdir()
    (archive / "junk").write_bytes(b"x" * 100)
    status = hermes.store_status()
    assert status["base"] == str(base) and status["project_count"] == 2
    one = next(each for each in status["projects"] if each["workdir"] == str(work))
    assert set(one) == {"hash", "workdir", "exists", "created_at", "last_touch", "commits"}
    assert one["hash"] == project_of(work).id and one["exists"] is True and one["commits"] == 1
    assert time.time() - 60 < one["created_at"] <= one["last_touch"] <= time.time()
    assert [each["exists"] for each in status["projects"] if each is not one] == [False]
    mtime = archive.stat().st_mtime
    assert status["legacy_archives"] == [{"name": archive.name, "size_bytes": 100, "mtime": mtime}]
    assert status["legacy_size_bytes"] == 100 < status["store_size_bytes"]
    assert status["total_size_bytes"] >= status["store_size_bytes"] + 100


def test_clearing_archives_leaves_the_store(manager: hermes.CheckpointManager, work: Path, base: Path) -> None:
    first(manager, work)
    for stamp in ("legacy-1", "legacy-2"):
        (base / stamp).mkdir()
        (base / stamp / "junk").write_bytes(b"x" * 500)
    assert hermes.clear_legacy() == {"bytes_freed": 1000, "deleted": 2, "errors": 0}
    assert hermes.clear_legacy() == {"bytes_freed": 0, "deleted": 0, "errors": 0}
    assert reasons(manager) == ["work"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs files of two users")
def test_archives_that_cannot_be_removed_are_counted(base: Path, as_user: Callable[..., Any]) -> None:
    for name in ("legacy-1", "legacy-2"):
        (base / name / "folder").mkdir(parents=True)
        (base / name / "folder" / "junk").write_bytes(b"x" * 500)
    found = as_user(clear_with_one_locked, base)
    assert found == {"bytes_freed": 500, "deleted": 1, "errors": 1}


def clear_with_one_locked(base: Path) -> dict[str, int]:
    (base / "legacy-1" / "folder").chmod(0o500)
    (base / "legacy-1").chmod(0o500)
    (base / "legacy-1" / "folder").chmod(0o000)
    try:
        return hermes.clear_legacy(base)
    finally:
        (base / "legacy-1").chmod(0o700)
        (base / "legacy-1" / "folder").chmod(0o700)


def test_clearing_everything_leaves_nothing(manager: hermes.CheckpointManager, work: Path, base: Path) -> None:
    found = first(manager, work)
    (base / "legacy-1").mkdir()
    append_trouble(base, kind="test", what="something went wrong", advice="")
    cleared = hermes.clear_all()
    assert cleared["deleted"] is True and cleared["bytes_freed"] > 0 and not base.exists()
    assert hermes.clear_all() == {"bytes_freed": 0, "deleted": False}
    assert manager.restore(str(work), found)["success"] is False
    manager.new_turn()
    assert manager.ensure_checkpoint(str(work), "afresh") is True
    assert (work / "main.py").exists()


def test_clearing_everything_spares_what_is_not_ours(
    manager: hermes.CheckpointManager, work: Path, base: Path
) -> None:
    first(manager, work)
    (base / "letter.txt").write_text("dear\n")
    assert hermes.clear_all()["deleted"] is True
    assert [path.name for path in base.iterdir()] == ["letter.txt"]


STATES = [("one", 1_700_000_000, {"a.txt": "one\n"}), ("two", 1_700_000_060, {"a.txt": "two\n"})]


def lose_refs(store: Path) -> None:
    """As `git gc` may leave it."""
    git(store, "pack-refs", "--all")
    shutil.rmtree(store / "refs")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "none": lambda store: None,
    "no refs": lose_refs,
    "no HEAD": lambda store: (store / "HEAD").unlink(),
    "an empty HEAD": lambda store: (store / "HEAD").write_bytes(b""),
    "its configuration": lambda store: (store / "config").write_text("[core\n"),
    "its packed refs": lambda store: (store / "packed-refs").write_bytes(b"\0 refs/hermes/\n"),
}


def test_a_store_of_hermes_that_lost_every_ref_is_kept_apart_from_ours(
    manager: hermes.CheckpointManager, tmp_path: Path, base: Path
) -> None:
    """Nothing leads to its commits any more, but they are there: ours must not be made around them, and reclaim
    them."""
    work = tmp_path / "work"
    store = hermes_store(base, work, STATES)
    shutil.rmtree(store / "refs")
    before = manifest(store)
    assert manager.list_checkpoints(str(work)) == []
    assert manager.ensure_checkpoint(str(work), "afresh") is True
    (archive,) = base.glob("legacy-*")
    assert manifest(archive / "store") == before
    report = CheckpointManager(base=base, fsync=False).import_from(archive)
    assert (report.imported, report.failed) == (0, 1) and "refs are lost" in report.items[0].why


def test_a_repository_of_a_single_directory_without_refs_is_taken_over(
    manager: hermes.CheckpointManager, tmp_path: Path, base: Path
) -> None:
    lose_refs(hermes_directory(base, tmp_path / "work", STATES))
    assert [each["reason"] for each in manager.list_checkpoints(str(tmp_path / "work"))] == ["two", "one"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_of_hermes_in_the_base_is_taken_over(
    manager: hermes.CheckpointManager, tmp_path: Path, base: Path, damage: str
) -> None:
    work = tmp_path / "work"
    DAMAGES[damage](hermes_store(base, work, STATES))
    listed = manager.list_checkpoints(str(work))
    assert [each["reason"] for each in listed] == ["two", "one"]
    assert manager.restore(str(work), listed[1]["hash"])["success"] and (work / "a.txt").read_text() == "one\n"


def test_what_hermes_noted_of_its_own_writes_is_taken_over(
    manager: hermes.CheckpointManager, tmp_path: Path, base: Path
) -> None:
    work = tmp_path / "work"
    store = hermes_store(base, work, STATES)
    digests = {name: hashlib.sha256((work / name).read_bytes()).hexdigest() for name in ("a.txt",)}
    ledger = {str(work / name): {"sha256": digest, "ts": 1.0} for name, digest in digests.items()}
    odd = {"/elsewhere": {"sha256": "x", "ts": 1.0}, str(work / "odd"): 7, str(work / "b"): {"sha256": 1}}
    (store / "ledgers").mkdir()
    (store / "ledgers" / f"{project_of(work).id}.json").write_text(json.dumps(ledger | odd))
    (work / "mine.txt").write_text("by hand\n")
    oldest = manager.list_checkpoints(str(work))[-1]["hash"]
    plan = manager.safe_restore_plan(str(work), oldest)
    assert plan == {"success": True, "restore": ["a.txt"], "skipped": ["mine.txt"]}
    assert manager.restore(str(work), oldest, safe=True)["success"]
    assert (work / "a.txt").read_text() == "one\n" and (work / "mine.txt").read_text() == "by hand\n"


def test_views_of_everything_show_what_was_not_imported_yet(
    manager: hermes.CheckpointManager, tmp_path: Path, base: Path
) -> None:
    hermes_store(base, tmp_path / "one", STATES)
    hermes_directory(base, tmp_path / "two", STATES)
    listed = manager.list_all_checkpoints()
    assert sorted((each["workdir"], each["reason"]) for each in listed) == [
        (str(tmp_path / name), reason) for name in ("one", "two") for reason in ("one", "two")
    ]
    assert {each["workdir"]: each["commits"] for each in hermes.store_status()["projects"]} == {
        str(tmp_path / "one"): 2, str(tmp_path / "two"): 2
    }  # fmt: skip


def test_the_status_of_a_directory_of_hermes_shows_its_projects(tmp_path: Path, base: Path) -> None:
    hermes_directory(base, tmp_path / "two", STATES)
    status = hermes.store_status(base)
    assert [each["workdir"] for each in status["projects"]] == [str(tmp_path / "two")]
    assert status["pre_v2_projects"] == [] and len(status["legacy_archives"]) == 1


def test_pruning_imports_what_hermes_left_before_it_judges(tmp_path: Path, base: Path) -> None:
    repository = hermes_directory(base, tmp_path / "old", STATES)
    age(repository, 60)
    counts = hermes.prune_checkpoints(retention_days=30)
    assert (counts["deleted_stale"], counts["deleted_orphan"], counts["errors"]) == (0, 0, 0)
    assert [each["workdir"] for each in hermes.store_status()["projects"]] == [str(tmp_path / "old")]
