"""smolagents, for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smolagents import CodeAgent, LogLevel, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessage, ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from frameworks.contract import (
    HAIKU,
    Call,
    Contract,
    Driver,
    Script,
    Tools,
    Watched,
    begun,
    read,
    run_example,
    write,
)
from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.integrations.smolagents import protect


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        super().__init__()
        self.steps = iter([*script, [("final_answer", {"answer": "done"})]])

    def generate(self, messages: Any, **named: Any) -> ChatMessage:
        step = next(self.steps)
        if isinstance(step, Exception):
            raise step
        return self.message(step)

    def message(self, step: Any) -> ChatMessage:
        functions = [ChatMessageToolCallFunction(arguments=args, name=name) for name, args in step]
        calls = [ChatMessageToolCall(each, f"call-{index}", "function") for index, each in enumerate(functions)]
        return ChatMessage(MessageRole.ASSISTANT, content="", tool_calls=calls)


class Smolagents(Driver):
    kind: type = ToolCallingAgent
    model: type = Scripted

    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.project, tools = project, [tool(each) for each in Tools(project).all()]
        agent = self.kind(tools=tools, model=self.model([]), verbosity_level=LogLevel.OFF, max_steps=6)
        self.agent = protect(agent, manager, project)

    def run(self, prompt: str, script: Script) -> None:
        self.agent.model = self.model(script)
        assert self.agent.run(prompt) == "done"


class TestSmolagents(Contract):
    driver = Smolagents
    heading = "smolagents"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=Scripted(HAIKU), write_file=tool(Tools(project).all()[0]))


class Streamed(Smolagents):
    def run(self, prompt: str, script: Script) -> None:
        self.agent.model = self.model(script)
        *_, last = self.agent.run(prompt, stream=True)
        assert last.output == "done"


class TestSmolagentsStreamed(TestSmolagents):
    driver = Streamed


# --- agents that write code -------------------------------------------------------------------------


class Coding(Scripted):
    def message(self, step: Any) -> ChatMessage:
        code = "\n".join(_called(call) for call in step)
        return ChatMessage(MessageRole.ASSISTANT, content=f"<code>\n{code}\n</code>")


def _called(call: Call) -> str:
    name, args = call
    return f"{name}({', '.join(json.dumps(value) for value in args.values())})"


class Coder(Smolagents):
    kind = CodeAgent
    model = Coding


class TestSmolagentsCode(TestSmolagents):
    driver = Coder

    def test_the_state_before_the_write_is_kept(self, manager: Watched, project: Path, drive: Driver) -> None:
        drive.run("shout", [[write("README.md", "LOUD\n")]])
        (before,) = begun(manager, project)
        assert (before.tool, before.metadata["prompt"]) == ("python_interpreter", "shout")
        manager.restore(project, before.id)
        assert (project / "README.md").read_text() == "# A project\n"

    def test_a_run_that_only_reads_takes_nothing(self, base: Path, manager: Watched, drive: Smolagents) -> None:
        drive.run("look", [[read("README.md")], [read("empty")]])
        (only,) = manager.list_checkpoints(drive.project)  # not so here: code can do anything
        assert only.tool == "python_interpreter"

    def test_files_that_code_names_are_kept_even_if_ignored(
        self, manager: Watched, project: Path, drive: Driver
    ) -> None:
        git(project, "init")
        (project / ".gitignore").write_text("*.local\n")
        (project / "a.local").write_text("mine\n")
        drive.run("work", [[write("one", "1")], [write("a.local", "gone\n")], [read("a.local")]])
        assert any("a.local" in manager.files(project, each.id) for each in begun(manager, project))
        manager.restore(project, begun(manager, project)[0].id, ["a.local"])
        assert (project / "a.local").read_text() == "mine\n"
