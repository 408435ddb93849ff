"""The processes of a soak. Each runs until it is killed; what it did is in its record."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchCheckpoint, NothingToRedo, NothingToUndo, ShadowsnapError
from soaking.records import Record, fingerprint

SNAPSHOTS_KEPT = 12
_PINNED_AT_MOST = 3


def a_manager(base: Path, **settings: object) -> CheckpointManager:
    return CheckpointManager(base=base, max_snapshots=SNAPSHOTS_KEPT, background_upkeep=False, **settings)  # type: ignore[arg-type]


class Agent:
    """Edits its project, takes snapshots, goes back and forth."""

    def __init__(self, base: Path, project: Path, record: Record) -> None:
        self._manager = a_manager(base)
        self._project = project
        self._record = record
        self._chance = random.Random(os.urandom(8))
        past = record.read()
        self._number = max((fact["number"] for fact in past if "number" in fact), default=0)
        self._states = {fact["number"]: fact["state"] for fact in past if "state" in fact}
        self._pinned = sum("pinned" in fact for fact in past)

    def run(self) -> None:
        self._project.mkdir(parents=True, exist_ok=True)
        # A restore that died with the one before us is finished here, before anything is compared.
        self._manager.snapshot(self._project, "after a start")
        while True:
            self._edit()
            self._snapshot()
            if self._chance.random() < 0.25:
                self._go_somewhere()
            if self._chance.random() < 0.03 and self._pinned < _PINNED_AT_MOST:
                self._pin()

    def _snapshot(self) -> None:
        self._number += 1
        state = fingerprint(self._project)
        self._states[self._number] = state
        # Before the deed: whatever carries this number must hold this state, also if we die now.
        self._record.note(number=self._number, state=state)
        self._manager.new_turn()
        began = time.monotonic()
        outcome = self._manager.ensure_checkpoint(self._project, f"soak {self._number}")
        took = round(time.monotonic() - began, 4)
        if outcome.checkpoint is None:
            self._record.note(problem=f"{outcome.status}: {outcome.error!r}")
        elif outcome.status == "taken":
            self._record.note(taken=outcome.checkpoint.id, seconds=took)

    def _go_somewhere(self) -> None:
        deed = self._chance.choice(["restore", "restore", "undo", "redo"])
        try:
            if deed == "restore":
                self._restore()
            else:
                getattr(self._manager, deed)(self._project)
        except (NothingToUndo, NothingToRedo, NoSuchCheckpoint):
            return  # nothing to go to, or it was pruned this very moment
        except ShadowsnapError as problem:
            self._record.note(problem=f"{deed}: {problem!r}")
            return
        self._record.note(done=deed)

    def _restore(self) -> None:
        target = self._chance.choice(self._manager.list_checkpoints(self._project))
        self._manager.restore(self._project, target.id)
        number = numbered(target.reason)
        if number in self._states and fingerprint(self._project) != self._states[number]:
            self._record.note(problem=f"restore of {target.id} gave back something else")

    def _pin(self) -> None:
        newest = self._manager.get(self._project, "last")
        self._manager.pin(self._project, newest.id)
        self._pinned += 1
        self._record.note(pinned=newest.id)

    def _edit(self) -> None:
        """Contents come from a small set, shared by all agents: what one drops another needs."""
        chance = self._chance
        for _ in range(chance.randint(1, 5)):
            path = self._project / f"d{chance.randint(0, 4)}" / f"f{chance.randint(0, 8)}"
            if chance.random() < 0.2:
                path.unlink(missing_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(random.Random(chance.randint(0, 80)).randbytes(chance.choice([0, 300, 4000, 30000])))
            path.chmod(chance.choice([0o644, 0o600, 0o755]))
        if chance.random() < 0.03:  # so many that they are written as a pack
            for number in range(130):
                (self._project / f"many{number}").write_text(f"{chance.randint(0, 5)} {number}\n")


class Pruner:
    """Drops and repacks without a pause."""

    def __init__(self, base: Path, project: Path, record: Record) -> None:
        self._manager = a_manager(base, upkeep_deadline=120.0)
        self._record = record

    def run(self) -> None:
        while True:
            how = random.choice(["always", "always", "when-it-pays", "never"])
            try:
                result = self._manager.prune(reclaim=how)
            except ShadowsnapError as problem:
                self._record.note(problem=f"prune: {problem!r}")
                continue
            self._record.note(pruned=len(result.dropped), status=result.status)
            if result.error is not None:
                self._record.note(problem=f"prune {how}: {result.error!r}")


class Reader:
    """Looks at everything, all the time."""

    def __init__(self, base: Path, project: Path, record: Record) -> None:
        self._manager = a_manager(base)
        self._project = project
        self._record = record

    def run(self) -> None:
        while True:
            try:
                self._manager.status()
                for workdir in self._manager.projects():
                    found = self._manager.list_checkpoints(workdir)
                    if len(found) > 1:
                        self._manager.diff(workdir, found[-1].id, found[0].id)
                self._record.note(looked=True)
            except NoSuchCheckpoint:
                continue  # pruned between two looks
            except ShadowsnapError as problem:
                self._record.note(trouble=f"looking: {problem!r}")


ROLES = {"agent": Agent, "pruner": Pruner, "reader": Reader}


def numbered(reason: str) -> int | None:
    word, _, number = reason.partition(" ")
    return int(number) if word == "soak" and number.isdigit() else None


if __name__ == "__main__":
    role, base, project, record = sys.argv[1:]
    ROLES[role](Path(base), Path(project), Record(Path(record))).run()
