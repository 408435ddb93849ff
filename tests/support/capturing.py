"""What snapshot tests share: taking one, and reading back what it holds with plain git."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers import Entry
from shadowsnap import Checkpoint, CheckpointManager, Outcome
from shadowsnap.deadline import Deadline
from shadowsnap.snapshot import scan


def snap(base: Path, project: Path, *paths: str | Path, status: str | None = None, **settings: Any) -> Checkpoint:
    """A snapshot by a manager of its own, as another process would take it, but without waiting for the disk."""
    outcome = CheckpointManager(base=base, **{"fsync": False, **settings}).ensure_checkpoint(project, paths=paths)
    assert outcome.status in ((status,) if status else ("taken", "unchanged")), outcome
    return checkpoint_of(outcome)


@contextmanager
def everything_old() -> Iterator[None]:
    """Snapshots inside take all files for long unchanged, instead of looking again at what is younger than a
    second. Only for tests that do not change a file twice."""
    with pytest.MonkeyPatch.context() as patch:
        real = scan.file_system_time
        patch.setattr(scan, "file_system_time", lambda *where: real(*where) + 3 * 10**9)
        yield


@contextmanager
def deadline_after(looks: int) -> Iterator[None]:
    """Managers inside run out of time after so many looks at the clock, so that every run is the same."""

    class Hourglass(Deadline):
        left = looks

        def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
            self.left -= 1
            if self.left < 0:
                raise self.exceeded(doing)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shadowsnap.access.Deadline", Hourglass)
        yield


def checkpoint_of(outcome: Outcome) -> Checkpoint:
    assert outcome.checkpoint is not None, outcome
    return outcome.checkpoint


def captured(base: Path, checkpoint: Checkpoint) -> dict[bytes, Entry]:
    """What a checkpoint holds, in the form of `helpers.manifest`."""
    modes = checkpoint.metadata["modes"]
    other = {os.fsencode(path): int(bits, 8) for path, bits in modes.get("other", {}).items()}
    usual = {b"100644": int(modes["file"], 8), b"100755": int(modes["exec"], 8), b"040000": int(modes["dir"], 8)}
    listed = store_git(base, "ls-tree", "-r", "-t", "-z", checkpoint.tree)
    rows = [row.split(b"\t", 1) for row in listed.split(b"\0")[:-1]]
    blobs = _blobs(base, {about.split()[2] for about, _ in rows if about.split()[1] == b"blob"})
    found: dict[bytes, Entry] = {}
    for about, path in rows:
        mode, _, name = about.split()
        if mode == b"120000":
            found[path] = ("link", 0, blobs[name])
        else:
            found[path] = ("file" if name in blobs else "dir", other.get(path, usual[mode]), blobs.get(name))
    for folder in map(os.fsencode, checkpoint.metadata.get("empty_dirs", ())):
        found[folder] = ("dir", other.get(folder, usual[b"040000"]), None)
    return found


def names(base: Path, checkpoint: Checkpoint) -> set[str]:
    """The files that a checkpoint holds."""
    listed = store_git(base, "ls-tree", "-r", "-z", "--name-only", checkpoint.tree)
    return {os.fsdecode(path) for path in listed.split(b"\0")[:-1]}


def content(base: Path, checkpoint: Checkpoint, path: str) -> bytes:
    return store_git(base, "cat-file", "blob", f"{checkpoint.tree}:{path}")


def skipped(checkpoint: Checkpoint) -> dict[str, str]:
    return {item.path: item.why for item in checkpoint.skipped}


def objects(base: Path) -> dict[str, tuple[int, int]]:
    """Every file in the object directory, with size and time: equal only if nothing was written."""
    top = base / "store" / "objects"
    files = (path for path in top.rglob("*") if path.is_file())
    return {str(path.relative_to(top)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def store_git(base: Path, *args: str, stdin: bytes = b"") -> bytes:
    """What git, asked about the store, prints: exactly."""
    command = ["git", f"--git-dir={base / 'store'}", *args]
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, check=True).stdout


def _blobs(base: Path, ids: set[bytes]) -> dict[bytes, bytes]:
    answer = store_git(base, "cat-file", "--batch", stdin=b"".join(name + b"\n" for name in ids))
    blobs = {}
    while answer:
        header, _, rest = answer.partition(b"\n")
        name, _, size = header.split()
        blobs[name], answer = rest[: int(size)], rest[int(size) + 1 :]
    return blobs
