"""The viewer: turns on the left, the files of one turn and the diff of one file on the right.

All data comes from the manager. Slow operations run in a thread, so that the keys always answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState, WorkType

from shadowsnap.cli.commands import Context
from shadowsnap.cli.commands.restore import Operation, redoing, restoring, reverting, undoing
from shadowsnap.cli.commands.timeline import last_conversation, session_lines, session_rows
from shadowsnap.cli.tables import (
    check_captured,
    diff_of_entry,
    entry_moment,
    entry_text,
    line_counts,
    path_mark,
    plan_lines,
    result_lines,
    tilde,
)
from shadowsnap.cli.text import ago, columns, count, cut, cut_path, one_line, pad, safe
from shadowsnap.cli.ui import Ink, interrupt_safely
from shadowsnap.errors import ShadowsnapError
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import TAKEN_BACK, Change, Entry, Now, RestoreResult, Session
from shadowsnap.snapshot.states import part_of, split_patch
from shadowsnap.store.conversations import message_of
from shadowsnap.tui.patches import Line, Lines, pairs, patch_of_file, side_by_side_line, unified_line, widest

KEYS = """\
up down pgup pgdn   move          tab    the next pane
left right          sideways      ] [    the next file, or the last
=       what going back would do to the files as they are now
v       the diff side by side, or unified
enter   go back to before this turn; to a snapshot
t       take this turn out and keep what came later
space   choose files: enter brings back only these
z Z     undo the last thing that happened; redo
p       pin, so that no limit drops it; again: unpin
h H     the history of this file; of one that you name
s o     sessions with their conversations; other projects
/       find in what was asked; esc shows everything again
r q     look again now; quit

3 is a turn or snapshot, . your own edits, @ the files as they
are now. +1 -2 ~3: files that were added, deleted, changed. What
changes files shows its plan and asks. New turns come by themselves."""


class Dialog(ModalScreen[Any]):
    """A box in the middle. Escape closes it."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical { width: 90%; max-width: 110; height: auto; max-height: 90%; border: round ansi_blue;
                        padding: 0 1; background: ansi_default; color: ansi_default; }
    Dialog Static { background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", show=False)]

    def __init__(self, title: str, foot: str) -> None:
        super().__init__()
        self._title = title
        self._foot = foot

    def compose(self) -> ComposeResult:
        with Vertical():
            yield from self.inside()
            yield Static(Text(self._foot, style="bold", no_wrap=True, overflow="ellipsis"))

    def inside(self) -> ComposeResult:
        """The widgets above the footer: none, unless a subclass has some."""
        yield from ()


class Reader(Dialog):
    """A dialog with lines to read."""

    def __init__(self, title: str, lines: Sequence[Text], foot: str = "esc closes") -> None:
        super().__init__(title, foot)
        self._lines = lines

    def inside(self) -> ComposeResult:
        pane = Lines(id="text", select=False)
        pane.styles.height = len(self._lines) + 1
        yield pane

    def on_mount(self) -> None:
        pane = self.query_one("#text", Lines)
        pane.parent.styles.max_height = "90%"  # type: ignore[union-attr]
        pane.styles.max_height = max(3, self.app.size.height - 6)
        pane.set_heading(self._title)
        pane.show(self._lines, wide=widest(self._lines))
        pane.focus()


class Question(Reader):
    """A plan, and the question whether to carry it out. Only `y` means yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,enter", "dismiss(None)", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[Text]) -> None:
        super().__init__(title, lines, "go ahead?   y yes   n no")


@dataclass(frozen=True)
class Row:
    """A row to choose, and what is shown about it."""

    text: Text
    value: Any
    about: Callable[[], Sequence[Text]] | None = None


class Chooser(Dialog):
    """A list, and below it the details of the row under the cursor. Its result is the value of the chosen row."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "choose", show=False)]

    def __init__(self, title: str, rows: Sequence[Row], foot: str) -> None:
        super().__init__(title, foot)
        self._rows = rows

    def inside(self) -> ComposeResult:
        yield Lines(id="choices")
        if any(row.about for row in self._rows):
            yield Lines(id="about", select=False)

    def on_mount(self) -> None:
        box, choices = self.query_one(Vertical), self.query_one("#choices", Lines)
        box.styles.height = "90%"
        choices.set_heading(self._title)
        choices.show(self._rows, lambda row, width: row.text)
        choices.focus()
        if self.query("#about"):
            choices.styles.height = "1fr"
            self.query_one("#about").styles.height = "1fr"
            self._show_about()

    def on_lines_moved(self, event: Lines.Moved) -> None:
        if event.pane.id == "choices" and self.query("#about"):
            self._show_about()

    def _show_about(self) -> None:
        row = self.query_one("#choices", Lines).row
        self.query_one("#about", Lines).show(row.about() if row is not None and row.about else ())

    def on_lines_chosen(self) -> None:
        self.action_choose()

    def action_choose(self) -> None:
        row = self.query_one("#choices", Lines).row
        if row is not None:
            self.dismiss(row.value)


class Typed(Dialog):
    """A dialog for one line of text. `on_change` is called while it is typed."""

    DEFAULT_CSS = """
    Typed { align: left bottom; }
    Typed > Vertical { width: 100%; max-width: 100%; }
    Typed Input, Typed Input:focus {
        border: none; height: 1; padding: 0; background: ansi_default; color: ansi_default;
    }
    Typed Horizontal { height: 1; }
    Typed Horizontal Static { width: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", show=False)]

    def __init__(self, title: str, value: str = "", on_change: Callable[[str], None] | None = None) -> None:
        super().__init__(title, "enter accepts   esc leaves it")
        self._value = value
        self._on_change = on_change

    def inside(self) -> ComposeResult:
        with Horizontal():
            yield Static(Text(f"{self._title} "))
            yield Input(self._value)

    def on_input_changed(self, event: Input.Changed) -> None:
        if self._on_change is not None:
            self._on_change(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)


_MOST_LINES = 20_000
_LONGEST_TOOL = 200


def session_choices(manager: CheckpointManager, workdir: Path, width: int) -> list[Row]:
    """A row for each session of a project, with its prompts."""
    room = max(40, width - 16)
    found = manager.sessions(working_dir=workdir)
    lines = zip(session_rows(found, found, room), found, strict=True)
    return [Row(Text(line), session, partial(_session_row, session, room)) for line, session in lines]


def _session_row(session: Session, width: int) -> list[Text]:
    return [Text(safe(line)) for line in session_lines(session, width, Ink(False))]


def project_rows(manager: CheckpointManager, width: int) -> list[Row]:
    """A row for each project. Of a long path the end is shown, which has the name."""
    room = max(40, width - 16)
    return [
        Row(Text(cut_path(tilde(workdir), room) + ("" if workdir.is_dir() else " (gone)")), workdir)
        for workdir in manager.projects()
    ]


def conversation_of(manager: CheckpointManager, session: Session, width: int) -> tuple[str, Sequence[Text]]:
    """A heading, and the newest conversation that is kept of a session, to be read."""
    data = last_conversation(manager, session).data
    room, lines = max(30, min(100, width - 10)), list[Text]()
    for who, text in _messages(data):
        lines.append(Text(safe(who), "bold"))
        for line in text.splitlines():
            shown = safe(line, keep="\t").expandtabs(4)
            lines += [Text(f"  {shown[at : at + room]}") for at in range(0, len(shown) or 1, room)]
        if len(lines) > _MOST_LINES:
            break
    return f"Conversation of session {safe(session.id)}", lines[:_MOST_LINES]


def _messages(data: Any) -> Iterator[tuple[str, str]]:
    """The role and the text of each message or row of a transcript; rows without text are left out."""
    rows = data.get("messages", [data]) if isinstance(data, dict) else data
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict):
            yield "", str(row)
            continue
        message = message_of(row)
        text = "\n".join(_texts_in(message.get("content", message.get("text"))))
        if text.strip():
            yield str(message.get("role") or row.get("type") or ""), text


def _texts_in(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
        elif isinstance(part, dict) and str(part.get("type", "")).startswith("tool"):
            about = part.get("input", part.get("content", ""))
            yield f"({part.get('name') or 'tool'}) {about}"[:_LONGEST_TOOL]


# --- names of entries -----------------------------------------------------------------------------------------


def entry_name(entry: Entry) -> str:
    return entry.whose if entry.number is None else f"{entry.kind} {entry.number}"


def target_name(entry: Entry) -> str:
    """The name of the state that going back to an entry restores."""
    return entry_name(entry) if entry.kind == "snapshot" else f"before {entry_name(entry)}"


T = TypeVar("T")

_READING = "reading the timeline ..."
_CURSOR_REST_SECONDS = 0.04
"""The files of a row are read once the cursor was on it for so long."""
_REFRESH_SECONDS = 2.0
_REFRESH_SHARE = 20
"""A refresh takes at most 1/20 of the time, because it locks the project."""
_FOOTERS = (
    "enter go back before it   t take this turn out   space choose files   z undo  Z redo  p pin",
    "enter go back  t take out  space choose files  = preview  z undo  Z redo  p pin",
)
_ACTIONS = {
    "enter": "go_back", "t": "take_out", "space": "choose_file", "z": "undo", "Z": "redo", "p": "pin",
    "equals_sign": "preview", "v": "side_by_side", "right_square_bracket": "next_file(1)",
    "left_square_bracket": "next_file(-1)", "h": "history", "H": "history_of", "s": "sessions", "o": "projects",
    "slash": "find", "escape": "everything", "r": "look_again", "question_mark": "keys", "q": "leave",
}  # fmt: skip


@dataclass(frozen=True)
class Details:
    """What the panes on the right show: changed files, their patches, and remarks."""

    heading: str
    changes: tuple[Change, ...] = ()
    patches: dict[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


class Viewer(App[int]):
    """The whole screen."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    ModalScreen { background: transparent; }
    Static { background: ansi_default; color: ansi_default; height: 1; }
    Horizontal, Vertical { background: ansi_default; }
    #status { height: auto; min-height: 1; max-height: 3; }
    #turns { width: 38%; min-width: 28; max-width: 60; border-right: solid ansi_bright_black; }
    #files { height: 30%; min-height: 4; }
    #diff { height: 1fr; }
    """
    ENABLE_COMMAND_PALETTE = False
    TITLE = "shadowsnap"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
        *(Binding(key, action, show=False) for key, action in _ACTIONS.items()),
    ]

    def __init__(self, context: Context, first: Future[list[Entry]] | None = None) -> None:
        """`first`: the timeline, if it is being read already."""
        super().__init__(ansi_color=True)
        self._first = first
        self._entries: list[Entry] = []
        self._now: Now | None
        self._details = Details("Files")
        self._chosen: set[str] = set()
        self._path: str | None = None
        """The file whose history is shown."""
        self._find = ""
        self._preview = False
        self._side_by_side = False
        self._busy = ""
        """The operation that is changing files; empty if there is none."""
        self._status_text = self._trouble = ""
        self._shown: object = None
        """Identifies the diff that is shown."""
        self._timer: Timer | None = None
        self._turns, self._files, self._diff = Lines(id="turns"), Lines(id="files"), Lines(id="diff", select=False)
        self._head, self._status, self._foot = Static(id="head"), Static(id="status"), Static(id="foot")
        self._open(context)

    def _open(self, context: Context) -> None:
        self._cli_context = context
        self._manager, self._workdir = context.manager, context.workdir
        self._now, self._protection = None, ""
        self.workers.cancel_group(self, "now")
        context.progress = self._say_from_thread

    def compose(self) -> ComposeResult:
        yield self._head
        with Horizontal():
            yield self._turns
            with Vertical():
                yield self._files
                yield self._diff
        yield self._status
        yield self._foot

    def on_mount(self) -> None:
        self._turns.set_heading("Turns")
        self._diff.set_heading("Diff")
        self._turns.focus()
        self._say(_READING)
        self._draw_head()
        self._read(self._first)
        self._first = None

    def on_resize(self) -> None:
        self._draw_head()

    # --- slow operations, in a thread ---------------------------------------------------------------------

    def _in_thread(
        self,
        group: str,
        job: Callable[[], T],
        then: Callable[[T], None],
        otherwise: Callable[[Exception], None] | None = None,
        after: float = 0.0,
    ) -> None:
        """Run a job `after` some seconds, and pass its result to `then`. A later job of the same group replaces
        it."""

        async def run() -> None:
            await asyncio.sleep(after)
            try:
                result = await asyncio.to_thread(job)
            except (ShadowsnapError, OSError) as problem:
                (otherwise or self._show_error)(problem)
            else:
                then(result)

        work: WorkType[None] = run  # a function, because a coroutine that is never awaited would warn
        self.run_worker(work, group=group, exclusive=True, exit_on_error=False)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR and event.worker.error is not None:
            self._busy = ""
            self._show_error(event.worker.error)

    def _show_error(self, problem: BaseException) -> None:
        hint = getattr(problem, "hint", "")
        known = isinstance(problem, (ShadowsnapError, OSError))
        text = f"{problem}{f' ({hint})' if hint else ''}" if known else f"this should not happen: {problem!r}"
        self._say(text, "bold red")

    def _say(self, text: str, style: str = "") -> None:
        self._status_text = text
        self._status.update(Text(f" {one_line(text)}", style))

    def _say_from_thread(self, text: str) -> None:
        self.call_later(self._say, text)

    # --- the timeline ---------------------------------------------------------------------------------------

    def _read(self, first: Future[list[Entry]] | None = None) -> None:
        """Read the timeline, then the files as they are now, and both again after a while."""
        manager, workdir, path, began = self._manager, self._workdir, self._path, time.monotonic()

        def entries() -> list[Entry]:
            return first.result() if first is not None else manager.timeline(workdir, path=path)

        def read(found: list[Entry]) -> None:
            if found != self._entries or not self._turns.rows:
                self._entries = found
                self._show_turns()
            if self._status_text == _READING:
                self._say("")
            self._in_thread("now", self._read_now, compared, failed)

        def compared(found: tuple[Now, str]) -> None:
            changed = found[0] != self._now
            (self._now, self._protection), self._trouble = found, ""
            self._draw_head()
            self._turns.refresh()
            row = self._turns.row
            if changed and (row is None or row.status == "running" or self._preview):
                self._read_details()
            again()

        def failed(problem: Exception) -> None:
            if str(problem) != self._trouble:  # the same error is not shown at every refresh
                self._trouble = str(problem)
                self._show_error(problem)
            again()

        def again() -> None:
            if self._timer is not None:
                self._timer.stop()
            pause = max(_REFRESH_SECONDS, _REFRESH_SHARE * (time.monotonic() - began))
            self._timer = self.set_timer(pause, self._read)

        self._in_thread("read", entries, read, failed)

    def _read_now(self) -> tuple[Now, str]:
        return self._manager.now(self._workdir), self._protection or self._cli_context.protection.text

    def _show_turns(self) -> None:
        """Show the rows that match the search, with the cursor where it was."""
        here, found = self._turns.row, self._find.casefold()
        rows: list[Entry | None] = [] if found or self._path else [None]
        rows += [each for each in self._entries if found in f"{each.number or ''} {entry_text(each)}".casefold()]
        cursor = next((at for at, row in enumerate(rows) if _entry_key(row) == _entry_key(here)), 0)
        heading = f"History of {safe(self._path)}" if self._path else "Turns"
        self._turns.set_heading(f"{heading} with {safe(self._find)!r}" if found else heading)
        self._turns.show(rows, self._draw_turn, cursor=cursor)
        if not rows:
            self._say("nothing fits; esc shows everything")
        self._read_details()

    def _draw_turn(self, entry: Entry | None, width: int) -> Text:
        if entry is None:
            return Text.assemble(("@ ", "bold"), cut(f"now{_now_summary(self._now)}", max(1, width - 2)))
        mark = f"{entry.number if entry.number is not None else '.'} "
        files = _file_counts(entry)
        room = max(1, width - columns(mark) - columns(files) - 1)
        style = "dim" if entry.kind == "edits" or entry.status in TAKEN_BACK else ""
        text = Text.assemble((mark, "bold"), (pad(cut(entry_text(entry), room), room), style), " ")
        for word in files.split(" "):
            text.append(word, _SIGNS.get(word[:1], ""))
            text.append(" ")
        return text

    def _draw_head(self) -> None:
        keys, width = "/ find   ? keys   q quit", self.size.width
        room = max(10, width - len(keys) - 3)
        path = cut_path(tilde(self._workdir), max(10, room - min(30, columns(self._protection)) - 3))
        left = cut(f" {path}   {one_line(self._protection)}", room)
        self._head.update(Text(f"{pad(left, room)}  {keys}", "bold", no_wrap=True))
        foot = next((text for text in _FOOTERS if len(text) < width), _FOOTERS[-1])
        self._foot.update(Text(f" {foot}", "bold", no_wrap=True, overflow="ellipsis"))

    # --- the files and the diff -------------------------------------------------------------------------------

    def on_lines_moved(self, event: Lines.Moved) -> None:
        if event.pane is self._turns:
            self._chosen.clear()
            self._say(cut(_entry_facts(self._turns.row), self.size.width - 2))
            self._read_details()
        elif event.pane is self._files:
            self._show_diff()

    def on_lines_chosen(self, event: Lines.Chosen) -> None:
        if event.pane is self._turns:
            self.action_go_back()
        elif event.pane is self._files:
            self.action_choose_file()

    def _read_details(self) -> None:
        entry, now, preview = self._turns.row, self._now if self._turns.rows else None, self._preview

        def details() -> Details:
            if entry is None:
                return _details_of_now(now)
            return self._preview_of(entry) if preview else self._details_of(entry)

        def failed(problem: Exception) -> None:
            self._show_error(problem)
            self._show_details(Details("Files", remarks=(one_line(str(problem)),)))

        pause = _CURSOR_REST_SECONDS if entry else 0.0
        self._in_thread("details", details, self._show_details, failed, after=pause)

    def _details_of(self, entry: Entry) -> Details:
        """What an entry changed."""
        heading = f"Files of {entry_name(entry)}"
        diff = diff_of_entry(self._manager, self._workdir, entry)
        skipped = tuple(f"not captured: {safe(item.path)} ({item.why})" for item in entry.skipped)
        if diff is None:
            return Details(heading, remarks=("what it changed is not known: a state of it is missing", *skipped))
        return self._only_path(Details(heading, diff.changes, split_patch(diff.text), skipped))

    def _preview_of(self, entry: Entry) -> Details:
        """What going back would do to the files as they are now."""
        heading = f"Going back {'to ' if entry.kind == 'snapshot' else ''}{target_name(entry)}"
        if entry.state is None:
            return Details(heading, remarks=("there is no state to go back to",))
        plan = self._manager.restore(self._workdir, entry.state, self._paths(), dry_run=True)
        remarks = tuple(f"kept: {safe(kept.path)} ({kept.why})" for kept in plan.kept)
        changes = plan.changes  # empty if there are very many
        changes = changes or tuple(Change(path, "modified") for path in plan.written)
        changes += () if plan.changes else tuple(Change(path, "deleted") for path in plan.deleted)
        return self._only_path(Details(heading, changes, split_patch(plan.patch), remarks))

    def _only_path(self, details: Details) -> Details:
        """The same details; in the history of a file, of that file alone."""
        if self._path is None:
            return details
        inside = f"{self._path}/"
        changes = tuple(
            each for each in details.changes if each.path == self._path or each.path.startswith(inside)
        )
        return Details(details.heading, changes, details.patches, details.remarks)

    def _show_details(self, details: Details) -> None:
        here, same = self._files.row, self._details.heading == details.heading
        self._details = details
        rows: list[Change | str] = [*details.changes, *details.remarks]
        if not rows:
            rows = ["no file differs" if self._turns.row is None or self._preview else "no file was changed"]
        cursor = next((at for at, row in enumerate(rows) if row == here), 0) if same else 0
        more = f" ({count(len(details.changes), 'file')})" if details.changes else ""
        self._files.set_heading(f"{details.heading}{more}")
        self._files.show(rows, self._draw_file, cursor=cursor)
        self._show_diff()

    def _draw_file(self, row: Change | str, width: int) -> Text:
        if isinstance(row, str):
            return Text(cut(row, width), "dim")
        mark, style = path_mark(row)
        counts = line_counts(row)
        room = max(1, width - columns(counts) - 5)
        sign = "*" if row.path.rstrip("/") in self._chosen else " "
        name = pad(cut_path(safe(row.path), room), room)
        return Text.assemble((sign, "bold magenta"), (f"{mark} ", style), name, " ", (counts, "dim"))

    def _show_diff(self) -> None:
        row = self._files.row
        if not isinstance(row, Change):
            self.workers.cancel_group(self, "diff")
            self._diff.set_heading("Diff")
            self._diff.show([row or ""] if isinstance(row, str) else [], lambda text, width: Text(text))
            return
        part = part_of(self._details.patches, row.path)
        self._in_thread("diff", lambda: patch_of_file(part, row.path), lambda lines: self._draw_diff(row, lines))

    def _draw_diff(self, row: Change, lines: list[Line]) -> None:
        shown = (_entry_key(self._turns.row), self._preview, self._side_by_side, row.path)
        # The scroll position is kept if the same file changed while it is shown.
        keep, self._shown = shown == self._shown, shown
        self._diff.set_heading(f"Diff of {safe(row.path)}")
        if not lines:
            about = "a directory" if row.path.endswith("/") else "the text of this change is not shown"
            lines = [Line("!", Text(about))]
        if self._side_by_side:
            self._diff.show(pairs(lines), side_by_side_line, keep=keep)
        else:
            self._diff.show(lines, unified_line, wide=widest([line.text for line in lines]) + 2, keep=keep)

    def _ask(self, dialog: Dialog, then: Callable[[Any], None] | None = None) -> None:
        """Open a dialog, unless one is open: keys that are meant for that one must not answer a late question."""
        if len(self.screen_stack) == 1:
            self.push_screen(dialog, then)

    # --- keys: looking ------------------------------------------------------------------------------------------

    def action_preview(self) -> None:
        self._preview = not self._preview
        self._read_details()

    def action_side_by_side(self) -> None:
        self._side_by_side = not self._side_by_side
        self._show_diff()

    def action_next_file(self, by: int) -> None:
        self._files.move_to(self._files.cursor + by)

    def action_find(self) -> None:
        def show(text: str | None) -> None:
            self._find = text or ""
            self._show_turns()

        self._ask(Typed("find:", self._find, show), show)

    def action_everything(self) -> None:
        """Leave the history of a file, and the search."""
        self._find = ""
        self._chosen.clear()
        self._history_of(None)

    def action_history(self) -> None:
        row = self._files.row
        if isinstance(row, Change):
            self._history_of(row.path.rstrip("/"))
        else:
            self.action_history_of()

    def action_history_of(self) -> None:
        def typed(path: str | None) -> None:
            if path:
                self._history_of(path)

        self._ask(Typed("history of the file:", self._path or ""), typed)

    def _history_of(self, path: str | None) -> None:
        self._path = path
        self._entries = []
        self._say(_READING)
        self._read()

    def action_sessions(self) -> None:
        width, manager, workdir = self.size.width, self._manager, self._workdir

        def choose(rows: Sequence[Row]) -> None:
            if rows:
                self._ask(Chooser("Sessions", rows, "enter reads the conversation   esc closes"), read)
            else:
                self._say("no session yet")

        def read(session: Session | None) -> None:
            if session is not None:
                self._in_thread("conversation", lambda: conversation_of(manager, session, width), self._show_text)

        self._in_thread("sessions", lambda: session_choices(manager, workdir, width), choose)

    def _show_text(self, text: tuple[str, Sequence[Text]]) -> None:
        self._ask(Reader(*text))

    def action_projects(self) -> None:
        width = self.size.width

        def choose(rows: Sequence[Row]) -> None:
            self._ask(Chooser("Projects", rows, "enter opens   esc closes"), chosen)

        def chosen(workdir: Path | None) -> None:
            if workdir is not None:
                self._in_thread("project", lambda: context_of(workdir), opened)

        def context_of(workdir: Path) -> Context:
            context = Context(self._cli_context.ui, [str(workdir)])
            assert context.manager and context.workdir  # computed here, in the thread
            return context

        def opened(context: Context) -> None:
            self._open(context)
            self._draw_head()
            self.action_everything()

        self._in_thread("projects", lambda: project_rows(self._manager, width), choose)

    def action_keys(self) -> None:
        self._ask(Reader("Keys", [Text(line) for line in KEYS.splitlines()]))

    def action_look_again(self) -> None:
        self._trouble = ""
        self._say(_READING)
        self._read()

    def action_leave(self) -> None:
        if self._busy:
            self._say(f"{self._busy} ...: wait until it is done")
        else:
            self.exit(0)

    # --- keys: changing -------------------------------------------------------------------------------------

    def _paths(self) -> list[str]:
        """The files that are chosen; in the history of a file, that file."""
        return sorted(self._chosen) or ([self._path] if self._path else [])

    def action_choose_file(self) -> None:
        row = self._files.row
        if not self._files.has_focus:
            self._files.focus()
        elif isinstance(row, Change):
            self._chosen ^= {row.path.rstrip("/")}
            self._files.refresh()
            self._files.move_to(self._files.cursor + 1)
            chosen = f"{count(len(self._chosen), 'file')} chosen: enter brings back only these"
            self._say(chosen if self._chosen else "")

    def action_go_back(self) -> None:
        entry, paths = self._turns.row, self._paths()
        if entry is None or entry.state is None:
            self._say("there is nothing to go back to here: choose a turn")
            return
        name, asked = target_name(entry), one_line(entry.prompt or entry.reason)
        which = f" of {count(len(paths), 'file')}" if paths else ""

        def operation(context: Context) -> Operation:
            target = context.manager.get(context.workdir, entry)
            if paths:
                check_captured(context.manager, context.workdir, target, name, paths)
            return restoring(context, target, name, asked, paths)

        def heading(plan: RestoreResult) -> str:
            return f"Go back to {name}{which} ({ago(plan.target.created_at)}){f': {asked}' if asked else ''}"

        self._propose(operation, heading)

    def action_take_out(self) -> None:
        entry = self._turns.row
        if entry is None or entry.kind != "turn" or entry.number is None:
            self._say("only a turn can be taken out: choose one")
        else:
            self._propose(
                lambda context: reverting(context, entry.number), lambda plan: f"Take out {one_line(plan.what)}"
            )

    def action_undo(self) -> None:
        self._propose(undoing, lambda plan: f"Undo {one_line(plan.what)}")

    def action_redo(self) -> None:
        self._propose(redoing, lambda plan: f"Redo {one_line(plan.what)}")

    def action_pin(self) -> None:
        entry = self._turns.row
        if entry is None or entry.state is None:
            self._say("only a turn or a snapshot can be pinned: choose one")
            return
        change, verb = (self._manager.unpin, "unpinned") if entry.pinned else (self._manager.pin, "pinned")

        def pinned(_: object) -> None:
            self._say(f"{verb} {target_name(entry)}; p takes it back")
            self._read()

        self._in_thread("pin", lambda: change(self._workdir, entry.state), pinned)

    def _propose(
        self, operation: Callable[[Context], Operation], heading: Callable[[RestoreResult], str]
    ) -> None:
        """Make the plan, show it and ask; then apply it, and show the result."""
        if self._busy:
            self._say(f"{self._busy} ...: wait until it is done")
            return
        context = self._cli_context

        def make() -> tuple[Operation, RestoreResult, list[str]]:
            made = operation(context)
            plan = made.run(True, made.paths)
            also = (f"  {safe(line)}" for line in made.exchanged())
            return made, plan, [*plan_lines(plan, context, Ink(False)), *also]

        def ask(found: tuple[Operation, RestoreResult, list[str]]) -> None:
            self._say("")
            made, plan, rows = found
            lines = [Text(line) for line in rows]
            if plan.written or plan.deleted:
                self._ask(Question(heading(plan), lines), lambda yes: apply(made, plan) if yes else None)
            else:
                self._ask(Reader(heading(plan), lines))

        def apply(made: Operation, plan: RestoreResult) -> None:
            self._busy = made.verb
            self._say(f"{made.verb} ...")
            self._in_thread("apply", lambda: _apply(made, plan), done, failed)

        def done(text: str) -> None:
            self._busy = ""
            self._chosen.clear()
            self._say(text, "bold")
            self._read()

        def failed(problem: Exception) -> None:
            self._busy = ""
            self._show_error(problem)

        self._say("making the plan ...")
        self._in_thread("plan", make, ask)


def _apply(operation: Operation, plan: RestoreResult) -> str:
    """Apply an operation; what happened, how it differs from the plan, and the key that takes it back."""
    with interrupt_safely():
        result = operation.run(False, operation.paths)
    parts = [*operation.done(result).splitlines(), *result_lines(result, plan), result.note]
    parts += [f"{'z' if operation.reverse == 'undo' else 'Z'} takes it back"] if result.undo_id else []
    return "; ".join(one_line(part) for part in parts if part)


# --- texts --------------------------------------------------------------------------------------------------

_SIGNS = {"+": "green", "-": "red", "~": "yellow"}


def _entry_key(entry: Entry | None) -> object:
    """Identifies an entry when the timeline is read again."""
    return entry and (entry.kind, entry.number or (entry.before, entry.began_at))


def _entry_facts(entry: Entry | None) -> str:
    """The name, agent and age of an entry, and its whole prompt."""
    if entry is None:
        return ""
    moment = entry_moment(entry)
    facts = (entry_name(entry), one_line(entry.agent or ""), ago(moment) if moment else "")
    asked = one_line(entry.prompt or entry.reason)
    return ", ".join(filter(None, facts)) + (f": {asked}" if asked else "")


def _file_counts(entry: Entry) -> str:
    """`+1 -2 ~3`: files that were added, deleted and changed."""
    added, deleted = entry.files_added or 0, entry.files_deleted or 0
    numbers = (("+", added), ("-", deleted), ("~", (entry.files_changed or 0) - added - deleted))
    return " ".join(f"{sign}{number}" for sign, number in numbers if number)


def _now_summary(now: Now | None) -> str:
    if now is None or now.files_changed is None:
        return ""
    files = count(now.files_changed, "file") if now.files_changed else "no file"
    return f": {files} {'differ' if now.files_changed > 1 else 'differs'}"


def _details_of_now(now: Now | None) -> Details:
    if now is None:
        return Details("Files", remarks=("how the files are now is not known",))
    skipped = tuple(f"not captured: {safe(item.path)} ({item.why})" for item in now.skipped)
    heading = f"Changed since {now.name}" if now.name else "Files"
    return Details(heading, now.changes, split_patch(now.patch), skipped)
