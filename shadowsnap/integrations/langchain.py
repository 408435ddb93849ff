"""LangChain: a snapshot before the first tool of a run that may write.

    create_agent(model, tools=[...], middleware=[SnapshotMiddleware(manager, "project")])
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from shadowsnap.integrations.common import PathLike, Runs, last_user_message, missing_framework, never_raises
from shadowsnap.manager import CheckpointManager

try:
    from typing import NotRequired

    from langchain.agents.middleware import AgentMiddleware
    from langchain.agents.middleware.types import AgentState, PrivateStateAttr
    from langgraph.config import get_config
except ImportError as problem:
    raise missing_framework("langchain 1.0 or newer", "langchain") from problem


class SnapshotState(AgentState[Any]):
    shadowsnap_run: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]
    """The id of the run. In the state, because one middleware serves many runs at the same time."""


class SnapshotMiddleware(AgentMiddleware):
    """One turn per `invoke`, `stream` and so on. The session is the thread, if there is one."""

    state_schema = SnapshotState

    def __init__(self, manager: CheckpointManager, working_dir: PathLike | None = None) -> None:
        super().__init__()
        self._runs = Runs(manager, working_dir, "langchain")

    @never_raises
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        run = uuid.uuid4().hex
        self._runs.begin(run, _thread(runtime), last_user_message(state.get("messages"), "type", "human"))
        return {"shadowsnap_run": run}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self.before_agent(state, runtime)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self._before(request)
        try:
            return handler(request)
        finally:
            self._after(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        await self._before_async(request)
        try:
            return await handler(request)
        finally:
            await self._after_async(request)

    def after_agent(self, state: Any, runtime: Any) -> None:
        self._runs.end(_run(state))

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        await self._runs.end_async(_run(state))

    @never_raises
    def _before(self, request: Any) -> None:
        self._runs.before_tool(*_call(request))

    @never_raises
    async def _before_async(self, request: Any) -> None:
        await self._runs.before_tool_async(*_call(request))

    @never_raises
    def _after(self, request: Any) -> None:
        self._runs.after_tool(*_call(request))

    @never_raises
    async def _after_async(self, request: Any) -> None:
        await self._runs.after_tool_async(*_call(request))


def _thread(runtime: Any) -> str | None:
    info = getattr(runtime, "execution_info", None)
    if info is not None:
        return getattr(info, "thread_id", None)
    try:  # an older langgraph
        return get_config().get("configurable", {}).get("thread_id")  # type: ignore[no-any-return]
    except RuntimeError:
        return None


def _call(request: Any) -> tuple[str, str, Any]:
    return _run(request.state), request.tool_call["name"], request.tool_call["args"]


def _run(state: Any) -> str:
    """The run of a state. A graph without our `before_agent` has none; then each call is a turn."""
    return (state.get("shadowsnap_run") if isinstance(state, dict) else None) or uuid.uuid4().hex
