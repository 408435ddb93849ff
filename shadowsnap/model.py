"""What shadowsnap hands out: frozen dataclasses, each with `to_dict()` for JSON."""

from __future__ import annotations

from datetime import datetime

from shadowsnap.records import Any, dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` is imported for annotations only
    from typing import Literal

    EntryKind = Literal["turn", "edits", "snapshot", "restore"]
    EntryStatus = Literal["running", "done", "interrupted", "undone", "reverted"]
    OutcomeStatus = Literal[
        "taken", "unchanged", "already-taken", "not-needed", "disabled", "refused", "failed", "partial"
    ]
    CheckpointKind = Literal["turn", "turn-end", "manual", "stage", "pre-restore", "warm-up"]
    SessionStatus = Literal["active", "completed", "failed", "rolled_back"]
    EditStatus = Literal["committed", "discarded"]
    PlaceStatus = Literal["taken", "unchanged", "failed", ""]
    Severity = Literal["error", "warning", "info"]


class _Record:
    json_names: dict[str, str] = {}
    """Fields that have another name as JSON, where a key has one meaning in every answer."""

    def to_dict(self) -> dict[str, Any]:
        names: tuple[str, ...] = self.__match_args__  # type: ignore[attr-defined]  # the fields of a dataclass
        facts = {self.json_names.get(name, name): _plain(getattr(self, name)) for name in names}
        if facts.get("error", ...) is None:  # an error is there, or it is not
            del facts["error"]
        return facts


def _plain(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.to_dict()
    if isinstance(value, Exception):
        to_dict = getattr(value, "to_dict", None)
        return to_dict() if to_dict else {"type": type(value).__name__, "message": str(value), "hint": ""}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


@dataclass(frozen=True)
class Skipped(_Record):
    """A path that exists but is not in the checkpoint, and why: `too-large`, `large-directory`, `unreadable`,
    `special`, `changing`, `secret`, `unstorable`, `undecided`, `outside`, `repository` (of an imported
    checkpoint), `damaged` (it was there, and its content was lost) or `purged` (a person took it out)."""

    path: str
    why: str


@dataclass(frozen=True)
class Checkpoint(_Record):
    """One captured state of one project."""

    json_names = {"project": "project_id"}

    id: str
    project: str
    workdir: str
    created_at: datetime
    reason: str
    kind: str = "turn"
    scope: str = "tree"
    session_id: str | None = None
    turn: int | None = None
    tool: str | None = None
    files_changed: int | None = None
    insertions: int | None = None
    deletions: int | None = None
    skipped: tuple[Skipped, ...] = ()
    pinned: bool = False
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    tree: str = field(default="", repr=False)
    ref: str = field(default="", repr=False)

    @property
    def short_id(self) -> str:
        return self.id[:8]

    def to_dict(self) -> dict[str, Any]:
        return {"short_id": self.short_id, **super().to_dict()}


@dataclass(frozen=True)
class Entry(_Record):
    """One line of the timeline. A `turn` has the states `before` and `after` it; `edits` are what the person
    changed between the end of one turn and the beginning of the next; a `snapshot` was taken by hand or by a
    host; a `restore` is also an undo, redo or revert. Ids are those of checkpoints."""

    number: int | None
    kind: EntryKind
    prompt: str | None = None
    reason: str = ""
    session_id: str | None = None
    agent: str | None = None
    status: EntryStatus | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    before: str | None = None
    after: str | None = None
    files_changed: int | None = None
    insertions: int | None = None
    deletions: int | None = None
    pinned: bool = False
    label: str | None = None
    skipped: tuple[Skipped, ...] = ()
    files_added: int | None = None
    files_deleted: int | None = None

    @property
    def state(self) -> str | None:
        """The checkpoint that going back to this entry restores."""
        return self.after if self.kind == "snapshot" else self.before


@dataclass(frozen=True)
class Now(_Record):
    """The files as they are now, and how they differ from the newest known state (None: there is none)."""

    name: str | None = None
    """What that state is: `the end of turn 3`, `the beginning of turn 4`, `snapshot 2`."""
    number: int | None = None
    checkpoint_id: str | None = None
    files_changed: int | None = None
    insertions: int | None = None
    deletions: int | None = None
    changes: tuple[Change, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    """What a snapshot of the files as they are now would not capture."""
    patch: str = field(default="", repr=False)
    """The text of the changes; `to_dict` leaves it out."""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_dict().items() if name != "patch"}


@dataclass(frozen=True)
class Outcome(_Record):
    """What `ensure_checkpoint` did. True only if it took a checkpoint just now."""

    status: OutcomeStatus
    checkpoint: Checkpoint | None = None
    error: Exception | None = None
    skipped: tuple[Skipped, ...] = ()
    note: str = ""

    def __bool__(self) -> bool:
        return self.status in ("taken", "partial") and self.checkpoint is not None

    @property
    def protected(self) -> bool:
        """Whether the state at the beginning of this turn is safe: all of it, not named files alone."""
        whole = self.checkpoint is None or self.checkpoint.scope == "tree"
        return self.status in ("taken", "unchanged", "already-taken") and whole

    def to_dict(self) -> dict[str, Any]:
        facts = {**super().to_dict(), "protected": self.protected}
        return {name: value for name, value in facts.items() if value is not None}


@dataclass(frozen=True)
class Change(_Record):
    """One path that differs. Line counts are None for binary files."""

    path: str
    status: str
    insertions: int | None = 0
    deletions: int | None = 0


@dataclass(frozen=True)
class Diff(_Record):
    """What differs between two checkpoints, or (`to_id` None) a checkpoint and the disk."""

    json_names = {"text": "patch"}

    from_id: str
    to_id: str | None
    changes: tuple[Change, ...]
    text: str

    @property
    def stat(self) -> str:
        """One line per path, then how many files and lines in all, as `git diff --stat` has it."""
        if not self.changes:
            return ""
        wide = max(len(change.path) for change in self.changes)
        lines = [f" {change.path:{wide}} | {_bar(change)}" for change in self.changes]
        more = sum(change.insertions or 0 for change in self.changes)
        less = sum(change.deletions or 0 for change in self.changes)
        told = [f" {_some(len(self.changes), 'file')} changed"]
        told += [f"{_some(more, 'insertion')}(+)"] if more else []
        told += [f"{_some(less, 'deletion')}(-)"] if less else []
        return "\n".join((*lines, ", ".join(told)))

    def __bool__(self) -> bool:
        return bool(self.changes)


def _some(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _bar(change: Change) -> str:
    if change.insertions is None or change.deletions is None:
        return "Bin"
    lines = change.insertions + change.deletions
    more, less = (-(-n * min(lines, 50) // max(lines, 1)) for n in (change.insertions, change.deletions))
    return f"{lines} {'+' * more}{'-' * less}".rstrip()


@dataclass(frozen=True)
class Kept(_Record):
    """A path that a restore left alone, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Conflict(Kept):
    """A path that was left alone because others changed the same; both sides, if they are text."""

    ours: str | None = None
    theirs: str | None = None


@dataclass(frozen=True)
class RestoreResult(_Record):
    """What a restore did (`applied`) or would do. Directories end in a slash."""

    target: Checkpoint
    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: tuple[Kept, ...] = ()
    conflicts: tuple[Kept, ...] = ()
    undo_id: str | None = None
    applied: bool = False
    conversation: Any = None
    note: str = ""
    what: str = ""
    """What an undo, redo or revert took back or brought again: `turn 3: clean the project up`."""
    changes: tuple[Change, ...] = ()
    """Of a plan: what happens to each path, with line counts; empty if the paths are very many."""
    patch: str = ""
    """Of a plan: the same as text."""


@dataclass(frozen=True)
class Verification(_Record):
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
class Author(_Record):
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
class BlamedLine(_Record):
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
class Probe(_Record):
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
class Bisection(_Record):
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
class Fork(_Record):
    """A directory that begins with the state of a checkpoint."""

    json_names = {"checkpoint": "checkpoint_id", "files": "file_count"}

    directory: str
    checkpoint: str | None
    """The first checkpoint of its own timeline; None if shadowsnap is disabled."""
    forked_from: dict[str, Any]
    branch: str | None = None
    files: int = 0


@dataclass(frozen=True)
class LaneEntries(_Record):
    """What happened on another machine, newest first, as far as it was pulled. Its numbers are that machine's."""

    json_names = {"project": "project_name"}

    lane: str
    project: str
    machine: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class RemoteStatus(_Record):
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
class Resumed(_Record):
    """What `resume` did, or would do: the state of another machine, restored into a directory."""

    json_names = {
        "project": "project_name",
        "state": "state_name",
        "result": "restored",
        "new": "new_directory",
        "sessions": "session_ids",
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
    sessions: tuple[str, ...] = ()
    """Sessions whose conversations came with it."""


@dataclass(frozen=True)
class Finding(_Record):
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
class Checkup(_Record):
    """What an examination found, and (`applied`) what was mended. What could not be saved was
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
class ImportedItem(_Record):
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
class ImportReport(_Record):
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
class ClearedItem(_Record):
    """One thing that is removed: a project's checkpoints, the whole store, an archive."""

    json_names = {"checkpoints": "checkpoint_count", "pinned": "pinned_count"}

    subject: str
    checkpoints: int = 0
    pinned: int = 0
    bytes: int = 0
    note: str = ""


@dataclass(frozen=True)
class ClearReport(_Record):
    """What was cleared (`applied`) or would be. The bytes of single checkpoints come free when
    the store is repacked; until then `pending_bytes` tells how many."""

    json_names = {"items": "cleared_items"}

    items: tuple[ClearedItem, ...] = ()
    bytes_freed: int = 0
    pending_bytes: int = 0
    applied: bool = False


@dataclass(frozen=True)
class Conversation(_Record):
    """A conversation as it was at a checkpoint, without its secrets. `data` is what was handed over:
    a list of messages, another JSON value, or text."""

    session_id: str | None
    data: Any
    message_count: int | None
    """How many messages or rows there were: for the host to shorten its own record to."""
    at: datetime
    bytes: int = 0
    sha256: str = ""
    redacted: int = 0
    """How many secrets were taken out before it was kept."""


@dataclass(frozen=True)
class TurnPlace(_Record):
    """A directory that a turn wrote to: its number there, and the checkpoints before and after."""

    json_names = {"project": "project_id"}

    workdir: str
    project: str
    turn: int | None = None
    before: str | None = None
    after: str | None = None
    status: PlaceStatus = ""
    """What became of the closing checkpoint: `taken`, `unchanged` (nothing was written) or `failed`;
    empty if the turn was not closed."""


@dataclass(frozen=True)
class SessionTurn(_Record):
    """One turn of a session."""

    json_names = {"conversation": "conversation_state"}

    began: datetime
    ended: datetime | None = None
    prompt: str | None = None
    message_count: int | None = None
    """Messages of the person and the agent in the conversation at its beginning."""
    places: tuple[TurnPlace, ...] = ()
    conversation: str = "none"
    """`kept`, `dropped` (there was one), `none`, or why there is none: `too-large`, `unreadable`,
    `changed` (its file is not what it was at the beginning of the turn), `outside` (its file is not where the
    agent keeps them), `of-another-user`, `not-a-transcript`."""
    reverted: bool = False


@dataclass(frozen=True)
class EditOutcome(_Record):
    """What became of a stage: `committed` or `discarded`."""

    json_names = {"checkpoint": "checkpoint_id"}

    edit_id: str | None
    status: EditStatus
    at: datetime
    workdir: str
    checkpoint: str | None = None
    risk_tier: str | None = None


@dataclass(frozen=True)
class Session(_Record):
    """One conversation with an agent: `active`, `completed`, `failed` or `rolled_back`."""

    id: str
    status: SessionStatus = "active"
    agent: str | None = None
    parent: str | None = None
    started: datetime | None = None
    ended: datetime | None = None
    turns: tuple[SessionTurn, ...] = ()
    edits: tuple[EditOutcome, ...] = ()
    note: str = ""
