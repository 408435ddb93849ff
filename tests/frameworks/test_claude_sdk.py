"""The Claude Agent SDK, for real; on the other side of its transport is a Claude Code of ours, that
speaks the control protocol and calls tools as it is told to."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher, ResultMessage, Transport

from frameworks.contract import HAIKU, AsyncContract, Call, Driver, Script, Tools, begun, run_example, write
from shadowsnap import CheckpointManager
from shadowsnap.integrations.claude_sdk import snapshot_hooks


class Claude(Transport):
    def __init__(self, project: Path, script: Script) -> None:
        self.project, self.steps, self.session = project, list(script), uuid.uuid4().hex
        self.tools = {tool.__name__: tool for tool in Tools(project).all()}
        self.said: list[dict[str, Any]] = []
        self.hooks: dict[str, Any] = {}

    async def connect(self) -> None:
        self._out, self._outgoing = anyio.create_memory_object_stream[dict[str, Any]](1000)
        self._answers: dict[str, Any] = {}
        self._prompts, self._prompted = anyio.create_memory_object_stream[str](10)

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        self._prompts.close()

    async def close(self) -> None:
        self._prompts.close()
        self._out.close()

    async def write(self, data: str) -> None:
        for line in data.splitlines():
            message = json.loads(line)
            if message["type"] == "control_request":
                await self._control(message)
            elif message["type"] == "control_response":
                answer = message["response"]
                self._answers[answer["request_id"]].send_nowait(answer)
            elif message["type"] == "user":
                await self._prompts.send(message["message"]["content"])

    async def _control(self, message: dict[str, Any]) -> None:
        request = message["request"]
        if request["subtype"] == "initialize":
            self.hooks = request["hooks"] or {}
        answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
        await self._out.send({"type": "control_response", "response": answer})

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._work)
            async for message in self._outgoing:
                yield message

    # --- what Claude Code does ---

    async def _work(self) -> None:
        async for prompt in self._prompted:
            self.prompt_id = uuid.uuid4().hex
            await self._tell("UserPromptSubmit", prompt=prompt)
            failed = False
            for step in self.steps:
                if isinstance(step, Exception):
                    failed = True
                    break
                for call in step:
                    await self._call(call)
            if not failed:
                await self._tell("Stop", stop_hook_active=False)
            await self._out.send(self._result(failed))
        self._out.close()

    async def _call(self, call: Call) -> None:
        name, args = call
        for answer in await self._tell("PreToolUse", tool_name=name, tool_input=args, tool_use_id="use-1"):
            assert answer.get("response") == {}, answer
        self.tools[name](**args)
        await self._tell("PostToolUse", tool_name=name, tool_input=args, tool_response="", tool_use_id="use-1")

    async def _tell(self, event: str, **facts: Any) -> list[dict[str, Any]]:
        told = {
            "session_id": self.session,
            "transcript_path": "",
            "cwd": str(self.project),
            "prompt_id": self.prompt_id,
            "hook_event_name": event,
            **facts,
        }
        answers = []
        for matcher in self.hooks.get(event, []):
            for callback in matcher["hookCallbackIds"]:
                answers.append(await self._asked(callback, told))
        self.said += answers
        return answers

    async def _asked(self, callback: str, told: dict[str, Any]) -> dict[str, Any]:
        request = uuid.uuid4().hex
        self._answers[request], answered = anyio.create_memory_object_stream[Any](1)
        asking = {"subtype": "hook_callback", "callback_id": callback, "input": told, "tool_use_id": None}
        await self._out.send({"type": "control_request", "request_id": request, "request": asking})
        return await answered.receive()

    def _result(self, failed: bool) -> dict[str, Any]:
        return {
            "type": "result",
            "subtype": "error_during_execution" if failed else "success",
            "duration_ms": 1,
            "duration_api_ms": 1,
            "is_error": failed,
            "num_turns": 1,
            "session_id": self.session,
            "result": "done",
        }


class ClaudeSDK(Driver):
    def __init__(self, manager: CheckpointManager, project: Path) -> None:
        self.project, self.hooks = project, snapshot_hooks(manager)
        self.claude: Claude | None = None

    async def arun(self, prompt: str, script: Script) -> None:
        self.claude = Claude(self.project, script)
        options = ClaudeAgentOptions(hooks=self.hooks, cwd=self.project)
        async with ClaudeSDKClient(options, transport=self.claude) as client:
            await client.query(prompt)
            *_, last = [message async for message in client.receive_response()]
        assert isinstance(last, ResultMessage) and last.result == "done"
        assert all(answer["subtype"] == "success" for answer in self.claude.said)
        if last.is_error:
            raise RuntimeError


class TestClaudeSDK(AsyncContract):
    driver = ClaudeSDK
    heading = "Claude Agent SDK"

    def example(self, code: str, project: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            client = partial(ClaudeSDKClient, transport=Claude(project, HAIKU))
            patch.setattr("claude_agent_sdk.ClaudeSDKClient", client)
            run_example(code)

    def test_prompts_of_one_session_are_turns(self, manager: CheckpointManager, project: Path) -> None:
        async def talk() -> None:
            claude = Claude(project, [[write("README.md", "by the agent\n")]])
            options = ClaudeAgentOptions(hooks=snapshot_hooks(manager))
            async with ClaudeSDKClient(options, transport=claude) as client:
                for prompt in ("first", "second"):
                    await client.query(prompt)
                    async for _ in client.receive_response():
                        pass
                    (project / "README.md").write_text("by me\n")

        anyio.run(talk)
        assert [each.metadata["prompt"] for each in begun(manager, project)] == ["second", "first"]
        assert len({each.session_id for each in begun(manager, project)}) == 1

    def test_a_prompt_that_nobody_told_of_is_a_turn(self, manager: CheckpointManager, project: Path) -> None:
        hooks = {event: matchers[0].hooks[0] for event, matchers in snapshot_hooks(manager, project).items()}

        async def talk() -> None:
            event = {"session_id": "s", "tool_name": "Write", "tool_input": {"file_path": "README.md"}}
            for prompt in ("one", "one", "two"):
                await hooks["PreToolUse"]({**event, "prompt_id": prompt}, None, {"signal": None})
                (project / "README.md").write_text(f"{prompt}\n")

        anyio.run(talk)
        assert len(begun(manager, project)) == 2

    def test_it_works_on_trio(self, manager: CheckpointManager, project: Path) -> None:
        anyio.run(ClaudeSDK(manager, project).arun, "shout", [[write("README.md", "LOUD\n")]], backend="trio")
        assert len(begun(manager, project)) == 1

    def test_other_hooks_stay(self, manager: CheckpointManager) -> None:
        async def mine(event: Any, tool_use_id: Any, context: Any) -> Any:
            return {}

        matcher = HookMatcher(matcher="Bash", hooks=[mine])
        given = {"PreToolUse": [matcher], "SubagentStop": [matcher]}
        merged = snapshot_hooks(manager, hooks=given)
        assert merged["PreToolUse"][1:] == merged["SubagentStop"] == [matcher]
        assert given == {"PreToolUse": [matcher], "SubagentStop": [matcher]}
