"""Where programs are looked for: never in a directory that depends on where we are. That may be a project, with a
program called git in it."""

from __future__ import annotations

import os


def absolute_entries(search_path: str) -> list[str]:
    """The directories of a search path, without those that are empty, `.` or relative."""
    return [entry for entry in search_path.split(os.pathsep) if os.path.isabs(entry)]


def safe_search_path(search_path: str) -> str:
    """The same as text. An empty one would stand for the current directory: then it is the system's."""
    return os.pathsep.join(absolute_entries(search_path) or absolute_entries(os.defpath))


def system_folder() -> str:
    """The directory of the programs that come with Windows."""
    return os.path.join(os.environ.get("SYSTEMROOT") or "C:\\Windows", "System32")
