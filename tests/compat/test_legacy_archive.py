"""Older layouts in the base itself: archived on first use, imported at the first look, cleared on request."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from older_tools import hermes_directory, hermes_store

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import LockTimeout, NoSuchProject
from shadowsnap.events import Event, Imported
from shadowsnap.store import layout as older
from shadowsnap.store.locks import locked

T = 1_700_000_000
STATES = [
    ("before write_file", T, {"a.txt": "one\n"}),
    ("before patch", T + 60, {"a.txt": "two\n", "b.txt": "b\n"}),
]


def quiet(base: Path, **settings: object) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False, **settings)


def reasons(manager: CheckpointManager, workdir: Path) -> list[str]:
    return [each.reason for each in manager.list_checkpoints(workdir)]


def test_shadow_repositories_in_the_base_are_archived_together_and_imported(base: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    repositories = [hermes_directory(base, one, STATES), hermes_directory(base, two, STATES)]
    pictures = [manifest(path) for path in repositories]
    manager = quiet(base)
    assert reasons(manager, one) == reasons(manager, two) == ["before patch", "before write_file"]
    (archive,) = base.glob("legacy-*")
    assert [manifest(archive / path.name) for path in repositories] == pictures
    assert not any(path.exists() for path in repositories)
    assert sorted(path.name for path in base.iterdir() if not path.name.startswith(".")) == [archive.name, "store"]
    manager.restore(one, "last~1")
    assert (one / "a.txt").read_text() == "one\n" and not (one / "b.txt").exists()


def test_the_store_of_hermes_makes_way_for_ours(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    before = manifest(hermes_store(base, workdir, STATES))
    manager = quiet(base)
    (workdir / "a.txt").write_text("three\n")
    assert manager.ensure_checkpoint(workdir, "ours").status == "taken"
    assert reasons(manager, workdir) == ["ours", "before patch", "before write_file"]
    (archive,) = base.glob("legacy-*")
    assert manifest(archive / "store") == before
    assert git(base / "store", "for-each-ref", "refs/hermes") == ""


def test_a_packed_store_of_hermes_is_known_too(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    store = hermes_store(base, workdir, STATES)
    git(store, "gc", "-q")
    for folder in (store / "refs" / "hermes",):
        if folder.exists():
            folder.rmdir()
    assert reasons(quiet(base), workdir) == ["before patch", "before write_file"]


def without_refs(store: Path) -> dict[str, str]:
    """What `git gc` leaves of a bare repository whose refs are all packed."""
    git(store, "pack-refs", "--all")
    shutil.rmtree(store / "refs")
    return manifest(store)


def test_a_store_of_hermes_that_lost_its_refs_directory_is_known_too(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    before = without_refs(hermes_store(base, workdir, STATES))
    manager = quiet(base)
    assert manager.projects() == [workdir]
    assert reasons(manager, workdir) == ["before patch", "before write_file"]
    (archive,) = base.glob("legacy-*")
    assert manifest(archive / "store") == before
    manager.restore(workdir, "last~1")
    assert (workdir / "a.txt").read_text() == "one\n"
    assert list((base / "store").glob("scratch-*")) == []


def test_it_is_imported_from_elsewhere_without_a_change_to_it(base: Path, tmp_path: Path) -> None:
    elsewhere, workdir = tmp_path / "hermes", tmp_path / "work"
    before = without_refs(hermes_store(elsewhere, workdir, STATES))
    manager = quiet(base)
    assert manager.import_from(elsewhere, dry_run=True).imported == 2
    assert manager.import_from(elsewhere).imported == 2
    assert manager.import_from(elsewhere).skipped == 2
    assert manifest(elsewhere / "store") == before
    assert list((base / "store").glob("scratch-*")) == []


def test_whole_store_views_show_what_was_not_imported_yet(base: Path, tmp_path: Path) -> None:
    hermes_store(base, tmp_path / "one", STATES)
    hermes_directory(base, tmp_path / "two", STATES)
    assert {each.workdir: each.checkpoints for each in quiet(base).status().projects} == {
        str(tmp_path / "one"): 2, str(tmp_path / "two"): 2
    }  # fmt: skip


def test_a_snapshot_does_not_wait_for_the_import(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    hermes_directory(base, workdir, STATES)
    events: list[Event] = []
    manager = quiet(base, on_event=events.append)
    manager.ensure_checkpoint(workdir, "ours")
    assert [event.kind for event in events] == ["store-created", "checkpoint-taken"]
    assert len(reasons(manager, workdir)) == 3
    (imported,) = [event for event in events if isinstance(event, Imported)]
    assert imported.report.imported == 2
    manager.list_checkpoints(workdir)
    assert [event.kind for event in events].count("imported") == 1


def test_nothing_is_imported_if_that_is_set_but_everything_is_kept(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    repository = hermes_directory(base, workdir, STATES)
    before = manifest(repository)
    manager = quiet(base, import_legacy=False)
    with pytest.raises(NoSuchProject):
        manager.list_checkpoints(workdir)
    (archive,) = base.glob("legacy-*")
    assert manifest(archive / repository.name) == before
    assert manager.import_from(archive).imported == 2  # by hand, later
    assert len(reasons(manager, workdir)) == 2


def test_other_things_in_the_base_stay_where_they_are(base: Path, tmp_path: Path) -> None:
    hermes_directory(base, tmp_path / "work", STATES)
    (base / "notes").mkdir()
    (base / "notes" / "mine.txt").write_text("mine\n")
    (base / "legacy-20200101-000000").mkdir()
    quiet(base).projects()
    assert (base / "notes" / "mine.txt").exists() and (base / "legacy-20200101-000000").is_dir()


def test_our_own_store_is_never_archived(base: Path, project: Path) -> None:
    quiet(base).ensure_checkpoint(project)
    (base / "store" / "format").unlink()
    assert len(reasons(quiet(base), project)) == 1
    assert list(base.glob("legacy-*")) == []


def test_a_repository_that_does_not_name_its_directory_is_archived_and_fails(base: Path, tmp_path: Path) -> None:
    repository = hermes_directory(base, tmp_path / "work", STATES)
    hermes_directory(base, tmp_path / "other", STATES)
    (repository / "HERMES_WORKDIR").unlink()
    events: list[Event] = []
    manager = quiet(base, on_event=events.append)
    assert len(reasons(manager, tmp_path / "other")) == 2
    (report,) = [event.report for event in events if isinstance(event, Imported)]
    assert (report.imported, report.failed) == (2, 1)
    json.dumps(report.to_dict())


def test_a_damaged_archive_does_not_keep_anyone_from_their_checkpoints(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    repository = hermes_directory(base, workdir, STATES)
    (repository / "config").write_bytes(b"[core\n")
    manager = quiet(base)
    manager.ensure_checkpoint(workdir, "ours")
    assert reasons(manager, workdir) == ["ours"]


def test_an_import_that_ran_out_of_time_is_finished_by_the_next_look(base: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    hermes_directory(base, workdir, STATES)
    hurried = quiet(base, deadline=0.000001)
    with pytest.raises(Exception, match="time limit|no checkpoint"):
        hurried.list_checkpoints(workdir)
    assert len(reasons(quiet(base), workdir)) == 2


def test_two_that_start_at_once_make_one_archive(base: Path, tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        hermes_directory(base, tmp_path / name, STATES)
    hermes_store(base, tmp_path / "four", STATES)
    problems: list[BaseException] = []

    def first_use() -> None:
        try:
            quiet(base).ensure_checkpoint(tmp_path / "one", "ours")
        except BaseException as problem:  # asserted below
            problems.append(problem)

    threads = [threading.Thread(target=first_use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(list(base.glob("legacy-*"))) == 1
    manager = quiet(base)
    assert [len(reasons(manager, tmp_path / name)) for name in ("one", "two", "three", "four")] == [3, 2, 2, 2]


def test_first_use_waits_for_the_process_that_archives(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the store that the other one has just made could be taken for an older one and moved away."""
    workdir = tmp_path / "work"
    hermes_store(base, workdir, STATES)
    monkeypatch.setattr(older, "_LOCK_SECONDS", 0.1)
    with locked(base / ".older.lock", "archiving", NO_DEADLINE):
        outcome = quiet(base).ensure_checkpoint(workdir)
        assert isinstance(outcome.error, LockTimeout)
    assert list(base.glob("legacy-*")) == []
    assert quiet(base).ensure_checkpoint(workdir).status == "taken"


# --- clearing ---------------------------------------------------------------------------------------


def test_archives_are_cleared_on_request_and_the_plan_says_what_was_not_imported(
    base: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    hermes_directory(base, workdir, STATES)
    manager = quiet(base)
    manager.ensure_checkpoint(workdir, "ours")
    (archive,) = base.glob("legacy-*")
    size = sum(os.lstat(path).st_size for path in archive.rglob("*") if path.is_file())
    plan = manager.clear_legacy(dry_run=True)
    assert (plan.applied, plan.bytes_freed) == (False, size)
    (item,) = plan.items
    assert (item.subject, item.bytes, item.note) == (str(archive), size, "not imported yet")
    assert archive.exists()
    assert len(reasons(manager, workdir)) == 3
    done = manager.clear_legacy()
    assert done.applied and done.bytes_freed == size and done.items[0].note == ""
    assert not archive.exists()
    assert len(reasons(manager, workdir)) == 3
    assert manager.clear_legacy().items == ()
