"""Codex."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shadowsnap.agents.agent import (
    ABOUT_ROLLBACK,
    COMMAND,
    ROLLBACK,
    SECONDS,
    SEEN,
    Agent,
    Consent,
    Event,
    Folder,
    HooksFile,
    Retired,
    TextFile,
)
from shadowsnap.agents.edit import Edit, JsonHooks, parse, plain, read_text, table_in

_SKILL = f"""\
---
name: rollback
description: "{ABOUT_ROLLBACK}. Only when the user asks for it by name."
---
<!-- Written by `shadowsnap install codex` (sum). -->
Run this command once, with the words after `$rollback` as its arguments if there are any (quote each of
them for the shell), show its output as it is in a code block, and do nothing else:

    {ROLLBACK}
"""

def _untrusted(folder: Path, edits: Sequence[Edit], project: Path | None) -> str:
    """Trust is a hash of each hook, by its position in the file. A project's hooks need trust in the project
    as well."""
    config_file = folder / "config.toml"
    try:
        config = tomllib.loads(read_text(config_file) or "")
    except (ValueError, RecursionError) as problem:
        return f"{config_file} cannot be read: {problem}"
    features = table_in(config, "features")
    if features.get("hooks", features.get("codex_hooks")) is False:
        return f"hooks are turned off: features.hooks in {config_file}"
    states = table_in(config, "hooks", "state")
    for edit in edits:
        if isinstance(edit, JsonHooks):
            for keys, expected in hashes_of(edit):
                state: Any = next((states[key] for key in keys if isinstance(states.get(key), dict)), {})
                if state.get("enabled") is False:
                    return "a hook was turned off in codex: type /hooks there"
                if state.get("trusted_hash") != expected:
                    changed = "it changed since you trusted it; " if state.get("trusted_hash") else ""
                    return f"{changed}trust the hook"
    return ""


def hashes_of(edit: JsonHooks) -> Iterator[tuple[list[str], str]]:
    """For each hook of ours: the keys under which Codex may record its trust, and the hash that must be there.
    Codex resolves links in CODEX_HOME, but not in a home directory."""
    hooks = plain(parse(read_text(edit.path) or "{}")).get("hooks", {})
    paths = dict.fromkeys((str(edit.path), os.path.realpath(edit.path)))
    ours = set(edit.commands(json.dumps({"hooks": hooks})))
    for event, groups in hooks.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for at, group in enumerate(groups if isinstance(groups, list) else ()):
            for number, hook in enumerate(group.get("hooks", ()) if isinstance(group, dict) else ()):
                if isinstance(hook, dict) and hook.get("command") in ours:
                    yield [f"{path}:{name}:{at}:{number}" for path in paths], _hash(name, group, hook)


def _hash(event: str, group: dict[str, Any], hook: dict[str, Any]) -> str:
    entry = {"async": False, "command": hook["command"], "timeout": hook.get("timeout", 600), "type": "command"}
    # Codex ignores a matcher where it has no meaning.
    matcher = group.get("matcher") if event in ("pre_tool_use", "session_start", "session_end") else None
    identity = {"event_name": event, "hooks": [entry], **({} if matcher is None else {"matcher": matcher})}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


AGENT = Agent(
    name="codex",
    title="Codex",
    folder=Folder(".codex", ".codex", variable="CODEX_HOME"),
    files=(
        HooksFile(
            "hooks.json",
            {"type": "command", "command": COMMAND, "timeout": SECONDS},
            grouped=True,
        ),
        TextFile("skills/rollback/SKILL.md", _SKILL, in_projects=False),
        Retired("prompts/rollback.md"),
    ),
    # No matcher: its regular expressions have no lookahead. Hooks run for shell, patch and MCP tools only.
    events=(
        Event("PreToolUse", "tool"),
        Event("UserPromptSubmit", "prompt"),
        Event("SessionStart", "session-start"),
        Event("Stop", "stop"),
        # Codex allows 3 seconds. Its default is 1.
        Event("SessionEnd", "session-end", seconds=3),
    ),
    consent=Consent(
        'start codex and choose "Trust all and continue" (later: type /hooks, then t)',
        "a hash of each hook under `[hooks.state]` in `config.toml`",
        _untrusted,
    ),
    rollback="`rollback ...` as the prompt; the hook answers, without the model. Or the skill `$rollback`",
    transcript="named in each event (`~/.codex/sessions/`)",
    versions=("0.169.0", "0.166.0"),
    tested=SEEN,
    notes=(
        "Any change of the command, its time limit or its position in `hooks.json` needs trust again.",
        "An update of shadowsnap does not change the command.",
        "`codex exec` skips a hook that is not trusted, without a message.",
    ),
    gaps=(
        "Input to a shell that is already open (`write_stdin`) has no event.",
        "The snapshot comes before the approval dialog: edits that you make while it waits are not in it.",
        "After Esc no event follows. The turn stays open until the next prompt or the end of the session.",
    ),
)
