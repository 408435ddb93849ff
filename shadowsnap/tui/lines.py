"""A pane: a heading, and rows below it that scroll. Only the rows that are seen are drawn, so a pane may have very
many. Everything that is drawn is `Text`, in which nothing is markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click, Focus, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

Draw = Callable[[Any, int], Text]
"""Draws a row of so many columns."""

_CURSOR = Style(reverse=True)
_CURSOR_ELSEWHERE = Style(bold=True)
_LINE = Style(dim=True)
_ACTIONS = {
    "up,k": "move(-1)", "down,j": "move(1)", "pageup": "page(-1)", "pagedown": "page(1)",
    "home,g": "move(-1000000000)", "end,G": "move(1000000000)", "left": "sideways(-8)", "right": "sideways(8)",
}  # fmt: skip


class Lines(ScrollView, can_focus=True):
    """Rows under a heading. With `select` one of them has the cursor; else the keys scroll."""

    DEFAULT_CSS = """
    Lines { scrollbar-size: 1 1; scrollbar-background: ansi_default; scrollbar-color: ansi_bright_black;
            scrollbar-background-hover: ansi_default; scrollbar-background-active: ansi_default;
            scrollbar-color-hover: ansi_white; scrollbar-color-active: ansi_white;
            scrollbar-corner-color: ansi_default; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, action, show=False) for key, action in _ACTIONS.items()
    ]

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, pane: Lines) -> None:
            super().__init__()
            self.pane = pane

        @property
        def control(self) -> Lines:
            return self.pane

    class Chosen(Moved):
        """The row under the cursor was clicked twice."""

    def __init__(self, *, id: str, select: bool = True) -> None:
        super().__init__(id=id)
        self.rows: Sequence[Any] = ()
        self.cursor = 0
        self.heading = Text()
        self._select = select
        self._draw: Draw = lambda row, width: row

    def show(
        self, rows: Sequence[Any], draw: Draw | None = None, *, cursor: int = 0, wide: int = 0, keep: bool = False
    ) -> None:
        """Other rows, with the cursor on one of them. `wide`: they have so many columns, to be scrolled. `keep`:
        stay where it was scrolled to."""
        self.rows = rows
        self._draw = draw or self._draw
        self.cursor = max(0, min(cursor, len(rows) - 1))
        self.virtual_size = Size(wide, len(rows) + 1)
        if self._select:
            self._reveal()
        elif not keep:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def say(self, heading: str | Text) -> None:
        """Another heading."""
        self.heading = heading if isinstance(heading, Text) else Text(heading)
        self.refresh()

    @property
    def row(self) -> Any:
        """The row under the cursor; None if there is no row."""
        return self.rows[self.cursor] if self.rows else None

    def move_to(self, cursor: int) -> None:
        cursor = max(0, min(cursor, len(self.rows) - 1))
        if cursor != self.cursor:
            self.cursor = cursor
            self._reveal()
            self.refresh()
            self.post_message(self.Moved(self))

    # --- drawing ----------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        width, (left, top) = self.size.width, self.scroll_offset
        if y == 0:
            return self._heading(width)
        at = top + y - 1
        if at >= len(self.rows):
            return Strip.blank(width)
        text = self._draw(self.rows[at], width)
        strip = Strip(text.render(self.app.console, end="")).crop_extend(left, left + width, None)
        if self._select and at == self.cursor:
            strip = strip.apply_style(_CURSOR if self.has_focus else _CURSOR_ELSEWHERE)
        return strip

    def _heading(self, width: int) -> Strip:
        text = self.heading.copy()
        text.stylize("bold" if self.has_focus else "dim")
        words = text.render(self.app.console, end="")
        strip = Strip([Segment("─ " if self.has_focus else "  "), *words, Segment(" ")])
        rest = width - strip.cell_length
        return Strip([*strip, Segment("─" * rest, _LINE)]) if rest > 0 else strip.crop(0, width)

    def _reveal(self) -> None:
        """Scroll so far that the row under the cursor is seen; the heading hides the topmost line."""
        top, high = round(self.scroll_y), max(1, self.size.height - 1)
        wanted = min(max(top, self.cursor - high + 1), self.cursor)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False)

    def on_resize(self, event: Resize) -> None:
        if self._select:
            self._reveal()

    def on_focus(self, event: Focus) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # --- keys and the mouse -----------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        if self._select:
            self.move_to(self.cursor + by)
        else:
            self.scroll_to(y=min(max(0, self.scroll_y + by), self.max_scroll_y), animate=False)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_sideways(self, by: int) -> None:
        self.scroll_to(x=min(max(0, self.scroll_x + by), self.max_scroll_x), animate=False)

    def on_click(self, event: Click) -> None:
        at = event.y - 1 + round(self.scroll_y)
        if self._select and event.y > 0 and at < len(self.rows):
            self.move_to(at)
            if event.chain == 2:
                self.post_message(self.Chosen(self))


def widest(texts: Sequence[Text]) -> int:
    return max((cell_len(text.plain) for text in texts), default=0)
