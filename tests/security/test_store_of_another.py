"""Nothing is run in a store that belongs to, or can be written by, somebody else."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from forking import run_program

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import StoreNotOurs
from shadowsnap.git import repository as runner

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


@pytest.fixture
def manager(base: Path, project: Path) -> CheckpointManager:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    assert manager.snapshot(project).status == "taken"
    return manager


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
@pytest.mark.parametrize("first", ["snapshot", "status", "warm_up", "prune", "doctor", "auto_prune", "sessions"])
@pytest.mark.each_value  # one function makes the base
def test_the_base_is_for_its_owner_alone_whatever_comes_first(
    tmp_path: Path, project: Path, mask: int, first: str
) -> None:
    base, before = tmp_path / "new" / "base", os.umask(mask)
    try:
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        call = getattr(manager, first)
        call(project) if first in ("snapshot", "warm_up") else call()
    finally:
        os.umask(before)
    if base.exists():
        assert stat.S_IMODE(base.stat().st_mode) == 0o700


EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")


def hook(base: Path, project: Path, event: str, mask: int = 0o022) -> None:
    told = {
        "hook_event_name": event, "session_id": "s1", "prompt_id": "t1", "cwd": str(project), "prompt": "do it",
        "tool_name": "Write", "tool_input": {"file_path": "README.md"},
    }  # fmt: skip
    environment = {**os.environ, "SHADOWSNAP_HOME": str(base)}
    before = os.umask(mask)
    try:
        run_program("hook", "claude", stdin=json.dumps(told).encode(), env=environment, check=True)
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.each_value
def test_the_base_is_for_its_owner_alone_if_a_hook_comes_first(
    tmp_path: Path, project: Path, mask: int, event: str
) -> None:
    """And the snapshot that comes then is taken: a store that others may write to would be refused."""
    base = tmp_path / "new" / "base"
    hook(base, project, event, mask)
    for folder in (base, base.parent) if base.exists() else ():
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    hook(base, project, "PreToolUse", mask)
    assert len(CheckpointManager(base=base, fsync=False).list_checkpoints(project)) == 1


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_neither_reads_nor_writes_where_others_may_write(base: Path, project: Path, event: str) -> None:
    """A planted record says that everything is safe, a planted link makes of the log a file of the person's."""
    precious = base.parent / "precious"
    precious.write_text("mine\n")
    (base / "turns").mkdir(parents=True)
    base.chmod(0o777)
    state = {"places": [{"workdir": str(project), "whole": True}]}
    turn = {"folders": [str(project)], "files": [str(project / "README.md")], "state": state}
    (base / "turns" / "s-s1.json").write_text(json.dumps({"turns": {"t1": turn}}))
    for name in ("hook.log.jsonl", "log.jsonl", ".log.lock", "turns/s-s1.lock"):
        (base / name).symlink_to(precious)
    before = manifest(base.parent)
    hook(base, project, event)
    assert manifest(base.parent) == before
    base.chmod(0o700)
    for path in (base / "turns" / "s-s1.json", *base.glob("*"), base / "turns" / "s-s1.lock"):
        if path.is_symlink() or path.is_file():
            path.unlink()
    hook(base, project, "PreToolUse")
    assert len(CheckpointManager(base=base, fsync=False).list_checkpoints(project)) == 1


def test_nothing_is_written_into_the_log_of_a_store_that_is_not_opened(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    base.chmod(0o777)
    before = manifest(base)
    assert isinstance(manager.ensure_checkpoint(project).error, StoreNotOurs)
    assert manifest(base) == before


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


@root_only
@pytest.mark.parametrize("part", ["", "store"])
def test_a_store_of_another_user_is_not_repaired(manager: CheckpointManager, base: Path, part: str) -> None:
    """Although there is something to repair: git would run with the configuration of its owner."""
    (base / "store" / "HEAD").write_text("damaged\n")
    (base / "store" / "commondir").write_text("/elsewhere\n")
    os.chown(base / part, 65534, 65534)
    before = manifest(base)
    checkup = manager.doctor(repair=True)
    assert not checkup.applied and "foreign" in {finding.code for finding in checkup.findings}
    assert manifest(base) == before


@pytest.mark.parametrize("bits", [0o770, 0o777, 0o702])
@pytest.mark.parametrize("part", ["", "store"])
def test_a_store_that_others_may_write_to_is_not_opened(
    manager: CheckpointManager, base: Path, project: Path, bits: int, part: str
) -> None:
    base.chmod(0o711)  # others come as far as the store
    (base / part).chmod(bits)
    for _ in range(2):
        with pytest.raises(StoreNotOurs, match="others may write"):
            manager.list_checkpoints(project)


@pytest.mark.parametrize("bits", [0o770, 0o777, 0o775])
def test_a_store_that_only_the_base_keeps_others_from_is_closed(
    manager: CheckpointManager, base: Path, project: Path, bits: int
) -> None:
    """Earlier versions left it as the umask said."""
    (base / "store").chmod(bits)
    assert manager.list_checkpoints(project)
    assert stat.S_IMODE((base / "store").stat().st_mode) == 0o700


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
    before = runner.processes_started
    codes = [finding.code for finding in manager.doctor().findings]
    assert codes == ["leads-elsewhere", "not-examined"] and runner.processes_started == before
    checkup = manager.doctor(repair=True)
    assert checkup.healthy and checkup.set_aside is not None
    assert (Path(checkup.set_aside) / "store" / name).read_text() == f"{tmp_path}\n"
    assert len(manager.list_checkpoints(project)) == 1


@root_only
def test_the_doctor_runs_nothing_in_a_store_of_another_user(manager: CheckpointManager, base: Path) -> None:
    os.chown(base / "store", 65534, 65534)
    before = runner.processes_started
    for repair in (False, True):
        checkup = manager.doctor(repair=repair)
        assert not checkup.healthy and "foreign" in [finding.code for finding in checkup.findings]
    assert runner.processes_started == before
