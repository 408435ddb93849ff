"""scripts/bench hook: what a hook costs before a tool call, with the resident helper and without, against a Python
that does nothing."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmark import report
from benchmark.fresh import NOTHING, compiled_environment
from benchmark.race import Contender, Pace, Samples, race, wait_for_next_second
from benchmark.trees import Changes, generate
from shadowsnap.agents.install import scripts
from shadowsnap.hook.server import running_helper, stop_helper

COVERED, PROMPT, UNCHANGED, TAKEN = "already covered", "prompt", "unchanged", "one file changed"
ALONE = "one file changed, no helper"
_START_SECONDS = 30.0
LIMITS = {COVERED: 1.3, PROMPT: 1.5, UNCHANGED: 2.5, TAKEN: 2.5, ALONE: 12.0}


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=options.scratch))
    try:
        command = f"scripts/bench hook --files {options.files} --rounds {options.rounds}"
        print(report.headline(report.machine(scratch), report.versions(), command), flush=True)
        samples = measure(scratch, options.files, options.rounds)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    ratios = {name: samples[name].median / samples[NOTHING].median for name in LIMITS}
    print(f"\nhook on {options.files:,} files, {options.rounds} rounds:")
    print(f"  {NOTHING:28} {samples[NOTHING].median:7.1f} ms")
    for name, ratio in ratios.items():
        word = "met" if ratio <= LIMITS[name] else "MISSED"
        print(f"  {name:28} {samples[name].median:7.1f} ms  {ratio:5.2f} x  (limit {LIMITS[name]:g} x: {word})")
    if options.json:
        found = {name: each.to_dict() for name, each in samples.items()}
        options.json.write_text(json.dumps({"samples": found, "ratios": ratios}, indent=1) + "\n", "utf-8")
    return 1 if options.check and any(ratio > LIMITS[name] for name, ratio in ratios.items()) else 0


def measure(scratch: Path, files: int, rounds: int) -> dict[str, Samples]:
    """Each case has a project and a store of its own, and all but one a resident helper."""
    cases = {name: _Case(scratch, name, files, helper=name != ALONE) for name in LIMITS}
    contenders = [Contender(NOTHING, cases[COVERED].run_nothing, lambda: 0)]
    for name, case in cases.items():
        contenders.append(Contender(name, case.run_hook, lambda: 0, before=case.prepare))
    try:
        return race(contenders, Pace(rounds, 60), each_round=wait_for_next_second)
    finally:
        for case in cases.values():
            case.stop()


class _Case:
    """One project under one store, and the hook of an agent that works in it."""

    def __init__(self, scratch: Path, name: str, files: int, *, helper: bool) -> None:
        place = scratch / str(list(LIMITS).index(name))  # short: the name of a socket is limited
        self._name = name
        self._tree = generate(place / "tree", files).path
        self._changes = Changes(self._tree, [path.relative_to(self._tree) for path in _files(self._tree)])
        self._base = str(place / "base")
        resident = {"SHADOWSNAP_HOME": self._base, "SHADOWSNAP_RESIDENT": "true" if helper else "false"}
        self._environment = {**compiled_environment(place / "base"), **resident}
        self._script = place / "shadowsnap"  # as `shadowsnap install` writes it for agents
        self._script.write_text(next(iter(scripts().values())))
        self._script.chmod(0o755)
        self._turns = count()
        self._event = self._tool()
        self.run_hook()  # the first snapshot, and the helper
        end = time.monotonic() + _START_SECONDS
        while helper and running_helper(self._base) is None:
            if time.monotonic() > end:
                raise SystemExit(f"no helper was started in {self._base}: is that path too long for a socket?")
            time.sleep(0.1)
        self.run_hook()

    def prepare(self) -> None:
        """End the last turn, as agents do, and let another one begin."""
        if self._name == COVERED:
            return
        self._event = self._payload(f"turn-{next(self._turns)}", "Stop")
        self.run_hook()
        if self._name == PROMPT:
            turn = f"turn-{next(self._turns)}"
            self._event = self._payload(turn, "UserPromptSubmit", prompt="Please make it work, and test it.")
            return
        self._event = self._tool()
        if self._name != UNCHANGED:
            self._changes.edit(self._changes.choose(1))

    def _tool(self) -> bytes:
        call = {"tool_name": "Bash", "tool_input": {"command": "make"}}
        return self._payload(f"turn-{next(self._turns)}", "PreToolUse", **call)

    def _payload(self, turn: str, event: str, **more: object) -> bytes:
        common = {"session_id": "bench", "prompt_id": turn, "cwd": str(self._tree), "hook_event_name": event}
        return json.dumps({**common, **more}).encode()

    def run_hook(self) -> None:
        self._run([str(self._script), "hook", "claude"], self._event)

    def run_nothing(self) -> None:
        self._run([sys.executable, "-I", "-c", "pass"], b"")

    def stop(self) -> None:
        stop_helper(self._base)

    def _run(self, words: list[str], data: bytes) -> None:
        subprocess.run(words, input=data, env=self._environment, cwd=self._tree, capture_output=True, check=True)


def _files(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*") if path.is_file()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench hook", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="how many files the project has (10000)")
    parser.add_argument("--rounds", type=int, default=21, help="runs of each case (21)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser
