"""The first snapshot in the background: it is there when it is needed, and in nobody's way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers import git, manifest, wait_until
from shadowsnap import CheckpointManager
from shadowsnap import loop as looping
from shadowsnap.access import Access
from shadowsnap.deadline import Deadline
from shadowsnap.settings import settings_from_text, settings_to_text


def test_a_first_snapshot_is_there_when_it_is_needed(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, excludes=("*.bulky",))
    (project / "film.bulky").write_text("left out by the settings of this manager\n")
    assert manager.warm_up(project)
    wait_until(lambda: project.resolve() in manager.projects())
    (first,) = manager.list_checkpoints(project)
    assert first.reason == "first snapshot"
    assert "film.bulky" not in manager.files(project, first.id)
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "unchanged" and outcome.checkpoint is not None
    assert outcome.checkpoint.id == first.id


def test_there_is_nothing_to_warm_up_where_there_is_a_checkpoint(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.snapshot(project)
    assert not manager.warm_up(project)


def test_nothing_is_started_where_no_checkpoint_would_be_taken(base: Path, project: Path, home: Path) -> None:
    assert not CheckpointManager(base=base, enabled=False).warm_up(project)
    manager = CheckpointManager(base=base, fsync=False)
    assert not manager.warm_up(home)
    assert not manager.warm_up(project / "README.md")
    assert not manager.warm_up(project / "missing")
    (base.parent / "file").write_text("no place for a store\n")
    assert not CheckpointManager(base=base.parent / "file", fsync=False).warm_up(project)


class RunsOut(Deadline):
    """Lets an operation read so many files."""

    def __init__(self, files: int) -> None:
        super().__init__(60)
        self._files = files

    def check(self, doing: str, done: int | None = None, total: int | None = None) -> None:
        if done is not None and done >= self._files:
            raise self.exceeded(doing)


def test_a_snapshot_that_comes_meanwhile_joins(base: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a round stored before its time was up is not stored again."""
    for number in range(300):
        (project / f"{number}.txt").write_text(f"{number}\n")
    left: list[int] = []

    def comes_meanwhile(_: float) -> None:
        monkeypatch.undo()
        left.append(stored(base)[0])
        assert CheckpointManager(base=base, fsync=False).ensure_checkpoint(project).status == "taken"

    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setattr(looping, "sleep", comes_meanwhile)
    monkeypatch.setattr(Access, "deadline", lambda *_: RunsOut(200))
    manager = CheckpointManager(base=base, fsync=False)
    assert looping.main(settings_to_text(manager.settings), str(project)) == 0
    assert left[0] > 150, "the first round left nothing"
    copies, distinct = stored(base)
    assert copies - distinct < 10, "much was stored twice"
    files = [path for path, entry in manifest(project).items() if entry[0] != "dir"]
    assert len(manager.files(project, "last")) == len(files)
    assert len(manager.list_checkpoints(project)) == 1
    git(base / "store", "fsck", "--full", "--strict")


def stored(base: Path) -> tuple[int, int]:
    """How many objects the store holds, in all packs and files together, and how many different ones."""
    counts = dict(line.split(": ") for line in git(base / "store", "count-objects", "-v").splitlines())
    every = git(base / "store", "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    return int(counts["count"]) + int(counts["in-pack"]), len(every)


def test_settings_survive_the_way_to_another_process(base: Path) -> None:
    settings = CheckpointManager(base=base, excludes=("a", "b"), max_snapshots=3).settings
    assert settings_from_text(settings_to_text(settings)) == settings


def test_the_first_snapshot_is_taken_in_rounds(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            monkeypatch.setattr(Access, "deadline", lambda *_: Deadline(30))

    monkeypatch.setattr(looping, "_ROUND_SECONDS", 0.0001)
    monkeypatch.setattr(looping, "sleep", pause)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    assert looping.main(settings_to_text(CheckpointManager(base=base, fsync=False).settings), str(project)) == 0
    assert len(pauses) == 3
    assert manager.list_checkpoints(project)[0].reason == "first snapshot"
    assert manager.timeline(project) == []  # the first turn begins on it


def test_a_directory_that_is_refused_has_no_first_snapshot(
    home: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "nice", lambda _: 0)
    assert looping.main(settings_to_text(CheckpointManager(base=base, fsync=False).settings), str(home)) == 1


