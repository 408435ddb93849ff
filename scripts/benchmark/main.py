"""The command line of scripts/bench."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmark import peers, report
from benchmark.fresh import race_of_starts
from benchmark.operations import Course, Result, list_checkpoints
from benchmark.race import Pace
from benchmark.targets import judge
from benchmark.trees import CannotGet, Tree, copy_of, generate, kernel

FORMAT = 1
_SIZES, _QUICK_SIZES = (1_000, 5_000, 50_000), (1_000, 5_000)


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    if options.peers and not options.tree:
        _parser().error("--peers needs --tree")
    usual = Pace(5, 0.5, quick=True) if options.quick else Pace(11, 1)
    pace = Pace(options.rounds or usual.rounds, options.patience or usual.patience, usual.quick)
    command = shlex.join(["scripts/bench", *argv])
    try:
        with _scratch(options.scratch) as scratch:
            if options.peers:
                return peers.main(options, scratch, command)
            found = _measure(options, scratch, pace, command)
    except CannotGet as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    targets = [each["met"] for each in found["targets"]]
    print(f"\n{targets.count(True)} of {len(targets)} targets met", flush=True)
    return 1 if options.check and not all(targets) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure shadowsnap against git and cp, on generated trees of 1,000, 5,000 and 50,000 files "
        "by default. Nothing outside a scratch directory is written.",
    )
    parser.add_argument("--quick", action="store_true", help="1,000 and 5,000 files, few rounds")
    parser.add_argument("--files", type=_numbers, metavar="N,...", help="generate trees of these sizes instead")
    parser.add_argument("--tree", type=Path, action="append", default=[], metavar="DIR",
                        help="measure on a copy of this directory instead; may be repeated")  # fmt: skip
    parser.add_argument("--kernel", action="store_true",
                        help="measure on the Linux source instead, from Debian's package")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="runs of each contender (default 11, with --quick 5)")
    parser.add_argument("--patience", type=float, metavar="SECONDS",
                        help="a contender that took so long in total gets no further run of an operation; "
                        "less patience is a shorter benchmark (default 1, with --quick 0.5)")  # fmt: skip
    parser.add_argument("--checkpoints", type=int, help="how many to list (default 500, with --quick 50)")
    parser.add_argument("--peers", action="store_true",
                        help="compare with restic, borg and plain git instead; needs --tree")  # fmt: skip
    parser.add_argument("--manager", type=Path, metavar="FILE",
                        help="the module of a shadow-git CheckpointManager, for --peers")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser


def _measure(options: argparse.Namespace, scratch: Path, pace: Pace, command: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "format": FORMAT,
        "command": command,
        "began": report.now(),
        "machine": report.machine(scratch),
        "versions": report.versions(),
        "rounds": pace.rounds,
    }
    print(report.headline(found["machine"], found["versions"], found["command"]), flush=True)
    trees: list[Tree] = []
    results: list[Result] = []
    starts: dict[str, Any] = {}
    for number, tree in enumerate(_trees(options, scratch)):
        trees.append(tree)
        place = scratch / f"course-{number}"
        place.mkdir()
        course = Course(tree, place, pace, lambda what, name=tree.name: _say(f"{name}: {what}"))
        mine = course.run()
        if number == 0:
            course.settle()
            starts = race_of_starts(course.ours.base, tree.path, Pace(pace.rounds, 5 * pace.patience))
            count = options.checkpoints or (50 if options.quick else 500)
            mine.append(list_checkpoints(tree, place, pace, count, _say))
        results += mine
        print("\n" + report.table(tree, mine), flush=True)
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(tree.path, ignore_errors=True)
    verdicts = judge(trees, results, starts)
    print("\n" + report.starts_table(starts) + "\n\n" + report.verdict_table(verdicts), flush=True)
    return {
        **found,
        "ended": report.now(),
        "trees": [tree.to_dict() for tree in trees],
        "results": [result.to_dict() for result in results],
        "starts": {name: samples.to_dict() for name, samples in starts.items()},
        "targets": [verdict.to_dict() for verdict in verdicts],
    }


def _trees(options: argparse.Namespace, scratch: Path) -> Iterator[Tree]:
    """The trees that were asked for, each made when the one before it is done with."""
    sizes = options.files or (() if options.tree or options.kernel else _QUICK_SIZES if options.quick else _SIZES)
    for size in sizes:
        _say(f"generating {size:,} files")
        yield generate(scratch / f"files-{size}", size)
    for number, source in enumerate(options.tree):
        _say(f"copying {source}")
        yield copy_of(source, scratch / f"tree-{number}" / source.resolve().name)
    if options.kernel:
        _say("fetching and unpacking the Linux source (139 MB)")
        yield kernel(scratch / "kernel", scratch / "download")


@contextmanager
def _scratch(parent: Path | None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(","))


def _say(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)
