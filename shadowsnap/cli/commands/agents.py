"""The commands that set agents up, and those that they run: install, uninstall, hook, helper, statusline, mcp."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shadowsnap.agents.install import FileChange, install, uninstall
from shadowsnap.agents.state import agent_state, wait_for_consent
from shadowsnap.cli.commands import Command, Context
from shadowsnap.cli.text import ago, one_line, safe
from shadowsnap.files import parse_json
from shadowsnap.hook.client import main


class InstallCommand(Command):
    """Let an agent take a checkpoint before each turn that writes.

    Adds the hook to the agent's own settings, or to those of the project, and where the agent knows
    such commands also a /rollback. Everything else in the settings stays as it is, and a copy of a
    changed file is kept beside it. AGENT: claude, codex, gemini, cursor, copilot, qwen, hermes, goose,
    kiro, windsurf, cline, opencode or kilo. Some agents run a hook only after you agreed: then it says
    what to do, and on a terminal it waits until that is done.
    """

    name = "install"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_settings_options(parser)
        parser.add_argument("--statusline", action="store_true", help="show in the agent whether it is protected")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        project = context.workdir if args.project else None
        changes = install(args.agent, project, dry_run=args.dry_run, status_line=args.statusline)
        code = report_changes(context, args, changes, "installed", "already installed")
        if not args.dry_run:
            _wait_for_consent(context, args.agent, project)
        return code


def _wait_for_consent(context: Context, agent: str, project: Path | None) -> None:
    """Show what the agent still needs the person to do; on a terminal, wait until that is done."""
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
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would change and change nothing")


def report_changes(
    context: Context, args: argparse.Namespace, changes: list[FileChange], done: str, nothing: str
) -> int:
    """Show which files changed, or with --dry-run how they would."""
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


class UninstallCommand(Command):
    """Take the hook out of an agent's settings again.

    If a file was not changed otherwise since it was put in, it is again what it was before, byte for
    byte. Checkpoints stay.
    """

    name = "uninstall"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_settings_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        changes = uninstall(args.agent, context.workdir if args.project else None, dry_run=args.dry_run)
        return report_changes(context, args, changes, "uninstalled", "not installed")


class HookCommand(Command):
    """What agents run before a tool call.

    It reads the event from standard input. Made for the settings of agents, which `shadowsnap install`
    writes. It prints nothing and always ends with 0, so that it never stops an agent; what it did
    stands in the status. EVENT says what happened, for agents whose input does not. Any agent that is
    not known can use `generic`, with the JSON that `shadowsnap docs hooks` describes.
    """

    name = "hook"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("agent", metavar="AGENT", nargs="?", default="generic", help="which agent it is")
        parser.add_argument("event", metavar="EVENT", nargs="?", default="", help="what happened")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return main([args.agent, args.event])


class HelperCommand(Command):
    """Show or stop the process that does the work of hooks faster.

    The first hook starts it. It leaves by itself after half an hour without work, and when shadowsnap or its
    settings have changed. Nothing depends on it: without it, each hook does the work in its own process. The next
    hook after `stop` starts another one; the setting `resident = false` switches that off.
    """

    name = "helper"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("action", choices=("status", "stop"), nargs="?", default="status", help="what to do")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        # Late: an agent runs `statusline`, a command of this module, again and again.
        from shadowsnap.hook.server import running_helper, stop_helper

        base = str(context.manager.settings.resolved_base())
        found = (stop_helper if args.action == "stop" else running_helper)(base)
        stopped = args.action == "stop" and found is not None
        data = {"helper": found, "stopped": stopped}
        if found is None:
            text = "no helper runs: hooks do their work themselves"
        elif stopped:
            text = f"stopped the helper, process {found.pid}"
        else:
            text = f"the helper runs as process {found.pid}, started {ago(found.started_at)}"
        return context.ui.answer(data, text)


class StatuslineCommand(Command):
    """Print one line for the status line of an agent: protected or not.

    `shadowsnap install claude --statusline` lets Claude Code run it. It reads the session from standard
    input, as Claude Code writes it there.
    """

    name = "statusline"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("agent", metavar="AGENT", nargs="?", default="claude", help="which agent")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        try:
            given = parse_json("" if sys.stdin.isatty() else sys.stdin.read())
        except ValueError:
            given = {}
        session = given.get("session_id", "") if isinstance(given, dict) else ""
        folder = given.get("cwd", "") if isinstance(given, dict) else ""
        project = Path(folder) if isinstance(folder, str) and folder else None
        state = agent_state(args.agent, project, session=session if isinstance(session, str) else "")
        return context.ui.answer(
            state.to_dict() | {"text": state.sentence}, f"shadowsnap: {one_line(state.sentence)}"
        )


class McpCommand(Command):
    """Let a model read this project's timeline, over MCP.

    It talks on stdin and stdout. Its tools are timeline, diff and blame. A fourth one, restore, only makes a plan:
    you carry it out with `shadowsnap restore --plan TOKEN`. Needs the extra: pip install 'shadowsnap[mcp]'.
    """

    name = "mcp"
    group = "more"

    def run(self, args: argparse.Namespace, context: Context) -> int:
        from shadowsnap.integrations.mcp_server import make_server  # late, as above

        server = make_server(context.manager, context.workdir)
        if context.ui.json:
            tools = ["timeline", "diff", "blame", "restore"]
            return context.ui.answer({"tool_names": tools, "workdir": str(context.workdir)})
        server.run("stdio")
        return 0
