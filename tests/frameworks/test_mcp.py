"""The MCP server: a real client of the protocol talks to `shadowsnap mcp` in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from shadowsnap import CheckpointManager

pytest.importorskip("mcp")
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


@pytest.fixture
def manager(project: Path, base: Path) -> CheckpointManager:
    manager = CheckpointManager(base=base, background_upkeep=False)
    manager.new_turn("s1", prompt="say hello", agent="claude")
    manager.before_tool("Bash", {"command": "make"}, project)
    (project / "README.md").write_text("# A project\nhello\n")
    manager.end_turn()
    return manager


def test_a_model_reads_and_only_plans(manager: CheckpointManager, project: Path, base: Path) -> None:
    environment = {**os.environ, "SHADOWSNAP_HOME": str(base)}
    words = ["-m", "shadowsnap", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words, env=environment, cwd=project)
    found: dict[str, Any] = {}

    async def talk() -> None:
        async with stdio_client(server) as (incoming, outgoing), ClientSession(incoming, outgoing) as client:
            await client.initialize()
            found["tools"] = sorted(tool.name for tool in (await client.list_tools()).tools)
            for name, told in (
                ("timeline", {}),
                ("diff", {"ref": "1"}),
                ("blame", {"path": "README.md"}),
                ("restore", {"ref": "1"}),
                ("diff", {"ref": "no-such-state"}),
            ):
                answer = await client.call_tool(name, told)
                failed = getattr(answer, "isError", None) or getattr(answer, "is_error", False)
                found.setdefault("failed" if failed else name, answer.content[0].text)

    anyio.run(talk)
    assert found["tools"] == ["blame", "diff", "restore", "timeline"]
    assert json.loads(found["timeline"])["entries"][0]["prompt"] == "say hello"
    assert "+hello" in json.loads(found["diff"])["patch"]
    lines = json.loads(found["blame"])["lines"]
    assert [(line["who"], line["number"]) for line in lines] == [("before", None), ("turn", 1)]
    assert "no-such-state" in found["failed"]
    plan = json.loads(found["restore"])
    assert plan["would_write"] == ["README.md"]
    assert (project / "README.md").read_text() == "# A project\nhello\n"
    manager.restore_as_planned(project, plan["token"])
    assert (project / "README.md").read_text() == "# A project\n"
