"""Show one turn, snapshot or state in full.

For a turn: what was asked, by which agent and session, when and how long, the tools that ran, the files it
changed (-p: the patch), what was not captured, what else it did that no rollback takes back, and the commands
to go back, take it out, or look closer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.states import diff_of_entry, entry_of
from shadowsnap.cli.tables import change_lines, duration_text, moment_text, patch_lines, prompt_of
from shadowsnap.cli.text import one_line, safe

if TYPE_CHECKING:
    from shadowsnap.cli.ui import Ui
    from shadowsnap.model import Change, Checkpoint, Diff, Entry

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="a number of the list, last, a label, or an id")
    parser.add_argument("-p", "--patch", action="store_true", help="also the text of the changes")
    parser.add_argument("--chat", action="store_true", help="print the conversation that is kept with it instead")
    parser.add_argument("-o", "--output", metavar="FILE", help="with --chat: write it to a file")


def run(args: argparse.Namespace, context: Context) -> int:
    if args.chat:
        from shadowsnap.cli.commands.sessions import print_conversation

        return print_conversation(args.ref, args.output, context)
    entry = _entry(args.ref, context)
    return _show_entry(entry, args, context) if entry is not None else _show_checkpoint(args, context)


def _entry(word: str, context: Context) -> Entry | None:
    """The turn or snapshot that a number, `last` or a label stands for; None for another state."""
    target = context.checkpoint(word)
    named = word.isdigit() or word == "last" or word.startswith("last~") or word == target.label
    return entry_of(word, target, context.manager.timeline(context.workdir)) if named else None


def _show_entry(entry: Entry, args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.timeline import lasting_effects

    ui, manager = context.ui, context.manager
    state = manager.get(context.workdir, entry)
    files = [] if state.scope == "tree" else manager.files(context.workdir, state.id)
    diff = diff_of_entry(manager, context.workdir, entry)
    tools = manager.tools_of(context.workdir, entry.number) if entry.kind == "turn" and entry.number else []
    effects = lasting_effects(tools)
    data = {
        "entry": entry.to_dict(),
        "changes": [change.to_dict() for change in diff.changes] if diff is not None else [],
        "files": files,
        "tools": [{"tool": each[0], "about": each[1]} for each in tools if len(each) == 2],
        "not_taken_back": effects,
    }
    if args.patch:
        data["patch"] = diff.text if diff is not None else ""
    lines = [*_heading(entry, state), *_asked(entry), *_tools(tools), *_changes(entry, diff, files, ui)]
    lines += _not_captured(entry)
    if effects:
        lines += ["", "what may have gone beyond this directory, and no rollback takes back:"]
        lines += [f"  {safe(effect)}" for effect in effects]
    lines += ["", *_commands(entry, context)]
    if args.patch and diff is not None and diff.text:
        lines += ["", *patch_lines(diff.text, ui.ink)]
    return ui.answer(data, lines)


def _changes(entry: Entry, diff: Diff | None, files: list[str], ui: Ui) -> Iterator[str]:
    if diff is not None and diff.changes:
        yield ""
        yield from change_lines(diff.changes, ui.width, ui.ink)
    elif diff is not None:
        yield from ("", "no file was changed")
    elif files:
        yield from ("", "only these files were captured:", *(f"  {safe(path)}" for path in files))
    elif entry.kind == "turn":
        yield from ("", "how it left the files is not known: it was never closed")


def _heading(entry: Entry, state: Checkpoint) -> Iterator[str]:
    name = "turn" if entry.kind == "turn" else "snapshot"
    status = f" ({entry.status})" if entry.status and entry.status != "done" else ""
    yield f"{name} {entry.number}{status}"
    if entry.began_at is not None:
        took = ""
        if entry.ended_at is not None and entry.kind == "turn":
            took = f", took {duration_text(entry.began_at, entry.ended_at)}"
        yield f"when      {moment_text(entry.began_at)}{took}"
    for label, value in (("agent", entry.agent), ("session", entry.session_id), ("label", entry.label)):
        if value:
            yield f"{label:9} {one_line(str(value))}"
    if entry.pinned:
        yield "pinned    yes"
    for label, value in (("before", entry.before), ("after", entry.after)):
        if value:
            yield f"{label:9} {value[:12]}"
    yield from (f"{label:9} {value}" for label, value in _git_facts(state))


def _asked(entry: Entry) -> Iterator[str]:
    text = entry.prompt or entry.reason
    if text:
        yield ""
        yield from (f"    {safe(line, keep=chr(9))}" for line in text.splitlines())


def _tools(tools: list[list[str]]) -> Iterator[str]:
    if tools:
        yield ""
        yield "tools:"
        yield from ("  " + "  ".join(map(safe, each)).rstrip() for each in tools)


def _not_captured(entry: Entry) -> Iterator[str]:
    if entry.skipped:
        yield ""
        yield "not captured:"
        yield from (f"  {safe(item.path)} ({item.why})" for item in entry.skipped)


def _commands(entry: Entry, context: Context) -> Iterator[str]:
    number = str(entry.number)
    if entry.kind == "turn":
        yield f"go back to before it:  {context.line('restore', number)}"
        yield f"take out only this:    {context.line('revert', number)}"
        yield f"look closer:           {context.line('diff', number)}"
    else:
        yield f"go back to it:         {context.line('restore', number)}"
        yield f"what changed since:    {context.line('diff', number)}"


# --- a raw state -------------------------------------------------------------------------------------


def _show_checkpoint(args: argparse.Namespace, context: Context) -> int:
    checkpoint = context.checkpoint(args.ref)
    listed = context.manager.list_checkpoints(context.workdir)
    position = next((at for at, each in enumerate(listed) if each.id == checkpoint.id), None)
    changes: tuple[Change, ...] = ()
    files: list[str] | None = None
    if position is not None:
        checkpoint = listed[position]
    if checkpoint.scope == "paths":
        files = context.manager.files(context.workdir, checkpoint.id)
    elif position is not None:
        before = next((each for each in listed[position + 1 :] if each.scope == "tree"), None)
        if before is not None:
            changes = context.manager.diff(context.workdir, before.id, checkpoint.id).changes
    data = {
        "checkpoint": checkpoint.to_dict(),
        "changes": [change.to_dict() for change in changes],
        "files": files or [],
    }
    return context.ui.answer(data, _checkpoint_text(checkpoint, changes, files, context))


def _checkpoint_text(
    checkpoint: Checkpoint, changes: tuple[Change, ...], files: list[str] | None, context: Context
) -> Iterator[str]:
    ui = context.ui
    yield f"checkpoint {ui.ink('yellow', checkpoint.id)}"
    for name, value in _facts(checkpoint):
        yield f"{name:9} {value}"
    yield ""
    about = prompt_of(checkpoint) or checkpoint.reason
    yield from (f"    {safe(line, keep=chr(9))}" for line in about.splitlines())
    if changes:
        yield ""
        yield from change_lines(changes, ui.width, ui.ink)
    if files is not None:
        yield ""
        yield from (f"  {safe(path)}" for path in files)
    if checkpoint.skipped:
        yield ""
        yield "not captured:"
        yield from (f"  {safe(item.path)} ({item.why})" for item in checkpoint.skipped)


def _facts(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    yield "taken", moment_text(checkpoint.created_at)
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
    yield from _git_facts(checkpoint)


def _git_facts(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Where the person's own repository was."""
    head, branch = (checkpoint.metadata.get(name) for name in ("git_head", "git_branch"))
    if head or branch:
        yield "git", one_line(f"{str(head or 'no commit')[:12]}{f' on {branch}' if branch else ''}")
