"""Strands Agents: a snapshot before the first tool of a run that may write.

    Agent(model=model, tools=[...], hooks=[SnapshotHooks(manager, "project")])
"""

from __future__ import annotations

from typing import Any

from shadowsnap.integrations.common import ById, PathLike, Runs, last_user_message, missing_framework, never_raises
from shadowsnap.manager import CheckpointManager

try:
    from strands.hooks import (
        AfterInvocationEvent,
        AfterToolCallEvent,
        BeforeInvocationEvent,
        BeforeToolCallEvent,
        HookProvider,
        HookRegistry,
    )

    if not hasattr(HookRegistry, "invoke_callbacks_async"):
        raise ImportError("this version does not await hooks that are coroutines")
except ImportError as problem:
    raise missing_framework("strands-agents 1.24 or newer", "strands") from problem


class SnapshotHooks(HookProvider):
    """One turn per call of the agent."""

    def __init__(
        self, manager: CheckpointManager, working_dir: PathLike | None = None, *, session_id: str | None = None
    ) -> None:
        self._runs = Runs(manager, working_dir, "strands")
        self._session_id = session_id

    def register_hooks(self, registry: Any, **more: Any) -> None:
        registry.add_callback(BeforeInvocationEvent, self._begin)
        registry.add_callback(BeforeToolCallEvent, self._before)
        registry.add_callback(AfterToolCallEvent, self._after)
        registry.add_callback(AfterInvocationEvent, self._end)

    @never_raises
    async def _begin(self, event: Any) -> None:
        self._runs.begin(ById(event.agent), self._session_id, last_user_message(getattr(event, "messages", None)))

    @never_raises
    async def _before(self, event: Any) -> None:
        use = event.tool_use
        await self._runs.before_tool_async(ById(event.agent), use["name"], use.get("input"))

    @never_raises
    async def _after(self, event: Any) -> None:
        use = event.tool_use
        await self._runs.after_tool_async(ById(event.agent), use["name"], use.get("input"))

    @never_raises
    async def _end(self, event: Any) -> None:
        await self._runs.end_async(ById(event.agent))
