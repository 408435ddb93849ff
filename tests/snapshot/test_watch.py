"""A manager that watches a directory takes the same snapshots as one that scans it, object for object, and
looks only at what was touched."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from capturing import checkpoint_of, everything_old
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import Change, Node, build, changes, mutate, trees, wild_changes, wild_trees

from helpers import ROOT, git, manifest, remove_tree
from shadowsnap import CheckpointManager
from shadowsnap.git import repository as runner
from shadowsnap.git.index import Index
from shadowsnap.snapshot import capture
from shadowsnap.snapshot import scan as filesystems
from shadowsnap.snapshot import take as snapshot
from shadowsnap.snapshot import watch as inotify
from shadowsnap.snapshot import watch as watching
from shadowsnap.snapshot.watch import Inotify, Touched, Watcher, decode
from shadowsnap.snapshot.worktree import Worktree
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import is_free
from shadowsnap.store.projects import project_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is needed")

EXAMPLES = max(1, settings().max_examples // 2)
SMALL_MB = 4000 / 2**20


def snapshot_by(manager: CheckpointManager, project: Path) -> tuple[Any, ...]:
    """Everything a new snapshot says of the files, with the name of every object. (Its number says how many there
    were before.)"""
    checkpoint = checkpoint_of(manager.snapshot(project))
    listed = git(manager.settings.resolved_base() / "store", "ls-tree", "-r", "-t", "-z", checkpoint.id)
    metadata = {name: value for name, value in checkpoint.metadata.items() if name != "number"}
    return checkpoint.tree, metadata, checkpoint.skipped, listed.split("\0")


class Pair:
    """One directory, and two managers: one of them watches."""

    def __init__(self, top: Path, project: Path) -> None:
        self.project = project
        self.watching, self.scanning = (
            CheckpointManager(base=top / name, fsync=False, deadline=0, max_file_size_mb=SMALL_MB)
            for name in ("watching", "scanning")
        )

    def agree(self) -> bool:
        """Both take a snapshot: the same one. Says whether the watcher knew."""
        with answers_of_watchers() as answers:
            self._take_the_same()
        return any(answers)

    def _take_the_same(self) -> None:
        mine, theirs = (snapshot_by(manager, self.project) for manager in (self.watching, self.scanning))
        assert mine == theirs, f"{mine} {theirs}"


@contextmanager
def answers_of_watchers() -> Iterator[list[bool]]:
    """Whether the watcher knew, for each time that one was asked."""
    answers: list[bool] = []
    real = Watcher.begin

    def begin(self: Watcher, *told: Any) -> Touched | None:
        touched = real(self, *told)
        answers.append(touched is not None)
        return touched

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watcher, "begin", begin)
        yield answers


def index_of(manager: CheckpointManager, project: Path) -> Path:
    return Store(manager.settings.resolved_base()).index_file(project_of(project).id)


def processes(manager: CheckpointManager, project: Path) -> int:
    before = runner.processes_started
    manager.snapshot(project)
    return runner.processes_started - before


@pytest.fixture
def pair(tmp_path: Path, project: Path) -> Iterator[Pair]:
    """Both know the project, and one of them watches it. Nothing is so young that it is looked at anyway."""
    pair = Pair(tmp_path, project)
    with everything_old():
        pair.agree()
        assert pair.watching.watch(project)
        assert not pair.agree()
        assert pair.agree()
    yield pair
    pair.watching.unwatch(project)


# --- the same as a scan -----------------------------------------------------------------------------


def watching_and_scanning_agree(
    where: Path, tree: dict[bytes, Node], steps: list[list[Change]], early: bool
) -> None:
    top = Path(tempfile.mkdtemp(dir=where))
    project = top / "project"
    with ExitStack() as stack:
        stack.callback(remove_tree, top)
        project.mkdir()
        build(os.fsencode(project), tree)
        git(project, "init", "-q")
        git(project, "add", "-A")
        pair = Pair(top, project)
        stack.callback(pair.watching.unwatch, project)
        if early:
            assert pair.watching.watch(project)
        pair.agree()
        assert pair.watching.watch(project)
        pair.agree()
        for edits in steps:
            mutate(os.fsencode(project), edits)
            assert pair.agree()
            assert pair.agree()
        pair.watching.unwatch(project)
        pair.agree()  # what was remembered serves a scan as well


@settings(max_examples=EXAMPLES)
@given(tree=trees, steps=st.lists(changes, min_size=1, max_size=4), early=st.booleans())
def test_a_watcher_reports_what_a_scan_finds(
    tmp_path: Path, tree: dict[bytes, Node], steps: list[list[Change]], early: bool
) -> None:
    watching_and_scanning_agree(tmp_path, tree, steps, early)


@settings(max_examples=EXAMPLES)
@given(tree=wild_trees, steps=st.lists(wild_changes, min_size=1, max_size=4), early=st.booleans())
def test_a_watcher_reports_what_a_scan_finds_where_much_is_ignored(
    tmp_path: Path, tree: dict[bytes, Node], steps: list[list[Change]], early: bool
) -> None:
    watching_and_scanning_agree(tmp_path, tree, steps, early)


# --- what it costs ----------------------------------------------------------------------------------


@pytest.mark.shortcut
def test_without_changes_no_process_starts_and_no_file_is_examined(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[bytes] = []
    real = Worktree.lstat
    monkeypatch.setattr(Worktree, "lstat", lambda self, path: (looked.append(path), real(self, path))[1])
    assert processes(pair.watching, pair.project) == 0
    assert looked == []
    (pair.project / "src" / "main.py").write_text("print('changed')")
    pair.watching.snapshot(pair.project)
    assert set(looked) == {b"src/main.py"}
    assert pair.agree()


def test_an_unchanged_index_is_not_read_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Path] = []
    real = Index.load
    monkeypatch.setattr(Index, "load", lambda path: (loads.append(path), real(path))[1])
    pair.watching.snapshot(pair.project)
    assert loads == []
    index = index_of(pair.watching, pair.project)
    index.write_bytes(index.read_bytes())  # another file may have come in its place
    pair.watching.snapshot(pair.project)
    assert loads == [index]


def test_the_watcher_is_imported_only_when_it_is_used(base: Path, project: Path) -> None:
    story = f"""
import sys
from shadowsnap import CheckpointManager
CheckpointManager(base={os.fspath(base)!r}, background_upkeep=False).snapshot({os.fspath(project)!r})
of_watching = (".snapshot.watch", "ctypes")
sys.exit(", ".join(name for name in sys.modules if name.endswith(of_watching)) or 0)
"""
    subprocess.run([sys.executable, "-c", story], check=True, cwd=ROOT)


# --- whatever is not known is scanned ---------------------------------------------------------------


def test_lost_events_lead_to_a_scan(pair: Pair) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_bytes())
    if limit > 50_000:
        pytest.skip("it takes too many events")
    noise, other = pair.project / "noise", pair.project / "other"
    noise.touch()
    for _ in range(limit // 2):  # two events each; none makes a file, which some disks are slow at
        noise.rename(other)
        noise, other = other, noise
    noise.unlink()
    os.rename(pair.project / "src", pair.project / "moved")  # no event reports it any more
    (pair.project / "src").mkdir()
    assert not pair.agree()
    (pair.project / "moved" / "main.py").write_text("after the move")
    (pair.project / "src" / "new.py").write_text("in the new directory")
    assert pair.agree()
    assert pair.agree()


def test_an_overflow_event_is_decoded() -> None:
    (event,) = decode(struct.pack("iIII", -1, inotify.OVERFLOW, 0, 0))
    assert event == (-1, inotify.OVERFLOW, b"")
    two = struct.pack("iIII8s", 3, inotify.CREATE, 0, 8, b"a") + struct.pack("iIII", 4, inotify.ATTRIB, 0, 0)
    assert [event.name for event in decode(two)] == [b"a", b""]


def test_without_free_watches_everything_is_scanned(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Inotify, directory: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    watches = open_queues()
    monkeypatch.setattr(Inotify, "add", full)
    assert not pair.scanning.watch(pair.project)
    assert open_queues() == watches
    (pair.project / "new" / "folder").mkdir(parents=True)
    (pair.project / "new" / "folder" / "file").write_text("new")
    assert pair.agree()
    assert open_queues() == watches - 1  # what was watched is free for others
    (pair.project / "new" / "folder" / "file").write_text("changed")
    assert not pair.agree()
    monkeypatch.undo()
    assert pair.watching.watch(pair.project)
    assert [pair.agree(), pair.agree()] == [False, True]


def test_a_snapshot_by_another_manager_is_taken_into_account(pair: Pair) -> None:
    (pair.project / "new.txt").write_text("captured by another manager first")
    other_manager = CheckpointManager(base=pair.watching.settings.base, max_file_size_mb=SMALL_MB, deadline=0)
    other_manager.snapshot(pair.project)
    assert not pair.agree()
    (pair.project / "new.txt").write_text("changed")
    assert pair.agree()


def test_two_managers_may_watch_the_same_directory(pair: Pair) -> None:
    assert pair.scanning.watch(pair.project)
    for number in range(3):
        (pair.project / "src" / f"{number}.py").write_text("new")
        pair.agree()
    assert pair.agree()
    pair.scanning.unwatch(pair.project)


def test_after_a_while_everything_is_scanned(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_SNAPSHOTS", 3)
    assert [pair.agree() for _ in range(9)] == [True, True, False, True, True, True, False, True, True]
    for watcher in pair.watching._access.watchers.values():
        watcher.most_seconds = -1.0
    assert not pair.agree()


def test_where_something_is_mounted_everything_is_scanned(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = os.fsencode(pair.project / "src")
    mounts = [b"1 0 8:1 / / rw - ext4 /dev/a rw", b"2 1 0:9 / %s rw - nfs b rw" % inside]
    monkeypatch.setattr(filesystems, "_read_mountinfo", lambda: b"\n".join(mounts))
    assert not pair.agree()
    mounts.pop()
    assert [pair.agree(), pair.agree()] == [False, True]


def test_a_directory_that_replaces_the_project_is_scanned(pair: Pair, tmp_path: Path) -> None:
    os.rename(pair.project, tmp_path / "away")
    pair.project.mkdir()
    (pair.project / "other.txt").write_text("other")
    assert not pair.agree()
    (pair.project / "other.txt").write_text("changed")
    assert pair.agree()
    (tmp_path / "away" / "README.md").write_text("nobody's")
    assert pair.agree()


def test_a_replaced_directory_above_the_project_is_noticed(tmp_path: Path) -> None:
    outer, project = tmp_path / "outer", tmp_path / "outer" / "project"
    for text in ("then", "another"):
        project.mkdir(parents=True)
        (project / "file").write_text(text)
        if text == "then":
            pair = Pair(tmp_path, project)
            assert pair.watching.watch(project)
            with everything_old():
                assert [pair.agree(), pair.agree()] == [False, True]
            os.rename(outer, tmp_path / "away")
    assert not pair.agree()
    (tmp_path / "away" / "project" / "file").write_text("nobody's")
    (project / "file").write_text("changed")
    assert pair.agree()
    pair.watching.unwatch(project)


def test_a_directory_that_replaces_another_is_watched(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "main.py").write_text("from elsewhere")
    os.rename(pair.project / "src", tmp_path / "away")
    os.rename(tmp_path / "other", pair.project / "src")
    with everything_old():
        assert pair.agree()
        assert pair.agree()
    (pair.project / "src" / "main.py").write_text("changed in its place")
    (pair.project / "src" / "new.py").write_text("new")
    assert pair.agree()


def test_a_failing_snapshot_loses_no_event(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    (pair.project / "src" / "main.py").write_text("changed")
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "keep_capture", failing)
        with pytest.raises(ZeroDivisionError):
            pair.watching.snapshot(pair.project)
    assert pair.agree()


def failing(*_: object) -> None:
    raise ZeroDivisionError


def test_what_happens_in_a_new_directory_before_it_is_watched_is_found(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pair.project / "new"
    (folder / "deep").mkdir(parents=True)
    (folder / "file").write_text("then")

    def write(where: str) -> None:
        if where == "capture:index-written":
            monkeypatch.undo()
            (folder / "file").write_text("after it was read")
            (folder / "deep" / "more").mkdir()
            (folder / "deep" / "more" / "file").write_text("after the directory was read")

    monkeypatch.setattr(capture, "step", write)
    with everything_old():
        pair.watching.snapshot(pair.project)
    pair.scanning.snapshot(pair.project)
    with answers_of_watchers() as answers:
        pair.watching.snapshot(pair.project)
    assert answers == [True]
    assert snapshot_by(pair.watching, pair.project) == snapshot_by(pair.scanning, pair.project)


# --- changes without an event -----------------------------------------------------------------------


def test_a_write_through_a_hard_link_outside_is_noticed(pair: Pair, tmp_path: Path) -> None:
    os.link(pair.project / "README.md", tmp_path / "outside")
    pair.watching.unwatch(pair.project)
    assert pair.watching.watch(pair.project)
    with everything_old():
        pair.agree()
    (tmp_path / "outside").write_text("by the other name")
    assert pair.agree()
    assert pair.watching.contents(pair.project, "last", ["README.md"]) == {"README.md": b"by the other name"}


@pytest.mark.parametrize("place", ["src/second", "made/there/second"])
def test_a_new_hard_link_leads_to_a_scan(pair: Pair, place: str) -> None:
    (pair.project / place).parent.mkdir(parents=True, exist_ok=True)
    os.link(pair.project / "README.md", pair.project / place)
    for text in ("by the second name", "and once more by that name"):
        (pair.project / place).write_text(text)
        with everything_old():
            pair.agree()
        assert pair.watching.contents(pair.project, "last", ["README.md"]) == {"README.md": text.encode()}


@pytest.mark.parametrize("place", ["outside", "build", "removed"])
def test_a_comparison_finds_what_was_written_through_a_hard_link_without_an_event(
    pair: Pair, tmp_path: Path, place: str
) -> None:
    """The link was made in a directory that is not watched, or is gone again."""
    folders = {"outside": tmp_path, "build": pair.project / "build", "removed": pair.project}
    link = folders[place] / "another name"
    with everything_old():
        pair.agree()
        link.parent.mkdir(exist_ok=True)
        pair.agree()
        os.link(pair.project / "README.md", link)
        link.write_text("by the other name")
        if place == "removed":
            link.unlink()
        pair.watching._access.compare_watched(pair.project)
        assert pair.agree()
    assert pair.watching.contents(pair.project, "last", ["README.md"]) == {"README.md": b"by the other name"}


def test_a_snapshot_does_not_wait_for_a_comparison(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that compares may be stopped meanwhile."""
    pair.agree()
    locks = pair.watching.settings.resolved_base() / "store" / "locks"
    found = list[bool]()

    def comparing(*_: object) -> set[bytes]:
        found.extend(map(is_free, locks.iterdir()))
        return set()

    with monkeypatch.context() as patch:
        patch.setattr("shadowsnap.access.files_to_examine", comparing)
        pair.watching._access.compare_watched(pair.project)
    assert found and all(found)


def test_a_comparison_that_fails_leads_to_a_scan(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.agree()
    with monkeypatch.context() as patch:
        patch.setattr("shadowsnap.access.files_to_examine", failing)
        with pytest.raises(ZeroDivisionError):
            pair.watching._access.compare_watched(pair.project)
    assert not pair.agree()
    assert pair.agree()


@pytest.mark.shortcut
def test_a_write_through_a_memory_map_is_noticed(pair: Pair) -> None:
    """The watcher looks again at files that were written, by the nanosecond. A scan does so with files of the last
    second only, and finds none that is so young here."""
    mounts = Path("/proc/self/mountinfo").read_bytes()
    if filesystems.file_system_type(os.fsencode(pair.project), mounts) == b"tmpfs":
        pytest.skip("tmpfs does not change the time of a file when mapped memory is written")
    with open(pair.project / "mapped", "w+b") as file:
        file.write(bytes(3000))
        file.flush()
        with mmap.mmap(file.fileno(), 0) as memory:
            for text in (b"", b"first", b"second"):
                memory[: len(text)] = text
                memory.flush()
                with everything_old():
                    pair.watching.snapshot(pair.project)
                held = pair.watching.contents(pair.project, "last", ["mapped"])["mapped"]
                assert held.startswith(text)


# --- going back -------------------------------------------------------------------------------------


def test_restoring_and_undoing_are_noticed_like_anything_else(pair: Pair) -> None:
    before = manifest(pair.project)
    first = pair.watching.get(pair.project, "last")
    (pair.project / "src" / "main.py").unlink()
    (pair.project / "new").mkdir()
    (pair.project / "new" / "file").write_text("new")
    pair.agree()
    after = manifest(pair.project)
    differing = {change.path for change in pair.watching.diff(pair.project, first.id).changes}
    assert {"src/main.py", "new/file"} <= differing
    pair.watching.restore(pair.project, first.id)
    assert manifest(pair.project) == before
    pair.agree()
    pair.watching.undo(pair.project)
    assert manifest(pair.project) == after
    pair.agree()
    (pair.project / "new" / "file").write_text("changed")
    pair.agree()
    assert pair.agree()


def test_a_diff_with_the_present_loses_no_event(pair: Pair) -> None:
    (pair.project / "src" / "main.py").write_text("changed")
    for _ in range(2):
        assert [change.path for change in pair.watching.diff(pair.project, "last").changes] == ["src/main.py"]
    assert pair.agree()


# --- descriptors and processes ----------------------------------------------------------------------


def open_queues() -> int:
    return sum(os.path.islink(path) and "inotify" in os.readlink(path) for path in descriptors())


def descriptors() -> list[str]:
    return [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]


def test_closing_leaves_no_descriptor_open(base: Path, project: Path) -> None:
    manager, before = CheckpointManager(base=base, fsync=False), open_queues()
    manager.unwatch(project)
    for _ in range(3):
        assert manager.watch(project) and manager.watch(project)
        assert open_queues() == before + 1
        manager.snapshot(project)
        manager.unwatch(project)
        assert open_queues() == before
    assert manager.watch(project)
    del manager
    gc.collect()
    assert open_queues() == before


def test_a_forked_child_leaves_the_events_to_its_parent(pair: Pair) -> None:
    (pair.project / "new.txt").write_text("new")
    child = os.fork()
    if child == 0:
        right = False
        try:  # whatever goes wrong, it must not go on as a second test runner
            mine = CheckpointManager(base=pair.scanning.settings.base, max_file_size_mb=SMALL_MB)
            mine._access.watchers = pair.watching._access.watchers
            taken = mine.snapshot(pair.project)
            right = taken.checkpoint is not None and not mine.watch(pair.project / "missing")
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pair.agree()


@pytest.mark.parametrize("where", ["missing", "README.md", "home"])
def test_where_no_snapshot_would_be_taken_nothing_is_watched(
    base: Path, project: Path, home: Path, where: str
) -> None:
    place = home if where == "home" else project / where
    assert not CheckpointManager(base=base, fsync=False).watch(place)
    assert not CheckpointManager(base=base, enabled=False).watch(project)


def test_a_network_file_system_is_not_watched(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems, "_read_mountinfo", lambda: b"1 0 0:1 / / rw - nfs server:/ rw")
    manager = CheckpointManager(base=base, fsync=False)
    assert not manager.watch(project)
    assert manager.snapshot(project)


def test_an_unreadable_directory_is_examined_each_time(
    as_user: Callable[..., Any], tmp_path: Path, project: Path
) -> None:
    as_user(_a_directory_is_closed_and_opened, tmp_path, project)


def _a_directory_is_closed_and_opened(tmp_path: Path, project: Path) -> None:
    pair = Pair(tmp_path, project)
    (project / "src" / "deep" / "down").mkdir(parents=True)
    (project / "src" / "deep" / "down" / "file").write_text("below it")
    assert pair.watching.watch(project)
    with everything_old():
        pair.agree()
        for bits in (0o000, 0o755, 0o300, 0o400, 0o700, 0o755):
            (project / "src").chmod(bits)
            assert pair.agree()
            pair.agree()
    (project / "src" / "main.py").write_text("changed")
    assert pair.agree()
    assert pair.watching.files(project, "last") == pair.scanning.files(project, "last")
    assert "src/deep/down/file" in pair.watching.files(project, "last")
