"""Random trees, random changes: restore gives back every state exactly, and so do undo and redo."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from random_trees import Change, Node, build, changes, mutate, trees

from helpers import manifest, remove_tree
from shadowsnap import CheckpointManager

EXAMPLES = settings().max_examples


@contextmanager
def fresh(where: Path) -> Iterator[tuple[CheckpointManager, Path]]:
    """A manager with a store of its own, and an empty project."""
    top = Path(tempfile.mkdtemp(dir=where))
    try:
        (top / "project").mkdir()
        yield CheckpointManager(base=top / "base", fsync=False, deadline=0), top / "project"
    finally:
        remove_tree(top)


def checkpoint(manager: CheckpointManager, project: Path) -> str:
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status in ("taken", "unchanged"), outcome.error
    assert outcome.checkpoint is not None and outcome.skipped == ()
    return outcome.checkpoint.id


def restores_and_comes_back(where: Path, tree: dict[bytes, Node], mutations: list[Change]) -> None:
    with fresh(where) as (manager, project):
        build(os.fsencode(project), tree)
        original = manifest(project)
        target = checkpoint(manager, project)
        mutate(os.fsencode(project), mutations)
        mutated = manifest(project)

        result = manager.restore(project, target)
        assert manifest(project) == original
        assert result.applied and result.conflicts == () and result.kept == ()
        if mutated == original:
            assert result.undo_id is None and not result.written and not result.deleted
            return
        manager.undo(project)
        assert manifest(project) == mutated
        manager.redo(project)
        assert manifest(project) == original


@given(tree=trees, mutations=changes)
def test_every_state_comes_back_exactly(tmp_path: Path, tree: dict[bytes, Node], mutations: list[Change]) -> None:
    restores_and_comes_back(tmp_path, tree, mutations)
