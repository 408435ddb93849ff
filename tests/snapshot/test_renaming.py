"""Atomic exchanges of files, and what happens where the system does not support them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from restoring import assert_sound, at_step, checkpoint, in_child
from thorough import depth

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import RestoreRefused
from shadowsnap.snapshot import worktree as renaming
from shadowsnap.snapshot.worktree import Worktree

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges files")


def unknown_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renaming, "_system_call", lambda: None)


def unknown_to_the_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    monkeypatch.setattr(renaming, "_system_call", lambda: refuse)


WITHOUT = [unknown_to_the_system, unknown_to_the_file_system]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one").write_text("first\n")
    (tmp_path / "two").write_text("second\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "three").write_text("third\n")
    return tmp_path


@pytest.mark.shortcut
@on_linux
def test_two_files_are_exchanged(folder: Path) -> None:
    inodes = (folder / "one").stat().st_ino, (folder / "sub" / "three").stat().st_ino
    with Worktree(folder) as here, here.within(b"sub") as there:
        assert here.exchange(b"one", there, b"three")
    assert (folder / "one").read_text() == "third\n" and (folder / "sub" / "three").read_text() == "first\n"
    assert ((folder / "sub" / "three").stat().st_ino, (folder / "one").stat().st_ino) == inodes


@pytest.mark.shortcut
@on_linux
def test_a_file_and_a_directory_are_exchanged(folder: Path) -> None:
    with Worktree(folder) as here:
        assert here.exchange(b"one", here, b"sub")
    assert (folder / "one" / "three").read_text() == "third\n" and (folder / "sub").read_text() == "first\n"


@pytest.mark.shortcut
@on_linux
def test_a_missing_path_cannot_be_exchanged(folder: Path) -> None:
    with Worktree(folder) as here, pytest.raises(FileNotFoundError):
        here.exchange(b"one", here, b"missing")
    assert (folder / "one").read_text() == "first\n"


@pytest.mark.shortcut
@on_linux
def test_an_exchange_raises_the_audit_event_of_a_rename(folder: Path) -> None:
    def heard() -> list[str]:
        events: list[str] = []
        sys.addaudithook(lambda event, _: events.append(event) if event == "os.rename" else None)
        with Worktree(folder) as here:
            here.exchange(b"one", here, b"two")
            here.move(b"one", b"new")
        return events

    def check() -> None:
        assert len(heard()) == 2

    assert in_child(check) == 0  # a hook cannot be taken away again


@pytest.mark.parametrize("without", [None, *WITHOUT])
def test_a_move_never_replaces_anything(
    folder: Path, without: Callable[[pytest.MonkeyPatch], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without is not None:
        without(monkeypatch)
    before = manifest(folder)
    with Worktree(folder) as here:
        for name in (b"two", b"sub"):
            with pytest.raises(FileExistsError):
                here.move(b"one", name)
            with pytest.raises(FileExistsError):
                here.move(b"sub", name)
        assert manifest(folder) == before
        here.move(b"one", b"new")
        here.move(b"sub", b"moved")
    assert sorted(manifest(folder)) == [b"moved", b"moved/three", b"new", b"two"]


@pytest.mark.parametrize("refuses", WITHOUT)
def test_an_unsupported_exchange_is_reported(
    folder: Path, refuses: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses(monkeypatch)
    before = manifest(folder)
    with Worktree(folder) as here:
        assert not here.exchange(b"one", here, b"two")
    assert manifest(folder) == before


# --- directories as worktrees of their own -----------------------------------------------------------


def test_an_open_subdirectory_stays_the_same_directory_after_a_rename(folder: Path) -> None:
    with Worktree(folder) as here, here.within(b"sub") as there:
        (folder / "sub").rename(folder / "away")
        (folder / "elsewhere").mkdir()
        (folder / "sub").symlink_to("elsewhere")
        here.move(b"one", b"arrived", there)
        with pytest.raises(NotADirectoryError):
            here.within(b"sub")
    assert (folder / "away" / "arrived").read_text() == "first\n"
    assert os.listdir(folder / "elsewhere") == []


@pytest.mark.parametrize("name", [b"one", b"missing", b"link", b"link/deeper", b"one/deeper"])
def test_only_a_real_directory_can_be_opened(folder: Path, name: bytes) -> None:
    (folder / "sub" / "deeper").mkdir()
    (folder / "link").symlink_to("sub")
    with Worktree(folder) as here, pytest.raises(NotADirectoryError):
        here.within(name)


def test_subdirectories_leave_no_descriptor_open(folder: Path) -> None:
    (folder / "sub" / "a" / "b").mkdir(parents=True)
    before = sorted(os.listdir("/proc/self/fd")) if sys.platform == "linux" else []
    with Worktree(folder) as here:
        for name in (b"", b"sub", b"sub/a/b"):
            with here.within(name) as there:
                assert there.lstat(b"") is not None
        for name in (b"missing", b"sub/missing", b"sub/a/missing/b", b"one"):
            with pytest.raises(NotADirectoryError):
                here.within(name)
    assert not before or sorted(os.listdir("/proc/self/fd")) == before


# --- restores -----------------------------------------------------------------------------------------


@pytest.mark.shortcut
@on_linux
def test_a_file_that_is_restored_is_never_missing(tmp_path: Path, project: Path, base: Path) -> None:
    """Another process opens it all the time, as a dev server does."""
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    path, end = project / "src" / "main.py", tmp_path / "end"

    def watch() -> None:
        while not end.exists():
            path.read_bytes()

    child = os.fork()
    if child == 0:
        code = 1
        try:
            watch()
            code = 0
        finally:
            os._exit(code)
    try:
        for number in range(depth(12, 40)):
            path.write_bytes(b"newer %d\n" % number)
            manager.restore(project, target)
    finally:
        end.touch()
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("without", WITHOUT)
def test_a_restore_works_without_exchanges(
    project: Path, base: Path, many: bool, without: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    without(monkeypatch)
    for number in range(300 if many else 1):
        (project / f"file-{number}").write_text("then\n")
    manager = CheckpointManager(base=base, fsync=False)
    original, target = manifest(project), checkpoint(manager, project).id
    for path in project.glob("file-*"):
        path.write_text("newer\n")
    (project / "link").unlink()
    (project / "link").write_text("a file now\n")
    (project / "data.bin").unlink()
    (project / "made").write_text("made since\n")
    mutated = manifest(project)
    manager.restore(project, target)
    assert manifest(project) == original
    manager.undo(project)
    assert manifest(project) == mutated
    assert_sound(base, project)


@pytest.mark.parametrize("without", WITHOUT)
def test_a_failing_restore_is_rolled_back_without_exchanges(
    project: Path, base: Path, without: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    (project / "README.md").write_text("newer\n")
    (project / "src" / "main.py").write_text("newer\n")
    late = at_step("restore:wrote-one", lambda: (project / "src" / "main.py").write_text("written late\n"))
    with late, pytest.raises(RestoreRefused, match="src/main.py"):
        manager.restore(project, target)
    assert (project / "README.md").read_text() == "newer\n"
    assert (project / "src" / "main.py").read_text() == "written late\n"
    assert_sound(base, project)
