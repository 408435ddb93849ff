"""Choose where this project's timeline is kept besides here.

`add NAME URL` sets the one remote of this project: a directory, s3://, gs://, az://, or a git server. Everything
there is encrypted for the recipients (--to, age or SSH public keys), unless --plain. `list` shows the remotes of
all projects, `status` what of this project is not pushed yet, `remove` forgets the remote (what is there stays
there), and `keygen [FILE]` makes a pair of keys.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import remote_text
from shadowsnap.cli.text import ago, count, safe
from shadowsnap.errors import NoRemote, WrongUsage

if TYPE_CHECKING:
    from shadowsnap.model import RemoteStatus

GROUP = "other machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    choices = ("add", "list", "remove", "status", "keygen")
    parser.add_argument("what", choices=choices, nargs="?", default="status", help="what to do")
    parser.add_argument("name", metavar="NAME", nargs="?", help="a name for the remote; with keygen, a file")
    parser.add_argument("url", metavar="URL", nargs="?", help="with add: where it is")
    parser.add_argument("--to", metavar="RECIPIENT", action="append", default=[], help="a public key that reads")
    parser.add_argument("--plain", action="store_true", help="do not encrypt what is pushed")
    parser.add_argument("--conversations", action="store_true", help="push the kept conversations too")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.what != "add" and (args.url or args.to or args.plain or args.conversations):
        raise WrongUsage(why=f"remote {args.what} does not take an address or options")
    return _ACTIONS[args.what](args, context)


def _add(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.remote.push import readable_note
    from shadowsnap.remote.storage import normal_url

    if not args.name or not args.url:
        raise WrongUsage(why="remote add needs a NAME and a URL")
    url = normal_url(args.url, context.here)
    made = context.manager.set_remote(
        context.workdir, args.name, url, args.to, plain=args.plain, conversations=args.conversations
    )
    lines = [f"{safe(made.name)} is the remote of {safe(str(context.workdir))}: {safe(made.url)}"]
    if made.plain:
        lines.append(f"warning: {safe(readable_note(made))}")
    else:
        readers = count(len(made.recipients), "recipient")
        lines.append(f"encrypted for {readers}; this machine needs no private key")
    if made.conditions:
        lines.append("it refuses to overwrite what must be new: two machines cannot spoil each other's lanes")
    else:
        lines.append(
            "it overwrites what must be new: a copy of this machine that pushes at the same moment can replace the"
            " last push, which the next one notices"
        )
    return context.ui.answer({"remote": context.manager.remote_status(context.workdir)[0].to_dict()}, lines)


def _list(args: argparse.Namespace, context: Context) -> int:
    found = context.manager.remote_status()
    if not found:
        context.ui.say("no project has a remote")
    lines = [f"{safe(each.name)}  {safe(each.url)}  {safe(each.workdir)}" for each in found]
    return context.ui.answer({"remotes": [each.to_dict() for each in found]}, lines)


def _status(args: argparse.Namespace, context: Context) -> int:
    found = context.manager.remote_status(context.workdir)
    if not found:
        raise NoRemote(workdir=context.workdir)
    return context.ui.answer({"remote": found[0].to_dict()}, _status_lines(found[0]))


def _status_lines(each: RemoteStatus) -> Iterator[str]:
    yield f"remote    {safe(each.name)}, {safe(each.url)}{' (not encrypted)' if each.plain else ''}"
    yield f"lane      {each.lane or 'begins with the first push'}"
    yield f"pushed    {ago(each.pushed_at) if each.pushed_at else 'not yet'}"
    yield f"state     {remote_text(each)}"


def _remove(args: argparse.Namespace, context: Context) -> int:
    found = context.manager.remote_status(context.workdir)
    gone = context.manager.remove_remote(context.workdir)
    line = f"{safe(gone.name)} is no remote of this project any more; what is at {safe(gone.url)} stays there"
    return context.ui.answer({"remote": found[0].to_dict()}, line)


def _keygen(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.cli.commands.lanes import usual_key_file
    from shadowsnap.remote.sealing import generate_key

    named = args.name and os.path.join(context.here, os.path.expanduser(args.name))
    path = Path(named) if named else usual_key_file()
    public = generate_key(path)
    lines = [
        f"public key   {public}",
        f"private key  {safe(str(path))}",
        "give the public key to every machine that pushes: shadowsnap remote add NAME URL --to KEY",
        "keep a copy of the private key: nothing can be read without it",
    ]
    return context.ui.answer({"public_key": public, "path": str(path)}, lines)


_ACTIONS = {"add": _add, "list": _list, "remove": _remove, "status": _status, "keygen": _keygen}
