"""What the tests of restore, undo and crashes share: taking checkpoints, pictures of a store, acting in
the middle of an operation."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import Entry, git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.engine import steps
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


def deeds(result: RestoreResult) -> tuple[object, ...]:
    """Everything a plan says about files."""
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
    """Everything in a store but its lock files, which say who came last."""
    return {path: entry for path, entry in manifest(base).items() if not path.startswith(b"store/locks/")}


def all_ids(manager: CheckpointManager, project: Path) -> set[str]:
    return {each.id for each in manager.list_checkpoints(project)}


def assert_sound(base: Path, project: Path) -> None:
    """Nothing is left over beside the files, and git finds no fault with the store."""
    left = [path for path in manifest(project) if path.split(b"/")[-1].startswith(STAGING)]
    assert left == []
    debris = [
        path
        for path in manifest(base / "store")
        if b"tmp" in path.split(b"/")[-1] or b"scratch" in path or path.endswith((b".lock", b".staging"))
    ]
    assert [path for path in debris if not path.startswith(b"locks/")] == []
    fsck = subprocess.run(
        ["git", "--git-dir", base / "store", "fsck", "--full", "--no-dangling"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = [line for line in fsck.stderr.splitlines() if "HEAD points to an unborn branch" not in line]
    assert (fsck.returncode, said) == (0, []), fsck.stdout + fsck.stderr


def content_in(base: Path, checkpoint: str, path: str) -> str:
    """A file as a checkpoint holds it, read without shadowsnap."""
    return git(base / "store", "show", f"{checkpoint}:{path}")


# --- acting in the middle of an operation -----------------------------------------------------------


@contextmanager
def listening(heard: Callable[[str], None]) -> Iterator[None]:
    """Hear of every step that is passed."""
    steps.listener = heard
    try:
        yield
    finally:
        steps.listener = None


@contextmanager
def at_step(name: str, deed: Callable[[], object]) -> Iterator[None]:
    """Do something once, when a step is passed for the first time; fails if it never is."""
    done: list[str] = []

    def hear(step: str) -> None:
        if step == name and not done:
            done.append(step)
            deed()

    with listening(hear):
        yield
    assert done, f"step {name} was never passed"
