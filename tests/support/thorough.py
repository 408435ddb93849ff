"""How deep a run goes: the usual one tries a part of what `scripts/test --thorough` tries."""

from __future__ import annotations

import os
from collections import Counter
from itertools import groupby
from typing import TypeVar

import pytest

THOROUGH = bool(os.environ.get("THOROUGH")) or os.environ.get("HYPOTHESIS_PROFILE", "") in ("random", "long")
"""Whether every combination, every step and more random stories are tried."""

MARKERS = [
    "each_value: of the combinations of its parameters so few that each value occurs; all of them if thorough",
    "only_thorough: left out of a usual run, as a quicker test proves the same, or as it is about a script",
    "every(count, start=0): of its cases only every so many-th; all of them if thorough",
]

T = TypeVar("T")


def depth(usual: T, thorough: T) -> T:
    """How much of something is tried."""
    return thorough if THOROUGH else usual


def chosen(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases that this run tries, in their order."""
    if THOROUGH:
        return items
    items = [item for item in items if item.get_closest_marker("only_thorough") is None]
    found: list[pytest.Item] = []
    for _, group in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        cases = list(group)
        if cases[0].get_closest_marker("each_value"):
            cases = each_value(cases)
        if every := cases[0].get_closest_marker("every"):
            (count,), start = every.args, every.kwargs.get("start", 0)
            cases = cases[start % len(cases) :: count]
        found += cases
    return found


def each_value(cases: list[pytest.Item]) -> list[pytest.Item]:
    """So few cases that each value of each parameter occurs; those whose values were used least come first."""
    values = {case: values_of(case) for case in cases}
    missing = set().union(*values.values())
    used: Counter[tuple[str, int]] = Counter()
    taken: set[pytest.Item] = set()
    while missing:
        best = max(cases, key=lambda case: (len(values[case] & missing), -sum(used[it] for it in values[case])))
        taken.add(best)
        used.update(values[best])
        missing -= values[best]
    return [case for case in cases if case in taken]


def values_of(case: pytest.Item) -> frozenset[tuple[str, int]]:
    """The parameters of a case; each value is one object in all cases, and need not be hashable."""
    return frozenset((name, id(value)) for name, value in case.callspec.params.items())  # type: ignore[attr-defined]
