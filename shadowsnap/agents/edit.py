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


_EMPTY = re.compile(r"(\{\s*\}|\[\s*\]|null|~)?\s*(#.*)?")


def add_hook(text: str, event: str, hook: dict[str, str | int]) -> str:
    """Put a hook at the end of the list under `hooks: event:`. Raises ValueError."""
    lines = _Lines(text)
    top = lines.key_line("hooks", 0, len(lines.lines), 0)
    if top is None:
        if text and not text.endswith("\n"):
            lines.lines[-1] += lines.newline
        lines.lines += lines.block(0, "hooks", event, hook)
        return lines.text()
    lines.open_up(top, "hooks")
    end = lines.end_of(top, 0)
    inner = lines.first_indent(top + 1, end)
    if inner is None or inner == 0:
        lines.lines[top + 1 : top + 1] = lines.block(2, event, None, hook)
        return lines.text()
    place = lines.key_line(event, top + 1, end, inner)
    if place is None:
        lines.lines[end:end] = lines.block(inner, event, None, hook)
        return lines.text()
    lines.open_up(place, event)
    end = lines.end_of(place, inner, of_list=True)
    dash = lines.first_indent(place + 1, end)
    lines.lines[end:end] = lines.item(inner + 2 if dash is None else dash, hook)
    return lines.text()


def remove_hooks(text: str, is_ours: re.Pattern[str]) -> str:
    """Take out every list item under `hooks:` with a command of ours, and what it leaves empty."""
    lines = _Lines(text)
    top = lines.key_line("hooks", 0, len(lines.lines), 0)
    if top is None:
        return text
    number, last, found = top + 1, lines.end_of(top, 0), False
    while number < last:
        line = lines.lines[number]
        if not line.lstrip().startswith("- "):
            number += 1
            continue
        end = lines.end_of(number, _indent(line))
        if is_ours.search("".join(lines.lines[number:end])):
            del lines.lines[number:end]
            last -= end - number
            found = True
        else:
            number = end
    if not found:
        return text
    lines.drop_empty(top)
    return lines.text()


class _Lines:
    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.newline = "\r\n" if "\r\n" in text else "\n"
        for number, line in enumerate(self.lines, 1):
            if line.startswith("\t"):
                raise ValueError(f"line {number}: it is indented with tabs")
            if number > 1 and line.startswith(("---", "...")):
                raise ValueError(f"line {number}: there is more than one document in it")

    def text(self) -> str:
        return "".join(self.lines)

    def key_line(self, key: str, start: int, end: int, indent: int) -> int | None:
        """The line of a key that stands at exactly this indentation."""
        pattern = re.compile(rf" {{{indent}}}(?:{key}|\"{key}\"|'{key}')\s*:(?:\s|$)")
        found = [number for number in range(start, end) if pattern.match(self.lines[number])]
        if len(found) > 1:
            raise ValueError(f"line {found[1] + 1}: there is a second {key!r}")
        return found[0] if found else None

    def open_up(self, number: int, key: str) -> None:
        """Make sure that what a key holds stands on the lines below it: `hooks: {}` may go."""
        line = self.lines[number]
        head, _, value = line.partition(":")
        if not _EMPTY.fullmatch(value.strip()):
            raise ValueError(f"line {number + 1}: what {key!r} holds is written on the same line")
        comment = value[value.index("#") :].strip() if "#" in value else ""
        self.lines[number] = f"{head}:{f'  {comment}' if comment else ''}{self.newline}"

    def end_of(self, number: int, indent: int, *, of_list: bool = False) -> int:
        """The line after the last one that belongs to the one at `number`."""
        end = number + 1
        for later in range(number + 1, len(self.lines)):
            line = self.lines[later]
            if not line.strip() or line.lstrip().startswith("#"):
                continue  # belongs to what comes before only if more of it follows
            # The items of a list may stand right under their key.
            inside = _indent(line) > indent or (of_list and _indent(line) == indent and line.lstrip()[:2] == "- ")
            if not inside:
                break
            end = later + 1
        if end == len(self.lines) and self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += self.newline
        return end

    def first_indent(self, start: int, end: int) -> int | None:
        for line in self.lines[start:end]:
            if line.strip() and not line.lstrip().startswith("#"):
                return _indent(line)
        return None

    def block(self, indent: int, key: str, inner: str | None, hook: dict[str, str | int]) -> list[str]:
        head = [f"{' ' * indent}{key}:{self.newline}"]
        if inner is not None:
            return head + self.block(indent + 2, inner, None, hook)
        return head + self.item(indent + 2, hook)

    def item(self, indent: int, hook: dict[str, str | int]) -> list[str]:
        # A JSON string is a YAML string too, whatever stands in it.
        pairs = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in hook.items()]
        starts = ["- ", *["  "] * (len(pairs) - 1)]
        return [f"{' ' * indent}{start}{pair}{self.newline}" for start, pair in zip(starts, pairs, strict=True)]

    def drop_empty(self, top: int) -> None:
        """Remove keys under `hooks:`, and that itself, if nothing is left below them."""
        last = self.end_of(top, 0)
        inner = self.first_indent(top + 1, last)
        number = top + 1
        while inner and number < last:
            line = self.lines[number]
            bare = _indent(line) == inner and re.fullmatch(r"\s*[\w\"'-]+\s*:\s*", line)
            if bare and self.end_of(number, inner, of_list=True) == number + 1:
                del self.lines[number]
                last -= 1
            else:
                number += 1
        if self.end_of(top, 0) == top + 1 and re.fullmatch(r"hooks\s*:\s*", self.lines[top]):
            del self.lines[top]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
