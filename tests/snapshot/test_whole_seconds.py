"""Nothing escapes a snapshot on file systems that count time in whole seconds, or by another clock."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from capturing import content, names, snap

from shadowsnap import CheckpointManager

HOUR_NS = 3600 * 10**9

needs_change_times = pytest.mark.skipif(os.name == "nt", reason="change times are those of POSIX")


# --- a file system with whole seconds ---------------------------------------------------------------


def ran(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@pytest.fixture
def coarse(tmp_path: Path) -> Iterator[list[Path]]:
    """Projects on ext4 with inodes of 128 bytes, which have no room for nanoseconds."""
    make = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if sys.platform != "linux" or os.geteuid() != 0 or make is None:
        pytest.skip("mounting an image takes root on Linux, and mkfs.ext4")
    image, place = tmp_path / "image", tmp_path / "mounted"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    if not ran(make, "-q", "-F", "-I", "128", image):
        pytest.skip("mkfs.ext4 does not make inodes of 128 bytes here")
    if not ran("mount", "-o", "loop", image, place):
        pytest.skip("no loop device can be mounted here")
    try:
        projects = [place / f"project-{number}" for number in range(4)]
        for project in projects:
            (project / "src").mkdir(parents=True)
            (project / "file").write_text("one\n")
            (project / "src" / "main.py").write_text("one\n")
        if (projects[0] / "file").stat().st_mtime_ns % 10**9:
            pytest.skip("this file system has nanoseconds all the same")
        yield projects
    finally:
        assert ran("umount", place) or ran("umount", "-l", place)


def wait_for_a_new_second() -> None:
    """A little later than its beginning, and early enough for what follows to happen in the same one."""
    while not 0.15 < time.time() % 1 < 0.25:
        time.sleep(0.005)


def at_once(*stories: Callable[[], None]) -> None:
    """Most of what these stories do is to wait for the clock."""
    with ThreadPoolExecutor(len(stories)) as pool:
        for told in [pool.submit(story) for story in stories]:
            told.result()


def test_what_happens_in_the_second_of_a_snapshot_is_captured_by_the_next(
    tmp_path: Path, coarse: list[Path]
) -> None:
    bases = [tmp_path / f"base-{number}" for number in range(4)]
    at_once(
        lambda: file_made_in_the_second_of_a_snapshot(bases[0], coarse[0]),
        lambda: edit_of_the_same_size_in_the_second_of_a_snapshot(bases[1], coarse[1], watched=False),
        lambda: edit_of_the_same_size_in_the_second_of_a_snapshot(bases[2], coarse[2], watched=True),
        lambda: snapshots_of_settled_files(bases[3], coarse[3]),
    )


def file_made_in_the_second_of_a_snapshot(base: Path, project: Path) -> None:
    snap(base, project)
    time.sleep(1.1)  # whatever is there is old
    wait_for_a_new_second()
    (project / "src" / "first").write_text("first\n")
    (project / "zeroth").write_text("zeroth\n")
    time.sleep(0.2)
    snap(base, project, status="taken")
    (project / "src" / "second").write_text("second\n")
    (project / "third").write_text("third\n")
    time.sleep(1.1)
    later = snap(base, project)
    assert {"src/first", "src/second", "third"} <= names(base, later)


def edit_of_the_same_size_in_the_second_of_a_snapshot(base: Path, project: Path, watched: bool) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    if watched and not manager.watch(project):
        return  # directories cannot be watched here
    for _ in range(2):  # so that the watcher knows
        manager.new_turn()
        manager.ensure_checkpoint(project)
    try:
        time.sleep(1.1)
        wait_for_a_new_second()
        (project / "file").write_text("two\n")
        time.sleep(0.2)
        manager.new_turn()
        assert manager.ensure_checkpoint(project).status == "taken"
        with open(project / "file", "r+") as file:
            file.write("six\n")
        time.sleep(1.1)
        manager.new_turn()
        outcome = manager.ensure_checkpoint(project)
        assert outcome.checkpoint is not None
        assert content(base, outcome.checkpoint, "file") == b"six\n"
    finally:
        manager.unwatch(project)


def snapshots_of_settled_files(base: Path, project: Path) -> None:
    first = snap(base, project)
    time.sleep(2.1)
    for _ in range(3):
        assert snap(base, project, status="unchanged").id == first.id


# --- anywhere: the kernel's answers, rounded ----------------------------------------------------------


@pytest.fixture
def rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file time that Python sees is a whole second, as on such a file system. (Git is not
    fooled by that: what it compares is not tested here.)"""

    def without_nanoseconds(seen: os.stat_result) -> os.stat_result:
        times = ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")
        whole = {name: getattr(seen, name) // 10**9 * 10**9 for name in times}
        listed = ("st_mode", "st_ino", "st_dev", "st_nlink", "st_uid", "st_gid", "st_size")  # in the tuple
        facts = {name: getattr(seen, name) for name in dir(seen) if name.startswith("st_") and name not in listed}
        facts |= whole
        facts |= {name[:-3]: value / 10**9 for name, value in whole.items()}
        return os.stat_result(tuple(seen), facts)

    for name in ("stat", "lstat", "fstat"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, _real=real, **more: without_nanoseconds(_real(*args, **more)))


@pytest.mark.usefixtures("rounded")
@needs_change_times
def test_with_whole_seconds_alone_nothing_escapes_in_the_second_of_a_snapshot(
    tmp_path: Path, project: Path
) -> None:
    """Neither what is made after it, nor that a turn has begun."""
    other = tmp_path / "other"
    shutil.copytree(project, other, symlinks=True)
    at_once(
        lambda: file_made_in_the_second_of_a_snapshot(tmp_path / "base", project),
        lambda: state_before_a_turn_is_without_what_it_writes(tmp_path / "other-base", other),
    )


# --- anywhere: a clock that is ahead -----------------------------------------------------------------


def same_size_edit(path: Path, text: str) -> None:
    """Change the bytes, and no stat data but the change time, which no program can set."""
    seen = path.stat()
    with open(path, "r+") as file:
        file.write(text)
    assert path.stat().st_size == seen.st_size
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this program is an hour ahead of that which stamps files. (The functions of the standard
    library, patched for everyone: which part of the program asks for the time may change.)"""
    time_, time_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: time_() + 3600)
    monkeypatch.setattr(time, "time_ns", lambda: time_ns() + HOUR_NS)


@pytest.mark.usefixtures("ahead")
@needs_change_times
def test_with_a_clock_that_is_ahead_a_file_made_right_after_a_snapshot_is_captured(
    base: Path, project: Path
) -> None:
    for number in range(20):
        (project / "src" / f"before-{number}").write_text("before\n")
        snap(base, project, status="taken")
        (project / "src" / f"after-{number}").write_text("after\n")
        (project / f"top-{number}").write_text("after\n")
        later = snap(base, project)
        assert {f"src/after-{number}", f"top-{number}"} <= names(base, later)


@pytest.mark.usefixtures("ahead")
@needs_change_times
def test_with_a_clock_that_is_ahead_an_edit_of_the_same_size_right_after_a_snapshot_is_captured(
    base: Path, project: Path
) -> None:
    file = project / "src" / "main.py"
    for number in range(20):
        file.write_text(f"{number:04}\n")
        snap(base, project, status="taken")
        same_size_edit(file, f"{number + 5000:04}\n")
        later = snap(base, project)
        assert content(base, later, "src/main.py") == f"{number + 5000:04}\n".encode()


@pytest.mark.usefixtures("ahead")
@needs_change_times
@pytest.mark.skipif(sys.platform != "linux", reason="inotify is needed")
def test_with_a_clock_that_is_ahead_watching_misses_nothing(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    if not manager.watch(project):
        pytest.skip("directories cannot be watched here")
    file = project / "src" / "main.py"
    try:
        for number in range(10):
            file.write_text(f"{number:04}\n")
            manager.new_turn()
            manager.ensure_checkpoint(project)
            same_size_edit(file, f"{number + 5000:04}\n")
            (project / f"top-{number}").write_text("after\n")
            manager.new_turn()
            outcome = manager.ensure_checkpoint(project)
            assert outcome.checkpoint is not None
            assert content(base, outcome.checkpoint, "src/main.py") == f"{number + 5000:04}\n".encode()
            assert f"top-{number}" in names(base, outcome.checkpoint)
    finally:
        manager.unwatch(project)


@pytest.mark.usefixtures("rounded", "ahead")
@needs_change_times
def test_with_a_clock_that_is_ahead_and_whole_seconds_a_new_file_is_captured(base: Path, project: Path) -> None:
    snap(base, project)
    time.sleep(1.1)
    wait_for_a_new_second()
    (project / "src" / "first").write_text("first\n")
    snap(base, project, status="taken")
    (project / "src" / "second").write_text("second\n")
    assert {"src/first", "src/second"} <= names(base, snap(base, project))


@needs_change_times
def test_with_clocks_that_agree_an_edit_of_the_same_size_right_after_a_snapshot_is_captured(
    base: Path, project: Path
) -> None:
    file = project / "src" / "main.py"
    for number in range(20):
        file.write_text(f"{number:04}\n")
        snap(base, project, status="taken")
        same_size_edit(file, f"{number + 5000:04}\n")
        assert content(base, snap(base, project), "src/main.py") == f"{number + 5000:04}\n".encode()


# --- what was there before a turn ---------------------------------------------------------------------


def state_before_a_turn_is_without_what_it_writes(base: Path, project: Path) -> None:
    """An agent writes one of two ignored files before a tool names both."""
    (project / "kept.log").write_text("the person's\n")
    (project / "written.log").write_text("the person's\n")
    time.sleep(2.5)
    wait_for_a_new_second()
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.ensure_checkpoint(project)
    (project / "written.log").write_text("the agent's\n")
    manager.ensure_checkpoint(project, paths=["kept.log", "written.log"])
    held = [path for path in manager.files(project, 1) if path.endswith(".log")]
    assert manager.contents(project, 1, held) == {"kept.log": b"the person's\n"}


@pytest.mark.usefixtures("ahead")
@needs_change_times
def test_with_a_clock_that_is_ahead_what_a_turn_writes_is_no_part_of_the_state_before_it(
    base: Path, project: Path
) -> None:
    state_before_a_turn_is_without_what_it_writes(base, project)
