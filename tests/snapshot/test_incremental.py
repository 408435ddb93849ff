"""The heart of the capture: starting from what the last one remembered gives the same as starting from
nothing, whatever happened to the files in between."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from capturing import captured, checkpoint_of, everything_old
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import git, manifest
from shadowsnap import Checkpoint, CheckpointManager

# The clock that stamps files lags behind by a timer tick, which is 10 ms at most. The real slack is
# generous; a tight one makes time pass quickly here.
SLACK_NS = 12_000_000


# --- what can happen to files -----------------------------------------------------------------------

FOLDERS = ("d", "d/s", "build", "d/build", "n")
NAMES = ("a", "b", ".env", "x.log")
PATHS = ("a", ".env", *FOLDERS, *(f"{folder}/{name}" for folder in FOLDERS for name in NAMES))
RULES = (
    "", "a\n", "*.log\n!x.log\n", "d/\n", "/d/s\n", "*\n", "*\n!.gitignore\n", "!build/\n", "b\n!d/b\n",
    ".gitignore\n", "n/\n", "s/\n.env\n", "**/s/a\n", "/*\n!/d\n",
)  # fmt: skip
CONTENTS = (b"", b"one\n", b"two\n", b"\r\n\0", b"x" * 3000)
MODES = (0o644, 0o600, 0o755, 0o444, 0o4755, 0o700, 0o640)
EXCLUDES: tuple[tuple[str, ...], ...] = ((), ("b",), ("n/",), ("s/", "!a"))


@dataclass
class Scene:
    """A project, its manager, and the things that may happen."""

    top: Path
    project: Path
    base: Path
    patterns: tuple[str, ...] = ()

    def manager(self) -> CheckpointManager:
        return CheckpointManager(
            base=self.base, max_file_size_mb=2048 / 2**20, excludes=self.patterns, fsync=False
        )

    # --- files

    def write(self, path: str, content: bytes) -> None:
        self._cleared(path).write_bytes(content)

    def overwrite_unnoticed(self, path: str, content: bytes) -> None:
        """As a tool that keeps times does: same name, other content, old mtime."""
        if self._kind(path) == stat.S_IFREG:
            before = os.stat(self.project / path)
            (self.project / path).write_bytes(content)
            os.utime(self.project / path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def chmod(self, path: str, mode: int) -> None:
        kind = self._kind(path)
        if kind in (stat.S_IFREG, stat.S_IFDIR):
            (self.project / path).chmod(mode | 0o700 if kind == stat.S_IFDIR else mode)

    def move(self, path: str, other: str) -> None:
        if self._kind(path) and not f"{other}/".startswith(f"{path}/"):
            kept = self.top / "moving"
            os.rename(self.project / path, kept)
            os.rename(kept, self._cleared(other))

    def delete(self, path: str) -> None:
        kind = self._kind(path)
        if kind == stat.S_IFDIR:
            shutil.rmtree(self.project / path)
        elif kind:
            (self.project / path).unlink()

    def mkdir(self, path: str) -> None:
        if self._kind(path) != stat.S_IFDIR:
            self._cleared(path).mkdir()

    def symlink(self, path: str, to: str) -> None:
        self._cleared(path).symlink_to(to)

    def fifo(self, path: str) -> None:
        os.mkfifo(self._cleared(path))

    def rules(self, folder: str, content: str) -> None:
        self.write(f"{folder}/.gitignore" if folder else ".gitignore", content.encode())

    def excludes(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns

    # --- git

    def git_init(self, folder: str) -> None:
        if folder:
            self.mkdir(folder)
        git(self.project / folder, "init", "-q", "--template=")

    def git_add(self, path: str) -> None:
        parents = [self.project / parent for parent in Path(path).parents][:-1]
        nested = any((parent / ".git").exists() for parent in parents)
        if (self.project / ".git").exists() and self._kind(path) == stat.S_IFREG and not nested:
            git(self.project, "add", "-f", "--", path)

    def git_forget(self, path: str) -> None:
        if (self.project / ".git").exists():
            git(self.project, "rm", "-r", "-f", "-q", "--cached", "--ignore-unmatch", "--", path)

    # --- time

    def moment(self) -> None:
        """Until the clock of the file system has moved on."""
        end = time.time_ns() + 2 * SLACK_NS
        while time.time_ns() < end:
            pass

    def second(self) -> None:
        """Until every change so far lies in an earlier second: git compares times by the second."""
        end = (time.time_ns() // 10**9 + 1) * 10**9 + 2 * SLACK_NS
        while time.time_ns() < end:
            time.sleep(0.001)

    # --- steps

    def _kind(self, path: str) -> int:
        """The type of what is at a path, 0 for nothing. Links are not followed, on the way neither."""
        found = self.project
        for name in path.split("/"):
            if not stat.S_ISDIR(found.lstat().st_mode) or not os.path.lexists(found / name):
                return 0
            found /= name
        return stat.S_IFMT(found.lstat().st_mode)

    def _cleared(self, path: str) -> Path:
        """The path, with nothing at it and its parent directories created."""
        folder, _, _ = path.rpartition("/")
        if folder and self._kind(folder) != stat.S_IFDIR:
            self._cleared(folder).mkdir()
        self.delete(path)
        return self.project / path


contents, modes = st.sampled_from(CONTENTS), st.sampled_from(MODES)
LONG = settings().max_examples > 1000
"""Then there is time for seconds to pass."""


def happenings(locations: list[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    """The name of a method of `Scene` and its arguments. Few paths, so that much happens to each."""
    anything = st.sampled_from(locations)
    return st.one_of(
        st.tuples(st.just("write"), anything, contents),
        st.tuples(st.just("overwrite_unnoticed"), anything, contents),
        st.tuples(st.just("chmod"), anything, modes),
        st.tuples(st.just("move"), anything, anything),
        st.tuples(st.just("delete"), anything),
        st.tuples(st.just("mkdir"), anything),
        st.tuples(st.just("symlink"), anything, st.sampled_from(("a", "nowhere", "d", "../n", "/nonexistent"))),
        st.tuples(st.just("fifo"), anything),
        st.tuples(st.just("rules"), st.sampled_from(("", "d", "n", "d/s")), st.sampled_from(RULES)),
        st.tuples(st.just("excludes"), st.sampled_from(EXCLUDES)),
        st.tuples(st.just("git_init"), st.sampled_from(("", "d", "n", "build"))),
        st.tuples(st.just("git_add"), anything),
        st.tuples(st.just("git_forget"), anything),
        st.tuples(st.sampled_from(("moment", "second") if LONG else ("moment",))),
    )


stories = st.lists(st.sampled_from(PATHS), min_size=2, max_size=6, unique=True).flatmap(
    lambda locations: st.lists(st.lists(happenings(locations), max_size=6), min_size=2, max_size=6)
)
"""Episodes; after each a snapshot is taken."""


# --- the property -----------------------------------------------------------------------------------


@given(st.booleans(), stories)
def test_an_incremental_capture_equals_one_from_nothing(
    tmp_path_factory: pytest.TempPathFactory, repository: bool, episodes: list[list[tuple[Any, ...]]]
) -> None:
    if repository:
        episodes[0].insert(0, ("git_init", ""))
    check(tmp_path_factory.mktemp("scene"), episodes)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is needed")
@given(st.booleans(), stories)
def test_a_capture_with_a_watcher_equals_one_from_nothing(
    tmp_path_factory: pytest.TempPathFactory, repository: bool, episodes: list[list[tuple[Any, ...]]]
) -> None:
    if repository:
        episodes[0].insert(0, ("git_init", ""))
    check(tmp_path_factory.mktemp("scene"), episodes, watching=True)


def check(top: Path, episodes: list[list[tuple[Any, ...]]], *, watching: bool = False) -> None:
    scene = Scene(top, top / "project", top / "base")
    scene.project.mkdir(parents=True)
    lasting = scene.manager()
    assert not watching or lasting.watch(scene.project)

    def manager() -> CheckpointManager:
        if not watching:
            return scene.manager()
        lasting.settings = scene.manager().settings
        lasting.new_turn()
        return lasting

    try:
        for events in episodes:
            for name, *arguments in events:
                getattr(scene, name)(*arguments)
            incremental = manager().ensure_checkpoint(scene.project)
            assert incremental.status in ("taken", "unchanged"), incremental.error
            again = manager().ensure_checkpoint(scene.project)
            assert (again.status, facts_of(again.checkpoint)) == ("unchanged", facts_of(incremental.checkpoint))
            assert captured(scene.base, checkpoint_of(incremental)).items() <= manifest(scene.project).items()
            anew = from_nothing(scene)
            assert facts_of(anew.checkpoint) == facts_of(incremental.checkpoint)
            assert anew.status == "unchanged"
    finally:
        lasting.unwatch(scene.project)
        shutil.rmtree(top)


def from_nothing(scene: Scene) -> Any:
    """Capture with an empty cache, and put the cache back: the story goes on with what it knew."""
    kept = scene.top / "cache"
    indexes = scene.base / "store" / "indexes"
    indexes.rename(kept)
    indexes.mkdir()
    outcome = scene.manager().ensure_checkpoint(scene.project)
    shutil.rmtree(indexes)
    kept.rename(indexes)
    return outcome


def facts_of(checkpoint: Checkpoint | None) -> dict[str, Any]:
    """All that a checkpoint says about the files."""
    assert checkpoint is not None
    facts = {key: value for key, value in checkpoint.metadata.items() if not key.startswith("git_")}
    return {"tree": checkpoint.tree, "skipped": checkpoint.skipped, **facts}


@pytest.mark.parametrize("named", [False, True])
def test_files_of_a_directory_that_became_a_link_to_itself_are_gone(
    base: Path, project: Path, named: bool
) -> None:
    """Git cannot look at them and leaves them out of its report, as if they were unchanged."""
    (project / "folder").mkdir()
    (project / "folder" / "file").write_text("then\n")
    (project / ".gitignore").write_text("folder/\n" if named else "")
    manager = CheckpointManager(base=base, fsync=False)
    with everything_old():  # files of the very second are looked at again anyway
        first = manager.snapshot(project, paths=["folder/file"] if named else ()).checkpoint
    assert first is not None and "folder/file" in manager.files(project, first.id)
    shutil.rmtree(project / "folder")
    (project / "folder").symlink_to("folder")
    mutated = manifest(project)
    manager.restore(project, first.id)
    assert (project / "folder" / "file").read_text() == "then\n"
    manager.undo(project)
    assert manifest(project) == mutated


def test_rule_files_that_become_ignored_are_recorded(tmp_path: Path) -> None:
    """Their directory did not change, so it would not be listed."""
    with everything_old():
        check(tmp_path / "scene", [[("rules", "d", "")], [("rules", "", ".gitignore\n")]])


def test_a_directory_is_no_secret_although_a_file_of_its_name_was(tmp_path: Path) -> None:
    check(tmp_path / "scene", [[("write", ".env", b"one\n")], [("mkdir", ".env")]])
