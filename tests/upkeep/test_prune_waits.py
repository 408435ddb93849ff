"""A prune on request waits for upkeep of another process, and then does the rest."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from restoring import checkpoint

from helpers import ROOT
from shadowsnap import CheckpointManager

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the lock is held as POSIX systems do")

# Upkeep holds store/locks/upkeep.lock by flock: a file of the store, and thus part of its format.
HOLDER = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(descriptor, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


@contextmanager
def upkeep_for(seconds: float, base: Path) -> Iterator[None]:
    """Another process does upkeep for so long, or until the block ends."""
    lock = base / "store" / "locks" / "upkeep.lock"
    lock.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HOLDER, str(lock), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        assert holder.stdout is not None
        try:
            assert select.select([holder.stdout], [], [], 30)[0] and holder.stdout.readline() == b"held\n"
            yield
        finally:
            holder.kill()


@pytest.fixture
def full(base: Path, project: Path) -> CheckpointManager:
    """Six checkpoints, of which three are too many."""
    manager = CheckpointManager(base=base, background_upkeep=False, max_snapshots=3, fsync=False)
    for number in range(6):
        (project / "README.md").write_text(f"version {number}\n")
        checkpoint(manager, project)
    return manager


def test_it_waits_and_then_prunes(full: CheckpointManager, base: Path, project: Path) -> None:
    with upkeep_for(1.0, base):
        began = time.monotonic()
        result = full.prune()
        took = time.monotonic() - began
    assert result.status == "done"
    assert len(result.dropped) == 3
    assert len(full.list_checkpoints(project)) == 3
    assert 0.5 < took < 20


def test_it_goes_on_soon_after_the_other_process_is_done(full: CheckpointManager, base: Path) -> None:
    with upkeep_for(0.5, base):
        began = time.monotonic()
        assert full.prune().status == "done"
    assert time.monotonic() - began < 5


def test_the_wait_is_bounded(base: Path, project: Path, full: CheckpointManager) -> None:
    impatient = CheckpointManager(base=base, background_upkeep=False, max_snapshots=3, upkeep_deadline=1.0)
    with upkeep_for(60, base):
        began = time.monotonic()
        result = impatient.prune()
        took = time.monotonic() - began
    assert result.status == "busy"
    assert 0.5 < took < 10
    assert len(impatient.list_checkpoints(project)) == 6


def test_a_plan_waits_for_nothing(full: CheckpointManager, base: Path) -> None:
    with upkeep_for(60, base):
        began = time.monotonic()
        plan = full.prune(dry_run=True)
        assert time.monotonic() - began < 10
    assert plan.status == "planned" and len(plan.dropped) == 3


def test_automatic_pruning_does_not_wait(full: CheckpointManager, base: Path) -> None:
    with upkeep_for(60, base):
        began = time.monotonic()
        full.auto_prune()
        assert time.monotonic() - began < 5


def test_the_command_waits_and_says_so(full: CheckpointManager, base: Path, project: Path) -> None:
    command = [sys.executable, "-m", "shadowsnap", "prune"]
    environment = {**os.environ, "SHADOWSNAP_HOME": str(base), "SHADOWSNAP_MAX_SNAPSHOTS": "3"}
    environment["PYTHONPATH"] = str(ROOT)
    with upkeep_for(60, base):
        process = subprocess.Popen(command, cwd=project, env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("wait" in line.lower() for line in lines)
    with process:
        assert process.wait(60) == 0
    assert len(full.list_checkpoints(project)) == 3
