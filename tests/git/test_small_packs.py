"""Every snapshot writes a small pack. Packs do not pile up, and damage to one leaves the others alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from damaging import Kept, flip, keep, truncate
from restoring import in_child
from upkeep_stores import a_manager, a_store, check_sound, noise, object_count, take, take_turns

from helpers import git, manifest, wait_until
from shadowsnap import CheckpointManager
from shadowsnap.git import packs as pack_module
from shadowsnap.git import repository as runner
from shadowsnap.git.maintenance import list_packs
from shadowsnap.git.objects import stored_bytes
from shadowsnap.git.packs import note_repacked
from shadowsnap.store.locks import if_free
from shadowsnap.upkeep.reclaim import upkeep_lock

pytestmark = pytest.mark.shortcut

# --- they do not pile up ----------------------------------------------------------------------------


def test_thirty_snapshots_start_a_process_that_merges_their_packs(base: Path, project: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False, max_snapshots=0)
    taken = take_turns(manager, project, 29)
    store = a_store(base)
    assert len(list_packs(store.git_dir)) == 29 and not (store.git_dir / "upkeep-started").exists()
    taken += take_turns(manager, project, 1)
    assert (store.git_dir / "upkeep-started").exists()
    wait_until(lambda: len(list_packs(store.git_dir)) <= 3)
    wait_until(lambda: upkeep_is_idle(base))
    check_sound(store)
    taken += take_turns(manager, project, 2)
    assert [each.id for each in manager.list_checkpoints(project)] == [each.id for each in reversed(taken)]
    manager.restore(project, taken[0].id)
    assert (project / "file0").exists() and not (project / "file1").exists()


def upkeep_is_idle(base: Path) -> bool:
    with if_free(upkeep_lock(a_store(base)), "test") as held:
        return held is not None


def test_snapshots_of_many_days_leave_few_packs(base: Path, project: Path) -> None:
    """Upkeep leaves few packs each time, and does not rewrite the large one each time."""
    manager = a_manager(base, max_snapshots=0)
    counts = []
    for _ in range(4):
        take_turns(manager, project, 15)
        manager.prune()
        counts.append(len(list_packs(a_store(base).git_dir)))
    assert max(counts) <= 4, counts
    assert len(manager.list_checkpoints(project)) == 60
    check_sound(a_store(base))


def test_going_back_and_forth_costs_space_only_until_upkeep(base: Path, project: Path) -> None:
    """A snapshot writes its objects even if the store has them: a damaged copy is never trusted."""
    manager, contents = a_manager(base, max_snapshots=0), [noise("one", 50_000), noise("two", 50_000)]
    for turn in range(14):
        (project / "file").write_bytes(contents[turn % 2])
        take(manager, project)
    store = a_store(base)
    assert stored_bytes(store.git_dir) > 14 * 50_000
    before = object_count(store)
    manager.prune()
    assert stored_bytes(store.git_dir) < 3 * 50_000
    assert object_count(store) == before
    check_sound(store)


# --- one that is damaged ----------------------------------------------------------------------------


def pack_with(kept: Kept, name: str) -> Path:
    """The pack that contains an object."""
    for index in (kept.store / "objects" / "pack").glob("*.idx"):
        if name in git(kept.store, "show-index", stdin=index.read_bytes()):
            return index.with_suffix(".pack")
    raise AssertionError(f"{name} is in no pack")


def emptied(pack: Path) -> None:
    truncate(pack)


def cut_short(pack: Path) -> None:
    truncate(pack, pack.stat().st_size // 2)


def flipped(pack: Path) -> None:
    flip(pack, 14, pack.stat().st_size - 40)


def removed(pack: Path) -> None:
    pack.unlink()


def without_index(pack: Path) -> None:
    pack.with_suffix(".idx").unlink()


def index_emptied(pack: Path) -> None:
    truncate(pack.with_suffix(".idx"))


def index_flipped(pack: Path) -> None:
    flip(pack.with_suffix(".idx"), 8, 1024)


def all_gone(pack: Path) -> None:
    pack.unlink()
    pack.with_suffix(".idx").unlink()


DAMAGES = [emptied, cut_short, flipped, removed, without_index, index_emptied, index_flipped, all_gone]


def another(kept: Kept) -> CheckpointManager:
    return CheckpointManager(base=kept.base, fsync=False, background_upkeep=False)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.each_value
def test_the_next_snapshot_is_taken_whatever_happened_to_a_pack(
    base: Path, project: Path, damage: Callable[[Path], None], which: str
) -> None:
    kept = keep(base, project)
    damage(pack_with(kept, (kept.old if which == "old" else kept.new).id))
    kept.change("src/main.py")
    outcome = another(kept).ensure_checkpoint(project, "third")
    assert outcome.status == "taken", outcome
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    kept.change("src/main.py", "later\n")  # what lay in the other pack alone is still on disk
    kept.assert_restores(outcome.checkpoint)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_pack_leaves_the_other_checkpoints_as_they_were(
    base: Path, project: Path, damage: Callable[[Path], None]
) -> None:
    kept = keep(base, project)
    damage(pack_with(kept, kept.new.id))
    assert kept.old.id in {each.id for each in another(kept).list_checkpoints(project)}
    kept.assert_restores(kept.old)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.each_value
def test_the_doctor_names_a_damaged_pack_and_leaves_an_intact_store(
    base: Path, project: Path, damage: Callable[[Path], None], which: str
) -> None:
    kept = keep(base, project)
    damage(pack_with(kept, (kept.old if which == "old" else kept.new).id))
    found = another(kept).doctor()
    assert found.findings and not found.applied
    another(kept).doctor(repair=True)
    assert [each for each in another(kept).doctor().findings if each.severity == "error"] == []
    check_sound(a_store(base))
    kept.change()
    assert another(kept).ensure_checkpoint(project, "third").status == "taken"
    if which == "new":
        kept.assert_restores(kept.old)


# --- kill -9 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", range(2))
@pytest.mark.parametrize("after", [False, True])
def test_a_snapshot_killed_while_its_pack_is_put_in_place_leaves_what_upkeep_removes(
    base: Path, project: Path, which: int, after: bool
) -> None:
    kept = keep(base, project)
    kept.change()

    def killed() -> None:
        replace, calls = os.replace, []

        def die(source: Path, target: str) -> None:
            here = str(target).endswith((".idx", ".pack")) and (calls.append(target) or len(calls) == which + 1)
            if here and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(source, target)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)

        pack_module.os.replace = die
        another(kept).ensure_checkpoint(project, "killed")

    assert in_child(killed) == -signal.SIGKILL
    assert len(another(kept).list_checkpoints(project)) == 2
    check_sound(a_store(base))
    outcome = another(kept).ensure_checkpoint(project, "third")
    assert outcome.status == "taken"
    kept.pictures[outcome.checkpoint.id] = manifest(project)
    another(kept).prune()
    names = {name for name in os.listdir(kept.store / "objects" / "pack") if not name.endswith(".rev")}
    stems = {name.partition(".")[0] for name in names}
    assert names == {f"{stem}.{end}" for stem in stems for end in ("idx", "pack")}
    assert another(kept).doctor().findings == ()
    for checkpoint in (kept.old, kept.new, outcome.checkpoint):
        kept.assert_restores(checkpoint)


def test_a_removed_pack_is_noticed_by_the_next_snapshot(tmp_path: Path, project: Path) -> None:
    manager = CheckpointManager(base=tmp_path / "base", background_upkeep=False)
    manager.snapshot(project)
    (project / "new").write_text("second")
    manager.snapshot(project)
    packs = sorted((tmp_path / "base/store/objects/pack").glob("*.pack"), key=lambda path: path.stat().st_mtime_ns)
    for path in (packs[0], packs[0].with_suffix(".idx")):
        path.unlink()
    (project / "new").write_text("third")
    newest = manager.snapshot(project).checkpoint
    assert newest is not None
    before = manifest(project)
    (project / "README.md").write_text("lost?")
    manager.restore(project, newest.id)
    assert manifest(project) == before


def test_packs_that_upkeep_merged_do_not_count_as_lost(tmp_path: Path, project: Path) -> None:
    manager = CheckpointManager(base=tmp_path / "base", background_upkeep=False)
    manager.snapshot(project)
    (project / "new").write_text("second")
    manager.snapshot(project)
    git(tmp_path / "base/store", "repack", "-adq")
    note_repacked(tmp_path / "base/store")
    before = runner.processes_started
    assert manager.snapshot(project).status == "unchanged"
    assert runner.processes_started - before == 1
