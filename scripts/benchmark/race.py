"""Timing contenders against each other: interleaved, in turning order, so that what else happens on the
machine happens to all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


def nothing() -> None:
    pass


@dataclass(frozen=True)
class Contender:
    """One way to do the work. Only `run` is timed."""

    name: str
    run: Callable[[], None]
    processes: Callable[[], int]
    """How many git processes were started so far."""
    before: Callable[[], None] = nothing
    after: Callable[[], None] = nothing


@dataclass
class Samples:
    milliseconds: list[float] = field(default_factory=list)
    processes: int = 0

    @property
    def median(self) -> float:
        return median(self.milliseconds)

    def to_dict(self) -> dict[str, object]:
        rounded = [round(each, 3) for each in self.milliseconds]
        return {
            "median_ms": round(self.median, 3),
            "git_processes": self.processes,
            "runs": len(rounded),
            "milliseconds": rounded,
        }


@dataclass(frozen=True)
class Pace:
    rounds: int
    patience: float
    """Seconds after which a contender gets no further round of the same operation. Nobody does after
    three times as long was spent on preparing rounds."""
    quick: bool = False


def race(
    contenders: Sequence[Contender], pace: Pace, each_round: Callable[[], None] = nothing
) -> dict[str, Samples]:
    """The same work by every contender, round after round; `each_round` prepares it for all of them."""
    samples = {contender.name: Samples() for contender in contenders}
    began = time.perf_counter()
    for number in range(pace.rounds):
        timed = sum(sum(each.milliseconds) for each in samples.values()) / 1000
        if time.perf_counter() - began - timed > 3 * pace.patience:
            break
        each_round()
        turn = number % len(contenders)
        for contender in (*contenders[turn:], *contenders[:turn]):
            mine = samples[contender.name]
            if sum(mine.milliseconds) < pace.patience * 1000:
                _run(contender, mine)
    return samples


def _run(contender: Contender, samples: Samples) -> None:
    contender.before()
    started = contender.processes()
    began = time.perf_counter()
    contender.run()
    took = time.perf_counter() - began
    samples.processes = max(samples.processes, contender.processes() - started)
    samples.milliseconds.append(took * 1000)
    contender.after()
    # Flush what was written: else the next contender that flushes a single file pays for it. A quick
    # contender writes next to nothing, and flushing everything would slow the run down.
    if took > 0.5:
        os.sync()


def wait_for_next_second() -> None:
    """Git, and we, look again at what was written in the second of the last look. A person waits that
    long between two turns; so do we, once, before that matters to a measurement."""
    now = time.time()
    time.sleep(int(now) + 1.15 - now)  # 0.15: the clock that stamps files may lag
