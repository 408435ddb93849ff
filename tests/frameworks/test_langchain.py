"""LangChain, for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from frameworks.contract import HAIKU, AsyncContract, Contract, Driver, Script, Tools, begun, run_example, write
from shadowsnap import CheckpointManager
from shadowsnap.integrations.langchain import SnapshotMiddleware


class Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **more: Any) -> Model:
        return self


def scripted(script: Script) -> Model:
    def messages() -> Iterator[AIMessage]:
        for number, step in enumerate(script):
            if isinstance(step, Exception):
                raise step
            calls = [
                {"name": name, "args": args, "id": f"call-{number}-{index}"}
                for index, (name, args) in enumerate(step)
            ]
            yield AIMessage(content="", tool_calls=calls)
        yield AIMessage(content="done")

    return Model(messages=messages())


class Langchain(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.middleware, self.tools = SnapshotMiddleware(manager, project), Tools(project).all()

    def agent(self, script: Script, **more: Any) -> Any:
        return create_agent(scripted(script), tools=self.tools, middleware=[self.middleware], **more)

    async def arun(self, prompt: str, script: Script) -> None:
        result = await self.agent(script).ainvoke({"messages": [{"role": "user", "content": prompt}]})
        assert result["messages"][-1].content == "done"


class TestLangchain(AsyncContract):
    driver = Langchain
    heading = "LangChain"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=scripted(HAIKU), write_file=Tools(project).all()[0])


class LangchainSync(Langchain):
    def run(self, prompt: str, script: Script) -> None:
        result = self.agent(script).invoke({"messages": [{"role": "user", "content": prompt}]})
        assert result["messages"][-1].content == "done"
        assert set(result) == {"messages"}  # nothing of ours in what the program gets


class TestLangchainSync(Contract):
    driver = LangchainSync
    heading = "LangChain"
    example = TestLangchain.example


def test_the_thread_is_the_session(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    agent = Langchain(manager, project).agent([[write("a", "1")]], checkpointer=InMemorySaver())
    message = {"messages": [{"role": "user", "content": "hello"}]}
    agent.invoke(message, {"configurable": {"thread_id": "thread-7"}})
    assert {each.session_id for each in manager.list_checkpoints(project)} == {"thread-7"}


@pytest.mark.parametrize("same", [True, False], ids=["same process", "another process"])
def test_a_run_that_waits_for_the_person_goes_on_safely(base: Path, project: Path, same: bool) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    thread: Any = {"configurable": {"thread_id": "thread-7"}}
    saver, asking = InMemorySaver(), HumanInTheLoopMiddleware(interrupt_on={"write_file": True})

    def agent(drive: Langchain, script: Script) -> Any:
        middleware = [asking, drive.middleware]
        return create_agent(scripted(script), tools=drive.tools, middleware=middleware, checkpointer=saver)

    drive = Langchain(manager, project)
    first = agent(drive, [[write("README.md", "LOUD\n")]])
    assert first.invoke({"messages": [{"role": "user", "content": "shout"}]}, thread)["__interrupt__"]
    assert not base.exists()
    second = agent(drive if same else Langchain(manager, project), [])
    second.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread)
    assert (project / "README.md").read_text() == "LOUD\n"
    (before,) = begun(manager, project)
    assert before.metadata.get("prompt") == ("shout" if same else None)
    manager.restore(project, before.id)
    assert (project / "README.md").read_text() == "# A project\n"
