"""Repositories of every kind, as the project and inside it: captured as ordinary files, and never touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import captured, content, everything_old, names, skipped, snap

from helpers import git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager

Pictures = dict[str, Any]


def write(project: Path, *paths: str) -> None:
    for path in paths:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(f"{path}\n")


def repository(folder_path: Path, *paths: str, commit: bool = True) -> Path:
    folder_path.mkdir(parents=True, exist_ok=True)
    git(folder_path, "init", "-q")
    write(folder_path, *paths)
    if commit:
        git(folder_path, "add", "-A")
        git(folder_path, "commit", "-q", "-m", "first")
    return folder_path


def pictures(top: Path) -> Pictures:
    """Every `.git` below a directory, exactly."""
    tops = [folder for folder, names, files in os.walk(top) if ".git" in (*names, *files)]
    return {folder_path: snapshot_dotgit(folder_path) for folder_path in tops if "/.git/" not in folder_path}


# --- projects of every kind -------------------------------------------------------------------------


def _plain(top: Path) -> Path:
    project = repository(top / "project", "a", "src/b")
    git(project, "checkout", "-q", "-b", "work")
    write(project, "untracked", "src/new/deep")
    (project / "a").write_text("modified")
    return project


def _without_commits(top: Path) -> Path:
    return repository(top / "project", "a", "src/b", commit=False)


def _linked_worktree(top: Path) -> Path:
    main = repository(top / "main", "a", "src/b")
    git(main, "worktree", "add", "-q", "-b", "other", str(top / "project"))
    write(top / "project", "untracked")
    return top / "project"


def _main_of_worktrees(top: Path) -> Path:
    main = repository(top / "project", "a", "src/b")
    git(main, "worktree", "add", "-q", "-b", "other", str(top / "project" / "trees" / "one"))
    return main


def _subdirectory(top: Path) -> Path:
    repository(top / "repository", "outside", "inner/project/a", "inner/project/src/b")
    return top / "repository" / "inner" / "project"


def _separate_git_dir(top: Path) -> Path:
    project = top / "project"
    project.mkdir()
    git(project, "init", "-q", "--separate-git-dir", str(top / "elsewhere.git"))
    write(project, "a", "src/b")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first")
    return project


def _split_index(top: Path) -> Path:
    project = repository(top / "project", "a", "src/b")
    git(project, "update-index", "--split-index")
    write(project, "c")
    git(project, "add", "c")
    return project


def _merging(top: Path) -> Path:
    project = repository(top / "project", "a", "src/b")
    git(project, "checkout", "-q", "-b", "side")
    (project / "a").write_text("side\n")
    git(project, "commit", "-q", "-a", "-m", "side")
    git(project, "checkout", "-q", "main")
    (project / "a").write_text("main\n")
    git(project, "commit", "-q", "-a", "-m", "main")
    with pytest.raises(AssertionError, match="failed"):
        git(project, "merge", "side")
    return project


def _broken(top: Path) -> Path:
    project = repository(top / "project", "a", "src/b")
    (project / ".git" / "index").write_bytes(b"DIRC nonsense")
    (project / ".git" / "HEAD").write_bytes(b"\xff\0")
    return project


def _locked(top: Path) -> Path:
    """A git process is running there, or died."""
    project = repository(top / "project", "a", "src/b")
    (project / ".git" / "index.lock").write_text("")
    (project / ".git" / "HEAD.lock").write_text("")
    return project


def _with_nested(top: Path) -> Path:
    project = repository(top / "project", "a")
    repository(project / "nested", "b", "deep/c")
    repository(project / "nested" / "inner", "d", commit=False)
    repository(project / "fresh", "e", commit=False)
    repository(project / "bare-of-files", commit=False)
    return project


def _with_submodule(top: Path) -> Path:
    library = repository(top / "library", "lib.c", "deep/lib.h")
    project = repository(top / "project", "a")
    git(project, "submodule", "--quiet", "add", str(library), "vendor/library")
    git(project, "commit", "-q", "-m", "submodule")
    (project / "vendor" / "library" / "lib.c").write_text("patched")
    return project


def _no_repository(top: Path) -> Path:
    write(top / "project", "a", "src/b")
    repository(top / "project" / "nested", "c")
    return top / "project"


KINDS: dict[str, Callable[[Path], Path]] = {
    function.__name__.strip("_"): function
    for function in (
        _plain, _without_commits, _linked_worktree, _main_of_worktrees, _subdirectory, _separate_git_dir,
        _split_index, _merging, _broken, _locked, _with_nested, _with_submodule, _no_repository,
    )
}  # fmt: skip


@pytest.fixture(params=KINDS)
def any_project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A project of every kind; at the end, no `.git` anywhere has changed."""
    top = tmp_path / "top"
    top.mkdir()
    project = KINDS[request.param](top)
    before = pictures(top)
    elsewhere = manifest(top / "elsewhere.git") if (top / "elsewhere.git").exists() else {}
    yield project
    assert pictures(top) == before
    assert elsewhere == (manifest(top / "elsewhere.git") if elsewhere else {})


def test_every_file_of_any_project_is_captured_exactly(base: Path, any_project: Path) -> None:
    checkpoint = snap(base, any_project)
    assert captured(base, checkpoint) == manifest(any_project)
    # What leads to a repository elsewhere (of a submodule or a worktree) cannot be stored under its name.
    links = {path for path in any_project.rglob(".git") if path.is_file() and path.parent != any_project}
    expected = {str(path.relative_to(any_project)): "unstorable" for path in links}
    found = skipped(checkpoint)
    assert found.pop(".git/index", "unreadable") == "unreadable"  # in a repository that is damaged
    assert found == expected
    assert snap(base, any_project, status="unchanged").id == checkpoint.id


@pytest.mark.every(2)
def test_changes_in_any_project_are_captured(base: Path, any_project: Path) -> None:
    snap(base, any_project)
    for folder in [any_project, *(path.parent for path in any_project.rglob(".git"))]:
        write(folder, "new file", "new directory/deep/new file", "another directory/file")
    (any_project / "a").write_text("changed")
    assert captured(base, snap(base, any_project)) == manifest(any_project)
    assert captured(base, snap(base, any_project)) == manifest(any_project)


@pytest.mark.every(2, start=1)
def test_no_operation_touches_any_repository(base: Path, any_project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    first = manager.ensure_checkpoint(any_project, paths=["x.log"]).checkpoint
    assert first is not None
    for folder in [any_project, *(path.parent for path in any_project.rglob(".git"))]:
        write(folder, "created/by an agent")
    (any_project / "a").unlink()
    changed = manifest(any_project)
    manager.diff(any_project, first.id)
    manager.restore(any_project, first.id, dry_run=True)
    manager.restore(any_project, first.id)
    assert captured(base, first) == manifest(any_project)
    manager.undo(any_project)
    assert manifest(any_project) == changed
    manager.redo(any_project)
    manager.list_checkpoints(any_project)
    manager.restore(any_project, first.id, paths=["a"])
    manager.end_turn()


# --- nested repositories ----------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_a_repository_that_appears_is_captured(base: Path, project: Path, commit: bool) -> None:
    snap(base, project)
    repository(project / "nested", "a", "deep/er/b", commit=commit)
    assert captured(base, snap(base, project)) == manifest(project)


def test_a_directory_that_becomes_a_repository_stays_captured(base: Path, project: Path) -> None:
    before = snap(base, project)
    git(project / "src", "init", "-q")
    assert snap(base, project, status="unchanged").id == before.id
    write(project, "src/new", "src/folder/new")
    assert captured(base, snap(base, project)) == manifest(project)


def test_a_nested_repository_may_lose_all_its_files_and_get_new_ones(base: Path, project: Path) -> None:
    repository(project / "nested", "a", "deep/b")
    snap(base, project)
    for path in ("a", "deep/b"):
        (project / "nested" / path).unlink()
    assert captured(base, snap(base, project)) == manifest(project)
    assert captured(base, snap(base, project)) == manifest(project)
    write(project, "nested/deep/c")
    assert captured(base, snap(base, project)) == manifest(project)


def test_a_new_directory_in_a_nested_repository_is_captured(base: Path, project: Path) -> None:
    repository(project / "nested", "a")
    with everything_old():
        snap(base, project)
    write(project, "nested/new/b", "nested/new/deep/c")
    assert captured(base, snap(base, project)) == manifest(project)
    write(project, "nested/newer/d", "elsewhere/e")
    assert captured(base, snap(base, project)) == manifest(project)


def test_rules_inside_a_nested_repository_count(base: Path, project: Path) -> None:
    repository(project / "nested", "a.tmp", "b", commit=False)
    (project / "nested" / ".gitignore").write_text("*.tmp\n")
    assert "nested/a.tmp" not in names(base, snap(base, project))


def test_a_nested_repository_that_is_ignored_is_left_out(base: Path, project: Path) -> None:
    repository(project / "nested", "a")
    (project / ".gitignore").write_text("nested/\n")
    checkpoint = snap(base, project)
    assert not any(name.startswith("nested") for name in names(base, checkpoint))
    assert "empty_dirs" not in checkpoint.metadata


def test_a_submodule_that_is_not_checked_out_is_an_empty_directory(base: Path, tmp_path: Path) -> None:
    library = repository(tmp_path / "library", "lib.c")
    origin = repository(tmp_path / "origin", "a")
    git(origin, "submodule", "--quiet", "add", str(library), "library")
    git(origin, "commit", "-q", "-m", "submodule")
    git(tmp_path, "clone", "-q", str(origin), "project")
    project = tmp_path / "project"
    checkpoint = snap(base, project)
    assert captured(base, checkpoint) == manifest(project)
    git(project, "submodule", "--quiet", "update", "--init")
    assert captured(base, snap(base, project)) == manifest(project)


def test_a_repository_is_replaced_by_a_file_and_back(base: Path, project: Path) -> None:
    repository(project / "thing", "a")
    snap(base, project)
    (project / "thing").rename(project.parent / "aside")
    (project / "thing").write_text("a file")
    assert captured(base, snap(base, project)) == manifest(project)
    (project / "thing").unlink()
    (project.parent / "aside").rename(project / "thing")
    assert captured(base, snap(base, project)) == manifest(project)


# --- what a checkpoint says about the person's repository -------------------------------------------


@pytest.mark.parametrize("version", ["2", "4"])
def test_a_tracked_file_that_replaces_a_submodule_in_a_split_index(
    base: Path, tmp_path: Path, version: str
) -> None:
    """The shared part of the index has its name and its earlier type, the other part its type."""
    project = repository(tmp_path / "project", "a", "b")
    repository(project / "build" / "nested", "file")
    git(project, "add", "-f", "build/nested")
    git(project, "update-index", "--index-version", version, "--split-index")
    (project / "b").write_text("another entry that is replaced\n")
    shutil.rmtree(project / "build" / "nested")
    (project / "build" / "nested").write_text("a file now\n")
    git(project, "add", "-f", "build/nested", "b")
    assert b"build/nested" not in (project / ".git" / "index").read_bytes()
    assert names(base, snap(base, project)) == {"a", "b", "build/nested"}


def test_a_checkpoint_records_the_users_commit_and_branch(base: Path, tmp_path: Path) -> None:
    project = repository(tmp_path / "project", "a")
    head = git(project, "rev-parse", "HEAD")
    checkpoint = snap(base, project)
    assert (checkpoint.metadata["git_head"], checkpoint.metadata["git_branch"]) == (head, "main")
    git(project, "pack-refs", "--all")
    git(project, "checkout", "-q", "-b", "feature/one")
    write(project, "b")
    assert snap(base, project).metadata["git_branch"] == "feature/one"
    git(project, "checkout", "-q", "--detach")
    write(project, "c")
    checkpoint = snap(base, project)
    assert checkpoint.metadata["git_head"] == head and "git_branch" not in checkpoint.metadata


def test_a_new_commit_of_the_same_files_is_no_new_checkpoint(base: Path, tmp_path: Path) -> None:
    project = repository(tmp_path / "project", "a")
    checkpoint = snap(base, project)
    git(project, "commit", "-q", "--allow-empty", "-m", "nothing")
    assert snap(base, project, status="unchanged").id == checkpoint.id


# --- independence -----------------------------------------------------------------------------------


def test_a_checkpoint_does_not_depend_on_the_users_repository(base: Path, tmp_path: Path) -> None:
    project = repository(tmp_path / "project", *(f"{number}/file" for number in range(50)))
    git(project, "repack", "-q", "-a", "-d")
    write(project, "loose")
    git(project, "add", "loose")
    checkpoint = snap(base, project)
    shutil.rmtree(project / ".git")
    assert captured(base, checkpoint) == manifest(project)
    assert git(base, "--git-dir=store", "fsck", "--full", "--strict", "--no-dangling") == ""


def test_a_snapshot_taken_inside_a_git_hook_is_one_of_the_project(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repository(tmp_path / "other", "z")
    project = repository(tmp_path / "project", "a")
    before = snapshot_dotgit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git" / "objects"))
    checkpoint = CheckpointManager(base=base, fsync=False).ensure_checkpoint(project).checkpoint
    monkeypatch.undo()
    assert checkpoint is not None and names(base, checkpoint) == {"a"}
    assert content(base, checkpoint, "a") == b"a\n"
    assert snapshot_dotgit(other) == before


def test_two_worktrees_are_two_projects_that_share_equal_objects(base: Path, tmp_path: Path) -> None:
    main = repository(tmp_path / "main", *(f"file-{number}" for number in range(20)))
    git(main, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    one, two = snap(base, main), snap(base, tmp_path / "other")
    assert one.tree == two.tree and one.project != two.project
    (tmp_path / "other" / "file-1").write_text("changed")
    assert snap(base, main, status="unchanged").id == one.id
    assert content(base, snap(base, tmp_path / "other", status="taken"), "file-1") == b"changed"


def test_an_edit_that_the_users_git_does_not_see_is_captured(base: Path, tmp_path: Path) -> None:
    """Of the same size, in the same second, with the old time: git compares times by the second."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q")
    (project / "file").write_bytes(b"one\n")
    os.utime(project / "file", (10**9, 10**9))
    git(project, "add", "file")
    (project / "file").write_bytes(b"two\n")
    os.utime(project / "file", (10**9, 10**9))
    assert content(base, snap(base, project), "file") == b"two\n"


def test_a_change_right_after_a_first_snapshot_is_noticed(base: Path, tmp_path: Path) -> None:
    project = repository(tmp_path / "project", "a", "b")
    snap(base, project)
    (project / "a").chmod(0o600)
    before = (project / "b").stat()
    (project / "b").write_bytes(b"c\n")
    os.utime(project / "b", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert captured(base, snap(base, project, status="taken")) == manifest(project)
