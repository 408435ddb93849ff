"""Claude Code."""

from __future__ import annotations

from shadowsnap.agents.agent import (
    ABOUT_ROLLBACK,
    COMMAND,
    ROLLBACK,
    SECONDS,
    SEEN,
    STATUS_LINE,
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
    "Read", "LS", "Glob", "Grep", "NotebookRead", "LSP", "WebFetch", "WebSearch", "TodoRead", "TodoWrite",
    "AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "BashOutput", "TaskOutput", "ToolSearch",
    "ListMcpResourcesTool", "ReadMcpResourceTool",
)  # fmt: skip

# The arguments are pasted into the text as they were typed. A quoted here-document takes any of them.
_ROLLBACK = f"""\
---
description: "{ABOUT_ROLLBACK}"
allowed-tools: Bash({ROLLBACK}:*)
disable-model-invocation: true
---
<!-- Written by `shadowsnap install claude` (sum). -->
```!
{ROLLBACK} - <<'END_OF_ARGUMENTS'
$ARGUMENTS
END_OF_ARGUMENTS
```

{SHOW_OUTPUT}
"""

AGENT = Agent(
    name="claude",
    title="Claude Code",
    folder=Folder(".claude", ".claude", variable="CLAUDE_CONFIG_DIR"),
    files=(
        HooksFile(
            "settings.json",
            {"type": "command", "command": COMMAND, "timeout": SECONDS},
            grouped=True,
        ),
        TextFile("commands/rollback.md", _ROLLBACK),
    ),
    events=(
        Event("PreToolUse", "tool", matcher=all_but(_READERS)),
        Event("UserPromptSubmit", "prompt"),
        Event("UserPromptExpansion", "slash", matcher="rollback"),
        Event("SessionStart", "session-start"),
        Event("Stop", "stop"),
        Event("SessionEnd", "session-end"),
    ),
    readers=_READERS,
    status_line={"statusLine": {"type": "command", "command": STATUS_LINE}},
    switches=(
        Switch("settings.json", ("disableAllHooks",)),
        Switch("settings.local.json", ("disableAllHooks",)),
    ),
    rollback="`/rollback ...`; the hook answers, without the model. Where it cannot, the command file does",
    transcript="named in each event (`~/.claude/projects/`)",
    versions=("2.1.326", "2.1.325", "2.1.197"),
    tested=SEEN,
    gaps=(
        "After Esc no event follows. The turn stays open until the next prompt or the end of the session.",
        "A message that is sent while a turn runs has no event of its own. It belongs to that turn.",
    ),
)
