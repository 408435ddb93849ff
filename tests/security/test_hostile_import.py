"""An imported repository can neither run a program, nor have anything fetched, nor keep the import waiting."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from older_tools import hermes_directory

from helpers import git
from shadowsnap import CheckpointManager
from shadowsnap.errors import NothingToImport
from shadowsnap.git import repository as environment

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
    manager = CheckpointManager(base=base, background_upkeep=False)
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
    manager = CheckpointManager(base=base, background_upkeep=False)
    try:
        report = manager.import_from(hostile.parent)
    except NothingToImport:
        assert name not in ("HERMES_WORKDIR", "info/exclude")
    else:
        assert name in ("HERMES_WORKDIR", "info/exclude")
        assert all(item.status != "imported" for item in report.items)
