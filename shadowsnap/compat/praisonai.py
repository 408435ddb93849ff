"""What PraisonAI's checkpoint service is configured with, and what it hands out."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap.errors import BadArguments, NoSuchProject, NothingToImport, ShadowsnapError
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Change, Diff
from shadowsnap.model import Checkpoint as Taken
from shadowsnap.settings import configured_base
from shadowsnap.snapshot.tools import refusal

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
    """The base of the store; shadowsnap's own if it is not given."""
    enabled: bool = True
    auto_checkpoint: bool = True
    max_checkpoints: int = 100
    exclude_patterns: list[str] = field(default_factory=lambda: list(_EXCLUDED))

    def __post_init__(self) -> None:
        self.workspace_dir = os.path.expanduser(self.workspace_dir)
        self.storage_dir = os.path.expanduser(self.storage_dir or configured_base())

    def get_checkpoint_dir(self) -> str:
        """Where PraisonAI itself keeps the checkpoints of this workspace: those that it left there are
        imported. (All new ones of all workspaces are in one store.)"""
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

    @property
    def added_files(self) -> list[str]:
        return self._paths("added")

    @property
    def modified_files(self) -> list[str]:
        return self._paths("modified")

    @property
    def deleted_files(self) -> list[str]:
        return self._paths("deleted")

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "files": [file.to_dict() for file in self.files]}

    def _paths(self, status: str) -> list[str]:
        return [file.path for file in self.files if file.status == status]


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
    if isinstance(timestamp, datetime):
        return timestamp
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00"))


__all__ = [
    "Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointResult", "CheckpointService",
    "FileDiff",
]  # fmt: skip

_CREATED, _RESTORED = CheckpointEvent.CHECKPOINT_CREATED, CheckpointEvent.CHECKPOINT_RESTORED
_TROUBLE = (ShadowsnapError, OSError, ValueError)
_T = TypeVar("_T")


class CheckpointService:
    """Checkpoints of one workspace. Nothing but `on` works before `initialize`."""

    def __init__(
        self,
        workspace_dir: str,
        storage_dir: str | None = None,
        enabled: bool = True,
        auto_checkpoint: bool = True,
        max_checkpoints: int = 100,
    ) -> None:
        self.config = CheckpointConfig(workspace_dir, storage_dir, enabled, auto_checkpoint, max_checkpoints)
        self.is_initialized = False
        self._handlers: dict[CheckpointEvent, list[Callable[[Any], object]]] = {}
        self._workspace = Workspace(self.config)

    @property
    def workspace_dir(self) -> str:
        return self.config.workspace_dir

    @property
    def checkpoint_dir(self) -> str:
        return str(self.config.storage_dir)

    @property
    def git_dir(self) -> str:
        return os.path.join(self.checkpoint_dir, "store")

    def on(self, event: CheckpointEvent, handler: Callable[[Any], object]) -> None:
        self._handlers.setdefault(CheckpointEvent(event), []).append(handler)

    async def initialize(self) -> bool:
        """False where checkpoints are disabled, or the workspace is missing or protected."""
        if not self.config.enabled or not os.path.isdir(self.workspace_dir) or self._workspace.is_protected():
            return False
        try:
            await asyncio.to_thread(self._workspace.take_over)
        except _TROUBLE as problem:
            await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return False
        self.is_initialized = True
        await self._emit(CheckpointEvent.INITIALIZED, {"workspace": self.workspace_dir})
        return True

    async def save(self, message: str, allow_empty: bool = False, step: int | None = None) -> CheckpointResult:
        """A step given here beats one that the message names."""
        if step is not None and step < 0:
            return CheckpointResult.fail("step must be a non-negative integer")
        if step is not None:
            named = STEP.match(message)
            message = f"[step-{step}] {message[named.end() :] if named else message}"
        result = await self._done(lambda: self._workspace.save(message, allow_empty), _CREATED)
        if result.success:
            await self._prune()
        return result

    async def restore(self, checkpoint_id: str | None = None, step: int | None = None) -> CheckpointResult:
        """Go back to a checkpoint, or to the newest one of a step."""
        if checkpoint_id is not None and step is not None:
            return CheckpointResult.fail("Provide either checkpoint_id or step, not both")
        if step is None and checkpoint_id is None:
            return CheckpointResult.fail("No checkpoint id or step provided")
        return await self._done(lambda: self._workspace.restore(checkpoint_id, step), _RESTORED)

    async def rewind(self, steps: int = 1) -> CheckpointResult:
        """Go back so many saved checkpoints from where the workspace is now."""
        if steps < 1:
            return CheckpointResult.fail("steps must be >= 1")
        return await self._done(lambda: self._workspace.rewind(steps), _RESTORED)

    async def diff(self, from_id: str | None = None, to_id: str | None = None) -> CheckpointDiff:
        """From the checkpoint before the last (or the only one) to the files as they are, unless told
        otherwise."""
        return await self._asked(lambda: self._workspace.diff(from_id, to_id), CheckpointDiff("", ""))

    async def list_checkpoints(self, limit: int = 50) -> list[Checkpoint]:
        """Newest first."""
        return [shown(each) for each in (await self._all())[:limit]]

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """The checkpoint whose id begins so."""
        listed = await self._all()
        return next((shown(each) for each in listed if checkpoint_id and each.id.startswith(checkpoint_id)), None)

    async def get_checkpoint_by_step(self, step: int) -> Checkpoint | None:
        """The newest checkpoint of a step."""
        listed = await self._all()
        return next((each for each in map(shown, listed) if each.step == step), None)

    async def delete(self, checkpoint_id: str) -> bool:
        """Whether the checkpoint was there, and is gone now. All others keep their ids."""
        return await self._asked(lambda: self._workspace.delete(checkpoint_id), False)

    async def cleanup(self) -> None:
        """End the use of this service; the checkpoints stay."""
        self.is_initialized = False

    async def delete_all(self) -> bool:
        """Delete every checkpoint of this workspace."""
        try:
            await asyncio.to_thread(self._workspace.clear)
        except _TROUBLE:
            return False
        self.is_initialized = False
        return True

    async def _done(self, deed: Callable[[], Taken], event: CheckpointEvent) -> CheckpointResult:
        """In a thread of its own: git takes time that the event loop has other uses for."""
        if not self.is_initialized:
            return CheckpointResult.fail("Service not initialized")
        try:
            checkpoint = shown(await asyncio.to_thread(deed))
        except BadArguments as problem:
            return CheckpointResult.fail(str(problem))
        except _TROUBLE as problem:
            await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return CheckpointResult.fail(str(problem))
        await self._emit(event, checkpoint)
        return CheckpointResult.ok(checkpoint)

    async def _asked(self, question: Callable[[], _T], otherwise: _T) -> _T:
        if not self.is_initialized:
            return otherwise
        try:
            return await asyncio.to_thread(question)
        except _TROUBLE as problem:
            await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return otherwise

    async def _all(self) -> list[Taken]:
        return await self._asked(self._workspace.listed, list[Taken]())

    async def _prune(self) -> None:
        gone = await self._asked(self._workspace.beyond_limit, list[Taken]())
        if gone:
            facts = {"action": "pruned", "removed_count": len(gone)}
            await self._emit(CheckpointEvent.CHECKPOINTS_PRUNED, facts)

    async def _emit(self, event: CheckpointEvent, data: Any) -> None:
        """Call the handlers. What they raise is reported by the event loop, and does not end anything
        here."""
        for handler in self._handlers.get(event, ()):
            asyncio.get_running_loop().call_soon(handler, data)
        await asyncio.sleep(0)


STEP = re.compile(r"\[step-(\d+)\]\s*")
_PROTECTED = ("~/Desktop", "~/Documents", "~/Downloads")


def shown(taken: Taken) -> Checkpoint:
    """As PraisonAI has it."""
    tag = STEP.match(taken.reason)
    numbers = (taken.files_changed or 0, taken.insertions or 0, taken.deletions or 0)
    step = int(tag[1]) if tag else None
    return Checkpoint(taken.id, taken.short_id, taken.reason, taken.created_at, *numbers, step, taken.metadata)


class Workspace:
    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config
        self._folder = config.workspace_dir
        self._at: str | None = None
        self._restored: Taken | None = None
        self._manager = CheckpointManager(
            max_snapshots=config.max_checkpoints,
            retention_days=0,
            base=config.storage_dir,
            excludes=tuple(config.exclude_patterns),
        )

    def take_over(self) -> None:
        """Make the store, and import what PraisonAI itself left."""
        if Path(self._folder).resolve() in self._manager.projects():
            return
        left = self._config.get_checkpoint_dir()
        if os.path.isdir(os.path.join(left, ".git")):
            try:
                self._manager.import_from(left)
            except NothingToImport:
                pass

    def save(self, message: str, allow_empty: bool) -> Taken:
        """A new checkpoint, with what it changed."""
        if not allow_empty and self._is_unchanged():
            raise BadArguments(what="No changes to checkpoint")
        outcome = self._manager.snapshot(self._folder, message, always=allow_empty)
        if outcome.status != "taken" or outcome.checkpoint is None:
            raise BadArguments(what=outcome.error or "No changes to checkpoint")
        self._at, self._restored = outcome.checkpoint.id, None
        return self._manager.list_checkpoints(self._folder, limit=1)[0]

    def restore(self, ref: str | None, step: int | None = None) -> Taken:
        """Go back to a checkpoint, or else to the newest of a step."""
        if ref is None:
            ref = next((each.id for each in self.listed() if shown(each).step == step), None)
        if ref is None:
            raise BadArguments(what=f"No checkpoint found for step {step}")
        self._restored = self._manager.restore(self._folder, ref).target
        self._at = self._restored.id
        return self._restored

    def rewind(self, steps: int) -> Taken:
        saved = [each for each in self.listed() if each.kind != "pre-restore"]
        target = self._position(saved) + steps
        if target >= len(saved):
            raise BadArguments(what=f"Cannot rewind {steps} step(s): only {len(saved)} checkpoint(s) available")
        return self.restore(saved[target].id)

    def _is_unchanged(self) -> bool:
        """Whether nothing changed since a restore, or there never was anything. (Since the newest
        checkpoint: the manager knows.)"""
        if self._restored is None:
            return not os.listdir(self._folder) and not self.listed()
        kept = any(each.id == self._restored.id for each in self.listed())
        return kept and not self._manager.diff(self._folder, self._restored.id)

    def _position(self, saved: list[Taken]) -> int:
        """Where in the list the workspace is: at the checkpoint that was saved or restored last; in a
        new process, at the newest that holds just its files; else at the newest."""
        for at, each in enumerate(saved):
            if each.id == self._at or self._at is None and not self._manager.diff(self._folder, each.id):
                return at
        return 0

    def listed(self) -> list[Taken]:
        """What was saved, and what restores found that was not. (A restore also saves what some
        checkpoint holds already.)"""
        try:
            found = self._manager.list_checkpoints(self._folder)
        except NoSuchProject:
            return []
        held = {each.tree for each in found if each.kind != "pre-restore"}
        return [each for each in found if each.kind != "pre-restore" or each.tree not in held]

    def diff(self, from_id: str | None, to_id: str | None) -> CheckpointDiff:
        if from_id is None:
            newest = self.listed()[:2]
            if not newest:
                return CheckpointDiff("", "")
            from_id = newest[-1].id
        found = self._manager.diff(self._folder, from_id, to_id)
        paths = [change.path for change in found.changes if not change.path.endswith("/")]
        before = self._manager.contents(self._folder, found.from_id, paths)
        after = self._contents_now(found, paths)
        files = [
            FileDiff(
                change.path,
                os.path.join(self._folder, change.path),
                _status(change),
                change.insertions or 0,
                change.deletions or 0,
                _text(before.get(change.path)),
                _text(after.get(change.path)),
            )
            for change in found.changes
        ]
        to = found.to_id and found.to_id[:8]
        return CheckpointDiff(found.from_id[:8], to, files, diff_content=found.text)

    def _contents_now(self, found: Diff, paths: list[str]) -> dict[str, bytes]:
        if found.to_id is not None:
            return self._manager.contents(self._folder, found.to_id, paths)
        there = [path for path in paths if os.path.isfile(os.path.join(self._folder, path))]
        return {path: Path(self._folder, path).read_bytes() for path in there}

    def beyond_limit(self) -> list[Taken]:
        """Delete the oldest ones that are too many."""
        beyond = self.listed()[self._config.max_checkpoints :] if self._config.max_checkpoints > 0 else []
        going = [each for each in beyond if not each.pinned]
        if going:
            self._manager.delete(self._folder, [each.id for each in going])
        return going

    def is_protected(self) -> bool:
        """Whether this is a directory that nobody works in."""
        workspace = Path(self._folder).resolve()
        if workspace in (Path(path).expanduser().resolve() for path in _PROTECTED):
            return True
        return refusal(workspace, self._manager.settings.resolved_base()) is not None

    def delete(self, ref: str) -> bool:
        return bool(self._manager.delete(self._folder, ref))

    def clear(self) -> None:
        """Delete every checkpoint."""
        try:
            self._manager.clear(self._folder)
        except NoSuchProject:
            pass  # there were none


def _status(change: Change) -> str:
    return change.status if change.status in ("added", "deleted") else "modified"


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None or b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
