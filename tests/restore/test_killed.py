"""A restore that was killed leaves nothing behind in the project, once the next call has been made."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from restoring import STAGING, checkpoint
from thorough import depth

from helpers import ROOT
from shadowsnap import CheckpointManager

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no SIGKILL")

KILLS = depth(3, 20)
FILES = 300

# It says when it begins: starting the interpreter takes longer than the restore.
RESTORE = """
import sys
from shadowsnap import CheckpointManager
manager = CheckpointManager(base=sys.argv[1], background_upkeep=False, fsync=False)
manager.list_checkpoints(sys.argv[2])
print("begins", flush=True)
manager.restore(sys.argv[2], sys.argv[3])
"""


def write(project: Path, text: str) -> None:
    """Small files and larger ones, so that writing them takes its time."""
    for number in range(FILES):
        folder = project / f"d{number % 10}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}").write_text(f"{text} {number}\n" * (1 + number % 400))


def staging(project: Path) -> list[str]:
    top = os.fsdecode(STAGING)
    return [name for _, folders, files in os.walk(project) for name in (*folders, *files) if name.startswith(top)]


def state(project: Path) -> set[str]:
    return {(project / f"d{number % 10}" / f"f{number}").read_text()[:4] for number in range(FILES)}


def restore_killed_after(seconds: float, base: Path, project: Path, target: str) -> None:
    command = [sys.executable, "-c", RESTORE, str(base), str(project), target]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as restoring:
        assert restoring.stdout is not None and restoring.stdout.readline() == b"begins\n"
        time.sleep(seconds)
        restoring.send_signal(signal.SIGKILL)
        restoring.wait()


def test_no_debris_is_left_in_the_project(base: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    write(project, "then")
    target = checkpoint(manager, project).id
    write(project, "next")
    other = checkpoint(manager, project).id

    began = time.monotonic()
    manager.restore(project, target)
    duration = time.monotonic() - began
    chance = random.Random(20261117)
    for number in range(KILLS):
        wanted = other if state(project) == {"then"} else target
        restore_killed_after(chance.uniform(0, duration), base, project, wanted)
        next_call = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        outcome = next_call.ensure_checkpoint(project)
        assert outcome.status in ("taken", "unchanged"), outcome
        assert state(project) in ({"then"}, {"next"}), f"half restored after kill {number}"
        time.sleep(0.3)  # for processes that outlived the one that was killed
        assert staging(project) == [], f"after kill {number}"
