"""Cline, in the editor and on the command line."""

from __future__ import annotations

from shadowsnap.agents.agent import COMMAND, SEEN, Agent, Event, Folder, HookScripts

_SCRIPT = f"""\
#!/bin/sh
# Written by `shadowsnap install cline` (sum). It prints nothing and never stops a tool.
exec {COMMAND}
"""

AGENT = Agent(
    name="cline",
    title="Cline",
    folder=Folder("Documents/Cline/Hooks", ".clinerules/hooks"),
    files=(HookScripts(_SCRIPT),),
    events=(
        Event("PreToolUse", "tool"),
        Event("UserPromptSubmit", "prompt"),
        Event("TaskStart", "session-start"),
        Event("TaskComplete", "stop"),
        Event("TaskCancel", "stop"),
        Event("SessionShutdown", "session-end"),
    ),
    rollback="none in the chat; `shadowsnap rollback ...` in a terminal",
    transcript="none is named",
    versions=("3.0.65",),
    tested=SEEN,
    notes=(
        "There is one script per event. If one of yours is there already, nothing is installed.",
        "Let your script call `shadowsnap hook cline` with its input then.",
        "The scripts must stay executable.",
    ),
    gaps=("The events of the command line do not contain the prompt.", "Not on Windows."),
)
