"""Which names a checkpoint may hold, the same on every platform.

A tree is data from outside as soon as it was imported, pulled or crafted. Written out, a name could reach into a
repository (`.git` in any spelling that some file system takes for it) or out of the project. What one system
folds together, all refuse: a checkpoint may be restored on another one.
"""

from __future__ import annotations

import re
import sys

# Code points that HFS+ leaves out when it compares names.
_IGNORED_BY_HFS = {
    code: None
    for first, last in ((0x200C, 0x200F), (0x202A, 0x202E), (0x206A, 0x206F), (0xFEFF, 0xFEFF))
    for code in range(first, last + 1)
}
# The short names that Windows gives to `.git`.
_DOT_GIT = re.compile(r"\.git|git~[0-9]+")
_SUSPICIOUS = re.compile(rb"(?i)git|[\\\0/\x80-\xff]|\A\.{1,2}\Z|\A\Z")
_ON_WINDOWS = re.compile(rb'[\\:*?"<>|\x00-\x1f]|[. ]\Z')


def name_problem(name: bytes) -> str | None:
    """Why a checkpoint must not hold an entry of this name; None if it may."""
    if sys.platform == "win32" and _ON_WINDOWS.search(name):
        return "Windows takes it for something else"
    if _SUSPICIOUS.search(name) is None:
        return None
    if not name or b"/" in name or b"\0" in name:
        return "it is no name"
    text = name.decode("utf-8", "surrogateescape").translate(_IGNORED_BY_HFS).casefold()
    for part in text.split("\\"):  # what Windows takes for a separator
        if part in (".", ".."):
            return "it leads out of its directory"
        # Windows leaves out what follows a colon (a stream of the file), and dots and spaces at the end.
        if _DOT_GIT.fullmatch(part.partition(":")[0].rstrip(". ")):
            return "it is taken for a repository"
    return None


def path_problem(path: bytes) -> str | None:
    """The same for every part of a path."""
    if _SUSPICIOUS.search(path.replace(b"/", b"")) is None and b"//" not in path and sys.platform != "win32":
        names = path.split(b"/")
        return None if not {b"", b".", b".."}.intersection(names) else "it is no path"
    return next((problem for name in path.split(b"/") if (problem := name_problem(name)) is not None), None)
