"""Check that a state can be restored exactly.

REF, or without it the newest state, is restored into a scratch directory and compared byte for byte with what
the checkpoint says. Upkeep does the same for the newest checkpoint of each project now and then; status shows when
that last held.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe
from shadowsnap.cli.ui import working

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", nargs="?", help="a number of the list, 3:after, a label, an id")


def run(args: argparse.Namespace, context: Context) -> int:
    ref = None if args.ref is None else context.checkpoint(args.ref).id
    with working(context.ui, "restoring into a scratch directory"):
        result = context.manager.verify(context.workdir, ref)
    name = result.checkpoint[:8]
    if result.verified:
        text = f"{name} is exact: {count(result.files, 'file')} restored and compared"
        return context.ui.answer(result.to_dict(), text)
    lines = [f"{name} is damaged: {count(result.problem_count, 'problem')}"]
    lines += [f"  {safe(problem)}" for problem in result.problems]
    context.ui.say("hint: shadowsnap doctor --repair mends what can be mended; other states are not affected")
    return context.ui.answer(result.to_dict(), lines, code=1)
