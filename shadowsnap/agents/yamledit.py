"""Adding a hook to the YAML settings of Hermes, and taking it out again, line by line.

There is no YAML library here, and one would lose the comments. So only the ordinary way of
writing such a file is understood; anything else is refused and stays as it is.
"""

from __future__ import annotations

import json
import re

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
    number, found = top + 1, False
    while number < lines.end_of(top, 0):
        line = lines.lines[number]
        if not line.lstrip().startswith("- "):
            number += 1
            continue
        end = lines.end_of(number, _indent(line))
        if is_ours.search("".join(lines.lines[number:end])):
            del lines.lines[number:end]
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
        inner = self.first_indent(top + 1, self.end_of(top, 0))
        number = top + 1
        while inner and number < self.end_of(top, 0):
            line = self.lines[number]
            bare = _indent(line) == inner and re.fullmatch(r"\s*[\w\"'-]+\s*:\s*", line)
            if bare and self.end_of(number, inner, of_list=True) == number + 1:
                del self.lines[number]
            else:
                number += 1
        if self.end_of(top, 0) == top + 1 and re.fullmatch(r"hooks\s*:\s*", self.lines[top]):
            del self.lines[top]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
