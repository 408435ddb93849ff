"""List the files of a state, all of them or those below PATH."""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import safe
from shadowsnap.errors import NoSuchPath, NotCaptured

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="a number of the list, 3:after, last, a label, or an id")
    parser.add_argument("path", metavar="PATH", nargs="?", help="a directory or a file")


def run(args: argparse.Namespace, context: Context) -> int:
    checkpoint = context.checkpoint(args.ref)
    files = context.manager.files(context.workdir, checkpoint.id)
    if args.path is not None:
        path = context.path(args.path).rstrip("/")
        files = [each for each in files if path in ("", ".") or each == path or each.startswith(f"{path}/")]
        if not files:
            why = next((item.why for item in checkpoint.skipped if item.path == path), None)
            raise NotCaptured(state=args.ref, path=path, why=why) if why else NoSuchPath(path=path, ref=args.ref)
    return context.ui.answer({"checkpoint_id": checkpoint.id, "files": files}, [safe(each) for each in files])
