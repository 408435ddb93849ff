"""Google ADK: a snapshot before the first tool of a run that may write.

    Runner(agent=agent, app_name="app", session_service=..., plugins=[SnapshotPlugin(manager, "project")])
"""

from __future__ import annotations

from typing import Any

from shadowsnap.integrations.common import PathLike, Runs, missing_framework, never_raises
from shadowsnap.manager import CheckpointManager

try:
    from google.adk.plugins.base_plugin import BasePlugin
except ImportError as problem:
    raise missing_framework("google-adk 1.18 or newer", "google-adk") from problem


class SnapshotPlugin(BasePlugin):
    """One turn per invocation, for all agents of a runner. The callbacks return None: any other value would
    replace what the runner is about to do."""

    def __init__(
        self, manager: CheckpointManager, working_dir: PathLike | None = None, name: str = "shadowsnap"
    ) -> None:
        super().__init__(name=name)
        self._runs = Runs(manager, working_dir, "google-adk")

    @never_raises
    async def before_run_callback(self, *, invocation_context: Any) -> None:
        session = getattr(invocation_context.session, "id", None)
        self._runs.begin(invocation_context.invocation_id, session, invocation_context.user_content)

    @never_raises
    async def before_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any) -> None:
        await self._runs.before_tool_async(tool_context.invocation_id, tool.name, tool_args)

    @never_raises
    async def after_tool_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, result: Any) -> None:
        await self._runs.after_tool_async(tool_context.invocation_id, tool.name, tool_args)

    @never_raises
    async def on_tool_error_callback(self, *, tool: Any, tool_args: Any, tool_context: Any, error: Any) -> None:
        await self._runs.after_tool_async(tool_context.invocation_id, tool.name, tool_args)

    @never_raises
    async def after_run_callback(self, *, invocation_context: Any) -> None:
        await self._runs.end_async(invocation_context.invocation_id)

    @never_raises
    async def on_run_error_callback(self, *, invocation_context: Any, error: Any) -> None:
        await self._runs.end_async(invocation_context.invocation_id)
