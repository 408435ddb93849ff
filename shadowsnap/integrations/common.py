"""What the adapters of agent frameworks share.

An adapter reports when a run begins and ends and which tool is about to be called. `Runs` makes a turn
of each run, and takes the snapshot before the first tool that may write. Nothing here raises into a
run, and nothing of it is imported before an adapter is.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import logging
import os
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from shadowsnap.manager import CheckpointManager

PathLike = str | os.PathLike[str]

# Some frameworks do not report the end of a run that fails. If a forgotten run continues after all, it takes one
# more snapshot.
_MAX_RUNS = 256
_MAX_DEPTH = 6

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def missing_framework(package: str, extra: str) -> ImportError:
    """The error of an adapter whose framework is not installed, or too old."""
    return ImportError(f"this adapter needs {package}: pip install 'shadowsnap[{extra}]'", name=package)


def never_raises(hook: _Hook) -> _Hook:
    """Decorator for functions that a framework calls. An exception is logged and dropped, because most
    frameworks end the run when a hook raises."""
    if inspect.iscoroutinefunction(hook):

        @functools.wraps(hook)
        async def guarded_coroutine(*args: Any, **named: Any) -> Any:
            try:
                return await hook(*args, **named)
            except Exception:
                return _log_failure(hook)

        return cast(_Hook, guarded_coroutine)

    @functools.wraps(hook)
    def guarded(*args: Any, **named: Any) -> Any:
        try:
            return hook(*args, **named)
        except Exception:
            return _log_failure(hook)

    return cast(_Hook, guarded)


def _log_failure(hook: Callable[..., Any]) -> None:
    logging.getLogger("shadowsnap").exception("%s failed; the run goes on", hook.__qualname__)


class Runs:
    """The current runs of one adapter, each with a turn of its own. One adapter serves any number of them at
    the same time. Any hashable value that the framework has for a run identifies it."""

    def __init__(self, manager: CheckpointManager, working_dir: PathLike | None, agent: str) -> None:
        self._manager, self._agent = manager, agent
        self._working_dir = os.path.abspath(working_dir) if working_dir else None
        self._managers: dict[Hashable, CheckpointManager] = {}
        self._lock = threading.Lock()

    @never_raises
    def begin(self, run: Hashable, session_id: object = None, prompt: object = None) -> None:
        """Begin a turn for a new message of the user; `prompt` in any form that `text_of` understands."""
        with self._lock:
            self._new_manager(run, str(session_id) if session_id else None, text_of(prompt) or None)

    @never_raises
    def before_tool(self, run: Hashable, tool: str, arguments: Any = None, cwd: PathLike | None = None) -> None:
        """Take the snapshot if one is needed. It blocks. An unknown run begins here."""
        with self._lock:
            manager = self._managers.get(run) or self._new_manager(run)
        manager.before_tool(tool, arguments, self._working_dir or cwd)

    @never_raises
    def after_tool(self, run: Hashable, tool: str, arguments: Any = None, cwd: PathLike | None = None) -> None:
        """Report that a tool is done, with the same arguments as `before_tool`. It blocks."""
        with self._lock:
            manager = self._managers.get(run)
        if manager is not None:
            manager.after_tool(tool, arguments, self._working_dir or cwd)

    @never_raises
    def end(self, run: Hashable) -> None:
        """End the turn of a run. It blocks."""
        with self._lock:
            manager = self._managers.pop(run, None)
        if manager is not None:
            manager.end_turn()

    @never_raises
    async def before_tool_async(self, run: Hashable, tool: str, arguments: Any = None) -> None:
        """The same in a worker thread."""
        await asyncio.to_thread(self.before_tool, run, tool, arguments)

    @never_raises
    async def after_tool_async(self, run: Hashable, tool: str, arguments: Any = None) -> None:
        if self.wants_each_call:
            await asyncio.to_thread(self.after_tool, run, tool, arguments)

    @never_raises
    async def end_async(self, run: Hashable) -> None:
        await asyncio.to_thread(self.end, run)

    @property
    def wants_each_call(self) -> bool:
        """Whether the manager takes a snapshot after each tool call as well."""
        return self._manager.settings.granularity == "tool"

    def _new_manager(
        self, run: Hashable, session_id: str | None = None, prompt: str | None = None
    ) -> CheckpointManager:
        manager = copy.copy(self._manager)  # a manager has one turn at a time
        manager.new_turn(session_id, prompt, agent=self._agent)
        self._managers.pop(run, None)
        self._managers[run] = manager
        while len(self._managers) > _MAX_RUNS:
            del self._managers[next(iter(self._managers))]
        return manager


class ById:
    """A key that compares an object by identity, and keeps it alive."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def text_of(message: object) -> str:
    """The text of a message. Every framework has its own classes for messages, but the fields have the same
    names: text, content, parts."""
    return "\n".join(_texts(message, _MAX_DEPTH))


def _texts(value: object, depth: int) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    if not depth or value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _texts(item, depth - 1)]
    for name in ("text", "content", "parts"):
        found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        if isinstance(found, (str, list, tuple)):
            return _texts(found, depth - 1)
    return []


def last_user_message(messages: object, field: str = "role", user: str = "user") -> object:
    """The last message of the user in a list of dictionaries or objects; None if there is none. Anything but a
    list is returned as it is."""
    if not isinstance(messages, (list, tuple)):
        return messages
    for message in reversed(messages):
        author = message.get(field) if isinstance(message, dict) else getattr(message, field, None)
        if author == user:
            return message
    return None
