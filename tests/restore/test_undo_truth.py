"""Whatever a restore did, undo takes back exactly; what cannot be done exactly is refused."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capturing import skipped
from restoring import STAGING, checkpoint

from helpers import ROOT, git, manifest
from shadowsnap import AsyncCheckpointManager, CheckpointManager, ShadowsnapError


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, background_upkeep=False, fsync=False)


def taken_back(manager: CheckpointManager, project: Path, target: str, *paths: str) -> None:
    """Restore, undo, redo, undo: each is exact."""
    before = manifest(project)
    manager.restore(project, target, paths)
    restored = manifest(project)
    assert restored != before
    manager.undo(project)
    assert manifest(project) == before
    manager.redo(project)
    assert manifest(project) == restored
    manager.undo(project)
    assert manifest(project) == before


# --- ignored directories ----------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before it is named", "after it was named"])
@pytest.mark.parametrize("again", [False, True], ids=["", "with one more checkpoint"])
def test_a_named_file_that_a_partial_restore_deleted_in_an_ignored_directory_comes_back(
    manager: CheckpointManager, project: Path, when: str, again: bool
) -> None:
    target = checkpoint(manager, project)
    (project / "gen" / "deep").mkdir(parents=True)
    for name in ("f", "other", "deep/other"):
        (project / "gen" / name).write_text(f"{name}\n")
    if when == "before it is named":
        (project / ".gitignore").write_text("gen/\n")
    checkpoint(manager, project, "gen/f")
    (project / ".gitignore").write_text("gen/\n")
    if again:
        checkpoint(manager, project)
    taken_back(manager, project, target.id, "gen/f")


def test_a_named_file_comes_back_into_an_ignored_directory_that_existed_before(
    manager: CheckpointManager, project: Path
) -> None:
    (project / "gen").mkdir()
    (project / "gen" / "other").write_text("other\n")
    target = checkpoint(manager, project)
    (project / "gen" / "f").write_text("f\n")
    checkpoint(manager, project, "gen/f")
    (project / ".gitignore").write_text("gen/\n")
    taken_back(manager, project, target.id, "gen/f")


@pytest.mark.parametrize("kind", ["link", "empty directory", "private file", "private directory"])
def test_other_kinds_come_back_into_an_ignored_directory(
    manager: CheckpointManager, project: Path, kind: str
) -> None:
    target = checkpoint(manager, project)
    (project / "gen" / "inner").mkdir(parents=True)
    (project / "gen" / "other").write_text("other\n")
    if kind == "link":
        (project / "gen" / "f").symlink_to("other")
    elif kind != "empty directory":
        (project / "gen" / "inner" / "f").write_text("f\n")
        (project / "gen" / "inner" / "f").chmod(0o600 if kind == "private file" else 0o644)
        (project / "gen" / "inner").chmod(0o700 if kind == "private directory" else 0o755)
    checkpoint(manager, project, "gen/f" if kind == "link" else "gen/inner")
    (project / ".gitignore").write_text("gen/\n")
    before = manifest(project)
    manager.restore(project, target.id)
    if manifest(project) != before:
        manager.undo(project)
    assert manifest(project) == before


@pytest.mark.parametrize("path", ["gen/f", "gen/deep/f", "f.out"])
@pytest.mark.parametrize("part", [False, True], ids=["everything", "some paths"])
@pytest.mark.each_value
def test_an_ignored_file_that_git_tracked_at_the_checkpoint_goes_again(
    manager: CheckpointManager, project: Path, path: str, part: bool
) -> None:
    """The rules come back with the file; from then on it is ignored, and git does not track it any more."""
    git(project, "init", "-q")
    (project / ".gitignore").write_text("gen/\n*.out\n")
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text("tracked\n")
    git(project, "add", "-A", "-f")
    target = checkpoint(manager, project)
    (project / ".gitignore").write_text("")
    (project / path).unlink()
    shutil.rmtree(project / "gen", ignore_errors=True)
    git(project, "rm", "-q", "--cached", path)
    taken_back(manager, project, target.id, *([".gitignore", path] if part else []))


@pytest.mark.parametrize("tracked", [False, True], ids=["named", "tracked"])
def test_a_file_in_a_directory_that_the_restored_rules_ignore_goes_again(
    manager: CheckpointManager, project: Path, tracked: bool
) -> None:
    git(project, "init", "-q")
    (project / "gen" / "deep").mkdir(parents=True)
    (project / "gen" / "deep" / "f").write_text("f\n")
    (project / "gen" / "deep" / "link").symlink_to("f")
    (project / "gen" / ".gitignore").write_text("*\n")
    if tracked:
        git(project, "add", "-A", "-f")
    target = checkpoint(manager, project, "gen/deep/f", "gen/deep/link", "gen/.gitignore")
    shutil.rmtree(project / "gen")
    if tracked:
        git(project, "rm", "-r", "-q", "--cached", "gen")
    taken_back(manager, project, target.id)


# --- parts of a tree --------------------------------------------------------------------------------


@pytest.fixture
def target(manager: CheckpointManager, project: Path) -> str:
    """A checkpoint; since then every kind of thing became every other kind, below `part` and beside it."""
    for top in ("part", "beside"):
        folder = project / top
        for name in ("file", "to-link", "to-folder", "gone", "bits", "deep/er/file"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{name} then\n")
        for name in ("hollow", "hollow-gone", "closed"):
            (folder / name).mkdir()
        (folder / "link").symlink_to("file")
        (folder / "link-gone").symlink_to("nowhere")
    taken = checkpoint(manager, project)
    for top in ("part", "beside"):
        folder = project / top
        (folder / "file").write_text("file now\n")
        (folder / "to-link").unlink()
        (folder / "to-link").symlink_to("file")
        (folder / "to-folder").unlink()
        (folder / "to-folder" / "inner").mkdir(parents=True)
        (folder / "to-folder" / "inner" / "f").write_text("f\n")
        (folder / "to-folder" / "hollow").mkdir()
        (folder / "gone").unlink()
        (folder / "bits").chmod(0o640)
        shutil.rmtree(folder / "deep")
        (folder / "deep").write_text("a file now\n")
        (folder / "hollow-gone").rmdir()
        (folder / "hollow-new" / "deep").mkdir(parents=True)
        (folder / "hollow").chmod(0o700)
        (folder / "closed").chmod(0o500)
        (folder / "link").unlink()
        (folder / "link").symlink_to("elsewhere")
        (folder / "link-gone").unlink()
        (folder / "new").mkdir()
        (folder / "new" / "file").write_text("new\n")
        (folder / "new").chmod(0o750)
    return taken.id


@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("part",),
        ("part/deep", "part/to-folder"),
        ("part/deep/er/file",),
        ("part/to-folder/inner",),
        ("part/hollow-gone", "part/hollow-new", "part/closed"),
        ("part/link", "part/link-gone", "part/to-link"),
        ("part/bits", "part/new"),
    ],
)
@pytest.mark.parametrize("rules", ["", "part/\n", "part/*/\nbeside\n"])
@pytest.mark.each_value
def test_any_part_of_a_tree_is_taken_back(
    manager: CheckpointManager, project: Path, target: str, paths: tuple[str, ...], rules: str
) -> None:
    (project / ".gitignore").write_text(rules)
    before = manifest(project)
    try:
        manager.restore(project, target, paths)
    except ShadowsnapError:  # something is in the way: then nothing was done
        assert manifest(project) == before
        return
    if manifest(project) != before:
        manager.undo(project)
    assert manifest(project) == before


# --- directories that may not be entered ------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o111, 0o000, 0o444, 0o555])
@pytest.mark.parametrize("when", ["at the checkpoint", "now", "at both"])
@pytest.mark.parametrize("change", ["edit", "delete", "add"])
@pytest.mark.each_value
def test_a_restore_into_a_closed_directory_is_exact_or_refused(
    as_user: Callable[..., Any], base: Path, project: Path, bits: int, when: str, change: str
) -> None:
    folder = project / "closed"
    folder.mkdir()
    (folder / "file").write_text("then\n")
    (folder / "other").write_text("other\n")
    (project / "a").write_text("then\n")
    (project / "z").write_text("then\n")

    def picture() -> dict[bytes, Any]:
        """With the directory opened for the time of looking."""
        was = folder.stat().st_mode & 0o7777
        folder.chmod(0o700)
        try:
            return {**manifest(project), b"closed": was}
        finally:
            folder.chmod(was)

    def story() -> None:
        manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        folder.chmod(bits if when != "now" else 0o755)
        then = picture()
        target = checkpoint(manager, project)
        folder.chmod(0o755)
        if change == "edit":
            (folder / "file").write_text("now\n")
        elif change == "delete":
            (folder / "file").unlink()
        else:
            (folder / "new").write_text("new\n")
        (project / "a").write_text("now\n")
        (project / "z").write_text("now\n")
        folder.chmod(bits if when != "at the checkpoint" else 0o755)
        now = picture()
        try:
            result = manager.restore(project, target.id)
        except ShadowsnapError:
            assert picture() == now, "refused, and half done"
            return
        left = {kept.path.rstrip("/") for kept in result.kept} | {item.path.rstrip("/") for item in target.skipped}
        restored = picture()
        same = {path for path in then.keys() | restored.keys() if then.get(path) != restored.get(path)}
        reported = {path for path in same if any(_is_below(os.fsdecode(path), above) for above in left)}
        assert same == reported, "different from the checkpoint, and not reported"
        manager.undo(project)
        assert picture() == now
        folder.chmod(0o755)

    try:
        as_user(story)
    finally:
        folder.chmod(0o755)


def _is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(above + "/")


# --- restores that are cancelled --------------------------------------------------------------------


# A program that cancels a restore and ends. The restore is finished in its thread, or taken back.
CANCELLING = """
import asyncio, sys
from shadowsnap import AsyncCheckpointManager

async def story(base, project, target, seconds):
    manager = AsyncCheckpointManager(base=base, background_upkeep=False, fsync=False)
    await manager.list_checkpoints(project)
    restoring = asyncio.ensure_future(manager.restore(project, target))
    await asyncio.sleep(float(seconds))
    restoring.cancel()
    try:
        await restoring
    except asyncio.CancelledError:
        pass

asyncio.run(story(*sys.argv[1:]))
"""


@pytest.fixture
def many(manager: CheckpointManager, project: Path) -> str:
    """A checkpoint of many files, all of which changed since."""
    for number in range(300):
        (project / f"file-{number}").write_text(f"then {number}\n" * 50)
    target = checkpoint(manager, project)
    for number in range(300):
        (project / f"file-{number}").write_text(f"now  {number}\n")
    return target.id


def beginnings(project: Path) -> set[str]:
    return {(project / f"file-{number}").read_text()[:4] for number in range(300)}


DELAYS = pytest.mark.parametrize("delay_ms", [0, 3, 10, 20, 40, 60])


@DELAYS
@pytest.mark.every(2, start=1)
def test_a_cancelled_restore_leaves_no_staging_directory(
    base: Path, project: Path, many: str, delay_ms: int
) -> None:
    async def story() -> None:
        manager = AsyncCheckpointManager(base=base, background_upkeep=False, fsync=False)
        restoring = asyncio.ensure_future(manager.restore(project, many))
        await asyncio.sleep(delay_ms / 1000)
        restoring.cancel()
        try:
            await restoring
        except asyncio.CancelledError:
            pass
        await manager.new_turn()
        assert (await manager.ensure_checkpoint(project)).status in ("taken", "unchanged")
        assert staging(project) == []
        assert beginnings(project) in ({"then"}, {"now "})

    asyncio.run(asyncio.wait_for(story(), 60))
    assert staging(project) == []


@DELAYS
@pytest.mark.every(2)
def test_a_program_that_cancels_a_restore_and_ends_leaves_no_staging_directory(
    base: Path, project: Path, many: str, delay_ms: int
) -> None:
    command = [sys.executable, "-c", CANCELLING, str(base), str(project), many, str(delay_ms / 1000)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert staging(project) == []
    assert beginnings(project) in ({"then"}, {"now "})


def staging(project: Path) -> list[bytes]:
    return [path for path in manifest(project) if path.rpartition(b"/")[2].startswith(STAGING)]


# --- what no checkpoint can hold --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "link to a directory"])
@pytest.mark.parametrize("warm", [False, True], ids=["first capture", "later capture"])
def test_a_nested_dot_git_that_is_no_directory_is_listed(
    manager: CheckpointManager, project: Path, kind: str, warm: bool
) -> None:
    (project / "x").mkdir()
    (project / "x" / "file").write_text("file\n")
    if warm:
        checkpoint(manager, project)
    place = project / "x" / ".git"
    if kind == "file":
        place.write_text("gitdir: ../elsewhere\n")
    else:
        place.symlink_to({"link": "file", "dangling link": "nowhere"}.get(kind, "../src"))
    taken = checkpoint(manager, project)
    assert skipped(taken) == {"x/.git": "unstorable"}
    (project / "x" / "file").write_text("changed\n")
    assert skipped(checkpoint(manager, project)) == {"x/.git": "unstorable"}


def test_undo_deletes_what_a_restore_brought_back_although_it_is_ignored_then(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False)
    git(project, "init", "-q")
    (project / "notes.txt").write_text("old\n")
    then = checkpoint(manager, project)
    (project / "notes.txt").unlink()
    (project / ".gitignore").write_text("!notes.txt\n")
    exclude = project / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.txt\n")
    manager.restore(project, then)
    assert (project / "notes.txt").exists() and not (project / ".gitignore").exists()
    manager.undo(project)
    assert not (project / "notes.txt").exists() and (project / ".gitignore").exists()
