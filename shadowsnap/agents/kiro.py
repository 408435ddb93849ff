"""Kiro CLI."""

from __future__ import annotations

from shadowsnap.agents.agent import COMMAND, MILLISECONDS, Agent, Event, Folder, HooksFile

AGENT = Agent(
    name="kiro",
    title="Kiro CLI",
    folder=Folder(".kiro/agents", ".kiro/agents"),
    # Hooks belong to an agent there: each one gets them.
    files=(
        HooksFile(
            "*.json",
            {"command": COMMAND, "timeout_ms": MILLISECONDS},
            around={"name": "shadowsnap", "description": "The default agent, with checkpoints", "tools": ["*"]},
            if_none="shadowsnap.json",
        ),
    ),
    events=(
        Event("preToolUse", "tool"),
        Event("userPromptSubmit", "prompt"),
        Event("agentSpawn", "session-start"),
        Event("stop", "stop"),
    ),
    rollback="none in the chat; `!shadowsnap rollback ...` runs it in the shell, without the model",
    transcript="none is named",
    notes=(
        "Kiro keeps hooks in its agents: each of yours gets them.",
        "If you have none, an agent `shadowsnap` is created, to be started with `--agent shadowsnap`.",
    ),
    gaps=("It was not run with this version of the hook. What is installed follows its documentation.",),
)
