"""The model of `scripts/test --agents` plays its scripts in every wire format."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import ROOT


@pytest.fixture(scope="module")
def scripted() -> Iterator[Any]:
    """The module with a running model in it."""
    folder = str(ROOT / "scripts" / "agents")
    sys.path.insert(0, folder)
    try:
        import model  # type: ignore[import-not-found]
    finally:
        sys.path.remove(folder)
    model.running = model.Model()
    write = model.ToolCall("write", {"path": "a.py"})
    model.running.scripts["t"] = [model.Answer(calls=(write, write)), model.Answer("All done.")]
    yield model
    del sys.modules["model"]


PROMPT = "do it [[t]]"
TOOL = {"name": "write", "input_schema": {}}


def chat(history: list[Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": PROMPT}, *history], "tools": [{"function": TOOL}]}


def messages(history: list[Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": PROMPT}, *history], "tools": [TOOL]}


def responses(history: list[Any]) -> dict[str, Any]:
    return {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": PROMPT}]}, *history],
        "tools": [TOOL],
    }


def contents(history: list[Any]) -> dict[str, Any]:
    first = {"role": "user", "parts": [{"text": PROMPT}]}
    return {"contents": [first, *history], "tools": [{"functionDeclarations": [TOOL]}]}


WIRES = {
    "/v1/messages": (messages, lambda said: [{"role": "assistant", "content": said["content"]}]),
    "/v1/chat/completions": (chat, lambda said: [said["choices"][0]["message"]]),
    "/v1/responses": (responses, lambda said: said["output"]),
    "/v1beta/models/m:generateContent": (contents, lambda said: [said["candidates"][0]["content"]]),
}


def post(scripted: Any, path: str, body: dict[str, Any]) -> bytes:
    address = f"http://127.0.0.1:{scripted.running.port}{path}"
    with urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode()), timeout=20) as answer:
        data: bytes = answer.read()
    return data


@pytest.mark.parametrize("path", WIRES)
def test_a_script_is_played_to_its_end(scripted: Any, path: str) -> None:
    ask, said = WIRES[path]
    first = post(scripted, path, ask([]))
    assert first.count(b'"write"') == 2 and b"All done." not in first
    second = post(scripted, path, ask(said(json.loads(first))))
    assert b"All done." in second and b'"write"' not in second


@pytest.mark.parametrize("path", [*list(WIRES)[:3], "/v1beta/models/m:streamGenerateContent"])
def test_a_stream_says_the_same(scripted: Any, path: str) -> None:
    ask = WIRES.get(path, WIRES["/v1beta/models/m:generateContent"])[0]
    lines = post(scripted, path, {**ask([]), "stream": True}).decode().splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert events and "a.py" in json.dumps(events)


def test_a_list_of_earlier_prompts_plays_nothing(scripted: Any) -> None:
    body = chat([])
    body["messages"][0]["content"] = "  1  now  do it [[t]]   1 file, +1 -1\n\nShow me the output above."
    assert b'"ok"' in post(scripted, "/v1/chat/completions", body)
