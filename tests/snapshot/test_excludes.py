"""What is left out by pattern: defaults, the settings' own, the person's; and what comes in all the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from capturing import captured, content, everything_old, names, skipped, snap
from hypothesis import given
from hypothesis import strategies as st

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import DeadlineExceeded
from shadowsnap.snapshot.ignore_rules import UserRepository, exclude_file
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of
from shadowsnap.store.stat_cache import forget_contents

ORDINARY = {"README.md", "src/main.py", "data.bin", "empty", "run.sh", "private.txt", "link"}


def write(project: Path, *paths: str) -> None:
    for path in paths:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(f"{path}\n")


# --- everything ---------------------------------------------------------------------------------------


def test_a_checkpoint_says_when_the_rules_leave_nothing_to_capture(base: Path, tmp_path: Path) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    for name, rules, expected_note in (("all", "*\n", True), ("some", "!*\n", False), ("none", None, False)):
        project = tmp_path / name
        project.mkdir()
        if rules is not None:
            (project / ".gitignore").write_text(rules)
        for outcome in (manager.snapshot(project), manager.snapshot(project)):
            assert bool(outcome.note) == expected_note, (name, outcome)
    (tmp_path / "all" / ".gitignore").unlink()
    (tmp_path / "all" / "empty").mkdir()
    assert manager.snapshot(tmp_path / "all").note == ""


# --- defaults ---------------------------------------------------------------------------------------

EXCLUDED = {
    "dependencies": ["node_modules/x/index.js", "deep/node_modules/y.js", "bower_components/z"],
    "build output": ["build/a", "dist/b", "target/c", "out/d", "pkg.egg-info/PKG-INFO", "cmake-build-debug/e"],
    "caches": ["__pycache__/a", ".cache/b", ".pytest_cache/c", ".mypy_cache/d", ".ruff_cache/e", ".coverage"],
    "virtual environments": [".venv/bin/python", "venv/x", "env/y", ".tox/z"],
    "version control": [".hg/store", ".svn/entries", ".jj/repo"],
    "media": ["film.mp4", "deep/song.mp3"],
    "archives": ["a.zip", "b.tar", "c.tar.gz", "d.7z"],
    "compiled files": ["a.pyc", "b.o", "c.so", "d.so.1", "e.class", "f.exe", "deep/g.dll"],
    "logs": ["x.log", "deep/y.log"],
    "what systems leave": [".DS_Store", "Thumbs.db", "file~", ".file.swp"],
}


@pytest.mark.parametrize("kind", EXCLUDED)
def test_excluded_files_are_left_out_and_not_listed_as_skipped(base: Path, project: Path, kind: str) -> None:
    write(project, *EXCLUDED[kind])
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == ORDINARY
    assert checkpoint.skipped == ()
    assert snap(base, project, status="unchanged").id == checkpoint.id


def test_what_only_looks_like_an_exclude_is_captured(base: Path, project: Path) -> None:
    paths = {"build", "dist.py", "src/logs.txt", "envs/x", "target.md", "my.login", "zip", "node_modules.md"}
    write(project, *paths)
    assert names(base, snap(base, project)) == ORDINARY | paths


# --- order: defaults, the settings' own, the person's -----------------------------------------------


def test_the_settings_add_patterns(base: Path, project: Path) -> None:
    write(project, "a.gen", "deep/b.gen", "only/here", "deep/only/there")
    checkpoint = snap(base, project, excludes=("*.gen", "/only/"))
    assert names(base, checkpoint) == ORDINARY | {"deep/only/there"}


def test_the_settings_may_take_a_default_back(base: Path, project: Path) -> None:
    write(project, "x.log", "y.mp3", "build/a", "deep/build/b")
    checkpoint = snap(base, project, excludes=("!*.log", "!/build/"))
    assert names(base, checkpoint) == ORDINARY | {"x.log", "build/a"}


def test_the_gitignore_may_take_a_default_or_the_settings_back(base: Path, project: Path) -> None:
    write(project, "x.log", "y.mp3", "build/a", "a.gen")
    (project / ".gitignore").write_text("!*.log\n!build/\n!*.gen\n")
    checkpoint = snap(base, project, excludes=("*.gen",))
    assert names(base, checkpoint) == ORDINARY | {"x.log", "build/a", "a.gen", ".gitignore"}


def test_a_directory_that_is_included_again_is_captured_like_any_other(base: Path, project: Path) -> None:
    (project / ".gitignore").write_text("!build/\n")
    write(project, "build/deep/a")
    (project / "build" / "hollow").mkdir()
    (project / "build").chmod(0o700)
    os.mkfifo(project / "build" / "fifo")
    (project / "build" / "nested").mkdir()
    git(project / "build" / "nested", "init", "-q")
    write(project, "build/nested/b")
    checkpoint = snap(base, project)
    (project / "build" / "fifo").unlink()
    assert captured(base, checkpoint) == manifest(project)
    assert skipped(checkpoint) == {"build/fifo": "special"}


def test_the_rules_of_the_users_repository_count(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    write(project, "a.tmp", "deep/b.tmp", "deep/keep.tmp", "secret-plan", "deep/c")
    (project / ".gitignore").write_text("*.tmp\n")
    (project / "deep" / ".gitignore").write_text("!keep.tmp\n/c\n")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "exclude").write_text("# a comment\n\nsecret-plan\n")
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == ORDINARY | {"deep/keep.tmp", ".gitignore", "deep/.gitignore"}


def test_the_gitignore_overrides_info_exclude(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    write(project, "a.tmp")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "exclude").write_text("*.tmp\n")
    (project / ".gitignore").write_text("!a.tmp\n")
    assert "a.tmp" in names(base, snap(base, project))


def test_a_gitignore_counts_without_a_repository_too(base: Path, project: Path) -> None:
    write(project, "a.tmp")
    (project / ".gitignore").write_text("*.tmp\n")
    assert names(base, snap(base, project)) == ORDINARY | {".gitignore"}


# --- what the person's git tracks -------------------------------------------------------------------

TRACKED = ("build/a.c", "env/b.py", "x.log", "deep/dist/c.js", "lib.so", "ignored.txt")


def test_tracked_files_are_captured_although_excluded(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    write(project, *TRACKED, "build/untracked", "other.log")
    (project / ".gitignore").write_text("ignored.txt\n")
    git(project, "add", "-f", *TRACKED)
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == ORDINARY | {*TRACKED, ".gitignore"}
    (project / "build" / "a.c").write_text("changed")
    (project / "x.log").unlink()
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == (ORDINARY | {*TRACKED, ".gitignore"}) - {"x.log"}
    assert content(base, checkpoint, "build/a.c") == b"changed"


def test_changes_to_what_is_tracked_are_noticed(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", "README.md")
    write(project, "build/a.c", "build/deep/b.c")
    assert names(base, snap(base, project)) == ORDINARY
    git(project, "add", "-f", "build/a.c")
    checkpoint = snap(base, project, status="taken")
    assert names(base, checkpoint) == ORDINARY | {"build/a.c"}
    git(project, "add", "-f", "build/deep/b.c")
    git(project, "rm", "-q", "--cached", "build/a.c")
    checkpoint = snap(base, project, status="taken")
    assert names(base, checkpoint) == ORDINARY | {"build/deep/b.c"}
    git(project, "rm", "-q", "--cached", "build/deep/b.c")
    checkpoint = snap(base, project, status="taken")
    assert names(base, checkpoint) == ORDINARY
    assert "empty_dirs" not in checkpoint.metadata  # an excluded directory is none of ours


def test_a_file_that_is_no_longer_tracked_stays_if_nothing_excludes_it(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    snap(base, project)
    git(project, "rm", "-q", "--cached", "README.md")
    assert names(base, snap(base, project)) == ORDINARY


def test_a_tracked_directory_keeps_its_bits_when_the_rules_change(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    write(project, "build/a.c")
    git(project, "add", "-f", "build/a.c")
    (project / "build").chmod(0o700)
    assert captured(base, snap(base, project)) == manifest(project)
    (project / ".gitignore").write_text("nothing\n")
    assert captured(base, snap(base, project)) == manifest(project)


def test_a_tracked_file_behind_a_new_link_does_no_harm(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    write(project, "build/a.c", "real/a.c")
    git(project, "add", "-f", "build/a.c")
    snap(base, project)
    shutil.rmtree(project / "build")
    (project / "build").symlink_to("real")
    assert captured(base, snap(base, project)) == manifest(project)
    git(project, "rm", "-q", "-f", "--cached", "build/a.c")
    assert captured(base, snap(base, project)) == manifest(project)


def test_a_project_inside_a_repository_knows_what_is_tracked_in_it(base: Path, tmp_path: Path) -> None:
    top, project = tmp_path / "top", tmp_path / "top" / "inner" / "project"
    write(project, "build/a.c", "build/untracked", "plain")
    write(top, "build/outside")
    git(top, "init", "-q")
    git(top, "add", "-f", "inner/project/build/a.c", "build/outside")
    assert names(base, snap(base, project)) == {"build/a.c", "plain"}
    (project / "real").mkdir()
    shutil.rmtree(project / "build")
    (project / "build").symlink_to("real")
    write(project, "x.log")
    git(top, "add", "-f", "inner/project/x.log")
    assert names(base, snap(base, project)) == {"build", "plain", "x.log"}


@pytest.mark.shortcut
def test_the_users_index_is_read_again_only_when_it_changed(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = UserRepository.tracked

    def counted(*args: Any) -> Any:
        asked.append(args)
        return real(*args)

    monkeypatch.setattr(UserRepository, "tracked", counted)
    git(project, "init", "-q")
    git(project, "add", "README.md")
    snap(base, project)
    snap(base, project)
    asked.clear()
    (project / "README.md").write_text("changed")
    snap(base, project)
    assert not asked
    git(project, "add", "README.md")
    snap(base, project)
    assert len(asked) == 1


# --- rules that change ------------------------------------------------------------------------------


def test_files_that_become_ignored_go_and_come_back(base: Path, project: Path) -> None:
    write(project, "a.tmp", "deep/b.tmp", "deep/c")
    snap(base, project)
    (project / ".gitignore").write_text("*.tmp\n")
    assert names(base, snap(base, project)) == ORDINARY | {".gitignore", "deep/c"}
    (project / ".gitignore").write_text("deep/\n")
    assert names(base, snap(base, project)) == ORDINARY | {".gitignore", "a.tmp"}
    (project / ".gitignore").unlink()
    assert names(base, snap(base, project)) == ORDINARY | {"a.tmp", "deep/b.tmp", "deep/c"}


@pytest.mark.skipif(os.name == "nt", reason="symbolic links")
def test_rules_behind_a_link_are_not_those_of_the_project(base: Path, project: Path, tmp_path: Path) -> None:
    """A directory was replaced by a link to it. The `.gitignore` at its path looks as it did before."""
    (project / "moved").mkdir()
    (project / "moved" / ".gitignore").write_text("*\n")
    with everything_old():
        snap(base, project)
        (project / "moved").rename(project / "there")
        (project / "moved").symlink_to("there")
        warm, cold = snap(base, project), snap(tmp_path / "cold", project)
    assert warm.metadata["rules"] == cold.metadata["rules"] == {"there/.gitignore": "*\n"}


def test_rules_that_ignore_themselves_are_noticed(base: Path, project: Path) -> None:
    """As in the cache directories of many tools: git reports neither the file nor its changes."""
    write(project, "deep/a", "deep/b")
    with everything_old():
        snap(base, project)
        (project / "deep" / ".gitignore").write_text("*\n")
        assert names(base, snap(base, project)) == ORDINARY
        (project / "deep" / ".gitignore").write_text("a\n.gitignore\n")
        assert names(base, snap(base, project)) == ORDINARY | {"deep/b"}
        (project / "deep" / ".gitignore").unlink()
        assert names(base, snap(base, project)) == ORDINARY | {"deep/a", "deep/b"}


def test_patterns_outside_the_files_that_change_are_noticed(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    write(project, "a.tmp", "b.gen")
    assert names(base, snap(base, project)) == ORDINARY | {"a.tmp", "b.gen"}
    assert names(base, snap(base, project, excludes=("*.tmp",))) == ORDINARY | {"b.gen"}
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "exclude").write_text("*.gen\n")
    assert names(base, snap(base, project, excludes=("*.tmp",))) == ORDINARY
    assert names(base, snap(base, project)) == ORDINARY | {"a.tmp"}
    (project / ".git" / "info" / "exclude").unlink()
    assert names(base, snap(base, project)) == ORDINARY | {"a.tmp", "b.gen"}


def test_a_checkpoint_remembers_the_patterns_it_was_taken_under(base: Path, project: Path) -> None:
    git(project, "init", "-q")
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "exclude").write_text("# comment\n*.gen\n")
    checkpoint = snap(base, project, excludes=("*.tmp",))
    assert checkpoint.metadata["excludes"]["own"] == ["*.tmp", "*.gen"]


# --- named paths ------------------------------------------------------------------------------------


@pytest.mark.parametrize("absolute", [True, False])
def test_a_named_file_is_captured_although_ignored(base: Path, project: Path, absolute: bool) -> None:
    write(project, "x.log", "y.log", "node_modules/pkg/index.js")
    (project / "node_modules").chmod(0o700)
    named = ["x.log", "node_modules/pkg/index.js"]
    checkpoint = snap(base, project, *(project / path if absolute else path for path in named))
    assert names(base, checkpoint) == ORDINARY | {*named}
    assert captured(base, checkpoint)[b"node_modules"] == ("dir", 0o700, None)
    (project / "x.log").write_text("changed")
    checkpoint = snap(base, project)
    assert content(base, checkpoint, "x.log") == b"changed", "it stays captured"


def test_a_named_file_stays_captured_when_rules_change(base: Path, project: Path) -> None:
    write(project, "x.log", "node_modules/a")
    (project / "node_modules").chmod(0o700)
    snap(base, project, "x.log", "node_modules/a")
    (project / ".gitignore").write_text("nothing\n")
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == ORDINARY | {"x.log", "node_modules/a", ".gitignore"}
    assert captured(base, checkpoint)[b"node_modules"] == ("dir", 0o700, None)


def test_a_named_directory_means_the_files_in_it(base: Path, project: Path) -> None:
    write(project, "build/a", "build/deep/b", "build/node_modules/c")
    assert names(base, snap(base, project, "build")) == ORDINARY | {"build/a", "build/deep/b"}


def grow(folder: Path, files: int = 1001, size: int = 1) -> None:
    """More entries or bytes than are captured because of a name. Most are hard links: only their number counts."""
    with open(folder / "file0", "wb") as file:
        file.truncate(size)
    for number in range(1, files):
        os.link(folder / "file0", folder / f"file{number}")


@pytest.mark.parametrize(("files", "size"), [(1001, 1), (7, 10 << 20)])
def test_a_named_directory_that_grows_too_large_is_left_out_and_listed(
    base: Path, project: Path, files: int, size: int
) -> None:
    write(project, "build/a", "build/deep/b")
    assert "build/deep/b" in names(base, snap(base, project, "build"))
    grow(project / "build", files, size)
    large = snap(base, project)
    assert names(base, large) == ORDINARY
    assert [(item.path, item.why) for item in large.skipped] == [("build/", "large-directory")]
    assert snap(base, project).id == large.id
    for file in (project / "build").glob("file*"):
        file.unlink()
    small = snap(base, project)
    assert names(base, small) == ORDINARY | {"build/a", "build/deep/b"} and small.skipped == ()


def test_a_named_directory_that_grew_is_not_walked_to_its_end(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "build/a")
    snap(base, project, "build")
    for number in range(3600):
        (project / "build" / str(number % 60) / str(number // 60)).mkdir(parents=True)
    listed: list[str] = []
    scandir = os.scandir

    def note(path: Any) -> Any:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    checkpoint = snap(base, project)
    assert [(item.path, item.why) for item in checkpoint.skipped] == [("build/", "large-directory")]
    assert 0 < sum("/build" in path for path in listed) <= 1001


def test_of_a_large_directory_that_is_not_ignored_only_ignored_directories_are_listed(
    base: Path, project: Path
) -> None:
    write(project, "top/a.py", "top/x.log", "top/made/b", "top/node_modules/c")
    (project / ".gitignore").write_text("made/\n")
    usual = ORDINARY | {".gitignore", "top/a.py"}
    assert names(base, snap(base, project, "top")) == usual | {"top/x.log", "top/made/b"}
    grow(project / "top" / "made")
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == usual
    assert [(item.path, item.why) for item in checkpoint.skipped] == [("top/made/", "large-directory")]


def test_files_stay_captured_that_are_named_themselves_in_a_directory_that_grew(base: Path, project: Path) -> None:
    write(project, "build/a", "build/b")
    snap(base, project, "build", "build/a")
    grow(project / "build")
    (project / "build" / "a").write_text("changed")
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == ORDINARY | {"build/a"}
    assert content(base, checkpoint, "build/a") == b"changed"


def test_a_large_directory_that_is_named_explicitly_is_captured_then(base: Path, project: Path) -> None:
    write(project, "build/a")
    grow(project / "build")
    assert len(names(base, snap(base, project, "build"))) == len(ORDINARY) + 1002
    later = snap(base, project)
    assert [(item.path, item.why) for item in later.skipped] == [("build/", "large-directory")]
    assert len(names(base, snap(base, project, "build"))) == len(ORDINARY) + 1002


def test_a_capture_from_nothing_leaves_the_same_large_directories_out(base: Path, project: Path) -> None:
    write(project, "build/a")
    snap(base, project, "build")
    grow(project / "build")
    warm = snap(base, project)
    forget_contents(Store(base), project_of(project))
    assert snap(base, project).id == warm.id


def test_a_restore_brings_back_a_directory_that_is_too_large_now(base: Path, project: Path) -> None:
    write(project, "build/a", "build/b")
    before = snap(base, project, "build")
    grow(project / "build")
    snap(base, project)
    (project / "build" / "a").write_text("changed")
    (project / "build" / "b").unlink()
    manager = CheckpointManager(base=base, fsync=False)
    manager.restore(project, before.id)
    assert (project / "build" / "a").read_text() != "changed" and (project / "build" / "b").exists()
    assert (project / "build" / "file1000").exists()
    manager.undo(project)
    assert (project / "build" / "a").read_text() == "changed" and not (project / "build" / "b").exists()


def test_a_named_path_that_does_not_exist_is_no_problem(base: Path, project: Path) -> None:
    checkpoint = snap(base, project, "new.log", "no/such/folder/file", "README.md/below")
    assert names(base, checkpoint) == ORDINARY and checkpoint.skipped == ()


def test_a_named_path_behind_a_link_is_the_file_it_leads_to(base: Path, project: Path, tmp_path: Path) -> None:
    write(project, "real/x.log")
    (project / "way").symlink_to("real")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x.log").write_text("not ours")
    (project / "out").symlink_to(tmp_path / "outside")
    outcome = CheckpointManager(base=base).ensure_checkpoint(project, paths=["way/x.log", "out/x.log"])
    assert outcome.checkpoint is not None
    assert names(base, outcome.checkpoint) == ORDINARY | {"real/x.log", "way", "out"}
    assert [(item.path, item.why) for item in outcome.skipped] == [("out/x.log", "outside")]


@pytest.mark.parametrize("path", ["", ".", "..", "/", "../project", "\0", "x\0y", ".git/config", "~", "x" * 5000])
def test_a_strange_named_path_does_no_harm(base: Path, project: Path, path: str) -> None:
    git(project, "init", "-q")
    outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(project, paths=[path, "x.log"])
    assert outcome.status == "taken", outcome
    assert outcome.checkpoint is not None and names(base, outcome.checkpoint) == ORDINARY


def test_one_path_may_be_given_without_a_list(base: Path, project: Path) -> None:
    write(project, "x.log")
    outcome = CheckpointManager(base=base, fsync=False).ensure_checkpoint(project, paths="x.log")
    assert outcome.checkpoint is not None and "x.log" in names(base, outcome.checkpoint)


def test_a_named_file_that_was_skipped_stays_listed(base: Path, project: Path) -> None:
    """Otherwise the next snapshot of unchanged files would differ."""
    write(project, ".env")
    (project / ".gitignore").write_text(".env\n")
    checkpoint = snap(base, project, ".env")
    assert skipped(checkpoint) == {".env": "secret"}
    assert snap(base, project, status="unchanged").id == checkpoint.id


# --- inherited rules --------------------------------------------------------------------------------

PATTERNS = st.sampled_from((
    "*.tmp", "/a", "a", "a/", "b/", "!a", "!*.tmp", "in/a", "/in/a", "in/*", "in/**", "**/a", "**/b/", "in/**/a",
    "/in/b/a", "!in/b", "in/b/", "/*", "!/in", "!/in/", "*", "!in", "a*", "[ab]", "?", "x/y", "in", "/in/",
    "!in/a", "b/a", "!b/a", "#a", "\\#a", "\\!a", "a ", "a\\ ", "!!a", "", "in/b", "**", "in/**/b/*", "/**/a",
    "in/?/a", "[!b]", "[^b]", "*/a", "**/in/a",
))  # fmt: skip
CANDIDATES = ("a", "b/a", "b/b/a", "x.tmp", "b/x.tmp", "x/y", "in/a", "#a", "!a", "c", "a b/c", "in/b/a")


@given(
    top=st.lists(PATTERNS, max_size=4), middle=st.lists(PATTERNS, max_size=3), own=st.lists(PATTERNS, max_size=2),
    exclude=st.lists(PATTERNS, max_size=2), deep=st.booleans(), ending=st.sampled_from(("\n", "\r\n")),
)  # fmt: skip
def test_a_project_in_a_repository_inherits_its_rules(
    tmp_path_factory: pytest.TempPathFactory,
    top: list[str], middle: list[str], own: list[str], exclude: list[str], deep: bool, ending: str,
) -> None:  # fmt: skip
    """What is captured is what their git does not ignore. Where their rules ignore the project itself, they
    are not about it."""
    location = tmp_path_factory.mktemp("inherit")
    repository = location / "repository"
    project = repository / "in" / "b" if deep else repository / "in"
    project.mkdir(parents=True)
    git(repository, "init", "-q", "--template=")
    (repository / ".git" / "info").mkdir()
    _rules(repository / ".gitignore", top, ending)
    _rules(repository / ".git" / "info" / "exclude", exclude, ending)
    if deep:
        _rules(repository / "in" / ".gitignore", middle, ending)
    write(project, *CANDIDATES)
    inside = project.relative_to(repository)
    if _ignored(repository, [str(inside)]) or (deep and _ignored(repository, ["in"])):
        shutil.rmtree(location)
        return
    _rules(project / ".gitignore", own, ending)
    checkpoint = snap(location / "base", project, fsync=False)
    ignored = _ignored(repository, [f"{inside}/{path}" for path in CANDIDATES])
    assert names(location / "base", checkpoint) - {".gitignore"} == {
        path for path in CANDIDATES if f"{inside}/{path}" not in ignored
    }
    shutil.rmtree(location)


def _rules(path: Path, patterns: list[str], ending: str) -> None:
    path.write_bytes("".join(pattern + ending for pattern in patterns).encode())


def _ignored(repository: Path, paths: list[str]) -> set[str]:
    """By their own git."""
    listed = "".join(f"{path}\0" for path in paths).encode()
    excludes = repository.with_name("excludes")
    # It calls it a failure if nothing is ignored, so one path is.
    excludes.write_bytes(exclude_file(["/sure"]))
    command = ["-c", f"core.excludesFile={excludes}", "check-ignore", "-z", "--no-index", "--stdin"]
    return {*git(repository, *command, stdin=listed + b"sure\0").split("\0")} - {"", "sure"}


# --- our own ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["base", ".hidden/deep/base", "odd [name] *!"])
@pytest.mark.parametrize("rules", ["", "!*\n", "!**/\n!base/\n!.hidden/\n"])
def test_the_store_is_never_captured_wherever_it_is(project: Path, where: str, rules: str) -> None:
    if rules:
        (project / ".gitignore").write_text(rules)
    base = project / where
    before = names(base, snap(base, project))
    assert before == ORDINARY | ({".gitignore"} if rules else set())
    checkpoint = snap(base, project)
    assert names(base, checkpoint) == before and not checkpoint.skipped
    inside = [path for path in checkpoint.metadata.get("empty_dirs", ()) if not where.startswith(path)]
    assert inside == []
    assert snap(base, project, f"{where}/store/config", status="unchanged").id == checkpoint.id


def test_the_base_may_be_given_through_a_link(project: Path, tmp_path: Path) -> None:
    (project / "hidden").mkdir()
    (tmp_path / "way").symlink_to(project / "hidden")
    checkpoint = snap(tmp_path / "way", project)
    assert names(project / "hidden", checkpoint) == ORDINARY
    (tmp_path / "other-way").symlink_to(project)
    again = snap(tmp_path / "other-way" / "hidden", tmp_path / "other-way", status="unchanged")
    assert again.id == checkpoint.id


def test_known_files_stay_where_the_rules_are_not_known_in_time(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is nothing else in the directory, so that nothing is undecided."""
    flat = project / "flat"
    flat.mkdir()
    (flat / "file").write_text("1\n")
    snap(base, flat)

    def too_slow(*_: object) -> set[bytes]:
        raise DeadlineExceeded(seconds=1.0, doing="looking for files")

    with monkeypatch.context() as patched:
        patched.setattr("shadowsnap.snapshot.ignore_rules._check_ignore", too_slow)
        manager = CheckpointManager(base=base, background_upkeep=False, excludes=("*.txt",))
        outcome = manager.snapshot(flat, always=True)
        assert outcome.checkpoint is not None
        assert names(base, outcome.checkpoint) == {"file"}
    (flat / "new").write_text("2\n")
    assert names(base, snap(base, flat, excludes=("*.txt",))) == {"file", "new"}
