"""Objects that we write have the same ids and content for git."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.deadline import Deadline
from shadowsnap.errors import DamagedObject, DeadlineExceeded
from shadowsnap.git import repository as runner
from shadowsnap.git.objects import CHUNK, EMPTY_BLOB, EMPTY_TREE, LooseObjects, object_id, stream_id
from shadowsnap.git.reading import Batch, ObjectReader, missing_objects
from shadowsnap.settings import Settings
from shadowsnap.store.layout import Store, open_store


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base))


def place(store: Store, name: str) -> Path:
    return store.git_dir / "objects" / name[:2] / name[2:]


def loose_files(store: Store) -> set[str]:
    found = (store.git_dir / "objects").rglob("*")
    return {path.parent.name + path.name for path in found if path.is_file()}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[bytes], int]]:
    """An open file with this content."""
    descriptors = []

    def opened(data: bytes) -> int:
        path = tmp_path / f"file-{len(descriptors)}"
        path.write_bytes(data)
        descriptors.append(os.open(path, os.O_RDONLY))
        return descriptors[-1]

    yield opened
    for descriptor in descriptors:
        os.close(descriptor)


# --- writing ----------------------------------------------------------------------------------------


@given(data=st.one_of(st.binary(), st.sampled_from([b"", b"\0" * 70_000, b"blob 3\0abc"])))
def test_git_reads_the_bytes_that_were_written(store: Store, data: bytes) -> None:
    name = store.objects.write(b"blob", data)
    git = store.git()
    assert git.run("hash-object", "--stdin", "--no-filters", stdin=data or b"") == name.encode() + b"\n"
    assert git.run("cat-file", "blob", name) == data


def test_the_ids_of_the_empty_blob_and_tree_are_those_of_git(store: Store) -> None:
    assert object_id(b"blob", b"") == EMPTY_BLOB == store.objects.write(b"blob", b"")
    assert object_id(b"tree", b"") == EMPTY_TREE == store.objects.write(b"tree", b"")
    assert store.git().run("fsck", "--full", "--strict", "--no-dangling") == b""


def test_a_large_file_is_written_from_its_open_file(store: Store, opened: Callable[[bytes], int]) -> None:
    data = os.urandom(3 * CHUNK + 17)
    descriptor = opened(data)
    name = stream_id(descriptor, len(data))
    assert name == object_id(b"blob", data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    assert store.objects.write_stream(descriptor, len(data), name) == name
    assert store.git().run("cat-file", "blob", name) == data
    assert loose_files(store) == {name}


@pytest.mark.parametrize("now", [b"shorter", b"longer by a lot", b"other1", b""])
def test_a_file_that_changed_since_it_was_hashed_is_not_written(
    store: Store, opened: Callable[[bytes], int], now: bytes
) -> None:
    named = object_id(b"blob", b"before")
    assert store.objects.write_stream(opened(now), len(b"before"), named) is None
    assert loose_files(store) == set()


def test_an_object_is_read_only_and_no_temporary_file_stays(store: Store) -> None:
    name = store.objects.write(b"blob", b"x")
    assert place(store, name).stat().st_mode & 0o777 == 0o444
    assert loose_files(store) == {name}


@pytest.mark.parametrize("damage", [b"", b"garbage", zlib.compress(b"blob 5\0hello")[:-6]])
def test_a_damaged_object_is_replaced_when_it_is_written_again(store: Store, damage: bytes) -> None:
    name = store.objects.write(b"blob", b"hello")
    place(store, name).chmod(0o644)
    place(store, name).write_bytes(damage)
    assert store.objects.write(b"blob", b"hello") == name
    assert store.git().run("cat-file", "blob", name) == b"hello"


def test_a_full_disk_leaves_no_object_and_no_temporary_file(
    store: Store, as_user: Callable[..., Any], opened: Callable[[bytes], int]
) -> None:
    data = os.urandom(50_000)
    descriptor = opened(data)

    def fill_the_disk() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        with pytest.raises(OSError, match="too large"):
            store.objects.write(b"blob", data)
        with pytest.raises(OSError, match="too large"):
            store.objects.write_stream(descriptor, len(data), object_id(b"blob", data))

    as_user(fill_the_disk)
    assert loose_files(store) == set()


# --- reading ----------------------------------------------------------------------------------------


def pack_everything(store: Store, *names: str, version: int = 2) -> None:
    """Move loose objects into a pack, as a repack does."""
    listed = "".join(f"{name}\n" for name in names).encode()
    git = store.git().bound(config=(f"pack.indexVersion={version}",))
    git.run("pack-objects", str(store.git_dir / "objects" / "pack" / "pack"), stdin=listed)
    store.git().run("prune-packed")
    assert not any(place(store, name).exists() for name in names)


def test_a_loose_object_is_read_without_a_process(store: Store) -> None:
    name = store.objects.write(b"blob", b"loose")
    before = runner.processes_started
    with ObjectReader(store.git()) as reader:
        assert reader.read(name, b"blob") == b"loose"
    assert runner.processes_started == before


@pytest.mark.parametrize(("version", "processes"), [(2, 0), (1, 1)])
def test_packed_objects_are_read_without_a_process_or_through_one(
    store: Store, version: int, processes: int
) -> None:
    """Pack indexes of version 1 are left to git."""
    contents = [b"one", b"", b"x" * 200_000, b"new\nlines\n\n", b"blob 3\n"]
    names = [store.objects.write(b"blob", data) for data in contents]
    pack_everything(store, *names, version=version)
    before = runner.processes_started
    with ObjectReader(store.git()) as reader:
        assert [reader.read(name, b"blob") for name in names] == contents
        assert [reader.read(name, b"blob") for name in reversed(names)] == contents[::-1]
    assert runner.processes_started == before + processes


def test_an_object_of_another_kind_is_refused(store: Store) -> None:
    loose, packed = store.objects.write(b"blob", b"loose"), store.objects.write(b"blob", b"p" * 9000)
    good = store.objects.write(b"blob", b"good")
    pack_everything(store, packed, good)
    with ObjectReader(store.git()) as reader:
        for name in (loose, packed):
            with pytest.raises(DamagedObject, match=name):
                reader.read(name, b"tree")
        assert reader.read(good, b"blob") == b"good"  # the conversation goes on where it was


def test_a_missing_object_is_named_and_the_next_one_is_read(store: Store) -> None:
    name = store.objects.write(b"blob", b"there")
    pack_everything(store, name)
    with ObjectReader(store.git()) as reader:
        with pytest.raises(DamagedObject, match="a" * 40):
            reader.read("a" * 40, b"blob")
        assert reader.read(name, b"blob") == b"there"


@pytest.mark.parametrize("damage", [b"", b"garbage", zlib.compress(b"blob 700\0" + b"x" * 700)[:-6]])
def test_a_damaged_object_is_named_and_the_next_one_is_read(store: Store, damage: bytes) -> None:
    bad, good = store.objects.write(b"blob", b"x" * 700), store.objects.write(b"blob", b"good")
    pack_everything(store, good)
    place(store, bad).chmod(0o644)
    place(store, bad).write_bytes(damage)
    with ObjectReader(store.git()) as reader:
        with pytest.raises(DamagedObject, match=bad):
            reader.read(bad, b"blob")
        assert reader.read(good, b"blob") == b"good"


def test_a_damaged_loose_object_is_read_from_a_pack_that_has_it_too(store: Store) -> None:
    name = store.objects.write(b"blob", b"twice")
    pack_everything(store, name)
    store.objects.write(b"blob", b"twice")
    place(store, name).chmod(0o644)
    place(store, name).write_bytes(b"garbage")
    with ObjectReader(store.git()) as reader:
        assert reader.read(name, b"blob") == b"twice"


def test_scratch_objects_are_read_first_and_the_store_after(store: Store, tmp_path: Path) -> None:
    ours = LooseObjects(tmp_path / "scratch", fsync=False)
    name, below = ours.write(b"blob", b"only here"), store.objects.write(b"blob", b"in the store")
    pack_everything(store, below)
    git = store.git().bound(scratch_objects=tmp_path / "scratch")
    with ObjectReader(git) as reader:
        assert reader.read(name, b"blob") == b"only here"
        assert reader.read(below, b"blob") == b"in the store"
    assert git.run("cat-file", "blob", name) == b"only here"
    with ObjectReader(store.git()) as reader, pytest.raises(DamagedObject):
        reader.read(name, b"blob")


def test_readers_that_are_bound_to_one_process_share_it(store: Store, tmp_path: Path) -> None:
    names = [store.objects.write(b"blob", data) for data in (b"1", b"2", b"3")]
    pack_everything(store, *names, version=1)
    batch = Batch(store.git())
    git = store.git().bound(batch=batch)
    before = runner.processes_started
    for name in names:
        with ObjectReader(git) as reader:
            assert reader.read(name, b"blob") in (b"1", b"2", b"3")
    assert runner.processes_started == before + 1
    later = store.objects.write(b"blob", b"packed after it was started")
    pack_everything(store, later)
    with ObjectReader(git) as reader:
        assert reader.read(later, b"blob") == b"packed after it was started"
    batch.close()
    batch.close()


def test_a_shared_process_is_not_used_for_another_repository(store: Store, tmp_path: Path) -> None:
    other = open_store(Settings(base=tmp_path / "other"))
    name = other.objects.write(b"blob", b"theirs")
    pack_everything(other, name)
    batch = Batch(store.git())
    with ObjectReader(other.git().bound(batch=batch)) as reader:
        assert reader.read(name, b"blob") == b"theirs"
    (tmp_path / "scratch").mkdir()
    with ObjectReader(store.git().bound(batch=batch, scratch_objects=tmp_path / "scratch")) as reader:
        assert reader._batch is not batch
    batch.close()


@pytest.mark.parametrize("odd", ["a:b", 'quo"te', "back\\slash", "new\nline", "sp ace", "é"])
def test_the_store_is_found_beside_scratch_objects_wherever_it_lies(tmp_path: Path, odd: str) -> None:
    """git splits the list of object directories at colons."""
    store = open_store(Settings(base=tmp_path / odd / "base"))
    name = store.objects.write(b"blob", b"x")
    (tmp_path / "scratch").mkdir()
    git = store.git().bound(scratch_objects=tmp_path / "scratch")
    assert git.run("cat-file", "blob", name) == b"x"


def test_reading_ends_at_the_deadline(store: Store, hanging_git: str) -> None:
    name = "a" * 40
    git = store.git(Deadline(0.2)).bound(executable=hanging_git)
    with ObjectReader(git) as reader:
        with pytest.raises(DeadlineExceeded, match="reading objects"):
            reader.read(name, b"blob")
        with pytest.raises(DeadlineExceeded):
            reader.read(name, b"blob")


@pytest.fixture
def hanging_git(tmp_path: Path) -> str:
    path = tmp_path / "git"
    path.write_text("#!/bin/sh\nexec sleep 1000\n")
    path.chmod(0o755)
    return str(path)


# --- what is there ----------------------------------------------------------------------------------


def test_missing_and_empty_objects_are_found_among_intact_ones(store: Store) -> None:
    sound, packed, empty = (store.objects.write(b"blob", data) for data in (b"1", b"2", b"3"))
    pack_everything(store, packed)
    place(store, empty).chmod(0o644)
    place(store, empty).write_bytes(b"")
    names = [sound, packed, "b" * 40, empty]
    assert missing_objects(store.git(), names) == ["b" * 40, empty]
    before = runner.processes_started
    assert missing_objects(store.git(), []) == []
    assert runner.processes_started == before


# --- surviving a power cut --------------------------------------------------------------------------


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The inodes of everything that was synced so far."""
    inodes: set[int] = set()
    really = os.fsync

    def fsync(descriptor: int) -> None:
        really(descriptor)
        inodes.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    return inodes


def test_a_flush_syncs_the_objects_and_their_directories(store: Store, flushed: set[int]) -> None:
    files = [place(store, store.objects.write(b"blob", b"%d" % number)) for number in range(5)]
    store.objects.flush()
    needed = {path for file in files for path in (file, file.parent, file.parent.parent)}
    assert {path.stat().st_ino for path in needed} <= flushed
    flushed.clear()
    store.objects.flush()
    assert flushed == set()


def test_an_existing_object_is_replaced_only_by_a_synced_one(
    store: Store, flushed: set[int]
) -> None:
    file = place(store, store.objects.write(b"blob", b"x"))
    store.objects.flush()
    before = file.stat().st_ino
    store.objects.write(b"blob", b"x")
    assert file.stat().st_ino != before
    assert file.stat().st_ino in flushed


def test_without_fsync_nothing_is_synced(base: Path, flushed: set[int]) -> None:
    store = open_store(Settings(base=base, fsync=False))
    store.objects.write(b"blob", b"x")
    store.objects.flush()
    assert flushed == set()
