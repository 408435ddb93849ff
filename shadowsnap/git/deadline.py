"""A moment after which an operation gives up, handed down through every call."""

from __future__ import annotations

import time

from shadowsnap.errors import DeadlineExceeded


class Deadline:
    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds if seconds > 0 else None

    def remaining(self) -> float | None:
        """Seconds left, or None if there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def check(self, doing: str) -> None:
        if self._end is not None and time.monotonic() >= self._end:
            raise self.exceeded(doing)

    def exceeded(self, doing: str) -> DeadlineExceeded:
        return DeadlineExceeded(seconds=self.seconds, doing=doing)


NO_DEADLINE = Deadline()
