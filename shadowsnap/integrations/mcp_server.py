"""A server of the Model Context Protocol: a model may read a project's timeline, and propose a restore.

`timeline`, `diff` and `blame` only read. `restore` changes nothing: it makes a plan, and a person carries it out
on the command line by its token.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from shadowsnap.errors import ExtraMissing, ShadowsnapError
from shadowsnap.manager import CheckpointManager

_INSTRUCTIONS = (
    "Reads the timeline of a project: what each turn of an agent was asked and changed, and which turn brought in "
    "each line of a file. A restore is only planned: show the plan and its command to the person, who runs it."
)
_MOST_TEXT = 60_000
_MOST_LINES = 2_000
_MOST_ENTRIES = 200


class Tools:
    """What a model can ask about one project."""

    def __init__(self, manager: CheckpointManager, workdir: Path) -> None:
        self._manager = manager
        self._workdir = workdir

    def timeline(self, limit: int = 20, path: str | None = None) -> dict[str, Any]:
        """What happened in the project, newest first: turns with number, prompt, agent and the size of the change,
        and the person's own edits between them. `path`: only what changed this file or directory."""
        entries = self._manager.timeline(self._workdir, max(1, min(limit, _MOST_ENTRIES)), path=path)
        now = self._manager.now(self._workdir)
        changed = {"files_changed_since": now.name, "files_changed": now.files_changed}
        return {"now": changed, "entries": [entry.to_dict() for entry in entries]}

    def diff(self, ref: str, other: str | None = None, paths: list[str] | None = None) -> dict[str, Any]:
        """What differs between two states, as a patch. `ref` is a number of the timeline (the state before that
        turn), `3:after` (its end), `last` or an id; `other` is the newer state, or the files as they are now."""
        diff = self._manager.diff(self._workdir, ref, other, paths or ())
        changes = [change.to_dict() for change in diff.changes]
        text = diff.text.encode("utf-8", "replace").decode()
        return {"changes": changes, "patch": text[:_MOST_TEXT], "cut": len(text) > _MOST_TEXT}

    def blame(self, path: str, first_line: int = 1, last_line: int | None = None) -> dict[str, Any]:
        """For each line of a file as it is now: the turn that brought it in (number, agent, prompt), or `person`,
        or `before` if it is older than the timeline."""
        lines = self._manager.blame(self._workdir, path)
        chosen = lines[max(0, first_line - 1) : last_line][:_MOST_LINES]
        rows = [{**line.to_dict(), "text": line.text.decode("utf-8", "replace").rstrip("\n")} for line in chosen]
        return {"lines": rows, "total": len(lines)}

    def restore(self, ref: str, paths: list[str] | None = None) -> dict[str, Any]:
        """Plan to bring the files, or some paths, back to a state. Nothing is changed: the person reviews the plan
        and carries it out with the command in the answer."""
        plan, token = self._manager.propose_restore(self._workdir, ref, paths or ())
        return {
            "changes_nothing_yet": True,
            "would_write": list(plan.written),
            "would_delete": list(plan.deleted),
            "would_keep": [kept.to_dict() for kept in plan.kept],
            "token": token,
            "command": shlex.join(("shadowsnap", "-C", str(self._workdir), "restore", "--plan", token)),
        }


def make_server(manager: CheckpointManager, workdir: Path) -> Any:
    """The server with its tools; raises if the package of the protocol is not installed."""
    server_class, tool_error = _package()
    tools = Tools(manager, workdir)
    server = server_class("shadowsnap", instructions=_INSTRUCTIONS)
    for tool in (tools.timeline, tools.diff, tools.blame, tools.restore):
        server.tool()(_explained(tool, tool_error))
    return server


def _explained(tool: Callable[..., Any], tool_error: Callable[[str], Exception]) -> Callable[..., Any]:
    """Let a model read why something failed: of other errors, version 2 of the package says nothing."""

    @wraps(tool)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return tool(*args, **named)
        except ShadowsnapError as problem:
            raise tool_error(": ".join(filter(None, (str(problem), problem.hint)))) from problem

    return call


def _package() -> tuple[Callable[..., Any], Callable[[str], Exception]]:
    """The classes of a server and of an error; version 1 of the package has other names than version 2."""
    try:
        from mcp.server.mcpserver import MCPServer as Server
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        try:
            from mcp.server.fastmcp import FastMCP as Server
            from mcp.server.fastmcp.exceptions import ToolError
        except ImportError:
            raise ExtraMissing(what="`shadowsnap mcp`", extra="mcp") from None
    return Server, ToolError
