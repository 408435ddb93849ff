"""Bring the files back to a state: all of them, or some paths.

`restore 3` goes back to before turn 3. What is there now is saved first, so undo takes it back. Files that the
state could not know (ignored, too large, secret) are kept. On a terminal the plan is shown and you are asked;
elsewhere --yes is needed. Without REF you choose from the timeline.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out, numbers_of, what_goes_with_it
from shadowsnap.cli.tables import entry_text, now_text, patch_lines, timeline_lines
from shadowsnap.cli.text import ago, count, one_line, safe
from shadowsnap.errors import NoSuchPath, ShadowsnapError, WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import Checkpoint, Entry, RestoreResult

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", nargs="?", help="a number of the list, 3:after, a label, an id")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files and directories")
    parser.add_argument("--plan", metavar="TOKEN", help="carry out a plan that a program proposed")
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    if args.plan is not None:
        return _as_planned(args, context)
    word = args.ref if args.ref is not None else _pick(context)
    if word is None:
        context.ui.say("everything is left as it is")
        return context.ui.answer({"cancelled": True})
    target, paths = context.checkpoint(word), context.paths(args.paths)
    _check_held(context, target, word, paths)
    entries = context.manager.timeline(context.workdir)
    name = _name(word, target, entries)

    def operation(dry_run: bool, chosen: Sequence[str]) -> RestoreResult:
        return context.manager.restore(context.workdir, target.id, chosen, dry_run=dry_run)

    def done(result: RestoreResult) -> str:
        if not (result.written or result.deleted):
            return f"nothing to restore: the files are as {name}"
        return f"restored to {name}: {numbers_of(result)}"

    return carry_out(
        context,
        args,
        operation,
        title=lambda plan: f"restore {safe(str(context.workdir))} to {name} ({ago(target.created_at)})",
        done=done,
        back="undo",
        paths=paths,
        also=lambda: [] if paths else what_goes_with_it(context, _newer(word, target, entries)),
    )


def _as_planned(args: argparse.Namespace, context: Context) -> int:
    """A plan's token is the person's yes; on a terminal they see the plan first."""
    if args.ref is not None:
        raise WrongUsage(why="--plan says what is restored: REF and PATH do not go with it")
    args.yes = args.yes or not context.ui.interactive

    def operation(dry_run: bool, chosen: Sequence[str]) -> RestoreResult:
        return context.manager.restore_as_planned(context.workdir, args.plan, dry_run=dry_run)

    return carry_out(
        context,
        args,
        operation,
        title=lambda plan: f"restore {safe(str(context.workdir))} to {plan.target.short_id}, as planned",
        done=lambda result: f"restored to {result.target.short_id}: {numbers_of(result)}",
        back="undo",
    )


def _check_held(context: Context, target: Checkpoint, word: str, paths: Sequence[str]) -> None:
    """A file that was not captured is never passed over silently."""
    skipped = {item.path: item.why for item in target.skipped}
    for path in paths:
        if path in skipped:
            problem = NoSuchPath(path=path, ref=word)
            problem.hint = f"it was not captured then: {skipped[path]}"
            raise problem


def _name(word: str, target: Checkpoint, entries: Sequence[Entry]) -> str:
    """The state in words: `before turn 3: clean the project up`."""
    entry = _entry_of(word, target, entries)
    if entry is None:
        return f"{target.short_id} ({one_line(target.reason)})"
    about = one_line(entry.prompt or entry.reason)
    place = f"snapshot {entry.number}" if entry.kind == "snapshot" else f"before turn {entry.number}"
    if word.endswith(":after") and entry.kind == "turn":
        place = f"the end of turn {entry.number}"
    return f"{place}: {about}" if about else place


def _entry_of(word: str, target: Checkpoint, entries: Sequence[Entry]) -> Entry | None:
    number = word.removesuffix(":after")
    if number.isdigit():
        return next((entry for entry in entries if entry.number == int(number)), None)
    return next((entry for entry in entries if entry.number is not None and entry.state == target.id), None)


def _newer(word: str, target: Checkpoint, entries: Sequence[Entry]) -> list[Entry]:
    """The entries that a restore takes out, oldest last; the turn itself too if it goes to before it."""
    entry = _entry_of(word, target, entries)
    if entry is None:
        return []
    place = entries.index(entry)
    goes = entry.kind == "turn" and not word.endswith(":after")
    return list(entries[: place + 1] if goes else entries[:place])


# --- the picker --------------------------------------------------------------------------------------


def _pick(context: Context) -> str | None:
    """Let the person choose; None for leaving everything as it is."""
    ui = context.ui
    if not ui.interactive:
        problem = WrongUsage(why="which state? REF is missing, and this is no terminal to ask on")
        problem.hint = "shadowsnap list shows the numbers"
        raise problem
    entries = [entry for entry in context.manager.timeline(context.workdir) if entry.state is not None]
    numbered = [entry for entry in entries if entry.number is not None]
    shown = numbered[: max(5, _height() - 6)]
    _show(context, shown, len(numbered))
    while True:
        answer = ui.ask("go back to before which turn? [now]  /text finds, d N previews, ? helps  ")
        if answer in ("", "0", "now", "@", "q"):
            return None
        if answer == "?":
            ui.say("a number goes back to before that turn (or to that snapshot); 3:after to the end of turn 3;")
            ui.say("/text shows what has that in its prompt; d 3 shows what going back would do; empty leaves")
        elif answer.startswith("/"):
            wanted = answer[1:].strip().casefold()
            found = [entry for entry in numbered if wanted in entry_text(entry).casefold()]
            _show(context, found, len(found))
        elif answer.startswith("d ") or answer == "d":
            _preview(context, answer[1:].strip() or "last")
        else:
            try:
                context.checkpoint(answer)
            except ShadowsnapError as problem:
                ui.say(safe(str(problem)))
            else:
                return answer


def _show(context: Context, entries: Sequence[Entry], total: int) -> None:
    ui = context.ui
    now = context.manager.now(context.workdir)
    ui.say(f"  @  (now) leave everything as it is: {now_text(now)}")
    for line in timeline_lines(entries, None, ui.width, ui.talk_ink):
        ui.say(line)
    ui.say(f"{count(total, 'row')}{f', {len(entries)} shown' if len(entries) < total else ''}")


def _preview(context: Context, word: str) -> None:
    """What going back would do to the files as they are now."""
    ui = context.ui
    try:
        target = context.checkpoint(word)
        plan = context.manager.restore(context.workdir, target.id, dry_run=True)
        diff = context.manager.diff(context.workdir, target.id, "@")
    except ShadowsnapError as problem:
        ui.say(safe(str(problem)))
        return
    from shadowsnap.cli.plans import plan_lines

    for line in plan_lines(plan, context, ui.talk_ink):
        ui.say(line)
    for line in list(patch_lines(diff.text, ui.talk_ink))[:60] if diff.text else []:
        ui.say(line)


def _height() -> int:
    from shutil import get_terminal_size

    return get_terminal_size((80, 24)).lines
