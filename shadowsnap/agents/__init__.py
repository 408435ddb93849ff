"""Coding agents: the facts about each, the installer of the hook, its state, and the /rollback line."""

NAMES = (
    "claude", "codex", "gemini", "cursor", "copilot", "qwen", "hermes", "goose", "kiro", "windsurf", "cline",
    "opencode", "kilo",
)  # fmt: skip
"""The agents that the hook can be installed into. (`catalog` has the facts; importing this imports nothing.)"""
