"""The same facts as everywhere else, with rich: tables, highlighted diffs, progress bars. Only
imported on a terminal with colours, where the `ui` extra is installed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from io import StringIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from shadowsnap.cli import tables as changes
from shadowsnap.cli.text import age, columns, cut_path, safe, size
from shadowsnap.cli.ui import Ink
from shadowsnap.upkeep.status import Limit, ProjectStatus

_MOST_HIGHLIGHTED = 500_000
"""Characters of a diff that are highlighted at most, which takes about a second."""
_BAR = 20
_TAB = "\ue000"
"""Stands for a tab: harmless text has no such character."""


def widest(column: Sequence[str]) -> int:
    return max(map(columns, column), default=0)


def project_table(projects: Sequence[ProjectStatus], width: int) -> list[str]:
    """The projects of a store."""
    places = ["" if each.exists else each.place for each in projects]
    cells_of = {
        "count": ([str(each.checkpoints) for each in projects], "bold"),
        "newest": ([age(each.newest) if each.newest else "empty" for each in projects], "dim"),
        "alone": (["" if each.bytes_alone is None else size(each.bytes_alone) for each in projects], "cyan"),
        "kept": ([f"{each.pinned} pinned" if each.pinned else "" for each in projects], "magenta"),
        "place": (places, "yellow"),
    }
    shown = {title: column for title, column in cells_of.items() if widest(column[0])}
    taken = sum(max(len(title), widest(cells)) + 2 for title, (cells, _) in shown.items())
    paths = [cut_path(safe(each.workdir), max(20, width - taken - 1)) for each in projects]
    return [f"  {line}" for line in _table({**shown, "directory": (paths, "")}, width, ("count", "alone"))]


def limit_bars(limits: Iterable[Limit]) -> list[str]:
    """How far each limit is used."""
    bars = []
    for limit in limits:
        if limit.limit <= 0 or limit.used is None:
            bars.append("")
            continue
        full = min(_BAR, round(_BAR * limit.used / limit.limit))
        style = "red" if limit.exceeded else "yellow" if limit.near else "green"
        bars += _rendered(Text.assemble(("━" * full, style), ("━" * (_BAR - full), "dim")), 2 * _BAR)
    return bars


def patch_lines(text: str) -> list[str]:
    """A patch, harmless and highlighted."""
    plain = "\n".join(changes.patch_lines(text, Ink(False)))
    if len(plain) > _MOST_HIGHLIGHTED:
        return list(changes.patch_lines(text, Ink(True)))
    tabless = plain.replace("\t", _TAB)  # rich would make spaces of them
    shown = Syntax(tabless, "diff", theme="ansi_dark", background_color="default").highlight(tabless)
    console = _console(80)
    console.print(shown, soft_wrap=True, end="")
    return [line.replace(_TAB, "\t") for line in _lines(console)]


class Progress:
    """A bar on stderr, from `begin` to `end`."""

    def __init__(self, title: str) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task: TaskID | None = None
        self._title = title
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            self._task = self._bar.add_task(self._title, total=None)
            self._bar.start()

    def update(self, done: int, total: int) -> None:
        with self._lock:
            if self._task is not None:
                self._bar.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        """Nothing goes on between updates."""

    def end(self) -> None:
        with self._lock:
            if self._task is not None:
                self._bar.stop()


def _table(columns: dict[str, tuple[list[str], str]], width: int, right: tuple[str, ...]) -> list[str]:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    for title, (_, style) in columns.items():
        table.add_column(title, style=style, no_wrap=True, justify="right" if title in right else "left")
    for row in zip(*(cells for cells, _ in columns.values()), strict=True):
        table.add_row(*map(Text, row))
    return _rendered(table, width)


def _rendered(thing: RenderableType, width: int) -> list[str]:
    console = _console(width)
    console.print(thing)
    return _lines(console)


def _console(width: int) -> Console:
    # 16 colours: those that the person chose for their terminal.
    return Console(
        file=StringIO(), width=width, force_terminal=True, color_system="standard", highlight=False, markup=False,
        emoji=False, legacy_windows=False,
    )  # fmt: skip


def _lines(console: Console) -> list[str]:
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue().removesuffix("\n").split("\n")
