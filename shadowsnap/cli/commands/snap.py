"""Take a checkpoint of the project now.

The whole directory is captured. Each PATH is captured even if it is ignored; a directory
stands for every file in it. If nothing changed since the newest checkpoint, none is taken.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import changed, changes_of, described
from shadowsnap.cli.text import ago, safe
from shadowsnap.errors import DirectoryRefused

if TYPE_CHECKING:
    from shadowsnap.model import Checkpoint, Entry, Outcome

GROUP = "taking and looking"

_WORDS = {"disabled": "nothing was taken: shadowsnap is disabled by its settings"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", dest="reason", metavar="REASON", default="manual", help="what it is taken for")
    parser.add_argument("paths", metavar="PATH", nargs="*", help="capture this too, though it is ignored")


def run(args: argparse.Namespace, context: Context) -> int:
    with context.working("taking a snapshot"):
        outcome = context.manager.snapshot(context.workdir, args.reason, paths=list(_files(args.paths, context)))
    if outcome.note:
        context.ui.say(safe(outcome.note))
    checkpoint = _with_statistics(outcome.checkpoint, context)
    # Named files of a directory that is too broad are all that was asked for; if time ran out, they are not.
    complete = outcome.error is None or isinstance(outcome.error, DirectoryRefused)
    done = complete and outcome.status != "disabled"
    named = {os.path.normpath(context.path(word)) for word in args.paths}
    lacking = [item for item in outcome.skipped if item.path.rstrip("/") in named]
    data = {**outcome.to_dict(), **({"checkpoint": checkpoint.to_dict()} if checkpoint else {})}
    lines = _lines(outcome, checkpoint, _entry(checkpoint, context))
    for item in lacking:
        context.ui.say(f"{context.ui.talk_ink('red', 'error:')} {safe(item.path)} was NOT captured: {item.why}")
    return context.ui.answer(data, lines, code=4 if lacking else 0 if done else 1)


def _with_statistics(checkpoint: Checkpoint | None, context: Context) -> Checkpoint | None:
    """As it stands in the list, with what it changed; that is the newest, unless others are at work."""
    newest = context.manager.list_checkpoints(context.workdir, limit=1) if checkpoint else []
    return newest[0] if checkpoint and newest and newest[0].id == checkpoint.id else checkpoint


def _entry(checkpoint: Checkpoint | None, context: Context) -> Entry | None:
    """The snapshot in the timeline; None if the state was already held by a turn."""
    if checkpoint is None:
        return None
    entries = context.manager.timeline(context.workdir)
    return next((each for each in entries if each.kind == "snapshot" and each.after == checkpoint.id), None)


def _files(words: list[str], context: Context) -> Iterator[str]:
    for word in words:
        path = os.path.join(context.here, word)
        if not os.path.lexists(path):
            context.ui.say(f"warning: {safe(word)} does not exist")
        folder = os.path.realpath(path)
        if folder == str(context.workdir):
            continue  # it is captured anyway, by its own rules
        if os.path.isdir(path) and not os.path.islink(path) and context.holds(folder):
            yield from _files_below(folder, context)
        else:
            yield context.path(word)


def _files_below(top: str, context: Context) -> Iterator[str]:
    for folder, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        folders[:] = [name for name in folders if name.lower() != ".git"]
        for name in (*files, *links):
            if name.lower() != ".git":
                yield os.path.relpath(os.path.join(folder, name), context.workdir)


def _lines(outcome: Outcome, checkpoint: Checkpoint | None, entry: Entry | None) -> list[str]:
    if checkpoint is None:
        return [_WORDS.get(outcome.status, outcome.status)]
    name = f"snapshot {entry.number}" if entry is not None else f"state {checkpoint.short_id}"
    if outcome.status == "unchanged":
        lines = [f"nothing changed since {name}, {ago(checkpoint.created_at)}: {described(checkpoint)}"]
    else:
        # The list counts against the newest known state, which is not always the checkpoint before it.
        facts = (f"took {name}", described(checkpoint), changes_of(entry) if entry else changed(checkpoint))
        lines = ["  ".join(part for part in facts if part)]
    if outcome.error is not None:
        lines.append(f"  only the named files: {safe(str(outcome.error))}")
    return lines + [f"  not captured: {safe(item.path)} ({item.why})" for item in outcome.skipped]
