"""Installing the hook into an agent's settings, and removing it; the launcher that those settings name.

First every file is planned, then all are written: if one cannot be changed without loss, none is.
A file that existed before gets a copy beside it. As long as nothing else changes the file,
removing the hook restores exactly that copy.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import site
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from shadowsnap.agents import agent as spec
from shadowsnap.agents.agent import Agent, Event
from shadowsnap.agents.catalog import AGENTS, agent_named
from shadowsnap.agents.edit import (
    Edit,
    JsonHooks,
    OwnFile,
    RetiredFile,
    YamlHooks,
    decoded,
    read_settings,
    read_text,
)
from shadowsnap.base import configured_base
from shadowsnap.errors import SettingsRefused
from shadowsnap.files import write_bytes
from shadowsnap.git.process import try_command

BACKUP = ".shadowsnap-backup"

_NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class FileChange:
    """One file before and after; None is a file that does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None
    executable: bool = False
    had_hook: bool = False
    """Whether our part was in it before."""
    why_kept: str = ""
    """Why the file, or a part of it, stays as it is."""

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
    """A part of an installation that was found in an agent's settings."""

    agent: str
    path: str
    scope: str
    """`user` or `project`."""
    current: bool
    """Whether it is what this version writes."""


def install(
    agent: str, project: Path | None = None, *, dry_run: bool = False, status_line: bool = False
) -> list[FileChange]:
    """Add the hook to an agent's settings, and write the scripts that it starts. Returns what changes.
    Installing twice is the same as installing once. A status line that was installed before stays."""
    changes = [_script(path, text) for path, text in scripts().items()]
    changes += [_plan_install(edit, status_line) for edit in edits_of(agent, project)]
    if not dry_run:
        Path(configured_base()).mkdir(0o700, parents=True, exist_ok=True)
        for change in changes:
            _keep_copy(change)
            _write(change)
    return changes


def uninstall(agent: str, project: Path | None = None, *, dry_run: bool = False) -> list[FileChange]:
    """Remove the hook; returns what changes. The scripts stay, as other agents may start them."""
    changes = [_plan_uninstall(edit) for edit in edits_of(agent, project)]
    if not dry_run:
        for change in changes:
            _write(change)
            if change.changes:
                _backup(change.path).unlink(missing_ok=True)
                _remove_empty_folders(change)
    return changes


def installed(project: Path | None = None) -> list[Installed]:
    """Every file with a part of ours, of all agents: of the person, and of one project."""
    found: list[Installed] = []
    for scope, where in (("user", None), ("project", project)):
        if scope == "user" or project is not None:
            for agent in AGENTS:
                found += _parts_installed(agent, scope, where)
    return found


def _parts_installed(agent: str, scope: str, project: Path | None) -> Iterator[Installed]:
    try:
        edits = edits_of(agent, project)
    except SettingsRefused:
        return
    for edit in edits:
        try:
            text = read_text(edit.path)
            if text is not None and edit.has(text):
                yield Installed(agent, str(edit.path), scope, edit.is_current(text))
        except (ValueError, OSError):
            continue  # no hook works from a file that cannot be read


# --- which files, and our part of each -----------------------------------------------------------


def edits_of(agent: str, project: Path | None = None) -> list[Edit]:
    """Our part of each file of an agent. Raises UnknownAgent, and SettingsRefused if it cannot be installed
    there at all."""
    known = agent_named(agent)
    if agent == "cline" and sys.platform == "win32":
        raise SettingsRefused(path=agent, why="its hooks are shell scripts, which do not run on Windows")
    return list(_edits(known, folder_of(known, project), project, launcher()))


def folder_of(agent: Agent, project: Path | None = None) -> Path:
    """The folder with an agent's settings. Raises SettingsRefused if it has none for a single project."""
    folder = agent.folder
    if project is not None:
        if folder.project is None:
            raise SettingsRefused(path=agent.name, why="it has no settings for a single project")
        return project / folder.project
    if folder.variable and (moved := os.environ.get(folder.variable)):
        return Path(moved).expanduser()
    config = os.environ.get("XDG_CONFIG_HOME", "")
    if folder.below_config and os.path.isabs(config):
        return Path(config, folder.below_config)
    return Path.home() / folder.user


def _edits(agent: Agent, folder: Path, project: Path | None, start: Launcher) -> Iterator[Edit]:
    hook = start.hook(agent.name)
    for file in agent.files:
        if isinstance(file, spec.HooksFile):
            yield from _hooks_edits(agent, folder, file, start)
        elif isinstance(file, spec.HookScripts):
            for event in agent.events:
                text = _filled_text(agent, file.text, start)
                yield OwnFile(folder / event.name, text, executable=True, command=quoted(hook))
        elif isinstance(file, spec.Retired):
            yield RetiredFile(folder / file.path)
        elif file.in_projects or project is None:
            text = _filled_text(agent, file.text, start)
            optional = not (file.is_hook or file.needed)
            yield OwnFile(folder / file.path, text, optional=optional, command=hook if file.is_hook else "")


def _hooks_edits(agent: Agent, folder: Path, file: spec.HooksFile, start: Launcher) -> Iterator[Edit]:
    entries = {event.name: _entry(agent, file, event, start) for event in agent.events}
    if file.path.endswith(".yaml"):
        yield YamlHooks(folder / file.path, entries)
        return
    if not file.if_none:
        status_line = _filled(agent.status_line, {spec.STATUS_LINE: quoted(start.status_line(agent.name))})
        yield JsonHooks(folder / file.path, entries, file.around, status_line)
        return
    own = folder / file.if_none
    for path in [path for path in sorted(folder.glob(file.path)) if path != own]:
        yield JsonHooks(path, entries)
    if own.exists() or not any(folder.glob(file.path)):
        yield JsonHooks(own, entries, file.around)


def _entry(agent: Agent, file: spec.HooksFile, event: Event, start: Launcher) -> dict[str, Any]:
    words = start.hook(agent.name, *([event.name] if file.names_event else []))
    values = {
        spec.COMMAND: quoted(words),
        spec.PROGRAM: words[0],
        spec.ARGUMENTS: list(words[1:]),
        spec.SECONDS: event.seconds,
        spec.MILLISECONDS: event.seconds * 1000,
    }
    entry = _filled(file.entry, values)
    matcher = {"matcher": event.matcher} if event.matcher else {}
    return {**matcher, "hooks": [entry]} if file.grouped else {**matcher, **entry}


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(each, values) for key, each in value.items()}
    return values.get(value, value) if isinstance(value, str) else value


def _filled_text(agent: Agent, text: str, start: Launcher) -> str:
    hook = start.hook(agent.name)
    for placeholder, value in (
        (spec.COMMAND, quoted(hook)),
        (spec.ROLLBACK, quoted(start.rollback)),
        (spec.WORDS, json.dumps(hook, ensure_ascii=False)),
        (spec.READERS, json.dumps(agent.readers)),
    ):
        text = text.replace(placeholder, value)
    return text


# --- planning ------------------------------------------------------------------------------------


def _script(path: Path, text: str) -> FileChange:
    # Files in our own folder are ours, whichever version wrote them.
    before = path.read_bytes() if path.exists() else None
    return FileChange(path, before, text.encode(), executable=True, had_hook=True)


def _plan_install(edit: Edit, status_line: bool) -> FileChange:
    before = _content_of(edit)
    try:
        text = decoded(before)
        kept = _prepare_status_line(edit, text, status_line)
        ours = text is not None and edit.has(text)
        base = _text_without_ours(edit, text) if ours and text is not None else text
        after = edit.add(base)
    except ValueError as problem:
        if edit.optional:
            return FileChange(edit.path, before, before, why_kept=str(problem))
        raise SettingsRefused(path=edit.path, why=problem) from problem
    return FileChange(edit.path, before, _encoded(after), edit.executable, ours, kept)


def _prepare_status_line(edit: Edit, text: str | None, wanted: bool) -> str:
    """Set whether `edit` adds our status line; returns why not, if it is wanted."""
    if not isinstance(edit, JsonHooks):
        return ""
    edit.wants_status_line = wanted or edit.has_status_line(text)
    if not wanted:
        return ""
    if not edit.status_line:
        return "this agent has no status line that runs a command"
    if edit.other_status_line(text):
        return "there is a status line already; yours can run `shadowsnap statusline AGENT` as a part of it"
    return ""


_BY_HAND = "correct the file, or take the hook out by hand: it is what has `shadowsnap` in it"


def _plan_uninstall(edit: Edit) -> FileChange:
    before = _content_of(edit, _BY_HAND)
    try:
        text = decoded(before)
        if text is None or not edit.has(text):
            kept = "it was changed by hand" if text and "shadowsnap install" in text else ""
            return FileChange(edit.path, before, before, why_kept=kept)
        _prepare_status_line(edit, text, False)
        after = _text_without_ours(edit, text)
    except ValueError as problem:
        raise SettingsRefused(path=edit.path, why=problem, hint=_BY_HAND) from problem
    return FileChange(edit.path, before, _encoded(after), edit.executable, True)


def _text_without_ours(edit: Edit, text: str) -> str | None:
    """The backup, if the file differs from it only in our part; else the text without our part."""
    saved = read_text(_backup(edit.path))
    stripped = edit.strip(text)
    if stripped == edit.strip(edit.add(saved) or ""):
        return saved
    return stripped


# --- reading and writing -------------------------------------------------------------------------


def _keep_copy(change: FileChange) -> None:
    """Back up a file before our part is added. If it has our part already, the backup was made then."""
    if change.before is not None and change.changes and not change.had_hook:
        write_bytes(_backup(change.path), change.before)


def _write(change: FileChange) -> None:
    path = Path(os.path.realpath(change.path))  # settings are often links into a repository of dotfiles
    if not change.changes:
        if change.executable and path.exists() and not os.access(path, os.X_OK):
            path.chmod(path.stat().st_mode | 0o100)
        return
    if change.after is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = path.stat().st_mode & 0o777 if path.exists() else 0o755 if change.executable else 0o644
    write_bytes(path, change.after, fsync=True)
    path.chmod(bits | 0o100 if change.executable else bits)


def _remove_empty_folders(change: FileChange) -> None:
    """Remove the empty folders of a removed file, if they are ours; another empty folder may have a meaning."""
    if change.after is None:
        for folder in change.path.parents:
            if not any(part in ("shadowsnap", "rollback") for part in folder.parts[-2:]):
                break
            try:
                folder.rmdir()
            except OSError:
                break


def _backup(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def _content_of(edit: Edit, hint: str | None = None) -> bytes | None:
    try:
        return read_settings(edit.path)
    except ValueError as problem:
        raise SettingsRefused(path=edit.path, why=problem, hint=hint) from problem


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines(keepends=True)


# --- the launcher ----------------------------------------------------------------------------------------
# Agents start two small scripts of ours in `<base>/bin`. The settings of an agent name `<base>/bin/shadowsnap`,
# never a Python. So the command in them stays the same when shadowsnap is updated or moves to another virtual
# environment, and with it the trust that an agent such as Codex keeps for exactly this command. `shadowsnap
# install` writes the scripts anew. Windows has no such scripts: there, settings name the Python itself.


# Directories in which uv keeps environments that it may remove at any time (`uvx`, `uv run --with`).
_UV_CACHE = re.compile(r"(?:archive|builds|environments)-v\d+")
_CACHES = ("cache", ".cache", "caches")

# `-c` instead of `-m`: it saves the import of runpy, at every tool call.
_START = """\
import sys
try:
    from shadowsnap.__main__ import main
except ImportError:
    if sys.argv[1:2] == ["hook"]:
        sys.exit(0)
    print("NOT protected: shadowsnap is no longer installed for", sys.executable)
    sys.exit(1)
sys.exit(main())"""

_SHADOWSNAP = """\
#!/bin/sh
# Written by `shadowsnap install`, which writes it anew when shadowsnap has moved. Settings of agents name this
# script, so that their commands stay the same. Like the hook itself, it never stops an agent.
python={python}
if [ -x "$python" ]; then
    exec "$python" {flags} -c {start} "$@"
fi
[ "$1" = hook ] && exit 0
echo "NOT protected: the Python of shadowsnap is missing ($python)."
echo "Install shadowsnap again, then run: shadowsnap install AGENT"
exit 1
"""

_ROLLBACK = """\
#!/bin/sh
# Written by `shadowsnap install`. The /rollback commands of agents run it with the line as one word, or with - and
# the line on standard input. It always exits with 0: several agents show nothing of a command that fails.
if [ "$1" = - ]; then
    line=
    while IFS= read -r part; do
        line="$line$part "
    done
    set -- "$line$part"
fi
{shadowsnap} rollback "$@" 2>&1
exit 0
"""


@dataclass(frozen=True)
class Launcher:
    """The command lines that go into settings of agents, as lists of words."""

    shadowsnap: tuple[str, ...]
    rollback: tuple[str, ...]

    def hook(self, agent: str, *more: str) -> tuple[str, ...]:
        return (*self.shadowsnap, "hook", agent, *more)

    def status_line(self, agent: str) -> tuple[str, ...]:
        return (*self.shadowsnap, "statusline", agent)


def launcher() -> Launcher:
    """The command lines for this person, whether the scripts exist yet or not."""
    if sys.platform == "win32":
        words = program_words()
        return Launcher(words, (*words, "rollback"))
    folder = _scripts_folder()
    return Launcher((str(folder / "shadowsnap"),), (str(folder / "shadowsnap-rollback"),))


def scripts() -> dict[Path, str]:
    """The scripts as they should be now, by path. Raises SettingsRefused if this program may be removed at any
    time."""
    words = program_words()
    if sys.platform == "win32":
        return {}
    flags = [word for word in words[1:] if word in ("-I", "-E", "-P")]
    shadowsnap, rollback = Path(launcher().shadowsnap[0]), Path(launcher().rollback[0])
    return {
        shadowsnap: _SHADOWSNAP.format(
            python=shlex.quote(words[0]), flags=" ".join(flags), start=shlex.quote(_START)
        ),
        rollback: _ROLLBACK.format(shadowsnap=shlex.quote(str(shadowsnap))),
    }


def program_words() -> tuple[str, ...]:
    """The command line that starts this program, also where it is not on the PATH. Isolated (-I): no
    variable and no module of a project can change what the hook runs. Isolation hides packages in the
    person's own site directory; for those, only variables (-E) and the current directory (-P) are ignored. Raises
    SettingsRefused if this program may be gone tomorrow."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise _refused("this program has no Python to start it with")
    for path in (sys.executable, __file__):
        if _is_in_cache(path):
            raise _refused(f"this shadowsnap is in a cache and may be removed at any time ({path})")
    options = _isolation(sys.executable)
    if options is None:
        raise _refused(
            "an isolated Python does not find shadowsnap, and one that is not isolated would run what a project "
            "calls shadowsnap"
        )
    return (sys.executable, *options, "-m", "shadowsnap")


_ISOLATED, _WITH_OWN_PACKAGES = ("-I",), ("-E", "-P")


def _isolation(python: str) -> tuple[str, ...] | None:
    """The options with which Python finds this package and ignores modules of a project; None if there are
    none."""
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


def _refused(why: str) -> SettingsRefused:
    problem = SettingsRefused(path="the settings file of the agent", why=why)
    problem.hint = "install it first: uv tool install shadowsnap (or pipx install shadowsnap)"
    return problem


def _is_in_cache(path: str) -> bool:
    names = [name.lower() for name in Path(path).parts]
    of_pipx = "pipx" in names and any(name in _CACHES for name in names)
    return of_pipx or any(_UV_CACHE.fullmatch(name) for name in names)


def launcher_problem() -> str:
    """Why the scripts cannot start shadowsnap, as a phrase; empty if they can."""
    if sys.platform == "win32":
        return ""
    path = Path(launcher().shadowsnap[0])
    try:
        python = interpreter_in(path.read_text("utf-8"))
    except (OSError, ValueError):
        return f"{path} is missing"
    if not python:
        return f"{path} was changed"
    return "" if os.access(python, os.X_OK) else f"the Python of shadowsnap is missing: {python}"


def interpreter_in(script: str) -> str:
    """The Python that a script starts."""
    match = re.search(r"^python=(.+)$", script, re.MULTILINE)
    words = shlex.split(match.group(1)) if match else []
    return words[0] if words else ""


def quoted(words: tuple[str, ...]) -> str:
    """A command line for the shell of this system."""
    if sys.platform == "win32":
        return " ".join(f'"{word}"' if re.search(r"[^\w.:\\/-]", word) else word for word in words)
    return shlex.join(words)


def _scripts_folder() -> Path:
    return Path(os.path.abspath(configured_base()), "bin")
