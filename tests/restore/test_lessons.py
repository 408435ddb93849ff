"""Mistakes that other checkpoint systems made when they restored a state, each as a test."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from restoring import checkpoint, content_in, in_child, kept_paths, mtimes, store_picture

from helpers import git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.errors import ForeignCheckpoint, NoSuchCheckpoint, PresentNotSaved, RestoreRefused, ShadowsnapError


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


# --- snapshots that failed --------------------------------------------------------------------------


def with_small_files_only(action: Callable[[], object]) -> bool:
    """Run an action in a child that cannot write a file of more than 50 kB; returns whether it succeeded."""

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        action()

    return in_child(act) == 0


def test_a_failed_snapshot_does_not_pass_the_older_one_off_as_current(
    manager: CheckpointManager, project: Path
) -> None:
    checkpoint(manager, project)
    (project / "work").write_bytes(os.urandom(200_000))
    manager.new_turn()

    def fail() -> None:
        outcome = manager.ensure_checkpoint(project)
        assert outcome.status == "failed" and not outcome
        assert outcome.error is not None and outcome.checkpoint is None

    assert with_small_files_only(fail)
    outcome = manager.ensure_checkpoint(project)  # of the same turn: it is tried again
    assert outcome.status == "taken" and outcome.checkpoint is not None
    assert not manager.diff(project, outcome.checkpoint.id)


def test_restore_refuses_if_the_safety_snapshot_fails(manager: CheckpointManager, project: Path) -> None:
    target = checkpoint(manager, project)
    (project / "README.md").write_bytes(os.urandom(200_000))
    (project / "new").write_text("created later\n")
    mutated, times = manifest(project), mtimes(project)

    def refuse() -> None:
        with pytest.raises(PresentNotSaved, match="nothing was restored"):
            manager.restore(project, target.id)

    assert with_small_files_only(refuse)
    assert manifest(project) == mutated and mtimes(project) == times
    assert manager.restore(project, target.id).applied


# --- files the checkpoint could not have known ------------------------------------------------------


def test_a_file_that_was_ignored_then_is_kept_and_reported(manager: CheckpointManager, project: Path) -> None:
    (project / ".gitignore").write_text("notes/\n*.tmp\n")
    (project / "notes").mkdir()
    (project / "notes" / "diary").write_text("years of notes\n")
    (project / "a.tmp").write_text("ignored\n")
    target = checkpoint(manager, project)
    (project / ".gitignore").write_text("# nothing is ignored any more\n")
    result = manager.restore(project, target.id)
    assert (project / "notes" / "diary").read_text() == "years of notes\n"
    assert (project / "a.tmp").read_text() == "ignored\n"
    assert kept_paths(result) == {
        "notes/diary": "ignored at the checkpoint",
        "a.tmp": "ignored at the checkpoint",
    }
    assert result.written == (".gitignore",) and result.deleted == ()


def test_an_older_gitignore_brought_back_does_not_delete_what_it_no_longer_ignores(
    manager: CheckpointManager, project: Path
) -> None:
    (project / ".gitignore").write_text("*.tmp\n")
    target = checkpoint(manager, project)
    (project / ".gitignore").write_text("*.tmp\ndata/\nsrc/cache/\n")
    for path in ("data/set", "src/cache/page", "scratch.tmp"):
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text("cannot be made again\n")
    checkpoint(manager, project)
    manager.restore(project, target.id)
    assert (project / ".gitignore").read_text() == "*.tmp\n"
    for path in ("data/set", "src/cache/page", "scratch.tmp"):
        assert (project / path).read_text() == "cannot be made again\n"


def test_a_hidden_gitignore_that_takes_an_exclude_back_deletes_nothing_that_was_ignored_then(
    manager: CheckpointManager, project: Path
) -> None:
    (project / "src" / "run.log").write_text("ignored by default\n")
    target = checkpoint(manager, project)
    (project / "src" / ".gitignore").write_text(".gitignore\n!*.log\n")  # it ignores itself, too
    checkpoint(manager, project)
    result = manager.restore(project, target)
    assert (project / "src" / "run.log").read_text() == "ignored by default\n"
    assert "src/run.log" in kept_paths(result)


def test_a_gitignore_that_did_not_exist_then_does_not_delete_what_it_ignores(
    manager: CheckpointManager, project: Path
) -> None:
    target = checkpoint(manager, project)
    (project / "src" / ".gitignore").write_text("precious\n")
    (project / "src" / "precious").write_text("ignored now\n")
    result = manager.restore(project, target.id)
    assert not (project / "src" / ".gitignore").exists()
    assert (project / "src" / "precious").read_text() == "ignored now\n"
    assert result.deleted == ("src/.gitignore",)


def test_a_file_that_was_too_large_then_is_kept_though_it_is_small_now(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, max_file_size_mb=0.001)
    (project / "big").write_bytes(b"x" * 5000)
    target = checkpoint(manager, project)
    assert [(item.path, item.why) for item in target.skipped] == [("big", "too-large")]
    (project / "big").write_bytes(b"now small")
    checkpoint(manager, project)
    result = manager.restore(project, target.id)
    assert (project / "big").read_bytes() == b"now small"
    assert kept_paths(result) == {"big": "too-large at the checkpoint"}


def test_a_file_that_grew_too_large_is_saved_before_its_small_version_comes_back(
    base: Path, project: Path
) -> None:
    manager = CheckpointManager(base=base, max_file_size_mb=0.001)
    (project / "log").write_bytes(b"small")
    target = checkpoint(manager, project)
    (project / "log").write_bytes(b"grown" * 1000)
    result = manager.restore(project, target.id)
    assert (project / "log").read_bytes() == b"small"
    assert result.undo_id is not None
    assert content_in(base, result.undo_id, "log") == "grown" * 1000
    manager.undo(project)
    assert (project / "log").read_bytes() == b"grown" * 1000


def test_a_file_created_later_that_is_too_large_to_capture_is_kept(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, max_file_size_mb=0.001)
    target = checkpoint(manager, project)
    (project / "film").write_bytes(b"x" * 5000)
    result = manager.restore(project, target.id)
    assert (project / "film").read_bytes() == b"x" * 5000
    assert kept_paths(result) == {"film": "too-large now"}


def test_a_file_that_was_unreadable_then_is_kept(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    def story() -> None:
        manager = CheckpointManager(base=base, fsync=False)
        (project / "closed").write_text("not readable\n")
        (project / "closed").chmod(0)
        (project / "vault").mkdir()
        (project / "vault" / "gold").write_text("all of it\n")
        (project / "vault").chmod(0)
        target = checkpoint(manager, project)
        (project / "closed").chmod(0o600)
        (project / "vault").chmod(0o700)
        checkpoint(manager, project)
        result = manager.restore(project, target.id)
        (project / "vault").chmod(0o700)
        assert (project / "closed").read_text() == "not readable\n"
        assert (project / "vault" / "gold").read_text() == "all of it\n"
        assert kept_paths(result)["closed"] == "unreadable at the checkpoint"
        assert kept_paths(result)["vault/gold"] == "unreadable at the checkpoint"

    as_user(story)


def test_a_secret_that_was_not_captured_is_kept(manager: CheckpointManager, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    target = checkpoint(manager, project)
    (project / ".env").write_text("TOKEN=2\n")
    (project / "README.md").write_text("changed\n")
    result = manager.restore(project, target.id)
    assert (project / ".env").read_text() == "TOKEN=2\n"
    assert kept_paths(result) == {".env": "secret at the checkpoint"}


# --- things in the way ------------------------------------------------------------------------------


def test_a_file_replaced_by_a_directory_with_uncaptured_files_costs_none_of_them(
    base: Path, project: Path
) -> None:
    manager = CheckpointManager(base=base, max_file_size_mb=0.001)
    (project / "thing").write_text("a file then\n")
    target = checkpoint(manager, project)
    (project / "thing").unlink()
    inside = {
        "thing/captured": "c\n",
        "thing/debug.log": "ignored\n",
        "thing/.env": "SECRET=1\n",
        "thing/large": "x" * 5000,
        "thing/node_modules/deep/index.js": "dependency\n",
    }
    for path, text in inside.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    (project / "thing" / "build" / "empty").mkdir(parents=True)
    mutated = manifest(project)
    result = manager.restore(project, target.id)
    assert (project / "thing").read_text() == "a file then\n"
    assert set(inside) <= set(result.deleted)
    assert result.undo_id is not None
    for path, text in inside.items():
        assert content_in(base, result.undo_id, path) == text.rstrip("\n")
    manager.undo(project)
    assert manifest(project) == mutated
    manager.redo(project)
    assert (project / "thing").read_text() == "a file then\n"
    manager.undo(project)
    assert manifest(project) == mutated


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_directory_in_the_way_that_holds_a_repository_makes_restore_refuse(
    manager: CheckpointManager, project: Path, kind: str
) -> None:
    (project / "thing").write_text("a file then\n")
    target = checkpoint(manager, project)
    (project / "thing").unlink()
    (project / "thing" / "deep").mkdir(parents=True)
    git(project / "thing" / "deep", "init")
    (project / "thing" / "deep" / "work").write_text("work\n")
    git(project / "thing" / "deep", "add", ".")
    git(project / "thing" / "deep", "commit", "-m", "work")
    if kind == "file":
        os.rename(project / "thing" / "deep" / ".git", project.parent / "elsewhere")
        (project / "thing" / "deep" / ".git").write_text(f"gitdir: {project.parent / 'elsewhere'}\n")
    (project / "README.md").write_text("changed too\n")
    mutated, dot_git = manifest(project), snapshot_dotgit(project / "thing" / "deep")
    plan = manager.restore(project, target.id, dry_run=True)
    assert [conflict.path for conflict in plan.conflicts] == ["thing/deep/.git"]
    with pytest.raises(RestoreRefused, match=r"thing/deep/\.git"):
        manager.restore(project, target.id)
    assert manifest(project) == mutated
    assert snapshot_dotgit(project / "thing" / "deep") == dot_git


def test_a_fifo_in_the_way_makes_restore_refuse(manager: CheckpointManager, project: Path) -> None:
    target = checkpoint(manager, project)
    (project / "README.md").unlink()
    os.mkfifo(project / "README.md")
    (project / "empty").write_text("changed too\n")
    mutated = manifest(project)
    with pytest.raises(RestoreRefused, match=r"README\.md"):
        manager.restore(project, target.id)
    assert manifest(project) == mutated


def test_an_ignored_file_in_the_way_is_saved_first(manager: CheckpointManager, project: Path, base: Path) -> None:
    (project / "out.txt").write_text("captured then\n")
    target = checkpoint(manager, project)
    (project / "out.txt").unlink()
    (project / ".gitignore").write_text("out.txt\n")
    checkpoint(manager, project)
    (project / "out.txt").write_text("ignored now, and in no checkpoint\n")
    mutated = manifest(project)
    result = manager.restore(project, target.id)
    assert (project / "out.txt").read_text() == "captured then\n"
    assert result.undo_id is not None
    assert content_in(base, result.undo_id, "out.txt") == "ignored now, and in no checkpoint"
    manager.undo(project)
    assert manifest(project) == mutated


# --- other projects, the person's repository --------------------------------------------------------


def test_a_checkpoint_of_another_project_is_refused(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    checkpoint(manager, project)
    other = tmp_path / "other"
    other.mkdir()
    (other / "secrets.txt").write_text("of another project\n")
    foreign = checkpoint(manager, other)
    before = manifest(project)
    for ref in (foreign.id, foreign.short_id):
        with pytest.raises(ForeignCheckpoint, match="other"):
            manager.restore(project, ref)
        with pytest.raises(ForeignCheckpoint):
            manager.restore(project, ref, paths=["README.md"], dry_run=True)
    assert manifest(project) == before


def test_a_commit_that_is_no_checkpoint_is_refused(
    manager: CheckpointManager, project: Path, base: Path
) -> None:
    target = checkpoint(manager, project)
    git(base / "store", "update-ref", "refs/heads/x", target.id)
    manager.delete(project, target.id)
    (project / "README.md").write_text("changed\n")
    checkpoint(manager, project)
    with pytest.raises(NoSuchCheckpoint):
        manager.restore(project, target.id)


def test_branch_head_and_dot_git_are_not_touched(manager: CheckpointManager, project: Path) -> None:
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "first")
    target = checkpoint(manager, project)
    git(project, "checkout", "-q", "-b", "feature")
    (project / "README.md").write_text("on a branch\n")
    (project / "staged").write_text("staged\n")
    git(project, "add", "staged")
    git(project, "commit", "-m", "second")
    (project / "src" / "main.py").write_text("uncommitted\n")
    head, dot_git = git(project, "rev-parse", "HEAD"), snapshot_dotgit(project)
    manager.restore(project, target.id)
    manager.undo(project)
    manager.redo(project)
    assert snapshot_dotgit(project) == dot_git
    assert git(project, "symbolic-ref", "HEAD") == "refs/heads/feature"
    assert git(project, "rev-parse", "HEAD") == head
    assert not (project / "staged").exists()


def test_mtimes_of_untouched_files_stay(manager: CheckpointManager, project: Path) -> None:
    target = checkpoint(manager, project)
    for name in ("README.md", "data.bin", "run.sh", "private.txt"):
        os.utime(project / name, ns=(10**18, 10**18))
    checkpoint(manager, project)
    before = mtimes(project)
    (project / "src" / "main.py").write_text("changed\n")
    (project / "new").write_text("new\n")
    manager.restore(project, target.id)
    after = mtimes(project)
    assert {path for path in after if after[path] != before[path]} == {b"src/main.py"}


def test_a_subset_leaves_everyone_elses_edits_alone(manager: CheckpointManager, project: Path) -> None:
    target = checkpoint(manager, project)
    (project / "src" / "main.py").write_text("the agent's edit\n")
    (project / "README.md").write_text("the person's own edit\n")
    (project / "idea").write_text("the person's new file\n")
    manager.restore(project, target.id, paths=["src/main.py"])
    manager.undo(project)
    assert (project / "src" / "main.py").read_text() == "the agent's edit\n"
    (project / "README.md").write_text("edited again meanwhile\n")
    manager.redo(project)
    assert (project / "src" / "main.py").read_text() == "print('hello')\n"
    assert (project / "README.md").read_text() == "edited again meanwhile\n"
    assert (project / "idea").read_text() == "the person's new file\n"


def test_a_rename_is_undone_completely(manager: CheckpointManager, project: Path) -> None:
    (project / "old-name").write_text("".join(f"line {n}\n" for n in range(200)))
    target = checkpoint(manager, project)
    original = manifest(project)
    os.rename(project / "old-name", project / "new-name")
    os.rename(project / "src", project / "source")
    result = manager.restore(project, target.id)
    assert manifest(project) == original
    assert result.written == ("old-name", "src/main.py")
    assert result.deleted == ("new-name", "source/main.py")


@pytest.mark.parametrize(
    ("chosen", "others"),
    [
        ("report[1].dat", ["report1.dat"]),
        ("*", ["a", "b"]),
        ("?", ["a", "b"]),
        (":(glob)**", ["a"]),
        (":!a", ["a", "b"]),
        ("-rf", ["a"]),
        ("a\\", ["a"]),
    ],
)
def test_a_name_with_wildcards_means_only_itself(
    manager: CheckpointManager, project: Path, chosen: str, others: list[str]
) -> None:
    for name in (chosen, *others):
        (project / name).write_text("then\n")
    target = checkpoint(manager, project)
    for name in (chosen, *others):
        (project / name).write_text("now\n")
    result = manager.restore(project, target.id, paths=[chosen])
    assert result.written == (chosen,)
    assert (project / chosen).read_text() == "then\n"
    assert [(project / name).read_text() for name in others] == ["now\n"] * len(others)
    (project / chosen).unlink()
    manager.restore(project, target.id, paths=[chosen])
    assert (project / chosen).read_text() == "then\n"


def test_a_read_only_directory_never_leaves_the_tree_half_restored(
    as_user: Callable[..., Any], base: Path, project: Path
) -> None:
    """The directory belongs to another user: its bits cannot be changed either."""
    manager = CheckpointManager(base=base, fsync=False)
    (project / "theirs").mkdir()
    for name in ("a", "theirs/b", "z"):
        (project / name).write_text("then\n")
    target = as_user(checkpoint, manager, project)
    for name in ("a", "theirs/b", "z"):
        (project / name).write_text("now\n")
    (project / "theirs").chmod(0o555)
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    os.chown(project / "theirs", 1, 1)

    def story() -> str:
        picture, times = manifest(project), mtimes(project)
        with pytest.raises(ShadowsnapError) as caught:
            CheckpointManager(base=base, fsync=False).restore(project, target.id)
        assert manifest(project) == picture and mtimes(project) == times
        return str(caught.value)

    assert "put back" in as_user(story)


def test_restoring_needs_no_clean_and_leaves_no_stash(manager: CheckpointManager, project: Path) -> None:
    """Untracked and ignored files of their repository survive a restore that has nothing to do with them."""
    git(project, "init")
    (project / ".gitignore").write_text("ignored/\n")
    git(project, "add", ".gitignore", "README.md")
    git(project, "commit", "-m", "first")
    target = checkpoint(manager, project)
    (project / "ignored").mkdir()
    (project / "ignored" / "file").write_text("never captured\n")
    (project / "README.md").write_text("changed\n")
    manager.restore(project, target.id)
    assert (project / "ignored" / "file").read_text() == "never captured\n"
    assert (project / "src" / "main.py").exists()
    assert git(project, "stash", "list") == ""


def test_a_dry_run_writes_nothing(manager: CheckpointManager, project: Path, base: Path) -> None:
    target = checkpoint(manager, project)
    (project / "README.md").write_text("changed\n")
    before, store = manifest(project), store_picture(base)
    manager.restore(project, target.id, dry_run=True)
    assert manifest(project) == before and store_picture(base) == store
