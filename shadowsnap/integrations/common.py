"""What the adapters of agent frameworks share.

Each adapter tells when a run begins and ends and which tool is about to be called; `Runs` makes a
turn of each run and sees to it that what the tool may write to is safe. Nothing here raises into
a run, and nothing of it is imported before an adapter is.
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

# A run that fails may never be told to have ended. One that is forgotten and goes on all the same
# takes one more snapshot.
_MOST_RUNS = 256
_DEPTH = 6

_Hook = TypeVar("_Hook", bound=Callable[..., Any])


def needs(package: str, extra: str) -> ImportError:
    """The error of an adapter whose framework is not there, or is too old."""
    return ImportError(f"this adapter needs {package}: pip install 'shadowsnap[{extra}]'", name=package)


def harmless(hook: _Hook) -> _Hook:
    """For what a framework calls: an error in it is logged and goes no further, because most
    frameworks take an error of a hook for the end of the run."""
    if inspect.iscoroutinefunction(hook):

        @functools.wraps(hook)
        async def watched_coroutine(*args: Any, **named: Any) -> Any:
            try:
                return await hook(*args, **named)
            except Exception:
                return _logged(hook)

        return cast(_Hook, watched_coroutine)

    @functools.wraps(hook)
    def watched(*args: Any, **named: Any) -> Any:
        try:
            return hook(*args, **named)
        except Exception:
            return _logged(hook)

    return cast(_Hook, watched)


class Runs:
    """The runs that go on with one manager, each with a turn of its own: one adapter serves any
    number of them at the same time. A run is known by any key that its framework has for it."""

    def __init__(self, manager: CheckpointManager, working_dir: PathLike | None, agent: str) -> None:
        self._manager, self._agent = manager, agent
        self._working_dir = os.path.abspath(working_dir) if working_dir else None
        self._going: dict[Hashable, CheckpointManager] = {}
        self._lock = threading.Lock()

    @harmless
    def begin(self, run: Hashable, session_id: object = None, prompt: object = None) -> None:
        """A new message of the person; `prompt` in whatever form the framework has it."""
        with self._lock:
            self._begun(run, str(session_id) if session_id else None, text_of(prompt) or None)

    @harmless
    def before_tool(self, run: Hashable, tool: str, arguments: Any = None, cwd: PathLike | None = None) -> None:
        """Called in a thread that may wait. A run that nobody has told of begins with its first tool."""
        with self._lock:
            manager = self._going.get(run) or self._begun(run)
        manager.before_tool(tool, arguments, self._working_dir or cwd)

    @harmless
    def after_tool(self, run: Hashable, tool: str, arguments: Any = None, cwd: PathLike | None = None) -> None:
        """Called in a thread that may wait; with the arguments that `before_tool` was told."""
        with self._lock:
            manager = self._going.get(run)
        if manager is not None:
            manager.after_tool(tool, arguments, self._working_dir or cwd)

    @harmless
    def end(self, run: Hashable) -> None:
        """Called in a thread that may wait."""
        with self._lock:
            manager = self._going.pop(run, None)
        if manager is not None:
            manager.end_turn()

    @harmless
    async def before_tool_elsewhere(self, run: Hashable, tool: str, arguments: Any = None) -> None:
        """The same, off the thread of the event loop."""
        await asyncio.to_thread(self.before_tool, run, tool, arguments)

    @harmless
    async def after_tool_elsewhere(self, run: Hashable, tool: str, arguments: Any = None) -> None:
        if self.each_call:
            await asyncio.to_thread(self.after_tool, run, tool, arguments)

    @harmless
    async def end_elsewhere(self, run: Hashable) -> None:
        await asyncio.to_thread(self.end, run)

    @property
    def each_call(self) -> bool:
        """Whether the manager wants to know when a tool is done."""
        return self._manager.settings.granularity == "tool"

    def _begun(
        self, run: Hashable, session_id: str | None = None, prompt: str | None = None
    ) -> CheckpointManager:
        # A manager has one turn. A shallow copy shares everything with it except for that; and the
        # turn of the original is none that this one leaves behind.
        manager = copy.copy(self._manager)
        manager.resume_turn({})
        manager.new_turn(session_id, prompt, agent=self._agent)
        self._going.pop(run, None)
        self._going[run] = manager
        while len(self._going) > _MOST_RUNS:
            del self._going[next(iter(self._going))]
        return manager


class Same:
    """An object as a key: this very one, whatever it takes for equal. It lives as long as the key."""

    def __init__(self, one: object) -> None:
        self.one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.one is self.one

    def __hash__(self) -> int:
        return id(self.one)


def text_of(message: object) -> str:
    """What a message says. Every framework has its own classes for one; their fields are called
    the same: text, content, parts."""
    return "\n".join(_texts(message, _DEPTH))


def last_of_person(messages: object, role: str = "role", person: str = "user") -> object:
    """The last message that the person wrote, of a list of dictionaries or objects."""
    if not isinstance(messages, (list, tuple)):
        return messages
    for message in reversed(messages):
        said_by = message.get(role) if isinstance(message, dict) else getattr(message, role, None)
        if said_by == person:
            return message
    return None


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


def _logged(hook: Callable[..., Any]) -> None:
    logging.getLogger("shadowsnap").exception("%s failed; the run goes on", hook.__qualname__)
