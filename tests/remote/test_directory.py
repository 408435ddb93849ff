"""A lane in a directory: push, lanes, pull and resume between two machines."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from lanes import MachineUnderTest

from helpers import git, manifest
from shadowsnap import deadline, errors
from shadowsnap.remote import push as pushing
from shadowsnap.remote.lanes import normal_origin
from shadowsnap.remote.storage import DirectoryStorage
from shadowsnap.store import lanes as records


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """The remote directory."""
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def sandbox(tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    """A machine with a project of two turns, whose remote is the shelf."""
    made = MachineUnderTest.make("sandbox", tmp_path, monkeypatch)
    (made.project / "run.sh").write_text("#!/bin/sh\n")
    (made.project / "run.sh").chmod(0o755)
    (made.project / "private").write_text("mine")
    (made.project / "private").chmod(0o600)
    (made.project / "link").symlink_to("run.sh")
    made.turn("write a", a__txt="one\n")
    made.turn("change a", a__txt="one\ntwo\n", **{"sub/b__txt": "b"})
    made.here().set_remote(made.project, "shelf", str(shelf), plain=True)
    return made


@pytest.fixture
def home_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    return MachineUnderTest.make("desk", tmp_path, monkeypatch)


def files_at(shelf: Path) -> list[str]:
    return sorted(path.relative_to(shelf).as_posix() for path in shelf.rglob("*") if path.is_file())


# --- push --------------------------------------------------------------------------------------------


def test_a_push_is_a_pack_then_a_manifest_and_the_next_is_small(sandbox: MachineUnderTest, shelf: Path) -> None:
    first = sandbox.push()
    assert (first.status, first.number, first.turns) == ("pushed", 1, 2)
    lane = f"shadowsnap-lanes/v1/lanes/{first.lane}"
    assert [name.rpartition("/")[2][:2] for name in files_at(shelf) if name.startswith(lane)] == ["m-", "p-"]
    told = json.loads((shelf / lane / "m-0000000001").read_bytes())
    assert (told["lane"], told["number"], told["first"], told["previous"]) == (first.lane, 1, 1, "")
    assert str(sandbox.project) not in json.dumps(told)
    sandbox.turn("change it again", a__txt="three\n")
    second = sandbox.push()
    assert (second.status, second.number) == ("pushed", 2)
    assert second.bytes < 5000


def test_one_changed_file_of_a_large_directory_costs_little(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    """The directory itself is told against the one that the remote has."""
    for number in range(300):
        (sandbox.project / "sub" / f"{number}.txt").write_text(f"file {number}\n")
    sandbox.turn("many", many__txt="")
    assert sandbox.push().bytes > 10_000
    sandbox.turn("one of them", **{"sub/7__txt": "changed"})
    assert sandbox.push().bytes < 3_000
    home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf))
    assert manifest(home_machine.project / "new") == manifest(sandbox.project)


def test_a_push_without_news_says_so_and_writes_nothing(sandbox: MachineUnderTest, shelf: Path) -> None:
    sandbox.push()
    before = files_at(shelf)
    again = sandbox.push()
    assert (again.status, again.number, again.bytes) == ("up-to-date", 1, 0)
    assert files_at(shelf) == before


def test_what_can_be_read_in_a_plain_lane_is_named_once(sandbox: MachineUnderTest) -> None:
    assert any("not encrypted" in text for text in sandbox.push().notes)
    sandbox.turn("more", a__txt="x")
    assert sandbox.push().notes == ()


def test_without_a_remote_nothing_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MachineUnderTest.make("alone", tmp_path, monkeypatch)
    git(machine.project, "init", "-q")
    git(machine.project, "remote", "add", "origin", "https://example.invalid/x.git")
    machine.turn("something", a__txt="1")
    with pytest.raises(errors.NoRemote):
        machine.push()


def test_a_project_has_exactly_one_remote(sandbox: MachineUnderTest, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(errors.RemoteExists):
        sandbox.manager.set_remote(sandbox.project, "other", str(tmp_path / "other"), plain=True)
    sandbox.manager.remove_remote(sandbox.project)
    assert sandbox.manager.remote(sandbox.project) is None
    assert sandbox.manager.set_remote(sandbox.project, "other", str(tmp_path / "other"), plain=True).conditions


@pytest.mark.parametrize("place", ["project", "inside", "as url", "base", "missing", "scheme", "neither"])
def test_a_remote_that_cannot_be_one_is_refused(
    home_machine: MachineUnderTest, tmp_path: Path, place: str
) -> None:
    inside = home_machine.project / "inside"
    inside.mkdir()
    url = {
        "project": str(home_machine.project), "inside": str(inside), "base": str(home_machine.base),
        "as url": inside.as_uri(), "missing": str(tmp_path / "missing"), "scheme": "ftp://host/x",
        "neither": str(tmp_path),
    }[place]  # fmt: skip
    home_machine.base.mkdir(parents=True, mode=0o700)
    with pytest.raises(errors.BadRemote):
        home_machine.manager.set_remote(home_machine.project, "r", url, plain=place != "neither")
    assert home_machine.manager.remote(home_machine.project) is None


def test_a_remote_that_lost_everything_gets_everything_again(
    sandbox: MachineUnderTest, shelf: Path, home_machine: MachineUnderTest
) -> None:
    sandbox.push()
    shutil.rmtree(shelf / "shadowsnap-lanes")
    again = sandbox.push()
    assert (again.status, again.number) == ("pushed", 2)
    assert any("gone from the remote" in text for text in again.notes)
    done = home_machine.here().resume(again.lane, home_machine.project / "new", url=str(shelf))
    assert manifest(done.workdir) == manifest(sandbox.project)


@pytest.mark.parametrize("lost", ["m-0000000001", "p-*"])
def test_a_remote_that_lost_one_file_gets_everything_again(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path, lost: str
) -> None:
    """Without it, nothing that is pushed later can be read."""
    for number in range(2):
        sandbox.turn(f"number {number}", a__txt=f"{number}")
        sandbox.push()
    next(shelf.rglob(lost)).unlink()
    sandbox.turn("more", a__txt="more")
    assert any("gone from the remote" in text for text in sandbox.push().notes)
    home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf))
    assert manifest(home_machine.project / "new") == manifest(sandbox.project)


def test_a_copied_machine_goes_on_as_a_lane_of_its_own(
    sandbox: MachineUnderTest, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sandbox.push()
    shutil.copytree(sandbox.base, tmp_path / "copy" / "base", symlinks=True)
    twin = MachineUnderTest.make("copy", tmp_path, monkeypatch, sandbox.project)
    sandbox.turn("mine", a__txt="mine")
    assert sandbox.push().number == 2
    report = twin.push() if twin.turn("theirs", a__txt="theirs") is None else None
    assert report is not None and report.lane != first.lane and report.number == 1
    assert twin.own_lane().parent == first.lane
    assert any("another machine wrote" in text for text in report.notes)
    sandbox.turn("mine again", a__txt="mine 2")
    assert (sandbox.push().lane, sandbox.push().status) == (first.lane, "up-to-date")
    assert {each.lane for each in sandbox.manager.lanes(str(shelf))} == {first.lane, report.lane}


def test_purging_a_file_takes_it_from_the_remote_with_the_next_push(
    sandbox: MachineUnderTest, shelf: Path, home_machine: MachineUnderTest
) -> None:
    sandbox.turn("a leak", leak__txt="the very secret words")
    sandbox.push()
    old = files_at(shelf)
    (sandbox.project / "leak.txt").unlink()
    sandbox.manager.purge(sandbox.project, ["leak.txt"])
    report = sandbox.push()
    left = files_at(shelf)
    packs = [name for name in old if "/p-" in name]
    assert packs and not {*packs} & {*left}
    done = home_machine.here().resume(report.lane, home_machine.project / "new", url=str(shelf))
    assert not (Path(done.workdir) / "leak.txt").exists()
    found = git(home_machine.base / "store", "cat-file", "--batch-all-objects", "--batch", "--buffer")
    assert "the very secret words" not in found


def test_a_chain_that_grew_long_begins_anew(
    sandbox: MachineUnderTest, shelf: Path, home_machine: MachineUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "_LONGEST_GENERATION", 3)
    for number in range(4):
        sandbox.turn(f"turn {number}", a__txt=f"{number}\n")
        report = sandbox.push()
    lane = sandbox.own_lane()
    assert (report.number, lane.first) == (4, 4)
    names = [name for name in files_at(shelf) if "/lanes/" in name.removeprefix("shadowsnap-lanes/")]
    assert len(names) == 2, names  # one manifest, one pack
    sandbox.turn("after", a__txt="after\n")
    sandbox.push()
    done = home_machine.here().resume(report.lane, home_machine.project / "new", url=str(shelf))
    assert manifest(done.workdir) == manifest(sandbox.project)


# --- lanes -------------------------------------------------------------------------------------------


def test_lanes_shows_what_is_there_without_a_project(
    sandbox: MachineUnderTest, shelf: Path, home_machine: MachineUnderTest
) -> None:
    assert home_machine.here().lanes(str(shelf)) == []
    pushed = sandbox.push()
    (found,) = home_machine.here().lanes(str(shelf))
    assert (found.lane, found.project, found.machine, found.turns) == (pushed.lane, "project", "sandbox", 2)
    assert found.readable and not found.encrypted and found.bytes > 0
    newest = sandbox.manager.list_checkpoints(sandbox.project)[0]
    assert found.newest_at is not None
    assert abs(found.newest_at.timestamp() - newest.created_at.timestamp()) < 0.002


def test_a_lane_is_one_row_however_often_it_was_pushed(sandbox: MachineUnderTest, shelf: Path) -> None:
    for number in range(3):
        sandbox.turn(f"turn {number}", a__txt=str(number))
        sandbox.push()
    (found,) = sandbox.manager.lanes(str(shelf))
    assert (found.pushes, found.turns) == (3, 5)


# --- pull --------------------------------------------------------------------------------------------


def same_project(sandbox: MachineUnderTest, other: MachineUnderTest) -> None:
    """Make the other machine's directory one of the same project."""
    identity = sandbox.own_lane().identity
    other.here()
    other.manager._access.store()
    records.write_own_lane(other.store, other.project_id, records.new_lane(identity))


def test_pulled_entries_are_listed_with_their_machine_and_used_by_nothing_here(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    same_project(sandbox, home_machine)
    home_machine.turn("my own", mine__txt="1")
    home_machine.manager.set_remote(home_machine.project, "shelf", str(shelf), plain=True)
    own = [entry.to_dict() for entry in home_machine.manager.timeline(home_machine.project)]
    (report,) = home_machine.pull()
    assert (report.status, report.machine, report.checkpoints) == ("pulled", "sandbox", 3)
    (lane,) = home_machine.manager.pulled(home_machine.project)
    assert lane.machine == "sandbox"
    theirs = sandbox.manager.timeline(sandbox.project)
    assert [entry.to_dict() for entry in lane.entries] == [entry.to_dict() for entry in theirs]
    # Nothing of it is this project's.
    assert [entry.to_dict() for entry in home_machine.manager.timeline(home_machine.project)] == own
    with pytest.raises(errors.NoSuchCheckpoint):
        home_machine.manager.restore(home_machine.project, theirs[0].before or "")
    home_machine.manager.undo(home_machine.project)
    with pytest.raises(errors.NothingToUndo):
        home_machine.manager.undo(home_machine.project)
    (again,) = home_machine.pull()
    assert again.status == "up-to-date"


def test_upkeep_leaves_pulled_lanes_alone(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    same_project(sandbox, home_machine)
    for number in range(3):
        home_machine.turn(f"mine {number}", mine__txt=str(number))
    home_machine.manager.set_remote(home_machine.project, "shelf", str(shelf), plain=True)
    home_machine.pull()
    before = home_machine.manager.pulled(home_machine.project)
    result = home_machine.manager.prune(max_snapshots=1, reclaim="always")
    assert result.status == "done" and result.error is None
    assert home_machine.manager.doctor().findings == ()
    assert home_machine.manager.pulled(home_machine.project) == before
    home_machine.manager.status()
    home_machine.manager.clear(home_machine.project)
    assert git(home_machine.base / "store", "fsck", "--strict", "--no-dangling") == ""


def test_a_lane_grows_with_every_pull(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    same_project(sandbox, home_machine)
    home_machine.turn("mine", mine__txt="1")
    home_machine.manager.set_remote(home_machine.project, "shelf", str(shelf), plain=True)
    home_machine.pull()
    for number in range(3):
        sandbox.turn(f"more {number}", a__txt=f"{number}")
        sandbox.push()
    (report,) = home_machine.pull()
    assert (report.number, report.checkpoints) == (4, 6)
    (lane,) = home_machine.manager.pulled(home_machine.project)
    assert [entry.prompt for entry in lane.entries] == ["more 2", "more 1", "more 0", "change a", "write a"]


def test_removing_the_remote_forgets_what_was_pulled(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    same_project(sandbox, home_machine)
    home_machine.turn("mine", mine__txt="1")
    home_machine.manager.set_remote(home_machine.project, "shelf", str(shelf), plain=True)
    home_machine.pull()
    there = files_at(shelf)
    home_machine.manager.remove_remote(home_machine.project)
    assert home_machine.manager.pulled(home_machine.project) == []
    assert files_at(shelf) == there


# --- resume ------------------------------------------------------------------------------------------


def test_resume_makes_a_new_directory_that_is_exactly_the_same(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    (sandbox.project / "empty").mkdir()
    sandbox.turn("last", a__txt="last")
    pushed = sandbox.push()
    folder = home_machine.project / "elsewhere"
    plan = home_machine.here().resume("sandbox", folder, url=str(shelf), dry_run=True)
    assert plan.new and "a.txt" in plan.result.written and not folder.exists()
    done = home_machine.here().resume("sandbox", folder, url=str(shelf))
    assert (done.lane, done.machine, done.state) == (pushed.lane, "sandbox", "the end of turn 3")
    assert manifest(folder) == manifest(sandbox.project)
    home_machine.project = folder
    assert home_machine.own_lane().parent == pushed.lane
    assert home_machine.own_lane().identity == sandbox.own_lane().identity
    (entry,) = home_machine.manager.timeline(folder)
    assert entry.kind == "snapshot" and "sandbox" in entry.reason
    home_machine.turn("go on here", a__txt="gone on")
    assert home_machine.manager.undo(folder).applied
    assert (folder / "a.txt").read_text() == "last"


def test_the_state_in_the_middle_of_a_turn_is_the_one_before_it(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    manager = sandbox.here()
    manager.new_turn(session_id="s2", prompt="dies")
    manager.ensure_checkpoint(sandbox.project)
    safe = manifest(sandbox.project)
    (sandbox.project / "a.txt").write_text("half done")
    sandbox.push()
    done = home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf))
    assert manifest(done.workdir) == safe
    assert done.state == "the beginning of turn 3"


def test_after_a_restore_there_resume_has_what_it_led_to(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.here().restore(sandbox.project, "1")
    sandbox.push()
    done = home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf))
    assert manifest(done.workdir) == manifest(sandbox.project)


def clone(source: Path, target: Path) -> Path:
    git(source.parent, "clone", "-q", str(source), str(target))
    return target


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    made = tmp_path / "upstream"
    made.mkdir()
    git(made, "init", "-q")
    (made / "a.txt").write_text("from the repository\n")
    git(made, "add", ".")
    git(made, "commit", "-q", "-m", "first")
    return made


def test_resume_in_a_checkout_of_the_same_project_saves_what_is_there(
    tmp_path: Path, shelf: Path, upstream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = MachineUnderTest.make("cloud", tmp_path, monkeypatch, clone(upstream, tmp_path / "in-the-cloud"))
    desk = MachineUnderTest.make("desk", tmp_path, monkeypatch, clone(upstream, tmp_path / "on-the-desk"))
    cloud.turn("work", a__txt="from the cloud\n", new__txt="new")
    cloud.manager.set_remote(cloud.project, "shelf", str(shelf), plain=True)
    cloud.push()
    (desk.project / "a.txt").write_text("unsaved words\n")
    dotgit = git(desk.project, "rev-parse", "HEAD")
    plan = desk.here().resume("cloud", url=str(shelf), working_dir=desk.project, dry_run=True)
    assert not plan.new and set(plan.result.written) == {"a.txt", "new.txt"}
    assert (desk.project / "a.txt").read_text() == "unsaved words\n"
    done = desk.here().resume("cloud", url=str(shelf), working_dir=desk.project)
    assert (desk.project / "a.txt").read_text() == "from the cloud\n"
    assert done.commit == done.commit_here == dotgit
    assert desk.own_lane().identity.id == cloud.own_lane().identity.id
    desk.manager.undo(desk.project)
    assert (desk.project / "a.txt").read_text() == "unsaved words\n"
    assert not (desk.project / "new.txt").exists()


def test_another_project_is_not_resumed_into(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path, upstream: Path, tmp_path: Path
) -> None:
    sandbox.push()
    other = clone(upstream, tmp_path / "clone")
    before = manifest(other)
    for folder in (other, home_machine.project):
        (folder / "words.txt").write_text("words")
        before = manifest(folder)
        with pytest.raises(errors.OtherProject):
            home_machine.here().resume("sandbox", folder, url=str(shelf))
        assert manifest(folder) == before


def test_what_a_state_does_not_hold_is_named(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    (sandbox.project / ".env").write_text("TOKEN=abc")
    sandbox.turn("more", a__txt="x")
    sandbox.push()
    done = home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf))
    assert [(item.path, item.why) for item in done.missing] == [(".env", "secret")]


def test_conversations_come_along_if_asked_for(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.manager.remove_remote(sandbox.project)
    sandbox.manager.set_remote(sandbox.project, "shelf", str(shelf), plain=True, conversations=True)
    manager = sandbox.here()
    said = [{"role": "user", "content": "please"}]
    manager.new_turn(session_id="talk-1234", prompt="please", conversation=said)
    manager.ensure_checkpoint(sandbox.project)
    (sandbox.project / "a.txt").write_text("done")
    manager.end_turn([*said, {"role": "assistant", "content": "done"}])
    sandbox.push()
    done = home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf))
    assert done.conversation is not None and done.conversation.session_id == "talk-1234"
    assert "conversation" not in done.to_dict()
    found = home_machine.manager.restore(done.workdir, "last", files=False, conversation=True).conversation
    assert [message["content"] for message in found.data] == ["please", "done"]


def test_a_lane_without_conversations_carries_none(sandbox: MachineUnderTest, shelf: Path) -> None:
    manager = sandbox.here()
    manager.new_turn(session_id="talk-1", prompt="x", conversation=[{"role": "user", "content": "words of mine"}])
    manager.ensure_checkpoint(sandbox.project)
    (sandbox.project / "a.txt").write_text("done")
    manager.end_turn([{"role": "user", "content": "words of mine"}])
    report = sandbox.push()
    other = MachineUnderTest.make("x", sandbox.base.parent, sandbox.monkeypatch)
    other.here().resume(report.lane, other.project / "new", url=str(shelf))
    found = git(other.base / "store", "cat-file", "--batch-all-objects", "--batch", "--buffer")
    assert "words of mine" not in found


def test_a_lane_is_found_by_a_part_of_its_name_and_only_if_that_is_clear(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    lane = sandbox.push().lane
    machine = lane.partition("/")[2]
    manager, new = home_machine.here(), home_machine.project / "new"
    for word in (lane, lane[:6], machine[:5], "sandbox", "project"):
        assert manager.resume(word, new, url=str(shelf), dry_run=True).lane == lane
    with pytest.raises(errors.NoSuchLane):
        manager.resume("nothing", new, url=str(shelf))
    with pytest.raises(errors.NoSuchLane):
        manager.resume("0" * 20 + "/" + "0" * 12, new, url=str(shelf))


# --- who a project is --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/team/app.git", "https://example.com/team/app", "https://Example.com:443/team/app/",
        "https://user:password@example.com/team/app.git", "ssh://git@example.com:22/team/app.git",
        "git@example.com:team/app.git", "git@example.com:/team/app.git", "example.com:team/app",
        "git://example.com//team//app.git",
    ],
)  # fmt: skip
def test_an_origin_is_the_same_however_it_is_written(url: str) -> None:
    assert normal_origin(url) == "example.com/team/app"


@pytest.mark.parametrize("url", ["/srv/git/app.git", "../app", "file:///srv/app.git", "C:\\repos\\app", ""])
def test_a_local_origin_is_none(url: str) -> None:
    assert normal_origin(url) == ""


def test_a_project_is_its_first_commit_and_origin_not_its_path(
    upstream: Path, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for name in ("one", "two"):
        machine = MachineUnderTest.make(name, tmp_path, monkeypatch, clone(upstream, tmp_path / f"clone {name}"))
        git(machine.project, "remote", "set-url", "origin", "git@example.com:team/app.git")
        machine.turn("work", a__txt=name)
        machine.manager.set_remote(machine.project, "shelf", str(shelf), plain=True)
        found.add(machine.push().lane.partition("/")[0])
    assert len(found) == 1


def test_a_shallow_clone_is_the_same_project_by_its_origin(
    upstream: Path, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (upstream / "b.txt").write_text("b")
    git(upstream, "add", ".")
    git(upstream, "commit", "-q", "-m", "second")
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{upstream}", str(shallow))
    cloud = MachineUnderTest.make("cloud", tmp_path, monkeypatch, shallow)
    desk = MachineUnderTest.make("desk", tmp_path, monkeypatch, clone(upstream, tmp_path / "full"))
    for machine in (cloud, desk):
        git(machine.project, "remote", "set-url", "origin", "https://example.com/team/app")
    cloud.turn("work", a__txt="cloud")
    cloud.manager.set_remote(cloud.project, "shelf", str(shelf), plain=True)
    cloud.push()
    assert cloud.own_lane().identity.root == ""
    desk.manager.set_remote(desk.project, "shelf", str(shelf), plain=True)
    assert [report.machine for report in desk.pull()] == ["cloud"]
    done = desk.here().resume("cloud", url=str(shelf), working_dir=desk.project)
    assert done.workdir == str(desk.project) and (desk.project / "a.txt").read_text() == "cloud"


def test_two_checkouts_on_one_machine_are_two_lanes(
    upstream: Path, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lanes = set()
    for name in ("one", "two"):
        folder = clone(upstream, tmp_path / name)
        machine = MachineUnderTest.make("same", tmp_path, monkeypatch, folder)
        machine.turn("work", a__txt=name)
        machine.manager.set_remote(folder, "shelf", str(shelf), plain=True)
        report = machine.push()
        assert not any("another machine" in text for text in report.notes)
        lanes.add(report.lane)
    assert len(lanes) == 2 and len({lane.partition("/")[0] for lane in lanes}) == 1


def test_the_persons_repository_is_only_read(
    upstream: Path, tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers import snapshot_dotgit

    folder = clone(upstream, tmp_path / "clone")
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch, folder)
    machine.turn("work", a__txt="x")
    before = snapshot_dotgit(folder)
    machine.manager.set_remote(folder, "shelf", str(shelf), plain=True)
    machine.push()
    assert snapshot_dotgit(folder) == before
    assert os.path.isdir(shelf)


def test_states_of_other_machines_are_looked_at_by_name(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path
) -> None:
    sandbox.turn("with a mistake", a__txt="mistake")
    sandbox.turn("without it", a__txt="mended")
    sandbox.push()
    numbers = [each.number for each in sandbox.manager.timeline(sandbox.project) if each.prompt == "without it"]
    state = f"sandbox:{numbers[0]}"
    home = home_machine.here()
    folder = home_machine.project / "new"
    home.resume("sandbox", folder, url=str(shelf))
    (change,) = home.diff(folder, state).changes
    assert change.path == "a.txt"
    assert home.contents(folder, state, ["a.txt"]) == {"a.txt": b"mistake"}
    assert home.contents(folder, f"{state}:after", ["a.txt"]) == {"a.txt": b"mended"}
    assert home.files(folder, home.get(folder, state).id) == home.files(folder, state)
    done = home.resume(state, home_machine.project / "older", url=str(shelf))
    assert (Path(done.workdir) / "a.txt").read_text() == "mistake"
    for word in ("sandbox:99", "elsewhere:1", "99"):
        with pytest.raises((errors.NoSuchCheckpoint, errors.NoSuchTurn)):
            home.get(folder, word)


@pytest.mark.parametrize("how", ["purge", "clear"])
def test_what_is_purged_or_cleared_goes_from_pulled_lanes_too(
    sandbox: MachineUnderTest, home_machine: MachineUnderTest, shelf: Path, how: str
) -> None:
    sandbox.turn("a leak", leak__txt="very secret words")
    sandbox.push()
    home, folder = home_machine.here(), home_machine.project / "new"
    home.resume("sandbox", folder, url=str(shelf))
    (folder / "leak.txt").unlink()
    if how == "purge":
        home.purge(folder, ["leak.txt"])
    else:
        home.clear(folder)
    objects = git(home_machine.base / "store", "cat-file", "--batch-all-objects", "--batch", "--buffer")
    assert "very secret words" not in objects
    assert home.pulled(folder) == []


def test_what_is_purged_goes_from_the_remote_wherever_it_was(sandbox: MachineUnderTest, shelf: Path) -> None:
    """It may be in packs of checkpoints that were dropped, of which no purge knows."""
    sandbox.turn("write a key", key__txt="one")
    sandbox.push()
    before = {path.name for path in shelf.rglob("p-*")}
    sandbox.turn("remove it", key__txt=None)
    manager = sandbox.here()
    kept = manager.list_checkpoints(sandbox.project)[0]
    manager.delete(sandbox.project, [each for each in manager.list_checkpoints(sandbox.project) if each != kept])
    sandbox.push()
    assert before <= {path.name for path in shelf.rglob("p-*")}
    with pytest.raises(errors.ShadowsnapError, match="no checkpoint"):
        manager.purge(sandbox.project, "key.txt")
    assert sandbox.push().status == "pushed"
    assert not before & {path.name for path in shelf.rglob("p-*")}
    assert sandbox.push().status == "up-to-date"


def test_a_share_that_is_not_mounted_is_a_failure_of_the_remote(sandbox: MachineUnderTest, shelf: Path) -> None:
    sandbox.push()
    shelf.rename(shelf.with_name("away"))
    with pytest.raises(errors.RemoteFailed, match="there is no such directory"):
        sandbox.push()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_disk_that_is_full_here_is_no_failure_of_the_remote(shelf: Path) -> None:
    storage = DirectoryStorage(shelf, str(shelf))
    storage.put("a/b", b"some")
    with pytest.raises(OSError, match="No space left"):
        storage.get_file("a/b", Path("/dev/full"), 10)


@pytest.mark.parametrize("point", ["push:packed", "pull:fetched"])
def test_a_full_disk_is_named(
    sandbox: MachineUnderTest,
    home_machine: MachineUnderTest,
    shelf: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
) -> None:
    def fill_up(name: str) -> None:
        if name == point:
            raise OSError(errno.ENOSPC, "No space left on device")

    def resume() -> bool:
        return home_machine.here().resume("sandbox", home_machine.project / "new", url=str(shelf)).new

    sandbox.push()
    sandbox.turn("more", a__txt="more")
    with monkeypatch.context() as patch:
        patch.setattr(deadline, "step_listener", fill_up)
        act = sandbox.push if point == "push:packed" else resume
        with pytest.raises(errors.DiskFull):
            act()
    assert sandbox.push().status in ("pushed", "up-to-date")
    assert resume()
