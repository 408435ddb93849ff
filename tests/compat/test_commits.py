"""Commits of any repository: reading their files, finding them by a trailer, adding one."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import git
from shadowsnap.compat.commits import Folder, commit_files, commits_with_trailer, with_parents
from shadowsnap.errors import DamagedObject, GitFailed
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git, usable_git

REF = "refs/notes-of-a-tool/one"


@pytest.fixture
def repository(tmp_path: Path) -> Git:
    git(tmp_path, "init", "-q", "--bare", "it.git")
    return Git(usable_git(), tmp_path / "it.git")


def shown(repository: Git, what: str = REF) -> list[str]:
    return git(repository.git_dir, "ls-tree", "-r", "--name-only", what).splitlines()


def test_a_commit_with_files_is_added_to_a_ref(repository: Git) -> None:
    commit_files(repository, REF, {"a/b.txt": b"one\n", "c": b""}, "first\n\nKey: value\n", 1_700_000_000)
    commit_files(repository, REF, {"a/d.txt": b"two\n"}, "second\n", 1_700_000_001)
    assert shown(repository) == ["a/b.txt", "a/d.txt", "c"]
    log = git(repository.git_dir, "log", "--format=%s %ct", REF)
    assert log.splitlines() == ["second 1700000001", "first 1700000000"]
    git(repository.git_dir, "fsck", "--strict")
    commit_files(repository, REF, {"only": b"this"}, "third\n", 1_700_000_002, keep=False)
    assert shown(repository) == ["only"] and shown(repository, f"{REF}~1") == ["a/b.txt", "a/d.txt", "c"]


def test_nothing_is_added_where_nothing_would_change(repository: Git) -> None:
    for keep in (True, False):
        commit_files(repository, REF, {"a": b"one\n"}, "first\n", 1, keep=keep)
    assert git(repository.git_dir, "rev-list", "--count", REF) == "1"


def test_a_new_ref_goes_on_from_another_commit(repository: Git) -> None:
    commit_files(repository, "refs/remotes/origin/x", {"a": b"theirs\n"}, "first\n", 1)
    tip = git(repository.git_dir, "rev-parse", "refs/remotes/origin/x")
    for name in ("b", "c"):
        commit_files(repository, REF, {name: b"ours\n"}, f"{name}\n", 2, onto=tip)
    assert git(repository.git_dir, "rev-parse", f"{REF}~2") == tip and shown(repository) == ["a", "b", "c"]


def test_what_another_process_writes_meanwhile_is_not_overwritten(repository: Git) -> None:
    commit_files(repository, REF, {"a": b"one\n"}, "first\n", 1)
    lock = repository.git_dir / f"{REF}.lock"
    lock.touch()
    with pytest.raises(GitFailed):
        commit_files(repository, REF, {"a": b"two\n"}, "second\n", 2)
    lock.unlink()
    assert git(repository.git_dir, "show", f"{REF}:a") == "one"


def test_the_folders_of_a_commit_are_read(repository: Git) -> None:
    files = {"top.txt": b"top", "a/one": b"1", "a/b/two": b"2", "\udce9": b"odd name"}
    commit_files(repository, REF, files, "first\n", 1)
    commit = git(repository.git_dir, "rev-parse", REF)
    with ObjectReader(repository) as reader:
        top = Folder.of_commit(reader, commit)
        assert set(top.folders) == {"a"} and set(top.files) == {"top.txt", "\udce9"}
        assert top.read("top.txt") == b"top" and top.below("a", "b").read("two") == b"2"
        assert top.read("missing") == b"" and top.below("a", "missing", "deeper").files == {}
        assert top.below("top.txt").files == {}  # a file is no folder
        with pytest.raises(DamagedObject):
            Folder(reader, "1" * 40)
        assert with_parents(reader, commit) == (commit,) and with_parents(reader, "1" * 40) == ()


def test_commits_are_found_by_a_trailer(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "work")
    work = tmp_path / "work"

    def commit(message: str) -> str:
        identity = ("-c", "user.name=p", "-c", "user.email=p@localhost")
        git(work, *identity, "commit", "-q", "--allow-empty", "-m", message)
        return git(work, "rev-parse", "HEAD")

    repository = Git(usable_git(), work / ".git")
    assert commits_with_trailer(repository, "Tool-Id") == {}
    first = commit("none\n\nTool-Id: is not in the last paragraph\n\nend")
    second = commit("one\n\nTool-Id: abc\nOther: x")
    third = commit("two\n\nTool-Id: abc\nTool-Id: def ghi")
    assert commits_with_trailer(repository, "Tool-Id") == {
        "abc": [(third, second), (second, first)], "def": [(third, second)], "ghi": [(third, second)]
    }  # fmt: skip
