"""Claude Agent SDK: a snapshot before the first tool of a turn that may write.

    ClaudeAgentOptions(hooks=snapshot_hooks(manager), cwd="project")
"""

from __future__ import annotations

from typing import Any

from shadowsnap.integrations.common import PathLike, Runs, missing_framework, never_raises
from shadowsnap.manager import CheckpointManager

try:
    from anyio import to_thread  # not asyncio's: the SDK runs on trio as well
    from claude_agent_sdk import HookMatcher
except ImportError as problem:
    raise missing_framework("claude-agent-sdk 0.1.66 or newer", "claude-sdk") from problem


def snapshot_hooks(
    manager: CheckpointManager,
    working_dir: PathLike | None = None,
    *,
    hooks: dict[Any, list[Any]] | None = None,
) -> dict[Any, list[Any]]:
    """For `ClaudeAgentOptions(hooks=...)`, together with `hooks` of your own. One turn per prompt. The default
    directory is the one that Claude works in."""
    runs = Runs(manager, working_dir, "claude")
    ours = _Hooks(runs)
    merged = {event: list(matchers) for event, matchers in (hooks or {}).items()}
    wanted = {"UserPromptSubmit": ours.prompted, "PreToolUse": ours.before_tool, "Stop": ours.stopped}
    if runs.wants_each_call:
        wanted |= {"PostToolUse": ours.after_tool, "PostToolUseFailure": ours.after_tool}
    for event, hook in wanted.items():
        # First: other hooks may already change files.
        merged[event] = [HookMatcher(hooks=[hook]), *merged.get(event, [])]
    return merged


class _Hooks:
    """Each hook returns `{}`, which decides nothing. Anything else could skip a question to the user."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._prompts: dict[str, str] = {}

    async def prompted(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        self._begin(event)
        return {}

    async def before_tool(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        await self._before(event)
        return {}

    async def after_tool(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        await self._after(event)
        return {}

    async def stopped(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        await self._end(event)
        return {}

    @never_raises
    def _begin(self, event: Any) -> None:
        session = event.get("session_id")
        self._prompts.pop(session, None)
        self._runs.begin(session, session, event.get("prompt"))

    @never_raises
    async def _before(self, event: Any) -> None:
        session, prompt = event.get("session_id"), event.get("prompt_id")
        # Prompts from a schedule have no prompt event.
        if prompt and self._prompts.setdefault(session, prompt) != prompt:
            self._runs.begin(session, session)
            self._prompts[session] = prompt
        await to_thread.run_sync(self._runs.before_tool, *_call(event))

    @never_raises
    async def _after(self, event: Any) -> None:
        await to_thread.run_sync(self._runs.after_tool, *_call(event))

    @never_raises
    async def _end(self, event: Any) -> None:
        session = event.get("session_id")
        self._prompts.pop(session, None)
        await to_thread.run_sync(self._runs.end, session)


def _call(event: Any) -> tuple[Any, str, Any, Any]:
    return event.get("session_id"), event["tool_name"], event.get("tool_input"), event.get("cwd")
