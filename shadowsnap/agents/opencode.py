"""opencode. Its hook is a plugin, which Kilo Code understands as well."""

from __future__ import annotations

from dataclasses import replace

from shadowsnap.agents.agent import (
    ABOUT_ROLLBACK,
    READERS,
    ROLLBACK,
    SEEN,
    WORDS,
    Agent,
    Event,
    Folder,
    TextFile,
)
from shadowsnap.hook.payload import SHOW_OUTPUT

PLUGIN = f"""\
// Written by `shadowsnap install opencode` (sum). A checkpoint before each turn that writes.
import {{ spawn }} from "node:child_process"

const program = {WORDS}
// Tools that only read: no process is started for them.
const readers = new Set({READERS})
const turns = new Map()
// Session of a subagent -> the session that started it.
const parents = new Map()

// Never throws, and never keeps the agent longer than this.
function send(event) {{
  return new Promise((done) => {{
    const timer = setTimeout(done, 20000)
    const end = () => {{
      clearTimeout(timer)
      done()
    }}
    try {{
      const child = spawn(program[0], program.slice(1), {{ stdio: ["pipe", "ignore", "ignore"] }})
      child.on("error", end)
      child.on("close", end)
      child.stdin.on("error", () => {{}})
      child.stdin.end(JSON.stringify(event))
    }} catch {{
      end()
    }}
  }})
}}

// What a subagent does belongs to the session, and to the turn, that started it.
function root(session) {{
  for (let depth = 0; depth < 20 && parents.has(session); depth++) session = parents.get(session)
  return session
}}

export const Shadowsnap = async ({{ directory }}) => ({{
  "chat.message": async (input, output) => {{
    const session = input?.sessionID
    if (parents.has(session)) return
    const turn = input?.messageID ?? output?.message?.id
    const prompt = (output?.parts ?? []).map((part) => part?.text ?? "").join("\\n").trim()
    turns.set(session, turn)
    await send({{ event: "prompt", session, turn, cwd: directory, prompt }})
  }},
  "tool.execute.before": async (input, output) => {{
    if (readers.has(input?.tool)) return
    const session = root(input?.sessionID)
    const event = {{ event: "tool", session, turn: turns.get(session), cwd: directory }}
    if (session !== input?.sessionID) event.agent_id = input?.sessionID
    await send({{ ...event, tool: input?.tool, input: output?.args }})
  }},
  event: async ({{ event }}) => {{
    const info = event?.properties?.info
    const session = event?.properties?.sessionID ?? info?.id
    if (event?.type === "session.created") {{
      if (info?.parentID) parents.set(info.id, info.parentID)
      else await send({{ event: "session-start", session, cwd: directory, version: info?.version }})
    }} else if (event?.type === "session.idle" && !parents.has(session)) {{
      await send({{ event: "stop", session, turn: turns.get(session), cwd: directory }})
    }}
  }},
}})
"""

# The arguments are pasted into the text as they were typed. A quoted here-document takes any of them.
COMMAND_FILE = f"""\
---
description: "{ABOUT_ROLLBACK}"
---
<!-- Written by `shadowsnap install opencode` (sum). -->
!`{ROLLBACK} - <<'END_OF_ARGUMENTS'
$ARGUMENTS
END_OF_ARGUMENTS
`

{SHOW_OUTPUT}
"""

_READERS = (
    "read", "glob", "grep", "list", "lsp", "webfetch", "websearch", "codesearch", "todoread", "todowrite",
    "question",
)  # fmt: skip

AGENT = Agent(
    name="opencode",
    title="opencode",
    folder=Folder(".config/opencode", ".opencode", below_config="opencode"),
    files=(
        TextFile("plugins/shadowsnap.ts", PLUGIN, is_hook=True),
        TextFile("commands/rollback.md", COMMAND_FILE),
    ),
    events=(
        Event("tool.execute.before", "tool"),
        Event("chat.message", "prompt"),
        Event("session.created", "session-start"),
        Event("session.idle", "stop"),
    ),
    readers=_READERS,
    rollback="`/rollback ...`; the command file runs it, and the model repeats its output",
    transcript="read from its database (`~/.local/share/opencode/opencode.db`)",
    versions=("1.18.33",),
    tested=SEEN,
    gaps=("A backquote in the arguments of `/rollback` is not understood.",),
)


# --- Kilo Code, whose command line runs opencode's plugins -----------------------------------------

_NAMED = "shadowsnap install opencode", "shadowsnap install kilo"

KILO = replace(
    AGENT,
    name="kilo",
    title="Kilo Code",
    folder=Folder(".config/kilo", ".kilo", below_config="kilo"),
    files=(
        TextFile("plugins/shadowsnap.ts", PLUGIN.replace(*_NAMED), is_hook=True),
        TextFile("commands/rollback.md", COMMAND_FILE.replace(*_NAMED)),
    ),
    readers=(*AGENT.readers, "semantic_search", "codebase_search"),
    transcript="in its own storage, which is not read",
    versions=(),
    tested="",
    notes=("It uses the same plugin as opencode.",),
)
