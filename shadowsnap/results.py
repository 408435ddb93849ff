"""The results of questions, upkeep and lanes: frozen dataclasses like those of the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from shadowsnap.errors import ShadowsnapError
from shadowsnap.model import Checkpoint, Conversation, Entry, Record, RestoreResult, Severity, Skipped


@dataclass(frozen=True)
class Verification(Record):
    """Whether a checkpoint was restored into a scratch directory and was there, byte for byte, what it says."""

    json_names = {"checkpoint": "checkpoint_id", "files": "file_count"}

    checkpoint: str
    verified: bool
    at: datetime
    files: int = 0
    problem_count: int = 0
    problems: tuple[str, ...] = ()
    """The first of them."""


@dataclass(frozen=True)
class Author(Record):
    """Where a line came from: a `turn`, the `person` (an edit between turns), or `before` (it is older than what
    the timeline knows)."""

    who: Literal["turn", "person", "before"]
    number: int | None = None
    agent: str | None = None
    prompt: str | None = None
    session_id: str | None = None
    checkpoint: str | None = None
    """The first known state that has the line; None: only the files as they are now."""
    at: datetime | None = None


@dataclass(frozen=True)
class BlamedLine(Record):
    """One line of a file, and who brought it in."""

    line: int
    author: Author
    original_line: int
    """Its number in the state in which it came."""
    text: bytes

    def to_dict(self) -> dict[str, Any]:
        names = ("number", "who", "agent", "prompt")
        return {"line": self.line, **{name: getattr(self.author, name) for name in names}}


@dataclass(frozen=True)
class Probe(Record):
    """One state that a bisection ran its command in. `status` is the exit code of the command."""

    json_names = {"checkpoint": "checkpoint_id", "status": "exit_code"}

    checkpoint: str | None
    name: str
    """`turn 3`, `your own edits`: what led to this state."""
    number: int | None
    kind: str
    verdict: Literal["good", "bad", "skipped", "untested"]
    status: int | None = None
    prompt: str | None = None
    agent: str | None = None


@dataclass(frozen=True)
class Bisection(Record):
    """What a bisection found: the first bad state after a good one, and what led to it."""

    culprit: Probe | None
    good: str | None
    bad: str | None
    """The states before and after it; None: the files as they are now."""
    probes: tuple[Probe, ...] = ()
    candidates: tuple[Probe, ...] = ()
    """If states were skipped: everything that may be the culprit."""

    def to_dict(self) -> dict[str, Any]:
        found = self.culprit
        names = ("number", "kind", "name", "prompt", "agent")
        return {**{name: getattr(found, name, None) for name in names}, **super().to_dict()}


@dataclass(frozen=True)
class Fork(Record):
    """A directory that begins with the state of a checkpoint."""

    json_names = {"checkpoint": "checkpoint_id", "files": "file_count"}

    directory: str
    checkpoint: str | None
    """The first checkpoint of its own timeline; None if shadowsnap is disabled."""
    forked_from: dict[str, Any]
    branch: str | None = None
    files: int = 0


@dataclass(frozen=True)
class LaneEntries(Record):
    """What happened on another machine, newest first, as far as it was pulled. Its numbers are that machine's."""

    json_names = {"project": "project_name"}

    lane: str
    project: str
    machine: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class RemoteStatus(Record):
    """The remote of a project, and what it does not have yet."""

    json_names = {
        "name": "remote_name",
        "parent": "parent_lane",
        "unpushed": "unpushed_count",
        "error": "push_error",
    }

    workdir: str
    name: str
    url: str
    plain: bool = False
    recipients: tuple[str, ...] = ()
    conversations: bool = False
    conditions: bool = True
    """Whether the storage refuses to overwrite what must be new."""
    lane: str | None = None
    parent: str | None = None
    pushed_at: datetime | None = None
    unpushed: int = 0
    """Checkpoints that the remote does not have."""
    unpushed_since: datetime | None = None
    """When the oldest of them was taken."""
    attempts: int = 0
    error: str = ""
    """Why the last push in the background failed."""


@dataclass(frozen=True)
class Resumed(Record):
    """What `resume` did, or would do: the state of another machine, restored into a directory."""

    json_names = {
        "project": "project_name",
        "state": "state_name",
        "result": "restored",
        "new": "new_directory",
    }

    lane: str
    project: str
    machine: str
    workdir: str
    state: str
    """What the state is there: `the end of turn 3`."""
    captured_at: datetime
    result: RestoreResult
    new: bool = False
    """Whether the directory is a new one."""
    missing: tuple[Skipped, ...] = ()
    """What the state does not hold, although it was there."""
    commit: str | None = None
    """The commit of the person's repository that the state is based on."""
    branch: str | None = None
    commit_here: str | None = None
    agent: str | None = None
    conversation: Conversation | None = field(default=None, repr=False)
    """The conversation up to that state, if the lane carries conversations."""

    def to_dict(self) -> dict[str, Any]:
        facts = super().to_dict()
        del facts["conversation"]
        return facts


@dataclass(frozen=True)
class Finding(Record):
    """One thing that is not as it should be: `code` names the kind, `subject` the file, ref or
    checkpoint. Severity: `error` (something fails or is lost), `warning` (it works, but should
    not stay so) or `info`. Without a `repair` there is nothing to be done about it."""

    code: str
    severity: Severity
    subject: str
    meaning: str
    repair: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkup(Record):
    """What an examination found, and (`applied`) what was repaired. What could not be saved was
    moved to `set_aside`, never deleted."""

    json_names = {"checkpoints": "checkpoint_count", "intact": "intact_count"}

    base: str
    findings: tuple[Finding, ...] = ()
    repaired: tuple[Finding, ...] = ()
    set_aside: str | None = None
    checkpoints: int = 0
    intact: int = 0
    applied: bool = False

    @property
    def healthy(self) -> bool:
        """Whether nothing is left that fails or is lost."""
        return not any(item.severity == "error" and item not in self.repaired for item in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **super().to_dict()}


@dataclass(frozen=True)
class ImportedItem(Record):
    """One checkpoint of another tool. `status`: imported (or, in a dry run, importable), skipped
    or failed; `why` says more of the last two."""

    status: str
    original_id: str
    workdir: str
    source: str
    reason: str = ""
    created_at: datetime | None = None
    checkpoint_id: str | None = None
    why: str = ""


@dataclass(frozen=True)
class ImportReport(Record):
    """What an import did (`applied`) or would do."""

    json_names = {
        "imported": "imported_count",
        "skipped": "skipped_count",
        "failed": "failed_count",
        "items": "imported_items",
    }

    source: str
    layouts: tuple[str, ...] = ()
    imported: int = 0
    skipped: int = 0
    failed: int = 0
    items: tuple[ImportedItem, ...] = ()
    applied: bool = False


@dataclass(frozen=True)
class SweepReport(Record):
    """What a sweep cleared, of so many projects: those whose directory is gone, those that were not used for long
    (with archives of older tools), and what could not be cleared."""

    json_names = {"scanned": "project_count"}

    scanned: int = 0
    gone: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    bytes_freed: int = 0
    skipped: bool = False
    """It was not due."""
    not_marked: str = ""
    """Why the next start does not know of this sweep; empty if it does."""


@dataclass(frozen=True)
class ClearedItem(Record):
    """One thing that is removed: a project's checkpoints, the whole store, an archive."""

    json_names = {"checkpoints": "checkpoint_count", "pinned": "pinned_count"}

    subject: str
    checkpoints: int = 0
    pinned: int = 0
    bytes: int = 0
    note: str = ""


@dataclass(frozen=True)
class ClearReport(Record):
    """What was cleared (`applied`) or would be. The bytes of single checkpoints come free when
    the store is repacked; until then they are counted in `pending_bytes`."""

    json_names = {"items": "cleared_items"}

    items: tuple[ClearedItem, ...] = ()
    bytes_freed: int = 0
    pending_bytes: int = 0
    applied: bool = False


@dataclass(frozen=True)
class Verdict(Record):
    """Whether a checkpoint stays, and why or why not."""

    checkpoint: Checkpoint
    keep: bool
    reason: str


@dataclass(frozen=True)
class PruneResult(Record):
    """What a prune did (`applied`) or would do.

    `status`: `done`, `planned` (a dry run), `skipped` (not due yet, or nothing is stored), `busy` (another
    process does upkeep), `disabled` or `failed` (see `error`)."""

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
        """Whether anything was dropped or freed, or would be."""
        return bool(self.dropped or self.attachments_dropped or self.bytes_freed)

    def to_dict(self) -> dict[str, Any]:
        shown = super().to_dict()
        dropped = [verdict for verdict in shown.pop("verdicts") if not verdict["keep"]]
        kept = len(self.verdicts) - len(dropped)
        facts = {"applied": self.applied, "bytes_freed": self.bytes_freed}
        return {**shown, **facts, "dropped": dropped, "kept_count": kept}


@dataclass(frozen=True)
class Reclaimed(Record):
    """What was reclaimed. If not `complete`, `why` gives the reason, and the next upkeep does the rest."""

    bytes_freed: int = 0
    complete: bool = True
    why: str = ""
    error: ShadowsnapError | None = None


@dataclass(frozen=True)
class PurgeResult(Record):
    """What was purged (`applied`) or would be."""

    json_names = {"checkpoints": "checkpoint_ids"}

    workdir: str
    paths: tuple[str, ...]
    """The paths to purge."""
    files: tuple[str, ...] = ()
    """Every file at or below them that some checkpoint held."""
    checkpoints: tuple[str, ...] = ()
    """The checkpoints that held any of them, by their old ids, oldest first."""
    ids: dict[str, str] = field(default_factory=dict)
    """Old id -> new id. The old ones can still be used."""
    bytes: int = 0
    """Bytes in the store of those contents that nothing else holds."""
    bytes_freed: int = 0
    """How much smaller the store became. This includes everything else that no checkpoint held."""
    contents_left: int = 0
    """How many of the contents are still in the store, because something else holds them or they could not be
    reclaimed yet; see the notes."""
    notes: tuple[str, ...] = ()
    reclaimed: bool = False
    """Whether the contents are gone from the disk, except those that something else holds. If not, the same purge
    tries again."""
    error: Exception | None = None
    applied: bool = False


@dataclass(frozen=True)
class ProjectStatus(Record):
    """One project. `place`: its directory is `here`, `gone` or `unreachable`."""

    json_names = {
        "checkpoints": "checkpoint_count",
        "pinned": "pinned_count",
        "newest": "newest_at",
    }

    id: str
    workdir: str
    exists: bool
    checkpoints: int
    pinned: int
    newest: datetime | None
    created_at: datetime | None
    last_touch: datetime | None
    bytes_alone: int | None
    """Bytes that would be freed if only this project were dropped; None if unknown."""
    place: str = "here"
    verified_at: datetime | None = None
    """When its newest checkpoint was last restored into a scratch directory and was exact."""


@dataclass(frozen=True)
class Trouble(Record):
    """Something that failed or was left out, and what to do about it."""

    at: datetime
    workdir: str
    what: str
    advice: str
    kind: str = "failed"
    """`failed`, `partial`, `refused`, `uncaptured` or `upkeep`."""
    times: int = 1
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit(Record):
    """A limit, how much of it is used (None: unknown), and whether that is near the limit or beyond."""

    name: str
    limit: float
    used: float | None
    near: bool = False
    exceeded: bool = False


@dataclass(frozen=True)
class StoreStatus(Record):
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
        return {**super().to_dict(), "total_bytes": self.total_bytes, "checkpoint_count": self.checkpoints}
