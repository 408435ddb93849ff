"""The events that a manager sends to its `on_event`: one frozen class per event, each with `kind` and `to_dict()`.

A hook has no listener, and imports nothing of this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shadowsnap.model import Checkpoint, Outcome, Record, RestoreResult
from shadowsnap.results import Checkup, ImportReport


@dataclass(frozen=True)
class Event(Record):
    """Something that happened to a directory; `kind` is its name in words."""

    workdir: str
    """The directory it is about; the base of the store where it is about that."""

    kind = "event"

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **super().to_dict()}


@dataclass(frozen=True)
class StoreCreated(Event):
    """The store was made: this is the first use of its base directory."""

    kind = "store-created"


@dataclass(frozen=True)
class CheckpointEvent(Event):
    """What came of one attempt to take a checkpoint."""

    outcome: Outcome

    kind = "checkpoint"

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.outcome.checkpoint


@dataclass(frozen=True)
class CheckpointTaken(CheckpointEvent):
    """There is a new checkpoint; of the named files alone if the status of the outcome is `partial`."""

    kind = "checkpoint-taken"


@dataclass(frozen=True)
class CheckpointUnchanged(CheckpointEvent):
    """The files are as the newest checkpoint holds them."""

    kind = "checkpoint-unchanged"


@dataclass(frozen=True)
class CheckpointSkipped(CheckpointEvent):
    """None was tried: the status of the outcome is `already-taken` in this turn, or `refused`."""

    kind = "checkpoint-skipped"


@dataclass(frozen=True)
class CheckpointFailed(CheckpointEvent):
    """It was tried, and could not be done; `outcome.error` says why."""

    kind = "checkpoint-failed"


@dataclass(frozen=True)
class Slow(Event):
    """What is being done takes longer than expected, and goes on. `done` of `total` files are read,
    where that is known."""

    doing: str
    seconds: float
    done: int | None = None
    total: int | None = None

    kind = "slow"


@dataclass(frozen=True)
class Restored(Event):
    """Files were put back; `by` is `restore`, `undo`, `redo` or `stage` (one that was discarded)."""

    result: RestoreResult
    by: str = "restore"

    kind = "restored"


@dataclass(frozen=True)
class Reverted(Event):
    """The work of a turn, or of a session, was taken back out of the files."""

    result: RestoreResult
    turn: int | None = None
    session_id: str | None = None

    kind = "reverted"


@dataclass(frozen=True)
class Recovered(Event):
    """A restore or a stage had been interrupted; the note says what became of it."""

    note: str

    kind = "recovered"


@dataclass(frozen=True)
class Healed(Event):
    """The store was damaged and was repaired: `checkup.repaired` says what. Without a `problem` that
    brought it up, the doctor had been asked."""

    checkup: Checkup
    problem: Exception | None = None

    kind = "healed"


@dataclass(frozen=True)
class Pruned(Event):
    """Checkpoints were dropped to keep the limits; `result` is what `prune` returns."""

    result: Any

    kind = "pruned"


@dataclass(frozen=True)
class Imported(Event):
    """Checkpoints of another tool were taken over."""

    report: ImportReport

    kind = "imported"
