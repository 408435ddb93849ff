"""A store of format 1, made by the last release that wrote it (`tests/data/make_format1.py`), is taken over with
nothing lost."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from shadowsnap import CheckpointManager
from shadowsnap.base import project_id
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.model import Entry
from shadowsnap.store.history import finish_migration
from shadowsnap.store.layout import FORMAT, Store
from shadowsnap.store.log import read_log
from shadowsnap.store.projects import project_of

ARCHIVE = Path(__file__).parent.parent / "data" / "format1.tar.gz"
TURNS = {
    1: "write the cart",
    2: "add tests",
    3: "begins on a held state",
    4: "changes nothing on a new state",
    5: "work of another",
    6: "tool by tool",
    7: "write it in both places",
    8: "by a hook",
}


class Old:
    """The store, unpacked in another place than it was made in: the ids of its two projects follow from their
    paths, so the names and records that have them are changed. No object and no checkpoint id is."""

    def __init__(self, root: Path) -> None:
        with tarfile.open(ARCHIVE) as archive:
            # Python before 3.11.4 knows no filter; 3.12 warns without one.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(root)
        self.root, self.base, self.shop, self.docs = root, root / "base", root / "shop", root / "docs"
        self.seen: dict[str, Any] = json.loads((root / "seen.json").read_text())
        self._names = {self.seen["root"]: str(root)}
        for name in ("shop", "docs"):
            self._names[project_id(f"{self.seen['root']}/{name}")] = project_id(str(root / name))
        for path in sorted(self.base.rglob("*"), key=lambda path: len(path.parts), reverse=True):
            if path.is_file() and path.suffix in (".json", ".jsonl"):
                path.write_text(self._moved(path.read_text()))
            path.rename(path.with_name(self._moved(path.name)))
        self.seen = json.loads(self._moved(json.dumps(self.seen)))
        for folder in (self.base, self.base / "store"):
            folder.chmod(0o700)
        self.manager = CheckpointManager(base=self.base, background_upkeep=False, fsync=False)
        self.store, self.project = Store(self.base), project_of(self.shop)

    def _moved(self, text: str) -> str:
        for old, new in self._names.items():
            text = text.replace(old, new)
        return text

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.shop.iterdir()) if path.is_file()}

    def entries(self, **facts: Any) -> list[Entry]:
        return self.manager.timeline(self.shop, restores=True, **facts)


@pytest.fixture
def old(tmp_path: Path) -> Old:
    return Old(tmp_path.resolve())


def by_prompt(entries: list[Entry]) -> dict[str, Entry]:
    return {entry.prompt: entry for entry in entries if entry.prompt}


def test_the_archive_is_of_format_1_and_small(old: Old) -> None:
    assert (old.base / "store" / "format").read_text() == "1\n"
    assert (old.base / "sessions").is_dir() and (old.base / "index.db").exists()
    assert ARCHIVE.stat().st_size < 200_000


def test_turns_keep_their_numbers_and_their_states(old: Old) -> None:
    turns = {entry.number: entry for entry in old.entries() if entry.kind == "turn"}
    assert {number: turns[number].prompt for number in TURNS} == TURNS
    recorded: dict[int, list[dict[str, Any]]] = {}
    for each in old.seen["shop"]:
        recorded.setdefault(each["turn"], []).append(each)
    for number in TURNS:
        for each in recorded[number]:
            if each["kind"] == "turn-end" and "call" not in each["metadata"]:
                assert (turns[number].before, turns[number].after) == (each["metadata"]["before"], each["id"])
    assert turns[4].before == turns[4].after
    assert {turns[number].agent for number in (1, 5, 8)} == {"claude"}


def test_every_turn_and_snapshot_is_listed_once_with_a_number_of_its_own(old: Old) -> None:
    entries = [entry for entry in old.entries() if entry.kind in ("turn", "snapshot")]
    numbers = [entry.number for entry in entries]
    assert len(set(numbers)) == len(numbers) and None not in numbers
    prompts = [entry.prompt for entry in entries if entry.kind == "turn"]
    asked = {*TURNS.values(), "changes nothing on a held state", "never closed"}
    assert set(prompts) == asked and len(prompts) == len(asked)
    reasons = {entry.reason for entry in entries if entry.kind == "snapshot"}
    assert reasons == {"before the release", "kept for ever", "before the stages", "a stage that was kept"}
    assert {number for number in numbers if number is not None and number > 8} == set(range(9, 15))


def test_every_checkpoint_is_still_there_and_mentioned(old: Old) -> None:
    ids = [each["id"] for each in old.seen["shop"]]
    assert [each.id for each in old.manager.list_checkpoints(old.shop)] == ids
    old.manager.snapshot(old.shop)
    log = old.store.log_file(old.project.id).read_text()
    states = [each["id"] for each in old.seen["shop"] if each["reason"] != "revert of turn 2"]
    assert all(state in log for state in states)


def test_how_turns_ended(old: Old) -> None:
    found = by_prompt(old.entries())
    assert found["never closed"].status == "interrupted"
    # "add tests" was reverted, and a later restore to snapshot 14 brought its work back.
    assert {entry.status for prompt, entry in found.items() if prompt != "never closed"} == {"done"}


def test_labels_pins_and_references(old: Old) -> None:
    found = {entry.reason: entry for entry in old.entries() if entry.kind == "snapshot"}
    assert found["before the release"].label == "release" and found["kept for ever"].pinned
    assert old.manager.get(old.shop, "release").id == found["before the release"].after
    for number in TURNS:
        assert old.manager.get(old.shop, number).turn in (number, number - 1, None)
        assert old.manager.get(old.shop, f"{number}:after").kind in ("turn", "turn-end")
    assert old.manager.get(old.shop, 1).id == old.seen["shop"][-1]["id"]


def test_undo_and_redo_go_on_where_they_were(old: Old) -> None:
    assert old.files() == old.seen["now"] == old.seen["after_second_restore"]
    old.manager.redo(old.shop)
    assert old.files() == old.seen["after_third_restore"]
    for expected in ("after_second_restore", "after_first_restore"):
        old.manager.undo(old.shop)
        assert old.files() == old.seen[expected]
    whats = [old.manager.undo(old.shop).what for _ in range(3)]
    assert whats[1:] == ["the revert of turn 2", "turn 8: by a hook"]
    assert "hook.py" not in old.files() and "test.py" in old.files()


def test_conversations_are_found(old: Old) -> None:
    kept = old.seen["conversations"]
    assert len(kept) >= 6
    for checkpoint, said in kept.items():
        found = old.manager.restore(old.shop, checkpoint, conversation=True, files=False)
        assert found.conversation.data == said


def test_sessions_are_what_they_were(old: Old) -> None:
    found = {each.id: each for each in old.manager.sessions()}
    then = {each["id"]: each for each in old.seen["sessions"]}
    assert found.keys() == then.keys()
    for name, was in then.items():
        now = found[name]
        assert (now.status, now.agent, now.parent) == (was["status"], was["agent"], was["parent"])
        assert [turn.prompt for turn in now.turns] == [turn["prompt"] for turn in was["turns"]]
        for turn, before in zip(now.turns, was["turns"], strict=True):
            assert turn.began.isoformat() == before["began"]
            assert not turn.reverted  # format 1 did not see that a restore brought the work of "add tests" back
            assert (turn.message_count, turn.conversation) == (before["message_count"], before["conversation"])
            places = sorted((place.workdir, str(place.before)) for place in turn.places)
            assert places == sorted((place["workdir"], place["before"]) for place in before["places"])
        edits = [(edit.edit_id, edit.status, edit.checkpoint) for edit in now.edits]
        assert edits == [(edit["edit_id"], edit["status"], edit["checkpoint"]) for edit in was["edits"]]


def test_looking_changes_nothing_but_the_format(old: Old) -> None:
    before = {path: path.read_bytes() for path in old.base.rglob("*") if path.is_file() and path.suffix == ".json"}
    first = old.entries()
    assert old.entries() == first
    assert not old.store.log_file(old.project.id).exists()
    # What is kept of the person's git is written anew where that is another one.
    kept = {path: data for path, data in before.items() if "indexes" not in path.parts}
    kept = {path: data for path, data in kept.items() if path.name != "git-version.json"}
    assert kept == {path: path.read_bytes() for path in kept}


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_store_that_can_only_be_read_is_listed(old: Old) -> None:
    shown = old.entries()
    for folder, _, _ in os.walk(old.base, topdown=False):
        os.chmod(folder, 0o500)
    try:
        assert old.entries() == shown
    finally:
        for folder, _, _ in os.walk(old.base):
            os.chmod(folder, 0o700)


def test_the_first_use_writes_the_log_and_the_format(old: Old) -> None:
    shown = {entry.number: entry for entry in old.entries() if entry.number}
    (old.shop / "new.txt").write_text("new")
    old.manager.new_turn("sess-e", "the first with the new version")
    assert old.manager.ensure_checkpoint(old.shop)
    assert read_log(old.store, old.project.id)[1] == 0
    record = json.loads(old.store.project_file(old.project.id).read_text())
    assert record["format"] == FORMAT == 2 and (old.base / "store" / "format").read_text() == "2\n"
    assert not {"turn", "quiet_turns", "begun", "at_work"} & record.keys()
    now = {entry.number: entry for entry in old.entries() if entry.number}
    assert {number: now[number] for number in shown} == shown
    assert now[max(now)].prompt == "the first with the new version" and max(now) == max(shown) + 1


def test_the_old_records_go_when_every_project_has_its_log(old: Old) -> None:
    shown, sessions = old.entries(), old.manager.sessions()
    finish_migration(old.store, NO_DEADLINE)
    assert old.store.log_file(old.project.id).exists() and old.store.log_file(project_of(old.docs).id).exists()
    left = {path.name for path in old.base.iterdir()}
    assert not left & {"sessions", "index.db", "turns", "shown"}
    assert old.entries() == shown and old.manager.sessions() == sessions


def test_it_can_die_at_any_step_of_the_migration(old: Old, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = old.entries()

    class Dies(BaseException):
        pass

    def dying(*args: Any, **facts: Any) -> None:
        raise Dies

    for name in ("write_lines", "touch_record", "remove_tree"):
        with monkeypatch.context() as patch:
            patch.setattr(f"shadowsnap.store.history.{name}", dying)
            with pytest.raises(Dies):
                finish_migration(old.store, NO_DEADLINE)
        assert old.entries() == shown
    finish_migration(old.store, NO_DEADLINE)
    assert old.entries() == shown
    old.manager.new_turn("sess-e", "next")
    (old.shop / "new.txt").write_text("new")
    old.manager.ensure_checkpoint(old.shop)
    assert by_prompt(old.entries())["next"].number == 15


@pytest.mark.parametrize("what", ["sessions", "journal", "project"])
def test_damaged_records_of_format_1_lose_only_what_they_alone_knew(old: Old, what: str) -> None:
    files = {
        "sessions": list((old.base / "sessions").glob("*.json")),
        "journal": [old.store.journal_file(old.project.id)],
        "project": [old.store.project_file(old.project.id)],
    }
    for path in files[what]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    turns = {entry.number for entry in old.entries() if entry.kind == "turn"}
    assert turns >= set(TURNS)
    assert len(old.manager.list_checkpoints(old.shop)) == len(old.seen["shop"])
