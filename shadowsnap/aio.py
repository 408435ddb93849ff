"""The manager for programs with an event loop: every method of `CheckpointManager`, awaited, in threads.

A caller that is cancelled stops waiting; the operation is finished in its thread, so that nothing is left half
done, and the next call finds everything in order. Type checkers read `aio.pyi`, which
`scripts/reference` writes from the manager.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from types import TracebackType
from typing import Any, TypeVar

from shadowsnap.errors import StageClosed
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.restore.restore import Stage
from shadowsnap.settings import Settings

_Result = TypeVar("_Result")


class AsyncCheckpointManager:
    """`CheckpointManager`, whose methods are awaited. Listeners are called in those threads, too."""

    @wraps(CheckpointManager.__init__)
    def __init__(self, *args: Any, **settings: Any) -> None:
        self.sync = CheckpointManager(*args, **settings)
        """The manager that does the work; for callers that do not wait."""

    @classmethod
    @wraps(CheckpointManager.from_settings.__func__)
    async def from_settings(cls, *args: Any, **flags: Any) -> AsyncCheckpointManager:
        return cls.of(await asyncio.to_thread(CheckpointManager.from_settings, *args, **flags))

    @classmethod
    def of(cls, manager: CheckpointManager) -> AsyncCheckpointManager:
        """The same manager for a program with an event loop."""
        found = cls()
        found.sync = manager
        return found

    @property
    def settings(self) -> Settings:
        return self.sync.settings

    @property
    def warnings(self) -> list[str]:
        """What was ignored in settings files and variables, and why."""
        return self.sync.warnings

    @wraps(CheckpointManager.stage)
    def stage(self, *args: Any, **facts: Any) -> AsyncStage:
        return AsyncStage(lambda: self.sync.stage(*args, **facts))


def _awaited(name: str, method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    @wraps(method)
    async def call(self: AsyncCheckpointManager, *args: Any, **facts: Any) -> Any:
        return await asyncio.to_thread(getattr(self.sync, name), *args, **facts)

    return call


for _name, _method in inspect.getmembers(CheckpointManager, inspect.isfunction):
    if not _name.startswith("_") and _name != "stage":
        setattr(AsyncCheckpointManager, _name, _awaited(_name, _method))


class AsyncStage:
    """`async with manager.stage(...) as s:`, with `await s.commit(message)` and `await s.discard()`. A task that
    is cancelled inside leaves it as with any other exception: everything is put back first."""

    def __init__(self, make: Callable[[], Stage]) -> None:
        self._make = make
        self._stage: Stage | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """What was committed."""
        return self._stage.checkpoint if self._stage is not None else None

    @property
    def before(self) -> Checkpoint | None:
        return self._stage.before if self._stage is not None else None

    async def __aenter__(self) -> AsyncStage:
        try:
            await _to_the_end(self._begin)
        except asyncio.CancelledError:
            if self._stage is not None:  # the caller will never leave it
                await _to_the_end(self._stage.leave)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _to_the_end(partial(self._begun.__exit__, kind, error, trace))

    async def commit(self, message: str | None = None) -> Checkpoint:
        """Keep what was done, as a checkpoint that says why."""
        return await _to_the_end(partial(self._begun.commit, message))

    async def discard(self) -> RestoreResult:
        """Put everything back as it was when the stage began."""
        return await _to_the_end(self._begun.discard)

    @property
    def _begun(self) -> Stage:
        if self._stage is None:
            raise StageClosed(how="not begun")
        return self._stage

    def _begin(self) -> None:
        self._stage = self._make().__enter__()


async def _to_the_end(operation: Callable[[], _Result]) -> _Result:
    """Run it in a thread. A caller that is cancelled meanwhile waits until it is done: the files must not change
    any more behind the back of what comes next."""
    work = asyncio.ensure_future(asyncio.to_thread(operation))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                pass  # it is raised below, once
        if not work.cancelled():
            work.exception()  # seen, so that asyncio does not report it
        raise
