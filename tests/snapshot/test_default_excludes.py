"""What is left out by default is what git makes of the patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowsnap import Settings
from shadowsnap.git.repository import Git
from shadowsnap.snapshot.ignore_rules import DEFAULT_DIRECTORY_NAMES, DEFAULT_EXCLUDES, exclude_file
from shadowsnap.store.layout import open_store

LEFT_OUT = [
    "node_modules/x.js", "a/node_modules/x.js", ".venv/bin/python", "venv/x", "env/x", "build/x", "dist/x",
    "a/b/__pycache__/m.pyc", "m.pyc", "x.o", "lib.so", "lib.so.1", ".git/config", ".hg/x", ".svn/x", "debug.log",
    "film.mp4", "song.mp3", "data.zip", "x.tar.gz", ".DS_Store", "x.swp", "x~", "target/debug/x", ".mypy_cache/x",
    "pkg.egg-info/x", "bazel-out/x", "cmake-build-debug/x", ".coverage", ".shadowsnap-restore-1-2/new/0",
]  # fmt: skip
KEPT = [
    "src/main.py", "README.md", "build.py", "environment.yml", "logs.md", "target.txt", "out.txt", ".env.example",
    "Makefile", "image.png", "photo.jpg", "data.csv", "notes.pdf", "font.woff2", "package-lock.json", ".gitignore",
    "distribution/x.py", "vendor/lib.go", "bin/run", "lib/x.py", "obj.py", "x.sql", "x.ipynb",
]  # fmt: skip


@pytest.fixture
def git(base: Path, tmp_path: Path) -> Git:
    work_tree = tmp_path / "tree"
    work_tree.mkdir()
    for name in (*LEFT_OUT, *KEPT):
        path = work_tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    excludes = tmp_path / "excludes"
    excludes.write_bytes(exclude_file())
    git = open_store(Settings(base=base)).git().bound(work_tree=work_tree, index_file=tmp_path / "index")
    return git.bound(config=(f"core.excludesFile={excludes}",))


def test_what_can_be_made_again_is_left_out_and_everything_else_is_kept(git: Git) -> None:
    listed = git.run("ls-files", "-o", "--exclude-standard").decode().splitlines()
    assert sorted(listed) == sorted(KEPT)


def test_a_gitignore_may_take_a_pattern_back(git: Git) -> None:
    assert git.work_tree is not None
    (git.work_tree / ".gitignore").write_text("!build/\n!*.log\n")
    listed = git.run("ls-files", "-o", "--exclude-standard").decode().splitlines()
    assert {"build/x", "debug.log"} <= set(listed)


def test_the_file_holds_every_pattern_and_says_that_it_is_rewritten() -> None:
    lines = exclude_file().decode().splitlines()
    assert lines[0].startswith("#") and "rewritten" in lines[0]
    assert lines[1:] == list(DEFAULT_EXCLUDES)
    assert len(set(DEFAULT_EXCLUDES)) == len(DEFAULT_EXCLUDES)
    assert exclude_file(["!build/", "caf\udce9"]) == exclude_file() + b"!build/\ncaf\xe9\n"


def test_the_directory_names_are_those_of_patterns_without_a_wildcard_or_a_path() -> None:
    names = DEFAULT_DIRECTORY_NAMES
    assert {b"node_modules", b".git", b"build", b"__pycache__"} <= names
    assert not any(set(b"*?[/") & set(name) for name in names)
    assert b"cache" not in names and b".yarn/cache" not in names and b"*.egg-info" not in names
