"""Text for people: made harmless, cut to fit, and short phrases for ages and counts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from html import escape
from textwrap import wrap
from unicodedata import combining, east_asian_width

_JOINER = "\u200d"  # holds emoji together
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def safe(text: str, keep: str = "") -> str:
    """Text that cannot control a terminal: control characters, invisible ones and bytes that are not UTF-8 are
    shown as escapes."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == _JOINER or char in keep else _escape(char) for char in text
    )


def one_line(text: str) -> str:
    """Safe text on one line: white space and line ends become single spaces."""
    return safe(" ".join(text.split()))


def html_safe(text: str, keep: str = "") -> str:
    """Text that is neither markup in an HTML page, nor anything that `safe` escapes."""
    return escape(safe(text, keep))


def encodable(text: str, encoding: str | None) -> str:
    """Text that a stream of this encoding can take."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def columns(text: str) -> int:
    """The width of safe text on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
    return wide - sum(1 for char in text if combining(char) or char == _JOINER)


def cut(text: str, width: int) -> str:
    """Safe text, cut to at most `width` columns."""
    if columns(text) <= width:
        return text
    return text[: _fitting(text, width - 3)].rstrip() + "..."[:width]


def cut_path(path: str, width: int) -> str:
    """As `cut`, but the end is kept: it says more of a path than the beginning."""
    if columns(path) <= width:
        return path
    return "..."[:width] + path[len(path) - _fitting(reversed(path), width - 3) :]


def _fitting(chars: Iterable[str], width: int) -> int:
    """How many characters fit into a width, in one pass."""
    used = 0
    for number, char in enumerate(chars):
        used += columns(char)
        if used > width:
            return number
    return 0  # not reached: what fits as a whole is not cut


def pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def age(moment: datetime) -> str:
    seconds = time.time() - moment.timestamp()
    if seconds < 5:
        return "now"
    for size, unit, limit in ((1, "s", 60), (60, "min", 60), (3600, "h", 48), (86400, "d", 100)):
        if seconds < size * limit:
            return f"{int(seconds // size)} {unit}"
    return f"{moment.astimezone():%Y-%m-%d}"


def ago(moment: datetime) -> str:
    """The age within a sentence."""
    text = age(moment)
    return "just now" if text == "now" else f"on {text}" if "-" in text else f"{text} ago"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(number: float) -> str:
    """Bytes, as people read them: `17 KB`, `1.2 MB`."""
    if number < 1000:
        return f"{number:.0f} B"
    for unit in ("KB", "MB", "GB"):
        number /= 1024
        if number < 999.5:
            return f"{number:.1f} {unit}" if number < 9.95 else f"{number:.0f} {unit}"
    return f"{number / 1024:.1f} TB"


def wrapped(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    """Text in lines of at most `width`. The first line begins with `first`, the others with `rest`, or else with
    `first` too. Long words stay whole: they are paths."""
    rest = first if rest is None else rest
    return wrap(
        one_line(text), width, initial_indent=first, subsequent_indent=rest, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _escape(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is not UTF-8
    if code < 0x80:
        return _SHORT.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
