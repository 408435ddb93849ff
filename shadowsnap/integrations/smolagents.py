"""smolagents: a snapshot before the first tool of a run that may write.

    agent = protect(ToolCallingAgent(tools=[...], model=model), manager, "project")
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from shadowsnap.integrations.common import ById, PathLike, Runs, missing_framework
from shadowsnap.manager import CheckpointManager

try:
    from smolagents import LocalPythonExecutor, Tool
except ImportError as problem:
    raise missing_framework("smolagents 1.22 or newer", "smolagents") from problem

_Agent = TypeVar("_Agent")


def protect(
    agent: _Agent,
    manager: CheckpointManager,
    working_dir: PathLike | None = None,
    *,
    session_id: str | None = None,
) -> _Agent:
    """Add snapshots to an agent, and return it. One turn per run. The code of a `CodeAgent` counts as a tool
    that may write anything."""
    # Step callbacks of smolagents come after the step. Only these methods run before a tool.
    runs, run = Runs(manager, working_dir, "smolagents"), ById(agent)
    patched: Any = agent
    if hasattr(agent, "execute_tool_call"):
        patched.execute_tool_call = _before_calls(patched.execute_tool_call, runs, run)
    if hasattr(agent, "python_executor"):
        patched.python_executor = _Executor(patched.python_executor, runs, run)
    patched.run = _as_a_turn(patched.run, runs, run, session_id)
    return agent


def _as_a_turn(real: Callable[..., Any], runs: Runs, run: ById, session_id: str | None) -> Callable[..., Any]:
    @functools.wraps(real)
    def turn(task: Any, *args: Any, **named: Any) -> Any:
        runs.begin(run, session_id, task)
        streams = False
        try:
            result = real(task, *args, **named)
            streams = isinstance(result, Iterator)
            return _until_over(result, runs, run) if streams else result
        finally:
            if not streams:
                runs.end(run)

    return turn


def _until_over(steps: Iterator[Any], runs: Runs, run: ById) -> Iterator[Any]:
    try:
        yield from steps
    finally:
        runs.end(run)


def _before_calls(real: Callable[..., Any], runs: Runs, run: ById) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute_tool_call(tool_name: str, arguments: Any) -> Any:
        runs.before_tool(run, tool_name, arguments)
        try:
            return real(tool_name, arguments)
        finally:
            runs.after_tool(run, tool_name, arguments)

    return execute_tool_call


class _Executor:
    """A Python executor that takes a snapshot before it runs code."""

    def __init__(self, real: Any, runs: Runs, run: ById) -> None:
        self._real, self._runs, self._run = real, runs, run

    def __call__(self, code: str) -> Any:
        self._runs.before_tool(self._run, "python_interpreter", {"code": code})
        try:
            return self._real(code)
        finally:
            self._runs.after_tool(self._run, "python_interpreter", {"code": code})

    def __getattr__(self, name: str) -> Any:
        if name == "_real":  # `copy` asks before it is set
            raise AttributeError(name)
        return getattr(self._real, name)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Wrap the tools: their calls name files. (Remote executors run their own copies of the tools.)"""
        if isinstance(self._real, LocalPythonExecutor):
            tools = {name: self._watched(name, tool) for name, tool in tools.items()}
        self._real.send_tools(tools)

    def _watched(self, name: str, tool: Any) -> Any:
        if not isinstance(tool, Tool):
            return tool

        @functools.wraps(tool.forward)
        def watched(*args: Any, **named: Any) -> Any:
            arguments = {**dict(zip(tool.inputs, args, strict=False)), **named}
            self._runs.before_tool(self._run, name, arguments)
            try:
                return tool(*args, **named)
            finally:
                self._runs.after_tool(self._run, name, arguments)

        return watched
