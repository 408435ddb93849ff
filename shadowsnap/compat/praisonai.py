"""The checkpoint service of PraisonAI, served by shadowsnap.

`from shadowsnap.compat.praisonai import CheckpointService` in place of `praisonaiagents.checkpoints`: the same
methods, results and events.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap.compat.common import drop_own, open_manager, own_checkpoints
from shadowsnap.compat.praisonai_types import (
    EMAIL,
    NAME,
    STEP,
    Checkpoint,
    CheckpointConfig,
    CheckpointDiff,
    CheckpointEvent,
    CheckpointResult,
    FileDiff,
    diff_of,
    shown,
)
from shadowsnap.errors import BadArguments, NoSuchProject, NothingToImport, ShadowsnapError
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.model import Checkpoint as Taken
from shadowsnap.snapshot.tools import refusal

__all__ = [
    "Checkpoint", "CheckpointConfig", "CheckpointDiff", "CheckpointEvent", "CheckpointResult", "CheckpointService",
    "FileDiff",
]  # fmt: skip

_FACE = "praisonai"
_PROTECTED = ("~/Desktop", "~/Documents", "~/Downloads")
_ERRORS = (ShadowsnapError, OSError, ValueError)
_T = TypeVar("_T")


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
        user_name: str = NAME,
        user_email: str = EMAIL,
    ) -> None:
        self.config = CheckpointConfig(
            workspace_dir, storage_dir, enabled, auto_checkpoint, max_checkpoints, user_name, user_email
        )
        self.is_initialized = False
        self.checkpoint_dir = str(self.config.storage_dir)
        self.git_dir = os.path.join(self.checkpoint_dir, "store")
        self.workspace_dir = self.config.workspace_dir
        self._manager = open_manager(self.checkpoint_dir, self.config.exclude_patterns)
        self._at: str | None = None
        self._handlers: dict[CheckpointEvent, list[Callable[[Any], object]]] = {}

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
            try:
                self._manager.import_from(left)
            except NothingToImport:
                pass

    async def save(self, message: str, allow_empty: bool = False, step: int | None = None) -> CheckpointResult:
        """A step given here beats one that the message names."""
        if step is not None and step < 0:
            return CheckpointResult.fail("step must be a non-negative integer")
        if step is not None:
            message = f"[step-{step}] {STEP.sub('', message, count=1)}"
        result = await self._attempt(lambda: self._save(message, allow_empty), CheckpointEvent.CHECKPOINT_CREATED)
        removed = await self._ask(self._prune, 0) if result.success else 0
        if removed:
            facts = {"action": "pruned", "removed_count": removed}
            await self._emit(CheckpointEvent.CHECKPOINTS_PRUNED, facts)
        return result

    def _save(self, message: str, allow_empty: bool) -> Taken:
        at = self._position()
        if at is not None and not allow_empty and not self._manager.diff(self.workspace_dir, at.id):
            raise BadArguments(what="No changes to checkpoint")
        outcome = self._manager.snapshot(self.workspace_dir, message, always=True, face=_FACE)
        if outcome.checkpoint is None:
            raise BadArguments(what=str(outcome.error or outcome.status))
        if at is None and not allow_empty and outcome.checkpoint.tree == EMPTY_TREE:
            self._manager.delete(self.workspace_dir, outcome.checkpoint.id)
            raise BadArguments(what="No changes to checkpoint")
        self._at = outcome.checkpoint.id
        return self._manager.list_checkpoints(self.workspace_dir, limit=1)[0]

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
        if checkpoint_id is None and step is None:
            return CheckpointResult.fail("No checkpoint id or step provided")
        return await self._attempt(
            lambda: self._restore(checkpoint_id or self._of_step(step)), CheckpointEvent.CHECKPOINT_RESTORED
        )

    def _of_step(self, step: int | None) -> str:
        for each in self._saved():
            if shown(each).step == step:
                return each.id
        raise BadArguments(what=f"No checkpoint found for step {step}")

    def _restore(self, checkpoint_id: str) -> Taken:
        target = self._manager.restore(self.workspace_dir, checkpoint_id).target
        self._at = target.id
        return target

    async def rewind(self, steps: int = 1) -> CheckpointResult:
        """Go back so many saved checkpoints from where the workspace is now."""
        if steps < 1:
            return CheckpointResult.fail("steps must be >= 1")
        return await self._attempt(lambda: self._rewind(steps), CheckpointEvent.CHECKPOINT_RESTORED)

    def _rewind(self, steps: int) -> Taken:
        saved, at = self._saved(), self._position()
        target = saved.index(at) + steps if at is not None else steps
        if target >= len(saved):
            raise BadArguments(what=f"Cannot rewind {steps} step(s): only {len(saved)} checkpoint(s) available")
        return self._restore(saved[target].id)

    def _position(self) -> Taken | None:
        """The checkpoint that the workspace is at: the one that was saved or restored last. In a new process, the
        newest that holds just these files; if none does, the newest."""
        saved = self._saved()
        for each in saved:
            if each.id == self._at or self._at is None and not self._manager.diff(self.workspace_dir, each.id):
                return each
        return saved[0] if saved else None

    def _saved(self) -> list[Taken]:
        """What was saved, newest first. The states that restores put by are for `shadowsnap undo`."""
        try:
            return [each for each in self._manager.list_checkpoints(self.workspace_dir) if _is_saved(each)]
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
        return await self._ask(lambda: [shown(each) for each in self._saved()], list[Checkpoint]())

    async def diff(self, from_id: str | None = None, to_id: str | None = None) -> CheckpointDiff:
        """By default from the checkpoint before the last (or the only one) to the files as they are."""
        return await self._ask(lambda: self._diff(from_id, to_id), CheckpointDiff("", ""))

    def _diff(self, from_id: str | None, to_id: str | None) -> CheckpointDiff:
        if from_id is None:
            newest = self._saved()[:2]
            if not newest:
                return CheckpointDiff("", "")
            from_id = newest[-1].id
        return diff_of(self._manager, self.workspace_dir, self._manager.diff(self.workspace_dir, from_id, to_id))

    async def delete(self, checkpoint_id: str) -> bool:
        """Whether the checkpoint was there, and is gone now. All others keep their ids."""
        return await self._ask(lambda: bool(self._manager.delete(self.workspace_dir, checkpoint_id)), False)

    async def delete_all(self) -> bool:
        """Delete every checkpoint of this workspace that this service recorded."""
        try:
            await asyncio.to_thread(drop_own, self._manager, self.workspace_dir, _FACE)
        except NoSuchProject:
            pass  # there were none
        except _ERRORS:
            return False
        self.is_initialized = False
        return True

    async def cleanup(self) -> None:
        """End the use of this service; the checkpoints stay."""
        self.is_initialized = False

    async def _attempt(self, operation: Callable[[], Taken], event: CheckpointEvent) -> CheckpointResult:
        if not self.is_initialized:
            return CheckpointResult.fail("Service not initialized")
        try:
            checkpoint = shown(await asyncio.to_thread(operation))
        except _ERRORS as problem:
            if not isinstance(problem, BadArguments):
                await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return CheckpointResult.fail(str(problem))
        await self._emit(event, checkpoint)
        return CheckpointResult.ok(checkpoint)

    async def _ask(self, question: Callable[[], _T], otherwise: _T) -> _T:
        if not self.is_initialized:
            return otherwise
        try:
            return await asyncio.to_thread(question)
        except _ERRORS as problem:
            await self._emit(CheckpointEvent.ERROR, {"error": str(problem)})
            return otherwise

    async def _emit(self, event: CheckpointEvent, data: Any) -> None:
        """Call the handlers. What they raise is reported by the event loop, and ends nothing here."""
        for handler in self._handlers.get(event, ()):
            asyncio.get_running_loop().call_soon(handler, data)
        await asyncio.sleep(0)


def _is_saved(checkpoint: Taken) -> bool:
    return checkpoint.kind != "pre-restore"
