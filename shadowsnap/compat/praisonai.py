"""The checkpoint service of PraisonAI, served by shadowsnap.

`from shadowsnap.compat.praisonai import CheckpointService` in place of `praisonaiagents.checkpoints`: the same
methods, results and events.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from shadowsnap.aio import AsyncCheckpointManager
from shadowsnap.base import configured_base
from shadowsnap.compat.common import ERRORS, open_manager
from shadowsnap.errors import BadArguments, NoSuchProject, NothingToImport
from shadowsnap.files import remove_tree
from shadowsnap.model import Checkpoint as Taken
from shadowsnap.model import Record
from shadowsnap.snapshot.tools import refusal
from shadowsnap.store.layout import open_store

_HOST = "praisonai"
_NAME, _EMAIL = "PraisonAI Checkpoints", "checkpoints@praison.ai"
_EXCLUDED = (".git", ".praisonai", "__pycache__", "*.pyc", ".env", "node_modules", ".venv", "venv", "*.log")
_PROTECTED = ("~/Desktop", "~/Documents", "~/Downloads")
_IMPORT_MARK = "imported-by-shadowsnap"
"""A file beside PraisonAI's own repository. It is imported once, so that what is deleted here later stays
deleted."""
_STEP = re.compile(r"\[step-(\d+)\]\s*")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Method = Callable[Concatenate["CheckpointService", _P], Coroutine[Any, Any, _T]]


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
class Checkpoint(Record):
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


@dataclass
class FileDiff(Record):
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
        return {name: value for name, value in super().to_dict().items() if not name.endswith("_content")}


@dataclass
class CheckpointDiff(Record):
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


def _guarded(answer: Callable[[str], _T]) -> Callable[[_Method[_P, _T]], _Method[_P, _T]]:
    """Decorate a method so that it returns `answer(message)` instead of raising. An error also becomes an event,
    unless the arguments were wrong."""

    def decorate(method: _Method[_P, _T]) -> _Method[_P, _T]:
        @wraps(method)
        async def call(self: CheckpointService, /, *args: _P.args, **more: _P.kwargs) -> _T:
            if not self.is_initialized:
                return answer("Service not initialized")
            try:
                return await method(self, *args, **more)
            except ERRORS as problem:
                if not isinstance(problem, BadArguments):
                    await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
                return answer(str(problem))

        return call

    return decorate


class CheckpointService:
    """Checkpoints of one workspace. Nothing but `on` works before `initialize`."""

    def __init__(
        self, workspace_dir: str, storage_dir: str | None = None, enabled: bool = True,
        auto_checkpoint: bool = True, max_checkpoints: int = 100, user_name: str = _NAME, user_email: str = _EMAIL,
    ) -> None:  # fmt: skip
        self.config = CheckpointConfig(
            workspace_dir, storage_dir, enabled, auto_checkpoint, max_checkpoints, user_name, user_email
        )
        self.is_initialized = False
        self.workspace_dir = self.config.workspace_dir
        self.checkpoint_dir = self.config.get_checkpoint_dir()  # not the store: a host may delete it
        self.git_dir = os.path.join(str(self.config.storage_dir), "store")
        self._handlers: dict[CheckpointEvent, list[Callable[[Any], object]]] = {}

    @cached_property
    def _manager(self) -> AsyncCheckpointManager:
        """Opened on first use: until then the configuration may be changed."""
        return AsyncCheckpointManager.of(open_manager(str(self.config.storage_dir), self.config.exclude_patterns))

    def on(self, event: CheckpointEvent, handler: Callable[[Any], object]) -> None:
        self._handlers.setdefault(CheckpointEvent(event), []).append(handler)

    async def _emit(self, event: CheckpointEvent, data: Any) -> None:
        """Call the handlers. The event loop reports what they raise, and the method goes on."""
        for handler in self._handlers.get(event, ()):
            asyncio.get_running_loop().call_soon(handler, data)
        await asyncio.sleep(0)

    async def initialize(self) -> bool:
        """False where checkpoints are disabled, or the workspace is missing or protected."""
        workspace = Path(self.workspace_dir).resolve()
        is_protected = any(workspace == Path(path).expanduser().resolve() for path in _PROTECTED)
        refused = is_protected or refusal(workspace, Path(self.git_dir).parent.resolve())
        if not self.config.enabled or not workspace.is_dir() or refused:
            return False
        try:
            await asyncio.to_thread(open_store, self._manager.settings)
            mark = Path(self.checkpoint_dir, _IMPORT_MARK)
            with suppress(NothingToImport, PermissionError):
                if not mark.exists():
                    await self._manager.import_from(self.checkpoint_dir)
                    mark.touch()
        except ERRORS as problem:
            await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return False
        self.is_initialized = True
        await self._emit(CheckpointEvent.INITIALIZED, {"workspace": self.workspace_dir})
        return True

    @_guarded(CheckpointResult.fail)
    async def save(self, message: str, allow_empty: bool = False, step: int | None = None) -> CheckpointResult:
        """Save a checkpoint. `step` takes precedence over one that the message names."""
        if step is not None and step < 0:
            raise BadArguments(what="step must be a non-negative integer")
        if step is not None:
            message = f"[step-{step}] {_STEP.sub('', message, count=1)}"
        work, keep = self.workspace_dir, self.config.max_checkpoints
        outcome = await self._manager.snapshot(work, message, always=allow_empty, host=_HOST, keep=keep)
        if outcome.status == "unchanged" or outcome.checkpoint is None:
            raise BadArguments(what="No changes to checkpoint")
        result = CheckpointResult(True, await self.get_checkpoint(outcome.checkpoint.id))  # with its counts
        await self._emit(CheckpointEvent.CHECKPOINT_CREATED, result.checkpoint)
        return result

    @_guarded(CheckpointResult.fail)
    async def restore(self, checkpoint_id: str | None = None, step: int | None = None) -> CheckpointResult:
        """Go back to a checkpoint, or to the newest one of a step."""
        if checkpoint_id is not None and step is not None:
            raise BadArguments(what="Provide either checkpoint_id or step, not both")
        if step is not None:
            found = await self.get_checkpoint_by_step(step)
            if found is None:
                raise BadArguments(what=f"No checkpoint found for step {step}")
            checkpoint_id = found.id
        if not checkpoint_id:
            raise BadArguments(what="No checkpoint id or step provided")
        target = _as_praisonai((await self._manager.restore(self.workspace_dir, checkpoint_id)).target)
        await self._emit(CheckpointEvent.CHECKPOINT_RESTORED, target)
        return CheckpointResult.ok(target)

    @_guarded(CheckpointResult.fail)
    async def rewind(self, steps: int = 1) -> CheckpointResult:
        """Go back `steps` saved checkpoints from where the workspace is now."""
        if steps < 1:
            raise BadArguments(what="steps must be >= 1")
        saved = [each.id for each in await self._saved()]
        at = await self._manager.position(self.workspace_dir, _HOST) if saved else None
        target = (saved.index(at.id) if at is not None else 0) + steps
        if target >= len(saved):
            raise BadArguments(what=f"Cannot rewind {steps} step(s): only {len(saved)} checkpoint(s) available")
        return await self.restore(saved[target])

    async def _saved(self) -> list[Taken]:
        """What this service saved, newest first, without the states that restores saved for `shadowsnap undo`."""
        with suppress(NoSuchProject):
            return await self._manager.list_checkpoints(self.workspace_dir, host=_HOST)
        return []

    @_guarded(lambda _: list[Checkpoint]())
    async def list_checkpoints(self, limit: int | None = 50) -> list[Checkpoint]:
        return [_as_praisonai(each) for each in (await self._saved())[:limit]]

    async def get_checkpoint(self, checkpoint_id: str) -> Checkpoint | None:
        """The checkpoint with this id or prefix of an id."""
        listed = await self.list_checkpoints(None) if checkpoint_id else []
        return next((each for each in listed if each.id.startswith(checkpoint_id)), None)

    async def get_checkpoint_by_step(self, step: int) -> Checkpoint | None:
        """The newest checkpoint of a step."""
        return next((each for each in await self.list_checkpoints(None) if each.step == step), None)

    @_guarded(lambda _: CheckpointDiff("", ""))
    async def diff(self, from_id: str | None = None, to_id: str | None = None) -> CheckpointDiff:
        """By default from the checkpoint before the last (or the only one) to the files as they are."""
        newest = [each.id for each in (await self._saved())[:2]]
        if from_id is None and not newest:
            return CheckpointDiff("", "")
        found = await self._manager.diff(self.workspace_dir, from_id or newest[-1], to_id)
        paths = [change.path for change in found.changes]
        before = await self._manager.texts(self.workspace_dir, found.from_id, paths)
        after = await self._manager.texts(self.workspace_dir, found.to_id or "@", paths)
        files = [
            FileDiff(
                change.path, os.path.join(self.workspace_dir, change.path),
                change.status if change.status in ("added", "deleted") else "modified",
                change.insertions or 0, change.deletions or 0, before.get(change.path), after.get(change.path),
            )
            for change in found.changes
        ]  # fmt: skip
        return CheckpointDiff(found.from_id[:8], found.to_id and found.to_id[:8], files, diff_content=found.text)

    @_guarded(lambda _: False)
    async def delete(self, checkpoint_id: str) -> bool:
        """Whether the checkpoint was there, and is gone now. All others keep their ids, and those that other hosts
        took of the workspace stay."""
        found = await self.get_checkpoint(checkpoint_id)
        return found is not None and bool(await self._manager.delete(self.workspace_dir, found.id))

    async def delete_all(self) -> bool:
        """Delete every checkpoint of this workspace that this service recorded, and what PraisonAI itself left."""
        try:
            with suppress(NoSuchProject):  # there were none
                await self._manager.clear(self.workspace_dir, host=_HOST)
            await asyncio.to_thread(remove_tree, Path(self.checkpoint_dir))
        except ERRORS:
            return False
        self.is_initialized = False
        return True

    async def cleanup(self) -> None:
        """End the use of this service; the checkpoints stay."""
        self.is_initialized = False


def _as_praisonai(taken: Taken) -> Checkpoint:
    """Convert a checkpoint to PraisonAI's type."""
    tag = _STEP.match(taken.reason)
    counts = (taken.files_changed or 0, taken.insertions or 0, taken.deletions or 0)
    return Checkpoint(taken.id, taken.short_id, taken.reason, taken.created_at, *counts, tag and int(tag[1]))
