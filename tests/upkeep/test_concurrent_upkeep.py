"""The proof: four processes take snapshots while a fifth drops and repacks without a pause, and every
checkpoint that is left is whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from thorough import depth
from upkeep_stores import a_manager, a_store, check_sound
from upkeep_workers import fingerprint

from helpers import ROOT

SECONDS = depth(2, 3)


def start(role: str, base: Path, project: Path) -> subprocess.Popen[str]:
    script = ROOT / "tests" / "support" / "upkeep_workers.py"
    arguments = [sys.executable, script, role, base, project, str(SECONDS), project.name]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def output_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    answer, _ = process.communicate(timeout=150)
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.timeout(240)
def test_snapshots_beside_upkeep_that_never_pauses_lose_nothing(base: Path, tmp_path: Path) -> None:
    a_store(base)
    projects = [tmp_path / f"project{number}" for number in range(4)]
    workers = [start("snapshot", base, project) for project in projects]
    upkeep = start("prune", base, tmp_path / "none")
    taken, cleared = [output_of(worker) for worker in workers], output_of(upkeep)
    assert [worker["problems"] for worker in taken] == [[]] * 4
    assert cleared["problems"] == []
    # Much was taken, much was dropped, and no snapshot waited for long.
    assert all(len(worker["states"]) > 5 for worker in taken)
    assert cleared["count"] >= 5 and cleared["dropped"] > 5
    assert max(worker["slowest"] for worker in taken) < 15

    store, manager = a_store(base), a_manager(base)
    check_sound(store)
    for project, worker in zip(projects, taken, strict=True):
        left = manager.list_checkpoints(project)
        assert left
        for checkpoint in left:
            manager.restore(project, checkpoint.id)
            assert checkpoint.kind == "pre-restore" or fingerprint(project) == worker["states"][checkpoint.id]
