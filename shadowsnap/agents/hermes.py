"""Hermes, by its shell hooks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from shadowsnap.agents.agent import COMMAND, SECONDS, SEEN, Agent, Consent, Event, Folder, HooksFile, all_but
from shadowsnap.agents.edit import Edit, YamlHooks, read_text, read_value

_READERS = ("read_file", "search_files", "web_search", "web_extract", "todo", "clarify", "session_search")

_TRUE_WORDS = ("1", "true", "yes", "on")


def _not_allowed(folder: Path, edits: Sequence[Edit], project: Path | None) -> str:
    """Each event and its command must be on a list. (The list also has the time of the script, which does not
    matter.)"""
    if os.environ.get("HERMES_ACCEPT_HOOKS", "").strip().lower() in _TRUE_WORDS:
        return ""
    allowed = read_value(folder / "shell-hooks-allowlist.json")
    approvals = allowed.get("approvals") if isinstance(allowed, dict) else None
    known = {
        (each.get("event"), each.get("command"))
        for each in (approvals if isinstance(approvals, list) else ())
        if isinstance(each, dict)
    }
    for edit in edits:
        text = read_text(edit.path) if isinstance(edit, YamlHooks) else None
        if isinstance(edit, YamlHooks) and text is not None:
            if re.search(r"^hooks_auto_accept:\s*[\"']?(?:true|yes|on|1)\b", text, re.MULTILINE | re.IGNORECASE):
                return ""
            missing = [event for event, command in edit.events(text).items() if (event, command) not in known]
            if missing:
                return f"allow the hook ({len(missing)} of its events)"
    return ""


AGENT = Agent(
    name="hermes",
    title="Hermes",
    folder=Folder(".hermes", None, variable="HERMES_HOME"),
    files=(HooksFile("config.yaml", {"command": COMMAND, "timeout": SECONDS}),),
    events=(
        Event("pre_tool_call", "tool", matcher=all_but(_READERS)),
        Event("pre_llm_call", "prompt"),
        Event("on_session_start", "session-start"),
        Event("subagent_start", "session-start"),
        Event("on_session_end", "stop"),  # each turn, in spite of its name
        Event("on_session_finalize", "session-end"),
    ),
    readers=_READERS,
    consent=Consent(
        "start hermes on a terminal and answer y to each of them",
        "each event with its command in `~/.hermes/shell-hooks-allowlist.json`",
        _not_allowed,
    ),
    rollback="none in the chat; `shadowsnap rollback ...` in another terminal",
    transcript="read from its database (`~/.hermes/state.db`)",
    versions=("0.19.0",),
    tested=SEEN,
    notes=(
        "Without a terminal, Hermes skips a hook that was not allowed before, and only its log says so.",
        "`hermes hooks doctor` mentions that the launcher changed after an update. The consent stays valid.",
    ),
    gaps=(
        "The snapshot comes before the approval dialog: edits that you make while it waits are not in it.",
        "Subagents work in the background. What one does after the turn has ended is a turn without a prompt.",
    ),
)
