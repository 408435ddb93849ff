"""Entries of a tree that some system takes for a repository, that lead out of the project or that are no files are
never written, and a few trees that stand for billions of paths are not gone through."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import RestoreFailed, RestoreRefused, TreeTooLarge, UnsafeTree
from shadowsnap.git import trees
from shadowsnap.git.objects import LooseObjects
from shadowsnap.git.trees import name_problem, path_problem

HOSTILE = [
    b".git", b".GIT", b".Git", b"git~1", b"GIT~1", b"git~2", ".g\u200cit".encode(), "\u200e.git\ufeff".encode(),
    b".git::$INDEX_ALLOCATION", b".git:stream", b".git ", b".git.", b".git. .", b".git\\config", b"a\\.git\\hooks",
    b"..\\outside", b"a\\..\\b", b".", b"..", b"", b"a/b", b"../outside", b"x" * 2000,
    # What ext4 and f2fs ignore in directories that fold case, and what ZFS takes for the same character.
    *map(str.encode, (".g\u00adit", ".\u200bgit", ".git\u2060", ".gi\ufe0ft", ".git\u034f", "\uff0egit")),
    *map(str.encode, (
        ".\uff47it", "\u2024git", ".G\u2170t", "\u2025", "g\u00adit~1", ".g\uffa0it", "x\uff0f.git",
    )),
]  # fmt: skip
HARMLESS = [
    b".gitignore", b".gitattributes", b".github", b"git", b"x.git", b"...", b"..x", b"git~", b"gitx~1",
    b"back\\slash", b"\xff\xfe", "caf\u00e9".encode(), b".gita", b".git~1", b"new\nline", b"-dash",
    *map(str.encode, ("\u2026", "a\uff0fb", "\u200b", "Stra\u00dfe", "\u30ab\u3099", "git\u2060hub")),
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_known_for_one(name: bytes) -> None:
    assert name_problem(name) is not None
    assert path_problem(b"src/" + name + b"/x") is not None or name == b"a/b"


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_name_is_not(name: bytes) -> None:
    assert name_problem(name) is None
    assert path_problem(b"src/" + name + b"/x") is None


class Crafted:
    """A checkpoint of a project whose tree is not one that a snapshot would make."""

    def __init__(self, base: Path, project: Path) -> None:
        self.base, self.project = base, project
        self.manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
        taken = self.manager.snapshot(project).checkpoint
        assert taken is not None
        self.taken = taken
        self._objects = LooseObjects(base / "store" / "objects", fsync=False)

    def blob(self, data: bytes) -> str:
        return self._objects.write(b"blob", data)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        rows = [mode.encode() + b" " + name + b"\0" + bytes.fromhex(child) for mode, name, child in entries]
        return self._objects.write(b"tree", b"".join(rows))

    def checkpoint(self, tree: str) -> str:
        """The commit of the sound checkpoint with another tree, as its newest one."""
        store = self.base / "store"
        body = git(store, "cat-file", "commit", self.taken.id).partition("\n")[2]
        commit = self._objects.write(b"commit", f"tree {tree}\n{body}\n".encode())
        moment = int(self.taken.ref.rpartition("/")[2].partition("-")[0]) + 1
        folder = self.taken.ref.rpartition("/")[0]
        (store / f"{folder}/{moment:013d}-{commit[:12]}").write_text(commit + "\n")
        return commit


@pytest.fixture
def crafted(base: Path, project: Path) -> Crafted:
    return Crafted(base, project)


def is_refused(crafted: Crafted, commit: str, **arguments: Any) -> None:
    before, outside = manifest(crafted.project), manifest(crafted.project.parent)
    with pytest.raises(UnsafeTree):
        crafted.manager.restore(crafted.project, commit, **arguments)
    assert manifest(crafted.project) == before
    assert not os.path.lexists(crafted.project / ".git") and not os.path.lexists(crafted.project / "new")
    assert {path for path in manifest(crafted.project.parent) if not path.startswith(b"base")} == {
        path for path in outside if not path.startswith(b"base")
    }


@pytest.mark.parametrize("name", HOSTILE[:24])
@pytest.mark.parametrize("depth", ["top", "below"])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.each_value
def test_a_tree_with_a_hostile_name_is_not_restored(crafted: Crafted, name: bytes, depth: str, many: bool) -> None:
    canary = crafted.blob(b"#!/bin/sh\ntouch canary\n")
    tree = crafted.tree(("100755", name, canary))
    if depth == "below":
        tree = crafted.tree(("40000", b"new", tree))
    if many:  # so many directories that git compares the trees
        rows = [("40000", b"d%03d" % number, crafted.tree(("100644", b"f", crafted.blob(b"%d" % number))))
                for number in range(60)]  # fmt: skip
        tree = crafted.tree(*rows, ("40000", b"zz", tree))
    is_refused(crafted, crafted.checkpoint(tree))


@pytest.mark.parametrize("name", HOSTILE[:13])
def test_a_hostile_directory_is_not_restored(crafted: Crafted, name: bytes) -> None:
    config = crafted.tree(("100644", b"config", crafted.blob(b"[core]\n\tfsmonitor = touch canary\n")))
    is_refused(crafted, crafted.checkpoint(crafted.tree(("40000", b"new", crafted.tree(("40000", name, config))))))


def test_a_link_and_a_directory_of_one_name_are_not_restored(crafted: Crafted, tmp_path: Path) -> None:
    """The file would be written through the link."""
    (tmp_path / "outside").mkdir()
    link = crafted.blob(os.fsencode(tmp_path / "outside"))
    folder = crafted.tree(("100644", b"canary", crafted.blob(b"written outside\n")))
    rows = [("120000", b"x", link), ("40000", b"x", folder)]
    for entries in (rows, rows[::-1]):
        is_refused(crafted, crafted.checkpoint(crafted.tree(*entries)))
        assert os.listdir(tmp_path / "outside") == []


@pytest.mark.parametrize("name", [b".git", b"git~1", b".."])
def test_doctor_finds_such_a_checkpoint_and_sets_it_aside(crafted: Crafted, name: bytes) -> None:
    tree = crafted.tree(("40000", b"new", crafted.tree(("100644", name, crafted.blob(b"x")))))
    commit = crafted.checkpoint(tree)
    assert "checkpoint-unsafe" in {finding.code for finding in crafted.manager.doctor().findings}
    crafted.manager.doctor(repair=True)
    assert crafted.manager.doctor().healthy
    assert commit not in {each.id for each in crafted.manager.list_checkpoints(crafted.project)}
    assert crafted.manager.get(crafted.project, crafted.taken.id).id == crafted.taken.id


ODD = ["104755", "100000", "20000", "160000", "170000", "0", "60660"]


@pytest.mark.parametrize("mode", ODD)
def test_what_is_no_file_link_or_directory_is_not_restored(crafted: Crafted, mode: str) -> None:
    is_refused(crafted, crafted.checkpoint(crafted.tree((mode, b"new", crafted.blob(b"x")))))


@pytest.mark.parametrize("target", [b"", b"a\0b", b"x" * 5000])
def test_a_link_that_leads_nowhere_possible_is_not_restored(crafted: Crafted, target: bytes) -> None:
    is_refused(crafted, commit := crafted.checkpoint(crafted.tree(("120000", b"new", crafted.blob(target)))))
    assert not crafted.manager.verify(crafted.project, commit).verified


@pytest.mark.parametrize("kind", [*ODD[2:5], "directory", "file", "target"])
def test_doctor_sets_aside_what_is_not_what_its_mode_says(crafted: Crafted, kind: str) -> None:
    blob = crafted.blob(b"a\0b")
    entries = {
        "directory": ("40000", b"new", blob),
        "file": ("100644", b"new", crafted.tree(("100644", b"x", blob))),
        "target": ("120000", b"new", blob),
    }
    commit = crafted.checkpoint(crafted.tree(entries.get(kind, (kind, b"new", blob))))
    assert "checkpoint-unsafe" in {finding.code for finding in crafted.manager.doctor().findings}
    crafted.manager.doctor(repair=True)
    assert crafted.manager.doctor().healthy
    assert commit not in {each.id for each in crafted.manager.list_checkpoints(crafted.project)}


@pytest.mark.parametrize("name", [b".git", b"../outside"])
def test_a_hostile_tree_is_neither_listed_nor_compared(crafted: Crafted, name: bytes) -> None:
    commit = crafted.checkpoint(crafted.tree(("100644", name, crafted.blob(b"x"))))
    for look in (crafted.manager.files, crafted.manager.diff):
        with pytest.raises(UnsafeTree):
            look(crafted.project, commit)
    assert {each.id for each in crafted.manager.list_checkpoints(crafted.project)} == {commit, crafted.taken.id}
    assert crafted.manager.snapshot(crafted.project).status in ("taken", "unchanged")


def bomb(crafted: Crafted, leaf: bytes) -> str:
    """Eleven trees that stand for ten billion paths."""
    tree = crafted.tree(("100644", leaf, crafted.blob(b"x")))
    for _ in range(10):
        tree = crafted.tree(*(("40000", b"d%d" % number, tree) for number in range(10)))
    return tree


@pytest.mark.parametrize("leaf", [b"leaf", b".git"])
def test_a_few_trees_that_stand_for_billions_of_paths_are_not_gone_through(crafted: Crafted, leaf: bytes) -> None:
    commit, manager, project = crafted.checkpoint(bomb(crafted, leaf)), crafted.manager, crafted.project
    is_refused(crafted, commit)
    for look in (manager.files, manager.diff):
        with pytest.raises(UnsafeTree):
            look(project, commit)
    assert not manager.verify(project, commit).verified
    (project / "more").write_text("more\n")
    assert manager.snapshot(project).status == "taken"
    assert len(manager.list_checkpoints(project)) == 3
    assert "checkpoint-unsafe" in {finding.code for finding in manager.doctor().findings}
    manager.doctor(repair=True)
    assert manager.doctor().healthy and commit not in {each.id for each in manager.list_checkpoints(project)}


def test_a_snapshot_of_more_paths_than_can_be_read_is_refused(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    monkeypatch.setattr(trees, "MOST_PATHS", 2)
    monkeypatch.setattr("shadowsnap.snapshot.capture.MANY_PATHS", 1)
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "failed" and isinstance(outcome.error, TreeTooLarge)


def test_names_that_only_some_file_systems_take_for_the_same_are_restored_where_they_differ(
    base: Path, project: Path
) -> None:
    (project / "docs").mkdir()
    if (project / "DOCS").exists():
        pytest.skip("this file system takes them for the same")
    (project / "docs" / "page").write_text("page\n")
    (project / "Docs").symlink_to("docs")
    (project / "readme").write_text("small\n")
    (project / "README").write_text("large\n")
    manager, before = CheckpointManager(base=base, background_upkeep=False, fsync=False), manifest(project)
    taken = manager.snapshot(project).checkpoint
    assert taken is not None and not taken.skipped
    for name in ("Docs", "readme", "README", "docs/page"):
        (project / name).unlink()
    manager.restore(project, taken.id)
    assert manifest(project) == before


@pytest.mark.parametrize("there", ["nothing", "small", "large"])
@pytest.mark.parametrize("kind", ["link", "files", "directories"])
def test_names_that_this_file_system_takes_for_the_same_are_not_restored(
    crafted: Crafted, project: Path, tmp_path: Path, kind: str, there: str
) -> None:
    """Where they are two names, both come back."""
    outside = tmp_path / "outside"
    outside.mkdir()
    small, large = (crafted.tree(("100644", name, crafted.blob(name))) for name in (b"small", b"large"))
    entries = {
        "link": (("120000", b"D", crafted.blob(os.fsencode(outside))), ("40000", b"d", small)),
        "files": (("100644", b"D", crafted.blob(b"large")), ("100644", b"d", crafted.blob(b"small"))),
        "directories": (("40000", b"D", large), ("40000", b"d", small)),
    }[kind]
    commit = crafted.checkpoint(crafted.tree(*entries))
    if there != "nothing":
        (project / there[0].replace("s", "d").replace("l", "D")).mkdir()
    (project / "probe").touch()
    is_folding, before = (project / "PROBE").exists(), manifest(project)
    if is_folding:
        with pytest.raises(RestoreRefused, match="same name"):
            crafted.manager.restore(project, commit)
        assert manifest(project) == before
    else:
        crafted.manager.restore(project, commit)
        assert sorted(os.listdir(project)) == ["D", "d"]
    assert not os.listdir(outside)


def test_lost_content_keeps_neither_the_list_nor_a_comparison_from_answering(crafted: Crafted, base: Path) -> None:
    name = crafted.blob(b"content that is lost\n")
    (base / "store" / "objects" / name[:2] / name[2:]).unlink()
    commit = crafted.checkpoint(crafted.tree(("100644", b"f", name)))
    diff = crafted.manager.diff(crafted.project, commit)
    assert ("f", "deleted") in {(change.path, change.status) for change in diff.changes}
    assert "not compared" in diff.text
    assert crafted.manager.now(crafted.project).files_changed
    assert len(crafted.manager.list_checkpoints(crafted.project)) == 2


@pytest.mark.parametrize("files", [1, 30])
def test_an_object_that_is_not_what_its_name_says_is_not_put_in_place(
    crafted: Crafted, project: Path, base: Path, files: int
) -> None:
    """Git would write it out: it does not check."""
    store = base / "store"
    for number in range(files):
        (project / f"many-{number}").write_text(f"sound {number}\n")
    taken = crafted.manager.snapshot(project).checkpoint
    assert taken is not None
    for pack in list((store / "objects" / "pack").glob("*.pack")):
        data = pack.read_bytes()
        for path in pack.parent.glob(f"{pack.stem}.*"):
            path.unlink()
        git(store, "unpack-objects", "-q", stdin=data)
    name = git(store, "rev-parse", f"{taken.id}:many-0")
    wrong = crafted.blob(b"wrong 0\n")
    target = store / "objects" / name[:2] / name[2:]
    target.chmod(0o600)
    target.write_bytes((store / "objects" / wrong[:2] / wrong[2:]).read_bytes())
    for number in range(files):
        (project / f"many-{number}").write_text("changed since\n")
    try:
        crafted.manager.restore(project, taken.id)
    except Exception:
        assert (project / "many-0").read_text() == "changed since\n"
    assert (project / "many-0").read_text() != "wrong 0\n"


def test_what_is_not_what_its_name_says_is_not_shown(crafted: Crafted, base: Path) -> None:
    """Git would show it: it does not check."""
    name = crafted.blob(b"sound\n")
    commit = crafted.checkpoint(crafted.tree(("100644", b"f", name)))
    manager, project = crafted.manager, crafted.project
    (project / "f").write_text("now\n")
    assert "-sound" in manager.diff(project, commit).text
    wrong = crafted.blob(b"wrong\n")
    files = [base / "store" / "objects" / each[:2] / each[2:] for each in (name, wrong)]
    files[0].chmod(0o600)
    files[0].write_bytes(files[1].read_bytes())
    for text in (
        manager.diff(project, commit).text,
        manager.diff(project, crafted.taken.id, commit).text,
        manager.now(project).patch,
    ):
        assert "wrong" not in text and "not compared" in text


def test_files_with_such_names_are_listed_as_unstorable(base: Path, project: Path) -> None:
    for name in ("git~1", ".GIT", ".g\u200cit", "x\\..\\y"):
        (project / "src" / name).write_text("x")
    checkpoint = CheckpointManager(base=base, fsync=False).snapshot(project).checkpoint
    assert checkpoint is not None
    skipped = {item.path: item.why for item in checkpoint.skipped}
    assert skipped == {f"src/{name}": "unstorable" for name in ("git~1", ".GIT", ".g\u200cit", "x\\..\\y")}


@pytest.mark.parametrize("kind", ["file", "directory", "file below"])
def test_a_name_that_this_file_system_cannot_hold_leaves_everything_as_it_was(crafted: Crafted, kind: str) -> None:
    """Others take longer names: a checkpoint may come from there."""
    name, file = "\u6f22".encode() * 100, ("100644", b"f", crafted.blob(b"x"))
    long = ("40000", name, crafted.tree(file))
    entry = {
        "file": ("100644", name, file[2]),
        "directory": long,
        "file below": ("40000", b"d", crafted.tree(long)),
    }[kind]
    commit = crafted.checkpoint(crafted.tree(entry))
    before = manifest(crafted.project)
    with pytest.raises(RestoreFailed, match="everything was put back"):
        crafted.manager.restore(crafted.project, commit)
    assert manifest(crafted.project) == before
