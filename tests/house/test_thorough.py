"""A usual run leaves out combinations, and no value."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import thorough


@dataclass(eq=False)
class Case:
    """As much of a collected test as is looked at."""

    params: dict[str, Any]
    marker: pytest.Mark | None = None
    nodeid: str = "test_it[case]"
    callspec: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.callspec = SimpleNamespace(params=self.params)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marker if self.marker and self.marker.name == name else None


def cases(mark: pytest.MarkDecorator | None, *values: list[Any]) -> list[Any]:
    names = "abcdef"
    return [Case(dict(zip(names, row, strict=False)), mark.mark if mark else None) for row in product(*values)]


def test_each_value_occurs_and_no_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thorough, "THOROUGH", False)
    kinds, places, unhashable = list("xyz"), [f"place {number}" for number in range(7)], [[1], [2]]
    items = cases(pytest.mark.each_value, kinds, places, unhashable)
    chosen = thorough.chosen(items)
    assert len(items) == 42 and len(chosen) == 7
    for name, values in (("a", kinds), ("b", places), ("c", unhashable)):
        found = [case.callspec.params[name] for case in chosen]
        assert all(value in found for value in values)
        assert max(map(found.count, found)) <= 4  # none is preferred


def test_every_third_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thorough, "THOROUGH", False)
    for start in range(3):
        items = cases(pytest.mark.every(3, start=start), list(range(8)))
        assert [case.params["a"] for case in thorough.chosen(items)] == list(range(8))[start::3]
    (alone,) = cases(pytest.mark.every(3, start=2), [1])
    assert thorough.chosen([alone]) == [alone]  # it was asked for by name


def test_all_cases_of_a_thorough_run_and_of_an_ordinary_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thorough, "THOROUGH", False)
    ordinary = cases(None, [1, 2], [3, 4])
    assert thorough.chosen(ordinary) == ordinary
    monkeypatch.setattr(thorough, "THOROUGH", True)
    crossed = cases(pytest.mark.each_value, [1, 2], [3, 4])
    assert thorough.chosen(crossed) == crossed and thorough.depth(1, 5) == 5
