"""Patterns in .gitignore syntax, as far as they are compared with names here. (Git itself decides which files of a
project are ignored.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \t", "cntrl": "\x00-\x1f\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@{-~_", "space": " \t\n\r\f\v", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip


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
    found = body.removeprefix("/").split("/") if "/" in body else ["**", body]
    return [part for at, part in enumerate(found) if part != "**" or found[at - 1 : at] != ["**"]]


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
    if len(pattern) > _LONGEST_PART:
        return False
    for named, letters in _CLASSES.items():
        pattern = pattern.replace(f"[:{named}:]", letters)
    plain = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], pattern)
    return re.match(translate(plain.replace("[^", "[!")), name) is not None
