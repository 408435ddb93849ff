"""Goose."""

from __future__ import annotations

from shadowsnap.agents.agent import COMMAND, SECONDS, SEEN, Agent, Event, Folder, HooksFile, TextFile

_PLUGIN = """\
{
  "name": "shadowsnap",
  "version": "1.0.0",
  "description": "Keeps your files safe: a checkpoint before each turn that writes"
}
"""

AGENT = Agent(
    name="goose",
    title="Goose",
    folder=Folder(".agents/plugins/shadowsnap", ".agents/plugins/shadowsnap"),
    files=(
        HooksFile(
            "hooks/hooks.json",
            {"type": "command", "command": COMMAND, "timeout": SECONDS},
            grouped=True,
        ),
        TextFile("plugin.json", _PLUGIN, needed=True),
    ),
    # No matcher: its regular expressions have no lookahead.
    events=(
        Event("PreToolUse", "tool"),
        Event("UserPromptSubmit", "prompt"),
        Event("SessionStart", "session-start"),
        Event("Stop", "stop"),
        Event("SessionEnd", "session-end"),
    ),
    rollback="none in the chat; `shadowsnap rollback ...` in another terminal",
    transcript="read from its database (`~/.local/share/goose/sessions/sessions.db`)",
    versions=("1.52.0", "1.34.0"),
    tested=SEEN,
    gaps=("1.34 sends neither a stop nor the end of a session. A turn stays open until the next prompt.",),
)
