"""The command line of scripts/fuzz: one worker after the other, a line for each target, and what failed."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.planted import PLANTED
from fuzzing.seeds import KNOWN, ROOT
from fuzzing.targets import TARGETS, Target
from fuzzing.worker import Current, Failure, Job, died, fuzz, hung, replay, shrink, wall_seconds

_MOST_RESTARTS = 10
_START_SECONDS = 60.0
_MB = 1 << 20


@dataclass
class Report:
    """What came of one target."""

    target: Target
    executions: int = 0
    worst: float = 0.0
    memory: int = 0
    lines: int = 0
    inputs: int = 0
    failures: dict[str, tuple[Failure, bytes]] = field(default_factory=dict)

    def add(self, failure: Failure, data: bytes) -> None:
        self.failures.setdefault(failure.signature, (failure, data))

    def line(self, seconds: float) -> str:
        return (
            f"{self.target.name:18}{self.executions:>9} executions {seconds:>6.1f} s"
            f"  worst {self.worst * 1000:>7.1f} ms  memory {self.memory / _MB:>6.1f} MB"
            f"  lines {self.lines:>5}  inputs {self.inputs:>4}  failures {len(self.failures)}"
        )


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    if options.worker:
        return _work(json.loads(options.worker))
    known = PLANTED if options.planted else TARGETS
    unknown = [name for name in options.targets if name not in known]
    if unknown:
        print(f"error: there is no target {', '.join(unknown)}; --list shows which there are", file=sys.stderr)
        return 2
    chosen = [known[name] for name in options.targets] or list(known.values())
    if options.list:
        print("\n".join(f"{each.name:18}{each.about}" for each in chosen))
        return 0
    if options.replay:
        return _replay(chosen, [Path(options.corpus), KNOWN])
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    print(f"{options.seconds:g} seconds for each target, seed {seed}", flush=True)
    failed = 0
    for each in chosen:
        failed += _fuzz(each, seed, options, Path(options.corpus).absolute())
    return 1 if failed else 0


# --- one target -------------------------------------------------------------------------------------------


def _fuzz(target: Target, seed: int, options: argparse.Namespace, corpus: Path) -> int:
    """Fuzz one target and print what came of it; how many different failures there are."""
    report, began = Report(target), time.monotonic()
    end = began + options.seconds
    for attempt in range(_MOST_RESTARTS):
        left = end - time.monotonic()
        if attempt and left < 1:
            break
        if _run_worker(report, seed + attempt, max(1.0, left), options, corpus):
            break
        if options.until_first and report.failures:
            break
    print(report.line(time.monotonic() - began), flush=True)
    for failure, data in report.failures.values():
        _print_failure(target, failure, data, corpus, options.planted)
    return len(report.failures)


def _run_worker(report: Report, seed: int, seconds: float, options: argparse.Namespace, corpus: Path) -> bool:
    """Whether a worker came to the end of its time."""
    target = report.target
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as top:
        current = Path(top, "current")
        known = tuple(report.failures)
        job = Job(
            target.name, seed, seconds, f"{top}/place", str(corpus), str(current), known, options.until_first
        )
        watched, before = Current(current), report.executions
        worker = _start({"do": "fuzz", "planted": options.planted, "job": asdict(job)}, Path(top, "stderr"))
        assert worker.stdout is not None
        os.set_blocking(worker.stdout.fileno(), False)
        limit, started, text = wall_seconds(target), time.monotonic(), b""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(worker.stdout, selectors.EVENT_READ)
                while True:
                    selector.select(0.5)
                    piece = worker.stdout.read()
                    text = _read_messages(report, before, text + (piece or b""))
                    if piece == b"":
                        break
                    _, data, since = watched.read()
                    if time.monotonic() - (since or started + _START_SECONDS) > limit:
                        report.add(hung(), data)
                        worker.kill()
                        worker.wait()
                        return False
            status = worker.wait()
        finally:
            worker.kill()
            worker.wait()
        if status == 0:
            return True
        number, data, _ = watched.read()
        report.executions = max(report.executions, before + number)
        if status < 0:
            report.add(died(-status), data)
            return False
        report.add(Failure("the fuzzer itself fails", Path(top, "stderr").read_text(errors="replace")), data)
        return True


def _read_messages(report: Report, before: int, text: bytes) -> bytes:
    """Take in the messages of a worker; returns the beginning of a line that is not complete."""
    *lines, rest = text.split(b"\n")
    for line in lines:
        message = json.loads(line)
        if "failure" in message:
            report.add(Failure(**message["failure"]), bytes.fromhex(message["input"]))
            continue
        report.executions = before + message["executions"]
        report.worst, report.memory = max(report.worst, message["worst"]), max(report.memory, message["memory"])
        report.lines, report.inputs = max(report.lines, message["lines"]), message["inputs"]
    return rest


def _print_failure(target: Target, failure: Failure, data: bytes, corpus: Path, planted: bool) -> None:
    """Shrink a failing input, write it to a file, and print both."""
    folder = corpus / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fail-{hashlib.sha256(failure.signature.encode()).hexdigest()[:12]}"
    path.write_bytes(data)
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as top:
        order = {
            "do": "shrink",
            "planted": planted,
            "target": target.name,
            "place": f"{top}/place",
            "input": str(path),
            "signature": failure.signature,
        }
        _start(order, Path(top, "stderr")).wait()
    print(f"    {failure.signature}: {path} ({path.stat().st_size} bytes)")
    print("".join(f"        {line}\n" for line in failure.details.splitlines()[-12:]), flush=True)


def _start(order: dict[str, Any], errors: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, str(ROOT / "scripts" / "fuzz.py"), "--worker", json.dumps(order)]
    with open(errors, "wb") as file:
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file)


# --- in a worker ------------------------------------------------------------------------------------------


def _work(order: dict[str, Any]) -> int:
    """What the process does that `_start` starts."""
    known = PLANTED if order["planted"] else TARGETS
    answer = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # nothing that a target prints is taken for an answer
    if order["do"] == "shrink":
        path = Path(order["input"])
        path.write_bytes(
            shrink(known[order["target"]], Path(order["place"]), path.read_bytes(), order["signature"])
        )
        return 0
    job = Job(**order["job"])
    fuzz(known[job.target], job, lambda message: answer.write(json.dumps(message).encode() + b"\n"))
    return 0


# --- inputs that failed once ------------------------------------------------------------------------------


def _replay(chosen: list[Target], folders: list[Path]) -> int:
    """Run every seed and every input that failed once, each target in a process of its own."""
    failed = 0
    for target in chosen:
        files = [file for folder in folders for file in sorted((folder / target.name).glob("*")) if file.is_file()]
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            os._exit(_replay_one(target, {file.name: file.read_bytes() for file in files}))
        failed += os.waitpid(process, 0)[1] != 0
    return 1 if failed else 0


def _replay_one(target: Target, inputs: dict[str, bytes]) -> int:
    top = tempfile.mkdtemp(prefix="fuzz-")
    try:
        found = replay(target, Path(top, "place"), inputs)
    finally:
        os.chdir("/")
        shutil.rmtree(top, ignore_errors=True)
    print(f"{target.name}: {len(inputs)} kept inputs, {len(found)} failures")
    for name, failure in found.items():
        print(f"    {name}: {failure.signature}\n{failure.details}")
    sys.stdout.flush()
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Feed mutated input to everything that is parsed by hand. Only documented errors may come of "
        "it. Prints one line per target; failing inputs are shrunk and written to the corpus. Exit code 1 if "
        "anything failed. To keep an input for the tests, move it to tests/data/fuzz/TARGET.",
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to fuzz (default: everything)")
    parser.add_argument("--seconds", type=float, default=30, help="how long each target is fuzzed (default 30)")
    parser.add_argument("--until-first", action="store_true", help="go on to the next target at the first failure")
    parser.add_argument("--seed", type=int, help="for the same mutations again")
    parser.add_argument(
        "--corpus",
        default=str(ROOT / ".fuzz"),
        metavar="DIR",
        help="where inputs are kept that failed or reached new lines (default .fuzz)",
    )
    parser.add_argument("--list", action="store_true", help="list the targets")
    parser.add_argument("--replay", action="store_true", help="only run the seeds and the inputs that were kept")
    parser.add_argument("--planted", action="store_true", help="fuzz targets that fail on purpose instead")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
