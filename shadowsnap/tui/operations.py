"""Going back, taking a turn out, undo and redo: each is planned, asked about, then carried out, in the words of
the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import careful, exchanged_in_words, numbers_of, plan_lines, what_happened, what_was_done
from shadowsnap.cli.states import check_held
from shadowsnap.cli.text import ago, count, one_line, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.model import Entry, RestoreResult


@dataclass(frozen=True)
class Plan:
    """What would happen, for a person to read."""

    title: str
    lines: Sequence[str]
    result: RestoreResult

    @property
    def changes_files(self) -> bool:
        return bool(self.result.written or self.result.deleted)


@dataclass(frozen=True)
class Operation:
    """Something that changes files. `run` plans it (True) or carries it out (False)."""

    context: Context
    verb: str
    run: Callable[[bool], RestoreResult]
    title: Callable[[RestoreResult], str]
    done: Callable[[RestoreResult], str]
    back: str
    """The key that takes it back."""
    also: Callable[[], Sequence[str]] = tuple

    def plan(self) -> Plan:
        result = self.run(True)
        lines = [*plan_lines(result, self.context, Ink(False)), *(f"  {safe(line)}" for line in self.also())]
        return Plan(self.title(result), lines, result)

    def apply(self, plan: Plan) -> str:
        """Carry it out; returns what happened, where that is not what was planned, and how to take it back."""
        with careful():
            result = self.run(False)
        parts = [self.done(result), *(one_line(line) for line in what_was_done(result, plan.result))]
        parts += [result.note] if result.note else []
        parts += [f"{self.back} takes it back"] if result.undo_id else []
        return "; ".join(parts)


def entry_in_words(entry: Entry) -> str:
    return "your own edits" if entry.number is None else f"{entry.kind} {entry.number}"


def goal_in_words(entry: Entry) -> str:
    """Where going back to an entry leads."""
    return entry_in_words(entry) if entry.kind == "snapshot" else f"before {entry_in_words(entry)}"


def go_back(context: Context, entry: Entry, paths: Sequence[str]) -> Operation:
    """To before a turn, or to a snapshot: all files, or some."""
    manager, workdir = context.manager, context.workdir
    name, asked = goal_in_words(entry), one_line(entry.prompt or entry.reason)
    about = f": {asked}" if asked else ""
    which = f" of {count(len(paths), 'file')}" if paths else ""

    def run(dry_run: bool) -> RestoreResult:
        if paths and dry_run:
            check_held(manager, workdir, manager.get(workdir, entry), name, paths)
        return manager.restore(workdir, entry, paths, dry_run=dry_run)

    def also() -> list[str]:
        if paths:
            return []
        return exchanged_in_words(*manager.exchanged(workdir, entry), manager.now(workdir).files_changed or 0)

    return Operation(
        context,
        "restoring",
        run,
        title=lambda plan: f"Go back to {name}{which} ({ago(plan.target.created_at)}){about}",
        done=lambda result: f"restored to {name}: {numbers_of(result)}",
        back="z",
        also=also,
    )


def take_out(context: Context, turn: int) -> Operation:
    """What one turn did; everything else stays."""

    def run(dry_run: bool) -> RestoreResult:
        return context.manager.revert(context.workdir, turn, dry_run=dry_run)

    return _taking_back(context, "reverting", run, "took out", "z")


def undo(context: Context) -> Operation:
    """The last thing that happened."""
    run = partial(context.manager.undo, context.workdir)
    return _taking_back(context, "undoing", run, "took back", "Z")


def redo(context: Context) -> Operation:
    """The last undo is taken back."""
    run = partial(context.manager.redo, context.workdir)
    return _taking_back(context, "redoing", run, "brought back", "z")


_TITLES = {"took out": "Take out", "took back": "Undo", "brought back": "Redo"}


def _taking_back(
    context: Context, verb: str, run: Callable[[bool], RestoreResult], did: str, back: str
) -> Operation:
    return Operation(
        context,
        verb,
        run,
        title=lambda plan: f"{_TITLES[did]} {one_line(plan.what)}",
        done=lambda result: f"{what_happened(did, result)}: {numbers_of(result)}",
        back=back,
    )
