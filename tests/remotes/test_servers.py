"""The same story on every kind of server, and on servers that fail."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from faulty_server import Faulty
from lanes import MachineUnderTest

from helpers import git, manifest
from shadowsnap import errors
from shadowsnap.remote import git_storage, storage
from shadowsnap.remote.manifest import generate_key

SERVERS = ["bucket", "rclone_bucket", "ssh_url", "http_url"]


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    made = MachineUnderTest.make("sandbox", tmp_path, monkeypatch)
    made.turn("write a", a__txt="one")
    return made


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    return MachineUnderTest.make("desk", tmp_path, monkeypatch)


def resumed(desk: MachineUnderTest, url: str, key: Path | None = None) -> dict[bytes, object]:
    shutil.rmtree(desk.project / "new", ignore_errors=True)
    desk.here().resume("sandbox", desk.project / "new", url=url, key=key)
    return dict(manifest(desk.project / "new"))


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("server", SERVERS)
def test_push_list_and_resume(
    server: str,
    plain: bool,
    sandbox: MachineUnderTest,
    desk: MachineUnderTest,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    url = request.getfixturevalue(server)
    key = None if plain else tmp_path / "key"
    to = [] if key is None else [generate_key(key)]
    made = sandbox.here().set_remote(sandbox.project, "server", url, to, plain=plain)
    assert made.conditions == (server != "rclone_bucket")
    sandbox.push()
    for number in range(2):
        sandbox.turn(f"more {number}", a__txt=f"two {number}", b__txt="b")
        assert sandbox.push().status == "pushed"
    (lane,) = desk.here().lanes(url, key=key)
    assert (lane.machine, lane.turns, lane.encrypted) == ("sandbox", 3, not plain)
    assert resumed(desk, url, key) == manifest(sandbox.project)
    sandbox.turn("the last", a__txt="three")
    sandbox.push()
    assert resumed(desk, url, key) == manifest(sandbox.project)


def test_clocks_apart(
    bucket: str, sandbox: MachineUnderTest, desk: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine a week ahead, then a day behind: numbers count, not clocks."""
    sandbox.here().set_remote(sandbox.project, "s3", bucket, plain=True)
    real = time.time
    for days in (7, -1):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda days=days: real() + days * 86_400)
            sandbox.turn(f"{days} days off", a__txt=f"{days}")
            sandbox.push()
        assert resumed(desk, bucket) == manifest(sandbox.project)


@pytest.mark.parametrize("how", ["hang", "cut", "full"])
def test_a_bucket_that_fails_half_way(
    how: str,
    faulty_bucket: tuple[str, Faulty],
    sandbox: MachineUnderTest,
    desk: MachineUnderTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, server = faulty_bucket
    monkeypatch.setattr(storage, "_CLIENT_OPTIONS", {"timeout": "1s", "connect_timeout": "1s"})
    monkeypatch.setattr(storage, "_RETRY_OPTIONS", {"max_retries": 1})
    sandbox.here().set_remote(sandbox.project, "s3", url, plain=True)
    sandbox.push()
    seen = manifest(sandbox.project)
    sandbox.turn("more", a__txt="two")
    server.how = how
    with pytest.raises(errors.RemoteFailed):
        sandbox.push()
    server.how = "pass"
    assert resumed(desk, url) in (seen, manifest(sandbox.project))
    assert sandbox.push().status in ("pushed", "up-to-date")
    assert resumed(desk, url) == manifest(sandbox.project)


def test_a_bucket_that_lies_about_conditions(
    faulty_bucket: tuple[str, Faulty], sandbox: MachineUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, server = faulty_bucket
    server.how = "careless"
    assert sandbox.here().set_remote(sandbox.project, "s3", url, plain=True).conditions is False
    sandbox.push()
    shutil.copytree(sandbox.base, tmp_path / "twin" / "base", symlinks=True)
    twin = MachineUnderTest.make("twin", tmp_path, monkeypatch, sandbox.project)
    sandbox.turn("mine", a__txt="mine")
    sandbox.push()
    twin.turn("theirs", a__txt="theirs")
    twin.push()
    assert sandbox.push().lane != twin.own_lane().lane


@pytest.mark.parametrize("how", ["hang", "cut", "full"])
def test_a_git_server_that_fails_half_way(
    how: str,
    http_url: str,
    sandbox: MachineUnderTest,
    desk: MachineUnderTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Faulty(http_url)
    url = f"{server.url}/git/lanes.git"
    try:
        sandbox.here().set_remote(sandbox.project, "git", url, plain=True)
        sandbox.push()
        sandbox.turn("more", a__txt="two")
        server.how = how
        with monkeypatch.context() as patch:
            patch.setattr(git_storage, "_SECONDS", 5.0 if how == "hang" else 60.0)
            with pytest.raises(errors.RemoteFailed):
                sandbox.push()
        server.how = "pass"
        assert sandbox.push().status in ("pushed", "up-to-date")
        assert resumed(desk, url) == manifest(sandbox.project)
    finally:
        server.close()


def test_a_git_server_that_refuses(ssh_url: str, repository: Path, sandbox: MachineUnderTest) -> None:
    sandbox.here().set_remote(sandbox.project, "git", ssh_url, plain=True)
    hook = repository / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho 'no space left on device' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(errors.RemoteFailed, match="no space left"):
        sandbox.push()
    hook.unlink()
    assert sandbox.push().status == "pushed"
    assert git(repository, "fsck", "--strict", "--no-dangling") == ""
