"""The deadline of an operation, which is passed down through every call.

Long work calls `check` again and again. It raises when the time is over, and it reports progress to
the host: where the clock is read, the progress is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from shadowsnap.errors import DeadlineExceeded

ReportProgress = Callable[[str, float, int | None, int | None], None]
"""Called with what is being done, the seconds since the start, and how much is done of how much."""


class ProgressReporter:
    """Reports a slow operation: once after each of the `times`, in seconds."""

    def __init__(self, callback: ReportProgress, times: Iterable[float]) -> None:
        self._callback = callback
        self._began = time.monotonic()
        self._times = sorted(times, reverse=True)

    def remaining(self) -> float | None:
        """Seconds until the next report; None if there is none."""
        return max(0.0, self._began + self._times[-1] - time.monotonic()) if self._times else None

    def report(self, doing: str, done: int | None, total: int | None) -> None:
        """Report if it is time."""
        if self._times and (seconds := time.monotonic() - self._began) >= self._times[-1]:
            self._times.pop()
            self._callback(doing, seconds, done, total)


class Deadline:
    def __init__(self, seconds: float = 0, reporter: ProgressReporter | None = None) -> None:
        """`seconds` from now; 0 is no limit."""
        self.seconds = seconds
        self._end = time.monotonic() + seconds if seconds > 0 else None
        self._reporter = reporter

    def remaining(self) -> float | None:
        """Seconds left; None if there is no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def part(self, share: float) -> Deadline:
        """A deadline after this share of the remaining time, for a step that has a fallback."""
        left = self.remaining()
        return self if left is None else Deadline(max(0.001, left * share), self._reporter)

    def patience(self) -> float | None:
        """Seconds that a caller may wait before the next `check`; None: as long as it likes."""
        times = (self.remaining(), self._reporter.remaining() if self._reporter is not None else None)
        return min((each for each in times if each is not None), default=None)

    def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
        """Raise `DeadlineExceeded` if the time is over, or report progress if it is time."""
        if self._end is not None and time.monotonic() >= self._end:
            raise self.exceeded(doing)
        if self._reporter is not None:
            self._reporter.report(doing, done, total)

    def report_progress(self, doing: str) -> None:
        """Report progress if it is time, without giving up."""
        if self._reporter is not None:
            self._reporter.report(doing, None, None)

    def exceeded(self, doing: str) -> DeadlineExceeded:
        return DeadlineExceeded(seconds=self.seconds, doing=doing)


NO_DEADLINE = Deadline()


step_listener: Callable[[str], None] | None = None
"""Called with the name of each `step`. The command line sets it to allow Ctrl-C between two files; tests set it to
stop the process there."""


def step(name: str) -> None:
    """A named point of an operation."""
    if step_listener is not None:
        step_listener(name)
