"""Ctrl-C while files are changed: all or nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shadowsnap.engine import steps

_BETWEEN_DEEDS = ("restore:applying", "restore:deleted-one", "restore:wrote-one")


@contextmanager
def careful() -> Iterator[None]:
    """Within this block Ctrl-C ends a restore only where the way back is known, and does not
    end the way back. Once everything is in place it comes too late."""
    outer = steps.listener
    care = _Care(outer)
    # Only the main thread may decide what a signal does; and a handler that is not Python's own means
    # that somebody else has decided.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    steps.listener = care.on_step
    try:
        if ours:
            signal.signal(signal.SIGINT, care.on_signal)
        yield
    finally:
        steps.listener = outer
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


class _Care:
    def __init__(self, outer: Callable[[str], None] | None) -> None:
        self._outer = outer
        self._touching = False
        self._wanted = False

    def on_signal(self, *_: object) -> None:
        if not self._touching:
            raise KeyboardInterrupt
        self._wanted = True

    def on_step(self, name: str) -> None:
        if self._outer is not None:
            self._outer(name)
        if name in _BETWEEN_DEEDS:
            self._touching = True
            if self._wanted:
                raise KeyboardInterrupt
        elif name == "restore:cleaned":
            self._touching = self._wanted = False
