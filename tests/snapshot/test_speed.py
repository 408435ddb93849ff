"""What a snapshot may cost, as far as it can be said without a clock that is our own; ratios are in the
benchmark."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from capturing import everything_old, snap, store_git
from thorough import depth

from helpers import ROOT

WARM = """
import sys
from shadowsnap import CheckpointManager
base, project = sys.argv[1:]
outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(project)
print(outcome.status)
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def run(code: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()


def make_tree(top: Path, count: int) -> Path:
    for number in range(count // 500):
        folder = top / f"package-{number // 10}" / f"module-{number}"
        folder.mkdir(parents=True)
        for other in range(500):
            os.close(os.open(folder / f"source-{other}.py", os.O_CREAT | os.O_WRONLY, 0o644))
    (top / "changing").write_text("first")
    return top


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_memory_does_not_grow_with_the_number_of_files(base: Path, tmp_path: Path) -> None:
    """And there is no limit on that number: other tools stop at 50,000, without a word. A thorough run
    goes beyond that."""
    peaks, many = {}, depth(8_000, 50_500)
    for count in (1_000, many):
        project = make_tree(tmp_path / str(count), count)
        # What is made in the second of a snapshot is read again by the next one. The promise is about files that
        # are only compared, however quickly they were made here.
        with everything_old():
            first = snap(base, project, deadline=0, fsync=False)
        listed = store_git(base, "ls-tree", "-r", "--name-only", first.tree)
        assert listed.count(b"\n") == count + 1
        (project / "changing").write_text("second")
        status, peak = run(WARM, str(base), str(project))
        assert status == "taken"
        peaks[count] = int(peak) / 1024
    assert peaks[many] - peaks[1_000] <= 20 * many / 50_000 + 1, peaks


def test_importing_the_package_costs_next_to_nothing() -> None:
    """Ten milliseconds at most: an agent's hook is a new process for every tool call."""

    def seconds(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
        return time.perf_counter() - began

    pairs = [(seconds("pass"), seconds("import shadowsnap")) for _ in range(15)]
    added = [imported - nothing for nothing, imported in pairs]
    # The quieter half of the pairs: somebody else may be using the machine.
    assert statistics.median(sorted(added)[:8]) <= 0.010, added


def test_importing_the_package_loads_none_of_its_rooms() -> None:
    loaded = run("import sys; before = set(sys.modules); import shadowsnap; print(*set(sys.modules) - before)")
    assert loaded == ["shadowsnap"]
