"""A project is a directory, known by one id, and a small record that may be lost."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from shadowsnap import CheckpointManager, Settings
from shadowsnap.errors import StoreTooNew
from shadowsnap.store import projects
from shadowsnap.store.layout import FORMAT, Store, open_store
from shadowsnap.store.projects import (
    Project,
    all_records,
    known_projects,
    project_of,
    read_record,
    touch_record,
)


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base))


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


# --- identity ---------------------------------------------------------------------------------------


def test_the_id_comes_from_the_canonical_path(project: Path) -> None:
    expected = hashlib.sha256(os.fsencode(os.path.realpath(project))).hexdigest()[:16]
    assert project_of(project) == Project(expected, Path(os.path.realpath(project)))


def test_every_way_to_a_directory_leads_to_the_same_project(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (tmp_path / "link").symlink_to(project)
    (home / "linked").symlink_to(project)
    monkeypatch.chdir(project / "src")
    ways = [str(project), f"{project}/", project / "src" / "..", tmp_path / "link", "..", "~/linked", "../."]
    assert {project_of(way) for way in ways} == {project_of(project)}


def test_names_that_are_not_utf8_have_projects_too(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"\xff\xfe")
    odd.mkdir()
    assert project_of(odd).id == hashlib.sha256(os.fsencode(os.path.realpath(odd))).hexdigest()[:16]


def test_its_refs_lie_below_its_id(known: Project) -> None:
    assert known.refs == f"refs/shadowsnap/{known.id}"
    assert len({known.refs, known.pins, known.labels}) == 3


# --- the record -------------------------------------------------------------------------------------


def test_a_record_keeps_what_it_was_told(store: Store, known: Project) -> None:
    touch_record(store, known, next_number=3)
    first = read_record(store, known)
    touch_record(store, known, other="x")
    record = read_record(store, known)
    assert record["next_number"] == 3 and record["other"] == "x"
    assert record["created_at"] == first["created_at"]
    assert record["workdir"] == str(known.workdir) and record["format"] == FORMAT


def test_an_ordinary_use_is_noted_at_most_once_an_hour(
    store: Store, known: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_800_000_000.0
    monkeypatch.setattr(projects.time, "time", lambda: now)
    touch_record(store, known)
    first = store.project_file(known.id).stat()
    now += 3599
    touch_record(store, known)
    assert store.project_file(known.id).stat().st_ino == first.st_ino
    assert read_record(store, known)["last_touch"] == 1_800_000_000.0
    now += 2
    touch_record(store, known)
    assert read_record(store, known)["last_touch"] == now


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\0\0\0", b'{"last_touch": "x", "created_at": []}'])
def test_a_damaged_record_is_an_empty_one(store: Store, known: Project, damage: bytes) -> None:
    touch_record(store, known, next_number=3)
    store.project_file(known.id).write_bytes(damage)
    assert "next_number" not in read_record(store, known)
    touch_record(store, known)
    assert read_record(store, known)["workdir"] == str(known.workdir)


def test_a_record_of_a_newer_format_is_refused(store: Store, known: Project) -> None:
    store.project_file(known.id).write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(StoreTooNew):
        read_record(store, known)
    with pytest.raises(StoreTooNew):
        touch_record(store, known, next_number=1)


def test_all_projects_are_known_by_their_records(store: Store, known: Project, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = project_of(tmp_path / "other")
    for each in (known, other):
        touch_record(store, each)
    (store.git_dir / "projects" / "0000000000000000.json").write_text("damaged")
    (store.git_dir / "projects" / ".x.json.tmp_1_2").write_text("left by a dead process")
    assert known_projects(store) == sorted([known, other], key=lambda each: each.workdir)
    assert all_records(store).keys() == {known.id, other.id, "0000000000000000"}


# --- turns ------------------------------------------------------------------------------------------


def take_turn(manager: CheckpointManager, project: Path) -> int | None:
    manager.new_turn()
    (project / "turns").write_text((project / "turns").read_text() + "x" if (project / "turns").exists() else "x")
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken", outcome.error
    assert outcome.checkpoint is not None
    return outcome.checkpoint.turn


DAMAGED = ["", "{", "{}", *(json.dumps({"next_number": odd}) for odd in ("x", None, -3, 2.5)), None]


@pytest.mark.parametrize("damage", DAMAGED)
def test_turns_are_counted_on_after_the_record_was_damaged(base: Path, project: Path, damage: str | None) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    assert [take_turn(manager, project) for _ in range(3)] == [1, 2, 3]
    record = open_store(Settings(base=base)).project_file(project_of(project).id)
    record.unlink() if damage is None else record.write_text(damage)
    assert take_turn(manager, project) == 4
    assert take_turn(manager, project) == 5


def test_a_project_whose_directory_became_a_link_stays_the_same(
    store: Store, known: Project, project: Path, tmp_path: Path
) -> None:
    touch_record(store, known)
    project.rename(tmp_path / "moved")
    project.symlink_to(tmp_path / "moved")
    assert known_projects(store) == [known]
