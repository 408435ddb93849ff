"""A FIFO, socket, device or huge file in odd_path of a file that is usually read stops nothing."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import names, skipped
from restoring import in_child

from helpers import git
from shadowsnap import Checkpoint, CheckpointManager

DEADLINE = 8.0
SOON = 5.0
PATIENCE = 12
HUGE = 6 << 30
MEMORY = 3 << 30

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no such files on Windows")


# --- odd files --------------------------------------------------------------------------------------


def put_fifo(odd_path: Path) -> None:
    os.mkfifo(odd_path)


def put_socket(odd_path: Path) -> None:
    """By a short path: the address of a socket has room for some hundred bytes."""
    folder = os.open(odd_path.parent, os.O_RDONLY)
    here = os.open(".", os.O_RDONLY)
    try:
        os.fchdir(folder)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(odd_path.name)
    finally:
        os.fchdir(here)
        os.close(here)
        os.close(folder)


def put_device(odd_path: Path) -> None:
    """One that never comes to an end."""
    try:
        os.mknod(odd_path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        with open(odd_path, "rb") as file:
            file.read(1)
    except OSError:
        odd_path.unlink(missing_ok=True)
        pytest.skip("only root may make a device, on a file system that allows it")


def put_huge(odd_path: Path) -> None:
    with open(odd_path, "wb") as file:
        try:
            file.truncate(HUGE)
        except OSError:
            pytest.skip("no file of some GB can be made here")
    if odd_path.stat().st_blocks * 512 > 1 << 20:
        odd_path.unlink()
        pytest.skip("this file system has no sparse files")


def put_directory(odd_path: Path) -> None:
    odd_path.mkdir()
    (odd_path / "inside").write_text("inside\n")


def put_endless_link(odd_path: Path) -> None:
    if not os.path.exists("/dev/zero"):
        pytest.skip("there is no /dev/zero here")
    odd_path.symlink_to("/dev/zero")


KINDS = {
    "fifo": put_fifo,
    "socket": put_socket,
    "device": put_device,
    "huge file": put_huge,
    "directory": put_directory,
    "link to /dev/zero": put_endless_link,
}
WHY = {"fifo": "special", "socket": "special", "device": "special", "huge file": "too-large"}
"""What a checkpoint says of them. A link is captured as one, a directory with what is in it."""

LISTED = [
    ".gitignore",
    "src/.gitignore",
    "src/deep/er/.gitignore",
    ".gitattributes",
    "src/.gitattributes",
    ".git/info/exclude",
    ".git/HEAD",
    ".git/config",
    ".git/index",
    ".git/commondir",
    ".shadowsnap.toml",
    "pyproject.toml",
]
# The inside of a nested repository's .git is no part of a checkpoint; and who reads the others is git alone.
UNLISTED = ["x/.git/HEAD", "x/.git/config", "x/.git/index", ".git/info/attributes", ".git/packed-refs"]
ODD_PATHS = LISTED + UNLISTED
everything = pytest.mark.parametrize("kind", KINDS)
everywhere = pytest.mark.parametrize("odd_path", ODD_PATHS)


def put(kind: str, odd_path: Path) -> None:
    odd_path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(odd_path):
        odd_path.unlink()
    KINDS[kind](odd_path)


@pytest.fixture
def work(project: Path) -> Iterator[Path]:
    """A repository with a commit, and another in it."""
    (project / "src" / "deep" / "er").mkdir(parents=True)
    (project / "src" / "deep" / "er" / "file").write_text("deep\n")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first")
    (project / "x").mkdir()
    (project / "x" / "inner").write_text("inner\n")
    git(project / "x", "init", "-q")
    git(project / "x", "add", "-A")
    git(project / "x", "commit", "-q", "-m", "first")
    yield project
    for path in project.rglob("*"):  # for what looks at failed tests: no sparse giants, no FIFOs
        seen = path.lstat()
        if stat.S_ISFIFO(seen.st_mode):
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # lets go of a git that still waits for it
        is_plain = stat.S_ISREG(seen.st_mode) and seen.st_size <= 1 << 20
        if not (is_plain or stat.S_ISDIR(seen.st_mode) or stat.S_ISLNK(seen.st_mode)):
            path.unlink()


FILES = {
    "README.md", "src/main.py", "data.bin", "empty", "run.sh", "private.txt", "link", "src/deep/er/file",
    "x/inner",
}  # fmt: skip


def bounded(operation: Callable[[], object]) -> None:
    """Do something in a child: what hangs, or reads an endless file to its end, fails there, and takes
    neither the test run nor all memory of the machine with it."""
    import resource

    def act() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        bound = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        operation()

    code = in_child(act)
    assert code != -signal.SIGALRM, f"it was still hanging after {PATIENCE} s"
    assert code == 0, "see the error of the child"


def soon(operation: Callable[[], Any]) -> Any:
    began = time.monotonic()
    answer = operation()
    took = time.monotonic() - began
    assert took < SOON, f"it took {took:.1f} s"
    return answer


def snapshot(manager: CheckpointManager, project: Path) -> Checkpoint:
    manager.new_turn()
    outcome = soon(lambda: manager.ensure_checkpoint(project))
    assert outcome.status in ("taken", "partial"), outcome
    assert outcome.checkpoint is not None
    return outcome.checkpoint


def is_listed(kind: str, odd_path: str) -> bool:
    return kind in WHY and odd_path in LISTED


def captures_everything_else(base: Path, project: Path, kind: str, odd_paths: list[str], files: set[str]) -> None:
    manager = CheckpointManager(base=base, deadline=DEADLINE, background_upkeep=False, fsync=False)
    taken = snapshot(manager, project)
    assert names(base, taken) >= files
    listed = {odd_path: why for odd_path, why in skipped(taken).items() if odd_path in odd_paths}
    assert listed.items() >= {odd_path: WHY[kind] for odd_path in odd_paths if is_listed(kind, odd_path)}.items()


@everything
@everywhere
@pytest.mark.each_value
def test_a_first_snapshot_captures_everything_else(base: Path, work: Path, kind: str, odd_path: str) -> None:
    put(kind, work / odd_path)
    bounded(lambda: captures_everything_else(base, work, kind, [odd_path], FILES))


@pytest.mark.parametrize("kind", ["fifo", "huge file"])
@everywhere
@pytest.mark.each_value
def test_a_later_snapshot_captures_everything_else(base: Path, work: Path, kind: str, odd_path: str) -> None:
    snapshot(CheckpointManager(base=base, deadline=DEADLINE, background_upkeep=False, fsync=False), work)
    put(kind, work / odd_path)
    (work / "new").write_text("new\n")
    (work / "src" / "main.py").write_text("changed\n")
    bounded(lambda: captures_everything_else(base, work, kind, [odd_path], FILES | {"new"}))


@pytest.mark.parametrize("kind", ["fifo", "huge file"])
@pytest.mark.parametrize(
    "odd_path", [".gitignore", "src/.gitattributes", ".git/HEAD", ".git/config", ".git/index"]
)
@pytest.mark.each_value
def test_a_restore_of_other_paths_is_not_delayed(base: Path, work: Path, kind: str, odd_path: str) -> None:
    manager = CheckpointManager(base=base, deadline=DEADLINE, background_upkeep=False, fsync=False)
    target = snapshot(manager, work)
    put(kind, work / odd_path)
    (work / "src" / "main.py").write_text("changed\n")

    def there_and_back() -> None:
        soon(lambda: manager.restore(work, target.id, ["src/main.py"]))
        assert (work / "src" / "main.py").read_text() == "print('hello')\n"
        soon(lambda: manager.undo(work))
        assert (work / "src" / "main.py").read_text() == "changed\n"
        assert os.path.lexists(work / odd_path)

    bounded(there_and_back)


@pytest.mark.parametrize("kind", ["fifo", "huge file"])
def test_many_odd_files_at_once_stop_nothing(base: Path, work: Path, kind: str) -> None:
    for odd_path in ODD_PATHS:
        put(kind, work / odd_path)
    bounded(lambda: captures_everything_else(base, work, kind, ODD_PATHS, FILES))
