"""fork: a state in a new directory, exact, with a timeline of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import ask, run_command

from helpers import git, loose_object, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager


@pytest.fixture
def manager(project: Path, base: Path) -> CheckpointManager:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    (project / "hollow" / "deep").mkdir(parents=True)
    (project / "closed").mkdir()
    (project / "closed" / "file").write_text("closed\n")
    (project / "closed").chmod(0o555)
    (project / b"odd\xff name\n".decode("utf-8", "surrogateescape")).write_bytes(b"\r\n$Id$\r\n")
    (project / ".gitattributes").write_text("* text=auto eol=crlf ident filter=none\n")
    manager.new_turn("s1", prompt="clean up", agent="claude")
    manager.ensure_checkpoint(project)
    return manager


def test_a_fork_is_the_exact_state(manager: CheckpointManager, project: Path, base: Path, tmp_path: Path) -> None:
    before = manifest(project)
    (project / "README.md").unlink()
    (project / "run.sh").chmod(0o600)
    manager.end_turn()
    now = manifest(project)
    found = ask(project, base, "fork", "1", str(tmp_path / "copy"))
    assert manifest(tmp_path / "copy") == before
    assert manifest(project) == now
    (fork,) = found["forks"]
    assert fork["directory"] == str(tmp_path / "copy")
    assert fork["file_count"] == sum(kind != "dir" for kind, _, _ in before.values())


def test_its_timeline_begins_there_and_knows_where_it_came_from(
    manager: CheckpointManager, project: Path, base: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "new" / "copy"
    (fork,) = ask(project, base, "fork", "1", str(copy))["forks"]
    origin = manager.get(project, 1)
    assert fork["forked_from"] == {"workdir": str(project), "checkpoint": origin.id, "number": 1}
    (entry,) = manager.timeline(copy)
    assert (entry.number, entry.kind) == (1, "snapshot")
    assert entry.reason == f"fork of {project}, before turn 1"
    first = manager.get(copy, 1)
    assert (first.id, first.tree) == (fork["checkpoint_id"], origin.tree)
    assert first.metadata["forked_from"] == fork["forked_from"]
    (copy / "README.md").write_text("something else\n")
    manager.restore(copy, 1)
    assert (copy / "README.md").read_text() == "# A project\n"


def test_ignored_files_that_a_tool_named_come_along(project: Path, base: Path, tmp_path: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    (project / ".gitignore").write_text("*.log\n")
    (project / "named.log").write_text("1\n")
    (project / "other.log").write_text("2\n")
    manager.snapshot(project, paths=["named.log"])
    ask(project, base, "fork", "1", str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "named.log").read_text() == "1\n"
    assert not (tmp_path / "copy" / "other.log").exists()
    assert manager.get(tmp_path / "copy", 1).tree == manager.get(project, 1).tree


def test_what_a_fork_lacks_is_said(project: Path, base: Path, tmp_path: Path) -> None:
    (project / "large.bin").write_bytes(b"\0" * 2_000_000)
    CheckpointManager(base=base, background_upkeep=False, max_file_size_mb=1).ensure_checkpoint(project)
    ran = run_command(project, base, "fork", "1", str(tmp_path / "copy"))
    assert not (tmp_path / "copy" / "large.bin").exists()
    assert ran.stdout.endswith(b"\n  not captured, so not in it: large.bin (too-large)\n")


def test_several_forks_at_once(manager: CheckpointManager, project: Path, base: Path, tmp_path: Path) -> None:
    forks = ask(project, base, "fork", "1", "../copy", "-n", "3")["forks"]
    assert [fork["directory"] for fork in forks] == [str(tmp_path / f"copy-{number}") for number in (1, 2, 3)]
    assert all(manifest(fork["directory"]) == manifest(project) for fork in forks)
    text = run_command(project, base, "fork", "last", "../more", "-n", "1").stdout.decode()
    assert text == f"forked to {tmp_path}/more-1: 10 files\n"


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_directory_that_is_not_empty_is_refused(
    manager: CheckpointManager, project: Path, base: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy-2").mkdir()
    (tmp_path / "copy-2" / "mine").write_text("mine\n")
    (tmp_path / "file").write_text("a file\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("copy-2")
    before = manifest(tmp_path / "copy-2")
    for name in ("copy-2", "file", "link"):
        error = ask(project, base, "fork", "1", str(tmp_path / name), code=4)["error"]
        assert error["type"] == "ForkRefused" and "nothing was written" in error["message"]
    assert ask(project, base, "fork", "1", str(tmp_path / "copy"), "-n", "3", code=4)["error"]
    assert manifest(tmp_path / "copy-2") == before
    assert not (tmp_path / "copy-1").exists() and not (tmp_path / "copy-3").exists()
    assert ask(project, base, "fork", "1", str(base / "inside"), code=4)["error"]["type"] == "ForkRefused"
    assert not (base / "inside").exists()
    ask(project, base, "fork", "1", str(tmp_path / "empty"))
    assert manifest(tmp_path / "empty") == manifest(project)


def test_a_fork_that_fails_leaves_nothing(manager: CheckpointManager, project: Path, base: Path) -> None:
    (project / "data.bin").write_bytes(b"only here" * 1000)
    taken = manager.snapshot(project).checkpoint
    assert taken is not None
    blob = git(base / "store", "rev-parse", f"{taken.id}:data.bin")
    loose_object(base / "store", blob).unlink()
    copy = project.parent / "copy"
    answer = ask(project, base, "fork", taken.id, str(copy), code=1)
    assert answer["error"]["type"] == "DamagedObject"
    assert not copy.exists()


def test_wrong_words_are_explained(manager: CheckpointManager, project: Path, base: Path, tmp_path: Path) -> None:
    assert ask(project, base, "fork", "1", "../x", "-n", "0", code=2)["error"]["type"] == "WrongUsage"
    assert ask(project, base, "fork", "99", "../x", code=3)["error"]
    assert ask(project, base, "fork", "1", "../x", "--worktree", code=2)["error"]["type"] == "BadArguments"
    assert not (tmp_path / "x").exists()


# --- work trees of git ------------------------------------------------------------------------------------


def test_a_work_tree_is_on_a_branch_of_its_own(project: Path, base: Path, tmp_path: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    first = git(project, "rev-parse", "HEAD")
    (project / "README.md").write_text("# uncommitted\n")
    (project / "new.txt").write_text("untracked\n")
    (project / "empty").unlink()
    state = manifest(project)
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    git(project, "commit", "-q", "-a", "-m", "second")
    hook = project / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ../../hook-ran\n")
    hook.chmod(0o755)
    forks = ask(project, base, "fork", "1", "../try", "-n", "2", "--worktree")["forks"]
    assert [fork["branch"] for fork in forks] == ["fork/try-1", "fork/try-2"]
    copy = tmp_path / "try-1"
    assert manifest(copy) == state
    assert git(copy, "rev-parse", "HEAD") == first
    assert git(copy, "status", "--porcelain").splitlines() == [" M README.md", " D empty", "?? new.txt"]
    assert git(copy, "branch", "--show-current") == "fork/try-1"
    assert not list(tmp_path.rglob("hook-ran"))
    git(copy, "add", ".")
    git(copy, "commit", "-q", "-m", "another agent's work")
    assert git(project, "log", "--format=%s", "fork/try-1").splitlines() == ["another agent's work", "first"]
    again = ask(project, base, "fork", "1", "../elsewhere/try-1", "--worktree")["forks"][0]
    assert again["branch"] == "fork/try-1-2"


def test_a_work_tree_that_fails_leaves_no_branch(project: Path, base: Path, tmp_path: Path) -> None:
    git(project, "init", "-q")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    manager.snapshot(project)
    answer = ask(project, base, "fork", "1", "../try", "--worktree", code=2)
    assert answer["error"]["message"] == "--worktree needs a repository with a commit"
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    before = snapshot_dotgit(project)
    ask(project, base, "fork", "1", "../plain")
    assert snapshot_dotgit(project) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    ask(project, base, "fork", "1", "../full", "--worktree", code=4)
    assert snapshot_dotgit(project) == before
    assert git(project, "branch", "--list", "fork/*") == ""
