"""The index file we write is valid: git reads it and gives the same answers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.deadline import Deadline
from shadowsnap.errors import MalformedObject
from shadowsnap.git import index as index_module
from shadowsnap.git.index import Entry, Index, Known
from shadowsnap.git.objects import EMPTY_BLOB, EMPTY_TREE, object_id
from shadowsnap.git.repository import Git
from shadowsnap.git.trees import EXECUTABLE, LINK, REGULAR
from shadowsnap.settings import Settings
from shadowsnap.store.layout import open_store

BLOBS = [object_id(b"blob", data) for data in (b"", b"one\n", b"two\n")]
Model = dict[bytes, tuple[int, str]]


@pytest.fixture
def git(base: Path, tmp_path: Path) -> Git:
    """git with a store that has the blobs above, and an empty work tree."""
    store = open_store(Settings(base=base))
    for data in (b"", b"one\n", b"two\n"):
        store.objects.write(b"blob", data)
    work_tree = tmp_path / "tree"
    work_tree.mkdir()
    return store.git().bound(work_tree=work_tree, index_file=tmp_path / "index")


def entries_by_git(git: Git) -> Model:
    found: Model = {}
    for row in git.run("ls-files", "-s", "-z").split(b"\0")[:-1]:
        meta, _, path = row.partition(b"\t")
        mode, name, stage = meta.split(b" ")
        assert stage == b"0"
        found[path] = (int(mode, 8), name.decode())
    return found


def tree_by_git(git: Git) -> str:
    """write-tree stores what it computed in the index, so it gets a copy."""
    copy = git.index_file.with_name("copy-of-index")
    shutil.copyfile(git.index_file, copy)
    return git.bound(index_file=copy).run("write-tree").decode().strip()


def tree_of(git: Git, model: Model) -> str:
    """The tree git makes of the same entries in an index of its own."""
    own = git.bound(index_file=git.index_file.with_name("index-by-git"))
    own.run("read-tree", "--empty")
    rows = b"".join(b"%o %s\t%s\0" % (mode, name.encode(), path) for path, (mode, name) in model.items())
    own.run("update-index", "-z", "--index-info", stdin=rows)
    return own.run("write-tree").decode().strip()


# --- any set of paths -------------------------------------------------------------------------------

LONG = b"/".join([b"x" * 250] * 20)
names = st.sampled_from([b"a", b"a.b", b"a-", b"a0", b"b", b"\xff\xfe", b"new\nline", b"-x", b"s p", b"\xc3\xa9"])
short_paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
long_paths = st.sampled_from([4093, 4094, 4095, 4096, 4097, 5000]).flatmap(
    lambda length: st.sampled_from([b"L/", b"a/"]).map(lambda top: (top + LONG)[:length].rstrip(b"/") + b"!")
)
paths = st.one_of(short_paths, short_paths, short_paths, long_paths)
leaves = st.tuples(st.sampled_from([REGULAR, EXECUTABLE, LINK]), st.sampled_from(BLOBS))
steps = st.lists(st.dictionaries(paths, st.one_of(st.none(), leaves, leaves), max_size=25), max_size=5)


def in_the_way(path: bytes, model: Model) -> list[bytes]:
    """The paths that exclude this one from a tree."""
    return [
        other for other in model
        if other != path and (other.startswith(path + b"/") or path.startswith(other + b"/"))
    ]  # fmt: skip


@given(steps=steps)
def test_git_sees_the_entries_that_were_set_and_not_those_that_were_removed(
    git: Git, steps: list[dict[bytes, tuple[int, str] | None]]
) -> None:
    git.index_file.unlink(missing_ok=True)
    seen = os.stat(git.work_tree)
    model: Model = {}
    index = Index.load(git.index_file)
    with small_blocks():
        for step in steps:
            changes: dict[bytes, Entry | None] = {}
            for path, leaf in step.items():
                if leaf is not None:
                    for other in in_the_way(path, model):
                        model.pop(other)
                        changes[other] = None
                    model[path] = leaf
                else:
                    model.pop(path, None)
                changes[path] = None if leaf is None else Entry.of(*leaf, seen)
            index = index.write(changes)
            assert entries_by_git(git) == model
            assert list(index.paths()) == sorted(model)
            assert len(index) == len(model)
            assert Index.load(git.index_file).checksum == index.checksum
            found = index.lookup([*step, b"never-there"])
            assert {path: (known.mode, known.id) for path, known in found.items()} == {
                path: model[path] for path in step if path in model
            }
    if steps:
        assert tree_by_git(git) == tree_of(git, model)


@given(model=st.sets(short_paths, max_size=40), folder=short_paths)
def test_the_paths_below_a_directory_are_found(git: Git, model: set[bytes], folder: bytes) -> None:
    git.index_file.unlink(missing_ok=True)
    seen = os.stat(git.work_tree)
    with small_blocks():
        index = Index(git.index_file).write({path: Entry.of(REGULAR, EMPTY_BLOB, seen) for path in model})
    assert list(index.paths_below(folder)) == sorted(p for p in model if p.startswith(folder + b"/"))


class small_blocks:
    """Blocks of two entries: many of them with few files."""

    def __enter__(self) -> None:
        self._usual = index_module._BLOCK_ENTRIES
        index_module._BLOCK_ENTRIES = 2

    def __exit__(self, *_: object) -> None:
        index_module._BLOCK_ENTRIES = self._usual


def test_an_index_that_lost_its_last_entry_is_empty(git: Git) -> None:
    full = Index(git.index_file).write({b"a": Entry.of(REGULAR, EMPTY_BLOB, os.stat(git.work_tree))})
    empty = full.write({b"a": None})
    assert len(empty) == 0 and list(empty.paths()) == [] and empty.lookup([b"a"]) == {}
    assert entries_by_git(git) == {}
    assert tree_by_git(git) == EMPTY_TREE
    again = Index.load(git.index_file).write({b"b": Entry.of(REGULAR, EMPTY_BLOB, os.stat(git.work_tree))})
    assert list(again.paths()) == [b"b"]


def test_an_absent_index_is_empty(tmp_path: Path) -> None:
    index = Index.load(tmp_path / "none")
    assert len(index) == 0 and index.checksum == ""
    assert not (tmp_path / "none").exists()


# --- many entries -----------------------------------------------------------------------------------


def test_git_loads_many_entries_with_several_threads(git: Git) -> None:
    """The table of blocks is used by git only with more threads than this machine may have cores,
    so the number is set."""
    seen = os.stat(git.work_tree)
    model: Model = {b"dir%03d/file%05d" % (n % 200, n): (REGULAR, BLOBS[n % 3]) for n in range(25_000)}
    index = Index(git.index_file).write({path: Entry.of(*leaf, seen) for path, leaf in model.items()})
    threaded = git.bound(config=("index.threads=4",))
    assert entries_by_git(threaded) == model
    # Changed in place: most blocks are copied as they are, some are cut anew.
    changes: dict[bytes, Entry | None] = dict.fromkeys(list(model)[:3000])
    changes |= {b"dir100/new%05d" % n: Entry.of(EXECUTABLE, BLOBS[1], seen) for n in range(2000)}
    for path, changed in changes.items():
        model.pop(path, None)
        if changed is not None:
            model[path] = (changed.mode, changed.id)
    index = index.write(changes)
    assert entries_by_git(threaded) == model
    assert entries_by_git(git.bound(config=("index.threads=1",))) == model
    assert tree_by_git(threaded) == tree_of(git, model)
    assert len(index) == len(model)


def test_the_table_of_blocks_is_what_git_reads_with_threads(git: Git) -> None:
    """Breaks the table on purpose: if git did not use it, the test above would prove nothing."""
    seen = os.stat(git.work_tree)
    Index(git.index_file).write({b"%05d" % n: Entry.of(REGULAR, EMPTY_BLOB, seen) for n in range(25_000)})
    whole = git.index_file.read_bytes()
    at = whole.rindex(b"IEOT")
    git.index_file.write_bytes(whole[: at + 12 + 12] + b"\0\0\0\1" + whole[at + 12 + 16 :])
    git.index_file.touch()
    assert len(entries_by_git(git.bound(config=("index.threads=1",)))) == 25_000
    try:
        found = len(entries_by_git(git.bound(config=("index.threads=4",))))
    except Exception:
        found = -1
    assert found != 25_000


def test_adding_files_one_by_one_does_not_split_a_block_each_time(git: Git) -> None:
    seen, index = os.stat(git.work_tree), Index(git.index_file)
    for n in range(60):
        index = index.write({b"%03d" % n: Entry.of(REGULAR, EMPTY_BLOB, seen)})
    assert entries_by_git(git).keys() == {b"%03d" % n for n in range(60)}
    assert len(index._blocks) == 1


# --- the stat data that git reads -------------------------------------------------------------------


@pytest.fixture
def write(git: Git) -> Callable[[dict[bytes, bytes]], dict[bytes, Entry]]:
    """Write files into the work tree, and return their index entries."""

    def write(files: Mapping[bytes, bytes]) -> dict[bytes, Entry]:
        made = {}
        for name, data in files.items():
            path = os.path.join(os.fsencode(git.work_tree), name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(os.fsdecode(path)).write_bytes(data)
            made[name] = Entry.of(REGULAR, object_id(b"blob", data), os.lstat(path))
        return made

    return write


Write = Callable[[dict[bytes, bytes]], dict[bytes, Entry]]


def differing(git: Git) -> set[bytes]:
    return set(git.run("diff-files", "--name-only", "-z").split(b"\0")[:-1])


def test_git_finds_every_field_of_the_stat_data(git: Git, write: Write) -> None:
    made = write({b"file": b"12345", b"dir/other": b""})
    Index(git.index_file).write(made)
    lines = git.run("ls-files", "-s", "--debug").decode().split("\n")
    for path in made:
        at = next(number for number, line in enumerate(lines) if line.endswith(f"\t{path.decode()}"))
        fields = " ".join(lines[at + 1 : at + 6]).split()
        seen = os.lstat(git.work_tree / os.fsdecode(path))
        assert fields == [
            "ctime:", f"{seen.st_ctime_ns // 10**9}:{seen.st_ctime_ns % 10**9}",
            "mtime:", f"{seen.st_mtime_ns // 10**9}:{seen.st_mtime_ns % 10**9}",
            "dev:", str(seen.st_dev & 0xFFFFFFFF), "ino:", str(seen.st_ino & 0xFFFFFFFF),
            "uid:", str(seen.st_uid), "gid:", str(seen.st_gid), "size:", str(seen.st_size), "flags:", "0",
        ]  # fmt: skip


def test_git_trusts_the_stat_data_of_untouched_files(git: Git, write: Write) -> None:
    """Nothing differs, although git never saw the content: it did not read the files."""
    made = write({b"a": b"one", b"b/c": b"two"})
    lies = {path: Entry.of(REGULAR, BLOBS[1], os.lstat(git.work_tree / os.fsdecode(path))) for path in made}
    Index(git.index_file).write(lies)
    assert differing(git) == set()


def test_git_finds_changed_and_missing_files(git: Git, write: Write) -> None:
    made = write({b"same": b"1", b"longer": b"1", b"gone": b"1", b"executable": b"1", b"older": b"1"})
    Index(git.index_file).write(made)
    write({b"longer": b"12"})
    (git.work_tree / "gone").unlink()
    (git.work_tree / "executable").chmod(0o755)
    os.utime(git.work_tree / "older", ns=(10**18, 10**18))
    assert differing(git) >= {b"longer", b"gone", b"executable"}
    assert b"same" not in differing(git)


@pytest.mark.parametrize("seconds", [-5, 2**31 + 7, 2**32 + 5])
def test_times_before_1970_and_far_ahead_are_kept_as_git_keeps_them(
    git: Git, write: Write, tmp_path: Path, seconds: int
) -> None:
    made = write({b"odd": b"1"})
    os.utime(git.work_tree / "odd", ns=(0, seconds * 10**9 + 3))
    seen = os.lstat(git.work_tree / "odd")
    Index(git.index_file).write({b"odd": Entry.of(REGULAR, made[b"odd"].id, seen)})
    by_git = git.bound(index_file=tmp_path / "index-by-git")
    by_git.run("update-index", "--add", "odd")
    assert git.run("ls-files", "--debug", "-s") == by_git.run("ls-files", "--debug", "-s")


# --- racy files -------------------------------------------------------------------------------------


def test_git_never_opens_a_file_to_compare_it(git: Git, write: Write) -> None:
    """Neither the file nor its .gitattributes may be opened: git would wait for a FIFO."""
    write({b"racy": b"new content"})
    os.mkfifo(git.work_tree / ".gitattributes")
    seen = os.lstat(git.work_tree / "racy")
    old = {b"racy": Entry.of(REGULAR, object_id(b"blob", b"old content"), seen)}
    Index(git.index_file).write(old)
    assert git.index_file.stat().st_mtime_ns == 0
    assert differing(git.bound(deadline=Deadline(20))) == set()


# --- looking things up ------------------------------------------------------------------------------


def test_a_known_file_is_recognised_until_it_is_written_to(git: Git, write: Write) -> None:
    made = write({b"a": b"12"})
    index = Index(git.index_file).write(made)
    known, path = index.lookup([b"a"])[b"a"], git.work_tree / "a"
    assert known == Known.of(made[b"a"])
    assert known.is_untouched(os.lstat(path))
    path.rename(git.work_tree / "b")
    (git.work_tree / "b").rename(path)
    assert known.is_unwritten(os.lstat(path))
    os.utime(path, ns=(1, 1))
    assert not known.is_unwritten(os.lstat(path)) and not known.is_untouched(os.lstat(path))


# --- damage -----------------------------------------------------------------------------------------


@pytest.fixture
def sound(git: Git, write: Write) -> bytes:
    made = write({b"%03d" % n: b"" for n in range(12)})
    with small_blocks():
        Index(git.index_file).write(made)
    return git.index_file.read_bytes()


@given(data=st.data())
def test_any_damage_to_the_file_is_detected(git: Git, sound: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sound) - 1))
    damaged = data.draw(
        st.one_of(
            st.just(sound[:at]),
            st.integers(1, 255).map(lambda flip: sound[:at] + bytes([sound[at] ^ flip]) + sound[at + 1 :]),
            st.just(sound[:at] + bytes(len(sound) - at)),
            st.just(sound + b"\0"),
        ).filter(lambda value: value != sound)
    )
    git.index_file.write_bytes(damaged)
    with pytest.raises(MalformedObject, match="index"):
        Index.load(git.index_file)


def test_an_index_that_git_wrote_is_refused(git: Git) -> None:
    git.run("update-index", "--add", "--cacheinfo", f"100644,{EMPTY_BLOB},a")
    with pytest.raises(MalformedObject):
        Index.load(git.index_file)


def test_a_write_that_meets_a_full_disk_leaves_the_old_file_and_no_other(
    git: Git, write: Write, as_user: Callable[..., Any]
) -> None:
    made = write({b"%03d" % n: b"" for n in range(100)})
    index = Index(git.index_file).write({b"000": made[b"000"]})
    before = sorted(git.index_file.parent.iterdir()), git.index_file.read_bytes()

    def fill_the_disk() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        with pytest.raises(OSError, match="too large"):
            index.write(made)

    as_user(fill_the_disk)
    assert (sorted(git.index_file.parent.iterdir()), git.index_file.read_bytes()) == before


def test_a_block_that_does_not_add_up_is_an_error_and_never_a_wrong_answer(git: Git, sound: bytes) -> None:
    length = 12 + 60  # of the first entry's name
    broken = sound[:length] + b"\0\x33" + sound[length + 2 :]
    with pytest.raises(MalformedObject):
        list(Index(git.index_file, broken).paths())
