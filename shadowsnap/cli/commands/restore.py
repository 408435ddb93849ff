"""The commands that bring states back: restore (also chosen from the timeline), revert, undo, redo, rollback.

Restoring, reverting, undoing and redoing go the same way: plan, ask, apply, say how to take it back.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from shadowsnap.agents.slash import RollbackCommand
from shadowsnap.cli.commands import Command, Context, add_plan_options
from shadowsnap.cli.tables import (
    check_captured,
    conflicting_turn,
    describe_state,
    entry_text,
    exchanged_lines,
    going_back_text,
    now_text,
    patch_lines,
    plan_counts,
    plan_lines,
    result_counts,
    result_lines,
    result_title,
    short_path,
    timeline_lines,
    turn_number,
)
from shadowsnap.cli.text import ago, count, cut, one_line, safe
from shadowsnap.cli.ui import interrupt_safely
from shadowsnap.errors import NotConfirmed, ShadowsnapError, WrongUsage
from shadowsnap.model import Checkpoint, Entry, RestoreResult


class RestoreCommand(Command):
    """Bring the files back to a state: all of them, or some paths.

    `restore 3` goes back to before turn 3. What is there now is saved first, so undo takes it back. Files that the
    state could not know (ignored, too large, secret) are kept. On a terminal the plan is shown and you are asked;
    elsewhere --yes is needed. Without REF you choose from the timeline.
    """

    name = "restore"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("ref", metavar="REF", nargs="?", help="a number of the list, 3:after, a label, an id")
        parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files and directories")
        parser.add_argument("--plan", metavar="TOKEN", help="carry out a plan that a program proposed")
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.plan is not None:
            return _restore_planned(args, context)
        word = args.ref if args.ref is not None else _pick_reference(context)
        if word is None:
            context.ui.say("everything is left as it is")
            return context.ui.answer({"cancelled": True})
        target, paths = context.checkpoint(word), context.paths(args.paths)
        name, about = describe_state(word, target, context.manager.timeline(context.workdir))
        if paths:
            check_captured(context.manager, context.workdir, target, word, paths)
        return _plan_and_apply(context, args, restoring(context, target, name, about, paths), selectable=True)


def _restore_planned(args: argparse.Namespace, context: Context) -> int:
    """Restore by the token of a plan, which is the person's consent; on a terminal the plan is shown first."""
    if args.ref is not None:
        raise WrongUsage(why="--plan says what is restored: REF and PATH do not go with it")
    args.yes = args.yes or not context.ui.interactive
    operation = Operation(
        "restoring",
        lambda dry_run, paths: context.manager.restore_as_planned(context.workdir, args.plan, dry_run=dry_run),
        title=lambda plan: f"restore {short_path(context.workdir)} to {plan.target.short_id}, as planned",
        done=lambda result: f"restored to {result.target.short_id}, as planned",
    )
    return _plan_and_apply(context, args, operation)


class RevertCommand(Command):
    """Take out what one turn or session did and keep all other edits.

    The changes are taken out of the files as they are now. Where the same lines were changed since, the file is a
    conflict and left alone (the exit code is 1 then), unless --on-conflict says otherwise: markers writes both
    sides into the file, theirs takes the state before the turn. Asks like restore, and undo takes it back.
    """

    name = "revert"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "number",
            metavar="N",
            nargs="?",
            help="the turn: its number, last, or a label or an id of the state before it",
        )
        parser.add_argument("--turn", metavar="N", help="the same")
        parser.add_argument("--session", metavar="ID", help="every turn of this session; a part of its id will do")
        parser.add_argument(
            "--on-conflict",
            choices=("keep", "markers", "theirs"),
            default="keep",
            help="what becomes of a conflict",
        )
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        word = args.number if args.number is not None else args.turn
        if (word is None) == (args.session is None):
            raise WrongUsage(why="give the number of a turn, or --session")
        turn = None if word is None else turn_number(context.manager, context.workdir, word)
        return _plan_and_apply(context, args, reverting(context, turn, args.session, args.on_conflict))


class UndoCommand(Command):
    """Take back the last thing that happened: a turn, restore, revert.

    Again takes back the one before it; redo goes forward. A turn is taken back exactly if nothing was edited
    since, else by a merge that keeps the edits; where both changed the same lines, the file is a conflict and left
    alone (the exit code is 1 then). Asks like restore.
    """

    name = "undo"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _plan_and_apply(context, args, undoing(context))


class RedoCommand(UndoCommand):
    """Take the last undo back."""

    name = "redo"

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _plan_and_apply(context, args, redoing(context))


class TypedRollbackCommand(Command):
    """Answer one line of /rollback for a chat program.

    Made for programs that can only run commands. It never asks: a rollback can itself be taken back. The answer
    also says what is wrong with a line, and the exit code is 0 then too: agents hide the output of a command that
    fails. `shadowsnap rollback help` has the whole grammar.
    """

    name = "rollback"
    group = "going back"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", metavar="WORD", nargs="*", help="what follows /rollback in the chat")
        parser.add_argument("--chat", action="store_true", help="bring back the conversation, and leave the files")
        parser.add_argument("--files", action="store_true", help="bring back the files (this is the default)")
        parser.add_argument("--both", action="store_true", help="bring back files and conversation")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        # Some programs hand over the line as one word.
        line = args.words[0] if len(args.words) == 1 else shlex.join(args.words)
        line += "".join(f" --{part}" for part in ("chat", "files", "both") if getattr(args, part))
        answer = RollbackCommand(context.manager, context.workdir).run(line)
        return context.ui.answer(answer.to_dict(), str(answer))


# --- operations of the commands and the viewer ------------------------------------------------


@dataclass(frozen=True)
class Operation:
    """A change of files that can be taken back."""

    verb: str
    """For the progress line: `restoring`."""
    run: Callable[[bool, Sequence[str]], RestoreResult]
    """Makes the plan (True) or applies it (False), for some paths or all."""
    title: Callable[[RestoreResult], str]
    """One line about a plan."""
    done: Callable[[RestoreResult], str]
    """One line about a result."""
    reverse: str = "undo"
    """The command that takes it back."""
    paths: Sequence[str] = ()
    exchanged: Callable[[], Sequence[str]] = tuple
    """Lines about the turns and edits that it takes out or brings back."""


def restoring(
    context: Context, target: Checkpoint, name: str, about: str, paths: Sequence[str] = ()
) -> Operation:
    """Restore the state that is called `name`."""
    manager, workdir = context.manager, context.workdir

    def done(result: RestoreResult) -> str:
        if not (result.written or result.deleted):
            return f"nothing to restore: the files are as {name}"
        return f"restored to {name}: {result_counts(result)}"

    def exchanged() -> Sequence[str]:
        if paths:
            return ()
        return exchanged_lines(*manager.exchanged(workdir, target.id), manager.now(workdir).files_changed or 0)

    return Operation(
        "restoring",
        lambda dry_run, chosen: manager.restore(workdir, target.id, chosen, dry_run=dry_run),
        title=lambda plan: f"restore {short_path(workdir)} to {name} ({ago(target.created_at)}): {about}",
        done=done,
        paths=paths,
        exchanged=exchanged,
    )


def reverting(
    context: Context,
    turn: int | None,
    session: str | None = None,
    on_conflict: Literal["keep", "markers", "theirs"] = "keep",
) -> Operation:
    """Take out what a turn or a session did; everything else stays."""

    def done(result: RestoreResult) -> str:
        if not (result.written or result.deleted or result.conflicts):
            return f"nothing to revert: no trace of {one_line(result.what)} is left"
        return _headline("took out", result, context)

    return Operation(
        "reverting",
        lambda dry_run, _: context.manager.revert(context.workdir, turn, session, dry_run, on_conflict),
        title=lambda plan: f"from {short_path(context.workdir)}, take out {one_line(plan.what)}",
        done=done,
    )


def undoing(context: Context) -> Operation:
    return Operation(
        "undoing",
        lambda dry_run, _: context.manager.undo(context.workdir, dry_run),
        title=lambda plan: f"in {short_path(context.workdir)}, undo {one_line(plan.what)}",
        done=lambda result: _headline("took back", result, context),
        reverse="redo",
    )


def redoing(context: Context) -> Operation:
    return Operation(
        "redoing",
        lambda dry_run, _: context.manager.redo(context.workdir, dry_run),
        title=lambda plan: f"in {short_path(context.workdir)}, redo {one_line(plan.what)}",
        done=lambda result: _headline("brought back", result, context),
    )


def _headline(verb: str, result: RestoreResult, context: Context) -> str:
    """What happened, and the numbers below it."""
    return f"{cut(result_title(verb, result), context.ui.width)}\n  {result_counts(result)}"


def _plan_and_apply(
    context: Context, args: argparse.Namespace, operation: Operation, *, selectable: bool = False
) -> int:
    """Show the plan and ask, unless `--yes`; then apply it. `selectable`: the person may choose some of the
    files."""
    ui, plan, paths = context.ui, None, operation.paths
    on_conflict = getattr(args, "on_conflict", "keep")
    if args.dry_run or not args.yes:
        with context.working("making the plan"):
            plan = operation.run(True, paths)
            lines = [cut(operation.title(plan), ui.width)]
            lines += plan_lines(plan, context, ui.ink if args.dry_run else ui.talk_ink)
            exchanged = operation.exchanged() if plan.written or plan.deleted else ()
            lines += [cut(f"  {line}", ui.width) for line in exchanged]
            lines += _conflict_hints(plan, on_conflict, context)
        if args.dry_run:
            code = 1 if plan.conflicts and on_conflict == "keep" else 0
            return ui.answer({**plan.to_dict(), "dry_run": True}, lines, code)
        if plan.written or plan.deleted:
            chosen = _ask(context, plan, operation, lines, selectable)
            if chosen is None:
                return ui.cancelled()
            plan, paths = chosen
    total = len(plan.written) + len(plan.deleted) if plan is not None else 0
    with context.working(operation.verb) as update, interrupt_safely(update, total):
        result = operation.run(False, paths)
    if result.note:
        ui.say(safe(result.note))
    reverse = (operation.reverse, *(() if ui.interactive else ("--yes",)))
    line = context.command_line(*reverse) if result.undo_id else None
    lines = [operation.done(result), *result_lines(result, plan)]
    lines += [f"to take it back: {line}"] if line else []
    lines += _conflict_hints(result, on_conflict, context)
    data = {**result.to_dict(), "dry_run": False, **({"undo": line} if line else {})}
    return ui.answer(data, lines, code=1 if result.conflicts and on_conflict == "keep" else 0)


def _ask(
    context: Context,
    plan: RestoreResult,
    operation: Operation,
    lines: Sequence[str],
    selectable: bool,
) -> tuple[RestoreResult, Sequence[str]] | None:
    """The plan and the paths that the person agreed to; None if they declined."""
    ui, paths = context.ui, operation.paths
    if not ui.interactive:
        would = f"this would change files ({plan_counts(plan, context)})"
        raise NotConfirmed(why=f"{would}, and there is no terminal to ask on")
    for line in lines:
        ui.say(line)
    question = f"go ahead? [y]es [N]o [d]iff{' [s]ome files' if selectable else ''} "
    while True:
        answer = ui.ask(question).lower()
        if answer in ("y", "yes"):
            return plan, paths
        if answer in ("d", "diff"):
            _show_patch(context, plan)
        elif selectable and answer in ("s", "some"):
            chosen = _choose_paths(context, plan)
            if chosen:
                plan, paths = operation.run(True, chosen), chosen
                for line in plan_lines(plan, context, ui.talk_ink):
                    ui.say(line)
        else:
            return None


def _show_patch(context: Context, plan: RestoreResult, most: int | None = None) -> None:
    """Show the patch of a plan, or its first `most` lines."""
    ui = context.ui
    if not plan.patch:
        ui.say("these files are too many to show, or no text" if plan.written or plan.deleted else "no change")
        return
    lines = list(patch_lines(plan.patch, ui.talk_ink))
    for line in lines[:most]:
        ui.say(line)
    if most is not None and len(lines) > most:
        ui.say(f"... and {count(len(lines) - most, 'more line')}")


def _choose_paths(context: Context, plan: RestoreResult) -> list[str]:
    ui, offered = context.ui, [*plan.written, *plan.deleted]
    for number, path in enumerate(offered, 1):
        ui.say(f"{number:>4}  {safe(path)}")
    answer = ui.ask("which ones? numbers or names, with spaces between them: ")
    chosen = []
    for word in answer.split():
        if word.isascii() and word.isdigit() and 1 <= int(word) <= len(offered):
            chosen.append(offered[int(word) - 1].rstrip("/"))
        elif word in offered:
            chosen.append(word.rstrip("/"))
        else:
            ui.say(f"{safe(word)} is not in the plan")
    return chosen


def _conflict_hints(result: RestoreResult, on_conflict: str, context: Context) -> list[str]:
    """The commands that help with conflicts."""
    number = conflicting_turn(result)
    if number is None or on_conflict != "keep":
        return []
    return [
        f"look at it:                    {context.command_line('show', number)}",
        f"take it out all the same:      {context.command_line('revert', number, '--on-conflict', 'theirs')}",
        f"go back to before all of it:   {context.command_line('restore', number)}",
    ]


# --- choosing from the timeline ---------------------------------------------------------------------------

_QUESTION = "go back to before which turn? [now]  (/text finds, d N previews, ? helps) "
_HELP = """\
  3        go back to before turn 3; of a snapshot, to it
  3:after  go to the end of turn 3
  /text    show only what has this text; / alone shows everything again
  d 3      show what going back to before turn 3 would do to the files
  Enter    leave everything as it is"""
_OTHER_LINES = 5
"""Lines on the screen besides the rows."""
_MOST_PATCH_LINES = 60


def _pick_reference(context: Context) -> str | None:
    """Let the person choose a state; its reference, or None to leave everything as it is (Enter alone)."""
    ui, manager = context.ui, context.manager
    if not ui.interactive:
        why = "which state? REF is missing, and there is no terminal to ask on"
        raise WrongUsage(why=why, hint="shadowsnap list shows the numbers")
    with context.working("looking at the files"):
        now = now_text(manager.now(context.workdir))
        entries = [entry for entry in manager.timeline(context.workdir) if entry.number is not None]
        rows = manager.ways_back(context.workdir, [entry for entry in entries if entry.state is not None])
    _show_rows(context, rows, now)
    while True:
        answer = ui.ask(_QUESTION)
        if answer in ("", "0", "now", "@", "q"):
            return None
        if answer == "?":
            ui.say(_HELP)
        elif answer.startswith("/"):
            wanted = answer[1:].strip().casefold()
            _show_rows(context, [entry for entry in rows if wanted in entry_text(entry).casefold()], now)
        elif answer == "d" or answer.startswith("d "):
            _preview(context, answer[1:].strip() or "last")
        elif _is_reference(context, answer):
            return answer


def _show_rows(context: Context, rows: Sequence[Entry], now: str) -> None:
    """Show the rows that fit on the screen, each with what going back to it would do."""
    ui = context.ui
    shown = rows[: max(5, ui.height - _OTHER_LINES)]
    ui.say(cut(f"  @            (now) leave everything as it is: {now}", ui.width))
    for line in timeline_lines(shown, None, ui.width, ui.talk_ink, changes=going_back_text):
        ui.say(line)
    hidden = f", the newest {len(shown)} are shown; /text finds the others" if len(shown) < len(rows) else ""
    ui.say(f"{count(len(rows), 'row')}{hidden}")


def _is_reference(context: Context, word: str) -> bool:
    try:
        context.checkpoint(word)
    except ShadowsnapError as problem:
        context.ui.say(safe(str(problem)))
        return False
    return True


def _preview(context: Context, word: str) -> None:
    """Show what going back would do to the files as they are now."""
    ui = context.ui
    try:
        target = context.checkpoint(word)
        plan = context.manager.restore(context.workdir, target.id, dry_run=True)
    except ShadowsnapError as problem:
        ui.say(safe(str(problem)))
        return
    for line in plan_lines(plan, context, ui.talk_ink):
        ui.say(line)
    _show_patch(context, plan, _MOST_PATCH_LINES)
