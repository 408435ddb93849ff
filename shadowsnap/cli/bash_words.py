"""The words of a bash command line that is being typed: read, and written so that bash takes them as they are.

A file may have any name, also one that bash would run: `a$(command)`. bash puts what a completion answers into the
line as it stands, so every word is quoted here, in the kind of quotes that are open where it is put.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

_PLAIN = re.compile(r"[A-Za-z0-9_./,+%:=@-]")
"""What no shell syntax begins with, in any place of a word. Other ASCII characters get a backslash."""
_OPERATORS = "<>|&;()"
_ESCAPES = {"n": 10, "t": 9, "r": 13, "e": 27, "a": 7, "b": 8, "f": 12, "v": 11, "\\": 92, "'": 39, '"': 34}
_SPECIAL_IN_DOUBLE = '"$`\\'
"""What a backslash quotes within double quotes."""


@dataclass(frozen=True)
class TypedLine:
    """A line that ends where the cursor is."""

    words: list[str]
    """What bash would pass on, without the name of the program. The last one is being completed."""
    kept: str
    """The part of the last word that stays in the line; the completion replaces what follows it."""
    quote: str
    """The quotes that are open after that part: none, a single one or a double one."""

    def completion(self, word: str) -> str | None:
        """What bash has to put into the line for a word; None if the word does not begin with what is kept."""
        if not word.startswith(self.kept):
            return None
        text = "".join(_quoted(char, self.quote) for char in word[len(self.kept) :])
        # bash closes the quotes after the word, but not if the last character of the word looks like that.
        return f"{text}{self.quote}" if self.quote and text.endswith(self.quote) else text


def read_line(line: str, replaced: str) -> TypedLine | None:
    """Read a line that is typed up to the cursor. `replaced` is the end of it that bash replaces by a completion.
    None if this is more than words, such as a redirection, or a kind of quotes that is not known here."""
    begins = len(line) - len(replaced)
    if not line.endswith(replaced):
        return None
    words: list[str] = []
    word, quote, inside, kept = bytearray(), "", False, None
    at = 0
    while True:
        if at == begins:
            kept = os.fsdecode(bytes(word)), quote
        if at >= len(line):
            break
        char, after = line[at], line[at + 1 : at + 2]
        at += 1
        if quote:
            if char == quote:
                quote = ""
            elif quote == '"' and char == "\\" and after and after in _SPECIAL_IN_DOUBLE:
                word += after.encode()
                at += 1
            else:
                word += os.fsencode(char)
            continue
        if char in " \t\n":
            if inside:
                words.append(os.fsdecode(bytes(word)))
            word, inside = bytearray(), False
            continue
        inside = True
        if char in _OPERATORS:
            return None
        if char in "\"'":
            quote = char
        elif char == "\\":
            word += os.fsencode(after)
            at += len(after)
        elif char == "$" and after == "'":
            found = re.compile(r"'((?:[^'\\]|\\.)*)'", re.DOTALL).match(line, at)
            decoded = _decoded(found[1]) if found else None
            if found is None or decoded is None:
                return None
            word += decoded
            at = found.end()
        else:
            word += os.fsencode(char)
    if kept is None or kept[1] == "$'":
        return None
    return TypedLine([*words, os.fsdecode(bytes(word))][1:], *kept)


def _decoded(text: str) -> bytes | None:
    """What stands between $' and '; None if it has an escape that is not known here."""
    found = bytearray()
    for match in re.finditer(r"\\([0-7]{1,3})|\\(.)|([^\\]+)", text, re.DOTALL):
        if match[1]:
            found.append(int(match[1], 8) & 0xFF)
        elif match[2]:
            if match[2] not in _ESCAPES:
                return None
            found.append(_ESCAPES[match[2]])
        else:
            found += os.fsencode(match[3])
    return bytes(found)


def _quoted(char: str, quote: str) -> str:
    """A character as bash reads it where these quotes are open."""
    if not char.isprintable():  # the line editor would obey some of these, and nothing shows the others
        octal = "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
        return f"{quote}$'{octal}'{quote}"
    if quote == "'":
        return "'\\''" if char == "'" else char
    if quote == '"':
        if char == "!":  # a backslash within double quotes would stay
            return '"\\!"'
        return f"\\{char}" if char in _SPECIAL_IN_DOUBLE else char
    return char if not char.isascii() or _PLAIN.match(char) else f"\\{char}"
