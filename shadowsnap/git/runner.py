"""Running git: one class, one environment, one way to time out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shadowsnap.errors import GitFailed
from shadowsnap.git.deadline import NO_DEADLINE, Deadline
from shadowsnap.git.environment import sealed_environment
from shadowsnap.git.processes import kill_tree, start_process
from shadowsnap.records import dataclass, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowsnap.git.newobjects import NewObjects
    from shadowsnap.git.processes import Process
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
        environment = sealed_environment()
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
