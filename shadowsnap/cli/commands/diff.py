"""Show what a turn did, or what differs between two states.

`diff 3` is what turn 3 did; of a snapshot, what changed since. `diff 3 @` compares the state before turn 3
with the files as they are now, `diff 2 5` two states. Without REF: what changed since the newest known
state. Elsewhere than on a terminal the text is a patch, byte for byte.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import change_lines, patch_lines

if TYPE_CHECKING:
    from shadowsnap.model import Diff

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="REF", nargs="?", help="a turn, or the older state")
    parser.add_argument("b", metavar="REF2", nargs="?", help="the newer state; @ for the files as they are now")
    parser.add_argument("--stat", action="store_true", help="one line per file instead of the text")
    parser.set_defaults(paths=[])
    parser.usage_end = ["[-- PATH...]"]  # type: ignore[attr-defined]


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    first, second, words = _sides(args, context)
    diff: Diff = context.manager.diff(context.workdir, first, second, paths=context.paths(args.paths))
    if not diff:
        ui.say(f"no difference between {words}")
    if ui.json:
        return ui.answer(diff.to_dict())
    if args.stat:
        return ui.answer({}, change_lines(diff.changes, ui.width, ui.ink))
    if not ui.on_terminal and not ui.ink.on:
        ui.raw(diff.text.encode("utf-8", "surrogateescape"))
    elif diff.text:
        lines = ui.fancy.patch_lines(diff.text) if ui.fancy else patch_lines(diff.text, ui.ink)
        ui.page("".join(f"{line}\n" for line in lines))
    return 0


def _sides(args: argparse.Namespace, context: Context) -> tuple[str, str | None, str]:
    """The two states, None for the files as they are now, and what they are in words."""
    if args.a in (None, "@"):
        newest = context.manager.now(context.workdir)
        since = newest.checkpoint_id or ""
        return since, None, f"{newest.since} and the files as they are now"
    first = context.checkpoint(args.a)
    if args.b is not None:
        second = None if args.b == "@" else context.checkpoint(args.b).id
        return first.id, second, f"{args.a} and {'the files as they are now' if second is None else args.b}"
    if args.a.isdigit():
        entry = next(each for each in context.manager.timeline(context.workdir) if each.number == int(args.a))
        if entry.kind == "turn" and entry.after is not None:
            return first.id, entry.after, f"the beginning and the end of turn {args.a}"
    return first.id, None, f"{args.a} and the files as they are now"
