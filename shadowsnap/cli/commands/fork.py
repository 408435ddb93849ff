"""Write a state into a new directory, to try again from there.

The state is exact, uncommitted work included; what was not captured (ignored files, secrets) is not in it. Its
timeline begins there. In a git project, --worktree makes it a git work tree on a branch of its own.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe
from shadowsnap.errors import WrongUsage

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="a number of the list, 3:after, last, a label, or an id")
    parser.add_argument("place", metavar="DIR", help="a directory that does not exist yet, or is empty")
    parser.add_argument("-n", dest="copies", metavar="N", type=int, help="make N of them: DIR-1, DIR-2 and so on")
    parser.add_argument("--worktree", action="store_true", help="a git work tree on a branch of its own")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.questions import check_free

    if args.copies is not None and args.copies < 1:
        raise WrongUsage(why="-n takes a number from 1")
    target = context.checkpoint(args.ref)
    top = os.path.normpath(os.path.join(context.here, args.place))
    places = [top] if args.copies is None else [f"{top}-{number}" for number in range(1, args.copies + 1)]
    for place in places:  # before anything is written
        check_free(Path(os.path.realpath(place)), context.manager.settings.resolved_base())
    forks = [
        context.manager.fork(context.workdir, target.id, place, worktree=args.worktree) for place in places
    ]
    for fork in forks:
        if context.holds(fork.directory):
            context.ui.say(f"note: {safe(fork.directory)} lies in the project and is captured with it")
    lines = []
    for fork in forks:
        branch = f", on branch {fork.branch}" if fork.branch else ""
        lines.append(f"forked to {safe(fork.directory)}: {count(fork.files, 'file')}{branch}")
    lines += [f"  not captured, so not in it: {safe(item.path)} ({item.why})" for item in target.skipped]
    return context.ui.answer({"forks": [fork.to_dict() for fork in forks]}, lines)
