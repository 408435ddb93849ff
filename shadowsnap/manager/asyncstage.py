"""A stage for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import TypeVar

from shadowsnap.errors import StageClosed
from shadowsnap.model import Checkpoint, RestoreResult
from shadowsnap.restore.stage import Stage

_Result = TypeVar("_Result")


class AsyncStage:
    """`async with manager.stage(...) as s:`, with `await s.commit(message)` and `await s.discard()`. Someone who
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
            if self._stage is not None:  # nobody will ever leave it
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


async def _to_the_end(deed: Callable[[], _Result]) -> _Result:
    """Do it in a thread. Who is cancelled meanwhile waits until it is done: the files are not to change
    any more behind the back of what comes next."""
    work = asyncio.ensure_future(asyncio.to_thread(deed))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError:
                pass  # it is told below, once
        if not work.cancelled():
            work.exception()  # seen, so that nobody complains about it
        raise
