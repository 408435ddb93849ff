"""The commands about other machines: remote, push, pull, lanes, resume."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shadowsnap.agents.handover import Handover, hand_over
from shadowsnap.base import config_file
from shadowsnap.cli.commands import Command, Context, add_plan_options
from shadowsnap.cli.tables import result_counts, unpushed_text
from shadowsnap.cli.text import age, ago, count, cut, one_line, pad, safe, size
from shadowsnap.cli.ui import interrupt_safely, working
from shadowsnap.errors import NoRemote, NotConfirmed, WrongUsage
from shadowsnap.remote.lanes import Lane
from shadowsnap.remote.manifest import generate_key
from shadowsnap.remote.push import readable_note
from shadowsnap.remote.storage import normal_url
from shadowsnap.results import RemoteStatus, Resumed


class RemoteCommand(Command):
    """Choose where this project's timeline is kept besides here.

    `add NAME URL` sets the one remote of this project: a directory, s3://, gs://, az://, or a git server.
    Everything there is encrypted for the recipients (--to, age or SSH public keys), unless --plain. `list` shows
    the remotes of all projects, `status` what of this project is not pushed yet, `remove` forgets the remote (what
    is there stays there), and `keygen [FILE]` makes a pair of keys.
    """

    name = "remote"
    group = "other machines"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        choices = ("add", "list", "remove", "status", "keygen")
        parser.add_argument("what", choices=choices, nargs="?", default="status", help="what to do")
        parser.add_argument("name", metavar="NAME", nargs="?", help="a name for the remote; with keygen, a file")
        parser.add_argument("url", metavar="URL", nargs="?", help="with add: where it is")
        parser.add_argument(
            "--to", metavar="RECIPIENT", action="append", default=[], help="a public key that reads"
        )
        parser.add_argument("--plain", action="store_true", help="do not encrypt what is pushed")
        parser.add_argument("--conversations", action="store_true", help="push the kept conversations too")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.what != "add" and (args.url or args.to or args.plain or args.conversations):
            raise WrongUsage(why=f"remote {args.what} does not take an address or options")
        if args.what == "list" and args.name:
            raise WrongUsage(why="remote list does not take a name")
        return _ACTIONS[args.what](args, context)


def _add(args: argparse.Namespace, context: Context) -> int:
    if not args.name or not args.url:
        raise WrongUsage(why="remote add needs a NAME and a URL")
    url = normal_url(args.url, context.here)
    made = context.manager.set_remote(
        context.workdir, args.name, url, args.to, plain=args.plain, conversations=args.conversations
    )
    shown = context.manager.remote_status(context.workdir)[0]
    lines = [f"{safe(made.name)} is the remote of {safe(str(context.workdir))}: {safe(shown.url)}"]
    if made.plain:
        lines.append(f"warning: {safe(readable_note(made))}")
    else:
        readers = count(len(made.recipients), "recipient")
        lines.append(f"encrypted for {readers}; this machine needs no private key")
    if made.conditions:
        lines.append("two machines cannot overwrite each other's lanes there")
    else:
        lines.append(
            "a copy of this machine that pushes to the same lane at the same moment can replace the last push;"
            " the next push notices that"
        )
    return context.ui.answer({"remote": shown.to_dict()}, lines)


def _list(args: argparse.Namespace, context: Context) -> int:
    found = context.manager.remote_status()
    if not found:
        context.ui.say("no project has a remote")
    lines = [f"{safe(each.name)}  {safe(each.url)}  {safe(each.workdir)}" for each in found]
    return context.ui.answer({"remotes": [each.to_dict() for each in found]}, lines)


def _status(args: argparse.Namespace, context: Context) -> int:
    found = _remote_named(args, context)
    return context.ui.answer({"remote": found.to_dict()}, _status_lines(found))


def _remote_named(args: argparse.Namespace, context: Context) -> RemoteStatus:
    """The remote of this project. Raises WrongUsage if the command names another one."""
    found = context.manager.remote_status(context.workdir)
    if not found:
        raise NoRemote(workdir=context.workdir)
    if args.name not in (None, found[0].name):
        raise WrongUsage(why=f"the remote of this project is {found[0].name}, not {args.name}")
    return found[0]


def _status_lines(each: RemoteStatus) -> Iterator[str]:
    yield f"remote    {safe(each.name)}, {safe(each.url)}{' (not encrypted)' if each.plain else ''}"
    yield f"lane      {each.lane or 'begins with the first push'}"
    yield f"pushed    {ago(each.pushed_at) if each.pushed_at else 'not yet'}"
    yield f"state     {unpushed_text(each)}"


def _remove(args: argparse.Namespace, context: Context) -> int:
    gone = _remote_named(args, context)
    context.manager.remove_remote(context.workdir)
    line = f"{safe(gone.name)} is no remote of this project any more; what is at {safe(gone.url)} stays there"
    return context.ui.answer({"remote": gone.to_dict()}, line)


def _keygen(args: argparse.Namespace, context: Context) -> int:
    named = args.name and os.path.join(context.here, os.path.expanduser(args.name))
    path = Path(named) if named else default_key_file()
    public = generate_key(path)
    lines = [
        f"public key   {public}",
        f"private key  {safe(str(path))}",
        "give the public key to every machine that pushes: shadowsnap remote add NAME URL --to KEY",
        "keep a copy of the private key: nothing can be read without it",
    ]
    return context.ui.answer({"public_key": public, "path": str(path)}, lines)


_ACTIONS = {"add": _add, "list": _list, "remove": _remove, "status": _status, "keygen": _keygen}


class PushCommand(Command):
    """Push this project's timeline to its remote.

    What is new since the last push goes there: the log and the checkpoints that are kept. "pushed" is printed
    after it was read back. With `sync = true` in the settings this happens by itself after turns.
    """

    name = "push"
    group = "other machines"

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        with working(ui, "pushing"):
            report = context.manager.push(context.workdir)
        for text in report.notes:
            ui.say(safe(text))
        held = f"{count(report.checkpoints, 'checkpoint')}, {count(report.turns, 'turn')}"
        if report.status == "pushed":
            line = f"pushed to {safe(report.remote)}: {held}, {size(report.bytes)} sent"
        else:
            line = f"up to date: {safe(report.remote)} has {held}"
        return ui.answer(report.to_dict(), [line, f"lane {report.lane}"])


class PullCommand(Command):
    """Get the timelines of other machines from this project's remote.

    Everything is checked before any of it is used. `list` shows what was pulled, under the name of each machine;
    nothing here changes, and undo, revert and prune do not touch it. `resume` restores from it.
    """

    name = "pull"
    group = "other machines"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("lanes", metavar="LANE", nargs="*", help="only these lanes, of whatever project")
        add_key_option(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        with working(ui, "pulling"):
            reports = context.manager.pull(context.workdir, args.lanes, key_file(args, context))
        if not reports:
            ui.say("no other machine has pushed this project there")
        lines = []
        for each in reports:
            if each.status == "unreadable":
                lines.append(f"{each.lane}  is not encrypted for this key")
                continue
            new = f"{size(each.bytes)} fetched" if each.status == "pulled" else "up to date"
            lines.append(f"{each.lane}  {safe(each.machine)}: {count(each.checkpoints, 'checkpoint')}, {new}")
        return ui.answer({"pulled": [each.to_dict() for each in reports]}, lines)


class LanesCommand(Command):
    """List the lanes at a remote: whose work is there, how old it is.

    URL is the address of a remote; without it, this project's. It works in any directory. Encrypted lanes show
    their names only with the key that opens them.
    """

    name = "lanes"
    group = "other machines"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("url", metavar="URL", nargs="?", help="the address of a remote")
        add_key_option(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        url = None if args.url is None else normal_url(args.url, context.here)
        with working(ui, "listing lanes"):
            lanes = context.manager.lanes(url, context.workdir, key_file(args, context))
        if not lanes:
            ui.say("there are no lanes there")
        elif hidden := sum(not each.readable for each in lanes):
            ui.say(f"{count(hidden, 'lane')} cannot be read without the key: only ids are shown (--key FILE)")
        return ui.answer({"lanes": [each.to_dict() for each in lanes]}, _lane_rows(lanes))


def _lane_rows(lanes: list[Lane]) -> Iterator[str]:
    names = [(cut(safe(each.project), 24), cut(safe(each.machine), 20)) for each in lanes]
    wide = [max((len(row[column]) for row in names), default=0) for column in (0, 1)]
    for each, (project, machine) in zip(lanes, names, strict=True):
        newest = age(each.newest_at) if each.newest_at else "?"
        facts = f"{newest:>9}  {count(each.turns, 'turn'):>9}  {size(each.bytes):>8}"
        yield f"{pad(project, wide[0])}  {pad(machine, wide[1])}  {facts}  {each.lane}"


def add_key_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--key", metavar="FILE", help="the file with your private key (the one of remote keygen)")


def key_file(args: argparse.Namespace, context: Context) -> Path | None:
    """The file named by --key, or else the one of `remote keygen` if it exists."""
    if args.key is not None:
        return Path(os.path.join(context.here, os.path.expanduser(args.key)))
    return usual if (usual := default_key_file()).exists() else None


def default_key_file() -> Path:
    return Path(config_file()).with_name("key.txt")


_MOST_SHOWN = 20


class ResumeCommand(Command):
    """Restore the last safe state of another machine and go on with it.

    LANE is an id from `lanes`, a part of it, or the name of its machine. In a checkout of the same project the
    files are restored here: the plan is shown, what is there is saved first, and undo takes it back. Elsewhere a
    new directory is made. DIR names another place. From then on this project has a lane of its own, which knows
    where it came from. If the lane carries conversations, the last one is put where its agent can go on with it.
    """

    name = "resume"
    group = "other machines"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("lane", metavar="LANE", help="the lane: its id, a part of it, or its machine")
        parser.add_argument("directory_to_fill", metavar="DIR", nargs="?", help="where to restore to")
        parser.add_argument("--remote", metavar="URL", help="where the lane is; this project's remote if left out")
        add_key_option(parser)
        add_plan_options(parser)

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        if args.dry_run or not args.yes:
            plan = _resume(args, context, dry_run=True)
            handover = _hand_over(plan, dry_run=True)
            if args.dry_run:
                return ui.answer(_answer(plan, handover, dry_run=True), _plan_lines(plan, handover))
            if not _confirm(plan, handover, context):
                return ui.cancelled()
        with interrupt_safely():
            done = _resume(args, context, dry_run=False)
            handover = _hand_over(done, dry_run=False)
        if done.result.note:
            ui.say(safe(done.result.note))
        if not context.manager.remote_status(done.workdir):
            ui.say("this directory has no remote yet: nothing is pushed from it before remote add sets one")
        return ui.answer(_answer(done, handover), _done_lines(done, handover))


def _answer(plan: Resumed, handover: Handover | None, **more: bool) -> dict[str, Any]:
    return {**plan.to_dict(), "handover": None if handover is None else handover.to_dict(), **more}


def _hand_over(plan: Resumed, *, dry_run: bool) -> Handover | None:
    if plan.conversation is None:
        return None
    return hand_over(plan.agent, plan.conversation, plan.workdir, dry_run=dry_run)


def _resume(args: argparse.Namespace, context: Context, *, dry_run: bool) -> Resumed:
    folder = args.directory_to_fill
    with working(context.ui, "fetching the lane"):
        return context.manager.resume(
            args.lane,
            None if folder is None else os.path.join(context.here, os.path.expanduser(folder)),
            url=None if args.remote is None else normal_url(args.remote, context.here),
            working_dir=context.workdir,
            key=key_file(args, context),
            dry_run=dry_run,
        )


def _confirm(plan: Resumed, handover: Handover | None, context: Context) -> bool:
    result = plan.result
    if plan.new or not (result.written or result.deleted):
        return True  # nothing is overwritten
    if not context.ui.interactive:
        would = f"this would write {count(len(result.written), 'path')} and delete {len(result.deleted)}"
        raise NotConfirmed(why=f"{would} in {plan.workdir}, and there is no terminal to ask on")
    for line in _plan_lines(plan, handover):
        context.ui.say(line)
    return context.ui.ask("go ahead? [y]es [N]o ").lower() in ("y", "yes")


def _plan_lines(plan: Resumed, handover: Handover | None) -> Iterator[str]:
    yield f"resume {_state_text(plan)} in {safe(plan.workdir)}{' (a new directory)' if plan.new else ''}"
    for verb, paths in (("written", plan.result.written), ("deleted", plan.result.deleted)):
        yield from (f"  is {verb}  {safe(path)}" for path in paths[:_MOST_SHOWN])
        if len(paths) > _MOST_SHOWN:
            yield f"  is {verb}  ... and {len(paths) - _MOST_SHOWN} more"
    yield from _fact_lines(plan)
    if handover is not None and handover.command is not None:
        yield f"its conversation goes to {safe(str(handover.path))}"
    elif handover is not None:
        yield f"its conversation cannot be continued here: {safe(handover.why)}"


def _done_lines(done: Resumed, handover: Handover | None) -> Iterator[str]:
    yield f"resumed {_state_text(done)} in {safe(done.workdir)}: {result_counts(done.result)}"
    yield from _fact_lines(done)
    where = shlex.quote(done.workdir)
    if handover is not None:
        if handover.command is not None:
            yield f"to go on with the conversation: cd {where} && {safe(handover.command)}"
        else:
            yield f"its conversation cannot be continued here: {safe(handover.why)}"
        session = one_line(shlex.quote(handover.session_id))
        yield f"to read the conversation: shadowsnap -C {where} sessions show {session} --chat"
    if done.result.undo_id:
        yield f"to take it back: shadowsnap -C {where} undo"


def _state_text(plan: Resumed) -> str:
    return f"{safe(plan.project)} from {safe(plan.machine)}, {one_line(plan.state)} ({ago(plan.captured_at)})"


def _fact_lines(plan: Resumed) -> Iterator[str]:
    """What the state does not hold, and the commit that it is based on."""
    if plan.missing:
        reasons = Counter(item.why for item in plan.missing)
        counted = ", ".join(f"{number} {why}" for why, number in sorted(reasons.items()))
        shown = ", ".join(one_line(item.path) for item in plan.missing[:5])
        yield f"not in it: {counted} ({shown}{' ...' if len(plan.missing) > 5 else ''}), and what is ignored there"
    else:
        yield "not in it: what is ignored there"
    if plan.commit:
        branch = f" ({safe(plan.branch)})" if plan.branch else ""
        yield f"based on commit {safe(plan.commit[:12])}{branch}"
        if plan.commit_here and plan.commit_here != plan.commit:
            yield f"this checkout is at {safe(plan.commit_here[:12])}: its history was not touched"
        elif plan.new:
            yield "the repository itself is not part of a lane: clone it if you need its history"
