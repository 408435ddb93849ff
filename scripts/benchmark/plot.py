"""`scripts/bench plot`: how time grows with the number of files, and the store with the number of turns."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark import operations as op
from benchmark import report
from benchmark.chart import Line, chart
from benchmark.operations import Course, bytes_below
from benchmark.ours import Ours
from benchmark.race import Pace
from benchmark.rivals import ShadowRepository
from benchmark.trees import Changes, generate
from shadowsnap.snapshot.ignore_rules import exclude_file

_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_LARGE = 200_000
"""In larger trees only shadowsnap and `git status` are measured: `git add` would write a file for each of them."""
_TURNS, _TURN_FILES, _EDITS = 200, 2_000, 5
_RIVALS = (op.OURS, op.STATUS, op.ADD_COMMIT, op.READ_TREE)


def main(argv: Sequence[str]) -> int:
    options = _parser().parse_args(argv)
    scratch = Path(tempfile.mkdtemp(prefix="shadowsnap-bench-", dir=options.scratch))
    try:
        times = times_by_size(scratch, options.files, Pace(options.rounds, 2))
        sizes = sizes_by_turn(scratch, options.turns) if options.turns else {}
        facts = f"{report.machine(scratch)['processor']}, {report.machine(scratch)['file_system']}, " + ", ".join(
            f"{name} {version}" for name, version in report.versions().items()
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    options.to.mkdir(parents=True, exist_ok=True)
    pictures = {"times.svg": _times_chart(times, facts)}
    if sizes:
        pictures["sizes.svg"] = _sizes_chart(sizes, facts)
    for name, text in pictures.items():
        (options.to / name).write_text(text, "utf-8")
        print(options.to / name)
    if options.json:
        options.json.write_text(json.dumps({"times": times, "sizes": sizes, "facts": facts}, indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench plot", description="Measure, and draw times.svg and sizes.svg."
    )
    parser.add_argument("--to", type=Path, default=Path("shadowsnap/docs"), metavar="DIR",
                        help="(default: %(default)s)")  # fmt: skip
    parser.add_argument("--files", type=_numbers, default=_SIZES, metavar="N,...", help="sizes of trees")
    parser.add_argument("--turns", type=int, default=_TURNS, help="(default: %(default)s; 0: sizes.svg stays)")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each contender (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="work below this directory")
    return parser


def times_by_size(scratch: Path, sizes: Sequence[int], pace: Pace) -> dict[str, list[list[float]]]:
    """For each contender, milliseconds for one changed file by the number of files."""
    lines: dict[str, list[list[float]]] = {name: [] for name in _RIVALS}
    for size in sizes:
        _say(f"{size:,} files")
        tree = generate(scratch / f"files-{size}", size)
        place = scratch / f"course-{size}"
        place.mkdir()
        course = Course(tree, place, pace, lambda _: None)
        result = course.one_change() if size < _LARGE else course.one_change_of_many()
        for name in _RIVALS:
            median = result.status() if name == op.STATUS else result.median(name)
            if median is not None:
                lines[name].append([tree.files, round(median, 2)])
        shutil.rmtree(place)
        shutil.rmtree(tree.path)
    return lines


def sizes_by_turn(scratch: Path, turns: int) -> dict[str, list[list[float]]]:
    """For each contender, megabytes on disk by the number of turns, in each of which some files change.
    Everybody keeps every turn; a store of ours that has grown is packed, as it is in the background."""
    tree = generate(scratch / "turns", _TURN_FILES)
    ours = Ours(scratch / "base", tree.path, fsync=False)
    shadow = ShadowRepository(scratch / "shadow", tree.path, exclude_file())
    shadow.commit()
    changes = Changes(tree.path, shadow.files())
    copies = 0
    lines: dict[str, list[list[float]]] = {op.OURS: [], op.ADD_COMMIT: [], "copies": []}
    for turn in range(1, turns + 1):
        changes.edit(changes.choose(_EDITS))
        ours.do("snapshot")
        shadow.commit()
        copies += bytes_below(tree.path)
        if turn == 1 or turn % 10 == 0:
            _say(f"turn {turn}")
            ours.manager.prune()
            lines[op.OURS].append([turn, bytes_below(ours.base) / 1e6])
            lines[op.ADD_COMMIT].append([turn, bytes_below(shadow.git.git_dir) / 1e6])
            lines["copies"].append([turn, copies / 1e6])
    return {name: [[x, round(y, 2)] for x, y in points] for name, points in lines.items()}


def _times_chart(times: dict[str, Any], facts: str) -> str:
    lines = [Line(name, [(x, y) for x, y in points]) for name, points in times.items() if points]
    title = "A snapshot after one file changed"
    return chart(title, lines, "files in the project", "milliseconds", powers=True, note=facts)


def _sizes_chart(sizes: dict[str, Any], facts: str) -> str:
    lines = [Line(name, [(x, y) for x, y in sizes[name]]) for name in (op.OURS, op.ADD_COMMIT)]
    every = sizes["copies"][-1][1]
    title = f"Disk space of every turn, {_EDITS} of {_TURN_FILES:,} files changed in each"
    note = f"copies of the directory would be {every:,.0f} MB; {facts}"
    return chart(title, lines, "turns", "megabytes", powers=False, note=note)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part.replace("_", "")) for part in text.split(","))


def _say(text: str) -> None:
    print(f"· {text}", file=sys.stderr, flush=True)
