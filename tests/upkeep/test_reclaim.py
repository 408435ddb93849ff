"""Reclaiming space: nothing that is needed is removed, whatever happens meanwhile, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from restoring import at_step, killed_at
from upkeep_stores import a_manager, a_store, check_sound, noise, object_count, take, take_turns

from helpers import ROOT, git, loose_object, manifest, unpack
from shadowsnap.deadline import NO_DEADLINE, Deadline
from shadowsnap.errors import CheckpointsLost, DeadlineExceeded, DiskTooFull, NoSuchProject
from shadowsnap.git.maintenance import PackIndex, list_packs, loose_names, pack_loose
from shadowsnap.git.packs import PackWriter
from shadowsnap.store.layout import Store
from shadowsnap.store.locks import locked
from shadowsnap.store.projects import project_of
from shadowsnap.store.stat_cache import load_cache
from shadowsnap.upkeep import prune, reclaim
from shadowsnap.upkeep.reclaim import Repacked, Upkeep, begin_upkeep, clear_debris, consolidate, repack


@contextmanager
def upkeep_of(store: Store, deadline: Deadline = NO_DEADLINE) -> Iterator[Upkeep]:
    with begin_upkeep(store, deadline) as found:
        assert found is not None
        yield found


def repack_now(store: Store, **options: Any) -> Repacked:
    with upkeep_of(store) as upkeep:
        return repack(upkeep, 1 << 20, **options)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something after the new pack was written and before the old ones are removed."""

    def arrange(action: Callable[[], object]) -> None:
        real = reclaim.alone

        @contextmanager
        def after_the_action(*arguments: Any) -> Iterator[None]:
            action()
            with real(*arguments):
                yield

        monkeypatch.setattr(reclaim, "alone", after_the_action)

    return arrange


# --- repacking ----------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
def test_a_first_snapshot_that_has_a_number_and_no_checkpoint_yet_is_no_loss(base: Path, project: Path) -> None:
    """Whether it is under way, or its process died."""
    manager, other, warned = a_manager(base), a_manager(base), list[str]()
    take(manager, project)
    second = project.with_name("second")
    second.mkdir()

    def look() -> None:
        reclaim.check_refs_are_there(a_store(base), [])
        warned.extend(each for each in other.status().warnings if "gone" in each)
        with pytest.raises(NoSuchProject):
            other.list_checkpoints(second)

    with at_step("snapshot:numbered", look):
        take(manager, second)
    assert warned == []

    third = project.with_name("third")
    third.mkdir()
    assert killed_at("snapshot:numbered", 0, lambda: take(manager, third))
    repack_now(a_store(base))
    with pytest.raises(NoSuchProject):
        manager.list_checkpoints(third)
    assert manager.doctor().findings == ()
    assert [each for each in manager.status().warnings if "gone" in each] == []


def test_what_is_not_needed_is_removed_and_everything_else_restores_exactly(base: Path, project: Path) -> None:
    manager, states = a_manager(base), {}
    for turn in range(6):
        (project / "src" / "main.py").write_bytes(noise(turn, 3000))
        states[take(manager, project).id] = manifest(project)
    dropped = [checkpoint.id for checkpoint in manager.list_checkpoints(project)[1::2]]
    manager.delete(project, dropped)
    store = a_store(base)
    before = object_count(store)
    assert repack_now(store).complete
    assert object_count(store) == before - 3 * 4  # a commit, two trees, a file
    check_sound(store)
    for name in states.keys() - set(dropped):
        manager.restore(project, name)
        assert manifest(project) == states[name]


def test_repacking_twice_changes_nothing(base: Path, project: Path) -> None:
    """The second pack has the name of the first: it must not be removed as an old one."""
    take_turns(a_manager(base), project, 3)
    store = a_store(base)
    first = repack_now(store)
    before = object_count(store)
    assert repack_now(store) == first
    assert (object_count(store), [*list_packs(store.git_dir)]) == (before, [first.pack])
    check_sound(store)


def test_snapshots_go_on_from_their_cache_after_a_repack(base: Path, project: Path) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, project, 3)
    manager.delete(project, taken[2].id)  # the cache builds on a tree that no checkpoint holds any more
    store = a_store(base)
    repack_now(store)
    assert load_cache(store, project_of(project)).tree == taken[2].tree
    (project / "one more").write_text("new\n")
    now = manifest(project)
    checkpoint = take(manager, project)
    check_sound(store)
    (project / "file0").unlink()
    manager.restore(project, checkpoint.id)
    assert manifest(project) == now


def test_a_cache_whose_tree_is_gone_is_forgotten(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 2)
    store = a_store(base)
    state = store.index_file(f"{project_of(project).id}.json")
    tree = load_cache(store, project_of(project)).tree
    state.write_text(state.read_text().replace(tree, "1" * 40))
    repack_now(store)
    assert not state.exists()
    (project / "one more").write_text("new\n")
    take(manager, project)
    check_sound(store)


def test_the_store_is_locked_exclusively_only_for_an_instant(base: Path, project: Path, monkeypatch: Any) -> None:
    take_turns(a_manager(base), project, 10, size=300_000)
    real, held = reclaim.alone, []

    @contextmanager
    def timed(*arguments: Any) -> Iterator[None]:
        with real(*arguments):
            began = time.monotonic()
            yield
            held.append(time.monotonic() - began)

    monkeypatch.setattr(reclaim, "alone", timed)
    repack_now(a_store(base))
    assert len(held) == 1
    assert held[0] < 1.0


# --- interleavings ------------------------------------------------------------------------------------


def test_a_snapshot_taken_meanwhile_is_complete(base: Path, project: Path, meanwhile: Any) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 3)
    (project / "src" / "main.py").write_bytes(noise("old", 3000))
    old = take(manager, project)
    take_turns(manager, project, 1)
    manager.delete(project, old.id)

    def snapshot() -> None:
        (project / "src" / "main.py").write_bytes(noise("old", 3000))  # content that is about to go
        (project / "more").write_bytes(noise("more", 100))
        take(manager, project)

    meanwhile(snapshot)
    store = a_store(base)
    assert repack_now(store).complete
    check_sound(store)


def test_an_object_that_is_needed_again_and_was_not_written_again_stays(
    base: Path, project: Path, meanwhile: Any
) -> None:
    """A snapshot may find an object in an old pack and not write it again."""
    manager = a_manager(base)
    old = take_turns(manager, project, 3)[1]
    state = git(a_store(base).git_dir, "rev-list", "--objects", old.id)
    manager.delete(project, old.id)
    store = a_store(base)
    meanwhile(lambda: git(store.git_dir, "update-ref", old.ref, old.id))
    assert repack_now(store).complete
    check_sound(store)
    assert git(store.git_dir, "rev-list", "--objects", old.id) == state


def test_an_empty_file_does_not_count_as_the_object_that_is_needed_again(
    base: Path, project: Path, meanwhile: Any
) -> None:
    manager = a_manager(base)
    old = take_turns(manager, project, 3)[1]
    manager.delete(project, old.id)
    store = a_store(base)

    def poison_and_need() -> None:
        poisoned = store.git_dir / "objects" / old.id[:2] / old.id[2:]
        poisoned.parent.mkdir(exist_ok=True)
        poisoned.touch()
        git(store.git_dir, "update-ref", old.ref, old.id)

    meanwhile(poison_and_need)
    assert repack_now(store).complete
    (store.git_dir / "objects" / old.id[:2] / old.id[2:]).unlink()
    check_sound(store)


def test_a_tree_that_a_cache_needs_again_stays(base: Path, project: Path, meanwhile: Any) -> None:
    manager = a_manager(base)
    old = take_turns(manager, project, 3)[1]
    manager.delete(project, old.id)
    store = a_store(base)
    state = store.index_file(f"{project_of(project).id}.json")

    def point_back() -> None:
        tree = load_cache(store, project_of(project)).tree
        state.write_text(state.read_text().replace(tree, old.tree))

    meanwhile(point_back)
    assert repack_now(store).complete
    assert git(store.git_dir, "rev-list", "--objects", old.tree)
    assert state.exists()


def test_a_pack_that_was_written_again_meanwhile_stays(base: Path, project: Path, meanwhile: Any) -> None:
    take_turns(a_manager(base), project, 2)
    store = a_store(base)

    def write_pack() -> None:
        writer = PackWriter(store.git_dir / "objects", fsync=False)
        writer.add(b"blob", noise("packed", 500))
        writer.finish()

    before = list_packs(store.git_dir).keys()
    write_pack()
    (written,) = list_packs(store.git_dir).keys() - before
    meanwhile(write_pack)
    repack_now(store)
    assert written in list_packs(store.git_dir)


def test_if_too_much_is_needed_again_nothing_is_removed(
    base: Path, project: Path, meanwhile: Any, monkeypatch: Any
) -> None:
    manager = a_manager(base)
    old = take_turns(manager, project, 3)[1]
    manager.delete(project, old.id)
    store = a_store(base)
    meanwhile(lambda: git(store.git_dir, "update-ref", old.ref, old.id))
    monkeypatch.setattr(reclaim, "_MOST_STRAYS", 1)
    before = object_count(store)
    assert not repack_now(store).complete
    assert object_count(store) == before
    check_sound(store)
    monkeypatch.undo()
    assert repack_now(store).complete
    check_sound(store)


def test_refs_that_are_lost_meanwhile_stop_the_repack(base: Path, tmp_path: Path, meanwhile: Any) -> None:
    manager = a_manager(base)
    take_turns(manager, tmp_path / "one", 2)
    take_turns(manager, tmp_path / "two", 2)
    store = a_store(base)
    known = project_of(tmp_path / "one")
    before = object_count(store)
    meanwhile(lambda: [path.unlink() for path in (store.git_dir / known.refs).iterdir()])
    with pytest.raises(CheckpointsLost):
        repack_now(store)
    assert object_count(store) == before


# --- bounds -------------------------------------------------------------------------------------------


def test_free_disk_space_is_checked_first(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 3)
    store = a_store(base)
    consolidated = manifest(store.git_dir / "objects")
    with upkeep_of(store) as upkeep, pytest.raises(DiskTooFull), upkeep.writing_packs(1 << 60, "repacking"):
        pass
    assert manifest(store.git_dir / "objects") == consolidated
    assert not list(store.git_dir.glob("scratch-*"))


def test_when_time_runs_out_nothing_is_lost_and_nothing_left_behind(base: Path, project: Path) -> None:
    manager = a_manager(base, upkeep_deadline=0.15)
    take_turns(manager, project, 3)
    store, seen = a_store(base), set()
    for tenths in (1, 2, 3, 5, 8, 13, 21, 34):
        deadline = Deadline(tenths / 100)
        with upkeep_of(store, deadline) as upkeep:
            try:
                repack(upkeep, 1 << 20)
                seen.add("finished")
            except DeadlineExceeded:
                seen.add("ran out")
        check_sound(store)
        assert not list(store.git_dir.glob("scratch-*"))
    assert "ran out" in seen
    assert len(manager.list_checkpoints(project)) == 3


def test_after_running_out_of_time_the_next_run_looks_for_no_new_deltas(
    base: Path, project: Path, monkeypatch: Any
) -> None:
    manager, real, wanted = a_manager(base), prune.repack, []
    take_turns(manager, project, 4)

    def hurried(upkeep: Upkeep, size: int, *, deltas: bool) -> Repacked:
        wanted.append(deltas)
        if len(wanted) == 1:
            raise Deadline(1).exceeded("packing")
        return real(upkeep, size, deltas=deltas)

    monkeypatch.setattr(prune, "repack", hurried)
    assert isinstance(manager.prune(reclaim="always").error, DeadlineExceeded)
    assert manager.prune(reclaim="always").error is None
    assert manager.prune(reclaim="always").error is None
    assert wanted == [True, False, True]
    check_sound(a_store(base))


# --- merging ------------------------------------------------------------------------------------------


def test_loose_objects_are_packed_in_batches(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 6)
    store = a_store(base)
    unpack(store.git_dir)
    before = object_count(store)
    with upkeep_of(store) as upkeep, upkeep.writing_packs(0, "packing") as aside:
        assert pack_loose(aside, 7) == before
    packs = list_packs(store.git_dir)
    assert len(packs) == -(-before // 7)
    assert (object_count(store), [*loose_names(store.git_dir)]) == (before, [])
    assert sum(len(PackIndex(store.git_dir, name)) for name in packs) == before
    check_sound(store)


def test_a_damaged_loose_object_stays_for_the_doctor_and_the_rest_is_packed(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 3)
    store = a_store(base)
    unpack(store.git_dir)
    names = [*loose_names(store.git_dir)]
    damaged = loose_object(store.git_dir, names[3])
    damaged.chmod(0o644)
    damaged.write_bytes(b"")
    with upkeep_of(store) as upkeep, upkeep.writing_packs(0, "packing") as aside:
        assert pack_loose(aside, 1000) == len(names) - 1
    assert [*loose_names(store.git_dir)] == [names[3]]


def test_many_packs_become_few(base: Path, project: Path) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, project, 15)
    store = a_store(base)
    before = object_count(store)
    assert len(list_packs(store.git_dir)) == 15 > reclaim.MANY_PACKS
    with upkeep_of(store) as upkeep:
        consolidate(upkeep)
    assert len(list_packs(store.git_dir)) <= 2
    assert object_count(store) == before
    check_sound(store)
    assert [each.id for each in manager.list_checkpoints(project)] == [each.id for each in reversed(taken)]


def test_many_refs_are_packed(base: Path, project: Path, monkeypatch: Any) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, project, 6)
    monkeypatch.setattr(reclaim, "MANY_REFS", 5)
    store = a_store(base)
    with upkeep_of(store) as upkeep:
        consolidate(upkeep)
    assert not (store.git_dir / project_of(project).refs).exists()
    assert [each.id for each in manager.list_checkpoints(project)] == [each.id for each in reversed(taken)]
    take(manager, _changed(project))
    manager.pin(project, taken[0].id)
    manager.prune(max_snapshots=3)
    assert [each.id for each in manager.list_checkpoints(project)][1:] == [
        taken[5].id,
        taken[1].id,  # the pinned turn ended with it
        taken[0].id,
    ]


def _changed(project: Path) -> Path:
    (project / "changed").write_text("changed\n")
    return project


def test_nothing_runs_when_nothing_was_dropped(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 5)
    manager.prune()
    before = manifest(base / "store" / "objects")
    manager.prune()
    assert manifest(base / "store" / "objects") == before


# --- interruptions ------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from upkeep_stores import a_store
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.git import maintenance as loose, maintenance as packs
from shadowsnap.upkeep import reclaim
from shadowsnap.upkeep.reclaim import begin_upkeep

where = sys.argv[2]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if where == "while packing loose objects":
    loose._remove_loose = die
elif where == "while moving a pack in":
    packs._move = lambda source, target: die() if target.suffix == ".idx" else os.replace(source, target)
elif where == "before removing":
    reclaim._remove_packs = die
elif where == "while removing":
    real = packs.remove_pack
    def half(git_dir, name):
        (git_dir / "objects" / "pack" / f"{name}.pack").unlink()
        die()
    reclaim.remove_pack = half

store = a_store(Path(sys.argv[1]))
with begin_upkeep(store, NO_DEADLINE) as upkeep:
    reclaim.repack(upkeep, 1 << 20)
"""


@pytest.mark.parametrize(
    "where",
    ["while packing loose objects", "while moving a pack in", "before removing", "while removing"],
)
def test_a_killed_run_loses_nothing_and_the_next_one_clears_up(base: Path, project: Path, where: str) -> None:
    manager = a_manager(base)
    taken = take_turns(manager, project, 6)
    store = a_store(base)
    repack_now(store)
    taken += take_turns(manager, project, 2)
    manager.delete(project, [each.id for each in taken[:4]])
    if where == "while packing loose objects":
        unpack(store.git_dir)
    script = [sys.executable, "-c", KILLED, base, where, ROOT / "tests" / "support"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL, done.stderr
    check_sound(store)
    assert [each.id for each in manager.list_checkpoints(project)] == [each.id for each in reversed(taken[4:])]
    result = manager.prune(reclaim="always")
    assert result.error is None
    check_sound(store)
    assert len(list_packs(store.git_dir)) == 1
    files = (name for name in os.listdir(store.git_dir / "objects" / "pack") if not name.endswith(".rev"))
    assert sorted(files) == sorted(
        f"{name}.{kind}" for name in list_packs(store.git_dir) for kind in ("pack", "idx")
    )
    assert not list(store.git_dir.glob("scratch-*"))
    assert object_count(store) == len(set(git(store.git_dir, "rev-list", "--objects", "--all").split("\n")))


def make_debris(store: Store) -> list[Path]:
    objects = store.git_dir / "objects"
    (objects / "00").mkdir(exist_ok=True)
    (store.git_dir / "scratch-p-1" / "ab").mkdir(parents=True)
    (store.git_dir / "scratch-p-1" / "ab" / "object").touch()
    refs = store.git_dir / "refs" / "shadowsnap" / "x"
    refs.mkdir(parents=True)
    files = [
        objects / "pack" / "tmp_pack_1_1",
        objects / "pack" / "tmp_idx_1_2",
        objects / "pack" / ".tmp-77-pack-0000.pack",
        objects / "pack" / f"pack-{'0' * 40}.idx",
        objects / "00" / "tmp_obj_1_3",
        store.git_dir / "packed-refs.lock",
        refs / "1700000000000-abc.lock",
        store.git_dir / "indexes" / ".x.tmp_1_4",
        store.git_dir / "indexes" / "x.77.tmp",
        store.git_dir / "projects" / ".x.json.tmp_1_5",
        store.git_dir / "journal" / ".x.json.tmp_1_6",
    ]
    for path in files:
        path.touch()
    return [*files, store.git_dir / "scratch-p-1"]


def test_debris_is_removed_and_nothing_else(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 2)
    manager.prune()
    store = a_store(base)
    before = manifest(store.git_dir)
    debris = make_debris(store)
    assert len(debris) == 12
    with upkeep_of(store):
        assert clear_debris(store, NO_DEADLINE) == len(debris)
    after = manifest(store.git_dir)
    made = {b"objects/00", b"refs/shadowsnap/x", b"locks/store.gate"}
    assert {name: after[name] for name in after if name not in made and b"locks/" not in name} == {
        name: before[name] for name in before if name not in made and b"locks/" not in name
    }


def test_a_pack_that_a_killed_repack_left_without_its_index_gets_one(base: Path, project: Path) -> None:
    manager = a_manager(base)
    take_turns(manager, project, 2)
    store = a_store(base)
    for index in (store.git_dir / "objects" / "pack").glob("*.idx"):
        index.unlink()
    assert not manager.doctor().healthy
    with upkeep_of(store):
        clear_debris(store, NO_DEADLINE)
    assert manager.doctor().healthy
    assert git(store.git_dir, "fsck", "--full", "--strict", "--no-dangling") == ""


def test_debris_stays_while_another_process_works(base: Path, project: Path) -> None:
    take_turns(a_manager(base), project, 2)
    store = a_store(base)
    debris = make_debris(store)
    with locked(store.store_lock(), "snapshot", NO_DEADLINE, shared=True), upkeep_of(store):
        assert clear_debris(store, Deadline(0.3)) == 0
        assert all(path.exists() for path in debris)


def test_a_git_that_outlived_its_killed_parent_keeps_the_next_run_waiting(base: Path, project: Path) -> None:
    """It holds the lock that it inherited; what it is writing is not debris."""
    take_turns(a_manager(base), project, 2)
    store = a_store(base)
    script = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from upkeep_stores import a_store\n"
        "from shadowsnap.deadline import NO_DEADLINE\n"
        "from shadowsnap.upkeep.reclaim import begin_upkeep\n"
        "store = a_store(Path(sys.argv[1]))\n"
        "with begin_upkeep(store, NO_DEADLINE) as upkeep:\n"
        "    with upkeep.git.conversation('cat-file', '--batch') as git:\n"
        "        os.set_inheritable(git.stdin.fileno(), True)\n"
        "        print(git.pid, flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    arguments = [sys.executable, "-c", script, base, ROOT / "tests" / "support"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        os.kill(orphan, signal.SIGSTOP)  # so that it does not notice the end of its input
        process.kill()
        process.wait()
    try:
        with begin_upkeep(store, NO_DEADLINE) as refused:
            assert refused is None
    finally:
        os.kill(orphan, signal.SIGKILL)
    while True:
        with begin_upkeep(store, NO_DEADLINE) as granted:
            if granted is not None:
                break


def test_objects_that_were_packed_before_they_were_flushed_do_not_fail_the_snapshot(
    base: Path, project: Path
) -> None:
    take_turns(a_manager(base), project, 1)
    store = Store(base, fsync=True)
    name = store.objects.write(b"blob", noise("unsettled", 100))
    with upkeep_of(store) as upkeep, upkeep.writing_packs(0, "packing") as aside:
        pack_loose(aside, 1000)
    assert name not in loose_names(store.git_dir)
    store.objects.flush()
    assert git(store.git_dir, "cat-file", "-t", name) == "blob"


def test_a_project_that_began_while_refs_were_listed_does_not_count_as_lost(base: Path, project: Path) -> None:
    manager = a_manager(base)
    manager.snapshot(project)
    reclaim.check_refs_are_there(a_store(base), [])  # as they were listed before that
    git(a_store(base).git_dir, "update-ref", "-d", manager.list_checkpoints(project)[0].ref)
    with pytest.raises(CheckpointsLost):
        reclaim.check_refs_are_there(a_store(base), [])
