"""The commands that take states, show them, and answer questions about them: snap, diff, cat, ls, fork, blame,
bisect."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NoReturn

from shadowsnap.cli.commands import Command, Context
from shadowsnap.cli.tables import (
    aligned,
    change_lines,
    checkpoint_changes,
    checkpoint_title,
    entry_changes,
    patch_lines,
    state_name,
    turn_of,
)
from shadowsnap.cli.text import ago, count, cut, one_line, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import (
    BisectFailed,
    DirectoryRefused,
    NoSuchPath,
    NotAFile,
    NotCaptured,
    ShadowsnapError,
    WrongUsage,
)
from shadowsnap.model import Checkpoint, Diff, Entry, Outcome, Skipped
from shadowsnap.questions import BEGINNING, check_free
from shadowsnap.results import Author, Bisection, BlamedLine, Probe
from shadowsnap.snapshot.states import quoted


class SnapCommand(Command):
    """Take a checkpoint of the project now.

    The whole directory is captured. Each PATH is captured even if it is ignored; a directory
    stands for every file in it. If nothing changed since the newest checkpoint, none is taken. The exit code is 4
    if a PATH was not captured, also if it does not exist.
    """

    name = "snap"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="reason", metavar="REASON", default="manual", help="what it is taken for")
        parser.add_argument("paths", metavar="PATH", nargs="*", help="capture this too, though it is ignored")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        with context.working("taking a snapshot"):
            outcome = context.manager.snapshot(
                context.workdir, args.reason, paths=list(_named_paths(args.paths, context))
            )
        if outcome.note:
            context.ui.say(safe(outcome.note))
        checkpoint = _with_statistics(outcome.checkpoint, context)
        # Named files of a directory that is too broad are all that was asked for; if time ran out, they are not.
        complete = outcome.error is None or isinstance(outcome.error, DirectoryRefused)
        done = complete and outcome.status != "disabled"
        named = {os.path.normpath(context.any_path(word)) for word in args.paths}
        lacking = [item for item in outcome.skipped if item.path.rstrip("/") in named]
        missing = [word for word in args.paths if _is_missing(word, lacking, context)]
        error = context.ui.talk_ink("red", "error:")
        data = {**outcome.to_dict(), "not_found": missing, **({"checkpoint": checkpoint} if checkpoint else {})}
        lines = _snap_lines(outcome, checkpoint, _entry(checkpoint, context))
        for item in lacking:
            context.ui.say(f"{error} {safe(item.path)} was NOT captured: {item.why}")
        for word in missing:
            context.ui.say(f"{error} {safe(word)} was NOT captured: it does not exist")
        return context.ui.answer(data, lines, code=4 if lacking or missing else 0 if done else 1)


def _with_statistics(checkpoint: Checkpoint | None, context: Context) -> Checkpoint | None:
    """The checkpoint as the list has it, with what it changed; without, if a newer one was taken meanwhile."""
    newest = context.manager.list_checkpoints(context.workdir, limit=1) if checkpoint else []
    return newest[0] if checkpoint and newest and newest[0].id == checkpoint.id else checkpoint


def _entry(checkpoint: Checkpoint | None, context: Context) -> Entry | None:
    """The entry of the snapshot; None if a turn already holds the state."""
    if checkpoint is None:
        return None
    entries = context.manager.timeline(context.workdir)
    return next((each for each in entries if each.kind == "snapshot" and each.after == checkpoint.id), None)


def _named_paths(words: list[str], context: Context) -> Iterator[str]:
    for word in words:
        path = os.path.join(context.here, word)
        folder = os.path.realpath(path)
        if folder == str(context.workdir):
            continue  # the whole project is captured anyway, by its ignore rules
        if os.path.isdir(path) and not os.path.islink(path) and context.holds(folder):
            yield from _files_below(folder, context)
        else:
            yield context.any_path(word)


def _is_missing(word: str, lacking: Sequence[Skipped], context: Context) -> bool:
    """Whether a path that was named does not exist, and the checkpoint does not say so itself."""
    path = os.path.normpath(context.any_path(word))
    known = any(os.path.normpath(item.path) == path for item in lacking)
    return not known and not os.path.lexists(os.path.join(context.here, word))


def _files_below(top: str, context: Context) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name.lower() != ".git"]
        for name in (*files, *links):
            if name.lower() != ".git":
                yield os.path.relpath(os.path.join(folder, name), context.workdir)


def _snap_lines(outcome: Outcome, checkpoint: Checkpoint | None, entry: Entry | None) -> list[str]:
    if checkpoint is None:
        disabled = "nothing was taken: shadowsnap is disabled by its settings"
        return [disabled if outcome.status == "disabled" else outcome.status]
    name = f"snapshot {entry.number}" if entry is not None else f"state {checkpoint.short_id}"
    if outcome.status == "unchanged":
        lines = [f"nothing changed since {name}, {ago(checkpoint.created_at)}: {checkpoint_title(checkpoint)}"]
    else:
        # The list counts against the newest known state, which is not always the checkpoint before it.
        facts = (
            f"took {name}",
            checkpoint_title(checkpoint),
            entry_changes(entry) if entry else checkpoint_changes(checkpoint),
        )
        lines = ["  ".join(part for part in facts if part)]
    if outcome.error is not None:
        lines.append(f"  only the named files: {safe(str(outcome.error))}")
    return lines + [f"  not captured: {safe(item.path)} ({item.why})" for item in outcome.skipped]


class DiffCommand(Command):
    """Show what a turn did, or what differs between two states.

    `diff 3` is what turn 3 did, and so is `diff last` if that is the last one, or a label or an id of the state
    before it; of another state, what changed since. `diff 3 @` compares the state before turn 3
    with the files as they are now, `diff 2 5` two states. Without REF: what changed since the newest known
    state. Elsewhere than on a terminal the text is a patch, byte for byte.
    """

    name = "diff"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("a", metavar="REF", nargs="?", help="a turn, or the older state")
        parser.add_argument(
            "b", metavar="REF2", nargs="?", help="the newer state; @ for the files as they are now"
        )
        parser.add_argument("--stat", action="store_true", help="one line per file instead of the text")
        parser.set_defaults(paths=[])
        parser.usage_end = ["[-- PATH...]"]  # type: ignore[attr-defined]

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        with context.working("comparing"):
            diff, words = _compare(args, context)
        if not diff:
            ui.say(f"no difference between {words}")
        if ui.json:  # no checkpoint holds the state after some files were restored
            return ui.answer({**diff.to_dict(), "from_id": diff.from_id or None})
        if args.stat:
            return ui.answer({}, change_lines(diff.changes, ui.width, ui.ink))
        if not ui.on_terminal and not ui.ink.on:
            ui.raw(diff.text.encode("utf-8", "surrogateescape"))
        elif diff.text:
            ui.page("".join(f"{line}\n" for line in patch_lines(diff.text, ui.ink)))
        return 0


def _compare(args: argparse.Namespace, context: Context) -> tuple[Diff, str]:
    """What differs, and the names of the two states."""
    manager, paths, present = context.manager, context.paths(args.paths), "the files as they are now"
    if args.a in (None, "@"):
        if args.b is not None:
            raise WrongUsage(why="@ is the newer state: put it second")
        now = manager.now(context.workdir, paths)
        _check_known(args, context, [manager.get(context.workdir, now.checkpoint_id)] if now.checkpoint_id else [])
        return Diff(now.checkpoint_id or "", None, now.changes, now.patch), f"{now.name} and {present}"
    first, second, words = context.checkpoint(args.a), None, f"{args.a} and {present}"
    if args.b is not None and args.b != "@":
        second, words = context.checkpoint(args.b), f"{args.a} and {args.b}"
    elif args.b is None:
        entry = turn_of(args.a, first, manager.timeline(context.workdir))
        if entry is not None and entry.after is not None:
            second = manager.get(context.workdir, entry.after)
            words = f"the beginning and the end of turn {entry.number}"
    _check_known(args, context, [each for each in (first, second) if each is not None])
    diff = manager.diff(context.workdir, first.id, second.id if second is not None else None, paths)
    return diff, words


def _check_known(args: argparse.Namespace, context: Context, states: Sequence[Checkpoint]) -> None:
    """Raise NoSuchPath if one of the paths is in none of these states, nor on the disk now."""
    paths = context.paths(args.paths)
    missing = [path for path in paths if not os.path.lexists(os.path.join(context.workdir, path))]
    for state in states if missing else ():
        held = context.manager.files(context.workdir, state.id)
        missing = [path for path in missing if not _is_at_or_above(path, held)]
    if missing:
        entries, words = context.manager.timeline(context.workdir), (args.a, args.b)
        names = [state_name(word or state.id, state, entries) for word, state in zip(words, states, strict=False)]
        raise NoSuchPath(path=missing[0], ref=", nor in ".join(names) or "the newest known state")


def _is_at_or_above(path: str, files: Sequence[str]) -> bool:
    """Whether a path is that of one of these files, or of a directory that one of them lies in."""
    path = path.rstrip("/")
    return path in ("", ".") or any(file == path or file.startswith(f"{path}/") for file in files)


class CatCommand(Command):
    """Print a file as it was in a state, byte for byte.

    On a terminal, what the terminal would obey is shown as escapes."""

    name = "cat"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", help="a number of the list, 3:after, last, a label, or an id")
        parser.add_argument("path", metavar="PATH", help="the file")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        checkpoint = context.checkpoint(args.ref)
        path = context.path(args.path)
        content = context.manager.contents(context.workdir, checkpoint.id, [path]).get(path)
        if content is None:
            raise _missing_error(checkpoint, args.ref, path, context)
        if context.ui.json:
            text = content.decode("utf-8", "surrogateescape")
            return context.ui.answer({"path": path, "checkpoint_id": checkpoint.id, "content": text})
        context.ui.raw(content)
        return 0


def _missing_error(checkpoint: Checkpoint, ref: str, path: str, context: Context) -> ShadowsnapError:
    name = state_name(ref, checkpoint, context.manager.timeline(context.workdir))
    why = next((item.why for item in checkpoint.skipped if item.path == path), None)
    if why is not None:
        return NotCaptured(state=name, path=path, why=why)
    if _is_at_or_above(path, context.manager.files(context.workdir, checkpoint.id)):
        line = context.command_line("ls", ref, path)
        return NotAFile(path=path, state=name, hint=f"to see what is in it: {line}")
    return NoSuchPath(path=path, ref=name, hint=f"to see its files: {context.command_line('ls', ref)}")


class LsCommand(Command):
    """List the files of a state, all of them or those below PATH."""

    name = "ls"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", help="a number of the list, 3:after, last, a label, or an id")
        parser.add_argument("path", metavar="PATH", nargs="?", help="a directory or a file")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        checkpoint = context.checkpoint(args.ref)
        files = context.manager.files(context.workdir, checkpoint.id)
        if args.path is not None:
            path = context.path(args.path).rstrip("/")
            files = [each for each in files if _is_at_or_above(path, [each])]
            if not files:
                raise _missing_error(checkpoint, args.ref, path, context)
        return context.ui.answer({"checkpoint_id": checkpoint.id, "files": files}, [safe(each) for each in files])


class ForkCommand(Command):
    """Write a state into a new directory, to try again from there.

    The state is exact, uncommitted work included; what was not captured (ignored files, secrets) is not in it. Its
    timeline begins there. In a git project, --worktree makes it a git work tree on a branch of its own.
    """

    name = "fork"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", help="a number of the list, 3:after, last, a label, or an id")
        parser.add_argument("place", metavar="DIR", help="a directory that does not exist yet, or is empty")
        parser.add_argument(
            "-n", dest="copies", metavar="N", type=int, help="make N of them: DIR-1, DIR-2 and so on"
        )
        parser.add_argument("--worktree", action="store_true", help="a git work tree on a branch of its own")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.copies is not None and args.copies < 1:
            raise WrongUsage(why="-n takes a number from 1")
        target = context.checkpoint(args.ref)
        top = os.path.normpath(os.path.join(context.here, args.place))
        places = [top] if args.copies is None else [f"{top}-{number}" for number in range(1, args.copies + 1)]
        for place in places:  # before anything is written
            check_free(Path(os.path.realpath(place)), context.manager.settings.resolved_base())
        forks, lines = [], []
        for place in places:
            fork = context.manager.fork(context.workdir, target.id, place, worktree=args.worktree)
            forks.append(fork)
            if context.holds(fork.directory):
                context.ui.say(f"note: {safe(fork.directory)} lies in the project and is captured with it")
            branch = f", on branch {fork.branch}" if fork.branch else ""
            lines.append(f"forked to {safe(fork.directory)}: {count(fork.files, 'file')}{branch}")
        lines += [f"  not captured, so not in it: {safe(item.path)} ({item.why})" for item in target.skipped]
        return context.ui.answer({"forks": forks}, lines)


_NO_ID = "0" * 40
_PROMPT_WIDTH = 28
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
        lines = everything if args.lines is None else _lines_in_range(everything, args.lines)
        if context.ui.json:
            return context.ui.answer({"lines": lines})
        if args.porcelain:
            context.ui.raw(b"".join(_porcelain(lines, path)))
            return 0
        context.ui.page("".join(f"{row}\n" for row in _blame_rows(lines, context.ui.ink, context.ui.width)))
        return 0


def _lines_in_range(lines: Sequence[BlamedLine], word: str) -> Sequence[BlamedLine]:
    """The lines of a range as `git blame -L` takes it."""
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
    if end < first:
        raise WrongUsage(why=f"-L {word}: the range ends before it begins")
    if not 1 <= first <= len(lines):
        raise WrongUsage(why=f"-L {word}: the file has {len(lines)} lines")
    return lines[first - 1 : end]


def _blame_rows(lines: Sequence[BlamedLine], ink: Ink, width: int) -> Iterator[str]:
    room = max(_PROMPT_WIDTH, width // 3)
    cells = aligned([(_author_text(line.author), cut(one_line(line.author.prompt or ""), room)) for line in lines])
    digits = len(str(lines[-1].line)) if lines else 1
    for line, (who, prompt) in zip(lines, cells, strict=True):
        style = {"turn": "cyan", "person": "green"}.get(line.author.who, "dim")
        text = safe(line.text.decode("utf-8", "surrogateescape").removesuffix("\n"), keep="\t")
        left = f"{ink(style, who)}  {ink('dim', prompt)}"
        yield f"{left}  {ink('dim', f'{line.line:>{digits}}')}  {text}".rstrip()


def _author_text(author: Author) -> str:
    if author.who == "turn":
        return f"turn {author.number}" + (f" {one_line(author.agent)}" if author.agent else "")
    return "you" if author.who == "person" else "before"


def _porcelain(lines: Sequence[BlamedLine], path: str) -> Iterator[bytes]:
    described: set[tuple[str, str, int | None]] = set()
    # As in git: adjacent lines with the same origin are a group, whose first line has its size.
    for _, some in groupby(lines, lambda line: (line.author, line.original_line - line.line)):
        group = list(some)
        for at, line in enumerate(group):
            who, identity = line.author, line.author.checkpoint or _NO_ID
            size = f" {len(group)}" if at == 0 else ""
            yield f"{identity} {line.original_line} {line.line}{size}\n".encode()
            if (identity, who.who, who.number) not in described:
                described.add((identity, who.who, who.number))
                yield from _headers(who, path)
            yield b"\t" + line.text.removesuffix(b"\n") + b"\n"


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


_TEST_SECONDS = 600.0
_ENDING_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


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
        longest = f"a command that takes longer has failed; {_TEST_SECONDS:g} if not given"
        parser.add_argument("--timeout", metavar="SECONDS", type=float, default=_TEST_SECONDS, help=longest)
        parser.set_defaults(paths=[])
        parser.usage_end = ["-- COMMAND"]  # type: ignore[attr-defined]

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, words = context.ui, list(args.paths)
        if not words:
            raise WrongUsage(why="which command? it stands after --: bisect --good 3 -- pytest -q")
        if args.good is None and not args.all:
            raise WrongUsage(why="--good is missing: a state in which the command succeeds")
        if not _is_line(words) and os.path.basename(words[0]) == words[0] and shutil.which(words[0]) is None:
            raise WrongUsage(why=f"there is no command {words[0]!r} on the PATH", hint="")
        good = context.checkpoint(args.good).id if args.good is not None else None
        bad = context.checkpoint(args.bad).id if args.bad not in (None, "@") else None

        def check(folder: Path, name: str) -> int | None:
            ui.say(f"testing the state after {name} ..." if name != BEGINNING else "testing the first state ...")
            status = run_in_directory(words, folder, args.timeout, quiet=ui.json)
            ui.say(f"  {'it took too long' if status is None else f'exit code {status}'}")
            return status

        with signals_as_exceptions():
            found = context.manager.bisect(context.workdir, good, bad, check=check, test_all=args.all)
        if found.culprit is None and not args.all:
            names = ", ".join(probe.name for probe in found.candidates)
            raise BisectFailed(why=f"some states could not be tested; it is one of: {names}")
        return ui.answer(found.to_dict(), _bisect_lines(found, table=args.all))


def run_in_directory(words: Sequence[str], folder: Path, seconds: float, *, quiet: bool) -> int | None:
    """Run a command in a directory; its exit code, or None if it took too long. The processes that it started are
    killed when it ends."""
    command = list(words)
    if _is_line(command):
        command = ["/bin/sh", "-c", command[0]]
    output = subprocess.DEVNULL if quiet else sys.stderr
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "PWD": str(folder)}, start_new_session=True,
        )  # fmt: skip
    except OSError as problem:  # the exit codes of a shell
        return 127 if isinstance(problem, FileNotFoundError) else 126
    try:
        return process.wait(seconds if seconds > 0 else None)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _kill_group(process)


def _is_line(words: Sequence[str]) -> bool:
    """Whether one word is a whole line for the shell."""
    return len(words) == 1 and len(words[0].split()) > 1 and shutil.which(words[0]) is None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command and the processes that it started."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # all of it has ended
    else:
        process.kill()
    process.wait()


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Turn signals that would end this process at once into exceptions, so that scratch directories are
    removed."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING_SIGNALS}
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
        yield f"{_probe_text(found.culprit)} broke it"
        if found.culprit.number is not None:
            yield f"to see what it did: shadowsnap diff {found.culprit.number}"
    elif table:
        yield "the command succeeds in the last state that could be tested, or in none"


def _probe_text(probe: Probe) -> str:
    about = ", ".join(filter(None, (one_line(probe.agent or ""), one_line(probe.prompt or ""))))
    return f"{probe.name} ({about})" if about else probe.name
