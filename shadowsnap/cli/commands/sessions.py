"""List the sessions of agents, or show one.

`list` (which is meant where nothing is said) has a line for each session, newest first: its status,
age, number of turns, agent, and what was asked for first. `show ID` tells its turns with the checkpoints
before and after, whether the conversation is kept, and what became of its stages.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import age, ago, count, cut, one_line, pad
from shadowsnap.errors import WrongUsage

if TYPE_CHECKING:
    from shadowsnap.cli.ui import Ui
    from shadowsnap.model import Session, SessionTurn

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("list", "show"), nargs="?", default="list", help="list all, or show one")
    parser.add_argument("session", metavar="SESSION", nargs="?", help="the session that is shown")
    parser.add_argument("--status", metavar="STATUS", help="active, completed, failed or rolled_back")
    parser.add_argument("--file", metavar="PATH", help="only those that changed this file or directory")
    parser.add_argument("--text", metavar="TEXT", help="only those with this in a prompt or reason")
    parser.add_argument("--since", metavar="DATE", help="only those that went on since, as 2026-01-31")
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (20; 0: all)")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.what == "show":
        if args.session is None:
            raise WrongUsage(why="sessions show needs the id of a session")
        return _show(context.manager.session(args.session), context.ui)
    if args.session is not None:
        raise WrongUsage(why=f"{args.session!r} does not belong there; sessions show {args.session} shows one")
    if args.limit < 0:
        raise WrongUsage(why="--limit must not be negative")
    found = context.manager.sessions(
        args.status,
        working_dir=None if args.file is None else context.workdir,
        path=None if args.file is None else context.path(args.file),
        text=args.text,
        since=None if args.since is None else _moment(args.since),
        limit=args.limit + 1 if args.limit else None,
    )
    return _list(found[: args.limit or None], bool(args.limit) and len(found) > args.limit, context.ui)


def _list(found: list[Session], more: bool, ui: Ui) -> int:
    if more:
        ui.say(f"showing the newest {len(found)}; --limit 0 shows all")
    if not found:
        ui.say("no session fits")
    return ui.answer({"sessions": [each.to_dict() for each in found], "more": more}, _rows(found, ui))


def _show(session: Session, ui: Ui) -> int:
    return ui.answer({"session": session.to_dict()}, _lines(session, ui))


def _rows(found: list[Session], ui: Ui) -> Iterator[str]:
    cells = [
        (
            one_line(each.id),
            each.status,
            age(each.started) if each.started else "",
            count(len(each.turns), "turn"),
            one_line(each.agent or ""),
            one_line(next((turn.prompt for turn in each.turns if turn.prompt), "") or ""),
        )
        for each in found
    ]
    wide = [max((len(row[at]) for row in cells), default=0) for at in range(5)]
    for row in cells:
        facts = "  ".join(pad(text, size) for text, size in zip(row, wide, strict=False) if size)
        yield f"{facts}  {cut(row[5], max(12, ui.width - len(facts) - 2))}".rstrip()


def _lines(session: Session, ui: Ui) -> Iterator[str]:
    yield f"session {ui.ink('yellow', one_line(session.id))}"
    for name, value in (("agent", session.agent), ("parent", session.parent), ("note", session.note)):
        if value:
            yield f"{name:8} {one_line(value)}"
    yield f"{'status':8} {session.status}"
    for name, moment in (("began", session.started), ("ended", session.ended)):
        if moment:
            yield f"{name:8} {moment.astimezone():%Y-%m-%d %H:%M:%S} ({ago(moment)})"
    for number, turn in enumerate(session.turns, 1):
        yield ""
        yield from _turn_lines(number, turn, ui)
    if session.edits:
        yield ""
        yield "stages:"
    for edit in session.edits:
        at = f" as {edit.checkpoint[:8]}" if edit.checkpoint else ""
        risk = f", risk {one_line(edit.risk_tier)}" if edit.risk_tier else ""
        yield f"  {one_line(edit.edit_id or '(unnamed)')}: {edit.status}{at}, {ago(edit.at)}{risk}"


def _turn_lines(number: int, turn: SessionTurn, ui: Ui) -> Iterator[str]:
    asked = f": {one_line(turn.prompt)}" if turn.prompt else ""
    told = [ago(turn.began)]
    if turn.conversation != "none":
        told.append(f"conversation {turn.conversation}")
    if turn.message_count is not None:
        told.append(count(turn.message_count, "message"))
    told += ["reverted"] if turn.reverted else []
    yield cut(f"{number}. {', '.join(told)}{asked}", ui.width)
    for place in turn.places:
        before = place.before[:8] if place.before else "(none)"
        after = place.after[:8] if place.after else "(open)"
        turn_number = f", turn {place.turn}" if place.turn else ""
        yield f"   {before} -> {after}  {one_line(place.workdir)}{turn_number}"


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise WrongUsage(why=f"{text!r} is not a date such as 2026-01-31 or 2026-01-31T12:00") from None
