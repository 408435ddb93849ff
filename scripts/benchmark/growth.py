"""scripts/bench growth: how time and memory grow with the number of files, as a text plot. Every snapshot is taken
in a fresh process, through the API and without watching."""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmark import report
from benchmark.fresh import weigh
from benchmark.race import wait_for_next_second
from benchmark.trees import Changes, generate, measured

_SIZES = (1_000, 10_000, 100_000)
_OPERATIONS = ("first", "unchanged", "one change")
_WIDTH = 48


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=options.scratch))
    found: dict[int, dict[str, tuple[float, float]]] = {}
    try:
        print(report.headline(report.machine(scratch), report.versions(), "scripts/bench growth"), flush=True)
        for place in options.tree:
            found[measured(place.name, place).files] = _measure(place, scratch, options.rounds)
        for size in options.files if not options.tree else ():
            tree = generate(scratch / f"files-{size}", size).path
            found[size] = _measure(tree, scratch, options.rounds)
            shutil.rmtree(tree)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("\n" + plot(found), flush=True)
    return 0


def _measure(tree: Path, scratch: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """The shortest time of each operation in milliseconds, and the memory of its largest process in megabytes."""
    base = scratch / "base"
    found = {_OPERATIONS[0]: _snapshot(base, tree, "taken")}
    wait_for_next_second()
    _snapshot(base, tree, "unchanged")
    changes = Changes(tree, [next(path.relative_to(tree) for path in tree.rglob("*.*") if path.is_file())])
    for _ in range(rounds):
        wait_for_next_second()
        _note(found, _OPERATIONS[1], _snapshot(base, tree, "unchanged"))
        changes.edit(changes.choose(1))
        wait_for_next_second()
        _note(found, _OPERATIONS[2], _snapshot(base, tree, "taken"))
    shutil.rmtree(base)
    return found


def _snapshot(base: Path, tree: Path, expected: str) -> tuple[float, float]:
    facts = weigh(base, tree, "snapshot")
    if facts["result"] != expected:
        raise SystemExit(f"the snapshot was {facts['result']} and not {expected}")
    return float(facts["ms"]), max(float(facts["peak_mb"]), float(facts["children_mb"]))


def _note(found: dict[str, tuple[float, float]], operation: str, seen: tuple[float, float]) -> None:
    before = found.get(operation, (math.inf, 0.0))
    found[operation] = min(before[0], seen[0]), max(before[1], seen[1])


def plot(found: dict[int, dict[str, tuple[float, float]]]) -> str:
    """Bars by powers of ten: where time grows in proportion to the files, each is as much longer as the last."""
    times = [row[0] for rows in found.values() for row in rows.values()]
    low, high = math.log10(min(times)) - 0.5, math.log10(max(times))
    lines = []
    for operation in _OPERATIONS:
        lines.append(f"{operation}, bars by powers of ten:")
        for files, rows in sorted(found.items()):
            milliseconds, megabytes = rows[operation]
            length = round(_WIDTH * (math.log10(milliseconds) - low) / (high - low))
            each = 1000 * milliseconds / files
            facts = f"{milliseconds:10,.0f} ms {each:7.1f} us/file {megabytes:5.0f} MB"
            lines.append(f"  {files:9,} {'#' * length:{_WIDTH}} {facts}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench growth", description=__doc__)
    parser.add_argument("--files", type=lambda text: tuple(map(int, text.split(","))), default=_SIZES,
                        metavar="N,...", help="sizes of generated trees (default 1000,10000,100000)")  # fmt: skip
    parser.add_argument("--tree", type=Path, action="append", default=[], metavar="DIR",
                        help="a directory instead, of which one file is changed; may be repeated")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="of unchanged and one change (default 3)")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser
