"""The checkpoint service of PraisonAI, served by shadowsnap.

`from shadowsnap.compat.praisonai import CheckpointService` in place of `praisonaiagents.checkpoints`: the same
methods, results and events.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap.base import configured_base
from shadowsnap.compat.common import drop_own, open_manager, own_checkpoints
from shadowsnap.errors import BadArguments, NoSuchProject, NothingToImport, ShadowsnapError
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint as Taken
from shadowsnap.snapshot.tools import refusal

__all__ = [
    "Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointResult", "CheckpointService",
    "FileDiff",
]  # fmt: skip

_NAME, _EMAIL = "PraisonAI Checkpoints", "checkpoints@praison.ai"
_EXCLUDED = (".git", ".praisonai", "__pycache__", "*.pyc", ".env", "node_modules", ".venv", "venv", "*.log")
_PROTECTED = ("~/Desktop", "~/Documents", "~/Downloads")
_STEP = re.compile(r"\[step-(\d+)\]\s*")
_NOTHING_NEW = "No changes to checkpoint"
_FACE = "praisonai"
_ERRORS = (ShadowsnapError, OSError, ValueError)
_T = TypeVar("_T")


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
    user_name: str = field(default_factory=lambda: os.getenv("PRAISONAI_GIT_USER_NAME", _NAME))
    user_email: str = field(default_factory=lambda: os.getenv("PRAISONAI_GIT_USER_EMAIL", _EMAIL))
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

    @classmethod
    def from_git_commit(cls, commit_hash: str, message: str, timestamp: str | datetime) -> Checkpoint:
        moment = timestamp if isinstance(timestamp, datetime) else datetime.fromisoformat(timestamp)
        return cls(commit_hash, commit_hash[:8], message, moment)

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


class CheckpointService:
    """Checkpoints of one workspace. Nothing but `on` works before `initialize`. Git runs in threads, so that the
    event loop goes on."""

    def __init__(
        self,
        workspace_dir: str,
        storage_dir: str | None = None,
        enabled: bool = True,
        auto_checkpoint: bool = True,
        max_checkpoints: int = 100,
        user_name: str = _NAME,
        user_email: str = _EMAIL,
    ) -> None:
        self.config = CheckpointConfig(
            workspace_dir, storage_dir, enabled, auto_checkpoint, max_checkpoints, user_name, user_email
        )
        self.is_initialized = False
        self.checkpoint_dir = str(self.config.storage_dir)
        self.git_dir = os.path.join(self.checkpoint_dir, "store")
        self.workspace_dir = self.config.workspace_dir
        self._handlers: dict[CheckpointEvent, list[Callable[[Any], object]]] = {}

    @cached_property
    def _manager(self) -> CheckpointManager:
        """Opened on first use: until then the configuration may be changed."""
        return open_manager(self.checkpoint_dir, self.config.exclude_patterns)

    def on(self, event: CheckpointEvent, handler: Callable[[Any], object]) -> None:
        self._handlers.setdefault(CheckpointEvent(event), []).append(handler)

    async def initialize(self) -> bool:
        """False where checkpoints are disabled, or the workspace is missing or protected."""
        if not self.config.enabled or not os.path.isdir(self.workspace_dir) or self._is_protected():
            return False
        try:
            await asyncio.to_thread(self._import_what_is_left)
        except _ERRORS as problem:
            await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return False
        self.is_initialized = True
        await self._emit(CheckpointEvent.INITIALIZED, {"workspace": self.workspace_dir})
        return True

    def _is_protected(self) -> bool:
        workspace = Path(self.workspace_dir).resolve()
        protected = [Path(path).expanduser().resolve() for path in _PROTECTED]
        return workspace in protected or refusal(workspace, self._manager.settings.resolved_base()) is not None

    def _import_what_is_left(self) -> None:
        left = self.config.get_checkpoint_dir()
        known = Path(self.workspace_dir).resolve() in self._manager.projects()
        if not known and os.path.isdir(os.path.join(left, ".git")):
            with suppress(NothingToImport):
                self._manager.import_from(left)

    async def save(self, message: str, allow_empty: bool = False, step: int | None = None) -> CheckpointResult:
        """A step given here beats one that the message names."""
        if step is not None and step < 0:
            return CheckpointResult.fail("step must be a non-negative integer")
        if step is not None:
            message = f"[step-{step}] {_STEP.sub('', message, count=1)}"
        result = await self._attempt(lambda: self._save(message, allow_empty), CheckpointEvent.CHECKPOINT_CREATED)
        removed = await self._ask(self._prune, 0) if result.success else 0
        if removed:
            facts = {"action": "pruned", "removed_count": removed}
            await self._emit(CheckpointEvent.CHECKPOINTS_PRUNED, facts)
        return result

    def _save(self, message: str, allow_empty: bool) -> Taken:
        at = self._position(self._saved())
        if at is not None and not allow_empty and not self._manager.diff(self.workspace_dir, at.id):
            raise BadArguments(what=_NOTHING_NEW)
        outcome = self._manager.snapshot(self.workspace_dir, message, always=True, face=_FACE)
        made = outcome.checkpoint
        if made is None:
            raise BadArguments(what=str(outcome.error or outcome.status))
        if at is None and not allow_empty and made.tree == EMPTY_TREE:
            self._manager.delete(self.workspace_dir, made.id)
            raise BadArguments(what=_NOTHING_NEW)
        return next((each for each in self._saved() if each.id == made.id), made)  # listed with its counts

    def _prune(self) -> int:
        """Delete the oldest own ones that are too many; how many these were. States that restores saved are
        counted apart."""
        own = own_checkpoints(self._manager, self.workspace_dir, _FACE)
        kept = self.config.max_checkpoints if self.config.max_checkpoints > 0 else len(own)
        saved = [each for each in own if _is_saved(each)]
        others = [each for each in own if not _is_saved(each)]
        going = [each for each in (*saved[kept:], *others[kept:]) if not each.pinned]
        if going:
            self._manager.delete(self.workspace_dir, [each.id for each in going])
        return sum(map(_is_saved, going))

    async def restore(self, checkpoint_id: str | None = None, step: int | None = None) -> CheckpointResult:
        """Go back to a checkpoint, or to the newest one of a step."""
        if checkpoint_id is not None and step is not None:
            return CheckpointResult.fail("Provide either checkpoint_id or step, not both")
        if not checkpoint_id and step is None:
            return CheckpointResult.fail("No checkpoint id or step provided")
        found = await self.get_checkpoint_by_step(step) if step is not None else None
        if self.is_initialized and step is not None and found is None:
            return CheckpointResult.fail(f"No checkpoint found for step {step}")
        target = found.id if found is not None else checkpoint_id or ""
        return await self._attempt(lambda: self._restore(target), CheckpointEvent.CHECKPOINT_RESTORED)

    def _restore(self, checkpoint_id: str) -> Taken:
        return self._manager.restore(self.workspace_dir, checkpoint_id).target

    async def rewind(self, steps: int = 1) -> CheckpointResult:
        """Go back so many saved checkpoints from where the workspace is now."""
        if steps < 1:
            return CheckpointResult.fail("steps must be >= 1")
        return await self._attempt(lambda: self._rewind(steps), CheckpointEvent.CHECKPOINT_RESTORED)

    def _rewind(self, steps: int) -> Taken:
        saved = self._saved()
        at = self._position(saved)
        target = saved.index(at) + steps if at is not None else steps
        if target >= len(saved):
            raise BadArguments(what=f"Cannot rewind {steps} step(s): only {len(saved)} checkpoint(s) available")
        return self._restore(saved[target].id)

    def _position(self, saved: list[Taken]) -> Taken | None:
        """The checkpoint that the workspace is at: the one that was saved or restored last."""
        by_id = {each.id: each for each in saved}
        entries = self._manager.timeline(self.workspace_dir, restores=True) if saved else []
        states = (entry.after for entry in entries if entry.kind in ("snapshot", "restore"))
        return next((by_id[state] for state in states if state in by_id), saved[0] if saved else None)

    def _saved(self) -> list[Taken]:
        """What this service saved, newest first. The states that restores put by are for `shadowsnap undo`."""
        try:
            return [each for each in own_checkpoints(self._manager, self.workspace_dir, _FACE) if _is_saved(each)]
        except NoSuchProject:
            return []

    async def list_checkpoints(self, limit: int = 50) -> list[Checkpoint]:
        """Newest first."""
        return (await self._listed())[:limit]

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """The checkpoint whose id begins so."""
        listed = await self._listed() if checkpoint_id else []
        return next((each for each in listed if each.id.startswith(checkpoint_id)), None)

    async def get_checkpoint_by_step(self, step: int) -> Checkpoint | None:
        """The newest checkpoint of a step."""
        return next((each for each in await self._listed() if each.step == step), None)

    async def _listed(self) -> list[Checkpoint]:
        return await self._ask(lambda: [_shown(each) for each in self._saved()], list[Checkpoint]())

    async def diff(self, from_id: str | None = None, to_id: str | None = None) -> CheckpointDiff:
        """By default from the checkpoint before the last (or the only one) to the files as they are."""
        return await self._ask(lambda: self._diff(from_id, to_id), CheckpointDiff("", ""))

    def _diff(self, from_id: str | None, to_id: str | None) -> CheckpointDiff:
        newest = [each.id for each in self._saved()[:2]]
        if from_id is None and not newest:
            return CheckpointDiff("", "")
        found = self._manager.diff(self.workspace_dir, from_id or newest[-1], to_id)
        paths = [change.path for change in found.changes if not change.path.endswith("/")]
        before = self._manager.contents(self.workspace_dir, found.from_id, paths)
        if found.to_id is not None:
            after = self._manager.contents(self.workspace_dir, found.to_id, paths)
        else:
            on_disk = [(path, Path(self.workspace_dir, path)) for path in paths]
            after = {path: file.read_bytes() for path, file in on_disk if file.is_file()}
        files = [
            FileDiff(
                change.path,
                os.path.join(self.workspace_dir, change.path),
                change.status if change.status in ("added", "deleted") else "modified",
                change.insertions or 0,
                change.deletions or 0,
                _text(before.get(change.path)),
                _text(after.get(change.path)),
            )
            for change in found.changes
        ]
        return CheckpointDiff(found.from_id[:8], found.to_id and found.to_id[:8], files, diff_content=found.text)

    async def delete(self, checkpoint_id: str) -> bool:
        """Whether the checkpoint was there, and is gone now. All others keep their ids."""
        return await self._ask(lambda: bool(self._manager.delete(self.workspace_dir, checkpoint_id)), False)

    async def delete_all(self) -> bool:
        """Delete every checkpoint of this workspace that this service recorded."""
        try:
            with suppress(NoSuchProject):  # there were none
                await asyncio.to_thread(drop_own, self._manager, self.workspace_dir, _FACE)
        except _ERRORS:
            return False
        self.is_initialized = False
        return True

    async def cleanup(self) -> None:
        """End the use of this service; the checkpoints stay."""
        self.is_initialized = False

    async def _attempt(self, operation: Callable[[], Taken], event: CheckpointEvent) -> CheckpointResult:
        result = await self._call(lambda: CheckpointResult.ok(_shown(operation())), CheckpointResult.fail)
        if result.success:
            await self._emit(event, result.checkpoint)
        return result

    async def _ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        return await self._call(question, lambda problem: otherwise)

    async def _call(self, call: Callable[[], _T], otherwise: Callable[[str], _T]) -> _T:
        """Run it in a thread. What it was asked wrongly is an answer; what went wrong is an event, too."""
        if not self.is_initialized:
            return otherwise("Service not initialized")
        try:
            return await asyncio.to_thread(call)
        except _ERRORS as problem:
            if not isinstance(problem, BadArguments):
                await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return otherwise(str(problem))

    async def _emit(self, event: CheckpointEvent, data: Any) -> None:
        """Call the handlers. What they raise is reported by the event loop, and ends nothing here."""
        for handler in self._handlers.get(event, ()):
            asyncio.get_running_loop().call_soon(handler, data)
        await asyncio.sleep(0)


def _is_saved(checkpoint: Taken) -> bool:
    return checkpoint.kind != "pre-restore"


def _shown(taken: Taken) -> Checkpoint:
    """A checkpoint as PraisonAI has it."""
    tag = _STEP.match(taken.reason)
    counts = (taken.files_changed or 0, taken.insertions or 0, taken.deletions or 0)
    step = int(tag[1]) if tag else None
    return Checkpoint(taken.id, taken.short_id, taken.reason, taken.created_at, *counts, step)


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None or b"\0" in content else content.decode()
    except UnicodeDecodeError:
        return None
