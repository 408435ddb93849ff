"""What agents send to a hook, read into one shape.

Every agent has its own names for the same few things, and some run the hooks that another one's
settings list. So nothing depends on which agent it is said to be: each fact is looked for under
all names it goes by. Input that is damaged or cut short still gives what can be read of it: a
snapshot too many does no harm, one too few does.
"""

from __future__ import annotations

import os

from shadowsnap.records import dataclass
from shadowsnap.snapshot.tools import bounded_id, plain_path

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook has no time for imports that only say what is what
    from collections.abc import Iterable, Iterator
    from typing import Any

TOOL, PROMPT, SESSION_START, STOP, OTHER = "tool", "prompt", "session-start", "stop", "other"

_KINDS = {
    **dict.fromkeys((
        "tool", "pretooluse", "beforetool", "pretoolcall", "toolexecutebefore", "prewritecode", "preruncommand",
        "premcptooluse", "beforeshellexecution", "beforemcpexecution",
    ), TOOL),
    **dict.fromkeys((
        "prompt", "userpromptsubmit", "userpromptsubmitted", "beforeagent", "beforesubmitprompt", "prellmcall",
        "preuserprompt", "chatmessage",
    ), PROMPT),
    **dict.fromkeys((
        "sessionstart", "agentspawn", "taskstart", "taskresume", "onsessionstart", "sessioncreated",
    ), SESSION_START),
    **dict.fromkeys((
        "stop", "agentstop", "afteragent", "taskcomplete", "taskcancel", "postcascaderesponse", "onsessionend",
        "sessionidle", "sessionend",
    ), STOP),
}  # fmt: skip

# A tool is done. Only where each call has checkpoints of its own does that matter.
_AFTER = frozenset({
    "aftertool", "posttooluse", "posttoolcall", "toolexecuteafter", "postwritecode", "postruncommand",
    "postmcptooluse", "aftershellexecution", "aftermcpexecution",
})  # fmt: skip

# Those that end a session, and how.
_ENDS = {
    "sessionend": "completed",
    "onsessionend": "completed",
    "taskcomplete": "completed",
    "taskcancel": "failed",
}

# In the order in which they count.
_EVENT = ("hook_event_name", "hookEventName", "hookName", "agent_action_name", "event", "event_name", "eventName")
_SESSION = (
    "session_id", "sessionId", "sessionID", "conversation_id", "conversationId", "trajectory_id", "taskId",
    "task_id", "thread_id", "session",
)  # fmt: skip
_TURN = (
    "turn_id", "turnId", "prompt_id", "promptId", "generation_id", "generationId", "execution_id", "executionId",
    "messageID", "turn",
)  # fmt: skip
_CWD = ("cwd", "working_dir", "workingDir", "working_directory", "workingDirectory", "directory")
_ROOTS = ("workspace_roots", "workspaceRoots", "roots")
_TOOL_NAME = ("tool_name", "toolName", "tool", "mcp_tool_name")
_TOOL_INPUT = (
    "tool_input", "toolInput", "toolArgs", "tool_args", "tool_info", "parameters", "arguments", "args", "input",
)  # fmt: skip
_PROMPT = ("submitted_prompt", "prompt", "user_prompt", "userPrompt", "message", "user_message", "text")
_TRANSCRIPT = ("transcript_path", "transcriptPath", "transcript")
# Of a tool input that is cut short, at least the file.
_FILES = ("file_path", "filePath", "notebook_path", "path")
_RESULT = ("tool_response", "tool_result", "toolResult", "tool_output")
_NESTED = ("extra", "tool_info", "preToolUse", "userPromptSubmit", "taskStart", "taskResume", "taskComplete")

_MOST_ROOTS = 100

# Windsurf names the deed, not the tool; Cursor's older events too.
_DEEDS = {
    "prewritecode": "write_code",
    "preruncommand": "run_command",
    "premcptooluse": "mcp_tool",
    "beforeshellexecution": "Shell",
    "beforemcpexecution": "mcp_tool",
}


@dataclass(frozen=True)
class HookEvent:
    """One thing that happened in an agent."""

    kind: str
    """`tool` (one is about to run), `prompt`, `session-start`, `stop` or `other`."""
    agent: str = ""
    session: str = ""
    turn: str = ""
    cwd: str = ""
    roots: tuple[str, ...] = ()
    tool: str = ""
    tool_input: Any = None
    prompt: str = ""
    transcript: str = ""
    ends: str = ""
    """How the session ended, if this is its end: `completed` or `failed`."""
    after: bool = False
    """Whether it is about a tool that just ran; the kind is `other` then."""
    problem: str = ""
    """What was wrong with the input, if anything."""


def read_event(agent: str, data: bytes, said: str = "") -> HookEvent:
    """The event in a hook's input. `said` is its name, for agents whose input does not tell."""
    text = _decoded(data)
    problem = ""
    try:
        payload = _parsed(text)
    except (ValueError, RecursionError) as error:
        payload = _salvaged(text)
        problem = f"unreadable input: {error}" if text.strip() else "empty input"
    return _event(agent, payload, said, problem)


def _event(agent: str, payload: dict[str, Any], said: str, problem: str) -> HookEvent:
    places = [payload, *(payload[key] for key in _NESTED if isinstance(payload.get(key), dict))]
    name = _squeezed(_text(places, _EVENT) or said)
    kind = _KINDS.get(name) or (OTHER if name and not _is_new_tool_event(name, places) else _guessed(payload))
    roots = tuple(_paths(_first(places, _ROOTS)))[:_MOST_ROOTS]
    after = name in _AFTER or (not name and any(key in payload for key in _RESULT))
    deed = _DEEDS.get(name.replace("post", "pre", 1).replace("after", "before", 1), "")
    return HookEvent(
        kind=kind,
        agent=agent,
        session=bounded_id(_text(places, _SESSION)),
        turn=bounded_id(_text(places, _TURN)),
        cwd=_path(_text(places, _CWD)) or (roots[0] if roots else os.getcwd()),
        roots=roots,
        tool=(_text(places, _TOOL_NAME) or deed) if kind == TOOL or after else "",
        tool_input=_tool_input(payload, places) if kind == TOOL or after else None,
        prompt=_text(places, _PROMPT) if kind in (PROMPT, SESSION_START) else "",
        transcript=_path(_text(places, _TRANSCRIPT)),
        ends=_ENDS.get(name, ""),
        after=after,
        problem=problem,
    )


def _is_new_tool_event(name: str, places: list[dict[str, Any]]) -> bool:
    """An event by a name that we do not know, about a tool that is not done yet: a snapshot too many does
    no harm, one too few does."""
    if name in _AFTER or any(word in name for word in ("post", "after", "end", "result", "complete", "fail")):
        return False
    return bool(_text(places, _TOOL_NAME)) and _first(places, _TOOL_INPUT) is not None


def _guessed(payload: dict[str, Any]) -> str:
    """What happened, if nothing says so."""
    if any(key in payload for key in _RESULT):
        return OTHER
    if any(key in payload for key in _TOOL_NAME):
        return TOOL
    if any(key in payload for key in ("prompt", "submitted_prompt")):
        return PROMPT
    if "initialPrompt" in payload or "source" in payload:
        return SESSION_START
    if "stopReason" in payload or "stop_reason" in payload:
        return STOP
    # Nothing is known: the worst case is a tool that writes.
    return TOOL


def _tool_input(payload: dict[str, Any], places: list[dict[str, Any]]) -> Any:
    value = _first(places, _TOOL_INPUT)
    if isinstance(value, str):  # JSON in JSON, or the text of a patch
        try:
            return _parsed(value)
        except (ValueError, RecursionError):
            return {"input": value}
    return payload if value is None else value


# --- reading leniently -----------------------------------------------------------------------


def _decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # PowerShell
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _parsed(text: str) -> dict[str, Any]:
    from shadowsnap.lightjson import loads

    # Not strict: some agents do not escape control characters.
    value = loads(text.strip().strip("\0"), strict=False)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _salvaged(text: str) -> dict[str, Any]:
    """The known facts in JSON that was cut short: whatever value still is whole."""
    import json

    decoder = json.JSONDecoder(strict=False)
    found: dict[str, Any] = {}
    for names in (_EVENT, _SESSION, _TURN, _CWD, _ROOTS, _TOOL_NAME, _TOOL_INPUT, _PROMPT, _FILES):
        for key in names:
            start = text.find(f'"{key}"')
            if start < 0:
                continue
            colon = _next(text, start + len(key) + 2)
            if text[colon : colon + 1] != ":":
                continue
            try:
                found[key] = decoder.raw_decode(text, _next(text, colon + 1))[0]
            except (ValueError, RecursionError):
                continue
    return found


def _next(text: str, at: int) -> int:
    """Where the next character is that is no white space."""
    while text[at : at + 1].isspace():
        at += 1
    return at


def _first(places: Iterable[dict[str, Any]], keys: tuple[str, ...]) -> Any:
    """The first value that any place has under any of the keys."""
    return next((place[key] for place in places for key in keys if place.get(key) not in (None, "")), None)


def _text(places: Iterable[dict[str, Any]], keys: tuple[str, ...]) -> str:
    values = (place.get(key) for place in places for key in keys)
    return next((str(value) for value in values if isinstance(value, (str, int)) and value != ""), "")


def _paths(values: Any) -> Iterator[str]:
    for value in values if isinstance(values, list) else ():
        if isinstance(value, dict):
            value = _text([value], ("path", "uri", "folder"))
        if isinstance(value, str) and value:
            yield _path(value)


def _path(value: str) -> str:
    return plain_path(value.replace("\0", ""))


def _squeezed(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())
