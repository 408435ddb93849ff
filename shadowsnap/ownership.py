"""Whose a directory is. What another user owns or may write to says nothing that can be relied on: a record in it
could claim that everything is safe, and a link could lead what is written elsewhere."""

from __future__ import annotations

import os
import sys

OPEN = "others may write to it"

def why_not_ours(folder: str | os.PathLike[str]) -> str:
    """Why a directory is not the person's alone to write to; empty if it is, or if it is not there."""
    if sys.platform == "win32":
        return ""
    try:
        seen = os.lstat(folder)
    except FileNotFoundError:
        return ""
    if seen.st_mode & 0o170000 == 0o120000:
        return "it is a link"
    if seen.st_uid != os.geteuid():
        return f"it belongs to user {seen.st_uid}, not {os.geteuid()}"
    return OPEN if seen.st_mode & 0o022 else ""


def make_base(base: str | os.PathLike[str]) -> str:
    """Make the base if it is not there, for its owner alone whatever the umask is; why it is not the person's."""
    real = os.path.realpath(base)
    if not os.path.lexists(real):
        _make(real)
    return why_not_ours(real)


def _make(folder: str) -> None:
    """Make a directory and those above it that are missing: nobody else could put another one in its place."""
    if not os.path.isdir(os.path.dirname(folder)):
        _make(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
        os.chmod(folder, 0o700)
    except FileExistsError:
        pass  # another process was faster
