"""What is promised about speed, and whether a run kept it; `--check` fails on what is missed.

The smallest trees are compared with `git status` through the same index, larger ones also, and more strictly, with
the fastest `git status` there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmark import operations as op
from benchmark.fresh import IMPORT, NOTHING
from benchmark.operations import Result
from benchmark.race import Samples
from benchmark.trees import Tree

_PROCESSES = {
    op.UNCHANGED: 2, op.FIRST: 6, op.ONE: 6, op.HUNDRED: 6, op.LIST: 3,
    op.RESTORE_ONE: 12, op.RESTORE_MANY: 12, op.RESTORE_UNSAVED: 12,
}  # fmt: skip
_SMALL, _LARGE, _HUGE = 1_000, 50_000, 100_000
_LARGE_ENOUGH = 5_000
"""In smaller trees, what is the same for every tree decides: some milliseconds that git status does not have."""


@dataclass(frozen=True)
class Verdict:
    what: str
    where: str
    value: float
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        return self.value <= self.limit

    def to_dict(self) -> dict[str, object]:
        return {
            "what": self.what, "where": self.where, "value": round(self.value, 3), "limit": self.limit,
            "unit": self.unit, "met": self.met,
        }  # fmt: skip


def judge(trees: Sequence[Tree], results: Sequence[Result], starts: Mapping[str, Samples]) -> list[Verdict]:
    """Every target that this run can say something about."""
    verdicts: list[Verdict] = []
    known = {tree.name: tree for tree in trees}
    for result in results:
        verdicts += _times(result, known[result.tree].files)
        if result.operation == op.FIRST and known[result.tree].files >= _SMALL:
            share = int(str(result.facts["store_bytes"])) / max(1, known[result.tree].bytes)
            verdicts.append(Verdict(result.operation, result.tree, share, 0.5, "x size of the tree"))
        if result.operation in _PROCESSES:
            started = result.samples[op.OURS].processes
            limit = _PROCESSES[result.operation]
            verdicts.append(Verdict(result.operation, result.tree, started, limit, "git processes"))
    verdicts += _memory(trees, results)
    if IMPORT in starts:
        extra = starts[IMPORT].median - starts[NOTHING].median
        verdicts.append(Verdict(IMPORT, f"above {NOTHING}", extra, 10, "ms"))
    return verdicts


def _times(result: Result, files: int) -> Iterator[Verdict]:
    ours, same_index, status = result.median(op.OURS), result.median(op.STATUS), result.status()
    if ours is None:
        return
    limits = {op.UNCHANGED: 1.3, op.ONE: 2.5}
    if same_index is not None and result.operation in limits:
        yield Verdict(
            result.operation, result.tree, ours / same_index, limits[result.operation], "x git status, same index"
        )
    limits = {op.UNCHANGED: 1.1, op.ONE: 1.5, op.RESTORE_ONE: 3}
    if status is not None and result.operation in limits and files >= _LARGE_ENOUGH:
        yield Verdict(result.operation, result.tree, ours / status, limits[result.operation], "x git status")
    limits = {op.UNCHANGED: 0.6, op.ONE: 0.7}
    if status is not None and result.operation in limits and files >= _HUGE:
        unit = "x git status, 100,000 files"
        yield Verdict(result.operation, result.tree, ours / status, limits[result.operation], unit)
    rivals = {
        op.FIRST: (op.COPY, 1.5),
        op.RESTORE_MANY: (op.CHECKOUT, 1),
        op.RESTORE_UNSAVED: (op.CHECKOUT, 1),
        op.LIST: (op.FOR_EACH_REF, 3),
    }
    if result.operation in rivals:
        rival, limit = rivals[result.operation]
        theirs = result.median(rival)
        if theirs is not None:
            yield Verdict(result.operation, result.tree, ours / theirs, limit, f"x {rival}")
    text = result.median(op.DIFF_TREE)
    if result.operation == op.DIFF and status is not None and text is not None and files >= _LARGE_ENOUGH:
        unit = f"x git status, without {op.DIFF_TREE}"
        yield Verdict(op.DIFF, result.tree, (ours - text) / status, 2, unit)


def _memory(trees: Sequence[Tree], results: Sequence[Result]) -> Iterator[Verdict]:
    peaks = {(result.tree, result.operation): result.peak_mb for result in results}
    by_size = {tree.files: tree.name for tree in trees}
    if _SMALL not in by_size or _LARGE not in by_size:
        return
    for operation in (op.UNCHANGED, op.ONE):
        small, large = peaks.get((by_size[_SMALL], operation)), peaks.get((by_size[_LARGE], operation))
        if small is not None and large is not None:
            where = f"{by_size[_LARGE]} above {by_size[_SMALL]}"
            yield Verdict(operation, where, large - small, 20, "MB peak memory")
