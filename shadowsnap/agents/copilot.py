"""Copilot CLI."""

from __future__ import annotations

from shadowsnap.agents.agent import ARGUMENTS, PROGRAM, SECONDS, SEEN, Agent, Event, Folder, HooksFile

AGENT = Agent(
    name="copilot",
    title="Copilot CLI",
    folder=Folder(".copilot", ".github"),
    files=(
        HooksFile(
            "hooks/shadowsnap.json",
            {"type": "command", "exec": PROGRAM, "args": ARGUMENTS, "timeoutSec": SECONDS},
            around={"version": 1},
            names_event=True,
        ),
    ),
    events=(
        Event("preToolUse", "tool"),
        Event("userPromptSubmitted", "prompt"),
        Event("sessionStart", "session-start"),
        Event("agentStop", "stop"),
        Event("sessionEnd", "session-end"),
    ),
    rollback="none in the chat; `!shadowsnap rollback ...` runs it in the shell, without the model",
    transcript="in the folder of the session (`~/.copilot/session-state/`)",
    versions=("1.0.102",),
    tested=SEEN,
    gaps=("After Esc no event follows. The turn stays open until the next prompt or the end of the session.",),
)
