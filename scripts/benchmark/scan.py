"""scripts/bench scan: what finding the changes among many files costs against `git status`, through the API."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmark import report
from benchmark.operations import Course
from benchmark.race import Pace
from benchmark.targets import judge
from benchmark.trees import generate


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=options.scratch))
    try:
        command = f"scripts/bench scan --files {options.files} --rounds {options.rounds}"
        print(report.headline(report.machine(scratch), report.versions(), command), flush=True)
        tree = generate(scratch / f"files-{options.files}", options.files)
        (scratch / "course").mkdir()
        course = Course(tree, scratch / "course", Pace(options.rounds, sys.maxsize), lambda _: None)
        results = course.scans()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    verdicts = judge([tree], results, {})
    print("\n" + report.table(tree, results) + "\n\n" + report.verdict_table(verdicts), flush=True)
    return 1 if options.check and not all(verdict.met for verdict in verdicts) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench scan", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000, help="how many files the project has (100000)")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each contender (11)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser
