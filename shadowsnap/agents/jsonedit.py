"""Small changes to JSON files of other programs that leave every other byte as it is.

Settings are written by people: with their own indentation, order and, in many programs, comments.
So nothing is parsed and printed again. A value is found by its position in the text, and text is
put in or taken out there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_TRIVIA = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\n]*)?")
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|[-+.\w]+')
_DEEPEST = 200


class Value:
    """A value and where it stands. An object's `parts` have keys, a list's have not."""

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        self.start = start
        self.end = start
        self.plain: Any = None
        self.parts: list[Part] = []

    def get(self, key: str) -> Value | None:
        """What an object has under a key; the last one counts if there are several."""
        return next((part.value for part in reversed(self.parts) if part.key == key), None)


class Part:
    def __init__(self, key: str | None, start: int, value: Value) -> None:
        self.key = key
        self.start = start
        """Where its key begins, or the value itself."""
        self.value = value

    @property
    def end(self) -> int:
        return self.value.end


def parse(text: str) -> Value:
    """The value of a JSON text, which may have comments and trailing commas. Raises ValueError."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    value = _value(text, start, 0)
    if _skip(text, value.end) != len(text):
        raise ValueError(f"line {_line(text, value.end)}: something follows the end")
    return value


def plain(value: Value) -> Any:
    """The value as Python knows it."""
    if value.kind == "object":
        return {part.key: plain(part.value) for part in value.parts}
    if value.kind == "list":
        return [plain(part.value) for part in value.parts]
    return value.plain


def add_member(text: str, where: Sequence[str], key: str, new: Any) -> str:
    """Put a member at the end of the object at `where`."""
    return _insert(text, _at(text, where), f"{json.dumps(key, ensure_ascii=False)}: ", new)


def append_item(text: str, where: Sequence[str], new: Any) -> str:
    """Put an item at the end of the list at `where`."""
    return _insert(text, _at(text, where), "", new)


def remove_part(text: str, container: Value, number: int) -> str:
    """Take one member or item out, with the comma and the line that it leaves over."""
    part = container.parts[number]
    if number + 1 < len(container.parts):
        after = container.parts[number + 1].start
        comma = text.index(",", _skip(text, part.end))
        kept = text[comma + 1 : after].lstrip()  # comments that belong to what follows
        return text[: part.start] + kept + text[after:]
    end = part.end
    trailing = _skip(text, end)
    if text[trailing] == ",":
        end = trailing + 1
    if number == 0:
        inside = text[container.start + 1 : part.start].rstrip() + text[end : container.end - 1].rstrip()
        indent = _indent_of(text, container.start)
        closing = _newline(text) + indent if inside else ""
        return text[: container.start + 1] + inside + closing + text[container.end - 1 :]
    before = container.parts[number - 1].end
    comma = text.index(",", _skip(text, before))
    between = text[comma + 1 : part.start].rstrip()
    return text[:before] + text[before:comma] + between + text[end:]


# --- putting in ------------------------------------------------------------------------------


def _at(text: str, where: Sequence[str]) -> Value:
    value = parse(text)
    for key in where:
        found = value.get(key)
        if found is None:
            raise ValueError(f"there is no {key!r}")
        value = found
    return value


def _insert(text: str, container: Value, label: str, new: Any) -> str:
    opening, closing = container.start, container.end - 1
    newline, outer = _newline(text), _indent_of(text, opening)
    if not container.parts:
        step = _usual_step(text)
        block = label + _printed(new, outer + step, step, newline)
        inside = text[opening + 1 : closing].rstrip()
        return f"{text[: opening + 1]}{inside}{newline}{outer}{step}{block}{newline}{outer}{text[closing:]}"
    first, last = container.parts[0], container.parts[-1]
    if "\n" not in text[opening : first.start]:  # all on one line: so is the new one
        return f"{text[: last.end]}, {label}{json.dumps(new, ensure_ascii=False)}{text[last.end :]}"
    inner = _indent_of(text, first.start)
    step = inner[len(outer) :] if inner.startswith(outer) and len(inner) > len(outer) else _usual_step(text)
    block = label + _printed(new, inner, step, newline)
    comma = _skip(text, last.end)
    has_comma = text[comma] == ","
    end = comma + 1 if has_comma else last.end
    rest = _rest_of_line(text, end)
    lead = text[: last.end] + ("" if has_comma else ",") + text[last.end : rest]
    return f"{lead}{newline}{inner}{block}{text[rest:]}"


def _rest_of_line(text: str, start: int) -> int:
    """Where a comment ends that stands on the same line; `start` if the line goes on otherwise."""
    match = _REST_OF_LINE.match(text, start)
    end = match.end() if match else start
    return end if text[end : end + 1] in ("\n", "\r") else start


def _printed(new: Any, indent: str, step: str, newline: str) -> str:
    lines = json.dumps(new, indent=step, ensure_ascii=False).split("\n")
    return (newline + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_of(text: str, position: int) -> str:
    """The white space that the line of this position begins with."""
    line = text[text.rfind("\n", 0, position) + 1 : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip())]


def _usual_step(text: str) -> str:
    match = re.search(r"\n([ \t]+)\S", text)
    return match.group(1) if match else "  "


# --- reading ---------------------------------------------------------------------------------


def _value(text: str, start: int, depth: int) -> Value:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    opening = text[start : start + 1]
    if opening == "{":
        return _container(text, start, depth, "object", "}")
    if opening == "[":
        return _container(text, start, depth, "list", "]")
    match = _SCALAR.match(text, start)
    if match is None:
        raise ValueError(f"line {_line(text, start)}: a value is missing")
    value = Value("scalar", start)
    value.end = match.end()
    try:
        value.plain = json.loads(match.group())
    except ValueError:
        raise ValueError(f"line {_line(text, start)}: {match.group()[:40]} is not a value") from None
    return value


def _container(text: str, start: int, depth: int, kind: str, closing: str) -> Value:
    container = Value(kind, start)
    position = _skip(text, start + 1)
    while text[position : position + 1] != closing:
        begin, key = position, None
        if kind == "object":
            name = _value(text, position, depth + 1)
            key = name.plain
            position = _skip(text, name.end)
            if not isinstance(key, str) or text[position : position + 1] != ":":
                raise ValueError(f"line {_line(text, begin)}: a name and a colon are missing")
            position = _skip(text, position + 1)
        part = Part(key, begin, _value(text, position, depth + 1))
        container.parts.append(part)
        position = _skip(text, part.end)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        elif text[position : position + 1] != closing:
            raise ValueError(f"line {_line(text, position)}: a comma or {closing} is missing")
    container.end = position + 1
    return container


def _skip(text: str, position: int) -> int:
    match = _TRIVIA.match(text, position)
    return match.end() if match else position


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
