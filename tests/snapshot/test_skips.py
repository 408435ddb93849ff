"""What is not captured is listed with its reason, and never costs the other files their protection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capturing import captured, content, everything_old, names, skipped, snap, store_git

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.git.objects import Unreadable
from shadowsnap.git.packs import NewObjects
from shadowsnap.snapshot import content as files

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX file types and permission bits")
MB = 1 << 20
ORDINARY = {"README.md", "src/main.py", "data.bin", "empty", "run.sh", "private.txt", "link"}


# --- size -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "kept"), [(MB - 1, True), (MB, True), (MB + 1, False)])
def test_the_size_cap_is_strictly_greater_than(base: Path, project: Path, size: int, kept: bool) -> None:
    (project / "file").write_bytes(b"x" * size)
    checkpoint = snap(base, project, max_file_size_mb=1)
    assert names(base, checkpoint) == (ORDINARY | {"file"} if kept else ORDINARY)
    assert skipped(checkpoint) == ({} if kept else {"file": "too-large"})


def test_the_default_cap_is_ten_megabytes(base: Path, project: Path) -> None:
    for name, size in (("just", 10 * MB), ("over", 10 * MB + 1)):
        with open(project / name, "wb") as file:
            file.truncate(size)
    assert skipped(snap(base, project)) == {"over": "too-large"}


def test_a_cap_of_zero_is_no_cap(base: Path, project: Path) -> None:
    with open(project / "sparse", "wb") as file:
        file.truncate(64 * MB)
    checkpoint = snap(base, project, max_file_size_mb=0)
    assert names(base, checkpoint) == ORDINARY | {"sparse"}
    assert checkpoint.skipped == ()


def test_size_is_checked_before_anything_is_read(base: Path, project: Path) -> None:
    """A terabyte would take hours to read."""
    with open(project / "huge", "wb") as file:
        file.truncate(1 << 40)
    checkpoint = snap(base, project, deadline=20)
    assert skipped(checkpoint) == {"huge": "too-large"}


def test_a_file_that_grows_is_dropped_and_one_that_shrinks_comes_back(base: Path, project: Path) -> None:
    (project / "file").write_bytes(b"small")
    assert "file" in names(base, snap(base, project, max_file_size_mb=1))
    (project / "file").write_bytes(b"x" * (MB + 1))
    checkpoint = snap(base, project, max_file_size_mb=1)
    assert "file" not in names(base, checkpoint) and skipped(checkpoint) == {"file": "too-large"}
    (project / "file").write_bytes(b"small again")
    checkpoint = snap(base, project, max_file_size_mb=1)
    assert content(base, checkpoint, "file") == b"small again" and not checkpoint.skipped


def test_a_large_file_is_left_out_although_named_or_tracked(base: Path, project: Path) -> None:
    (project / "file").write_bytes(b"x" * (MB + 1))
    git(project, "init", "-q")
    git(project, "add", "file")
    checkpoint = snap(base, project, "file", max_file_size_mb=1)
    assert skipped(checkpoint) == {"file": "too-large"}


def test_a_lower_cap_holds_for_files_that_are_known_already(base: Path, project: Path) -> None:
    (project / "file").write_bytes(b"x" * (MB + 1))
    with everything_old():
        assert "file" in names(base, snap(base, project))
    checkpoint = snap(base, project, max_file_size_mb=1)
    assert skipped(checkpoint) == {"file": "too-large"} and "file" not in names(base, checkpoint)
    assert "file" in names(base, snap(base, project))


# --- unreadable -------------------------------------------------------------------------------------


@posix
def test_an_unreadable_file_costs_only_itself(
    base: Path, project: Path, as_user: Callable[..., Any]
) -> None:
    (project / "closed").write_text("mine")
    (project / "closed").chmod(0)
    checkpoint = as_user(snap, base, project)
    assert skipped(checkpoint) == {"closed": "unreadable"}
    assert names(base, checkpoint) == ORDINARY


@posix
@pytest.mark.parametrize("bits", [0o000, 0o444, 0o311, 0o200])
def test_an_unreadable_directory_costs_only_itself(
    base: Path, project: Path, as_user: Callable[..., Any], bits: int
) -> None:
    (project / "closed" / "deeper" / "still").mkdir(parents=True)
    for folder in ("closed", "closed/deeper", "closed/deeper/still"):
        (project / folder / "file").write_text("inside")
    (project / "closed" / ".env").write_text("secret")
    os.mkfifo(project / "closed" / "fifo")

    def story() -> list[Any]:
        open_, seen = snap(base, project), []
        seen.append((skipped(open_), names(base, open_)))
        (project / "closed").chmod(bits)
        closed = snap(base, project)
        seen.append((skipped(closed), names(base, closed)))
        seen.append(snap(base, project).id == closed.id)
        (project / "closed").chmod(0o755)
        again = snap(base, project)
        seen.append(again.tree == open_.tree and again.skipped == open_.skipped)
        return seen

    inside = {"closed/file", "closed/deeper/file", "closed/deeper/still/file"}
    assert as_user(story) == [
        ({"closed/.env": "secret", "closed/fifo": "special"}, ORDINARY | inside),
        ({"closed/": "unreadable"}, ORDINARY),
        True,
        True,
    ]


@posix
@pytest.mark.parametrize("bits", [0o000, 0o444, 0o311])
def test_a_directory_that_was_never_readable_is_listed(
    base: Path, project: Path, as_user: Callable[..., Any], bits: int
) -> None:
    (project / "closed" / "deeper").mkdir(parents=True)
    (project / "closed" / "deeper" / "file").write_text("inside")
    (project / "closed" / "file").write_text("inside")
    (project / "closed").chmod(bits)

    def twice() -> list[Any]:
        one, other = snap(base, project), snap(base, project)
        return [skipped(one), names(base, one), other.id == one.id]

    assert as_user(twice) == [{"closed/": "unreadable"}, ORDINARY, True]


@posix
@pytest.mark.parametrize("bits", [0o000, 0o444])
def test_a_named_file_in_an_unreadable_directory_does_no_harm(
    base: Path, project: Path, as_user: Callable[..., Any], bits: int
) -> None:
    (project / "closed").mkdir()
    (project / "closed" / "file").write_text("inside")
    (project / "closed").chmod(bits)
    checkpoint = as_user(snap, base, project, "closed/file")
    assert skipped(checkpoint) == {"closed/": "unreadable"}
    assert names(base, checkpoint) == ORDINARY


@posix
def test_an_unreadable_file_is_never_captured_with_older_content(
    base: Path, project: Path, as_user: Callable[..., Any]
) -> None:
    """An older content of a file that cannot be read any more is not its content now."""

    def story() -> Any:
        snap(base, project)
        (project / "README.md").write_text("changed meanwhile")
        (project / "README.md").chmod(0)
        return snap(base, project)

    checkpoint = as_user(story)
    assert skipped(checkpoint) == {"README.md": "unreadable"}
    assert names(base, checkpoint) == ORDINARY - {"README.md"}


# --- neither file, directory nor link ---------------------------------------------------------------


@posix
def test_fifos_sockets_and_devices_are_left_out_without_waiting(base: Path, project: Path) -> None:
    os.mkfifo(project / "fifo")
    os.mkfifo(project / "src" / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(project)  # the path of a socket must be short
        listener.bind("socket")
        os.chdir("/")
        seen = {"fifo": "special", "src/fifo": "special", "socket": "special"}
        if os.geteuid() == 0:
            os.mknod(project / "device", 0o020666, os.makedev(1, 3))
            seen["device"] = "special"
        checkpoint = snap(base, project, deadline=20)
    assert skipped(checkpoint) == seen
    assert names(base, checkpoint) == ORDINARY
    assert snap(base, project, status="unchanged").id == checkpoint.id


@posix
def test_a_fifo_in_place_of_a_known_file_is_noticed_and_back(base: Path, project: Path) -> None:
    snap(base, project)
    (project / "README.md").unlink()
    os.mkfifo(project / "README.md")
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {"README.md": "special"} and "README.md" not in names(base, checkpoint)
    (project / "README.md").unlink()
    (project / "README.md").write_text("a file again")
    checkpoint = snap(base, project)
    assert not checkpoint.skipped and names(base, checkpoint) == ORDINARY


@posix
def test_a_named_fifo_does_no_harm(base: Path, project: Path) -> None:
    os.mkfifo(project / "fifo.log")
    checkpoint = snap(base, project, "fifo.log", deadline=20)
    assert skipped(checkpoint) == {"fifo.log": "special"}


# --- changing while it is read ----------------------------------------------------------------------


class Restless:
    """Writes to a file whenever it has been looked at, a given number of times."""

    def __init__(self, file: Path, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.left = file, times
        self.real = files._read_all
        monkeypatch.setattr(files, "_read_all", self.read)

    def read(self, descriptor: int, size: int) -> Any:
        found = self.real(descriptor, size)
        with open(self.file, "ab") as file:
            if self.left and os.path.sameopenfile(descriptor, file.fileno()):
                self.left -= 1
                file.write(b"more\n")
        return found


def test_a_file_that_changes_once_while_it_is_read_is_read_again(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Restless(project / "README.md", 1, monkeypatch)
    checkpoint = snap(base, project)
    assert content(base, checkpoint, "README.md") == (project / "README.md").read_bytes()
    assert checkpoint.skipped == ()


def test_a_file_that_keeps_changing_is_listed_as_skipped(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restless = Restless(project / "README.md", 2, monkeypatch)
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {"README.md": "changing"}
    assert names(base, checkpoint) == ORDINARY - {"README.md"}
    assert restless.left == 0
    assert content(base, snap(base, project), "README.md") == (project / "README.md").read_bytes()


def test_a_changing_file_is_never_captured_with_older_content(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snap(base, project)
    (project / "README.md").write_text("on the way")
    Restless(project / "README.md", 2, monkeypatch)
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {"README.md": "changing"} and "README.md" not in names(base, checkpoint)


def test_a_large_file_that_changes_between_its_two_readings_is_left_out(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are named first and written afterwards, in two passes."""
    large = project / "large"
    large.write_bytes(b"x" * (3 * MB))
    restless = Restless(large, 0, monkeypatch)
    real = restless.real

    def then_write(descriptor: int, size: int) -> Any:
        found = real(descriptor, size)
        if size == 3 * MB:
            os.truncate(large, 2 * MB)
            os.utime(large)
        return found

    monkeypatch.setattr(files, "_read_all", then_write)
    checkpoint = snap(base, project)
    assert names(base, checkpoint) in (ORDINARY, ORDINARY | {"large"})
    if "large" in names(base, checkpoint):
        assert content(base, checkpoint, "large") == large.read_bytes()
    else:
        assert skipped(checkpoint) == {"large": "changing"}
    assert git(base, "--git-dir=store", "fsck", "--full", "--strict", "--no-dangling") == ""


# --- secrets ----------------------------------------------------------------------------------------

SECRETS = (
    ".env", ".env.local", ".env.production", "prod.env", "server.pem", "server.key", "cert.p12", "cert.pfx",
    "store.jks", "app.keystore", "passwords.kdbx", "putty.ppk", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519",
    ".netrc", "_netrc", ".pgpass", ".pypirc", ".git-credentials", ".htpasswd", "ID_RSA", ".ENV",
)  # fmt: skip
NOT_SECRETS = (
    ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "example.env", "env",
    "id_rsa.pub", "keys.py", "environment.ts", ".envrc", "pem", "key.md", "ID_RSA.PUB", "monkey", ".ENV.EXAMPLE",
)  # fmt: skip


@pytest.mark.parametrize("where", ["", "deep/er/"])
def test_secrets_are_left_out_and_their_examples_are_not(base: Path, project: Path, where: str) -> None:
    (project / where).mkdir(parents=True, exist_ok=True)
    for name in (*SECRETS, *NOT_SECRETS):
        (project / where / name).write_text("TOKEN=hunter2")
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {where + name: "secret" for name in SECRETS}
    assert names(base, checkpoint) == ORDINARY | {where + name for name in NOT_SECRETS}


def test_no_byte_of_a_secret_reaches_the_store(base: Path, project: Path) -> None:
    (project / ".env").write_bytes(os.urandom(64))
    name = git(project, "hash-object", "--no-filters", ".env")
    snap(base, project, ".env")
    assert name.encode() not in _all_objects(base)
    (project / "public").write_bytes((project / ".env").read_bytes())
    snap(base, project)
    assert name.encode() in _all_objects(base)


def _all_objects(base: Path) -> bytes:
    return store_git(base, "cat-file", "--batch-check", "--batch-all-objects")


def test_secrets_are_left_out_although_named(base: Path, project: Path) -> None:
    (project / ".env").write_text("TOKEN=hunter2")
    git(project, "init", "-q")
    checkpoint = snap(base, project, ".env")
    assert skipped(checkpoint) == {".env": "secret"} and ".env" not in names(base, checkpoint)


def test_the_settings_may_include_secrets_and_leave_them_out_again(base: Path, project: Path) -> None:
    (project / ".env").write_text("TOKEN=hunter2")
    with everything_old():
        checkpoint = snap(base, project, include_secrets=True)
    assert content(base, checkpoint, ".env") == b"TOKEN=hunter2" and not checkpoint.skipped
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {".env": "secret"} and ".env" not in names(base, checkpoint)
    assert ".env" in names(base, snap(base, project, include_secrets=True))


def test_secrets_in_a_directory_of_their_own_are_listed_every_time(base: Path, project: Path) -> None:
    (project / "secrets").mkdir()
    (project / "secrets" / ".env").write_text("TOKEN=hunter2")
    with everything_old():
        checkpoint = snap(base, project)
        assert skipped(checkpoint) == {"secrets/.env": "secret"}
        assert snap(base, project, status="unchanged").id == checkpoint.id
        (project / "README.md").write_text("another state")
        assert skipped(snap(base, project, status="taken")) == {"secrets/.env": "secret"}


def test_a_secret_that_does_not_exist_is_not_listed(base: Path, project: Path) -> None:
    assert snap(base, project, ".env").skipped == ()


# --- what git cannot store --------------------------------------------------------------------------


@posix
def test_names_that_git_cannot_store_cost_only_themselves(base: Path, project: Path) -> None:
    (project / ".GIT").mkdir()
    (project / ".GIT" / "x").write_text("")
    (project / "src" / ".Git").write_text("")
    (project / ".gitmodules").symlink_to("README.md")
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {
        ".GIT/x": "unstorable",
        "src/.Git": "unstorable",
        ".gitmodules": "unstorable",
    }
    assert names(base, checkpoint) == ORDINARY
    assert snap(base, project, status="unchanged").id == checkpoint.id
    assert git(base, "--git-dir=store", "fsck", "--full", "--strict", "--no-dangling") == ""


@pytest.mark.parametrize("broken", ["[submodule", "[submodule \"x\"]\n\tpath = ../../x\n\turl = -x\n", "\0\xff"])
def test_a_broken_gitmodules_does_no_harm(base: Path, project: Path, broken: str) -> None:
    (project / ".gitmodules").write_text(broken)
    (project / ".gitattributes").write_text(broken)
    (project / ".gitignore").write_text(broken)
    checkpoint = snap(base, project)
    assert captured(base, checkpoint) == manifest(project)
    (project / "README.md").write_text("changed")
    assert captured(base, snap(base, project)) == manifest(project)


# --- all at once ------------------------------------------------------------------------------------


@posix
def test_one_bad_file_of_every_kind_costs_none_of_the_others(
    base: Path, project: Path, as_user: Callable[..., Any]
) -> None:
    for number in range(120):  # enough for the way that many files take
        (project / f"good-{number}").write_text(str(number))
    (project / "closed").write_text("")
    (project / "closed").chmod(0)
    (project / "shut").mkdir()
    (project / "shut").chmod(0)
    (project / ".env").write_text("")
    (project / "large").write_bytes(b"x" * (MB + 1))
    (project / ".GIT").write_text("")
    os.mkfifo(project / "fifo")
    (project / "nested").mkdir()
    git(project / "nested", "init", "-q")
    (project / ".gitattributes").write_text("* working-tree-encoding=NO-SUCH-ENCODING\n")

    checkpoint = as_user(_take, base, project)
    assert skipped(checkpoint) == {
        "closed": "unreadable",
        "shut/": "unreadable",
        ".env": "secret",
        "large": "too-large",
        ".GIT": "unstorable",
        "fifo": "special",
    }
    assert names(base, checkpoint) == ORDINARY | {f"good-{number}" for number in range(120)} | {".gitattributes"}


def _take(base: Path, project: Path) -> Any:
    return snap(base, project, max_file_size_mb=1)


def test_the_outcome_lists_what_was_skipped(base: Path, project: Path) -> None:
    (project / ".env").write_text("")
    manager = CheckpointManager(base=base, fsync=False)
    outcome = manager.ensure_checkpoint(project, paths=["/etc/passwd", "../elsewhere"])
    assert [(item.path, item.why) for item in outcome.skipped] == [
        (".env", "secret"),
        ("/etc/passwd", "outside"),
        ("../elsewhere", "outside"),
    ]


@posix
@pytest.mark.parametrize("kind", ["unreadable", "directory", "link", "too large", "binary"])
def test_a_gitignore_of_any_kind_does_no_harm(
    base: Path, project: Path, as_user: Callable[..., Any], kind: str
) -> None:
    rules = project / ".gitignore"
    if kind == "directory":
        rules.mkdir()
    elif kind == "link":
        rules.symlink_to("README.md")
    elif kind == "binary":
        rules.write_bytes(bytes(range(256)) * 10)
    else:
        rules.write_text("# long\n" * (200_000 if kind == "too large" else 1))
        rules.chmod(0 if kind == "unreadable" else 0o644)

    def story() -> list[Any]:
        first = snap(base, project, max_file_size_mb=1, deadline=20)
        (project / "README.md").write_text("changed")
        second = snap(base, project, max_file_size_mb=1, deadline=20)
        third = snap(base, project, max_file_size_mb=1, deadline=20)
        return [names(base, second) >= ORDINARY, first.id != second.id, third.id == second.id, skipped(third)]

    why = {"unreadable": "unreadable", "too large": "too-large"}
    seen = {".gitignore": why[kind]} if kind in why else {}
    assert as_user(story) == [True, True, True, seen]


@posix
@pytest.mark.parametrize("bits", [0o000, 0o400])
@pytest.mark.parametrize("watched", [False, True])
def test_a_tracked_file_in_an_ignored_directory_that_is_closed_is_listed(
    base: Path, project: Path, as_user: Callable[..., Any], bits: int, watched: bool
) -> None:
    """What was captured of it earlier may no longer be what it contains."""

    def story() -> list[tuple[bool, list[str]]]:
        (project / "build" / "deep").mkdir(parents=True)
        (project / "build" / "deep" / "tracked").write_text("one")
        git(project, "init", "-q")
        git(project, "add", "-f", "build/deep/tracked")
        manager = CheckpointManager(base=base, fsync=False)
        if watched:
            manager.watch(project)
        found = []
        with everything_old():
            for text, bits_now in (("one", 0o755), ("changed", bits), ("", bits), ("", 0o755)):
                if text:
                    (project / "build" / "deep" / "tracked").write_text(text)
                (project / "build" / "deep").chmod(bits_now)
                checkpoint = manager.snapshot(project).checkpoint
                assert checkpoint is not None
                listed = [item.path for item in checkpoint.skipped]
                found.append(("build/deep/tracked" in manager.files(project, checkpoint), listed))
        return found

    there, closed = (True, []), (False, ["build/deep/tracked"])
    assert as_user(story) == [there, closed, closed, there]


@posix
def test_a_directory_like_a_repository_costs_no_permission_bits_and_no_empty_directory(
    base: Path, project: Path
) -> None:
    """No restore makes a directory like .GIT, so that a checkpoint cannot record it."""
    for folder in ("src/.GIT/inside", "hollow"):
        (project / folder).mkdir(parents=True)
    (project / "src/.GIT").chmod(0o700)
    (project / "src/.GIT/.gitignore").write_text("x\n")
    for number in range(9):  # in whatever order a set has them
        (project / f".Git/{number}/{number}").mkdir(parents=True)
    manager = CheckpointManager(base=base, fsync=False)
    checkpoint = snap(base, project)
    assert skipped(checkpoint) == {
        **{f".Git/{number}/{number}/": "unstorable" for number in range(9)},
        "src/.GIT/.gitignore": "unstorable",
        "src/.GIT/inside/": "unstorable",
    }
    assert manager.snapshot(project).status == "unchanged"
    before = manifest(project)
    (project / "private.txt").unlink()
    (project / "run.sh").chmod(0o644)
    (project / "hollow").rmdir()
    manager.restore(project, checkpoint)
    assert manifest(project) == before


@posix
def test_an_older_checkpoint_that_records_such_a_directory_keeps_the_other_facts(
    base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "src/.GIT").mkdir(mode=0o700)
    (project / "hollow").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("shadowsnap.snapshot.capture.recordable", set)
        checkpoint = snap(base, project)
    facts = CheckpointManager(base=base, fsync=False).get(project, checkpoint.id).metadata
    assert b"src/.GIT" in store_git(base, "cat-file", "commit", checkpoint.id)
    assert facts["empty_dirs"] == ["hollow"]
    assert facts["modes"]["other"]["private.txt"] == "600" and "src/.GIT" not in facts["modes"]["other"]


SMALL_STORE = """
import resource, sys
from shadowsnap import CheckpointManager

resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
outcome = CheckpointManager(base=sys.argv[1], fsync=False).ensure_checkpoint(sys.argv[2])
print(outcome.status, type(outcome.error).__name__)
"""


@posix
def test_a_large_file_that_finds_no_space_in_the_store_is_not_called_unreadable(base: Path, project: Path) -> None:
    (project / "large").write_bytes(os.urandom(2 * MB))
    command = [sys.executable, "-c", SMALL_STORE, str(base), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["failed", "DiskFull"]
    assert skipped(snap(base, project)) == {}


@posix
def test_a_large_file_that_cannot_be_read_is_left_out_alone(tmp_path: Path) -> None:
    objects = NewObjects(tmp_path / "objects", fsync=False)
    (tmp_path / "large").write_bytes(bytes(2 * MB))
    descriptor = os.open(tmp_path / "large", os.O_WRONLY)
    try:
        with pytest.raises(Unreadable):
            objects.write_stream(descriptor, 2 * MB)
    finally:
        os.close(descriptor)


FEW_FILES = """
import os, resource, sys
from pathlib import Path
from shadowsnap import CheckpointManager

base, project = Path(sys.argv[1]), Path(sys.argv[2])
for limit in range(6, 26):
    process = os.fork()
    if process:
        os.waitpid(process, 0)
        continue
    manager = CheckpointManager(base=base / str(limit), fsync=False, background_upkeep=False)
    if sys.argv[3] == "later":
        manager.ensure_checkpoint(project)
        manager.new_turn()
        (project / "README.md").write_text(f"{limit}")
        (project / "src" / f"new-{limit}").touch()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    outcome = manager.ensure_checkpoint(project, paths=["ignored"])
    error = type(outcome.error).__name__
    with open(1, "w") as out:
        print(limit, outcome.status, error, outcome.checkpoint.tree if outcome.checkpoint else None, file=out)
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the number of open files that a snapshot needs elsewhere")
@pytest.mark.parametrize("moment", ["first", "later"])
def test_with_few_open_files_a_snapshot_is_complete_or_failed(base: Path, project: Path, moment: str) -> None:
    (project / "src" / "deep" / "deeper").mkdir(parents=True)
    (project / "src" / "deep" / "deeper" / "file").write_text("deep\n")
    (project / ".gitignore").write_text("ignored/\n")
    (project / "ignored" / "inner").mkdir(parents=True)
    (project / "ignored" / "inner" / "file").write_text("ignored\n")
    command = [sys.executable, "-c", FEW_FILES, str(base), str(project), moment]
    done = subprocess.run(command, capture_output=True, text=True, check=True, close_fds=True)
    seen = [line.split() for line in done.stdout.splitlines()]
    assert {status for _, status, _, _ in seen} == {"failed", "taken"}, done.stdout
    assert {error for _, status, error, _ in seen if status == "failed"} == {"OutOfResources"}, done.stdout
    for limit, status, _, tree in seen:
        if status == "taken":
            whole = {*ORDINARY, ".gitignore", "src/deep/deeper/file", "ignored/inner/file"}
            whole |= {f"src/new-{each}" for each in range(6, int(limit) + 1)} if moment == "later" else set()
            listed = store_git(base / limit, "ls-tree", "-r", "-z", "--name-only", tree).decode()
            assert set(listed.split("\0")[:-1]) == whole, limit


def test_a_name_that_cannot_be_stored_is_skipped_only_while_it_exists(base: Path, project: Path) -> None:
    (project / "nested").mkdir()
    (project / "nested" / ".git").write_text("gitdir: elsewhere\n")
    (project / "a").write_text("1\n")
    manager = CheckpointManager(base=base, background_upkeep=False)
    taken = manager.snapshot(project).checkpoint
    assert taken is not None and [item.path for item in taken.skipped] == ["nested/.git"]
    (project / "nested" / ".git").unlink()
    later = manager.snapshot(project).checkpoint
    assert later is not None and later.skipped == ()
