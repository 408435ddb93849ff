"""Lanes in an object store."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faulty_server import Faulty
from lanes import MachineUnderTest

from helpers import manifest
from shadowsnap import errors
from shadowsnap.remote.manifest import Sealer, generate_key, head_name, head_with_content
from shadowsnap.remote.storage import ObjectStorage, TooLarge, open_storage

MANY = 1000


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    made = MachineUnderTest.make("sandbox", tmp_path, monkeypatch)
    made.turn("work", a__txt="1")
    return made


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    return MachineUnderTest.make("desk", tmp_path, monkeypatch)


def test_the_few_operations(bucket: str, sandbox: MachineUnderTest, tmp_path: Path) -> None:
    storage = open_storage(bucket, sandbox.store)
    assert isinstance(storage, ObjectStorage)
    assert storage.get("a/b", 10) is None and storage.size("a/b") is None
    assert not storage.get_file("a/b", tmp_path / "x", 10)
    storage.put("a/b", b"first")
    assert storage.get("a/b", 10) == b"first" and storage.size("a/b") == 5
    assert storage.get_file("a/b", tmp_path / "x", 10) and (tmp_path / "x").read_bytes() == b"first"
    with pytest.raises(TooLarge):
        storage.get("a/b", 4)
    with pytest.raises(TooLarge):
        storage.get_file("a/b", tmp_path / "x", 4)
    assert storage.put_new("a/c", b"1") and not storage.put_new("a/c", b"2")
    assert storage.get("a/c", 10) == b"1"
    assert sorted(item.name for item in storage.items("a/")) == ["a/b", "a/c"]
    storage.delete(["a/b", "a/c", "a/missing"])
    assert list(storage.items("a/")) == []
    (tmp_path / "large").write_bytes(os.urandom(20 << 20))
    storage.put_file("large", tmp_path / "large")
    assert storage.size("large") == 20 << 20
    assert storage.get_file("large", tmp_path / "back", 20 << 20)  # in pieces
    assert (tmp_path / "back").read_bytes() == (tmp_path / "large").read_bytes()


def test_push_and_resume_encrypted(
    bucket: str, sandbox: MachineUnderTest, desk: MachineUnderTest, tmp_path: Path
) -> None:
    public = generate_key(tmp_path / "key")
    assert sandbox.here().set_remote(sandbox.project, "s3", bucket, [public]).conditions
    sandbox.push()
    sandbox.turn("one file", a__txt="2")
    assert sandbox.push().bytes < 5_000
    (lane,) = desk.here().lanes(bucket, key=tmp_path / "key")
    assert (lane.machine, lane.turns) == ("sandbox", 2)
    desk.here().resume("sandbox", desk.project / "new", url=bucket, key=tmp_path / "key")
    assert manifest(desk.project / "new") == manifest(sandbox.project)


def test_a_server_that_is_not_there(bucket: str, sandbox: MachineUnderTest) -> None:
    gone = bucket.partition("?")[0] + "?endpoint=http://127.0.0.1:9&region=us-east-1"
    with pytest.raises(errors.RemoteFailed, match="it cannot be reached"):
        sandbox.here().set_remote(sandbox.project, "s3", gone, plain=True)
    with pytest.raises(errors.RemoteFailed, match="it cannot be reached"):
        sandbox.manager.lanes(gone)


def test_a_bucket_that_is_not_there(bucket: str, sandbox: MachineUnderTest) -> None:
    other = bucket.replace("s3://lanes-", "s3://nolanes-")
    with pytest.raises(errors.RemoteFailed, match="there is no such bucket"):
        sandbox.here().set_remote(sandbox.project, "s3", other, plain=True)
    with pytest.raises(errors.RemoteFailed, match="there is no such bucket"):
        open_storage(other, sandbox.store).put("a", b"")
    with pytest.raises(errors.RemoteFailed, match="there is no such bucket"):
        sandbox.manager.lanes(other)


def test_many_lanes_are_listed_by_names_alone_and_do_not_slow_a_push(
    faulty_bucket: tuple[str, Faulty], sandbox: MachineUnderTest, desk: MachineUnderTest, tmp_path: Path
) -> None:
    bucket, server = faulty_bucket
    public = generate_key(tmp_path / "key")
    sandbox.here().set_remote(sandbox.project, "s3", bucket, [public])
    sandbox.push()
    storage, sealer = open_storage(bucket, sandbox.store), Sealer([public])

    def put(number: int) -> None:
        lane = f"{number:020x}/{number:012x}"
        about = {"name": f"project {number}", "machine": f"machine {number}"}
        head = head_name(lane, 1, 1_700_000_000_000 + number, 3, 1000)
        storage.put(head_with_content(head, sealer.seal(json.dumps(about).encode())), b"")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(MANY)))
    server.requests.clear()
    found = desk.here().lanes(bucket, key=tmp_path / "key")
    assert len(found) == MANY + 1 and all(each.readable for each in found)
    assert len(server.requests) == 2, "a page of 1,000 names each, and nothing else"
    server.requests.clear()
    sandbox.turn("more", a__txt="2")
    assert sandbox.push().status == "pushed"
    assert len(server.requests) == 8, "as with one lane"
