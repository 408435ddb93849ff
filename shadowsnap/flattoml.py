"""The part of TOML that settings need, for Pythons without `tomllib` (3.10): one table of names with
strings, numbers, booleans and lists of strings. Of other tables only their headers are read."""

from __future__ import annotations

import json
import re

_HEADER = re.compile(r"\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"""("[^"]*"|'[^']*'|[A-Za-z0-9_-]+)\s*=\s*(.+)""")
_TOKEN = re.compile(
    r"""\s*(?:("(?:[^"\\]|\\.)*")|('[^']*')|(true|false)\b|([+-]?[0-9][0-9_.eE+-]*)|([\[\],])|\#.*)"""
)


class NotFlat(ValueError):
    """A line that cannot be read."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"{why} (at line {line}, column 1)")


def read_table(text: str, table: str) -> dict[str, object]:
    """The entries of one table; "" is what stands before the first header."""
    found: dict[str, object] = {}
    lines, here, quoted = text.splitlines(), "", ""
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at].strip()
        at += 1
        if quoted or (here != table and _opens_long_string(line)):
            quoted = _still_quoted(line, quoted)
        elif header := _HEADER.fullmatch(line):
            here = re.sub(r"[\s\"']", "", header[1])
        elif line.startswith("["):
            here = "?"
        elif here == table and line and not line.startswith("#"):
            entry = _ENTRY.fullmatch(line)
            if entry is None:
                raise NotFlat(number, "expected NAME = VALUE")
            value = entry[2]
            while _unfinished(value) and at < len(lines):
                value += "\n" + lines[at]
                at += 1
            found[entry[1].strip("\"'")] = _value(value, number)
    return found


def _opens_long_string(line: str) -> bool:
    return any(line.count(mark) % 2 for mark in ('"""', "'''"))


def _still_quoted(line: str, quoted: str) -> str:
    if quoted:
        return "" if quoted in line else quoted
    return '"""' if line.count('"""') % 2 else "'''"


def _unfinished(value: str) -> bool:
    tokens = [match[5] for match in _TOKEN.finditer(value)]
    return tokens.count("[") > tokens.count("]")


def _value(text: str, line: int) -> object:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotFlat(line, "this value cannot be read")
        if match.lastindex is not None:
            tokens.append(match[0].strip())
        at = match.end()
    if tokens[:1] != ["["]:
        if len(tokens) != 1:
            raise NotFlat(line, "expected one value")
        return _scalar(tokens[0], line)
    body = tokens[1:-1]
    commas, items = body[1::2], body[::2]
    if tokens[-1] != "]" or set(commas) - {","} or set(items) & {"[", "]", ","}:
        raise NotFlat(line, "this list cannot be read")
    return [_scalar(item, line) for item in items]


def _scalar(token: str, line: int) -> object:
    try:
        if token.startswith("'"):
            return token[1:-1]
        if token.startswith('"') or token in ("true", "false"):
            return json.loads(token)
        plain = token.replace("_", "")
        return float(plain) if set(plain) & set(".eE") else int(plain)
    except ValueError:
        raise NotFlat(line, f"{token} cannot be read") from None
