"""The documentation of the agents, made from their facts: `python -m shadowsnap.agents.reference` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

from shadowsnap.agents import agent as spec
from shadowsnap.agents.agent import SECONDS_TO_WAIT, Agent, Event
from shadowsnap.agents.catalog import AGENTS
from shadowsnap.agents.slash import HELP

PLAYED = Path(__file__).parent / "played.json"
"""What `scripts/test --agents` recorded."""
PAGE = Path(__file__).parents[1] / "docs" / "agents.md"

_TEXT = """\
# Agents

    shadowsnap install AGENT [--project] [--statusline] [--dry-run]
    shadowsnap uninstall AGENT [--project] [--dry-run]

`install` adds the hook to the agent's own settings, or with `--project` to those of the current project.
`--dry-run` shows the change as a diff. Running it twice is safe; after an update of shadowsnap it brings
the hook up to date.

- Only our lines are added. Other hooks, unknown keys, their order, comments and indentation stay as they are.
- Settings that cannot be read, or that cannot be changed without losing something, are refused and left
  untouched.
- A changed file has a copy beside it (`settings.json.shadowsnap-backup`). `uninstall` restores exactly that copy
  if nothing else changed the file since. Otherwise it removes our part alone.
- The settings name a small script, `bin/shadowsnap` in the base directory. So the command stays the same
  when shadowsnap is updated or moves; run `install` again then, and the script starts the new place.
- A shadowsnap that runs from a cache (`uvx`, `pipx run`) refuses to install itself: use
  `uv tool install shadowsnap`.
- Some agents read their settings only when they start.

**Installed is not yet protected.** Some agents run a hook only after you agreed, and skip it without a message
until then. `install` says what to do, and on a terminal it waits until it is done. `shadowsnap status` says
"NOT protected" with the reason for as long as it is so. Consent is yours: shadowsnap never gives it for you.

| agent | settings | of a project | events | consent |
|---|---|---|---|---|
<<table>>

`CLAUDE_CONFIG_DIR`, `CODEX_HOME`, `HERMES_HOME` and `XDG_CONFIG_HOME` are respected where the agent does.

<<agents>>

## What was run

`scripts/test --agents` plays the same stories with the programs themselves, against a scripted model and without a
network, and judges the files, the timeline, the conversations, and the settings after `uninstall`.

<<played>>

- two turns: the person edits between two turns of one conversation; the state before each comes back exactly.
- interrupt: the turn is in the timeline at once and is closed by the next prompt. (By Esc or Ctrl-C on a terminal;
  opencode and Hermes by a signal to the command.)
- failing tool, parallel, subagent: what they write belongs to one turn.
- resume: a session that goes on after its end is the same session.
- conversation: what is kept with a turn is what was said before its prompt.
- rollback: the list, a restore and its undo, in the chat if the agent has it there, else by `shadowsnap rollback`.
- uninstall: the settings are what they were, byte for byte. A file that the agent itself rewrote meanwhile (named
  in brackets) has nothing of ours left.

## By hand

Claude Code, Codex, Qwen Code and Goose write a hook like this; the others differ in names only:

```json
{
  "hooks": {
    "PreToolUse": [
      {
        "hooks": [{"type": "command", "command": "/full/path/to/shadowsnap hook claude", "timeout": 20}]
      }
    ]
  }
}
```

No matcher is needed: the hook knows by itself which tools only read. Where an agent's matcher can exclude
tools, `install` excludes those that are known to read, so that they cost nothing.

## Status line

`shadowsnap install claude --statusline` also lets Claude Code show one line: `protected 12 s ago`, or
`NOT protected:` with the reason. A status line of your own is left as it is; let it run
`shadowsnap statusline claude`.

## /rollback

<<rollback>>

Each of them understands the same lines:

<<help>>

Numbers mean the list as it was last shown, even if new checkpoints came in since. It never asks, because a
rollback can itself be taken back, and it says how.

In Python:

```python
from shadowsnap import CheckpointManager
from shadowsnap.agents.slash import RollbackCommand

manager = CheckpointManager()
command = RollbackCommand(manager, ".")
answer = command.run("/rollback")
print(answer)
```

`str(answer)` is the text; `answer.ok`, `answer.action`, `answer.checkpoints`, `answer.result`, `answer.diff` and
`answer.error` are the data. It never raises.

## An agent loop in Python

Call `before_tool` before each tool and `new_turn` with each message:

```python
from shadowsnap import CheckpointManager

manager = CheckpointManager()
manager.new_turn(session_id="chat-1", prompt="tidy up the README")
outcome = manager.before_tool("write_file", {"path": "README.md"}, cwd=".")
print(outcome.status)
```

Or let a decorator do it, for plain functions, sync or async:

```python
from shadowsnap import CheckpointManager
from shadowsnap.integrations.guard import guard

manager = CheckpointManager()

@guard(manager)
def write_file(path, content):
    with open(path, "w") as file:
        file.write(content)

write_file("notes.txt", "written after its snapshot")
```

Neither ever raises into your loop. `outcome.status` is `taken`, `unchanged`, `already-taken`, `not-needed` (the
tool only reads), `partial` (only the named files), `refused`, `failed` or `disabled`.
"""

_KINDS = {
    "tool": "before a tool",
    "prompt": "a prompt",
    "slash": "a slash command",
    "session-start": "start",
    "stop": "stop",
    "session-end": "end of the session",
}


def agents_markdown() -> str:
    """The page about agents."""
    parts = {
        "table": "\n".join(_row(agent) for agent in AGENTS.values()),
        "agents": "\n\n".join("\n".join(_section(agent)) for agent in AGENTS.values()),
        "played": "\n".join(_played()),
        "rollback": "\n".join(f"- {agent.title}: {agent.rollback}." for agent in AGENTS.values()),
        "help": indent(HELP, "    "),
    }
    text = _TEXT
    for name, part in parts.items():
        text = text.replace(f"<<{name}>>", part)
    return text


def _row(agent: Agent) -> str:
    user, project = _places(agent)
    kinds = ", ".join(dict.fromkeys(event.kind for event in agent.events))
    consent = "needed" if agent.consent else "-"
    return f"| {agent.name} ({agent.title}) | {user} | {project} | {kinds} | {consent} |"


def _played() -> Iterator[str]:
    """The table of the stories that were played, with what did not go well below it."""
    rows: dict[str, dict[str, str]] = json.loads(PLAYED.read_text("utf-8"))
    stories = [name for name in next(iter(rows.values())) if name not in ("version", "month")]
    yield f"| agent | version | when | {' | '.join(stories)} |"
    yield f"|---|---|---|{'---|' * len(stories)}"
    for agent in AGENTS.values():
        if agent.name in rows:
            row = rows[agent.name]
            cells = [row[story].partition(":")[0] for story in stories]
            yield f"| {agent.title} | {row['version']} | {row['month']} | {' | '.join(cells)} |"
    for agent in AGENTS.values():
        for story in stories if agent.name in rows else ():
            cell = rows[agent.name][story]
            if cell.startswith("no:"):
                yield f"\n{agent.title}, {story}: {cell[4:]}"


def _section(agent: Agent) -> Iterator[str]:
    yield f"## {agent.title}"
    yield ""
    user, project = _places(agent)
    of_project = f"; of a project {project}" if project != "-" else ""
    yield f"- Hook: {user}{of_project}."
    more = [f"`{file.path}`" for file in agent.files if isinstance(file, spec.TextFile) and not file.is_hook]
    if more:
        yield f"- Beside it: {', '.join(more)}."
    limit = f" It waits at most {SECONDS_TO_WAIT} s for the hook." if _is_limited(agent) else ""
    yield f"- Events: {', '.join(map(_event, agent.events))}.{limit}"
    if agent.readers:
        yield f"- Not run for: {', '.join(f'`{name}`' for name in agent.readers)}."
    if agent.consent:
        yield f"- Consent: {agent.consent.step}. Recorded as {agent.consent.record}."
    else:
        yield "- Consent: none is needed."
    yield "- You see nothing of the hook." + (" A status line is optional." if agent.status_line else "")
    yield f"- `/rollback`: {agent.rollback}."
    yield f"- Conversation: {agent.transcript}."
    seen = f"{', '.join(agent.versions)} ({agent.tested})" if agent.versions else "no version"
    yield f"- Run with: {seen}."
    for note in agent.notes:
        yield f"- {note}"
    for gap in agent.gaps:
        yield f"- Known gap: {gap}"


def _event(event: Event) -> str:
    limit = f", {event.seconds} s" if event.seconds != SECONDS_TO_WAIT else ""
    return f"`{event.name}` ({_KINDS[event.kind]}{limit})"


def _is_limited(agent: Agent) -> bool:
    """Whether we tell the agent how long to wait."""
    file = agent.files[0]
    if isinstance(file, spec.HooksFile):
        return bool({spec.SECONDS, spec.MILLISECONDS} & {str(value) for value in file.entry.values()})
    return isinstance(file, spec.TextFile)


def _places(agent: Agent) -> tuple[str, str]:
    """The file with the hook, of the person and of a project; scripts have a folder of their own."""
    hook = next(file for file in agent.files if not isinstance(file, spec.Retired))
    name = "" if isinstance(hook, spec.HookScripts) else hook.path
    user = f"`~/{agent.folder.user}/{name}`"
    return user, "-" if agent.folder.project is None else f"`{agent.folder.project}/{name}`"


if __name__ == "__main__":
    PAGE.write_text(agents_markdown(), "utf-8")
