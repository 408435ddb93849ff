"""Show the timeline: what was asked and what each turn changed.

Newest first. `@` stands for the files as they are now. The numbers never change, and every command takes
them. Between the turns stand your own edits, marked with a dot. A turn that is running, was interrupted, undone
or reverted says so. Without a command, shadowsnap shows this list on a terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shadowsnap.cli.context import Context
from shadowsnap.cli.states import tilde
from shadowsnap.cli.tables import checkpoint_lines, timeline_lines
from shadowsnap.cli.text import columns, cut, cut_path, one_line, safe
from shadowsnap.errors import DirectoryMissing, NoSuchProject, WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import Entry, Now

GROUP = "taking and looking"

_LEAST_PATH = 12
_OUT = ("undone", "reverted")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (20; 0: all)")
    parser.add_argument("--session", metavar="ID", help="only those of one session; a part of its id will do")
    parser.add_argument("--file", metavar="PATH", help="only those that changed this file or directory")
    parser.add_argument("--checkpoints", action="store_true", help="the raw states that are kept")
    parser.add_argument("--restores", action="store_true", help="also restores, undos, redos and reverts")
    parser.add_argument("--all-projects", action="store_true", help="every project")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.limit < 0:
        raise WrongUsage(why="--limit must not be negative")
    if args.all_projects and args.file is not None:
        raise WrongUsage(why="--file is about one project, --all-projects about every one")
    if args.checkpoints and args.restores:
        raise WrongUsage(why="--checkpoints lists states, --restores what happened")
    if args.checkpoints:
        return _checkpoints(args, context)
    return _every_project(args, context) if args.all_projects else _timeline(args, context)


def show_first_steps(context: Context) -> int:
    """What a bare `shadowsnap` shows where there is no history yet."""
    from shadowsnap.cli.parser import USAGE

    lines = [heading(context), "no history yet: the first snapshot is taken before an agent first writes"]
    return context.ui.answer({}, [*lines, f"usage: {USAGE}", "shadowsnap help lists the commands"])


def _timeline(args: argparse.Namespace, context: Context) -> int:
    ui, workdir = context.ui, context.workdir
    narrow = args.session is not None or args.file is not None
    with context.working("looking at the files"):
        entries = _entries(args, context, workdir)
        now = _now(context)
    shown = entries[: args.limit or None]
    data = {
        "project": _project(context),
        "now": now.to_dict() if now is not None else None,
        "entries": [entry.to_dict() for entry in shown],
        "more": len(entries) - len(shown),
    }
    lines = picture(context, entries, None if narrow else now, len(shown), hints=ui.on_terminal and not narrow)
    lanes = [] if narrow else context.manager.pulled(workdir, args.limit or None)
    if lanes:
        data["pulled_timelines"] = [lane.to_dict() for lane in lanes]
    for lane in lanes:
        lines += ["", ui.ink("bold", f"on {safe(lane.machine)}") + f"    {lane.lane}"]
        lines += _rows(lane.entries, None, context, None)
    if narrow and not entries:
        ui.say("no entry fits")
    _say_more(context, len(entries) - len(shown))
    return ui.answer(data, lines)


def picture(
    context: Context, entries: Sequence[Entry], now: Now | None, most: int | None = None, *, hints: bool
) -> list[str]:
    """The timeline as people see it, with its heading; `hints`: and the two commands they look for."""
    lines = [heading(context), *_rows(entries, now, context, most)]
    return [*lines, *_hints(entries, context)] if hints else lines


def heading(context: Context) -> str:
    """The directory, and whether it is protected."""
    ui, text = context.ui, one_line(context.protection.text)
    path = cut_path(tilde(context.workdir), max(_LEAST_PATH, ui.width - columns(text) - 4))
    style = "green" if context.protection.protected else "yellow"
    return f"{ui.ink('bold', path)}    {ui.ink(style, cut(text, ui.width - columns(path) - 4))}"


def _project(context: Context) -> dict[str, Any]:
    protection = context.protection
    return {
        "workdir": str(context.workdir),
        "protected": protection.protected,
        "protection": protection.text,
    }


def _every_project(args: argparse.Namespace, context: Context) -> int:
    ui, timelines, lines = context.ui, [], list[str]()
    for workdir in context.manager.projects():
        entries = _entries(args, context, workdir)
        shown = entries[: args.limit or None]
        if shown:
            more = len(entries) - len(shown)
            listed = [entry.to_dict() for entry in shown]
            timelines.append({"workdir": str(workdir), "entries": listed, "more": more})
            lines += [ui.ink("bold", cut_path(tilde(workdir), ui.width))]
            lines += _rows(entries, None, context, len(shown))
            lines += [*([f"({more} more)"] if more else []), ""]
    return ui.answer({"timelines": timelines}, lines[:-1])


def _checkpoints(args: argparse.Namespace, context: Context) -> int:
    ui, limit = context.ui, args.limit or None
    path = None if args.file is None else context.path(args.file)
    projects, lines = [], list[str]()
    for workdir in context.manager.projects() if args.all_projects else [context.workdir]:
        session = _whole_session_id(args.session, workdir, context)
        found = context.manager.list_checkpoints(workdir, session_id=session, path=path)
        shown = found[:limit]
        listed = [checkpoint.to_dict() for checkpoint in shown]
        projects.append({"workdir": str(workdir), "checkpoints": listed, "more": len(found) - len(shown)})
        lines += [ui.ink("bold", tilde(workdir))] if args.all_projects else []
        lines += checkpoint_lines(shown, ui.width, ui.ink)
        _say_more(context, len(found) - len(shown))
    if args.all_projects:
        return ui.answer({"timelines": projects}, lines)
    if not projects[0]["checkpoints"]:
        ui.say("no state fits")
    alone = {name: projects[0][name] for name in ("checkpoints", "more")}
    return ui.answer({"project": _project(context), **alone}, lines)


def _whole_session_id(part: str | None, workdir: Path, context: Context) -> str | None:
    if part is None:
        return None
    sessions = {entry.session_id for entry in context.manager.timeline(workdir, session_id=part)}
    return next((session for session in sessions if session), part)


def _entries(args: argparse.Namespace, context: Context, workdir: Path) -> list[Entry]:
    path = None if args.file is None else context.path(args.file)
    return context.manager.timeline(workdir, session_id=args.session, path=path, restores=args.restores)


def _now(context: Context) -> Now | None:
    try:
        return context.manager.now(context.workdir)
    except (DirectoryMissing, NoSuchProject):
        return None


def _rows(entries: Sequence[Entry], now: Now | None, context: Context, most: int | None = None) -> list[str]:
    from shadowsnap.timeline import short_session_ids

    names = short_session_ids(entry.session_id for entry in entries if entry.session_id)
    return timeline_lines(entries[:most], now, context.ui.width, context.ui.ink, names)


def _say_more(context: Context, number: int) -> None:
    if number > 0:
        context.ui.say(f"{number} more: --limit 0 shows all")


def _hints(entries: Sequence[Entry], context: Context) -> Iterator[str]:
    """How to take back the last thing, and how to go back to before the turn below it."""
    ui, next_undo = context.ui, context.manager.next_undo(context.workdir)
    hints = [f"undo {one_line(next_undo).partition(':')[0]}: {context.line('undo')}"] if next_undo else []
    turns = [entry for entry in entries if entry.kind == "turn" and entry.status not in _OUT]
    if len(turns) > 1:
        number = str(turns[1].number)
        hints.append(f"back to before turn {number}: {context.line('restore', number)}")
    line = "      ".join(hints)
    yield from (ui.ink("dim", each) for each in ([line] if columns(line) <= ui.width else hints) if each)
