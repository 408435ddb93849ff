"""Gemini CLI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.agents.agent import (
    ABOUT_ROLLBACK,
    COMMAND,
    MILLISECONDS,
    ROLLBACK,
    SEEN,
    Agent,
    Consent,
    Event,
    Folder,
    HooksFile,
    Switch,
    TextFile,
    all_but,
)
from shadowsnap.agents.edit import Edit, read_value, table_in
from shadowsnap.hook.payload import SHOW_OUTPUT

_READERS = (
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content",
    "google_web_search", "web_fetch", "write_todos", "ask_user", "get_internal_docs", "enter_plan_mode",
    "exit_plan_mode", "list_mcp_resources", "read_mcp_resource",
)  # fmt: skip

# Inside !{...} the arguments come as one word, quoted for the shell.
_ROLLBACK = f"""\
# Written by `shadowsnap install gemini` (sum).
description = "{ABOUT_ROLLBACK}"
prompt = '''
!{{{ROLLBACK} {{{{args}}}}}}

{SHOW_OUTPUT}
'''
"""

def _untrusted(folder: Path, edits: Sequence[Edit], project: Path | None) -> str:
    """Hooks run in trusted folders only. The rule with the longest path that covers the folder applies."""
    variable = os.environ.get("GEMINI_CLI_TRUST_WORKSPACE")
    if project is None or variable == "true":
        return ""
    settings = read_value(folder / "settings.json")
    if table_in(settings, "security", "folderTrust").get("enabled") is False:
        return ""
    rules = read_value(folder / "trustedFolders.json")
    best, level = -1, ""
    here = os.path.realpath(project)
    for path, rule in rules.items() if isinstance(rules, dict) else ():
        covered = os.path.realpath(os.path.dirname(path) if rule == "TRUST_PARENT" else path)
        if (here == covered or here.startswith(covered.rstrip(os.sep) + os.sep)) and len(path) > best:
            best, level = len(path), rule
    if variable != "false" and level in ("TRUST_FOLDER", "TRUST_PARENT"):
        return ""
    return "gemini does not trust this folder"


AGENT = Agent(
    name="gemini",
    title="Gemini CLI",
    folder=Folder(".gemini", ".gemini"),
    files=(
        HooksFile(
            "settings.json",
            {"name": "shadowsnap", "type": "command", "command": COMMAND, "timeout": MILLISECONDS},
            grouped=True,
        ),
        TextFile("commands/rollback.toml", _ROLLBACK),
    ),
    events=(
        Event("BeforeTool", "tool", matcher=all_but(_READERS)),
        Event("BeforeAgent", "prompt"),
        Event("SessionStart", "session-start"),
        Event("AfterAgent", "stop"),
        Event("SessionEnd", "session-end"),
    ),
    readers=_READERS,
    switches=(
        Switch("settings.json", ("hooksConfig", "enabled"), off=False),
        Switch("settings.json", ("hooksConfig", "disabled"), off="shadowsnap"),
    ),
    consent=Consent(
        "start gemini in this directory and choose to trust the folder",
        "the folder in `~/.gemini/trustedFolders.json`",
        _untrusted,
    ),
    rollback="`/rollback ...`; the hook answers, without the model. Where it cannot, the command file does",
    transcript="named in each event (`~/.gemini/tmp/`)",
    versions=("0.61.0",),
    tested=SEEN,
    notes=("In a folder that is not trusted no hook runs, not even one of your own settings.",),
    gaps=("The snapshot comes before the approval dialog: edits that you make while it waits are not in it.",),
)
