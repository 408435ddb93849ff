"""Whether the store lies where agents may write, although they run in a sandbox."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

_ADVICE = (
    "a sandboxed agent could change or delete checkpoints. Move it out (shadowsnap docs settings: base, or "
    "SHADOWSNAP_HOME)"
)
# What sandboxes let every command write to: temporary files (Codex, Gemini, Cursor), caches (Gemini).
_TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/dev/shm")
_CACHES = (".cache", ".npm", ".gemini")


def exposure(base: Path, projects: Iterable[str | Path], more: Iterable[str | Path] = ()) -> str:
    """Why agents may be able to write to the store, in a sentence; empty if nothing speaks for it. `projects` are
    directories that agents work in, `more` what else their sandboxes are set to let them write to."""
    real = _real(base)
    for project in projects:
        if _holds(project, real):
            return f"the store lies inside the project {project}, where agents write: {_ADVICE}"
    for folder in more:
        if _holds(folder, real):
            return f"the store lies in {folder}, which the settings of an agent let it write to: {_ADVICE}"
    for folder in (*_TEMPORARY, tempfile.gettempdir()):
        if _holds(folder, real):
            return f"the store lies in {folder}, which most sandboxes let agents write to: {_ADVICE}"
    for folder in _CACHES:
        place = Path(os.path.expanduser("~"), folder)
        if _holds(place, real):
            return f"the store lies in {place}, which some sandboxes let agents write to: {_ADVICE}"
    return ""


def _holds(folder: str | Path, base: Path) -> bool:
    return bool(os.fspath(folder)) and base.is_relative_to(_real(folder))


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))
