"""Temporary files belong to one process, and writes are complete."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadowsnap import files
from shadowsnap.files import (
    open_temporary,
    remove_tree,
    scratch_folder,
    sync_directory,
    write_all,
    write_several,
)


def test_every_temporary_file_is_a_new_one_that_only_its_owner_reads(tmp_path: Path) -> None:
    opened = [open_temporary(tmp_path, "tmp_") for _ in range(5)]
    for descriptor, path in opened:
        write_all(descriptor, path.name.encode())
        os.close(descriptor)
    assert len({path for _, path in opened}) == 5
    assert all(path.read_bytes() == path.name.encode() for _, path in opened)
    assert all(path.stat().st_mode & 0o777 == 0o600 for _, path in opened)


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    descriptor, path = open_temporary(tmp_path / "not" / "yet", "tmp_")
    os.close(descriptor)
    assert path.parent == tmp_path / "not" / "yet"


def test_a_file_left_by_a_dead_process_with_our_id_is_not_reused(tmp_path: Path) -> None:
    descriptor, path = open_temporary(tmp_path, "tmp_")
    os.close(descriptor)
    number = int(path.name.rpartition("_")[2])
    leftovers = [tmp_path / f"tmp_{os.getpid()}_{number + ahead}" for ahead in (1, 2)]
    for leftover in leftovers:
        leftover.write_text("theirs")
    descriptor, path = open_temporary(tmp_path, "tmp_")
    write_all(descriptor, b"ours")
    os.close(descriptor)
    assert path not in leftovers
    assert [leftover.read_text() for leftover in leftovers] == ["theirs", "theirs"]


def test_several_files_are_written_as_a_whole(tmp_path: Path) -> None:
    contents = {tmp_path / "one": b"1", tmp_path / "folder" / "two": b"2" * 100_000}
    write_several(contents, fsync=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == contents


def test_none_of_several_files_is_replaced_if_one_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("old")
    (tmp_path / "no folder").write_text("")
    with pytest.raises(OSError, match="no folder"):
        write_several({tmp_path / "one": b"new", tmp_path / "no folder" / "two": b""})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"one": "old", "no folder": ""}


def test_a_short_write_is_an_error(
    tmp_path: Path, as_user: Callable[..., Any]
) -> None:
    def write_more_than_fits() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        descriptor, _ = open_temporary(tmp_path, "tmp_")
        with pytest.raises(OSError, match="too large"):
            write_all(descriptor, b"more than ten bytes")

    as_user(write_more_than_fits)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"more than "]


def test_a_directory_is_synced_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    sync_directory(tmp_path)
    sync_directory(tmp_path / "none")
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


def test_a_tree_is_removed_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "scratch" / "aa").mkdir(parents=True)
    (tmp_path / "scratch" / "aa" / "object").write_text("x")
    files.make_read_only(tmp_path / "scratch" / "aa" / "object")
    remove_tree(tmp_path / "scratch")
    remove_tree(tmp_path / "scratch")
    assert list(tmp_path.iterdir()) == []


def test_two_that_do_the_same_at_once_have_scratch_directories_of_their_own(tmp_path: Path) -> None:
    with scratch_folder(tmp_path, "import", inside="objects/pack") as one:
        (one / "objects" / "pack" / "file").write_text("of the first")
        with scratch_folder(tmp_path, "import") as other:
            assert other != one and list(other.iterdir()) == []
        assert (one / "objects" / "pack" / "file").read_text() == "of the first"
    assert list(tmp_path.iterdir()) == []
