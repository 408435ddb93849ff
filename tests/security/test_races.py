"""Somebody exchanges directories for links while a restore is under way: nothing ever happens outside."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from thorough import depth

from helpers import git, manifest
from shadowsnap import CheckpointManager, deadline
from shadowsnap.errors import ShadowsnapError
from shadowsnap.snapshot import worktree

STAGING = ".shadowsnap-restore-"


class Scene:
    """A project that a restore changes in every way, and a directory outside that looks like a part of it."""

    def __init__(self, top: Path, many: bool) -> None:
        self.project, self.outside, self.base = top / "project", top / "outside", top / "base"
        (self.project / "d" / "e").mkdir(parents=True)
        for number in range(210 if many else 3):
            (self.project / "d" / "e" / f"file-{number}").write_text(f"then {number}\n")
        (self.project / "d" / "gone").mkdir()
        (self.project / "d" / "closed").mkdir(mode=0o750)
        (self.project / "d" / "bits").write_text("bits\n")
        self.manager = CheckpointManager(base=self.base, background_upkeep=False, fsync=False)
        taken = self.manager.snapshot(self.project).checkpoint
        assert taken is not None
        self.target = taken.id
        for path in (self.project / "d" / "e").iterdir():
            path.write_text("now\n")
        (self.project / "d" / "gone").rmdir()
        (self.project / "d" / "closed").chmod(0o700)
        (self.project / "d" / "bits").chmod(0o755)
        (self.project / "d" / "new").mkdir()
        (self.project / "d" / "new" / "file").write_text("new\n")
        (self.project / "d" / "empty").mkdir()
        shutil.copytree(self.project / "d", self.outside)
        for path in self.outside.rglob("*"):
            if path.is_file():
                path.write_text("outside\n")

    def swap(self, name: str) -> None:
        """What has this name in the project is a link to the outside from now on."""
        place = self.project / name
        if place.is_dir() and not place.is_symlink():
            place.rename(self.project.parent / f"away-{name.replace('/', '-')}")
            inside = self.outside / name.partition("/")[2] if "/" in name else self.outside
            place.symlink_to(inside if inside.exists() else self.outside)


def swaps(scene: Scene) -> dict[str, Callable[[], None]]:
    def staging() -> None:
        for path in scene.project.iterdir():
            if path.name.startswith(STAGING) and not path.is_symlink():
                path.rename(scene.project.parent / "away-staging")
                path.symlink_to(scene.outside)

    return {"d": lambda: scene.swap("d"), "d/e": lambda: scene.swap("d/e"), "staging": staging}


@pytest.mark.parametrize("which", ["d", "d/e", "staging"])
@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
@pytest.mark.each_value
def test_a_directory_that_becomes_a_link_at_any_step_leads_nowhere(tmp_path: Path, which: str, many: bool) -> None:
    # Every second step in each case, and the others in the next one; all of them if thorough.
    number = depth(("d", "d/e", "staging").index(which) % 2, 0)
    while True:
        top = tmp_path / f"{number}"
        top.mkdir()
        scene = Scene(top, many)
        before, count = manifest(scene.outside), 0
        swap = swaps(scene)[which]

        def listen(_: str, swap: Callable[[], None] = swap, at: int = number) -> None:
            nonlocal count
            if count == at:
                swap()
            count += 1

        deadline.step_listener = listen
        try:
            scene.manager.restore(scene.project, scene.target)
        except (ShadowsnapError, OSError):
            pass
        finally:
            deadline.step_listener = None
        assert manifest(scene.outside) == before, f"at step {number}"
        try:  # the next call recovers
            scene.manager.ensure_checkpoint(scene.project)
        except (ShadowsnapError, OSError):
            pass
        assert manifest(scene.outside) == before, f"recovering from step {number}"
        shutil.rmtree(top)
        if count <= number:
            break
        number += depth(2, 1) if not many else 4 if number < 8 else 200
    assert number > 5


@pytest.mark.parametrize("folder", ["../outside/.shadowsnap-restore-1", "/tmp/.shadowsnap-restore-1", "outside",
                                    "leads/.shadowsnap-restore-1"])  # fmt: skip
@pytest.mark.parametrize("key", ["staging", "leftover"])
def test_a_journal_never_leads_out_of_the_project(
    base: Path, project: Path, tmp_path: Path, folder: str, key: str
) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    taken = manager.snapshot(project).checkpoint
    assert taken is not None
    outside = tmp_path / "outside"
    (outside / ".shadowsnap-restore-1").mkdir(parents=True)
    (outside / ".shadowsnap-restore-1" / "precious").write_text("precious\n")
    (project / "leads").symlink_to(outside)
    (project / "outside").mkdir()
    (project / "outside" / "own").write_text("own\n")
    path = base / "store" / "journal" / f"{taken.project}.json"
    path.parent.mkdir(exist_ok=True)
    begun = {"before": taken.id, "target": taken.id, "paths": [], "staging": [folder], "applying": True}
    begun["then"] = "restore"
    record = {"open": begun} if key == "staging" else {"leftover": [folder]}
    path.write_text(json.dumps(record))
    before = manifest(outside)
    for _ in range(2):
        manager.ensure_checkpoint(project)
        manager.new_turn()
    assert manifest(outside) == before
    assert (project / "outside" / "own").read_text() == "own\n"
    assert not os.path.lexists(outside / ".shadowsnap-restore-1-unsaved")


@pytest.mark.parametrize("name", ["d", "d/e"])
@pytest.mark.parametrize("is_told", [True, False], ids=["with /proc", "without"])
def test_a_directory_that_becomes_a_link_while_a_snapshot_is_taken_is_not_read(
    tmp_path: Path, name: str, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link may lead to files that an agent in its sandbox cannot read, until a restore hands them over."""
    if not is_told:
        monkeypatch.setattr(worktree, "_where", lambda descriptor: b"")
    scene = Scene(tmp_path, many=False)
    (scene.project / "d" / "e" / "link").symlink_to("then")
    (scene.outside / "e" / "link").symlink_to("outside")

    def swap(step: str) -> None:
        if step == "capture:scanned":
            scene.swap(name)

    monkeypatch.setattr(deadline, "step_listener", swap)
    scene.manager.snapshot(scene.project)
    assert (scene.project / name).is_symlink()
    assert scene.manager.contents(scene.project, scene.target, ["d/e/file-1"]) == {"d/e/file-1": b"then 1\n"}
    store = scene.base / "store"
    listed = git(store, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)")
    rows = [row.split() for row in listed.splitlines()]
    blobs = [git(store, "cat-file", "blob", name) for kind, name in rows if kind == "blob"]
    assert blobs and not {"outside", "outside\n"} & {*blobs}
