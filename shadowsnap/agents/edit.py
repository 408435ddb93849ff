"""Edits of other programs' settings that leave every byte as it is except for our own part.

People write these files with their own indentation, order and comments, so nothing is parsed and printed again.
The JSON and YAML editors find the position of a value in the text, and insert or remove text there. The `Edit`
classes at the end use them: each adds and removes our part of one file.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shadowsnap.files import UnreadableFile, read_bounded

_LONGEST = 4 << 20
_WHY_UNREADABLE = {
    "special": "it is no regular file",
    "too-large": f"it has more than {_LONGEST >> 20} MB",
    "directory": "it is a directory",
}
_TRIVIA = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\n]*)?")
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|[-+.\w]+')
_MAX_DEPTH = 200

_OURS = re.compile(r"shadowsnap(?:\.exe)?[\"']*\s+(?:hook|statusline)\s+[\w-]+")
"""A command line of ours, whatever program it starts and whichever version wrote it."""
_CHECKSUM = re.compile(r"\(sum ([0-9a-f]{12})\)")


# --- reading settings files ------------------------------------------------------------------


def read_settings(path: Path) -> bytes | None:
    """The content of a settings file; None if there is none. Raises ValueError if it cannot be read: a cloned
    project may have a named pipe, or a file without end, in the place of settings."""
    try:
        return read_bounded(path, _LONGEST)
    except UnreadableFile as problem:
        raise ValueError(_WHY_UNREADABLE.get(problem.why, "it cannot be read")) from None


def decoded(data: bytes | None) -> str | None:
    """The text of a settings file, as far as there is one. Raises ValueError if it is not text."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def read_text(path: Path) -> str | None:
    """The text of a settings file; None if there is none. Raises ValueError if it cannot be read."""
    return decoded(read_settings(path))


def read_value(path: Path) -> Any:
    """The value of a JSON file with comments; None if there is none or it cannot be read."""
    try:
        text = read_text(path)
        return None if text is None else plain(parse(text))
    except ValueError:
        return None


def table_in(value: Any, *keys: str) -> dict[str, Any]:
    """The object under these keys, one inside the other; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


# --- JSON with comments ----------------------------------------------------------------------


class Value:
    """A JSON value and its position in the text. The `parts` of an object have keys, those of a list do not."""

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        """`object`, `list` or `scalar`."""
        self.start = start
        self.end = start
        self.plain: Any = None
        self.parts: list[Part] = []

    def get(self, key: str) -> Value | None:
        """The value under a key of an object; the last one if the key is repeated."""
        return next((part.value for part in reversed(self.parts) if part.key == key), None)


class Part:
    """One member of an object or one item of a list."""

    def __init__(self, key: str | None, start: int, value: Value) -> None:
        self.key = key
        self.start = start
        """The position of its key, or of the value of an item."""
        self.value = value

    @property
    def end(self) -> int:
        return self.value.end


def parse(text: str) -> Value:
    """The value of a JSON text, which may have comments and trailing commas. Raises ValueError."""
    start = _skip(text, 1 if text.startswith("\ufeff") else 0)
    value = _value(text, start, 0)
    if _skip(text, value.end) != len(text):
        raise ValueError(f"line {_line(text, value.end)}: unexpected text after the end")
    return value


def plain(value: Value) -> Any:
    """The value as Python objects."""
    if value.kind == "object":
        return {part.key: plain(part.value) for part in value.parts}
    if value.kind == "list":
        return [plain(part.value) for part in value.parts]
    return value.plain


def add_member(text: str, where: Sequence[str], key: str, new: Any) -> str:
    """Add a member at the end of the object at `where`."""
    return _insert(text, _value_at(text, where), f"{json.dumps(key, ensure_ascii=False)}: ", new)


def append_item(text: str, where: Sequence[str], new: Any) -> str:
    """Add an item at the end of the list at `where`."""
    return _insert(text, _value_at(text, where), "", new)


def _value_at(text: str, where: Sequence[str]) -> Value:
    value = parse(text)
    for key in where:
        found = value.get(key)
        if found is None:
            raise ValueError(f"there is no {key!r}")
        value = found
    return value


def _insert(text: str, container: Value, label: str, new: Any) -> str:
    opening, closing = container.start, container.end - 1
    newline, outer = _newline(text), _indent_at(text, opening)
    if not container.parts:
        step = _indent_step(text)
        block = label + _formatted(new, outer + step, step, newline)
        inside = text[opening + 1 : closing].rstrip()
        return f"{text[: opening + 1]}{inside}{newline}{outer}{step}{block}{newline}{outer}{text[closing:]}"
    first, last = container.parts[0], container.parts[-1]
    if "\n" not in text[opening : first.start]:  # a container on one line stays on one line
        return f"{text[: last.end]}, {label}{json.dumps(new, ensure_ascii=False)}{text[last.end :]}"
    inner = _indent_at(text, first.start)
    step = inner[len(outer) :] if inner.startswith(outer) and len(inner) > len(outer) else _indent_step(text)
    block = label + _formatted(new, inner, step, newline)
    comma = _skip(text, last.end)
    has_comma = text[comma] == ","
    end = comma + 1 if has_comma else last.end
    rest = _end_of_comment(text, end)
    lead = text[: last.end] + ("" if has_comma else ",") + text[last.end : rest]
    return f"{lead}{newline}{inner}{block}{text[rest:]}"


def _end_of_comment(text: str, start: int) -> int:
    """The end of a comment on the same line; `start` if anything else follows there."""
    match = _REST_OF_LINE.match(text, start)
    end = match.end() if match else start
    return end if text[end : end + 1] in ("\n", "\r") else start


def _formatted(new: Any, indent: str, step: str, newline: str) -> str:
    lines = json.dumps(new, indent=step, ensure_ascii=False).split("\n")
    return (newline + indent).join(lines)


def _indent_step(text: str) -> str:
    match = re.search(r"\n([ \t]+)\S", text)
    return match.group(1) if match else "  "


def remove_part(text: str, container: Value, number: int) -> str:
    """Remove one member or item, with its comma and the line that would be left empty."""
    part = container.parts[number]
    if number + 1 < len(container.parts):
        after = container.parts[number + 1].start
        comma = text.index(",", _skip(text, part.end))
        kept = text[comma + 1 : after].lstrip()  # comments that belong to the next part
        return text[: part.start] + kept + text[after:]
    end = part.end
    trailing = _skip(text, end)
    if text[trailing] == ",":
        end = trailing + 1
    if number == 0:
        inside = text[container.start + 1 : part.start].rstrip() + text[end : container.end - 1].rstrip()
        indent = _indent_at(text, container.start)
        closing = _newline(text) + indent if inside else ""
        return text[: container.start + 1] + inside + closing + text[container.end - 1 :]
    before = container.parts[number - 1].end
    comma = text.index(",", _skip(text, before))
    between = text[comma + 1 : part.start].rstrip()
    return text[:before] + text[before:comma] + between + text[end:]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, position: int) -> str:
    """The white space at the beginning of the line of this position."""
    line = text[text.rfind("\n", 0, position) + 1 : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip())]


def _value(text: str, start: int, depth: int) -> Value:
    if depth > _MAX_DEPTH:
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
    """The position after white space and comments."""
    match = _TRIVIA.match(text, position)
    return match.end() if match else position


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# --- YAML, as far as a list of hooks needs it -------------------------------------------------

_EMPTY = re.compile(r"(\{\s*\}|\[\s*\]|null|~)?\s*(#.*)?")


def add_hook(text: str, event: str, hook: Mapping[str, str | int]) -> str:
    """Add a hook at the end of the list under `hooks: event:`. Raises ValueError."""
    lines = _YamlLines(text)
    top = lines.key_line("hooks", 0, len(lines.lines), 0)
    if top is None:
        if text and not text.endswith("\n"):
            lines.lines[-1] += lines.newline
        lines.lines += [f"hooks:{lines.newline}", *lines.list_of_one(2, event, hook)]
        return lines.text()
    lines.open_block(top, "hooks")
    end = lines.end_of(top, 0)
    inner = lines.first_indent(top + 1, end)
    if inner is None or inner == 0:
        lines.lines[top + 1 : top + 1] = lines.list_of_one(2, event, hook)
        return lines.text()
    number = lines.key_line(event, top + 1, end, inner)
    if number is None:
        lines.lines[end:end] = lines.list_of_one(inner, event, hook)
        return lines.text()
    lines.open_block(number, event)
    end = lines.end_of(number, inner, of_list=True)
    dash = lines.first_indent(number + 1, end)
    lines.lines[end:end] = lines.item(inner + 2 if dash is None else dash, hook)
    return lines.text()


def remove_hooks(text: str, is_ours: re.Pattern[str]) -> str:
    """Remove every list item under `hooks:` with a command of ours, and keys that are empty then."""
    lines = _YamlLines(text)
    top = lines.key_line("hooks", 0, len(lines.lines), 0)
    if top is None:
        return text
    number, last, found = top + 1, lines.end_of(top, 0), False
    while number < last:
        line = lines.lines[number]
        if not line.lstrip().startswith("- "):
            number += 1
            continue
        end = lines.end_of(number, _indent_of(line))
        if is_ours.search("".join(lines.lines[number:end])):
            del lines.lines[number:end]
            last -= end - number
            found = True
        else:
            number = end
    if not found:
        return text
    lines.remove_empty_keys(top)
    return lines.text()


class _YamlLines:
    """The lines of a YAML file. Only block style is understood; anything else raises ValueError."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.newline = _newline(text)
        for number, line in enumerate(self.lines, 1):
            if line.startswith("\t"):
                raise ValueError(f"line {number}: it is indented with tabs")
            if number > 1 and line.startswith(("---", "...")):
                raise ValueError(f"line {number}: there is more than one document in it")

    def text(self) -> str:
        return "".join(self.lines)

    def key_line(self, key: str, start: int, end: int, indent: int) -> int | None:
        """The line of a key at exactly this indentation."""
        pattern = re.compile(rf" {{{indent}}}(?:{key}|\"{key}\"|'{key}')\s*:(?:\s|$)")
        found = [number for number in range(start, end) if pattern.match(self.lines[number])]
        if len(found) > 1:
            raise ValueError(f"line {found[1] + 1}: there is a second {key!r}")
        return found[0] if found else None

    def open_block(self, number: int, key: str) -> None:
        """Remove an empty value (`hooks: {}`) from the line of a key, so that a block can follow."""
        head, _, value = self.lines[number].partition(":")
        if not _EMPTY.fullmatch(value.strip()):
            raise ValueError(f"line {number + 1}: the value of {key!r} is on the same line")
        comment = value[value.index("#") :].strip() if "#" in value else ""
        self.lines[number] = f"{head}:{f'  {comment}' if comment else ''}{self.newline}"

    def end_of(self, number: int, indent: int, *, of_list: bool = False) -> int:
        """The line after the block that begins at line `number`."""
        end = number + 1
        for later in range(number + 1, len(self.lines)):
            line = self.lines[later]
            if not line.strip() or line.lstrip().startswith("#"):
                continue  # part of the block only if more of the block follows
            # YAML allows the items of a list at the indentation of their key.
            inside = _indent_of(line) > indent or (
                of_list and _indent_of(line) == indent and line.lstrip()[:2] == "- "
            )
            if not inside:
                break
            end = later + 1
        if end == len(self.lines) and self.lines and not self.lines[-1].endswith("\n"):
            self.lines[-1] += self.newline
        return end

    def first_indent(self, start: int, end: int) -> int | None:
        for line in self.lines[start:end]:
            if line.strip() and not line.lstrip().startswith("#"):
                return _indent_of(line)
        return None

    def list_of_one(self, indent: int, key: str, hook: Mapping[str, str | int]) -> list[str]:
        return [f"{' ' * indent}{key}:{self.newline}", *self.item(indent + 2, hook)]

    def item(self, indent: int, hook: Mapping[str, str | int]) -> list[str]:
        # Every JSON string is a valid YAML string.
        pairs = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in hook.items()]
        starts = ["- ", *["  "] * (len(pairs) - 1)]
        return [f"{' ' * indent}{start}{pair}{self.newline}" for start, pair in zip(starts, pairs, strict=True)]

    def remove_empty_keys(self, top: int) -> None:
        """Remove keys under `hooks:` that hold nothing, and then `hooks:` itself if it holds nothing."""
        last = self.end_of(top, 0)
        inner = self.first_indent(top + 1, last)
        number = top + 1
        while inner and number < last:
            line = self.lines[number]
            bare = _indent_of(line) == inner and re.fullmatch(r"\s*[\w\"'-]+\s*:\s*", line)
            if bare and self.end_of(number, inner, of_list=True) == number + 1:
                del self.lines[number]
                last -= 1
            else:
                number += 1
        if self.end_of(top, 0) == top + 1 and re.fullmatch(r"hooks\s*:\s*", self.lines[top]):
            del self.lines[top]


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


# --- our part of a file ------------------------------------------------------------------------

Command = str | tuple[str, ...]
"""How an agent starts a hook: a line for the shell, or a program with its arguments."""


class Edit(ABC):
    """Our part of one file."""

    executable = False
    optional = False
    """Whether the hook works without this file."""
    is_hook = True
    """Whether the agent finds the hook in this file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def add(self, text: str | None) -> str | None:
        """The text with our part added. None stands for a file that does not exist. Raises ValueError if
        our part cannot be added without losing something."""

    @abstractmethod
    def strip(self, text: str) -> str:
        """The text without our part."""

    def has(self, text: str) -> bool:
        return self.strip(text) != text

    @abstractmethod
    def is_current(self, text: str) -> bool:
        """Whether our part is exactly what `add` writes."""

    def commands(self, text: str) -> list[Command]:
        """The hook commands of ours in this file, each once."""
        return []


class JsonHooks(Edit):
    """Entries in the lists under `hooks` of a JSON file, and optionally a status line."""

    def __init__(
        self,
        path: Path,
        hooks: Mapping[str, Any],
        around: Mapping[str, Any] | None = None,
        status_line: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(path)
        self.hooks = hooks
        self.around = around or {}
        self.status_line = status_line or {}
        """The member that is the status line, if the agent has one."""
        self.wants_status_line = False

    def add(self, text: str | None) -> str:
        text = "{}\n" if text is None or _is_blank(text) else text
        top = parse(text)
        if top.kind != "object":
            raise ValueError("it is not a JSON object")
        for key, value in self.around.items():
            if top.get(key) is None:
                text = add_member(text, (), key, value)
        text = self._with_container(text, (), "hooks", {}, "object")
        for event, entry in self.hooks.items():
            text = self._with_container(text, ("hooks",), event, [], "list")
            text = append_item(text, ("hooks", event), entry)
        if self.wants_status_line:
            for key, value in self.status_line.items():
                if parse(text).get(key) is None:
                    text = add_member(text, (), key, value)
        return text

    def strip(self, text: str) -> str:
        if _is_blank(text):
            return text
        while (found := next(self._our_parts(parse(text)), None)) is not None:
            text = remove_part(text, *found)
        return text

    def is_current(self, text: str) -> bool:
        found = plain(parse(text))
        hooks = found.get("hooks", {})
        if self.has_status_line(text) and any(found.get(key) != value for key, value in self.status_line.items()):
            return False
        return all(entry in hooks.get(event, ()) for event, entry in self.hooks.items())

    def commands(self, text: str) -> list[Command]:
        hooks = parse(text).get("hooks")
        return list(dict.fromkeys(_commands_in(plain(hooks)))) if hooks is not None else []

    def has_status_line(self, text: str | None) -> bool:
        """Whether the status line is there and is ours."""
        if text is None or _is_blank(text):
            return False
        found = (parse(text).get(key) for key in self.status_line)
        return any(value is not None and _is_ours(value) for value in found)

    def other_status_line(self, text: str | None) -> bool:
        """Whether there is a status line that is not ours."""
        if text is None or _is_blank(text):
            return False
        found = (parse(text).get(key) for key in self.status_line)
        return any(value is not None and not _is_ours(value) for value in found)

    @staticmethod
    def _with_container(text: str, where: tuple[str, ...], key: str, empty: Any, kind: str) -> str:
        holder = parse(text)
        for step in where:
            holder = holder.get(step) or holder
        found = holder.get(key)
        if found is None:
            return add_member(text, where, key, empty)
        if found.kind != kind:
            raise ValueError(f"{'.'.join((*where, key))} is not {'a list' if kind == 'list' else 'an object'}")
        return text

    def _our_parts(self, top: Value) -> Iterator[tuple[Value, int]]:
        """What to remove: our entries, and the lists and objects that hold nothing else."""
        for number, part in enumerate(top.parts):
            if part.key in self.status_line and _is_ours(part.value):
                yield top, number
        hooks = top.get("hooks")
        if hooks is None or hooks.kind != "object":
            return
        for number, event in enumerate(hooks.parts):
            groups = event.value.parts if event.value.kind == "list" else []
            for place, group in enumerate(groups):
                inner = group.value.get("hooks") if group.value.kind == "object" else None
                commands = inner.parts if inner is not None else [group]
                ours = [at for at, each in enumerate(commands) if _is_ours(each.value)]
                if inner is not None and 0 < len(ours) < len(commands):
                    yield inner, ours[0]
                elif ours and len(groups) > 1:
                    yield event.value, place
                elif ours and len(hooks.parts) > 1:
                    yield hooks, number
                elif ours:
                    yield top, next(at for at, part in enumerate(top.parts) if part.value is hooks)


class YamlHooks(Edit):
    """Entries in the lists under `hooks:` of a YAML file."""

    def __init__(self, path: Path, hooks: Mapping[str, Mapping[str, str | int]]) -> None:
        super().__init__(path)
        self.hooks = hooks

    def add(self, text: str | None) -> str:
        text = text or ""
        for event, hook in self.hooks.items():
            text = add_hook(text, event, hook)
        return text

    def strip(self, text: str) -> str:
        return remove_hooks(text, _OURS)

    def is_current(self, text: str) -> bool:
        if self.events(text) != {event: hook["command"] for event, hook in self.hooks.items()}:
            return False
        lines = [line.strip() for line in text.splitlines()]
        wanted = [[line.strip() for line in _YamlLines("").item(0, hook)] for hook in self.hooks.values()]
        return all(
            any(lines[at : at + len(item)] == item for at in range(len(lines) - len(item) + 1)) for item in wanted
        )

    def commands(self, text: str) -> list[Command]:
        return list(dict.fromkeys(self.events(text).values()))

    def events(self, text: str) -> dict[str, str]:
        """Event -> our command, as the file has them."""
        found: dict[str, str] = {}
        event = ""
        for line in text.splitlines():
            if match := re.fullmatch(r" +([\w-]+):\s*(?:#.*)?", line):
                event = match.group(1)
            elif (match := re.fullmatch(r"[ -]+command: (\".*\")\s*", line)) and _OURS.search(line):
                found[event] = json.loads(match.group(1))
        return found


class OwnFile(Edit):
    """A file that is ours alone. A checksum in its text shows whether it was edited since."""

    def __init__(
        self,
        path: Path,
        text: str,
        *,
        executable: bool = False,
        optional: bool = False,
        command: Command = "",
    ) -> None:
        super().__init__(path)
        self.text = text.replace("(sum)", f"(sum {_checksum(text)})")
        self.executable = executable
        self.optional = optional
        self.is_hook = bool(command)
        self._command = command

    def add(self, text: str | None) -> str | None:
        if text:
            raise ValueError("there is a file of that name already, and it is not ours")
        return self.text

    def strip(self, text: str) -> str:
        found = _CHECKSUM.search(text)
        if text == self.text or (found and _checksum(text.replace(found.group(), "(sum)")) == found.group(1)):
            return ""
        return text

    def is_current(self, text: str) -> bool:
        return text == self.text

    def commands(self, text: str) -> list[Command]:
        """The command as the file has it, which an older version of us may have written."""
        if not self.is_hook or not self.has(text):
            return []
        if match := re.search(r"^const program = (\[.*\])$", text, re.MULTILINE):
            return [tuple(json.loads(match.group(1)))]
        if match := re.search(r"^exec (.+)$", text, re.MULTILINE):
            return [match.group(1)]
        return [self._command]


class RetiredFile(OwnFile):
    """A file that older versions installed. It is removed if it is still as they wrote it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "", optional=True)

    def add(self, text: str | None) -> str | None:
        return text or None

    def is_current(self, text: str) -> bool:
        return True


def _commands_in(value: Any) -> Iterator[Command]:
    if isinstance(value, dict) and _OURS.search(_all_text(value)):
        if isinstance(value.get("exec"), str):
            yield (value["exec"], *(str(word) for word in value.get("args", ())))
        elif isinstance(value.get("command"), str):
            yield value["command"]
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _commands_in(inner)


def _is_ours(value: Value) -> bool:
    return bool(_OURS.search(_all_text(plain(value))))


def _all_text(value: Any) -> str:
    """All text in a value, in order: a command may be a list of words."""
    if isinstance(value, dict):
        return " ".join(_all_text(each) for each in value.values())
    if isinstance(value, list):
        return " ".join(_all_text(each) for each in value)
    return str(value)


def _is_blank(text: str) -> bool:
    return not text.strip("\ufeff \t\r\n")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
