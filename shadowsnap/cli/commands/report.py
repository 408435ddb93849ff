"""Write what agents did as one HTML page, to look at or to pass on.

A picture of the time with a lane for each session, and each turn with its prompt, files, diffs, what was not
captured and what no rollback takes back. The page loads nothing and needs no network. What looks like a secret is
left out. An older report is replaced; another file only with --force.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe, size
from shadowsnap.errors import ReportRefused, ShadowsnapError, WrongUsage

if TYPE_CHECKING:
    from shadowsnap.cli.report.page import Page

GROUP = "taking and looking"

_AGO = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_HEAD = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where it goes; - for stdout")
    parser.add_argument("--session", metavar="ID", help="only one session; a part of its id will do")
    parser.add_argument("--since", metavar="TIME", help="only since then: 2026-01-31, today, 8h, 2d")
    parser.add_argument("--no-prompts", action="store_true", help="without what was asked")
    parser.add_argument("--no-diffs", action="store_true", help="with the names of files, without their lines")
    parser.add_argument("--max-mb", metavar="N", type=float, default=8, help="not larger than this (8)")
    parser.add_argument("--force", action="store_true", help="replace a file that is no report")


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    if args.output == "-" and ui.json:
        raise WrongUsage(why="with --json, stdout is the answer: name a file")
    if not 0.1 <= args.max_mb <= 1000:
        raise WrongUsage(why="--max-mb is between 0.1 and 1000")
    path = Path(os.path.normpath(os.path.join(context.here, args.output)))
    if args.output != "-":
        _check_replaceable(path, args.force)
    page, data = _page(args, context)
    if args.output == "-":
        ui.raw(data)
        return 0
    from shadowsnap.files import write_bytes

    write_bytes(path, data)
    turns, cut = sum(1 for entry in page.entries if entry.kind == "turn"), page.cuts.in_words()
    for text in cut:
        ui.say(f"{text} to keep it small; --max-mb makes room")
    facts = {"file": str(path), "bytes": len(data), "turn_count": turns, "cut": cut}
    return ui.answer(facts, f"{count(turns, 'turn')} written to {safe(str(path))}, {size(len(data))}")


def _page(args: argparse.Namespace, context: Context) -> tuple[Page, bytes]:
    from contextlib import nullcontext

    from shadowsnap.cli.report.items import Item, Items, chosen_entries
    from shadowsnap.cli.report.page import Page
    from shadowsnap.cli.states import tilde

    since = None if args.since is None else _since(args.since)
    with context.working("writing the report") as update:
        seconds = None if since is None else since.timestamp()
        entries = chosen_entries(context.manager, context.workdir, args.session, seconds)
        with Items(context.manager, context.workdir) if entries else nullcontext() as items:
            page = Page(
                project=tilde(context.workdir),
                about=_about(args, since),
                entries=entries,
                read=Item if items is None else items.read,
                now=datetime.now().astimezone(),
                state=_state(context) if entries and args.session is None else "",
                prompts=not args.no_prompts,
                diffs=not args.no_diffs,
                most=int(args.max_mb * 1_000_000),
            )
            return page, page.html(update)


def _check_replaceable(path: Path, force: bool) -> None:
    """Refuse to replace what is not a report; a device or a directory always."""
    from shadowsnap.cli.report.page import GENERATOR

    try:
        seen = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(seen.st_mode):
        raise ReportRefused(path=path, why="it is not a plain file")
    if force:
        return
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if f'name="generator" content="{GENERATOR}'.encode() not in head:
        problem = ReportRefused(path=path, why="it exists, and is no report")
        problem.hint = "name another file; --force replaces this one"
        raise problem


def _since(text: str) -> datetime:
    """A moment as people write it: a date, `today`, `yesterday`, or how long ago, `8h`."""
    from shadowsnap.cli.commands.sessions import moment_of

    now = datetime.now().astimezone()
    ago = _AGO.fullmatch(text)
    if ago:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    days = {"today": 0, "yesterday": 1}.get(text)
    if days is not None:
        return (now - timedelta(days=days)).replace(hour=0, minute=0, second=0, microsecond=0)
    return moment_of(text)


def _about(args: argparse.Namespace, since: datetime | None) -> str:
    from shadowsnap.cli.report.page import EVERYTHING

    parts = [f"session {args.session}"] if args.session is not None else []
    parts += [f"since {since.day} {since:%B %Y, %H:%M}"] if since is not None else []
    return ", ".join(parts) or EVERYTHING


def _state(context: Context) -> str:
    from shadowsnap.cli.tables import now_text

    try:
        text = now_text(context.manager.now(context.workdir))
    except ShadowsnapError:
        return ""  # the directory is gone, or the store cannot be written to
    return f"{text[:1].upper()}{text[1:]}."
