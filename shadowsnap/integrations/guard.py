"""Protecting plain Python functions that an agent loop calls as tools.

    protected = guard(manager)

    @protected
    def write_file(path, content): ...

Before each call the manager makes sure that what the function may write to is safe. It never
raises into the call, and an async function does not wait on the event loop's thread.
"""

from __future__ import annotations

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
    """A decorator for tools that work in `working_dir` (the current directory at each call, if
    not given). A tool counts by its function's name, or by `name`."""

    def decorate(tool: _Tool) -> _Tool:
        tool_name = name or str(getattr(tool, "__name__", type(tool).__name__))

        def make_safe(args: tuple[Any, ...], named: dict[str, Any]) -> None:
            manager.before_tool(tool_name, _arguments(tool, args, named), working_dir)

        return functools.wraps(tool)(_wrapper(tool, make_safe))  # type: ignore[return-value]

    return decorate


def _wrapper(tool: Callable[..., Any], make_safe: Callable[..., None]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(tool):

        async def guarded_stream(*args: Any, **named: Any) -> AsyncIterator[Any]:
            await _in_a_thread(make_safe, args, named)
            async for item in tool(*args, **named):
                yield item

        return guarded_stream
    if inspect.iscoroutinefunction(tool) or inspect.iscoroutinefunction(getattr(tool, "__call__", None)):  # noqa: B004

        async def guarded_coroutine(*args: Any, **named: Any) -> Any:
            await _in_a_thread(make_safe, args, named)
            return await tool(*args, **named)

        return guarded_coroutine

    def guarded(*args: Any, **named: Any) -> Any:
        make_safe(args, named)
        return tool(*args, **named)

    return guarded


async def _in_a_thread(make_safe: Callable[..., None], args: tuple[Any, ...], named: dict[str, Any]) -> None:
    import asyncio

    await asyncio.to_thread(make_safe, args, named)


def _arguments(tool: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name, as a tool input has them."""
    try:
        bound = inspect.signature(tool).bind(*args, **named)
    except (TypeError, ValueError):  # the call itself will say what is wrong with it
        return named
    found = dict(bound.arguments)
    for parameter in bound.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found |= found.pop(parameter.name, {})
    return {key: os.fspath(value) if isinstance(value, os.PathLike) else value for key, value in found.items()}
