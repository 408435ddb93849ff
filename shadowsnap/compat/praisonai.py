"""The checkpoint service of PraisonAI, served by shadowsnap.

`from shadowsnap.compat.praisonai import CheckpointService` in place of `praisonaiagents.checkpoints`.
Unlike there, nothing is lost by a restore: later checkpoints stay listed, and edits that were not
saved are a checkpoint of their own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from shadowsnap.compat.praisonai_types import (
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
)
from shadowsnap.compat.praisonai_workspace import STEP, Workspace, shown
from shadowsnap.errors import BadArguments, ShadowsnapError
from shadowsnap.model import Checkpoint as Taken

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
