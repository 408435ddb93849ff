"""Which git is run, and that the environment of the host does not reach it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakegit import Lifeline, fake_git

from shadowsnap import CheckpointManager
from shadowsnap.errors import DeadlineExceeded, GitMissing, GitTooOld, ShadowsnapError
from shadowsnap.git import repository as environment
from shadowsnap.git.repository import MINIMUM, sealed_environment, usable_git


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    """Forget which git an earlier test found on its PATH."""
    environment._usable_git.cache_clear()
    yield
    environment._usable_git.cache_clear()


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def with_version(folder: Path, version: str) -> Path:
    return fake_git(folder, f"echo {version!r}; echo asked >> '{folder}/asked'")


def times_asked(folder: Path) -> int:
    asked = folder / "asked"
    return len(asked.read_text().splitlines()) if asked.exists() else 0


# --- finding git ------------------------------------------------------------------------------------


def test_the_first_git_on_the_path_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_version(tmp_path / "b", "git version 2.40.1")
    with_version(tmp_path / "c", "git version 2.50.1")
    (tmp_path / "a" / "git").mkdir(parents=True)  # a directory is no git
    (tmp_path / "not-executable").mkdir()
    (tmp_path / "not-executable" / "git").write_text("#!/bin/sh\n")
    folders = [str(tmp_path / name) for name in ("none", "a", "not-executable", "b", "c")]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert usable_git() == str(tmp_path / "b" / "git")


@pytest.mark.parametrize("entry", ["", ".", "bin", "./bin", ".."])
def test_git_is_never_taken_from_a_relative_directory(
    monkeypatch: pytest.MonkeyPatch, path: Path, tmp_path: Path, entry: str
) -> None:
    """Otherwise a program named git in a project would run."""
    real = with_version(path, "git version 2.40.1")
    here = tmp_path / "here"
    (here / "bin").mkdir(parents=True)
    for folder in (here, here / "bin", tmp_path):
        with_version(folder, "git version 99.0.0")
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", os.pathsep.join((entry, str(path), entry)))
    assert usable_git() == str(real)
    assert sealed_environment()["PATH"] == str(path)


@pytest.mark.parametrize("version", [
    "git version 2.34.0", "git version 2.39.5 (Apple Git-154)", "git version 2.45.2.windows.1",
    "git version 3.0.0-rc1", "git version 2.100.0", "git version 2.34",
])  # fmt: skip
def test_a_new_enough_git_is_used(path: Path, version: str) -> None:
    git = with_version(path, version)
    assert usable_git() == str(git)


@pytest.mark.parametrize("version", ["2.20", "2.33.8", "1.99.9", "2.9.1"])
def test_an_older_git_is_refused_with_both_versions_named(path: Path, version: str) -> None:
    with_version(path, f"git version {version}")
    with pytest.raises(GitTooOld, match=rf"git {version} is too old: shadowsnap needs 2\.34 or newer") as caught:
        usable_git()
    assert caught.value.hint


def test_without_git_the_error_is_git_missing(path: Path) -> None:
    with pytest.raises(GitMissing, match="git was not found on the PATH"):
        usable_git()


@pytest.mark.parametrize("content", ["#!/bin/sh\nexit 1\n", "#!/no/such/interpreter\n", "\0\0\0", ""])
def test_a_file_that_cannot_be_run_is_not_used_as_git(path: Path, content: str) -> None:
    """On a Mac without developer tools, git is a stub that prints how to get them."""
    (path / "git").write_text(content)
    (path / "git").chmod(0o755)
    with pytest.raises(GitMissing):
        usable_git()


def test_a_git_that_does_not_answer_is_killed_with_its_children(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_VERSION_SECONDS", 0.2)
    with Lifeline(tmp_path / "line") as line:
        fake_git(path, f"PATH=/bin:/usr/bin\n{line.hold}\nsleep 1000 & wait")
        with pytest.raises(DeadlineExceeded, match="git version"):
            usable_git()
        assert line.said_before_the_last_one_died() == b""


# --- remembering it ---------------------------------------------------------------------------------


def test_git_is_asked_for_its_version_once(path: Path, tmp_path: Path) -> None:
    with_version(path, "git version 2.40.1")
    memory = tmp_path / "memory.json"
    for _ in range(3):
        usable_git(memory)
    assert times_asked(path) == 1
    environment._usable_git.cache_clear()  # as in the next process
    usable_git(memory)
    assert times_asked(path) == 1


def test_another_git_is_asked_again(path: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    git = with_version(path, "git version 2.40.1")
    usable_git(memory)
    environment._usable_git.cache_clear()
    with_version(path, "git version 2.20.0")
    os.utime(git, ns=(1, 1))
    with pytest.raises(GitTooOld):
        usable_git(memory)


def test_a_git_that_was_installed_meanwhile_is_found(path: Path, tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    with pytest.raises(GitMissing):
        usable_git(memory)
    git = with_version(path, "git version 2.20.0")
    with pytest.raises(GitTooOld):
        usable_git(memory)
    with_version(path, "git version 2.40.0")
    os.utime(git, ns=(1, 1))
    assert usable_git(memory) == str(git)


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"git": 1}', '{"git": [], "version": "x"}', "\0"])
def test_a_damaged_version_file_is_ignored(path: Path, tmp_path: Path, damage: str) -> None:
    with_version(path, "git version 2.40.1")
    memory = tmp_path / "memory.json"
    memory.write_text(damage)
    assert usable_git(memory) == str(path / "git")
    environment._usable_git.cache_clear()
    usable_git(memory)
    assert times_asked(path) == 1


def test_a_version_file_that_cannot_be_written_is_no_error(path: Path, tmp_path: Path) -> None:
    with_version(path, "git version 2.40.1")
    assert usable_git(tmp_path / "none" / "memory.json") == str(path / "git")


# --- what the manager reports -----------------------------------------------------------------------


@pytest.mark.parametrize(("version", "error"), [(None, GitMissing), ("git version 2.20.1", GitTooOld)])
def test_without_a_usable_git_snapshots_are_refused_and_the_rest_raises(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    version: str | None, error: type[ShadowsnapError],
) -> None:  # fmt: skip
    manager = CheckpointManager(base=base)
    assert manager.ensure_checkpoint(project).status == "taken"
    if version is not None:
        with_version(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    manager.new_turn()
    (project / "new").touch()
    outcome = manager.ensure_checkpoint(project, paths=["new"])
    assert outcome.status == "refused" and not outcome
    assert type(outcome.error) is error
    with pytest.raises(error):
        manager.list_checkpoints(project)
    with pytest.raises(error):
        manager.restore(project, "last")


def test_the_minimum_is_what_the_errors_promise() -> None:
    assert ".".join(map(str, MINIMUM)) in GitMissing.hint


# --- the seal ---------------------------------------------------------------------------------------


def test_only_what_git_needs_of_the_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_DIR", "GIT_TRACE", "SSH_AUTH_SOCK", "EDITOR", "GPG_TTY", "HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "from outside")
    monkeypatch.setenv("TMPDIR", "/some/tmp")
    sealed = sealed_environment()
    assert "from outside" not in sealed.values()
    assert sealed["PATH"] == os.environ["PATH"] and sealed["TMPDIR"] == "/some/tmp"
    assert sealed["LC_ALL"] == "C"


HOSTILE_CONFIG = """\
[commit]
    gpgSign = true
[gpg]
    program = {hooks}/signer
[core]
    hooksPath = {hooks}
    fsmonitor = {hooks}/fsmonitor
    autocrlf = true
    splitIndex = true
    untrackedCache = true
    excludesFile = {here}/ignore-all
    attributesFile = {here}/attributes
    worktree = {here}/elsewhere
    pager = {hooks}/pager
[filter "x"]
    clean = false
    smudge = false
    required = true
[diff]
    renames = copies
    noprefix = true
    external = {hooks}/diff
"""
HOOKS = ("reference-transaction", "post-checkout", "post-index-change", "fsmonitor", "signer", "pager", "diff")


@pytest.fixture
def hostile(tmp_path: Path, home: Path) -> dict[str, str]:
    """A host that runs inside a git hook, with every setting and variable against us. What comes
    through leaves a trace in tmp_path/traces."""
    here, hooks, traces = tmp_path / "hostile", tmp_path / "hostile" / "hooks", tmp_path / "traces"
    traces.mkdir()
    for name in HOOKS:
        fake_git(hooks, f"echo \"$0\" >> '{traces}/run'; exit 1").rename(hooks / name)
    (here / "ignore-all").write_text("*\n")
    (here / "attributes").write_text("* text eol=crlf ident filter=x\n")
    for place in (home / ".gitconfig", home / ".config" / "git" / "config", here / "config"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(HOSTILE_CONFIG.format(here=here, hooks=hooks))
    return {
        "GIT_DIR": str(here / "none"), "GIT_WORK_TREE": str(here), "GIT_COMMON_DIR": str(here),
        "GIT_INDEX_FILE": str(traces / "index"), "GIT_OBJECT_DIRECTORY": str(traces / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(here), "GIT_NAMESPACE": "theirs", "GIT_PREFIX": "sub/",
        "GIT_CONFIG": str(here / "config"), "GIT_CONFIG_GLOBAL": str(here / "config"),
        "GIT_CONFIG_SYSTEM": str(here / "config"), "GIT_CONFIG_NOSYSTEM": "0", "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.autocrlf", "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_PARAMETERS": f"'core.hookspath'='{hooks}'", "GIT_TRACE": str(traces / "trace"),
        "GIT_TRACE2": str(traces / "trace2"), "GIT_EXTERNAL_DIFF": str(hooks / "diff"),
        "GIT_ATTR_SOURCE": "HEAD", "GIT_ICASE_PATHSPECS": "1", "GIT_DEFAULT_HASH": "sha256",
        "GIT_EXEC_PATH": str(here / "none"), "GIT_QUARANTINE_PATH": str(here),
        "XDG_CONFIG_HOME": str(home / ".config"), "LC_ALL": "de_DE.UTF-8", "GIT_PAGER": str(hooks / "pager"),
    }  # fmt: skip


USE_EVERYTHING = """
import sys
from pathlib import Path
from shadowsnap import CheckpointManager, Settings
from shadowsnap.store.layout import open_store

base, project = Path(sys.argv[1]), Path(sys.argv[2])
manager = CheckpointManager(base=base)
outcome = manager.ensure_checkpoint(project)
assert outcome.status == "taken", outcome
(project / "mixed.txt").write_bytes(b"changed")
(project / "README.md").unlink()
manager.new_turn()
assert manager.ensure_checkpoint(project).status == "taken"
manager.pin(project, "last")
manager.label(project, "last", "here")
assert [change.path for change in manager.diff(project, "last~1").changes] == ["README.md", "mixed.txt"]
assert [found.files_changed for found in manager.list_checkpoints(project)] == [2, None]
manager.restore(project, "last~1")
manager.delete(project, "here")
print(open_store(Settings(base=base)).git().run("config", "--list", "--show-origin").decode(), end="")
"""


def test_the_environment_of_the_host_does_not_change_what_git_does(
    base: Path, project: Path, tmp_path: Path, hostile: dict[str, str]
) -> None:
    (project / "mixed.txt").write_bytes(b"one\r\ntwo\n$Id$\n")
    done = subprocess.run(
        [sys.executable, "-c", USE_EVERYTHING, str(base), str(project)],
        env={**os.environ, **hostile}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stderr, done.returncode) == ("", 0)
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == {f"file:{base}/store/config"}
    assert list((tmp_path / "traces").iterdir()) == []
    assert (project / "mixed.txt").read_bytes() == b"one\r\ntwo\n$Id$\n"
    assert (project / "README.md").exists()
