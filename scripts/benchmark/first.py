"""scripts/bench first: the first snapshot of real trees against `cp -r`, interleaved, with a warm cache."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmark import report
from benchmark.fresh import weigh
from benchmark.operations import bytes_below
from benchmark.ours import Ours
from benchmark.peers import same_for_all
from benchmark.race import Contender, Pace, race
from benchmark.rivals import Copy, set_aside
from benchmark.trees import Tree, copy_of

_OURS, _COPY = "shadowsnap", "cp -r"
_MOST_TIME, _MOST_SIZE = 1.5, 0.5


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    missed = False
    scratch = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=options.scratch))
    try:
        headline = report.headline(report.machine(scratch), report.versions(), "scripts/bench first --tree DIR")
        print(headline.partition("Medians")[0], flush=True)
        for number, source in enumerate(options.tree):
            place = scratch / str(number)
            place.mkdir()
            copy_of(source, place / "tree")
            tree = same_for_all(source.resolve().name, place)
            missed |= not _measure(tree, place, options.rounds)  # nothing is removed: see `set_aside`
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 1 if options.check and missed else 0


def _measure(tree: Tree, place: Path, rounds: int) -> bool:
    """Print what one tree takes. Returns whether the limits are met."""
    copy, base = Copy(tree.path, place / "copy"), place / "base"

    def snapshot() -> None:
        if Ours(base, tree.path).do("snapshot") != "taken":
            raise SystemExit("nothing was taken")

    def begin() -> None:
        set_aside(base)
        copy.set_aside()
        os.sync()  # what one of them wrote must not be flushed in the time of the other

    samples = race(
        [
            Contender(_OURS, snapshot, lambda: 0, before=begin),
            Contender(_COPY, copy.run, lambda: 0, before=begin),
        ],
        Pace(rounds, sys.maxsize),
    )
    set_aside(base)
    memory = weigh(base, tree.path, "snapshot")
    share = bytes_below(base) / tree.bytes
    ratio = samples[_OURS].median / samples[_COPY].median
    pairs = zip(samples[_OURS].milliseconds, samples[_COPY].milliseconds, strict=True)
    each = " ".join(f"{ours / theirs:.2f}" for ours, theirs in pairs)
    print(
        f"{tree.name}: {tree.files:,} files, {tree.bytes / 1e6:.0f} MB\n"
        f"  {_OURS} {samples[_OURS].median:,.0f} ms, {_COPY} {samples[_COPY].median:,.0f} ms: {ratio:.2f} x "
        f"(limit {_MOST_TIME:g} x: {_word(ratio <= _MOST_TIME)}; each round: {each})\n"
        f"  store {share:.2f} x the tree (limit {_MOST_SIZE:g} x: {_word(share <= _MOST_SIZE)}), "
        f"memory {memory['peak_mb']:.0f} MB, of a helping process {memory['children_mb']:.0f} MB",
        flush=True,
    )
    return ratio <= _MOST_TIME and share <= _MOST_SIZE


def _word(met: bool) -> str:
    return "met" if met else "MISSED"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench first", description=__doc__)
    parser.add_argument("--tree", type=Path, action="append", required=True, metavar="DIR",
                        help="a directory of which a copy is captured; may be repeated")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7, help="runs of each (default 7)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is missed")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser
