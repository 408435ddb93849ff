"""Strands Agents: a snapshot before the first tool of a run that may write.

    Agent(model=model, tools=[...], hooks=[SnapshotHooks(manager, "project")])
"""

from __future__ import annotations

from typing import Any

from shadowsnap.integrations.common import PathLike, Runs, Same, harmless, last_of_person, needs
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
        raise ImportError("hooks that are coroutines would be called and never awaited")
except ImportError as problem:
    raise needs("strands-agents 1.24 or newer", "strands") from problem


class SnapshotHooks(HookProvider):
    """One turn per call of the agent."""

    def __init__(
        self, manager: CheckpointManager, working_dir: PathLike | None = None, *, session_id: str | None = None
    ) -> None:
        self._runs = Runs(manager, working_dir, "strands")
        self._session_id = session_id

    def register_hooks(self, registry: Any, **more: Any) -> None:
        registry.add_callback(BeforeInvocationEvent, self._begin)
        registry.add_callback(BeforeToolCallEvent, self._make_safe)
        registry.add_callback(AfterToolCallEvent, self._done)
        registry.add_callback(AfterInvocationEvent, self._end)

    @harmless
    async def _begin(self, event: Any) -> None:
        self._runs.begin(Same(event.agent), self._session_id, last_of_person(getattr(event, "messages", None)))

    @harmless
    async def _make_safe(self, event: Any) -> None:
        use = event.tool_use
        await self._runs.before_tool_elsewhere(Same(event.agent), use["name"], use.get("input"))

    @harmless
    async def _done(self, event: Any) -> None:
        use = event.tool_use
        await self._runs.after_tool_elsewhere(Same(event.agent), use["name"], use.get("input"))

    @harmless
    async def _end(self, event: Any) -> None:
        await self._runs.end_elsewhere(Same(event.agent))
