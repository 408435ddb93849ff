"""Changing an input: bytes, text, JSON, compressed data, or several files at once.

An input of several files is one byte string with a length before each part (`join`, `split`), so that a failing
input is a single file.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Sequence
from typing import Any

MOST_BYTES = 1 << 18
"""No mutation grows an input beyond this."""

_NUMBERS = (
    0, 1, 2, 3, 7, 8, 19, 20, 21, 32, 64, 0x7F, 0x80, 0xFF, 0x100, 0xFFF, 0x1000, 0x4000, 0x7FFF, 0x8000,
    0xFFFF, 0x10000, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
)
_WORDS = (
    b"\0", b"\n", b"\r\n", b"\\", b'"', b"'", b"{", b"}", b"[", b"]", b"/", b"//", b"../", b"~", b"-", b"=",
    b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xe2\x80\x8d", b"%00", b"%2e%2e%2f", b"file://",
    b"1e999", b"-1", b"NaN", b"null", b"true", b"9" * 400, b"9" * 5000,
)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1 << 31, 1 << 63,
    -(1 << 63),
    10**30,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    0.5,
    253402300800, -62135596801, "", " ", "\0", "\ud800", "\udcff", "\u200d", "/", "..", "../x", "/x/../..",
    "~", "~root", "file://", "file:///%00", "a/b", "\n", "0", "last", "a" * 5000, "/" * 5000, "x" * 40,
    "0" * 40, [], {},
    [[]],
    [{}],
    {"": ""},
    ["a", 1, None],
    {"a": {"b": []}},
)
_DEPTHS = (10, 100, 400, 900, 1100, 5000, 100_000)
_DEEP = "deep-%d-%d"
_IS_DEEP = re.compile(r'"deep-(\d+)-(\d)"')


def join(parts: Sequence[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def split(data: bytes, count: int) -> list[bytes]:
    """Exactly `count` parts, whatever the data is; a single part has no length before it."""
    if count == 1:
        return [data]
    parts, at = [], 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        parts.append(data[at + 4 : end])
        at = end
    return parts


class Mutator:
    """Makes new inputs of old ones; the same seed makes the same inputs."""

    def __init__(self, chance: random.Random, forms: Sequence[str], words: Sequence[bytes]) -> None:
        self._chance = chance
        self._forms = forms
        self._words = (*words, *words, *_WORDS)
        self._by_bytes = (
            self._flip,
            self._set_byte,
            self._set_number,
            self._insert,
            self._delete,
            self._duplicate,
            self._move,
            self._truncate,
            self._put_word,
            self._put_word,
            self._splice,
            self._repeat,
            self._change_digits,
        )

    def mutate(self, data: bytes, other: bytes) -> bytes:
        """A changed `data`, perhaps with a piece of `other`."""
        parts, others = split(data, len(self._forms)), split(other, len(self._forms))
        for _ in range(1 if len(parts) == 1 else self._chance.choice((1, 1, 2))):
            which = self._chance.randrange(len(parts))
            parts[which] = self._part(parts[which], others[which], self._forms[which])
        return parts[0] if len(parts) == 1 else join(parts)

    def _part(self, data: bytes, other: bytes, form: str) -> bytes:
        if form == "zlib" and self._chance.random() < 0.8:
            return zlib.compress(self._bytes(_inflated(data), _inflated(other)), 1)
        if form == "json" and self._chance.random() < 0.75:
            return self._json(data, other)
        if form == "lines" and self._chance.random() < 0.75:
            return self._lines(data, other)
        return self._bytes(data, other)

    def _bytes(self, data: bytes, other: bytes) -> bytes:
        for _ in range(1 << self._chance.choice((0, 0, 0, 1, 1, 2, 3))):
            data = self._chance.choice(self._by_bytes)(data, other)[:MOST_BYTES]
        return data

    # --- bytes ----------------------------------------------------------------------------------------

    def _at(self, data: bytes) -> int:
        """A place in the data. The beginning is likelier: most formats have a header."""
        size = len(data)
        return self._chance.randrange(min(size, 64) + 1 if self._chance.random() < 0.3 else size + 1)

    def _range(self, data: bytes) -> tuple[int, int]:
        start = self._at(data)
        return start, min(len(data), start + self._chance.choice((1, 1, 2, 4, 8, 20, 62, 200, 1000)))

    def _flip(self, data: bytes, _: bytes) -> bytes:
        if not data:
            return data
        at = min(self._at(data), len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << self._chance.randrange(8)]) + data[at + 1 :]

    def _set_byte(self, data: bytes, _: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + bytes([self._chance.randrange(256)]) + data[at + 1 :]

    def _set_number(self, data: bytes, _: bytes) -> bytes:
        size, order = self._chance.choice((1, 2, 4, 4, 8)), self._chance.choice(("big", "big", "little"))
        at, number = self._at(data), self._chance.choice(_NUMBERS) + self._chance.choice((-1, 0, 0, 1))
        return data[:at] + (number % (1 << 8 * size)).to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]

    def _insert(self, data: bytes, _: bytes) -> bytes:
        at = self._at(data)
        return data[:at] + self._chance.randbytes(self._chance.choice((1, 2, 4, 20, 100))) + data[at:]

    def _delete(self, data: bytes, _: bytes) -> bytes:
        start, end = self._range(data)
        return data[:start] + data[end:]

    def _duplicate(self, data: bytes, _: bytes) -> bytes:
        start, end = self._range(data)
        return data[:end] + data[start:end] + data[end:]

    def _move(self, data: bytes, _: bytes) -> bytes:
        start, end = self._range(data)
        rest, at = data[:start] + data[end:], self._at(data)
        return rest[:at] + data[start:end] + rest[at:]

    def _truncate(self, data: bytes, _: bytes) -> bytes:
        return data[: self._at(data)]

    def _put_word(self, data: bytes, _: bytes) -> bytes:
        at, word = self._at(data), self._chance.choice(self._words)
        return data[:at] + word + data[at + self._chance.choice((0, 0, len(word))) :]

    def _splice(self, data: bytes, other: bytes) -> bytes:
        start, end = self._range(other)
        at = self._at(data)
        if self._chance.random() < 0.3:
            return data[:at] + other[start:]
        return data[:at] + other[start:end] + data[at + self._chance.choice((0, end - start)) :]

    def _repeat(self, data: bytes, _: bytes) -> bytes:
        """One piece many times: what is not linear shows here."""
        start, end = self._range(data)
        piece = data[start:end] or self._chance.choice(self._words)
        if self._chance.random() < 0.3:
            piece = self._chance.choice(self._words) + piece
        most = self._chance.choice((1 << 8, 1 << 12, 1 << 16, MOST_BYTES))
        return data[:end] + piece * (most // len(piece)) + data[end:]

    def _change_digits(self, data: bytes, _: bytes) -> bytes:
        found = list(re.finditer(rb"\d+", data[:20_000]))
        if not found:
            return data
        chosen, number = self._chance.choice(found), self._chance.choice(_NUMBERS)
        return data[: chosen.start()] + b"%d" % number + data[chosen.end() :]

    # --- JSON -----------------------------------------------------------------------------------------

    def _lines(self, data: bytes, other: bytes) -> bytes:
        lines = data.split(b"\n")
        at = self._chance.randrange(len(lines))
        lines[at] = self._json(lines[at], self._chance.choice(other.split(b"\n")))
        return b"\n".join(lines)[:MOST_BYTES]

    def _json(self, data: bytes, other: bytes) -> bytes:
        try:
            value = json.loads(data)
            donor = json.loads(other)
            for _ in range(self._chance.choice((1, 1, 1, 2, 4))):
                value = self._changed(value, donor)
            text = json.dumps(value, ensure_ascii=self._chance.random() < 0.7)[: 2 * MOST_BYTES]
        except (ValueError, RecursionError):
            return self._bytes(data, other)
        text = _IS_DEEP.sub(_nested, text, count=3)
        return text.encode("utf-8", "surrogatepass")

    def _changed(self, value: Any, donor: Any) -> Any:
        """The value with one of its parts replaced, removed, renamed or doubled."""
        places = list(_places(value))
        if not places or self._chance.random() < 0.02:
            return self._value(donor)
        holder, key = self._chance.choice(places)
        action = self._chance.randrange(8)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            name = self._chance.choice(("", "\0", "\ud800", "../x", "a" * 300, *holder))
            holder[name] = holder.pop(key)
        elif action == 2 and isinstance(holder, list) and len(holder) < 1000:
            text = json.dumps(holder[key])
            times = min(self._chance.choice((1, 10, 500)), MOST_BYTES // len(text))
            holder += [json.loads(text) for _ in range(times)]
        elif action == 3:
            holder[key] = [holder[key]]
        elif action == 4 and isinstance(holder[key], str):
            data = holder[key].encode("utf-8", "surrogatepass")
            holder[key] = self._bytes(data, data).decode(
                "utf-8", self._chance.choice(("replace", "surrogateescape"))
            )
        else:
            holder[key] = self._value(donor)
        return value

    def _value(self, donor: Any) -> Any:
        choice = self._chance.random()
        if choice < 0.1:
            return _DEEP % (self._chance.choice(_DEPTHS), self._chance.randrange(2))
        if choice < 0.3 and (places := list(_places(donor))):
            holder, key = self._chance.choice(places)
            return json.loads(json.dumps(holder[key]))
        return json.loads(json.dumps(self._chance.choice(_VALUES)))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every part of a JSON value, as what holds it and its key or position there."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 2000:
        holder = waiting.pop()
        pairs = (
            holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        )
        for key, inner in pairs:
            found.append((holder, key))
            waiting.append(inner)
    return found


def _nested(found: re.Match[str]) -> str:
    depth, is_object = min(int(found[1][:7]), _DEPTHS[-1]), found[2] == "1"
    return '{"a":' * depth + "1" + "}" * depth if is_object else "[" * depth + "]" * depth


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, MOST_BYTES)
    except zlib.error:
        return data
