"""All agents that the hook can be installed into, by name."""

from __future__ import annotations

from shadowsnap.agents import (
    claude,
    cline,
    codex,
    copilot,
    cursor,
    gemini,
    goose,
    hermes,
    kilo,
    kiro,
    opencode,
    qwen,
    windsurf,
)
from shadowsnap.agents.agent import Agent
from shadowsnap.errors import UnknownAgent

AGENTS: dict[str, Agent] = {
    module.AGENT.name: module.AGENT
    for module in (
        claude, codex, gemini, cursor, copilot, qwen, hermes, goose, kiro, windsurf, cline, opencode, kilo,
    )
}  # fmt: skip
"""In the order in which they are listed everywhere."""


def agent_named(name: str) -> Agent:
    """The agent of this name. Raises UnknownAgent."""
    if name not in AGENTS:
        raise UnknownAgent(agent=name, known=", ".join(AGENTS))
    return AGENTS[name]
