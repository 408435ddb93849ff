"""What the checkpoint service of PraisonAI is configured with, and what it hands out."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

from shadowsnap.base import configured_base
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint as Taken
from shadowsnap.model import Diff

NAME, EMAIL = "PraisonAI Checkpoints", "checkpoints@praison.ai"
STEP = re.compile(r"\[step-(\d+)\]\s*")
_EXCLUDED = (
    ".git", ".praisonai", "__pycache__", "*.pyc", ".env", "node_modules", ".venv", "venv", "*.log",
)  # fmt: skip


class CheckpointEvent(str, Enum):
    INITIALIZED = "initialized"
    CHECKPOINT_CREATED = "checkpoint_created"
    CHECKPOINT_RESTORED = "checkpoint_restored"
    CHECKPOINTS_PRUNED = "checkpoints_pruned"
    ERROR = "error"


@dataclass
class CheckpointConfig:
    workspace_dir: str
    storage_dir: str | None = None
    """The base of the store; the one that all hosts share if it is not given."""
    enabled: bool = True
    auto_checkpoint: bool = True
    max_checkpoints: int = 100
    user_name: str = field(default_factory=lambda: os.getenv("PRAISONAI_GIT_USER_NAME", NAME))
    user_email: str = field(default_factory=lambda: os.getenv("PRAISONAI_GIT_USER_EMAIL", EMAIL))
    """Accepted, and not used: a checkpoint has no author."""
    exclude_patterns: list[str] = field(default_factory=lambda: list(_EXCLUDED))

    def __post_init__(self) -> None:
        self.workspace_dir = os.path.expanduser(self.workspace_dir)
        self.storage_dir = os.path.expanduser(self.storage_dir or configured_base())

    def get_checkpoint_dir(self) -> str:
        """Where PraisonAI itself keeps the checkpoints of this workspace: those that it left there are imported.
        (All new ones of all workspaces are in one store.)"""
        name = hashlib.sha256(os.fsencode(self.workspace_dir)).hexdigest()[:12]
        return os.path.join(self.storage_dir or "", name)


@dataclass
class Checkpoint:
    id: str
    short_id: str
    message: str
    timestamp: datetime
    files_changed: int = 0
    insertions: int = 0
    deletions: int = 0
    step: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_git_commit(cls, commit_hash: str, message: str, timestamp: str | datetime) -> Checkpoint:
        return cls(commit_hash, commit_hash[:8], message, _moment(timestamp))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Checkpoint:
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(**{"short_id": data["id"][:8], **known, "timestamp": _moment(data["timestamp"])})

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "timestamp": self.timestamp.isoformat()}


@dataclass
class FileDiff:
    path: str
    absolute_path: str
    status: str
    """`added`, `modified` or `deleted`."""
    additions: int = 0
    deletions: int = 0
    before_content: str | None = None
    after_content: str | None = None
    """The text then and now; None if there was none, or it is not text."""

    def to_dict(self) -> dict[str, Any]:
        names = ("path", "absolute_path", "status", "additions", "deletions")
        return {name: getattr(self, name) for name in names}


@dataclass
class CheckpointDiff:
    from_checkpoint: str
    to_checkpoint: str | None
    """None: the files as they are now."""
    files: list[FileDiff] = field(default_factory=list)
    total_additions: int = 0
    total_deletions: int = 0
    diff_content: str = ""

    def __post_init__(self) -> None:
        self.total_additions = sum(file.additions for file in self.files)
        self.total_deletions = sum(file.deletions for file in self.files)

    added_files = property(lambda self: self._paths("added"))
    modified_files = property(lambda self: self._paths("modified"))
    deleted_files = property(lambda self: self._paths("deleted"))

    def _paths(self, status: str) -> list[str]:
        return [file.path for file in self.files if file.status == status]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "files": [file.to_dict() for file in self.files]}


@dataclass
class CheckpointResult:
    success: bool
    checkpoint: Checkpoint | None = None
    error: str | None = None

    @classmethod
    def ok(cls, checkpoint: Checkpoint) -> CheckpointResult:
        return cls(True, checkpoint)

    @classmethod
    def fail(cls, error: str) -> CheckpointResult:
        return cls(False, error=error)


def _moment(timestamp: str | datetime) -> datetime:
    return timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)


# --- from what the manager hands out -----------------------------------------------------------------


def shown(taken: Taken) -> Checkpoint:
    """A checkpoint as PraisonAI has it."""
    tag = STEP.match(taken.reason)
    counts = (taken.files_changed or 0, taken.insertions or 0, taken.deletions or 0)
    step = int(tag[1]) if tag else None
    return Checkpoint(taken.id, taken.short_id, taken.reason, taken.created_at, *counts, step, taken.metadata)


def diff_of(manager: CheckpointManager, workspace: str, found: Diff) -> CheckpointDiff:
    """A difference with the contents of both sides."""
    paths = [change.path for change in found.changes if not change.path.endswith("/")]
    before = manager.contents(workspace, found.from_id, paths)
    if found.to_id is not None:
        after = manager.contents(workspace, found.to_id, paths)
    else:
        on_disk = [(path, Path(workspace, path)) for path in paths]
        after = {path: file.read_bytes() for path, file in on_disk if file.is_file()}
    files = [
        FileDiff(
            change.path,
            os.path.join(workspace, change.path),
            change.status if change.status in ("added", "deleted") else "modified",
            change.insertions or 0,
            change.deletions or 0,
            _text(before.get(change.path)),
            _text(after.get(change.path)),
        )
        for change in found.changes
    ]
    return CheckpointDiff(found.from_id[:8], found.to_id and found.to_id[:8], files, diff_content=found.text)


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None or b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
