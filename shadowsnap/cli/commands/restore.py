"""Bring the files back to a checkpoint: all of them, or some paths.

What is there now becomes a checkpoint first, so it can be taken back with undo. Files that the
checkpoint could not know (ignored, too large, secret) are kept. On a terminal the plan is shown
and you are asked; elsewhere --yes is needed. Without ID you choose from the list.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.plans import add_plan_options, carry_out
from shadowsnap.cli.tables import rows
from shadowsnap.cli.text import safe
from shadowsnap.errors import (
    AmbiguousReference,
    ForeignCheckpoint,
    MalformedReference,
    NoSuchCheckpoint,
    WrongUsage,
)

if TYPE_CHECKING:
    from shadowsnap.model import Checkpoint, RestoreResult

GROUP = "going back"

_OFFERED = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="ID", nargs="?", help="the checkpoint")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="only these files and directories")
    add_plan_options(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    target = _pick(context) if args.ref is None else context.checkpoint(args.ref)
    if target is None:
        context.ui.say("everything is left as it is")
        return 0
    paths = context.paths(args.paths)

    def deed(dry_run: bool) -> RestoreResult:
        return context.manager.restore(context.workdir, target.id, paths, dry_run=dry_run)

    return carry_out(context, args, deed, name="restore", back="undo")


def _pick(context: Context) -> Checkpoint | None:
    """Let the person choose; None for leaving everything as it is."""
    ui = context.ui
    if not ui.interactive:
        problem = WrongUsage(why="which checkpoint? ID is missing, and there is nobody to ask")
        problem.hint = "shadowsnap list shows the checkpoints"
        raise problem
    offered = context.manager.list_checkpoints(context.workdir, limit=_OFFERED)
    lines = rows(list(enumerate(offered, 1)), ui.width, ui.talk_ink)
    ui.say(f"{'0'.rjust(len(str(len(offered))))}  leave everything as it is")
    for line in lines:
        ui.say(line)
    while True:
        answer = ui.ask("which one? [0] ")
        if answer in ("", "0"):
            return None
        if answer.isdecimal() and int(answer) <= len(offered):
            return offered[int(answer) - 1]  # the list as shown, whatever has come since
        try:
            return context.checkpoint(answer)
        except (NoSuchCheckpoint, MalformedReference, AmbiguousReference, ForeignCheckpoint) as problem:
            ui.say(safe(str(problem)))
