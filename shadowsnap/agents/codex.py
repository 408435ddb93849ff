"""Codex."""

from __future__ import annotations

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
