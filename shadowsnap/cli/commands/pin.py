"""Keep checkpoints whatever the limits say."""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.states import state_in_words
from shadowsnap.cli.text import cut

GROUP = "keeping"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("refs", metavar="REF", nargs="+", help="the states: numbers of the list, labels, ids")


def run(args: argparse.Namespace, context: Context) -> int:
    return set_pins(args.refs, context, pinned=True)


def set_pins(words: list[str], context: Context, *, pinned: bool) -> int:
    chosen = [context.checkpoint(word) for word in words]
    change = context.manager.pin if pinned else context.manager.unpin
    entries = context.manager.timeline(context.workdir)
    states = [state_in_words(word, each, entries) for word, each in zip(words, chosen, strict=True)]
    verb = "pinned" if pinned else "unpinned"
    lines = [cut(f"{verb} {name}{f': {about}' if about else ''}", context.ui.width) for name, about in states]
    changed = [change(context.workdir, checkpoint.id) for checkpoint in chosen]
    return context.ui.answer({"checkpoints": [checkpoint.to_dict() for checkpoint in changed]}, lines)
