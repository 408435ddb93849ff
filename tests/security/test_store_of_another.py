"""Nothing is run in a store that belongs to, or can be written by, somebody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from shadowsnap import CheckpointManager
from shadowsnap.errors import StoreNotOurs

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


@pytest.fixture
def manager(base: Path, project: Path) -> CheckpointManager:
    manager = CheckpointManager(base=base, background_upkeep=False)
    assert manager.snapshot(project).status == "taken"
    return manager


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
@pytest.mark.parametrize("first", ["snapshot", "status", "warm_up", "prune", "doctor"])
def test_the_base_is_for_its_owner_alone_whatever_comes_first(
    tmp_path: Path, project: Path, mask: int, first: str
) -> None:
    base, before = tmp_path / "new" / "base", os.umask(mask)
    try:
        manager = CheckpointManager(base=base, background_upkeep=False)
        call = getattr(manager, first)
        call(project) if first in ("snapshot", "warm_up") else call()
    finally:
        os.umask(before)
    if base.exists():
        assert stat.S_IMODE(base.stat().st_mode) == 0o700


@root_only
@pytest.mark.parametrize("part", ["", "store"])
def test_a_store_of_another_user_is_not_opened(
    manager: CheckpointManager, base: Path, project: Path, part: str
) -> None:
    os.chown(base / part, 65534, 65534)
    outcome = manager.ensure_checkpoint(project)
    assert isinstance(outcome.error, StoreNotOurs) and "65534" in str(outcome.error)
    with pytest.raises(StoreNotOurs):
        manager.list_checkpoints(project)


@pytest.mark.parametrize("bits", [0o770, 0o777, 0o702])
@pytest.mark.parametrize("part", ["", "store"])
def test_a_store_that_others_may_write_to_is_not_opened(
    manager: CheckpointManager, base: Path, project: Path, bits: int, part: str
) -> None:
    (base / part).chmod(bits)
    with pytest.raises(StoreNotOurs, match="others may write"):
        manager.list_checkpoints(project)


def test_a_base_that_others_may_read_is_closed(manager: CheckpointManager, base: Path, project: Path) -> None:
    base.chmod(0o755)
    assert manager.list_checkpoints(project)
    assert stat.S_IMODE(base.stat().st_mode) == 0o700


def test_a_config_that_is_not_ours_is_never_in_force(
    manager: CheckpointManager, base: Path, project: Path, tmp_path: Path
) -> None:
    config = base / "store" / "config"
    ours = config.read_bytes()
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/canary\n")
    evil.chmod(0o755)
    config.write_text(f"[core]\n\tbare = true\n\tfsmonitor = {evil}\n[diff]\n\texternal = {evil}\n")
    (project / "README.md").write_text("changed\n")
    assert manager.ensure_checkpoint(project).status == "taken"
    manager.diff(project, "last")
    assert not (tmp_path / "canary").exists()
    assert config.read_bytes() == ours
    assert b"fsmonitor" in (base / "store" / "config.not-ours").read_bytes()


@pytest.mark.parametrize("name", ["commondir", "config.worktree", "objects/info/alternates"])
def test_a_file_that_leads_git_elsewhere_is_named(
    manager: CheckpointManager, base: Path, project: Path, tmp_path: Path, name: str
) -> None:
    (base / "store" / name).write_text(f"{tmp_path}\n")
    with pytest.raises(StoreNotOurs, match="elsewhere"):
        manager.list_checkpoints(project)
