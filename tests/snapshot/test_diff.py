"""What differs between two checkpoints, or a checkpoint and the files: per file and as a patch, leaving
nothing behind."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capturing import deadline_after, objects, snap
from hypothesis import given
from hypothesis import strategies as st

from helpers import git, manifest, remove_tree, snapshot_dotgit
from shadowsnap import CheckpointManager, Diff
from shadowsnap.errors import (
    DeadlineExceeded,
    DirectoryMissing,
    ForeignCheckpoint,
    NoSuchCheckpoint,
    NoSuchProject,
    NoSuchTurn,
    PathRefused,
)

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX links and permission bits")


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


def statuses(diff: Diff) -> dict[str, tuple[str, int | None, int | None]]:
    return {change.path: (change.status, change.insertions, change.deletions) for change in diff.changes}


def both_ways(manager: CheckpointManager, base: Path, project: Path, ref: str) -> Diff:
    """Against the disk and against a checkpoint of it: the same answer."""
    now = manager.diff(project, ref)
    new = snap(base, project)
    then = manager.diff(project, ref, new.id)
    assert (now.changes, now.text) == (then.changes, then.text)
    assert (now.from_id, now.to_id, then.to_id) == (then.from_id, None, new.id)
    return now


# --- per file ---------------------------------------------------------------------------------------


def test_nothing_differs_from_a_state_just_captured(manager: CheckpointManager, base: Path, project: Path) -> None:
    checkpoint = snap(base, project)
    diff = manager.diff(project, checkpoint.id)
    assert diff == Diff(checkpoint.id, None, (), "") and not diff


def test_added_modified_and_deleted_files_with_line_counts(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    (project / "long").write_text("".join(f"{number}\n" for number in range(100)))
    first = snap(base, project)
    (project / "new").write_text("one\ntwo\nthree\n")
    (project / "README.md").write_text("# A project\nwith a second line\n")
    (project / "src" / "main.py").unlink()
    (project / "long").write_text("".join(f"{number}\n" for number in range(100) if number % 10))
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {
        "new": ("added", 3, 0),
        "README.md": ("modified", 1, 0),
        "src/main.py": ("deleted", 0, 1),
        "src/": ("added", 0, 0),  # as an empty directory
        "long": ("modified", 0, 10),
    }
    assert "+with a second line" in diff.text and "-print('hello')" in diff.text
    backwards = manager.diff(project, "last", first.id)
    assert statuses(backwards)["new"] == ("deleted", 0, 3)


def test_a_rename_is_a_deletion_and_an_addition(manager: CheckpointManager, base: Path, project: Path) -> None:
    """Undoing a rename without its source loses a file."""
    first = snap(base, project)
    (project / "src" / "main.py").rename(project / "src" / "other.py")
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {"src/main.py": ("deleted", 0, 1), "src/other.py": ("added", 1, 0)}


def test_binary_files_have_no_line_counts(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    (project / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (project / "new.bin").write_bytes(b"\0\1\2")
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {"data.bin": ("modified", None, None), "new.bin": ("added", None, None)}
    assert "Binary files a/data.bin and b/data.bin differ" in diff.text


def test_attributes_of_the_project_do_not_decide_what_is_binary(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    (project / ".gitattributes").write_text("*.md binary\n*.py -diff\n*.bin diff=odd text\n")
    git(project, "config", "--global", "diff.odd.textconv", "touch /nonexistent/ran; cat")
    first = snap(base, project)
    (project / "README.md").write_text("changed\n")
    (project / "src" / "main.py").write_text("changed\n")
    (project / "data.bin").write_bytes(b"\0changed")
    assert statuses(both_ways(manager, base, project, first.id)) == {
        "README.md": ("modified", 1, 1),
        "src/main.py": ("modified", 1, 1),
        "data.bin": ("modified", None, None),
    }


@posix
def test_changes_of_permission_bits_alone(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    (project / "README.md").chmod(0o600)
    (project / "run.sh").chmod(0o644)
    (project / "src").chmod(0o700)
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {
        "README.md": ("modified", 0, 0),
        "run.sh": ("modified", 0, 0),
        "src/": ("modified", 0, 0),
    }
    for line in ("old mode 100644\nnew mode 100600\n", "old mode 100755\nnew mode 100644\n", "new mode 040700\n"):
        assert line in diff.text


@posix
def test_a_change_of_type(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    (project / "README.md").unlink()
    (project / "README.md").symlink_to("src/main.py")
    (project / "link").unlink()
    (project / "link").write_text("a file now\n")
    diff = both_ways(manager, base, project, first.id)
    assert {path: change[0] for path, change in statuses(diff).items()} == {
        "README.md": "typechange",
        "link": "typechange",
    }
    assert "new file mode 120000" in diff.text and "deleted file mode 120000" in diff.text


def test_a_file_that_becomes_a_directory_and_back(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    (project / "README.md").unlink()
    (project / "README.md").mkdir()
    (project / "README.md" / "inside").write_text("deep\n")
    shutil.rmtree(project / "src")
    (project / "src").write_text("flat\n")
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {
        "README.md": ("deleted", 0, 1),
        "README.md/inside": ("added", 1, 0),
        "src": ("added", 1, 0),
        "src/main.py": ("deleted", 0, 1),
    }


def test_empty_directories(manager: CheckpointManager, base: Path, project: Path) -> None:
    (project / "hollow").mkdir()
    (project / "to be filled").mkdir()
    first = snap(base, project)
    (project / "hollow").rmdir()
    (project / "new").mkdir()
    (project / "to be filled" / "file").write_text("")
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {
        "hollow/": ("deleted", 0, 0),
        "new/": ("added", 0, 0),
        "to be filled/file": ("added", 0, 0),
    }


@posix
def test_names_of_every_kind(manager: CheckpointManager, base: Path, project: Path) -> None:
    names = ["with space", "tab\there", "new\nline", 'quote"', "-dash", ":colon", "*", "[a]"]
    names += ["\u00e9", "\udcff\udcfe"]
    first = snap(base, project)
    for name in names:
        (project / name).write_text("x\n")
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == dict.fromkeys(names, ("added", 1, 0))
    diff.to_dict()


def test_files_that_are_not_captured_do_not_appear(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    (project / ".env").write_text("TOKEN=hunter2\n")
    (project / "x.log").write_text("ignored\n")
    diff = manager.diff(project, first.id)
    assert statuses(diff) == {} and "hunter2" not in diff.text


def test_a_file_that_is_no_longer_captured_is_not_reported_as_deleted(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    first = snap(base, project)
    (project / "README.md").write_bytes(b"grown" * (3 << 20))
    (project / "empty").unlink()
    diff = both_ways(manager, base, project, first.id)
    assert statuses(diff) == {"README.md": ("modified", None, None), "empty": ("deleted", 0, 0)}
    assert "not captured: too-large" in diff.text and "# A project" not in diff.text
    backwards = manager.diff(project, "last", first.id)
    assert statuses(backwards) == {"README.md": ("modified", None, None), "empty": ("added", 0, 0)}
    assert "not captured: too-large" in backwards.text


def test_a_checkpoint_of_single_files_is_compared_with_those_alone(
    manager: CheckpointManager, base: Path, home: Path
) -> None:
    (home / ".bashrc").write_text("one\n")
    (home / "other").write_text("one\n")
    outcome = manager.ensure_checkpoint(home, paths=[".bashrc", "absent"])
    assert outcome.status == "partial" and outcome.checkpoint is not None
    (home / ".bashrc").write_text("two\n")
    (home / "other").write_text("two\n")
    (home / "absent").write_text("here now\n")
    assert statuses(manager.diff(home, "last")) == {".bashrc": ("modified", 1, 1), "absent": ("added", 1, 0)}


# --- some paths -------------------------------------------------------------------------------------


def changed_everywhere(project: Path) -> None:
    for path in ("README.md", "src/main.py", "src/deep/new.py", "report[1].dat", "report1.dat", "srcs", "-x"):
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text("changed\n")
    (project / "run.sh").chmod(0o700)
    (project / "src" / "hollow").mkdir()


SUBSETS: dict[str, tuple[list[str], set[str]]] = {
    "a file": (["README.md"], {"README.md"}),
    "a directory": (["src"], {"src/main.py", "src/deep/new.py", "src/hollow/"}),
    "a directory with a slash": (["src/"], {"src/main.py", "src/deep/new.py", "src/hollow/"}),
    "several": (["src/deep", "README.md", "run.sh"], {"src/deep/new.py", "README.md", "run.sh"}),
    "glob characters": (["report[1].dat"], {"report[1].dat"}),
    "a leading dash": (["-x"], {"-x"}),
    "something that is not there": (["nowhere"], set()),
    "an empty directory": (["src/hollow"], {"src/hollow/"}),
}


@posix
@pytest.mark.parametrize("subset", SUBSETS)
@pytest.mark.parametrize("against", ["disk", "checkpoint"])
@pytest.mark.each_value
def test_only_some_paths(
    manager: CheckpointManager, base: Path, project: Path, subset: str, against: str
) -> None:
    first = snap(base, project)
    changed_everywhere(project)
    other = snap(base, project).id if against == "checkpoint" else None
    paths, expected = SUBSETS[subset]
    diff = manager.diff(project, first.id, other, paths=paths)
    assert set(statuses(diff)) == expected
    named = {line.split(" b/")[1].strip(chr(34)) for line in diff.text.splitlines() if line.startswith("diff --")}
    assert named == {path for path in expected if not path.endswith("/")}
    absolute = manager.diff(project, first.id, other, paths=[project / path for path in paths])
    assert absolute == diff


@posix
def test_one_path_may_be_given_without_a_list(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    changed_everywhere(project)
    assert set(statuses(manager.diff(project, first.id, paths="README.md"))) == {"README.md"}


def test_the_project_itself_means_everything(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = snap(base, project)
    changed_everywhere(project)
    assert manager.diff(project, first.id, paths=["."]) == manager.diff(project, first.id)


@pytest.mark.parametrize("path", ["..", "/etc/passwd", "../project2", ".git/config", "\0"])
def test_paths_outside_are_refused(manager: CheckpointManager, base: Path, project: Path, path: str) -> None:
    first = snap(base, project)
    with pytest.raises(PathRefused):
        manager.diff(project, first.id, paths=[path])


# --- the text is a patch ----------------------------------------------------------------------------

LINES = st.lists(st.sampled_from(["one", "two", "three", "", "four\r"]), max_size=8)
FILES = st.dictionaries(
    st.sampled_from(["a", "b", "d/a", "d/e/b", "sp ace", "caf\u00e9", "new\nline"]),
    st.tuples(LINES, st.booleans(), st.booleans()),
    max_size=5,
)


@posix
@given(before=FILES, after=FILES)
def test_the_text_is_a_patch_that_git_applies(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, Any], after: dict[str, Any]
) -> None:
    top = tmp_path_factory.mktemp("patch")
    project, copy, base = top / "project", top / "copy", top / "base"
    _lay_out(project, before)
    first = snap(base, project, fsync=False)
    shutil.copytree(project, copy)
    shutil.rmtree(project)
    _lay_out(project, after)
    diff = CheckpointManager(base=base, fsync=False).diff(project, first.id)
    if diff.text:
        patch = diff.text.encode("utf-8", "surrogateescape")
        git(copy, "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-", stdin=patch)
    files = {path: entry for path, entry in manifest(project).items() if entry[0] == "file"}
    assert {path: entry for path, entry in manifest(copy).items() if entry[0] == "file"} == files
    shutil.rmtree(top)


def _lay_out(project: Path, files: dict[str, Any]) -> None:
    project.mkdir()
    for name, (lines, ends, executable) in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(("\n".join(lines) + ("\n" if ends and lines else "")).encode())
        (project / name).chmod(0o755 if executable else 0o644)


# --- nothing is left behind -------------------------------------------------------------------------


def everything_in(base: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of the store, with its time; the lock files may be signed anew."""
    files = (path for path in base.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(base)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize("many", [0, 300], ids=["few files", "many files"])
def test_a_diff_leaves_no_object_and_an_unchanged_index(
    manager: CheckpointManager, base: Path, project: Path, many: int
) -> None:
    git(project, "init", "-q")
    git(project, "add", "README.md")
    first = snap(base, project)
    for number in range(many):
        (project / f"new-{number}").write_text(f"{number}\n")
    (project / "README.md").write_text("changed\n")
    (project / "src" / "main.py").unlink()
    (project / "large").write_bytes(os.urandom(3 << 20))
    (project / ".gitignore").write_text("empty\n")
    before, theirs, directories = everything_in(base), snapshot_dotgit(project), sorted(base.rglob("*"))
    assert len(statuses(manager.diff(project, first.id))) >= 4 + many
    manager.diff(project, "last", "last")
    assert everything_in(base) == before
    assert sorted(base.rglob("*")) == directories
    assert snapshot_dotgit(project) == theirs
    assert manager.ensure_checkpoint(project).status == "taken"


@posix
def test_a_diff_with_unreadable_files_leaves_nothing_in_the_store(
    base: Path, project: Path, as_user: Callable[..., Any]
) -> None:
    def story() -> tuple[Any, bool]:
        manager = CheckpointManager(base=base, fsync=False)
        first = snap(base, project)
        (project / "README.md").write_text("changed\n")
        (project / "README.md").chmod(0)
        before = everything_in(base)
        diff = manager.diff(project, first.id)
        return statuses(diff), everything_in(base) == before

    assert as_user(story) == ({"README.md": ("modified", None, None)}, True)


def test_a_diff_that_runs_out_of_time_leaves_nothing_in_the_store(base: Path, project: Path) -> None:
    first = snap(base, project)
    for number in range(300):
        (project / f"new-{number}").write_text(f"{number}\n")
    before = everything_in(base)
    for looks in (2, 50, 250):
        with deadline_after(looks), pytest.raises(DeadlineExceeded):
            CheckpointManager(base=base, fsync=False).diff(project, first.id)
    assert everything_in(base) == before
    assert not [path for path in (base / "store").iterdir() if path.name.startswith("scratch")]


def test_a_diff_changes_nothing_for_the_next_snapshot(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    first = snap(base, project)
    (project / "README.md").write_text("changed\n")
    stored = objects(base)
    manager.diff(project, first.id)
    assert objects(base) == stored
    second = snap(base, project, status="taken")
    assert statuses(manager.diff(project, first.id, second.id)) == {"README.md": ("modified", 1, 1)}


# --- what cannot be compared ------------------------------------------------------------------------


def test_errors_are_clear(manager: CheckpointManager, base: Path, project: Path, tmp_path: Path) -> None:
    with pytest.raises(NoSuchProject):
        manager.diff(project, "last")
    first = snap(base, project)
    with pytest.raises(NoSuchCheckpoint):
        manager.diff(project, "fffffff")
    with pytest.raises(NoSuchTurn):
        manager.diff(project, "7")
    with pytest.raises(NoSuchCheckpoint):
        manager.diff(project, "last", "last~1")
    other = tmp_path / "other"
    other.mkdir()
    foreign = snap(base, other)
    with pytest.raises(ForeignCheckpoint):
        manager.diff(project, first.id, foreign.id)
    remove_tree(project)
    with pytest.raises(DirectoryMissing):
        manager.diff(project, "last")
    assert statuses(manager.diff(project, "last", "last")) == {}
