"""The first snapshot of a git checkout starts from the person's index and objects, and is the
same, object for object, as one that reads every file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.engine import files
from shadowsnap.model import Checkpoint

Prepare = Callable[[Path, Path], Path]


@pytest.fixture
def read_paths(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Which files were read, as opposed to taken over."""
    seen: list[bytes] = []
    original = files._attempt

    def noting(space: object, path: bytes, limit: int | None) -> object:
        seen.append(path)
        return original(space, path, limit)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "_attempt", noting)
    return seen


def checkout(where: Path) -> Path:
    """A repository with history, directories, a link and an executable, long settled."""
    where.mkdir(parents=True)
    git(where, "init", "-q", "-b", "main")
    (where / "src/deep").mkdir(parents=True)
    for number in range(40):
        (where / f"src/file{number}.txt").write_text(f"text {number}\n" * 20)
    (where / "src/deep/run.sh").write_text("#!/bin/sh\n")
    (where / "src/deep/run.sh").chmod(0o755)
    (where / "link").symlink_to("src/file1.txt")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "first")
    (where / "src/file1.txt").write_text("second version\n")
    git(where, "commit", "-q", "-a", "-m", "second")
    settle(where)
    return where


def settle(where: Path) -> None:
    """Make every file older than the index, so that git need not doubt it."""
    for path in where.rglob("*"):
        if ".git" not in path.relative_to(where).parts and not path.is_symlink():
            os.utime(path, (1_600_000_000, 1_600_000_000))
    git(where, "update-index", "-q", "--refresh")
    # The clock of the file system may be a tick behind the files' change times.
    index = Path(git(where, "rev-parse", "--git-path", "index").strip())
    os.utime(where / index, (4_000_000_000, 4_000_000_000))


def taken(base: Path, where: Path, **settings: object) -> Checkpoint:
    outcome = CheckpointManager(base=base, **settings).ensure_checkpoint(where)  # type: ignore[arg-type]
    assert outcome.status == "taken", outcome.error
    assert outcome.checkpoint is not None
    return outcome.checkpoint


def told(checkpoint: Checkpoint) -> tuple[object, ...]:
    facts = {name: checkpoint.metadata.get(name) for name in ("modes", "empty_dirs", "excludes")}
    return checkpoint.tree, checkpoint.skipped, facts


def packed(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "gc", "-q")
    return where


def loose(top: Path, where: Path) -> Path:
    return checkout(where)


def with_local_changes(top: Path, where: Path) -> Path:
    checkout(where)
    (where / "src/file2.txt").write_text("edited\n")
    (where / "src/file3.txt").unlink()
    (where / "untracked.txt").write_text("new\n")
    (where / "staged.txt").write_text("staged\n")
    git(where, "add", "staged.txt")
    (where / "src/file4.txt").chmod(0o600)
    (where / "empty/inner").mkdir(parents=True)
    return where


def linked_worktree(top: Path, where: Path) -> Path:
    main = checkout(top / "main")
    git(main, "worktree", "add", "-q", str(where), "-b", "side")
    settle(where)
    return where


def index_of_version_4(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "update-index", "--index-version", "4")
    return where


def split_index(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "update-index", "--split-index")
    (where / "src/file5.txt").write_text("edited after the split\n")
    git(where, "add", "src/file5.txt")
    return where


def sparse(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "sparse-checkout", "init", "--cone")
    git(where, "sparse-checkout", "set", "src/deep")
    return where


def sparse_index(top: Path, where: Path) -> Path:
    sparse(top, where)
    git(where, "sparse-checkout", "init", "--cone", "--sparse-index")
    return where


def with_submodule(top: Path, where: Path) -> Path:
    checkout(where)
    other = checkout(top / "other")
    git(where, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    git(where, "commit", "-q", "-m", "submodule")
    return where


def amid_a_merge(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "checkout", "-q", "-b", "side", "HEAD~1")
    (where / "src/file1.txt").write_text("another second version\n")
    git(where, "commit", "-q", "-a", "-m", "side")
    with pytest.raises(AssertionError):
        git(where, "merge", "main")
    return where


def with_alternates(top: Path, where: Path) -> Path:
    main = checkout(top / "main")
    git(top, "clone", "-q", "--shared", str(main), str(where))
    return where


def shallow(top: Path, where: Path) -> Path:
    main = checkout(top / "main")
    git(top, "clone", "-q", "--depth=1", f"file://{main}", str(where))
    return where


def partial_clone(top: Path, where: Path) -> Path:
    main = checkout(top / "main")
    git(main, "config", "uploadpack.allowFilter", "true")
    git(top, "clone", "-q", "--filter=blob:none", f"file://{main}", str(where))
    return where


def sha256(top: Path, where: Path) -> Path:
    where.mkdir()
    git(where, "init", "-q", "--object-format=sha256")
    (where / "a.txt").write_text("a\n")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "x")
    return where


def converted_line_endings(top: Path, where: Path) -> Path:
    where.mkdir()
    git(where, "init", "-q")
    (where / ".gitattributes").write_text("*.txt text eol=crlf\n*.id ident\n")
    (where / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    (where / "b.id").write_text("$Id$\n")
    (where / "c.bin").write_bytes(bytes(range(256)))
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "x")
    (where / "b.id").unlink()
    git(where, "checkout", "-q", "b.id")
    assert (where / "b.id").read_text() != "$Id$\n"
    return where


def filter_of_equal_size(top: Path, where: Path) -> Path:
    where.mkdir()
    git(where, "init", "-q")
    git(where, "config", "filter.swap.clean", "tr a-z n-za-m")
    git(where, "config", "filter.swap.smudge", "tr n-za-m a-z")
    (where / ".gitattributes").write_text("*.txt filter=swap\n")
    (where / "a.txt").write_text("abcdef\n")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "x")
    return where


def corrupt_index(top: Path, where: Path) -> Path:
    checkout(where)
    index = where / ".git/index"
    index.write_bytes(index.read_bytes()[:200])
    return where


def corrupt_pack(top: Path, where: Path) -> Path:
    packed(top, where)
    (pack,) = (where / ".git/objects/pack").glob("*.idx")
    pack.chmod(0o644)
    pack.write_bytes(b"\0" * 100)
    return where


def ignored_but_tracked(top: Path, where: Path) -> Path:
    checkout(where)
    (where / "build").mkdir()
    (where / "build/source.c").write_text("int x;\n")
    (where / ".gitignore").write_text("*.local\n")
    (where / "kept.local").write_text("tracked although ignored\n")
    (where / "left.local").write_text("ignored\n")
    git(where, "add", "-f", "build/source.c", "kept.local", ".gitignore")
    git(where, "commit", "-q", "-m", "x")
    settle(where)
    return where


def with_rules_just_changed(top: Path, where: Path) -> Path:
    ignored_but_tracked(top, where)
    (where / ".gitignore").write_text("*.local\nsrc/file7.txt\n*.other\n")
    (where / "x.other").write_text("ignored now\n")
    return where


def secrets_and_large_files(top: Path, where: Path) -> Path:
    checkout(where)
    (where / ".env").write_text("KEY=1\n")
    (where / "large.bin").write_bytes(os.urandom(3 << 20))
    git(where, "add", "-f", "-A")
    git(where, "commit", "-q", "-m", "x")
    settle(where)
    return where


SHAPES = [
    packed, loose, with_local_changes, linked_worktree, index_of_version_4, split_index, sparse, sparse_index,
    with_submodule, amid_a_merge, with_alternates, shallow, partial_clone, sha256, converted_line_endings,
    filter_of_equal_size, corrupt_index, corrupt_pack, ignored_but_tracked, with_rules_just_changed,
    secrets_and_large_files,
]  # fmt: skip


@pytest.mark.parametrize("prepare", SHAPES, ids=lambda prepare: prepare.__name__)
def test_it_is_the_same_as_reading_every_file(prepare: Prepare, tmp_path: Path) -> None:
    where = prepare(tmp_path, tmp_path / "project")
    seeded = taken(tmp_path / "base1", where, max_file_size_mb=2)
    ordinary = taken(tmp_path / "base2", where, max_file_size_mb=2, start_from_checkout=False)
    assert told(seeded) == told(ordinary)


@pytest.mark.parametrize("prepare", SHAPES, ids=lambda prepare: prepare.__name__)
def test_nothing_in_their_repository_changes(prepare: Prepare, tmp_path: Path) -> None:
    where = prepare(tmp_path, tmp_path / "project")
    repositories = [path.parent for path in tmp_path.glob("*/.git")]
    before = [snapshot_dotgit(each) for each in repositories]
    taken(tmp_path / "base", where)
    assert [snapshot_dotgit(each) for each in repositories] == before


@pytest.mark.parametrize("prepare", [packed, loose, with_local_changes, linked_worktree, split_index, sparse])
def test_the_checkpoint_survives_the_loss_of_the_whole_repository(prepare: Prepare, tmp_path: Path) -> None:
    where = prepare(tmp_path, tmp_path / "project")
    before = manifest(where)
    checkpoint = taken(tmp_path / "base", where)
    for path in (where, tmp_path / "main"):
        shutil.rmtree(path, ignore_errors=True)
    where.mkdir()
    CheckpointManager(base=tmp_path / "base").restore(where, checkpoint.id)
    assert manifest(where) == before


def test_the_checkpoint_survives_gc_and_a_rewritten_history(tmp_path: Path) -> None:
    where = packed(tmp_path, tmp_path / "project")
    before = manifest(where)
    checkpoint = taken(tmp_path / "base", where)
    git(where, "checkout", "-q", "--orphan", "fresh")
    git(where, "rm", "-q", "-r", "-f", ".")
    (where / "only").write_text("all that is left\n")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "rewritten")
    git(where, "branch", "-q", "-D", "main")
    git(where, "reflog", "expire", "--expire=now", "--all")
    git(where, "gc", "-q", "--prune=now")
    CheckpointManager(base=tmp_path / "base").restore(where, checkpoint.id)
    assert manifest(where) == before


@pytest.mark.shortcut
def test_unchanged_files_are_not_read_again(tmp_path: Path, read_paths: list[bytes]) -> None:
    where = with_local_changes(tmp_path, tmp_path / "project")
    taken(tmp_path / "base", where)
    assert {b"src/file2.txt", b"untracked.txt"} <= set(read_paths)
    assert not {b"src/file6.txt", b"src/deep/run.sh"} & set(read_paths)


@pytest.mark.shortcut
def test_large_packs_are_linked_and_small_ones_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = packed(tmp_path, tmp_path / "project")
    (theirs,) = (where / ".git/objects/pack").glob("*.pack")
    taken(tmp_path / "copied", where)
    assert theirs.stat().st_nlink == 1
    monkeypatch.setattr("shadowsnap.engine.seed._WORTH_LINKING", 0)
    taken(tmp_path / "linked", where)
    assert theirs.stat().st_nlink == 2
    assert (tmp_path / "linked/store/objects/pack" / theirs.name).stat().st_ino == theirs.stat().st_ino


def test_where_links_are_impossible_objects_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = loose(tmp_path, tmp_path / "project")
    before = manifest(where)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("shadowsnap.engine.seed.os.link", refuse)
    checkpoint = taken(tmp_path / "base", where)
    monkeypatch.undo()
    shutil.rmtree(where)
    where.mkdir()
    CheckpointManager(base=tmp_path / "base").restore(where, checkpoint.id)
    assert manifest(where) == before


def test_a_file_changed_in_the_second_of_their_last_command_is_read(tmp_path: Path) -> None:
    where = checkout(tmp_path / "project")
    index = where / ".git/index"
    target = where / "src/file9.txt"
    same_length = target.read_text().replace("text", "TEXT")
    seen = target.stat()
    target.write_text(same_length)
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    os.utime(index, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    checkpoint = taken(tmp_path / "base", where)
    manager = CheckpointManager(base=tmp_path / "base")
    target.write_text("lost\n")
    manager.restore(where, checkpoint.id)
    assert target.read_text() == same_length


def test_a_failed_start_leaves_none_of_their_objects_behind(tmp_path: Path) -> None:
    where = corrupt_pack(tmp_path, tmp_path / "project")
    taken(tmp_path / "base", where)
    theirs = {path.name for path in (where / ".git/objects/pack").iterdir()}
    ours = {path.name for path in (tmp_path / "base/store/objects/pack").iterdir()}
    assert not theirs & ours


def test_a_repository_that_is_gone_tracks_nothing_any_more(tmp_path: Path) -> None:
    """As after an ordinary first snapshot."""
    trees = []
    for name, seeded in (("seeded", True), ("ordinary", False)):
        project = checkout(tmp_path / name)
        (project / "build").mkdir()
        (project / "build" / "made").write_text("excluded by default, but tracked\n")
        git(project, "add", "-f", "-A")
        manager = CheckpointManager(base=tmp_path / f"base-{name}", start_from_checkout=seeded)
        first = manager.snapshot(project).checkpoint
        assert first is not None and "build/made" in manager.files(project, first.id)
        shutil.rmtree(project / ".git")
        second = manager.snapshot(project).checkpoint
        assert second is not None
        trees.append(sorted(manager.files(project, second.id)))
    assert trees[0] == trees[1]
    assert "build/made" not in trees[0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_excluded_directory_that_lost_its_tracked_files_is_not_captured(tmp_path: Path, when: str) -> None:
    """As after an ordinary first snapshot."""
    known = []
    for name, seeded in (("seeded", True), ("ordinary", False)):
        project = checkout(tmp_path / name)
        (project / "build").mkdir()
        (project / "build" / "made").write_text("excluded by default, but tracked\n")
        git(project, "add", "-f", "-A")
        manager = CheckpointManager(base=tmp_path / f"base-{name}", start_from_checkout=seeded)
        if when == "after":
            manager.snapshot(project)
        (project / "build" / "made").unlink()
        checkpoint = manager.snapshot(project).checkpoint
        assert checkpoint is not None
        known.append(checkpoint.metadata.get("empty_dirs"))
    assert known == [None, None]
