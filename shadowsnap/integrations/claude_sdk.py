"""Claude Agent SDK: a snapshot before the first tool of a turn that may write.

    ClaudeAgentOptions(hooks=snapshot_hooks(manager), cwd="project")
"""

from __future__ import annotations

from typing import Any

from shadowsnap.integrations.common import PathLike, Runs, harmless, needs
from shadowsnap.manager import CheckpointManager

try:
    from anyio import to_thread  # not asyncio's: the SDK runs on trio as well
    from claude_agent_sdk import HookMatcher
except ImportError as problem:
    raise needs("claude-agent-sdk 0.1.66 or newer", "claude-sdk") from problem


def snapshot_hooks(
    manager: CheckpointManager,
    working_dir: PathLike | None = None,
    *,
    hooks: dict[Any, list[Any]] | None = None,
) -> dict[Any, list[Any]]:
    """For `ClaudeAgentOptions(hooks=...)`, together with further `hooks` of yours. One turn per prompt;
    the directory is the one Claude works in, if none is given."""
    runs = Runs(manager, working_dir, "claude")
    ours = _Hooks(runs)
    merged = {event: list(matchers) for event, matchers in (hooks or {}).items()}
    wanted = {"UserPromptSubmit": ours.prompted, "PreToolUse": ours.before_tool, "Stop": ours.stopped}
    if runs.each_call:
        wanted |= {"PostToolUse": ours.after_tool, "PostToolUseFailure": ours.after_tool}
    for event, hook in wanted.items():
        # First: a hook that changes what is going to happen comes after the state is safe.
        merged[event] = [HookMatcher(hooks=[hook]), *merged.get(event, [])]
    return merged


class _Hooks:
    """Each answers `{}`: no opinion. Anything else might allow what the person is to be asked about."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._prompts: dict[str, str] = {}

    async def prompted(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        self._begin(event)
        return {}

    async def before_tool(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        await self._make_safe(event)
        return {}

    async def after_tool(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        await self._done(event)
        return {}

    async def stopped(self, event: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        await self._end(event)
        return {}

    @harmless
    def _begin(self, event: Any) -> None:
        session = event.get("session_id")
        self._prompts.pop(session, None)
        self._runs.begin(session, session, event.get("prompt"))

    @harmless
    async def _make_safe(self, event: Any) -> None:
        session, prompt = event.get("session_id"), event.get("prompt_id")
        # Not every prompt is told of: some come out of a schedule.
        if prompt and self._prompts.setdefault(session, prompt) != prompt:
            self._runs.begin(session, session)
            self._prompts[session] = prompt
        await to_thread.run_sync(self._runs.before_tool, *_call(event))

    @harmless
    async def _done(self, event: Any) -> None:
        await to_thread.run_sync(self._runs.after_tool, *_call(event))

    @harmless
    async def _end(self, event: Any) -> None:
        session = event.get("session_id")
        self._prompts.pop(session, None)
        await to_thread.run_sync(self._runs.end, session)


def _call(event: Any) -> tuple[Any, str, Any, Any]:
    return event.get("session_id"), event["tool_name"], event.get("tool_input"), event.get("cwd")
