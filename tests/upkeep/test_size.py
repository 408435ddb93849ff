"""What checkpoints cost, checked against `git rev-list --disk-usage`, and what is dropped to keep a size limit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from upkeep_stores import a_manager, a_store, disk_usage, noise, take, take_turns

from helpers import git, loose_object, unpack
from shadowsnap.git import repository as runner
from shadowsnap.store.layout import Store
from shadowsnap.upkeep.reclaim import Holder, Usage, measure
from shadowsnap.upkeep.retention import Dropping, choose

Projects = dict[str, list[Holder]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Projects]:
    """A base, and the checkpoints of three projects, newest first. Two of them share files, as
    worktrees do. Half of the store is packed with deltas, the rest is loose."""
    top = tmp_path_factory.mktemp("built")
    manager, found = a_manager(top / "base"), {}
    for name in ("one", "two", "three"):
        project = top / name
        (project / "deep" / "er").mkdir(parents=True)
        (project / "deep" / "er" / "common").write_bytes(noise(name == "three", 5000))
        (project / "again").write_bytes(noise("first", 3000))
        checkpoints = take_turns(manager, project, 5)
        (project / "again").write_bytes(noise("second", 3000))
        checkpoints.append(take(manager, project))
        (project / "again").write_bytes(noise("first", 3000))  # back to what the oldest ones have
        checkpoints.append(take(manager, project))
        found[name] = [Holder(each.ref, each.id) for each in reversed(checkpoints)]
    store = a_store(top / "base")
    unpack(store.git_dir)  # else git may count another copy of an object than we do
    stdin = "".join(f"{holder.tip}\n" for group in found.values() for holder in group[4:]).encode()
    git(store.git_dir, "pack-objects", "--revs", "-q", store.git_dir / "objects/pack/pack", stdin=stdin)
    git(store.git_dir, "prune-packed")
    return top / "base", found


@pytest.fixture
def projects(built: tuple[Path, Projects]) -> Projects:
    return {name: list(group) for name, group in built[1].items()}


@pytest.fixture
def store(built: tuple[Path, Projects], base: Path) -> Store:
    shutil.copytree(built[0], base)
    return a_store(base)


def tips(*groups: list[Holder]) -> list[str]:
    return [holder.tip for group in groups for holder in group]


def test_the_live_bytes_are_what_git_measures(store: Store, projects: Projects) -> None:
    assert measure(store.git(), projects).live == disk_usage(store, tips(*projects.values()))


def test_the_bytes_of_a_project_alone_are_what_dropping_it_frees(store: Store, projects: Projects) -> None:
    usage = measure(store.git(), projects)
    everything = disk_usage(store, tips(*projects.values()))
    for name in projects:
        others = tips(*(group for other, group in projects.items() if other != name))
        assert usage.alone(name) == everything - disk_usage(store, others) > 0
    assert usage.all_alone() == {name: usage.alone(name) for name in projects}


def test_dropping_the_oldest_frees_what_git_measures(store: Store, projects: Projects) -> None:
    usage = measure(store.git(), projects)
    everything = disk_usage(store, tips(*projects.values()))
    dropping = Dropping(usage, {"": [(holder.name,) for group in projects.values() for holder in group]})
    left = {name: list(group) for name, group in projects.items()}
    freed = 0
    for name in ["one", "one", "two", "three", "two", "one", "two", "two", "one", "three"] + ["one", "two"] * 5:
        if left[name]:
            freed += dropping.drop(left[name].pop().name)
            assert everything - freed == disk_usage(store, tips(*left.values()))


def test_objects_that_a_staying_checkpoint_shares_are_not_freed(store: Store, projects: Projects) -> None:
    """The first of a group stays longest: here the oldest, as if it were pinned."""
    first, *rest, pinned = projects["one"]
    usage = measure(store.git(), {"one": [first, pinned, *rest]})
    dropping = Dropping(usage, {"one": [(holder.name,) for holder in rest]})
    freed = sum(dropping.drop(holder.name) for holder in reversed(rest))
    assert usage.live - freed == disk_usage(store, [first.tip, pinned.tip])


def test_unreachable_objects_are_in_the_total_only(store: Store, projects: Projects) -> None:
    before = measure(store.git(), projects)
    (store.git_dir / "blob").write_bytes(noise("unreachable", 4000))
    git(store.git_dir, "hash-object", "-w", "blob")
    after = measure(store.git(), projects)
    assert after.live == before.live
    assert after.total > before.total + 4000


def test_a_checkpoint_with_missing_objects_does_not_hide_the_others(store: Store, projects: Projects) -> None:
    damaged = projects["one"].pop(1)
    tree = git(store.git_dir, "rev-parse", f"{damaged.tip}^{{tree}}")
    loose_object(store.git_dir, tree).unlink()
    usage = measure(store.git(), {**projects, "damaged": [damaged]})
    commit = len(git(store.git_dir, "cat-file", "commit", damaged.tip))
    assert 0 < usage.live - disk_usage(store, tips(*projects.values())) < commit


def test_the_number_of_processes_does_not_depend_on_the_number_of_projects(
    store: Store, projects: Projects
) -> None:
    started = runner.processes_started
    measure(store.git(), {"one": projects["one"]})
    for_one, started = runner.processes_started - started, runner.processes_started
    many = {f"{name}-{number}": group for name, group in projects.items() for number in range(20)}
    measure(store.git(), many)
    assert runner.processes_started - started == for_one <= 6


# --- fitting a limit ----------------------------------------------------------------------------------


def usage_of(costs: dict[str, list[int]]) -> Usage:
    """Projects whose checkpoints (oldest first) hold so many bytes each, for themselves."""
    shares = {(f"{group}{number}",): size for group, sizes in costs.items() for number, size in enumerate(sizes)}
    group_of = {f"{group}{number}": group for group, sizes in costs.items() for number in range(len(sizes))}
    return Usage(sum(shares.values()), sum(shares.values()), shares, group_of)


def all_but_newest(costs: dict[str, list[int]]) -> dict[str, list[tuple[str, ...]]]:
    return {group: [(f"{group}{number}",) for number in range(len(sizes) - 1)] for group, sizes in costs.items()}


def test_the_oldest_of_the_projects_that_use_most_go_and_quiet_ones_are_left_alone() -> None:
    costs = {"noisy": [100] * 10, "quiet": [10] * 10}
    choice = choose(usage_of(costs), all_but_newest(costs), 700)
    assert choice.dropped == ("noisy0", "noisy1", "noisy2", "noisy3")
    assert (choice.live_after, choice.met) == (700, True)


def test_nothing_goes_that_is_not_necessary() -> None:
    costs = {"noisy": [100] * 10}
    assert choose(usage_of(costs), all_but_newest(costs), 1000).dropped == ()
    assert choose(usage_of(costs), all_but_newest(costs), 999).dropped == ("noisy0",)


def test_a_large_project_without_droppable_history_keeps_what_it_has() -> None:
    costs = {"large": [1, 1, 1, 5000], "busy": [300, 300, 300, 300]}
    choice = choose(usage_of(costs), all_but_newest(costs), 5303)
    assert set(choice.dropped) == {"busy0", "busy1", "busy2"}


def test_a_limit_that_cannot_be_met_is_reported_and_the_newest_stay() -> None:
    costs = {"one": [100, 100, 600], "two": [50, 600]}
    choice = choose(usage_of(costs), all_but_newest(costs), 1000)
    assert (choice.live_after, choice.met) == (1200, False)
    assert set(choice.dropped) == {"one0", "one1", "two0"}


def test_a_project_that_is_too_large_by_itself_does_not_cost_others_their_history() -> None:
    costs = {"huge": [1000, 1000, 5000], "quiet": [50] * 5, "still": [5] * 5}
    choice = choose(usage_of(costs), all_but_newest(costs), 1000)
    assert (choice.dropped, choice.met) == (("huge0", "huge1"), False)


def test_projects_within_their_share_give_too_if_that_meets_the_limit() -> None:
    costs = {"huge": [1000, 1000, 5000], "quiet": [50] * 5, "still": [5] * 5}
    choice = choose(usage_of(costs), all_but_newest(costs), 5200)
    assert (choice.dropped, choice.met) == (("huge0", "huge1", "quiet0", "quiet1"), True)


def test_objects_that_two_projects_share_are_freed_when_both_drop_them() -> None:
    shares = {("a0", "b0"): 500, ("a1",): 10, ("b1",): 10, ("c0",): 400, ("c1",): 10}
    group_of = {name: name[0] for names in shares for name in names}
    usage = Usage(930, 930, shares, group_of)
    droppable = {"a": [("a0",)], "b": [("b0",)], "c": [("c0",)]}
    one = choose(usage, droppable, 540)
    assert one.dropped == ("c0",)
    both = choose(usage, droppable, 100)
    assert (set(both.dropped), both.live_after) == ({"a0", "b0", "c0"}, 30)


def test_the_checkpoints_of_a_turn_are_dropped_together() -> None:
    costs = {"noisy": [100] * 6}
    bundles = {"noisy": [("noisy0", "noisy1"), ("noisy2", "noisy3")]}
    assert choose(usage_of(costs), bundles, 550).dropped == ("noisy0", "noisy1")
