"""The list of checkpoints as an agent loop sees it: newest first, what each changed, of whom, of which file."""

from __future__ import annotations

from pathlib import Path

import pytest
from capturing import checkpoint_of

from shadowsnap import Checkpoint, CheckpointManager
from shadowsnap.errors import NoSuchProject, PathRefused


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False)


def turn(manager: CheckpointManager, project: Path, session: str | None = None, **files: str | None) -> Checkpoint:
    """A turn that begins after the person changed some files."""
    for name, text in files.items():
        path = project / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text) if text is not None else path.unlink()
    manager.new_turn(session_id=session)
    return checkpoint_of(manager.ensure_checkpoint(project, f"after {' '.join(files)}"))


@pytest.fixture
def history(manager: CheckpointManager, project: Path) -> list[Checkpoint]:
    """Newest first."""
    return [
        turn(manager, project, "one", a="1\n2\n3\n"),
        turn(manager, project, "two", a="1\ntwo\n3\n4\n", b="1\n"),
        turn(manager, project, "one", a=None),
        turn(manager, project, None, src__c="1\n", **{"data.bin": "\0\1\n"}),
        turn(manager, project, "two", b="1\n2\n"),
    ][::-1]


def test_newest_first_with_what_each_changed(
    manager: CheckpointManager, project: Path, history: list[Checkpoint]
) -> None:
    listed = manager.list_checkpoints(project)
    assert [checkpoint.id for checkpoint in listed] == [checkpoint.id for checkpoint in history]
    assert [(each.files_changed, each.insertions, each.deletions) for each in listed] == [
        (1, 1, 0),
        (2, 1, 0),  # the binary file counts as a file, without lines
        (1, 0, 4),
        (2, 3, 1),
        (None, None, None),  # there is nothing before it
    ]
    assert [each.turn for each in listed] == [5, 4, 3, 2, 1]
    assert [each.created_at for each in listed] == sorted((each.created_at for each in listed), reverse=True)


@pytest.mark.parametrize("limit", [1, 2, 4, 5, 99])
def test_a_limit_shows_the_newest_and_changes_nothing_about_them(
    manager: CheckpointManager, project: Path, history: list[Checkpoint], limit: int
) -> None:
    assert manager.list_checkpoints(project, limit=limit) == manager.list_checkpoints(project)[:limit]


def test_checkpoints_of_one_session(manager: CheckpointManager, project: Path, history: list[Checkpoint]) -> None:
    whole = {checkpoint.id: checkpoint for checkpoint in manager.list_checkpoints(project)}
    for session, positions in {"one": [2, 4], "two": [0, 3], "three": []}.items():
        found = manager.list_checkpoints(project, session_id=session)
        assert found == [whole[history[position].id] for position in positions], session
    assert manager.list_checkpoints(project, limit=1, session_id="one") == [whole[history[2].id]]


def test_checkpoints_that_changed_one_path(
    manager: CheckpointManager, project: Path, history: list[Checkpoint]
) -> None:
    positions = {"a": [2, 3, 4], "b": [0, 3], "src/c": [1], "src": [1, 4], "data.bin": [1, 4], "nowhere": []}
    for path, expected in positions.items():
        for given in (path, project / path):
            found = [checkpoint.id for checkpoint in manager.list_checkpoints(project, path=given)]
            assert found == [history[position].id for position in expected], path
    assert len(manager.list_checkpoints(project, path="a", limit=2)) == 2
    (only,) = manager.list_checkpoints(project, path="b", session_id="two", limit=1)
    assert (only.files_changed, only.insertions, only.deletions) == (1, 1, 0)


def test_a_path_outside_is_refused(manager: CheckpointManager, project: Path, history: list[Checkpoint]) -> None:
    with pytest.raises(PathRefused):
        manager.list_checkpoints(project, path="../elsewhere")


def test_a_directory_without_checkpoints_has_an_empty_list(manager: CheckpointManager, project: Path) -> None:
    with pytest.raises(NoSuchProject):
        manager.list_checkpoints(project)


def test_reasons_of_any_text_are_kept(manager: CheckpointManager, project: Path) -> None:
    reasons = [
        "plain", "", " spaces ", "two\nlines\n\nand more", "tab\tand\0nul", "{\"json\": 1}", "-n", "%00%(refname)",
        "caf\u00e9 \U0001f600", "\udcff", "x" * 5000, "tree 4b825dc\nauthor x", "-----BEGIN PGP SIGNATURE-----\nx",
    ]  # fmt: skip
    for number, reason in enumerate(reasons):
        (project / "a").write_text(str(number))
        manager.new_turn()
        assert checkpoint_of(manager.ensure_checkpoint(project, reason)).reason == reason
    assert [checkpoint.reason for checkpoint in manager.list_checkpoints(project)] == reasons[::-1]
