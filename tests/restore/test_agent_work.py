"""Restoring what an agent wrote, and nothing that people wrote."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import call_unprivileged, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchProject
from shadowsnap.manager import NOT_REMOVED, NOT_THE_AGENTS


def quiet(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


def written(manager: CheckpointManager, path: Path, text: str) -> None:
    path.write_text(text)
    assert manager.record_write(path.parent, path)


def make(work: Path) -> Path:
    work.mkdir()
    (work / "mine.txt").write_text("mine\n")
    (work / "theirs.txt").write_text("theirs\n")
    return work


def test_what_people_wrote_stays_and_is_reported(base: Path, tmp_path: Path) -> None:
    manager, work = quiet(base), make(tmp_path / "work")
    with pytest.raises(NoSuchProject):
        manager.recorded_writes(work)
    taken = manager.snapshot(work, "first").checkpoint
    assert taken is not None and manager.recorded_writes(work) == []
    written(manager, work / "theirs.txt", "by the agent\n")
    written(manager, work / "new.txt", "by the agent\n")
    (work / "mine.txt").write_text("edited\n")
    before = manifest(work)
    plan = manager.restore_agent_work(work, taken.id, dry_run=True)
    assert plan.files == ["new.txt", "theirs.txt"] and plan.kept_because(NOT_THE_AGENTS) == ["mine.txt"]
    assert manifest(work) == before
    done = manager.restore_agent_work(work, taken.id)
    assert done.files == plan.files and manager.recorded_writes(work) == ["new.txt", "theirs.txt"]
    assert sorted(path.name for path in work.iterdir()) == ["mine.txt", "theirs.txt"]
    assert (work / "mine.txt").read_text() == "edited\n" and (work / "theirs.txt").read_text() == "theirs\n"


def begin(base: Path, work: Path) -> str:
    manager = quiet(base)
    taken = manager.snapshot(work, "first").checkpoint
    assert taken is not None
    written(manager, work / "theirs.txt", "by the agent\n")
    return taken.id


def restore(base: Path, work: Path, taken: str) -> tuple[list[str], list[str]]:
    manager = quiet(base)
    assert manager.record_write(work, work / "sticky" / "new.txt")
    done = manager.restore_agent_work(work, taken)
    return done.files, done.kept_because(NOT_REMOVED)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs files of two users")
def test_where_files_cannot_be_removed_the_others_are_brought_back(
    base: Path, tmp_path: Path, as_user: Callable[..., Any]
) -> None:
    work = make(tmp_path / "work")
    (work / "sticky").mkdir()
    taken = as_user(begin, base, work)
    (work / "sticky" / "new.txt").write_text("by the agent\n")
    (work / "sticky").chmod(0o1777)  # only its owner may delete other people's files
    for path in (work, work / "theirs.txt"):
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    found = call_unprivileged(restore, base, work, taken, owning=[base])
    assert found == (["theirs.txt"], ["sticky/new.txt"])
    assert (work / "theirs.txt").read_text() == "theirs\n" and (work / "sticky" / "new.txt").exists()
