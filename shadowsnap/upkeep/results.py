"""What upkeep hands out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shadowsnap.model import Checkpoint, RemoteStatus, _Record


@dataclass(frozen=True)
class Verdict(_Record):
    """Whether a checkpoint stays, and why or why not."""

    checkpoint: Checkpoint
    keep: bool
    reason: str


@dataclass(frozen=True)
class PruneResult(_Record):
    """What a prune did (`applied`) or would do.

    `status`: `done`, `planned` (a dry run), `skipped` (not due yet, or nothing is stored), `busy` (another
    process is at it), `disabled` or `failed` (see `error`)."""

    status: str
    verdicts: tuple[Verdict, ...] = ()
    attachments_dropped: tuple[str, ...] = ()
    bytes_before: int | None = None
    bytes_after: int | None = None
    notes: tuple[str, ...] = ()
    error: Exception | None = None

    @property
    def applied(self) -> bool:
        return self.status == "done"

    @property
    def dropped(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.keep)

    @property
    def bytes_freed(self) -> int:
        return max(0, (self.bytes_before or 0) - (self.bytes_after or 0)) if self.bytes_after is not None else 0

    def __bool__(self) -> bool:
        """Whether anything went, or would go."""
        return bool(self.dropped or self.attachments_dropped or self.bytes_freed)

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        dropped = [verdict for verdict in shown.pop("verdicts") if not verdict["keep"]]
        kept = len(self.verdicts) - len(dropped)
        facts = {"applied": self.applied, "bytes_freed": self.bytes_freed}
        return {**shown, **facts, "dropped": dropped, "kept": kept}


@dataclass(frozen=True)
class ProjectStatus(_Record):
    """One project: `place` says whether its directory is `here`, `gone` or `unreachable`."""

    id: str
    workdir: str
    exists: bool
    checkpoints: int
    pinned: int
    newest: datetime | None
    created_at: datetime | None
    last_touch: datetime | None
    bytes_alone: int | None
    """What would be freed if this project alone were dropped; None if it is not known."""
    place: str = "here"


@dataclass(frozen=True)
class Trouble(_Record):
    """Something that went wrong, or was left out, and what to do about it."""

    at: datetime
    workdir: str
    what: str
    advice: str
    kind: str = "failed"
    """`failed`, `partial`, `refused`, `uncaptured` or `upkeep`."""
    times: int = 1
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit(_Record):
    """A limit, how far it is used (None: not known), and whether it is exceeded or nearly so."""

    name: str
    limit: float
    used: float | None
    near: bool = False
    exceeded: bool = False


@dataclass(frozen=True)
class StoreStatus(_Record):
    base: str
    store_bytes: int
    attachments_bytes: int | None
    legacy_bytes: int
    unreachable_bytes: int | None
    projects: tuple[ProjectStatus, ...] = ()
    limits: tuple[Limit, ...] = ()
    last_prune: datetime | None = None
    uncaptured: tuple[Trouble, ...] = ()
    failures: tuple[Trouble, ...] = ()
    warnings: tuple[str, ...] = ()
    remotes: tuple[RemoteStatus, ...] = ()

    @property
    def total_bytes(self) -> int:
        return self.store_bytes + self.legacy_bytes

    @property
    def checkpoints(self) -> int:
        return sum(project.checkpoints for project in self.projects)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "total_bytes": self.total_bytes, "checkpoints": self.checkpoints}
