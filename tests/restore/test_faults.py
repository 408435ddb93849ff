"""Full disks, closed directories, failing calls: a restore is done completely or not at all, and reports which."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from restoring import (
    STAGING,
    all_ids,
    assert_sound,
    at_step,
    checkpoint,
    in_child,
    kept_paths,
    mtimes,
    on_touch,
    samples,
    touches_of,
)

from helpers import Entry, call_unprivileged, git, loose_object, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import DamagedObject, PresentNotSaved, RestoreFailed, RestoreRefused, ShadowsnapError

Picture = dict[bytes, Entry]


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


def make_project(project: Path) -> None:
    (project / "src").mkdir(parents=True)
    for name in ("README.md", "src/main.py", "private.txt"):
        (project / name).write_text("then\n")
    (project / "private.txt").chmod(0o600)
    (project / "link").symlink_to("README.md")


def change_project(project: Path) -> None:
    """In every way there is."""
    (project / "README.md").write_text("now\n")
    (project / "src" / "main.py").unlink()
    (project / "src").rmdir()
    (project / "src").write_text("a file now\n")
    (project / "new").mkdir()
    (project / "new" / "made").write_text("made since\n")
    (project / "private.txt").chmod(0o644)
    (project / "link").unlink()


def assert_put_back(manager: CheckpointManager, base: Path, project: Path, target: str, before: Picture) -> None:
    """Nothing happened, nothing is left, nothing is remembered, and it works once the cause is gone."""
    assert manifest(project) == before
    assert_sound(base, project)
    manager.new_turn()
    assert manager.ensure_checkpoint(project).note == ""
    result = manager.restore(project, target)
    assert result.applied and result.note == ""
    manager.undo(project)
    assert manifest(project) == before


# --- every single call that touches a file ----------------------------------------------------------

DONE, TOLD, BROKEN = 0, 10, 11


def outcome_of(action: Callable[[], object], which: int, then: Callable[[int], object]) -> int:
    """The outcome of an operation in a child where calls fail: done, a clear error, or another error."""

    def act() -> None:
        try:
            on_touch(which, action, then)()
        except ShadowsnapError:
            os._exit(TOLD)
        except OSError:
            traceback.print_exc()
            os._exit(BROKEN)

    return in_child(act)


def fail_once(number: int) -> None:
    if number == 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_from_now_on(number: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize(
    ("way", "fail", "times"),
    [
        ("restore", fail_once, 7),
        ("restore", fail_from_now_on, 4),
        ("undo", fail_once, 3),
        ("revert", fail_from_now_on, 4),
    ],
)
def test_any_failing_call_leaves_all_or_nothing_restored(
    tmp_path: Path, way: str, fail: Callable[[int], None], times: int
) -> None:
    def ready(name: str) -> tuple[Path, Path, Callable[[], object]]:
        base, project = tmp_path / name / "base", tmp_path / name / "project"
        make_project(project)
        manager = CheckpointManager(base=base, fsync=False)
        target = checkpoint(manager, project).id
        change_project(project)
        if way == "revert":
            manager.end_turn()
            return base, project, lambda: manager.revert(project, turn=1)
        if way == "restore":
            return base, project, lambda: manager.restore(project, target)
        manager.restore(project, target)
        return base, project, lambda: manager.undo(project)

    _, project, action = ready("count")
    touches = touches_of(action)
    after = manifest(project)
    outcomes = set()
    for at in range(0, touches + 1, max(1, touches // samples(times))):
        base, project, action = ready(str(at))
        before, ids = manifest(project), all_ids(CheckpointManager(base=base, fsync=False), project)
        outcome = outcome_of(action, at, fail)
        outcomes.add(outcome)
        found = {path: entry for path, entry in manifest(project).items() if not path.startswith(STAGING)}
        if outcome == DONE:
            assert found == after
        elif fail is fail_once:
            assert found == before, f"touch {at} of {touches} failed, and things are half done"
        manager = CheckpointManager(base=base, fsync=False)
        assert ids <= all_ids(manager, project)
        recovered = manager.ensure_checkpoint(project)
        assert recovered.status in ("taken", "unchanged"), recovered.error
        settled = manifest(project)
        assert settled in (before, after), f"after touch {at}: {recovered.note}"
        assert settled == found or "interrupted" in recovered.note
        assert_sound(base, project, debris=True)
        shutil.rmtree(base.parent)
    assert BROKEN not in outcomes, "an error came out that is not ours"
    assert TOLD in outcomes


# --- full disks -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Leave only so many bytes on a disk."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(b"x" * (free - leave))
    return ballast


def test_a_disk_that_is_too_full_for_the_new_files_costs_none_of_the_old(small_disk: Path, base: Path) -> None:
    project = small_disk / "project"
    make_project(project)
    (project / "large").write_bytes(os.urandom(600_000))
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    change_project(project)
    (project / "large").unlink()
    before, times = manifest(project), mtimes(project)
    ballast = fill(small_disk, leave=100_000)
    with pytest.raises(RestoreFailed, match="put back"):
        manager.restore(project, target)
    assert mtimes(project) == times
    ballast.unlink()
    assert_put_back(manager, base, project, target, before)


def test_a_disk_that_is_too_full_for_the_checkpoint_before_makes_restore_refuse(
    small_disk: Path, project: Path
) -> None:
    manager = CheckpointManager(base=small_disk / "base", fsync=False)
    target = checkpoint(manager, project).id
    (project / "README.md").write_bytes(os.urandom(600_000))
    (project / "new").write_text("made since\n")
    before, times = manifest(project), mtimes(project)
    ballast = fill(small_disk, leave=100_000)
    with pytest.raises(PresentNotSaved, match="nothing was restored"):
        manager.restore(project, target)
    manager.new_turn()
    assert manager.ensure_checkpoint(project).status == "failed"
    assert manifest(project) == before and mtimes(project) == times
    ballast.unlink()
    assert_put_back(manager, small_disk / "base", project, target, before)


@pytest.mark.parametrize("leave", [0, 4096, 8192, 16384, 32768, 65536])
def test_a_disk_that_fills_up_in_between_leaves_all_or_nothing(small_disk: Path, leave: int) -> None:
    """Files and store on one disk, which is full from some moment of the restore on."""
    base, project = small_disk / "base", small_disk / "project"
    make_project(project)
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    change_project(project)
    before = manifest(project)
    for moment in ("restore:planned", "restore:saved", "restore:begun", "restore:staged", "restore:applying"):
        with at_step(moment, lambda: fill(small_disk, leave)):
            try:
                manager.restore(project, target)
                done = True
            except ShadowsnapError:
                done = False
        (small_disk / "ballast").unlink()
        assert not done or manifest(project) != before
        manager.new_turn()
        outcome = manager.ensure_checkpoint(project)
        assert outcome.status in ("taken", "unchanged"), moment
        # On a disk without a single free byte, the journal could not be closed; then it is now.
        assert outcome.note == "" or "before it changed any file" in outcome.note, moment
        if done:
            manager.undo(project)
        assert manifest(project) == before, moment
        assert_sound(base, project)


def limited(size: int, action: Callable[[], object]) -> type[BaseException] | None:
    """Run an action in a child that may write no file larger than this; returns the class of the error."""

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try:
            action()
        except PresentNotSaved:
            os._exit(20)
        except RestoreFailed:
            os._exit(21)

    return {0: None, 20: PresentNotSaved, 21: RestoreFailed}.get(in_child(act), AssertionError)


def test_a_limit_on_file_sizes_met_while_staging_costs_nothing(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    (project / "large").write_bytes(os.urandom(300_000))
    target = checkpoint(manager, project).id
    (project / "large").unlink()
    (project / "README.md").write_text("now\n")
    before = manifest(project)
    assert limited(100_000, lambda: manager.restore(project, target)) is RestoreFailed
    assert_put_back(manager, base, project, target, before)


def test_a_limit_on_file_sizes_met_while_saving_costs_nothing(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    target = checkpoint(manager, project).id
    (project / "README.md").write_bytes(os.urandom(300_000))
    before = manifest(project)
    assert limited(100_000, lambda: manager.restore(project, target)) is PresentNotSaved
    assert_put_back(manager, base, project, target, before)


# --- directories and files that cannot be changed ---------------------------------------------------


@pytest.fixture
def immutable(tmp_path: Path) -> Iterator[Callable[[Path, bool], None]]:
    """Make a path immutable even for root, or mutable again."""
    made: list[Path] = []

    def set_immutable(path: Path, on: bool) -> None:
        flag = "+i" if on else "-i"
        done = subprocess.run(["chattr", flag, path], capture_output=True, check=False)
        if done.returncode != 0:
            pytest.skip("files cannot be made immutable here")
        made.append(path)

    try:
        yield set_immutable
    finally:
        for path in made:
            subprocess.run(["chattr", "-i", path], capture_output=True, check=False)


@pytest.mark.parametrize("which", ["zz-last", "sub", "sub/file"])
def test_an_immutable_path_makes_restore_put_everything_back(
    manager: CheckpointManager, base: Path, project: Path, immutable: Callable[[Path, bool], None], which: str
) -> None:
    if not shutil.which("chattr"):
        pytest.skip("no chattr here")
    (project / "sub").mkdir()
    (project / "sub" / "file").write_text("then\n")
    (project / "zz-last").write_text("then\n")
    target = checkpoint(manager, project).id
    for name in ("README.md", "sub/file", "zz-last"):
        (project / name).write_text("now\n")
    (project / "new").write_text("made since\n")
    before, times = manifest(project), mtimes(project)
    immutable(project / which, True)
    with pytest.raises(RestoreFailed, match="put back"):
        manager.restore(project, target)
    assert mtimes(project) == times
    immutable(project / which, False)
    assert_put_back(manager, base, project, target, before)


def test_directories_without_write_permission_are_opened_and_closed_again(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        (project / "shut" / "deeper").mkdir(parents=True)
        for name in ("shut/a", "shut/deeper/b"):
            (project / name).write_text("then\n")
        (project / "file").write_text("later in a directory without write permission\n")
        (project / "shut" / "deeper").chmod(0o500)
        (project / "shut").chmod(0o555)
        target = checkpoint(manager, project).id
        original = manifest(project)
        (project / "shut").chmod(0o755)
        (project / "shut" / "a").unlink()
        (project / "shut" / "deeper").chmod(0o755)
        (project / "shut" / "deeper" / "b").write_text("now\n")
        (project / "shut" / "deeper" / "made").write_text("made since\n")
        (project / "shut" / "deeper").chmod(0o555)
        (project / "shut").chmod(0o500)
        (project / "file").unlink()
        (project / "file").mkdir()
        (project / "file" / "inside").write_text("made since\n")
        (project / "file").chmod(0o555)
        mutated = manifest(project)
        for _ in range(2):
            manager.restore(project, target)
            assert manifest(project) == original
            manager.undo(project)
            assert manifest(project) == mutated
        late = at_step("restore:applying", lambda: (project / "README.md").write_text("late\n"))
        (project / "README.md").write_text("now\n")
        mutated = manifest(project)
        with late, pytest.raises(RestoreRefused):
            manager.restore(project, target)
        (project / "README.md").write_text("now\n")
        assert manifest(project) == mutated

    as_user(story)


def test_a_directory_that_cannot_be_entered_makes_restore_refuse(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    """What it holds by now cannot be saved, so what it held then cannot be brought back."""

    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        target = checkpoint(manager, project).id
        (project / "README.md").write_text("now\n")
        for bits in (0o000, 0o600):
            (project / "src" / "main.py").write_text("written before it was closed\n")
            (project / "src").chmod(bits)
            with pytest.raises(ShadowsnapError, match="src"):
                manager.restore(project, target)
            (project / "src").chmod(0o755)
            assert (project / "src" / "main.py").read_text() == "written before it was closed\n"
            assert (project / "README.md").read_text() == "now\n"
        assert manager.restore(project, target).applied
        assert_sound(base, project)

    as_user(story)


def test_a_directory_that_cannot_be_listed_is_restored_by_name(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        target = checkpoint(manager, project).id
        original = manifest(project)
        (project / "src" / "main.py").write_text("now\n")
        (project / "src" / "unseen").write_text("written unseen\n")
        mutated = manifest(project)
        (project / "src").chmod(0o300)
        manager.restore(project, target)
        assert manifest(project) == original | {b"src/unseen": mutated[b"src/unseen"]}
        manager.undo(project)
        assert (project / "src").stat().st_mode & 0o777 == 0o300
        (project / "src").chmod(0o755)
        assert manifest(project) == mutated

    as_user(story)


def test_a_file_that_cannot_be_read_makes_restore_refuse_or_is_kept(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        target = checkpoint(manager, project).id
        (project / "README.md").write_text("now\n")
        (project / "empty").write_text("now\n")
        (project / "later").write_text("made since\n")
        (project / "later").chmod(0)
        (project / "README.md").chmod(0)
        with pytest.raises(RestoreRefused, match="README.md"):
            manager.restore(project, target)
        assert (project / "empty").read_text() == "now\n"
        (project / "README.md").chmod(0o644)
        assert (project / "README.md").read_text() == "now\n"
        result = manager.restore(project, target)
        assert kept_paths(result) == {"later": "unreadable now"}
        assert (project / "later").exists()

    as_user(story)


def test_a_project_directory_without_write_permission_is_left_as_it_is(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        target = checkpoint(manager, project).id
        (project / "src" / "main.py").write_text("now\n")
        before = manifest(project)
        project.chmod(0o555)
        with pytest.raises(RestoreFailed, match="put back"):
            manager.restore(project, target)
        project.chmod(0o755)
        assert_put_back(manager, base, project, target, before)

    as_user(story)


# --- other file systems inside the project ----------------------------------------------------------


def test_files_on_another_file_system_inside_the_project_come_back(small_disk: Path, base: Path) -> None:
    """The project lies around the disk, so that renaming across is impossible."""
    project = small_disk.parent
    manager = CheckpointManager(base=project.parent / "base-of-mounts", fsync=False)
    (project / "outside").write_text("then\n")
    (small_disk / "inside").write_text("then\n")
    (small_disk / "sub").mkdir()
    (small_disk / "sub" / "gone").write_text("then\n")
    target = checkpoint(manager, project).id
    original = manifest(project)
    (project / "outside").write_text("now\n")
    (small_disk / "inside").unlink()
    (small_disk / "inside").mkdir()
    (small_disk / "inside" / "made").write_text("made since\n")
    shutil.rmtree(small_disk / "sub")
    mutated = manifest(project)
    manager.restore(project, target)
    assert manifest(project) == original
    manager.undo(project)
    assert manifest(project) == mutated


def test_nothing_is_staged_on_a_file_system_that_a_link_leads_to(
    small_disk: Path, base: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "data" / "deep").mkdir(parents=True)
    (project / "data" / "deep" / "file").write_text("then\n")
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    original = manifest(project)
    (small_disk / "deep").mkdir()
    shutil.rmtree(project / "data")
    (project / "data").symlink_to(small_disk)
    before = mtimes(small_disk)
    manager.restore(project, target)
    assert manifest(project) == original
    assert mtimes(small_disk) == before, "something was there for a while"


def test_a_mount_point_that_the_checkpoint_did_not_know_stays(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    (project / "mounted").mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", project / "mounted"], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        (project / "README.md").write_text("now\n")
        assert manager.restore(project, target).applied
        assert (project / "README.md").read_text() == "# A project\n"
        assert os.path.ismount(project / "mounted")
    finally:
        subprocess.run(["umount", "-l", project / "mounted"], check=True)


@pytest.mark.shortcut
def test_a_checkpoint_with_a_missing_file_is_not_restored_in_part(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    (project / "a").write_text("its object will be lost\n")
    target = checkpoint(manager, project)
    (project / "a").unlink()
    (project / "README.md").write_text("now\n")
    before = manifest(project)
    name = git(base / "store", "rev-parse", f"{target.id}:a")
    loose_object(base / "store", name).unlink()
    for dry_run in (True, False):
        with pytest.raises(DamagedObject, match=name):
            manager.restore(project, target.id, dry_run=dry_run)
    assert manifest(project) == before
    assert manager.restore(project, target.id, paths=["README.md"]).applied


@pytest.mark.shortcut
def test_a_damaged_object_is_noticed_before_any_file_is_touched(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    (project / "a").write_text("its object will be damaged\n")
    target = checkpoint(manager, project)
    (project / "a").unlink()
    (project / "README.md").write_text("now\n")
    before, times = manifest(project), mtimes(project)
    name = git(base / "store", "rev-parse", f"{target.id}:a")
    damaged = loose_object(base / "store", name)
    content = damaged.read_bytes()
    damaged.chmod(0o644)
    damaged.write_bytes(content[:-6])
    with pytest.raises(ShadowsnapError):
        manager.restore(project, target.id)
    assert manifest(project) == before and mtimes(project) == times
    assert not [path for path in os.listdir(os.fsencode(project)) if path.startswith(STAGING)]


@pytest.mark.shortcut
def test_content_that_the_store_has_lost_is_not_overwritten(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    """The newest checkpoint holds the present, but the copy of a file is gone from the store."""
    target = checkpoint(manager, project)
    (project / "README.md").write_text("only on disk by now\n")
    newest = checkpoint(manager, project)
    name = git(base / "store", "rev-parse", f"{newest.id}:README.md")
    loose_object(base / "store", name).unlink()
    try:
        manager.restore(project, target.id)
    except DamagedObject:
        assert (project / "README.md").read_text() == "only on disk by now\n"
    else:
        assert (project / "README.md").read_text() == "# A project\n"
        manager.undo(project)
        assert (project / "README.md").read_text() == "only on disk by now\n"


def test_files_restored_by_root_keep_their_owner(manager: CheckpointManager, project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for path in (project, *project.rglob("*")):
        os.chown(path, 1234, 2345, follow_symlinks=False)
    os.chown(project / "data.bin", 4321, 2345)
    (project / "run.sh").chmod(0o4755)
    target = checkpoint(manager, project).id
    for name in ("README.md", "data.bin", "run.sh"):
        (project / name).write_text("now\n")  # the owner stays
    (project / "link").unlink()
    shutil.rmtree(project / "src")
    manager.restore(project, target)
    owners = {path.name: (path.lstat().st_uid, path.lstat().st_gid) for path in project.rglob("*")}
    assert owners.pop("data.bin") == (4321, 2345)
    assert set(owners.values()) == {(1234, 2345)}, owners
    assert (project / "run.sh").stat().st_mode & 0o7777 == 0o4755


def test_an_empty_directory_that_cannot_be_entered_goes_and_comes_back(base: Path, project: Path) -> None:
    def go_and_return() -> tuple[dict[str, str], bool, bool]:
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        then = manager.snapshot(project).checkpoint
        assert then is not None
        (project / "listed").mkdir(0o400)
        before = manifest(project)
        result = manager.restore(project, then)
        is_gone = not (project / "listed").exists()
        manager.undo(project)
        return kept_paths(result), is_gone, manifest(project) == before

    assert call_unprivileged(go_and_return, owning=[base.parent]) == ({}, True, True)


def test_directories_that_a_restore_makes_closed_or_in_closed_ones_go_with_its_undo(
    base: Path, project: Path
) -> None:
    bits = {"closed": 0o000, "unlisted": 0o300, "outer/inner": 0o755}

    def there() -> set[str]:
        return {name for name in bits if (project / name).is_dir()}

    def go_and_return() -> tuple[set[str], set[str]]:
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        for name in bits:
            (project / name).mkdir(parents=True)
            (project / name).chmod(bits[name])
        then = manager.snapshot(project).checkpoint
        assert then is not None
        for name in bits:
            (project / name).rmdir()
        (project / "outer").chmod(0o300)
        manager.restore(project, then)
        restored = there()
        manager.undo(project)
        return restored, there()

    assert call_unprivileged(go_and_return, owning=[base.parent]) == (set(bits), set())
