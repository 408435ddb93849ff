"""Rows that commands show: the timeline, checkpoints, changed paths, patches, plans; and names of states."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from shadowsnap.cli.commands import Context
from shadowsnap.cli.text import age, ago, columns, count, cut, cut_path, one_line, pad, safe
from shadowsnap.cli.ui import Ink
from shadowsnap.errors import NoSuchPath, NotCaptured, WrongUsage
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import TAKEN_BACK, Change, Checkpoint, Diff, Entry, Kept, Now, RestoreResult
from shadowsnap.results import RemoteStatus
from shadowsnap.store.checkpoints import LAST

_LEAST_TEXT = 12
_LEAST_PATH = 20
_MOST_SHOWN = 20
"""Paths of each kind that are shown of a plan."""
NO_PROMPT = "(no prompt)"
_NUMBER = 3
_AGE = 8
_STATUS_SHOWN = ("running", "interrupted", *TAKEN_BACK)
_MARKS = {
    "added": ("A", "green"),
    "deleted": ("D", "red"),
    "modified": ("M", "yellow"),
    "typechange": ("T", "cyan"),
}
_IN_HUNK = {"+": "green", "-": "red", "@": "cyan"}


# --- the timeline ------------------------------------------------------------------------------------


def timeline_lines(
    entries: Sequence[Entry],
    now: Now | None,
    width: int,
    ink: Ink,
    sessions: Mapping[str, str] | None = None,
    changes: Callable[[Entry], str] | None = None,
) -> list[str]:
    """`@` (the files as they are), then a line for each entry, newest first. `sessions` has short ids, which are
    shown if there are several; `changes` makes the end of a line, by default what the entry changed."""
    ends = [(changes or entry_changes)(entry) for entry in entries]
    shown = sessions or {}
    several = len({entry.session_id for entry in entries if entry.session_id}) > 1
    names = [one_line(shown.get(entry.session_id or "", "")) if several else "" for entry in entries]
    ages = [_when(entry) for entry in entries]
    number = max([_NUMBER, *(len(str(entry.number)) for entry in entries if entry.number)])
    when, end, name = (max([0, *map(columns, texts)]) for texts in (ages, ends, names))
    when = max(when, _AGE)
    right = sum(size + 2 for size in (end, name) if size)
    room = max(_LEAST_TEXT, width - number - when - 4 - right)
    lines = [] if now is None else [f"{ink('bold', '@'.rjust(number))}  {'':{when}}  now  {now_text(now)}"]
    for entry, age_text, change, session in zip(entries, ages, ends, names, strict=True):
        mark = str(entry.number) if entry.number is not None else "."
        text = _styled(entry, pad(cut(entry_text(entry), room), room), ink)
        counts = _coloured_counts(pad(change, end), ink)
        line = f"{mark:>{number}}  {ink('dim', pad(age_text, when))}  {text}  {counts}"
        lines.append((f"{line}  {ink('dim', session)}" if session else line).rstrip())
    return [cut(line, width) if not ink.on else line for line in lines]


def unpushed_text(remote: RemoteStatus) -> str:
    """What a remote does not have yet."""
    text = "everything is pushed"
    if remote.unpushed_since is not None:
        number, since = count(remote.unpushed, "checkpoint"), ago(remote.unpushed_since)
        text = f"{number} not pushed, the oldest from {since}"
    if remote.error:
        text += f"; {count(remote.attempts, 'attempt')} failed: {one_line(remote.error)}"
    return text


def now_text(now: Now) -> str:
    """How the files differ from the newest known state, in words."""
    if now.name is None:
        return "nothing is known of the files yet"
    if now.files_changed is None:
        return f"the files differ from {now.name}"
    if now.files_changed == 0 and now.changes:
        return f"only directories differ from {now.name}"
    if now.files_changed == 0:
        return f"the files are as at {now.name}"
    verb = "differs" if now.files_changed == 1 else "differ"
    return f"{count(now.files_changed, 'file')} {verb} from {now.name}"


def entry_text(entry: Entry) -> str:
    """The title of an entry: its prompt, its reason, or whose edits it is."""
    label = f"[{one_line(entry.label)}] " if entry.label else ""
    pinned = "(pinned) " if entry.pinned else ""
    status = f"({entry.status}) " if entry.status in _STATUS_SHOWN and entry.kind == "turn" else ""
    if entry.kind == "edits":
        text = f"({entry.reason or entry.whose})"
    elif entry.kind == "restore":
        text = f"({entry.reason})"
    else:
        text = entry_about(entry)
    return f"{label}{pinned}{status}{text}"


def entry_about(entry: Entry) -> str:
    """What was asked in a turn, or why a snapshot was taken."""
    return one_line(entry.prompt or "") or (NO_PROMPT if entry.kind == "turn" else one_line(entry.reason))


def entry_changes(entry: Entry) -> str:
    """`2 files, +12 -1`, `2 files deleted`, or `no changes`."""
    files, more, less = entry.files_changed, entry.insertions or 0, entry.deletions or 0
    if files is None:
        return ""
    if files == 0:
        return "no changes"
    if entry.files_deleted == files:
        return f"{count(files, 'file')} deleted"
    return _counts_text(files, more, less)


def _counts_text(files: int, more: int, less: int) -> str:
    signs = [f"+{more}" if more else "", f"-{less}" if less else ""]
    return ", ".join(part for part in (count(files, "file"), " ".join(filter(None, signs))) if part)


def going_back_text(entry: Entry) -> str:
    """`2 back, 1 overwritten, 1 deleted`: what going back would do, of an entry of `ways_back`."""
    if entry.files_changed is None:
        return ""
    back, gone = entry.files_added or 0, entry.files_deleted or 0
    parts = ((back, "back"), (entry.files_changed - back - gone, "overwritten"), (gone, "deleted"))
    return ", ".join(f"{number} {what}" for number, what in parts if number) or "as now"


def _when(entry: Entry) -> str:
    """`  2 min `, with the number aligned to the right."""
    moment = entry_moment(entry)
    number, _, unit = (age(moment) if moment is not None else "").partition(" ")
    return f"{number:>3} {unit:<4}"


def entry_moment(entry: Entry) -> datetime | None:
    """When an entry began; of edits only the end is known, because they were seen then."""
    return entry.ended_at if entry.kind == "edits" else entry.began_at


def _styled(entry: Entry, text: str, ink: Ink) -> str:
    if entry.kind in ("edits", "restore") or entry.status in TAKEN_BACK:
        return ink("dim", text)
    return ink("cyan", text) if entry.label else text


def _coloured_counts(text: str, ink: Ink) -> str:
    styles = {"+": "green", "-": "red"}
    return " ".join(ink(styles[word[0]], word) if word and word[0] in styles else word for word in text.split(" "))


# --- raw checkpoints ---------------------------------------------------------------------------------


def checkpoint_lines(checkpoints: Sequence[Checkpoint], width: int, ink: Ink) -> list[str]:
    """One line for each: id, age, title, kind, what changed since the one before it, pin."""
    rows = aligned([(age(each.created_at), each.kind, checkpoint_changes(each)) for each in checkpoints])
    lines = []
    for each, (when, kind, change) in zip(checkpoints, rows, strict=True):
        room = max(_LEAST_TEXT, width - 24 - columns(when + kind + change))
        parts = [ink("yellow", each.short_id), ink("dim", when), pad(cut(checkpoint_title(each), room), room)]
        parts += [ink("dim", kind), _coloured_counts(change, ink), ink("magenta", "pinned") if each.pinned else ""]
        lines.append("  ".join(part for part in parts if part).rstrip())
    return [cut(line, width) if not ink.on else line for line in lines]


def aligned(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The same rows, with the cells of each column padded to one width."""
    wide = [max(map(columns, cells)) for cells in zip(*rows, strict=True)]
    return [[pad(cell, size) for cell, size in zip(row, wide, strict=True)] for row in rows]


def checkpoint_changes(checkpoint: Checkpoint) -> str:
    """`2 files, +12 -3`, against the checkpoint before it."""
    if checkpoint.scope == "paths":
        return "named files only"
    files, more, less = checkpoint.files_changed, checkpoint.insertions, checkpoint.deletions
    if files is None:
        return ""
    return "no changes" if files == 0 else _counts_text(files, more or 0, less or 0)


def checkpoint_title(checkpoint: Checkpoint) -> str:
    """The label of a checkpoint, which turn it is the state before, and its prompt or else its reason."""
    label = f"[{one_line(checkpoint.label)}] " if checkpoint.label else ""
    place = f"before turn {checkpoint.turn}: " if checkpoint.kind == "turn" and checkpoint.turn else ""
    return label + place + one_line(prompt_of(checkpoint) or checkpoint.reason)


def prompt_of(checkpoint: Checkpoint) -> str:
    prompt = checkpoint.metadata.get("prompt")
    return prompt if isinstance(prompt, str) and checkpoint.kind == "turn" else ""


# --- changed paths -----------------------------------------------------------------------------------


def change_lines(changes: Sequence[Change], width: int, ink: Ink) -> Iterator[str]:
    """One line per path, then the totals."""
    if not changes:
        return
    numbers = [line_counts(change) for change in changes]
    room = max(_LEAST_PATH, width - max(map(len, numbers)) - 6)
    paths = aligned([[cut_path(safe(change.path), room)] for change in changes])
    for change, (path,), lines in zip(changes, paths, numbers, strict=True):
        mark, style = path_mark(change)
        yield f"  {ink(style, mark)} {path}  {lines}".rstrip()
    more = sum(change.insertions or 0 for change in changes)
    less = sum(change.deletions or 0 for change in changes)
    yield f"  {count(len(changes), 'path')}, +{more} -{less}"


def path_mark(change: Change) -> tuple[str, str]:
    """A letter for what happened to a path, and its colour."""
    return _MARKS.get(change.status, ("?", "dim"))


def line_counts(change: Change) -> str:
    """`+2 -1`, `binary` or `directory`."""
    if change.insertions is None or change.deletions is None:
        return "binary"
    if change.path.endswith("/"):
        return "directory"
    return f"+{change.insertions} -{change.deletions}"


def patch_lines(text: str, ink: Ink) -> Iterator[str]:
    """The lines of a patch, safe and coloured."""
    inside = False
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith(("diff --git ", "diff --permissions ")):
            inside = False
        elif line.startswith("@@"):
            inside = True
        style = _IN_HUNK.get(line[:1]) if inside else "bold"
        shown = safe(line, keep="\t")
        yield ink(style, shown) if style else shown


def moment_text(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S} ({ago(moment)})"


def duration_text(began: datetime, ended: datetime) -> str:
    seconds = max(0, int((ended - began).total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


# --- plans and results ----------------------------------------------------------------------


def plan_lines(plan: RestoreResult, context: Context, ink: Ink) -> Iterator[str]:
    """One line per path that comes back, is overwritten, is deleted, or is kept and why; then the totals."""
    counts = {change.path: line_counts(change) for change in plan.changes}
    rows = []
    for verb, style, paths in _paths_by_effect(plan, context):
        rows += [(verb, style, safe(path), why or counts.get(path, "")) for path, why in paths[:_MOST_SHOWN]]
        if len(paths) > _MOST_SHOWN:
            rows.append((verb, style, f"... and {len(paths) - _MOST_SHOWN} more", ""))
    room = max(_LEAST_PATH, context.ui.width - max((columns(end) for *_, end in rows), default=0) - 20)
    names = aligned([[cut_path(path, room)] for _, _, path, _ in rows])
    for (verb, style, _, end), (name,) in zip(rows, names, strict=True):
        yield f"  {ink(style, f'{verb:14}')}  {name}  {end}".rstrip()
    yield f"  {plan_counts(plan, context)}"


_Paths = list[tuple[str, str]]
"""Paths, and why each is left as it is."""


def _paths_by_effect(plan: RestoreResult, context: Context) -> list[tuple[str, str, _Paths]]:
    """Paths by what happens to them. A written path that exists now is overwritten."""
    new: _Paths = []
    over: _Paths = []
    for path in plan.written:
        there = os.path.lexists(os.path.join(context.workdir, path.rstrip("/")))
        (over if there else new).append((path, ""))
    return [
        ("comes back", "green", new),
        ("is overwritten", "yellow", over),
        ("is deleted", "red", [(path, "") for path in plan.deleted]),
        ("is kept", "dim", [(kept.path, f"({kept.why})") for kept in plan.kept]),
        ("conflict", "yellow", [(kept.path, f"({kept.why})") for kept in plan.conflicts]),
    ]


def plan_counts(plan: RestoreResult, context: Context) -> str:
    numbers = {verb: len(paths) for verb, _, paths in _paths_by_effect(plan, context)}
    parts = [f"{numbers[verb]} {verb.split()[-1]}" for verb in list(numbers)[:4] if numbers[verb]]
    parts += [count(len(plan.conflicts), "conflict")] if plan.conflicts else []
    if not (plan.written or plan.deleted or plan.conflicts):
        parts.insert(0, "nothing would change")
    return ", ".join(parts)


def result_lines(result: RestoreResult, plan: RestoreResult | None) -> list[str]:
    """The paths that were changed or kept; none if the plan was shown and nothing else happened."""
    if plan is not None and (plan.written, plan.deleted) == (result.written, result.deleted):
        return (
            [] if result.written or result.deleted else [f"  kept     {_kept_text(kept)}" for kept in result.kept]
        )
    parts = (
        ("wrote", [safe(path) for path in result.written]),
        ("deleted", [safe(path) for path in result.deleted]),
        ("kept", [_kept_text(kept) for kept in result.kept]),
        ("conflict", [_kept_text(kept) for kept in result.conflicts]),
    )
    lines = []
    for verb, paths in parts:
        lines += [f"  {verb:8} {path}" for path in paths[:_MOST_SHOWN]]
        if len(paths) > _MOST_SHOWN:
            lines.append(f"  {verb:8} ... and {len(paths) - _MOST_SHOWN} more (--json has all)")
    return lines


def _kept_text(kept: Kept) -> str:
    return f"{safe(kept.path)} ({kept.why})"


def result_counts(result: RestoreResult) -> str:
    """`2 files written, 1 deleted, 1 kept`."""
    numbers = ((len(result.written), "written"), (len(result.deleted), "deleted"), (len(result.kept), "kept"))
    parts = [f"{number} {verb}" for number, verb in numbers if number]
    if parts:
        number, _, verb = parts[0].partition(" ")
        parts[0] = f"{count(int(number), 'file')} {verb}"
    parts += [count(len(result.conflicts), "conflict")] if result.conflicts else []
    return ", ".join(parts) or "no file changed"


_INFINITIVES = {"took back": "take back", "brought back": "bring back", "took out": "take out"}


def result_title(verb: str, result: RestoreResult) -> str:
    """`took back turn 3: clean the project up`, or that it could not be done."""
    failed = bool(result.conflicts) and not (result.written or result.deleted)
    return f"{f'could not {_INFINITIVES[verb]}' if failed else verb} {one_line(result.what)}"


def conflicting_turn(result: RestoreResult) -> str | None:
    """The number of the turn that could not be taken out of some files, or None."""
    found = re.match(r"turn (\d+)", result.what) if result.conflicts else None
    return found[1] if found else None


def exchanged_lines(out: Sequence[Entry], back: Sequence[Entry], unseen: int) -> list[str]:
    """A line for each turn that a restore takes out of the files or brings back, and one for the person's own
    edits. `unseen`: how many files differ from the newest known state."""
    return [*_exchange_lines("takes out", out, unseen), *_exchange_lines("brings back", back, 0)]


def _exchange_lines(verb: str, entries: Sequence[Entry], unseen: int) -> Iterator[str]:
    for entry in (entry for entry in entries if entry.kind == "turn" and entry.files_changed != 0):
        yield f"{verb} turn {entry.number}: {entry_about(entry)}"
    own = [entry.files_changed or 0 for entry in entries if entry.kind in ("edits", "snapshot")]
    places = [files for files in (*own, unseen) if files]
    if places:
        # Which files they were is not known here, and the same one may have been edited in several places.
        number = f" ({count(places[0], 'file')})" if len(places) == 1 else ""
        yield f"{verb} your own edits{number}"


# --- names of states -------------------------------------------------------------------------------------


AFTER = ":after"
_SHORT_PATH = 30


def entry_of(word: str, target: Checkpoint, entries: Sequence[Entry]) -> Entry | None:
    """The turn or snapshot that a reference means; None if it is another state."""
    number = word.removesuffix(AFTER)
    numbered = [entry for entry in entries if entry.number is not None]
    if number.isascii() and number.isdigit():
        return next((entry for entry in numbered if entry.number == int(number)), None)
    if last := re.fullmatch(LAST, word):
        standing = [entry for entry in numbered if entry.status != "undone" and entry.state is not None]
        named = standing[int(last[1] or 0) :][:1]
        if named and named[0].state == target.id:
            return named[0]
    return next((entry for entry in numbered if entry.state == target.id), None)


def turn_of(word: str, target: Checkpoint, entries: Sequence[Entry]) -> Entry | None:
    """The turn that a reference means where turns are asked for: its number, `last`, or a label or an id of the
    state before it; None if it is another state."""
    entry = None if word.endswith(AFTER) else entry_of(word, target, entries)
    return entry if entry is not None and entry.kind == "turn" else None


def describe_state(word: str, target: Checkpoint, entries: Sequence[Entry]) -> tuple[str, str]:
    """The name of a state, and its prompt or reason: `before turn 3`, `clean the project up`."""
    entry = entry_of(word, target, entries)
    if entry is None:
        return f"state {target.short_id}", one_line(target.reason)
    about = entry_about(entry)
    if entry.kind == "snapshot":
        return f"snapshot {entry.number}", about
    place = "the end of turn" if word.endswith(AFTER) else "before turn"
    return f"{place} {entry.number}", about


def turn_number(manager: CheckpointManager, workdir: str | os.PathLike[str], word: str) -> int:
    """The number of the turn that a reference means."""
    if word.isascii() and word.isdigit():
        return int(word)  # also of a turn whose states are gone: then the operation says what is missing
    target = manager.get(workdir, word)
    entries = manager.timeline(workdir)
    entry = turn_of(word, target, entries)
    if entry is None or entry.number is None:
        hint = "give the number of a turn; shadowsnap list has them"
        raise WrongUsage(why=f"{word!r} is {state_name(word, target, entries)}, and no turn", hint=hint)
    return entry.number


def state_name(word: str, target: Checkpoint, entries: Sequence[Entry]) -> str:
    """The name of a state within a sentence: `the state before turn 3`."""
    name, _ = describe_state(word, target, entries)
    return f"the state {name}" if name.startswith("before ") else name


def diff_of_entry(manager: CheckpointManager, workdir: str | os.PathLike[str], entry: Entry) -> Diff | None:
    """What an entry changed, up to now if it is running; None if one of its two states is not known."""
    if entry.before is None or (entry.after is None and entry.status != "running"):
        return None
    if manager.get(workdir, entry).scope != "tree":
        return None
    return manager.diff(workdir, entry.before, entry.after)


def check_captured(
    manager: CheckpointManager,
    workdir: str | os.PathLike[str],
    target: Checkpoint,
    word: str,
    paths: Sequence[str],
) -> None:
    """Raise NotCaptured if a state does not hold one of these paths because it was not captured, and NoSuchPath if
    it is known nowhere."""
    state = state_name(word, target, manager.timeline(workdir))
    skipped = {item.path: item.why for item in target.skipped}
    named = {os.path.normpath(path): path for path in paths}
    for path in named:
        if path in skipped:
            raise NotCaptured(state=state, path=path, why=skipped[path])
    try:
        plan = manager.restore(workdir, target.id, paths, dry_run=True)
    except NoSuchPath as problem:
        hint = f"shadowsnap ls {shlex.quote(word)} lists its files"
        raise NoSuchPath(path=problem.facts["path"], ref=state, hint=hint) from problem
    for kept in plan.kept:
        if kept.path in named:
            raise NotCaptured(state=state, path=kept.path, why=kept.why)


def short_path(workdir: Path | str) -> str:
    """A directory for a sentence."""
    return cut_path(tilde(workdir), _SHORT_PATH)


def tilde(workdir: Path | str) -> str:
    """A directory with ~ for the home directory."""
    home, text = os.path.expanduser("~"), safe(str(workdir))
    return f"~{text[len(home) :]}" if text == home or text.startswith(home + os.sep) else text
