"""List the checkpoints, newest first.

Each line: its number, id, age, what it was taken for, what changed since the one before it, and
whether it is pinned and belongs to a session. The number can be used as an ID.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import rows
from shadowsnap.cli.text import safe
from shadowsnap.cli.ui import Ui
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.cli.tables import Numbered

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (20; 0: all)")
    parser.add_argument("--session", metavar="ID", help="only those of one session")
    parser.add_argument("--file", metavar="PATH", help="only those in which this file or directory changed")
    parser.add_argument("--all", action="store_true", help="every project")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.limit < 0:
        raise WrongUsage(why="--limit must not be negative")
    if args.all and args.file is not None:
        raise WrongUsage(why="--file is about one project, --all about every one")
    return _every_project(args, context) if args.all else _one_project(args, context)


def _one_project(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    found, more = _numbered(args, context, context.workdir)
    if more:
        ui.say(f"showing the newest {args.limit}; --limit 0 shows all")
    if not found:
        ui.say("no checkpoint fits")
    return ui.answer(_record(context.workdir, found, more), _lines(found, ui, ui.width))


def _every_project(args: argparse.Namespace, context: Context) -> int:
    ui, projects, lines = context.ui, [], []
    for workdir in context.manager.projects():
        found, more = _numbered(args, context, workdir)
        if found:
            projects.append(_record(workdir, found, more))
            lines.append(ui.ink("bold", safe(str(workdir))))
            lines += [f"  {row}" for row in _lines(found, ui, ui.width - 2)]
    return ui.answer({"projects": projects}, lines)


def _numbered(args: argparse.Namespace, context: Context, workdir: Path) -> tuple[list[Numbered], bool]:
    """The checkpoints that are asked for with their numbers in the whole list, and whether
    there are more."""
    manager, limit = context.manager, args.limit or None
    if args.session is None and args.file is None:
        found = manager.list_checkpoints(workdir, limit=limit and limit + 1)
        numbered = list(enumerate(found, 1))
    else:
        numbers = {each.id: number for number, each in enumerate(manager.list_checkpoints(workdir), 1)}
        path = None if args.file is None else context.path(args.file)
        found = manager.list_checkpoints(workdir, session_id=args.session, path=path)
        numbered = [(numbers[each.id], each) for each in found if each.id in numbers]
    return numbered[:limit], limit is not None and len(numbered) > limit


def _lines(found: list[Numbered], ui: Ui, width: int) -> list[str]:
    lines: list[str] = ui.fancy.timeline(found, width) if ui.fancy and found else rows(found, width, ui.ink)
    return lines


def _record(workdir: Path, found: list[Numbered], more: bool) -> dict[str, Any]:
    listed = [{"number": number, **checkpoint.to_dict()} for number, checkpoint in found]
    return {"workdir": str(workdir), "checkpoints": listed, "more": more}
