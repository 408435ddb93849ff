"""Front doors for agents: hooks and their installer, the /rollback line, a guard for plain functions."""

NAMES = (
    "claude", "codex", "gemini", "cursor", "copilot", "qwen", "hermes", "goose", "kiro", "windsurf", "cline",
    "opencode",
)  # fmt: skip
"""The agents that the hook can be installed into."""
