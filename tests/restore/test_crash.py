"""kill -9 at every step: the next call puts things right and reports it, nothing is lost, and the operation log
says once what happened."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from restoring import (
    STAGING,
    all_ids,
    assert_sound,
    checkpoint,
    die,
    in_child,
    killed_at,
    listening,
    on_touch,
    samples,
    touches_of,
)
from thorough import depth

from helpers import Entry, manifest
from shadowsnap import CheckpointManager

Picture = dict[bytes, Entry]


@dataclass
class Story:
    """A project that was changed after a checkpoint."""

    base: Path
    project: Path
    target: str
    mutated: Picture
    ids: set[str]

    @property
    def manager(self) -> CheckpointManager:
        """A new one each time: the next call comes from another process."""
        return CheckpointManager(base=self.base, fsync=False)

    def restore(self) -> None:
        self.manager.restore(self.project, self.target)

    def undo(self) -> None:
        self.manager.undo(self.project)

    def redo(self) -> None:
        self.manager.redo(self.project)

    def restore_some(self) -> None:
        self.manager.restore(self.project, self.target, paths=["src", "new", "deep/er"])

    def snapshot(self) -> None:
        self.manager.ensure_checkpoint(self.project)


def begin(where: Path) -> Story:
    base, project = where / "base", where / "project"
    (project / "src").mkdir(parents=True)
    (project / "deep" / "er").mkdir(parents=True)
    (project / "src" / "main.py").write_text("then\n")
    (project / "deep" / "er" / "gone").write_text("deleted since\n")
    (project / "README.md").write_text("then\n")
    (project / "swap").write_text("a directory now\n")
    (project / "bits").write_text("the same\n")
    (project / "link").symlink_to("README.md")
    (project / "empty").mkdir()
    (project / "deep").chmod(0o750)
    story = Story(base, project, "", {}, set())
    story.target = checkpoint(story.manager, project).id
    (project / "src" / "main.py").write_text("now\n")
    (project / "README.md").write_text("now\n")
    (project / "new").write_text("made since\n")
    (project / "folder").mkdir()
    for number in range(3):
        (project / "folder" / f"made-{number}").write_text("made since\n")
    shutil.rmtree(project / "deep")
    (project / "swap").unlink()
    (project / "swap").mkdir()
    (project / "swap" / "debug.log").write_text("ignored\n")
    (project / "bits").chmod(0o600)
    (project / "link").unlink()
    (project / "link").symlink_to("src")
    (project / "empty").rmdir()
    story.mutated = manifest(project)
    story.ids = all_ids(story.manager, project)
    return story


@pytest.fixture
def again(tmp_path: Path) -> Callable[[], Story]:
    """Makes the same story again at each call."""
    made: list[Path] = []

    def fresh() -> Story:
        for where in made:
            shutil.rmtree(where)
        made[:] = [tmp_path / f"story-{fresh.count}"]  # type: ignore[attr-defined]
        fresh.count += 1  # type: ignore[attr-defined]
        made[0].mkdir()
        return begin(made[0])

    fresh.count = 0  # type: ignore[attr-defined]
    return fresh


def steps_of(action: Callable[[], None]) -> Iterator[tuple[str, int]]:
    """Every step that an operation passes: once, and where it is passed for the last time; of those that are
    passed often, more if thorough."""
    passed: list[str] = []
    with listening(passed.append):
        action()
    assert passed
    for name, times in Counter(passed).items():
        more = range(0, times, max(1, times // 4))
        for which in sorted({times - 1, *depth((), more)}):
            yield name, which


def some(points: list[tuple[str, int]], start: int) -> list[tuple[str, int]]:
    """Every third step; all of them if thorough. A restore is tried at every step, and the operations built on it
    begin at different ones, so that together they pass all."""
    each = depth(3, 1)
    return points[start % each :: each]


def without_staging(project: Path) -> Picture:
    return {path: entry for path, entry in manifest(project).items() if not path.startswith(STAGING)}


def assert_recovered(story: Story, restored: Picture, before: Picture, *, at: str) -> None:
    """What has to hold after a crash and the next call."""
    assert story.ids <= all_ids(story.manager, story.project), f"{at}: a checkpoint was lost"
    half = without_staging(story.project)
    outcome = story.manager.ensure_checkpoint(story.project)
    assert outcome.status in ("taken", "unchanged"), f"{at}: {outcome.error}"
    after = manifest(story.project)
    assert after in (restored, before), f"{at}: half restored"
    if after != half:
        assert "interrupted" in outcome.note, f"{at}: not reported"
    assert_sound(story.base, story.project)
    assert_logged_once(story.base, at=at)


def assert_logged_once(base: Path, *, at: str) -> None:
    """The log has one line about each restore, and one beginning of each turn; and it mentions every checkpoint
    that is not part of a restore."""
    (log,) = base.glob("log/*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    restores = [line["id"] for line in lines if line["op"] == "restore"]
    assert len(restores) == len({*restores}), f"{at}: a restore is in the log twice"
    for name in ("turn", "key"):
        begun = [line[name] for line in lines if line["op"] == "begin"]
        assert len(begun) == len({*begun}), f"{at}: a turn is in the log twice"
    text = log.read_text()
    (project,) = (path.stem for path in base.glob("log/*.jsonl"))
    for each in CheckpointManager(base=base, fsync=False).list_checkpoints(_workdir(base, project)):
        if each.kind != "pre-restore" and not each.metadata.get("revert"):
            assert each.id in text, f"{at}: the log does not mention a checkpoint of kind {each.kind}"


def _workdir(base: Path, project: str) -> str:
    record = json.loads((base / "store" / "projects" / f"{project}.json").read_text())
    return str(record["workdir"])


# --- restore ----------------------------------------------------------------------------------------


def test_a_restore_killed_at_any_step_is_finished_or_never_began(again: Callable[[], Story]) -> None:
    story = again()
    points = list(steps_of(story.restore))
    restored = manifest(story.project)
    assert {name for name, _ in points} >= {
        "capture:scanned", "snapshot:recorded", "restore:begun", "restore:staged", "restore:deleted-one",
        "restore:wrote-one", "restore:logged", "restore:settled", "restore:cleaned",
    }  # fmt: skip
    for name, which in points:
        story = again()
        assert killed_at(name, which, story.restore), name
        assert_recovered(story, restored, story.mutated, at=f"{name} #{which}")
        if manifest(story.project) == restored:
            story.undo()
            assert manifest(story.project) == story.mutated, f"no way back after {name}"
            story.redo()
        else:
            story.restore()
        assert manifest(story.project) == restored


def test_a_restore_of_many_files_killed_at_any_step_is_finished_or_never_began(
    again: Callable[[], Story],
) -> None:
    """Git writes the new files then, in processes that outlive the one that is killed."""

    def ready() -> Story:
        story = again()
        for text in ("then", "now"):
            for number in range(220):
                (story.project / "empty").mkdir(exist_ok=True)
                (story.project / "empty" / f"file-{number}").write_text(f"{text} {number}\n")
            if text == "then":
                story.target = checkpoint(story.manager, story.project).id
        story.mutated, story.ids = manifest(story.project), all_ids(story.manager, story.project)
        return story

    story = ready()
    story.restore()
    restored = manifest(story.project)
    for point in ("restore:begun", "restore:saved", "restore:staged", "restore:wrote-one", "restore:settled"):
        story = ready()
        assert killed_at(point, 0, story.restore)
        assert_recovered(story, restored, story.mutated, at=point)


def test_a_restore_of_some_paths_killed_at_any_step_is_finished_or_never_began(
    again: Callable[[], Story],
) -> None:
    story = again()
    points = list(steps_of(story.restore_some))
    restored = manifest(story.project)
    assert restored[b"deep"] == ("dir", 0o750, None)
    for name, which in some(points, 0):
        story = again()
        assert killed_at(name, which, story.restore_some), name
        assert_recovered(story, restored, story.mutated, at=f"{name} #{which}")
        if manifest(story.project) == restored:
            story.undo()
            assert manifest(story.project) == story.mutated, f"no way back after {name}"


@pytest.mark.parametrize("way", ["undo", "redo"])
def test_an_undo_or_redo_killed_at_any_step_is_finished_or_never_began(
    again: Callable[[], Story], way: str
) -> None:
    def ready() -> tuple[Story, Picture]:
        story = again()
        story.restore()
        if way == "redo":
            story.undo()
        story.ids = all_ids(story.manager, story.project)
        return story, manifest(story.project)

    story, _ = ready()
    points = list(steps_of(getattr(story, way)))
    there = manifest(story.project)
    for name, which in some(points, 1 if way == "undo" else 2):
        story, here = ready()
        assert killed_at(name, which, getattr(story, way)), name
        half = without_staging(story.project)
        manager = story.manager
        back, forth = (manager.redo, manager.undo) if way == "undo" else (manager.undo, manager.redo)
        # The chain of undo and redo is complete.
        plan = manager.list_checkpoints(story.project)
        assert story.ids <= {each.id for each in plan}
        manager.diff(story.project, story.target)
        recovered = manager.ensure_checkpoint(story.project)
        assert recovered.status in ("taken", "unchanged"), recovered.error
        after = manifest(story.project)
        assert after in (here, there), f"half done at {name} #{which}"
        if after != half:
            assert "interrupted" in recovered.note
        if after == there:
            back(story.project)
            assert manifest(story.project) == here
        forth(story.project)
        assert manifest(story.project) == there
        assert_sound(story.base, story.project)
        assert_logged_once(story.base, at=f"{name} #{which}")


@pytest.mark.parametrize("edited", [False, True], ids=["exactly", "by a merge"])
def test_an_undo_of_a_turn_killed_at_any_step_is_finished_or_never_began(
    again: Callable[[], Story], edited: bool
) -> None:
    def ready() -> tuple[Story, Picture]:
        story = again()
        manager = story.manager
        manager.ensure_checkpoint(story.project)
        (story.project / "README.md").write_text("by the agent\n")
        (story.project / "folder" / "by the agent").write_text("made\n")
        manager.end_turn()
        if edited:
            (story.project / "mine").write_text("made since\n")
        story.ids = all_ids(story.manager, story.project)
        return story, manifest(story.project)

    story, _ = ready()
    points = list(steps_of(story.undo))
    there = manifest(story.project)
    assert "restore:logged" in {name for name, _ in points}
    for name, which in some(points, 1 if edited else 0):
        story, here = ready()
        assert killed_at(name, which, story.undo), name
        assert_recovered(story, there, here, at=f"{name} #{which}")
        if manifest(story.project) == there:
            story.redo()
            assert manifest(story.project) == here, f"no way forth after {name}"
        story.undo()
        assert manifest(story.project) == there, f"{name} #{which}"
        story.undo()  # the turn before it
        assert (story.project / "README.md").read_text() == "then\n"
        assert (story.project / "mine").exists() == edited


@pytest.mark.parametrize("next_call", ["restore", "undo", "redo", "manual"])
def test_any_next_call_puts_things_right_and_reports_it(
    again: Callable[[], Story], next_call: str
) -> None:
    story = again()
    story.restore()
    restored = manifest(story.project)
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    assert manifest(story.project) not in (restored, story.mutated)
    manager = story.manager
    if next_call == "restore":
        assert "was finished" in manager.restore(story.project, story.target).note
        assert manifest(story.project) == restored
    elif next_call == "undo":
        assert "was finished" in manager.undo(story.project).note
        assert manifest(story.project) == story.mutated
    elif next_call == "redo":
        events: list[str] = []
        listening_manager = CheckpointManager(base=story.base, on_event=lambda event: events.append(event.kind))
        with pytest.raises(Exception, match="nothing was undone"):
            listening_manager.redo(story.project)
        assert events == ["recovered"]  # the error carries no note, so the event does
        assert manifest(story.project) == restored
    else:
        assert "was finished" in manager.snapshot(story.project).note
        assert manifest(story.project) == restored
    assert_sound(story.base, story.project)


def test_reading_does_not_disturb_a_restore_that_died(again: Callable[[], Story]) -> None:
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    half = manifest(story.project)
    manager = story.manager
    manager.restore(story.project, story.target, dry_run=True)
    manager.diff(story.project, story.target)
    manager.list_checkpoints(story.project)
    assert manifest(story.project) == half
    assert "was finished" in manager.ensure_checkpoint(story.project).note


def test_a_killed_recovery_is_recovered_from_too(again: Callable[[], Story]) -> None:
    story = again()
    story.restore()
    restored = manifest(story.project)
    story = again()
    assert killed_at("restore:wrote-one", 0, story.restore)
    points = list(steps_of(story.snapshot))
    assert manifest(story.project) == restored
    for name, which in some(points, 2):
        story = again()
        assert killed_at("restore:wrote-one", 0, story.restore)
        assert killed_at(name, which, story.snapshot), name
        assert_recovered(story, restored, restored, at=f"second death at {name} #{which}")
        story.undo()
        assert manifest(story.project) == story.mutated, "the way back leads to before the first attempt"


def test_what_was_written_between_the_crash_and_the_next_call_is_kept_in_a_checkpoint(
    again: Callable[[], Story],
) -> None:
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    (story.project / "README.md").write_text("written after the crash\n")
    (story.project / "thought").write_text("written after the crash\n")
    found = without_staging(story.project)
    note = story.manager.ensure_checkpoint(story.project).note
    as_found = note.rpartition(" ")[2]
    story.manager.restore(story.project, as_found)
    assert manifest(story.project) == found


def test_a_crash_does_not_keep_a_directory_open_that_was_opened_for_the_restore(
    again: Callable[[], Story], as_user: Callable[..., object]
) -> None:
    """A directory without write permission is opened for the time of a restore; in one that the checkpoint
    did not know, an ignored file stays, and so does the directory."""
    story = again()
    folder = story.project / "folder"
    (folder / "kept.log").write_text("ignored\n")
    folder.chmod(0o555)

    def die_and_recover() -> None:
        assert killed_at("restore:wrote-one", 0, story.restore)
        assert folder.stat().st_mode & 0o777 == 0o755
        assert "was finished" in story.manager.ensure_checkpoint(story.project).note

    as_user(die_and_recover)
    assert sorted(os.listdir(folder)) == ["kept.log"]
    assert folder.stat().st_mode & 0o777 == 0o555


def test_a_restore_in_a_directory_of_which_only_named_files_are_captured_is_recovered_too(
    home: Path, base: Path
) -> None:
    """The home directory: only named files are captured there."""
    manager = CheckpointManager(base=base, fsync=False)
    for name in ("one", "two", "three"):
        (home / name).write_text("then\n")
    target = checkpoint(manager, home, "one", "two", "three")
    assert target.scope == "paths"
    for name in ("one", "two", "three"):
        (home / name).write_text("now\n")
    assert killed_at("restore:wrote-one", 1, lambda: manager.restore(home, target.id))
    assert {(home / name).read_text() for name in ("one", "two", "three")} == {"then\n", "now\n"}
    manager.new_turn()
    outcome = manager.ensure_checkpoint(home, paths=["four"])
    assert "was finished" in outcome.note
    assert [(home / name).read_text() for name in ("one", "two", "three")] == ["then\n"] * 3
    assert not list(home.glob(".shadowsnap-restore-*"))
    manager.undo(home)
    assert [(home / name).read_text() for name in ("one", "two", "three")] == ["now\n"] * 3


# --- snapshot ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True])
def test_a_snapshot_killed_at_any_step_costs_nothing(again: Callable[[], Story], many: bool) -> None:
    def ready() -> Story:
        story = again()
        if many:  # enough for a pack
            (story.project / "bulk").mkdir()
            for number in range(150):
                (story.project / "bulk" / str(number)).write_text(f"{number}\n")
            story.mutated = manifest(story.project)
        return story

    points = list(steps_of(ready().snapshot))
    assert {name for name, _ in points} >= {
        "capture:scanned", "capture:read", "snapshot:captured", "snapshot:recorded", "snapshot:logged",
    }  # fmt: skip
    # Every step with few files; with many, some of the same, as only what is read and written is another way.
    for name, which in some(points, 1) if many else points:
        story = ready()
        assert killed_at(name, which, story.snapshot), name
        assert manifest(story.project) == story.mutated
        assert story.ids <= all_ids(story.manager, story.project)
        outcome = story.manager.ensure_checkpoint(story.project)
        assert outcome.status in ("taken", "unchanged") and outcome.checkpoint is not None, outcome.error
        assert outcome.note == ""
        assert not story.manager.diff(story.project, outcome.checkpoint.id)
        assert len(all_ids(story.manager, story.project)) == len(story.ids) + 1
        assert_sound(story.base, story.project)
        assert_logged_once(story.base, at=f"{name} #{which}")
        story.undo()  # the turn that made all those changes
        assert (story.project / "README.md").read_text() == "then\n" and not (story.project / "new").exists()


def test_a_turn_whose_first_snapshot_was_killed_begins_once_and_keeps_its_number(
    again: Callable[[], Story],
) -> None:
    """The next process of the same turn, as with hooks, takes it up again."""

    def turn(story: Story) -> CheckpointManager:
        manager = story.manager
        manager.resume_turn({"session_id": "s1", "prompt": "do it", "key": "the same turn"})
        return manager

    def numbers(story: Story) -> list[int | None]:
        return [entry.number for entry in story.manager.timeline(story.project) if entry.session_id == "s1"]

    first = again()
    for name, which in list(steps_of(lambda: turn(first).ensure_checkpoint(first.project))):
        story = again()
        assert killed_at(name, which, lambda: turn(story).ensure_checkpoint(story.project))  # noqa: B023
        shown = numbers(story)
        manager = turn(story)
        assert manager.ensure_checkpoint(story.project).status in ("taken", "unchanged")
        assert_logged_once(story.base, at=f"{name} #{which}")
        assert len(numbers(story)) == 1 and shown in ([], numbers(story)), f"{name} #{which}: {shown}"
        before = manifest(story.project)
        (story.project / "README.md").write_text("by the agent\n")
        manager.end_turn()
        story.undo()
        assert manifest(story.project) == before


@pytest.mark.parametrize("granularity", ["turn", "tool"])
def test_a_turn_whose_end_was_killed_is_taken_back_exactly(again: Callable[[], Story], granularity: str) -> None:
    def ready() -> tuple[Story, Picture, CheckpointManager]:
        story = again()
        manager = CheckpointManager(base=story.base, fsync=False, granularity=granularity)  # type: ignore[arg-type]
        manager.new_turn(session_id="s1", prompt="do it")
        manager.before_tool("bash", {"command": "make"}, cwd=story.project)
        before = manifest(story.project)
        (story.project / "README.md").write_text("by the agent\n")
        (story.project / "made").write_text("made\n")
        return story, before, manager

    def end(manager: CheckpointManager, story: Story) -> None:
        manager.after_tool("bash", {"command": "make"}, cwd=story.project)
        manager.end_turn()

    story, _, manager = ready()
    points = list(steps_of(lambda: end(manager, story)))
    assert {name for name, _ in points} >= {"snapshot:recorded", "snapshot:logged", "snapshot:remembered"}
    # The same steps in both, so that one tries all and the other a part.
    for name, which in some(points, 2) if granularity == "tool" else points:
        story, before, manager = ready()
        assert killed_at(name, which, lambda: end(manager, story)), name  # noqa: B023
        shown = {entry.number: entry.prompt for entry in story.manager.timeline(story.project)}
        story.manager.snapshot(story.project)
        assert_logged_once(story.base, at=f"{name} #{which}")
        now = {entry.number: entry.prompt for entry in story.manager.timeline(story.project)}
        assert {number: prompt for number, prompt in now.items() if number in shown} == shown
        assert story.manager.undo(story.project).what == "turn 2: do it", name
        assert manifest(story.project) == before, name


def test_the_very_first_snapshot_killed_at_any_step_costs_nothing(project: Path, tmp_path: Path) -> None:
    def manager(base: Path) -> CheckpointManager:
        return CheckpointManager(base=base, fsync=False)

    points = list(steps_of(lambda: manager(tmp_path / "base").ensure_checkpoint(project)))
    picture = manifest(project)
    for number, (name, which) in enumerate(points):
        base = tmp_path / f"base-{number}"
        assert killed_at(name, which, lambda: manager(base).ensure_checkpoint(project))  # noqa: B023
        outcome = manager(base).ensure_checkpoint(project)
        assert outcome.status in ("taken", "unchanged"), outcome.error
        assert manifest(project) == picture
        assert_sound(base, project)


# --- between the steps ------------------------------------------------------------------------------


def killed_before(number: int, touches: int, action: Callable[[], object]) -> bool:
    """Kill an operation before one of its touches. How many there are depends a little on the clock (files
    of the very second are looked at twice), so the last few may not come."""
    died = in_child(on_touch(number, action, lambda _: die())) == -9
    assert died or number > touches * 3 // 4, f"not killed at touch {number} of {touches}"
    return died


@pytest.mark.parametrize("operation", ["restore", "undo"])
def test_an_operation_killed_before_any_touch_of_a_file_is_done_or_not_begun(
    again: Callable[[], Story], operation: str
) -> None:
    def ready() -> Story:
        story = again()
        if operation == "undo":
            story.restore()
            story.ids = all_ids(story.manager, story.project)
        return story

    story = ready()
    before = manifest(story.project)
    touches = touches_of(getattr(story, operation))
    after = manifest(story.project)
    assert touches > 50
    for number in range(0, touches, max(1, touches // samples(7))):
        story = ready()
        if not killed_before(number, touches, getattr(story, operation)):
            break
        assert story.ids <= all_ids(story.manager, story.project)
        outcome = story.manager.ensure_checkpoint(story.project)
        assert outcome.status in ("taken", "unchanged"), outcome.error
        assert manifest(story.project) in (before, after), f"half done at touch {number} of {touches}"
        story.manager.restore(story.project, story.target)
        assert_sound(story.base, story.project, debris=True)


def test_a_snapshot_killed_before_any_touch_of_a_file_costs_nothing(again: Callable[[], Story]) -> None:
    story = again()
    touches = touches_of(story.snapshot)
    for number in range(0, touches, max(1, touches // samples(5))):
        story = again()
        if not killed_before(number, touches, story.snapshot):
            break
        assert manifest(story.project) == story.mutated
        assert story.ids <= all_ids(story.manager, story.project)
        outcome = story.manager.ensure_checkpoint(story.project)
        assert outcome.status in ("taken", "unchanged") and outcome.checkpoint is not None, outcome.error
        assert not story.manager.diff(story.project, outcome.checkpoint.id)
        assert_sound(story.base, story.project, debris=True)


# --- changes between the crash and recovery- --------------------------------------------------------


def test_a_directory_that_was_made_anew_after_a_crash_is_left_alone(again: Callable[[], Story]) -> None:
    """The half restored files were removed, and the project was cloned again."""
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    shutil.rmtree(story.project)
    story.project.mkdir()
    (story.project / "README.md").write_text("a new clone\n")
    fresh = manifest(story.project)
    outcome = story.manager.ensure_checkpoint(story.project)
    assert outcome.status == "taken" and "not finished" in outcome.note
    assert manifest(story.project) == fresh
    before = outcome.note.rpartition(" ")[2]
    story.manager.restore(story.project, before)
    assert manifest(story.project) == story.mutated


def test_a_restore_whose_target_was_deleted_after_the_crash_is_put_back(again: Callable[[], Story]) -> None:
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    story.manager.delete(story.project, story.target)
    outcome = story.manager.ensure_checkpoint(story.project)
    assert outcome.status in ("taken", "unchanged") and "put back" in outcome.note
    assert manifest(story.project) == story.mutated
    assert_sound(story.base, story.project)


def test_a_restore_whose_way_back_was_deleted_after_the_crash_is_finished(again: Callable[[], Story]) -> None:
    story = again()
    story.restore()
    restored = manifest(story.project)
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    (begun,) = all_ids(story.manager, story.project) - story.ids
    story.manager.delete(story.project, begun)
    outcome = story.manager.ensure_checkpoint(story.project)
    assert "was finished" in outcome.note
    assert manifest(story.project) == restored
    assert_sound(story.base, story.project)


def test_a_restore_without_its_checkpoints_reports_where_the_files_are(again: Callable[[], Story]) -> None:
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    (staging,) = (name for name in os.listdir(os.fsencode(story.project)) if name.startswith(STAGING))
    story.manager.delete(story.project, list(all_ids(story.manager, story.project)))
    outcome = story.manager.ensure_checkpoint(story.project)
    assert outcome.status == "taken" and os.fsdecode(staging) in outcome.note
    moved = {path: entry for path, entry in story.mutated.items() if manifest(story.project).get(path) != entry}
    held = manifest(os.path.join(os.fsencode(story.project), staging)).values()
    assert moved and {entry for entry in moved.values() if entry[0] != "dir"} <= set(held)


def test_unsaved_content_is_not_removed_with_the_staging_directory(again: Callable[[], Story]) -> None:
    """A file was written to in the moment in which it was moved aside, and then the restore died."""
    story = again()
    assert killed_at("restore:wrote-one", 1, story.restore)
    (staging,) = story.project.glob(os.fsdecode(STAGING) + "*")
    held = next(path for path in staging.rglob("*") if path.is_file() and not path.is_symlink())
    held.write_text("written in the last moment\n")
    outcome = story.manager.ensure_checkpoint(story.project)
    assert "was finished" in outcome.note and f"{staging.name}-unsaved" in outcome.note
    (kept,) = story.project.glob(f"{staging.name}-unsaved/*")
    assert kept.read_text() == "written in the last moment\n" and not staging.exists()


def test_rules_that_take_every_exclude_back_do_not_disturb_a_recovery(again: Callable[[], Story]) -> None:
    """With `!*` in a .gitignore, even the staging directory looks like files of the project."""
    story = again()
    (story.project / ".gitignore").write_text("!*\n!.*\n")
    story.target = checkpoint(story.manager, story.project).id
    (story.project / "README.md").write_text("changed once more\n")
    (story.project / "new").unlink()
    mutated = manifest(story.project)
    story.restore()
    restored = manifest(story.project)
    story.undo()
    assert manifest(story.project) == mutated
    assert killed_at("restore:wrote-one", 0, story.restore)
    assert "was finished" in story.manager.ensure_checkpoint(story.project).note
    assert manifest(story.project) == restored
    story.undo()
    assert manifest(story.project) == mutated
    assert_sound(story.base, story.project)


@pytest.mark.parametrize("step", ["restore:applying", "restore:logged", "restore:settled"])
def test_a_file_that_was_ignored_when_a_restore_died_stays_and_so_does_its_directory(
    base: Path, project: Path, step: str
) -> None:
    """The restore brings back rules under which later captures see it."""
    manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)
    (project / ".gitignore").write_text("!*.log\n!build/\n")
    manager.snapshot(project)
    (project / ".gitignore").write_text("# nothing\n")
    (project / "made.log").write_text("the only copy\n")
    (project / "build" / "empty").mkdir(parents=True)
    before = manifest(project)
    assert killed_at(step, 0, lambda: manager.restore(project, 1))
    manager.snapshot(project)
    assert {path: before[path] for path in (b"made.log", b"build/empty")}.items() <= manifest(project).items()
    manager.undo(project)
    assert manifest(project) == before
