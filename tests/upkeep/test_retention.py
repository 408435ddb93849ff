"""Retention: which checkpoints stay and which are dropped, without a store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.model import Checkpoint
from shadowsnap.store.projects import GONE, UNREACHABLE
from shadowsnap.upkeep.retention import (
    FIRM,
    Limits,
    ProjectFacts,
    TurnStates,
    droppable,
    judge,
    units,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def checkpoint(days_ago: float, kind: str = "turn", turn: int | None = None, **facts: object) -> Checkpoint:
    moment = NOW - timedelta(days=days_ago)
    name = f"{int(moment.timestamp() * 1000):013d}"
    facts = {"id": name, "ref": f"refs/shadowsnap/p/{name}-x", "scope": "tree", **facts}
    return Checkpoint(project="p", workdir="/p", created_at=moment, reason="", kind=kind, turn=turn, **facts)  # type: ignore[arg-type]


def timeline(*checkpoints: Checkpoint) -> list[Checkpoint]:
    return sorted(checkpoints, key=lambda each: each.ref, reverse=True)


def kept(given: list[Checkpoint], limits: Limits, facts: ProjectFacts | None = None) -> list[Checkpoint]:
    verdicts = judge({"p": given}, {"p": facts} if facts else {}, limits, NOW)
    assert [verdict.checkpoint for verdict in verdicts] == given
    assert all(verdict.reason for verdict in verdicts)
    return [verdict.checkpoint for verdict in verdicts if verdict.keep]


def reasons(given: list[Checkpoint], limits: Limits, facts: ProjectFacts | None = None) -> list[str]:
    return [verdict.reason for verdict in judge({"p": given}, {"p": facts} if facts else {}, limits, NOW)]


# --- count --------------------------------------------------------------------------------------------


def test_the_oldest_beyond_the_limit_go() -> None:
    past = timeline(*(checkpoint(days, turn=10 - days) for days in range(1, 8)))
    assert kept(past, Limits(max_snapshots=3)) == past[:3]
    assert reasons(past, Limits(max_snapshots=3))[3] == "more than 3 turns"
    assert reasons(past, Limits(max_snapshots=1))[3] == "more than 1 turn"


def test_zero_means_no_limit() -> None:
    past = timeline(*(checkpoint(days, turn=1000 - days) for days in range(1, 900)))
    assert kept(past, Limits(max_snapshots=0, retention_days=0)) == past


def test_turns_are_counted_and_a_closing_checkpoint_lives_and_goes_with_its_turn() -> None:
    past = timeline(
        *(checkpoint(days, "turn", 10 - days) for days in range(1, 6)),
        *(checkpoint(days - 0.5, "turn-end", 10 - days) for days in range(1, 6)),
    )
    assert kept(past, Limits(max_snapshots=2)) == past[:4]


def test_a_turn_that_ended_late_is_as_old_as_its_beginning() -> None:
    first, second, third = checkpoint(9, turn=1), checkpoint(8, turn=2), checkpoint(7, turn=3)
    late = checkpoint(6, "turn-end", 1)
    newest = checkpoint(5, turn=4)
    past = timeline(first, second, third, late, newest)
    assert kept(past, Limits(max_snapshots=3)) == [newest, third, second]


def test_a_closing_checkpoint_without_a_turn_counts_for_itself() -> None:
    past = timeline(*(checkpoint(days, "turn-end") for days in range(1, 8)))
    assert kept(past, Limits(max_snapshots=3)) == past[:3]


def test_going_back_and_forth_does_not_push_turns_out_and_is_bounded_too() -> None:
    turns = [checkpoint(days, turn=40 - days) for days in range(20, 23)]
    undone = [checkpoint(days, "pre-restore") for days in range(1, 6)]
    undone += [checkpoint(days, "manual", metadata={"revert": True}) for days in range(6, 11)]
    past = timeline(*turns, *undone)
    assert kept(past, Limits(max_snapshots=3)) == [*undone[:3], *turns]


def test_what_one_host_saves_pushes_out_nothing_of_others() -> None:
    own = [checkpoint(days + 0.5, "manual", metadata={"host": "noisy"}) for days in range(8)]
    others = [checkpoint(days, turn=10 - days) for days in range(3, 6)]
    past = timeline(*own, *others)
    assert kept(past, Limits(max_snapshots=3)) == timeline(*own[:3], *others)


def test_a_host_may_keep_more_of_its_own_than_the_limit() -> None:
    own = timeline(*(checkpoint(days, "manual", metadata={"host": "h", "keep": 5}) for days in range(1, 8)))
    assert kept(own, Limits(max_snapshots=3)) == own[:5]
    assert kept(own, Limits(max_snapshots=6)) == own[:6]
    assert reasons(own, Limits(max_snapshots=3))[5] == "more than 5 turns"
    assert kept(own, Limits(max_snapshots=3, retention_days=2.5)) == own[:2]


def test_pinned_checkpoints_count_but_stay() -> None:
    past = timeline(*(checkpoint(days, turn=10 - days, pinned=days in (6, 7)) for days in range(1, 8)))
    assert kept(past, Limits(max_snapshots=4)) == [past[0], past[1], past[5], past[6]]


def test_with_everything_pinned_the_newest_stays_too() -> None:
    past = timeline(*(checkpoint(days, turn=10 - days, pinned=days > 1) for days in range(1, 8)))
    assert kept(past, Limits(max_snapshots=2)) == past


# --- age ----------------------------------------------------------------------------------------------


def test_old_checkpoints_go_but_the_newest_of_a_project_stays() -> None:
    past = timeline(*(checkpoint(days, turn=400 - days) for days in (1, 5, 29, 31, 90)))
    assert kept(past, Limits(retention_days=30)) == past[:3]
    ancient = timeline(*(checkpoint(days, turn=400 - days) for days in (100, 200, 300)))
    assert kept(ancient, Limits(retention_days=30)) == ancient[:1]


def test_the_reason_distinguishes_an_unused_project_from_an_old_checkpoint() -> None:
    past = timeline(checkpoint(100, turn=2), checkpoint(200, turn=1))
    unused = ProjectFacts(last_touch=NOW - timedelta(days=99))
    used = ProjectFacts(last_touch=NOW)
    assert reasons(past, Limits(retention_days=30), unused)[1] == "its project was not used for 30 days"
    assert reasons(past, Limits(retention_days=30), used)[1] == "older than 30 days"


def test_the_newest_of_the_whole_directory_stays_beside_a_newer_one_of_single_paths() -> None:
    whole, part = checkpoint(200, turn=1), checkpoint(100, turn=2, scope="paths")
    older = checkpoint(300, turn=0)
    assert kept(timeline(whole, part, older), Limits(retention_days=30, max_snapshots=1)) == [part, whole]


def test_pinned_checkpoints_do_not_age() -> None:
    past = timeline(checkpoint(1, turn=3), checkpoint(500, turn=1, pinned=True), checkpoint(499, turn=2))
    assert kept(past, Limits(retention_days=30)) == [past[0], past[2]]


def test_a_checkpoint_of_the_future_is_not_old() -> None:
    past = timeline(checkpoint(-3, turn=2), checkpoint(-2, turn=1))
    assert kept(past, Limits(retention_days=1)) == past


# --- directories that are gone ------------------------------------------------------------------------


def test_a_directory_that_is_gone_has_a_time_of_grace() -> None:
    past = timeline(checkpoint(1, turn=2), checkpoint(2, turn=1))
    limits = Limits(orphan_grace_days=7)
    assert kept(past, limits, ProjectFacts(GONE, gone_since=NOW - timedelta(days=6.9))) == past
    assert kept(past, limits, ProjectFacts(GONE, gone_since=NOW - timedelta(days=7))) == []
    assert kept(past, limits, ProjectFacts(GONE, gone_since=None)) == past


def test_orphans_can_be_kept() -> None:
    past = timeline(checkpoint(1, turn=2), checkpoint(2, turn=1))
    facts = ProjectFacts(GONE, gone_since=NOW - timedelta(days=70))
    assert kept(past, Limits(orphan_grace_days=7, drop_orphans=False), facts) == past


def test_a_pinned_checkpoint_outlives_its_directory() -> None:
    past = timeline(checkpoint(1, turn=2), checkpoint(2, turn=1, pinned=True))
    facts = ProjectFacts(GONE, gone_since=NOW - timedelta(days=70))
    assert kept(past, Limits(), facts) == [past[1]]


def test_a_volume_that_is_not_mounted_loses_nothing() -> None:
    past = timeline(checkpoint(100, turn=2), checkpoint(200, turn=1))
    facts = ProjectFacts(UNREACHABLE, gone_since=NOW - timedelta(days=700))
    assert kept(past, Limits(retention_days=30), facts) == past


# --- the journal --------------------------------------------------------------------------------------


def test_what_an_undo_or_an_open_restore_needs_stays() -> None:
    past = timeline(*(checkpoint(days, turn=10 - days) for days in range(1, 8)))
    facts = ProjectFacts(needed=frozenset({past[5].id}))
    assert kept(past, Limits(max_snapshots=2, retention_days=1), facts) == [past[0], past[5]]


# --- whatever comes -----------------------------------------------------------------------------------

KINDS = st.sampled_from(["turn", "turn-end", "manual", "pre-restore", "stage"])
PASTS = st.lists(
    st.tuples(KINDS, st.integers(1, 6) | st.none(), st.booleans(), st.sampled_from(["tree", "paths"])), max_size=30
)


@given(PASTS, st.integers(0, 8), st.sampled_from([0, 5, 1000]))
def test_the_promises_hold_for_any_history(
    past: list[tuple[str, int | None, bool, str]], most: int, days: int
) -> None:
    given = timeline(
        *(
            checkpoint(number + 1, kind, turn, pinned=pinned, scope=scope)
            for number, (kind, turn, pinned, scope) in enumerate(past)
        )
    )
    verdicts = judge({"p": given}, {}, Limits(most, days), NOW)
    staying = {verdict.checkpoint.ref for verdict in verdicts if verdict.keep}
    assert {each.ref for each in given if each.pinned} <= staying
    assert {each.ref for each in given[:1]} <= staying
    for unit in units(given):
        assert len({each.ref in staying for each in unit.checkpoints}) == 1
    free = [verdict for verdict in verdicts if verdict.reason not in FIRM]
    for apart in (True, False):
        group = [each.checkpoints for each in units(given)]
        group = [each for each in group if (each[0].kind == "pre-restore") == apart]
        kept_here = [each for each in group if each[0].ref in staying]
        firm = [each for each in group if not any(verdict.checkpoint in each for verdict in free)]
        if most:
            assert len(kept_here) <= max(most, len(firm))
        if not days:
            loose = [each[0].ref in staying for each in group if each not in firm]
            assert loose == sorted(loose, reverse=True)  # the oldest go first


# --- the states before and after a turn -------------------------------------------------------------


def turn_at(days_ago: float, number: int, before: Checkpoint, after: Checkpoint | None = None) -> TurnStates:
    return TurnStates(number, NOW - timedelta(days=days_ago), before.id, after.id if after else None)


def test_the_oldest_turn_that_stays_keeps_the_state_before_it() -> None:
    past = timeline(*(checkpoint(9 - turn, "turn-end", turn) for turn in range(1, 7)))
    olders = [*past[1:], past[-1]]
    past = [replace(each, metadata={"before": older.id}) for each, older in zip(past, olders, strict=True)]
    assert kept(past, Limits(max_snapshots=3)) == past[:4]  # three turns, and where the oldest began
    assert kept(past[:4], Limits(max_snapshots=3)) == past[:4]
    assert kept(past, Limits(max_snapshots=3, retention_days=5.5)) == past[:4]  # however old it is
    assert kept(past, Limits(retention_days=4.5)) == past[:3]  # turns 5 and 6, and where 5 began


def test_a_turn_on_a_state_that_a_snapshot_recorded_keeps_that_state() -> None:
    held = checkpoint(100, "manual")
    later = [checkpoint(days, "manual") for days in (3, 2, 1)]
    past = timeline(held, checkpoint(50, "manual"), *later)
    turns = (turn_at(1.5, 1, held),)  # it is still running
    assert kept(past, Limits(max_snapshots=2)) == past[:2]
    assert kept(past, Limits(max_snapshots=2), ProjectFacts(turns=turns)) == [*past[:2], held]
    assert kept(past, Limits(retention_days=30), ProjectFacts(turns=turns)) == [*past[:3], held]
    assert reasons(past, Limits(max_snapshots=2), ProjectFacts(turns=turns))[-1] == (
        "a turn that stays begins or ends with it"
    )
    beyond = (turn_at(2.5, 1, held),)  # two snapshots are newer
    assert kept(past, Limits(max_snapshots=2), ProjectFacts(turns=beyond)) == past[:2]


def test_a_turn_keeps_the_state_after_it_too() -> None:
    before, after, newest = checkpoint(9, turn=1), checkpoint(8, "manual"), checkpoint(1, "manual")
    other = checkpoint(7, "manual", pinned=True)
    turns = (turn_at(9, 1, before, after),)
    past = timeline(replace(before, pinned=True), after, other, newest)
    assert kept(past, Limits(max_snapshots=1), ProjectFacts(turns=turns)) == past


def test_one_turn_does_not_keep_the_chain_of_all_turns_before_it() -> None:
    ends = [checkpoint(30 - turn, "turn-end", turn) for turn in range(1, 21)]
    turns = tuple(turn_at(30.5 - turn, turn, ends[turn - 2], ends[turn - 1]) for turn in range(2, 21))
    past = timeline(*ends)
    for most in range(1, 10):
        assert kept(past, Limits(max_snapshots=most), ProjectFacts(turns=turns)) == past[: most + 1]


def test_turns_that_changed_nothing_push_no_other_turn_out_and_keep_only_so_many_states() -> None:
    states = [checkpoint(100 - day, turn=day) for day in range(1, 31)]
    unchanged = tuple(turn_at(50 + day / 100, 100 + day, states[day], states[day]) for day in range(1, 21))
    past = timeline(*states, *(checkpoint(days, turn=200 - days) for days in (1, 2)))
    staying = kept(past, Limits(max_snapshots=4), ProjectFacts(turns=unchanged))
    assert staying[:4] == past[:4]
    assert [each.turn for each in staying[4:]] == [5, 4, 3, 2]  # those of the four newest of these turns


@given(
    PASTS,
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 29), st.integers(0, 29)), max_size=12),
    st.integers(1, 8),
)
def test_every_turn_that_stays_has_its_states(
    past: list[tuple[str, int | None, bool, str]], told: list[tuple[int, int, int]], most: int
) -> None:
    given = timeline(
        *(
            checkpoint(number + 1, kind, turn, pinned=pinned, scope=scope)
            for number, (kind, turn, pinned, scope) in enumerate(past)
        )
    )
    known = {
        number: TurnStates(number, given[first].created_at, given[first].id, given[last].id)
        for number, first, last in told
        if max(first, last) < len(given)
    }
    facts = ProjectFacts(turns=tuple(known.values()))
    staying = {each.id for each in kept(given, Limits(most), facts)}
    within = {each.id for each in kept(given, Limits(most))}
    assert within <= staying
    turns = [each for each in units(given, facts.turns) if any(own.id in within for own in each.checkpoints)]
    for unit in turns:
        assert unit.states <= staying
    assert len(staying - within) <= 2 * (len(turns) + most)
    pinned = [each for each in given if each.pinned]
    bundles = droppable({"p": given}, {"p": facts}, Limits(most), NOW)["p"]
    names = [name for bundle in bundles for name in bundle]
    assert len(names) == len(set(names)) and not {each.ref for each in pinned} & set(names)
    assert set(names) <= {each.ref for each in given if each.id in staying}


def test_for_a_size_limit_a_state_goes_with_the_newest_turn_that_needs_it() -> None:
    first, *ends = [checkpoint(9 - turn, "turn-end" if turn else "manual", turn or None) for turn in range(5)]
    states = [first, *ends]
    turns = tuple(turn_at(9.5 - turn, turn, states[turn - 1], states[turn]) for turn in range(1, 5))
    given, facts = timeline(*states), ProjectFacts(turns=turns)
    bundles = droppable({"p": given}, {"p": facts}, Limits(), NOW)["p"]
    # Turn 4 is the newest and firm, and so is where it began. Turn 3 began with the end of turn 2.
    assert bundles == [(first.ref,), (ends[0].ref,), (ends[1].ref,)]
    unchanged = TurnStates(9, NOW, first.id, first.id)
    bundles = droppable({"p": given}, {"p": replace(facts, turns=(*turns, unchanged))}, Limits(), NOW)["p"]
    assert bundles == [(ends[0].ref,), (ends[1].ref,), (first.ref,)]
