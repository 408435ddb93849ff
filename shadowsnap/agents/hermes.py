"""Hermes, by its shell hooks."""

from __future__ import annotations

from shadowsnap.agents.agent import COMMAND, SECONDS, SEEN, Agent, Consent, Event, Folder, HooksFile, all_but

_READERS = ("read_file", "search_files", "web_search", "web_extract", "todo", "clarify", "session_search")

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
