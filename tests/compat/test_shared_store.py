"""Several hosts in one store: the maintenance of a face touches only what that face recorded."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from older_tools import hermes_store

from shadowsnap import CheckpointManager
from shadowsnap.compat import hermes
from shadowsnap.compat.common import open_manager
from shadowsnap.compat.openjarvis import CheckpointStore
from shadowsnap.compat.praisonai import CheckpointService
from shadowsnap.store.projects import project_of

DAYS = 86400
MB = 1024 * 1024


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one base that all hosts use."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(tmp_path / "shared"))
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", tmp_path / "shared")
    return tmp_path / "shared"


def make(folder: Path, text: str = "one\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text(text)
    return folder


def by_hook(work: Path, text: str) -> None:
    (work / "a.txt").write_text(text)
    assert CheckpointManager.from_settings().ensure_checkpoint(work, "by a hook").status == "taken"


def by_hermes(work: Path, text: str) -> None:
    (work / "a.txt").write_text(text)
    assert hermes.CheckpointManager(enabled=True).ensure_checkpoint(str(work), "by hermes")


def reasons(work: Path) -> list[str]:
    manager = CheckpointManager.from_settings()
    return [each.reason for each in manager.list_checkpoints(work)] if work in manager.projects() else []


def unused_for(base: Path, work: Path, days: float) -> None:
    path = base / "store" / "projects" / f"{project_of(work).id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "last_touch": time.time() - days * DAYS}))


def test_the_start_up_prune_of_hermes_leaves_projects_of_other_hosts_alone(tmp_path: Path, base: Path) -> None:
    theirs, both, own = (make(tmp_path / name) for name in ("theirs", "both", "own"))
    by_hook(theirs, "1\n")
    by_hook(both, "1\n")
    by_hermes(both, "2\n")
    by_hermes(own, "2\n")
    for work in (theirs, both, own):
        unused_for(base, work, 8)
    counts = hermes.maybe_auto_prune_checkpoints()["result"]
    assert (counts["scanned"], counts["deleted_stale"], counts["errors"]) == (2, 2, 0)
    assert (reasons(theirs), reasons(both), reasons(own)) == (["by a hook"], ["by a hook"], [])


def test_a_directory_that_is_gone_takes_only_the_checkpoints_of_hermes_with_it(tmp_path: Path) -> None:
    both, theirs = make(tmp_path / "both"), make(tmp_path / "theirs")
    by_hook(theirs, "1\n")
    by_hook(both, "1\n")
    by_hermes(both, "2\n")
    shutil.rmtree(both)
    shutil.rmtree(theirs)
    assert hermes.prune_checkpoints(retention_days=0)["deleted_orphan"] == 1
    assert reasons(both) == reasons(theirs) == ["by a hook"]


def test_clearing_hermes_leaves_the_checkpoints_of_other_hosts(tmp_path: Path, base: Path) -> None:
    theirs, both, own = (make(tmp_path / name) for name in ("theirs", "both", "own"))
    by_hook(theirs, "1\n")
    by_hermes(both, "1\n")
    by_hook(both, "2\n")
    by_hermes(own, "1\n")
    hermes.CheckpointManager(enabled=True).restore(str(own), CheckpointManager().get(own, "last").id)
    assert hermes.clear_all()["deleted"] is True
    assert (reasons(theirs), reasons(both), reasons(own)) == (["by a hook"], ["by a hook"], [])
    assert base.is_dir()


def test_what_hermes_saved_before_a_restore_goes_with_its_last_checkpoint(tmp_path: Path) -> None:
    own = make(tmp_path / "own")
    by_hermes(own, "1\n")
    (own / "a.txt").write_text("edited\n")
    manager = hermes.CheckpointManager(enabled=True)
    assert manager.restore(str(own), manager.list_checkpoints(str(own))[0]["hash"])["success"]
    assert len(reasons(own)) == 2
    hermes.clear_all()
    assert reasons(own) == []


def test_the_size_limit_of_hermes_does_not_drop_checkpoints_of_other_hosts(tmp_path: Path) -> None:
    theirs = make(tmp_path / "theirs")
    for number in range(3):
        (theirs / "large").write_bytes(os.urandom(MB))
        by_hook(theirs, f"{number}\n")
    hermes.prune_checkpoints(retention_days=0, max_total_size_mb=1)
    assert len(reasons(theirs)) == 3


def test_the_prune_of_hermes_is_not_taken_for_that_of_the_store(tmp_path: Path) -> None:
    by_hook(make(tmp_path / "theirs"), "1\n")
    assert hermes.maybe_auto_prune_checkpoints()["skipped"] is False
    assert hermes.maybe_auto_prune_checkpoints()["skipped"] is True
    assert CheckpointManager.from_settings().auto_prune().status == "done"


def test_praisonai_deletes_only_what_it_saved(tmp_path: Path) -> None:
    work = make(tmp_path / "work")
    for number in range(3):
        by_hook(work, f"hook {number}\n")

    async def use() -> None:
        service = CheckpointService(str(work), max_checkpoints=2)
        assert await service.initialize()
        for number in range(4):
            (work / "a.txt").write_text(f"saved {number}\n")
            assert (await service.save(f"saved {number}")).success
        assert reasons(work) == [*(f"saved {number}" for number in (3, 2, 1, 0)), *["by a hook"] * 3]
        assert await service.delete_all()

    asyncio.run(use())
    assert reasons(work) == ["by a hook"] * 3


def test_a_base_that_two_faces_were_given_is_not_taken_for_the_own_one_of_praisonai(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, base = make(tmp_path / "work"), tmp_path / "given"
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", base)
    by_hermes(work, "1\n")

    async def use() -> None:
        service = CheckpointService(str(work), str(base), max_checkpoints=1)
        assert await service.initialize()
        for text in ("2\n", "3\n"):
            (work / "a.txt").write_text(text)
            assert (await service.save("saved")).success
        assert [each.message for each in await service.list_checkpoints()] == ["saved"] * 2
        assert await service.delete_all()

    asyncio.run(use())
    listed = hermes.CheckpointManager(enabled=True).list_checkpoints(str(work))
    assert [each["reason"] for each in listed] == ["by hermes"]


@pytest.mark.parametrize("settings", [{"max_snapshots": 3, "max_total_size_mb": 1, "retention_days": 1}, {}])
def test_in_the_shared_store_the_limits_of_a_face_do_not_hold_for_others(
    base: Path, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_MAX_SNAPSHOTS", "77")
    person = CheckpointManager.from_settings().settings
    shared = open_manager(base, [], **settings).settings
    for name in ("max_snapshots", "max_total_size_mb", "retention_days"):
        assert getattr(shared, name) == getattr(person, name)
        assert getattr(open_manager(tmp_path / "own", [], **settings).settings, name) == settings.get(name, 0)
    assert shared.max_snapshots == 77 and shared.max_file_size_mb == 0 and shared.include_secrets


def test_every_face_says_that_it_recorded_a_checkpoint(tmp_path: Path) -> None:
    work = make(tmp_path / "work")
    by_hermes(work, "1\n")
    CheckpointStore(make(tmp_path / "jarvis")).init()

    async def save() -> None:
        service = CheckpointService(str(make(tmp_path / "praison")))
        assert await service.initialize() and (await service.save("first")).success

    asyncio.run(save())
    manager = CheckpointManager()
    found = {name: manager.get(tmp_path / name, "last").host for name in ("work", "jarvis", "praison")}
    assert found == {"work": "hermes", "jarvis": "openjarvis", "praison": "praisonai"}


def test_what_was_imported_from_hermes_is_its_own(tmp_path: Path, base: Path) -> None:
    work = tmp_path / "work"
    hermes_store(tmp_path / "old", work, [("from before", 1_700_000_000, {"a.txt": "old\n"})])
    by_hook(make(tmp_path / "theirs"), "1\n")
    CheckpointManager().import_from(tmp_path / "old")
    assert reasons(work) == ["from before"]
    unused_for(base, work, 8)
    assert hermes.prune_checkpoints()["deleted_stale"] == 1
    assert reasons(work) == [] and reasons(tmp_path / "theirs") == ["by a hook"]


# --- the base of Hermes --------------------------------------------------------------------------------


def test_hermes_uses_its_own_base_where_it_has_one(
    tmp_path: Path, home: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", hermes._BASE_AT_IMPORT)
    own = home / ".hermes" / "checkpoints"
    own.mkdir(parents=True)
    assert hermes.current_base() == base  # SHADOWSNAP_HOME decides where everything goes
    monkeypatch.delenv("SHADOWSNAP_HOME")
    assert hermes.current_base() == own
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "profile"))
    assert hermes.current_base() == tmp_path / "profile" / "checkpoints"
    by_hermes(make(tmp_path / "work"), "1\n")
    assert (tmp_path / "profile" / "checkpoints" / "store").is_dir()
    assert hermes.store_status()["project_count"] == 1
    monkeypatch.delenv("HERMES_HOME")
    own.rmdir()
    assert hermes.current_base() == home / ".local" / "state" / "shadowsnap"


def test_in_its_own_base_hermes_keeps_its_own_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "profile"))
    monkeypatch.setattr(hermes, "CHECKPOINT_BASE", hermes._BASE_AT_IMPORT)
    work = make(tmp_path / "work")
    by_hermes(work, "1\n")
    unused_for(tmp_path / "profile" / "checkpoints", work, 8)
    assert hermes.prune_checkpoints()["deleted_stale"] == 1
    assert hermes.clear_all()["deleted"] is True
    assert not (tmp_path / "profile" / "checkpoints").exists()


def test_the_count_that_a_host_was_given_holds_where_it_is_larger_than_the_persons(tmp_path: Path) -> None:
    work = make(tmp_path / "work")
    by_hook(work, "before\n")
    service = CheckpointService(str(work), max_checkpoints=4)

    async def save_five() -> list[str]:
        assert await service.initialize()
        for number in range(5):
            (work / "a.txt").write_text(f"{number}\n")
            assert (await service.save(f"saved {number}")).success
        CheckpointManager.from_settings().prune(max_snapshots=2)
        return [each.message for each in await service.list_checkpoints()]

    assert asyncio.run(save_five()) == ["saved 4", "saved 3", "saved 2", "saved 1"]
    assert "by a hook" in reasons(work)
    for number in range(3):
        by_hermes(work, f"hermes {number}\n")
    CheckpointManager.from_settings().prune(max_snapshots=2)
    assert reasons(work).count("by hermes") == 3
