"""Google ADK, for real."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from frameworks.contract import HAIKU, AsyncContract, Driver, Script, Tools, run_example, write
from shadowsnap import CheckpointManager
from shadowsnap.integrations.google_adk import SnapshotPlugin


class Model(BaseLlm):
    steps: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        yield LlmResponse(content=types.Content(role="model", parts=next(self.steps)))


def scripted(script: Script) -> Model:
    def steps() -> Iterator[list[types.Part]]:
        for step in script:
            if isinstance(step, Exception):
                raise step
            yield [types.Part.from_function_call(name=name, args=args) for name, args in step]
        yield [types.Part(text="done")]

    return Model(model="scripted", steps=steps())


class ADK(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.plugin, self.tools = SnapshotPlugin(manager, project), Tools(project).all()

    async def arun(self, prompt: str, script: Script) -> None:
        agent = LlmAgent(name="writer", model=scripted(script), tools=list(self.tools))
        sessions = InMemorySessionService()
        await sessions.create_session(app_name="app", user_id="me", session_id="session-7")
        runner = Runner(agent=agent, app_name="app", session_service=sessions, plugins=[self.plugin])
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        said = []
        async for event in runner.run_async(user_id="me", session_id="session-7", new_message=message):
            said += [part.text for part in (event.content.parts if event.content else []) or [] if part.text]
        assert said == ["done"]


class TestGoogleADK(AsyncContract):
    driver = ADK
    heading = "Google ADK"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=scripted(HAIKU), write_file=Tools(project).all()[0])

    def test_the_session_is_known(self, manager: CheckpointManager, project: Path, drive: Driver) -> None:
        drive.run("work", [[write("one", "1")]])
        assert {each.session_id for each in manager.list_checkpoints(project)} == {"session-7"}
