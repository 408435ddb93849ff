"""What checkpoints changed is counted once and stays right."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import git, loose_object
from shadowsnap import CheckpointManager
from shadowsnap.git import repository as runner
from shadowsnap.store import checkpoints
from shadowsnap.store.layout import Store
from shadowsnap.store.projects import project_of
from shadowsnap.upkeep.clear import forget_project

Numbers = list[tuple[int | None, int | None, int | None]]


@pytest.fixture
def manager(base: Path, project: Path) -> CheckpointManager:
    """Four checkpoints: each adds a line to the file that the one before it added."""
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False)
    for number in range(4):
        manager.new_turn()
        assert manager.ensure_checkpoint(project)
        (project / f"new{number}").write_text("a\nb\n")
        if number:
            (project / f"new{number - 1}").write_text("a\nb\nc\n")
    return manager


def numbers(manager: CheckpointManager, project: Path, path: str | None = None) -> Numbers:
    listed = manager.list_checkpoints(project, path=path)
    return [(each.files_changed, each.insertions, each.deletions) for each in listed]


def remembered(base: Path, project: Path) -> Path:
    return Store(base).statistics_file(project_of(project).id)


def test_what_was_counted_is_not_counted_again(manager: CheckpointManager, base: Path, project: Path) -> None:
    first = numbers(manager, project)
    assert first == [(2, 3, 0), (2, 3, 0), (1, 2, 0), (None, None, None)]
    before = runner.processes_started
    assert numbers(manager, project) == first
    assert runner.processes_started - before == 1
    remembered(base, project).unlink()
    assert numbers(manager, project) == first


def test_numbers_are_those_against_the_checkpoint_that_is_before_it_now(
    manager: CheckpointManager, project: Path
) -> None:
    numbers(manager, project)
    manager.delete(project, "last~1")
    assert numbers(manager, project) == [(3, 6, 0), (1, 2, 0), (None, None, None)]


def test_a_lost_object_does_not_hide_the_list(manager: CheckpointManager, base: Path, project: Path) -> None:
    (project / "lost").write_text("only here\n")
    manager.new_turn()
    checkpoint = manager.ensure_checkpoint(project).checkpoint
    first = numbers(manager, project)
    remembered(base, project).unlink()
    store = Store(base).git_dir
    lost = git(store, "rev-parse", f"{checkpoint.id}:lost").strip()
    loose_object(store, lost).unlink()
    assert numbers(manager, project) == [(None, None, None), *first[1:]]


def test_a_single_path_has_numbers_of_its_own(manager: CheckpointManager, project: Path) -> None:
    numbers(manager, project)
    assert numbers(manager, project, "new0") == [(1, 1, 0), (1, 2, 0)]
    assert numbers(manager, project)[0] == (2, 3, 0)


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"a b":7}', '{"a":["x",1,2]}', '{"a b":[1,2]}'])
def test_damaged_numbers_are_counted_again(
    manager: CheckpointManager, base: Path, project: Path, damage: str
) -> None:
    first = numbers(manager, project)
    remembered(base, project).write_text(damage)
    assert numbers(manager, project) == first


def test_a_list_is_whole_where_nothing_can_be_remembered(
    manager: CheckpointManager, base: Path, project: Path
) -> None:
    remembered(base, project).mkdir()
    assert numbers(manager, project)[0] == (2, 3, 0)
    assert [path.name for path in remembered(base, project).parent.glob(".*")] == []


def test_beyond_some_number_only_those_of_the_last_list_are_remembered(
    manager: CheckpointManager, base: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_MOST", 3)
    first = numbers(manager, project)
    assert remembered(base, project).read_text().count(":") == 3
    manager.delete(project, "last~1")
    numbers(manager, project)
    assert remembered(base, project).read_text().count(":") == 2
    assert numbers(manager, project)[1:] == first[2:]


def test_a_forgotten_project_leaves_no_numbers(manager: CheckpointManager, base: Path, project: Path) -> None:
    numbers(manager, project)
    assert remembered(base, project).exists()
    forget_project(Store(base), project_of(project))
    assert not remembered(base, project).exists()
