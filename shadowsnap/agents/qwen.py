"""Qwen Code."""

from __future__ import annotations

from shadowsnap.agents.agent import (
    ABOUT_ROLLBACK,
    COMMAND,
    MILLISECONDS,
    ROLLBACK,
    SEEN,
    Agent,
    Event,
    Folder,
    HooksFile,
    Switch,
    TextFile,
    all_but,
)
from shadowsnap.hook.payload import SHOW_OUTPUT

_READERS = (
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content", "lsp",
    "web_fetch", "web_search", "todo_write", "ask_user_question", "enter_plan_mode", "exit_plan_mode",
    "tool_search", "read_mcp_resource",
)  # fmt: skip

# Inside !{...} the arguments come as one word, quoted for the shell.
_ROLLBACK = f"""\
---
description: "{ABOUT_ROLLBACK}"
---
<!-- Written by `shadowsnap install qwen` (sum). -->
!{{{ROLLBACK} {{{{args}}}}}}

{SHOW_OUTPUT}
"""

AGENT = Agent(
    name="qwen",
    title="Qwen Code",
    folder=Folder(".qwen", ".qwen"),
    files=(
        HooksFile(
            "settings.json",
            {"name": "shadowsnap", "type": "command", "command": COMMAND, "timeout": MILLISECONDS},
            grouped=True,
        ),
        TextFile("commands/rollback.md", _ROLLBACK),
    ),
    events=(
        Event("PreToolUse", "tool", matcher=all_but(_READERS)),
        Event("UserPromptSubmit", "prompt"),
        Event("SessionStart", "session-start"),
        Event("Stop", "stop"),
        Event("SessionEnd", "session-end"),
    ),
    readers=_READERS,
    switches=(Switch("settings.json", ("disableAllHooks",)),),
    rollback="`rollback ...` as the prompt; the hook answers, without the model. Or `/rollback`, a command file",
    transcript="named in each event (`~/.qwen/`)",
    versions=("0.24.4", "0.15.10"),
    tested=SEEN,
    notes=("The prompt event also follows each tool result. That is no turn of yours.",),
)
