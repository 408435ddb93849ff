"""Whether an agent runs the installed hook: what it recorded of the person's consent.

Codex, Hermes and Gemini skip a hook without a message until the person agreed. Nothing here gives that
consent. These functions read the agent's own record and return why the hook does not run, as a phrase;
an empty one means that it does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shadowsnap.agents.agent import Agent
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.edit import Edit, JsonHooks, YamlHooks, parse, plain
from shadowsnap.agents.install import folder_of, read_text


def why_switched_off(agent: Agent, project: Path | None) -> str:
    """The setting that turns all hooks of an agent off, if there is one."""
    folders = [folder_of(agent)]
    if project is not None and agent.folder.project is not None:
        folders.append(project / agent.folder.project)
    for switch in agent.switches:
        for folder in folders:
            found: Any = _read_json(folder / switch.file)
            for key in switch.keys:
                found = found.get(key) if isinstance(found, dict) else None
            if found == switch.off and type(found) is type(switch.off):
                return f"hooks are turned off: {'.'.join(switch.keys)} in {folder / switch.file}"
            if isinstance(found, list) and switch.off in found:
                return f"the hook is turned off: {'.'.join(switch.keys)} in {folder / switch.file}"
    return ""


def why_not_consented(agent: Agent, edits: list[Edit], project: Path | None) -> str:
    """Why the agent does not run the hook; empty if it does, or never asks."""
    check = _CHECKS.get(agent.name)
    return check(edits, project) if check else ""


# --- Codex ---------------------------------------------------------------------------------------


def _codex(edits: list[Edit], project: Path | None) -> str:
    """Trust is a hash of each hook, by its position in the file. A project's hooks need trust in the project
    as well."""
    config_file = folder_of(AGENTS["codex"]) / "config.toml"
    try:
        config = tomllib.loads(read_text(config_file) or "")
    except (ValueError, OSError) as problem:
        return f"{config_file} cannot be read: {problem}"
    features = _table(config, "features")
    if features.get("hooks", features.get("codex_hooks")) is False:
        return f"hooks are turned off: features.hooks in {config_file}"
    states = _table(config, "hooks", "state")
    for edit in edits:
        if isinstance(edit, JsonHooks):
            for keys, expected in codex_hashes(edit):
                state: Any = next((states[key] for key in keys if isinstance(states.get(key), dict)), {})
                if state.get("enabled") is False:
                    return "a hook was turned off in codex: type /hooks there"
                if state.get("trusted_hash") != expected:
                    changed = "it changed since you trusted it; " if state.get("trusted_hash") else ""
                    return f"{changed}trust the hook"
    return ""


def codex_hashes(edit: JsonHooks) -> Iterator[tuple[list[str], str]]:
    """For each hook of ours: the keys under which Codex may keep its trust, and the hash that it wants there.
    Codex resolves links in CODEX_HOME, but not in a home directory."""
    hooks = plain(parse(read_text(edit.path) or "{}")).get("hooks", {})
    paths = dict.fromkeys((str(edit.path), os.path.realpath(edit.path)))
    ours = set(edit.commands(json.dumps({"hooks": hooks})))
    for event, groups in hooks.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(groups if isinstance(groups, list) else ()):
            for number, hook in enumerate(group.get("hooks", ()) if isinstance(group, dict) else ()):
                if isinstance(hook, dict) and hook.get("command") in ours:
                    yield [f"{path}:{name}:{at}:{number}" for path in paths], _codex_hash(name, group, hook)


def _codex_hash(event: str, group: dict[str, Any], hook: dict[str, Any]) -> str:
    entry = {"async": False, "command": hook["command"], "timeout": hook.get("timeout", 600), "type": "command"}
    # Codex ignores a matcher where it has no meaning.
    matcher = group.get("matcher") if event in ("pre_tool_use", "session_start", "session_end") else None
    identity = {"event_name": event, "hooks": [entry], **({} if matcher is None else {"matcher": matcher})}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _table(value: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


# --- Hermes --------------------------------------------------------------------------------------

_YES = ("1", "true", "yes", "on")


def _hermes(edits: list[Edit], project: Path | None) -> str:
    """Each event with its command is on a list. (The list has the script's time as well, which is only shown.)"""
    if os.environ.get("HERMES_ACCEPT_HOOKS", "").strip().lower() in _YES:
        return ""
    allowed = _read_json(folder_of(AGENTS["hermes"]) / "shell-hooks-allowlist.json")
    approvals = allowed.get("approvals") if isinstance(allowed, dict) else None
    known = {
        (each.get("event"), each.get("command"))
        for each in (approvals if isinstance(approvals, list) else ())
        if isinstance(each, dict)
    }
    for edit in edits:
        text = read_text(edit.path) if isinstance(edit, YamlHooks) else None
        if isinstance(edit, YamlHooks) and text is not None:
            if re.search(r"^hooks_auto_accept:\s*[\"']?(?:true|yes|on|1)\b", text, re.MULTILINE | re.IGNORECASE):
                return ""
            missing = [event for event, command in edit.events(text).items() if (event, command) not in known]
            if missing:
                return f"allow the hook ({len(missing)} of its events)"
    return ""


# --- Gemini --------------------------------------------------------------------------------------


def _gemini(edits: list[Edit], project: Path | None) -> str:
    """Hooks run in trusted folders only. The longest rule that covers the folder counts."""
    folder = folder_of(AGENTS["gemini"])
    variable = os.environ.get("GEMINI_CLI_TRUST_WORKSPACE")
    if project is None or variable == "true":
        return ""
    settings = _read_json(folder / "settings.json")
    if _table(settings, "security", "folderTrust").get("enabled") is False:
        return ""
    rules = _read_json(folder / "trustedFolders.json")
    best, level = -1, ""
    here = os.path.realpath(project)
    for path, rule in rules.items() if isinstance(rules, dict) else ():
        covered = os.path.realpath(os.path.dirname(path) if rule == "TRUST_PARENT" else path)
        if (here == covered or here.startswith(covered.rstrip(os.sep) + os.sep)) and len(path) > best:
            best, level = len(path), rule
    if variable != "false" and level in ("TRUST_FOLDER", "TRUST_PARENT"):
        return ""
    return "gemini does not trust this folder"


def _read_json(path: Path) -> Any:
    """The value of a JSON file with comments; None if there is none or it cannot be read."""
    try:
        text = read_text(path)
        return None if text is None else plain(parse(text))
    except (ValueError, OSError):
        return None


_CHECKS: dict[str, Callable[[list[Edit], Path | None], str]] = {
    "codex": _codex,
    "hermes": _hermes,
    "gemini": _gemini,
}
