"""A push or a pull that dies at any step, and remotes that fail or lie."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lanes import MachineUnderTest

from helpers import git, manifest
from shadowsnap import deadline, errors
from shadowsnap.remote import storage as storages

PUSH = ["push:packed", "push:noted", "push:sent", "push:manifest", "push:acknowledged", "push:cleaned"]
PULL = ["pull:fetched", "pull:checked", "pull:stored", "pull:kept"]


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


@pytest.fixture
def sandbox(tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    made = MachineUnderTest.make("sandbox", tmp_path, monkeypatch)
    made.turn("write a", a__txt="one\n")
    made.here().set_remote(made.project, "shelf", str(shelf), plain=True)
    return made


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineUnderTest:
    return MachineUnderTest.make("reader", tmp_path, monkeypatch)


def dying_at(name: str, operation: Callable[[], object]) -> None:
    """Run an operation in a child that is gone at a step, as if killed."""
    pid = os.fork()
    if pid == 0:

        def die(reached: str) -> None:
            if reached == name:
                os._exit(9)

        deadline.step_listener = die
        try:
            operation()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9, "it never came to that step"


def resumed(reader: MachineUnderTest, shelf: Path) -> dict[bytes, object]:
    folder = reader.project / "new"
    shutil.rmtree(folder, ignore_errors=True)
    reader.here().resume("sandbox", folder, url=str(shelf))
    return dict(manifest(folder))


@pytest.mark.parametrize(("step", "pushed_before"), [*((step, True) for step in PUSH), ("push:sent", False)])
def test_a_push_that_dies_is_finished_or_forgotten_by_the_next(
    sandbox: MachineUnderTest, reader: MachineUnderTest, shelf: Path, step: str, pushed_before: bool
) -> None:
    if pushed_before:
        sandbox.push()
        sandbox.turn("change it", a__txt="two\n")
    dying_at(step, sandbox.push)
    sandbox.turn("and again", a__txt="three\n")
    report = sandbox.push()
    assert report.status == "pushed" and not any("another machine" in text for text in report.notes)
    assert sandbox.own_lane().parent is None
    assert resumed(reader, shelf) == manifest(sandbox.project)
    assert sandbox.push().status == "up-to-date"
    # Nothing but what the lane needs is left: as many packs as manifests, and one head.
    names = [path.name for path in shelf.rglob("*") if path.is_file()]
    packs, manifests = (sum(name.startswith(start) for name in names) for start in ("p-", "m-"))
    assert packs == manifests and len(names) == packs + manifests + 1
    assert not list((sandbox.base / "remote").glob("*.sending"))


def test_a_push_that_died_before_its_manifest_is_not_seen_by_others(
    sandbox: MachineUnderTest, reader: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    seen = manifest(sandbox.project)
    sandbox.turn("change it", a__txt="two\n")
    dying_at("push:sent", sandbox.push)
    assert resumed(reader, shelf) == seen


def test_a_push_that_died_after_its_manifest_is_seen(
    sandbox: MachineUnderTest, reader: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    sandbox.turn("change it", a__txt="two\n")
    dying_at("push:manifest", sandbox.push)
    assert resumed(reader, shelf) == manifest(sandbox.project)


@pytest.mark.parametrize(("step", "pulled_before"), [*((step, True) for step in PULL), ("pull:stored", False)])
def test_a_pull_that_dies_is_done_again(
    sandbox: MachineUnderTest, reader: MachineUnderTest, shelf: Path, step: str, pulled_before: bool
) -> None:
    sandbox.push()
    if pulled_before:
        resumed(reader, shelf)
        sandbox.turn("change it", a__txt="two\n")
        sandbox.push()
    dying_at(step, lambda: reader.here().resume("sandbox", reader.project / "x", url=str(shelf), dry_run=True))
    assert resumed(reader, shelf) == manifest(sandbox.project)
    assert git(reader.base / "store", "fsck", "--strict", "--no-dangling") == ""
    reader.manager.doctor(repair=True)
    assert reader.manager.doctor().findings == ()


class Failing(storages.DirectoryStorage):
    """A directory that fails, or lies, after so many operations that write."""

    left = 0
    how = "refuse"

    def _write_in_place(self, name: str, fill: Callable[[int], None], *, only_new: bool = False) -> bool:
        cls = type(self)
        cls.left -= 1
        if cls.left != 0:
            return super()._write_in_place(name, fill, only_new=only_new)
        if cls.how == "refuse":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        if cls.how == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if cls.how == "lose":
            return True  # says yes and writes nothing
        super()._write_in_place(name, lambda target: _half(fill, target), only_new=only_new)
        return True


def _half(fill: Callable[[int], None], target: int) -> None:
    fill(target)
    os.ftruncate(target, os.fstat(target).st_size // 2)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Failing]]:
    with monkeypatch.context() as patch:
        patch.setattr(storages, "DirectoryStorage", Failing)
        yield Failing


@pytest.mark.parametrize(
    ("write", "how"),
    [(1, "full"), (1, "lose"), (1, "half"), (2, "refuse"), (2, "lose"), (2, "half"), (3, "refuse")],
)
def test_a_remote_that_fails_is_never_said_to_have_it(
    sandbox: MachineUnderTest, reader: MachineUnderTest, shelf: Path, failing: type[Failing], how: str, write: int
) -> None:
    """Write 1 is the pack, 2 the manifest, 3 the head, without which everything can still be had."""
    sandbox.push()
    sandbox.turn("change it", a__txt="two\n")
    failing.left, failing.how = write, how
    try:
        report = sandbox.push()
    except errors.RemoteFailed:
        report = None
    failing.left = 0
    if write == 3:
        assert report is not None and report.status == "pushed"
    elif how == "half" and write == 2:
        # A manifest that was cut short is no manifest of this machine.
        assert report is not None and report.lane == sandbox.own_lane().lane and report.number == 1
    else:
        assert report is None
    found = sandbox.push()
    assert found.status in ("pushed", "up-to-date")
    reader.here().resume(found.lane, reader.project / "new", url=str(shelf))
    assert manifest(reader.project / "new") == manifest(sandbox.project)
    assert len([each for each in sandbox.manager.lanes(str(shelf)) if each.lane == found.lane]) == 1


def test_a_storage_that_ignores_conditions_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shelf: Path
) -> None:
    class Careless(storages.DirectoryStorage):
        def put_new(self, name: str, data: bytes, head: str = "") -> bool:
            self.put(name, data)
            return True

    monkeypatch.setattr(storages, "DirectoryStorage", Careless)
    machine = MachineUnderTest.make("m", tmp_path, monkeypatch)
    machine.turn("work", a__txt="1")
    assert machine.manager.set_remote(machine.project, "shelf", str(shelf), plain=True).conditions is False
    machine.push()
    shutil.copytree(machine.base, tmp_path / "twin" / "base", symlinks=True)
    twin = MachineUnderTest.make("twin", tmp_path, monkeypatch, machine.project)
    machine.turn("mine", a__txt="mine")
    machine.push()
    twin.turn("theirs", a__txt="theirs")
    assert twin.push().number == 2  # it replaced the other's
    report = machine.push()
    assert report.lane != twin.own_lane().lane and machine.own_lane().parent == twin.own_lane().lane
    assert any("not the one that this machine wrote" in text for text in report.notes)


def test_where_there_are_no_links_a_manifest_is_still_written_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    made = storages.DirectoryStorage(tmp_path, str(tmp_path))
    assert made.put_new("a/b", b"first") and not made.put_new("a/b", b"second")
    assert made.get("a/b", 100) == b"first"


def test_offline_for_a_week_then_one_push(
    sandbox: MachineUnderTest, reader: MachineUnderTest, shelf: Path
) -> None:
    sandbox.push()
    shelf.rename(shelf.with_name("unmounted"))
    for number in range(4):
        sandbox.turn(f"offline {number}", a__txt=f"{number}")
        with pytest.raises((errors.RemoteFailed, errors.BadRemote)):
            sandbox.push()
    (status,) = sandbox.manager.remote_status(sandbox.project)
    assert status.unpushed == 4 and status.unpushed_since is not None
    shelf.with_name("unmounted").rename(shelf)
    assert sandbox.push().number == 2
    (status,) = sandbox.manager.remote_status(sandbox.project)
    assert status.unpushed == 0 and status.unpushed_since is None
    assert resumed(reader, shelf) == manifest(sandbox.project)


@pytest.mark.parametrize("step", ["push:manifest", "push:acknowledged"])
def test_what_was_purged_goes_from_the_remote_even_if_the_push_died_before_it_removed_it(
    sandbox: MachineUnderTest, shelf: Path, step: str
) -> None:
    sandbox.push()
    before = {path.name for path in shelf.rglob("p-*")}
    sandbox.manager.purge(sandbox.project, "a.txt")
    dying_at(step, sandbox.push)
    assert before <= {path.name for path in shelf.rglob("p-*")}
    assert sandbox.push().status == "up-to-date"
    assert not before & {path.name for path in shelf.rglob("p-*")}


def test_what_a_remote_did_not_let_go_is_removed_by_a_later_push(
    sandbox: MachineUnderTest, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox.push()
    before = {path.name for path in shelf.rglob("p-*")}
    sandbox.manager.purge(sandbox.project, "a.txt")

    def refuse(self: storages.DirectoryStorage, names: object) -> None:
        raise errors.RemoteFailed(url=self.url, why="not now")

    with monkeypatch.context() as patch:
        patch.setattr(storages.DirectoryStorage, "delete", refuse)
        notes = sandbox.push().notes
        assert any(text.startswith("older packs are still at the remote") for text in notes)
    sandbox.push()
    assert not before & {path.name for path in shelf.rglob("p-*")}
