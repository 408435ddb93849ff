"""Lanes on a git server: one ref for a lane, pushed with a lease."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from lanes import MachineUnderTest

from helpers import git, manifest
from shadowsnap import errors
from shadowsnap.deadline import Deadline
from shadowsnap.git import repository
from shadowsnap.remote import git_storage
from shadowsnap.remote import push as pushing
from shadowsnap.remote.storage import open_storage
from shadowsnap.store.lanes import Remote, pulled_lane, write_remote
from shadowsnap.timeline import read_lane_timeline


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A bare repository that already has a branch of its own."""
    made = tmp_path / "server.git"
    git(tmp_path, "init", "-q", "--bare", str(made))
    work = tmp_path / "work"
    git(tmp_path, "clone", "-q", str(made), str(work))
    (work / "readme").write_text("hello")
    git(work, "add", ".")
    git(work, "commit", "-q", "-m", "first")
    git(work, "push", "-q", "origin", "HEAD:main")
    return made


@pytest.fixture
def sandbox(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    made = MachineUnderTest.make("sandbox", tmp_path, monkeypatch)
    made.turn("write a", a__txt="one\n")
    assert made.here().set_remote(made.project, "server", str(server), plain=True).conditions
    return made


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    return MachineUnderTest.make("desk", tmp_path, monkeypatch)


def refs(server: Path) -> list[str]:
    return git(server, "for-each-ref", "--format=%(refname)").splitlines()


def test_a_lane_is_one_ref_and_nothing_else_is_touched(sandbox: MachineUnderTest, server: Path) -> None:
    assert refs(server) == ["refs/heads/main"]  # the probe is gone
    lane = sandbox.push().lane
    for number in range(3):
        sandbox.turn(f"turn {number}", a__txt=f"{number}")
        assert sandbox.push().lane == lane
    assert refs(server) == ["refs/heads/main", f"refs/shadowsnap-lanes/v1/{lane}"]
    assert git(server, "fsck", "--strict", "--no-dangling") == ""


def test_push_list_pull_and_resume(sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path) -> None:
    sandbox.push()
    sandbox.turn("more", a__txt="two", b__txt="b")
    sandbox.push()
    (lane,) = desk.here().lanes(str(server))
    assert (lane.machine, lane.turns, lane.readable) == ("sandbox", 2, True)
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    assert manifest(desk.project / "new") == manifest(sandbox.project)
    for number in range(3):
        sandbox.turn(f"and more: {number}", a__txt=f"three {number}")
        sandbox.push()
    shutil.rmtree(desk.project / "new")
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    assert manifest(desk.project / "new") == manifest(sandbox.project)


def test_what_was_pulled_depends_on_no_file_outside_the_store(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    sandbox.push()
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    packs = [*(desk.base / "store" / "objects" / "pack").iterdir()]
    assert {path.stat().st_nlink for path in packs} == {1}
    assert desk.manager.doctor().findings == ()


def test_a_copied_machine_loses_the_race_and_goes_on_alone(
    sandbox: MachineUnderTest, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = sandbox.push().lane
    shutil.copytree(sandbox.base, tmp_path / "twin" / "base", symlinks=True)
    twin = MachineUnderTest.make("twin", tmp_path, monkeypatch, sandbox.project)
    sandbox.turn("mine", a__txt="mine")
    sandbox.push()
    twin.turn("theirs", a__txt="theirs")
    report = twin.push()
    assert report.lane != lane and twin.own_lane().parent == lane
    sandbox.turn("mine again", a__txt="mine 2")
    assert sandbox.push().lane == lane


def test_a_lease_that_is_lost_in_the_last_moment(sandbox: MachineUnderTest, server: Path) -> None:
    lane = "0" * 20 + "/" + "1" * 12
    first, second = (open_storage(str(server), sandbox.store) for _ in range(2))
    name = f"shadowsnap-lanes/v1/lanes/{lane}/m-0000000002"
    assert first.get(name, 100) is None and second.get(name, 100) is None
    assert first.put_new(name, b"first") is True
    assert second.put_new(name, b"second") is False
    assert second.get(name, 100) == b"first"


def test_what_is_purged_goes_from_the_server(sandbox: MachineUnderTest, server: Path) -> None:
    sandbox.turn("a leak", leak__txt="very secret words that must go")
    sandbox.push()
    (sandbox.project / "leak.txt").unlink()
    sandbox.manager.purge(sandbox.project, ["leak.txt"])
    sandbox.push()
    git(server, "gc", "-q", "--prune=now")
    ref = f"refs/shadowsnap-lanes/v1/{sandbox.own_lane().lane}"
    objects = git(server, "cat-file", "--batch-all-objects", "--batch", "--buffer")
    assert "very secret words" not in objects and "one" in objects
    assert int(git(server, "rev-list", "--count", ref)) == 1 + len(sandbox.own_lane().checkpoints)


def test_a_turn_of_one_file_is_a_few_small_objects(sandbox: MachineUnderTest, server: Path) -> None:
    for number in range(200):
        (sandbox.project / f"{number}.txt").write_text(f"file {number} {hash(number)}\n")
    sandbox.turn("many", many__txt="")
    sandbox.push()
    before = len(git(server, "rev-list", "--objects", "--all").splitlines())
    sandbox.turn("change one of them", **{"7__txt": "changed"})
    assert 300 < sandbox.push().bytes <= 1024
    assert len(git(server, "rev-list", "--objects", "--all").splitlines()) - before <= 12
    assert sandbox.push().status == "up-to-date"


def test_a_lane_that_was_set_back_or_rewritten_is_refused(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    ref = f"refs/shadowsnap-lanes/v1/{sandbox.push().lane}"
    first = git(server, "rev-parse", ref).strip()
    sandbox.turn("more", a__txt="two")
    sandbox.push()
    second = git(server, "rev-parse", ref).strip()
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    git(server, "update-ref", ref, first)
    with pytest.raises(errors.LaneRefused, match="set back"):
        desk.here().resume("sandbox", desk.project / "new", url=str(server))
    message = git(server, "show", "-s", "--format=%B", second)
    forged = git(server, "commit-tree", f"{second}^{{tree}}", "-p", first, "-m", message).strip()
    git(server, "update-ref", ref, forged)
    with pytest.raises(errors.LaneRefused, match="another than the one that was seen"):
        desk.here().resume("sandbox", desk.project / "new", url=str(server))
    other = git(server, "commit-tree", f"{second}^{{tree}}", "-m", "not\n\nof a\nlane")
    git(server, "update-ref", ref, other)
    with pytest.raises(errors.LaneRefused, match="form"):
        desk.here().resume(sandbox.own_lane().lane, desk.project / "new", url=str(server))


@pytest.mark.parametrize("kind", ["blob", "tree", "tag"])
def test_a_ref_that_leads_to_no_commit_is_refused(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path, kind: str
) -> None:
    blob = git(server, "hash-object", "-w", "--stdin", stdin=b"x").strip()
    tree = git(server, "mktree", stdin=f"100644 blob {blob}\tx\n".encode()).strip()
    tag = f"object {blob}\ntype blob\ntag x\ntagger s <s> 1 +0000\n\nx\n"
    tags = git(server, "hash-object", "-t", "tag", "-w", "--stdin", stdin=tag.encode()).strip()
    found = {"blob": blob, "tree": tree, "tag": tags}[kind]
    sandbox.push()
    known = sandbox.own_lane().lane
    desk.here().resume(known, desk.project / "known", url=str(server))
    for lane in (known, f"{'1' * 20}/{'2' * 12}"):
        git(server, "update-ref", f"refs/shadowsnap-lanes/v1/{lane}", found)
        with pytest.raises(errors.RemoteFailed, match="something else than a lane"):
            desk.here().resume(lane, desk.project / "new", url=str(server))


def test_what_no_checkpoint_may_hold_is_refused_before_the_store_has_it(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    """The lane is sound but for one name, which git itself does not mind."""
    ref = f"refs/shadowsnap-lanes/v1/{sandbox.push().lane}"
    newest = sandbox.own_lane().checkpoints[-1]
    rows = git(server, "ls-tree", newest).replace("a.txt", "a\\..\\b")
    tree = git(server, "mktree", stdin=rows.encode()).strip()
    text = git(server, "cat-file", "commit", newest).replace(git(server, "rev-parse", f"{newest}^{{tree}}"), tree)
    evil = git(server, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode()).strip()
    message = git(server, "show", "-s", "--format=%B", ref).replace(newest, evil)
    git(server, "update-ref", ref, git(server, "commit-tree", tree, "-p", evil, "-m", message).strip())
    desk.turn("own work", own__txt="own")
    before = git(desk.base / "store", "cat-file", "--batch-all-objects", "--batch-check")
    with pytest.raises(errors.LaneRefused, match="b"):
        desk.here().resume("sandbox", desk.project / "new", url=str(server))
    assert git(desk.base / "store", "cat-file", "--batch-all-objects", "--batch-check") == before
    (quarantine,) = (desk.base / "remote").glob("*.git")
    assert git(quarantine, "cat-file", "--batch-all-objects", "--batch-check") == ""


@pytest.mark.parametrize("seconds", [0.001, 60.0], ids=["while it comes", "between two looks"])
def test_more_than_may_come_is_refused_and_not_kept(
    sandbox: MachineUnderTest,
    desk: MachineUnderTest,
    server: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
) -> None:
    (sandbox.project / "large").write_bytes(os.urandom(3 << 20))
    sandbox.turn("large", a__txt="2")
    sandbox.push()
    monkeypatch.setattr(git_storage, "MOST_PACK_BYTES", 1 << 20)
    monkeypatch.setattr(git_storage, "_CHECK_SECONDS", seconds)
    for _attempt in range(2):
        with pytest.raises(errors.RemoteFailed, match="more than 1048576 bytes"):
            desk.here().resume("sandbox", desk.project / "new", url=str(server))
        kept = [path for path in desk.base.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]
        assert kept == []


def test_over_ssh_as_git_speaks_it(
    tmp_path: Path, server: Path, desk: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport is git's own; only the program that would open the connection is replaced."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", f"{ssh}")
    monkeypatch.setenv("GIT_SSH_VARIANT", "simple")
    url = f"ssh://host{server}"
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    machine.turn("work", a__txt="1")
    machine.here().set_remote(machine.project, "server", url, plain=True)
    machine.push()
    desk.here().resume("m", desk.project / "new", url=url)
    assert manifest(desk.project / "new") == manifest(machine.project)


def test_a_chain_that_grew_long_begins_anew(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "_LONGEST_GENERATION", 3)
    for number in range(4):
        sandbox.turn(f"turn {number}", a__txt=f"{number}")
        sandbox.push()
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    assert manifest(desk.project / "new") == manifest(sandbox.project)


def test_the_persons_configuration_starts_nothing(
    sandbox: MachineUnderTest, home: Path, tmp_path: Path, server: Path
) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-push").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (hooks / "pre-push").chmod(0o755)
    with (home / ".gitconfig").open("a") as file:
        file.write(f"[core]\n\thooksPath = {hooks}\n[push]\n\tgpgSign = if-asked\n")
    sandbox.push()
    assert not (tmp_path / "ran").exists()


def test_addresses_that_the_person_rewrites_are_rewritten(
    home: Path, tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the person's own git configuration is used."""
    with (home / ".gitconfig").open("a") as file:
        file.write(f'[url "{tmp_path}/"]\n\tinsteadOf = ssh://git@example.invalid/\n')
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    machine.turn("work", a__txt="1")
    machine.here().set_remote(machine.project, "server", "ssh://git@example.invalid/server.git", plain=True)
    assert machine.push().status == "pushed" and len(refs(server)) == 2


def test_a_server_that_is_not_there_is_named(desk: MachineUnderTest, tmp_path: Path) -> None:
    desk.turn("work", a__txt="1")
    with pytest.raises((errors.RemoteFailed, errors.BadRemote)):
        desk.here().set_remote(desk.project, "server", str(tmp_path / "missing.git"), plain=True)
    with pytest.raises(errors.RemoteFailed):
        desk.here().set_remote(desk.project, "server", "https://127.0.0.1:9/x.git", plain=True)


def test_a_checkout_is_no_server(desk: MachineUnderTest, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "checkout")
    with pytest.raises(errors.BadRemote, match="checkout"):
        desk.here().set_remote(desk.project, "server", str(tmp_path / "checkout"), plain=True)


def test_an_option_is_no_address(desk: MachineUnderTest) -> None:
    for url in ("--upload-pack=touch x", "ext::sh -c touch% x"):
        with pytest.raises((errors.BadRemote, errors.RemoteFailed)):
            desk.here().set_remote(desk.project, "server", url, plain=True)


def test_an_encrypted_lane_on_a_git_server(
    desk: MachineUnderTest, server: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyrage")
    from shadowsnap.remote.manifest import generate_key

    public = generate_key(tmp_path / "key")
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    machine.turn("confidential", a__txt="confidential")
    machine.here().set_remote(machine.project, "server", str(server), [public])
    machine.push()
    found = git(server, "cat-file", "--batch-all-objects", "--batch", "--buffer")
    assert "confidential" not in found
    desk.here().resume("m", desk.project / "new", url=str(server), key=tmp_path / "key")
    assert manifest(desk.project / "new") == manifest(machine.project)


def test_what_the_log_let_go_is_not_listed_elsewhere_either(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    """A chain only adds to what was sent: lines that went are named, or others go on listing them."""
    for number in range(6):
        sandbox.turn(f"turn {number}", a__txt=f"{number}")
    before = sandbox.push()
    sent = [each.id for each in sandbox.manager.list_checkpoints(sandbox.project)]
    sandbox.manager.prune(max_snapshots=3)
    chain = next(sandbox.base.rglob("*.chain"))
    # Git from 2.45 on reads all of them for the next push.
    assert [each for each in sent if not (chain / each[:2] / each[2:]).exists()] == []
    own = [(entry.kind, entry.number, entry.prompt) for entry in sandbox.manager.timeline(sandbox.project)]
    assert len(own) < 7
    after = sandbox.push()
    assert (after.lane, after.number) == (before.lane, before.number + 1)
    desk.here().set_remote(desk.project, "server", str(server), plain=True)
    desk.pull(after.lane)
    pulled = pulled_lane(desk.store, after.lane, Deadline(60))
    assert pulled is not None
    found = read_lane_timeline(desk.store, pulled, Deadline(60)).entries[::-1]
    assert [(entry.kind, entry.number, entry.prompt) for entry in found] == own


def test_a_lane_says_how_large_it_is_from_its_first_push_on(sandbox: MachineUnderTest, server: Path) -> None:
    (sandbox.project / "large").write_bytes(os.urandom(100_000))
    sandbox.turn("work", a__txt="2")
    sandbox.push()
    (lane,) = sandbox.here().lanes(str(server))
    assert 100_000 < lane.bytes < 110_000


def test_a_push_may_hold_as_much_as_git_can_take(
    sandbox: MachineUnderTest, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for what comes from elsewhere. A server on this machine has the environment of the push."""
    monkeypatch.setattr(repository, "_MOST_MEMORY", "10k")
    (sandbox.project / "large").write_bytes(os.urandom(100_000))
    sandbox.turn("large", a__txt="2")
    assert sandbox.push().status == "pushed"


def test_a_password_in_the_address_is_not_shown(desk: MachineUnderTest) -> None:
    desk.turn("work", a__txt="1")
    url = "http://me:secret@127.0.0.1:9/x.git"
    with pytest.raises(errors.RemoteFailed) as failed:
        desk.here().set_remote(desk.project, "server", url, plain=True)
    assert "http://me:***@127.0.0.1:9/x.git" in str(failed.value)
    write_remote(desk.store, desk.project_id, Remote("server", url, plain=True))
    assert desk.manager.remote_status(desk.project)[0].url == "http://me:***@127.0.0.1:9/x.git"
    with pytest.raises(errors.RemoteFailed) as failed:
        desk.push()
    assert "secret" not in str(failed.value)


def test_nothing_stays_of_servers_that_were_only_looked_at(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    sandbox.push()
    desk.turn("work", a__txt="1")
    killed = desk.base / "remote" / "listing-0123abcd"
    killed.mkdir(parents=True)
    os.utime(killed, (0, 0))
    assert len(desk.here().lanes(str(server))) == 1
    with pytest.raises(errors.RemoteFailed):
        desk.here().set_remote(desk.project, "server", "https://127.0.0.1:9/x.git", plain=True)
    assert [each.name for each in (desk.base / "remote").iterdir() if each.is_dir()] == []


def test_what_a_new_generation_left_behind_goes_here_too(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    (sandbox.project / "large").write_bytes(os.urandom(300_000))
    sandbox.turn("large", a__txt="2")
    sandbox.push()
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    sandbox.here().purge(sandbox.project, ["large"])
    sandbox.push()
    desk.here().resume("sandbox", desk.project / "newer", url=str(server))
    (mirror,) = (desk.base / "remote").glob("*.git")
    assert sum(path.stat().st_size for path in mirror.rglob("*") if path.is_file()) < 200_000


def test_what_a_killed_fetch_left_goes_with_a_later_one(
    sandbox: MachineUnderTest, desk: MachineUnderTest, server: Path
) -> None:
    sandbox.push()
    desk.here().resume("sandbox", desk.project / "new", url=str(server))
    (mirror,) = (desk.base / "remote").glob("*.git")
    left = mirror / "objects" / "pack" / "tmp_pack_abcdef"
    left.write_bytes(b"half")
    desk.here().resume("sandbox", desk.project / "newer", url=str(server))
    assert left.exists(), "it may be of a fetch that is under way"
    os.utime(left, (0, 0))
    desk.here().resume("sandbox", desk.project / "newest", url=str(server))
    assert not left.exists()


def test_a_fetch_that_meets_a_full_disk(
    desk: MachineUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "ssh"
    script.write_text("#!/bin/sh\necho 'fatal: write error: No space left on device' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    with pytest.raises(errors.DiskFull):
        desk.here().resume("sandbox", desk.project / "new", url="ssh://host/x.git")
