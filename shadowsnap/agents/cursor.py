"""Cursor."""

from __future__ import annotations

from shadowsnap.agents.agent import (
    COMMAND,
    ROLLBACK,
    RUN_ONCE,
    SECONDS,
    Agent,
    Event,
    Folder,
    HooksFile,
    TextFile,
)

_ROLLBACK = f"""\
<!-- Written by `shadowsnap install cursor` (sum). -->
{RUN_ONCE}

    {ROLLBACK}
"""

AGENT = Agent(
    name="cursor",
    title="Cursor",
    folder=Folder(".cursor", ".cursor"),
    files=(
        HooksFile("hooks.json", {"command": COMMAND, "timeout": SECONDS}, around={"version": 1}),
        TextFile("commands/rollback.md", _ROLLBACK),
    ),
    events=(
        Event("preToolUse", "tool"),
        Event("beforeSubmitPrompt", "prompt"),
        Event("sessionStart", "session-start"),
        Event("stop", "stop"),
        Event("sessionEnd", "session-end"),
    ),
    rollback="`/rollback ...`; the model runs the command and repeats its output",
    transcript="named in each event, if it is kept",
    notes=("It also runs the hooks in Claude Code's settings. Both together take one checkpoint.",),
    gaps=("It was not run with this version of the hook. What is installed follows its documentation.",),
)
