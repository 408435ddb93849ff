"""The first snapshot of a git checkout starts from the person's index and objects, and is the
same, object for object, as one that reads every file."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.engine import files, seed
from shadowsnap.engine.firstlook import FirstLook
from shadowsnap.engine.rules import SECRET_NAMES, is_secret, secrets_among
from shadowsnap.git import runner
from shadowsnap.git.theirindex import read_their_index
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


def index_that_says_executable(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "update-index", "--chmod=+x", "src/file8.txt")
    (where / "src/file9.txt").chmod(0o755)
    git(where, "-c", "core.fileMode=false", "update-index", "-q", "--refresh")
    return where


def folder_behind_a_link(top: Path, where: Path) -> Path:
    checkout(where)
    (where / "src/.env").write_text("KEY=1\n")
    git(where, "add", "-f", "src/.env")
    settle(where)
    (where / "src").rename(top / "elsewhere")  # which changes nothing about its files
    (where / "src").symlink_to(top / "elsewhere")
    return where


def files_that_became_folders(top: Path, where: Path) -> Path:
    secrets_and_large_files(top, where)
    for name in (".env", "large.bin", "src/file5.txt"):
        (where / name).unlink()
        (where / name).mkdir()
        (where / name / "inside").write_text("new\n")
    (where / "link").unlink()
    git(where, "init", "-q", "link")
    (where / "link/inside").write_text("in a repository of its own\n")
    return where


def folders_that_lost_their_files(top: Path, where: Path) -> Path:
    checkout(where)
    for name in ("plain/a.txt", "secret/.env", "large/large.bin", "build/made.txt", "kept/.env"):
        (where / name).parent.mkdir()
        (where / name).write_bytes(os.urandom(3 << 20) if name.endswith(".bin") else b"x\n")
    git(where, "add", "-f", "-A")
    git(where, "commit", "-q", "-m", "x")
    settle(where)
    for name in ("plain/a.txt", "secret/.env", "large/large.bin", "build/made.txt"):
        (where / name).unlink()
    return where


def rules_that_hide_themselves(top: Path, where: Path) -> Path:
    checkout(where)
    (where / "src/.gitignore").write_text(".gitignore\n*.made\n")
    (where / "src/a.made").write_text("ignored\n")
    (where / "src/b.txt").write_text("untracked\n")
    return where


def conversion_that_is_over(top: Path, where: Path) -> Path:
    checkout(where)
    git(where, "config", "core.autocrlf", "true")
    (where / "src/file6.txt").unlink()
    git(where, "checkout", "-q", "src/file6.txt")
    settle(where)
    git(where, "config", "--unset", "core.autocrlf")
    assert b"\r\n" in (where / "src/file6.txt").read_bytes()
    assert git(where, "status", "--porcelain") == ""
    return where


def index_without_nanoseconds(top: Path, where: Path) -> Path:
    """As some other programs write it."""
    checkout(where)

    def forget(data: bytearray, start: int, path: bytes) -> None:
        data[start + 4 : start + 8] = data[start + 12 : start + 16] = bytes(4)

    rewrite_index(where / ".git/index", forget)
    assert git(where, "status", "--porcelain") == ""
    return where


def written_in_the_tick_of_the_index(top: Path, where: Path) -> Path:
    """Where the clock of the file system is too coarse to tell a file from what it was before."""
    checkout(where)
    index, target = where / ".git/index", where / "src/file9.txt"
    target.write_text(target.read_text().replace("text", "TEXT"))
    seen = target.stat()

    def pretend(data: bytearray, start: int, path: bytes) -> None:
        if path == b"src/file9.txt":
            times = [part for time in (seen.st_ctime_ns, seen.st_mtime_ns) for part in divmod(time, 10**9)]
            data[start : start + 16] = struct.pack(">IIII", *times)

    rewrite_index(index, pretend)
    os.utime(index, ns=(seen.st_mtime_ns, seen.st_mtime_ns))
    return where


def rewrite_index(index: Path, change: Callable[[bytearray, int, bytes], None]) -> None:
    """Change each entry where it stands; the file keeps its time."""
    seen, data = index.stat(), bytearray(index.read_bytes())
    theirs = read_their_index(bytes(data))
    for path, start in zip(theirs.paths, theirs.starts, strict=True):
        change(data, start, path)
    index.write_bytes(data[:-20] + hashlib.sha1(data[:-20]).digest())
    os.utime(index, ns=(seen.st_mtime_ns, seen.st_mtime_ns))


def names_of_any_length(top: Path, where: Path) -> Path:
    checkout(where)
    for length in (1, 2, 7, 8, 9, 200):
        (where / ("n" * length)).write_text(f"{length}\n")
    deep = where / Path(*["d" * 200] * 18)  # a name of more than 4,095 bytes has another form in an index
    for number in range(300):
        (where / f"many{number}").write_text(f"{number}\n")
    deep.mkdir(parents=True)
    (deep / "far.txt").write_text("far down\n")
    git(where, "add", "-A")
    settle(where)
    return where


SHAPES = [
    packed, loose, with_local_changes, linked_worktree, index_of_version_4, split_index, sparse, sparse_index,
    with_submodule, amid_a_merge, with_alternates, shallow, partial_clone, sha256, converted_line_endings,
    filter_of_equal_size, corrupt_index, corrupt_pack, ignored_but_tracked, with_rules_just_changed,
    secrets_and_large_files, index_that_says_executable, folder_behind_a_link, files_that_became_folders,
    folders_that_lost_their_files, rules_that_hide_themselves, conversion_that_is_over, index_without_nanoseconds,
    written_in_the_tick_of_the_index, names_of_any_length,
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
@pytest.mark.parametrize("prepare", [index_without_nanoseconds, linked_worktree, rules_that_hide_themselves])
def test_nothing_tracked_is_read_where_nothing_changed(
    prepare: Prepare, tmp_path: Path, read_paths: list[bytes]
) -> None:
    where = prepare(tmp_path, tmp_path / "project")
    taken(tmp_path / "base", where)
    assert set(read_paths) <= {b"src/b.txt"}


@pytest.mark.shortcut
def test_git_is_asked_three_things_at_once_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = packed(tmp_path, tmp_path / "project")
    monkeypatch.setattr(runner, "processes_started", 0)
    taken(tmp_path / "base", where)
    assert runner.processes_started == 3


@pytest.mark.shortcut
def test_a_change_right_after_the_look_is_seen_by_the_next_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although git, which compares times by the second, may not see it."""
    where = checkout(tmp_path / "project")
    target, original = where / "src/file9.txt", seed.look_at_files
    target.touch()
    git(where, "update-index", "-q", "--refresh")
    os.utime(where / ".git/index", (4_000_000_000, 4_000_000_000))
    edited = target.read_text().replace("text", "TEXT")

    def change_behind(*arguments: Any) -> FirstLook:
        found = original(*arguments)
        target.write_text(edited)
        return found

    monkeypatch.setattr(seed, "look_at_files", change_behind)
    manager = CheckpointManager(base=tmp_path / "base")
    manager.snapshot(where)
    later = manager.snapshot(where).checkpoint
    assert later is not None
    target.write_text("lost\n")
    manager.restore(where, later.id)
    assert target.read_text() == edited


@pytest.mark.shortcut
def test_large_packs_are_linked_and_small_ones_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = packed(tmp_path, tmp_path / "project")
    (theirs,) = (where / ".git/objects/pack").glob("*.pack")
    taken(tmp_path / "copied", where)
    assert theirs.stat().st_nlink == 1
    monkeypatch.setattr("shadowsnap.engine.share._WORTH_LINKING", 0)
    taken(tmp_path / "linked", where)
    assert theirs.stat().st_nlink == 2
    assert (tmp_path / "linked/store/objects/pack" / theirs.name).stat().st_ino == theirs.stat().st_ino


def test_where_links_are_impossible_objects_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = loose(tmp_path, tmp_path / "project")
    before = manifest(where)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("shadowsnap.engine.share.os.link", refuse)
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


@pytest.mark.parametrize("others", [[], [b"src/.ENV.local"]], ids=["most", "all"])
def test_secrets_among_many_names_are_those_that_each_name_is(others: list[bytes]) -> None:
    names = [name.replace("*", letters) for name in SECRET_NAMES for letters in ("", "x", "example")]
    names = [name + end for name in names for end in ("", ".md", "c")]
    paths = [f"{folder}{name}".encode() for folder in ("", "a/B/") for name in names]
    paths = [path for path in paths if others or b".env." not in path] + [path.upper() for path in paths[:9]]
    found = secrets_among([*paths, *others, b"a", b""])
    assert found == [path for path in (*paths, *others) if is_secret(path)]
    assert len(found) > 20


def _filtered(where: Path, attributes: str = "*.c filter=rot\n") -> Path:
    """A checkout in which git holds other bytes than the file, of the same length."""
    where.mkdir(parents=True)
    git(where, "init", "-q", "-b", "main")
    git(where, "config", "filter.rot.clean", "tr a-m n-z")
    git(where, "config", "filter.rot.smudge", "tr n-z a-m")
    (where / ".gitattributes").write_text(attributes)
    (where / "a.c").write_text("abcdef\n")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "first")
    assert git(where, "cat-file", "blob", "HEAD:a.c") == "nopqrs"
    return where


def _attributes_gone(where: Path) -> None:
    (where / ".gitattributes").unlink()


def _attributes_gone_for_good(where: Path) -> None:
    git(where, "rm", "-q", ".gitattributes")
    git(where, "commit", "-q", "-m", "without")


def _attributes_untracked(where: Path) -> None:
    git(where, "rm", "-q", "--cached", ".gitattributes")
    (where / ".git/info/exclude").write_text(".gitattributes\n")


def _settings_included(where: Path) -> None:
    _attributes_gone_for_good(where)
    config = where / ".git/config"
    (where / ".git/more").write_text("[filter" + config.read_text().split("[filter")[1])
    config.write_text(config.read_text().split("[filter")[0] + "[include]\n\tpath = more\n")


@pytest.mark.parametrize(
    "hide", [_attributes_gone, _attributes_gone_for_good, _attributes_untracked, _settings_included]
)
def test_a_filter_that_nobody_mentions_any_more_makes_no_difference(
    hide: Callable[[Path], None], tmp_path: Path
) -> None:
    where = _filtered(tmp_path / "repo")
    hide(where)
    settle(where)
    checkpoint = taken(tmp_path / "base", where)
    assert git(tmp_path / "base" / "store", "cat-file", "blob", f"{checkpoint.id}:a.c") == "abcdef"


def test_an_expanded_id_is_read_from_the_file(tmp_path: Path) -> None:
    """The blob may hold an older one, of the same length."""
    where = tmp_path / "repo"
    where.mkdir()
    git(where, "init", "-q", "-b", "main")
    (where / "a.c").write_text(f"$Id: {'0' * 40} $\n")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "first")
    (where / ".gitattributes").write_text("*.c ident\n")
    git(where, "add", "-A")
    git(where, "commit", "-q", "-m", "second")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(where), str(clone))
    settle(clone)
    text = (clone / "a.c").read_text()
    assert "0" * 40 not in text
    checkpoint = taken(tmp_path / "base", clone)
    assert git(tmp_path / "base" / "store", "cat-file", "blob", f"{checkpoint.id}:a.c") == text.strip()


def test_the_filter_of_git_lfs_alone_costs_nobody_the_start(tmp_path: Path) -> None:
    where = checkout(tmp_path / "repo")
    git(where, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    assert seed._is_plain(_repository(where))
    git(where, "config", "filter.other.clean", "cat")
    assert not seed._is_plain(_repository(where))


def _repository(where: Path) -> Any:
    from shadowsnap.engine.person import find_repository

    return find_repository(where)
