"""Choosing a state from the timeline, line by line, on any terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import plan_lines, show_patch
from shadowsnap.cli.tables import entry_text, now_text, timeline_lines, way_back_text
from shadowsnap.cli.text import count, cut, safe
from shadowsnap.errors import ShadowsnapError

if TYPE_CHECKING:
    from shadowsnap.model import Entry

_QUESTION = "go back to before which turn? [now]  (/text finds, d N previews, ? helps) "
_HELP = """\
  3        go back to before turn 3; of a snapshot, to it
  3:after  go to the end of turn 3
  /text    show only what has this text; / alone shows everything again
  d 3      show what going back to before turn 3 would do to the files
  Enter    leave everything as it is"""
_AROUND = 5
"""Lines that the picker needs besides the rows."""
_MOST_OF_PATCH = 60


def pick(context: Context) -> str | None:
    """A reference; None for leaving everything as it is, which is what Enter alone means."""
    ui, manager = context.ui, context.manager
    with context.working("looking at the files"):
        now = now_text(manager.now(context.workdir))
        entries = [entry for entry in manager.timeline(context.workdir) if entry.number is not None]
        rows = manager.ways_back(context.workdir, [entry for entry in entries if entry.state is not None])
    _show(context, rows, now)
    while True:
        answer = ui.ask(_QUESTION)
        if answer in ("", "0", "now", "@", "q"):
            return None
        if answer == "?":
            ui.say(_HELP)
        elif answer.startswith("/"):
            wanted = answer[1:].strip().casefold()
            _show(context, [entry for entry in rows if wanted in entry_text(entry).casefold()], now)
        elif answer == "d" or answer.startswith("d "):
            _preview(context, answer[1:].strip() or "last")
        elif _is_state(context, answer):
            return answer


def _show(context: Context, rows: Sequence[Entry], now: str) -> None:
    """The rows that fit on the screen, each with what going back to it would do now."""
    ui = context.ui
    shown = rows[: max(5, ui.height - _AROUND)]
    ui.say(cut(f"  @            (now) leave everything as it is: {now}", ui.width))
    for line in timeline_lines(shown, None, ui.width, ui.talk_ink, changes=way_back_text):
        ui.say(line)
    hidden = f", the newest {len(shown)} are shown; /text finds the others" if len(shown) < len(rows) else ""
    ui.say(f"{count(len(rows), 'row')}{hidden}")


def _is_state(context: Context, word: str) -> bool:
    try:
        context.checkpoint(word)
    except ShadowsnapError as problem:
        context.ui.say(safe(str(problem)))
        return False
    return True


def _preview(context: Context, word: str) -> None:
    """What going back would do to the files as they are now."""
    ui = context.ui
    try:
        target = context.checkpoint(word)
        plan = context.manager.restore(context.workdir, target.id, dry_run=True)
    except ShadowsnapError as problem:
        ui.say(safe(str(problem)))
        return
    for line in plan_lines(plan, context, ui.talk_ink):
        ui.say(line)
    show_patch(context, plan, _MOST_OF_PATCH)
