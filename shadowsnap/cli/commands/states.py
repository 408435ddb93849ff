"""The commands that take a state and look into one: snap, diff, cat, ls, fork."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from shadowsnap.cli.commands import Command
from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import change_lines, changed, changes_of, described, patch_lines
from shadowsnap.cli.text import ago, count, safe
from shadowsnap.errors import DirectoryRefused, NoSuchPath, NotCaptured, WrongUsage
from shadowsnap.model import Checkpoint, Diff, Entry, Outcome
from shadowsnap.questions import check_free

_WORDS = {"disabled": "nothing was taken: shadowsnap is disabled by its settings"}


class SnapCommand(Command):
    """Take a checkpoint of the project now.

    The whole directory is captured. Each PATH is captured even if it is ignored; a directory
    stands for every file in it. If nothing changed since the newest checkpoint, none is taken.
    """

    name = "snap"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-m", dest="reason", metavar="REASON", default="manual", help="what it is taken for")
        parser.add_argument("paths", metavar="PATH", nargs="*", help="capture this too, though it is ignored")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        with context.working("taking a snapshot"):
            outcome = context.manager.snapshot(
                context.workdir, args.reason, paths=list(_files(args.paths, context))
            )
        if outcome.note:
            context.ui.say(safe(outcome.note))
        checkpoint = _with_statistics(outcome.checkpoint, context)
        # Named files of a directory that is too broad are all that was asked for; if time ran out, they are not.
        complete = outcome.error is None or isinstance(outcome.error, DirectoryRefused)
        done = complete and outcome.status != "disabled"
        named = {os.path.normpath(context.path(word)) for word in args.paths}
        lacking = [item for item in outcome.skipped if item.path.rstrip("/") in named]
        data = {**outcome.to_dict(), **({"checkpoint": checkpoint.to_dict()} if checkpoint else {})}
        lines = _snap_lines(outcome, checkpoint, _entry(checkpoint, context))
        for item in lacking:
            context.ui.say(
                f"{context.ui.talk_ink('red', 'error:')} {safe(item.path)} was NOT captured: {item.why}"
            )
        return context.ui.answer(data, lines, code=4 if lacking else 0 if done else 1)


def _with_statistics(checkpoint: Checkpoint | None, context: Context) -> Checkpoint | None:
    """As it stands in the list, with what it changed; that is the newest, unless others are at work."""
    newest = context.manager.list_checkpoints(context.workdir, limit=1) if checkpoint else []
    return newest[0] if checkpoint and newest and newest[0].id == checkpoint.id else checkpoint


def _entry(checkpoint: Checkpoint | None, context: Context) -> Entry | None:
    """The snapshot in the timeline; None if the state was already held by a turn."""
    if checkpoint is None:
        return None
    entries = context.manager.timeline(context.workdir)
    return next((each for each in entries if each.kind == "snapshot" and each.after == checkpoint.id), None)


def _files(words: list[str], context: Context) -> Iterator[str]:
    for word in words:
        path = os.path.join(context.here, word)
        if not os.path.lexists(path):
            context.ui.say(f"warning: {safe(word)} does not exist")
        folder = os.path.realpath(path)
        if folder == str(context.workdir):
            continue  # it is captured anyway, by its own rules
        if os.path.isdir(path) and not os.path.islink(path) and context.holds(folder):
            yield from _files_below(folder, context)
        else:
            yield context.path(word)


def _files_below(top: str, context: Context) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name.lower() != ".git"]
        for name in (*files, *links):
            if name.lower() != ".git":
                yield os.path.relpath(os.path.join(folder, name), context.workdir)


def _snap_lines(outcome: Outcome, checkpoint: Checkpoint | None, entry: Entry | None) -> list[str]:
    if checkpoint is None:
        return [_WORDS.get(outcome.status, outcome.status)]
    name = f"snapshot {entry.number}" if entry is not None else f"state {checkpoint.short_id}"
    if outcome.status == "unchanged":
        lines = [f"nothing changed since {name}, {ago(checkpoint.created_at)}: {described(checkpoint)}"]
    else:
        # The list counts against the newest known state, which is not always the checkpoint before it.
        facts = (f"took {name}", described(checkpoint), changes_of(entry) if entry else changed(checkpoint))
        lines = ["  ".join(part for part in facts if part)]
    if outcome.error is not None:
        lines.append(f"  only the named files: {safe(str(outcome.error))}")
    return lines + [f"  not captured: {safe(item.path)} ({item.why})" for item in outcome.skipped]


class DiffCommand(Command):
    """Show what a turn did, or what differs between two states.

    `diff 3` is what turn 3 did; of a snapshot, what changed since. `diff 3 @` compares the state before turn 3
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
            lines = ui.fancy.patch_lines(diff.text) if ui.fancy else patch_lines(diff.text, ui.ink)
            ui.page("".join(f"{line}\n" for line in lines))
        return 0


def _compare(args: argparse.Namespace, context: Context) -> tuple[Diff, str]:
    """What differs, and the two states in words."""
    manager, paths, present = context.manager, context.paths(args.paths), "the files as they are now"
    if args.a in (None, "@"):
        if args.b is not None:
            raise WrongUsage(why="@ is the newer state: put it second")
        now = manager.now(context.workdir, paths)
        return Diff(now.checkpoint_id or "", None, now.changes, now.patch), f"{now.name} and {present}"
    first, second, words = context.checkpoint(args.a).id, None, f"{args.a} and {present}"
    if args.b is not None and args.b != "@":
        second, words = context.checkpoint(args.b).id, f"{args.a} and {args.b}"
    elif args.b is None and args.a.isdigit():
        entries = manager.timeline(context.workdir)
        entry = next((each for each in entries if each.number == int(args.a) and each.kind == "turn"), None)
        if entry is not None and entry.after is not None:
            second, words = entry.after, f"the beginning and the end of turn {args.a}"
    return manager.diff(context.workdir, first, second, paths), words


class CatCommand(Command):
    """Print a file as it was in a state, byte for byte."""

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
            why = next((item.why for item in checkpoint.skipped if item.path == path), None)
            if why is not None:
                raise NotCaptured(state=args.ref, path=path, why=why)
            raise NoSuchPath(path=path, ref=args.ref)
        if context.ui.json:
            text = content.decode("utf-8", "surrogateescape")
            return context.ui.answer({"path": path, "checkpoint_id": checkpoint.id, "content": text})
        context.ui.raw(content)
        return 0


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
            files = [each for each in files if path in ("", ".") or each == path or each.startswith(f"{path}/")]
            if not files:
                why = next((item.why for item in checkpoint.skipped if item.path == path), None)
                raise (
                    NotCaptured(state=args.ref, path=path, why=why) if why else NoSuchPath(path=path, ref=args.ref)
                )
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
        forks = [
            context.manager.fork(context.workdir, target.id, place, worktree=args.worktree) for place in places
        ]
        for fork in forks:
            if context.holds(fork.directory):
                context.ui.say(f"note: {safe(fork.directory)} lies in the project and is captured with it")
        lines = []
        for fork in forks:
            branch = f", on branch {fork.branch}" if fork.branch else ""
            lines.append(f"forked to {safe(fork.directory)}: {count(fork.files, 'file')}{branch}")
        lines += [f"  not captured, so not in it: {safe(item.path)} ({item.why})" for item in target.skipped]
        return context.ui.answer({"forks": [fork.to_dict() for fork in forks]}, lines)
