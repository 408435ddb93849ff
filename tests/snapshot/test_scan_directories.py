"""A directory whose time is the same holds nothing new: what the scan makes of that is what git lists.

Every story runs with all directories at rest, so that only those which changed are looked into, and again
the long way, in which git lists everything; the checkpoints have to be the same, object for object."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from capturing import names
from fastpaths import WAYS, forced, tick, told_by

from helpers import git, remove_tree
from shadowsnap import CheckpointManager
from shadowsnap.model import Checkpoint
from shadowsnap.snapshot import scan
from shadowsnap.snapshot.scan import directory_times_are_reliable
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of
from shadowsnap.store.stat_cache import load_cache

pytestmark = [
    pytest.mark.shortcut,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, directories are not relied upon"),
]


@dataclass
class Both:
    """A project with two stores: one whose snapshots believe directories, one whose snapshots do not."""

    project: Path
    bases: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bases = {way: self.project.parent / f"base-{way}" for way in WAYS}

    def snapshots_agree(self) -> Checkpoint:
        """What both find; only one of them lets git list what is new."""
        tick()
        found: dict[str, Checkpoint] = {}
        for way, base in self.bases.items():
            with forced(way):
                manager = CheckpointManager(base=base, fsync=False, deadline=0)
                checkpoint = manager.snapshot(self.project).checkpoint
            assert checkpoint is not None
            found[way] = checkpoint
        assert told_by(self.bases["on"], found["on"]) == told_by(self.bases["off"], found["off"])
        return found["on"]

    def comes_to_rest(self) -> None:
        self.snapshots_agree()
        assert self.restless() == set()

    def restless(self) -> set[bytes]:
        """Directories that the next snapshot looks into in any case."""
        cache = load_cache(Store(self.bases["on"]), project_of(self.project))
        return {path for path, (_, stamp) in cache.directories.items() if not stamp}

    def holds(self, checkpoint: Checkpoint) -> set[str]:
        return names(self.bases["on"], checkpoint)


@pytest.fixture
def both(project: Path) -> Both:
    assert directory_times_are_reliable(project)
    for folder in ("src/deep/er", "docs", "hollow/inner", "skipping", "logs", "node_modules/x", "other"):
        (project / folder).mkdir(parents=True)
    (project / "src" / "deep" / "er" / "file.py").write_text("deep\n")
    (project / "docs" / "page.md").write_text("page\n")
    (project / "skipping" / "id_rsa").write_text("a secret\n")
    (project / "logs" / "old.log").write_text("ignored\n")
    (project / "logs" / "kept").write_text("kept\n")
    (project / "node_modules" / "x" / "index.js").write_text("ignored\n")
    (project / ".gitignore").write_text("*.log\n/private/\n")
    for number in range(4):
        (project / "other" / f"file-{number}").write_text(f"{number}\n")
    both = Both(project)
    both.comes_to_rest()
    return both


# --- what happens to a tree -------------------------------------------------------------------------


def nothing(_: Path) -> None:
    pass


def new_file(project: Path) -> None:
    (project / "src" / "deep" / "new.py").write_text("new\n")


def new_files_in_several_places(project: Path) -> None:
    for folder in ("", "src", "src/deep/er", "docs", "hollow"):
        (project / folder / "new").write_text(f"{folder}\n")


def renamed_file(project: Path) -> None:
    (project / "src" / "main.py").rename(project / "src" / "renamed.py")


def file_moved_to_another_directory(project: Path) -> None:
    (project / "src" / "main.py").rename(project / "docs" / "main.py")


def renamed_directory(project: Path) -> None:
    (project / "src" / "deep").rename(project / "docs" / "shallow")


def directory_moved_in(project: Path) -> None:
    outside = project.parent / "outside"
    (outside / "a" / "b").mkdir(parents=True)
    (outside / "a" / "b" / "file").write_text("from outside\n")
    (outside / "a" / "x.log").write_text("ignored\n")
    outside.rename(project / "src" / "inside")


def directories_that_change_places(project: Path) -> None:
    (project / "src").rename(project / "aside")
    (project / "docs").rename(project / "src")
    (project / "aside").rename(project / "docs")


def new_ignored_file(project: Path) -> None:
    (project / "docs" / "debug.log").write_text("ignored\n")


def new_ignored_directory(project: Path) -> None:
    (project / "private" / "deep").mkdir(parents=True)
    (project / "private" / "deep" / "file").write_text("ignored\n")


def new_file_in_an_ignored_directory(project: Path) -> None:
    (project / "node_modules" / "x" / "more.js").write_text("ignored\n")


def new_rules(project: Path) -> None:
    (project / "docs" / ".gitignore").write_text("page.md\n!*.log\n")
    (project / "docs" / "a.log").write_text("no longer ignored\n")


def rules_that_change(project: Path) -> None:
    (project / ".gitignore").write_text("/docs/\n")


def rules_that_go(project: Path) -> None:
    (project / ".gitignore").unlink()


def rules_that_ignore_themselves(project: Path) -> None:
    (project / "docs" / ".gitignore").write_text("*\n")
    (project / "docs" / "new").write_text("ignored\n")


def new_nested_repository(project: Path) -> None:
    (project / "nested").mkdir()
    git(project / "nested", "init", "-q")
    (project / "nested" / "file").write_text("nested\n")
    (project / "nested" / "x.log").write_text("ignored\n")


def directory_that_becomes_a_repository(project: Path) -> None:
    git(project / "docs", "init", "-q")
    (project / "docs" / "more.md").write_text("more\n")


def file_that_becomes_a_directory(project: Path) -> None:
    (project / "src" / "main.py").unlink()
    (project / "src" / "main.py" / "deep").mkdir(parents=True)
    (project / "src" / "main.py" / "deep" / "file").write_text("a directory now\n")


def directory_that_becomes_a_file(project: Path) -> None:
    shutil.rmtree(project / "src" / "deep")
    (project / "src" / "deep").write_text("a file now\n")


def directory_that_becomes_a_link(project: Path) -> None:
    (project / "src").rename(project / "moved")
    (project / "src").symlink_to("moved")


def new_link_to_a_directory(project: Path) -> None:
    (project / "docs" / "link").symlink_to("../src")
    (project / "docs" / "nowhere").symlink_to("missing")


def link_that_becomes_a_directory(project: Path) -> None:
    (project / "link").unlink()
    (project / "link").mkdir()
    (project / "link" / "file").write_text("no link any more\n")


def file_in_an_empty_directory(project: Path) -> None:
    (project / "hollow" / "inner" / "file").write_text("no longer empty\n")


def ignored_file_in_an_empty_directory(project: Path) -> None:
    (project / "hollow" / "inner" / "x.log").write_text("ignored\n")


def file_beside_skipped_ones(project: Path) -> None:
    (project / "skipping" / "plain").write_text("captured\n")


def another_skipped_file(project: Path) -> None:
    (project / "skipping" / "id_ed25519").write_text("a secret\n")


def skipped_file_that_goes(project: Path) -> None:
    (project / "skipping" / "id_rsa").unlink()


def special_file(project: Path) -> None:
    os.mkfifo(project / "docs" / "pipe")
    (project / "docs" / "new").write_text("beside it\n")


def empty_directories(project: Path) -> None:
    (project / "docs" / "a" / "b").mkdir(parents=True)


def directory_that_loses_everything(project: Path) -> None:
    (project / "docs" / "page.md").unlink()


def directory_that_goes(project: Path) -> None:
    shutil.rmtree(project / "src")


def directory_made_anew(project: Path) -> None:
    shutil.rmtree(project / "docs")
    (project / "docs").mkdir()
    (project / "docs" / "other.md").write_text("other\n")


def directory_with_other_bits(project: Path) -> None:
    (project / "docs").chmod(0o700)


def only_contents(project: Path) -> None:
    (project / "docs" / "page.md").write_text("changed\n")


def replaced_by_renaming(project: Path) -> None:
    """As editors save."""
    (project / "docs" / "page.md.tmp").write_text("changed\n")
    (project / "docs" / "page.md.tmp").rename(project / "docs" / "page.md")


def names_that_are_odd(project: Path) -> None:
    for name in (b"new\nline", b"\xff", b":(glob)*", b"-dash", b" ", b"back\\slash", b"*.py", b"!bang", b"#hash"):
        path = os.path.join(os.fsencode(project), b"docs", name)
        os.close(os.open(path, os.O_CREAT))
        os.mkdir(path + b"d")
        os.close(os.open(path + b"d/in", os.O_CREAT))


def names_that_begin_alike(project: Path) -> None:
    for name in ("src.py", "src-old", "sr", "docs0"):
        (project / name).write_text("not in the directory\n")
    (project / "docs" / "page.md0").write_text("not the page\n")


STORIES = [
    nothing, new_file, new_files_in_several_places, renamed_file, file_moved_to_another_directory,
    renamed_directory, directory_moved_in, directories_that_change_places, new_ignored_file, new_ignored_directory,
    new_file_in_an_ignored_directory, new_rules, rules_that_change, rules_that_go, rules_that_ignore_themselves,
    new_nested_repository, directory_that_becomes_a_repository, file_that_becomes_a_directory,
    directory_that_becomes_a_file, directory_that_becomes_a_link, new_link_to_a_directory,
    link_that_becomes_a_directory, file_in_an_empty_directory, ignored_file_in_an_empty_directory,
    file_beside_skipped_ones, another_skipped_file, skipped_file_that_goes, special_file, empty_directories,
    directory_that_loses_everything, directory_that_goes, directory_made_anew, directory_with_other_bits,
    only_contents, replaced_by_renaming, names_that_are_odd, names_that_begin_alike,
]  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_changes_are_found_as_if_everything_were_listed(both: Both, story: Callable[[Path], None]) -> None:
    story(both.project)
    both.snapshots_agree()
    both.comes_to_rest()
    (both.project / "docs2").mkdir()  # and the next change is found from there
    (both.project / "docs2" / "later").write_text("later\n")
    assert "docs2/later" in both.holds(both.snapshots_agree())


@pytest.mark.parametrize("back", [
    (file_that_becomes_a_directory, lambda project: (
        shutil.rmtree(project / "src" / "main.py"), (project / "src" / "main.py").write_text("a file again\n"))),
    (directory_that_becomes_a_file, lambda project: (
        (project / "src" / "deep").unlink(), (project / "src" / "deep").mkdir(),
        (project / "src" / "deep" / "again").write_text("a directory again\n"))),
    (directories_that_change_places, directories_that_change_places),
    (rules_that_ignore_themselves, lambda project: (project / "docs" / ".gitignore").unlink()),
    (new_nested_repository, lambda project: shutil.rmtree(project / "nested" / ".git")),
], ids=["file", "directory", "places", "rules", "repository"])  # fmt: skip
def test_changes_that_are_reversed_are_found(both: Both, back: tuple[Callable[[Path], Any], ...]) -> None:
    for action in back:
        action(both.project)
        both.snapshots_agree()
        both.comes_to_rest()


def test_a_new_file_is_captured_and_an_ignored_one_is_not(both: Both) -> None:
    """Otherwise both ways might be wrong alike."""
    before = both.holds(both.snapshots_agree())
    new_file(both.project)
    new_ignored_file(both.project)
    file_in_an_empty_directory(both.project)
    new = both.holds(both.snapshots_agree()) - before
    assert new == {"src/deep/new.py", "hollow/inner/file"}


def test_two_directories_of_the_same_age_that_are_swapped_are_noticed(both: Both) -> None:
    """Made in the same tick of the clock, they have the same time; and moving one does not change the time of
    those within."""
    for _ in range(200):
        shutil.rmtree(both.project / "pair", ignore_errors=True)
        for name in ("pair", "pair/a", "pair/b", "pair/a/in", "pair/b/in"):
            os.mkdir(both.project / name)
        os.mknod(both.project / "pair/a/in/one")
        os.mknod(both.project / "pair/b/in/two")
        if (both.project / "pair/a/in").stat().st_ctime_ns == (both.project / "pair/b/in").stat().st_ctime_ns:
            break
    both.snapshots_agree()
    both.comes_to_rest()
    (both.project / "pair/a").rename(both.project / "pair/c")
    (both.project / "pair/b").rename(both.project / "pair/a")
    (both.project / "pair/c").rename(both.project / "pair/b")
    held = both.holds(both.snapshots_agree())
    assert {name for name in held if name.startswith("pair")} == {"pair/a/in/two", "pair/b/in/one"}


def test_recent_changes_are_examined_again(both: Both) -> None:
    """Something may follow within the same tick of the clock."""
    real = scan.file_system_time
    with pytest.MonkeyPatch.context() as patch:  # as if the clock had not advanced since
        patch.setattr(scan, "file_system_time", lambda *where: real(*where) - 100_000_000)
        new_file(both.project)
        both.snapshots_agree()
        assert both.restless() == {b"src/deep"}


def test_a_store_inside_the_project_is_never_captured(both: Both) -> None:
    base = both.project / "docs" / "store"
    manager = CheckpointManager(base=base, fsync=False, deadline=0)
    for number in range(3):
        (both.project / "docs" / f"{number}").write_text("beside the store\n")
        tick()
        checkpoint = manager.snapshot(both.project).checkpoint
        assert checkpoint is not None
        held = names(base, checkpoint)
        assert f"docs/{number}" in held and not [name for name in held if name.startswith("docs/store")]


def closed_and_opened(project: Path) -> list[set[str]]:
    both = Both(project)
    held = []
    both.comes_to_rest()
    try:
        for bits in (0o000, 0o300, 0o600, 0o755):
            (project / "docs" / f"new-{bits:o}").write_text("new\n")
            (project / "docs").chmod(bits)
            held.append(both.holds(both.snapshots_agree()))
            held.append(both.holds(both.snapshots_agree()))
            (project / "docs").chmod(0o755)
    finally:
        (project / "docs").chmod(0o755)
    return held


def test_directories_that_cannot_be_read_are_found_again_when_they_can(
    project: Path, as_user: Callable[..., Any]
) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "page.md").write_text("page\n")
    try:
        held = as_user(closed_and_opened, project)
    finally:
        remove_tree(project)
    assert {"docs/page.md", "docs/new-0", "docs/new-300", "docs/new-600", "docs/new-755"} <= held[-1]
