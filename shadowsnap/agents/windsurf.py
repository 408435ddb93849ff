"""Windsurf."""

from __future__ import annotations

from shadowsnap.agents.agent import COMMAND, Agent, Event, Folder, HooksFile

AGENT = Agent(
    name="windsurf",
    title="Windsurf",
    folder=Folder(".codeium/windsurf", ".windsurf"),
    files=(HooksFile("hooks.json", {"command": COMMAND, "show_output": False}),),
    events=(
        Event("pre_write_code", "tool"),
        Event("pre_run_command", "tool"),
        Event("pre_mcp_tool_use", "tool"),
        Event("pre_user_prompt", "prompt"),
        Event("post_cascade_response", "stop"),
    ),
    rollback="none in the chat; `shadowsnap rollback ...` in a terminal",
    transcript="none is named",
    gaps=("It was not run with this version of the hook. What is installed follows its documentation.",),
)
