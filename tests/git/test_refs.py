"""Refs that we write and read as files are git's refs, loose or packed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.errors import GitFailed
from shadowsnap.git.objects import EMPTY_TREE
from shadowsnap.git.refs import (
    RefExists,
    count_refs,
    create_ref,
    delete_refs,
    list_refs,
    newest_ref,
    read_ref,
    read_refs,
    ref_exists,
    ref_names,
    set_ref,
)
from shadowsnap.settings import Settings
from shadowsnap.store.layout import Store, open_store

HERE = "refs/shadowsnap/0123456789abcdef"
NEIGHBOUR = "refs/shadowsnap/0123456789abcdef0"  # a longer name that begins alike


@pytest.fixture
def store(base: Path) -> Store:
    store = open_store(Settings(base=base))
    store.objects.write(b"tree", b"")
    return store


def commit(store: Store, message: bytes = b"m") -> str:
    who = b"a <a> 1 +0000"
    return store.objects.write(
        b"commit", b"tree %s\nauthor %s\ncommitter %s\n\n%s" % (EMPTY_TREE.encode(), who, who, message)
    )


def refs_by_git(store: Store) -> dict[str, str]:
    rows = store.git().run("for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()
    return dict(row.split(" ") for row in rows)


def pack(store: Store) -> None:
    store.git().run("pack-refs", "--all", "--prune")


# --- creating ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fsync", [True, False])
def test_git_sees_a_ref_that_was_created(store: Store, fsync: bool) -> None:
    name = commit(store)
    create_ref(store.git_dir, f"{HERE}/1", name, fsync=fsync)
    assert refs_by_git(store) == {f"{HERE}/1": name}
    assert [path.name for path in (store.git_dir / HERE).iterdir()] == ["1"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_ref_that_exists_is_not_created_again(store: Store, packed: bool) -> None:
    first, second = commit(store, b"first"), commit(store, b"second")
    create_ref(store.git_dir, f"{HERE}/1", first, fsync=False)
    if packed:
        pack(store)
        assert not (store.git_dir / HERE / "1").exists()
    with pytest.raises(RefExists, match=f"{HERE}/1"):
        create_ref(store.git_dir, f"{HERE}/1", second, fsync=False)
    assert refs_by_git(store) == {f"{HERE}/1": first}
    assert not list((store.git_dir / "refs").rglob("*.lock"))


def test_of_many_processes_that_create_the_same_ref_one_succeeds(store: Store) -> None:
    names = [commit(store, b"%d" % number) for number in range(8)]
    created: list[str] = []
    barrier = threading.Barrier(len(names))

    def create(name: str) -> None:
        barrier.wait()
        try:
            create_ref(store.git_dir, f"{HERE}/1", name, fsync=False)
        except (RefExists, FileExistsError):  # there, or just being made
            return
        created.append(name)

    threads = [threading.Thread(target=create, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 1
    assert refs_by_git(store) == {f"{HERE}/1": created[0]}


# --- finding ----------------------------------------------------------------------------------------

names = st.integers(0, 10**12).map(lambda number: f"{number:013d}")


@given(packed=st.sets(names, max_size=5), loose=st.sets(names, max_size=5), neighbours=st.sets(names, max_size=3))
def test_loose_and_packed_refs_are_found_alike(
    base: Path, packed: set[str], loose: set[str], neighbours: set[str]
) -> None:
    number = len(list(base.iterdir())) if base.exists() else 0
    store = open_store(Settings(base=base / str(number), fsync=False))
    store.objects.write(b"tree", b"")
    old, new = commit(store, b"old"), commit(store, b"new")
    for name in packed:
        create_ref(store.git_dir, f"{HERE}/{name}", old, fsync=False)
    for name in neighbours:
        create_ref(store.git_dir, f"{NEIGHBOUR}/{name}", old, fsync=False)
    pack(store)
    for name in loose:
        if name in packed:
            set_ref(store.git(), f"{HERE}/{name}", new)  # a loose ref hides a packed one
        else:
            create_ref(store.git_dir, f"{HERE}/{name}", new, fsync=False)
    expected = {name: new if name in loose else old for name in packed | loose}
    assert read_refs(store.git_dir, HERE) == expected
    assert ref_names(store.git_dir, HERE) == sorted(expected)
    assert {name: read_ref(store.git_dir, f"{HERE}/{name}") for name in expected} == expected
    assert newest_ref(store.git_dir, HERE) == (f"{HERE}/{max(expected)}" if expected else None)
    assert all(ref_exists(store.git_dir, f"{HERE}/{name}") for name in expected)
    assert not any(ref_exists(store.git_dir, f"{HERE}/{name}") for name in neighbours - expected.keys())
    listed = [row[0].decode() for row in list_refs(store.git(), ["refname"], HERE)]
    assert listed == [f"{HERE}/{name}" for name in sorted(expected, reverse=True)]
    assert count_refs(store.git_dir, HERE) >= len(expected)


def test_a_part_of_a_name_is_not_a_ref(store: Store) -> None:
    create_ref(store.git_dir, f"{HERE}/1234", commit(store), fsync=False)
    pack(store)
    for other in (f"{HERE}/123", f"{HERE}/12345", f"{HERE}/234", f"x{HERE}/1234"):
        assert not ref_exists(store.git_dir, other)
        assert read_ref(store.git_dir, other) is None
    assert newest_ref(store.git_dir, "refs/shadowsnap/0123") is None
    assert ref_names(store.git_dir, "refs/shadowsnap/0123") == []
    assert read_refs(store.git_dir, "refs/shadowsnap/0123") == {}


def test_an_empty_prefix_has_no_refs(store: Store) -> None:
    assert newest_ref(store.git_dir, HERE) is None
    assert read_refs(store.git_dir, HERE) == {}
    assert list_refs(store.git(), ["refname"], HERE) == []
    assert not ref_exists(store.git_dir, f"{HERE}/1")


def test_a_lock_file_is_not_a_ref(store: Store) -> None:
    create_ref(store.git_dir, f"{HERE}/1", commit(store), fsync=False)
    (store.git_dir / HERE / "2.lock").write_text("")
    assert newest_ref(store.git_dir, HERE) == f"{HERE}/1"
    assert read_refs(store.git_dir, HERE).keys() == {"1"}
    assert ref_names(store.git_dir, HERE) == ["1"]


# --- listing ----------------------------------------------------------------------------------------

MESSAGES = [
    b"plain", b"two\nlines\n\nand a body", b"a|b|c%00%(refname)", b"'quotes\" and \\ and $(echo)", b"  spaces  ",
    "\u00e9\u4e2d\U0001f600\u2028".encode(), b"not \xff\xfe utf-8", b"tab\tand\rreturn", b"x" * 100_000, b"-",
    b"-----BEGIN PGP SIGNATURE-----\n\nnot one\n-----END PGP SIGNATURE-----\n",
]  # fmt: skip


def test_messages_of_any_text_are_listed_completely(store: Store) -> None:
    for number, message in enumerate(MESSAGES):
        create_ref(store.git_dir, f"{HERE}/{number:02d}", commit(store, message), fsync=False)
    rows = list_refs(store.git(), ["refname", "contents", "objectname"], HERE)
    assert [row[1] for row in reversed(rows)] == MESSAGES
    assert [row[0].decode() for row in reversed(rows)] == [f"{HERE}/{n:02d}" for n in range(len(MESSAGES))]
    assert all(len(row[2]) == 40 for row in rows)


def test_only_the_newest_are_listed_if_that_is_enough(store: Store) -> None:
    for number in range(5):
        create_ref(store.git_dir, f"{HERE}/{number}", commit(store), fsync=False)
    assert [row[0][-1:] for row in list_refs(store.git(), ["refname"], HERE, newest=2)] == [b"4", b"3"]


# --- changing and deleting --------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_deleted_refs_are_gone_and_the_others_stay(store: Store, packed: bool) -> None:
    name = commit(store)
    for number in range(4):
        create_ref(store.git_dir, f"{HERE}/{number}", name, fsync=False)
    if packed:
        pack(store)
    delete_refs(store.git(), [f"{HERE}/1", f"{HERE}/3"])
    assert read_refs(store.git_dir, HERE).keys() == {"0", "2"}
    assert refs_by_git(store).keys() == {f"{HERE}/0", f"{HERE}/2"}
    assert newest_ref(store.git_dir, HERE) == f"{HERE}/2"


def test_deleting_a_deleted_ref_is_no_error(store: Store) -> None:
    create_ref(store.git_dir, f"{HERE}/1", commit(store), fsync=False)
    delete_refs(store.git(), [f"{HERE}/1", f"{HERE}/2"])
    delete_refs(store.git(), [f"{HERE}/1"])
    assert refs_by_git(store) == {}


def test_a_ref_is_set_whether_it_was_there_or_not(store: Store) -> None:
    first, second = commit(store, b"first"), commit(store, b"second")
    set_ref(store.git(), f"{HERE}/1", first)
    pack(store)
    set_ref(store.git(), f"{HERE}/1", second)
    assert read_refs(store.git_dir, HERE) == {"1": second}


def lock_files(store: Store) -> list[Path]:
    return [store.git_dir / "packed-refs.lock", store.git_dir / HERE / "1.lock"]


def test_locks_that_a_killed_git_left_do_not_stop_the_next(store: Store) -> None:
    name = commit(store)
    create_ref(store.git_dir, f"{HERE}/1", name, fsync=False)
    for lock in lock_files(store):
        lock.touch()
        os.utime(lock, ns=(1, 1))
    set_ref(store.git(), f"{HERE}/1", name)
    for lock in lock_files(store):
        lock.touch()
        os.utime(lock, ns=(1, 1))
    delete_refs(store.git(), [f"{HERE}/1"])
    assert refs_by_git(store) == {}


def test_locks_of_a_living_git_are_respected(store: Store) -> None:
    create_ref(store.git_dir, f"{HERE}/1", commit(store), fsync=False)
    store.git().run("config", "core.packedRefsTimeout", "1")
    store.git().run("config", "core.filesRefLockTimeout", "1")
    for lock in lock_files(store):
        lock.touch()
        with pytest.raises(GitFailed, match=lock.name):
            delete_refs(store.git(), [f"{HERE}/1"])
        lock.unlink()
    assert refs_by_git(store).keys() == {f"{HERE}/1"}
