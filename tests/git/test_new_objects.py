"""What one operation adds to the store is one pack, which appears at once or not at all."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadowsnap.errors import DamagedObject
from shadowsnap.git import packs
from shadowsnap.git import repository as runner
from shadowsnap.git.objects import object_id
from shadowsnap.git.packs import NewObjects
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.trees import REGULAR, format_tree
from shadowsnap.settings import Settings
from shadowsnap.store.layout import Store, open_store


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base))


def objects(store: Store, *, fsync: bool = False) -> NewObjects:
    return NewObjects(store.git_dir / "objects", fsync=fsync)


def files(store: Store) -> list[str]:
    top = store.git_dir / "objects"
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def tree_of(name: str) -> bytes:
    return format_tree({b"file": (REGULAR, name)})


def is_there(store: Store, name: str) -> bool:
    return store.git().run("cat-file", "-e", name, ok=(0, 1, 128)) == b"" and _sizes(store, name) == 1


def _sizes(store: Store, name: str) -> int:
    return store.git().run("cat-file", "--batch-check", stdin=name.encode() + b"\n").count(b" blob ")


def test_blobs_trees_and_commits_become_one_pack(store: Store) -> None:
    new = objects(store)
    blob = new.write(b"blob", b"content")
    tree = new.write(b"tree", tree_of(blob))
    commit = new.write(b"commit", b"tree %s\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nx" % tree.encode())
    new.flush()
    assert [path.rpartition(".")[2] for path in files(store)] == ["idx", "pack"]
    assert store.git().run("cat-file", "blob", f"{commit}:file") == b"content"
    assert store.git().run("fsck", "--strict", "--no-dangling") == b""


def test_git_sees_nothing_before_the_flush_and_everything_after(store: Store) -> None:
    new = objects(store)
    name = new.write(b"blob", b"content")
    assert files(store) == [] and not is_there(store, name)
    new.flush()
    assert is_there(store, name)


def test_a_git_that_is_bound_to_it_sees_everything(store: Store) -> None:
    """An object that was just written must not be reported as missing."""
    new = objects(store)
    git = store.git().bound(new_objects=new)
    name = new.write(b"blob", b"content")
    assert git.run("cat-file", "blob", name) == b"content"
    other = new.write(b"blob", b"other")
    assert git.run("cat-file", "blob", other) == b"other"


def test_a_tree_can_be_read_before_the_flush_without_a_process(store: Store) -> None:
    new = objects(store)
    tree = tree_of(new.write(b"blob", b"content"))
    name = new.write(b"tree", tree)
    before = runner.processes_started
    with ObjectReader(store.git().bound(new_objects=new)) as reader:
        assert reader.read(name, b"tree") == tree
    assert runner.processes_started == before and files(store) == []
    with ObjectReader(store.git()) as other, pytest.raises(DamagedObject):
        other.read(name, b"tree")
    new.flush()
    assert new.pending_tree(name) is None
    with ObjectReader(store.git()) as other:
        assert other.read(name, b"tree") == tree


def test_what_is_abandoned_leaves_nothing(store: Store) -> None:
    new = objects(store)
    tree = new.write(b"tree", tree_of(new.write(b"blob", os.urandom(3 << 20))))
    assert files(store) != []  # it went beyond what is held in memory
    new.abandon()
    new.abandon()
    assert files(store) == [] and new.pending_tree(tree) is None
    new.flush()
    assert files(store) == []


def test_an_empty_flush_writes_nothing(store: Store) -> None:
    new = objects(store)
    new.flush()
    assert files(store) == []
    new.write(b"blob", b"content")
    new.flush()
    once = files(store)
    new.flush()
    assert files(store) == once


def test_objects_added_after_a_flush_are_another_pack(store: Store) -> None:
    new = objects(store)
    names = []
    for data in (b"one", b"two", b"three"):
        names.append(new.write(b"blob", data))
        new.flush()
    assert len(files(store)) == 6 and all(is_there(store, name) for name in names)


def test_very_many_objects_are_several_packs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "_MAX_OBJECTS", 10)
    new = objects(store)
    names = [new.write(b"blob", b"%d" % number) for number in range(25)]
    new.flush()
    assert sum(name.endswith(".pack") for name in files(store)) == 3
    assert all(is_there(store, name) for name in names)


def test_the_same_objects_again_give_the_same_pack(store: Store) -> None:
    """A project that changes back and forth gets no new pack each time."""
    for _ in range(3):
        new = objects(store)
        new.write(b"blob", b"content")
        new.flush()
    assert len(files(store)) == 2


def test_a_damaged_pack_is_replaced_when_its_objects_are_written_again(store: Store) -> None:
    for _ in range(2):
        new = objects(store)
        name = new.write(b"blob", b"content")
        new.flush()
        assert store.git().run("cat-file", "blob", name) == b"content"
        for path in files(store):
            os.chmod(store.git_dir / "objects" / path, 0o600)
            os.truncate(store.git_dir / "objects" / path, 5)


def test_many_objects_do_not_need_memory_for_all_of_them(store: Store) -> None:
    new = objects(store)
    chunk = os.urandom(1 << 16)
    tracemalloc.start()
    try:
        for number in range(400):  # 25 MB
            new.write(b"blob", b"%d" % number + chunk)
        new.flush()
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()
    assert sum((store.git_dir / "objects" / path).stat().st_size for path in files(store)) > 25 << 20
    assert len(files(store)) == 2
    assert is_there(store, object_id(b"blob", b"399" + chunk))


def test_a_large_file_becomes_a_loose_object(store: Store, tmp_path: Path) -> None:
    """Otherwise changing back and forth between two versions would store it again each time."""
    data = os.urandom(2 << 20)
    (tmp_path / "large").write_bytes(data)
    for _ in range(3):
        new = objects(store)
        with open(tmp_path / "large", "rb") as file:
            assert new.write_stream(file.fileno(), len(data), object_id(b"blob", data))
        new.flush()
    assert [path.count("/") for path in files(store)] == [1] and "pack" not in files(store)[0]


def write_and_flush(new: NewObjects, sizes: list[int]) -> None:
    for size in sizes:
        new.write(b"blob", os.urandom(size))
    new.flush()


@pytest.mark.parametrize(("limit", "sizes"), [
    (2 << 20, [1 << 20, 1 << 20, 1 << 20]),  # met while adding
    (8_000, [7_980]),  # met while it settles
    (1_000, [1, 2, 3]),  # the pack fits, its index does not
])  # fmt: skip
def test_a_full_disk_leaves_nothing_half_visible(
    store: Store, as_user: Callable[..., Any], limit: int, sizes: list[int]
) -> None:
    def fill_the_disk() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        new = objects(store)
        try:
            with pytest.raises(OSError, match="too large"):
                write_and_flush(new, sizes)
        finally:
            new.abandon()

    as_user(fill_the_disk)
    assert files(store) == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_pack_that_cannot_be_put_in_place_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    """A directory may need room for one more name."""
    replace, calls = os.replace, []

    def refuse(source: Path, target: Path | str) -> None:
        calls.append(target)
        if len(calls) > which:
            raise OSError(28, "No space left on device")
        replace(source, target)

    new = objects(store)
    name = new.write(b"blob", b"content")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="No space"):
            new.flush()
    assert files(store) == []
    new.write(b"blob", b"content")
    new.flush()
    assert is_there(store, name)
