"""List the lanes at a remote: whose work is there, how old it is.

URL is the address of a remote; without it, this project's. It works in any directory. Encrypted lanes show their
names only with the key that opens them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import age, count, cut, pad, safe, size
from shadowsnap.cli.ui import working

if TYPE_CHECKING:
    from shadowsnap.remote.lanes import Lane

GROUP = "other machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="the address of a remote")
    add_key_option(parser)


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.remote.storage import normal_url

    ui = context.ui
    url = None if args.url is None else normal_url(args.url, context.here)
    with working(ui, "listing lanes"):
        lanes = context.manager.lanes(url, context.workdir, key_file(args, context))
    if not lanes:
        ui.say("there are no lanes there")
    elif hidden := sum(not each.readable for each in lanes):
        ui.say(f"{count(hidden, 'lane')} cannot be read without the key: only ids are shown (--key FILE)")
    return ui.answer({"lanes": [each.to_dict() for each in lanes]}, _rows(lanes))


def _rows(lanes: list[Lane]) -> Iterator[str]:
    names = [(cut(safe(each.project), 24), cut(safe(each.machine), 20)) for each in lanes]
    wide = [max((len(row[column]) for row in names), default=0) for column in (0, 1)]
    for each, (project, machine) in zip(lanes, names, strict=True):
        newest = age(each.newest_at) if each.newest_at else "?"
        facts = f"{newest:>9}  {count(each.turns, 'turn'):>9}  {size(each.bytes):>8}"
        yield f"{pad(project, wide[0])}  {pad(machine, wide[1])}  {facts}  {each.lane}"


def add_key_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", metavar="FILE", help="the file with your private key (the one of remote keygen)")


def key_file(args: argparse.Namespace, context: Context) -> Path | None:
    """The key that was named, or the one that `remote keygen` wrote, if it is there."""
    if args.key is not None:
        return Path(os.path.join(context.here, os.path.expanduser(args.key)))
    return usual if (usual := usual_key_file()).exists() else None


def usual_key_file() -> Path:
    from shadowsnap.base import config_file

    return Path(config_file()).with_name("key.txt")
