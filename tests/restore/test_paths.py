"""Which paths can be restored, and that nothing but them changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from restoring import all_ids, assert_sound, checkpoint, file_changes, mtimes

from helpers import git, manifest, snapshot_dotgit
from shadowsnap import CheckpointManager
from shadowsnap.errors import (
    DirectoryMissing,
    MalformedReference,
    NoSuchCheckpoint,
    NoSuchPath,
    NoSuchProject,
    PathRefused,
    RestoreRefused,
)


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


@pytest.fixture
def target(manager: CheckpointManager, project: Path) -> str:
    (project / "src" / "deep").mkdir()
    (project / "src" / "deep" / "one").write_text("then\n")
    (project / "src" / "two").write_text("then\n")
    return checkpoint(manager, project).id


def change_everything(project: Path) -> None:
    for name in ("README.md", "src/main.py", "src/deep/one", "src/two", "data.bin"):
        (project / name).write_text("now\n")
    (project / "src" / "new").write_text("made since\n")
    (project / "top-new").write_text("made since\n")
    (project / "run.sh").chmod(0o600)


# --- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "..", "../outside", "src/../../outside", "../project-2/file", "", ".git", ".git/config", "src/.git/HEAD",
        ".GIT/config", "sub/.git", "\0", "a\0b",
    ],
)  # fmt: skip
def test_paths_that_are_not_the_projects_are_refused(
    manager: CheckpointManager, project: Path, target: str, path: str
) -> None:
    change_everything(project)
    before = manifest(project)
    for dry_run in (True, False):
        with pytest.raises(PathRefused):
            manager.restore(project, target, paths=[path], dry_run=dry_run)
        with pytest.raises(PathRefused):
            manager.restore(project, target, paths=["README.md", path], dry_run=dry_run)
    assert manifest(project) == before


def test_absolute_paths_are_refused_even_inside_the_project(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    change_everything(project)
    before = manifest(project)
    for path in (project / "README.md", Path("/etc/passwd"), Path("/")):
        with pytest.raises(PathRefused, match="absolute"):
            manager.restore(project, target, paths=[path])
    assert manifest(project) == before


def test_a_path_through_a_link_that_leads_out_is_refused(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not the project's\n")
    (project / "out").symlink_to(outside)
    (project / "up").symlink_to("..")
    target = checkpoint(manager, project).id
    for path in ("out/file", "out/.", "up/outside/file", "up/.", "src/../up/outside/file"):
        with pytest.raises(PathRefused):
            manager.restore(project, target, paths=[path])
    assert (outside / "file").read_text() == "not the project's\n"


def test_a_link_that_leads_out_is_itself_a_path_of_the_project(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not the project's\n")
    (project / "out").symlink_to(outside)
    target = checkpoint(manager, project).id
    (project / "out").unlink()
    (project / "out").write_text("a file now\n")
    assert manager.restore(project, target, paths=["out"]).written == ("out",)
    assert os.readlink(project / "out") == str(outside)
    assert (outside / "file").read_text() == "not the project's\n"


def test_a_directory_that_became_a_link_out_is_not_written_through(
    manager: CheckpointManager, project: Path, target: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("not the project's\n")
    shutil.rmtree(project / "src")
    (project / "src").symlink_to(outside)
    before = manifest(outside)
    with pytest.raises(PathRefused):
        manager.restore(project, target, paths=["src/main.py"])
    manager.restore(project, target)
    assert (project / "src" / "main.py").read_text() == "print('hello')\n"
    assert not (project / "src").is_symlink()
    assert manifest(outside) == before
    manager.undo(project)
    assert os.readlink(project / "src") == str(outside)
    assert manifest(outside) == before


def test_an_unknown_path_is_a_clear_error(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    change_everything(project)
    before = manifest(project)
    for path in ("no-such-file", "src/no-such-file", "README.md/below", "src*", "./nothing"):
        with pytest.raises(NoSuchPath, match="neither in checkpoint"):
            manager.restore(project, target, paths=["README.md", path])
    assert manifest(project) == before


def test_references_that_lead_nowhere_are_clear_errors(
    manager: CheckpointManager, project: Path, target: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(NoSuchProject):
        manager.restore(tmp_path / "other", "last")
    with pytest.raises(NoSuchCheckpoint):
        manager.restore(project, "ffffffff")
    with pytest.raises(NoSuchCheckpoint):
        manager.restore(project, "last~7")
    for ref in ("--all", "-p", "", "abc\n", " "):
        with pytest.raises(MalformedReference):
            manager.restore(project, ref)


def test_a_missing_project_directory_is_an_error_with_a_hint(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    original = manifest(project)
    shutil.rmtree(project)
    with pytest.raises(DirectoryMissing) as caught:
        manager.restore(project, target)
    assert "make an empty directory" in caught.value.hint
    project.write_text("a file now\n")
    with pytest.raises(DirectoryMissing):
        manager.restore(project, target)
    project.unlink()
    project.mkdir()
    manager.restore(project, target)
    assert manifest(project) == original


# --- what is chosen ---------------------------------------------------------------------------------


def test_a_single_file_comes_back_alone(manager: CheckpointManager, project: Path, target: str) -> None:
    change_everything(project)
    before, times = manifest(project), mtimes(project)
    result = manager.restore(project, target, paths="src/main.py")
    assert file_changes(result)[:2] == (("src/main.py",), ())
    after, now = manifest(project), mtimes(project)
    assert after.pop(b"src/main.py") == ("file", 0o644, b"print('hello')\n")
    assert after == {path: before[path] for path in after}
    assert {path for path in now if now[path] != times[path]} == {b"src/main.py"}


@pytest.mark.parametrize("path", ["src", "src/", "./src", "src/.", "src/deep/.."])
def test_a_directory_comes_back_with_everything_in_it(
    manager: CheckpointManager, project: Path, target: str, path: str
) -> None:
    change_everything(project)
    result = manager.restore(project, target, paths=[path])
    assert result.written == ("src/deep/one", "src/main.py", "src/two")
    assert result.deleted == ("src/new",)
    assert (project / "README.md").read_text() == "now\n"
    assert (project / "top-new").exists()


@pytest.mark.parametrize("path", [".", "./", "src/.."])
def test_the_project_itself_is_everything(
    manager: CheckpointManager, project: Path, target: str, path: str
) -> None:
    original = manifest(project)
    change_everything(project)
    manager.restore(project, target, paths=[path])
    assert manifest(project) == original


def test_several_paths_at_once(manager: CheckpointManager, project: Path, target: str) -> None:
    change_everything(project)
    result = manager.restore(project, target, paths=["run.sh", Path("src") / "deep", "top-new"])
    assert result.written == ("run.sh", "src/deep/one")
    assert result.deleted == ("top-new",)
    assert (project / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (project / "src" / "main.py").read_text() == "now\n"


def test_a_deleted_file_and_a_deleted_directory_come_back(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    original = manifest(project)
    (project / "README.md").unlink()
    shutil.rmtree(project / "src")
    assert manager.restore(project, target, paths=["README.md"]).written == ("README.md",)
    assert not (project / "src").exists()
    manager.restore(project, target, paths=["src/deep"])
    assert sorted(os.listdir(project / "src")) == ["deep"]
    manager.restore(project, target, paths=["src"])
    assert manifest(project) == original


def test_an_empty_directory_comes_back_by_name(manager: CheckpointManager, project: Path) -> None:
    (project / "hollow" / "inner").mkdir(parents=True)
    (project / "hollow" / "inner").chmod(0o700)
    target = checkpoint(manager, project).id
    original = manifest(project)
    shutil.rmtree(project / "hollow")
    (project / "README.md").write_text("now\n")
    result = manager.restore(project, target, paths=["hollow"])
    assert result.written == ("hollow/", "hollow/inner/")
    assert manifest(project) | {b"README.md": original[b"README.md"]} == original


def test_a_file_made_since_goes_by_name(manager: CheckpointManager, project: Path, target: str) -> None:
    change_everything(project)
    assert manager.restore(project, target, paths=["src/new"]).deleted == ("src/new",)
    assert not (project / "src" / "new").exists() and (project / "top-new").exists()
    with pytest.raises(NoSuchPath):
        manager.restore(project, target, paths=["src/new"])


def test_names_are_taken_as_they_are(manager: CheckpointManager, project: Path) -> None:
    names = ["-x", ":(top)y", " leading", "trailing ", "new\nline", "\udcff\udcfe", '"quoted"', "~x", "$HOME"]
    for name in names:
        (project / name).write_text("then\n")
    target = checkpoint(manager, project).id
    for name in names:
        (project / name).write_text("now\n")
    for name in names:
        assert manager.restore(project, target, paths=[name]).written == (name,)
        assert (project / name).read_text() == "then\n"


def test_a_very_deep_path_comes_back(manager: CheckpointManager, project: Path) -> None:
    folder = project
    for _ in range(14):
        folder = folder / ("d" * 240)
    os.makedirs(folder)
    (folder / "file").write_text("then\n")
    (folder / ".gitignore").write_text("ignored\n")
    target = checkpoint(manager, project).id
    original = manifest(project)
    (folder / "file").write_text("now\n")
    (folder / "new").write_text("made since\n")
    mutated = manifest(project)
    manager.restore(project, target, paths=[str((folder / "file").relative_to(project))])
    assert (folder / "file").read_text() == "then\n"
    manager.restore(project, target)
    assert manifest(project) == original
    manager.undo(project)
    manager.undo(project)
    assert manifest(project) == mutated


# --- what is in the way of chosen paths --------------------------------------------------------------


def test_a_file_above_a_chosen_path_is_not_removed_unasked(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    shutil.rmtree(project / "src")
    (project / "src").write_text("a file now\n")
    (project / "README.md").write_text("now\n")
    before = manifest(project)
    plan = manager.restore(project, target, paths=["src/main.py"], dry_run=True)
    assert [conflict.path for conflict in plan.conflicts] == ["src"]
    with pytest.raises(RestoreRefused, match="not among the chosen"):
        manager.restore(project, target, paths=["src/main.py"])
    assert manifest(project) == before
    assert_sound(base, project)
    manager.restore(project, target, paths=["src"])
    assert (project / "src" / "main.py").read_text() == "print('hello')\n"
    assert (project / "README.md").read_text() == "now\n"
    manager.undo(project)
    assert manifest(project) == before


def test_an_ignored_file_where_a_directory_was_is_saved_and_goes(
    manager: CheckpointManager, project: Path
) -> None:
    (project / ".gitignore").write_text("spool*\n!spool*/\n")  # files, but not directories
    (project / "spool-1").mkdir()
    (project / "spool-2" / "deep").mkdir(parents=True)
    (project / "spool-2" / "deep" / "file").write_text("then\n")
    target = checkpoint(manager, project).id
    original = manifest(project)
    shutil.rmtree(project / "spool-1")
    shutil.rmtree(project / "spool-2")
    (project / "spool-1").write_text("ignored, a file\n")
    (project / "spool-2").symlink_to("nowhere")
    mutated = manifest(project)
    manager.restore(project, target)
    assert manifest(project) == original
    manager.undo(project)
    assert manifest(project) == mutated
    manager.redo(project)
    assert manifest(project) == original


def test_a_new_directory_that_holds_ignored_files_is_not_reported_as_deleted(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    (project / "fresh" / "empty").mkdir(parents=True)
    (project / "fresh" / "run.log").write_text("ignored\n")
    (project / "hollow").mkdir()
    plan = manager.restore(project, target, dry_run=True)
    result = manager.restore(project, target)
    assert plan.deleted == result.deleted == ("fresh/empty/", "hollow/")
    assert sorted(os.listdir(project / "fresh")) == ["run.log"]


def test_a_new_empty_directory_that_was_ignored_then_stays(manager: CheckpointManager, project: Path) -> None:
    (project / ".gitignore").write_text("spool/\n")
    target = checkpoint(manager, project).id
    (project / ".gitignore").write_text("# nothing\n")
    (project / "spool").mkdir()
    result = manager.restore(project, target)
    assert (project / "spool").is_dir() and result.deleted == ()


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_gitignore_that_is_no_file_is_no_rule(
    manager: CheckpointManager, project: Path, kind: str
) -> None:
    """Git reads rules from regular files only. The link's target would make a pattern."""
    if kind == "link":
        (project / ".gitignore").symlink_to("made")
    else:
        (project / ".gitignore").mkdir()
        (project / ".gitignore" / "made").write_text("no rule\n")
    target = checkpoint(manager, project).id
    original = manifest(project)
    (project / "made").write_text("made since\n")
    assert manager.restore(project, target).deleted == ("made",)
    assert manifest(project) == original


def test_a_gitignore_that_became_a_directory_comes_back(manager: CheckpointManager, project: Path) -> None:
    (project / ".gitignore").write_text("spool/\n")
    target = checkpoint(manager, project).id
    original = manifest(project)
    (project / ".gitignore").unlink()
    (project / ".gitignore" / "empty").mkdir(parents=True)
    (project / "spool").mkdir()
    (project / "made").write_text("made since\n")
    mutated = manifest(project)
    manager.restore(project, target)
    assert manifest(project) == original | {b"spool": mutated[b"spool"]}
    manager.undo(project)
    assert manifest(project) == mutated


@pytest.mark.parametrize("change", ["emptied", "deleted"])
def test_files_ignored_by_a_gitignore_that_ignores_itself_are_left_alone(
    manager: CheckpointManager, project: Path, change: str
) -> None:
    """It is in no checkpoint, and the one on disk has other rules by now."""
    (project / "kiln").mkdir()
    (project / "kiln" / ".gitignore").write_text("*\n")
    (project / "kiln" / "built").write_text("there then and now\n")
    target = checkpoint(manager, project).id
    if change == "emptied":
        (project / "kiln" / ".gitignore").write_text("")
    else:
        (project / "kiln" / ".gitignore").unlink()
    (project / "made").write_text("made since\n")
    mutated = manifest(project)
    result = manager.restore(project, target)
    assert result.deleted == ("made",)
    assert {each.path: each.why for each in result.kept}["kiln/built"] == "ignored at the checkpoint"
    manager.undo(project)
    assert manifest(project) == mutated


def test_a_change_of_rules_that_are_not_captured_makes_a_checkpoint(
    manager: CheckpointManager, project: Path
) -> None:
    (project / "kiln").mkdir()
    (project / "kiln" / ".gitignore").write_text("*\n")
    first = checkpoint(manager, project)
    (project / "kiln" / ".gitignore").write_text("# all of it\n*\n")
    second = checkpoint(manager, project)
    assert first.id != second.id and first.tree == second.tree


def test_a_directory_in_place_of_a_link_to_itself_comes_back(manager: CheckpointManager, project: Path) -> None:
    (project / "loop").symlink_to("loop")
    target = checkpoint(manager, project).id
    original = manifest(project)
    (project / "loop").unlink()
    (project / "loop" / "deep").mkdir(parents=True)
    (project / "loop" / "deep" / "file").write_text("now\n")
    mutated = manifest(project)
    manager.restore(project, target)
    assert manifest(project) == original
    manager.undo(project)
    assert manifest(project) == mutated


def test_undo_restores_the_bits_of_an_ignored_directory(manager: CheckpointManager, project: Path) -> None:
    (project / ".gitignore").write_text("# nothing\n")
    (project / "spool").mkdir()
    target = checkpoint(manager, project).id
    (project / ".gitignore").write_text("spool/\n")
    (project / "spool").chmod(0o700)
    mutated = manifest(project)
    assert manager.restore(project, target).written == (".gitignore", "spool/")
    manager.undo(project)
    assert manifest(project) == mutated


@pytest.mark.parametrize("pattern", ["*", "spool/"])
def test_undo_removes_an_ignored_directory_that_a_restore_made(
    base: Path, project: Path, pattern: str
) -> None:
    manager = CheckpointManager(base=base, max_file_size_mb=0.01)
    (project / ".gitignore").write_text("# long\n" * 3000)  # too large to be captured, and to be changed back
    (project / "spool" / "deep").mkdir(parents=True)
    target = checkpoint(manager, project).id
    shutil.rmtree(project / "spool")
    (project / ".gitignore").write_text(f"{pattern}\n")
    mutated = manifest(project)
    manager.restore(project, target)
    restored = manifest(project)
    assert restored.keys() - mutated.keys() == {b"spool", b"spool/deep"}
    manager.undo(project)
    assert manifest(project) == mutated
    manager.redo(project)
    assert manifest(project) == restored


def test_undo_removes_the_directories_that_a_chosen_empty_one_needed(
    manager: CheckpointManager, project: Path
) -> None:
    (project / "deep" / "er" / "empty").mkdir(parents=True)
    target = checkpoint(manager, project).id
    shutil.rmtree(project / "deep")
    mutated = manifest(project)
    manager.restore(project, target, paths=["deep/er/empty"])
    assert (project / "deep" / "er" / "empty").is_dir()
    manager.undo(project)
    assert manifest(project) == mutated


# --- restoring what is there ------------------------------------------------------------------------


def test_restoring_what_is_already_there_changes_nothing(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    checkpoint(manager, project)
    picture, times, ids = manifest(project), mtimes(project), all_ids(manager, project)
    folders = {path: os.stat(os.path.join(os.fsencode(project), path)).st_mtime_ns for path in picture}
    for paths in ([], ["README.md"], ["src"], ["."]):
        result = manager.restore(project, target, paths=paths)
        assert result.applied and result.undo_id is None
        assert file_changes(result) == ((), (), (), ())
    assert manifest(project) == picture and mtimes(project) == times
    assert {path: os.stat(os.path.join(os.fsencode(project), path)).st_mtime_ns for path in picture} == folders
    assert all_ids(manager, project) == ids
    assert_sound(base, project)


def test_restoring_some_paths_that_are_already_there_leaves_the_others(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    (project / "README.md").write_text("now\n")
    ids = all_ids(manager, project)
    result = manager.restore(project, target, paths=["src"])
    assert result.applied and result.undo_id is None
    assert (project / "README.md").read_text() == "now\n"
    assert all_ids(manager, project) == ids


def test_a_nested_repository_is_restored_around_its_dot_git(manager: CheckpointManager, project: Path) -> None:
    nested = project / "vendor" / "lib"
    nested.mkdir(parents=True)
    git(nested, "init")
    (nested / "code").write_text("then\n")
    git(nested, "add", ".")
    git(nested, "commit", "-m", "one")
    target = checkpoint(manager, project).id
    original = manifest(project)
    (nested / "code").write_text("now\n")
    (nested / "more").write_text("made since\n")
    (nested / "code").chmod(0o755)
    dot_git, mutated = snapshot_dotgit(nested), manifest(project)
    manager.restore(project, target)
    assert manifest(project) == original and snapshot_dotgit(nested) == dot_git
    manager.undo(project)
    assert manifest(project) == mutated and snapshot_dotgit(nested) == dot_git


def test_a_repository_cloned_since_keeps_its_dot_git(manager: CheckpointManager, project: Path) -> None:
    target = checkpoint(manager, project).id
    nested = project / "clone"
    nested.mkdir()
    git(nested, "init")
    (nested / "code").write_text("made since\n")
    git(nested, "add", ".")
    git(nested, "commit", "-m", "one")
    dot_git, mutated = snapshot_dotgit(nested), manifest(project)
    manager.restore(project, target)
    assert not (nested / "code").exists() and snapshot_dotgit(nested) == dot_git
    manager.undo(project)
    assert manifest(project) == mutated and snapshot_dotgit(nested) == dot_git


# --- names that became links ------------------------------------------------------------------------


def test_a_directory_that_is_a_link_by_now_is_still_meant_by_its_name(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    """src/main.py was in a directory of that name; that it is reached through a link now, to another file
    of the same name, does not make that file the one that is asked for."""
    (project / "other").mkdir()
    (project / "other" / "main.py").write_text("another\n")
    second = checkpoint(manager, project).id
    shutil.rmtree(project / "src")
    (project / "src").symlink_to("other")
    (project / "other" / "main.py").write_text("edited\n")
    with pytest.raises(RestoreRefused, match="src"):
        manager.restore(project, second, paths=["src/main.py"])
    assert (project / "other" / "main.py").read_text() == "edited\n"
    manager.restore(project, second, paths=["src"])
    assert (project / "src" / "main.py").read_text() == "print('hello')\n"
    assert (project / "other" / "main.py").read_text() == "edited\n"


def test_a_path_through_a_link_that_the_checkpoint_holds_is_followed(
    manager: CheckpointManager, project: Path
) -> None:
    (project / "alias").symlink_to("src")
    target = checkpoint(manager, project).id
    (project / "src" / "main.py").write_text("now\n")
    assert manager.restore(project, target, paths=["alias/main.py"]).written == ("src/main.py",)
