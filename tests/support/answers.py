"""What the page `docs json` says of the answers, and whether an answer is like that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from shadowsnap.cli.commands.help import DOCS_FOLDER

Keys = dict[str, str]
"""Keys and their types. A key that ends in ? may be missing; of a type that ends in ? the value may be null."""

ANSWERS: dict[str, list[Keys]] = {}
"""The forms in which a command answers."""
RECORDS: dict[str, Keys] = {}
MEANINGS: dict[str, str] = {}
INSTEAD = "Instead"
"""What any command may answer instead stands under this name."""


def _read_page() -> None:
    part, names, keys = "", list[str](), Keys()
    references: list[tuple[Keys, str]] = []
    for line in (DOCS_FOLDER / "json.md").read_text("utf-8").splitlines():
        if line.startswith("## "):
            part = line[3:]
        elif line.startswith("### "):
            names = line[4:].split(", ")
            ANSWERS.update({name: [] for name in names if part == "Commands"})
            if part == "Records":
                keys = RECORDS[names[0]] = {}
        elif part == "Commands" and line.endswith(":"):  # a form of the answer
            keys = {}
            for name in names:
                ANSWERS[name].append(keys)
        elif found := re.fullmatch(r"- `(\w+\??)`: (\S+)", line):
            keys[found[1]] = found[2]
        elif found := re.fullmatch(r"- the keys of (\w+)", line):
            references.append((keys, found[1]))
        elif found := re.fullmatch(r"\| `(\w+)` \| (.+) \|", line):
            MEANINGS[found[1]] = found[2]
    for keys, name in references:
        keys.update({**RECORDS[name], **keys})


_read_page()


def all_keys() -> Iterator[tuple[str, str, str]]:
    """Where a key occurs, the key, and its type without the question mark."""
    answers = [(name, keys) for name, forms in ANSWERS.items() for keys in forms]
    for name, keys in [("every", {"schema": "integer"}), *RECORDS.items(), *answers]:
        yield from ((name, key.removesuffix("?"), kind.removesuffix("?")) for key, kind in keys.items())


def problems(command: str, answer: Mapping[str, Any]) -> list[str]:
    """What is wrong with an answer; nothing if it fits one of the forms of its command."""
    forms = [*ANSWERS.get(command, ()), *ANSWERS[INSTEAD]]
    found = [list(_problems({"schema": "integer", **keys}, answer, "")) for keys in forms]
    return min(found, key=len)


def _problems(keys: Keys, value: Mapping[str, Any], place: str) -> Iterator[str]:
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
        yield from _problems(RECORDS[kind], value, f"{place}.")
