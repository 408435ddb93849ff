"""Give a checkpoint a name that can be used as its REF.

A checkpoint has one name, and a name belongs to one checkpoint: it moves if it was taken.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.states import state_in_words
from shadowsnap.cli.text import cut, one_line
from shadowsnap.errors import WrongUsage

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="the state: a number of the list, a label, an id")
    parser.add_argument("name", metavar="NAME", nargs="?", help="its new name")
    parser.add_argument("--remove", action="store_true", help="take its name away instead")


def run(args: argparse.Namespace, context: Context) -> int:
    if (args.name is None) != args.remove:
        raise WrongUsage(why="give either a NAME or --remove")
    target = context.checkpoint(args.ref)
    name, about = state_in_words(args.ref, target, context.manager.timeline(context.workdir))
    checkpoint = context.manager.label(context.workdir, target.id, args.name)
    called = f"is called {one_line(checkpoint.label)}" if checkpoint.label else "has no label"
    text = cut(f"{name} {called}{f': {about}' if about else ''}", context.ui.width)
    return context.ui.answer({"checkpoint": checkpoint.to_dict()}, text)
