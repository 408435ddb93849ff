"""What lies over the panes: a plan with its question, text to read, a line to type, and lists to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from shadowsnap.cli.commands.timeline import last_conversation, session_lines, session_rows
from shadowsnap.cli.tables import tilde
from shadowsnap.cli.text import safe
from shadowsnap.cli.ui import Ink
from shadowsnap.manager import CheckpointManager
from shadowsnap.model import Entry, Session
from shadowsnap.store.conversations import message_of
from shadowsnap.tui.patches import Lines, widest

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
        """What stands above the foot: nothing, unless a kind of dialog has something to show."""
        yield from ()


class Reader(Dialog):
    """Lines to read."""

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
        pane.say(self._title)
        pane.show(self._lines, wide=widest(self._lines))
        pane.focus()


class Question(Reader):
    """A plan, and whether to carry it out. Only `y` says yes."""

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
    """A list; below it, what is known of the row under the cursor. Answers with the value of the chosen row."""

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
        choices.say(self._title)
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
    """One line of text. `on_change` sees it while it is typed."""

    DEFAULT_CSS = """
    Typed { align: left bottom; }
    Typed > Vertical { width: 100%; max-width: 100%; }
    Typed Input { border: none; height: 1; padding: 0; background: ansi_default; color: ansi_default; }
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
_MOST_OF_TOOL = 200


def session_choices(manager: CheckpointManager, workdir: Path, width: int) -> list[Row]:
    """A row for each session of a project, with its prompts."""
    room = max(40, width - 16)
    found = manager.sessions(working_dir=workdir)
    lines = zip(session_rows(found, found, room), found, strict=True)
    return [Row(Text(line), session, partial(_about, session, room)) for line, session in lines]


def _about(session: Session, width: int) -> list[Text]:
    return [Text(safe(line)) for line in session_lines(session, width, Ink(False))]


def project_rows(manager: CheckpointManager) -> list[Row]:
    return [Row(Text(tilde(workdir)), workdir) for workdir in manager.projects()]


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
    """Who said what, from messages or the rows of a transcript; rows in which nothing is said are left out."""
    rows = data.get("messages", [data]) if isinstance(data, dict) else data
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict):
            yield "", str(row)
            continue
        message = message_of(row)
        text = "\n".join(_said(message.get("content", message.get("text"))))
        if text.strip():
            yield str(message.get("role") or row.get("type") or ""), text


def _said(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]
        elif isinstance(part, dict) and str(part.get("type", "")).startswith("tool"):
            about = part.get("input", part.get("content", ""))
            yield f"({part.get('name') or 'tool'}) {about}"[:_MOST_OF_TOOL]


# --- entries in words -----------------------------------------------------------------------------------------


def entry_in_words(entry: Entry) -> str:
    return "your own edits" if entry.number is None else f"{entry.kind} {entry.number}"


def goal_in_words(entry: Entry) -> str:
    """Where going back to an entry leads."""
    return entry_in_words(entry) if entry.kind == "snapshot" else f"before {entry_in_words(entry)}"
