"""The OpenAI Agents SDK, for real."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from frameworks.contract import HAIKU, AsyncContract, Driver, Script, Tools, begun, run_example, write
from shadowsnap import CheckpointManager
from shadowsnap.agents.openai_agents import SnapshotHooks


@pytest.fixture(autouse=True)
def _no_traces() -> None:
    set_tracing_disabled(True)


def scripted(script: Script) -> ScriptedModel:
    steps: list[Any] = [
        step
        if isinstance(step, Exception)
        else [function_call(name, json.dumps(args), call_id=uuid.uuid4().hex) for name, args in step]
        for step in script
    ]
    return ScriptedModel([*steps, [assistant_message("done")]])


class OpenAI(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.hooks = SnapshotHooks(manager, project, session_id="chat-1")
        self.tools = [function_tool(tool) for tool in Tools(project).all()]

    async def arun(self, prompt: str, script: Script) -> None:
        agent = Agent(name="writer", model=scripted(script), tools=self.tools)
        result = await Runner.run(agent, prompt, hooks=self.hooks)
        assert result.final_output == "done"


class TestOpenAIAgents(AsyncContract):
    driver = OpenAI
    heading = "OpenAI Agents SDK"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=scripted(HAIKU), write_file=Tools(project).all()[0])


class OpenAIStreamed(OpenAI):
    async def arun(self, prompt: str, script: Script) -> None:
        agent = Agent(name="writer", model=scripted(script), tools=self.tools)
        result = Runner.run_streamed(agent, prompt, hooks=self.hooks)
        async for _ in result.stream_events():
            pass
        assert result.final_output == "done"


class TestOpenAIAgentsStreamed(TestOpenAIAgents):
    driver = OpenAIStreamed


def test_a_run_that_is_handed_over_stays_one_turn(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    drive = OpenAI(manager, project)
    second = Agent(name="second", model=scripted([[write("two", "2")]]), tools=drive.tools)
    handing_over = scripted([[write("one", "1")], [("transfer_to_second", {})]])
    first = Agent(name="first", model=handing_over, tools=drive.tools, handoffs=[second])
    result = asyncio.run(Runner.run(first, "work", hooks=drive.hooks))
    assert (result.final_output, (project / "two").read_text()) == ("done", "2")
    assert [(each.metadata["prompt"], each.session_id) for each in begun(manager, project)] == [("work", "chat-1")]
    assert len(manager.list_checkpoints(project)) == 2
