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
    kiro,
    opencode,
    qwen,
    windsurf,
)
from shadowsnap.agents.agent import Agent
from shadowsnap.errors import UnknownAgent

AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        claude.AGENT, codex.AGENT, gemini.AGENT, cursor.AGENT, copilot.AGENT, qwen.AGENT, hermes.AGENT,
        goose.AGENT, kiro.AGENT, windsurf.AGENT, cline.AGENT, opencode.AGENT, opencode.KILO,
    )
}  # fmt: skip
"""In the order in which they are listed everywhere."""


def agent_named(name: str) -> Agent:
    """The agent of this name. Raises UnknownAgent."""
    if name not in AGENTS:
        raise UnknownAgent(agent=name, known=", ".join(AGENTS))
    return AGENTS[name]
