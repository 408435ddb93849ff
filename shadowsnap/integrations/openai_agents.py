"""OpenAI Agents SDK: a snapshot before the first tool of a run that may write.

    await Runner.run(agent, "tidy up", hooks=SnapshotHooks(manager, "project"))
"""

from __future__ import annotations

import json
from typing import Any

from shadowsnap.integrations.common import ById, PathLike, Runs, last_user_message, missing_framework, never_raises
from shadowsnap.manager import CheckpointManager

try:
    from agents import RunHooks
except ImportError as problem:
    raise missing_framework("openai-agents 0.8 or newer", "openai-agents") from problem


class SnapshotHooks(RunHooks[Any]):
    """One turn per run, across handoffs to other agents. For an agent as a tool, give `as_tool` the same
    hooks: its run is a turn of its own."""

    def __init__(
        self, manager: CheckpointManager, working_dir: PathLike | None = None, *, session_id: str | None = None
    ) -> None:
        self._runs = Runs(manager, working_dir, "openai-agents")
        self._session_id = session_id
        self._handed_over: set[ById] = set()

    @never_raises
    async def on_agent_start(self, context: Any, agent: Any) -> None:
        run = _run(context)
        if run in self._handed_over:
            self._handed_over.discard(run)
            return
        self._runs.begin(run, self._session_id, last_user_message(getattr(context, "turn_input", None)))

    @never_raises
    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._handed_over.add(_run(context))

    @never_raises
    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        await self._runs.before_tool_async(_run(context), tool.name, _arguments(context))

    @never_raises
    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        await self._runs.after_tool_async(_run(context), tool.name, _arguments(context))

    @never_raises
    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        await self._runs.end_async(_run(context))


def _run(context: Any) -> ById:
    """Each hook gets a new context object. The contexts of one run share the object that counts tokens."""
    return ById(getattr(context, "usage", context))


def _arguments(context: Any) -> Any:
    """The arguments of a tool call. (Hosted shell and patch tools have none.)"""
    text = getattr(context, "tool_arguments", None)
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text
