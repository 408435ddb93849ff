"""Running git: one class, one environment, one way to time out."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path

from shadowsnap import lightjson as json
from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import GitFailed, GitMissing, GitTooOld
from shadowsnap.files import remove_tree
from shadowsnap.git.paths import absolute_entries, safe_search_path
from shadowsnap.git.process import kill_tree, start_process
from shadowsnap.records import NamedTuple, dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for annotations only
    from shadowsnap.git.packs import NewObjects
    from shadowsnap.git.process import Process
    from shadowsnap.git.reading import Batch

_LINES = 5

processes_started = 0
"""How many git processes this Python process has started: tests count them."""


@dataclass(frozen=True)
class Git:
    """git bound to one repository, and where needed to a work tree, an index file and an
    object directory of their own."""

    executable: str
    git_dir: Path
    work_tree: Path | None = None
    index_file: Path | None = None
    scratch_objects: Path | None = None
    """Where new objects go instead of the repository, which is then only read."""
    config: tuple[str, ...] = ()
    literal_pathspecs: bool = True
    inherited: tuple[int, ...] = ()
    """Descriptors that git keeps open: a lock held through one lasts until git ends, too."""
    batch: Batch | None = None
    """The process that everybody who is bound to it reads objects through."""
    new: NewObjects | None = None
    """What is on its way into the store. It has to be there before git looks."""
    network: bool = False
    """Whether the command talks to a remote, with the person's own configuration and credentials."""
    deadline: Deadline = NO_DEADLINE

    def bound(self, **changes: object) -> Git:
        return replace(self, **changes)  # type: ignore[arg-type]

    def run(self, *args: str | bytes, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> bytes:
        """Run one git command to its end and return what it printed."""
        return self.start(*args, stdin=stdin, ok=ok).output()

    def start(self, *args: str | bytes, stdin: bytes = b"", ok: Sequence[int] = (0,)) -> Running:
        """Start a command and return at once, so that several can run side by side."""
        return Running(self._spawn(args, bool(stdin)), str(args[0]), stdin, tuple(ok), self.deadline)

    @contextmanager
    def conversation(self, *args: str | bytes) -> Iterator[Process]:
        """A command that is asked and answers line by line (`cat-file --batch`)."""
        process = self._spawn(args, True, heard=False)
        try:
            with process.ending_at(self.deadline):
                yield process
        finally:
            kill_tree(process)

    def _spawn(self, args: Sequence[str | bytes], talks: bool, heard: bool = True) -> Process:
        global processes_started
        self.deadline.check(f"starting git {args[0]!s}")
        if self.new is not None:
            self.new.settle()
        processes_started += 1
        options = [part for setting in self.config for part in ("-c", setting)]
        return start_process(
            self.executable,
            [*options, *args],
            self._environment(),
            self.work_tree or self.git_dir,
            talks=talks,
            heard=heard,
            inherited=self.inherited,
        )

    def _environment(self) -> dict[str, str]:
        environment = network_environment() if self.network else sealed_environment()
        environment["GIT_DIR"] = str(self.git_dir)
        if self.literal_pathspecs:
            environment["GIT_LITERAL_PATHSPECS"] = "1"
        if self.work_tree is not None:
            environment["GIT_WORK_TREE"] = str(self.work_tree)
        if self.index_file is not None:
            environment["GIT_INDEX_FILE"] = str(self.index_file)
        if self.scratch_objects is not None:
            environment["GIT_OBJECT_DIRECTORY"] = str(self.scratch_objects)
            environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(self.git_dir / "objects")
        return environment


def _quoted(path: Path) -> str:
    """A path in a list that git splits at colons (semicolons on Windows)."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _in_short(message: str) -> str:
    """A disk that is full is one reason, though git complains about every file."""
    lines = message.splitlines()
    return message if len(lines) <= _LINES else "\n".join([*lines[:_LINES], f"(and {len(lines) - _LINES} more)"])


class Running:
    """A git command under way."""

    def __init__(
        self,
        process: Process,
        command: str,
        stdin: bytes,
        ok: tuple[int, ...],
        deadline: Deadline,
    ) -> None:
        self._process = process
        self._command = command
        self._stdin = stdin
        self._ok = ok
        self._deadline = deadline

    def output(self) -> bytes:
        process = self._process
        try:
            doing = f"git {self._command} was running"
            out, err = process.exchange(self._stdin, self._deadline, doing)
        finally:
            kill_tree(process)
        if process.returncode not in self._ok:
            message = err.decode("utf-8", "replace").strip()
            raise GitFailed(command=self._command, status=process.returncode, stderr=_in_short(message))
        return out

    @property
    def status(self) -> int | None:
        """The exit code, once the output was had."""
        return self._process.returncode

    def abandon(self) -> None:
        """End the command; for a caller that failed before it wanted the output."""
        kill_tree(self._process)


@contextmanager
def side_by_side(*running: Running) -> Iterator[None]:
    """Make sure that no command outlives the block it was started for."""
    try:
        yield
    finally:
        for command in running:
            command.abandon()


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
        kept["PATH"] = safe_search_path(kept["PATH"])
    return {**kept, **_SEALED}


# What a person's credentials and proxies need. Everything else that begins with GIT_ could lead elsewhere.
_NETWORK = (
    "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_ASKPASS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_CERT", "GIT_SSL_KEY", "GIT_PROXY_COMMAND",
)  # fmt: skip
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
    """The path of a git that is new enough. What was learned about that file is kept in
    `memory`, so that a hook does not spend a process on asking for the version."""
    return _usable_git(os.environ.get("PATH", os.defpath), memory)


def git_version(memory: Path | None = None) -> tuple[int, ...]:
    """The version of the git that is found first."""
    return _version(_find(os.environ.get("PATH", os.defpath)), memory)


@lru_cache(maxsize=8)
def _usable_git(search_path: str, memory: Path | None) -> str:
    executable = _find(search_path)
    version = _version(executable, memory)
    if version < MINIMUM:
        raise GitTooOld(found=dotted(version), needed=dotted(MINIMUM))
    return executable


def _find(search_path: str) -> str:
    name = "git.exe" if sys.platform == "win32" else "git"
    for directory in absolute_entries(search_path):
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


def dotted(version: tuple[int, ...]) -> str:
    """A version as people write it."""
    return ".".join(str(part) for part in version)


_MOST_CONFLICTS = 127
_BINARY_WITHIN = 8000
_numbers = count()


class MergedText(NamedTuple):
    data: bytes
    has_conflicts: bool
    """Whether sides disagree somewhere: there are conflict markers there."""


def merge_text(
    git: Git, ours: bytes, base: bytes, theirs: bytes, labels: tuple[str, str, str]
) -> MergedText | None:
    """Bring what changed from `base` to `theirs` into `ours`; None if one of them is no text. The labels name
    ours, the base and theirs in conflict markers."""
    if any(b"\0" in side[:_BINARY_WITHIN] for side in (ours, base, theirs)):
        return None
    # A directory of its own for each merge: other threads may be at work on other projects.
    scratch = git.git_dir / f"scratch-merge-{os.getpid()}-{next(_numbers)}"
    sides = {"ours": ours, "base": base, "theirs": theirs}
    remove_tree(scratch)
    try:
        scratch.mkdir()
        for name, data in sides.items():
            Path(scratch, name).write_bytes(data)
        words = [word for label in labels for word in ("-L", label)]
        names = [str(scratch / name) for name in sides]
        asking = git.bound(config=("merge.conflictStyle=merge",)).start(
            "merge-file", "-p", *words, *names, ok=range(_MOST_CONFLICTS + 1)
        )
        merged = asking.output()
    finally:
        remove_tree(scratch)
    return MergedText(merged, asking.status != 0)


# Object names are evenly distributed: two directories out of 256 tell of all of them.
_SAMPLE = ("17", "a3")


class Totals(NamedTuple):
    loose: int
    loose_bytes: int
    packs: int
    pack_bytes: int
    garbage_bytes: int
    packed: int = 0
    """Objects in packs; one that is in two of them counts twice."""

    @property
    def bytes(self) -> int:
        return self.loose_bytes + self.pack_bytes + self.garbage_bytes


def count_objects(git: Git) -> Totals:
    rows = [line.split(b": ") for line in git.run("count-objects", "-v").splitlines()]
    told = {row[0].decode(): int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    sizes = [1024 * told.get(name, 0) for name in ("size", "size-pack", "size-garbage")]
    packs, packed = told.get("packs", 0), told.get("in-pack", 0)
    return Totals(told.get("count", 0), sizes[0], packs, sizes[1], sizes[2], packed)


def stored_bytes(git_dir: Path) -> int:
    """Bytes of all object files, to the byte: what git counts of loose ones are blocks of the disk."""
    return pack_bytes(git_dir)[1] + sum(_file_bytes(git_dir, name)[1] for name in _fanouts(git_dir))


def guess_loose(git_dir: Path) -> tuple[int, int]:
    """About how many loose objects there are, and how many bytes they have."""
    sample = [_file_bytes(git_dir, name) for name in _SAMPLE]
    scale = 256 // len(_SAMPLE)
    return scale * sum(count for count, _ in sample), scale * sum(size for _, size in sample)


def pack_bytes(git_dir: Path) -> tuple[int, int]:
    """How many packs there are, and their bytes."""
    return _file_bytes(git_dir, "pack", ".pack")


def _file_bytes(git_dir: Path, folder: str, ending: str = "") -> tuple[int, int]:
    count = size = 0
    try:
        with os.scandir(git_dir / "objects" / folder) as entries:
            for entry in entries:
                if entry.name.endswith(ending):
                    size += entry.stat().st_size
                    count += 1
    except OSError:
        pass  # not there yet, or just removed: others count too
    return count, size


def _fanouts(git_dir: Path) -> list[str]:
    return [name for name in os.listdir(git_dir / "objects") if len(name) == 2]
