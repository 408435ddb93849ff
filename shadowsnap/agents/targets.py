"""Where each agent keeps its hooks, and what we put there.

One function per agent returns the edits that make up an installation. An edit knows one file:
how our part is added to its text, and how it is taken out again.
"""

from __future__ import annotations

import json
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from shadowsnap.agents import edit as jsonedit
from shadowsnap.agents import edit as yamledit
from shadowsnap.records import dataclass

_SECONDS = 20
_OURS = re.compile(r"shadowsnap(?:\.exe)?[\"']*\s+hook\s+[\w-]+")
_SUM = re.compile(r"\(sum ([0-9a-f]{12})\)")

# Which tools a hook is run for, where an agent lets us choose. It is their cost only: the hook itself
# knows better.
_CLAUDE_TOOLS = "Write|Edit|MultiEdit|NotebookEdit|Bash|PowerShell|mcp__.*"
_CODEX_TOOLS = "apply_patch|Bash|Write|Edit|mcp__.*"
_GEMINI_TOOLS = "write_file|replace|edit|run_shell_command|mcp_.*|.*__.*"
_GOOSE_TOOLS = "write|edit|shell|create|delete|move|patch|exec|run"
_HERMES_TOOLS = "write_file|patch|terminal|process|execute_code|mcp_.*"


@dataclass(frozen=True)
class Home:
    """Where to install to: the person's own settings, or one project's."""

    program: tuple[str, ...]
    """The command line that starts us."""
    project: Path | None = None

    def folder(self, user: str, project: str | None = None, variable: str = "") -> Path:
        """A folder of an agent; `project` None means that it has none there."""
        if self.project is not None:
            if project is None:
                raise LookupError("it has no settings for a single project")
            return self.project / project
        told = os.environ.get(variable) if variable else None
        return Path(told).expanduser() if told else Path.home() / user

    def hook(self, agent: str, *more: str) -> str:
        return quoted([*self.program, "hook", agent, *more])

    def rollback(self) -> str:
        return quoted([*self.program, "rollback"])


class Edit(ABC):
    """Our part of one file."""

    executable = False
    optional = False
    """Whether an installation is worth having without it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def add(self, text: str | None) -> str:
        """The text with our part in it; None is a file that does not exist. Raises ValueError if
        that cannot be done without loss."""

    @abstractmethod
    def strip(self, text: str) -> str:
        """The text without our part."""

    def has(self, text: str) -> bool:
        return self.strip(text) != text

    @abstractmethod
    def is_current(self, text: str) -> bool:
        """Whether our part is just what `add` would put there."""


class JsonHooks(Edit):
    """Entries in the lists under `hooks` of a JSON file."""

    def __init__(self, path: Path, hooks: dict[str, Any], around: dict[str, Any] | None = None) -> None:
        super().__init__(path)
        self.hooks = hooks
        self.around = around or {}

    def add(self, text: str | None) -> str:
        text = "{}\n" if text is None or _is_blank(text) else text
        top = jsonedit.parse(text)
        if top.kind != "object":
            raise ValueError("it is not a JSON object")
        for key, value in self.around.items():
            if top.get(key) is None:
                text = jsonedit.add_member(text, (), key, value)
        text = self._with_container(text, (), "hooks", {}, "object")
        for event, entry in self.hooks.items():
            text = self._with_container(text, ("hooks",), event, [], "list")
            text = jsonedit.append_item(text, ("hooks", event), entry)
        return text

    def strip(self, text: str) -> str:
        if _is_blank(text):
            return text
        while (found := next(self._ours(jsonedit.parse(text)), None)) is not None:
            text = jsonedit.remove_part(text, *found)
        return text

    def is_current(self, text: str) -> bool:
        hooks = jsonedit.plain(jsonedit.parse(text)).get("hooks", {})
        return all(entry in hooks.get(event, ()) for event, entry in self.hooks.items())

    @staticmethod
    def _with_container(text: str, where: tuple[str, ...], key: str, empty: Any, kind: str) -> str:
        holder = jsonedit.parse(text)
        for step in where:
            holder = holder.get(step) or holder
        found = holder.get(key)
        if found is None:
            return jsonedit.add_member(text, where, key, empty)
        if found.kind != kind:
            raise ValueError(f"{'.'.join((*where, key))} is not {'a list' if kind == 'list' else 'an object'}")
        return text

    @staticmethod
    def _ours(top: jsonedit.Value) -> Iterator[tuple[jsonedit.Value, int]]:
        """What to take out: entries of ours, with the lists and objects that hold nothing else."""
        hooks = top.get("hooks")
        if hooks is None or hooks.kind != "object":
            return
        for number, event in enumerate(hooks.parts):
            groups = event.value.parts if event.value.kind == "list" else []
            for place, group in enumerate(groups):
                inner = group.value.get("hooks") if group.value.kind == "object" else None
                commands = inner.parts if inner is not None else [group]
                ours = [at for at, each in enumerate(commands) if _is_ours(each.value)]
                if inner is not None and 0 < len(ours) < len(commands):
                    yield inner, ours[0]
                elif ours and len(groups) > 1:
                    yield event.value, place
                elif ours and len(hooks.parts) > 1:
                    yield hooks, number
                elif ours:
                    yield top, next(at for at, part in enumerate(top.parts) if part.value is hooks)


class YamlHook(Edit):
    def __init__(self, path: Path, event: str, hook: dict[str, str | int]) -> None:
        super().__init__(path)
        self.event = event
        self.hook = hook

    def add(self, text: str | None) -> str:
        return yamledit.add_hook(text or "", self.event, self.hook)

    def strip(self, text: str) -> str:
        return yamledit.remove_hooks(text, _OURS)

    def is_current(self, text: str) -> bool:
        return json.dumps(self.hook["command"], ensure_ascii=False) in text


class OwnFile(Edit):
    """A file that is ours alone. A sum in it tells whether somebody changed it since."""

    def __init__(self, path: Path, text: str, *, executable: bool = False, optional: bool = False) -> None:
        super().__init__(path)
        self.text = text.replace("(sum)", f"(sum {_sum(text)})")
        self.executable = executable
        self.optional = optional

    def add(self, text: str | None) -> str:
        if text:
            raise ValueError("there is a file of that name already, and it is not ours")
        return self.text

    def strip(self, text: str) -> str:
        found = _SUM.search(text)
        if text == self.text or (found and _sum(text.replace(found.group(), "(sum)")) == found.group(1)):
            return ""
        return text

    def is_current(self, text: str) -> bool:
        return text == self.text


# --- the agents ------------------------------------------------------------------------------


def claude(home: Home) -> Iterator[Edit]:
    folder = home.folder(".claude", ".claude", "CLAUDE_CONFIG_DIR")
    entry = {"type": "command", "command": home.hook("claude"), "timeout": _SECONDS}
    events = {"PreToolUse": _CLAUDE_TOOLS, **_TURN_EVENTS, "SessionEnd": ""}
    yield JsonHooks(folder / "settings.json", _grouped(entry, **events))
    yield OwnFile(folder / "commands" / "rollback.md", rollback_for("claude", home.rollback()), optional=True)


def codex(home: Home) -> Iterator[Edit]:
    folder = home.folder(".codex", ".codex", "CODEX_HOME")
    entry = {"type": "command", "command": home.hook("codex"), "timeout": _SECONDS}
    yield JsonHooks(folder / "hooks.json", _grouped(entry, PreToolUse=_CODEX_TOOLS, **_TURN_EVENTS))
    if home.project is None:
        yield OwnFile(folder / "prompts" / "rollback.md", rollback_for("codex", home.rollback()), optional=True)


def gemini(home: Home) -> Iterator[Edit]:
    folder = home.folder(".gemini", ".gemini")
    entry = {"name": "shadowsnap", "type": "command", "command": home.hook("gemini"), "timeout": _SECONDS * 1000}
    events = {"BeforeTool": _GEMINI_TOOLS, "BeforeAgent": "", "SessionStart": "", "AfterAgent": ""}
    yield JsonHooks(folder / "settings.json", _grouped(entry, **events))
    yield OwnFile(folder / "commands" / "rollback.toml", rollback_for("gemini", home.rollback()), optional=True)


def qwen(home: Home) -> Iterator[Edit]:
    folder = home.folder(".qwen", ".qwen")
    entry = {"name": "shadowsnap", "type": "command", "command": home.hook("qwen"), "timeout": _SECONDS * 1000}
    yield JsonHooks(folder / "settings.json", _grouped(entry, PreToolUse=_GEMINI_TOOLS, **_TURN_EVENTS))
    yield OwnFile(folder / "commands" / "rollback.md", rollback_for("qwen", home.rollback()), optional=True)


def cursor(home: Home) -> Iterator[Edit]:
    entry = {"command": home.hook("cursor"), "timeout": _SECONDS}
    events = ("preToolUse", "beforeSubmitPrompt", "sessionStart", "stop")
    folder = home.folder(".cursor", ".cursor")
    yield JsonHooks(folder / "hooks.json", dict.fromkeys(events, entry), {"version": 1})
    yield OwnFile(folder / "commands" / "rollback.md", rollback_for("cursor", home.rollback()), optional=True)


def copilot(home: Home) -> Iterator[Edit]:
    # Its input does not say which event it is.
    events = ("preToolUse", "userPromptSubmitted", "sessionStart", "agentStop")
    program, *first = home.program
    hooks = {
        event: {
            "type": "command",
            "exec": program,
            "args": [*first, "hook", "copilot", event],
            "timeoutSec": _SECONDS,
        }
        for event in events
    }
    folder = home.folder(".copilot/hooks", ".github/hooks")
    yield JsonHooks(folder / "shadowsnap.json", hooks, {"version": 1})


def goose(home: Home) -> Iterator[Edit]:
    folder = home.folder(".agents/plugins", ".agents/plugins") / "shadowsnap"
    entry = {"type": "command", "command": home.hook("goose"), "timeout": _SECONDS}
    yield JsonHooks(folder / "hooks" / "hooks.json", _grouped(entry, PreToolUse=_GOOSE_TOOLS, **_TURN_EVENTS))
    yield OwnFile(
        folder / "plugin.json",
        '{\n  "name": "shadowsnap",\n  "version": "1.0.0",\n'
        '  "description": "Keeps your files safe: a checkpoint before each turn that writes"\n}\n',
    )


def kiro(home: Home) -> Iterator[Edit]:
    """Hooks belong to agents there: each one gets them; if there is none, one of our own."""
    folder = home.folder(".kiro/agents", ".kiro/agents")
    entry = {"command": home.hook("kiro"), "timeout_ms": _SECONDS * 1000}
    hooks = dict.fromkeys(("preToolUse", "userPromptSubmit", "agentSpawn", "stop"), entry)
    own = folder / "shadowsnap.json"
    for path in [path for path in sorted(folder.glob("*.json")) if path != own]:
        yield JsonHooks(path, hooks)
    if own.exists() or not any(folder.glob("*.json")):
        about = {"name": "shadowsnap", "description": "The default agent, with checkpoints", "tools": ["*"]}
        yield JsonHooks(own, hooks, about)


def windsurf(home: Home) -> Iterator[Edit]:
    events = ("pre_write_code", "pre_run_command", "pre_mcp_tool_use", "pre_user_prompt", "post_cascade_response")
    entry = {"command": home.hook("windsurf"), "show_output": False}
    yield JsonHooks(home.folder(".codeium/windsurf", ".windsurf") / "hooks.json", dict.fromkeys(events, entry))


def hermes(home: Home) -> Iterator[Edit]:
    hook: dict[str, str | int] = {
        "matcher": _HERMES_TOOLS,
        "command": home.hook("hermes"),
        "timeout": _SECONDS,
    }
    yield YamlHook(home.folder(".hermes", None, "HERMES_HOME") / "config.yaml", "pre_tool_call", hook)


def cline(home: Home) -> Iterator[Edit]:
    if sys.platform == "win32":
        raise LookupError("its hooks are shell scripts, which do not run on Windows")
    folder = home.folder("Documents/Cline/Hooks", ".clinerules/hooks")
    for event in ("PreToolUse", "UserPromptSubmit", "TaskStart", "TaskComplete"):
        yield OwnFile(folder / event, CLINE.replace("COMMAND", home.hook("cline")), executable=True)


def opencode(home: Home) -> Iterator[Edit]:
    config = os.environ.get("XDG_CONFIG_HOME")
    user = Path(config, "opencode") if config and os.path.isabs(config) else Path.home() / ".config" / "opencode"
    folder = home.project / ".opencode" if home.project is not None else user
    program = json.dumps([*home.program, "hook", "opencode"], ensure_ascii=False)
    yield OwnFile(folder / "plugins" / "shadowsnap.ts", OPENCODE.replace("PROGRAM", program))
    yield OwnFile(folder / "commands" / "rollback.md", rollback_for("opencode", home.rollback()), optional=True)


AGENTS: dict[str, Callable[[Home], Iterator[Edit]]] = {
    agent.__name__: agent
    for agent in (
        claude, codex, gemini, cursor, copilot, qwen, hermes, goose, kiro, windsurf, cline, opencode,
    )
}  # fmt: skip

_TURN_EVENTS = {"UserPromptSubmit": "", "SessionStart": "", "Stop": ""}


# --- small steps -----------------------------------------------------------------------------


def quoted(words: Sequence[str]) -> str:
    """A command line for the shell of this system."""
    if sys.platform == "win32":
        return " ".join(f'"{word}"' if re.search(r"[^\w.:\\/-]", word) else word for word in words)
    import shlex

    return shlex.join(words)


def _grouped(entry: dict[str, Any], **matchers: str) -> dict[str, Any]:
    """Claude's way to write hooks, which many others follow."""
    return {
        event: {**({"matcher": matcher} if matcher else {}), "hooks": [entry]}
        for event, matcher in matchers.items()
    }


def _is_ours(value: jsonedit.Value) -> bool:
    return bool(_OURS.search(_flattened(jsonedit.plain(value))))


def _flattened(value: Any) -> str:
    """All text in a value, in order: a command may be written as a list of words."""
    if isinstance(value, dict):
        return " ".join(_flattened(each) for each in value.values())
    if isinstance(value, list):
        return " ".join(_flattened(each) for each in value)
    return str(value)


def _is_blank(text: str) -> bool:
    return not text.strip("\ufeff \t\r\n")


def _sum(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


CLINE = """\
#!/bin/sh
# Written by `shadowsnap install cline` (sum). It prints nothing and never stops a tool.
exec COMMAND
"""

OPENCODE = """\
// Written by `shadowsnap install opencode` (sum). A checkpoint before each turn that writes.
import { spawn } from "node:child_process"

const program = PROGRAM
const turns = new Map()

// Never throws and never keeps the agent longer than this.
function tell(event) {
  return new Promise((done) => {
    const timer = setTimeout(done, 20000)
    const end = () => {
      clearTimeout(timer)
      done()
    }
    try {
      const child = spawn(program[0], program.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
      child.on("error", end)
      child.on("close", end)
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(event))
    } catch {
      end()
    }
  })
}

export const Shadowsnap = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const session = input?.sessionID
    const turn = input?.messageID ?? output?.message?.id
    const prompt = (output?.parts ?? []).map((part) => part?.text ?? "").join("\\n").trim()
    turns.set(session, turn)
    await tell({ event: "prompt", session, turn, cwd: directory, prompt })
  },
  "tool.execute.before": async (input, output) => {
    const session = input?.sessionID
    const event = { event: "tool", session, turn: turns.get(session), cwd: directory }
    await tell({ ...event, tool: input?.tool, input: output?.args })
  },
  event: async ({ event }) => {
    const session = event?.properties?.sessionID ?? event?.properties?.info?.id
    if (event?.type === "session.idle") {
      await tell({ event: "stop", session, turn: turns.get(session), cwd: directory })
    } else if (event?.type === "session.created") {
      await tell({ event: "session-start", session, cwd: directory })
    }
  },
})
"""

_ABOUT = "Bring files back to a checkpoint: [N | N FILE... | diff N [M] | undo | redo | pin N [NAME] | help]"
_SHOW = "Show me the output above as it is, in a code block, and do nothing else."
# Some agents have no sign for what is typed after a command, or not the same one in each version; they put it
# behind the text.
_RUN = """Run this command once, with the words behind /rollback as its arguments if there are any, show me its
output as it is in a code block, and do nothing else:"""

_ROLLBACK = {
    "claude": f"""\
---
description: "{_ABOUT}"
allowed-tools: Bash(COMMAND:*)
disable-model-invocation: true
---
<!-- Written by `shadowsnap install claude` (sum). -->
!`COMMAND $ARGUMENTS`

{_SHOW}
""",
    "codex": f"""\
---
description: "{_ABOUT}"
argument-hint: "[N | diff N | undo]"
---
<!-- Written by `shadowsnap install codex` (sum). -->
Run this command once, show me its output as it is in a code block, and do nothing else:

    COMMAND $ARGUMENTS
""",
    "gemini": f"""\
# Written by `shadowsnap install gemini` (sum).
description = "{_ABOUT}"
prompt = '''
!{{COMMAND {{{{args}}}}}}

{_SHOW}
'''
""",
    "qwen": f"""\
---
description: "{_ABOUT}"
---
<!-- Written by `shadowsnap install qwen` (sum). -->
{_RUN}

    COMMAND
""",
    "cursor": f"""\
<!-- Written by `shadowsnap install cursor` (sum). -->
{_RUN}

    COMMAND
""",
    "opencode": f"""\
---
description: "{_ABOUT}"
---
<!-- Written by `shadowsnap install opencode` (sum). -->
!`COMMAND $ARGUMENTS`

{_SHOW}
""",
}


def rollback_for(agent: str, command: str) -> str:
    """The /rollback command of an agent."""
    return _ROLLBACK[agent].replace("COMMAND", command)
