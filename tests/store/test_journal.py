"""The journal: what is under way and the ways back, or an honest new beginning."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap import CheckpointManager, Settings
from shadowsnap.errors import NothingToUndo
from shadowsnap.store.journal import Journal, OpenRestore, Step, read_journal, write_journal
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.projects import Project, project_of


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base, fsync=False))


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


# Names that are not UTF-8 are told with surrogates.
names = st.text(st.characters(exclude_categories=()), max_size=10)
paths = st.lists(names, max_size=3).map(tuple)
steps = st.lists(st.builds(Step, names, paths), max_size=4).map(tuple)
begun = st.none() | st.builds(
    OpenRestore, names, names, paths, paths, st.booleans(), st.sampled_from(["restore", "undo", "redo"])
)
journals = st.builds(Journal, open=begun, undo=steps, redo=steps, leftover=paths)


@given(journal=journals)
def test_what_was_written_is_read(store: Store, known: Project, journal: Journal) -> None:
    write_journal(store, known, journal)
    assert read_journal(store, known) == journal


def test_without_a_journal_there_is_nothing_to_undo(store: Store, known: Project) -> None:
    assert read_journal(store, known) == Journal()
    assert read_journal(store, known).told == ""


def test_projects_have_journals_of_their_own(store: Store, known: Project, tmp_path: Path) -> None:
    write_journal(store, known, Journal(undo=(Step("a"),)))
    assert read_journal(store, project_of(tmp_path)) == Journal()


def test_the_oldest_steps_are_dropped_and_the_newest_stay(store: Store, known: Project) -> None:
    steps = tuple(Step(str(number)) for number in range(150))
    write_journal(store, known, Journal(undo=steps, redo=steps))
    found = read_journal(store, known)
    assert found.undo == found.redo == steps[-100:]


# --- damage -----------------------------------------------------------------------------------------

SOUND = {"open": None, "undo": [["a", []]], "redo": [], "leftover": []}
DAMAGED = [
    b"", b"\0\0\0\0", b'{"open": nu', b"[]", b"null",
    *(json.dumps({**SOUND, **odd}).encode() for odd in [
        {"open": {}}, {"open": []}, {"open": {"before": "a", "target": "b"}}, {"open": "x"}, {"undo": None},
        {"undo": [["a"]]}, {"undo": [[]]}, {"undo": 7}, {"redo": [None]}, {"redo": {"a": 1}}, {"undo": [["a", 5]]},
    ]),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_journal_is_set_aside_and_starts_anew(store: Store, known: Project, damage: bytes) -> None:
    path = store.journal_file(known.id)
    path.write_bytes(damage)
    found = read_journal(store, known)
    assert found == Journal() and "damaged" in found.told
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == damage
    assert read_journal(store, known).told == ""  # said once
    write_journal(store, known, Journal(undo=(Step("b"),)))
    assert read_journal(store, known).undo == (Step("b"),)


def test_a_journal_that_cannot_be_read_now_is_not_taken_for_damaged(
    store: Store, known: Project, as_user: Callable[..., Any]
) -> None:
    """It may know of a restore that is half done: better no answer than a wrong one."""
    journal = Journal(open=OpenRestore("a", "b", (), ("s",), applying=True))
    write_journal(store, known, journal)

    def read() -> None:
        store.journal_file(known.id).chmod(0)
        with pytest.raises(PermissionError):
            read_journal(store, known)
        store.journal_file(known.id).chmod(0o600)
        assert read_journal(store, known) == journal

    as_user(read)


def test_the_person_is_told_of_a_damaged_journal_and_snapshots_go_on(base: Path, project: Path) -> None:
    events = []
    manager = CheckpointManager(base=base, on_event=events.append)
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("changed")
    manager.restore(project, "last")
    (path,) = (base / "store" / "journal").glob("*.json")
    path.write_bytes(path.read_bytes()[:-5])
    manager.new_turn()
    (project / "README.md").write_text("changed again")
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken" and "damaged" in outcome.note
    assert any("damaged" in getattr(event, "note", "") for event in events)
    with pytest.raises(NothingToUndo):
        manager.undo(project)
    assert len(manager.list_checkpoints(project)) == 3  # nothing but the order of steps is lost


def test_a_step_is_a_state_and_the_paths_of_it() -> None:
    assert replace(Step("a", ("x",)), paths=()) == Step("a")
