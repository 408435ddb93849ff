"""Patterns in .gitignore syntax, as far as they are compared with names here. (Git itself decides which files of a
project are ignored.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

# The classes of git, which are those of ASCII.
_CLASSES = {
    b"alnum": b"0-9A-Za-z", b"alpha": b"A-Za-z", b"blank": b" \\t", b"cntrl": b"\\x00-\\x1f\\x7f",
    b"digit": b"0-9", b"graph": b"!-~", b"lower": b"a-z", b"print": b" -~", b"punct": b"!-/:-@\\[-`{-~",
    b"space": b" \\t-\\r", b"upper": b"A-Z", b"xdigit": b"0-9A-Fa-f",
}  # fmt: skip


_BRACKET = re.compile(r"\[[!^]?+\]?+(?:\[:[^\]]*:\]|\\.|[^\]\\])*+\]", re.DOTALL)
"""One character of a set, from "[" to "]"."""
# No file has so long a name. A pattern could be longer; what it would take to compare it is not worth that.
_LONGEST_PART = 1000


def matches(line: str, path: str) -> bool:
    """Whether a pattern matches a path, or a directory above it."""
    names = tuple(path.split("/"))
    is_for_folders = line.rstrip(" ").endswith("/")
    pattern = parts(line)
    ways = _ways(pattern, names[:-1] if is_for_folders else names)
    return any(is_below or len(pattern) in positions for positions, is_below in ways)


def parts(line: str) -> list[str]:
    """A pattern by directories; one that may match at any depth begins with "**". Several "**" in a row mean the
    same as one, and are one."""
    body = line.removeprefix("!")
    body = (body if body.endswith("\\ ") else body.rstrip(" ")).rstrip("/")
    found = _split(body.removeprefix("/")) if "/" in body else ["**", body]
    return [part for at, part in enumerate(found) if part != "**" or found[at - 1 : at] != ["**"]]


def _split(body: str) -> list[str]:
    """The parts between slashes. A slash in brackets is a character like any other."""
    found, start, at = [], 0, 0
    while at < len(body):
        if body.startswith(("/", "\\/"), at):
            found.append(body[start:at])
            at += body[at] == "\\"
            start = at + 1
        elif body[at] == "[":
            bracket = _BRACKET.match(body, at)
            at = bracket.end() - 1 if bracket else at
        elif body[at] == "\\":
            at += 1
        at += 1
    return [*found, body[start:]]


def rests(pattern: list[str], inside: tuple[str, ...]) -> Iterator[list[str]]:
    """What is left of a pattern's parts after they matched the way down to a directory, in every way that
    they can; nothing is left if the pattern matches the directory itself."""
    *_, (positions, is_below) = ({0}, False), *_ways(pattern, inside)
    yield from ([[]] if is_below else [])
    yield from (pattern[at:] for at in sorted(positions))


def _ways(pattern: list[str], inside: tuple[str, ...]) -> Iterator[tuple[set[int], bool]]:
    """After each name, where in the pattern one can be, and whether it matches everything from here on. All ways
    are followed at once: "**" in a hostile pattern does not multiply them."""
    positions, is_below = {0}, False
    for name in inside:
        following: set[int] = set()
        for at in _past_wildcards(pattern, positions):
            if at == len(pattern):
                continue
            if pattern[at] == "**" and at + 1 == len(pattern):
                is_below = True  # it matches everything from here on, and so the directory too
            elif pattern[at] == "**":
                following.add(at)
            elif _fits(name, pattern[at]):
                following.add(at + 1)
        positions = following
        yield positions, is_below


def _past_wildcards(pattern: list[str], positions: set[int]) -> set[int]:
    """The positions, and those behind a "**", which may stand for no directory at all. (The last one stands
    for at least one.)"""
    found = set(positions)
    waiting = list(positions)
    while waiting:
        at = waiting.pop()
        if at + 1 < len(pattern) and pattern[at] == "**" and at + 1 not in found:
            found.add(at + 1)
            waiting.append(at + 1)
    return found


@lru_cache(maxsize=4096)
def _fits(name: str, pattern: str) -> bool:
    """Whether a name matches one part of a pattern, byte by byte as git compares them."""
    found = _expression(pattern) if len(pattern) <= _LONGEST_PART else None
    return found is not None and re.fullmatch(found, _bytes(name), re.DOTALL) is not None


def _expression(pattern: str) -> bytes | None:
    """A part of a pattern as a regular expression; None if it matches nothing. What stands between two "*" is
    looked for once, without going back: "*a*a*a" takes no longer than its length."""
    pieces, at = [b""], 0
    while at < len(pattern):
        letter = pattern[at]
        bracket = _BRACKET.match(pattern, at) if letter == "[" else None
        if letter == "*":
            pieces.append(b"")
        elif letter == "?":
            pieces[-1] += b"."
        elif bracket is not None:
            inside = _set(_bytes(bracket[0][1:-1]))
            if inside is None:
                return None
            pieces[-1] += inside
            at = bracket.end() - 1
        elif letter == "[" or pattern[at:] == "\\":
            return None
        else:
            at += letter == "\\"
            pieces[-1] += re.escape(_bytes(pattern[at]))
        at += 1
    first, *middle = pieces
    last = [b".*" + middle.pop()] if middle else []
    return b"".join([first, *(b"(?>.*?" + piece + b")" for piece in middle), *last])


def _set(inside: bytes) -> bytes | None:
    """What stands in brackets, as a set of a regular expression; None if there is no such class."""
    negated = inside[:1] in (b"!", b"^")
    found, at = b"", int(negated)
    while at < len(inside):
        named = re.compile(rb"\[:([^\]]*):\]").match(inside, at)
        if named is not None:
            if named[1] not in _CLASSES:
                return None
            found, at = found + _CLASSES[named[1]], named.end()
            continue
        at += inside[at : at + 1] == b"\\"
        low, at = inside[at], at + 1
        if inside[at : at + 1] == b"-" and at + 1 < len(inside):
            at += 2 if inside[at + 1 : at + 2] == b"\\" else 1
            high, at = inside[at], at + 1
            found += b"\\x%02x-\\x%02x" % (low, max(low, high))  # git takes the first of "z-a", and nothing else
        else:
            found += b"\\x%02x" % low
    if not found:
        return b"." if negated else b"(?!)"
    return b"[" + b"^" * negated + found + b"]"


def _bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
