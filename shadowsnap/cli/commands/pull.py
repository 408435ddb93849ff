"""Get the timelines of other machines from this project's remote.

Everything is checked before any of it is used. `list` shows what was pulled, under the name of each machine;
nothing here changes, and undo, revert and prune do not touch it. `resume` restores from it.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.commands.lanes import add_key_option, key_file
from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe, size
from shadowsnap.cli.ui import working

GROUP = "other machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lanes", metavar="LANE", nargs="*", help="only these lanes, of whatever project")
    add_key_option(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    with working(ui, "pulling"):
        reports = context.manager.pull(context.workdir, args.lanes, key_file(args, context))
    if not reports:
        ui.say("no other machine has pushed this project there")
    lines = []
    for each in reports:
        new = f"{size(each.bytes)} fetched" if each.status == "pulled" else "up to date"
        lines.append(f"{each.lane}  {safe(each.machine)}: {count(each.checkpoints, 'checkpoint')}, {new}")
    return ui.answer({"pulled": [each.to_dict() for each in reports]}, lines)
