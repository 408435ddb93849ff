"""Panes with a heading and rows that scroll, and patches as such rows: unified or side by side, with the colours
of the language. Only visible rows are drawn, always as `Text`, which has no markup."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
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

from shadowsnap.cli.text import safe

Draw = Callable[[Any, int], Text]
"""Draws a row in the given number of columns."""

_CURSOR = Style(reverse=True)
_CURSOR_WITHOUT_FOCUS = Style(bold=True)
_LINE = Style(dim=True)
_ACTIONS = {
    "up,k": "move(-1)", "down,j": "move(1)", "pageup": "page(-1)", "pagedown": "page(1)",
    "home,g": "move(-1000000000)", "end,G": "move(1000000000)", "left": "sideways(-8)", "right": "sideways(8)",
}  # fmt: skip


class Lines(ScrollView, can_focus=True):
    """Rows under a heading. With `select` the keys move a cursor; else they scroll."""

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
        """Show other rows, with the cursor on one of them. `wide`: their width, for scrolling. `keep`: keep the
        scroll position."""
        self.rows = rows
        self._draw = draw or self._draw
        self.cursor = max(0, min(cursor, len(rows) - 1))
        self.virtual_size = Size(wide, len(rows) + 1)
        if self._select:
            self._reveal()
        elif not keep:
            self.scroll_to(0, 0, animate=False)
        self.refresh()

    def set_heading(self, heading: str | Text) -> None:
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
            strip = strip.apply_style(_CURSOR if self.has_focus else _CURSOR_WITHOUT_FOCUS)
        return strip

    def _heading(self, width: int) -> Strip:
        text = self.heading.copy()
        text.stylize("bold" if self.has_focus else "dim")
        words = text.render(self.app.console, end="")
        strip = Strip([Segment("─ " if self.has_focus else "  "), *words, Segment(" ")])
        rest = width - strip.cell_length
        return Strip([*strip, Segment("─" * rest, _LINE)]) if rest > 0 else strip.crop(0, width)

    def _reveal(self) -> None:
        """Scroll until the row under the cursor is visible. The heading covers the top line."""
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


_MOST_COLOURED = 60_000
"""A patch with more characters, or with a longer line than the next number, gets no colours of the language: some
lexers are slow."""
_MOST_COLUMNS = 400
_MOST_LINES = 20_000
_TAB = 4
_STYLES = {"+": Style(color="green"), "-": Style(color="red"), "@": Style(color="cyan"), "!": Style(bold=True)}
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d{1,10})(?:,\d+)? @@ ?(.*)")
_KINDS = {"100": "file", "120": "symbolic link", "040": "directory", "160": "repository"}


@dataclass(frozen=True)
class Line:
    """One line of a patch. `sign` is `+`, `-`, a space, `@` for the header of a hunk, `!` for a remark."""

    sign: str
    text: Text


def patch_of_file(part: str, path: str) -> list[Line]:
    """The lines of one file's patch, safe for a terminal, with remarks about permissions and binary files."""
    found, lines = list[Line](), part.removesuffix("\n").split("\n") if part else []
    cut, inside = len(lines) > _MOST_LINES, False
    found += _header_remarks(lines)
    for line in lines[:_MOST_LINES]:
        sign, text = line[:1], safe(line[1:], keep="\t").expandtabs(_TAB)
        head = _HUNK.match(line)
        if head is not None:
            inside, about = True, safe(head[2].strip(), keep="\t").expandtabs(_TAB)
            found.append(Line("@", Text(f"line {max(int(head[1]), 1)}  {about}".rstrip())))
        elif line.startswith(("old mode ", "deleted file mode ")):
            inside = False  # the patch of a path whose type changed has two parts
        elif inside and sign == "\\":
            found.append(Line("!", Text("(no newline at the end)")))
        elif inside and sign in ("+", "-", " "):
            found.append(Line(sign, Text(text)))
    if cut:
        found.append(Line("!", Text(f"... and {len(lines) - _MOST_LINES} more lines")))
    return _coloured(found, path)


def _header_remarks(lines: Sequence[str]) -> Iterator[Line]:
    """Remarks in words for the header of a patch."""
    before = ""
    for line in lines[:_MOST_LINES]:
        name, _, mode = line.rpartition(" ")
        if line[:1] in ("+", "-", " ", "@"):
            continue
        elif name == "old mode":
            before = mode
        elif name == "new mode":
            yield Line("!", Text(f"permissions: {before[-3:]} before, {mode[-3:]} after"))
        elif name in ("new file mode", "deleted file mode"):
            verb = "new" if name.startswith("new") else "deleted"
            yield Line("!", Text(f"{verb} {_KINDS.get(mode[:3], 'file')}, permissions {mode[-3:]}"))
        elif line.startswith("Binary files "):
            yield Line("!", Text("binary file: its contents are not shown"))
        elif line.startswith("not captured: "):
            yield Line("!", Text(safe(line)))


# --- colours of the language -------------------------------------------------------------------------


def _coloured(lines: list[Line], path: str) -> list[Line]:
    """The same lines in the colours of the language, which is guessed from the name of the file."""
    from rich.syntax import Syntax  # the lexers would make up a sixth of the start

    lexer, painted = "", {at: line.text for at, line in enumerate(lines)}
    if _is_small(lines):
        lexer = Syntax.guess_lexer(os.path.basename(path), "\n")  # by the name alone, not by the content
    for sign in "-+" if lexer else "":
        side = [at for at, line in enumerate(lines) if line.sign in (" ", sign)]
        code = "\n".join(lines[at].text.plain for at in side)
        whole = Syntax(code, lexer, theme="ansi_dark", background_color="default").highlight(code)
        texts = whole.split("\n", allow_blank=True)
        for at, text in zip(side, texts, strict=False):
            if text.plain == lines[at].text.plain:
                painted[at] = text
    return [Line(line.sign, _styled(line.sign, painted[at])) for at, line in enumerate(lines)]


def _styled(sign: str, text: Text) -> Text:
    """Green or red by the sign, except where the language has a colour."""
    spans = [span for span in text.spans if isinstance(span.style, Style)]  # the others set the background
    return Text(text.plain, _STYLES.get(sign, Style()), spans=spans)


def _is_small(lines: Sequence[Line]) -> bool:
    sizes = [len(line.text) for line in lines]
    return sum(sizes) <= _MOST_COLOURED and max(sizes, default=0) <= _MOST_COLUMNS


# --- drawing -----------------------------------------------------------------------------------------


def unified_line(line: Line, width: int) -> Text:
    if line.sign in "@!":
        return line.text
    return Text.assemble((line.sign, _STYLES.get(line.sign, "")), line.text)


Pair = tuple[Line | None, Line | None]


def pairs(lines: Sequence[Line]) -> list[Pair]:
    """Lines for two columns: deleted lines beside the ones that were added in their place."""
    found, deleted, added = list[Pair](), list[Line](), list[Line]()

    def flush() -> None:
        found.extend(zip_longest(deleted, added))
        deleted.clear()
        added.clear()

    for line in lines:
        if line.sign == "-":
            if added:
                flush()
            deleted.append(line)
        elif line.sign == "+":
            added.append(line)
        else:
            flush()
            found.append((line, line))
    flush()
    return found


def side_by_side_line(pair: Pair, width: int) -> Text:
    left, right = pair
    if left is not None and left is right and left.sign in "@!":
        return left.text
    half = max(1, (width - 3) // 2)
    return Text.assemble(_column(left, half), (" │ ", "dim"), _column(right, half))


def _column(line: Line | None, width: int) -> Text:
    if line is None:
        return Text(" " * width)
    text = Text.assemble((line.sign, _STYLES.get(line.sign, "")), line.text)
    text.truncate(width, overflow="crop", pad=True)
    return text
