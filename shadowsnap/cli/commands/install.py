"""Let an agent take a checkpoint before each turn that writes.

Adds the hook to the agent's own settings, or to those of the project, and where the agent knows
such commands also a /rollback. Everything else in the settings stays as it is, and a copy of a
changed file is kept beside it. AGENT: claude, codex, gemini, cursor, copilot, qwen, hermes, goose,
kiro, windsurf, cline, opencode or kilo. Some agents run a hook only after you agreed: then it says
what to do, and on a terminal it waits until that is done.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import safe

if TYPE_CHECKING:
    from shadowsnap.agents.install import FileChange

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)
    parser.add_argument("--statusline", action="store_true", help="show in the agent whether it is protected")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.agents.install import install

    project = context.workdir if args.project else None
    changes = install(args.agent, project, dry_run=args.dry_run, status_line=args.statusline)
    code = tell_changes(context, args, changes, "installed", "already installed")
    if not args.dry_run:
        _see_consent(context, args.agent, project)
    return code


def _see_consent(context: Context, agent: str, project: Path | None) -> None:
    """Say what the agent still wants from the person; on a terminal, wait until that is done."""
    from shadowsnap.agents.state import agent_state, wait_for_consent

    ui = context.ui
    state = agent_state(agent, project)
    if not state.problem:
        return
    ui.flush()
    ui.say(f"{ui.talk_ink('yellow', safe(state.sentence))}")
    if state.consented is False and ui.interactive:
        try:
            ui.say("waiting until that is done (Ctrl-C ends the waiting; the hook stays installed) ...")
            wait_for_consent(agent, project)
        except KeyboardInterrupt:
            ui.say("")
        ui.say(f"{agent}: {safe(agent_state(agent, project).sentence)}")


def add_settings_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", help="which agent")
    parser.add_argument("--project", action="store_true", help="in the settings of this project only")
    parser.add_argument("--dry-run", action="store_true", help="show what would change and change nothing")


def tell_changes(
    context: Context, args: argparse.Namespace, changes: list[FileChange], done: str, nothing: str
) -> int:
    """Say which files changed, or with --dry-run how they would."""
    ui, lines = context.ui, []
    changed = [change for change in changes if change.changes]
    for change in changed:
        if args.dry_run:
            lines += [safe(line, keep="\t") for line in change.diff().splitlines()]
        else:
            lines.append(f"{_change_word(change)} {safe(str(change.path))}")
    for change in changes:
        if change.why_kept:
            ui.say(f"left as it is: {safe(str(change.path))}: {change.why_kept}")
    if not changed:
        ui.say(f"{args.agent}: {nothing}")
    elif not args.dry_run:
        ui.say(f"{args.agent}: {done}; running sessions may need a restart")
    files = [
        {
            "path": str(change.path),
            "change": _change_word(change),
            "why_kept": change.why_kept,
            "patch": change.diff(),
        }
        for change in changes
    ]
    return ui.answer({"agent": args.agent, "dry_run": args.dry_run, "settings_files": files}, lines)


def _change_word(change: FileChange) -> str:
    if not change.changes:
        return "unchanged"
    return "removed" if change.after is None else "wrote" if change.before is None else "changed"
