"""Pydantic AI, for real."""

from __future__ import annotations

from pathlib import Path

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from frameworks.contract import HAIKU, AsyncContract, Driver, Script, Tools, run_example
from shadowsnap import CheckpointManager
from shadowsnap.integrations.pydantic_ai import SnapshotCapability


def scripted(script: Script) -> FunctionModel:
    steps = iter(script)

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = next(steps, None)
        if step is None:
            return ModelResponse(parts=[TextPart("done")])
        if isinstance(step, Exception):
            raise step
        return ModelResponse(parts=[ToolCallPart(name, args) for name, args in step])

    return FunctionModel(respond)


class PydanticAI(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.capability, self.tools = SnapshotCapability(manager, project), Tools(project).all()

    def agent(self, script: Script) -> Agent:
        return Agent(scripted(script), tools=self.tools, capabilities=[self.capability])

    async def arun(self, prompt: str, script: Script) -> None:
        result = await self.agent(script).run(prompt)
        assert result.output == "done"


class TestPydanticAI(AsyncContract):
    driver = PydanticAI
    heading = "Pydantic AI"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=scripted(HAIKU), write_file=Tools(project).all()[0])


class PydanticAIStepwise(PydanticAI):
    async def arun(self, prompt: str, script: Script) -> None:
        async with self.agent(script).iter(prompt) as run:
            async for _ in run:
                pass
        assert run.result is not None and run.result.output == "done"


class TestPydanticAIStepwise(TestPydanticAI):
    driver = PydanticAIStepwise
