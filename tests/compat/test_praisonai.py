"""The face of PraisonAI's checkpoint service."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.compat.praisonai import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    CheckpointService,
    FileDiff,
)

T = TypeVar("T")
Run = Callable[[Awaitable[T]], T]


@pytest.fixture
def run() -> Iterator[Callable[[Any], Any]]:
    """One event loop for the whole test, as in a program."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def service(work: Path, base: Path, run: Run[Any]) -> CheckpointService:
    service = CheckpointService(str(work), storage_dir=str(base))
    assert run(service.initialize()) is True
    return service


def saved(run: Run[Any], service: CheckpointService, text: str, **more: Any) -> Checkpoint:
    Path(service.workspace_dir, "a.txt").write_text(f"{text}\n")
    result = run(service.save(text, **more))
    assert result.success, result.error
    return result.checkpoint


def content(service: CheckpointService) -> str:
    return Path(service.workspace_dir, "a.txt").read_text().strip()


def messages(run: Run[Any], service: CheckpointService, **more: Any) -> list[str]:
    return [each.message for each in run(service.list_checkpoints(**more))]


# --- types ---------------------------------------------------------------------------------------------


def test_the_signatures_are_those_of_praisonai() -> None:
    def defaults(call: Callable[..., Any]) -> dict[str, Any]:
        return {name: each.default for name, each in inspect.signature(call).parameters.items() if name != "self"}

    assert defaults(CheckpointService) == {
        "workspace_dir": inspect.Parameter.empty, "storage_dir": None, "enabled": True, "auto_checkpoint": True,
        "max_checkpoints": 100, "user_name": "PraisonAI Checkpoints", "user_email": "checkpoints@praison.ai",
    }  # fmt: skip
    assert list(defaults(CheckpointService.save).items())[1:] == [("allow_empty", False), ("step", None)]
    assert defaults(CheckpointService.restore) == {"checkpoint_id": None, "step": None}
    assert defaults(CheckpointService.rewind) == {"steps": 1}
    assert defaults(CheckpointService.diff) == {"from_id": None, "to_id": None}
    assert defaults(CheckpointService.list_checkpoints) == {"limit": 50}


def test_a_configuration_expands_its_paths(home: Path) -> None:
    config = CheckpointConfig("~/work", "~/.praison/checkpoints")
    assert config.workspace_dir == str(home / "work")
    assert config.storage_dir == str(home / ".praison" / "checkpoints")
    assert config.enabled and config.auto_checkpoint and config.max_checkpoints == 100
    assert {".git", "__pycache__", "node_modules"} <= set(config.exclude_patterns)
    folder = Path(config.get_checkpoint_dir())
    assert folder.parent == Path(config.storage_dir) and len(folder.name) == 12
    assert CheckpointConfig("/x").storage_dir == str(home / ".local" / "state" / "shadowsnap")


def test_a_configuration_may_name_an_author(monkeypatch: pytest.MonkeyPatch, work: Path, base: Path) -> None:
    config = CheckpointConfig("/x", user_name="me", user_email="me@localhost")
    assert (config.user_name, config.user_email) == ("me", "me@localhost")
    monkeypatch.setenv("PRAISONAI_GIT_USER_NAME", "from outside")
    assert CheckpointConfig("/x").user_name == "from outside"
    service = CheckpointService(str(work), str(base), user_name="me", user_email="me@localhost")
    assert service.config.user_email == "me@localhost"


def test_a_checkpoint_travels_as_a_dictionary() -> None:
    made = Checkpoint("abc123def4567", "abc123de", "m", datetime(2024, 1, 2, tzinfo=UTC), 1, 2, 3, 4)
    assert made.to_dict() == {
        "id": "abc123def4567", "short_id": "abc123de", "message": "m", "timestamp": "2024-01-02T00:00:00+00:00",
        "files_changed": 1, "insertions": 2, "deletions": 3, "step": 4,
    }  # fmt: skip
    assert Checkpoint.from_git_commit("abc123def4567", "m", "2024-01-02T00:00:00Z") == (
        Checkpoint("abc123def4567", "abc123de", "m", datetime(2024, 1, 2, tzinfo=UTC))
    )


def test_a_difference_sums_up_its_files() -> None:
    files = [
        FileDiff("a", "/w/a", "added", 10),
        FileDiff("b", "/w/b", "modified", 5, 3),
        FileDiff("c", "/w/c", "deleted", 0, 7),
    ]
    diff = CheckpointDiff("abc", None, files, diff_content="text")
    assert (diff.total_additions, diff.total_deletions) == (15, 10)
    data = diff.to_dict()
    assert data["from_checkpoint"] == "abc" and data["to_checkpoint"] is None and data["total_deletions"] == 10
    assert data["files"][0] == {
        "path": "a", "absolute_path": "/w/a", "status": "added", "additions": 10, "deletions": 0
    }  # fmt: skip


def test_a_result_is_a_success_or_a_failure() -> None:
    checkpoint = Checkpoint("abc", "abc", "m", datetime.now())
    assert CheckpointResult.ok(checkpoint) == CheckpointResult(True, checkpoint, None)
    assert CheckpointResult.fail("why") == CheckpointResult(False, None, "why")


def test_events_have_the_names_of_praisonai() -> None:
    assert [event.value for event in CheckpointEvent] == [
        "initialized", "checkpoint_created", "checkpoint_restored", "checkpoints_pruned", "error"
    ]  # fmt: skip


# --- beginning -----------------------------------------------------------------------------------------


def test_it_does_not_begin_where_it_must_not(work: Path, base: Path, home: Path, run: Run[Any]) -> None:
    (home / "Documents").mkdir()
    places = [home, home / "Documents", Path("/"), Path("/tmp"), Path("/etc"), work / "missing"]
    for service in [CheckpointService(str(work), str(base), enabled=False)] + [
        CheckpointService(str(place), str(base)) for place in places
    ]:
        assert run(service.initialize()) is False and not service.is_initialized
    assert not base.exists()


def test_nothing_works_before_it_began(work: Path, base: Path, run: Run[Any]) -> None:
    service = CheckpointService(str(work), str(base))
    assert run(service.save("x")).error == "Service not initialized" == run(service.rewind()).error
    assert run(service.restore("abcd")).error == "Service not initialized" == run(service.restore(step=1)).error
    assert run(service.list_checkpoints()) == [] and run(service.get_checkpoint("abcd")) is None
    assert run(service.diff()).files == [] and run(service.delete("abcd")) is False
    assert run(service.initialize()) is True and service.is_initialized
    assert os.path.exists(service.git_dir) and service.workspace_dir == str(work)
    run(service.cleanup())
    assert not service.is_initialized and run(service.save("x")).success is False


# --- saving --------------------------------------------------------------------------------------------


def test_saving_returns_what_was_saved(service: CheckpointService, run: Run[Any]) -> None:
    saved(run, service, "first")
    checkpoint = saved(run, service, "second")
    assert checkpoint.message == "second" and checkpoint.id.startswith(checkpoint.short_id)
    assert (checkpoint.files_changed, checkpoint.insertions, checkpoint.deletions) == (1, 1, 1)
    assert checkpoint.timestamp.utcoffset() is not None and checkpoint.step is None
    assert messages(run, service) == ["second", "first"] and messages(run, service, limit=1) == ["second"]


def test_nothing_is_saved_where_nothing_changed(service: CheckpointService, run: Run[Any]) -> None:
    assert run(service.save("empty")).error == "No changes to checkpoint"
    first = saved(run, service, "first")
    assert run(service.save("again")) == CheckpointResult(False, None, "No changes to checkpoint")
    saved(run, service, "second")
    run(service.restore(first.id))
    assert run(service.save("nothing since the restore")).error == "No changes to checkpoint"
    result = run(service.save("again", allow_empty=True))
    assert result.success and result.checkpoint.files_changed in (0, 1)
    assert messages(run, service) == ["again", "second", "first"]


def test_a_new_process_knows_that_nothing_changed(
    work: Path, base: Path, service: CheckpointService, run: Run[Any]
) -> None:
    first = saved(run, service, "first")
    saved(run, service, "second")
    for expected in ("second", "first"):
        later = CheckpointService(str(work), str(base))
        run(later.initialize())
        assert content(later) == expected
        assert run(later.save("again")) == CheckpointResult(False, None, "No changes to checkpoint")
        run(later.restore(first.id))
    assert messages(run, service) == ["second", "first"]


def test_a_checkpoint_of_another_host_is_neither_listed_nor_taken_for_one_that_was_saved(
    work: Path, base: Path, run: Run[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    service = CheckpointService(str(work))
    run(service.initialize())
    saved(run, service, "mine")
    (work / "a.txt").write_text("changed\n")
    (work / "build").mkdir()
    (work / "build" / "app.js").write_text("which that host does not capture\n")
    assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(work, "before a tool of another agent")
    assert messages(run, service) == ["mine"]
    assert run(service.save("mine, too")).success
    assert messages(run, service) == ["mine, too", "mine"]


def test_a_configuration_may_be_changed_before_it_begins(work: Path, base: Path, run: Run[Any]) -> None:
    service = CheckpointService(str(work), str(base))
    service.config.exclude_patterns.append("private/")
    run(service.initialize())
    (work / "private").mkdir()
    (work / "private" / "key").write_text("mine\n")
    made = saved(run, service, "first")
    assert CheckpointManager(base=base, fsync=False).files(work, made.id) == ["a.txt"]


def test_a_state_that_came_back_by_hand_is_saved(service: CheckpointService, run: Run[Any]) -> None:
    for text in ("one", "two", "one"):
        saved(run, service, text)
    assert messages(run, service) == ["one", "two", "one"]


def test_a_workspace_without_anything_that_counts_has_no_changes(
    service: CheckpointService, run: Run[Any], work: Path
) -> None:
    git(work, "init", "-q")
    (work / "debug.log").write_text("left out\n")
    assert run(service.save("nothing")).error == "No changes to checkpoint"
    assert messages(run, service) == []


def test_even_an_empty_workspace_is_saved_if_that_is_allowed(service: CheckpointService, run: Run[Any]) -> None:
    assert run(service.save("one", allow_empty=True)).success
    assert run(service.save("two", allow_empty=True)).success
    assert messages(run, service) == ["two", "one"]


def test_any_message_comes_back(service: CheckpointService, run: Run[Any]) -> None:
    for message in ("a|b|c", "two\nlines\n\nand a body", "  spaces  ", "ünïcode 🙂"):
        Path(service.workspace_dir, "a.txt").write_text(message)
        run(service.save(message))
        assert messages(run, service, limit=1) == [message]


def test_the_workspaces_own_repository_is_left_alone(
    work: Path, service: CheckpointService, run: Run[Any]
) -> None:
    git(work, "init", "-q")
    before = sorted(path for path in (work / ".git").rglob("*"))
    first = saved(run, service, "first")
    saved(run, service, "second")
    run(service.restore(first.id))
    assert sorted(path for path in (work / ".git").rglob("*")) == before


# --- steps ---------------------------------------------------------------------------------------------


def test_a_step_is_in_the_message_and_in_the_checkpoint(service: CheckpointService, run: Run[Any]) -> None:
    assert saved(run, service, "edit", step=1).message == "[step-1] edit"
    assert saved(run, service, "[step-7] tagged").step == 7
    both = saved(run, service, "[step-2] retry", step=3)
    assert (both.step, both.message) == (3, "[step-3] retry")
    assert [each.step for each in run(service.list_checkpoints())] == [3, 7, 1]
    assert saved(run, service, "zero", step=0).step == 0


def test_a_negative_step_is_rejected(service: CheckpointService, run: Run[Any]) -> None:
    Path(service.workspace_dir, "a.txt").write_text("x")
    result = run(service.save("x", step=-1))
    assert result.success is False and "non-negative" in result.error
    assert run(service.list_checkpoints()) == []


def test_a_step_can_be_gone_back_to(service: CheckpointService, run: Run[Any]) -> None:
    for number in (1, 2, 3):
        saved(run, service, f"content {number}", step=number)
    again = saved(run, service, "content 1 again", step=1)
    assert run(service.restore(step=2)).checkpoint.step == 2 and content(service) == "content 2"
    assert run(service.get_checkpoint_by_step(1)).id == again.id
    assert run(service.get_checkpoint_by_step(9)) is None
    assert "step 9" in run(service.restore(step=9)).error


def test_a_checkpoint_and_a_step_exclude_each_other(service: CheckpointService, run: Run[Any]) -> None:
    checkpoint = saved(run, service, "x", step=1)
    Path(service.workspace_dir, "a.txt").write_text("y")
    assert run(service.restore(checkpoint.id, step=1)).success is False
    assert run(service.restore()).success is False
    assert content(service) == "y"


# --- going back ----------------------------------------------------------------------------------------


def test_an_empty_id_restores_nothing(service: CheckpointService, run: Run[Any]) -> None:
    saved(run, service, "first")
    Path(service.workspace_dir, "a.txt").write_text("changed\n")
    assert run(service.restore("")).success is False and content(service) == "changed"


def test_after_an_undo_the_workspace_is_where_it_was_before(
    work: Path, base: Path, service: CheckpointService, run: Run[Any]
) -> None:
    for text in ("one", "two", "three"):
        saved(run, service, text)
    run(service.rewind(2))
    CheckpointManager(base=base, fsync=False).undo(work)
    assert content(service) == "three"
    assert run(service.rewind()).checkpoint.message == "two"


def test_later_checkpoints_stay_listed_and_unsaved_edits_are_saved_first(
    service: CheckpointService, run: Run[Any]
) -> None:
    first, _, third = (saved(run, service, text) for text in ("first", "second", "third"))
    Path(service.workspace_dir, "a.txt").write_text("not saved\n")
    Path(service.workspace_dir, "new.txt").write_text("not saved\n")
    result = run(service.restore(first.short_id))
    assert result.success and result.checkpoint.id == first.id and result.checkpoint.message == "first"
    assert content(service) == "first" and not Path(service.workspace_dir, "new.txt").exists()
    assert messages(run, service) == ["third", "second", "first"]
    CheckpointManager(base=service.config.storage_dir, fsync=False).undo(service.workspace_dir)
    assert content(service) == "not saved" and Path(service.workspace_dir, "new.txt").exists()
    assert run(service.restore(third.id)).success and content(service) == "third"


def test_restoring_the_last_checkpoint_twice_does_not_bring_the_damage_back(
    service: CheckpointService, run: Run[Any]
) -> None:
    saved(run, service, "good")
    for _ in range(2):
        Path(service.workspace_dir, "a.txt").write_text("damage\n")
        last = run(service.list_checkpoints(limit=1))[0]
        assert last.message == "good" and run(service.restore(last.id)).success
        assert content(service) == "good"


def test_going_back_and_forth_does_not_fill_the_list(service: CheckpointService, run: Run[Any]) -> None:
    first, second = saved(run, service, "first"), saved(run, service, "second")
    for _ in range(2):
        run(service.restore(first.id))
        run(service.restore(second.id))
    assert messages(run, service) == ["second", "first"]


def test_rewinding_counts_from_where_the_workspace_is(service: CheckpointService, run: Run[Any]) -> None:
    for text in ("one", "two", "three", "four"):
        saved(run, service, text)
    assert run(service.rewind()).checkpoint.message == "three" and content(service) == "three"
    assert run(service.rewind(2)).checkpoint.message == "one" and content(service) == "one"
    for steps in (1, 0, -1):
        assert run(service.rewind(steps)).success is False
    assert content(service) == "one"
    assert "only 4 checkpoint(s)" in run(service.rewind()).error


def test_a_new_process_finds_old_checkpoints_and_where_it_is(
    work: Path, base: Path, service: CheckpointService, run: Run[Any]
) -> None:
    for text in ("one", "two", "three"):
        saved(run, service, text)
    run(service.rewind())
    later = CheckpointService(str(work), storage_dir=str(base))
    assert run(later.initialize()) is True
    assert messages(run, later) == ["three", "two", "one"]
    assert run(later.rewind()).checkpoint.message == "one" and content(later) == "one"


def test_an_unknown_checkpoint_is_a_failure_that_listeners_hear_of(
    service: CheckpointService, run: Run[Any]
) -> None:
    heard: list[Any] = []
    service.on(CheckpointEvent.ERROR, heard.append)
    saved(run, service, "first")
    result = run(service.restore("deadbeef"))
    assert result.success is False and "deadbeef" in result.error
    assert heard == [{"error": result.error}]


def test_what_praisonai_destroys_stays(service: CheckpointService, run: Run[Any], work: Path) -> None:
    """There a restore cleans away what an older .gitignore did not ignore."""
    first = saved(run, service, "first")
    (work / ".gitignore").write_text("private/\n")
    (work / "private").mkdir()
    (work / "private" / "key").write_text("mine\n")
    before = manifest(work)
    assert run(service.restore(first.id)).success
    assert (work / "private" / "key").read_text() == "mine\n"
    CheckpointManager(base=service.config.storage_dir, fsync=False).undo(work)
    assert manifest(work) == before


# --- looking -------------------------------------------------------------------------------------------


def test_a_difference_has_status_numbers_and_contents(
    work: Path, service: CheckpointService, run: Run[Any]
) -> None:
    (work / "gone.txt").write_text("old\n")
    (work / "data.bin").write_bytes(b"\0\1")
    first = saved(run, service, "first")
    (work / "gone.txt").unlink()
    (work / "new.txt").write_text("one\ntwo\n")
    (work / "data.bin").write_bytes(b"\0\2")
    second = saved(run, service, "second")
    for diff in (run(service.diff(first.id, second.id)), run(service.diff(first.short_id)), run(service.diff())):
        assert diff.from_checkpoint == first.short_id and diff.to_checkpoint in (second.short_id, None)
        assert {file.path: file.status for file in diff.files} == {
            "a.txt": "modified", "data.bin": "modified", "gone.txt": "deleted", "new.txt": "added",
        }  # fmt: skip
        assert (diff.total_additions, diff.total_deletions) == (3, 2)
        found = {file.path: (file.before_content, file.after_content) for file in diff.files}
        assert found == {
            "a.txt": ("first\n", "second\n"), "data.bin": (None, None), "gone.txt": ("old\n", None),
            "new.txt": (None, "one\ntwo\n"),
        }  # fmt: skip
        assert diff.files[0].absolute_path == str(work / "a.txt")
        assert "+second" in diff.diff_content and "-old" in diff.diff_content
    assert run(service.diff(second.id)).files == []
    assert run(service.diff("deadbeef")).files == []


def test_with_one_checkpoint_the_difference_is_against_that(service: CheckpointService, run: Run[Any]) -> None:
    assert run(service.diff()).from_checkpoint == ""
    first = saved(run, service, "first")
    Path(service.workspace_dir, "a.txt").write_text("changed\n")
    diff = run(service.diff())
    assert diff.from_checkpoint == first.short_id and diff.to_checkpoint is None
    assert [(file.path, file.status) for file in diff.files] == [("a.txt", "modified")]


def test_a_checkpoint_is_found_by_the_beginning_of_its_id(service: CheckpointService, run: Run[Any]) -> None:
    first = saved(run, service, "first")
    saved(run, service, "second")
    for prefix in (first.id, first.short_id, first.id[:5]):
        assert run(service.get_checkpoint(prefix)).message == "first"
    assert run(service.get_checkpoint("zzzz")) is None and run(service.get_checkpoint("")) is None


# --- limits and deletion -------------------------------------------------------------------------------


def test_what_is_older_than_the_limit_can_still_be_restored(work: Path, base: Path, run: Run[Any]) -> None:
    """PraisonAI itself never deletes a checkpoint: its limit is for a list in memory."""
    service, heard = CheckpointService(str(work), str(base), max_checkpoints=2), list[Any]()
    service.on(CheckpointEvent.CHECKPOINTS_PRUNED, heard.append)
    run(service.initialize())
    first, *_, last = [saved(run, service, text) for text in ("first", "second", "third", "fourth")]
    CheckpointManager(base=base, max_snapshots=0, max_total_size_mb=0, retention_days=0).prune()
    assert messages(run, service) == ["fourth", "third", "second", "first"] and heard == []
    assert run(service.restore(first.id)).success and content(service) == "first"
    assert run(service.restore(last.id)).success and content(service) == "fourth"
    assert run(service.rewind(3)).success and content(service) == "first"


def test_one_checkpoint_can_be_deleted(service: CheckpointService, run: Run[Any]) -> None:
    first, second, third = (saved(run, service, text) for text in ("first", "second", "third"))
    assert run(service.delete(second.short_id)) is True
    assert run(service.delete(second.short_id)) is False
    assert [each.id for each in run(service.list_checkpoints())] == [third.id, first.id]


def test_what_another_host_took_of_the_workspace_cannot_be_deleted(
    service: CheckpointService, run: Run[Any], work: Path, base: Path
) -> None:
    saved(run, service, "first")
    manager = CheckpointManager(base=base, fsync=False)
    (work / "a.txt").write_text("mine\n")
    mine = manager.snapshot(work, "mine").checkpoint
    assert mine is not None
    assert run(service.delete(mine.id)) is False
    assert manager.get(work, mine.id).reason == "mine"


def test_deleting_the_directory_of_the_workspace_deletes_nothing_of_others(
    service: CheckpointService, run: Run[Any], base: Path
) -> None:
    """As a host does that cleans up by itself."""
    saved(run, service, "first")
    shutil.rmtree(service.checkpoint_dir, ignore_errors=True)
    assert (base / "store").is_dir() and messages(run, service) == ["first"]


def test_all_checkpoints_of_the_workspace_can_be_deleted(
    service: CheckpointService, run: Run[Any], tmp_path: Path, base: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = CheckpointService(str(tmp_path / "other"), str(base))
    run(other.initialize())
    saved(run, other, "theirs")
    saved(run, service, "first")
    assert run(service.delete_all()) is True and not service.is_initialized
    run(service.initialize())
    assert messages(run, service) == [] and messages(run, other) == ["theirs"]
    assert run(service.delete_all()) is True


# --- events --------------------------------------------------------------------------------------------


def test_listeners_hear_of_everything_in_order(work: Path, base: Path, run: Run[Any]) -> None:
    service, heard = CheckpointService(str(work), str(base)), list[Any]()
    for event in CheckpointEvent:
        service.on(event, lambda data, event=event: heard.append((event.value, data)))
    run(service.initialize())
    first = saved(run, service, "first")
    saved(run, service, "second")
    run(service.restore(first.id))
    assert [name for name, _ in heard] == [
        "initialized", "checkpoint_created", "checkpoint_created", "checkpoint_restored"
    ]  # fmt: skip
    assert heard[0][1] == {"workspace": str(work)} and heard[1][1] == first and heard[3][1].id == first.id


def test_a_listener_that_fails_does_no_harm(service: CheckpointService, run: Run[Any]) -> None:
    def fail(_: Any) -> None:
        raise RuntimeError("mine")

    heard: list[Any] = []
    service.on(CheckpointEvent.CHECKPOINT_CREATED, fail)
    service.on(CheckpointEvent.CHECKPOINT_CREATED, heard.append)
    assert saved(run, service, "first") == heard[0]


def left_by_praisonai(service: CheckpointService, work: Path) -> Path:
    folder = Path(service.config.get_checkpoint_dir())
    folder.mkdir(parents=True)
    where = (f"--git-dir={folder / '.git'}", f"--work-tree={work}")
    git(work, *where, "init", "-q")
    git(work, *where, "config", "core.worktree", str(work))
    (work / "a.txt").write_text("from before\n")
    git(work, *where, "add", "-A")
    git(
        work, *where, "-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-q", "-m", "[step-4] old one"
    )
    (work / "a.txt").write_text("changed\n")
    return folder


def test_what_praisonai_left_is_imported(work: Path, base: Path, run: Run[Any]) -> None:
    service = CheckpointService(str(work), str(base))
    left_by_praisonai(service, work)
    assert run(service.initialize()) is True
    assert run(service.restore(step=4)).success and content(service) == "from before"


def test_what_praisonai_left_is_imported_although_another_host_knows_the_workspace(
    work: Path, base: Path, run: Run[Any]
) -> None:
    service = CheckpointService(str(work), str(base))
    left_by_praisonai(service, work)
    CheckpointManager(base=base, fsync=False).snapshot(work, "by another host")
    assert run(service.initialize()) is True
    assert messages(run, service) == ["[step-4] old one"]


def test_what_was_deleted_is_not_imported_again(work: Path, base: Path, run: Run[Any]) -> None:
    service = CheckpointService(str(work), str(base))
    folder = left_by_praisonai(service, work)
    run(service.initialize())
    assert messages(run, service) == ["[step-4] old one"]
    assert run(service.delete_all()) is True and not folder.exists()
    assert run(service.initialize()) is True and messages(run, service) == []


def test_what_was_deleted_one_by_one_does_not_come_back(work: Path, base: Path, run: Run[Any]) -> None:
    service = CheckpointService(str(work), str(base))
    folder = left_by_praisonai(service, work)
    run(service.initialize())
    (old,) = run(service.list_checkpoints())
    assert run(service.delete(old.id)) is True
    again = CheckpointService(str(work), str(base))
    assert run(again.initialize()) is True and messages(run, again) == []
    assert git(work, f"--git-dir={folder / '.git'}", "log", "--format=%s") == "[step-4] old one"
