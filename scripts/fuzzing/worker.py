"""The process that runs a target: it mutates, runs and judges, within limits of time and memory.

It may be killed by what it runs, or hang. So each input is in a file (`Current`) before it is run, and the process
that started this one reads it from there.
"""

from __future__ import annotations

import gc
import hashlib
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from fuzzing import seeds
from fuzzing.mutations import Mutator, join, split
from fuzzing.targets import PACKAGE, Run, Target

MOST_MEMORY = 500 << 20
"""Beyond what the process has when the first input is run."""
_MOST_KEPT = 400
_TRACED = 0.25
"""So many of the inputs are run with a record of the lines they reach."""
_SHRINK_SECONDS = 20.0


@dataclass(frozen=True)
class Failure:
    signature: str
    """Equal for what is most likely the same defect."""
    details: str


@dataclass(frozen=True)
class Job:
    target: str
    seed: int
    seconds: float
    place: str
    corpus: str
    current: str
    ignored: tuple[str, ...] = ()
    """Signatures of failures that were reported already."""
    until_first: bool = False
    """Whether the first failure is the end."""


class TooSlow(BaseException):
    """Raised by the alarm; no `except Exception` catches it."""


class Current:
    """A file with the input that is being run, how many were run before, and since when."""

    _HEAD = struct.Struct("=QQd")
    SIZE = 8 << 20

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self.SIZE))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.SIZE)

    def begin(self, number: int, data: bytes) -> None:
        data = data[: self.SIZE - self._HEAD.size]
        self._map[self._HEAD.size : self._HEAD.size + len(data)] = data
        self._map[: self._HEAD.size] = self._HEAD.pack(number, len(data), time.monotonic())

    def read(self) -> tuple[int, bytes, float]:
        """How many inputs were run before, the input, and when it began (0: none did)."""
        number, size, began = self._HEAD.unpack(self._map[: self._HEAD.size])
        return number, self._map[self._HEAD.size : self._HEAD.size + size], began


# --- one input --------------------------------------------------------------------------------------------


def attempt(target: Target, run: Run, data: bytes) -> Failure | None:
    """Run one input in this process."""
    signal.signal(signal.SIGPROF, _out_of_time)
    signal.setitimer(signal.ITIMER_PROF, target.seconds)
    try:
        run(data)
    except target.expected:
        pass
    except (Exception, TooSlow) as problem:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return _described(problem)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def attempt_apart(target: Target, run: Run, *inputs: bytes) -> Failure | None:
    """Run inputs in a copy of this process, which they may kill, up to the first that fails."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            found = next(filter(None, (attempt(target, run, data) for data in inputs)), None)
            os.write(writing, json.dumps(asdict(found) if found else None).encode()[: 1 << 15])
        finally:
            os._exit(0)
    os.close(writing)
    end = time.monotonic() + wall_seconds(target)
    with os.fdopen(reading, "rb") as answer:
        while True:
            done, status = os.waitpid(process, os.WNOHANG)
            if done:
                break
            if time.monotonic() > end:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                return hung()
            time.sleep(0.001)
        text = answer.read()
    if status or not text:
        return died(-os.waitstatus_to_exitcode(status))
    record = json.loads(text)
    return None if record is None else Failure(**record)


def wall_seconds(target: Target) -> float:
    """When a process counts as hanging. Other work on the machine must not make it one."""
    return 10 * target.seconds + 10


def hung() -> Failure:
    return Failure("hangs", "it waits for something that does not come, or cannot be interrupted")


def died(number: int) -> Failure:
    return Failure(f"dies of signal {number}", "the process ended without an answer")


def limit_memory() -> None:
    """No more memory than allowed from here on."""
    gc.collect()
    used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        if sys.platform == "linux"
        else 1 << 30
    )
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, resource.RLIM_INFINITY))


def peak_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _out_of_time(*_: object) -> None:
    raise TooSlow


def _described(problem: BaseException) -> Failure:
    frames = traceback.extract_tb(problem.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    last = (ours or frames)[-1]
    where = f"{os.path.relpath(last.filename, os.path.dirname(PACKAGE))}:{last.name}"
    # What raised is in one line; what ran out of time or of stack may have been anywhere in its function.
    line = "" if isinstance(problem, (TooSlow, MemoryError, RecursionError)) else f":{last.lineno}"
    lines = traceback.format_exception(problem, limit=-8)
    return Failure(f"{type(problem).__name__} in {where}{line}", "".join(lines)[-3000:])


# --- lines that were reached ------------------------------------------------------------------------------


class Coverage:
    """Which lines of the package were ever reached. An input that reaches a new one is worth keeping."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()
        self._reached: set[tuple[str, int]] = set()

    def is_new(self, target: Target, run: Run, data: bytes) -> tuple[bool, Failure | None]:
        self._reached = set()
        sys.settrace(self._enter)
        try:
            found = attempt(target, run, data)
        finally:
            sys.settrace(None)
        new = not self._reached <= self._known
        self._known |= self._reached
        return new, found

    def __len__(self) -> int:
        return len(self._known)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self._reached.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line


# --- the work of a worker ---------------------------------------------------------------------------------


def prepare(target: Target, place: Path) -> tuple[Run, list[bytes]]:
    seeds.seal(place / "home")
    (place / "in").mkdir(parents=True)
    return target.prepare(place / "in")


def kept_inputs(target: Target, *folders: Path) -> list[bytes]:
    files = sorted(file for folder in folders for file in (folder / target.name).glob("*") if file.is_file())
    return [file.read_bytes() for file in files]


def fuzz(target: Target, job: Job, send: Any) -> None:
    """Mutate and run until the time is over. Reports what failed, and how much was done."""
    chance = random.Random(f"{job.seed}/{target.name}")
    mutator = Mutator(chance, target.forms, target.words)
    run, inputs = prepare(target, Path(job.place))
    inputs += kept_inputs(target, seeds.KNOWN, Path(job.corpus))
    current, coverage, ignored = Current(Path(job.current)), Coverage(), set(job.ignored)
    limit_memory()
    base, worst, number = peak_memory(), 0.0, 0
    folder = Path(job.corpus) / target.name
    room = _MOST_KEPT - len(list(folder.glob("seed-*")))
    end = time.monotonic() + job.seconds
    waiting = list(inputs)  # each as it is, before any is mutated
    while waiting or time.monotonic() < end:
        first = bool(waiting)
        data = waiting.pop() if first else mutator.mutate(_chosen(chance, inputs), chance.choice(inputs))
        if not first and chance.random() < 0.9:
            data = target.fixed(data)
        number += 1
        current.begin(number, data)
        if first or chance.random() < _TRACED:
            new, failure = coverage.is_new(target, run, data)
            if new and not first and failure is None and len(data) <= 1 << 16:
                inputs.append(data)
                if room > 0:
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / f"seed-{_digest(data)}").write_bytes(data)
                    room -= 1
            if failure is not None:  # being recorded takes time as well
                failure = attempt(target, run, data)
        else:
            began = time.process_time()
            failure = attempt(target, run, data)
            if (spent := time.process_time() - began) > worst:
                worst = spent
                (Path(job.corpus) / "slowest").mkdir(parents=True, exist_ok=True)
                (Path(job.corpus) / "slowest" / target.name).write_bytes(data)
        if failure is not None and failure.signature not in ignored:
            ignored.add(failure.signature)
            send({"failure": asdict(failure), "input": data.hex()})
            if job.until_first:
                break
        if number % 256 == 0:
            gc.collect()
            _report(send, number, worst, peak_memory() - base, len(coverage), len(inputs))
    _report(send, number, worst, peak_memory() - base, len(coverage), len(inputs))


def _report(send: Any, number: int, worst: float, memory: int, lines: int, inputs: int) -> None:
    send({"executions": number, "worst": worst, "memory": memory, "lines": lines, "inputs": inputs})


def _chosen(chance: random.Random, inputs: list[bytes]) -> bytes:
    """The newest are taken more often: they have just reached something new."""
    return chance.choice(inputs[-20:] if chance.random() < 0.3 else inputs)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def shrink(target: Target, place: Path, data: bytes, wanted: str) -> bytes:
    """A smaller input that fails in the same way; the same one if there is none, or it does not fail again."""
    run, _ = prepare(target, place)
    limit_memory()

    def fails(candidate: bytes) -> bool:
        found = attempt_apart(target, run, candidate)
        return found is not None and found.signature == wanted

    end = time.monotonic() + _SHRINK_SECONDS + 3 * target.seconds
    if not fails(data):
        return data
    for candidate in _smaller(target, data, end):
        if len(candidate[0]) < len(data) and fails(candidate[0]):
            data = candidate[0]
            candidate[1].append(data)
    return data


def _smaller(target: Target, data: bytes, end: float) -> Iterator[tuple[bytes, list[bytes]]]:
    """Inputs with a piece left out, large pieces first. One that was put into the list is gone on from."""
    count = len(target.forms)
    for which in range(count):
        size = max(1, len(split(data, count)[which]) // 2)
        while size:
            at = 0
            while time.monotonic() < end:
                parts = split(data, count)
                if at >= len(parts[which]):
                    break
                parts[which] = parts[which][:at] + parts[which][at + size :]
                accepted: list[bytes] = []
                yield target.fixed(parts[0] if count == 1 else join(parts)), accepted
                if accepted:
                    data = accepted[0]
                else:
                    at += size
            size //= 2


def replay(target: Target, place: Path, inputs: dict[str, bytes]) -> dict[str, Failure]:
    """Those of the inputs that fail, by name."""
    run, own = prepare(target, place)
    limit_memory()
    named = {**{f"seed {number}": data for number, data in enumerate(own)}, **inputs}
    if attempt_apart(target, run, *named.values()) is None:
        return {}  # one copy for all is enough, and which of them fails is not asked
    tried = {name: attempt_apart(target, run, data) for name, data in named.items()}
    return {name: failure for name, failure in tried.items() if failure is not None}
