"""Which git is run, and the sealed environment it runs in."""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache
from pathlib import Path

from shadowsnap import lightjson as json
from shadowsnap.errors import GitMissing, GitTooOld
from shadowsnap.git.deadline import Deadline
from shadowsnap.git.processes import kill_tree, start_process

MINIMUM = (2, 34)
_VERSION_SECONDS = 10.0

# Everything else stays outside: an agent may itself run inside a git hook, with GIT_DIR set.
_ALLOWED = ("PATH", "SYSTEMROOT", "SystemRoot", "COMSPEC", "PATHEXT", "WINDIR", "TEMP", "TMP", "TMPDIR")
_SEALED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    # Git before 2.45 does not know that variable; without any protocol it cannot fetch either.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
    "LANGUAGE": "C",
}


def sealed_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ALLOWED if name in os.environ}
    if "PATH" in kept:
        kept["PATH"] = os.pathsep.join(_search_path(kept["PATH"]))
    return {**kept, **_SEALED}


def _search_path(text: str) -> list[str]:
    """The directories in which programs are looked for: never one that depends on where we are, which may be
    a project that has a program called git."""
    return [directory for directory in text.split(os.pathsep) if os.path.isabs(directory)]


def usable_git(memory: Path | None = None) -> str:
    """The path of a git that is new enough. What was learned about that file is kept in
    `memory`, so that a hook does not spend a process on asking for the version."""
    return _usable_git(os.environ.get("PATH", os.defpath), memory)


@lru_cache(maxsize=8)
def _usable_git(search_path: str, memory: Path | None) -> str:
    executable = _find(search_path)
    version = _version(executable, memory)
    if version < MINIMUM:
        raise GitTooOld(found=_dotted(version), needed=_dotted(MINIMUM))
    return executable


def _find(search_path: str) -> str:
    name = "git.exe" if sys.platform == "win32" else "git"
    for directory in _search_path(search_path):
        candidate = os.path.join(directory, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    raise GitMissing()


def _version(executable: str, memory: Path | None) -> tuple[int, ...]:
    seen = os.stat(executable)
    identity = [executable, seen.st_mtime_ns, seen.st_size]
    if memory is not None:
        try:
            known = json.loads(memory.read_text("utf-8"))
            if known["git"] == identity:
                return tuple(int(part) for part in known["version"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # absent or damaged: ask git again
    version = _ask_version(executable)
    if memory is not None:
        try:
            memory.write_text(json.dumps({"git": identity, "version": version}), "utf-8")
        except OSError:
            pass  # only a memory
    return version


def _ask_version(executable: str) -> tuple[int, ...]:
    try:
        process = start_process(executable, ["version"], sealed_environment())
    except OSError:  # something that cannot be run
        raise GitMissing() from None
    try:
        answer, _ = process.exchange(b"", Deadline(_VERSION_SECONDS), "git version was running")
    finally:
        kill_tree(process)
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", answer)
    if found is None:
        raise GitMissing()
    return tuple(int(part) for part in found.groups() if part is not None)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
