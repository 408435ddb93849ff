"""Saying on stderr that something goes on, once it has taken a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shadowsnap.cli.ui import Ui

Update = Callable[[int, int], None]
"""Called with how many are done, of how many."""

_PATIENCE = 1.0
_PAUSE = 2.0


@contextmanager
def working(ui: Ui, title: str) -> Iterator[Update]:
    """What takes time happens within this block."""
    if ui.json:
        yield lambda done, total: None
        return
    talk = ui.fancy.Progress(title) if ui.fancy and ui.talk_ink.on else _Talk(ui, title)
    timer = threading.Timer(_PATIENCE, talk.begin)
    timer.daemon = True
    timer.start()
    try:
        yield talk.update
    finally:
        timer.cancel()
        timer.join()
        talk.end()


class _Talk:
    def __init__(self, ui: Ui, title: str) -> None:
        self._ui = ui
        self._title = title
        self._next = time.monotonic() + _PATIENCE + _PAUSE

    def begin(self) -> None:
        self._ui.say(f"{self._title} ...")

    def end(self) -> None:
        """What was said stays."""

    def update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _PAUSE
            self._ui.say(f"{self._title}: {done} of {total}")
