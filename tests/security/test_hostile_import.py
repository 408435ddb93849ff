"""An imported repository can neither run a program, nor have anything fetched, nor keep the import waiting, nor
fill memory or disk. What cannot be used of it is left out and named; the rest is imported."""

from __future__ import annotations

import os
import time
import zlib
from pathlib import Path

import pytest
from older_tools import hermes_directory

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.errors import DeadlineExceeded, NothingToImport
from shadowsnap.git import repository as environment
from shadowsnap.git.objects import LooseObjects

MISSING = "a missing file that has to be fetched\n"


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def hostile(tmp_path: Path, canary: Path) -> Path:
    """A repository of an older tool whose configuration names a program wherever git would run one, and that lacks
    an object which its configuration says can be fetched."""
    states = [("first", 1_700_000_000, {"a": "a\n", "b": MISSING}), ("second", 1_700_000_100, {"a": "changed\n"})]
    repository = hermes_directory(tmp_path / "older", tmp_path / "workdir", states)  # type: ignore[arg-type]
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {canary}\n")
    program.chmod(0o755)
    (repository / "hooks").mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "pre-auto-gc", "post-checkout"):
        (repository / "hooks" / name).write_text(program.read_text())
        (repository / "hooks" / name).chmod(0o755)
    for name, value in {
        "core.repositoryformatversion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.partialclonefilter": "blob:none", "remote.origin.url": f"ext::{program} %S",
        "remote.origin.uploadpack": str(program), "remote.origin.vcs": "", "protocol.allow": "always",
        "protocol.ext.allow": "always", "protocol.file.allow": "always", "core.fsmonitor": str(program),
        "core.sshCommand": str(program), "core.gitProxy": str(program), "core.pager": str(program),
        "core.editor": str(program), "core.askPass": str(program), "core.alternateRefsCommand": str(program),
        "credential.helper": str(program), "diff.external": str(program), "gpg.program": str(program),
        "uploadpack.packObjectsHook": str(program), "pager.log": str(program), "log.showSignature": "true",
    }.items():  # fmt: skip
        git(repository, "--git-dir", repository, "config", name, value)
    git(repository, "--git-dir", repository, "config", "--unset", "remote.origin.vcs")
    blob = git(tmp_path, "hash-object", "--stdin", stdin=MISSING.encode())
    (repository / "objects" / blob[:2] / blob[2:]).unlink()
    return repository


@pytest.mark.parametrize("url", ["ext::{} %S", "ssh://host/{}", "{}", "https://127.0.0.1:1/{}", "git://127.0.0.1/{}"])
@pytest.mark.parametrize("knows_the_variable", [True, False], ids=["new git", "git before 2.39.4"])
@pytest.mark.each_value
def test_nothing_is_run_or_fetched(
    base: Path, hostile: Path, canary: Path, tmp_path: Path, url: str, knows_the_variable: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """An older git does not know the variable that keeps it from fetching: as if it were not set."""
    git(hostile, "--git-dir", hostile, "config", "remote.origin.url", url.format(tmp_path / "evil"))
    if not knows_the_variable:
        monkeypatch.delitem(environment._SEALED, "GIT_NO_LAZY_FETCH")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    began = time.monotonic()
    for dry_run in (True, False):
        report = manager.import_from(hostile.parent, dry_run=dry_run)
    assert time.monotonic() - began < 20 and not canary.exists()
    assert [item.status for item in report.items] == ["failed", "failed"]  # both hold what is not there


def test_the_canary_would_sing(hostile: Path, canary: Path, tmp_path: Path) -> None:
    """Git as people run it does run what that configuration names."""
    blob = git(tmp_path, "hash-object", "--stdin", stdin=MISSING.encode())
    with pytest.raises(AssertionError):
        git(hostile, "--git-dir", hostile, "cat-file", "blob", blob)
    assert canary.exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("odd", ["pipe", "device"])
@pytest.mark.parametrize("name", ["HERMES_WORKDIR", "info/exclude", "packed-refs", "config", "HEAD"])
@pytest.mark.each_value
def test_a_pipe_or_a_device_in_place_of_a_file_is_not_read(base: Path, hostile: Path, name: str, odd: str) -> None:
    path = hostile / name
    path.unlink(missing_ok=True)
    if odd == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    try:
        report = manager.import_from(hostile.parent)
    except NothingToImport:
        assert name == "HEAD"  # which makes a repository of a directory
    else:
        assert name != "HEAD"
        assert all(item.status != "imported" for item in report.items)


class Older:
    """A repository of an older tool into which any object can be put."""

    def __init__(self, tmp_path: Path) -> None:
        self.workdir = tmp_path / "workdir"
        self.workdir.mkdir()
        states = [("sound", 1_700_000_000, {"a": "a\n"})]
        self.path = hermes_directory(tmp_path / "older", self.workdir, states)  # type: ignore[arg-type]
        self._objects = LooseObjects(self.path / "objects", fsync=False)
        self._number = 0

    def blob(self, data: bytes) -> str:
        return self._objects.write(b"blob", data)

    def tree(self, *entries: tuple[str, bytes, str]) -> str:
        rows = [mode.encode() + b" " + name + b"\0" + bytes.fromhex(child) for mode, name, child in entries]
        return self._objects.write(b"tree", b"".join(rows))

    def commit(self, tree: str, message: bytes = b"odd", date: bytes = b"1700000100 +0000") -> str:
        who = b"a <a@b> " + date
        return self.raw(b"tree %s\nauthor %s\ncommitter %s\n\n%s" % (tree.encode(), who, who, message))

    def raw(self, data: bytes) -> str:
        """A commit of these bytes, which a branch of its own leads to."""
        name = self._objects.write(b"commit", data)
        self._number += 1
        (self.path / "refs" / "heads" / f"odd-{self._number}").write_text(name + "\n")
        return name


@pytest.fixture
def older(tmp_path: Path) -> Older:
    return Older(tmp_path)


def imported(base: Path, older: Older) -> tuple[CheckpointManager, dict[str, str]]:
    """The manager, and what became of each commit by its reason, or by why it failed."""
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    report = manager.import_from(older.path.parent)
    assert not list((base / "store").glob("scratch-*"))
    return manager, {item.reason or item.why: item.status for item in report.items}


def test_a_commit_that_cannot_be_used_is_left_out_and_the_rest_is_imported(base: Path, older: Older) -> None:
    odd = [b"", b"\n\n", b"tree x\n\nm", b"tree " + b"0" * 40 + b"\nparent x\n\nm", b"author a <a> 1 +0000\n\nm"]
    names = [older.raw(data) for data in odd]
    large = older.commit(older.tree(), b"x" * (17 << 20))
    older.commit(older.tree(("100644", b"a", older.blob(b"2\n"))), b"in the year 10^5000", b"9" * 5000 + b" +0000")
    older.commit(older.tree(("100644", b"a", older.blob(b"3\n"))), b"y" * (1 << 20))
    manager, seen = imported(base, older)
    for name in names:
        assert seen[f"commit {name[:12]} is not one that git would write"] == "failed"
    assert seen[f"commit {large[:12]} is too large"] == "failed"
    assert seen["sound"] == seen["in the year 10^5000"] == "imported"
    listed = manager.list_checkpoints(older.workdir)
    assert len(listed) == 3 and max(len(each.reason) for each in listed) <= 1 << 16


@pytest.mark.parametrize("leaf", [b"leaf", b".git"])
def test_trees_that_stand_for_billions_of_paths_are_not_imported(base: Path, older: Older, leaf: bytes) -> None:
    tree = older.tree(("100644", leaf, older.blob(b"x")))
    for _ in range(10):
        tree = older.tree(*(("40000", b"d%d" % number, tree) for number in range(10)))
    older.commit(tree)
    began = time.monotonic()
    _, seen = imported(base, older)
    assert seen == {"sound": "imported", "odd": "failed"} and time.monotonic() - began < 20


def test_entries_that_no_checkpoint_may_hold_are_left_out_and_listed(base: Path, older: Older) -> None:
    blob, folder = older.blob(b"x"), older.tree(("100644", b"x", older.blob(b"y")))
    tree = older.tree(
        ("100664", b"kept", blob), ("20000", b"device", blob), ("160000", b"module", blob), ("120000", b"nul",
        older.blob(b"a\0b")), ("120000", b"D", older.blob(b"/outside")), ("40000", b"d", folder),
        ("40000", ".g\u00adit".encode(), folder), ("100644", b"README", blob), ("100644", b"readme", blob),
    )  # fmt: skip
    older.commit(tree)
    manager, seen = imported(base, older)
    assert seen["odd"] == "imported"
    newest = manager.list_checkpoints(older.workdir)[0]
    assert {item.path: item.why for item in newest.skipped} == {
        "device": "unstorable", "module/": "repository", "nul": "unstorable", ".g\u00adit/": "unstorable",
    }  # fmt: skip
    assert manager.files(older.workdir, newest.id) == ["D", "README", "d/x", "kept", "readme"]
    assert manager.doctor().healthy


def test_a_small_object_that_expands_is_not_inflated(base: Path, older: Older) -> None:
    """Only its header is read: the rest of it is not even there."""
    name = "12" * 20
    path = older.path / "objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(b"blob %d\0" % (1 << 40) + bytes(1 << 16)))
    older.commit(older.tree(("100644", b"large", name), ("100644", b"small", older.blob(b"x"))))
    manager, seen = imported(base, older)
    assert seen["odd"] == "imported"
    newest = manager.list_checkpoints(older.workdir)[0]
    assert [(item.path, item.why) for item in newest.skipped] == [("large", "too-large")]
    assert manager.files(older.workdir, newest.id) == ["small"]


def test_an_import_that_runs_out_of_time_leaves_no_scratch(base: Path, older: Older) -> None:
    manager = CheckpointManager(base=base, background_upkeep=False, upkeep_deadline=0.001)
    with pytest.raises(DeadlineExceeded):
        manager.import_from(older.path.parent)
    assert not list((base / "store").glob("scratch-*"))
