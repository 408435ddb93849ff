"""The files that an installation writes as a whole: scripts, a plugin, and /rollback commands.

Each has `(sum)` somewhere, which becomes a sum of the rest.
"""

from __future__ import annotations

CLINE = """\
#!/bin/sh
# Written by `shadowsnap install cline` (sum). It prints nothing and never stops a tool.
exec COMMAND
"""

OPENCODE = """\
// Written by `shadowsnap install opencode` (sum). A checkpoint before each turn that writes.
import { spawn } from "node:child_process"

const program = PROGRAM
const turns = new Map()

// Never throws and never keeps the agent longer than this.
function tell(event) {
  return new Promise((done) => {
    const timer = setTimeout(done, 20000)
    const end = () => {
      clearTimeout(timer)
      done()
    }
    try {
      const child = spawn(program[0], program.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
      child.on("error", end)
      child.on("close", end)
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(event))
    } catch {
      end()
    }
  })
}

export const Shadowsnap = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const session = input?.sessionID
    const turn = input?.messageID ?? output?.message?.id
    const prompt = (output?.parts ?? []).map((part) => part?.text ?? "").join("\\n").trim()
    turns.set(session, turn)
    await tell({ event: "prompt", session, turn, cwd: directory, prompt })
  },
  "tool.execute.before": async (input, output) => {
    const session = input?.sessionID
    const event = { event: "tool", session, turn: turns.get(session), cwd: directory }
    await tell({ ...event, tool: input?.tool, input: output?.args })
  },
  event: async ({ event }) => {
    const session = event?.properties?.sessionID ?? event?.properties?.info?.id
    if (event?.type === "session.idle") {
      await tell({ event: "stop", session, turn: turns.get(session), cwd: directory })
    } else if (event?.type === "session.created") {
      await tell({ event: "session-start", session, cwd: directory })
    }
  },
})
"""

_ABOUT = "Bring files back to a checkpoint: [N | N FILE... | diff N [M] | undo | redo | pin N [NAME] | help]"
_SHOW = "Show me the output above as it is, in a code block, and do nothing else."
# Some agents have no sign for what is typed after a command, or not the same one in each version; they put it
# behind the text.
_RUN = """Run this command once, with the words behind /rollback as its arguments if there are any, show me its
output as it is in a code block, and do nothing else:"""

_ROLLBACK = {
    "claude": f"""\
---
description: "{_ABOUT}"
allowed-tools: Bash(COMMAND:*)
disable-model-invocation: true
---
<!-- Written by `shadowsnap install claude` (sum). -->
!`COMMAND $ARGUMENTS`

{_SHOW}
""",
    "codex": f"""\
---
description: "{_ABOUT}"
argument-hint: "[N | diff N | undo]"
---
<!-- Written by `shadowsnap install codex` (sum). -->
Run this command once, show me its output as it is in a code block, and do nothing else:

    COMMAND $ARGUMENTS
""",
    "gemini": f"""\
# Written by `shadowsnap install gemini` (sum).
description = "{_ABOUT}"
prompt = '''
!{{COMMAND {{{{args}}}}}}

{_SHOW}
'''
""",
    "qwen": f"""\
---
description: "{_ABOUT}"
---
<!-- Written by `shadowsnap install qwen` (sum). -->
{_RUN}

    COMMAND
""",
    "cursor": f"""\
<!-- Written by `shadowsnap install cursor` (sum). -->
{_RUN}

    COMMAND
""",
    "opencode": f"""\
---
description: "{_ABOUT}"
---
<!-- Written by `shadowsnap install opencode` (sum). -->
!`COMMAND $ARGUMENTS`

{_SHOW}
""",
}


def rollback_for(agent: str, command: str) -> str:
    """The /rollback command of an agent."""
    return _ROLLBACK[agent].replace("COMMAND", command)
