"""The seal is tight and the pictures are exact: other tests are only as good as these tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import (
    differences,
    fingerprint,
    git,
    manifest,
    real_places,
    remove_tree,
    sealed_environment,
    snapshot_dotgit,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and names")


# --- the seal ---------------------------------------------------------------------------------------


def test_home_and_every_default_place_lie_in_the_sealed_home(home: Path) -> None:
    assert Path.home() == home
    assert all(place.is_relative_to(home) for place in real_places())


def test_inherited_settings_do_not_pass_the_seal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "SHADOWSNAP_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "/outside")
    before = dict(os.environ)
    with sealed_environment(tmp_path):
        assert "/outside" not in os.environ.values()
        os.environ["GIT_WORK_TREE"] = "set by a test"
    assert dict(os.environ) == before


def test_git_knows_only_the_sealed_configuration(home: Path) -> None:
    origins = {line.split("\t")[0] for line in git(home, "config", "--list", "--show-origin").splitlines()}
    assert origins == {f"file:{home / '.gitconfig'}"}


@given(st.integers())
def test_random_examples_are_sealed_too(number: int) -> None:
    assert Path.home().name.startswith("home")


def test_a_touched_place_is_noticed(tmp_path: Path) -> None:
    place, other = tmp_path / "shadowsnap", tmp_path / "never-made"
    nothing = fingerprint([place, other])
    assert differences(nothing, fingerprint([place, other])) == []
    (place / "store").mkdir(parents=True)
    made = fingerprint([place, other])
    assert differences(nothing, made) == [place, place / "store"]
    (place / "store" / "new").touch()
    os.utime(place / "store", ns=(1, 1))
    assert differences(made, fingerprint([place, other])) == [place / "store"]


# --- exact pictures ---------------------------------------------------------------------------------


def test_a_manifest_holds_type_permissions_and_content(project: Path) -> None:
    found = manifest(project)
    assert found[b"private.txt"] == ("file", 0o600, b"mine\n")
    assert found[b"run.sh"][1] == 0o755
    assert found[b"link"] == ("link", 0, b"src/main.py")
    assert found[b"src"][0] == "dir"
    assert found[b"src/main.py"][2] == b"print('hello')\n"


def test_a_manifest_leaves_git_out_at_every_depth(project: Path) -> None:
    before = manifest(project)
    git(project, "init")
    (project / "src" / ".git").write_text("gitdir: elsewhere\n")
    assert manifest(project) == before


@posix
@pytest.mark.parametrize(
    "change", ["mode", "bytes", "name", "target", "type", "directory mode", "empty directory"]
)
def test_a_manifest_differs_after_any_change(project: Path, change: str) -> None:
    before = manifest(project)
    match change:
        case "mode":
            (project / "private.txt").chmod(0o640)
        case "bytes":
            (project / "README.md").write_bytes(b"# A project\r\n")
        case "name":
            os.rename(project / "empty", os.fsencode(project) + b"/\xff\n")
        case "target":
            (project / "link").unlink()
            (project / "link").symlink_to("./src/main.py")
        case "type":
            (project / "empty").unlink()
            os.mkfifo(project / "empty")
        case "directory mode":
            (project / "src").chmod(0o700)
        case "empty directory":
            (project / "nothing").mkdir()
    assert manifest(project) != before


def test_any_write_in_dotgit_shows(project: Path) -> None:
    git(project, "init")
    git(project, "add", "-A")
    git(project, "commit", "-m", "one")
    before = snapshot_dotgit(project)
    assert snapshot_dotgit(project) == before
    os.utime(project / ".git" / "index", ns=(1, 1))
    changed = snapshot_dotgit(project)
    assert {name for name in before if before[name] != changed[name]} == {b"index"}


def test_a_dotgit_file_shows_too(project: Path) -> None:
    (project / ".git").write_text("gitdir: elsewhere\n")
    assert snapshot_dotgit(project)[b"."][2] == b"gitdir: elsewhere\n"


@posix
def test_a_closed_tree_can_be_removed(as_user: Callable[..., Any], project: Path) -> None:
    outside = project.parent / "outside"
    outside.mkdir(0o500)
    (project / "src" / "out").symlink_to(outside)
    for closed in (project / "src", project):
        closed.chmod(0)
    as_user(remove_tree, project)
    assert not project.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


# --- the unprivileged child -------------------------------------------------------------------------


@posix
def test_the_child_is_bound_by_permissions(as_user: Callable[..., Any], project: Path) -> None:
    secret = project / "private.txt"
    secret.chmod(0)
    with pytest.raises(PermissionError):
        as_user(secret.read_bytes)
    (project / "src").chmod(0o500)
    with pytest.raises(PermissionError):
        as_user((project / "src" / "new").touch)
    assert as_user((project / "README.md").read_text) == "# A project\n"
    def make() -> bool:
        (project / "made").touch()
        return (project / "made").stat().st_uid == os.geteuid() != 0

    assert as_user(make)
    assert (project / "made").stat().st_uid == os.geteuid()  # ours again afterwards


@posix
def test_the_child_can_import_and_run_git(as_user: Callable[..., Any], project: Path) -> None:
    def in_child() -> str:
        import sqlite3  # neither of them is loaded before
        import wave

        assert wave.__name__ == "wave"
        sqlite3.connect(project / "x.db").close()
        git(project, "init")
        git(project, "add", "-A")
        return git(project, "ls-files", "--", "README.md")

    assert as_user(in_child) == "README.md"


@posix
def test_what_the_child_raises_arrives_with_its_traceback(as_user: Callable[..., Any]) -> None:
    class Local(Exception):
        pass

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        as_user(fail, KeyError("x"))
    assert "in fail" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="Local: told as text"):
        as_user(fail, Local("told as text"))


@posix
def test_a_child_that_dies_is_an_error(as_user: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match="exit code -9"):
        as_user(lambda: os.kill(os.getpid(), 9))
