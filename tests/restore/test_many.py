"""Thousands of files: a restore of them works, and takes time of the order that git takes."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaging import flip, truncate
from restoring import assert_sound, checkpoint

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.git import repository as runner

FILES = 1_000


def write_files(project: Path, text: str) -> None:
    for number in range(FILES):
        path = project / f"folder-{number % 100}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {number}\n" * 20)


def processor_seconds() -> float:
    """Of this process and its children: what else runs on the machine does not count."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.mark.timeout(300)
@pytest.mark.only_thorough  # `scripts/bench --check` measures the same against git checkout
def test_a_thousand_changed_files_come_back_in_good_time(tmp_path: Path, base: Path) -> None:
    theirs, project = tmp_path / "theirs", tmp_path / "project"
    for text in ("then", "now"):
        write_files(theirs, text)
        if text == "then":
            git(theirs, "init")
        git(theirs, "add", ".")
        git(theirs, "commit", "-m", text)
    began = processor_seconds()
    git(theirs, "checkout", "-q", "HEAD~1")
    checkout = processor_seconds() - began

    manager = CheckpointManager(base=base, deadline=0, fsync=False)
    write_files(project, "then")
    original, target = manifest(project), checkpoint(manager, project).id
    write_files(project, "now")
    mutated = manifest(project)
    began, processes = processor_seconds(), runner.processes_started
    result = manager.restore(project, target)
    took = processor_seconds() - began
    assert runner.processes_started - processes <= 12
    assert len(result.written) == FILES and manifest(project) == original
    # It saves a thousand files first, and looks twice at every one.
    assert took < 25 * checkout + 2, f"restore took {took:.1f} s, git checkout {checkout:.1f} s"

    names = [path.decode() for path, entry in mutated.items() if entry[0] == "file"]
    assert len(manager.undo(project).written) == FILES and manifest(project) == mutated
    began = processor_seconds()
    assert len(manager.restore(project, target, paths=names).written) == FILES
    assert processor_seconds() - began < 2 * took + 2, "many chosen paths cost more than all of them"
    assert manifest(project) == original
    assert_sound(base, project)


def test_a_second_mount_of_the_same_file_system_is_restored_with_the_rest(base: Path, project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    volume = project.parent / "volume"
    volume.mkdir()
    (volume / "x").write_text("then")
    (project / "mounted").mkdir()
    if subprocess.run(["mount", "--bind", volume, project / "mounted"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        manager = CheckpointManager(base=base, fsync=False)
        manager.snapshot(project)
        before = manifest(project)
        (project / "mounted/x").write_text("now")
        (project / "README.md").write_text("now")
        assert manager.restore(project, "last").applied
        assert manifest(project) == before
    finally:
        subprocess.run(["umount", project / "mounted"], check=True)


# --- git writes many files, into directories that are open here --------------------------------------------


def test_many_files_are_restored_by_a_process_that_changed_its_user(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    """The system hides what such a process has open from all others, its children included."""

    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        write_files(project, "then")
        for folder in project.glob("folder-1*"):
            folder.chmod(0o555)
        target, original = checkpoint(manager, project).id, manifest(project)
        for folder in project.glob("folder-*"):
            folder.chmod(0o755)
        write_files(project, "now")
        for folder in project.glob("folder-2*"):
            folder.chmod(0o500)
        mutated = manifest(project)
        manager.restore(project, target)
        assert manifest(project) == original
        manager.undo(project)
        assert manifest(project) == mutated
        assert_sound(base, project)

    as_user(story)


def test_many_files_are_restored_where_proc_shows_other_processes(base: Path, project: Path) -> None:
    """In a sandbox with its own process ids, /proc may still be that of the system."""
    sandbox = ["unshare", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*sandbox, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    manager = CheckpointManager(base=base, fsync=False)
    write_files(project, "then")
    target, original = checkpoint(manager, project).id, manifest(project)
    write_files(project, "now")
    script = "import sys, shadowsnap; shadowsnap.CheckpointManager(base=sys.argv[1]).restore(*sys.argv[2:])"
    words = [*sandbox, sys.executable, "-c", script, base, project, target]
    subprocess.run(words, check=True, timeout=60)
    assert manifest(project) == original
    assert_sound(base, project)


# --- packs that are damaged ---------------------------------------------------------------------------


def changed_twice(manager: CheckpointManager, project: Path, files: int) -> str:
    """A project with two states, both captured; the name of the first checkpoint."""
    for number in range(files):
        (project / f"file-{number}").write_text(f"then {number}\n" * 50)
    target = checkpoint(manager, project).id
    for number in range(files):
        (project / f"file-{number}").write_text(f"now {number}\n" * 50)
    checkpoint(manager, project)
    return target


def newest_pack(base: Path) -> Path:
    return max((base / "store" / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.shortcut
@pytest.mark.parametrize("files", [5, 300])
def test_what_is_overwritten_is_not_lost_though_its_copy_is_damaged(base: Path, project: Path, files: int) -> None:
    """The file on the disk is the only sound one: it is stored once more."""
    manager = CheckpointManager(base=base, fsync=False)
    target = changed_twice(manager, project, files)
    present = manifest(project)
    pack = newest_pack(base)
    flip(pack, 40, 6)  # in the first object, which is that of a file
    assert manager.restore(project, target).applied
    assert (project / "file-0").read_text().startswith("then")
    manager.undo(project)
    assert manifest(project) == present


@pytest.mark.shortcut
@pytest.mark.timeout(100)
def test_a_pack_that_is_cut_in_half_does_not_make_a_restore_wait_for_ever(base: Path, project: Path) -> None:
    """Git complains about every object in it."""
    manager = CheckpointManager(base=base, fsync=False)
    target = changed_twice(manager, project, 300)
    present = manifest(project)
    pack = newest_pack(base)
    truncate(pack, pack.stat().st_size // 2)
    assert manager.restore(project, target).applied
    manager.undo(project)
    assert manifest(project) == present
