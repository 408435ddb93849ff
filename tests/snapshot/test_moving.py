"""A directory that is moved while its files are read: nothing that was written elsewhere is captured."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.git.objects import object_id
from shadowsnap.git.packs import NewObjects
from shadowsnap.snapshot.content import Content, NotCaptured, Stored, read_file, store_batch
from shadowsnap.snapshot.worktree import Worktree

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="an open directory cannot be moved")
PATHS = [b"folder/1", b"folder/2", b"folder/3", b"other/1"]


@pytest.fixture
def worktree(tmp_path: Path) -> Iterator[Worktree]:
    for path in map(os.fsdecode, PATHS):
        file = tmp_path / "project" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    with Worktree(tmp_path / "project") as worktree:
        yield worktree


def stored_while(worktree: Worktree, tmp_path: Path, happens: Callable[[bytes], None]) -> Stored:
    """Read the files; before each of them, something happens."""
    objects = NewObjects(tmp_path / "objects", fsync=False)

    def read(path: bytes) -> Content | NotCaptured:
        happens(path)
        return read_file(worktree, path, None, objects.write_stream)

    stored = store_batch(worktree, PATHS, read, objects, NO_DEADLINE)
    assert stored.files == len(PATHS)
    secret = object_id(b"blob", b"secret")
    assert secret not in {entry.id for entry in stored.entries.values()}
    assert objects.pending_size(secret) is None  # not even as an object without a name
    objects.abandon()
    return stored


def ids(stored: Stored) -> dict[bytes, str]:
    return {path: entry.id for path, entry in stored.entries.items()}


def test_what_is_written_after_it_left_the_project_is_not_captured(tmp_path: Path, worktree: Worktree) -> None:
    def happens(path: bytes) -> None:
        if path == b"folder/2" and (tmp_path / "project/folder").exists():
            (tmp_path / "project/folder").rename(tmp_path / "outside")
            (tmp_path / "outside/2").write_text("secret")

    stored = stored_while(worktree, tmp_path, happens)
    assert ids(stored) == {b"other/1": object_id(b"blob", b"other/1")}
    assert set(stored.left_out.values()) == {None}


def test_the_files_of_a_directory_that_took_its_place_are_captured(tmp_path: Path, worktree: Worktree) -> None:
    def happens(path: bytes) -> None:
        if path == b"folder/3" and not (tmp_path / "outside").exists():
            (tmp_path / "project/folder").rename(tmp_path / "outside")
            (tmp_path / "outside/3").write_text("secret")
            (tmp_path / "project/folder").mkdir()
            for name in "123":
                (tmp_path / "project/folder" / name).write_text(f"new {name}")

    stored = stored_while(worktree, tmp_path, happens)
    expected = {b"folder/%s" % name: object_id(b"blob", b"new " + name) for name in (b"1", b"2", b"3")}
    assert ids(stored) == expected | {b"other/1": object_id(b"blob", b"other/1")}


def test_one_that_never_rests_is_reported_as_changing(tmp_path: Path, worktree: Worktree) -> None:
    here, there = tmp_path / "project/folder", tmp_path / "project/elsewhere"

    def happens(path: bytes) -> None:
        if path == b"folder/1":
            if there.exists():
                there.rename(here)
            worktree.place_of(path)
            here.rename(there)

    stored = stored_while(worktree, tmp_path, happens)
    assert b"other/1" in stored.entries and set(stored.entries) | set(stored.left_out) == set(PATHS)
    assert all(stored.left_out[path] == "changing" for path in PATHS[:3])


def test_moving_the_project_itself_moves_nothing_in_it(tmp_path: Path, worktree: Worktree) -> None:
    def happens(path: bytes) -> None:
        if path == b"folder/2":
            (tmp_path / "project").rename(tmp_path / "renamed")

    stored = stored_while(worktree, tmp_path, happens)
    assert ids(stored) == {path: object_id(b"blob", path) for path in PATHS}
