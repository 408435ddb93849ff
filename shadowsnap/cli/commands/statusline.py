"""Print one line for the status line of an agent: protected or not.

`shadowsnap install claude --statusline` lets Claude Code run it. It reads the session from standard
input, as Claude Code writes it there.
"""

from __future__ import annotations

import argparse
import sys

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import one_line

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", default="claude", help="which agent")


def run(args: argparse.Namespace, context: Context) -> int:
    from pathlib import Path

    from shadowsnap.agents.state import agent_state
    from shadowsnap.lightjson import loads

    try:
        given = loads("" if sys.stdin.isatty() else sys.stdin.read())
    except ValueError:
        given = {}
    session = given.get("session_id", "") if isinstance(given, dict) else ""
    folder = given.get("cwd", "") if isinstance(given, dict) else ""
    project = Path(folder) if isinstance(folder, str) and folder else None
    state = agent_state(args.agent, project, session=session if isinstance(session, str) else "")
    return context.ui.answer(state.to_dict() | {"text": state.sentence}, f"shadowsnap: {one_line(state.sentence)}")
