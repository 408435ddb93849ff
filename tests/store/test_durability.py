"""After `taken`, a power cut leaves a usable store: content and names are flushed before the ref that needs
them is there, and then the ref itself. The calls are watched, not replaced."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from helpers import git, manifest
from shadowsnap import CheckpointManager

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks descriptors up in /proc")


class Watch:
    """Every flush and every renaming of this process, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        self._identity: dict[str, str] = {}
        fsync, replace = os.fsync, os.replace

        def watched_fsync(descriptor: int) -> None:
            fsync(descriptor)
            self.events.append(("flushed", os.readlink(f"/proc/self/fd/{descriptor}")))

        def watched_replace(source: str | Path, target: str | Path) -> None:
            replace(source, target)
            self.events.append(("named", str(target)))
            self._identity[str(target)] = str(source)

        monkeypatch.setattr(os, "fsync", watched_fsync)
        monkeypatch.setattr(os, "replace", watched_replace)

    def flushes(self) -> int:
        return sum(kind == "flushed" for kind, _ in self.events)

    def named(self, path: Path) -> int:
        """When a file got its name."""
        return self.events.index(("named", str(path)))

    def assert_content_was_flushed(self, path: Path, *, before: int | None = None) -> None:
        """Under its temporary name, or under its own."""
        names = {self._identity[str(path)], str(path)}
        flushed = [at for at, (kind, name) in enumerate(self.events) if kind == "flushed" and name in names]
        assert any(before is None or at < before for at in flushed), path

    def assert_name_was_flushed(self, path: Path, *, before: int | None = None) -> None:
        flushed = [at for at, event in enumerate(self.events) if event == ("flushed", str(path.parent))]
        assert any(self.named(path) < at and (before is None or at < before) for at in flushed), path


def new_files(folder: Path, before: set[Path]) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path not in before]


@pytest.mark.parametrize("files", [1, 5, 20, 150])
@pytest.mark.parametrize("first", [True, False], ids=["first snapshot", "later snapshot"])
def test_everything_a_ref_needs_is_on_the_disk_before_it(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch, files: int, first: bool
) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False)
    if not first:
        manager.ensure_checkpoint(project)
        manager.new_turn()
    for number in range(files):
        (project / f"folder{number % 7}").mkdir(exist_ok=True)
        (project / f"folder{number % 7}" / f"{number}").write_text(f"{number}\n")
    objects = base / "store" / "objects"
    before = {path for path in objects.rglob("*") if path.is_file()} if objects.exists() else set()
    watch = Watch(monkeypatch)
    checkpoint = manager.ensure_checkpoint(project, "watched").checkpoint
    assert checkpoint is not None
    ref = base / "store" / checkpoint.ref
    created = new_files(objects, before)
    assert sorted(path.suffix for path in created) == [".idx", ".pack"]
    for path in created:
        watch.assert_content_was_flushed(path, before=watch.named(ref))
        watch.assert_name_was_flushed(path, before=watch.named(ref))
    watch.assert_content_was_flushed(ref, before=watch.named(ref))
    watch.assert_name_was_flushed(ref)
    if first:  # the directory of the project's refs is new
        assert ("flushed", str(ref.parent.parent)) in watch.events[watch.named(ref) :]


def test_a_new_store_is_flushed_too(base: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    CheckpointManager(base=base, background_upkeep=False).ensure_checkpoint(project)
    for name in ("HEAD", "config", "format", "info/attributes"):
        watch.assert_content_was_flushed(base / "store" / name, before=watch.named(base / "store" / name))
        watch.assert_name_was_flushed(base / "store" / name)
    assert ("flushed", str(base)) in watch.events and ("flushed", str(base.parent)) in watch.events


def test_a_large_file_is_on_the_disk_before_the_ref_too(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an object of its own."""
    (project / "large").write_bytes(os.urandom(2 << 20))
    watch = Watch(monkeypatch)
    checkpoint = CheckpointManager(base=base, background_upkeep=False).ensure_checkpoint(project).checkpoint
    assert checkpoint is not None
    ref, objects = watch.named(base / "store" / checkpoint.ref), base / "store" / "objects"
    (large,) = objects.glob("[0-9a-f][0-9a-f]/*")
    watch.assert_content_was_flushed(large, before=ref)
    watch.assert_name_was_flushed(large, before=ref)
    assert ("flushed", str(objects)) in watch.events[:ref]  # the directory of two digits is new itself


def test_an_object_that_is_there_is_not_replaced_by_one_that_a_power_cut_could_take_away(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = os.urandom(2 << 20)
    (project / "large").write_bytes(large)
    manager = CheckpointManager(base=base, background_upkeep=False)
    first = manager.ensure_checkpoint(project).checkpoint
    assert first is not None
    for content in (b"something else\n", large):  # back to what an object holds already
        (project / "large").write_bytes(content)
        manager.new_turn()
        watch = Watch(monkeypatch)
        manager.ensure_checkpoint(project)
    name = git(base / "store", "rev-parse", f"{first.id}:large")
    place = base / "store" / "objects" / name[:2] / name[2:]
    watch.assert_content_was_flushed(place, before=watch.named(place))


FLUSHES = 12
"""The pack, its index and their directory; the ref and its; the record and the like. (20 were the limit.)"""


def test_what_flushing_costs_does_not_grow_with_the_number_of_files(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False)
    manager.ensure_checkpoint(project)
    counts = []
    for files in (1, 60, 250):
        manager.new_turn()
        for number in range(files):
            (project / f"{files}-{number}").write_text(f"{files} {number}\n")
        watch = Watch(monkeypatch)
        assert manager.ensure_checkpoint(project)
        counts.append(watch.flushes())
        monkeypatch.undo()
    assert max(counts) <= FLUSHES, counts


def test_without_fsync_nothing_is_flushed(base: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False)
    before = manifest(project)
    checkpoint = manager.ensure_checkpoint(project).checkpoint
    assert checkpoint is not None and watch.flushes() == 0
    (project / "README.md").unlink()
    manager.restore(project, checkpoint.id)
    assert manifest(project) == before and watch.flushes() == 0
