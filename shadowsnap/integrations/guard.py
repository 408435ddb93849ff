"""A decorator for plain Python functions that an agent loop calls as tools.

    protected = guard(manager)

    @protected
    def write_file(path, content): ...

Before each call the manager takes a snapshot if one is needed. It never raises into the call, and for
an async function it runs in a worker thread.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from shadowsnap.manager import CheckpointManager

_Tool = TypeVar("_Tool", bound=Callable[..., Any])


def guard(
    manager: CheckpointManager, working_dir: str | os.PathLike[str] | None = None, *, name: str | None = None
) -> Callable[[_Tool], _Tool]:
    """A decorator for tools that work in `working_dir`, by default the current directory at each call. The name
    of the function, or `name`, decides whether the tool may write."""

    def decorate(tool: _Tool) -> _Tool:
        tool_name = name or str(getattr(tool, "__name__", type(tool).__name__))

        def take_snapshot(args: tuple[Any, ...], named: dict[str, Any]) -> None:
            manager.before_tool(tool_name, _arguments(tool, args, named), working_dir)

        return functools.wraps(tool)(_wrapper(tool, take_snapshot))  # type: ignore[return-value]

    return decorate


def _wrapper(tool: Callable[..., Any], take_snapshot: Callable[..., None]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(tool):

        async def guarded_stream(*args: Any, **named: Any) -> AsyncIterator[Any]:
            await asyncio.to_thread(take_snapshot, args, named)
            async for item in tool(*args, **named):
                yield item

        return guarded_stream
    if inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(getattr(tool, "__call__", None)):  # noqa: B004

        async def guarded_coroutine(*args: Any, **named: Any) -> Any:
            await asyncio.to_thread(take_snapshot, args, named)
            return await tool(*args, **named)

        return guarded_coroutine

    def guarded(*args: Any, **named: Any) -> Any:
        take_snapshot(args, named)
        return tool(*args, **named)

    return guarded


def _arguments(tool: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, as a tool input has them."""
    try:
        bound = inspect.signature(tool).bind(*args, **named)
    except (TypeError, ValueError):  # the call itself raises it
        return named
    found = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name, {})
    return {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in found.items()}
