"""What agents send to a hook, read into one shape.

Every agent has its own names for the same few things, and some run the hooks that another one's
settings list. So nothing depends on which agent it is said to be: each fact is looked for under
all names it goes by. Input that is damaged or cut short still gives what can be read of it: a
snapshot too many does no harm, one too few does.

The path of a transcript counts only below the directory where that agent keeps them: the input, which any program
can make up, cannot have another file copied into the store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from shadowsnap.files import is_encodable, parse_json
from shadowsnap.snapshot.tools import bounded_id, plain_path

if TYPE_CHECKING:  # every hook reads its input, and few need the model
    from shadowsnap.model import SessionStatus
import re

from shadowsnap.files import OutsideFolder, open_below

TOOL, PROMPT, SESSION_START, STOP, OTHER = "tool", "prompt", "session-start", "stop", "other"
PROBE = "probe"
"""Asks for nothing but a line in the log, to see that the hook runs."""
PROBE_EVENT = "shadowsnap-probe"
SHOW_OUTPUT = "Show me the output above as it is, in a code block, and do nothing else."
"""The last line of the files that make /rollback a command. Some agents run what such a file says, and then report
the output with this line as the prompt."""

_KINDS = {
    **dict.fromkeys((
        "tool", "pretooluse", "beforetool", "pretoolcall", "toolexecutebefore", "prewritecode", "preruncommand",
        "premcptooluse", "beforeshellexecution", "beforemcpexecution", "toolcall",
    ), TOOL),
    **dict.fromkeys((
        "prompt", "userpromptsubmit", "userpromptsubmitted", "beforeagent", "beforesubmitprompt", "prellmcall",
        "preuserprompt", "chatmessage", "userpromptexpansion", "agentstart",
    ), PROMPT),
    **dict.fromkeys((
        "sessionstart", "agentspawn", "taskstart", "taskresume", "onsessionstart", "sessioncreated",
    ), SESSION_START),
    **dict.fromkeys((
        "stop", "agentstop", "afteragent", "taskcomplete", "taskcancel", "postcascaderesponse", "onsessionend",
        "sessionidle", "sessionend", "agentend", "onsessionfinalize", "sessionshutdown",
    ), STOP),
    "shadowsnapprobe": PROBE,
}  # fmt: skip

# A tool is done. Only where each call has checkpoints of its own does that matter.
_AFTER = frozenset({
    "aftertool", "posttooluse", "posttoolcall", "toolexecuteafter", "postwritecode", "postruncommand",
    "postmcptooluse", "aftershellexecution", "aftermcpexecution",
})  # fmt: skip

# Those that end a session, and how.
_ENDS: dict[str, SessionStatus] = {
    "sessionend": "completed",
    "onsessionfinalize": "completed",
    "sessionshutdown": "completed",
    "taskcomplete": "completed",
    "taskcancel": "failed",
}

# In the order in which they count.
_EVENT = ("hook_event_name", "hookEventName", "hookName", "agent_action_name", "event", "event_name", "eventName")
_ROOT_SESSION = ("rootSessionId", "parentAgentId")
"""The session that a helper's session belongs to."""
_HELPER = ("agent_id", "agentId", "parent_agent_id", "parentAgentId")
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
_VERSION = (
    "agent_version", "agentVersion", "cursor_version", "clineVersion", "cli_version", "cliVersion", "version",
)  # fmt: skip
_TOOL_INPUT = (
    "tool_input", "toolInput", "toolArgs", "tool_args", "tool_info", "parameters", "arguments", "args", "input",
)  # fmt: skip
_PROMPT = ("submitted_prompt", "prompt", "user_prompt", "userPrompt", "message", "user_message", "text")
_TRANSCRIPT = ("transcript_path", "transcriptPath", "transcript")
# Of a tool input that is cut short, at least the file.
_FILES = ("file_path", "filePath", "notebook_path", "path")
_RESULT = ("tool_response", "tool_result", "toolResult", "tool_output")
_NESTED = (
    "extra", "tool_call", "sessionContext", "info", "tool_info", "preToolUse", "userPromptSubmit", "taskStart",
    "taskResume", "taskComplete",
)  # fmt: skip

_MOST_ROOTS = 100
# How Claude Code reports the end of a background task, as if the person had typed it.
_NOTIFICATION = "<task-notification>"
_LONGEST_NAME = 200
_LONGEST_PART = 4 << 20

# Windsurf names what is done, not the tool; Cursor's older events too.
_TOOL_OF_EVENT = {
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
    """`tool` (one is about to run), `prompt`, `session-start`, `stop`, `probe` or `other`."""
    agent: str = ""
    session: str = ""
    turn: str = ""
    cwd: str = ""
    roots: tuple[str, ...] = ()
    tool: str = ""
    tool_input: Any = None
    prompt: str = ""
    transcript: str = ""
    ends: SessionStatus | Literal[""] = ""
    """How the session ended, if this is its end: `completed` or `failed`."""
    after: bool = False
    """Whether it is about a tool that just ran; the kind is `other` then."""
    name: str = field(default="", compare=False)
    """The agent's own name of the event, in small letters."""
    is_helper: bool = False
    """Whether a subagent caused it: it belongs to the turn of the session that started the subagent."""
    parent: str = ""
    """The session that this new session is a helper of."""
    begins: bool = False
    """Whether it begins a turn even without a prompt."""
    continues: bool = False
    """Whether a prompt belongs to the turn that is there: a tool result, or a background task's notification."""
    background: bool = False
    """Whether tasks of the turn go on after this stop."""
    interrupted: bool = False
    command: str = ""
    """`rollback` with its arguments, if the agent says that the person typed this command."""
    problem: str = ""
    """What was wrong with the input, if anything."""
    version: str = ""
    """Of the agent, if the input has it."""


def output_in(prompt: str) -> str:
    """The output of `shadowsnap rollback` in a prompt that a command file was expanded to; else empty."""
    text = prompt.rstrip()
    return text.removesuffix(SHOW_OUTPUT).strip() if text.endswith(SHOW_OUTPUT) else ""


def read_event(agent: str, data: bytes, event_name: str = "") -> HookEvent:
    """The event in a hook's input. `event_name` is for agents whose input does not say it."""
    text = _decoded(_shortened(data))
    problem = ""
    try:
        payload = _parsed(text)
    except (ValueError, RecursionError) as error:
        payload = _salvaged(text)
        problem = f"unreadable input: {error}" if text.strip() else "empty input"
    return _event(agent, payload, event_name, problem)


def _event(agent: str, payload: dict[str, Any], event_name: str, problem: str) -> HookEvent:
    places = [payload, *(payload[key] for key in _NESTED if isinstance(payload.get(key), dict))]
    name = _squeezed(_text(places, _EVENT) or event_name)
    kind = _KINDS.get(name) or (OTHER if name and not _is_new_tool_event(name, places) else _guessed(payload))
    roots = tuple(_paths(_first(places, _ROOTS)))[:_MOST_ROOTS]
    child = bounded_id(_text(places, ("child_session_id",))) if name == "subagentstart" else ""
    if child:  # Hermes: the start of a session, reported by its parent
        kind = SESSION_START
    prompt = _text(places, _PROMPT) if kind in (PROMPT, SESSION_START) else ""
    root = _text(places, _ROOT_SESSION)
    helper = any(place.get(key) not in (None, "") for place in places for key in _HELPER[1:]) or (
        bool(payload.get("agent_id")) and name not in ("agentstart", "agentend", "toolcall")
    )
    if name in ("agentstart", "agentend", "toolcall", "taskcancel"):  # Cline: null for the top level
        helper = bool(_text(places, ("parent_agent_id",)))
    session = bounded_id(root or _text(places, _SESSION))
    after = name in _AFTER or (not name and any(key in payload for key in _RESULT))
    tool = _TOOL_OF_EVENT.get(name.replace("post", "pre", 1).replace("after", "before", 1), "")
    return HookEvent(
        kind=kind,
        agent=agent,
        session=child or session,
        turn=bounded_id(_text(places, _TURN)),
        cwd=_path(_text(places, _CWD)) or (roots[0] if roots else os.getcwd()),
        roots=roots,
        tool=(_text(places, _TOOL_NAME) or tool)[:_LONGEST_NAME] if kind == TOOL or after else "",
        tool_input=_tool_input(payload, places) if kind == TOOL or after else None,
        prompt=prompt,
        transcript=_path(_text(places, _TRANSCRIPT)),
        ends=_ENDS.get(name, ""),
        after=after,
        name=name,
        is_helper=helper,
        parent=session if child else bounded_id(_text(places, ("parentID",))) if kind == SESSION_START else "",
        begins=name == "agentstart",
        continues=kind == PROMPT and (not prompt.strip() or prompt.lstrip().startswith(_NOTIFICATION)),
        background=kind == STOP and _has_running_task(payload.get("background_tasks")),
        interrupted=_first(places, ("interrupted", "is_interrupt")) is True,
        command=_rollback_command(payload) if name == "userpromptexpansion" else "",
        version=_text(places, _VERSION)[:40],
        problem=problem,
    )


def _rollback_command(payload: dict[str, Any]) -> str:
    if payload.get("command_name") != "rollback":
        return ""
    return f"rollback {payload.get('command_args') or ''}".strip()


def _has_running_task(tasks: Any) -> bool:
    return isinstance(tasks, list) and any(
        isinstance(task, dict) and task.get("status", "running") == "running" for task in tasks
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


def _shortened(data: bytes) -> bytes:
    """The beginning and the end of a very long input: what makes it long is a text in the middle. (Millions of
    small values would take a hundred times their length in memory.)"""
    if len(data) <= 2 * _LONGEST_PART:
        return data
    head, before_tail = data[:_LONGEST_PART], data[-_LONGEST_PART - 1000 : -_LONGEST_PART]
    escape = head.rfind(b"\\", len(head) - len(rb"\u0000"))
    if escape >= 0:
        head = head[:escape].rstrip(b"\\")
    is_escaped = (len(before_tail) - len(before_tail.rstrip(b"\\"))) % 2
    return head + data[is_escaped - _LONGEST_PART :]


def _decoded(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # PowerShell
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _parsed(text: str) -> dict[str, Any]:
    # Not strict: some agents do not escape control characters.
    value = parse_json(text.strip().strip("\0"), strict=False)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _salvaged(text: str) -> dict[str, Any]:
    """The known facts in JSON that was cut short: whatever value still is whole."""
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
    """A path that the system takes; empty if there is none in it. (An escaped NUL or half a surrogate pair is
    valid JSON.)"""
    path = plain_path(value).replace("\0", "")
    return path if is_encodable(path) else ""


def _squeezed(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


# --- transcripts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A directory of transcripts."""

    home: str
    """The agent's own directory, below the home of the person."""
    folder: str
    variable: str = ""
    """The environment variable that names another one."""
    below: str = ""
    """What comes between the directory that the variable names and `folder`."""


# As their newest versions were seen to do it. An agent that is not listed names no transcript.
_PLACES: dict[str, tuple[Place, ...]] = {
    "claude": (Place(".claude", "projects", "CLAUDE_CONFIG_DIR"),),
    "codex": (Place(".codex", "sessions", "CODEX_HOME"),),
    "gemini": (Place(".gemini", "tmp", "GEMINI_CLI_HOME", ".gemini"),),
    "qwen": (
        Place(".qwen", "projects", "QWEN_RUNTIME_DIR"),
        Place(".qwen", "projects", "QWEN_HOME"),
        Place(".qwen", "tmp", "QWEN_RUNTIME_DIR"),
    ),
    "copilot": (Place(".copilot", "session-state", "COPILOT_HOME"),),
    "cursor": (Place(".cursor", "projects"),),
    "windsurf": (Place(".windsurf", "transcripts"),),
}


@dataclass(frozen=True)
class Implied:
    """A transcript that no event names, but whose place follows from the session."""

    place: Place
    name: str
    """Below the folder; `{session}` stands for the id of the session."""


_IMPLIED = {
    "copilot": Implied(Place(".copilot", "session-state", "COPILOT_HOME"), "{session}/events.jsonl"),
    "opencode": Implied(Place(".local/share", "opencode", "XDG_DATA_HOME"), "opencode.db"),
    "goose": Implied(Place(".local/share", "goose/sessions", "XDG_DATA_HOME"), "sessions.db"),
    "hermes": Implied(Place(".hermes", "", "HERMES_HOME"), "state.db"),
}


def implied_transcript(agent: str, session: str) -> tuple[str, str] | None:
    """The transcript of a session and the folder that it lies in, for agents that do not name it; None if it is
    not there."""
    implied = _IMPLIED.get(agent)
    if implied is None or not session or session != os.path.basename(session) or session.startswith("."):
        return None
    folder = _folder(implied.place)
    path = os.path.join(folder, implied.name.format(session=session))
    return (path, folder) if os.path.isfile(path) else None


_VERSION_IN_TRANSCRIPT = re.compile(rb'"(?:version|cli_version|copilotVersion)": ?"(\d[\w.+-]{0,39})"')
_BEGINNING = 64 << 10


def version_in_transcript(agent: str, session: str, path: str) -> str:
    """The version of the agent, if its transcript begins with it. Few agents have it in the input of hooks."""
    found = (path, transcripts_folder(agent, path)) if path else implied_transcript(agent, session)
    if found is None or found[1] is None:
        return ""
    try:
        with os.fdopen(open_below(found[1], found[0]), "rb") as file:
            version = _VERSION_IN_TRANSCRIPT.search(file.read(_BEGINNING))
    except (OSError, ValueError, OutsideFolder):
        return ""
    return version[1].decode("ascii", "replace") if version else ""


def transcripts_folder(agent: str, path: str) -> str | None:
    """The directory of that agent's transcripts that a path lies in, as it is written; None if it lies in none
    of them. The path itself is not looked up: it may lead to a drive that never answers."""
    wanted = os.path.normcase(os.path.normpath(path))
    for folder in transcripts_folders(agent) if os.path.isabs(path) else ():
        for spelling in (folder, os.path.realpath(folder)):
            if wanted.startswith(os.path.normcase(os.path.join(spelling, ""))):
                return folder
    return None


def transcripts_folders(agent: str) -> list[str]:
    """The directories where an agent keeps its transcripts; the first is where new ones go."""
    return [_folder(place) for place in _PLACES.get(agent, ())]


def _folder(place: Place) -> str:
    named = os.environ.get(place.variable) if place.variable else None
    if named and os.path.isabs(named):
        home = os.path.join(named, place.below)
    else:
        home = os.path.join(os.path.expanduser("~"), place.home)
    return os.path.normpath(os.path.join(home, place.folder))
