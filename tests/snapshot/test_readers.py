"""Processes that help to read a large first capture: the same objects with them, without them, and if they die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import checkpoint_of, everything_old, store_git
from fastpaths import told_by

from shadowsnap import CheckpointManager
from shadowsnap.deadline import Deadline
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.git.process import Process
from shadowsnap.snapshot import content, readers
from shadowsnap.snapshot.content import Stored


@pytest.fixture
def large(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that is large enough for help."""
    monkeypatch.setattr(content, "_FEW", 0)
    monkeypatch.setattr(readers, "_MANY", 0)
    for number in range(300):
        folder = project / f"folder-{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"file-{number}.txt").write_text(f"{number}\n" * number)
    (project / "large.bin").write_bytes(os.urandom(3 << 20))
    (project / "too-large.bin").write_bytes(bytes(5 << 20))
    (project / "run").write_text("#!/bin/sh\n")
    (project / "run").chmod(0o700)
    (project / "id_rsa").write_text("a key")
    (project / "dangling").symlink_to("nowhere")
    os.link(project / "run", project / "linked")
    os.mkfifo(project / "pipe")
    return project


@pytest.fixture(params=[0, 10**9], ids=["all read by them", "shared with them"])
def very_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_VERY_MANY", request.param)


def taken(base: Path, project: Path) -> Any:
    outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).snapshot(project)
    checkpoint = checkpoint_of(outcome)
    assert {item.path: item.why for item in checkpoint.skipped} == {
        "id_rsa": "secret", "pipe": "special", "too-large.bin": "too-large"
    }  # fmt: skip
    assert store_git(base, "fsck", "--full", "--strict", "--no-dangling") == b""
    return told_by(base, checkpoint)


@pytest.fixture
def alone(tmp_path: Path, large: Path) -> Any:
    """What this process finds by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_MANY", 10**9)
        return taken(tmp_path / "alone", large)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Process, list[bytes]]]:
    """What each process was asked and has answered."""
    found: list[tuple[Process, list[bytes]]] = []
    real = readers._ask

    def ask(process: Process, paths: list[bytes]) -> Any:
        answer = real(process, paths)
        found.append((process, paths))
        return answer

    monkeypatch.setattr(readers, "_ask", ask)
    return found


@pytest.mark.usefixtures("very_many")
def test_they_give_the_same_objects(
    tmp_path: Path, large: Path, alone: Any, asked: list[tuple[Process, list[bytes]]]
) -> None:
    assert taken(tmp_path / "helped", large) == alone
    assert asked and all(process.returncode is not None for process, _ in asked)


@pytest.mark.usefixtures("very_many")
@pytest.mark.parametrize("moment", ["at once", "after some batches", "before the pack is complete"])
def test_what_a_killed_one_did_not_store_is_read_here(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real, killed = readers._ask, []

    def ask(process: Process, paths: list[bytes]) -> Any:
        is_last = not paths
        if is_last if moment == "before the pack is complete" else not is_last:
            killed.append(process.pid)
        if moment == "after some batches" and killed.count(process.pid) < 2:
            return real(process, paths)
        if process.pid in killed:
            process.send_signal(signal.SIGKILL)
        return real(process, paths)

    monkeypatch.setattr(readers, "_ask", ask)
    assert taken(tmp_path / "killed", large) == alone
    assert killed
    packs = tmp_path / "killed" / "store" / "objects" / "pack"
    assert {path.suffix for path in packs.iterdir()} == {".idx", ".pack"}


@pytest.mark.usefixtures("very_many")
def test_one_that_is_stopped_keeps_no_capture_waiting(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, stopped = readers._ask, []

    def ask(process: Process, paths: list[bytes]) -> Any:
        stopped.append(process)
        process.send_signal(signal.SIGSTOP)
        return real(process, paths)

    monkeypatch.setattr(readers, "_PATIENCE_SECONDS", 0.3)
    monkeypatch.setattr(readers, "_ask", ask)
    assert taken(tmp_path / "stopped", large) == alone
    assert stopped and all(process.returncode == -signal.SIGKILL for process in stopped)


@pytest.mark.usefixtures("very_many")
@pytest.mark.parametrize("killed", [False, True])
def test_a_snapshot_that_ran_out_of_time_is_completed_by_the_next(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    base, read = tmp_path / "hurried", []
    real = readers.Readers.results

    def results(self: readers.Readers) -> Iterator[Stored]:
        for stored in real(self):
            read.append(stored.files)
            yield stored
            if killed and len(read) == 2:
                for process in self._processes:
                    process.send_signal(signal.SIGKILL)

    class OverAfterTwoBatches(Deadline):
        def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
            if len(read) >= 2:
                raise self.exceeded(doing)

    monkeypatch.setattr(readers.Readers, "results", results)
    with pytest.MonkeyPatch.context() as patch, everything_old():
        patch.setattr("shadowsnap.manager.Deadline", OverAfterTwoBatches)
        outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).ensure_checkpoint(large)
    assert outcome.status == "failed" and isinstance(outcome.error, DeadlineExceeded)
    first, read[:] = sum(read), []
    assert taken(base, large)[::2] == alone[::2]
    assert killed or 0 < sum(read) < first  # what was stored is not read again


@pytest.mark.parametrize("executable", ["", "/bin/false", "/nowhere/python"])
def test_nothing_is_missing_where_there_is_no_python_to_run(
    tmp_path: Path, large: Path, alone: Any, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert taken(tmp_path / "without", large) == alone
