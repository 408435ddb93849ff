"""Installing the hook into an agent's settings, and taking it out again.

First every file is planned, then all are written: if one cannot be changed without loss, none is.
A file that was there before gets a copy beside it, and as long as nobody else changes it, taking
the hook out brings exactly that back.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from shadowsnap.agents.targets import AGENTS, Edit, Home
from shadowsnap.errors import SettingsRefused, UnknownAgent
from shadowsnap.files import write_bytes
from shadowsnap.git.process import try_command
from shadowsnap.records import dataclass

BACKUP = ".shadowsnap-backup"

_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class FileChange:
    """One file, before and after; None is a file that is not there."""

    path: Path
    before: bytes | None
    after: bytes | None
    executable: bool = False
    had_hook: bool = False
    """Whether our part was in it before."""
    why_kept: str = ""
    """Why a file is left as it is, if that needs a word."""

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """As a unified diff."""
        old, new = (os.devnull if side is None else str(self.path) for side in (self.before, self.after))
        lines = difflib.unified_diff(_lines(self.before), _lines(self.after), old, new)
        return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}\n" for line in lines)


@dataclass(frozen=True)
class Installed:
    """A hook that was found in an agent's settings."""

    agent: str
    path: str
    scope: str
    """`user` or `project`."""
    current: bool
    """Whether it starts this very program."""


def install(
    agent: str, project: Path | None = None, *, dry_run: bool = False, program: tuple[str, ...] = ()
) -> list[FileChange]:
    """Put the hook into an agent's settings; returns what changed. Twice is the same as once."""
    changes = [_installing(edit) for edit in _edits(agent, project, program)]
    if not dry_run:
        for change in changes:
            _keep_copy(change)
            _write(change)
    return changes


def uninstall(
    agent: str, project: Path | None = None, *, dry_run: bool = False, program: tuple[str, ...] = ()
) -> list[FileChange]:
    """Take the hook out again; returns what changed."""
    changes = [_uninstalling(edit) for edit in _edits(agent, project, program or _any_words())]
    if not dry_run:
        for change in changes:
            _write(change)
            if change.changes:
                _backup(change.path).unlink(missing_ok=True)
                _remove_empty_folders(change)
    return changes


def installed(project: Path | None = None) -> list[Installed]:
    """Every agent whose settings have the hook, for the person or for one project."""
    found: list[Installed] = []
    for scope, where in (("user", None), ("project", project)):
        if scope == "project" and project is None:
            continue
        for agent in AGENTS:
            found += _found(agent, scope, where)
    return found


def program_words() -> tuple[str, ...]:
    """The command line that starts this very program, also where it is not on the PATH. Isolated (-I): no
    variable and no module of a project can get between an agent and its hook. What a person installed for
    themselves alone is not found that way: then variables (-E) and the directory that Python is started in
    (-P) are left out, and the person's own packages are not. Refuses if it is found neither way."""
    if not sys.executable or getattr(sys, "frozen", False):
        why = "this program has no Python to start it with; install it with uv, pipx or pip"
        raise SettingsRefused(path="the hook", why=why)
    options = _isolation(sys.executable)
    if options is None:
        why = (
            "an isolated Python does not find shadowsnap, and one that is not isolated would run what a project "
            "calls shadowsnap; install it with uv, pipx or pip"
        )
        raise SettingsRefused(path="the hook", why=why)
    return (sys.executable, *options, "-m", "shadowsnap")


_ISOLATED, _WITH_OWN_PACKAGES = ("-I",), ("-E", "-P")


def _isolation(python: str) -> tuple[str, ...] | None:
    """The options with which Python finds this very package, and nothing of a project; None if there are none."""
    import site

    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if site.ENABLE_USER_SITE is not False and folder == site.getusersitepackages():
        return _WITH_OWN_PACKAGES
    if folder in site.getsitepackages():
        return _ISOLATED
    return _isolation_tried(python, folder)  # an editable installation, or none at all


@lru_cache
def _isolation_tried(python: str, folder: str) -> tuple[str, ...] | None:
    code = "import shadowsnap; print(shadowsnap.__file__)"
    for options in (_ISOLATED, _WITH_OWN_PACKAGES):
        found = os.fsdecode(try_command([python, *options, "-c", code], Path(os.sep), dict(os.environ))).strip()
        if os.path.realpath(found) == os.path.realpath(os.path.join(folder, "shadowsnap", "__init__.py")):
            return options
    return None


def _any_words() -> tuple[str, ...]:
    """The same for what starts nothing: to find a hook, and to take it out."""
    try:
        return program_words()
    except SettingsRefused:
        return (sys.executable or "python3", *_ISOLATED, "-m", "shadowsnap")


# --- planning --------------------------------------------------------------------------------


def _edits(agent: str, project: Path | None, program: tuple[str, ...]) -> list[Edit]:
    if agent not in AGENTS:
        raise UnknownAgent(agent=agent, known=", ".join(AGENTS))
    try:
        return list(AGENTS[agent](Home(program or program_words(), project)))
    except LookupError as problem:
        raise SettingsRefused(path=agent, why=problem.args[0]) from None


def _installing(edit: Edit) -> FileChange:
    before = _read(edit.path)
    try:
        text = _text(before)
        ours = text is not None and edit.has(text)
        base = _original(edit, text) if ours and text is not None else text
        after = edit.add(base).encode()
    except ValueError as problem:
        if edit.optional:
            return FileChange(edit.path, before, before, why_kept=str(problem))
        raise SettingsRefused(path=edit.path, why=problem) from problem
    return FileChange(edit.path, before, after, edit.executable, ours)


def _uninstalling(edit: Edit) -> FileChange:
    before = _read(edit.path)
    try:
        text = _text(before)
        if text is None or not edit.has(text):
            kept = "it was changed by hand" if text and "shadowsnap install" in text else ""
            return FileChange(edit.path, before, before, why_kept=kept)
        after = _original(edit, text)
    except ValueError as problem:
        raise SettingsRefused(path=edit.path, why=problem) from problem
    return FileChange(edit.path, before, None if after is None else after.encode(), edit.executable, True)


def _original(edit: Edit, text: str) -> str | None:
    """The file as it was before us, if it holds nothing new beside our part; else without it."""
    saved = _text(_read(_backup(edit.path)))
    stripped = edit.strip(text)
    if stripped == edit.strip(edit.add(saved)):
        return saved
    return stripped


def _found(agent: str, scope: str, project: Path | None) -> Iterator[Installed]:
    try:
        edits = _edits(agent, project, _any_words())
    except SettingsRefused:
        return
    for edit in edits:
        try:
            text = _text(_read(edit.path))
            if text is not None and edit.has(text):
                yield Installed(agent, str(edit.path), scope, edit.is_current(text))
        except (ValueError, OSError):
            continue  # a file that cannot be read has no hook that works


# --- writing ---------------------------------------------------------------------------------


def _keep_copy(change: FileChange) -> None:
    """A copy of a file that is not ours. (If our part is in it, the copy was made before.)"""
    if change.before is not None and change.changes and not change.had_hook:
        write_bytes(_backup(change.path), change.before)


def _write(change: FileChange) -> None:
    if not change.changes:
        return
    path = Path(os.path.realpath(change.path))  # settings are often links into a repository of dotfiles
    if change.after is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = path.stat().st_mode & 0o777 if path.exists() else 0o755 if change.executable else 0o644
    write_bytes(path, change.after, fsync=True)
    path.chmod(bits)


def _remove_empty_folders(change: FileChange) -> None:
    """Those that are named after us; others may have a meaning while empty."""
    if change.after is None:
        for folder in change.path.parents:
            if not any(part == "shadowsnap" for part in folder.parts[-2:]):
                break
            try:
                folder.rmdir()
            except OSError:
                break


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines(keepends=True)
