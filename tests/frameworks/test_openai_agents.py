"""The OpenAI Agents SDK, for real."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from frameworks.contract import HAIKU, AsyncContract, Driver, Script, Tools, begun, run_example, write
from shadowsnap import CheckpointManager
from shadowsnap.integrations.openai_agents import SnapshotHooks


@pytest.fixture(autouse=True)
def _no_traces() -> None:
    set_tracing_disabled(True)


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        self.steps = iter(script)

    def output(self) -> list[Any]:
        step = next(self.steps, None)
        if isinstance(step, Exception):
            raise step
        if step is None:
            return [_said("done")]
        return [_called(name, json.dumps(args)) for name, args in step]

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        return ModelResponse(output=self.output(), usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        response = _named(
            Response,
            created_at=0,
            model="scripted",
            object="response",
            output=self.output(),
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def _said(text: str) -> Any:
    content = [ResponseOutputText(text=text, type="output_text", annotations=[])]
    return _named(ResponseOutputMessage, type="message", role="assistant", status="completed", content=content)


def _called(name: str, arguments: str) -> Any:
    call = uuid.uuid4().hex
    return _named(ResponseFunctionToolCall, type="function_call", call_id=call, name=name, arguments=arguments)


def _named(kind: Any, **facts: Any) -> Any:
    return kind(id=uuid.uuid4().hex, **facts)


class OpenAI(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.hooks = SnapshotHooks(manager, project, session_id="chat-1")
        self.tools = [function_tool(tool) for tool in Tools(project).all()]

    async def arun(self, prompt: str, script: Script) -> None:
        agent = Agent(name="writer", model=Scripted(script), tools=self.tools)
        result = await Runner.run(agent, prompt, hooks=self.hooks)
        assert result.final_output == "done"


class TestOpenAIAgents(AsyncContract):
    driver = OpenAI
    heading = "OpenAI Agents SDK"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=Scripted(HAIKU), write_file=Tools(project).all()[0])


class OpenAIStreamed(OpenAI):
    async def arun(self, prompt: str, script: Script) -> None:
        agent = Agent(name="writer", model=Scripted(script), tools=self.tools)
        result = Runner.run_streamed(agent, prompt, hooks=self.hooks)
        async for _ in result.stream_events():
            pass
        assert result.final_output == "done"


class TestOpenAIAgentsStreamed(TestOpenAIAgents):
    driver = OpenAIStreamed


def test_a_run_that_is_handed_over_stays_one_turn(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    drive = OpenAI(manager, project)
    second = Agent(name="second", model=Scripted([[write("two", "2")]]), tools=drive.tools)
    handing_over = Scripted([[write("one", "1")], [("transfer_to_second", {})]])
    first = Agent(name="first", model=handing_over, tools=drive.tools, handoffs=[second])
    result = asyncio.run(Runner.run(first, "work", hooks=drive.hooks))
    assert (result.final_output, (project / "two").read_text()) == ("done", "2")
    assert [(each.metadata["prompt"], each.session_id) for each in begun(manager, project)] == [("work", "chat-1")]
    assert len(manager.list_checkpoints(project)) == 2
