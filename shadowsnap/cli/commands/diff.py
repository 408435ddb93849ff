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
from shadowsnap.errors import WrongUsage

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
    from shadowsnap.model import Diff

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
