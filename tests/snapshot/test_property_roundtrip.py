"""Random trees, random changes: restore gives back every state exactly, and so do undo and redo."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_trees import LARGE, Change, Node, build, changes, mutate, trees, wild_changes, wild_trees
from restoring import file_changes, mtimes

from helpers import Entry, manifest, remove_tree
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchPath, PathRefused, RestoreRefused

Picture = dict[bytes, Entry]
EXAMPLES = settings().max_examples


@contextmanager
def fresh(where: Path, **more: Any) -> Iterator[tuple[CheckpointManager, Path]]:
    """A manager with a store of its own, and an empty project."""
    top = Path(tempfile.mkdtemp(dir=where))
    try:
        (top / "project").mkdir()
        yield CheckpointManager(base=top / "base", fsync=False, deadline=0, **more), top / "project"
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
def test_every_state_is_restored_exactly(tmp_path: Path, tree: dict[bytes, Node], mutations: list[Change]) -> None:
    restores_and_comes_back(tmp_path, tree, mutations)


def test_every_state_is_restored_exactly_for_an_ordinary_user(
    tmp_path: Path, as_user: Callable[..., Any]
) -> None:
    """Unlike for root, read-only directories are an obstacle."""

    @settings(max_examples=EXAMPLES // 2, database=None)
    @given(tree=trees, mutations=changes)
    def story(tree: dict[bytes, Node], mutations: list[Change]) -> None:
        restores_and_comes_back(tmp_path, tree, mutations)

    as_user(story)


# --- some paths -------------------------------------------------------------------------------------


@given(tree=trees, mutations=changes, numbers=st.lists(st.integers(0, 1000), min_size=1, max_size=3))
def test_only_the_chosen_paths_are_restored(
    tmp_path: Path, tree: dict[bytes, Node], mutations: list[Change], numbers: list[int]
) -> None:
    with fresh(tmp_path) as (manager, project):
        build(os.fsencode(project), tree)
        original = manifest(project)
        target = checkpoint(manager, project)
        mutate(os.fsencode(project), mutations)
        mutated, times = manifest(project), mtimes(project)
        known = sorted(original.keys() | mutated.keys())
        if not known:
            return
        chosen = sorted({known[number % len(known)] for number in numbers})
        try:
            manager.restore(project, target, paths=[os.fsdecode(path) for path in chosen])
        except RestoreRefused:
            assert manifest(project) == mutated and mtimes(project) == times
            assert any(is_in_the_way(path, original, mutated, chosen) for path in original)
            return
        except PathRefused:
            assert manifest(project) == mutated
            assert any(leads_through_a_link(path, mutated) for path in chosen)
            return
        except NoSuchPath:
            assert manifest(project) == mutated
            assert any(leads_through_a_link(path, mutated) for path in chosen)
            return
        if any(leads_through_a_link(path, mutated) for path in chosen):
            return  # it named something else than we think
        restored, now = manifest(project), mtimes(project)
        for path in original.keys() | mutated.keys():
            if is_below(path, chosen):
                assert restored.get(path) == original.get(path), path
            elif path in mutated and path not in restored:  # an emptied directory goes, unless it was there
                assert mutated[path][0] == "dir" and original.get(path, ("",))[0] != "dir"
            elif path in restored and path not in mutated:  # a directory that a chosen path needs
                assert original[path][0] == "dir" and any(each.startswith(path + b"/") for each in chosen)
            else:
                assert restored.get(path) == mutated.get(path), path
                assert now.get(path) == times.get(path), path
        if restored != mutated:
            manager.undo(project)
            assert manifest(project) == mutated
            manager.redo(project)
            assert manifest(project) == restored


def is_below(path: bytes, tops: list[bytes]) -> bool:
    return any(path == top or path.startswith(top + b"/") for top in tops)


def above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def is_in_the_way(path: bytes, original: Picture, mutated: Picture, chosen: list[bytes]) -> bool:
    """Whether bringing a chosen path back would need a directory where another path is now."""
    return is_below(path, chosen) and any(
        mutated.get(up, ("dir",))[0] != "dir" and not is_below(up, chosen) for up in above(path)
    )


def leads_through_a_link(path: bytes, picture: Picture) -> bool:
    return any(picture.get(up, ("",))[0] == "link" for up in above(path))


# --- ignored, secret and large files ----------------------------------------------------------------


@given(tree=wild_trees, mutations=wild_changes, again=wild_changes)
@example(tree={}, mutations=[("add", 0, (b"a", ("file", b"1", 0o644)))], again=[("delete", 0, None)])
def test_nothing_is_lost_although_a_part_is_not_captured(
    tmp_path: Path, tree: dict[bytes, Node], mutations: list[Change], again: list[Change]
) -> None:
    with fresh(tmp_path, max_file_size_mb=LARGE / 1024 / 1024) as (manager, project):
        build(os.fsencode(project), tree)
        original = manifest(project)
        target = manager.snapshot(project).checkpoint
        assert target is not None
        captured = {os.fsencode(path) for path in manager.files(project, target.id)}
        for changes_now in (mutations, again):
            mutate(os.fsencode(project), changes_now)
            mutated = manifest(project)
            plan = manager.restore(project, target.id, dry_run=True)
            result = manager.restore(project, target.id)
            assert file_changes(plan) == file_changes(result) and result.conflicts == ()
            restored = manifest(project)
            for path in captured:
                assert restored[path] == original[path], f"{path!r} is not as it was"
            for path in mutated.keys() & original.keys():
                if mutated[path][0] == original[path][0]:
                    assert path in restored, f"{path!r} was there then and now, and is gone"
            for path in mutated.keys() - restored.keys():
                reported = {os.fsencode(each.rstrip("/")) for each in result.deleted}
                assert mutated[path][0] == "dir" or path in reported, f"{path!r} was deleted without being listed"
            if restored == mutated:
                continue
            manager.undo(project)
            assert manifest(project) == mutated, "undo did not bring everything back"
            manager.redo(project)
            assert manifest(project) == restored
            manager.undo(project)
