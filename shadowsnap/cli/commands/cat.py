"""Print a file as it was in a state, byte for byte."""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.errors import NoSuchPath, NotCaptured

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="a number of the list, 3:after, last, a label, or an id")
    parser.add_argument("path", metavar="PATH", help="the file")


def run(args: argparse.Namespace, context: Context) -> int:
    checkpoint = context.checkpoint(args.ref)
    path = context.path(args.path)
    content = context.manager.contents(context.workdir, checkpoint.id, [path]).get(path)
    if content is None:
        why = next((item.why for item in checkpoint.skipped if item.path == path), None)
        if why is not None:
            raise NotCaptured(state=args.ref, path=path, why=why)
        raise NoSuchPath(path=path, ref=args.ref)
    if context.ui.json:
        text = content.decode("utf-8", "surrogateescape")
        return context.ui.answer({"path": path, "checkpoint_id": checkpoint.id, "content": text})
    context.ui.raw(content)
    return 0
