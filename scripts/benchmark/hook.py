"""scripts/bench hook: what a hook costs before a tool call, against a Python that does nothing."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from benchmark import report
from benchmark.fresh import NOTHING, compiled_environment
from benchmark.race import Contender, Pace, Samples, race, wait_for_next_second
from benchmark.trees import Changes, generate
from shadowsnap.agents.launcher import program_words

TAKEN, UNCHANGED, ONE = "already taken", "unchanged", "one file changed"
LIMITS = {TAKEN: 2.5, UNCHANGED: 5.0, ONE: 5.0}


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
    print(f"  {NOTHING:18} {samples[NOTHING].median:7.1f} ms")
    for name, ratio in ratios.items():
        word = "met" if ratio <= LIMITS[name] else "MISSED"
        print(f"  {name:18} {samples[name].median:7.1f} ms  {ratio:5.2f} x  (limit {LIMITS[name]:g} x: {word})")
    if options.json:
        found = {name: each.to_dict() for name, each in samples.items()}
        options.json.write_text(json.dumps({"samples": found, "ratios": ratios}, indent=1) + "\n", "utf-8")
    return 1 if options.check and any(ratio > LIMITS[name] for name, ratio in ratios.items()) else 0


def measure(scratch: Path, files: int, rounds: int) -> dict[str, Samples]:
    """Each case has a project of its own: one never changes, one changes before each of its runs."""
    cases = {name: _Case(scratch, name, files) for name in LIMITS}
    changes = Changes(cases[ONE].tree, [path.relative_to(cases[ONE].tree) for path in _files(cases[ONE].tree)])

    def change_one() -> None:
        cases[ONE].new_turn()
        changes.edit(changes.choose(1))

    contenders = [
        Contender(NOTHING, cases[TAKEN].run_nothing, lambda: 0),
        Contender(TAKEN, cases[TAKEN].run_hook, lambda: 0),
        Contender(UNCHANGED, cases[UNCHANGED].run_hook, lambda: 0, before=cases[UNCHANGED].new_turn),
        Contender(ONE, cases[ONE].run_hook, lambda: 0, before=change_one),
    ]
    return race(contenders, Pace(rounds, 60), each_round=wait_for_next_second)


class _Case:
    """One project under one store, and the hook of an agent that works in it."""

    def __init__(self, scratch: Path, name: str, files: int) -> None:
        place = scratch / name.replace(" ", "-")
        self.tree = generate(place / "tree", files).path
        self._environment = {**compiled_environment(place / "base"), "SHADOWSNAP_HOME": str(place / "base")}
        self._turns = count()
        self.new_turn()
        self.run_hook()  # the first snapshot
        self.run_hook()  # compiles whatever is left

    def new_turn(self) -> None:
        self._event = json.dumps(
            {
                "session_id": "bench", "prompt_id": f"turn-{next(self._turns)}", "cwd": str(self.tree),
                "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "make"},
            }
        ).encode()  # fmt: skip

    def run_hook(self) -> None:
        self._run([*program_words(), "hook", "claude"], self._event)

    def run_nothing(self) -> None:
        self._run([sys.executable, "-c", "pass"], b"")

    def _run(self, words: list[str], data: bytes) -> None:
        subprocess.run(words, input=data, env=self._environment, cwd=self.tree, capture_output=True, check=True)


def _files(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*") if path.is_file()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench hook", description=__doc__)
    parser.add_argument("--files", type=int, default=1000, help="how many files the project has (1000)")
    parser.add_argument("--rounds", type=int, default=21, help="runs of each case (21)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser
