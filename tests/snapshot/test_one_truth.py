"""What a checkpoint holds is what a capture from nothing would hold, although ignore rules and settings
changed since the last one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from capturing import captured, content, names, skipped, snap
from restoring import content_in

from helpers import git, manifest
from shadowsnap import Checkpoint, CheckpointManager

SMALL_MB = 4000 / 2**20
LARGE = "1,2,3\n" * 1000
"""More than `SMALL_MB`."""


def cold(tmp_path: Path, project: Path, **settings: Any) -> tuple[Any, ...]:
    """What a capture into a store of its own says."""
    number = sum(1 for _ in tmp_path.glob("cold-*"))
    return facts_of(snap(tmp_path / f"cold-{number}", project, **settings))


def facts_of(checkpoint: Checkpoint) -> tuple[Any, ...]:
    """Tree and facts of a checkpoint, which do not depend on what was known before it. (Which bits are
    called the usual ones does depend on that.)"""
    facts = {name: checkpoint.metadata.get(name) for name in ("empty_dirs", "excludes", "rules")}
    return checkpoint.tree, checkpoint.skipped, facts


@dataclass(frozen=True)
class Change:
    """A file that is captured at first, and something that keeps it out of later captures."""

    path: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Before the change."""
    later: dict[str, Any] = field(default_factory=dict)
    """After it."""
    rules: tuple[str, str] | None = None
    """An ignore file, and the line that is added to it."""
    why: str | None = None
    """The reason that later checkpoints give for leaving the file out; ignored files need none."""

    def apply(self, project: Path) -> None:
        if self.rules is not None:
            file, line = self.rules
            (project / file).parent.mkdir(parents=True, exist_ok=True)
            with open(project / file, "a") as rules:
                rules.write(line + "\n")

    def take_back(self, project: Path) -> None:
        if self.rules is not None:
            (project / self.rules[0]).unlink(missing_ok=True)


CHANGES = {
    "a line in .gitignore": Change("data.csv", rules=(".gitignore", "*.csv")),
    "a .gitignore deeper down": Change("deep/data.csv", rules=("deep/.gitignore", "*.csv")),
    "a directory in .gitignore": Change("deep/er/data.csv", rules=(".gitignore", "deep/")),
    "a .gitignore that ignores itself": Change("data.csv", rules=(".gitignore", "*.csv\n.gitignore")),
    "a line in .git/info/exclude": Change("data.csv", rules=(".git/info/exclude", "*.csv")),
    "a lower size limit": Change("data.csv", later={"max_file_size_mb": SMALL_MB}, why="too-large"),
    "secrets left out": Change(".env", {"include_secrets": True}, why="secret"),
    "an exclude": Change("data.csv", later={"excludes": ("*.csv",)}),
    "an exclude of a directory": Change("deep/data.csv", later={"excludes": ("deep/",)}),
}
everyway = pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))


@pytest.fixture
def work(project: Path, change: Change) -> Path:
    if change.rules is not None and change.rules[0].startswith(".git/"):
        git(project, "init", "-q")
    (project / "app.py").write_text("the program\n")
    (project / change.path).parent.mkdir(parents=True, exist_ok=True)
    (project / change.path).write_text(LARGE)
    return project


# --- a restore across the change --------------------------------------------------------------------


@everyway
@pytest.mark.every(2)
def test_a_file_stays_in_later_checkpoints_after_a_restore_across_the_change(
    base: Path, work: Path, change: Change, tmp_path: Path
) -> None:
    first = snap(base, work, **change.settings)
    original = manifest(work)
    (work / "app.py").write_text("spoiled\n")
    change.apply(work)
    CheckpointManager(base=base, **change.later).restore(work, first.id)
    change.take_back(work)  # what was no captured file is no restore's business
    assert manifest(work) == original

    again = snap(base, work, **change.settings)
    assert {"app.py", change.path} <= names(base, again)
    assert facts_of(again) == cold(tmp_path, work, **change.settings)
    (work / "app.py").write_text("the next turn\n")
    later = snap(base, work, status="taken", **change.settings)
    assert {"app.py", change.path} <= names(base, later)
    assert facts_of(later) == cold(tmp_path, work, **change.settings)


@everyway
@pytest.mark.every(2, start=1)
def test_a_file_that_the_agent_removes_after_a_restore_across_the_change_can_be_brought_back(
    base: Path, work: Path, change: Change
) -> None:
    first = snap(base, work, **change.settings)
    (work / "app.py").write_text("spoiled\n")
    change.apply(work)
    CheckpointManager(base=base, **change.later).restore(work, first.id)
    change.take_back(work)
    (work / "app.py").write_text("the person's next work\n")

    manager = CheckpointManager(base=base, **change.settings)
    assert manager.ensure_checkpoint(work).status == "taken"
    before_turn = manager.get(work, "last")
    (work / change.path).unlink()
    manager.restore(work, before_turn.id)
    assert (work / change.path).read_text() == LARGE
    assert (work / "app.py").read_text() == "the person's next work\n"


@everyway
def test_what_is_left_out_from_now_on_is_what_a_capture_from_nothing_leaves_out(
    base: Path, work: Path, change: Change, tmp_path: Path
) -> None:
    first = snap(base, work, **change.settings)
    (work / "app.py").write_text("spoiled\n")
    CheckpointManager(base=base, **change.later).restore(work, first.id)
    change.apply(work)
    for text in ("one\n", "two\n"):
        (work / "app.py").write_text(text)
        later = snap(base, work, status="taken", **change.later)
        assert change.path not in names(base, later)
        assert skipped(later).get(change.path) == change.why
        assert facts_of(later) == cold(tmp_path, work, **change.later)


# Whether the last checkpoint before the restore holds the changed file already.
known = pytest.mark.parametrize("is_known", [False, True], ids=["in no checkpoint", "in the newest checkpoint"])


@known
@everyway
@pytest.mark.each_value
def test_the_checkpoint_before_a_restore_holds_what_the_restore_overwrites(
    base: Path, work: Path, change: Change, is_known: bool
) -> None:
    first = snap(base, work, **change.settings)
    (work / "app.py").write_text("spoiled\n")
    (work / change.path).write_text("changed\n" + LARGE)
    if is_known:
        snap(base, work, **change.settings)
    change.apply(work)
    result = CheckpointManager(base=base, **change.later).restore(work, first.id)
    assert {"app.py", change.path} <= set(result.written)
    assert (work / change.path).read_text() == LARGE
    assert result.undo_id is not None
    assert content_in(base, result.undo_id, "app.py") == "spoiled"
    assert content_in(base, result.undo_id, change.path) + "\n" == "changed\n" + LARGE


@known
@everyway
@pytest.mark.each_value
def test_undo_brings_back_what_a_restore_across_the_change_overwrote(
    base: Path, work: Path, change: Change, is_known: bool
) -> None:
    first = snap(base, work, **change.settings)
    (work / "app.py").write_text("spoiled\n")
    (work / change.path).write_text("changed\n" + LARGE)
    if is_known:
        snap(base, work, **change.settings)
    change.apply(work)
    mutated = manifest(work)
    manager = CheckpointManager(base=base, **change.later)
    manager.restore(work, first.id)
    restored = manifest(work)
    manager.undo(work)
    assert manifest(work) == mutated
    manager.redo(work)
    assert manifest(work) == restored


@everyway
@pytest.mark.every(2)
def test_undo_brings_back_what_another_manager_with_the_earlier_settings_overwrote(
    base: Path, work: Path, change: Change
) -> None:
    first = snap(base, work, **change.settings)
    (work / change.path).write_text("changed\n" + LARGE)
    change.apply(work)
    (work / "app.py").write_text("spoiled\n")
    snap(base, work, **change.later)  # the cache knows nothing of the file any more
    mutated = manifest(work)
    CheckpointManager(base=base, **change.settings).restore(work, first.id)
    assert (work / change.path).read_text() == LARGE
    CheckpointManager(base=base, **change.later).undo(work)
    assert manifest(work) == mutated


@everyway
@pytest.mark.every(2, start=1)
def test_doctor_finds_nothing_wrong_after_a_restore_across_the_change(
    base: Path, work: Path, change: Change
) -> None:
    first = snap(base, work, **change.settings)
    (work / "app.py").write_text("spoiled\n")
    change.apply(work)
    manager = CheckpointManager(base=base, **change.later)
    manager.restore(work, first.id)
    checkup = manager.doctor()
    assert checkup.healthy and checkup.findings == ()


# --- a tool names the file --------------------------------------------------------------------------

NAMED = {name: change for name, change in CHANGES.items() if change.why is None}
namedway = pytest.mark.parametrize("change", NAMED.values(), ids=list(NAMED))


@namedway
@pytest.mark.parametrize("edited", [False, True], ids=["as captured", "edited"])
@pytest.mark.each_value
def test_a_file_that_became_ignored_is_captured_if_a_tool_names_it(
    base: Path, work: Path, change: Change, edited: bool
) -> None:
    snap(base, work, **change.settings)
    change.apply(work)
    text = "edited\n" if edited else LARGE
    (work / change.path).write_text(text)
    (work / "app.py").write_text("so that there is something new\n")
    manager = CheckpointManager(base=base, **change.later)
    manager.new_turn()
    outcome = manager.before_tool("Write", {"file_path": str(work / change.path)}, work)
    assert outcome.status == "taken" and outcome.checkpoint is not None
    assert content(base, outcome.checkpoint, change.path).decode() == text
    assert outcome.skipped == ()

    (work / change.path).unlink()
    manager.restore(work, outcome.checkpoint.id)
    assert (work / change.path).read_text() == text


@namedway
def test_a_file_that_became_ignored_and_was_named_stays_in_later_checkpoints(
    base: Path, work: Path, change: Change
) -> None:
    snap(base, work, **change.settings)
    change.apply(work)
    snap(base, work, change.path, **change.later)
    for text in ("one\n", "two\n"):
        (work / change.path).write_text(text)
        later = snap(base, work, status="taken", **change.later)
        assert content(base, later, change.path).decode() == text


@namedway
def test_a_directory_that_became_ignored_is_captured_if_a_tool_names_it(
    base: Path, work: Path, change: Change
) -> None:
    folder = Path("named") / Path(change.path).parent
    (work / folder).mkdir(parents=True)
    (work / folder / "data.csv").write_text(LARGE)
    snap(base, work, **change.settings)
    change.apply(work)
    (work / "app.py").write_text("so that there is something new\n")
    named = snap(base, work, "named", status="taken", **change.later)
    assert (folder / "data.csv").as_posix() in names(base, named)


@pytest.mark.parametrize("name", ["a lower size limit", "secrets left out"])
def test_a_named_file_that_may_not_be_captured_any_more_is_listed(base: Path, project: Path, name: str) -> None:
    change = CHANGES[name]
    (project / change.path).write_text(LARGE)
    snap(base, project, **change.settings)
    (project / "README.md").write_text("so that there is something new\n")
    named = snap(base, project, change.path, status="taken", **change.later)
    assert change.path not in names(base, named)
    assert skipped(named) == {change.path: change.why}


def test_a_file_that_is_ignored_named_and_then_not_ignored_any_more_is_captured_throughout(
    base: Path, project: Path, tmp_path: Path
) -> None:
    (project / "notes.txt").write_text("notes\n")
    for rules in ("", "notes.txt\n", "*.txt\n", ""):
        (project / ".gitignore").write_text(rules)
        (project / "README.md").write_text(f"rules: {rules}\n")
        checkpoint = snap(base, project, "notes.txt", status="taken")
        assert content(base, checkpoint, "notes.txt") == b"notes\n"
    assert captured(base, checkpoint) == manifest(project)
    assert facts_of(checkpoint) == cold(tmp_path, project)


# --- names that are not plain -----------------------------------------------------------------------


def as_file_path(path: str) -> object:
    return {"file_path": path, "content": "new\n"}


def as_list(path: str) -> object:
    return {"paths": ["README.md", path]}


def as_edits(path: str) -> object:
    return {"edits": [{"path": path, "old_string": "a", "new_string": "b"}]}


@pytest.mark.parametrize("path", ["two\nlines.log", "\n.log", "ends.log\n", "dir\nectory/x.log"])
@pytest.mark.parametrize("shape", [as_file_path, as_list, as_edits])
@pytest.mark.each_value
def test_an_ignored_file_with_a_line_break_in_its_name_is_captured_if_a_tool_names_it(
    base: Path, project: Path, path: str, shape: Callable[[str], object]
) -> None:
    (project / ".gitignore").write_text("*.log*\n")
    (project / path).parent.mkdir(exist_ok=True)
    (project / path).write_text("precious\n")
    manager = CheckpointManager(base=base, fsync=False)
    manager.new_turn()
    outcome = manager.before_tool("Write", shape(path), project)
    assert outcome.status == "taken" and outcome.checkpoint is not None
    assert content(base, outcome.checkpoint, path) == b"precious\n"


def test_text_under_a_key_for_paths_does_no_harm(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    manager.new_turn()
    text = "".join(f"line {number} of a program / with slashes\n" for number in range(200))
    outcome = manager.before_tool("Run", {"source": text, "file": text * 10}, project)
    assert outcome.status == "taken" and outcome.checkpoint is not None
    assert outcome.skipped == ()
    assert captured(base, outcome.checkpoint) == manifest(project)
