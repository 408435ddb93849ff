"""The command about sessions and their conversations."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from shadowsnap.cli.commands import Command
from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import moment_text
from shadowsnap.cli.text import age, ago, columns, count, cut, one_line, pad, safe
from shadowsnap.cli.ui import Ink, Ui
from shadowsnap.errors import NoConversation, WrongUsage
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Conversation, Session, SessionTurn
from shadowsnap.store.conversations import spoken_messages
from shadowsnap.timeline import short_session_ids


class SessionsCommand(Command):
    """List the sessions of this project, or show one.

    `list`, the default, has a line for each session, newest first: a short id that works wherever an id is asked
    for, status, age, turns, agent, and the first and last prompt. `show ID` has its turns with their numbers,
    whether the conversation is kept, and what became of its stages; with --chat it prints the conversation.
    """

    name = "sessions"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "what", choices=("list", "show"), nargs="?", default="list", help="list all, or show one"
        )
        parser.add_argument("session", metavar="SESSION", nargs="?", help="the session that is shown")
        parser.add_argument("--all-projects", action="store_true", help="of every project")
        parser.add_argument("--status", metavar="STATUS", help="active, completed, failed or rolled_back")
        parser.add_argument("--file", metavar="PATH", help="only those that changed this file or directory")
        parser.add_argument("--text", metavar="TEXT", help="only those with this in a prompt")
        parser.add_argument("--since", metavar="DATE", help="only those that went on since, as 2026-01-31")
        parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (20; 0: all)")
        parser.add_argument(
            "--chat", action="store_true", help="with show: print the last conversation that is kept"
        )
        parser.add_argument("-o", "--output", metavar="FILE", help="with --chat: write it to a file")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.what == "show":
            if args.session is None:
                raise WrongUsage(why="sessions show needs the id of a session")
            session = context.manager.session(args.session, context.workdir)
            if args.chat:
                return _write(last_conversation(context.manager, session), args.output, context)
            return _show(session, context.ui)
        if args.session is not None:
            raise WrongUsage(why=f"{args.session!r} does not belong there; sessions show {args.session} shows one")
        if args.limit < 0:
            raise WrongUsage(why="--limit must not be negative")
        found = context.manager.sessions(
            args.status,
            working_dir=None if args.all_projects and args.file is None else context.workdir,
            path=None if args.file is None else context.path(args.file),
            text=args.text,
            since=None if args.since is None else moment_of(args.since),
        )
        shown = found[: args.limit or None]
        if len(found) > len(shown):
            context.ui.say(f"{len(found) - len(shown)} more: --limit 0 shows all")
        if not found:
            context.ui.say("no session fits" if _is_narrow(args) else "no session yet")
        data = {"sessions": [each.to_dict() for each in shown], "more": len(found) - len(shown)}
        return context.ui.answer(data, session_rows(shown, found, context.ui.width))


def _is_narrow(args: argparse.Namespace) -> bool:
    return any((args.status, args.text, args.since, args.file))


def session_rows(shown: list[Session], found: list[Session], width: int) -> Iterator[str]:
    """A line for each session, with an id that is unique among those that were found."""
    names = short_session_ids(each.id for each in found)
    cells = []
    for each in shown:
        prompts = [turn.prompt for turn in each.turns if turn.prompt]
        ends = [one_line(prompts[0])] if prompts else []
        ends += [one_line(prompts[-1])] if len(prompts) > 1 else []
        when = age(each.started) if each.started else ""
        turns = count(len(each.turns), "turn")
        row = (one_line(names[each.id]), each.status, when, turns, one_line(each.agent or ""))
        cells.append((row, ends))
    wide = [max((columns(row[at]) for row, _ in cells), default=0) for at in range(5)]
    for row, ends in cells:
        facts = "  ".join(pad(text, size) for text, size in zip(row, wide, strict=True) if size)
        room = max(12, width - columns(facts) - 2)
        half = room if len(ends) < 2 else (room - 4) // 2
        yield f"{facts}  {' .. '.join(cut(text, half) for text in ends)}".rstrip()


def _show(session: Session, ui: Ui) -> int:
    return ui.answer({"session": session.to_dict()}, session_lines(session, ui.width, ui.ink))


def session_lines(session: Session, width: int, ink: Ink) -> Iterator[str]:
    """All that is known of a session."""
    yield f"session {ink('yellow', one_line(session.id))}"
    for name, value in (("agent", session.agent), ("parent", session.parent), ("note", session.note)):
        if value:
            yield f"{name:8} {one_line(value)}"
    yield f"{'status':8} {session.status}"
    for name, moment in (("began", session.started), ("ended", session.ended)):
        if moment:
            yield f"{name:8} {moment_text(moment)}"
    for turn in session.turns:
        yield ""
        yield from _turn_lines(turn, width)
    if session.edits:
        yield ""
        yield "stages:"
    for edit in session.edits:
        at = f" as {edit.checkpoint[:8]}" if edit.checkpoint else ""
        risk = f", risk {one_line(edit.risk_tier)}" if edit.risk_tier else ""
        yield f"  {one_line(edit.edit_id or '(unnamed)')}: {edit.status}{at}, {ago(edit.at)}{risk}"


def _turn_lines(turn: SessionTurn, width: int) -> Iterator[str]:
    numbers = ", ".join(str(place.turn) for place in turn.places if place.turn)
    facts = [ago(turn.began)]
    if turn.conversation != "none":
        facts.append(f"conversation {turn.conversation}")
    if turn.message_count is not None:
        facts.append(count(turn.message_count, "message"))
    facts += ["taken back"] if turn.reverted else []
    yield cut(f"turn {numbers or '?'}  ({', '.join(facts)})", width)
    if turn.prompt:
        yield cut(f"  {one_line(turn.prompt)}", width)
    for place in turn.places:
        yield f"  in {one_line(place.workdir)}"


def print_conversation(ref: str, output: str | None, context: Context) -> int:
    """Print the conversation that is kept with a state, or write it to a file."""
    result = context.manager.restore(context.workdir, ref, conversation=True, files=False, dry_run=True)
    return _write(result.conversation, output, context)


def last_conversation(manager: CheckpointManager, session: Session) -> Conversation:
    """The newest conversation that is kept of a session."""
    for turn in reversed(session.turns):
        for place in turn.places:
            for state in (place.after, place.before):
                if state is None or turn.conversation != "kept":
                    continue
                try:
                    result = manager.restore(
                        place.workdir, state, conversation=True, files=False, dry_run=True, session_id=session.id
                    )
                except NoConversation:
                    continue
                found: Conversation = result.conversation
                return found
    raise NoConversation(ref=session.id, why=" for this session")


def _write(conversation: Any, output: str | None, context: Context) -> int:
    text = _conversation_text(conversation.data)
    number = spoken_messages(conversation.data)
    messages = "" if number is None else f", {count(number, 'message')}"
    if output:
        path = os.path.join(context.here, output)
        Path(path).write_text(text, "utf-8", errors="surrogatepass")
        data = {"path": path, "messages": number, "session_id": conversation.session_id}
        return context.ui.answer(data, f"wrote {safe(path)}{messages}")
    if context.ui.json:
        return context.ui.answer({"conversation": conversation.to_dict(), "messages": number})
    shown = safe(text, keep="\n\t") if context.ui.on_terminal else text
    return context.ui.answer({}, shown.removesuffix("\n"))


def _conversation_text(data: Any) -> str:
    if isinstance(data, str):
        return data if data.endswith("\n") else f"{data}\n"
    rows = data if isinstance(data, list) else [data]

    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def moment_of(text: str) -> datetime:
    """A moment as people write it."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise WrongUsage(why=f"{text!r} is not a date such as 2026-01-31 or 2026-01-31T12:00") from None
