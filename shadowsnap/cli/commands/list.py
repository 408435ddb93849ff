"""Show the timeline: what was asked, what each turn changed, and where the files are now.

Newest first. `@` stands for the files as they are now; the numbers never change and can be used wherever a
command takes a REF. Between turns stand your own edits. --checkpoints lists the raw states instead.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import checkpoint_lines, timeline_lines
from shadowsnap.cli.text import cut_path, safe
from shadowsnap.errors import DirectoryMissing, NoSuchProject, WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import Entry, Now

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (20; 0: all)")
    parser.add_argument("--session", metavar="ID", help="only those of one session; a part of its id will do")
    parser.add_argument("--file", metavar="PATH", help="only those that changed this file or directory")
    parser.add_argument("--checkpoints", action="store_true", help="the raw states that are kept")
    parser.add_argument("--restores", action="store_true", help="also restores, undos and reverts")
    parser.add_argument("--all-projects", action="store_true", help="every project")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.limit < 0:
        raise WrongUsage(why="--limit must not be negative")
    if args.all_projects and args.file is not None:
        raise WrongUsage(why="--file is about one project, --all-projects about every one")
    if args.checkpoints:
        return _checkpoints(args, context)
    return _every_project(args, context) if args.all_projects else show_timeline(args, context)


def show_timeline(args: argparse.Namespace, context: Context) -> int:
    ui, workdir = context.ui, context.workdir
    entries = _entries(args, context, workdir)
    shown = entries[: args.limit or None]
    now = _now(context, workdir)
    protection = context.protection()
    data = {
        "project": {"workdir": str(workdir), "protected": protection.protected, "protection": protection.text},
        "now": now.to_dict() if now is not None else None,
        "entries": [entry.to_dict() for entry in shown],
        "more": len(entries) - len(shown),
    }
    head = f"{ui.ink('bold', cut_path(tilde(workdir), 40))}    {protection.text}"
    narrow = args.session is not None or args.file is not None
    lines = [head, *_lines(shown, None if narrow else now, context)]
    lanes = [] if narrow else context.manager.pulled(workdir, args.limit or None)
    if lanes:
        data["lanes"] = [lane.to_dict() for lane in lanes]
    for lane in lanes:
        lines += ["", ui.ink("bold", f"on {safe(lane.machine)}") + f"    {lane.lane}"]
        lines += _lines(lane.entries, None, context)
    if len(entries) > len(shown):
        ui.say(f"{len(entries) - len(shown)} more: --limit 0 shows all")
    return ui.answer(data, [*lines, *_hints(shown, context)])


def _every_project(args: argparse.Namespace, context: Context) -> int:
    ui, projects, lines = context.ui, [], []
    for workdir in context.manager.projects():
        entries = _entries(args, context, workdir)
        shown = entries[: args.limit or None]
        if shown:
            listed = [entry.to_dict() for entry in shown]
            projects.append({"workdir": str(workdir), "entries": listed, "more": len(entries) - len(shown)})
            lines += [ui.ink("bold", tilde(workdir)), *_lines(shown, None, context), ""]
    return ui.answer({"projects": projects}, lines[:-1])


def _checkpoints(args: argparse.Namespace, context: Context) -> int:
    ui, limit = context.ui, args.limit or None
    path = None if args.file is None else context.path(args.file)
    projects = []
    lines: list[str] = []
    for workdir in context.manager.projects() if args.all_projects else [context.workdir]:
        found = context.manager.list_checkpoints(workdir, session_id=args.session, path=path)
        shown = found[:limit]
        listed = [checkpoint.to_dict() for checkpoint in shown]
        projects.append({"workdir": str(workdir), "checkpoints": listed, "more": len(found) - len(shown)})
        lines += [ui.ink("bold", tilde(workdir))] if args.all_projects else []
        lines += checkpoint_lines(shown, ui.width, ui.ink)
        if len(found) > len(shown):
            ui.say(f"{len(found) - len(shown)} more: --limit 0 shows all")
    return ui.answer({"projects": projects} if args.all_projects else projects[0], lines)


def _entries(args: argparse.Namespace, context: Context, workdir: Path) -> list[Entry]:
    path = None if args.file is None else context.path(args.file)
    return context.manager.timeline(workdir, session_id=args.session, path=path, restores=args.restores)


def _now(context: Context, workdir: Path) -> Now | None:
    try:
        return context.manager.now(workdir)
    except (DirectoryMissing, NoSuchProject):
        return None


def _lines(entries: Sequence[Entry], now: Now | None, context: Context) -> list[str]:
    from shadowsnap.timeline import short_session_ids

    names = short_session_ids(entry.session_id for entry in entries if entry.session_id)
    return timeline_lines(entries, now, context.ui.width, context.ui.ink, names)


def _hints(entries: Sequence[Entry], context: Context) -> list[str]:
    """The two commands that people look for, with the numbers of this list."""
    turns = [entry for entry in entries if entry.kind == "turn" and entry.status not in ("undone", "reverted")]
    changed = [entry for entry in turns if entry.files_changed != 0]
    if not changed or not context.ui.on_terminal:
        return []
    hint = f"undo turn {changed[0].number}: {context.line('undo')}"
    if len(turns) > 1:
        number = str(turns[1].number)
        hint += f"      back to before turn {number}: {context.line('restore', number)}"
    return [context.ui.ink("dim", hint)]


def tilde(workdir: Path | str) -> str:
    """A directory as people write it, with ~ for their home."""
    home, text = os.path.expanduser("~"), safe(str(workdir))
    return f"~{text[len(home) :]}" if text == home or text.startswith(home + os.sep) else text


