"""Processes that help to read a large first capture: the same objects with them, without them, and if they die."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from capturing import checkpoint_of
from fastpaths import told_by

from shadowsnap import CheckpointManager
from shadowsnap.snapshot import content, readers


@pytest.fixture
def large(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that is large enough for help."""
    monkeypatch.setattr(content, "_FEW", 0)
    monkeypatch.setattr(content, "_MANY", 0)
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
    os.mkfifo(project / "pipe")
    return project


def taken(base: Path, project: Path) -> Any:
    outcome = CheckpointManager(base=base, fsync=False, max_file_size_mb=4).snapshot(project)
    checkpoint = checkpoint_of(outcome)
    assert {item.path: item.why for item in checkpoint.skipped} == {
        "id_rsa": "secret", "pipe": "special", "too-large.bin": "too-large"
    }  # fmt: skip
    return told_by(base, checkpoint)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Popen[bytes]]:
    processes: list[Popen[bytes]] = []
    real = readers._start

    def start(*arguments: Any) -> Popen[bytes] | None:
        process = real(*arguments)
        if process is not None:
            processes.append(process)
            assert process.stdout is not None
            select.select([process.stdout], [], [])  # else this process has read all before it is ready
        return process

    monkeypatch.setattr(readers, "_start", start)
    return processes


def test_they_give_the_same_objects(
    tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch, started: list[Popen[bytes]]
) -> None:
    answered: list[int] = []
    real = readers._ask

    def ask(process: Popen[bytes], paths: Any) -> Any:
        answer = real(process, paths)
        answered.append(0 if answer is None else len(answer[0]))
        return answer

    monkeypatch.setattr(readers, "_ask", ask)
    helped = taken(tmp_path / "helped", large)
    assert answered and 0 not in answered
    assert started and all(process.returncode is not None for process in started)
    monkeypatch.setattr(content, "_MANY", 10**9)
    assert taken(tmp_path / "alone", large) == helped


def test_what_a_killed_one_did_not_answer_is_read_here(
    tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch, started: list[Popen[bytes]]
) -> None:
    real = readers._ask

    def ask(process: Popen[bytes], paths: Any) -> Any:
        answer = real(process, paths)
        for each in started:
            each.kill()
        return answer

    monkeypatch.setattr(readers, "_ask", ask)
    helped = taken(tmp_path / "killed", large)
    assert started
    monkeypatch.setattr(content, "_MANY", 10**9)
    assert taken(tmp_path / "alone", large) == helped


def test_one_that_is_stopped_keeps_no_capture_waiting(
    tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch, started: list[Popen[bytes]]
) -> None:
    monkeypatch.setattr(content, "_PATIENCE_SECONDS", 0.3)
    real = readers._ask

    def ask(process: Popen[bytes], paths: Any) -> Any:
        process.send_signal(signal.SIGSTOP)
        return real(process, paths)

    monkeypatch.setattr(readers, "_ask", ask)
    helped = taken(tmp_path / "stopped", large)
    assert started and all(process.returncode == -signal.SIGKILL for process in started)
    monkeypatch.setattr(content, "_MANY", 10**9)
    assert taken(tmp_path / "alone", large) == helped


@pytest.mark.parametrize("executable", ["", "/bin/false", "/nowhere/python"])
def test_nothing_is_missing_where_there_is_no_python_to_run(
    tmp_path: Path, large: Path, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", executable)
        found = taken(tmp_path / "without", large)
    monkeypatch.setattr(content, "_MANY", 10**9)
    assert taken(tmp_path / "alone", large) == found
