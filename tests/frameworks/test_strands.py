"""Strands Agents, for real."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model

from frameworks.contract import HAIKU, AsyncContract, Driver, Script, Tools, run_example
from shadowsnap import CheckpointManager
from shadowsnap.integrations.strands import SnapshotHooks


class Scripted(Model):
    def __init__(self, script: Script) -> None:
        self.steps = iter(script)

    def update_config(self, **more: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        step = next(self.steps, None)
        if isinstance(step, Exception):
            raise step
        yield {"messageStart": {"role": "assistant"}}
        for event in _said("done") if step is None else _called(step):
            yield event
        yield {"messageStop": {"stopReason": "end_turn" if step is None else "tool_use"}}


def _said(text: str) -> Iterator[Any]:
    yield {"contentBlockStart": {"start": {}}}
    yield {"contentBlockDelta": {"delta": {"text": text}}}
    yield {"contentBlockStop": {}}


def _called(step: Any) -> Iterator[Any]:
    for index, (name, args) in enumerate(step):
        yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"use-{index}"}}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(args)}}}}
        yield {"contentBlockStop": {}}


class Strands(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.hooks = SnapshotHooks(manager, project)
        self.tools = [tool(each) for each in Tools(project).all()]

    def agent(self, script: Script) -> Agent:
        return Agent(model=Scripted(script), tools=list(self.tools), hooks=[self.hooks], callback_handler=None)

    async def arun(self, prompt: str, script: Script) -> None:
        assert str(await self.agent(script).invoke_async(prompt)).strip() == "done"


class TestStrands(AsyncContract):
    driver = Strands
    heading = "Strands Agents"

    def example(self, code: str, project: Path) -> None:
        run_example(code, model=Scripted(HAIKU), write_file=tool(Tools(project).all()[0]))


class StrandsSync(Strands):
    def run(self, prompt: str, script: Script) -> None:
        assert str(self.agent(script)(prompt)).strip() == "done"


class TestStrandsSync(TestStrands):
    driver = StrandsSync
