"""What we read from a pack is what git reads from it. Anything unusual is left to git."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from damaging import flip, truncate
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import git
from shadowsnap.errors import DamagedObject
from shadowsnap.git import packs as pack_module
from shadowsnap.git import packs as packed
from shadowsnap.git import repository as runner
from shadowsnap.git.objects import object_id
from shadowsnap.git.packs import Packs, PackWriter
from shadowsnap.git.reading import ObjectReader
from shadowsnap.settings import Settings
from shadowsnap.store.layout import open_store

MISSING = "1" * 40
FANOUT, NAMES = 8, 8 + 1024


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return bare(tmp_path / "repository")


def bare(where: Path) -> Path:
    git(where.parent, "init", "-q", "--bare", where)
    return where


def objects(repository: Path) -> Path:
    return repository / "objects"


def write(repository: Path, data: bytes) -> str:
    return git(repository, "hash-object", "-w", "--stdin", stdin=data)


def as_git_reads(repository: Path) -> dict[str, tuple[bytes, bytes]]:
    """Id -> kind and content of every object."""
    rest, found = git_bytes(repository, "cat-file", "--batch-all-objects", "--batch") + b"\n", {}
    while rest:
        header, _, rest = rest.partition(b"\n")
        name, kind, size = header.split()
        found[name.decode()], rest = (kind, rest[: int(size)]), rest[int(size) + 1 :]
    return found


def git_bytes(repository: Path, *args: str, stdin: bytes = b"") -> bytes:
    return os.fsencode(git(repository, *args, stdin=stdin))


def pack_file(repository: Path, ending: str = "pack") -> Path:
    (path,) = (objects(repository) / "pack").glob(f"*.{ending}")
    return path


def versions(seed: int, number: int, size: int = 3000) -> list[bytes]:
    """Files with much in common, so that git stores most of them as deltas."""
    chance = random.Random(seed)
    text = bytearray(chance.randbytes(size))
    made = []
    for _ in range(number):
        at = chance.randrange(len(text) + 1)
        text[at : at + chance.randrange(40)] = chance.randbytes(chance.randrange(60))
        made.append(bytes(text))
    return made


def history(repository: Path, contents: list[bytes]) -> None:
    """Commits of trees of blobs, each with many neighbours."""
    stream = b""
    for number, data in enumerate(contents):
        stream += b"commit refs/heads/main\ncommitter a <b> %d +0000\ndata 2\nx\n" % number
        stream += b"M 644 inline file-%04d\ndata %d\n%s\n" % (number, len(data), data)
    git(repository, "fast-import", "--quiet", stdin=stream)


def deltas(repository: Path) -> int:
    rows = git(repository, "verify-pack", "-v", pack_file(repository, "idx")).splitlines()
    return sum(len(row.split()) == 7 for row in rows)


# --- what git reads, we read ------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["offset", "name"])
def test_every_object_of_a_history_of_deltas_is_read(repository: Path, by: str) -> None:
    history(repository, [b"", b"x", os.urandom(200_000), *versions(1, 30)])
    git(repository, "-c", f"repack.useDeltaBaseOffset={by == 'offset'}".lower(), "repack", "-adfq", "--depth=40")
    assert deltas(repository) > 30
    kinds = {kind for kind, _ in as_git_reads(repository).values()}
    assert kinds == {b"blob", b"tree", b"commit"}
    packs = Packs(objects(repository))
    for name, whole in as_git_reads(repository).items():
        assert packs.read(name) == whole


@settings(max_examples=max(1, settings().max_examples // 4))
@given(
    contents=st.lists(
        st.one_of(st.binary(max_size=80), st.binary(max_size=3).map(lambda few: few * 30_000)), max_size=8
    ),
    seed=st.integers(0, 2**32),
    cuts=st.integers(1, 3),
    by=st.sampled_from(["true", "false"]),
)
def test_every_object_of_a_random_repository_is_read(
    tmp_path: Path, contents: list[bytes], seed: int, cuts: int, by: str
) -> None:
    repository = bare(tmp_path / "random")
    try:
        blobs = [*contents, *versions(seed, 6, 400)]
        for part in range(cuts):  # each becomes a pack
            for data in blobs[part::cuts]:
                write(repository, data)
            git(repository, "-c", f"repack.useDeltaBaseOffset={by}", "repack", "-dq")
            write_pack(repository, [b"%d of our own" % part])
        packs = Packs(objects(repository))
        for name, whole in as_git_reads(repository).items():
            if not (objects(repository) / name[:2] / name[2:]).exists():  # unreachable: git left it loose
                assert packs.read(name) == whole
    finally:
        shutil.rmtree(repository)


def write_pack(repository: Path, contents: list[bytes]) -> list[str]:
    pack = PackWriter(objects(repository), fsync=False)
    names = [pack.add(b"blob", data) for data in contents]
    pack.finish()
    return names


def test_many_objects_are_found_by_their_ids(repository: Path) -> None:
    names = write_pack(repository, [b"%d" % number for number in range(5000)])
    assert {name[:2] for name in names} == {f"{byte:02x}" for byte in range(256)}
    packs = Packs(objects(repository))
    for number in range(0, 5000, 7):
        assert packs.read(names[number]) == (b"blob", b"%d" % number)
    for name in (MISSING, "0" * 40, "f" * 40, names[0][:-1] + ("0" if names[0][-1] != "0" else "1")):
        assert packs.read(name) is None


def test_the_indexes_of_older_packs_are_not_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for number in range(5):
        names += write_pack(repository, [b"%d" % number])
        for index in objects(repository).glob("pack/*.idx"):
            os.utime(index, ns=(0, index.stat().st_mtime_ns - 10**9))  # the last one written is the newest
    opened: list[str] = []
    open_index = packed._open_index

    def noting(stem: str) -> packed._PackIndex | None:
        opened.append(stem)
        return open_index(stem)

    monkeypatch.setattr(packed, "_open_index", noting)
    packs = Packs(objects(repository))
    assert packs.read(names[4]) == packs.read(names[4]) == (b"blob", b"4")
    assert packs.read(names[3], known_only=True) == (b"blob", b"3")
    assert len(opened) == 2
    assert packs.read(names[0]) == (b"blob", b"0")
    assert packs.read(MISSING) is None
    assert len(opened) == len({*opened}) == 5


def test_each_of_many_small_packs_is_searched_once(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [write_pack(repository, [b"%d" % number])[0] for number in range(40)]
    searched: list[str] = []
    find = packed._PackIndex.find

    def noting(index: packed._PackIndex, name: bytes) -> int | None:
        searched.append(index.stem)
        return find(index, name)

    monkeypatch.setattr(packed._PackIndex, "find", noting)
    packs = Packs(objects(repository))
    for _ in range(2):
        assert [packs.read(name) for name in names] == [(b"blob", b"%d" % number) for number in range(40)]
    assert len(searched) == len({*searched}) == 40


def test_small_packs_that_a_repack_removed_are_forgotten(repository: Path) -> None:
    names = [write_pack(repository, [b"%d" % number])[0] for number in range(3)]
    packs = Packs(objects(repository))
    assert all(packs.read(name) for name in names)
    for path in objects(repository).glob("pack/*"):
        path.unlink()
    again = write_pack(repository, [b"0", b"1", b"more"])
    assert packs.read(again[2]) == (b"blob", b"more")
    assert [packs.read(name) for name in names] == [(b"blob", b"0"), (b"blob", b"1"), None]


def test_the_base_of_a_ref_delta_may_be_in_another_pack(repository: Path) -> None:
    """Git makes such packs only for sending; we follow them all the same."""
    old, new = versions(3, 2)
    base, name = object_id(b"blob", old), object_id(b"blob", new)
    write(repository, old), write(repository, new)
    thin = git_bytes(repository, "pack-objects", "--thin", "--delta-base-offset", "--stdout", "--revs",
                     stdin=two_commits(repository, base, name))  # fmt: skip
    for path in objects(repository).glob("??"):
        shutil.rmtree(path)
    write_pack(repository, [old])
    entries = entries_of(thin)
    assert (7, base) in {(kind, base_id) for kind, base_id, _ in entries}
    (at,) = [at for _, base_id, at in entries if base_id == base]
    place_pack(repository, thin, {name: at})
    assert Packs(objects(repository)).read(name) == (b"blob", new)


def two_commits(repository: Path, old: str, new: str) -> bytes:
    """The input of `rev-list` for what the second commit adds to the first."""
    trees = [git(repository, "mktree", stdin=f"100644 blob {blob}\tfile\n".encode()) for blob in (old, new)]
    first = git(repository, "commit-tree", "-m", "first", trees[0])
    second = git(repository, "commit-tree", "-m", "second", "-p", first, trees[1])
    return f"{second}\n^{first}\n".encode()


def entries_of(pack: bytes) -> list[tuple[int, str, int]]:
    """Kind, base and offset of every entry in a pack."""
    import zlib

    at, found = 12, []
    for _ in range(int.from_bytes(pack[8:12], "big")):
        start, kind, base_id = at, pack[at] >> 4 & 7, ""
        while pack[at] & 0x80:
            at += 1
        at += 1
        if kind == 7:
            base_id, at = pack[at : at + 20].hex(), at + 20
        inflate = zlib.decompressobj()
        inflate.decompress(pack[at:])
        at = len(pack) - len(inflate.unused_data)
        found.append((kind, base_id, start))
    return found


def place_pack(
    repository: Path, pack: bytes, offsets: dict[str, int], large: dict[str, int] | None = None
) -> None:
    """A pack with an index; with `large`, one that uses the table of large offsets."""
    large = large or {}
    stem = objects(repository) / "pack" / f"pack-{'a' * 40}"
    stem.with_suffix(".pack").write_bytes(pack)
    names = sorted({*offsets, *large})
    counts = [sum(int(name[:2], 16) <= byte for name in names) for byte in range(256)]
    beyond = sorted(large)
    offset_table = [1 << 31 | beyond.index(name) if name in beyond else offsets[name] for name in names]
    stem.with_suffix(".idx").write_bytes(b"".join((
        b"\377tOc\0\0\0\2", struct.pack(">256I", *counts), bytes.fromhex("".join(names)), bytes(4 * len(names)),
        struct.pack(f">{len(names)}I", *offset_table),
        struct.pack(f">{len(beyond)}Q", *(large[each] for each in beyond)),
        bytes(40),
    )))  # fmt: skip


def test_offsets_beyond_two_gigabytes_are_found(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_module, "_LARGE_OFFSET", 1000)
    names = write_pack(repository, [b"%d" % number for number in range(300)])
    packs = Packs(objects(repository))
    assert [packs.read(name) for name in names] == [(b"blob", b"%d" % number) for number in range(300)]


def test_an_object_behind_four_gigabytes_is_read(repository: Path) -> None:
    """In a file that is mostly a hole."""
    write_pack(repository, [b"far out"])
    pack, name, far = pack_file(repository).read_bytes(), object_id(b"blob", b"far out"), 5 << 30
    shutil.rmtree(objects(repository) / "pack")
    (objects(repository) / "pack").mkdir()
    place_pack(repository, b"", {}, {name: far})
    with open(pack_file(repository), "r+b") as file:
        file.seek(far)
        file.write(pack[12:])
    assert Packs(objects(repository)).read(name) == (b"blob", b"far out")


def test_objects_are_found_in_whichever_of_many_packs_they_are(repository: Path, tmp_path: Path) -> None:
    other = bare(tmp_path / "other")
    names = [write_pack(repository, [b"pack %d" % number])[0] for number in range(40)]
    (elsewhere,) = write_pack(other, [b"elsewhere"])
    packs = Packs(objects(other), objects(repository))
    assert [packs.read(name) for name in names] == [(b"blob", b"pack %d" % number) for number in range(40)]
    assert packs.read(elsewhere) == (b"blob", b"elsewhere")


def test_a_directory_without_packs_does_not_hide_the_others(repository: Path, tmp_path: Path) -> None:
    """Scratch objects have none at first."""
    (name,) = write_pack(repository, [b"found"])
    (tmp_path / "scratch").mkdir()
    assert Packs(tmp_path / "scratch", objects(repository)).read(name) == (b"blob", b"found")
    assert Packs(tmp_path / "scratch", tmp_path / "nowhere").read(name) is None


# --- what is odd is left to git ---------------------------------------------------------------------


def no_pack(repository: Path) -> None:
    pack_file(repository).unlink()


def empty_pack(repository: Path) -> None:
    truncate(pack_file(repository))


def cut_pack(repository: Path) -> None:
    truncate(pack_file(repository), 13)


def cut_within_the_data(repository: Path) -> None:
    truncate(pack_file(repository), 60)


def empty_index(repository: Path) -> None:
    truncate(pack_file(repository, "idx"))


def cut_index(repository: Path) -> None:
    truncate(pack_file(repository, "idx"), NAMES + 10)


def cut_offsets(repository: Path) -> None:
    truncate(pack_file(repository, "idx"), NAMES + 24)


def index_of_another_version(repository: Path) -> None:
    flip(pack_file(repository, "idx"), 7)


def index_that_promises_billions(repository: Path) -> None:
    """Memory for that many ids must not be allocated."""
    overwrite(pack_file(repository, "idx"), FANOUT, struct.pack(">I", 0xFFFFFFF0) * 256)


def index_that_counts_backwards(repository: Path) -> None:
    overwrite(pack_file(repository, "idx"), FANOUT, struct.pack(">256I", *range(256, 0, -1)))


def offset_behind_the_end(repository: Path) -> None:
    overwrite(pack_file(repository, "idx"), NAMES + 24, struct.pack(">I", 0x7FFFFFFF))


def offset_in_a_table_that_is_not_there(repository: Path) -> None:
    overwrite(pack_file(repository, "idx"), NAMES + 24, struct.pack(">I", 0xFFFFFFFF))


def offset_that_no_file_has(repository: Path) -> None:
    """Its offsets point into the checksums as if they were a table of large offsets."""
    overwrite(pack_file(repository, "idx"), NAMES + 24, struct.pack(">I", 1 << 31) + b"\xff" * 40)


def offset_of_the_header(repository: Path) -> None:
    overwrite(pack_file(repository, "idx"), NAMES + 24, bytes(4))


def kind_that_is_none(repository: Path) -> None:
    overwrite(pack_file(repository), 12, b"\x50")


def delta_against_itself(repository: Path) -> None:
    """A delta whose base is at its own offset."""
    overwrite(pack_file(repository), 12, b"\x60\x00\x78\x01\x03\x00\x00\x00\x00\x01")


def delta_against_a_negative_offset(repository: Path) -> None:
    overwrite(pack_file(repository), 12, b"\x60\xff\xff\x7f\x78\x01\x03\x00\x00\x00\x00\x01")


def delta_against_its_own_id(repository: Path) -> None:
    name = bytes.fromhex(object_id(b"blob", CONTENT))
    overwrite(pack_file(repository), 12, b"\x70" + name + b"\x78\x01\x03\x00\x00\x00\x00\x01")


def endless_size(repository: Path) -> None:
    overwrite(pack_file(repository), 12, b"\xb0" + b"\xff" * 80)


def another_size(repository: Path) -> None:
    overwrite(pack_file(repository), 12, bytes([pack_file(repository).read_bytes()[12] ^ 1]))


def flipped_data(repository: Path) -> None:
    flip(pack_file(repository), 60, 4)


def another_object(repository: Path) -> None:
    """It decompresses well, but its content has another id."""
    index = pack_file(repository, "idx").read_bytes()
    pack_file(repository).unlink()
    pack_file(repository, "idx").unlink()
    write_pack(repository, [b"something else"])
    overwrite(pack_file(repository, "idx"), FANOUT, index[FANOUT : NAMES + 20])


def overwrite(path: Path, at: int, data: bytes) -> None:
    os.chmod(path, 0o600)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


CONTENT = bytes(range(256)) * 2

DAMAGES = [
    no_pack, empty_pack, cut_pack, cut_within_the_data, empty_index, cut_index, cut_offsets,
    index_of_another_version, index_that_promises_billions, index_that_counts_backwards, offset_behind_the_end,
    offset_in_a_table_that_is_not_there, offset_that_no_file_has, offset_of_the_header, kind_that_is_none,
    delta_against_itself, delta_against_a_negative_offset, delta_against_its_own_id, endless_size,
    another_size, flipped_data, another_object,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_objects_are_left_to_git(repository: Path, damage: Callable[[Path], None]) -> None:
    (name,) = write_pack(repository, [CONTENT])
    damage(repository)
    assert Packs(objects(repository)).read(name) is None


# Git itself would go round in the one, and believe the other.
NOTICED = [damage for damage in DAMAGES if damage not in (delta_against_its_own_id, another_object)]


@pytest.mark.parametrize("damage", NOTICED)
def test_an_intact_copy_beside_a_damaged_one_is_found_by_git(base: Path, damage: Callable[[Path], None]) -> None:
    store = open_store(Settings(base=base))
    (name,) = write_pack(store.git_dir, [CONTENT])
    damage(store.git_dir)
    with ObjectReader(store.git()) as reader, pytest.raises(DamagedObject):
        reader.read(name, b"blob")
    write_pack(store.git_dir, [b"beside", CONTENT])
    with ObjectReader(store.git()) as reader:
        assert reader.read(name, b"blob") == CONTENT


@given(at=st.integers(0, 10**6), bits=st.integers(1, 255), which=st.sampled_from(["pack", "idx"]))
def test_a_flipped_bit_never_gives_wrong_content(tmp_path: Path, at: int, bits: int, which: str) -> None:
    """Every read gives the right content or none."""
    repository = tmp_path / "flipped"
    shutil.copytree(_packed_history(tmp_path), repository)
    try:
        truth = as_git_reads(tmp_path / "sound")
        path = pack_file(repository, which)
        data = path.read_bytes()
        overwrite(path, at % len(data), bytes([data[at % len(data)] ^ bits]))
        packs = Packs(objects(repository))
        for name, whole in truth.items():
            assert packs.read(name) in (whole, None)
    finally:
        shutil.rmtree(repository)


def _packed_history(where: Path) -> Path:
    sound = where / "sound"
    if not sound.exists():
        history(bare(sound), versions(5, 6, 300))
        git(sound, "repack", "-adfq")
    return sound


def test_an_index_of_version_one_is_left_to_git(repository: Path) -> None:
    history(repository, versions(7, 5))
    git(repository, "-c", "pack.indexVersion=1", "repack", "-adfq")
    assert all(Packs(objects(repository)).read(name) is None for name in as_git_reads(repository))


def test_packs_that_are_merged_meanwhile_are_left_to_git(base: Path) -> None:
    store = open_store(Settings(base=base))
    names = [write_pack(store.git_dir, [b"pack %d" % number])[0] for number in range(3)]
    with ObjectReader(store.git()) as reader:
        assert reader.read(names[0], b"blob") == b"pack 0"
        store.git().run("repack", "--geometric=2", "-d", "-q")
        before = runner.processes_started
        assert [reader.read(name, b"blob") for name in names] == [b"pack 0", b"pack 1", b"pack 2"]
        assert runner.processes_started - before == 1


# --- whether many objects are there ---------------------------------------------------------------------


def test_packs_know_which_of_many_objects_they_contain(repository: Path) -> None:
    first = write_pack(repository, [b"%d" % number for number in range(600)])
    second = write_pack(repository, [b"other %d" % number for number in range(30)])
    packs = Packs(objects(repository))
    assert packs.contained([*first, *second, MISSING]) == {*first, *second}
    assert packs.contained(first[:3]) == {*first[:3]}  # a few among many
    assert packs.contained([MISSING]) == packs.contained([]) == set()
    late = write_pack(repository, [b"written since"])
    assert packs.contained(late) == {*late}


@pytest.mark.parametrize("damage", [no_pack, empty_pack, cut_pack, cut_within_the_data, empty_index, cut_index])
def test_a_truncated_pack_contains_nothing(repository: Path, damage: Callable[[Path], None]) -> None:
    (name,) = write_pack(repository, [CONTENT])
    assert Packs(objects(repository)).contained([name]) == {name}
    damage(repository)
    assert Packs(objects(repository)).contained([name]) == set()


def test_large_indexes_are_read_piece_by_piece(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = write_pack(repository, [b"%d" % number for number in range(2000)])
    monkeypatch.setattr(packed, "_SMALL_INDEX", 5000)
    packs = Packs(objects(repository))
    assert packs.contained([*names, MISSING]) == {*names} and packs.contained([names[7], MISSING]) == {names[7]}
    assert [packs.read(name) for name in names[:50]] == [(b"blob", b"%d" % number) for number in range(50)]


def test_a_large_index_is_read_as_a_whole_when_much_of_it_is_needed(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = write_pack(repository, [b"%d" % number for number in range(2000)])
    monkeypatch.setattr(packed, "_SMALL_INDEX", 5000)
    opened: list[str] = []
    open_file = packed._opened

    def note(path: str) -> AbstractContextManager[int]:
        opened.append(path)
        return open_file(path)

    monkeypatch.setattr(packed, "_opened", note)
    packs = Packs(objects(repository))
    assert [packs.read(name) for name in names] == [(b"blob", b"%d" % number) for number in range(2000)]
    assert packs.read(MISSING) is None
    assert sum(path.endswith(".idx") for path in opened) < 100


def test_damage_is_noticed_in_just_the_objects_that_have_it(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = write_pack(repository, [b"%d " % number * 100 for number in range(500)])
    rows = git(repository, "verify-pack", "-v", pack_file(repository, "idx")).splitlines()
    offsets = {row.split()[0]: int(row.split()[4]) for row in rows if " blob " in row}
    damaged = {names[0], names[200], names[201], names[-1]}
    pack_file(repository).chmod(0o600)
    with pack_file(repository).open("r+b") as file:
        for name in damaged:
            file.seek(offsets[name] + 5)
            byte = file.read(1)[0]
            file.seek(offsets[name] + 5)
            file.write(bytes([byte ^ 1]))
    for together in (1 << 20, 1000, 1):
        monkeypatch.setattr(packed, "_MAX_BUFFERED", together)
        for some in (names, names[::2], names[199:203], names[200:201], [*names[-2:], MISSING]):
            packs = Packs(objects(repository))
            assert packs.contained(some, intact=True) == {*some} - damaged - {MISSING}


def test_an_index_that_vanishes_while_packs_are_listed_is_skipped(repository: Path) -> None:
    """As when upkeep repacks at the same time; a dangling link has the same effect."""
    (name,) = write_pack(repository, [CONTENT])
    (objects(repository) / "pack" / f"pack-{'b' * 40}.idx").symlink_to("nowhere")
    packs = Packs(objects(repository))
    assert packs.contained([name]) == packs.contained([name], intact=True) == {name}
    assert packs.read(name) == (b"blob", CONTENT) and packs.size(name) == len(CONTENT)
