"""Holds answers against what is documented of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from shadowsnap.cli import schema


def problems(command: str, answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with an answer; nothing if it fits one of the forms of its command."""
    forms = [*schema.ANSWERS.get(command, {}).values(), *schema.INSTEAD.values()]
    found = [list(_problems({**schema.EVERYWHERE, **keys}, answer, "")) for keys in forms]
    return min(found, key=len, default=["there is no such command"])


def _problems(keys: schema.Keys, value: Mapping[str, Any], place: str) -> Iterator[str]:
    known = {key.removesuffix("?"): kind for key, kind in keys.items()}
    yield from (f"{place}{key} is not documented" for key in value if key not in known)
    yield from (f"{place}{key} is missing" for key in keys if not key.endswith("?") and key not in value)
    for key, kind in known.items():
        if key in value:
            yield from _wrong(kind, value[key], f"{place}{key}")


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "any": lambda value: True,
    "moment": lambda value: isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None,
}


def _wrong(kind: str, value: Any, place: str) -> Iterator[str]:
    if kind.endswith("?") and value is None:
        return
    kind = kind.removesuffix("?")
    if kind.startswith("["):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        for at, each in enumerate(value):
            yield from _wrong(kind[1:-1], each, f"{place}[{at}]")
    elif kind in _CHECKS:
        if not _CHECKS[kind](value):
            yield f"{place} is no {kind}: {value!r}"
    elif not isinstance(value, dict):
        yield f"{place} is no {kind}: {value!r}"
    else:
        yield from _problems(schema.RECORDS[kind], value, f"{place}.")
