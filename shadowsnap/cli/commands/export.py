"""Write what turns did for other tools: Agent Trace, git-ai notes.

--agent-trace writes records of Agent Trace 0.1, one JSON object per line. --git-notes attaches authorship notes of
git-ai (standard 3.0.0) to the commits of your repository, under refs/notes/ai; notes of other tools stay.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe
from shadowsnap.errors import WrongUsage

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--agent-trace", action="store_true", help="trace records of Agent Trace 0.1")
    form.add_argument("--git-notes", action="store_true", help="authorship notes of git-ai, on your commits")
    parser.add_argument("-o", dest="output", metavar="FILE", help="where the records go; stdout if not given")
    parser.add_argument("-n", "--dry-run", action="store_true", help="with --git-notes: only show the notes")


def run(args: argparse.Namespace, context: Context) -> int:
    return _agent_trace(args, context) if args.agent_trace else _git_notes(args, context)


def _agent_trace(args: argparse.Namespace, context: Context) -> int:
    import json  # the help of all commands imports this module

    from shadowsnap.compat.agent_trace import trace_records
    from shadowsnap.files import write_bytes

    if args.dry_run:
        raise WrongUsage(why="--dry-run goes with --git-notes")
    records = list(trace_records(context.manager, context.workdir))
    rows = [json.dumps(record) for record in records]
    if args.output is None or args.output == "-":
        return context.ui.answer({"records": records}, rows)
    path = Path(os.path.normpath(os.path.join(context.here, args.output)))
    write_bytes(path, "".join(f"{row}\n" for row in rows).encode())
    lines = f"{count(len(rows), 'record')} written to {safe(str(path))}"
    return context.ui.answer({"record_count": len(rows), "file": str(path)}, lines)


def _git_notes(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.compat.git_ai import export_notes

    if args.output is not None:
        raise WrongUsage(why="-o goes with --agent-trace: notes are written into your repository")
    notes = export_notes(context.manager, context.workdir, dry_run=args.dry_run)
    lines = [f"{note.commit[:10]}  {count(note.lines, 'line')}  {note.status}" for note in notes]
    if args.dry_run:
        texts = {note.commit: map(safe, note.text.splitlines()) for note in notes}
        lines = [row for commit, text in texts.items() for row in (f"commit {commit}", *text, "")]
    data = {"git_notes": [note.to_dict() for note in notes]}
    return context.ui.answer(data, lines or ["no commit holds lines of a turn"])
