"""Pydantic AI: a snapshot before the first tool of a run that may write.

    Agent(model, tools=[...], capabilities=[SnapshotCapability(manager, "project")])
"""

from __future__ import annotations

from typing import Any

from shadowsnap.integrations.common import PathLike, Runs, missing_framework, never_raises
from shadowsnap.manager import CheckpointManager

try:
    from pydantic_ai.capabilities import AbstractCapability
except ImportError as problem:
    raise missing_framework("pydantic-ai 2.0 or newer", "pydantic-ai") from problem


class SnapshotCapability(AbstractCapability[Any]):
    """One turn per run. The session is the conversation."""

    def __init__(self, manager: CheckpointManager, working_dir: PathLike | None = None) -> None:
        self._runs = Runs(manager, working_dir, "pydantic-ai")

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        self._begin(ctx)
        try:
            return await handler()
        finally:
            await self._end(ctx)

    async def before_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        await self._before(ctx, call, args)
        return args

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:
        try:
            return await handler(args)
        finally:
            await self._after(ctx, call, args)

    @never_raises
    def _begin(self, ctx: Any) -> None:
        self._runs.begin(ctx.run_id, ctx.conversation_id, ctx.prompt)

    @never_raises
    async def _before(self, ctx: Any, call: Any, args: Any) -> None:
        await self._runs.before_tool_async(ctx.run_id, call.tool_name, args)

    @never_raises
    async def _after(self, ctx: Any, call: Any, args: Any) -> None:
        await self._runs.after_tool_async(ctx.run_id, call.tool_name, args)

    @never_raises
    async def _end(self, ctx: Any) -> None:
        await self._runs.end_async(ctx.run_id)
