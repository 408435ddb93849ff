"""A moment after which an operation gives up, handed down through every call. Whoever has to be told
that it takes long is told from there, too: where the clock is looked at, the progress is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from shadowsnap.errors import DeadlineExceeded

Tell = Callable[[str, float, int | None, int | None], None]


class Watch:
    """Tells what is being done, for how many seconds, and how much of it is done of how much: once
    after each of the `moments`, in seconds."""

    def __init__(self, tell: Tell, moments: Iterable[float]) -> None:
        self._tell = tell
        self._began = time.monotonic()
        self._moments = sorted(moments, reverse=True)

    def remaining(self) -> float | None:
        """Seconds until there is something to tell, or None."""
        return max(0.0, self._began + self._moments[-1] - time.monotonic()) if self._moments else None

    def look(self, doing: str, done: int | None, total: int | None) -> None:
        if self._moments and (seconds := time.monotonic() - self._began) >= self._moments[-1]:
            self._moments.pop()
            self._tell(doing, seconds, done, total)


class Deadline:
    def __init__(self, seconds: float = 0, watch: Watch | None = None) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds if seconds > 0 else None
        self._watch = watch

    def remaining(self) -> float | None:
        """Seconds left, or None if there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def part(self, share: float) -> Deadline:
        """A share of the time that is left, for a step that there is a substitute for."""
        left = self.remaining()
        return self if left is None else Deadline(max(0.001, left * share), self._watch)

    def patience(self) -> float | None:
        """Seconds that one may wait without looking here; None: as long as it takes."""
        times = (self.remaining(), self._watch.remaining() if self._watch is not None else None)
        return min((each for each in times if each is not None), default=None)

    def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
        if self._end is not None and time.monotonic() >= self._end:
            raise self.exceeded(doing)
        if self._watch is not None:
            self._watch.look(doing, done, total)

    def look(self, doing: str) -> None:
        """Tell that it takes long, if it does, and do not give up."""
        if self._watch is not None:
            self._watch.look(doing, None, None)

    def exceeded(self, doing: str) -> DeadlineExceeded:
        return DeadlineExceeded(seconds=self.seconds, doing=doing)


NO_DEADLINE = Deadline()
