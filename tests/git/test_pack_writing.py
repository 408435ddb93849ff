"""Git accepts every pack that we write; an unfinished one leaves nothing."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.git import packs as pack_module
from shadowsnap.git.objects import EMPTY_BLOB, EMPTY_TREE, object_id
from shadowsnap.git.packs import PackWriter
from shadowsnap.git.trees import REGULAR, format_tree
from shadowsnap.settings import Settings
from shadowsnap.store.layout import Store, open_store


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base))


def folder(store: Store) -> Path:
    return store.git_dir / "objects" / "pack"


def files(store: Store) -> list[str]:
    return sorted(path.name for path in folder(store).iterdir())


def write_pack(store: Store, contents: list[bytes], *, fsync: bool = False) -> list[str]:
    pack = PackWriter(store.git_dir / "objects", fsync=fsync)
    try:
        names = [pack.add(b"blob", data) for data in contents]
        pack.finish()
    finally:
        pack.abandon()
    return names


def verified(store: Store) -> dict[str, tuple[str, int]]:
    """Id -> kind and size of every object, according to `git verify-pack`."""
    found = {}
    for index in folder(store).glob("*.idx"):
        for line in store.git().run("verify-pack", "-v", str(index)).decode().splitlines():
            if len(fields := line.split()) == 5 and len(fields[0]) == 40:
                found[fields[0]] = (fields[1], int(fields[2]))
    return found


# --- what git makes of it ---------------------------------------------------------------------------

# Sizes around the places where the header of an entry grows by a byte.
sizes = st.sampled_from([0, 1, 15, 16, 17, 2047, 2048, 2049, 262_143, 262_144])
contents = st.one_of(st.binary(max_size=50), sizes.map(lambda size: b"x" * size))


@given(contents=st.lists(contents, max_size=12))
def test_git_reads_every_object_of_the_pack(base: Path, contents: list[bytes]) -> None:
    store = open_store(Settings(base=base / hashlib.sha1(repr(contents).encode()).hexdigest(), fsync=False))
    names = write_pack(store, contents)
    assert names == [object_id(b"blob", data) for data in contents]
    expected = {name: ("blob", len(data)) for name, data in zip(names, contents, strict=True)}
    assert verified(store) == expected
    git = store.git()
    for name, data in zip(names, contents, strict=True):
        assert git.run("cat-file", "blob", name) == data
    assert git.run("fsck", "--full", "--strict", "--no-dangling") == b""


def test_trees_and_blobs_go_together(store: Store) -> None:
    pack = PackWriter(store.git_dir / "objects", fsync=True)
    blob = pack.add(b"blob", b"content")
    tree = pack.add(b"tree", format_tree({b"file": (REGULAR, blob)}))
    pack.add(b"tree", b"")
    pack.add(b"blob", b"")
    pack.finish()
    assert verified(store).keys() == {blob, tree, EMPTY_TREE, EMPTY_BLOB}
    assert store.git().run("ls-tree", "-r", tree) == b"100644 blob %s\tfile\n" % blob.encode()
    assert store.git().run("fsck", "--full", "--strict", "--no-dangling") == b""


def test_a_large_object_and_one_that_does_not_compress(store: Store) -> None:
    large = [b"\0" * (40 << 20), random.Random(1).randbytes(5 << 20)]
    names = write_pack(store, large)
    assert verified(store) == {name: ("blob", len(data)) for name, data in zip(names, large, strict=True)}
    assert store.git().run("cat-file", "blob", names[1]) == large[1]


def test_a_pack_that_is_flushed_to_the_disk_in_parts(store: Store) -> None:
    chance = random.Random(2)
    parts = [chance.randbytes(700_000) for _ in range(9)]
    names = write_pack(store, parts, fsync=True)
    assert verified(store) == {name: ("blob", len(data)) for name, data in zip(names, parts, strict=True)}
    assert [store.git().run("cat-file", "blob", name) for name in names] == parts


def test_the_same_content_is_packed_once(store: Store) -> None:
    names = write_pack(store, [b"twice", b"once", b"twice"])
    assert names[0] == names[2]
    assert len(verified(store)) == 2
    (index,) = folder(store).glob("*.idx")
    assert len(store.git().run("show-index", stdin=index.read_bytes()).splitlines()) == 2


def test_objects_that_are_in_the_store_already_do_no_harm(store: Store) -> None:
    store.objects.write(b"blob", b"loose too")
    write_pack(store, [b"loose too", b"other"])
    write_pack(store, [b"loose too", b"another"])
    write_pack(store, [b"loose too", b"another"])  # the very same pack again
    assert len(list(folder(store).glob("*.pack"))) == 2
    assert store.git().run("fsck", "--full", "--strict", "--no-dangling") == b""


def test_many_objects_are_found_by_their_names(store: Store) -> None:
    names = write_pack(store, [b"%d" % number for number in range(5000)])
    asked = "".join(f"{name}\n" for name in names).encode()
    answer = store.git().run("cat-file", "--batch-check=%(objecttype)", stdin=asked)
    assert answer == b"blob\n" * 5000


def test_the_index_is_byte_for_byte_the_one_that_git_would_write(store: Store, tmp_path: Path) -> None:
    write_pack(store, [b"%d" % number * number for number in range(300)])
    (pack,), (index,) = folder(store).glob("*.pack"), folder(store).glob("*.idx")
    store.git().run("index-pack", "-o", str(tmp_path / "by-git.idx"), str(pack))
    assert index.read_bytes() == (tmp_path / "by-git.idx").read_bytes()


def test_offsets_beyond_two_gigabytes_are_written_as_git_writes_them(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git has an option to treat smaller offsets as large ones."""
    monkeypatch.setattr(pack_module, "_LARGE_OFFSET", 1000)
    names = write_pack(store, [b"%d" % number for number in range(300)])
    (pack,), (index,) = folder(store).glob("*.pack"), folder(store).glob("*.idx")
    store.git().run("index-pack", "--index-version=2,999", "-o", str(tmp_path / "by-git.idx"), str(pack))
    assert index.read_bytes() == (tmp_path / "by-git.idx").read_bytes()
    assert verified(store).keys() == set(names)


# --- before, and instead ----------------------------------------------------------------------------


def test_git_does_not_see_an_unfinished_pack(store: Store) -> None:
    pack = PackWriter(store.git_dir / "objects", fsync=False)
    pack.add(b"blob", b"not yet")
    assert store.git().run("count-objects", "-v").splitlines()[2:4] == [b"in-pack: 0", b"packs: 0"]
    pack.finish()
    assert b"in-pack: 1" in store.git().run("count-objects", "-v").splitlines()


def test_an_abandoned_pack_leaves_nothing(store: Store) -> None:
    pack = PackWriter(store.git_dir / "objects", fsync=False)
    pack.add(b"blob", b"x" * 100_000)
    pack.abandon()
    pack.abandon()
    assert files(store) == []


def test_a_pack_without_objects_leaves_nothing(store: Store) -> None:
    write_pack(store, [])
    assert files(store) == []


def test_a_finished_pack_stays_when_it_is_abandoned(store: Store) -> None:
    pack = PackWriter(store.git_dir / "objects", fsync=False)
    name = pack.add(b"blob", b"kept")
    pack.finish()
    pack.abandon()
    assert store.git().run("cat-file", "blob", name) == b"kept"
    assert [path.rpartition(".")[2] for path in files(store)] == ["idx", "pack"]


@pytest.mark.parametrize(("limit", "contents"), [
    (30_000, [os.urandom(9000), os.urandom(9000), os.urandom(9000), os.urandom(9000)]),  # met while adding
    (8_000, [os.urandom(7980)]),  # met when the last bytes are flushed
    (1_000, [b"1", b"2", b"3"]),  # the pack fits, its index does not
])  # fmt: skip
def test_a_full_disk_leaves_nothing(
    store: Store, as_user: Callable[..., Any], limit: int, contents: list[bytes]
) -> None:
    def fill_the_disk() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with pytest.raises(OSError, match="too large"):
            write_pack(store, contents)

    as_user(fill_the_disk)
    assert files(store) == []


def test_objects_are_the_same_with_the_extra_fast_and_without(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("isal")
    for number in range(150):  # enough for several threads
        (project / f"{number}.txt").write_text(f"{number}\n" * number)
    (project / "medium").write_bytes(b"a line of text\n" * 9000)
    (project / "large").write_bytes(bytes(range(256)) * 9000)
    ids = []
    for name in ("fast", "plain"):
        if name == "plain":
            monkeypatch.setitem(sys.modules, "isal", None)
        base = tmp_path / name
        ids.append(CheckpointManager(base=base, fsync=False).ensure_checkpoint(project).checkpoint.tree)
        git(base / "store", "fsck", "--full", "--strict")
    assert ids[0] == ids[1]
