"""The commands that show and mark what happened: list, log, show, sessions, label, pin, unpin."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shadowsnap.cli.commands import USAGE, Command, Context
from shadowsnap.cli.tables import (
    aligned,
    change_lines,
    checkpoint_lines,
    describe_state,
    diff_of_entry,
    duration_text,
    entry_of,
    moment_text,
    patch_lines,
    prompt_of,
    state_name,
    tilde,
    timeline_lines,
)
from shadowsnap.cli.text import age, ago, columns, count, cut, cut_path, one_line, safe, wrapped
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import DirectoryMissing, NoConversation, NoSuchProject, UnsafeTree, WrongUsage
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import (
    TAKEN_BACK,
    Change,
    Checkpoint,
    Conversation,
    Entry,
    Now,
    Session,
    SessionTurn,
    Skipped,
)
from shadowsnap.store.conversations import spoken_messages
from shadowsnap.timeline import lasting_effects, short_session_ids

_LEAST_PATH = 12


class ListCommand(Command):
    """Show the timeline: what was asked and what each turn changed.

    Newest first. `@` stands for the files as they are now. The numbers never change, and every command takes them.
    Between the turns stand your own edits, marked with a dot. A turn that is running, was interrupted, undone or
    reverted says so. Without a command, shadowsnap shows this list on a terminal.
    """

    name = "list"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--limit", metavar="N", type=int, default=20, help="show at most N (20; 0: all)")
        parser.add_argument("--session", metavar="ID", help="only those of one session; a part of its id will do")
        parser.add_argument("--file", metavar="PATH", help="only those that changed this file or directory")
        parser.add_argument("--checkpoints", action="store_true", help="the raw states that are kept")
        parser.add_argument("--restores", action="store_true", help="also restores, undos, redos and reverts")
        parser.add_argument("--all-projects", action="store_true", help="every project")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.limit < 0:
            raise WrongUsage(why="--limit must not be negative")
        if args.all_projects and args.file is not None:
            raise WrongUsage(why="--file is about one project, --all-projects about every one")
        if args.checkpoints and args.restores:
            raise WrongUsage(why="--checkpoints lists states, --restores what happened")
        if args.all_projects:
            return _list_every_project(args, context)
        return _checkpoints(args, context) if args.checkpoints else _timeline(args, context)


def show_first_steps(context: Context) -> int:
    """What `shadowsnap` without a command shows if there is no history yet."""
    lines = [heading(context), "no history yet: the first snapshot is taken before an agent first writes"]
    return context.ui.answer({}, [*lines, f"usage: {USAGE}", "shadowsnap help lists the commands"])


def _timeline(args: argparse.Namespace, context: Context) -> int:
    ui, workdir = context.ui, context.workdir
    narrow = args.session is not None or args.file is not None
    with context.working("looking at the files"):
        entries = _read_entries(args, context, workdir)
        now = _read_now(context)
    shown = entries[: args.limit or None]
    data: dict[str, Any] = {"project": _project_facts(context), "now": now}
    data |= {"entries": shown, "more": len(entries) - len(shown)}
    lines = timeline_view(
        context, entries, None if narrow else now, len(shown), hints=ui.on_terminal and not narrow
    )
    lanes = [] if narrow else context.manager.pulled(workdir, args.limit or None)
    if lanes:
        data["pulled_timelines"] = lanes
    for lane in lanes:
        lines += ["", ui.ink("bold", f"on {safe(lane.machine)}") + f"    {lane.lane}"]
        lines += _rows(lane.entries, None, context)
    if narrow and not entries:
        _check_session(args, context)
        ui.say("no entry matches")
    _say_more(context, len(entries) - len(shown))
    return ui.answer(data, lines)


def timeline_view(
    context: Context, entries: Sequence[Entry], now: Now | None, most: int | None = None, *, hints: bool
) -> list[str]:
    """The heading and the lines of the timeline; with `hints`, also the commands that go back."""
    lines = [heading(context), *_rows(entries, now, context, most)]
    return [*lines, *_next_hints(entries, context)] if hints else lines


def heading(context: Context) -> str:
    """The directory of the project, and whether it is protected."""
    ui, text = context.ui, one_line(context.protection.text)
    path = cut_path(tilde(context.workdir), max(_LEAST_PATH, ui.width - columns(text) - 4))
    style = "green" if context.protection.protected else "yellow"
    return f"{ui.ink('bold', path)}    {ui.ink(style, cut(text, ui.width - columns(path) - 4))}"


def _project_facts(context: Context) -> dict[str, Any]:
    protected, text = context.protection.protected, context.protection.text
    return {"workdir": str(context.workdir), "protected": protected, "protection": text}


def _checkpoints(args: argparse.Namespace, context: Context) -> int:
    ui, found = context.ui, _read_checkpoints(args, context, context.workdir)
    shown = found[: args.limit or None]
    if not shown:
        _check_session(args, context)
        ui.say("no state matches")
    more = len(found) - len(shown)
    _say_more(context, more)
    data = {"project": _project_facts(context), "checkpoints": shown, "more": more}
    return ui.answer(data, checkpoint_lines(shown, ui.width, ui.ink))


def _list_every_project(args: argparse.Namespace, context: Context) -> int:
    ui, limit = context.ui, args.limit or None
    timelines, lines = list[dict[str, Any]](), list[str]()
    for workdir in context.manager.projects():
        if args.checkpoints:
            states = _read_checkpoints(args, context, workdir)
            rows = checkpoint_lines(states[:limit], ui.width, ui.ink)
            found: dict[str, Any] = {"checkpoints": states[:limit], "more": len(states) - len(rows)}
        else:
            entries = _read_entries(args, context, workdir)
            rows = _rows(entries, None, context, limit)
            found = {"entries": entries[:limit], "more": len(entries) - len(rows)}
        if rows:
            timelines.append({"workdir": str(workdir), **found})
            gone = "" if workdir.is_dir() else " (gone)"
            path = ui.ink("bold", cut_path(tilde(workdir), ui.width - len(gone)))
            lines += [f"{path}{ui.ink('yellow', gone)}", *rows]
            lines += [*([f"({found['more']} more)"] if found["more"] else []), ""]
    if not timelines:
        _check_session(args, context)
    return ui.answer({"timelines": timelines}, lines[:-1])


def _check_session(args: argparse.Namespace, context: Context) -> None:
    """Raise NoSuchSession if the session is not known at all."""
    if args.session is not None:
        context.manager.session(args.session)


def _read_checkpoints(args: argparse.Namespace, context: Context, workdir: Path) -> list[Checkpoint]:
    path, session = None if args.file is None else context.path(args.file), args.session
    if session is not None:  # the id may be shortened, and this needs all of it
        ids = {entry.session_id for entry in context.manager.timeline(workdir, session_id=session)}
        session = next((each for each in ids if each), session)
    return context.manager.list_checkpoints(workdir, session_id=session, path=path)


def _read_entries(args: argparse.Namespace, context: Context, workdir: Path) -> list[Entry]:
    path = None if args.file is None else context.path(args.file)
    return context.manager.timeline(workdir, session_id=args.session, path=path, restores=args.restores)


def _read_now(context: Context) -> Now | None:
    try:
        return context.manager.now(context.workdir)
    except (DirectoryMissing, NoSuchProject):
        return None
    except UnsafeTree as problem:  # the rest of the timeline is not affected
        context.ui.say(f"warning: the newest state cannot be compared: {problem}")
        context.ui.say(f"hint: {problem.hint}")
        return None


def _rows(entries: Sequence[Entry], now: Now | None, context: Context, most: int | None = None) -> list[str]:
    names = short_session_ids(entry.session_id for entry in entries if entry.session_id)
    return timeline_lines(entries[:most], now, context.ui.width, context.ui.ink, names)


def _say_more(context: Context, number: int) -> None:
    if number > 0:
        context.ui.say(f"{number} more: --limit 0 shows all")


def _next_hints(entries: Sequence[Entry], context: Context) -> Iterator[str]:
    """The commands that undo the newest operation, and that go back to before the turn below it."""
    ui, next_undo = context.ui, context.manager.next_undo(context.workdir)
    hints = [f"undo {one_line(next_undo).partition(':')[0]}: {context.command_line('undo')}"] if next_undo else []
    turns = [entry for entry in entries if entry.kind == "turn" and entry.status not in TAKEN_BACK]
    if len(turns) > 1:
        number = str(turns[1].number)
        hints.append(f"back to before turn {number}: {context.command_line('restore', number)}")
    line = "      ".join(hints)
    yield from (ui.ink("dim", each) for each in ([line] if columns(line) <= ui.width else hints) if each)


class LogCommand(ListCommand):
    """The same as list."""

    name = "log"


class ShowCommand(Command):
    """Show one turn, snapshot or state in full.

    For a turn: what was asked, by which agent and session, when and how long, the tools that ran, the files it
    changed (-p: the patch), what was not captured, what else it did that no rollback takes back, and the commands
    to go back, take it out, or look closer.
    """

    name = "show"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", help="a number of the list, last, a label, or an id")
        parser.add_argument("-p", "--patch", action="store_true", help="also the text of the changes")
        parser.add_argument(
            "--chat", action="store_true", help="print the conversation that is kept with it instead"
        )
        parser.add_argument("-o", "--output", metavar="FILE", help="with --chat: write it to a file")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.chat:
            return print_conversation(args.ref, args.output, context)
        entry = _entry(args.ref, context)
        return _show_entry(entry, args, context) if entry is not None else _show_checkpoint(args, context)


def _entry(word: str, context: Context) -> Entry | None:
    """The turn or snapshot that a number, `last` or a label names; None for another state."""
    target = context.checkpoint(word)
    named = word.isdigit() or word == "last" or word.startswith("last~") or word == target.label
    return entry_of(word, target, context.manager.timeline(context.workdir)) if named else None


def _show_entry(entry: Entry, args: argparse.Namespace, context: Context) -> int:
    ui, manager = context.ui, context.manager
    state = manager.get(context.workdir, entry)
    files = [] if state.scope == "tree" else manager.files(context.workdir, state.id)
    diff = diff_of_entry(manager, context.workdir, entry)
    tools = manager.tools_of(context.workdir, entry.number) if entry.kind == "turn" and entry.number else []
    effects = lasting_effects(tools)
    data = {
        "entry": entry,
        "changes": diff.changes if diff is not None else [],
        "files": files,
        "tools": [{"tool": each[0], "about": each[1]} for each in tools if len(each) == 2],
        "not_taken_back": effects,
    }
    status = f" ({entry.status})" if entry.status and entry.status != "done" else ""
    lines = [f"{entry.kind} {entry.number}{status}", *_facts(_facts_of_entry(entry, state))]
    lines += _quoted_lines(entry.prompt or entry.reason)
    if tools:
        lines += ["", "tools:"]
        lines += [cut("  " + "  ".join(map(safe, each)).rstrip(), ui.width) for each in tools]
    if diff is not None:
        lines += ["", *(change_lines(diff.changes, ui.width, ui.ink) if diff.changes else ["no file was changed"])]
    elif files:
        lines += ["", "only these files were captured:", *(f"  {safe(path)}" for path in files)]
    elif entry.kind == "turn":
        lines += ["", "how it left the files is not known: it was never closed"]
    lines += _skipped_lines(entry.skipped)
    if effects:
        lines += ["", "what may have gone beyond this directory, and no rollback takes back:"]
        lines += [line for effect in effects for line in wrapped(effect, ui.width, "  ")]
    lines += ["", *_next_commands(entry, context)]
    if args.patch:
        data["patch"] = diff.text if diff is not None else ""
        lines += ["", *patch_lines(diff.text, ui.ink)] if diff is not None and diff.text else []
    return ui.answer(data, lines)


def _next_commands(entry: Entry, context: Context) -> Iterator[str]:
    number = str(entry.number)
    if entry.kind == "turn":
        yield f"go back to before it:  {context.command_line('restore', number)}"
        yield f"take out only this:    {context.command_line('revert', number)}"
        yield f"look closer:           {context.command_line('diff', number)}"
    else:
        yield f"go back to it:         {context.command_line('restore', number)}"
        yield f"what changed since:    {context.command_line('diff', number)}"


def _show_checkpoint(args: argparse.Namespace, context: Context) -> int:
    ui, manager = context.ui, context.manager
    checkpoint = context.checkpoint(args.ref)
    listed = manager.list_checkpoints(context.workdir)
    position = next((at for at, each in enumerate(listed) if each.id == checkpoint.id), None)
    changes: tuple[Change, ...] = ()
    files: list[str] = []
    if position is not None:
        checkpoint = listed[position]
    if checkpoint.scope == "paths":
        files = manager.files(context.workdir, checkpoint.id)
    elif position is not None:
        before = next((each for each in listed[position + 1 :] if each.scope == "tree"), None)
        if before is not None:
            changes = manager.diff(context.workdir, before.id, checkpoint.id).changes
    lines = [f"checkpoint {ui.ink('yellow', checkpoint.id)}", *_facts(_facts_of_checkpoint(checkpoint))]
    if checkpoint.kind == "turn" and checkpoint.turn:
        lines += ["", f"before turn {checkpoint.turn}:"]
    lines += _quoted_lines(prompt_of(checkpoint) or checkpoint.reason)
    if changes:
        lines += ["", "changed since the checkpoint before it:", *change_lines(changes, ui.width, ui.ink)]
    lines += ["", *(f"  {safe(path)}" for path in files)] if files else []
    lines += _skipped_lines(checkpoint.skipped)
    return ui.answer({"checkpoint": checkpoint, "changes": changes, "files": files}, lines)


_Facts = Iterator[tuple[str, str | None]]


def _facts(facts: _Facts) -> list[str]:
    return [f"{name:9} {one_line(str(value))}" for name, value in facts if value]


def _facts_of_entry(entry: Entry, state: Checkpoint) -> _Facts:
    if entry.began_at is not None:
        took = ""
        if entry.ended_at is not None and entry.kind == "turn":
            took = f", took {duration_text(entry.began_at, entry.ended_at)}"
        yield "when", f"{moment_text(entry.began_at)}{took}"
    yield from (("agent", entry.agent), ("session", entry.session_id), ("label", entry.label))
    yield "pinned", "yes" if entry.pinned else None
    yield from (("before", (entry.before or "")[:12]), ("after", (entry.after or "")[:12]))
    yield "git", _git_fact(state)


def _facts_of_checkpoint(checkpoint: Checkpoint) -> _Facts:
    yield "taken", moment_text(checkpoint.created_at)
    yield "of", checkpoint.workdir
    yield "kind", checkpoint.kind + (f", turn {checkpoint.turn}" if checkpoint.turn else "")
    yield "holds", "only the files below, not the whole directory" if checkpoint.scope == "paths" else None
    yield "label", checkpoint.label
    yield "pinned", "yes" if checkpoint.pinned else None
    yield from (("session", checkpoint.session_id), ("tool", checkpoint.tool), ("git", _git_fact(checkpoint)))


def _git_fact(checkpoint: Checkpoint) -> str:
    """The commit and branch of the person's repository at that time."""
    head, branch = (checkpoint.metadata.get(name) for name in ("git_head", "git_branch"))
    on = f" on {branch}" if branch else ""
    return f"{str(head or 'no commit')[:12]}{on}" if head or branch else ""


def _quoted_lines(text: str) -> list[str]:
    return ["", *(f"    {safe(line, keep=chr(9))}" for line in text.splitlines())] if text else []


def _skipped_lines(skipped: Sequence[Skipped]) -> list[str]:
    rows = [f"  {safe(item.path)} ({item.why})" for item in skipped]
    return ["", "not captured:", *rows] if rows else []


class LabelCommand(Command):
    """Give a checkpoint a name that can be used as its REF.

    A checkpoint has one name, and a name belongs to one checkpoint: it moves if it was taken.
    """

    name = "label"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", help="the state: a number of the list, a label, an id")
        parser.add_argument("name", metavar="NAME", nargs="?", help="its new name")
        parser.add_argument("--remove", action="store_true", help="take its name away instead")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if (args.name is None) != args.remove:
            raise WrongUsage(why="give either a NAME or --remove")
        target = context.checkpoint(args.ref)
        entries = context.manager.timeline(context.workdir)
        name, (_, about) = state_name(args.ref, target, entries), describe_state(args.ref, target, entries)
        checkpoint = context.manager.label(context.workdir, target.id, args.name)
        called = f"is called {one_line(checkpoint.label)}" if checkpoint.label else "has no label"
        text = cut(f"{name} {called}{f': {about}' if about else ''}", context.ui.width)
        return context.ui.answer({"checkpoint": checkpoint}, text)


class PinCommand(Command):
    """Keep checkpoints whatever the limits say."""

    name = "pin"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("refs", metavar="REF", nargs="+", help="the states: numbers of the list, labels, ids")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _set_pins(args.refs, context, pinned=True)


def _set_pins(words: list[str], context: Context, *, pinned: bool) -> int:
    chosen = [context.checkpoint(word) for word in words]
    change = context.manager.pin if pinned else context.manager.unpin
    entries = context.manager.timeline(context.workdir)
    verb, already = ("pinned", "was pinned already") if pinned else ("unpinned", "was not pinned")
    lines = []
    for word, each in zip(words, chosen, strict=True):
        name, (_, about) = state_name(word, each, entries), describe_state(word, each, entries)
        done = f"{name} {already}" if each.pinned == pinned else f"{verb} {name}"
        lines.append(cut(f"{done}{f': {about}' if about else ''}", context.ui.width))
    changed = [change(context.workdir, checkpoint.id) for checkpoint in chosen]
    return context.ui.answer({"checkpoints": changed}, lines)


class UnpinCommand(PinCommand):
    """Let the limits drop checkpoints again."""

    name = "unpin"

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _set_pins(args.refs, context, pinned=False)


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
        parser.add_argument(
            "--since", metavar="TIME", help="only those that went on since then: 2026-01-31, today, 8h, 2d"
        )
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
                return _write_conversation(last_conversation(context.manager, session), args.output, context)
            lines = session_lines(session, context.ui.width, context.ui.ink)
            return context.ui.answer({"session": session}, lines)
        if args.session is not None:
            raise WrongUsage(why=f"{args.session!r} does not belong there; sessions show {args.session} shows one")
        if args.limit < 0:
            raise WrongUsage(why="--limit must not be negative")
        found = context.manager.sessions(
            args.status,
            working_dir=None if args.all_projects and args.file is None else context.workdir,
            path=None if args.file is None else context.path(args.file),
            text=args.text,
            since=None if args.since is None else parse_moment(args.since),
        )
        shown = found[: args.limit or None]
        if len(found) > len(shown):
            context.ui.say(f"{len(found) - len(shown)} more: --limit 0 shows all")
        if not found:
            context.ui.say("no session matches" if _is_filtered(args) else "no session yet")
        data = {"sessions": shown, "more": len(found) - len(shown)}
        return context.ui.answer(data, session_rows(shown, found, context.ui.width))


def _is_filtered(args: argparse.Namespace) -> bool:
    return any((args.status, args.text, args.since, args.file))


def session_rows(shown: list[Session], found: list[Session], width: int) -> Iterator[str]:
    """A line for each session, with an id that is unique among those that were found."""
    names = short_session_ids(each.id for each in found)
    rows, prompts = [], []
    for each in shown:
        when, turns = age(each.started) if each.started else "", count(len(each.turns), "turn")
        rows.append((one_line(names[each.id]), each.status, when, turns, one_line(each.agent or "")))
        prompts.append([one_line(turn.prompt) for turn in each.turns if turn.prompt])
    for row, asked in zip(aligned(rows), prompts, strict=True):
        facts = "  ".join(cell for cell in row if cell)
        room = max(12, width - columns(facts) - 2)
        ends = [asked[0], asked[-1]] if len(asked) > 1 else asked
        half = room if len(ends) < 2 else (room - 4) // 2
        yield f"{facts}  {' .. '.join(cut(text, half) for text in ends)}".rstrip()


def session_lines(session: Session, width: int, ink: Ink) -> Iterator[str]:
    """The lines of `sessions show`."""
    yield f"session {ink('yellow', one_line(session.id))}"
    for name, value in (("agent", session.agent), ("parent", session.parent), ("note", session.note)):
        if value:
            yield f"{name:8} {one_line(value)}"
    yield f"{'status':8} {session.status}"
    for name, moment in (("began", session.started), ("ended", session.ended)):
        if moment:
            yield f"{name:8} {moment_text(moment)}"
    projects = {place.workdir for turn in session.turns for place in turn.places}
    if len(projects) > 1:
        yield f"{'turns':8} {len(session.turns)}, in {count(len(projects), 'project')}"
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
    return _write_conversation(result.conversation, output, context)


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
    hint = "shadowsnap docs sessions says which conversations are kept"
    raise NoConversation(ref=f"any turn of session {session.id}", why="", hint=hint)


def _write_conversation(conversation: Any, output: str | None, context: Context) -> int:
    text = _conversation_text(conversation.data)
    number = spoken_messages(conversation.data)
    messages = "" if number is None else f", {count(number, 'message')}"
    if output:
        path = os.path.join(context.here, output)
        Path(path).write_text(text, "utf-8", errors="surrogatepass")
        data = {"path": path, "messages": number, "session_id": conversation.session_id}
        return context.ui.answer(data, f"wrote {safe(path)}{messages}")
    if context.ui.json:
        return context.ui.answer({"conversation": conversation, "messages": number})
    shown = safe(text, keep="\n\t") if context.ui.on_terminal else text
    return context.ui.answer({}, shown.removesuffix("\n"))


def _conversation_text(data: Any) -> str:
    if isinstance(data, str):
        return data if data.endswith("\n") else f"{data}\n"
    rows = data if isinstance(data, list) else [data]
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


_AGO = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str) -> datetime:
    """Parse a moment: a date, with or without a time, `today`, `yesterday`, or how long ago, as `8h`."""
    now = datetime.now().astimezone()
    ago = _AGO.fullmatch(text)
    if ago:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    days = {"today": 0, "yesterday": 1}.get(text)
    if days is not None:
        return (now - timedelta(days=days)).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        forms = "2026-01-31, 2026-01-31T12:00, today, yesterday, 30min, 8h, 2d or 1w"
        raise WrongUsage(why=f"{text!r} is no moment such as {forms}") from None
