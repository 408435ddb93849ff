"""Encrypted lanes: who has only the public key can push and reads nothing; a forger without the key is noticed."""

from __future__ import annotations

import builtins
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lanes import MachineUnderTest

from helpers import git, manifest
from shadowsnap import errors
from shadowsnap.remote.manifest import Opener, Sealer, digest_of, generate_key, is_encrypted, parse_manifest
from shadowsnap.store.lanes import own_key, write_own_lane

pytest.importorskip("pyrage", reason="the package pyrage is not installed")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "key.txt"


@pytest.fixture
def public(key: Path) -> str:
    return generate_key(key)


@pytest.fixture
def sandbox(tmp_path: Path, shelf: Path, public: str, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    made = MachineUnderTest.make("the sandbox", tmp_path, monkeypatch)
    made.turn("ask for something confidential", notes__txt="very confidential words\n" * 50)
    made.here().set_remote(made.project, "shelf", str(shelf), [public])
    made.push()
    return made


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    return MachineUnderTest.make("desk", tmp_path, monkeypatch)


def resumed(machine: MachineUnderTest, shelf: Path, key: Path | None, lane: str) -> Any:
    folder = machine.project / "new"
    shutil.rmtree(folder, ignore_errors=True)
    return machine.here().resume(lane, folder, url=str(shelf), key=key)


def stored(shelf: Path) -> dict[str, bytes]:
    return {str(path.relative_to(shelf)): path.read_bytes() for path in shelf.rglob("*") if path.is_file()}


def test_everything_at_the_remote_is_encrypted(sandbox: MachineUnderTest, shelf: Path) -> None:
    found = stored(shelf)
    assert len(found) == 3 and all(is_encrypted(data) for data in found.values())
    everything = b"".join(found.values()) + "".join(found).encode()
    for words in (b"confidential", b"notes", b"the sandbox", str(sandbox.project).encode(), b"PACK"):
        assert words not in everything


def test_the_key_opens_a_lane_and_it_is_exactly_the_same(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, key: Path
) -> None:
    sandbox.turn("more", more__txt="more")
    sandbox.push()
    (lane,) = desk.here().lanes(str(shelf), key=key)
    assert (lane.project, lane.machine, lane.turns, lane.encrypted) == ("project", "the sandbox", 2, True)
    resumed(desk, shelf, key, "the sandbox")
    assert manifest(desk.project / "new") == manifest(sandbox.project)


def test_a_sandbox_with_the_public_key_pushes_and_reads_nothing_not_even_its_own(
    sandbox: MachineUnderTest, shelf: Path
) -> None:
    sandbox.turn("more", more__txt="more")
    assert sandbox.push().number == 2
    (lane,) = sandbox.manager.lanes(str(shelf))
    assert not lane.readable and lane.project == lane.lane.partition("/")[0]
    with pytest.raises(errors.KeyNeeded, match="no key was named"):
        resumed(sandbox, shelf, None, lane.lane)
    kept = [path for path in sandbox.base.rglob("*") if path.is_file()]
    assert not any(b"AGE-SECRET-KEY" in path.read_bytes() for path in kept)


def test_another_key_opens_nothing(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, tmp_path: Path
) -> None:
    generate_key(tmp_path / "other.txt")
    with pytest.raises(errors.KeyNeeded, match="not meant for the key"):
        resumed(desk, shelf, tmp_path / "other.txt", sandbox.own_lane().lane)
    (lane,) = desk.here().lanes(str(shelf), key=tmp_path / "other.txt")
    assert not lane.readable


def test_several_recipients_can_each_read(
    tmp_path: Path, shelf: Path, desk: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [tmp_path / f"{number}.txt" for number in range(2)]
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    machine.turn("work", a__txt="1")
    machine.manager.set_remote(machine.project, "shelf", str(shelf), [generate_key(path) for path in keys])
    lane = machine.push().lane
    for path in keys:
        resumed(desk, shelf, path, lane)
        assert manifest(desk.project / "new") == manifest(machine.project)


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_an_ssh_key_is_a_key(
    tmp_path: Path, shelf: Path, desk: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True)
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    machine.turn("work", a__txt="1")
    machine.manager.set_remote(machine.project, "shelf", str(shelf), [(tmp_path / "id.pub").read_text()])
    resumed(desk, shelf, tmp_path / "id", machine.push().lane)
    assert manifest(desk.project / "new") == manifest(machine.project)


@pytest.mark.skipif(shutil.which("age") is None, reason="no age")
def test_age_itself_opens_what_was_written(sandbox: MachineUnderTest, shelf: Path, key: Path) -> None:
    path = next(shelf.rglob("m-*"))
    opened = subprocess.run(["age", "-d", "-i", key, path], check=True, capture_output=True).stdout
    assert json.loads(opened)["lane"] == sandbox.own_lane().lane


# --- forging -----------------------------------------------------------------------------------------


def forged(shelf: Path, opening: Path, public: str, which: int, **changes: Any) -> Path:
    """A manifest with other contents, encrypted with the public key as anybody could."""
    path = next(shelf.rglob(f"m-{which:010d}"))
    told = json.loads(Opener(opening).open(path.read_bytes(), "x"))
    path.write_bytes(Sealer([public]).seal(json.dumps({**told, **changes}).encode()))
    return path


def test_a_manifest_of_a_forger_who_has_the_public_key_is_refused(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, key: Path, public: str
) -> None:
    lane = sandbox.own_lane().lane
    resumed(desk, shelf, key, lane)
    sandbox.turn("more", more__txt="more")
    sandbox.push()
    whole = next(shelf.rglob("m-0000000002")).read_bytes()
    path = forged(shelf, key, public, 2, key="ab" * 32)
    with pytest.raises(errors.LaneRefused, match="not all of its manifests were written by the same machine"):
        resumed(desk, shelf, key, lane)
    # Nor by a whole new generation.
    forged(shelf, key, public, 2, key="ab" * 32, first=2)
    with pytest.raises(errors.LaneRefused, match="same machine"):
        resumed(desk, shelf, key, lane)
    path.write_bytes(whole)
    resumed(desk, shelf, key, lane)
    assert manifest(desk.project / "new") == manifest(sandbox.project)


@pytest.mark.parametrize("what", ["m-", "p-"])
def test_a_lane_cannot_be_made_plain_by_others(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, key: Path, public: str, what: str
) -> None:
    lane = sandbox.own_lane().lane
    path = next(path for path in shelf.rglob(f"{what}*"))
    plain = Opener(key).open(path.read_bytes(), lane)
    if what == "m-":
        path.write_bytes(plain)
    else:
        (path.parent / f"p-{digest_of(plain)}").write_bytes(plain)
        forged(shelf, key, public, 1, pack=digest_of(plain), pack_bytes=len(plain))
    with pytest.raises(errors.LaneRefused, match="not encrypted as it should be"):
        resumed(desk, shelf, key, lane)


@pytest.mark.parametrize("cut", [10, 100, 250, -1])
@pytest.mark.parametrize("what", ["m-", "p-"])
def test_what_was_cut_short_is_refused(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, key: Path, what: str, cut: int
) -> None:
    path = next(shelf.rglob(f"{what}*"))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises((errors.LaneRefused, errors.KeyNeeded)):
        resumed(desk, shelf, key, sandbox.own_lane().lane)


def test_a_changed_byte_is_refused(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, key: Path
) -> None:
    path = next(shelf.rglob("m-*"))
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(errors.LaneRefused, match="damaged or cut short"):
        resumed(desk, shelf, key, sandbox.own_lane().lane)


def test_the_secret_of_a_lane_is_only_in_what_is_encrypted(
    sandbox: MachineUnderTest, shelf: Path, key: Path
) -> None:
    lane = sandbox.own_lane().lane
    data = Opener(key).open(next(shelf.rglob("m-*")).read_bytes(), lane)
    secret = parse_manifest(data, lane, 1).key
    assert len(secret) == 64
    (kept,) = (sandbox.base / "remote").glob("*.key")
    assert kept.read_text().strip() == secret and kept.stat().st_mode & 0o077 == 0


# --- keys --------------------------------------------------------------------------------------------


def test_a_new_key_is_only_its_owners_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "key.txt"
    public = generate_key(path)
    assert public.startswith("age1") and path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    with pytest.raises(errors.BadKey):
        generate_key(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "# only a comment\n", "AGE-SECRET-KEY-1XXXX\n", "\xff\xfe"])
def test_a_file_without_a_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text, "latin-1")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(errors.BadKey):
        Opener(tmp_path / "key")


def test_a_key_file_that_others_can_read_is_not_used(key: Path, public: str) -> None:
    key.chmod(0o644)
    with pytest.raises(errors.BadKey, match="others can read it"):
        Opener(key)


@pytest.mark.parametrize("kind", ["missing", "fifo", "directory"])
def test_a_key_file_that_is_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "key"
    if kind == "fifo":
        os.mkfifo(path, 0o600)
    elif kind == "directory":
        path.mkdir()
    with pytest.raises(errors.BadKey):
        Opener(path)


def test_recipients_are_checked_when_the_remote_is_added(desk: MachineUnderTest, shelf: Path, key: Path) -> None:
    generate_key(key)
    private = key.read_text().splitlines()[-1]
    for word in ("age1nonsense", "", "ssh-rsa AAAA", private):
        with pytest.raises(errors.BadKey) as caught:
            desk.here().set_remote(desk.project, "shelf", str(shelf), [word])
        assert private not in str(caught.value)
    assert desk.manager.remote(desk.project) is None


def test_a_remote_is_either_encrypted_or_plain(desk: MachineUnderTest, shelf: Path, public: str) -> None:
    for recipients, plain in (([], False), ([public], True)):
        with pytest.raises(errors.BadRemote):
            desk.here().set_remote(desk.project, "shelf", str(shelf), recipients, plain=plain)


def test_without_the_extra_it_is_named(
    desk: MachineUnderTest, shelf: Path, public: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name == "pyrage":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.delitem(sys.modules, "pyrage")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(errors.ExtraMissing, match=r"shadowsnap\[remote\]"):
        desk.here().set_remote(desk.project, "shelf", str(shelf), [public])
    desk.manager.set_remote(desk.project, "shelf", str(shelf), plain=True)  # which does not need it


@pytest.mark.parametrize("server", ["directory", "git"])
@pytest.mark.parametrize(("before", "after"), [("ab", "c"), ("a", "plain"), ("plain", "a")])
@pytest.mark.each_value  # who may read does not depend on where it lies
def test_whoever_a_remote_is_added_for_anew_can_read_all_of_it(
    tmp_path: Path, desk: MachineUnderTest, monkeypatch: pytest.MonkeyPatch, server: str, before: str, after: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    if server == "git":
        git(place, "init", "-q", "--bare")
    keys = {each: tmp_path / "keys" / each for each in "abc"}
    public = {each: generate_key(path) for each, path in keys.items()}
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    secrets = []
    for readers in (before, after):
        machine.turn(f"for {readers}", ä__txt=readers)
        plain = readers == "plain"
        machine.here().set_remote(
            machine.project, "r", str(place), [] if plain else [public[each] for each in readers], plain=plain
        )
        lane = machine.push().lane
        secrets.append(None if plain else own_key(machine.store, machine.project_id))
        for each in readers if not plain else [None]:
            folder = desk.project / f"{readers}-{each}"
            desk.here().resume(lane, folder, url=str(place), key=keys.get(each or ""))
            assert manifest(folder) == manifest(machine.project)
        machine.manager.remove_remote(machine.project)
    # Those who could read the old lane know its secret: they must not be able to continue the new one.
    assert secrets[0] != secrets[1]


def test_an_encrypted_lane_that_was_seen_before_is_not_continued_by_a_plain_one_on_a_git_server(
    tmp_path: Path, desk: MachineUnderTest, monkeypatch: pytest.MonkeyPatch, public: str, key: Path
) -> None:
    server, elsewhere = tmp_path / "server", tmp_path / "elsewhere"
    for each in (server, elsewhere):
        git(tmp_path, "init", "-q", "--bare", each)
    honest = MachineUnderTest.make("honest", tmp_path, monkeypatch)
    honest.turn("work", a__txt="honest")
    honest.here().set_remote(honest.project, "r", str(server), [public])
    lane = honest.push().lane
    desk.here().resume(lane, desk.project / "first", url=str(server), key=key)
    forger = MachineUnderTest.make("forger", tmp_path, monkeypatch)
    forger.turn("work", a__txt="forged")
    forger.here().set_remote(forger.project, "r", str(elsewhere), plain=True)
    forger.push()
    identity, _, machine = lane.partition("/")
    own = forger.own_lane()
    forged = replace(own, identity=replace(own.identity, id=identity), machine=machine, number=7)
    write_own_lane(forger.store, forger.project_id, forged)
    assert forger.push().lane == lane
    ref = f"refs/shadowsnap-lanes/v1/{lane}"
    git(server, "fetch", "-q", elsewhere, f"+{ref}:{ref}")
    with pytest.raises(errors.LaneRefused, match="same machine"):
        desk.here().resume(lane, desk.project / "second", url=str(server), key=key)
    assert not (desk.project / "second").exists()


def test_a_lane_for_others_does_not_keep_away_those_for_me(
    sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path, key: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = tmp_path / "here"
    desk.here().resume(sandbox.own_lane().lane, here, url=str(shelf), key=key)
    mine = MachineUnderTest.make("desk", tmp_path, monkeypatch, here)
    mine.here().set_remote(here, "shelf", str(shelf), [generate_key(tmp_path / "other")])
    third = MachineUnderTest.make("third", tmp_path, monkeypatch)
    third.here().resume(sandbox.own_lane().lane, third.project, url=str(shelf), key=key)
    third.here().set_remote(third.project, "shelf", str(shelf), [generate_key(tmp_path / "theirs")])
    third.push()
    found = {each.lane: each.status for each in mine.pull(key=key)}
    assert found == {sandbox.own_lane().lane: "up-to-date", third.own_lane().lane: "unreadable"}
    with pytest.raises(errors.KeyNeeded):
        mine.pull(third.own_lane().lane, key=key)


def test_a_name_that_only_the_key_shows(sandbox: MachineUnderTest, desk: MachineUnderTest, shelf: Path) -> None:
    hidden = "the name of a lane at .* is encrypted, and 'sandbox' is not the id of one"
    with pytest.raises(errors.KeyNeeded, match=hidden):
        resumed(desk, shelf, None, "sandbox")
