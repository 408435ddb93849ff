"""The commands that remove what is kept: delete, prune, purge, clear, clear-legacy."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from shadowsnap.cli.commands import Command
from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options
from shadowsnap.cli.tables import described
from shadowsnap.cli.text import age, count, cut, safe, size
from shadowsnap.cli.ui import working
from shadowsnap.errors import PinnedCheckpoint, WrongUsage
from shadowsnap.results import ClearedItem, ClearReport
from shadowsnap.upkeep.clear import PurgeResult
from shadowsnap.upkeep.prune import PruneResult


class DeleteCommand(Command):
    """Drop checkpoints for good.

    Every other checkpoint stays what it is, and so do your files. A pinned one has to be unpinned
    first. Upkeep reclaims the space later; with --now, what no checkpoint holds any more is gone from the
    disk at once. On a terminal you are asked; elsewhere --yes is needed.
    """

    name = "delete"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("refs", metavar="REF", nargs="+", help="the states: numbers of the list, labels, ids")
        parser.add_argument("--now", action="store_true", help="reclaim the space at once")
        parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        chosen = {checkpoint.id: checkpoint for checkpoint in map(context.checkpoint, args.refs)}
        for checkpoint in chosen.values():
            if checkpoint.pinned:
                raise PinnedCheckpoint(ref=checkpoint.short_id)
        if not args.yes:
            number = count(len(chosen), "checkpoint")
            plan = [f"  {checkpoint.short_id}  {described(checkpoint)}" for checkpoint in chosen.values()]
            if not ui.confirm(f"delete {number} for good?", plan, f"{number} would be gone"):
                return ui.cancelled()
        gone = context.manager.delete(context.workdir, list(chosen))
        answer = {"checkpoints": [checkpoint.to_dict() for checkpoint in gone]}
        lines = [f"deleted {checkpoint.short_id}  {described(checkpoint)}" for checkpoint in gone]
        if not args.now:
            return ui.answer(answer, lines)
        with working(ui, "reclaiming"):
            reclaimed = context.manager.reclaim()
        if not reclaimed.complete:
            ui.say(f"{ui.talk_ink('yellow', 'warning:')} the space was not reclaimed: {safe(reclaimed.why)}")
        lines.append(f"freed {size(reclaimed.bytes_freed)}")
        return ui.answer({**answer, **reclaimed.to_dict()}, lines, code=0 if reclaimed.complete else 1)


_LIMITS = {
    "max_snapshots": ("N", int, "turns to keep of each project"),
    "retention_days": ("DAYS", float, "drop what is older"),
    "max_total_size_mb": ("MB", float, "size of the store"),
    "max_attachments_mb": ("MB", float, "size of kept conversations"),
}
_WORDS = {
    "busy": "another process is pruning",
    "skipped": "nothing is stored yet",
    "disabled": "shadowsnap is disabled by its settings",
}


class PruneCommand(Command):
    """Keep the limits now, and reclaim what no checkpoint holds.

    Upkeep keeps the limits by itself from time to time, and reclaims space when that pays. Pinned
    checkpoints and the newest of each project stay. If limits are given here and something would go, it
    asks on a terminal; elsewhere --yes is needed. A limit of 0 means no limit.
    """

    name = "prune"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, (metavar, kind, text) in _LIMITS.items():
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, metavar=metavar, type=kind, help=f"{text}, instead of the setting")
        parser.add_argument("--keep-orphans", action="store_true", help="keep those of directories that are gone")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, manager = context.ui, context.manager
        limits = {name: getattr(args, name) for name in _LIMITS if getattr(args, name) is not None}
        for name, value in limits.items():
            if not 0 <= value < float("inf"):
                raise WrongUsage(why=f"--{name.replace('_', '-')} must be a number that is not negative")
        orphans = not args.keep_orphans
        if args.dry_run or (limits and not args.yes):
            with working(ui, "looking at the store"):
                plan = manager.prune(dry_run=True, orphans=orphans, **limits)
            if args.dry_run:
                return ui.answer(plan.to_dict(), _prune_lines(plan, ui.width))
            if plan.dropped:
                number = count(len(plan.dropped), "checkpoint")
                if not ui.confirm(
                    f"drop {number} for good?", _prune_lines(plan, ui.width), f"{number} would be gone"
                ):
                    return ui.cancelled()
        with working(ui, "pruning"):
            result = manager.prune(orphans=orphans, **limits)
        for note in result.notes:
            ui.say(safe(note))
        if result.error is not None:
            ui.say(f"{ui.talk_ink('yellow', 'warning:')} space was not given back: {safe(str(result.error))}")
        done = result.applied and result.error is None
        return ui.answer(result.to_dict(), _prune_lines(result, ui.width), code=0 if done else 1)


def _prune_lines(result: PruneResult, width: int) -> Iterator[str]:
    if result.status in _WORDS:
        yield _WORDS[result.status]
        return
    workdir = None
    for verdict in sorted(result.dropped, key=lambda each: each.checkpoint.workdir):
        checkpoint = verdict.checkpoint
        if checkpoint.workdir != workdir:
            workdir = checkpoint.workdir
            yield safe(workdir)
        why = f"({verdict.reason})"
        start = f"  {checkpoint.short_id}  {age(checkpoint.created_at):10}  "
        yield f"{start}{cut(described(checkpoint), max(12, width - len(start) - len(why) - 2))}  {why}"
    if result.attachments_dropped:
        yield f"  and {count(len(result.attachments_dropped), 'conversation')}"
    yield _sum(result)
    if not result.applied:
        yield from (safe(note) for note in result.notes)


def _sum(result: PruneResult) -> str:
    number = count(len(result.dropped), "checkpoint")
    kept = len(result.verdicts) - len(result.dropped)
    if not result.applied:
        now = "" if result.bytes_before is None else f"; the store has {size(result.bytes_before)}"
        then = "" if result.bytes_after is None else f", what stays needs {size(result.bytes_after)}"
        return f"{number} to drop, {kept} to keep{now}{then}"
    return f"dropped {number}, kept {kept}, freed {size(result.bytes_freed)}"


_MOST_SHOWN = 20


class PurgeCommand(Command):
    """Take files out of every checkpoint of this project for good.

    For the day a key was captured. Each checkpoint that holds PATH, a file or a directory, is recorded
    anew without it; its old id goes on answering, and everything else in it stays. Your own files stay as
    they are: what is still on disk is captured again by the next snapshot, unless you move it away or
    exclude it. Prompts and conversations that are kept with checkpoints are not searched. An agent may
    have read the key too: replace it. On a terminal you are asked; elsewhere --yes is needed. If it is
    interrupted, run it again.
    """

    name = "purge"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "paths", metavar="PATH", nargs="*", help="files or directories, as checkpoints hold them"
        )
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, manager = context.ui, context.manager
        if not args.paths:
            raise WrongUsage(why="name at least one path to purge")
        paths = context.paths(args.paths)
        if args.dry_run or not args.yes:
            with working(ui, "looking at the checkpoints"):
                plan = manager.purge(context.workdir, paths, dry_run=True)
            if args.dry_run:
                return ui.answer(plan.to_dict(), _purge_lines(plan))
            number = count(len(plan.checkpoints), "checkpoint")
            if not ui.confirm(
                "purge it for good?", _purge_lines(plan, most=_MOST_SHOWN), f"{number} would be changed"
            ):
                return ui.cancelled()
        try:
            with working(ui, "purging"):
                result = manager.purge(context.workdir, paths)
        except KeyboardInterrupt:
            ui.say("every checkpoint can be restored; run the same purge again to finish it")
            raise
        for note in result.notes:
            ui.say(f"{ui.talk_ink('yellow', 'note:')} {safe(note)}")
        return ui.answer(result.to_dict(), _told(result), code=0 if result.reclaimed else 1)


def _purge_lines(plan: PurgeResult, most: int | None = None) -> Iterator[str]:
    yield from (f"  purge  {safe(path)}" for path in plan.files[:most])
    if most is not None and len(plan.files) > most:
        yield f"  purge  ... and {len(plan.files) - most} more (--dry-run lists all)"
    yield f"{count(len(plan.checkpoints), 'checkpoint')} to change, {size(plan.bytes)} of content to remove"
    yield from (f"note: {safe(note)}" for note in plan.notes)


def _told(result: PurgeResult) -> str:
    files, changed = count(len(result.files), "file"), count(len(result.checkpoints), "checkpoint")
    if not result.reclaimed:
        return f"purged {files} from {changed}; the bytes are not reclaimed yet"
    proof = "none of it is left in the store"
    if result.contents_left:
        proof = f"{count(result.contents_left, 'content')} still held elsewhere"
    return f"purged {files} from {changed}, freed {size(result.bytes_freed)}; {proof}"


class ClearCommand(Command):
    """Let go of every checkpoint of this project, pinned ones too.

    Your files stay as they are, but nothing can be brought back any more: also prompts, conversations and
    log lines of this project are removed. With --all, every project's checkpoints. On a terminal you are
    asked; elsewhere --yes is needed.
    """

    name = "clear"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="every project")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        def operation(dry_run: bool) -> ClearReport:
            if args.all:
                return context.manager.clear_all(dry_run)
            return context.manager.clear(context.workdir, dry_run)

        return clear_out(context, args, operation, "every checkpoint" if args.all else "these checkpoints")


def clear_out(
    context: Context, args: argparse.Namespace, operation: Callable[[bool], ClearReport], what: str
) -> int:
    """Run `operation(dry_run)` after showing what will be gone, and asking."""
    ui = context.ui
    with working(ui, "looking"):
        plan = operation(True)
    lines = list(_clear_lines(plan))
    if args.dry_run:
        return ui.answer(plan.to_dict(), lines)
    if not plan.items:
        return ui.answer(operation(False).to_dict(), "nothing to clear")
    if not args.yes and not ui.confirm(f"clear {what} for good?", lines, f"{what} would be gone"):
        return ui.cancelled()
    with working(ui, "clearing"):
        report = operation(False)
    later = f"; {size(report.pending_bytes)} will be freed by upkeep" if report.pending_bytes else ""
    cleared = "\n".join(f"cleared {_item(item)}" for item in report.items)
    return ui.answer(report.to_dict(), [cleared, f"freed {size(report.bytes_freed)}{later}"])


def _clear_lines(plan: ClearReport) -> Iterator[str]:
    yield from (f"  clear  {_item(item)}" for item in plan.items)
    yield f"{size(plan.bytes_freed + plan.pending_bytes)} to free"


def _item(item: ClearedItem) -> str:
    parts = [count(item.checkpoints, "checkpoint")] if item.checkpoints else []
    parts += [f"{item.pinned} pinned"] if item.pinned else []
    parts += [size(item.bytes), *([item.note] if item.note else [])]
    return f"{safe(item.subject)} ({', '.join(parts)})"


class ClearLegacyCommand(Command):
    """Remove what older tools left in the store's directory.

    Their repositories were archived there, and their checkpoints imported, on first use. On a terminal
    you are asked; elsewhere --yes is needed.
    """

    name = "clear-legacy"
    group = "keeping"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return clear_out(context, args, context.manager.clear_legacy, "these archives")
