"""Processes that work on one store at once: `python upkeep_workers.py ROLE BASE PROJECT SECONDS SEED`.

`prune` drops and repacks without a pause, for so many seconds and at least five times; `snapshot` edits
its project and takes snapshots until `prune` is done, and writes down what each one must give back. Each
prints a JSON object at its end.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path

from upkeep_stores import a_manager

from helpers import manifest


def fingerprint(project: Path) -> str:
    return hashlib.sha256(repr(sorted(manifest(project).items())).encode()).hexdigest()


def edit(project: Path, chance: random.Random) -> None:
    """A few changes; contents come from a small set, so that what was dropped is needed again."""
    for _ in range(chance.randint(1, 4)):
        path = project / f"d{chance.randint(0, 3)}" / f"f{chance.randint(0, 5)}"
        if chance.random() < 0.2:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(random.Random(chance.randint(0, 40)).randbytes(3000))
    if chance.random() < 0.05:  # so many new files that they are written as a pack
        for number in range(120):
            (project / f"many{number}").write_text(f"{chance.randint(0, 3)} {number}\n")


def snapshot(base: Path, project: Path, seconds: float, seed: str) -> dict[str, object]:
    manager, chance = a_manager(base), random.Random(seed)
    project.mkdir(parents=True)
    states, problems, slowest, count = {}, [], 0.0, 0
    while not over(base).exists():
        edit(project, chance)
        manager.new_turn()
        began = time.monotonic()
        outcome = manager.ensure_checkpoint(project)
        slowest = max(slowest, time.monotonic() - began)
        count += 1
        if outcome.checkpoint is None:
            problems.append(repr(outcome))
        else:
            states[outcome.checkpoint.id] = fingerprint(project)
    return {"states": states, "problems": problems, "slowest": slowest, "count": count}


def prune(base: Path, project: Path, seconds: float, seed: str) -> dict[str, object]:
    manager, end = a_manager(base, max_snapshots=4), time.monotonic() + seconds
    problems, dropped, count = [], 0, 0
    while time.monotonic() < end or count < 5:
        result = manager.prune(reclaim="always")
        count += 1
        dropped += len(result.dropped)
        if result.status != "done" or result.error is not None:
            problems.append(repr(result.error or result.status))
    over(base).touch()
    return {"problems": problems, "dropped": dropped, "count": count}


def over(base: Path) -> Path:
    return base.with_name("over")


if __name__ == "__main__":
    role, base, project, seconds, seed = sys.argv[1:]
    deed = {"snapshot": snapshot, "prune": prune}[role]
    print(json.dumps(deed(Path(base), Path(project), float(seconds), seed)), flush=True)
    os._exit(0)
