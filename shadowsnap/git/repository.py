"""Running git on one repository: which git, in which environment, with which deadline.

Git never sees the environment or the configuration of the user. An agent may itself run inside a
git hook, with GIT_DIR set, and a project may bring settings that run programs.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import GitFailed, GitMissing, GitTooOld
from shadowsnap.files import check_resources, parse_json, scratch_folder
from shadowsnap.git.packs import NewObjects
from shadowsnap.git.process import Process, kill_tree, kill_without_reaping

if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.git.reading import Batch

MINIMUM = (2, 34)
ATTRIBUTES_FIXED = ((2, 34, 6), (2, 35, 6), (2, 36, 4), (2, 37, 5), (2, 38, 3), (2, 39, 1))
"""The first version of each series with the fix of CVE-2022-23521. Later series all have it."""
# Git without the fix cuts a line of attributes at 2048 bytes; git with the fix ignores the line.
_PROBE = b"probe shadowsnap-probe" + b" a" * 1100 + b"\n"
_VERSION_SECONDS = 10.0
_MESSAGE_LINES = 5
_PASSED_ON = ("PATH", "SYSTEMROOT", "SystemRoot", "COMSPEC", "PATHEXT", "WINDIR", "TEMP", "TMP", "TMPDIR")
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
# `git merge-file` returns the number of conflicts, up to this.
_MAX_CONFLICTS = 127
_BINARY_WITHIN = 8000

processes_started = 0
"""Number of git processes this Python process has started. Tests count them."""


@dataclass(frozen=True)
class Git:
    """Runs git on one repository. It can also be bound to a work tree, an index file and a separate
    object directory."""

    executable: str
    git_dir: Path
    work_tree: Path | None = None
    index_file: Path | None = None
    scratch_objects: Path | None = None
    """Where new objects go; the repository itself is then only read."""
    borrowed_objects: Path | None = None
    """The object directory of another repository, which is read in place of the own one."""
    config: tuple[str, ...] = ()
    literal_pathspecs: bool = True
    inherited: tuple[int, ...] = ()
    """Descriptors that git keeps open. A lock held through one lasts until git ends, even if this
    process is killed."""
    batch: Batch | None = None
    """The `cat-file` process that all object readers share."""
    network: bool = False
    """Whether the command talks to a remote, with the person's own configuration and credentials."""
    untrusted: bool = False
    """Whether the command reads objects from elsewhere that nothing has checked yet."""
    new_objects: NewObjects | None = None
    """Objects that are not in the store yet. They are written before any git process starts."""
    deadline: Deadline = NO_DEADLINE

    @property
    def objects(self) -> Path:
        """The directory that existing objects are read from."""
        return self.borrowed_objects or self.git_dir / "objects"

    def bound(self, **changes: object) -> Git:
        """The same with other values for some of the attributes."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def run(self, *args: str | bytes, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
        """Run one git command to its end and return what it printed. Raises `GitFailed` unless its exit
        code is in `ok`."""
        return self.start(*args, stdin=stdin, ok=ok).output()

    def start(self, *args: str | bytes, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> Running:
        """Start a command and return at once, so that several can run side by side."""
        return Running(self._start(args, bool(stdin)), str(args[0]), stdin, tuple(ok), self.deadline)

    @contextmanager
    def conversation(self, *args: str | bytes) -> Iterator[Process]:
        """A command that reads requests and answers them one by one (`cat-file --batch`). It is killed at
        the end of the block."""
        process = self._start(args, True, with_stderr=False)
        try:
            with process.ending_at(self.deadline):
                yield process
        finally:
            kill_tree(process)

    def _start(self, args: Sequence[str | bytes], with_stdin: bool, with_stderr: bool = True) -> Process:
        global processes_started
        self.deadline.check(f"starting git {args[0]!s}")
        if self.new_objects is not None:
            self.new_objects.flush()
        processes_started += 1
        options = [part for setting in self.config for part in ("-c", setting)]
        return Process(
            self.executable,
            [*options, *args],
            self._environment(),
            self.work_tree or self.git_dir,
            with_stdin=with_stdin,
            with_stderr=with_stderr,
            inherited=self.inherited,
        )

    def _environment(self) -> dict[str, str]:
        environment = network_environment() if self.network else sealed_environment()
        environment["GIT_DIR"] = str(self.git_dir)
        if self.untrusted:
            environment["GIT_ALLOC_LIMIT"] = _MOST_MEMORY
        if self.literal_pathspecs:
            environment["GIT_LITERAL_PATHSPECS"] = "1"
        if self.work_tree is not None:
            environment["GIT_WORK_TREE"] = str(self.work_tree)
        if self.index_file is not None:
            environment["GIT_INDEX_FILE"] = str(self.index_file)
        if self.scratch_objects is not None:
            environment["GIT_OBJECT_DIRECTORY"] = str(self.scratch_objects)
            # Quoted, because git splits this list at colons (semicolons on Windows).
            escaped = str(self.objects).replace("\\", "\\\\").replace('"', '\\"')
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = f'"{escaped}"'
        elif self.borrowed_objects is not None:
            environment["GIT_OBJECT_DIRECTORY"] = str(self.borrowed_objects)
        return environment


def sealed_environment() -> dict[str, str]:
    """The environment of every git process: nothing of the user's but what is needed to run programs."""
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if "PATH" in kept:
        kept["PATH"] = safe_search_path(kept["PATH"])
    return {**kept, **_SEALED}


def safe_search_path(search_path: str) -> str:
    """A PATH without its relative directories. If none is left, it is the default of the system: an empty
    PATH means the current directory."""
    return os.pathsep.join(_absolute_entries(search_path) or _absolute_entries(os.defpath))


def _absolute_entries(search_path: str) -> list[str]:
    """The absolute directories of a PATH. A relative one depends on the current directory, which may be
    a project that contains a program named git."""
    return [directory for directory in search_path.split(os.pathsep) if os.path.isabs(directory)]


class Running:
    """A git command that was started."""

    def __init__(
        self, process: Process, command: str, stdin: bytes, ok: tuple[int, ...], deadline: Deadline
    ) -> None:
        self._process = process
        self._command = command
        self._stdin = process.send_ahead(stdin)
        self._ok = ok
        self._deadline = deadline
        self.errors = b""

    def output(self) -> bytes:
        """Wait for the end of the command and return what it printed."""
        process = self._process
        try:
            out, self.errors = process.exchange(self._stdin, self._deadline, f"git {self._command} was running")
        finally:
            kill_tree(process)
        if process.returncode not in self._ok:
            message = _shortened(self.errors.decode("utf-8", "replace").strip())
            raise GitFailed(command=self._command, status=process.returncode, stderr=message)
        return out

    @property
    def status(self) -> int | None:
        """The exit code; None before `output`."""
        return self._process.returncode

    def stop(self) -> None:
        """Kill the command from another thread than the one that waits for its output."""
        kill_without_reaping(self._process)

    def abandon(self) -> None:
        """Kill the command, if it still runs."""
        kill_tree(self._process)


def _shortened(message: str) -> str:
    """The first lines: on a full disk, git complains about every file."""
    lines = message.splitlines()
    if len(lines) <= _MESSAGE_LINES:
        return message
    return "\n".join([*lines[:_MESSAGE_LINES], f"(and {len(lines) - _MESSAGE_LINES} more)"])


@contextmanager
def side_by_side(*commands: Running) -> Iterator[None]:
    """Kill the commands at the end of the block, also when it fails before it has read their output."""
    try:
        yield
    finally:
        for command in commands:
            command.abandon()


# What a person's credentials and proxies need. Everything else that begins with GIT_ could lead elsewhere.
_NETWORK = (
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY", "GIT_PROXY_COMMAND",
)  # fmt: skip
# A pack from elsewhere may claim that a few bytes stand for gigabytes: git makes room for no more than this. It
# writes no deltas of objects above 512 MiB itself.
_MOST_MEMORY = "520m"
_NETWORK_SEALED = ("GIT_NO_REPLACE_OBJECTS", "GIT_NO_LAZY_FETCH", "GIT_TERMINAL_PROMPT", "LC_ALL")


def network_environment() -> dict[str, str]:
    """The person's own environment, for the commands that talk to a remote: their credentials are found in it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GIT_", "PYTHON")) or name in _NETWORK
    }
    kept["PATH"] = safe_search_path(kept.get("PATH", os.defpath))
    return {**kept, **{name: _SEALED[name] for name in _NETWORK_SEALED}}


def usable_git(memory: Path | None = None) -> str:
    """The path of a git that is new enough. Its version is remembered in the file `memory`, so that a
    hook does not start a process to ask for it."""
    return _usable_git(os.environ.get("PATH", os.defpath), memory)


@lru_cache(maxsize=8)
def _usable_git(search_path: str, memory: Path | None) -> str:
    executable = _find_git(search_path)
    version = _version(executable, memory)
    if version < MINIMUM:
        raise GitTooOld(found=_dotted(version), needed=_dotted(MINIMUM))
    return executable


def _find_git(search_path: str) -> str:
    name = "git.exe" if sys.platform == "win32" else "git"
    for directory in _absolute_entries(search_path):
        candidate = os.path.join(directory, name)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return os.path.abspath(candidate)
    raise GitMissing()


def _version(executable: str, memory: Path | None) -> tuple[int, ...]:
    seen = os.stat(executable)
    identity = [executable, seen.st_mtime_ns, seen.st_size]
    if memory is not None:
        try:
            known = parse_json(memory.read_text("utf-8"))
            if known["git"] == identity:
                return tuple(int(part) for part in known["version"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # absent or damaged: ask git again
    version = _ask_version(executable, seen.st_mtime_ns, seen.st_size)
    if memory is not None:
        try:
            memory.write_text(json.dumps({"git": identity, "version": version}), "utf-8")
        except OSError:
            pass  # git is asked again next time
    return version


@lru_cache(maxsize=8)
def _ask_version(executable: str, *_identity: int) -> tuple[int, ...]:
    """The version that a program prints. It is asked once, however many stores this process makes."""
    try:
        process = Process(executable, ["version"], sealed_environment())
    except OSError as problem:
        check_resources(problem)
        raise GitMissing() from None  # it is no program
    try:
        answer, _ = process.exchange(b"", Deadline(_VERSION_SECONDS), "git version was running")
    finally:
        kill_tree(process)
    found = re.search(rb"(\d+)\.(\d+)(?:\.(\d+))?", answer)
    if found is None:
        raise GitMissing()
    return tuple(int(part) for part in found.groups() if part is not None)


def missing_fixes(git: Git) -> str:
    """Which security fix the installed git lacks, in a sentence; empty if none.

    To restore many files, git writes them, and reads the `.gitattributes` of the checkpoint for that. Such a file
    could make older versions write outside of their memory (CVE-2022-23521). Other known flaws are in commands
    that are never used here: clone, fetch, apply, submodules, hooks, credentials, custom commit formats.
    """
    version = _version(_find_git(os.environ.get("PATH", os.defpath)), git.git_dir / "git-version.json")
    if has_attributes_fix(version) or _ignores_long_attributes(git):
        return ""
    return (
        f"git {_dotted(version)} lacks the fix of CVE-2022-23521: a hostile .gitattributes in a project could run "
        f"code during a restore. Update git to {_dotted(ATTRIBUTES_FIXED[-1])} or later"
    )


def has_attributes_fix(version: tuple[int, ...]) -> bool:
    """Whether a version has the fix according to its number."""
    first = next((fixed for fixed in ATTRIBUTES_FIXED if fixed[:2] == version[:2]), ATTRIBUTES_FIXED[-1])
    return version >= first


def _ignores_long_attributes(git: Git) -> bool:
    """Whether git behaves as with the fix: distributions add it to older versions and keep their number."""
    path = git.git_dir / f"probe-{os.getpid()}"
    try:
        path.write_bytes(_PROBE)
        probing = git.bound(config=(*git.config, f"core.attributesFile={path}"))
        return probing.run("check-attr", "shadowsnap-probe", "--", "probe").endswith(b": unspecified\n")
    except OSError:
        return False
    finally:
        path.unlink(missing_ok=True)


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


class MergedText(NamedTuple):
    data: bytes
    has_conflicts: bool
    """Whether the text contains conflict markers."""


def merge_text(
    git: Git, ours: bytes, base: bytes, theirs: bytes, labels: tuple[str, str, str]
) -> MergedText | None:
    """Merge the changes from `base` to `theirs` into `ours`. Returns None if one of them is binary. The
    labels name ours, base and theirs in conflict markers."""
    if any(b"\0" in side[:_BINARY_WITHIN] for side in (ours, base, theirs)):
        return None
    sides = {"ours": ours, "base": base, "theirs": theirs}
    with scratch_folder(git.git_dir, "merge") as scratch:
        for name, data in sides.items():
            Path(scratch, name).write_bytes(data)
        label_options = [word for label in labels for word in ("-L", label)]
        files = [str(scratch / name) for name in sides]
        command = git.bound(config=("merge.conflictStyle=merge",)).start(
            "merge-file", "-p", *label_options, *files, ok=range(_MAX_CONFLICTS + 1)
        )
        merged = command.output()
    return MergedText(merged, command.status != 0)
