"""The store: made once, by whoever comes first, and mended where git could not work without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import git, manifest
from shadowsnap import CheckpointManager, Settings
from shadowsnap.errors import StoreTooNew, StoreUnusable
from shadowsnap.snapshot.ignore_rules import exclude_file
from shadowsnap.store.layout import FOLDERS, FORMAT, open_store, store_files


def modes(path: Path) -> int:
    return path.stat().st_mode & 0o777


# --- making it --------------------------------------------------------------------------------------


def test_git_takes_a_new_store_for_a_sound_bare_repository(base: Path) -> None:
    store = open_store(Settings(base=base))
    assert store.git_dir == base / "store"
    assert git(store.git_dir, "rev-parse", "--is-bare-repository") == "true"
    assert git(store.git_dir, "fsck", "--strict") == ""
    assert git(store.git_dir, "for-each-ref") == ""
    assert (store.git_dir / "format").read_text() == f"{FORMAT}\n"


@pytest.mark.parametrize("before", [None, 0o755])
def test_only_the_owner_may_look_inside(base: Path, before: int | None) -> None:
    if before is not None:
        base.mkdir(mode=before)
    open_store(Settings(base=base))
    assert modes(base) == 0o700


def test_the_store_is_closed_whatever_the_umask(base: Path) -> None:
    old = os.umask(0)
    try:
        open_store(Settings(base=base / "deeper"))
    finally:
        os.umask(old)
    assert modes(base / "deeper") == 0o700


def test_no_git_is_started_to_make_or_open_a_store(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    open_store(Settings(base=base))
    open_store(Settings(base=base))
    assert (base / "store" / "HEAD").exists()


def test_opening_again_writes_nothing(base: Path) -> None:
    open_store(Settings(base=base))
    before = manifest(base), {path: path.stat().st_mtime_ns for path in base.rglob("*")}
    open_store(Settings(base=base))
    assert (manifest(base), {path: path.stat().st_mtime_ns for path in base.rglob("*")}) == before


def test_many_processes_make_one_store(base: Path, project: Path) -> None:
    """Each waits for the others at the start, makes the store and takes a snapshot of a directory of its own."""
    program = """if True:
        import sys
        from pathlib import Path
        from shadowsnap import CheckpointManager
        base, project = sys.argv[1:]
        manager = CheckpointManager(base=base, fsync=False)
        print("ready", flush=True)
        sys.stdin.readline()
        outcome = manager.ensure_checkpoint(project)
        assert outcome.status == "taken", outcome
        print([found.id for found in manager.list_checkpoints(project)], flush=True)
    """
    runs = []
    for number in range(6):
        own = project.parent / f"project-{number}"
        shutil.copytree(project, own, symlinks=True)
        runs.append(
            subprocess.Popen(
                [sys.executable, "-c", program, str(base), str(own)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
    for run in runs:
        assert run.stdout is not None and run.stdout.readline() == "ready\n"
    for run in runs:
        assert run.stdin is not None
        run.stdin.write("go\n")
        run.stdin.flush()
    ends = [(*run.communicate(timeout=60), run.returncode) for run in runs]
    assert [(err, code) for _, err, code in ends] == [("", 0)] * 6
    assert len({out for out, _, _ in ends}) == 6
    assert git(base / "store", "for-each-ref", "--format=x").count("x") == 6
    assert not list(base.rglob(".*.tmp_*"))


def test_a_base_that_cannot_be_made_is_said_to_be_unusable(tmp_path: Path, project: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnusable, match="file") as caught:
        open_store(Settings(base=tmp_path / "file" / "below"))
    assert "Not a directory" in str(caught.value)
    outcome = CheckpointManager(base=tmp_path / "file", fsync=False).ensure_checkpoint(project)
    assert outcome.status == "failed" and isinstance(outcome.error, StoreUnusable)


def test_a_base_below_a_closed_directory_is_said_to_be_unusable(
    tmp_path: Path, as_user: Callable[..., Any]
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()

    def open_it() -> None:
        closed.chmod(0o500)
        with pytest.raises(StoreUnusable, match="Permission denied"):
            open_store(Settings(base=closed / "base"))

    as_user(open_it)
    assert list(closed.iterdir()) == []


# --- formats ----------------------------------------------------------------------------------------


def test_a_newer_format_is_refused_and_left_as_it_is(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    assert manager.ensure_checkpoint(project).status == "taken"
    (base / "store" / "format").write_text(f"{FORMAT + 1}\n")
    before = manifest(base / "store")
    with pytest.raises(StoreTooNew, match=rf"format {FORMAT + 1}, this one knows {FORMAT}"):
        manager.list_checkpoints(project)
    manager.new_turn()
    (project / "new").touch()
    outcome = manager.ensure_checkpoint(project, paths=["new"])
    assert outcome.status == "refused" and isinstance(outcome.error, StoreTooNew)
    assert manifest(base / "store") == before


def test_a_project_record_of_a_newer_format_is_refused(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (record,) = (base / "store" / "projects").glob("*.json")
    record.write_text('{"format": 99}')
    manager.new_turn()
    (project / "new").touch()
    assert manager.ensure_checkpoint(project).status == "refused"
    assert record.read_text() == '{"format": 99}'


@pytest.mark.parametrize("damage", [b"", b"\0\0", b"\xff", b"one"])
def test_a_damaged_format_file_is_written_anew(base: Path, project: Path, damage: bytes) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.ensure_checkpoint(project)
    (base / "store" / "format").write_bytes(damage)
    assert len(manager.list_checkpoints(project)) == 1
    assert (base / "store" / "format").read_text() == f"{FORMAT}\n"


# --- mending ----------------------------------------------------------------------------------------


def test_the_excludes_are_rewritten_when_they_differ(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, excludes=("*.gen",))
    checkpoint = manager.ensure_checkpoint(project).checkpoint
    assert checkpoint is not None
    shared = base / "store" / "info" / "exclude"
    own = base / "store" / "indexes" / f"{checkpoint.project}.exclude"
    assert own.read_bytes() == exclude_file(["*.gen"])
    # Git lets the shared file win over a project's own, so there is no pattern in it.
    assert all(line.startswith(b"#") for line in shared.read_bytes().splitlines())
    for path, whole in ((shared, shared.read_bytes()), (own, own.read_bytes())):
        for other in (b"*\n", b"", whole + b"more\n"):
            path.write_bytes(other)
            manager.new_turn()
            assert manager.ensure_checkpoint(project).status == "unchanged"
            assert path.read_bytes() == whole


@pytest.mark.parametrize("lost", [
    "refs", "HEAD", "config", "info", "info/attributes", "objects/pack", "objects/info", "indexes", "projects",
    "journal", "locks", "format", "git-version.json",
])  # fmt: skip
def test_the_next_snapshot_works_although_a_piece_of_the_store_is_lost(
    base: Path, project: Path, lost: str
) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    assert manager.ensure_checkpoint(project).status == "taken"
    piece = base / "store" / lost
    shutil.rmtree(piece) if piece.is_dir() else piece.unlink()
    manager.new_turn()
    (project / "new").write_text("new")
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken", outcome.error
    (project / "new").unlink()
    manager.restore(project, "last")
    assert (project / "new").read_text() == "new"
    assert all((base / "store" / name).read_bytes() == content for name, content in store_files().items())
    kept = len(manager.list_checkpoints(project))
    assert kept >= (1 if lost == "refs" else 2)


def test_every_file_and_folder_that_is_told_is_there(base: Path) -> None:
    store = open_store(Settings(base=base))
    assert all((store.git_dir / folder).is_dir() for folder in FOLDERS)
    assert all((store.git_dir / name).read_bytes() == content for name, content in store_files().items())


# --- exact bytes ------------------------------------------------------------------------------------


def test_no_attribute_of_a_tree_converts_anything(base: Path, tmp_path: Path) -> None:
    store, tree = open_store(Settings(base=base)), tmp_path / "tree"
    tree.mkdir()
    (tree / ".gitattributes").write_text("* text eol=crlf ident filter=x working-tree-encoding=UTF-16\n")
    (tree / "file").write_bytes(b"a\r\nb\n$Id$\n")
    bound = store.git().bound(work_tree=tree, index_file=tmp_path / "index")
    bound.run("add", "file")
    assert bound.run("cat-file", "blob", ":file") == b"a\r\nb\n$Id$\n"
    bound.run("checkout-index", "--prefix=out/", "file")
    assert (tree / "out" / "file").read_bytes() == b"a\r\nb\n$Id$\n"
