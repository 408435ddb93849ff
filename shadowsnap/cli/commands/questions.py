"""The commands that answer questions about the past: blame, bisect, report, export."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

from shadowsnap.cli.commands import Command
from shadowsnap.cli.commands.sessions import moment_of
from shadowsnap.cli.context import Context
from shadowsnap.cli.report.page import EVERYTHING, GENERATOR, Item, Items, Page, chosen_entries
from shadowsnap.cli.tables import now_text, tilde
from shadowsnap.cli.text import columns, count, cut, one_line, pad, safe, size
from shadowsnap.cli.ui import Ink
from shadowsnap.compat.agent_trace import trace_records
from shadowsnap.compat.git_ai import export_notes
from shadowsnap.errors import BisectFailed, ReportRefused, ShadowsnapError, WrongUsage
from shadowsnap.files import write_bytes
from shadowsnap.questions import BEGINNING
from shadowsnap.results import Author, Bisection, BlamedLine, Probe
from shadowsnap.snapshot.states import quoted

_NO_ID = "0" * 40
_PROMPT = 28
_RANGE = re.compile(r"(\d*)(?:,(\+?\d*))?")


class BlameCommand(Command):
    """Show which turn brought in each line of a file, or that you did.

    Lines that came with shell commands count as the turn's. What you edited between turns is yours; `before` is
    what was there when the timeline began.
    """

    name = "blame"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", metavar="FILE", help="the file")
        parser.add_argument(
            "-L", dest="lines", metavar="RANGE", help="only these lines: 10,20 or 10,+5 or 10, or 10"
        )
        parser.add_argument(
            "--porcelain", action="store_true", help="as git blame --porcelain has it, for editors"
        )

    def run(self, args: argparse.Namespace, context: Context) -> int:
        path = context.path(args.path)
        everything = context.manager.blame(context.workdir, path)
        lines = everything if args.lines is None else _chosen(everything, args.lines)
        if context.ui.json:
            return context.ui.answer({"lines": [line.to_dict() for line in lines]})
        if args.porcelain:
            context.ui.raw(b"".join(_porcelain(lines, path)))
            return 0
        context.ui.page("".join(f"{row}\n" for row in _rows(lines, context.ui.ink)))
        return 0


def _chosen(lines: Sequence[BlamedLine], word: str) -> Sequence[BlamedLine]:
    """The lines that a range names, as `git blame -L` has it."""
    found = _RANGE.fullmatch(word)
    if found is None or word in ("", ","):
        raise WrongUsage(why=f"-L {word}: a range is 10,20 or 10,+5")
    first = int(found[1] or 1)
    last = found[2]
    if last is None:
        end = first
    elif last.startswith("+"):
        end = first + int(last[1:] or 0) - 1
    else:
        end = int(last) if last else len(lines)
    if not 1 <= first <= end or first > len(lines):
        raise WrongUsage(why=f"-L {word}: the file has {len(lines)} lines")
    return lines[first - 1 : end]


def _rows(lines: Sequence[BlamedLine], ink: Ink) -> Iterator[str]:
    cells = [(_who(line.author), cut(one_line(line.author.prompt or ""), _PROMPT)) for line in lines]
    wide = [max([0, *(columns(cell[at]) for cell in cells)]) for at in range(2)]
    digits = len(str(lines[-1].line)) if lines else 1
    for line, (who, prompt) in zip(lines, cells, strict=True):
        style = {"turn": "cyan", "person": "green"}.get(line.author.who, "dim")
        text = safe(line.text.decode("utf-8", "surrogateescape").removesuffix("\n"), keep="\t")
        left = f"{ink(style, pad(who, wide[0]))}  {ink('dim', pad(prompt, wide[1]))}"
        yield f"{left}  {ink('dim', f'{line.line:>{digits}}')}  {text}".rstrip()


def _who(author: Author) -> str:
    if author.who == "turn":
        return f"turn {author.number}" + (f" {one_line(author.agent)}" if author.agent else "")
    return "you" if author.who == "person" else "before"


def _porcelain(lines: Sequence[BlamedLine], path: str) -> Iterator[bytes]:
    described: set[tuple[str, str, int | None]] = set()
    for at, line in enumerate(lines):
        who, identity = line.author, line.author.checkpoint or _NO_ID
        group = ""
        if at == 0 or not _follows(lines[at - 1], line):
            end = at + 1
            while end < len(lines) and _follows(lines[end - 1], lines[end]):
                end += 1
            group = f" {end - at}"
        yield f"{identity} {line.original_line} {line.line}{group}\n".encode()
        if (identity, who.who, who.number) not in described:
            described.add((identity, who.who, who.number))
            yield from _headers(who, path)
        yield b"\t" + line.text.removesuffix(b"\n") + b"\n"


def _follows(line: BlamedLine, following: BlamedLine) -> bool:
    """Whether a line came in right after another one."""
    return line.author == following.author and line.original_line + 1 == following.original_line


def _headers(who: Author, path: str) -> Iterator[bytes]:
    name = {"turn": one_line(who.agent or "agent"), "person": "you"}.get(who.who, "before the timeline")
    seconds = int(who.at.timestamp()) if who.at is not None else 0
    plain = {"turn": f"turn {who.number}", "person": "your own edits"}.get(who.who, name)
    what = one_line(who.prompt or "") or plain
    for role in ("author", "committer"):
        yield f"{role} {name}\n{role}-mail <>\n{role}-time {seconds}\n{role}-tz +0000\n".encode()
    yield f"summary {what}\n".encode()
    yield f"number {who.number}\n".encode() if who.number is not None else b""
    yield b"boundary\n" if who.who == "before" else b""
    yield f"filename {quoted(path.encode('utf-8', 'surrogateescape'))}\n".encode()


_SECONDS = 600.0
_SHELL_TROUBLE = (126, 127)
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class BisectCommand(Command):
    """Find the turn that broke something, by running a command.

    Each state is written into a scratch directory and COMMAND runs there; the project itself is not touched. Exit
    code 0 means good, 125 that the state cannot be tested, anything else bad. What a restore took back is left
    out.
    """

    name = "bisect"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--good", metavar="REF", help="a state in which COMMAND succeeds")
        parser.add_argument("--bad", metavar="REF", help="a later state in which it fails; else the files as now")
        parser.add_argument("--all", action="store_true", help="test every state, from --good or the oldest on")
        longest = f"a command that takes longer has failed; {_SECONDS:g} if not given"
        parser.add_argument("--timeout", metavar="SECONDS", type=float, default=_SECONDS, help=longest)
        parser.set_defaults(paths=[])
        parser.usage_end = ["-- COMMAND"]  # type: ignore[attr-defined]

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, words = context.ui, list(args.paths)
        if not words:
            raise WrongUsage(why="which command? it stands after --: bisect --good 3 -- pytest -q")
        if args.good is None and not args.all:
            raise WrongUsage(why="--good is missing: a state in which the command succeeds")
        good = context.checkpoint(args.good).id if args.good is not None else None
        bad = context.checkpoint(args.bad).id if args.bad not in (None, "@") else None

        def check(folder: Path, name: str) -> int | None:
            ui.say(f"testing the state after {name} ..." if name != BEGINNING else "testing the first state ...")
            status = run_in(words, folder, args.timeout, quiet=ui.json)
            ui.say(f"  {'it took too long' if status is None else f'exit code {status}'}")
            return status

        with ending_by_signals():
            found = context.manager.bisect(context.workdir, good, bad, check=check, test_all=args.all)
        if found.culprit is None and not args.all:
            names = ", ".join(probe.name for probe in found.candidates)
            raise BisectFailed(why=f"some states could not be tested; it is one of: {names}")
        return ui.answer(found.to_dict(), _bisect_lines(found, table=args.all))


def run_in(words: Sequence[str], folder: Path, seconds: float, *, quiet: bool) -> int | None:
    """Run a command in a directory; its exit code, or None if it took too long. All that it started ends with
    it."""
    command = list(words)
    if len(command) == 1 and len(command[0].split()) > 1 and shutil.which(command[0]) is None:
        command = ["/bin/sh", "-c", command[0]]  # a whole line in one word
    output = subprocess.DEVNULL if quiet else sys.stderr
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "PWD": str(folder)}, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        return _SHELL_TROUBLE[1]
    except OSError:
        return _SHELL_TROUBLE[0]
    try:
        return process.wait(seconds if seconds > 0 else None)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # all of it has ended
    else:
        process.kill()
    process.wait()


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Let signals that would end us at once be exceptions, so that scratch directories are removed."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bisect_lines(found: Bisection, *, table: bool) -> Iterator[str]:
    if table:
        wide = max(len(probe.name) for probe in found.probes)
        for probe in found.probes:
            status = "too long" if probe.status is None else f"exit {probe.status}"
            yield f"{probe.verdict:7}  {status:8}  {probe.name:{wide}}  {one_line(probe.prompt or '')}".rstrip()
    if found.culprit is not None:
        yield f"{_in_words(found.culprit)} broke it"
        if found.culprit.number is not None:
            yield f"to see what it did: shadowsnap diff {found.culprit.number}"
    elif table:
        yield "the command succeeds in the last state that could be tested, or in none"


def _in_words(probe: Probe) -> str:
    about = ", ".join(filter(None, (one_line(probe.agent or ""), one_line(probe.prompt or ""))))
    return f"{probe.name} ({about})" if about else probe.name


_AGO = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNITS = {"min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_HEAD = 1000


class ReportCommand(Command):
    """Write what agents did as one HTML page, to look at or to pass on.

    A picture of the time with a lane for each session, and each turn with its prompt, files, diffs, what was not
    captured and what no rollback takes back. The page loads nothing and needs no network. What looks like a secret
    is left out. An older report is replaced; another file only with --force.
    """

    name = "report"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where it goes; - for stdout")
        parser.add_argument("--session", metavar="ID", help="only one session; a part of its id will do")
        parser.add_argument("--since", metavar="TIME", help="only since then: 2026-01-31, today, 8h, 2d")
        parser.add_argument("--no-prompts", action="store_true", help="without what was asked")
        parser.add_argument("--no-diffs", action="store_true", help="with the names of files, without their lines")
        parser.add_argument("--max-mb", metavar="N", type=float, default=8, help="not larger than this (8)")
        parser.add_argument("--force", action="store_true", help="replace a file that is no report")

    def run(self, args: argparse.Namespace, context: Context) -> int:
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
        write_bytes(path, data)
        turns, cut = sum(1 for entry in page.entries if entry.kind == "turn"), page.cuts.in_words()
        for text in cut:
            ui.say(f"{text} to keep it small; --max-mb makes room")
        facts = {"file": str(path), "bytes": len(data), "turn_count": turns, "cut": cut}
        return ui.answer(facts, f"{count(turns, 'turn')} written to {safe(str(path))}, {size(len(data))}")


def _page(args: argparse.Namespace, context: Context) -> tuple[Page, bytes]:
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
    now = datetime.now().astimezone()
    ago = _AGO.fullmatch(text)
    if ago:
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    days = {"today": 0, "yesterday": 1}.get(text)
    if days is not None:
        return (now - timedelta(days=days)).replace(hour=0, minute=0, second=0, microsecond=0)
    return moment_of(text)


def _about(args: argparse.Namespace, since: datetime | None) -> str:
    parts = [f"session {args.session}"] if args.session is not None else []
    parts += [f"since {since.day} {since:%B %Y, %H:%M}"] if since is not None else []
    return ", ".join(parts) or EVERYTHING


def _state(context: Context) -> str:
    try:
        text = now_text(context.manager.now(context.workdir))
    except ShadowsnapError:
        return ""  # the directory is gone, or the store cannot be written to
    return f"{text[:1].upper()}{text[1:]}."


class ExportCommand(Command):
    """Write what turns did for other tools: Agent Trace, git-ai notes.

    --agent-trace writes records of Agent Trace 0.1, one JSON object per line. --git-notes attaches authorship
    notes of git-ai (standard 3.0.0) to the commits of your repository, under refs/notes/ai; notes of other tools
    stay.
    """

    name = "export"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        form = parser.add_mutually_exclusive_group(required=True)
        form.add_argument("--agent-trace", action="store_true", help="trace records of Agent Trace 0.1")
        form.add_argument("--git-notes", action="store_true", help="authorship notes of git-ai, on your commits")
        parser.add_argument("-o", dest="output", metavar="FILE", help="where the records go; stdout if not given")
        parser.add_argument("-n", "--dry-run", action="store_true", help="with --git-notes: only show the notes")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _agent_trace(args, context) if args.agent_trace else _git_notes(args, context)


def _agent_trace(args: argparse.Namespace, context: Context) -> int:
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
    if args.output is not None:
        raise WrongUsage(why="-o goes with --agent-trace: notes are written into your repository")
    notes = export_notes(context.manager, context.workdir, dry_run=args.dry_run)
    lines = [f"{note.commit[:10]}  {count(note.lines, 'line')}  {note.status}" for note in notes]
    if args.dry_run:
        texts = {note.commit: map(safe, note.text.splitlines()) for note in notes}
        lines = [row for commit, text in texts.items() for row in (f"commit {commit}", *text, "")]
    data = {"git_notes": [note.to_dict() for note in notes]}
    return context.ui.answer(data, lines or ["no commit holds lines of a turn"])
