"""Files change, or Ctrl-C is pressed, while a restore is under way: nothing is lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from restoring import STAGING, assert_sound, at_step, checkpoint, content_in, listening, mtimes, samples

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import RestoreRefused, RestoreStranded, ShadowsnapError
from shadowsnap.restore import apply, restore


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


@pytest.fixture
def target(manager: CheckpointManager, project: Path) -> str:
    """A checkpoint; since then, files were changed, made, deleted, exchanged for others."""
    (project / "gone").write_text("deleted since\n")
    (project / "old").mkdir()
    (project / "old" / "dir").mkdir()
    (project / "old" / "dir" / "file").write_text("its directory is a file now\n")
    target = checkpoint(manager, project)
    (project / "README.md").write_text("# A PROJECT\n")  # of the same size as it was
    (project / "src" / "main.py").write_text("a newer program\n")
    (project / "gone").unlink()
    (project / "new").write_text("made since\n")
    (project / "folder" / "inner").mkdir(parents=True)
    (project / "folder" / "inner" / "made").write_text("made since\n")
    (project / "old" / "dir" / "file").unlink()
    (project / "old" / "dir").rmdir()
    (project / "old" / "dir").write_text("a file now\n")
    (project / "link").unlink()
    (project / "link").symlink_to("elsewhere")
    (project / "run.sh").chmod(0o644)
    return target.id


# --- a file changes after it was planned -------------------------------------------------------------


def overwrite(path: Path) -> None:
    path.write_text("written in the last moment\n")


def overwrite_keeping_times(path: Path) -> None:
    """The same size, the same inode, and the time set back, as `rsync --inplace -t` does."""
    seen = path.stat()
    with open(path, "r+b") as file:
        file.write(b"X" * seen.st_size)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def replace(path: Path) -> None:
    path.with_name("swap-file").write_text("saved by an editor\n")
    os.replace(path.with_name("swap-file"), path)


def replace_keeping_times(path: Path) -> None:
    seen, other = path.stat(), path.with_name("swap-file")
    other.write_bytes(b"X" * seen.st_size)
    os.utime(other, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    os.replace(other, path)


def turn_into_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def turn_into_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("made in the last moment\n")


def close(path: Path) -> None:
    path.chmod(0o600)


CHANGES = [
    overwrite,
    overwrite_keeping_times,
    replace,
    replace_keeping_times,
    turn_into_link,
    turn_into_directory,
    close,
]


@pytest.mark.parametrize("step", ["restore:planned", "restore:applying"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["README.md", "src/main.py", "new", "folder/inner/made", "old/dir"])
@pytest.mark.every(5)
def test_a_file_that_changes_after_the_plan_is_not_lost(
    manager: CheckpointManager, project: Path, target: str, base: Path, name: str,
    change: Callable[[Path], None], step: str,
) -> None:  # fmt: skip
    late: dict[bytes, Any] = {}

    def change_it() -> None:
        change(project / name)
        late.update(manifest(project))

    with at_step(step, change_it), pytest.raises(RestoreRefused) as caught:
        manager.restore(project, target)
    assert name in str(caught.value)
    assert manifest(project) == {path: entry for path, entry in late.items() if not path.startswith(STAGING)}
    assert_sound(base, project)
    assert manager.restore(project, target).applied  # nothing stands in the way of another attempt


def test_a_link_that_changes_after_the_plan_is_not_lost(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    def point_elsewhere() -> None:
        (project / "link").unlink()
        (project / "link").symlink_to("a third place")

    with at_step("restore:applying", point_elsewhere), pytest.raises(RestoreRefused, match="link"):
        manager.restore(project, target)
    assert os.readlink(project / "link") == "a third place"


def test_a_link_exchanged_for_a_file_with_the_same_bytes_is_not_lost(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    def become_a_file() -> None:
        (project / "link").unlink()
        (project / "link").write_text("elsewhere")

    with at_step("restore:applying", become_a_file), pytest.raises(RestoreRefused, match="link"):
        manager.restore(project, target)
    assert not (project / "link").is_symlink() and (project / "link").read_text() == "elsewhere"


def test_a_file_with_a_new_time_but_the_same_content_does_not_stop_a_restore(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    with at_step("restore:applying", lambda: os.utime(project / "README.md")):
        assert manager.restore(project, target).applied
    assert (project / "README.md").read_text() == "# A project\n"


@pytest.mark.parametrize("name", ["gone", "old/dir/file"])
@pytest.mark.parametrize("step", ["restore:planned", "restore:applying", "restore:deleted-one"])
def test_a_file_that_appears_where_one_is_to_come_is_not_lost(
    manager: CheckpointManager, project: Path, target: str, base: Path, name: str, step: str
) -> None:
    def appear() -> None:
        if name == "gone":
            (project / name).write_text("appeared in the last moment\n")
        else:
            (project / "old" / "dir").unlink(missing_ok=True)
            (project / "old" / "dir").mkdir()
            (project / name).write_text("appeared in the last moment\n")

    with at_step(step, appear), pytest.raises(RestoreRefused):
        manager.restore(project, target)
    assert (project / name).read_text() == "appeared in the last moment\n"
    assert (project / "src" / "main.py").read_text() == "a newer program\n"
    assert (project / "new").read_text() == "made since\n"
    assert_sound(base, project)


def test_a_file_made_in_a_directory_that_is_to_go_is_not_lost(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    with at_step("restore:applying", lambda: (project / "folder" / "note").write_text("just now\n")):
        manager.restore(project, target)
    assert (project / "folder" / "note").read_text() == "just now\n"
    assert not (project / "folder" / "inner").exists()
    assert_sound(base, project)


def test_a_directory_exchanged_for_a_link_that_leads_out_is_not_followed(
    manager: CheckpointManager, project: Path, target: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("not the project's\n")
    (outside / "made").write_text("not the project's\n")
    (outside / "main.py").chmod(0o640)
    before = manifest(outside)

    def lead_out() -> None:
        os.rename(project / "src", tmp_path / "src-away")
        (project / "src").symlink_to(outside)

    with at_step("restore:applying", lead_out), pytest.raises(RestoreRefused, match="src"):
        manager.restore(project, target)
    assert manifest(outside) == before
    assert (tmp_path / "src-away" / "main.py").read_text() == "a newer program\n"


def test_bits_are_not_set_through_a_link_that_leads_out(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    target = checkpoint(manager, project)
    (project / "src" / "main.py").chmod(0o600)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "main.py").write_text("not the project's\n")
    (outside / "main.py").chmod(0o600)

    def lead_out() -> None:
        os.rename(project / "src", tmp_path / "src-away")
        (project / "src").symlink_to(outside)

    with at_step("restore:applying", lead_out), pytest.raises(RestoreRefused, match="src"):
        manager.restore(project, target.id)
    assert (outside / "main.py").stat().st_mode & 0o777 == 0o600


def test_an_edit_of_a_restored_file_survives_the_rollback(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    """README.md has been put in place; it is edited; then a later file makes the restore roll back."""

    def on_step(step: str) -> None:
        if step == "restore:wrote-one" and (project / "README.md").read_text() == "# A project\n":
            (project / "README.md").write_text("edited after it came back\n")
            (project / "src" / "main.py").write_text("changed too\n")

    with listening(on_step), pytest.raises(RestoreRefused):
        manager.restore(project, target)
    assert (project / "README.md").read_text() == "edited after it came back\n"
    assert (project / "src" / "main.py").read_text() == "changed too\n"
    assert (project / "new").read_text() == "made since\n"
    saved = manager.list_checkpoints(project)[0]
    assert content_in(base, saved.id, "README.md") == "# A PROJECT"
    assert_sound(base, project)


def test_a_file_that_appears_where_a_deleted_one_was_survives_the_rollback(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    def on_step(step: str) -> None:
        if step == "restore:wrote-one" and not (project / "new").exists():
            (project / "new").write_text("made once more\n")
            (project / "src" / "main.py").write_text("changed too\n")

    with listening(on_step), pytest.raises(RestoreRefused):
        manager.restore(project, target)
    assert (project / "new").read_text() == "made once more\n"
    assert (project / "README.md").read_text() == "# A PROJECT\n"
    saved = manager.list_checkpoints(project)[0]
    assert content_in(base, saved.id, "new") == "made since"
    assert_sound(base, project)


def test_a_file_with_other_names_is_not_written_through(
    manager: CheckpointManager, project: Path, tmp_path: Path
) -> None:
    target = checkpoint(manager, project)
    (project / "README.md").write_text("newer\n")
    os.link(project / "README.md", tmp_path / "another-name")
    os.link(project / "README.md", project / "twin")
    mutated = manifest(project)
    manager.restore(project, target.id)
    assert (tmp_path / "another-name").read_text() == "newer\n"
    assert (project / "README.md").read_text() == "# A project\n" and not (project / "twin").exists()
    manager.undo(project)
    assert manifest(project) == mutated


# --- Ctrl-C -----------------------------------------------------------------------------------------


class CtrlC:
    """Raises KeyboardInterrupt when the n-th line of these modules is about to run."""

    def __init__(self, *numbers: int) -> None:
        self._files = {apply.__file__, restore.__file__}
        self._numbers = set(numbers)
        self.lines = 0

    def __enter__(self) -> CtrlC:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self.lines += 1
            if self.lines in self._numbers:
                raise KeyboardInterrupt
        return self._trace


@pytest.fixture
def small(tmp_path: Path, base: Path) -> tuple[CheckpointManager, Path, str]:
    """A project with one change of each sort, for tests that restore it very often."""
    project = tmp_path / "small"
    (project / "sub").mkdir(parents=True)
    (project / "written").write_text("then\n")
    (project / "sub" / "gone").write_text("then\n")
    (project / "bits").write_text("same\n")
    (project / "swap").write_text("a file\n")
    manager = CheckpointManager(base=base, fsync=False)
    target = checkpoint(manager, project).id
    (project / "written").write_text("now\n")
    (project / "sub" / "gone").unlink()
    (project / "sub").rmdir()
    (project / "bits").chmod(0o600)
    (project / "swap").unlink()
    (project / "swap").mkdir()
    (project / "swap" / "made").write_text("now\n")
    return manager, project, target


def test_ctrl_c_at_any_line_leaves_all_or_nothing(
    small: tuple[CheckpointManager, Path, str], base: Path
) -> None:
    manager, project, target = small
    mutated = manifest(project)
    with CtrlC() as counting:
        manager.restore(project, target)
    restored = manifest(project)
    manager.undo(project)
    assert manifest(project) == mutated
    stride = max(1, counting.lines // samples(30))
    ends = set()
    for number in range(1, counting.lines + 1, stride):
        with pytest.raises(KeyboardInterrupt), CtrlC(number):
            manager.restore(project, target)
        found = {path: entry for path, entry in manifest(project).items() if not path.startswith(STAGING)}
        manager.new_turn()
        outcome = manager.ensure_checkpoint(project)
        assert outcome.status in ("taken", "unchanged"), outcome.error
        if found not in (mutated, restored):
            assert "restore" in outcome.note, f"at line {number} there is no note"
        settled = manifest(project)
        assert settled in (mutated, restored), f"half done after line {number}"
        ends.add(settled == restored)
        if settled == restored:
            manager.undo(project)
            assert manifest(project) == mutated, f"no way back after line {number}"
    assert ends == {True, False}
    assert_sound(base, project)


def test_a_second_ctrl_c_during_the_rollback_loses_nothing(
    small: tuple[CheckpointManager, Path, str], base: Path
) -> None:
    manager, project, target = small
    mutated = manifest(project)
    with CtrlC() as counting:
        manager.restore(project, target)
    restored = manifest(project)
    manager.undo(project)
    middle = counting.lines * 2 // 3
    for second in range(1, 60, 2):
        with pytest.raises(KeyboardInterrupt), CtrlC(middle, middle + second):
            manager.restore(project, target)
        manager.new_turn()
        outcome = manager.ensure_checkpoint(project)
        assert outcome.status in ("taken", "unchanged"), outcome.error
        settled = manifest(project)
        assert settled in (mutated, restored), f"half done: {outcome.note}"
        if settled == restored:
            manager.undo(project)
            assert manifest(project) == mutated
    assert_sound(base, project)


def test_an_unexpected_error_in_the_middle_rolls_everything_back(
    manager: CheckpointManager, project: Path, target: str, base: Path
) -> None:
    """Whatever is raised in the middle, the files are as they were."""
    mutated = manifest(project)

    def fail() -> None:
        raise MemoryError

    with at_step("restore:wrote-one", fail), pytest.raises(MemoryError):
        manager.restore(project, target)
    assert manifest(project) == mutated
    assert_sound(base, project)
    assert manager.restore(project, target).note == ""


def test_a_rollback_keeps_the_times_of_files(
    manager: CheckpointManager, project: Path, target: str
) -> None:
    times = mtimes(project)
    late = at_step("restore:wrote-one", lambda: overwrite(project / "src" / "main.py"))
    with late, pytest.raises(ShadowsnapError):
        manager.restore(project, target)
    now = mtimes(project)
    assert {path for path in now if now[path] != times[path]} == {b"src/main.py"}


# --- directories that are replaced while a restore is under way -----------------------------------------


@pytest.fixture
def folders(manager: CheckpointManager, tmp_path: Path) -> tuple[Path, str]:
    """Two directories with changed files."""
    project = tmp_path / "folders"
    for name in ("a/one", "a/two", "z/last"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("then\n")
    target = checkpoint(manager, project).id
    for name in ("a/one", "a/two", "z/last"):
        (project / name).write_text("present\n")
    return project, target


def lead_out(project: Path) -> None:
    (project / "a").rename(project / "away")
    (project.parent / "outside").mkdir()
    (project / "a").symlink_to(project.parent / "outside")


def make_another(project: Path) -> None:
    (project / "a").rename(project / "away")
    (project / "a").mkdir()


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("exchange", [lead_out, make_another])
def test_nothing_is_put_back_into_another_directory(
    manager: CheckpointManager, base: Path, folders: tuple[Path, str], exchange: Callable[[Path], None], late: bool
) -> None:
    """A directory is exchanged after its first file was restored; and perhaps a later file fails."""
    project, target = folders
    done: list[str] = []

    def on_step(step: str) -> None:
        if step == "restore:wrote-one":
            done.append(step)
            if len(done) == 1:
                exchange(project)
            if len(done) == 2 and late:
                (project / "z" / "last").write_text("written late\n")

    with listening(on_step), pytest.raises(RestoreStranded, match="another directory|Not a directory"):
        manager.restore(project, target)
    assert list((project / "a").iterdir()) == []  # also where a link leads
    assert (project / "z" / "last").read_text() == ("written late\n" if late else "present\n")
    saved = manager.list_checkpoints(project)[0]
    assert content_in(base, saved.id, "a/one") == "present"
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.checkpoint is not None and "was finished" in outcome.note  # the next operation finishes it
    assert (project / "a" / "one").read_text() == (project / "z" / "last").read_text() == "then\n"


def test_an_old_file_that_is_written_to_in_staging_survives_the_rollback(
    manager: CheckpointManager, folders: tuple[Path, str]
) -> None:
    """A program still has it open; and the new one is saved by an editor as well."""
    project, target = folders
    descriptor = os.open(project / "a" / "one", os.O_WRONLY | os.O_APPEND)

    def write() -> None:
        os.write(descriptor, b"a late line\n")
        (project / "a" / "one").write_text("saved by an editor\n")

    with at_step("restore:wrote-one", write), pytest.raises(RestoreRefused, match="a/one"):
        manager.restore(project, target)
    os.close(descriptor)
    assert (project / "a" / "one").read_text() == "saved by an editor\n"
    assert (project / "a" / "one.shadowsnap-1").read_text() == "present\na late line\n"
    assert (project / "a" / "two").read_text() == "present\n"
