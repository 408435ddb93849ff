"""Trees that we write are the trees git would write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.errors import MalformedObject, UnsafeTree
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.reading import ObjectReader
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import (
    DIRECTORY,
    EXECUTABLE,
    LINK,
    REGULAR,
    Leaf,
    TreeReader,
    entry_problem,
    format_tree,
    parse_tree,
    patch_tree,
    tree_entries,
)
from shadowsnap.settings import Settings
from shadowsnap.store.layout import Store, open_store

BLOBS = [object_id(b"blob", data) for data in (b"", b"one\n", b"two\n")]
NOTHING = "0" * 40


@pytest.fixture
def store(base: Path) -> Store:
    store = open_store(Settings(base=base, fsync=False))
    for data in (b"", b"one\n", b"two\n"):
        store.objects.write(b"blob", data)
    return store


@pytest.fixture
def git(store: Store, tmp_path: Path) -> Git:
    """git with its own index, as a second way to build the same trees."""
    return store.git().bound(work_tree=tmp_path, index_file=tmp_path / "index")


def patch(store: Store, base: str, changes: dict[bytes, Leaf | None]) -> str:
    with ObjectReader(store.git()) as reader:
        return patch_tree(
            base, changes, lambda name: reader.read(name, b"tree"), lambda data: store.objects.write(b"tree", data)
        )


def patch_by_git(git: Git, changes: dict[bytes, Leaf | None]) -> str:
    # Git 2.34 may leave a file that became a directory in its index, in spite of --replace.
    set_ = {path: leaf for path, leaf in changes.items() if leaf is not None}
    gone = {*changes} - {*set_} | {path[:at] for path in set_ for at, byte in enumerate(path) if byte == ord("/")}
    rows = b"".join(b"0 %s\t%s\0" % (NOTHING.encode(), path) for path in gone)
    rows += b"".join(b"%o %s\t%s\0" % (mode, name.encode(), path) for path, (mode, name) in set_.items())
    git.run("update-index", "--replace", "-z", "--index-info", stdin=rows)
    return git.run("write-tree").decode().strip()


def files_in(git: Git, tree: str) -> dict[bytes, Leaf]:
    found: dict[bytes, Leaf] = {}
    for row in git.run("ls-tree", "-r", "-z", tree).split(b"\0")[:-1]:
        meta, _, path = row.partition(b"\t")
        mode, _, name = meta.split(b" ")
        found[path] = (int(mode, 8), name.decode())
    return found


# --- any change -------------------------------------------------------------------------------------

# Sorted differently as files and as directories.
names = st.sampled_from([b"a", b"a.b", b"a-", b"a0", b"ab", b"b", b"\xff", b"new\nline"])
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
leaves = st.tuples(st.sampled_from([REGULAR, EXECUTABLE, LINK]), st.sampled_from(BLOBS))
steps = st.lists(st.dictionaries(paths, st.one_of(st.none(), leaves, leaves), max_size=12), min_size=1, max_size=6)


def possible(step: dict[bytes, Leaf | None], known: dict[bytes, Leaf]) -> dict[bytes, Leaf | None]:
    """The changes that git accepts in one command: no file is set both at and below a path, and
    only files are removed."""
    chosen: dict[bytes, Leaf | None] = {}
    for path, leaf in step.items():
        if leaf is None:
            if not any(other.startswith(path + b"/") for other in known):
                chosen[path] = None
        elif not any(
            set_ is not None and (other.startswith(path + b"/") or path.startswith(other + b"/"))
            for other, set_ in chosen.items()
        ):
            chosen[path] = leaf
    return chosen


@given(steps=steps)
def test_changing_some_paths_gives_the_tree_that_git_makes(
    store: Store, git: Git, steps: list[dict[bytes, Leaf | None]]
) -> None:
    git.run("read-tree", "--empty")
    tree, known = EMPTY_TREE, {}
    for step in steps:
        changes = possible(step, known)
        tree = patch(store, tree, changes)
        assert tree == patch_by_git(git, changes)
        known = files_in(git, tree)


def test_a_file_becomes_a_directory_and_a_file_again(store: Store, git: Git) -> None:
    file, other = (REGULAR, BLOBS[1]), (EXECUTABLE, BLOBS[2])
    first = patch(store, EMPTY_TREE, {b"a": file, b"a.b": file, b"a0": file})
    deep = patch(store, first, {b"a": None, b"a/b/c": other, b"a/b.d": file})
    assert files_in(git, deep) == {b"a/b/c": other, b"a/b.d": file, b"a.b": file, b"a0": file}
    flat = patch(store, deep, {b"a/b/c": None, b"a/b.d": None, b"a": file})
    assert flat == first
    assert patch(store, deep, {b"a": file}) == first


def test_removing_a_directory_removes_all_of_it(store: Store, git: Git) -> None:
    file = (REGULAR, BLOBS[1])
    tree = patch(store, EMPTY_TREE, {b"d/a": file, b"d/e/f": file, b"d.x": file})
    assert files_in(git, patch(store, tree, {b"d": None})) == {b"d.x": file}
    assert patch(store, tree, {b"d": None, b"d.x": None}) == EMPTY_TREE
    assert files_in(git, patch(store, tree, {b"d": None, b"d/new": file})) == {b"d/new": file, b"d.x": file}
    for order in ([b"d", b"d/a"], [b"d/a", b"d"]):
        assert files_in(git, patch(store, tree, dict.fromkeys(order))) == {b"d.x": file}


def test_directories_that_lost_their_last_file_are_gone(store: Store, git: Git) -> None:
    file = (REGULAR, BLOBS[1])
    tree = patch(store, EMPTY_TREE, {b"d/e/f/g": file, b"top": file})
    assert patch(store, tree, {b"d/e/f/g": None}) == patch(store, EMPTY_TREE, {b"top": file})
    assert git.run("ls-tree", "-rt", "--name-only", patch(store, tree, {b"d/e/f/g": None})) == b"top\n"


def test_removing_what_is_not_there_changes_nothing(store: Store) -> None:
    tree = patch(store, EMPTY_TREE, {b"d/a": (REGULAR, BLOBS[1]), b"f": (REGULAR, BLOBS[0])})
    assert patch(store, tree, {b"none": None, b"d/none": None, b"f/below": None, b"x/y/z": None}) == tree
    assert patch(store, EMPTY_TREE, {b"x/y": None}) == EMPTY_TREE
    assert patch(store, tree, {}) == tree


def test_only_directories_on_the_way_are_read_and_written(store: Store) -> None:
    file = (REGULAR, BLOBS[1])
    tree = patch(store, EMPTY_TREE, {b"%d/%d/f" % (n, m): file for n in range(8) for m in range(8)})
    read: list[str] = []
    written: list[bytes] = []
    with ObjectReader(store.git()) as reader:

        def note_read(name: str) -> bytes:
            read.append(name)
            return reader.read(name, b"tree")

        def note_written(data: bytes) -> str:
            written.append(data)
            return object_id(b"tree", data)

        patch_tree(tree, {b"3/5/f": (EXECUTABLE, BLOBS[2])}, note_read, note_written)
        assert (len(read), len(written)) == (3, 3)
        read.clear(), written.clear()
        assert patch_tree(tree, {b"3/5/f": file}, note_read, note_written) == tree
        assert (len(read), len(written)) == (3, 0)


def test_directories_may_be_nested_deeper_than_python_calls(store: Store, git: Git) -> None:
    deep = b"/".join([b"d"] * 3000)
    tree = patch(store, EMPTY_TREE, {deep + b"/f": (REGULAR, BLOBS[1])})
    assert tree == patch_by_git(git, {deep + b"/f": (REGULAR, BLOBS[1])})
    assert patch(store, tree, {deep + b"/f": None}) == EMPTY_TREE


# --- reading ----------------------------------------------------------------------------------------


@given(st.dictionaries(names, st.tuples(st.sampled_from([DIRECTORY, REGULAR, LINK]), st.sampled_from(BLOBS))))
def test_a_tree_is_read_as_it_was_written(entries: dict[bytes, Leaf]) -> None:
    assert parse_tree(format_tree(entries)) == entries


_ROWS = st.builds(
    lambda mode, name, object_id, end: b"%s %s\0%s" % (mode, name, object_id[:end]),
    st.sampled_from(
        [b"100644", b"100755", b"120000", b"40000", b"40000", b"040000", b"160000", b"100664", b"8", b""]
    ),
    st.sampled_from(
        [b"a", b"A", b"b", b" c", b"", b".", b"..", b"...", b".git", b"digit", b".GIT ", b"git~1", b"d\n", b"d\n.",
         b"\n", b"\xc3\xa9", b"x\\y", b"x/y", b"100644 z", b"l" * 255, b"l" * 256, b"l" * 1025]
    ),
    st.sampled_from([bytes(20), b"100644 e\0" + b"i" * 11, b"\n.." + b"g" * 17]),
    st.sampled_from([20, 20, 20, 20, 20, 20, 20, 20, 19, 0]),
)  # fmt: skip


@given(st.lists(_ROWS, max_size=5).map(b"".join))
def test_a_tree_read_at_once_is_what_its_entries_are_one_by_one(data: bytes) -> None:
    try:
        entries = list(tree_entries(data))
    except MalformedObject:
        with pytest.raises((MalformedObject, UnsafeTree)):
            parse_tree(data)
        return
    unique = len({name for name, _ in entries}) == len(entries)
    if unique and all(entry_problem(name, mode) is None for name, (mode, _) in entries):
        assert list(parse_tree(data).items()) == entries
    else:
        with pytest.raises(UnsafeTree):
            parse_tree(data)


def test_names_that_a_file_system_may_take_for_the_same_are_found() -> None:
    file = (REGULAR, BLOBS[0])
    names = [b"a", b"A", b"b", b"caf\xc3\xa9", b"cafe\xcc\x81", b"Caf\xc3\xa9"]
    below = format_tree(dict.fromkeys(names, file))
    plain = format_tree(dict.fromkeys([b"x", b"y", b"a"], file))
    stored = {object_id(b"tree", data): data for data in (below, plain)}
    top = format_tree({b"below": (DIRECTORY, [*stored][0]), b"plain": (DIRECTORY, [*stored][1]), b"f": file})
    tree = TreeReader(object_id(b"tree", top), {**stored, object_id(b"tree", top): top}.__getitem__)
    assert [*tree.alike(b"below", [b"a", b"b", b"absent", b"B"])] == [(b"a", b"A")]
    assert {*tree.alike(b"below", [b"Caf\xc3\xa9"])} == {(names[5], names[3]), (names[5], names[4])}
    for folder in (b"", b"plain", b"f", b"absent", b"f/x"):
        assert [*tree.alike(folder, [b"a", b"x", b"below"])] == []


def test_git_finds_no_fault_with_the_order_of_names(store: Store) -> None:
    file = (REGULAR, BLOBS[0])
    tree = patch(store, EMPTY_TREE, {b"a.b": file, b"a/x": file, b"a0": file, b"a-b": file, b"aa/y": file})
    listed = store.git().run("ls-tree", "--name-only", tree).split()
    assert listed == [b"a-b", b"a.b", b"a", b"a0", b"aa"]
    assert store.git().run("fsck", "--strict", "--no-dangling") == b""


def test_paths_are_found_in_a_tree_and_each_directory_is_read_once(store: Store) -> None:
    file, link = (REGULAR, BLOBS[1]), (LINK, BLOBS[2])
    tree = patch(store, EMPTY_TREE, {b"d/e/f": file, b"d/g": link})
    read: list[str] = []
    with ObjectReader(store.git()) as reader:

        def note(name: str) -> bytes:
            read.append(name)
            return reader.read(name, b"tree")

        found = TreeReader(tree, note)
        assert found.find(b"d/e/f") == file and found.find(b"d/g") == link
        assert found.find(b"") == (DIRECTORY, tree)
        assert (found.find(b"d") or ())[0] == DIRECTORY
        for absent in (b"x", b"d/x", b"d/e/f/x", b"d/g/x", b"x/y/z"):
            assert found.find(absent) is None
    assert len(read) == len(set(read)) == 3
    assert TreeReader(EMPTY_TREE, lambda name: pytest.fail("there is nothing to read")).find(b"a") is None
