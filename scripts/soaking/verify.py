"""The judgement after a soak: is every checkpoint there that must be, and is each what it was."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soaking.agents import SNAPSHOTS_KEPT, a_manager, numbered
from soaking.records import Record, fingerprint, leftovers

# Of so many it is certain that no limit took them: pins and what an undo needs count as well.
_CERTAIN = SNAPSHOTS_KEPT // 2


@dataclass
class Judgement:
    verified: int = 0
    """Checkpoints that gave back exactly what was written down when they were taken."""
    restored: int = 0
    """Others (safety checkpoints of restores, and of starts): restored without an error."""
    differing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.differing or self.lost or self.damage or self.left_behind)


def verify(base: Path, agents: Sequence[tuple[Path, Record]]) -> Judgement:
    """Finish what was interrupted, clear up, and then look at everything."""
    found, manager = Judgement(), a_manager(base)
    for project, _ in agents:
        manager.snapshot(project, "after the end")
    upkeep = manager.prune(reclaim="always")
    if upkeep.error is not None:
        found.damage.append(f"the last prune: {upkeep.error!r}")
    done = subprocess.run(
        ["git", "fsck", "--full", "--strict", "--no-dangling"], cwd=base / "store", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        found.damage.append(f"git fsck: {done.stdout}{done.stderr}")
    found.left_behind += _debris(base / "store")
    for project, record in agents:
        _verify_project(found, base, project, record)
    return found


def _verify_project(found: Judgement, base: Path, project: Path, record: Record) -> None:
    manager, facts = a_manager(base), record.read()
    states = {fact["number"]: fact["state"] for fact in facts if "state" in fact}
    checkpoints = manager.list_checkpoints(project)
    there = {checkpoint.id for checkpoint in checkpoints}
    taken = [fact["taken"] for fact in facts if "taken" in fact]
    pinned = [fact["pinned"] for fact in facts if "pinned" in fact]
    found.lost += [name for name in (*taken[-_CERTAIN:], *pinned) if name not in there]
    for checkpoint in checkpoints:
        try:
            manager.restore(project, checkpoint.id)
        except Exception as problem:  # whatever it is, it is what we are looking for
            found.damage.append(f"{checkpoint.id} of {project}: {problem!r}")
            continue
        number = numbered(checkpoint.reason)
        if number is None or number not in states:
            found.restored += 1
        elif fingerprint(project) == states[number]:
            found.verified += 1
        else:
            found.differing.append(f"{checkpoint.id} of {project}")
    found.left_behind += [str(path) for path in leftovers(project)]


def _debris(store: Path) -> list[str]:
    patterns = ("scratch-*", "trash-*", "objects/*/tmp_*", "objects/pack/.tmp-*", "indexes/.*", "projects/.*")
    found = [str(path) for pattern in patterns for path in store.glob(pattern)]
    return found + [str(path) for path in store.rglob("*.lock") if path.parent.name != "locks"]
