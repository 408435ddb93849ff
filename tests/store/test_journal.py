"""The journal: what is under way, or an honest new beginning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowsnap import CheckpointManager, Settings
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.projects import (
    Journal,
    OpenRestore,
    OpenStage,
    Project,
    project_of,
    read_journal,
    write_journal,
)


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base, fsync=False))


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


# Names that are not UTF-8 have surrogates.
names = st.text(st.characters(exclude_categories=()), max_size=10)
paths = st.lists(names, max_size=3).map(tuple)
operations = st.dictionaries(st.sampled_from(["id", "kind", "undoes"]), names | st.integers(), max_size=3)
begun = st.none() | st.builds(
    OpenRestore, names, names, paths, paths, st.booleans(), st.booleans(), paths, operations
)
stages = st.lists(st.builds(OpenStage, names, names), max_size=2).map(tuple)
journals = st.builds(Journal, open=begun, stages=stages, leftover=paths)
STAGE = Journal(stages=(OpenStage("a", "stage-1.lock"),))


@given(journal=journals)
def test_what_was_written_is_read(store: Store, known: Project, journal: Journal) -> None:
    write_journal(store, known, journal)
    assert read_journal(store, known) == journal


def test_without_a_journal_nothing_is_under_way(store: Store, known: Project) -> None:
    assert read_journal(store, known) == Journal()
    assert read_journal(store, known).note == ""


def test_projects_have_journals_of_their_own(store: Store, known: Project, tmp_path: Path) -> None:
    write_journal(store, known, STAGE)
    assert read_journal(store, project_of(tmp_path)) == Journal()


def test_what_format_1_kept_in_it_is_passed_over(store: Store, known: Project) -> None:
    """Its ways back and forth went to the log; they are no damage."""
    begun = {"before": "a", "target": "b", "paths": [], "staging": ["s"], "applying": True, "then": "undo"}
    old = {"open": begun, "undo": [["a", [], False]], "redo": [["b", "file.paths", True]], "at": "c"}
    store.journal_file(known.id).write_text(json.dumps(old))
    found = read_journal(store, known)
    operation = {"id": "b-a", "kind": "undo", "returns": True}  # it is finished as what it was
    assert found == Journal(open=OpenRestore("a", "b", (), ("s",), applying=True, operation=operation))


# --- damage -----------------------------------------------------------------------------------------

SOUND = {"open": None, "stages": [["a", "b"]], "leftover": []}
DAMAGED = [
    b"", b"\0\0\0\0", b'{"open": nu', b"[]", b"null",
    *(json.dumps({**SOUND, **odd}).encode() for odd in [
        {"open": {}}, {"open": []}, {"open": {"before": "a", "target": "b"}}, {"open": "x"}, {"stages": None},
        {"stages": [["a"]]}, {"stages": [[]]}, {"stages": 7}, {"leftover": None}, {"leftover": 5},
    ]),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_journal_is_set_aside_and_starts_anew(store: Store, known: Project, damage: bytes) -> None:
    path = store.journal_file(known.id)
    path.write_bytes(damage)
    found = read_journal(store, known)
    assert found == Journal() and "damaged" in found.note
    assert not path.exists()
    assert path.with_suffix(".damaged").read_bytes() == damage
    assert read_journal(store, known).note == ""  # said once
    write_journal(store, known, STAGE)
    assert read_journal(store, known) == STAGE


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
    manager = CheckpointManager(base=base, on_event=events.append, fsync=False)
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
    assert len(manager.list_checkpoints(project)) == 3
    manager.undo(project)  # what can be undone is in the log
    assert (project / "README.md").read_text() == "changed"
