"""The commands that write what happened for others: report, export.

A report is one HTML page. It loads nothing: the policy in its head allows its own style and its own script, by
their hashes, and nothing else. Everything that comes from elsewhere goes through `html_safe`.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from shadowsnap import __version__
from shadowsnap.cli.commands import Command, Context
from shadowsnap.cli.commands.timeline import parse_moment
from shadowsnap.cli.picture import YOU, Lane, anchor, lanes_of, picture
from shadowsnap.cli.tables import duration_text, entry_changes, entry_moment, now_text, path_mark, tilde
from shadowsnap.cli.text import count, cut, html_safe, one_line, safe, size
from shadowsnap.compat.exports import export_notes, trace_records
from shadowsnap.deadline import Deadline
from shadowsnap.errors import (
    NoSuchProject,
    NoSuchSession,
    ReportRefused,
    ShadowsnapError,
    WrongUsage,
)
from shadowsnap.files import write_bytes
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import TAKEN_BACK, Change, Entry
from shadowsnap.snapshot.states import PatchReader, State, compare, part_of, split_patch
from shadowsnap.store.checkpoints import list_checkpoints
from shadowsnap.store.history import read_history
from shadowsnap.store.layout import open_store
from shadowsnap.store.projects import project_of
from shadowsnap.store.redaction import redacted_text
from shadowsnap.timeline import lasting_effects, short_session_ids

_HEAD = 1000


class ReportCommand(Command):
    """Write what agents did as one HTML page, to look at or to pass on.

    A picture of the time with a lane for each session, and each turn with its prompt, files, diffs, what was not
    captured and what no rollback takes back. The page loads nothing and needs no network. What looks like a secret
    is left out. An older report is replaced; another file only with --force.
    """

    name = "report"
    group = "taking and looking"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where it goes; - for stdout")
        parser.add_argument("--session", metavar="ID", help="only one session; a part of its id will do")
        parser.add_argument("--since", metavar="TIME", help="only since then: 2026-01-31, today, 8h, 2d")
        parser.add_argument("--no-prompts", action="store_true", help="without what was asked")
        parser.add_argument("--no-diffs", action="store_true", help="with the names of files, without their lines")
        parser.add_argument("--max-mb", metavar="N", type=float, default=8, help="not larger than this (8)")
        parser.add_argument("--force", action="store_true", help="replace a file that is no report")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui = context.ui
        if args.output == "-" and ui.json:
            raise WrongUsage(why="with --json, stdout is the answer: name a file")
        if not 0.1 <= args.max_mb <= 1000:
            raise WrongUsage(why="--max-mb is between 0.1 and 1000")
        path = Path(os.path.normpath(os.path.join(context.here, args.output)))
        if args.output != "-":
            _check_replaceable(path, args.force)
        page, data = _write_page(args, context)
        if args.output == "-":
            ui.raw(data)
            return 0
        write_bytes(path, data)
        turns, cut = sum(1 for entry in page.entries if entry.kind == "turn"), page.cuts.in_words()
        for text in cut:
            ui.say(f"{text} to keep it small; --max-mb makes room")
        facts = {"file": str(path), "bytes": len(data), "turn_count": turns, "cut": cut}
        return ui.answer(facts, f"{count(turns, 'turn')} written to {safe(str(path))}, {size(len(data))}")


def _write_page(args: argparse.Namespace, context: Context) -> tuple[Page, bytes]:
    since = None if args.since is None else parse_moment(args.since)
    with context.working("writing the report") as update:
        seconds = None if since is None else since.timestamp()
        entries = report_entries(context.manager, context.workdir, args.session, seconds)
        with EntryReader(context.manager, context.workdir) if entries else nullcontext() as items:
            page = Page(
                project=tilde(context.workdir),
                about=_about(args, since),
                entries=entries,
                read=EntryDetails if items is None else items.read,
                now=datetime.now().astimezone(),
                state=_state_text(context) if entries and args.session is None else "",
                prompts=not args.no_prompts,
                diffs=not args.no_diffs,
                most=int(args.max_mb * 1_000_000),
            )
            return page, page.html(update)


def _check_replaceable(path: Path, force: bool) -> None:
    """Refuse to replace what is not a report; a device or a directory always."""
    try:
        seen = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(seen.st_mode):
        raise ReportRefused(path=path, why="it is not a plain file")
    if force:
        return
    with open(path, "rb") as file:
        head = file.read(_HEAD)
    if f'name="generator" content="{GENERATOR}'.encode() not in head:
        hint = "name another file; --force replaces this one"
        raise ReportRefused(path=path, why="it exists, and is no report", hint=hint)


def _about(args: argparse.Namespace, since: datetime | None) -> str:
    parts = [f"session {args.session}"] if args.session is not None else []
    parts += [f"since {since.day} {since:%B %Y, %H:%M}"] if since is not None else []
    return ", ".join(parts) or EVERYTHING


def _state_text(context: Context) -> str:
    try:
        text = now_text(context.manager.now(context.workdir))
    except ShadowsnapError:
        return ""  # the directory is gone, or the store is read-only
    return f"{text[:1].upper()}{text[1:]}."


GENERATOR = "shadowsnap report"
EVERYTHING = "from the beginning of the timeline"
_FOLDER = Path(__file__).parent
_SHORT_NAME = 16
_MOST_FILES = 300
_MOST_TOOLS = 100
_MOST_SKIPPED = 100
_MOST_PROMPT = 20_000
_PROMPT_SHOWN = 600
_SIGNS = {"+": "ins", "-": "del", "@": "b", "\\": "i"}
_MANY = 300
"""With more entries than this, the browser renders only those on the screen."""
_LINES = "\n\t"
_Row = TypeVar("_Row")
_REST_OF_A_PAGE = 40_000
"""What the page takes without its entries: style, script, head, picture."""


_LEGEND = {
    "done": "turn: as wide as it took, as high as it changed lines",
    "running": "running",
    "interrupted": "interrupted",
    "undone": "undone",
    "reverted": "reverted",
    "edits": "your own edits",
    "snapshot": "snapshot",
    "restore": "rollback",
}
_TOOLBAR = """\
<form class="tools" role="search" hidden>
<label><span class="hidden">Find in prompts, files and diffs</span>\
<input type="search" placeholder="Find in prompts, files, diffs" autocomplete="off" aria-keyshortcuts="/"></label>\
<output aria-live="polite"></output>
<span class="buttons"><button type="button" data-do="unfold" aria-pressed="false">Unfold all</button>
<button type="button" data-do="order" aria-pressed="false">Oldest first</button>
<button type="button" data-do="theme">Light or dark</button></span>
</form>
"""


@dataclass
class Cuts:
    """What was left out to keep a report small."""

    entries: int = 0
    patches: int = 0
    lines: bool = False
    details: int = 0

    def in_words(self) -> list[str]:
        older = "1 older entry" if self.entries == 1 else f"{self.entries:,} older entries"
        words = [f"{older} left out"] if self.entries else []
        files = "1 file" if self.patches == 1 else f"{self.patches:,} files"
        words += [f"the diffs of {files} left out"] if self.patches else []
        words += ["long diffs cut"] if self.lines else []
        return words + (["long lists cut"] if self.details else [])


@dataclass
class Page:
    """One report: its entries, and how much of them it shows."""

    project: str
    about: str
    """`EVERYTHING`, `session abc`, `since ...`."""
    entries: Sequence[Entry]
    """Newest first."""
    read: Callable[[Entry], EntryDetails]
    now: datetime
    state: str = ""
    """How the files are now, in words."""
    prompts: bool = True
    diffs: bool = True
    most: int = 8_000_000
    cuts: Cuts = field(default_factory=Cuts)
    effects: int = 0

    def html(self, update: Callable[[int, int], None] = lambda done, total: None) -> bytes:
        """The page, in at most `most` bytes."""
        short = short_session_ids(entry.session_id for entry in self.entries if entry.session_id)
        sessions = {name: name if len(name) <= _SHORT_NAME else part for name, part in short.items()}
        lanes, colours = lanes_of(self.entries, sessions)
        drawn = picture(self.entries, lanes, self.now, len(self.entries))
        room = self.most - _REST_OF_A_PAGE - len(drawn)
        # A quarter is reserved for diffs, so that the newest turns have theirs however many turns follow.
        room_for_patches = max(room - sum(map(self._estimate, self.entries)), room // 4)
        articles: list[tuple[Entry, str]] = []
        for entry in self.entries:
            update(len(articles), len(self.entries))
            item = self.read(entry)
            patches, lines_cut = _patches(item.files) if self.diffs else ({}, False)
            taken = sum(len(patch.encode()) for patch in patches.values())
            if taken > room_for_patches:
                self.cuts.patches += len(patches)
                patches, taken, lines_cut = {}, 0, False
            text = self._article(item, patches, sessions, colours)
            room -= len(text.encode())
            if room < 0:
                self.cuts.entries = len(self.entries) - len(articles)
                break
            room_for_patches -= taken
            self.cuts.lines |= lines_cut
            self.effects += len(item.effects)
            articles.append((entry, text))
        if self.cuts.entries:
            drawn = picture(self.entries, lanes, self.now, len(articles))
        style, script = ((_FOLDER / name).read_text("utf-8") for name in ("report.css", "report.js"))
        parts = [*self._head(style, script), *self._header(), *self._figure(drawn, lanes), *self._list(articles)]
        return "".join([*parts, *self._footer(script)]).encode()

    def _estimate(self, entry: Entry) -> int:
        """About how many bytes an entry takes without its patches."""
        prompt = min(len(entry.prompt or ""), _MOST_PROMPT) if self.prompts else 0
        return 700 + prompt + 160 * min(entry.files_changed or 0, _MOST_FILES) + 60 * len(entry.skipped)

    # --- around the entries --------------------------------------------------------------------------------

    def _head(self, style: str, script: str) -> Iterator[str]:
        policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
        policy += "; base-uri 'none'; form-action 'none'"
        yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        yield f'<meta name="generator" content="{GENERATOR} {__version__}">\n'
        yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        yield '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        yield f"<title>{html_safe(Path(self.project).name or self.project)}: what agents did</title>\n"
        many = ' class="many"' if len(self.entries) > _MANY else ""
        yield f"<style>{style}</style>\n</head>\n<body{many}>\n"
        yield '<a class="skip" href="#entries">to the turns</a>\n'

    def _header(self) -> Iterator[str]:
        folder, slash, name = self.project.rpartition("/")
        yield f'<header>\n<p class="over">{html_safe(folder + slash)}</p>'
        yield f"<h1><bdi>{html_safe(name or '/')}</bdi></h1>\n"
        now = self.now.astimezone()
        written = _time(now, f"{now.day} {now:%B %Y, %H:%M %Z}")
        yield f'<p class="about">What agents did, {html_safe(self.about)}. Written {written}.</p>\n'
        yield f'<p class="about">{html_safe(self.state)}</p>\n' if self.state else ""
        yield f'<dl class="sums">{"".join(self._sums())}</dl>\n</header>\n<main>\n'

    def _sums(self) -> Iterator[str]:
        turns = [entry for entry in self.entries if entry.kind == "turn"]
        agents = sorted({one_line(entry.agent) for entry in turns if entry.agent})
        sessions = len({entry.session_id for entry in turns})
        lost = sum(1 for entry in turns if entry.status in TAKEN_BACK)
        broken = sum(1 for entry in turns if entry.status == "interrupted")
        more, less = (sum(getattr(entry, name) or 0 for entry in turns) for name in ("insertions", "deletions"))
        rows: list[tuple[str, str, str]] = [
            ("turns", f"{len(turns):,}", html_safe(cut(", ".join(agents), 40))),
            ("sessions", f"{sessions:,}", _time_range(self.entries)),
            ("lines", _line_counts(more, less) or "0", "by turns"),
            ("taken back", f"{lost:,}", f"{broken:,} interrupted"),
            ("beyond the files", f"{self.effects:,}", "calls no rollback takes back"),
        ]
        for name, number, more_text in rows:
            yield f"<div><dt>{name}</dt><dd><b>{number}</b> <small>{more_text}</small></dd></div>"

    def _figure(self, drawn: str, lanes: Sequence[Lane]) -> Iterator[str]:
        if not drawn:
            return
        yield '<section class="picture" aria-labelledby="picture"><h2 id="picture">Over time</h2>\n'
        yield f'<figure>{drawn}\n<figcaption><ul class="legend" aria-label="what the marks mean">'
        used = {entry.status if entry.kind == "turn" else entry.kind for entry in self.entries}
        for kind, text in _LEGEND.items():
            if kind in used:
                yield f'<li><span class="key {kind}"></span>{text}</li>'
        yield "</ul></figcaption></figure>\n<details><summary>The same as a table</summary>\n"
        yield '<div class="scroll" tabindex="0" role="region" aria-label="table of sessions"><table><thead><tr>'
        heads = ("session", "turns", "time", "lines", "interrupted", "taken back")
        yield "".join(f'<th scope="col">{name}</th>' for name in heads) + "</tr></thead><tbody>"
        for lane in lanes:
            yield f'<tr><th scope="row"><bdi>{html_safe(lane.title)}</bdi></th>'
            yield "".join(f"<td>{cell}</td>" for cell in _lane_cells(lane)) + "</tr>"
        yield "</tbody></table></div></details>\n</section>\n"

    def _list(self, articles: Sequence[tuple[Entry, str]]) -> Iterator[str]:
        yield '<section id="entries" aria-labelledby="list"><h2 id="list">Turn by turn</h2>\n'
        yield _TOOLBAR
        if not self.entries:
            why = "Nothing has happened here yet" if self.about == EVERYTHING else "Nothing happened in this time"
            yield f'<p class="empty">{why}.</p>\n'
        for day, some in groupby(articles, lambda each: _day(each[0])):
            name = f"{day:%A}, {day.day} {day:%B %Y}" if day is not None else "At an unknown time"
            yield f'<section class="date"><h3>{name}</h3>\n{"".join(text for _, text in some)}</section>\n'
        if words := self.cuts.in_words():
            advice = "--session or --since narrows the report, --max-mb makes room"
            yield f'<p class="cut" role="note">To keep this within {size(self.most)}: {"; ".join(words)}. '
            yield f"{advice}.</p>\n"
        yield "</section>\n"

    def _footer(self, script: str) -> Iterator[str]:
        yield "</main>\n<footer><p><code>shadowsnap restore 3</code> goes back to before turn 3, "
        yield "<code>shadowsnap revert 3</code> takes out turn 3 alone, "
        yield "<code>shadowsnap undo</code> takes that back.</p>"
        yield "<p>What no rollback takes back is found by the words of commands: neither complete nor certain. "
        yield "What looks like a secret is left out of prompts and diffs"
        yield "" if self.prompts else "; the prompts were left out"
        yield "" if self.diffs else "; the diffs were left out"
        yield f". Made by shadowsnap {__version__}; this page loads nothing.</p></footer>\n"
        yield f"<script>{script}</script>\n</body>\n</html>\n"

    # --- an entry ------------------------------------------------------------------------------------------

    def _article(
        self, item: EntryDetails, patches: dict[str, str], sessions: dict[str, str], colours: dict[str | None, str]
    ) -> str:
        entry = item.entry
        name, status = anchor(entry), entry.status if entry.kind == "turn" and entry.status != "done" else None
        colour = colours.get(entry.session_id, "") if entry.kind == "turn" else YOU
        parts = [f'<article id="{name}" class="{entry.kind} {colour} {status or ""}" aria-labelledby="{name}-h">']
        parts += [f'<h4 id="{name}-h"><a href="#{name}">{_name(entry)}</a>', *_badges(entry), "</h4>"]
        parts += [f'<p class="facts">{" <i>·</i> ".join(_facts(entry, sessions))}</p>']
        parts += self._asked(entry)
        parts += self._changed(item, patches)
        if item.effects:
            parts += ['<div class="beyond"><h5>What no rollback takes back</h5><ul>']
            parts += [f"<li>{html_safe(effect)}</li>" for effect in self._cut_rows(item.effects, _MOST_TOOLS)]
            parts += ["</ul></div>"]
        parts += ['<div class="folds">']
        if item.tools:
            rows = [f"<li><b>{html_safe(tool)}</b> {html_safe(about)}</li>" for tool, about in item.tools]
            parts += self._folded(count(len(item.tools), "tool call"), rows, _MOST_TOOLS)
        if entry.skipped:
            rows = [
                f"<li><bdi>{html_safe(each.path)}</bdi> <small>{html_safe(each.why)}</small></li>"
                for each in entry.skipped
            ]
            parts += self._folded(f"{count(len(rows), 'path')} not captured", rows, _MOST_SKIPPED)
        return "".join([*parts, "</div></article>\n"])

    def _asked(self, entry: Entry) -> Iterator[str]:
        if entry.kind == "turn" and not self.prompts:
            return
        text = (entry.prompt or entry.reason if entry.kind != "restore" else "").strip()
        if not text:
            return
        if len(text) > _MOST_PROMPT:
            self.cuts.details += 1
            text = f"{text[:_MOST_PROMPT]} ..."
        shown, rest = _split_prompt(text)
        yield f'<p class="prompt" dir="auto">{html_safe(shown, keep=_LINES)}</p>'
        if rest:
            yield f'<details class="more"><summary>{len(rest):,} more characters</summary>'
            yield f'<p class="prompt" dir="auto">{html_safe(rest, keep=_LINES)}</p></details>'

    def _changed(self, item: EntryDetails, patches: dict[str, str]) -> Iterator[str]:
        if item.unknown:
            yield f'<p class="none">{html_safe(item.unknown)}</p>'
        elif not item.files:
            yield '<p class="none">no file was changed</p>'
        else:
            yield '<ul class="files">'
            for file in self._cut_rows(item.files, _MOST_FILES):
                yield _file_row(file, patches.get(file.change.path, ""))
            yield f"<li>{len(item.files) - _MOST_FILES:,} more files</li>" if len(item.files) > _MOST_FILES else ""
            yield "</ul>"

    def _folded(self, title: str, rows: Sequence[str], most: int) -> Iterator[str]:
        yield f'<details class="list"><summary>{title}</summary><ul>'
        yield from self._cut_rows(rows, most)
        yield f"<li>{len(rows) - most:,} more</li>" if len(rows) > most else ""
        yield "</ul></details>"

    def _cut_rows(self, rows: Sequence[_Row], most: int) -> Sequence[_Row]:
        self.cuts.details += len(rows) > most
        return rows[:most]


# --- parts of an entry -------------------------------------------------------------------------------------


def _name(entry: Entry) -> str:
    if entry.kind == "edits":
        return html_safe(entry.whose[:1].upper() + entry.whose[1:])
    if entry.kind == "restore":
        return html_safe(entry.reason[:1].upper() + entry.reason[1:])
    return f"{entry.kind.capitalize()} {entry.number}"


def _badges(entry: Entry) -> Iterator[str]:
    if entry.kind == "turn" and entry.status not in (None, "done"):
        yield f' <span class="badge {entry.status}">{entry.status}</span>'
    if entry.label:
        yield f' <span class="badge">{html_safe(one_line(entry.label))}</span>'
    if entry.pinned:
        yield ' <span class="badge">pinned</span>'


def _facts(entry: Entry, sessions: dict[str, str]) -> Iterator[str]:
    moment = entry.began_at if entry.kind == "turn" else entry.ended_at or entry.began_at
    if moment is not None:
        before = "seen " if entry.kind == "edits" else ""
        yield f"{before}{_time(moment, f'{moment.astimezone():%H:%M}')}"
    if entry.kind == "turn" and entry.began_at and entry.ended_at:
        yield duration_text(entry.began_at, entry.ended_at)
    if entry.agent:
        yield f'<span class="agent">{html_safe(cut(one_line(entry.agent), 40))}</span>'
    if entry.session_id:
        short = html_safe(one_line(sessions.get(entry.session_id, entry.session_id)))
        yield f'<span title="{html_safe(entry.session_id)}">session <bdi>{short}</bdi></span>'
    if changed := entry_changes(entry):
        yield changed.replace("-", "&minus;")


def _split_prompt(text: str) -> tuple[str, str]:
    """The beginning of a prompt, which is shown, and the rest, which is folded."""
    if len(text) <= _PROMPT_SHOWN + 200:
        return text, ""
    end = max(text.rfind("\n", 300, _PROMPT_SHOWN), text.rfind(" ", 300, _PROMPT_SHOWN))
    end = end if end > 0 else _PROMPT_SHOWN
    return f"{text[:end].rstrip()} ...", text[end:].strip()


def _file_row(file: File, patch: str) -> str:
    change = file.change
    mark, _ = path_mark(change)
    parts = [f'<span class="status {mark}" aria-hidden="true">{mark}</span>']
    parts += [f'<span class="hidden">{change.status}</span>', f"<bdi>{html_safe(change.path)}</bdi>"]
    if change.insertions is None or change.deletions is None:
        parts += ["<small>binary, or not captured</small>"]
    elif change.path.endswith("/"):
        parts += ["<small>directory</small>"]
    else:
        parts += [_line_counts(change.insertions, change.deletions)]
    if file.modes:
        parts += [f"<small>permissions {' to '.join(file.modes)}</small>"]
    row = " ".join(parts)
    if not patch:
        return f'<li><div class="row">{row}</div></li>'
    shown = f'<pre tabindex="0"><code>{patch}</code></pre>'
    return f'<li><details><summary class="row">{row}</summary>{shown}</details></li>'


def _patches(files: Iterable[File]) -> tuple[dict[str, str], bool]:
    """The patches of the first files as HTML, and whether lines were cut."""
    found, are_cut = dict[str, str](), False
    for file, _ in zip((file for file in files if file.patch), range(_MOST_FILES), strict=False):
        found[file.change.path] = "".join(_patch_html(file.patch))
        are_cut |= "more lines are left out\n" in file.patch[-60:]
    return found, are_cut


def _patch_html(patch: str) -> Iterator[str]:
    """The lines of a patch; adjacent lines of one kind share an element."""
    inside = False
    for kind, lines in groupby(patch.removesuffix("\n").split("\n"), lambda line: line[:1]):
        if kind not in " +-@\\" or not kind:
            inside = False  # a file header; a patch has two of them where a file became a link
        inside |= kind == "@"
        if not inside:
            continue
        text = "".join(f"{html_safe(line, keep=chr(9))}\n" for line in lines)
        yield f"<{_SIGNS[kind]}>{text}</{_SIGNS[kind]}>" if kind in _SIGNS else text


# --- small parts of the page --------------------------------------------------------------------------------


def _line_counts(more: int, less: int) -> str:
    plus = f'<span class="plus">+{more:,}</span>' if more else ""
    minus = f'<span class="minus">&minus;{less:,}</span>' if less else ""
    return f"{plus} {minus}".strip()


def _lane_cells(lane: Lane) -> Iterator[str]:
    turns = [entry for entry in lane.entries if entry.kind == "turn"]
    more, less = (sum(getattr(entry, name) or 0 for entry in lane.entries) for name in ("insertions", "deletions"))
    yield f"{len(turns):,}"
    yield _time_range(lane.entries[::-1])
    yield f"+{more:,} &minus;{less:,}"
    yield f"{sum(1 for entry in turns if entry.status == 'interrupted'):,}"
    yield f"{sum(1 for entry in turns if entry.status in TAKEN_BACK):,}"


def _time_range(entries: Sequence[Entry]) -> str:
    """From when to when, of entries newest first."""
    moments = [moment for each in entries if (moment := each.began_at or each.ended_at)]
    ends = [moment for each in entries if (moment := each.ended_at or each.began_at)]
    if not moments or not ends:
        return ""
    first, last = min(moments).astimezone(), max(ends).astimezone()
    one_day = first.date() == last.date()
    texts = [f"{each:%H:%M}" if one_day else f"{each.day} {each:%b %H:%M}" for each in (first, last)]
    return f"{_time(first, texts[0])} to {_time(last, texts[1])}"


def _day(entry: Entry) -> date | None:
    moment = entry_moment(entry)
    return moment.astimezone().date() if moment is not None else None


def _time(moment: datetime, text: str) -> str:
    return f'<time datetime="{moment.isoformat(timespec="seconds")}">{text}</time>'


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# --- reading entries ---------------------------------------------------------------------------------


_MOST_OF_A_FILE = 100_000
_MOST_OF_AN_ENTRY = 400_000
_MODES = re.compile(r"old mode (\d+)\nnew mode (\d+)\n")


@dataclass(frozen=True)
class File:
    """One path that an entry changed. `patch` is empty if there is no text to show."""

    change: Change
    patch: str = ""
    modes: tuple[str, str] | None = None
    """The permission bits before and after, if they changed."""


@dataclass(frozen=True)
class EntryDetails:
    """Everything that a report shows of an entry."""

    entry: Entry
    files: tuple[File, ...] = ()
    unknown: str = ""
    """Why it is not known what it changed."""
    tools: Sequence[Sequence[str]] = ()
    effects: Sequence[str] = ()


class EntryReader:
    """Reads the details of the entries of one project, with one git process for all patches."""

    def __init__(self, manager: CheckpointManager, workdir: Path) -> None:
        self._manager = manager
        self._workdir = workdir
        store, project = open_store(manager.settings), project_of(workdir)
        deadline = Deadline(manager.settings.upkeep_deadline)
        self._git = store.git(deadline)
        self._turns = read_history(store, project, deadline).turns
        self._known = {each.id: each for each in list_checkpoints(store, project, deadline, statistics=False)}
        self._patches = PatchReader(self._git, _MOST_OF_AN_ENTRY, _MOST_OF_A_FILE)

    def __enter__(self) -> EntryReader:
        self._patches.__enter__()
        return self

    def __exit__(self, *about: Any) -> None:
        self._patches.__exit__(*about)

    def read(self, entry: Entry) -> EntryDetails:
        turn = self._turns.get(entry.number or 0) if entry.kind == "turn" else None
        tools = [] if turn is None else [each for each in turn.tools if len(each) == 2]
        item = EntryDetails(entry, tools=tools, effects=lasting_effects(tools))
        try:
            changes, text = self._changes(entry)
        except _Unknown as why:
            return replace(item, unknown=str(why))
        except ShadowsnapError as problem:  # a lost object, or the directory is gone
            return replace(item, unknown=f"it cannot be read: {problem}")
        if entry.kind == "restore":
            text = ""  # other entries have these patches already
        return replace(item, files=tuple(self._files(changes, text)))

    def _changes(self, entry: Entry) -> tuple[Sequence[Change], str]:
        before, after = (self._known.get(each or "") for each in (entry.before, entry.after))
        if before is not None and before.scope == "paths":
            held = self._manager.files(self._workdir, before.id)
            raise _Unknown(f"only these files were captured: {', '.join(held[:20])}")
        if before is not None and after is None and entry.status == "running":
            diff = self._manager.diff(self._workdir, before.id)
            return diff.changes, diff.text if len(diff.text) <= _MOST_OF_AN_ENTRY else ""
        if before is None or after is None or after.scope == "paths":
            never = entry.kind == "turn" and entry.after is None
            raise _Unknown("how it left the files is not known: it was never closed" if never else "")
        states = State.of_checkpoint(before), State.of_checkpoint(after)
        return compare(self._git, *states, (), self._patches)

    def _files(self, changes: Iterable[Change], text: str) -> Iterator[File]:
        """The changed files. A report is made to be passed on, so what looks like a secret is taken out of
        patches, as it is taken out of prompts."""
        parts = split_patch(text)
        for change in changes:
            patch = part_of(parts, change.path)
            modes = _MODES.match(patch)
            has_lines = re.search(r"(?m)^@@ ", patch) is not None
            yield File(
                change,
                redacted_text(patch, self._manager.settings.redact) if has_lines else "",
                (modes[1][-4:], modes[2][-4:]) if modes else None,
            )


class _Unknown(Exception):
    pass


def report_entries(
    manager: CheckpointManager, workdir: Path, session: str | None, since: float | None
) -> list[Entry]:
    """The entries of a report, newest first. Those of a session include the restores in between and right after
    it."""
    whole = None if session is None else manager.session(session, workdir).id
    try:
        entries = manager.timeline(workdir, restores=True)
    except NoSuchProject:
        entries = []
    if whole is not None:
        places = [at for at, each in enumerate(entries) if each.session_id == whole]
        if not places:
            raise NoSuchSession(session_id=str(session))  # the session is of another project
        first = places[0]
        while first > 0 and entries[first - 1].kind == "restore":
            first -= 1
        span = entries[first : places[-1] + 1]
        entries = [each for each in span if each.kind == "restore" or each.session_id == whole]
    if since is None:
        return entries
    return [each for each in entries if each.status == "running" or _last_moment(each) >= since]


def _last_moment(entry: Entry) -> float:
    moment = entry.ended_at or entry.began_at
    return moment.timestamp() if moment is not None else 0.0


# --- for other tools ---------------------------------------------------------------------------------------


class ExportCommand(Command):
    """Write what turns did for other tools: Agent Trace, git-ai notes.

    --agent-trace writes records of Agent Trace 0.1, one JSON object per line. --git-notes attaches authorship
    notes of git-ai (standard 3.0.0) to the commits of your repository, under refs/notes/ai; notes of other tools
    stay.
    """

    name = "export"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        form = parser.add_mutually_exclusive_group(required=True)
        form.add_argument("--agent-trace", action="store_true", help="trace records of Agent Trace 0.1")
        form.add_argument("--git-notes", action="store_true", help="authorship notes of git-ai, on your commits")
        parser.add_argument("-o", dest="output", metavar="FILE", help="where the records go; stdout if not given")
        parser.add_argument("-n", "--dry-run", action="store_true", help="with --git-notes: only show the notes")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        return _agent_trace(args, context) if args.agent_trace else _git_notes(args, context)


def _agent_trace(args: argparse.Namespace, context: Context) -> int:
    if args.dry_run:
        raise WrongUsage(why="--dry-run goes with --git-notes")
    records = list(trace_records(context.manager, context.workdir))
    rows = [json.dumps(record) for record in records]
    if args.output is None or args.output == "-":
        return context.ui.answer({"records": records}, rows)
    path = Path(os.path.normpath(os.path.join(context.here, args.output)))
    write_bytes(path, "".join(f"{row}\n" for row in rows).encode())
    lines = f"{count(len(rows), 'record')} written to {safe(str(path))}"
    return context.ui.answer({"record_count": len(rows), "file": str(path)}, lines)


def _git_notes(args: argparse.Namespace, context: Context) -> int:
    if args.output is not None:
        raise WrongUsage(why="-o goes with --agent-trace: notes are written into your repository")
    notes = export_notes(context.manager, context.workdir, dry_run=args.dry_run)
    lines = [f"{note.commit[:10]}  {count(note.lines, 'line')}  {note.status}" for note in notes]
    if args.dry_run:
        texts = {note.commit: map(safe, note.text.splitlines()) for note in notes}
        lines = [row for commit, text in texts.items() for row in (f"commit {commit}", *text, "")]
    return context.ui.answer({"git_notes": notes}, lines or ["no commit holds lines of a turn"])
