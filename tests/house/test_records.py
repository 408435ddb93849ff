"""Records behave as dataclasses do, to people and to `dataclasses` itself."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing

import pytest

from shadowsnap.records import NamedTuple, dataclass, field, replace


@dataclass(frozen=True)
class Point:
    """A frozen one."""

    x: int
    y: int = 2
    tags: dict[str, int] = field(default_factory=dict)
    secret: str = field(default="", repr=False, compare=False)


@dataclass
class Box:
    size: int
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Named(Point):
    name: str = "p"
    y: int = 9

    def __repr__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True)
class RealPoint:
    x: int
    y: int = 2
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    secret: str = dataclasses.field(default="", repr=False, compare=False)


def test_a_record_is_made_compared_and_shown_like_a_dataclass() -> None:
    for arguments, named in [((1,), {}), ((1, 5), {}), ((), {"x": 3, "tags": {"a": 1}}), ((1,), {"secret": "s"})]:
        record, real = Point(*arguments, **named), RealPoint(*arguments, **named)
        assert repr(record) == repr(real).replace("RealPoint", "Point")
        assert dataclasses.asdict(record) == dataclasses.asdict(real)
    assert Point(1) == Point(1, secret="other") != Point(2)
    assert Point(1) != RealPoint(1)


@pytest.mark.parametrize(
    ("arguments", "named"), [((), {}), ((1, 2, {}, "", 5), {}), ((1,), {"z": 1}), ((1,), {"x": 1})]
)
def test_wrong_arguments_are_refused_as_by_a_dataclass(arguments: tuple, named: dict) -> None:
    with pytest.raises(TypeError):
        RealPoint(*arguments, **named)
    with pytest.raises(TypeError):
        Point(*arguments, **named)


def test_a_frozen_record_can_be_a_key_and_cannot_be_changed() -> None:
    assert len({Point(1, tags=()), Point(1, tags=()), Point(2, tags=())}) == 2  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Point(1).x


def test_a_record_that_is_not_frozen_can_be_changed_and_is_no_key() -> None:
    box = Box(1)
    box.size = 2
    assert box == Box(2)
    with pytest.raises(TypeError):
        hash(box)


def test_default_factories_make_a_new_value_each_time() -> None:
    Box(1).items.append(1)
    assert Box(1).items == []


def test_replace_changes_only_what_is_named() -> None:
    assert replace(Point(1, 5), x=7) == Point(7, 5)
    assert dataclasses.replace(Point(1, 5), x=7) == Point(7, 5)
    assert replace(RealPoint(1, 5), x=7) == RealPoint(7, 5)
    with pytest.raises(TypeError):
        replace(Point(1), z=1)  # type: ignore[call-arg]


def test_records_are_dataclasses_to_dataclasses() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "tags", "secret"]
    assert [each.name for each in dataclasses.fields(Box(1))] == ["size", "items"]


def test_records_can_be_copied_and_pickled() -> None:
    for record in (Point(1, tags={"a": 1}), Box(1, [2])):
        assert copy.deepcopy(record) == record
        assert pickle.loads(pickle.dumps(record)) == record


def test_records_match_by_position() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
        case _:
            raise AssertionError


def test_a_record_has_the_fields_of_the_one_above_it() -> None:
    record = Named(1, tags={"a": 1}, name="q")
    assert dataclasses.asdict(record) == {"x": 1, "y": 9, "tags": {"a": 1}, "secret": "", "name": "q"}
    assert [each.type for each in dataclasses.fields(Named)] == ["int", "int", "dict[str, int]", "str", "str"]
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "tags", "secret"]
    assert repr(record) == "q"
    assert record == replace(Named(1, name="q"), tags={"a": 1}) != Point(1, 9, {"a": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "r"  # type: ignore[misc]


class Pair(NamedTuple):
    """Two things."""

    first: int
    second: list[int] = []

    @property
    def both(self) -> int:
        return self.first + len(self.second)

    @classmethod
    def of(cls, first: int) -> Pair:
        return cls(first)


class RealPair(typing.NamedTuple):
    first: int
    second: list[int] = []


def test_a_named_tuple_is_one() -> None:
    pair = Pair(1, [2])
    assert pair == (1, [2]) and isinstance(pair, tuple)
    assert repr(pair) == repr(RealPair(1, [2])).replace("RealPair", "Pair")
    assert (Pair(3).second, Pair.of(3), pair.both) == ([], Pair(3), 2)
    assert pair._replace(first=5) == Pair(5, [2])
    assert Pair._fields == RealPair._fields and Pair._field_defaults == RealPair._field_defaults
    assert Pair.__doc__ == "Two things."
    assert pickle.loads(pickle.dumps(pair)) == pair
    with pytest.raises(TypeError):
        Pair()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        pair.first = 2  # type: ignore[misc]
