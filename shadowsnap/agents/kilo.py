"""Kilo Code's command line, which runs opencode's plugins."""

from __future__ import annotations

from dataclasses import replace

from shadowsnap.agents import opencode
from shadowsnap.agents.agent import Folder, TextFile

_NAMED = "shadowsnap install opencode", "shadowsnap install kilo"

AGENT = replace(
    opencode.AGENT,
    name="kilo",
    title="Kilo Code",
    folder=Folder(".config/kilo", ".kilo", below_config="kilo"),
    files=(
        TextFile("plugins/shadowsnap.ts", opencode.PLUGIN.replace(*_NAMED), is_hook=True),
        TextFile("commands/rollback.md", opencode.COMMAND_FILE.replace(*_NAMED)),
    ),
    readers=(*opencode.AGENT.readers, "semantic_search", "codebase_search"),
    transcript="in its own storage, which is not read",
    versions=(),
    tested="",
    notes=("It uses the same plugin as opencode.",),
)
