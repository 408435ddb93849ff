"""A model that plays scripts, so that real agents run without a real one.

It listens on loopback and answers in four wire formats: Anthropic messages, OpenAI chat completions, OpenAI
responses and Gemini contents. A prompt names its script as `[[name]]`. A script is a list of answers. The server
keeps no state of a conversation: which answer comes next is read from the request itself, so subagents, retries
and resumed sessions each find their own place.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# At the end of a line: a list of earlier prompts is no prompt.
_SCRIPT_NAME = re.compile(r"\[\[([\w-]+)\]\]\"?\s*$", re.MULTILINE)
_STEP_IN_ID = re.compile(r"call_(\d+)x")
_serial = itertools.count(1)

Json = dict[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A tool call. An input that is a text, not an object, makes it one of OpenAI's custom tools."""

    tool: str
    input: Any
    namespace: str = ""


@dataclass(frozen=True)
class Answer:
    """One answer of the model: words, tool calls (several are parallel), or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Message:
    """One message of a request, in whichever format it came."""

    by: str
    """`person`, `model` or `tool`."""
    text: str = ""
    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """A request for one more answer of a script, as it is remembered for the judge."""

    script: str
    step: int
    messages: int


class Model:
    """The server. Stories add scripts while it runs."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[Answer]] = {}
        self.requests: list[Request] = []
        """Those that played a step of a script; titles and summaries are not among them."""
        self.prompts: list[str] = []
        """What the person said last, in every request there was."""
        self.tools: dict[str, Json] = {}
        """The tools that agents offered, by name: to look at when a script does not fit."""
        self.last_error = ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def played(self, script: str) -> int:
        """How many answers of a script were asked for, repeated requests counted once."""
        return len({request.step for request in self.requests if request.script == script})

    def has_finished(self, script: str) -> bool:
        return any(each.script == script and each.step >= len(self.scripts[script]) - 1 for each in self.requests)

    def answer(self, messages: list[Message], offered: dict[str, Json]) -> tuple[Answer, int]:
        """The next answer to a conversation, and its place in the script."""
        self.prompts.append(next((each.text for each in reversed(messages) if each.by == "person"), ""))
        found = _newest_script(messages)
        if found is None or not offered:
            # A title, a summary, or a prompt that plays nothing.
            return Answer("ok"), 0
        self.tools.update(offered)
        script, at = found
        step = _next_step(messages[at + 1 :])
        answers = self.scripts.get(script, [])
        self.requests.append(Request(script, step, len(messages)))
        return (answers[step] if step < len(answers) else Answer("done")), step


def _newest_script(messages: list[Message]) -> tuple[str, int] | None:
    for at in range(len(messages) - 1, -1, -1):
        names = _SCRIPT_NAME.findall(messages[at].text) if messages[at].by == "person" else []
        if names:
            return names[-1], at
    return None


def _next_step(since: list[Message]) -> int:
    """How many answers were given since the prompt. The ids of our tool calls carry their step: some agents report
    parallel calls one by one, each followed by its result. Without such ids, a run of model messages is one."""
    marked = [int(step) for each in since for call in each.call_ids for step in _STEP_IN_ID.findall(call)]
    if marked:
        return max(marked) + 1
    return sum(1 for kind, _ in itertools.groupby(each.by for each in since) if kind == "model")


# --- the wire formats: reading a request, and writing an answer whole or as a stream ------------------


class Wire:
    """A wire format. `named_events` says whether a stream names the type of each event."""

    named_events = False
    last_line = ""

    def read(self, body: Json) -> tuple[list[Message], dict[str, Json]]:
        raise NotImplementedError

    def whole(self, body: Json, answer: Answer, step: int) -> Json:
        raise NotImplementedError

    def events(self, body: Json, answer: Answer, step: int) -> Iterator[Json]:
        raise NotImplementedError


def _call_id(step: int) -> str:
    return f"call_{step}x{next(_serial)}"


def _plain_text(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts with texts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") or part.get("encrypted_content") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


class AnthropicMessages(Wire):
    named_events = True

    def read(self, body: Json) -> tuple[list[Message], dict[str, Json]]:
        messages = []
        for message in body.get("messages", ()):
            parts = message["content"] if isinstance(message.get("content"), list) else []
            calls = tuple(part["id"] for part in parts if part.get("type") == "tool_use")
            by = "model" if message["role"] == "assistant" else "person"
            messages.append(Message(by, _plain_text(message.get("content")), calls))
        return messages, {tool.get("name", ""): tool for tool in body.get("tools") or ()}

    def _blocks(self, answer: Answer, step: int) -> list[Json]:
        words = [{"type": "text", "text": answer.text}] if answer.text else []
        calls = [
            {"type": "tool_use", "id": f"toolu_{_call_id(step)}", "name": call.tool, "input": call.input}
            for call in answer.calls
        ]
        return words + calls

    def _message(self, body: Json, blocks: list[Json]) -> Json:
        usage = {
            "input_tokens": 9,
            "output_tokens": 9,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        }
        stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        return {
            "id": f"msg_{next(_serial)}", "type": "message", "role": "assistant", "model": body.get("model", "m"),
            "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage,
        }  # fmt: skip

    def whole(self, body: Json, answer: Answer, step: int) -> Json:
        return self._message(body, self._blocks(answer, step))

    def events(self, body: Json, answer: Answer, step: int) -> Iterator[Json]:
        message = self.whole(body, answer, step)
        yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
        for index, block in enumerate(message["content"]):
            if block["type"] == "text":
                empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                empty, delta = (
                    {"input": {}},
                    {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
                )
            yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        end = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 9}}
        yield {"type": "message_stop"}


class ChatCompletions(Wire):
    last_line = "[DONE]"

    def read(self, body: Json) -> tuple[list[Message], dict[str, Json]]:
        by = {"assistant": "model", "user": "person"}
        messages = [
            Message(
                by.get(message.get("role"), "tool"),
                _plain_text(message.get("content")),
                tuple(call.get("id") or "" for call in message.get("tool_calls") or ()),
            )
            for message in body.get("messages", ())
        ]
        tools = [tool.get("function", {}) for tool in body.get("tools") or ()]
        return messages, {tool.get("name", ""): tool for tool in tools}

    def _calls(self, answer: Answer, step: int) -> list[Json]:
        return [
            {
                "index": index, "id": _call_id(step), "type": "function",
                "function": {"name": call.tool, "arguments": json.dumps(call.input)},
            }
            for index, call in enumerate(answer.calls)
        ]  # fmt: skip

    def _frame(self, body: Json, kind: str, choice: Json) -> Json:
        frame = {"id": f"chat-{next(_serial)}", "object": kind, "created": int(time.time())}
        return {**frame, "model": body.get("model", "m"), "choices": [{"index": 0, **choice}]}

    _USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}

    def whole(self, body: Json, answer: Answer, step: int) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = self._calls(answer, step)
        finish = "tool_calls" if answer.calls else "stop"
        return {
            **self._frame(body, "chat.completion", {"message": message, "finish_reason": finish}),
            "usage": self._USAGE,
        }

    def events(self, body: Json, answer: Answer, step: int) -> Iterator[Json]:
        kind = "chat.completion.chunk"
        yield self._frame(
            body, kind, {"delta": {"role": "assistant", "content": answer.text}, "finish_reason": None}
        )
        for call in self._calls(answer, step):
            yield self._frame(body, kind, {"delta": {"tool_calls": [call]}, "finish_reason": None})
        finish = "tool_calls" if answer.calls else "stop"
        yield {**self._frame(body, kind, {"delta": {}, "finish_reason": finish}), "usage": self._USAGE}


class Responses(Wire):
    named_events = True

    def read(self, body: Json) -> tuple[list[Message], dict[str, Json]]:
        items = body.get("input", ())
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        messages, tools = [], list(body.get("tools") or ())
        for item in items:
            kind = item.get("type", "message")
            if kind in ("function_call", "custom_tool_call"):
                messages.append(Message("model", call_ids=(item.get("call_id") or "",)))
            elif kind == "additional_tools":  # Codex lists some tools here
                tools += item.get("tools", ())
            elif kind == "agent_message":  # what Codex asks a helper to do
                messages.append(Message("person", _plain_text(item.get("content"))))
            elif kind == "message":
                by = {"assistant": "model", "user": "person"}.get(item.get("role"), "tool")
                messages.append(Message(by, _plain_text(item.get("content"))))
            elif kind != "reasoning":
                messages.append(Message("tool"))
        return messages, {tool.get("name") or tool.get("type", ""): tool for tool in tools}

    def _items(self, answer: Answer, step: int) -> list[Json]:
        items: list[Json] = []
        if answer.text:
            part = {"type": "output_text", "text": answer.text, "annotations": []}
            items.append({"type": "message", "role": "assistant", "content": [part]})
        for call in answer.calls:
            place = {"namespace": call.namespace} if call.namespace else {}
            item = {"name": call.tool, "call_id": _call_id(step), **place}
            if isinstance(call.input, str):
                items.append({"type": "custom_tool_call", **item, "input": call.input})
            else:
                items.append({"type": "function_call", **item, "arguments": json.dumps(call.input)})
        return [{"id": f"item_{next(_serial)}", "status": "completed", **item} for item in items]

    def whole(self, body: Json, answer: Answer, step: int) -> Json:
        usage = {
            "input_tokens": 9, "output_tokens": 9, "total_tokens": 18,
            "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
        }  # fmt: skip
        return {
            "id": f"resp_{next(_serial)}", "object": "response", "created_at": int(time.time()),
            "status": "completed", "model": body.get("model", "m"), "output": self._items(answer, step),
            "usage": usage,
        }  # fmt: skip

    def events(self, body: Json, answer: Answer, step: int) -> Iterator[Json]:
        whole = self.whole(body, answer, step)
        yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
        for index, item in enumerate(whole["output"]):
            empty = {
                "message": {"content": []},
                "custom_tool_call": {"input": ""},
                "function_call": {"arguments": ""},
            }
            begun = {**item, **empty[item["type"]], "status": "in_progress"}
            yield {"type": "response.output_item.added", "output_index": index, "item": begun}
            where = {"item_id": item["id"], "output_index": index}
            if item["type"] == "message":
                yield {"type": "response.output_text.delta", **where, "content_index": 0, "delta": answer.text}
            elif item["type"] == "function_call":
                yield {"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        yield {"type": "response.completed", "response": whole}


class GeminiContents(Wire):
    def read(self, body: Json) -> tuple[list[Message], dict[str, Json]]:
        messages = []
        for content in body.get("contents", ()):
            parts = content.get("parts", ())
            calls = tuple(part["functionCall"].get("id") or "" for part in parts if "functionCall" in part)
            by = "model" if content.get("role") == "model" else "person"
            messages.append(Message(by, _plain_text(parts), calls))
        functions = [each for tool in body.get("tools") or () for each in tool.get("functionDeclarations", ())]
        return messages, {each.get("name", ""): each for each in functions}

    def whole(self, body: Json, answer: Answer, step: int) -> Json:
        settings = body.get("generationConfig") or {}
        schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
        if schema:  # the agent asks a question of its own, such as who speaks next
            parts: list[Json] = [{"text": json.dumps(_fitting(schema))}]
        else:
            parts = [{"text": answer.text}] if answer.text else []
            for call in answer.calls:
                function = {"id": _call_id(step), "name": call.tool, "args": call.input}
                parts.append({"functionCall": function, "thoughtSignature": "bm9uZQ=="})
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}

    def events(self, body: Json, answer: Answer, step: int) -> Iterator[Json]:
        yield self.whole(body, answer, step)


def _fitting(schema: Json) -> Any:
    """A value that fits a JSON schema; it says that the person speaks next."""
    if schema.get("enum"):
        return "user" if "user" in schema["enum"] else schema["enum"][0]
    kind = str(schema.get("type", "object")).lower()
    if kind == "object":
        return {name: _fitting(each) for name, each in (schema.get("properties") or {}).items()}
    return {"string": "none", "number": 1, "integer": 1, "boolean": False, "array": []}.get(kind)


def wire_of(path: str) -> tuple[Wire, bool] | None:
    """The format that is spoken at a path, and whether the path alone asks for a stream."""
    for end, wire in (
        ("/messages", AnthropicMessages()),
        ("/chat/completions", ChatCompletions()),
        ("/responses", Responses()),
        (":generateContent", GeminiContents()),
        (":streamGenerateContent", GeminiContents()),
    ):
        if path.endswith(end):
            return wire, end == ":streamGenerateContent"
    return None


# --- the server --------------------------------------------------------------------------------------


def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            names = ("gpt-4o", "fake")
            self._send({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})

        def do_POST(self) -> None:
            raw = self._body()
            path = self.path.partition("?")[0]
            found = wire_of(path)
            if found is None:
                counts = path.endswith(("/count_tokens", ":countTokens"))
                self._send({"input_tokens": 9, "totalTokens": 9} if counts else {}, 200 if counts else 404)
                return
            wire, streams = found
            try:
                body = json.loads(raw)
                messages, tools = wire.read(body)
                answer, step = model.answer(messages, tools)
            except (ValueError, KeyError, TypeError, AttributeError) as problem:
                model.last_error = f"{path}: {problem!r}"
                self._send({"error": {"message": str(problem)}}, 400)
                return
            if streams or body.get("stream"):
                self._stream(wire, wire.events(body, answer, step))
            else:
                self._send(wire.whole(body, answer, step))

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def _send(self, value: Json, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, wire: Wire, events: Iterator[Json]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in events:
                name = f"event: {event['type']}\n" if wire.named_events else ""
                self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            if wire.last_line:
                self.wfile.write(f"data: {wire.last_line}\n\n".encode())
            self.close_connection = True

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, ValueError):
                pass  # an agent that was interrupted hangs up

        def log_message(self, *_: object) -> None:
            pass

    return Handler
