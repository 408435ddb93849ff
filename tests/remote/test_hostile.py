"""What lies at a remote is hostile input: whatever is not exactly a lane is refused with a reason, and nothing of
it stays in the store."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lanes import MachineUnderTest

from helpers import call_unprivileged, git
from shadowsnap import errors
from shadowsnap.deadline import Deadline
from shadowsnap.git.objects import object_id
from shadowsnap.remote import checking
from shadowsnap.remote.checking import line_problem
from shadowsnap.remote.manifest import HEADS, parse_manifest
from shadowsnap.remote.storage import DirectoryStorage
from shadowsnap.store import conversations


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[int, Path]]]:
    """A lane, and the shelf as it was after each of four pushes."""
    top = tmp_path_factory.mktemp("stages")
    shelf = top / "shelf"
    shelf.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        machine = MachineUnderTest.make("sandbox", top, patch)
        machine.turn("write a", a__txt="one\n")
        machine.here().set_remote(machine.project, "shelf", str(shelf), plain=True)
        found = {}
        for number, text in enumerate(("two", "three", "four", ""), 1):
            machine.push()
            found[number] = shutil.copytree(shelf, top / f"shelf-{number}")
            machine.turn(text or "the last", a__txt=text)
        yield machine.own_lane().lane, found


@pytest.fixture
def shelf(tmp_path: Path, stages: tuple[str, dict[int, Path]]) -> Path:
    return shutil.copytree(stages[1][1], tmp_path / "shelf")


_readers: list[MachineUnderTest] = []


@pytest.fixture
def reader(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MachineUnderTest]:
    """A machine with work of its own. What is refused leaves it as it was, so the next test can have it."""
    if not _readers:
        made = MachineUnderTest.make("reader", tmp_path_factory.mktemp("reader"), monkeypatch)
        made.turn("something of its own", own__txt="own")
        _readers.append(made)
    made = _readers.pop()
    made.monkeypatch = monkeypatch
    before = store_of(made)
    yield made
    if store_of(made) == before and [*made.project.iterdir()] == [made.project / "own.txt"]:
        _readers.append(made)


class Lane:
    """A lane at the shelf, to be tampered with."""

    def __init__(self, shelf: Path, name: str) -> None:
        self.name = name
        self.folder = shelf / "shadowsnap-lanes/v1/lanes" / name

    def manifest(self, number: int = 1) -> Path:
        return self.folder / f"m-{number:010d}"

    def pack(self, number: int = 1) -> Path:
        return self.folder / f"p-{self.told(number)['pack']}"

    def told(self, number: int = 1) -> dict[str, Any]:
        found = json.loads(self.manifest(number).read_bytes())
        assert isinstance(found, dict)
        return found

    def rewrite(self, which: int = 1, **changes: Any) -> None:
        self.manifest(which).write_text(json.dumps({**self.told(which), **changes}))

    def replace_pack(self, data: bytes, number: int = 1, **changes: Any) -> None:
        """Another pack, with a manifest that fits it."""
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / f"p-{digest}").write_bytes(data)
        self.rewrite(number, pack=digest, pack_bytes=len(data), **changes)


@pytest.fixture
def lane(shelf: Path, stages: tuple[str, dict[int, Path]]) -> Lane:
    return Lane(shelf, stages[0])


def store_of(machine: MachineUnderTest) -> tuple[str, list[str]]:
    """Every ref and every object of a machine's store, and what lies around."""
    store = machine.base / "store"
    found = git(store, "for-each-ref") + git(store, "cat-file", "--batch-all-objects", "--batch-check")
    return found, sorted(path.name for path in store.iterdir() if path.name.startswith("scratch"))


def refused(reader: MachineUnderTest, lane: Lane, shelf: Path, words: str) -> None:
    before = store_of(reader)
    with pytest.raises((errors.LaneRefused, errors.RemoteFailed), match=words):
        reader.here().resume(lane.name, reader.project / "new", url=str(shelf))
    assert store_of(reader) == before
    assert not (reader.project / "new").exists()


def accepted(reader: MachineUnderTest, lane: Lane, shelf: Path) -> None:
    reader.here().resume(lane.name, reader.project / "new", url=str(shelf))


# --- manifests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[: len(data) // 2], "damaged or cut short"),
        (lambda data: b"", "damaged or cut short"),
        (lambda data: b"[1]", "damaged"),
        (lambda data: b"{" * 100_000, "too large"),
        (lambda data: b"[" * 60_000, "damaged"),
        (lambda data: data.replace(b'"format":1', b'"format":2'), "format 2"),
    ],
)
def test_a_damaged_manifest(
    reader: MachineUnderTest, lane: Lane, shelf: Path, change: Callable[[bytes], bytes], words: str
) -> None:
    lane.manifest().write_bytes(change(lane.manifest().read_bytes()))
    refused(reader, lane, shelf, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"number": 2}, "number 2"),
        ({"number": True}, "form"),
        ({"number": "1"}, "form"),
        ({"first": 0}, "beginning"),
        ({"first": 2}, "beginning"),
        ({"previous": "0" * 64}, "came before"),
        ({"previous": "x"}, "form"),
        ({"carrier": "../../etc"}, "form"),
        ({"pack": "../../../secrets"}, "form"),
        ({"pack_bytes": -1}, "form"),
        ({"pack_bytes": 1 << 50}, "form"),
        ({"at": float("inf")}, "form"),
        ({"more": 1}, "form"),
        ({"key": "0" * 64}, "not encrypted as it should be"),
        ({"lane": "0" * 20 + "/" + "0" * 12}, "belongs to lane"),
        ({"carrier": "0" * 40}, "carrier did not come"),
        ({"pack_bytes": 10}, "larger than the manifest says"),
    ],
)
def test_a_manifest_that_lies(
    reader: MachineUnderTest, lane: Lane, shelf: Path, changes: dict[str, Any], words: str
) -> None:
    lane.rewrite(**changes)
    refused(reader, lane, shelf, words)


def test_a_manifest_of_another_lane_in_its_place(
    reader: MachineUnderTest, lane: Lane, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = MachineUnderTest.make("other", tmp_path, monkeypatch)
    other.turn("other work", other__txt="1")
    other.manager.set_remote(other.project, "shelf", str(shelf), plain=True)
    other.push()
    theirs = Lane(shelf, other.own_lane().lane)
    lane.manifest().write_bytes(theirs.manifest().read_bytes())
    refused(reader, lane, shelf, "belongs to lane")
    # With its name made to fit, the carrier still says whose it is.
    lane.rewrite(lane=lane.name)
    (lane.folder / theirs.pack().name).write_bytes(theirs.pack().read_bytes())
    refused(reader, lane, shelf, "belongs to another lane")


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_something_else_in_the_place_of_a_file(
    reader: MachineUnderTest, lane: Lane, shelf: Path, kind: str
) -> None:
    path = lane.pack()
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)
    refused(reader, lane, shelf, "failed|regular|missing")


# --- the chain ---------------------------------------------------------------------------------------


@pytest.fixture
def grown(lane: Lane, reader: MachineUnderTest, stages: tuple[str, dict[int, Path]], shelf: Path) -> Lane:
    """A lane that the reader knows up to the second push, and that grew since."""
    for stage in (2, 4):
        shutil.rmtree(shelf)
        shutil.copytree(stages[1][stage], shelf)
        if stage == 2:
            accepted(reader, lane, shelf)
    reader.project = reader.project / "new"
    return lane


def pulled(reader: MachineUnderTest, lane: Lane, shelf: Path) -> Any:
    return reader.here().resume(lane.name, reader.project, url=str(shelf), dry_run=True)


def test_a_lane_that_was_set_back_is_refused(grown: Lane, reader: MachineUnderTest, shelf: Path) -> None:
    for number in (4, 3, 2):
        grown.manifest(number).unlink()
    with pytest.raises(errors.LaneRefused, match="set back to an older state"):
        pulled(reader, grown, shelf)


def test_an_older_manifest_under_a_newer_number_is_refused(
    grown: Lane, reader: MachineUnderTest, shelf: Path
) -> None:
    grown.manifest(5).write_bytes(grown.manifest(1).read_bytes())
    with pytest.raises(errors.LaneRefused, match="stored under another number"):
        pulled(reader, grown, shelf)
    grown.rewrite(5, number=5, previous=hashlib.sha256(b"x").hexdigest())
    with pytest.raises(errors.LaneRefused, match="not the one that the next one was built on"):
        pulled(reader, grown, shelf)


def test_manifests_in_another_order_are_refused(grown: Lane, reader: MachineUnderTest, shelf: Path) -> None:
    third, fourth = grown.manifest(3).read_bytes(), grown.manifest(4).read_bytes()
    grown.manifest(3).write_bytes(fourth)
    grown.manifest(4).write_bytes(third)
    with pytest.raises(errors.LaneRefused, match="another number"):
        pulled(reader, grown, shelf)


def test_a_manifest_that_was_seen_must_stay_what_it_was(
    grown: Lane, reader: MachineUnderTest, shelf: Path
) -> None:
    """Even if the whole chain is forged anew to fit."""
    grown.rewrite(2, at=1.0)
    for number in (3, 4):
        grown.rewrite(number, previous=hashlib.sha256(grown.manifest(number - 1).read_bytes()).hexdigest())
    with pytest.raises(errors.LaneRefused, match="another than the one that was seen before"):
        pulled(reader, grown, shelf)


def test_a_manifest_that_was_left_out_is_missed(grown: Lane, reader: MachineUnderTest, shelf: Path) -> None:
    grown.manifest(3).unlink()
    with pytest.raises(errors.LaneRefused, match="manifest 3 is missing"):
        pulled(reader, grown, shelf)


def test_packs_that_changed_places_are_refused(grown: Lane, reader: MachineUnderTest, shelf: Path) -> None:
    third, fourth = grown.pack(3), grown.pack(4)
    data = third.read_bytes(), fourth.read_bytes()
    third.write_bytes(data[1])
    fourth.write_bytes(data[0])
    with pytest.raises(errors.LaneRefused, match="another one|larger"):
        pulled(reader, grown, shelf)


def test_a_spoiled_lane_does_not_keep_the_others_away(
    lane: Lane, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = MachineUnderTest.make("desk", tmp_path, monkeypatch)
    desk.here().resume(lane.name, desk.project, url=str(shelf))
    desk.manager.set_remote(desk.project, "shelf", str(shelf), plain=True)
    third = MachineUnderTest.make("third", tmp_path, monkeypatch)
    third.here().resume(lane.name, third.project, url=str(shelf))
    third.manager.set_remote(third.project, "shelf", str(shelf), plain=True)
    third.push()
    lane.manifest(1).write_bytes(b"{")
    with pytest.raises(errors.LaneRefused, match=lane.name):
        desk.pull()
    assert "third" in [each.machine for each in desk.manager.pulled(desk.project)]


def test_what_was_refused_is_pulled_once_it_is_right_again(
    grown: Lane, reader: MachineUnderTest, shelf: Path
) -> None:
    pack, whole = grown.pack(4), grown.pack(4).read_bytes()
    pack.write_bytes(whole[:-30])
    with pytest.raises(errors.LaneRefused, match="not complete"):
        pulled(reader, grown, shelf)
    pack.write_bytes(whole)
    assert "a.txt" in pulled(reader, grown, shelf).result.written


# --- packs -------------------------------------------------------------------------------------------


def entry(kind: int, data: bytes, size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    first, size = kind << 4 | size & 15, size >> 4
    header = bytearray()
    while size:
        header.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    header.append(first)
    return bytes(header) + zlib.compress(data)


def pack_of(*entries: bytes, count: int | None = None) -> bytes:
    body = b"PACK" + struct.pack(">II", 2, len(entries) if count is None else count) + b"".join(entries)
    return body + hashlib.sha1(body).digest()


COMMIT, TREE, BLOB, TAG = 1, 2, 3, 4


@pytest.mark.parametrize(
    "data",
    [
        b"not a pack at all",
        pack_of(entry(BLOB, b"x"), count=2),
        pack_of(entry(BLOB, b"x"), count=1 << 31),
        pack_of(entry(TREE, b"x", size=1 << 40)),
        pack_of(entry(BLOB, b"x", size=1 << 20)),
        pack_of(entry(BLOB, b"x" * 1000, size=10)),
        pack_of(entry(TAG, b"object " + b"0" * 40)),
        pack_of(entry(BLOB, b"x"))[:-1] + b"\0",
        pack_of(entry(BLOB, b"x")) + b"more",
    ],
)
def test_a_pack_that_is_none(reader: MachineUnderTest, lane: Lane, shelf: Path, data: bytes) -> None:
    lane.replace_pack(data)
    refused(reader, lane, shelf, "a pack does not hold what it should")


def delta_of(base: bytes, copies: int, claimed: int) -> bytes:
    """A pack with an object, and another one that is so many copies of it."""

    def number(value: int) -> bytes:
        found = bytearray()
        while value > 0x7F:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*found, value])

    copy = b"\xf0" + len(base).to_bytes(3, "little")
    delta = number(len(base)) + number(claimed) + copy * copies
    raw = entry(7, delta)
    header = raw[: len(raw) - len(zlib.compress(delta))]
    name = bytes.fromhex(object_id(b"blob", base))
    return pack_of(entry(BLOB, base), header + name + zlib.compress(delta))


def test_a_delta_that_would_fill_the_memory(reader: MachineUnderTest, lane: Lane, shelf: Path) -> None:
    lane.replace_pack(delta_of(b"x", 1, 1 << 34))
    refused(reader, lane, shelf, "claims more than fits into memory")


def test_a_large_file_that_is_stored_as_differences(reader: MachineUnderTest, tmp_path: Path) -> None:
    """git writes them for files up to 512 MiB."""
    base = bytes(8 << 20)
    (tmp_path / "pack").write_bytes(delta_of(base, 40, 40 * len(base)))
    store = reader.here()._access.store()
    (tmp_path / "scratch" / "pack").mkdir(parents=True)
    git = store.git(Deadline(60)).bound(scratch_objects=tmp_path / "scratch")
    assert len(checking.index_pack(git, tmp_path / "pack", "lane", set())) == 2


def test_a_pack_that_takes_too_long_to_look_at(reader: MachineUnderTest, tmp_path: Path) -> None:
    (tmp_path / "pack").write_bytes(pack_of(entry(BLOB, bytes(1 << 20))))
    (tmp_path / "scratch" / "pack").mkdir(parents=True)
    git = reader.here()._access.store().git(Deadline(1e-9)).bound(scratch_objects=tmp_path / "scratch")
    with pytest.raises(errors.DeadlineExceeded):
        checking.index_pack(git, tmp_path / "pack", "lane", set())


class Forger:
    """Makes lanes that are consistent in every digest, with objects of its choice."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._objects: dict[str, tuple[int, bytes]] = {}
        self.raw: list[bytes] = []
        """Further entries of the pack, as they are."""

    def add(self, kind: int, data: bytes) -> str:
        name = object_id({COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}[kind], data)
        self._objects[name] = (kind, data)
        return name

    def tree(self, *rows: tuple[str, bytes, str]) -> str:
        return self.add(TREE, b"".join(b"%s %s\0" % (m.encode(), n) + bytes.fromhex(i) for m, n, i in rows))

    def commit(self, tree: str, *, extra: bytes = b"", body: bytes = b'{"ms":7}', at: int = 5) -> str:
        who = b"shadowsnap <shadowsnap@localhost> %d +0000" % at
        text = b"tree %s\n%sauthor %s\ncommitter %s\n\nx\n\n%s\n" % (tree.encode(), extra, who, who, body)
        return self.add(COMMIT, text)

    def attach(self, tip: str, data: bytes, about: bytes) -> str:
        """The tree of the conversations of a lane with one checkpoint."""
        pieces = self.tree(("100644", b"00", self.add(BLOB, data)))
        session = self.tree(("40000", b"0000", pieces), ("100644", b"about", self.add(BLOB, about)))
        name = f"{5007:013d}-{tip[:12]}".encode()
        return self.tree(("40000", name, self.tree(("40000", b"s", session))))

    def place(self, tip: str, *, moment: int = 5007, meta: str = "", **more: Any) -> None:
        """A lane with one checkpoint."""
        row = {"id": tip, "ms": moment, **more.pop("mark", {})}
        marks = self.add(BLOB, json.dumps(row).encode() + b"\n")
        lines = more.pop("lines", [{"op": "snapshot", "at": 5.0, "number": 1, "checkpoint": tip}])
        log = self.add(BLOB, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        project, _, machine = self._lane.name.partition("/")
        about = {
            "format": 1, "lane": self._lane.name, "identity": {"id": project, "name": "x"},
            "machine": {"id": machine, "name": "forger"}, "parent": None, **more.pop("about", {}),
        }  # fmt: skip
        carrier = self.tree(
            ("100644", b"about", self.add(BLOB, json.dumps(about).encode())),
            ("100644", b"checkpoints-000000", marks),
            ("100644", b"log-000000", log),
            *([("40000", b"meta", meta)] if meta else ()),
        )
        data = pack_of(*(entry(kind, data) for kind, data in self._objects.values()), *self.raw)
        self._lane.replace_pack(data, carrier=carrier)


@pytest.fixture
def forger(lane: Lane) -> Forger:
    return Forger(lane)


def test_a_forged_lane_that_is_sound_is_taken(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    """So that the next tests fail for the reason they name."""
    forger.place(forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"hello")))))
    accepted(reader, lane, shelf)
    assert (reader.project / "new" / "f").read_text() == "hello"


@pytest.mark.parametrize(
    "name",
    [b".git", b".GIT", b"..", b".", b"git~1", b".git ", b".gi\xe2\x80\x8ct", b"a\\..\\b", b".git::$DATA"],
)
@pytest.mark.parametrize("mode", ["100644", "40000", "120000"])
@pytest.mark.each_value  # a name is looked at without its mode
def test_a_name_that_no_checkpoint_may_hold(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, name: bytes, mode: str
) -> None:
    blob = forger.add(BLOB, b"hello")
    inner = forger.tree(("100644", b"f", blob)) if mode == "40000" else blob
    forger.place(forger.commit(forger.tree((mode, name, inner))))
    refused(reader, lane, shelf, "does not hold what it should|not written|repository|directory")


@pytest.mark.parametrize("name", [b"a/b", b"", b"x/../../y"])
def test_a_name_with_a_separator(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, name: bytes
) -> None:
    forger.place(forger.commit(forger.tree(("100644", name, forger.add(BLOB, b"x")))))
    refused(reader, lane, shelf, "does not hold what it should|no name")


def test_two_entries_of_one_name(forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path) -> None:
    blob = forger.add(BLOB, b"/tmp")
    inner = forger.tree(("100644", b"f", blob))
    forger.place(forger.commit(forger.tree(("120000", b"d", blob), ("40000", b"d", inner))))
    refused(reader, lane, shelf, "does not hold what it should|two of that name")


@pytest.mark.parametrize("mode", ["160000", "100664", "0"])
def test_an_odd_mode(forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, mode: str) -> None:
    forger.place(forger.commit(forger.tree((mode, b"f", forger.add(BLOB, b"x")))))
    refused(reader, lane, shelf, "does not hold what it should|mode|cannot read")


def test_trees_that_spell_out_billions(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    tree = forger.tree(("100644", b"f", forger.add(BLOB, b"x")))
    for _ in range(12):
        tree = forger.tree(*(("40000", b"%d" % number, tree) for number in range(10)))
    forger.place(forger.commit(tree))
    refused(reader, lane, shelf, "spells out more than fits")


def test_directories_that_would_fill_the_memory(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names compress well, and every tree is held in memory while it is checked."""
    monkeypatch.setattr(checking, "_MOST_TREE_BYTES", 100_000)
    blob = forger.add(BLOB, b"x")
    trees = [forger.tree(*(("100644", b"%d-%05d" % (of, n), blob) for n in range(500))) for of in range(9)]
    forger.place(forger.commit(forger.tree(*(("40000", b"%d" % of, tree) for of, tree in enumerate(trees)))))
    refused(reader, lane, shelf, "fits into memory")


def test_directories_nested_without_end(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "DEEPEST", 50)
    tree = forger.tree(("100644", b"f", forger.add(BLOB, b"x")))
    for _ in range(60):
        tree = forger.tree(("40000", b"d", tree))
    forger.place(forger.commit(tree))
    refused(reader, lane, shelf, "nested deeper")


def test_a_file_that_did_not_come(forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path) -> None:
    forger.place(forger.commit(forger.tree(("100644", b"f", "12" * 20))))
    refused(reader, lane, shelf, "does not hold what it should|did not come")


def test_a_file_of_another_project_here_is_not_handed_out(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    """The store holds it, but it did not come with the lane: naming its id must not be enough to get it."""
    own = object_id(b"blob", b"own")
    assert git(reader.base / "store", "cat-file", "-t", own) == "blob"
    forger.place(forger.commit(forger.tree(("100644", b"stolen", own))))
    refused(reader, lane, shelf, "did not come with it")


def test_a_file_of_another_project_is_not_told_against_either(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    """A delta whose base is an object of this store would bring that object into the lane's pack."""
    own = bytes.fromhex(object_id(b"blob", b"own"))
    delta = bytes([3, 4, 0x90, 3, 1]) + b"!"  # its three bytes, and one more
    raw = entry(7, delta)
    forger.raw.append(raw[: len(raw) - len(zlib.compress(delta))] + own + zlib.compress(delta))
    forger.place(forger.commit(forger.tree(("100644", b"stolen", object_id(b"blob", b"own!")))))
    refused(reader, lane, shelf, f"{own.hex()[:12]} did not come with it")


def test_a_checkpoint_of_this_store_is_not_one_of_the_lane(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    (newest, *_) = reader.manager.list_checkpoints(reader.project)
    forger.place(newest.id, moment=int(newest.ref.rpartition("/")[2][:13]))
    refused(reader, lane, shelf, "did not come with it")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"extra": b"parent " + b"12" * 20 + b"\n"}, "hold what it should|not a checkpoint"),
        ({"body": b"not json"}, "does not say what it is"),
        ({"body": b"[]"}, "does not say what it is"),
        ({"at": 6}, "another time"),
        ({"body": b'{"ms":"7"}'}, "another time"),
        ({"body": b'{"ms":[]}'}, "another time"),
    ],
)
def test_a_commit_that_is_no_checkpoint(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, facts: dict[str, Any], words: str
) -> None:
    forger.place(forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"x"))), **facts))
    refused(reader, lane, shelf, words)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"about": {"lane": "0" * 20 + "/" + "1" * 12}}, "another lane"),
        ({"about": {"identity": {"id": "../../x"}}}, "which project"),
        ({"about": {"format": 9}}, "which project"),
        ({"mark": {"label": "two\nlines"}}, "label"),
        ({"mark": {"ms": -1}}, "time"),
        ({"mark": {"id": "x"}}, "no checkpoint"),
        ({"lines": [{"op": "restore", "at": 1.0, "paths": ["../../etc/passwd"]}]}, "path"),
        ({"lines": [{"op": "begin", "at": "now"}]}, "no time"),
        ({"lines": [[1]]}, "no operation"),
        ({"lines": [{"op": "begin", "at": 1.0, "before": "--upload-pack=x"}]}, "no id"),
    ],
)
def test_a_carrier_that_lies(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, more: dict[str, Any], words: str
) -> None:
    forger.place(forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"x")))), **more)
    refused(reader, lane, shelf, words)


def test_facts_of_a_checkpoint_that_lead_out_of_the_project_are_ignored(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    body = json.dumps(
        {"kind": "manual", "ms": 7, "empty_dirs": ["../escaped"], "modes": {"other": {"../x": "777"}}}
    ).encode()
    forger.place(forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"x"))), body=body))
    accepted(reader, lane, shelf)
    assert not (reader.project / "escaped").exists()


def test_a_hostile_name_of_a_project_is_no_path(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path
) -> None:
    project = lane.name.partition("/")[0]
    about = {"identity": {"id": project, "name": "../../../outside"}}
    forger.place(forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"x")))), about=about)
    done = reader.here().resume(lane.name, url=str(shelf), working_dir=reader.project)
    assert Path(done.workdir).parent == reader.project


@pytest.mark.parametrize(
    "about",
    [
        {"session_id": ["s"]}, {"at": "now"}, {"at": 1e300}, {"at": -1e300}, {"at": None}, {"redacted": "x"},
        {"messages": {}}, {"form": []}, {"form": "value"}, None, {"session_id": "x" * 20_000},
    ],
)  # fmt: skip
def test_an_odd_record_of_a_conversation_stops_nothing(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, about: dict[str, Any] | None
) -> None:
    data = b'{"role":"user","content":"hello"}\n'
    usual = {"session_id": "s", "form": "messages", "sha256": hashlib.sha256(data).hexdigest(), "at": 5.0}
    tip = forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"x"))))
    told = b"{" if about is None else json.dumps({**usual, **about}).encode()
    forger.place(tip, meta=forger.attach(tip, data, told))
    done = reader.here().resume(lane.name, reader.project / "new", url=str(shelf))
    assert done.conversation is None or done.conversation.session_id == "s"
    assert (reader.project / "new" / "f").read_text() == "x"


def test_a_conversation_that_is_too_large_is_not_read(
    forger: Forger, reader: MachineUnderTest, lane: Lane, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "_MOST_UNTRUSTED", 1000)
    data = b'{"role":"user"}\n' * 100
    tip = forger.commit(forger.tree(("100644", b"f", forger.add(BLOB, b"x"))))
    about = {"session_id": "s", "form": "messages", "sha256": hashlib.sha256(data).hexdigest(), "at": 5.0}
    forger.place(tip, meta=forger.attach(tip, data, json.dumps(about).encode()))
    done = reader.here().resume(lane.name, reader.project / "new", url=str(shelf))
    assert done.conversation is None


@pytest.mark.parametrize("line", [None, 1, {}, {"op": 1, "at": 1}, {"op": "x"}, {"op": "x", "at": True}])
def test_a_line_that_is_none(line: Any) -> None:
    assert line_problem(line) is not None


def test_a_line_of_a_later_version_is_passed_on() -> None:
    assert line_problem({"op": "something new", "at": 1.0, "facts": {"a": [1, "x"]}}) is None
    assert line_problem({"op": "something new", "at": 1.0, "facts": "x" * 100_000}) is not None


def test_no_bytes_make_the_manifest_parser_fail_otherwise() -> None:
    lane = "0" * 20 + "/" + "1" * 12
    for data in (b"\xff\xfe", b"null", b'{"format":1}', b'{"format":{}}', b'"x"', b"1e999", b"\0" * 100):
        with pytest.raises(errors.LaneRefused):
            parse_manifest(data, lane, 1)


# --- what git itself might object to -----------------------------------------------------------------


def test_odd_files_of_the_person_come_through(
    tmp_path: Path, shelf: Path, reader: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git's own checks object to such contents; they are the person's files and only written back."""
    odd = MachineUnderTest.make("odd", tmp_path, monkeypatch)
    (odd.project / ".gitmodules").write_text('[submodule "../x"]\n\tpath = ../..\n\turl = -u./payload\n')
    (odd.project / ".gitattributes").write_text("* " + "x" * 5000 + "\n")
    odd.turn("write", a__txt="1")
    odd.manager.set_remote(odd.project, "shelf", str(shelf), plain=True)
    odd.push()
    done = reader.here().resume("odd", reader.project / "new", url=str(shelf))
    assert (Path(done.workdir) / ".gitmodules").read_text() == (odd.project / ".gitmodules").read_text()
    assert (Path(done.workdir) / ".gitattributes").stat().st_size > 5000


def test_directories_without_end_beside_the_lanes(reader: MachineUnderTest, lane: Lane, shelf: Path) -> None:
    for folder in ("heads", f"lanes/{lane.name}"):
        here = os.open(shelf / "shadowsnap-lanes" / "v1" / folder, os.O_RDONLY)
        for _ in range(2000):  # longer than any path can be
            os.mkdir("a", dir_fd=here)
            there = os.open("a", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = there
        os.close(here)
    assert [each.lane for each in reader.here().lanes(str(shelf))] == [lane.name]
    plan = reader.manager.resume(lane.name, reader.project / "new", url=str(shelf), dry_run=True)
    subprocess.run(["rm", "-rf", shelf], check=True)  # shutil would go too deep
    assert plan.result.written == ("a.txt",)


def test_a_directory_that_may_not_be_read_does_not_keep_the_other_lanes_away(lane: Lane, shelf: Path) -> None:
    closed = shelf / "shadowsnap-lanes" / "v1" / "heads" / ("0" * 20)
    closed.mkdir()

    def listed() -> list[str]:
        closed.chmod(0)
        return [item.name for item in DirectoryStorage(shelf, str(shelf)).items(HEADS)]

    (name,) = call_unprivileged(listed, owning=[shelf])
    closed.chmod(0o700)
    assert name.startswith(f"{HEADS}{lane.name}/")
