"""Show one checkpoint.

When and why it was taken, what it changed against the one before it, and what it did not capture.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.tables import change_lines, prompt_of
from shadowsnap.cli.text import ago, one_line, safe

if TYPE_CHECKING:
    from shadowsnap.model import Change, Checkpoint

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="ID", help="the checkpoint")


def run(args: argparse.Namespace, context: Context) -> int:
    checkpoint = context.checkpoint(args.ref)
    timeline = context.manager.list_checkpoints(context.workdir)
    position = next((at for at, each in enumerate(timeline) if each.id == checkpoint.id), None)
    changes: tuple[Change, ...] | None = None
    files: list[str] | None = None
    if position is not None:
        checkpoint = timeline[position]
    if checkpoint.scope == "paths":
        files = context.manager.files(context.workdir, checkpoint.id)
    elif position is not None:
        before = next((each for each in timeline[position + 1 :] if each.scope == "tree"), None)
        if before is not None:
            changes = context.manager.diff(context.workdir, before.id, checkpoint.id).changes
    data = {
        "checkpoint": checkpoint.to_dict(),
        "number": None if position is None else position + 1,
        "changes": None if changes is None else [change.to_dict() for change in changes],
        "files": files,
    }
    return context.ui.answer(data, _lines(checkpoint, changes, files, context))


def _lines(
    checkpoint: Checkpoint, changes: tuple[Change, ...] | None, files: list[str] | None, context: Context
) -> Iterator[str]:
    ui = context.ui
    yield f"checkpoint {ui.ink('yellow', checkpoint.id)}"
    for name, value in _facts(checkpoint):
        yield f"{name:9} {value}"
    yield ""
    yield from _indented(checkpoint.reason)
    if prompt := prompt_of(checkpoint):
        yield ""
        yield "asked for:"
        yield from _indented(prompt)
    if changes is not None:
        yield ""
        yield from change_lines(changes, ui.width, ui.ink) if changes else ["no path differs from the one before"]
    if files is not None:
        yield ""
        yield from (f"  {safe(path)}" for path in files)
    if checkpoint.skipped:
        yield ""
        yield "not captured:"
        yield from (f"  {safe(item.path)} ({item.why})" for item in checkpoint.skipped)


def _indented(text: str) -> Iterator[str]:
    yield from (f"    {safe(line, keep=chr(9))}" for line in text.splitlines())


def _facts(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    told = checkpoint.metadata
    yield "taken", f"{checkpoint.created_at.astimezone():%Y-%m-%d %H:%M:%S} ({ago(checkpoint.created_at)})"
    yield "of", one_line(checkpoint.workdir)
    yield "kind", checkpoint.kind + (f", turn {checkpoint.turn}" if checkpoint.turn else "")
    if checkpoint.scope == "paths":
        yield "holds", "only the files below, not the whole directory"
    if checkpoint.label:
        yield "label", one_line(checkpoint.label)
    if checkpoint.pinned:
        yield "pinned", "yes"
    if checkpoint.session_id:
        yield "session", one_line(str(checkpoint.session_id))
    if checkpoint.tool:
        yield "tool", one_line(str(checkpoint.tool))
    if told.get("git_head") or told.get("git_branch"):
        where = f" on {told['git_branch']}" if told.get("git_branch") else ""
        yield "git", one_line(f"{str(told.get('git_head') or 'no commit')[:12]}{where}")
