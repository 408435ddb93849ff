"""Show what changed since a checkpoint, or between two.

Without B, against the files on disk; without A, since the newest checkpoint. Elsewhere than on
a terminal the text is a patch, byte for byte.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import change_lines, patch_lines

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", nargs="?", default="last", help="the older checkpoint (last)")
    parser.add_argument("b", metavar="B", nargs="?", help="the newer checkpoint (the files on disk)")
    parser.add_argument("--stat", action="store_true", help="one line per file instead of the text")
    parser.set_defaults(paths=[])
    parser.usage_end = ["[-- PATH...]"]  # type: ignore[attr-defined]


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    first = context.checkpoint(args.a)
    second = context.checkpoint(args.b).id if args.b is not None else None
    diff = context.manager.diff(context.workdir, first.id, second, paths=context.paths(args.paths))
    if not diff:
        other = f"and {second[:8]}" if second else "and the files on disk"
        ui.say(f"no difference between {first.short_id} {other}")
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
