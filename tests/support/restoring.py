"""Shared by the tests of restore, undo and crashes: taking checkpoints, pictures of a store, acting in the
middle of an operation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from thorough import depth

from helpers import Entry, git, manifest
from shadowsnap import CheckpointManager, deadline
from shadowsnap.model import Checkpoint, RestoreResult

STAGING = b".shadowsnap-restore-"


def checkpoint(manager: CheckpointManager, project: Path, *named: str | Path) -> Checkpoint:
    """A checkpoint of the directory as it is now, in a turn of its own."""
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project, paths=named)
    assert outcome.status in ("taken", "unchanged", "partial"), outcome.error
    assert outcome.checkpoint is not None
    return outcome.checkpoint


def kept_paths(result: RestoreResult) -> dict[str, str]:
    return {kept.path: kept.why for kept in result.kept}


def file_changes(result: RestoreResult) -> tuple[object, ...]:
    """What a result reports about files."""
    return result.written, result.deleted, result.kept, result.conflicts


# --- pictures ---------------------------------------------------------------------------------------


def mtimes(project: Path) -> dict[bytes, int]:
    """Of everything but directories, whose times follow from what happens in them."""
    picture = manifest(project)
    top = os.fsencode(project)
    return {
        path: os.lstat(os.path.join(top, path)).st_mtime_ns for path in picture if picture[path][0] != "dir"
    }


def store_picture(base: Path) -> dict[bytes, Entry]:
    """Everything in a store but its lock files, which name the last process, and cached statistics."""
    return {
        path: entry
        for path, entry in manifest(base).items()
        if not path.startswith(b"store/locks/") and not path.endswith(b".statistics")
    }


def all_ids(manager: CheckpointManager, project: Path) -> set[str]:
    return {each.id for each in manager.list_checkpoints(project)}


def assert_sound(base: Path, project: Path, *, debris: bool = False) -> None:
    """Nothing is left over beside the files, and git finds no fault with the store, which holds nothing
    unfinished either (if `debris` is not allowed, which a process that dies within a write may leave)."""
    left = [path for path in manifest(project) if path.split(b"/")[-1].startswith(STAGING)]
    assert left == []
    unfinished = [
        path
        for path in manifest(base / "store")
        if b"tmp" in path.split(b"/")[-1] or b"scratch" in path or path.endswith((b".lock", b".staging"))
    ]
    assert debris or [path for path in unfinished if not path.startswith(b"locks/")] == []
    fsck = subprocess.run(
        ["git", "--git-dir", base / "store", "fsck", "--full", "--no-dangling"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    complaints = [line for line in fsck.stderr.splitlines() if "HEAD points to an unborn branch" not in line]
    assert (fsck.returncode, complaints) == (0, []), fsck.stdout + fsck.stderr


def content_in(base: Path, checkpoint: str, path: str) -> str:
    """A file as a checkpoint holds it, read without shadowsnap."""
    return git(base / "store", "show", f"{checkpoint}:{path}")


def samples(usual: int) -> int:
    """How many moments of an operation a test tries."""
    return depth(usual, 8 * usual)


# --- acting in the middle of an operation -----------------------------------------------------------


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call the listener at every step that is passed."""
    deadline.step_listener = listener
    try:
        yield
    finally:
        deadline.step_listener = None


@contextmanager
def at_step(name: str, action: Callable[[], object]) -> Iterator[None]:
    """Run an action once, when a step is first passed; fails if it never is."""
    done: list[str] = []

    def on_step(step: str) -> None:
        if step == name and not done:
            done.append(step)
            action()

    with listening(on_step):
        yield
    assert done, f"step {name} was never passed"


# --- children that die ------------------------------------------------------------------------------


def in_child(action: Callable[[], object]) -> int:
    """Run an action in a forked child: 0 if it finished, 1 if it raised, -9 if it was killed."""
    with warnings.catch_warnings():
        # The test runner has threads; none of them matters to a child that only acts and exits.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed_at(name: str, which: int, action: Callable[[], object]) -> bool:
    """Run an action in a child that is killed when it passes a step for the n-th time (from 0). Returns whether
    it got there."""

    def act() -> None:
        seen: list[str] = []

        def on_step(step: str) -> None:
            if step == name:
                seen.append(step)
                if len(seen) > which:
                    die()

        with listening(on_step):
            action()

    return in_child(act) == -signal.SIGKILL


# Everything that changes a file or starts a process goes through one of these.
_TOUCHES = {
    "os.rename", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.truncate",
    "os.utime", "open", "subprocess.Popen",
    "os.posix_spawn",
}  # fmt: skip


def on_touch(which: int, action: Callable[[], object], then: Callable[[int], object]) -> Callable[[], int]:
    """A function for a child to call: it runs the action, and from the n-th touch of a file on calls `then`
    before each, with a number that counts up from 0. It returns the number of touches. (An audit hook cannot be
    removed again, hence the child.)"""

    def act() -> int:
        state = {"touches": 0, "on": True}

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if not state["on"] or event not in _TOUCHES:
                return
            if event == "open" and not _opens_for_writing(arguments):
                return
            number = state["touches"]
            state["touches"] += 1
            if number >= which:
                state["on"] = False
                try:
                    then(number - which)
                finally:
                    state["on"] = True

        sys.addaudithook(hook)
        try:
            action()
        finally:
            state["on"] = False
        return state["touches"]

    return act


def touches_of(action: Callable[[], object]) -> int:
    """How often an operation touches files, counted in a child."""
    readable, writable = os.pipe()

    def count() -> None:
        os.write(writable, str(on_touch(10**9, action, lambda _: None)()).encode())

    assert in_child(count) == 0
    os.close(writable)
    with open(readable) as pipe:
        return int(pipe.read())


def _opens_for_writing(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
