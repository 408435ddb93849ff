"""What agents send to a hook, read into one shape.

Every agent has its own names for the same facts, and some run the hooks in another agent's settings. So the name
of the agent does not matter here: each fact is looked for under all its names. Of an input that is damaged or cut
short, as much as possible is used: a superfluous snapshot does no harm, a missing one does.

The path of a transcript is accepted only below the directory where that agent keeps them. Any program can forge
the input, and must not have another file copied into the store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from shadowsnap.files import OutsideFolder, is_encodable, open_below, parse_json
from shadowsnap.snapshot.tools import bounded_id, plain_path

if TYPE_CHECKING:  # every hook reads its input, and few need the model
    from shadowsnap.model import SessionStatus

TOOL, PROMPT, SESSION_START, STOP, OTHER = "tool", "prompt", "session-start", "stop", "other"
PROBE = "probe"
"""Asks only for a line in the log, as a test of the hook."""
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

# Events after a tool call. They matter only if each call has checkpoints of its own.
_AFTER_TOOL = frozenset({
    "aftertool", "posttooluse", "posttoolcall", "toolexecuteafter", "postwritecode", "postruncommand",
    "postmcptooluse", "aftershellexecution", "aftermcpexecution",
})  # fmt: skip

# Events that end a session, and its status then.
_ENDS: dict[str, SessionStatus] = {
    "sessionend": "completed",
    "onsessionfinalize": "completed",
    "sessionshutdown": "completed",
    "taskcomplete": "completed",
    "taskcancel": "failed",
}

# Keys of each fact, the most reliable first.
_EVENT = ("hook_event_name", "hookEventName", "hookName", "agent_action_name", "event", "event_name", "eventName")
_ROOT_SESSION = ("rootSessionId", "parentAgentId")
"""The session that the session of a subagent belongs to."""
_SUBAGENT = ("agent_id", "agentId", "parent_agent_id", "parentAgentId")
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
# Read from a tool input that is cut short.
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
_KEPT_AT_EACH_END = 4 << 20

# Windsurf and older versions of Cursor name the action, not the tool.
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
    """Whether a tool just ran; the kind is `other` then."""
    name: str = field(default="", compare=False)
    """The agent's own name of the event, normalized."""
    is_subagent: bool = False
    """Whether a subagent caused it: it belongs to the turn of the session that started the subagent."""
    parent: str = ""
    """The session that started this one for a subagent."""
    begins: bool = False
    """Whether it begins a turn even without a prompt."""
    continues: bool = False
    """Whether a prompt belongs to the open turn: a tool result, or the notification of a background task."""
    background: bool = False
    """Whether a subagent goes on after this stop; its work is the turn's, and its end is reported."""
    interrupted: bool = False
    command: str = ""
    """`rollback` with its arguments, if the agent says that the person typed this command."""
    problem: str = ""
    """What was wrong with the input, if anything."""
    version: str = ""
    """Of the agent, if the input has it."""


def output_in(prompt: str) -> str:
    """The output of `shadowsnap rollback` in a prompt that was made from a command file; else empty."""
    text = prompt.rstrip()
    return text.removesuffix(SHOW_OUTPUT).strip() if text.endswith(SHOW_OUTPUT) else ""


def read_event(agent: str, data: bytes, event_name: str = "") -> HookEvent:
    """The event in the input of a hook. `event_name` is used if the input does not name the event."""
    text = _decode(_shorten(data))
    problem = ""
    try:
        payload = _parse_object(text)
    except (ValueError, RecursionError) as error:
        payload = _known_values(text)
        problem = f"unreadable input: {error}" if text.strip() else "empty input"
    return _event(agent, payload, event_name, problem)


def _event(agent: str, payload: dict[str, Any], event_name: str, problem: str) -> HookEvent:
    places = [payload, *(payload[key] for key in _NESTED if isinstance(payload.get(key), dict))]
    name = _normalized(_text(places, _EVENT) or event_name)
    kind = _KINDS.get(name) or (OTHER if name and not _is_new_tool_event(name, places) else _guess_kind(payload))
    # Absolute, because what is safe is remembered by path, and the next hook may run in another directory.
    given = [*_paths(_first(places, _ROOTS))][:_MOST_ROOTS]
    here = os.path.abspath(_path(_text(places, _CWD)) or (given[0] if given else "."))
    roots = tuple(os.path.join(here, root) for root in given)
    child = bounded_id(_text(places, ("child_session_id",))) if name == "subagentstart" else ""
    if child:  # Hermes: the start of a session, reported by its parent
        kind = SESSION_START
    prompt = _text(places, _PROMPT) if kind in (PROMPT, SESSION_START) else ""
    root = _text(places, _ROOT_SESSION)
    is_subagent = any(place.get(key) not in (None, "") for place in places for key in _SUBAGENT[1:]) or (
        bool(payload.get("agent_id")) and name not in ("agentstart", "agentend", "toolcall")
    )
    if name in ("agentstart", "agentend", "toolcall", "taskcancel"):  # Cline: null for the top level
        is_subagent = bool(_text(places, ("parent_agent_id",)))
    session = bounded_id(root or _text(places, _SESSION))
    after = name in _AFTER_TOOL or (not name and any(key in payload for key in _RESULT))
    tool = _TOOL_OF_EVENT.get(name.replace("post", "pre", 1).replace("after", "before", 1), "")
    return HookEvent(
        kind=kind,
        agent=agent,
        session=child or session,
        turn=bounded_id(_text(places, _TURN)),
        cwd=here,
        roots=roots,
        tool=(_text(places, _TOOL_NAME) or tool)[:_LONGEST_NAME] if kind == TOOL or after else "",
        tool_input=_tool_input(payload, places) if kind == TOOL or after else None,
        prompt=prompt,
        transcript=_path(_text(places, _TRANSCRIPT)),
        ends=_ENDS.get(name, ""),
        after=after,
        name=name,
        is_subagent=is_subagent,
        parent=session if child else bounded_id(_text(places, ("parentID",))) if kind == SESSION_START else "",
        begins=name == "agentstart",
        continues=kind == PROMPT and (not prompt.strip() or prompt.lstrip().startswith(_NOTIFICATION)),
        background=kind == STOP and _has_running_agent(payload.get("background_tasks")),
        interrupted=_first(places, ("interrupted", "is_interrupt")) is True,
        command=_rollback_command(payload) if name == "userpromptexpansion" else "",
        version=_text(places, _VERSION)[:40],
        problem=problem,
    )


def _has_running_agent(tasks: Any) -> bool:
    """Whether a subagent goes on after a stop. Shells do not count: a server never ends."""
    return isinstance(tasks, list) and any(
        isinstance(task, dict) and task.get("status", "running") == "running" and task.get("type") != "shell"
        for task in tasks
    )


def _rollback_command(payload: dict[str, Any]) -> str:
    if payload.get("command_name") != "rollback":
        return ""
    return f"rollback {payload.get('command_args') or ''}".strip()


def _is_new_tool_event(name: str, places: list[dict[str, Any]]) -> bool:
    """Whether an event of an unknown name seems to come before a tool call: then a snapshot is taken."""
    if name in _AFTER_TOOL or any(word in name for word in ("post", "after", "end", "result", "complete", "fail")):
        return False
    return bool(_text(places, _TOOL_NAME)) and _first(places, _TOOL_INPUT) is not None


def _guess_kind(payload: dict[str, Any]) -> str:
    """The kind of an event without a name, by its other facts."""
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
            return _parse_object(value)
        except (ValueError, RecursionError):
            return {"input": value}
    return payload if value is None else value


# --- reading leniently -----------------------------------------------------------------------


def _shorten(data: bytes) -> bytes:
    """The beginning and the end of a very long input, where the facts are; the middle is content. (Parsed,
    millions of small values would take a hundred times their length in memory.)"""
    if len(data) <= 2 * _KEPT_AT_EACH_END:
        return data
    head, before_tail = data[:_KEPT_AT_EACH_END], data[-_KEPT_AT_EACH_END - 1000 : -_KEPT_AT_EACH_END]
    escape = head.rfind(b"\\", len(head) - len(rb"\u0000"))
    if escape >= 0:
        head = head[:escape].rstrip(b"\\")
    is_escaped = (len(before_tail) - len(before_tail.rstrip(b"\\"))) % 2
    return head + data[is_escaped - _KEPT_AT_EACH_END :]


def _decode(data: bytes) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):  # PowerShell
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def _parse_object(text: str) -> dict[str, Any]:
    # Not strict: some agents do not escape control characters.
    value = parse_json(text.strip().strip("\0"), strict=False)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _known_values(text: str) -> dict[str, Any]:
    """The complete values of known keys in JSON that was cut short."""
    decoder = json.JSONDecoder(strict=False)
    found: dict[str, Any] = {}
    for names in (_EVENT, _SESSION, _TURN, _CWD, _ROOTS, _TOOL_NAME, _TOOL_INPUT, _PROMPT, _FILES):
        for key in names:
            start = text.find(f'"{key}"')
            if start < 0:
                continue
            colon = _skip_space(text, start + len(key) + 2)
            if text[colon : colon + 1] != ":":
                continue
            try:
                found[key] = decoder.raw_decode(text, _skip_space(text, colon + 1))[0]
            except (ValueError, RecursionError):
                continue
    return found


def _skip_space(text: str, at: int) -> int:
    """The position of the next character that is not white space."""
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
    """A path that is valid on this system; else empty. (JSON may hold an escaped NUL, or half a surrogate
    pair.)"""
    path = plain_path(value).replace("\0", "")
    return path if is_encodable(path) else ""


def _normalized(name: str) -> str:
    return "".join(char for char in name.lower() if char.isalnum())


# --- transcripts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TranscriptFolder:
    """A directory of transcripts."""

    home: str
    """The agent's own directory, below the home of the person."""
    folder: str
    variable: str = ""
    """The environment variable that moves it."""
    below: str = ""
    """The path between the directory that the variable names and `folder`."""


# As observed in their newest versions. Agents that are not listed name no transcript.
_TRANSCRIPT_FOLDERS: dict[str, tuple[TranscriptFolder, ...]] = {
    "claude": (TranscriptFolder(".claude", "projects", "CLAUDE_CONFIG_DIR"),),
    "codex": (TranscriptFolder(".codex", "sessions", "CODEX_HOME"),),
    "gemini": (TranscriptFolder(".gemini", "tmp", "GEMINI_CLI_HOME", ".gemini"),),
    "qwen": (
        TranscriptFolder(".qwen", "projects", "QWEN_RUNTIME_DIR"),
        TranscriptFolder(".qwen", "projects", "QWEN_HOME"),
        TranscriptFolder(".qwen", "tmp", "QWEN_RUNTIME_DIR"),
    ),
    "copilot": (TranscriptFolder(".copilot", "session-state", "COPILOT_HOME"),),
    "cursor": (TranscriptFolder(".cursor", "projects"),),
    "windsurf": (TranscriptFolder(".windsurf", "transcripts"),),
}


@dataclass(frozen=True)
class ImpliedTranscript:
    """A transcript that no event names, but whose path follows from the session id."""

    folder: TranscriptFolder
    name: str
    """Below the folder; `{session}` stands for the id of the session."""


_IMPLIED_TRANSCRIPTS = {
    "copilot": ImpliedTranscript(
        TranscriptFolder(".copilot", "session-state", "COPILOT_HOME"), "{session}/events.jsonl"
    ),
    "opencode": ImpliedTranscript(TranscriptFolder(".local/share", "opencode", "XDG_DATA_HOME"), "opencode.db"),
    "goose": ImpliedTranscript(TranscriptFolder(".local/share", "goose/sessions", "XDG_DATA_HOME"), "sessions.db"),
    "hermes": ImpliedTranscript(TranscriptFolder(".hermes", "", "HERMES_HOME"), "state.db"),
}


def implied_transcript(agent: str, session: str) -> tuple[str, str] | None:
    """The transcript of a session and its folder, for agents that do not name it; None if it does not exist."""
    implied = _IMPLIED_TRANSCRIPTS.get(agent)
    if implied is None or not session or session != os.path.basename(session) or session.startswith("."):
        return None
    folder = _folder(implied.folder)
    path = os.path.join(folder, implied.name.format(session=session))
    return (path, folder) if os.path.isfile(path) else None


_VERSION_IN_TRANSCRIPT = re.compile(rb'"(?:version|cli_version|copilotVersion)": ?"(\d[\w.+-]{0,39})"')
_BEGINNING = 64 << 10


def version_in_transcript(agent: str, session: str, path: str) -> str:
    """The version of the agent, if the beginning of its transcript has it: few agents send it to hooks."""
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
    """The directory of that agent's transcripts that contains a path, as it is written; None if none does. The
    path is not resolved: it may be on a drive that never answers."""
    wanted = os.path.normcase(os.path.normpath(path))
    for folder in transcripts_folders(agent) if os.path.isabs(path) else ():
        for spelling in (folder, os.path.realpath(folder)):
            if wanted.startswith(os.path.normcase(os.path.join(spelling, ""))):
                return folder
    return None


def transcripts_folders(agent: str) -> list[str]:
    """The directories where an agent keeps its transcripts; the first is where new ones go."""
    return [_folder(place) for place in _TRANSCRIPT_FOLDERS.get(agent, ())]


def _folder(place: TranscriptFolder) -> str:
    named = os.environ.get(place.variable) if place.variable else None
    if named and os.path.isabs(named):
        home = os.path.join(named, place.below)
    else:
        home = os.path.join(os.path.expanduser("~"), place.home)
    return os.path.normpath(os.path.join(home, place.folder))
