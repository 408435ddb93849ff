"""A shortcut may save time and nothing else: with all of them and with none, the same objects come out.

`scripts/test --fast-paths` runs the whole engine suite both ways; this is the comparison object for object."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from fastpaths import WAYS, Told, forced, tick, told_by
from hypothesis import given, settings
from random_trees import Change, Node, build, changes, mutate, trees, wild_changes, wild_trees

from helpers import git, manifest, remove_tree
from shadowsnap import CheckpointManager

pytestmark = pytest.mark.shortcut  # each forces both ways itself, and one way does not take back the other

EXAMPLES = max(1, settings().max_examples // 3)


def both_ways_agree(
    where: Path, tree: dict[bytes, Node], local: list[Change], *later: list[Change], still: bool = False
) -> None:
    """With `still`, every directory has come to rest before each snapshot, and is believed by the next."""
    top = Path(tempfile.mkdtemp(dir=where))
    project, bases = top / "project", {way: top / way for way in WAYS}
    managers = {way: CheckpointManager(base=base, fsync=False, deadline=0) for way, base in bases.items()}
    try:
        project.mkdir()
        build(os.fsencode(project), tree)
        git(project, "init", "-q")
        git(project, "add", "-A")
        mutate(os.fsencode(project), local)
        told: dict[str, list[Told]] = {way: [] for way in WAYS}
        firsts: dict[str, str] = {}
        for edits in ([], *later, []):
            mutate(os.fsencode(project), edits)
            if still:
                tick()
            for way in WAYS:
                with forced(way):
                    checkpoint = managers[way].snapshot(project).checkpoint
                assert checkpoint is not None
                told[way].append(told_by(bases[way], checkpoint))
                firsts.setdefault(way, checkpoint.id)
        assert told["on"] == told["off"]
        pictures = []
        for way in WAYS:
            with forced(way):
                result = managers[way].restore(project, firsts[way])
                pictures.append(manifest(project))
                if result.undo_id is not None:
                    managers[way].undo(project)
        assert pictures[0] == pictures[1]
    finally:
        remove_tree(top)


@settings(max_examples=EXAMPLES)
@given(tree=trees, local=changes, later=changes)
def test_shortcuts_change_no_object(
    tmp_path: Path, tree: dict[bytes, Node], local: list[Change], later: list[Change]
) -> None:
    both_ways_agree(tmp_path, tree, local, later)


@settings(max_examples=EXAMPLES)
@given(tree=wild_trees, local=wild_changes, later=wild_changes)
def test_shortcuts_change_no_object_where_much_is_ignored(
    tmp_path: Path, tree: dict[bytes, Node], local: list[Change], later: list[Change]
) -> None:
    both_ways_agree(tmp_path, tree, local, later)


@settings(max_examples=EXAMPLES)
@given(tree=trees, local=changes, later=changes, last=changes)
def test_shortcuts_change_no_object_where_every_directory_is_at_rest(
    tmp_path: Path, tree: dict[bytes, Node], local: list[Change], later: list[Change], last: list[Change]
) -> None:
    both_ways_agree(tmp_path, tree, local, later, last, still=True)


@settings(max_examples=EXAMPLES)
@given(tree=wild_trees, local=wild_changes, later=wild_changes, last=wild_changes)
def test_shortcuts_change_no_object_where_much_is_ignored_and_every_directory_is_at_rest(
    tmp_path: Path, tree: dict[bytes, Node], local: list[Change], later: list[Change], last: list[Change]
) -> None:
    both_ways_agree(tmp_path, tree, local, later, last, still=True)


@pytest.mark.parametrize("way", WAYS)
def test_forcing_forces(tmp_path: Path, project: Path, way: str) -> None:
    """Otherwise the comparison would compare a thing with itself."""
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")
    git(project, "gc", "-q")
    base = tmp_path / "base"
    with forced(way):
        CheckpointManager(base=base, fsync=False).snapshot(project)
    packs = list((base / "store" / "objects" / "pack").glob("*.pack"))
    assert bool(packs) == (way == "on")
