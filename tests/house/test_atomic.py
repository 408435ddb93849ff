"""A reader sees the old or the new content of a file, never half of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.files import read_json, write_bytes, write_json

# Surrogates stand for names that are not UTF-8.
text = st.text(st.characters(exclude_categories=()), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)


@given(value=st.dictionaries(text, values, max_size=5), fsync=st.booleans())
def test_what_was_written_is_read(tmp_path: Path, value: dict[str, Any], fsync: bool) -> None:
    write_json(tmp_path / "file.json", value, fsync=fsync)
    assert read_json(tmp_path / "file.json") == value
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    write_bytes(tmp_path / "not" / "yet" / "file", b"x")
    assert (tmp_path / "not" / "yet" / "file").read_bytes() == b"x"


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    write_bytes(tmp_path / "file", b"x")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": ', b"[1]", b"null", b'"text"', b"\0\0\0\0", b"\xff\xfe"])
def test_a_damaged_file_or_another_value_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.json").write_bytes(content)
    assert read_json(tmp_path / "file.json") is None


def test_an_absent_file_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None
    assert read_json(tmp_path / "no" / "folder.json") is None


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path, over = tmp_path / "file.json", threading.Event()
    states = [{"value": number, "long": str(number) * 20_000} for number in range(2)]
    write_json(path, states[0])

    def write_on() -> None:
        number = 0
        while not over.is_set():
            number += 1
            write_json(path, states[number % 2])

    writers = [threading.Thread(target=write_on) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        seen = [read_json(path) for _ in range(300)]
    finally:
        over.set()
        for writer in writers:
            writer.join()
    assert all(value in states for value in seen)
    assert [file.name for file in tmp_path.iterdir()] == ["file.json"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, as_user: Callable[..., Any]) -> None:
    write_bytes(tmp_path / "file", b"old")

    def fill_the_disk() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        for size in (2000, 100_000):  # met on closing, and on writing
            with pytest.raises(OSError, match="too large"):
                write_bytes(tmp_path / "file", b"x" * size)

    as_user(fill_the_disk)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_that_cannot_be_written_keeps_the_old_file(tmp_path: Path, as_user: Callable[..., Any]) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    write_bytes(folder / "file", b"old")

    def write() -> None:
        os.chmod(folder, 0o500)
        with pytest.raises(PermissionError):
            write_bytes(folder / "file", b"new")
        os.chmod(folder, 0o700)

    as_user(write)
    assert (folder / "file").read_bytes() == b"old"
