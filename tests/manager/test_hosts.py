"""Several hosts in one store: each can list, keep, clear and sweep what it recorded itself."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from older_tools import hermes_store

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.errors import BadArguments, NoSuchProject, PathRefused, StoreNotOurs, StoreUnusable
from shadowsnap.store.projects import project_of

DAY = 86400
MB = 1024 * 1024


@pytest.fixture
def manager(base: Path) -> CheckpointManager:
    return CheckpointManager(base=base, fsync=False, background_upkeep=False)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return make(tmp_path / "work")


def make(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


def take(manager: CheckpointManager, work: Path, text: str, host: str | None = None) -> str:
    (work / "a.txt").write_text(f"{text}\n")
    taken = manager.snapshot(work, text, host=host).checkpoint
    assert taken is not None
    return taken.id


def reasons(manager: CheckpointManager, work: Path, host: str | None = None) -> list[str]:
    try:
        return [each.reason for each in manager.list_checkpoints(work, host=host)]
    except NoSuchProject:
        return []


# --- who recorded what -----------------------------------------------------------------------------------


def test_a_checkpoint_says_which_host_recorded_it(manager: CheckpointManager, work: Path, tmp_path: Path) -> None:
    take(manager, work, "by a", "a")
    take(manager, work, "by none")
    (work / "a.txt").write_text("a turn\n")
    manager.new_turn()
    assert manager.ensure_checkpoint(work, "a turn of b", host="b")
    assert [each.host for each in manager.list_checkpoints(work)] == ["b", None, "a"]
    assert reasons(manager, work, "a") == ["by a"] and reasons(manager, work, "c") == []
    assert [each.reason for each in manager.list_checkpoints(work, 1, host="a")] == ["by a"]


def test_what_was_imported_is_of_the_tool_that_it_came_from(manager: CheckpointManager, tmp_path: Path) -> None:
    hermes_store(tmp_path / "old", tmp_path / "theirs", [("old", 1_700_000_000, {"a.txt": "old\n"})])
    manager.import_from(tmp_path / "old")
    assert [each.host for each in manager.list_checkpoints(tmp_path / "theirs")] == ["hermes"]


def test_the_fact_that_earlier_versions_wrote_is_read(manager: CheckpointManager, work: Path) -> None:
    made = manager.snapshot(work, "from before", face="a").checkpoint
    assert made is not None and made.host == "a" and reasons(manager, work, "a") == ["from before"]


# --- a host's own last state -----------------------------------------------------------------------------


def test_a_host_compares_with_its_own_last_state(manager: CheckpointManager, work: Path) -> None:
    first = take(manager, work, "one", "a")
    outcome = manager.snapshot(work, "nothing changed", host="a")
    assert outcome.status == "unchanged" and outcome.checkpoint is not None and outcome.checkpoint.id == first
    (work / "a.txt").write_text("two\n")
    assert manager.snapshot(work, "by another").status == "taken"
    assert manager.snapshot(work, "mine, too", host="a").status == "taken"  # the files are as that one took them
    assert manager.snapshot(work, "again", host="a", always=True).status == "taken"
    assert reasons(manager, work, "a") == ["again", "mine, too", "one"]


def test_where_a_host_went_back_to_is_its_last_state(manager: CheckpointManager, work: Path) -> None:
    ids = [take(manager, work, text, "a") for text in ("one", "two", "three")]

    def position() -> str | None:
        found = manager.position(work, "a")
        return found.id if found is not None else None

    assert position() == ids[2] and manager.position(work, "b") is None
    manager.restore(work, ids[0])
    assert position() == ids[0] and manager.snapshot(work, "same", host="a").status == "unchanged"
    manager.undo(work)
    assert position() == ids[2]
    take(manager, work, "by another")
    assert position() == ids[2]


def test_a_host_does_not_begin_with_an_empty_directory(manager: CheckpointManager, work: Path) -> None:
    (work / "a.txt").unlink()
    outcome = manager.snapshot(work, "nothing", host="a")
    assert outcome.status == "unchanged" and outcome.checkpoint is None and reasons(manager, work) == []
    assert manager.snapshot(work, "all the same", host="a", always=True).status == "taken"


def test_a_refused_directory_is_refused_to_a_host_too(manager: CheckpointManager, home: Path) -> None:
    with pytest.raises(Exception, match="home directory"):
        manager.snapshot(home, "all of it", host="a")


# --- keeping the newest ----------------------------------------------------------------------------------


def test_the_oldest_of_a_host_go_beyond_a_number(manager: CheckpointManager, work: Path) -> None:
    take(manager, work, "by another")
    ids = [take(manager, work, f"mine {number}", "a") for number in range(4)]
    manager.pin(work, ids[0])
    dropped = manager.keep_newest(work, 2, "a")
    assert [each.reason for each in dropped] == ["mine 1"]
    assert reasons(manager, work) == ["mine 3", "mine 2", "mine 0", "by another"]
    assert manager.keep_newest(work, 2, "a") == []
    with pytest.raises(BadArguments):
        manager.keep_newest(work, 0, "a")


def test_states_that_restores_saved_are_counted_apart(manager: CheckpointManager, work: Path) -> None:
    first = take(manager, work, "one", "a")
    for number in range(4):
        (work / "a.txt").write_text(f"edited {number}\n")
        manager.restore(work, first)
    assert len(reasons(manager, work)) == 5
    assert {each.kind for each in manager.keep_newest(work, 2, "a")} == {"pre-restore"}
    assert len(reasons(manager, work)) == 3
    take(manager, work, "by another")
    (work / "a.txt").write_text("edited\n")
    manager.restore(work, first)
    assert manager.keep_newest(work, 1, "a") == []  # they may be the other's


# --- clearing --------------------------------------------------------------------------------------------


def test_a_host_clears_what_is_its_own(manager: CheckpointManager, work: Path, tmp_path: Path) -> None:
    own = make(tmp_path / "own")
    take(manager, own, "mine", "a")
    (own / "a.txt").write_text("edited\n")
    manager.restore(own, "last")
    take(manager, work, "theirs")
    pinned = take(manager, work, "mine, too", "a")
    manager.pin(work, pinned)
    plan = manager.clear(work, dry_run=True, host="a")
    assert (plan.applied, plan.items[0].checkpoints, plan.items[0].pinned) == (False, 1, 1)
    assert reasons(manager, work) == ["mine, too", "theirs"]
    report = manager.clear_all(host="a")
    assert report.applied and {item.subject: item.checkpoints for item in report.items} == {
        str(own): 2, str(work): 1
    }  # fmt: skip
    assert reasons(manager, own) == [] and reasons(manager, work) == ["theirs"]
    assert manager.clear_all(host="a").items == ()
    assert manager.clear(work, host="a").items[0].checkpoints == 0 and reasons(manager, work) == ["theirs"]


def test_a_state_that_a_turn_of_another_host_begins_with_stays(
    manager: CheckpointManager, base: Path, work: Path
) -> None:
    first = take(manager, work, "mine", "a")
    manager.new_turn("their session")
    assert manager.ensure_checkpoint(work).status == "unchanged"  # it is safe already
    (work / "a.txt").write_text("by their agent\n")
    manager.end_turn()
    take(manager, work, "mine, too", "a")
    take(manager, work, "mine, again", "a")
    assert [each.reason for each in manager.keep_newest(work, 1, "a")] == ["mine, too"]
    unused_for(base, work, 8)
    assert manager.sweep(7, host="a").unused == (str(work),)
    assert [each.id for each in manager.list_checkpoints(work, host="a")] == [first]
    assert (manager.sweep(7, host="a").scanned, manager.clear(work, host="a").items[0].checkpoints) == (0, 0)
    (turn,) = [entry for entry in manager.timeline(work) if entry.kind == "turn"]
    manager.revert(work, turn.number)
    assert turn.before == first


def test_a_state_that_a_turn_of_another_host_ends_with_stays(manager: CheckpointManager, work: Path) -> None:
    take(manager, work, "theirs")
    manager.new_turn("their session")
    (work / "a.txt").write_text("before\n")
    manager.ensure_checkpoint(work)
    last = take(manager, work, "mine", "a")
    assert [each.status for each in manager.end_turn()] == ["unchanged"]
    manager.clear(work, host="a")
    assert [each.id for each in manager.list_checkpoints(work, host="a")] == [last]
    manager.undo(work)
    assert (work / "a.txt").read_text() == "before\n"


def test_a_turn_of_an_agent_keeps_its_states_also_if_one_host_recorded_all_of_them(
    manager: CheckpointManager, work: Path
) -> None:
    first = take(manager, work, "mine", "a")
    manager.new_turn("their session", agent="claude")
    assert manager.ensure_checkpoint(work).status == "unchanged"
    second = take(manager, work, "mine, too", "a")
    manager.end_turn()
    take(manager, work, "mine, again", "a")
    take(manager, work, "mine, at last", "a")
    assert [each.reason for each in manager.keep_newest(work, 1, "a")] == ["mine, again"]
    manager.clear(work, host="a")
    assert [each.id for each in manager.list_checkpoints(work)] == [second, first]


# --- sweeping --------------------------------------------------------------------------------------------


def unused_for(base: Path, work: Path, days: float) -> None:
    path = base / "store" / "projects" / f"{project_of(work).id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "last_touch": time.time() - days * DAY}))


def test_projects_that_were_not_used_are_swept_as_a_whole(
    manager: CheckpointManager, base: Path, tmp_path: Path
) -> None:
    old, new, pinned, shared = (make(tmp_path / name) for name in ("old", "new", "pinned", "shared"))
    for work in (old, new, pinned, shared):
        take(manager, work, "mine", "a")
    take(manager, shared, "theirs")
    manager.pin(pinned, "last")
    for work in (old, pinned, shared):
        unused_for(base, work, 8)
    swept = manager.sweep(7, host="a")
    assert (swept.scanned, set(swept.unused), swept.gone, swept.problems) == (4, {str(old), str(shared)}, (), ())
    assert swept.bytes_freed > 0
    assert [reasons(manager, work) for work in (old, new, pinned, shared)] == [[], ["mine"], ["mine"], ["theirs"]]
    assert manager.sweep(7, host="a").unused == ()
    assert manager.sweep(0).unused == ()  # no limit


def test_a_sweep_at_the_start_of_a_program_waits_for_its_interval(
    manager: CheckpointManager, base: Path, work: Path
) -> None:
    assert manager.sweep(7, host="a", every_hours=24).skipped is False and not base.exists()
    take(manager, work, "mine", "a")
    unused_for(base, work, 8)
    assert manager.sweep(9, host="a", every_hours=24).unused == ()
    swept = manager.sweep(7, host="a", every_hours=24)
    assert swept.skipped and swept.unused == () and reasons(manager, work) == ["mine"]
    assert manager.sweep(9, host="b", every_hours=24).skipped is False  # each host has its own interval
    marker = base / ".last_prune-a"
    marker.write_text(f"{int(time.time()) - 25 * 3600}\n")
    assert manager.sweep(7, host="a", every_hours=24).unused == (str(work),)
    marker.unlink()
    marker.mkdir()
    swept = manager.sweep(7, host="a", every_hours=24)
    assert not swept.skipped and marker.name in swept.not_marked and swept.problems == ()


def test_a_pin_of_another_host_does_not_keep_what_is_not_its_own(
    manager: CheckpointManager, base: Path, work: Path
) -> None:
    take(manager, work, "mine", "a")
    manager.pin(work, take(manager, work, "theirs"))
    unused_for(base, work, 8)
    assert manager.sweep(7, host="a").unused == (str(work),)
    assert reasons(manager, work) == ["theirs"]


def test_a_directory_that_is_known_to_be_gone_is_swept_if_that_is_wanted(
    manager: CheckpointManager, tmp_path: Path
) -> None:
    gone, away = make(tmp_path / "gone"), tmp_path / "volume" / "away"
    away.parent.mkdir()
    make(away)
    for work in (gone, away):
        take(manager, work, "mine")
    shutil.rmtree(gone)
    away.parent.rename(tmp_path / "detached")  # what lay beneath it shows through
    away.parent.mkdir()
    (away.parent / ".keep").touch()
    assert manager.sweep(gone=False).gone == () == manager.sweep(only=["another"]).gone
    assert manager.sweep(only=[project_of(gone).id, project_of(away).id]).gone == (str(gone),)
    assert reasons(manager, away) == ["mine"] and reasons(manager, gone) == []


def test_one_project_that_cannot_be_swept_does_not_stop_the_others(
    manager: CheckpointManager, base: Path, tmp_path: Path
) -> None:
    works = [make(tmp_path / name) for name in ("one", "two")]
    for work in works:
        take(manager, work, "mine")
        unused_for(base, work, 8)
    journal = base / "store" / "journal" / f"{project_of(works[0]).id}.json"
    journal.write_text(json.dumps({"open": {"applying": True, "target": "x", "entries": []}}))
    shutil.rmtree(works[0])  # an interrupted restore that cannot be finished
    swept = manager.sweep(7, gone=False)
    assert swept.unused == (str(works[1]),) and len(swept.problems) == 1 and str(works[0]) in swept.problems[0]


def test_without_a_host_the_size_limit_is_kept_too(base: Path, work: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False, max_total_size_mb=2)
    for number in range(3):
        (work / "random").write_bytes(os.urandom(MB))
        take(manager, work, f"{number}")
    assert manager.sweep(host="a").bytes_freed == 0 and len(reasons(manager, work)) == 3
    swept = manager.sweep()
    assert swept.problems == () and swept.bytes_freed > MB and 1 <= len(reasons(manager, work)) < 3
    tight = CheckpointManager(base=base, fsync=False, background_upkeep=False, max_total_size_mb=0.5)
    assert "larger than 0.5 MB" in " ".join(tight.sweep().problems)


def test_a_base_that_is_none_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("something else\n")
    assert len(CheckpointManager(base=tmp_path / "file", fsync=False).sweep(7).problems) == 1
    assert CheckpointManager(base=tmp_path / "none", fsync=False).sweep(7).problems == ()
    assert not (tmp_path / "none").exists()


# --- looking makes nothing -------------------------------------------------------------------------------

QUESTIONS: dict[str, Callable[[CheckpointManager, Path], object]] = {
    "projects": lambda manager, work: manager.projects(),
    "search": lambda manager, work: manager.search(),
    "find_project": lambda manager, work: manager.find_project(work),
    "list_checkpoints": lambda manager, work: manager.list_checkpoints(work),
    "timeline": lambda manager, work: manager.timeline(work),
    "recorded_writes": lambda manager, work: manager.recorded_writes(work),
    "clear_legacy": lambda manager, work: manager.clear_legacy(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_looking_where_nothing_was_taken_makes_no_store(
    manager: CheckpointManager, base: Path, work: Path, question: str
) -> None:
    try:
        QUESTIONS[question](manager, work)
    except NoSuchProject:
        assert question in ("list_checkpoints", "timeline", "recorded_writes")
    assert not base.exists()


def test_a_base_that_cannot_be_used_is_not_taken_for_one_without_checkpoints(tmp_path: Path, work: Path) -> None:
    (tmp_path / "file").write_text("something else\n")
    with pytest.raises((StoreUnusable, StoreNotOurs)):
        CheckpointManager(base=tmp_path / "file", fsync=False).list_checkpoints(work)


def test_a_store_that_lost_its_head_is_still_one(manager: CheckpointManager, base: Path, work: Path) -> None:
    take(manager, work, "mine")
    (base / "store" / "HEAD").unlink()
    assert reasons(manager, work) == ["mine"] and manager.projects() == [work]


# --- contents --------------------------------------------------------------------------------------------


def test_contents_are_those_of_then_or_of_now(manager: CheckpointManager, work: Path) -> None:
    (work / "data").write_bytes(b"\0\xff")
    (work / "latin").write_bytes(b"\xe9t\xe9")
    (work / "link").symlink_to("a.txt")
    taken = take(manager, work, "one")
    (work / "a.txt").write_text("two\n")
    (work / "data").unlink()
    os.mkfifo(work / "data")  # which is not waited for
    (work / "folder").mkdir()
    paths = ["a.txt", "data", "latin", "link", "folder", "missing"]
    then = {"a.txt": b"one\n", "data": b"\0\xff", "latin": b"\xe9t\xe9", "link": b"a.txt"}
    assert manager.contents(work, taken, paths) == then
    assert manager.contents(work, "@", paths) == {"a.txt": b"two\n", "latin": b"\xe9t\xe9", "link": b"a.txt"}
    with pytest.raises(PathRefused):
        manager.contents(work, "@", ["../elsewhere"])
    assert manager.texts(work, taken, paths) == {"a.txt": "one\n", "link": "a.txt"}
    assert manager.texts(work, "@", paths) == {"a.txt": "two\n", "link": "a.txt"}


def test_a_search_may_count_what_each_changed_and_sees_what_was_not_imported_yet(
    manager: CheckpointManager, base: Path, work: Path, tmp_path: Path
) -> None:
    hermes_store(base, tmp_path / "theirs", [("old", 1_700_000_000, {"a.txt": "old\n"})])
    assert [(each.reason, each.workdir) for each in manager.search()] == [("old", str(tmp_path / "theirs"))]
    take(manager, work, "one")
    take(manager, work, "two")
    before = manifest(work)
    found = manager.search(counted=True)
    assert [(each.reason, each.files_changed, each.insertions) for each in found[:2]] == [
        ("two", 1, 1), ("one", None, None)
    ]  # fmt: skip
    assert manager.search()[0].files_changed is None and manifest(work) == before
