"""Let an agent take a checkpoint before each turn that writes.

Adds the hook to the agent's own settings, or to those of the project, and where the agent knows
such commands also a /rollback. Everything else in the settings stays as it is, and a copy of a
changed file is kept beside it. AGENT: claude, codex, gemini, cursor, copilot, qwen, hermes, goose,
kiro, windsurf, cline or opencode.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import safe

if TYPE_CHECKING:
    from shadowsnap.agents.install import FileChange

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_settings_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.agents.install import install

    changes = install(args.agent, context.workdir if args.project else None, dry_run=args.dry_run)
    return tell_changes(context, args, changes, "installed", "already installed")


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
            lines.append(f"{_deed(change)} {safe(str(change.path))}")
    for change in changes:
        if change.why_kept:
            ui.say(f"left as it is: {safe(str(change.path))}: {change.why_kept}")
    if not changed:
        ui.say(f"{args.agent}: {nothing}")
    elif not args.dry_run:
        ui.say(f"{args.agent}: {done}; running sessions may need a restart")
    files = [
        {"path": str(change.path), "change": _deed(change), "why_kept": change.why_kept, "patch": change.diff()}
        for change in changes
    ]
    return ui.answer({"agent": args.agent, "dry_run": args.dry_run, "settings_files": files}, lines)


def _deed(change: FileChange) -> str:
    if not change.changes:
        return "unchanged"
    return "removed" if change.after is None else "wrote" if change.before is None else "changed"
