"""Retention: which checkpoints stay and which are dropped, without a store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from shadowsnap.model import Checkpoint
from shadowsnap.upkeep.retention import FIRM, GONE, UNREACHABLE, Limits, ProjectFacts, judge, units

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
    assert reasons(past, Limits(max_snapshots=3))[3] == "more than 3 checkpoints"


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
    undone = [checkpoint(days, "pre-restore") for days in range(1, 11)]
    past = timeline(*turns, *undone)
    assert kept(past, Limits(max_snapshots=3)) == [*undone[:3], *turns]


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
        assert len({each.ref in staying for each in unit}) == 1
    free = [verdict for verdict in verdicts if verdict.reason not in FIRM]
    for apart in (True, False):
        group = [each for each in units(given) if (each[0].kind == "pre-restore") == apart]
        kept_here = [each for each in group if each[0].ref in staying]
        firm = [each for each in group if not any(verdict.checkpoint in each for verdict in free)]
        if most:
            assert len(kept_here) <= max(most, len(firm))
        if not days:
            loose = [each[0].ref in staying for each in group if each not in firm]
            assert loose == sorted(loose, reverse=True)  # the oldest go first


# --- the beginning of a turn ------------------------------------------------------------------------


def test_the_oldest_turn_that_stays_keeps_the_state_before_it() -> None:
    past = timeline(*(checkpoint(9 - turn, "turn-end", turn) for turn in range(1, 7)))
    olders = [*past[1:], past[-1]]
    past = [replace(each, metadata={"before": older.id}) for each, older in zip(past, olders, strict=True)]
    assert kept(past, Limits(max_snapshots=3)) == past[:4]  # three turns, and where the oldest began
    assert kept(past[:4], Limits(max_snapshots=3)) == past[:4]
    assert kept(past, Limits(max_snapshots=3, retention_days=5.5)) == past[:3]  # age is another matter
