"""The records that the API returns: frozen dataclasses, each with `to_dict()` for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

EntryKind = Literal["turn", "edits", "snapshot", "restore"]
EntryStatus = Literal["running", "done", "interrupted", "undone", "reverted"]
TAKEN_BACK: tuple[EntryStatus, ...] = ("undone", "reverted")
OutcomeStatus = Literal[
    "taken", "unchanged", "already-taken", "not-needed", "disabled", "refused", "failed", "partial"
]
CheckpointKind = Literal["turn", "turn-end", "manual", "stage", "pre-restore", "warm-up"]
SessionStatus = Literal["active", "completed", "failed", "rolled_back"]
EditStatus = Literal["committed", "discarded"]
PlaceStatus = Literal["taken", "unchanged", "failed", ""]
Severity = Literal["error", "warning", "info"]


class Record:
    """A dataclass with `to_dict()`."""

    json_names: dict[str, str] = {}
    """Fields with another name in JSON, so that a key has one meaning in every answer."""

    def to_dict(self) -> dict[str, Any]:
        names: tuple[str, ...] = self.__match_args__  # type: ignore[attr-defined]  # the fields of a dataclass
        facts = {self.json_names.get(name, name): _plain(getattr(self, name)) for name in names}
        if facts.get("error", ...) is None:  # the key is there only if there is an error
            del facts["error"]
        return facts


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
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
class Skipped(Record):
    """A path that exists but is not in the checkpoint, and why: `too-large`, `large-directory`, `unreadable`,
    `special`, `changing`, `secret`, `unstorable`, `undecided`, `outside`, `repository` (of an imported
    checkpoint), `damaged` (it was there, and its content was lost) or `purged` (a person took it out)."""

    path: str
    why: str


@dataclass(frozen=True)
class Checkpoint(Record):
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

    @property
    def host(self) -> str | None:
        """The program that recorded it, if it gave its name (see `snapshot`); of an imported one, the tool that it
        came from."""
        named = self.metadata.get("host") or self.metadata.get("face")  # as earlier versions called it
        imported = str(self.metadata.get("imported_from") or "").partition("-")[0]
        return str(named or imported) or None

    def to_dict(self) -> dict[str, Any]:
        return {"short_id": self.short_id, **super().to_dict()}


@dataclass(frozen=True)
class Entry(Record):
    """One line of the timeline. A `turn` has the states `before` and `after` it; `edits` are what the person
    changed between the end of one turn and the beginning of the next (with a `reason` if turns in between are
    not kept: then the changes may be theirs); a `snapshot` was taken by hand or by a host; a `restore` is also an
    undo, redo or revert. Ids are those of checkpoints."""

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

    @property
    def whose(self) -> str:
        """The name of `edits`: whose they are."""
        return f"changes {self.reason}" if self.reason else "your own edits"


@dataclass(frozen=True)
class Now(Record):
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
class Outcome(Record):
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
class Change(Record):
    """One path that differs. Line counts are None for binary files."""

    path: str
    status: str
    insertions: int | None = 0
    deletions: int | None = 0


@dataclass(frozen=True)
class Diff(Record):
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
        parts = [f" {_some(len(self.changes), 'file')} changed"]
        parts += [f"{_some(more, 'insertion')}(+)"] if more else []
        parts += [f"{_some(less, 'deletion')}(-)"] if less else []
        return "\n".join((*lines, ", ".join(parts)))

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
class Kept(Record):
    """A path that a restore left alone, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class Conflict(Kept):
    """A path that was left alone because others changed the same; both sides, if they are text."""

    ours: str | None = None
    theirs: str | None = None


@dataclass(frozen=True)
class RestoreResult(Record):
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

    @property
    def files(self) -> list[str]:
        """The files that are written or deleted."""
        return sorted(path for path in (*self.written, *self.deleted) if not path.endswith("/"))

    def kept_because(self, *why: str) -> list[str]:
        """The paths that were left alone for a reason that begins so, or so."""
        return sorted(kept.path for kept in self.kept if kept.why.startswith(why))


@dataclass(frozen=True)
class Conversation(Record):
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
class TurnPlace(Record):
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
class SessionTurn(Record):
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
class EditOutcome(Record):
    """What became of a stage: `committed` or `discarded`."""

    json_names = {"checkpoint": "checkpoint_id"}

    edit_id: str | None
    status: EditStatus
    at: datetime
    workdir: str
    checkpoint: str | None = None
    risk_tier: str | None = None


@dataclass(frozen=True)
class Session(Record):
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
