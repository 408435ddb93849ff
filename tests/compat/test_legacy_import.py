"""Importing: checkpoints of other tools become ours, with dates, reasons and trees; the source is only read."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from older_tools import entire, hermes_directory, hermes_store, praisonai, run, write

from helpers import git, manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import NothingToImport
from shadowsnap.model import Checkpoint
from shadowsnap.results import ImportedItem, ImportReport
from shadowsnap.store.projects import project_of

T = 1_700_000_000
STATES = [
    ("before write_file", T, {"a.txt": "one\n", "src/b.py": "b = 1\n", "run.sh*": "#!/bin/sh\n"}),
    ("before patch: fix | the, thing", T + 60, {"a.txt": "two\n", "src/c.py": "c = 1\n"}),
    ("before terminal", T + 60, {"src/b.py": None, "bytes.bin": bytes(range(256)), "crlf.txt": b"x\r\ny\r\n"}),
]
TOOLS = {"hermes-directory": hermes_directory, "hermes-store": hermes_store, "praisonai": praisonai}
tools = pytest.mark.parametrize("layout", TOOLS)


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "of-another-tool"


def exact(folder: Path) -> dict[bytes, tuple[str, int, bytes | None, int]]:
    """Every byte and every mtime."""
    pictures = manifest(folder) | {b".git/" + name: entry for name, entry in _dotgit(folder).items()}
    return {
        name: (*entry, os.lstat(os.path.join(os.fsencode(folder), name)).st_mtime_ns)
        for name, entry in pictures.items()
    }


def _dotgit(folder: Path) -> dict[bytes, tuple[str, int, bytes | None]]:
    return manifest(folder / ".git") if (folder / ".git").is_dir() else {}


def reasons_and_times(checkpoints: list[Checkpoint]) -> list[tuple[str, int]]:
    return [(each.reason, int(each.created_at.timestamp())) for each in reversed(checkpoints)]


# --- every layout -----------------------------------------------------------------------------------


@tools
def test_dates_reasons_and_trees_are_as_they_were(
    layout: str, manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    repository = TOOLS[layout](source, workdir, STATES)
    report = manager.import_from(source)
    assert (report.imported, report.failed, report.layouts) == (3, 0, (layout,))
    found = manager.list_checkpoints(workdir)
    assert reasons_and_times(found) == [(reason, at) for reason, at, _ in STATES]
    git_dir = repository / ".git" if layout == "praisonai" else repository
    for each in found:
        assert each.tree == git(git_dir, "rev-parse", f"{each.metadata['original_id']}^{{tree}}")
        assert each.metadata["imported_from"] == layout and each.kind == "manual" and each.scope == "tree"
        assert each.created_at.tzinfo is not None
    git(manager.settings.resolved_base() / "store", "fsck", "--full", "--strict")


@tools
def test_an_imported_state_is_restored_byte_by_byte(
    layout: str, manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    pictures = []
    for number in range(len(STATES)):
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(workdir, ignore_errors=True)
        TOOLS[layout](source, workdir, STATES[: number + 1])
        pictures.append(manifest(workdir))
    manager.import_from(source)
    shutil.rmtree(source)
    for checkpoint, picture in zip(reversed(manager.list_checkpoints(workdir)), pictures, strict=True):
        manager.restore(workdir, checkpoint.id)
        assert manifest(workdir) == picture


@tools
def test_the_source_is_not_changed_in_a_single_byte(
    layout: str, manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    TOOLS[layout](source, workdir, STATES)
    for folder in (source, *source.rglob("*")):
        if folder.is_dir():
            os.utime(folder, (T, T))
    before, files = {path: exact(path) for path in (source, *source.iterdir())}, exact(workdir)
    manager.import_from(source, dry_run=True)
    manager.import_from(source)
    assert {path: exact(path) for path in (source, *source.iterdir())} == before
    assert exact(workdir) == files


@tools
def test_a_second_import_adds_nothing(
    layout: str, manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    TOOLS[layout](source, workdir, STATES)
    manager.import_from(source)
    before = manager.list_checkpoints(workdir)
    report = manager.import_from(source)
    assert (report.imported, report.failed) == (0, 0)
    assert report.skipped == 3 + (layout == "praisonai")
    assert manager.list_checkpoints(workdir) == before


@tools
def test_a_dry_run_reports_and_changes_nothing(
    layout: str, manager: CheckpointManager, base: Path, source: Path, tmp_path: Path, project: Path
) -> None:
    workdir = tmp_path / "work"
    TOOLS[layout](source, workdir, STATES)
    manager.ensure_checkpoint(project, "to have a store")
    before = manifest(base)
    report = manager.import_from(source, dry_run=True)
    assert not report.applied and report.imported == 3
    importable = [item.reason for item in report.items if item.status == "imported"]
    assert importable == [reason for reason, _, _ in STATES]
    assert {item.workdir for item in report.items} == {str(workdir)}
    assert manifest(base) == before


@tools
def test_the_order_within_one_second_is_kept(
    layout: str, manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    states = [(f"step {number}", T, {"a.txt": f"{number}\n"}) for number in range(7)]
    TOOLS[layout](source, workdir, states)
    manager.import_from(source)
    assert reasons_and_times(manager.list_checkpoints(workdir)) == [(reason, at) for reason, at, _ in states]


@tools
def test_a_directory_that_is_gone_keeps_its_checkpoints(
    layout: str, manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    TOOLS[layout](source, workdir, STATES)
    shutil.rmtree(workdir)
    assert manager.import_from(source).imported == 3
    workdir.mkdir()
    manager.restore(workdir, "last")
    assert (workdir / "a.txt").read_text() == "two\n"


# --- beside our own checkpoints ---------------------------------------------------------------------


def test_imported_checkpoints_take_their_place_in_time(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    hermes_store(source, workdir, STATES)
    ours = manager.ensure_checkpoint(workdir, "ours").checkpoint
    manager.import_from(source)
    assert [each.reason for each in manager.list_checkpoints(workdir)] == [
        "ours", "before terminal", "before patch: fix | the, thing", "before write_file",
    ]  # fmt: skip
    assert manager.get(workdir, "last").id == ours.id
    assert manager.ensure_checkpoint(workdir, "again").status == "already-taken"
    manager.new_turn()
    assert manager.ensure_checkpoint(workdir, "again").status == "unchanged"


def test_an_undo_returns_from_an_imported_state(manager: CheckpointManager, source: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    hermes_store(source, workdir, STATES)
    manager.import_from(source)
    write(workdir, {"later.txt": "later\n", "a.txt": "three\n"})
    before = manifest(workdir)
    manager.restore(workdir, "last~2")
    assert not (workdir / "later.txt").exists() and (workdir / "a.txt").read_text() == "one\n"
    manager.undo(workdir)
    assert manifest(workdir) == before


def test_what_the_other_tool_did_not_capture_is_left_alone(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    """Its excludes are remembered with each checkpoint; permission bits and empty directories it never knew."""
    workdir = tmp_path / "work"
    hermes_store(source, workdir, STATES)
    manager.import_from(source)
    write(workdir, {"coverage/report.txt": "mine\n", "secret.txt": "mine\n"})
    (workdir / "a.txt").chmod(0o600)
    (workdir / "src" / "c.py").chmod(0o640)
    (workdir / "hollow").mkdir(mode=0o700)
    result = manager.restore(workdir, "last~1")
    assert (workdir / "coverage" / "report.txt").exists()
    assert "coverage/report.txt" in {kept.path for kept in result.kept}
    assert not (workdir / "secret.txt").exists()  # it was not excluded, so it did not exist then
    assert (workdir / "a.txt").stat().st_mode & 0o777 == 0o600
    assert (workdir / "src" / "c.py").stat().st_mode & 0o777 == 0o640
    assert (workdir / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (workdir / "hollow").is_dir()


def test_a_diff_against_an_imported_state_shows_contents_and_no_permission_bits(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    hermes_store(source, workdir, STATES)
    manager.import_from(source)
    (workdir / "a.txt").chmod(0o600)
    (workdir / "hollow").mkdir()
    assert not manager.diff(workdir, "last")
    (workdir / "a.txt").write_text("three\n")
    (change,) = manager.diff(workdir, "last").changes
    assert (change.path, change.status) == ("a.txt", "modified")


# --- progress and interruption ----------------------------------------------------------------------


def test_progress_counts_up_to_the_total(manager: CheckpointManager, source: Path, tmp_path: Path) -> None:
    hermes_store(source, tmp_path / "one", STATES)
    hermes_store(source, tmp_path / "two", STATES[:2])
    seen: list[tuple[int, int, str]] = []
    manager.import_from(source, on_progress=lambda done, total, item: seen.append((done, total, item.status)))
    assert seen == [(number, 5, "imported") for number in range(1, 6)]


def test_an_interrupted_import_goes_on_where_it_stopped(
    manager: CheckpointManager, base: Path, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    states = [(f"step {number}", T + number, {"a.txt": f"{number}\n"}) for number in range(120)]
    hermes_store(source, workdir, states)

    def stop(done: int, _: int, item: ImportedItem) -> None:
        if done == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        manager.import_from(source, on_progress=stop)
    assert list((base / "store").glob("scratch-*")) == []
    report = manager.import_from(source)
    assert (report.skipped, report.imported, report.failed) == (70, 50, 0)
    assert reasons_and_times(manager.list_checkpoints(workdir)) == [(reason, at) for reason, at, _ in states]
    assert manager.doctor().findings == ()


# --- odd sources ------------------------------------------------------------------------------------


def test_a_nested_repository_that_was_recorded_as_a_link_is_left_alone(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    nested = workdir / "nested"
    nested.mkdir(parents=True)
    git(nested, "init", "-q")
    (nested / "inner.txt").write_text("inner\n")
    git(nested, "add", "-A")
    git(nested, "commit", "-q", "-m", "inner")
    hermes_store(source, workdir, STATES)
    report = manager.import_from(source)
    assert (report.imported, report.failed) == (3, 0)
    first = manager.list_checkpoints(workdir)[-1]
    assert [(item.path, item.why) for item in first.skipped] == [("nested/", "repository")]
    manager.restore(workdir, first.id)
    assert (nested / "inner.txt").read_text() == "inner\n" and (workdir / "a.txt").read_text() == "one\n"
    assert git(nested, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", [b".git", b".GIT", b"..", b".git ", b"git~1"])
def test_names_that_reach_elsewhere_are_left_out(
    manager: CheckpointManager, source: Path, tmp_path: Path, name: bytes
) -> None:
    workdir = tmp_path / "work"
    store = hermes_store(source, workdir, STATES[:1])
    blob = git(store, "hash-object", "-w", "--stdin", stdin=b"#!/bin/sh\nevil\n")
    evil = _tree(store, [(b"100755", b"pre-commit", blob)])
    good = git(store, "hash-object", "-w", "--stdin", stdin=b"good\n")
    tree = _tree(store, [(b"40000", name, evil), (b"100664", b"fine.txt", good)])
    (ref,) = git(store, "for-each-ref", "--format=%(refname)", "refs/hermes").splitlines()
    commit = run(store, workdir, "commit-tree", tree, "-m", "evil", at=T + 1)
    git(store, "update-ref", ref, commit)
    assert manager.import_from(source).imported == 1
    (checkpoint,) = manager.list_checkpoints(workdir)
    assert [item.why for item in checkpoint.skipped] == ["unstorable"]
    before = set(tmp_path.rglob("*"))
    manager.restore(workdir, checkpoint.id)
    assert (workdir / "fine.txt").read_text() == "good\n"
    new = {path for path in set(tmp_path.rglob("*")) - before if not path.is_relative_to(tmp_path / "base")}
    assert new == {workdir / "fine.txt"}


def _tree(store: Path, entries: list[tuple[bytes, bytes, str]]) -> str:
    body = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(blob)) for mode, name, blob in entries)
    return git(store, "hash-object", "-t", "tree", "-w", "--literally", "--stdin", stdin=body)


def test_a_damaged_commit_fails_alone(manager: CheckpointManager, source: Path, tmp_path: Path) -> None:
    workdir = tmp_path / "work"
    store = hermes_store(source, workdir, STATES)
    (ref,) = git(store, "for-each-ref", "--format=%(refname)", "refs/hermes").splitlines()
    blob = git(store, "rev-parse", f"{ref}~1:src/c.py")
    # The last state shares it, so a file of the first alone is what is lost.
    lost = git(store, "rev-parse", f"{ref}~2:a.txt")
    assert blob != lost
    (store / "objects" / lost[:2] / lost[2:]).unlink()
    report = manager.import_from(source)
    assert (report.imported, report.failed) == (2, 1)
    (failed,) = [item for item in report.items if item.status == "failed"]
    assert failed.reason == "before write_file" and failed.why
    assert manager.doctor().findings == ()


def test_a_history_that_ends_in_nothing_is_imported_as_far_as_it_goes(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    workdir = tmp_path / "work"
    store = hermes_store(source, workdir, STATES)
    (ref,) = git(store, "for-each-ref", "--format=%(refname)", "refs/hermes").splitlines()
    first = git(store, "rev-parse", f"{ref}~2")
    (store / "objects" / first[:2] / first[2:]).unlink()
    report = manager.import_from(source)
    assert (report.imported, report.failed) == (2, 1)


@pytest.mark.parametrize("content", [b"", b"not json", b"[]", b'{"workdir": 5}', b'{"workdir": "relative"}'])
def test_a_project_whose_directory_is_not_known_fails_and_the_others_do_not(
    manager: CheckpointManager, source: Path, tmp_path: Path, content: bytes
) -> None:
    hermes_store(source, tmp_path / "one", STATES)
    store = hermes_store(source, tmp_path / "two", STATES)
    (record,) = [path for path in (store / "projects").iterdir() if str(tmp_path / "one") in path.read_text()]
    record.write_bytes(content)
    report = manager.import_from(source)
    assert (report.imported, report.failed) == (3, 1)
    assert len(manager.list_checkpoints(tmp_path / "two")) == 3


def test_a_source_without_anything_to_import_is_an_error(manager: CheckpointManager, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(NothingToImport) as caught:
            manager.import_from(path)
        assert caught.value.exit_code == 3


def test_our_own_store_is_not_a_source(manager: CheckpointManager, base: Path, project: Path) -> None:
    manager.ensure_checkpoint(project)
    with pytest.raises(NothingToImport):
        manager.import_from(base)


# --- several at once --------------------------------------------------------------------------------


def test_a_path_may_hold_several_layouts_and_projects(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    hermes_directory(source, tmp_path / "one", STATES)
    hermes_store(source, tmp_path / "two", STATES)
    praisonai(source, tmp_path / "three", STATES)
    hermes_directory(source / "legacy-20250101-000000", tmp_path / "four", STATES)
    report = manager.import_from(source)
    assert report.layouts == ("hermes-directory", "hermes-store", "praisonai")
    assert (report.imported, report.failed) == (12, 0)
    assert manager.projects() == [tmp_path / name for name in ("four", "one", "three", "two")]


def test_one_repository_may_be_named_itself(manager: CheckpointManager, source: Path, tmp_path: Path) -> None:
    one = hermes_directory(source, tmp_path / "one", STATES)
    hermes_directory(source, tmp_path / "two", STATES)
    assert manager.import_from(one).imported == 3
    assert manager.projects() == [tmp_path / "one"]
    assert manager.import_from(praisonai(source, tmp_path / "three", STATES)).imported == 3


# --- Entire -----------------------------------------------------------------------------------------


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    write(repository, {"a.txt": "zero\n", "kept.txt": "kept\n"})
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "the person's own")
    return repository


def test_shadow_branches_of_entire_become_checkpoints(manager: CheckpointManager, repository: Path) -> None:
    branch = entire(repository, repository, "", STATES)
    git(repository, "branch", "entire/checkpoints/v1")
    git(repository, "branch", "entire/sessions")
    before = exact(repository)
    report = manager.import_from(repository)
    assert (report.imported, report.skipped, report.failed, report.layouts) == (3, 0, 0, ("entire",))
    found = manager.list_checkpoints(repository)
    assert reasons_and_times(found) == [(reason, at) for reason, at, _ in STATES]
    assert {each.session_id for each in found} == {"2026-01-02-some-session"}
    assert found[0].tree == git(repository, "rev-parse", f"{branch}^{{tree}}")
    assert exact(repository) == before
    assert manager.import_from(repository).skipped == 3


def test_the_persons_history_below_a_shadow_branch_is_not_imported(
    manager: CheckpointManager, repository: Path
) -> None:
    branch = entire(repository, repository, "", STATES[:1])
    tree, head = git(repository, "rev-parse", f"{branch}^{{tree}}"), git(repository, "rev-parse", "HEAD")
    message = "grown on their commit\n\nEntire-Session: s1\n"
    git_dir = repository / ".git"
    commit = run(git_dir, repository, "commit-tree", tree, "-p", head, "-m", message, at=T)
    git(repository, "update-ref", f"refs/heads/{branch}", commit)
    assert [item.reason for item in manager.import_from(repository).items] == ["grown on their commit"]


def test_each_worktree_gets_its_own_checkpoints(
    manager: CheckpointManager, repository: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", linked)
    entire(repository, repository, "", STATES[:1])
    entire(repository, linked, "linked", STATES[1:2])
    assert manager.import_from(linked).imported == 2  # whichever of them is named
    assert [each.reason for each in manager.list_checkpoints(repository)] == ["before write_file"]
    assert [each.reason for each in manager.list_checkpoints(linked)] == ["before patch: fix | the, thing"]


def test_branches_of_a_worktree_that_is_gone_fail(
    manager: CheckpointManager, repository: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    git(repository, "worktree", "add", "-q", linked)
    entire(repository, linked, "linked", STATES)
    git(repository, "worktree", "remove", "--force", linked)
    report: ImportReport = manager.import_from(repository)
    assert (report.imported, report.failed) == (0, 1) and "worktree" in report.items[0].why


def test_when_something_was_taken_is_known_to_the_second(manager: CheckpointManager, repository: Path) -> None:
    entire(repository, repository, "", STATES[:1])
    manager.import_from(repository)
    (checkpoint,) = manager.list_checkpoints(repository)
    assert checkpoint.created_at == datetime.fromtimestamp(T, UTC)


def test_a_damaged_ref_of_hermes_is_reported_or_the_packed_one_counts(
    manager: CheckpointManager, source: Path, tmp_path: Path
) -> None:
    packed, lost = tmp_path / "packed", tmp_path / "lost"
    store = hermes_store(source, packed, STATES[:2])
    git(store, "pack-refs", "--all")
    hermes_store(source, lost, STATES[:1])
    for workdir in (packed, lost):
        (store / "refs" / "hermes" / project_of(workdir).id).write_text("garbage\n")
    (store / "refs" / "hermes" / f"{project_of(lost).id}.lock").touch()
    report = manager.import_from(source)
    assert (report.imported, report.failed) == (2, 1)
    (failed,) = [item for item in report.items if item.status == "failed"]
    assert failed.why == "its ref is damaged" and failed.source.endswith(project_of(lost).id)
    assert len(manager.list_checkpoints(packed)) == 2
