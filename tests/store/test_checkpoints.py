"""Checkpoints: recorded with any text, in the order of time, found by every kind of reference."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers import git, loose_object
from shadowsnap import Checkpoint, CheckpointManager, Settings
from shadowsnap.deadline import NO_DEADLINE
from shadowsnap.errors import (
    AmbiguousReference,
    DamagedObject,
    ForeignCheckpoint,
    MalformedLabel,
    MalformedReference,
    NoSuchCheckpoint,
    ShadowsnapError,
)
from shadowsnap.git import repository as runner
from shadowsnap.git.objects import EMPTY_TREE, object_id
from shadowsnap.git.refs import RefExists
from shadowsnap.git.trees import REGULAR, format_tree
from shadowsnap.model import Skipped
from shadowsnap.store import checkpoints
from shadowsnap.store.checkpoints import (
    delete_checkpoints,
    files_of,
    list_checkpoints,
    newest_checkpoint,
    newest_name,
    read_checkpoint,
    record_checkpoint,
    set_label,
    set_pinned,
    text_to_remember,
)
from shadowsnap.store.history import resolve
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.projects import Project, project_of, touch_record


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base, fsync=False))


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


def tree(store: Store, **files: str) -> str:
    entries = {
        name.encode(): (REGULAR, store.objects.write(b"blob", content.encode())) for name, content in files.items()
    }
    return store.objects.write(b"tree", format_tree(entries))


def record(store: Store, project: Project, reason: str = "a reason", **files: str) -> Checkpoint:
    return record_checkpoint(store, project, tree(store, **files), reason, {"kind": "manual"})


def listed(store: Store, project: Project, **options: Any) -> list[Checkpoint]:
    return list_checkpoints(store, project, NO_DEADLINE, **options)


def find(store: Store, project: Project, ref: str) -> Checkpoint:
    return resolve(store, project, ref, NO_DEADLINE)


# --- recording --------------------------------------------------------------------------------------


def test_a_checkpoint_is_a_parentless_commit_that_git_finds_sound(store: Store, known: Project) -> None:
    made = record(store, known, file="content")
    assert git(store.git_dir, "cat-file", "-t", made.id) == "commit"
    assert git(store.git_dir, "rev-list", "--parents", made.id) == made.id
    assert git(store.git_dir, "show", f"{made.id}:file") == "content"
    assert git(store.git_dir, "log", "-1", "--format=%s", made.id) == "a reason"
    assert git(store.git_dir, "fsck", "--full", "--strict") == ""


def test_a_checkpoint_of_nothing_is_sound_too(store: Store, known: Project) -> None:
    made = record_checkpoint(store, known, EMPTY_TREE, "nothing", {})
    assert git(store.git_dir, "fsck", "--full", "--strict") == ""
    assert files_of(store, made, NO_DEADLINE) == []


def test_every_fact_comes_back(store: Store, known: Project) -> None:
    body = {
        "kind": "turn", "scope": "paths", "session_id": "s", "turn": 7, "tool": "Write",
        "skipped": [["\udcff", "too-large"], ["b", "secret"]], "modes": {"file": "644"}, "own": {"x": [1, None]},
    }  # fmt: skip
    made = record_checkpoint(store, known, tree(store, a="1"), "why", body)
    assert (made.kind, made.scope, made.session_id, made.turn, made.tool) == ("turn", "paths", "s", 7, "Write")
    assert made.skipped == (Skipped("\udcff", "too-large"), Skipped("b", "secret"))
    assert made.metadata == {"modes": {"file": "644"}, "own": {"x": [1, None]}}
    assert made.workdir == str(known.workdir) and made.project == known.id
    assert listed(store, known) == [made] == [find(store, known, "last")]


MESSAGES = [
    "", " ", "\n", "\0", "\u200b", "\ufeff\x01", "two\nlines\n\nand more", "a|b|c", "%00 %(refname) %H", "--all",
    "\x1b[31mred", "\udcff\udc80 not utf-8", "\U0001f600 emoji \u4e2d\u6587 \u202e", "x" * 10_000, "word " * 3000,
    "\r\n\r\n", "tab\tbed", "'\"\\$(echo)`", '{"json": 1}', '\n\n{"kind": "turn"}\n', " padded ", "\x85\u2028",
    "ends in newline\n", "# comment", "-----BEGIN PGP SIGNATURE-----",
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_any_text_stays_intact(store: Store, known: Project, message: str) -> None:
    record(store, known, "the one before")
    made = record(store, known, message)
    assert made.reason == message
    assert [found.reason for found in listed(store, known)] == [message, "the one before"]
    assert find(store, known, made.id) == made == listed(store, known, statistics=False)[0]


@given(message=st.text(st.characters(exclude_categories=()), max_size=300))
@example(message="\u200b")
def test_any_message_is_listed_as_it_is_read(base: Path, project: Path, message: str) -> None:
    store, known = open_store(Settings(base=base, fsync=False)), project_of(project)
    made = record(store, known, message)
    newest = listed(store, known, limit=1, statistics=False)[0]
    assert newest == made == find(store, known, "last")
    assert newest.reason == message


# --- time -------------------------------------------------------------------------------------------


class Clock:
    def __init__(self, milliseconds: int) -> None:
        self.now = milliseconds

    def time_ns(self) -> int:
        return self.now * 10**6


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time source of the module."""
    clock = Clock(1_800_000_000_123)
    monkeypatch.setattr(checkpoints, "time", clock)
    return clock


def test_the_time_of_a_checkpoint_is_kept_to_the_millisecond(store: Store, known: Project, clock: Clock) -> None:
    made = record(store, known)
    assert made.ref == f"{known.refs}/1800000000123-{made.id[:12]}"
    assert made.created_at == datetime(2027, 1, 15, 8, 0, 0, 123000, UTC)
    assert listed(store, known)[0].created_at == made.created_at
    assert git(store.git_dir, "log", "-1", "--format=%ct", made.id) == "1800000000"


@pytest.mark.parametrize("step", [0, 1, -1, -86_400_000, 1000])
def test_newer_checkpoints_come_first_even_if_the_clock_goes_back(
    store: Store, known: Project, clock: Clock, step: int
) -> None:
    made = []
    for number in range(4):
        made.append(record(store, known, f"reason {number}"))
        clock.now += step
    assert [found.reason for found in listed(store, known)] == [f"reason {n}" for n in (3, 2, 1, 0)]
    assert newest_name(store, known) == made[-1].ref
    assert sorted(found.created_at for found in made) == [found.created_at for found in made]
    assert len({found.created_at for found in made}) == 4


def test_checkpoints_that_are_alike_have_ids_of_their_own(store: Store, known: Project, clock: Clock) -> None:
    """The same files for the same reason in the same second: still two checkpoints."""
    one, other = record(store, known, file="x"), record(store, known, file="x")
    assert one.id != other.id
    assert find(store, known, one.id).ref == one.ref and find(store, known, other.id).ref == other.ref


def test_the_newest_of_all_is_found_among_packed_ones(store: Store, known: Project, clock: Clock) -> None:
    record(store, known)
    git(store.git_dir, "pack-refs", "--all")
    clock.now -= 5000
    second = record(store, known)
    assert newest_name(store, known) == second.ref
    assert newest_checkpoint(store, known, NO_DEADLINE) == second


def test_a_checkpoint_can_be_recorded_for_a_past_moment_once(store: Store, known: Project) -> None:
    past = 1_500_000_000_000
    made = record_checkpoint(store, known, EMPTY_TREE, "imported", {}, past)
    assert made.created_at == datetime.fromtimestamp(past / 1000, UTC)
    with pytest.raises(RefExists):
        record_checkpoint(store, known, EMPTY_TREE, "imported", {}, past)


@pytest.mark.parametrize("remembered", [True, False])
def test_a_packed_checkpoint_is_read_without_a_process_whether_it_is_remembered_or_not(
    store: Store, known: Project, remembered: bool
) -> None:
    made = record(store, known, "\u00e9 \udcff\n", file="x")
    text = text_to_remember(store, made)
    git(store.git_dir, "repack", "-adq")
    before = runner.processes_started
    assert read_checkpoint(store, known, made.ref, NO_DEADLINE, text if remembered else "something else") == made
    assert runner.processes_started == before


# --- listing ----------------------------------------------------------------------------------------


def test_each_checkpoint_is_told_against_the_one_before(store: Store, known: Project) -> None:
    record(store, known, a="1\n2\n3\n", b="x\n")
    record(store, known, a="1\ntwo\n3\n", b="x\n")
    record(store, known, a="1\ntwo\n3\n", c="y\nz\n")
    record(store, known, a="1\ntwo\n3\n", c="y\nz\n")
    record(store, known, **{"new\nline": "1\n", "tab\there": "\0binary"})
    numbers = [(found.files_changed, found.insertions, found.deletions) for found in listed(store, known)]
    assert numbers == [(4, 1, 5), (0, 0, 0), (2, 2, 1), (1, 1, 1), (None, None, None)]


def test_a_limit_changes_nothing_about_those_that_are_listed(store: Store, known: Project) -> None:
    for number in range(5):
        record(store, known, a=str(number))
    for number in range(3):
        record_checkpoint(store, known, tree(store, odd=str(number)), "paths alone", {"scope": "paths"})
    record(store, known, a="last")
    everything = listed(store, known)
    assert [found.files_changed for found in everything] == [1, None, None, None, 1, 1, 1, 1, None]
    for limit in range(10):
        assert listed(store, known, limit=limit) == everything[:limit]


def test_only_changes_of_one_path_are_counted_if_it_is_named(store: Store, known: Project) -> None:
    record(store, known, a="1\n", b="1\n")
    record(store, known, a="2\n", b="1\n")
    record(store, known, a="2\n", b="2\n")
    assert [found.files_changed for found in listed(store, known, path=b"a")] == [0, 1, None]
    assert [found.files_changed for found in listed(store, known, path=b"*")] == [0, 0, None]


def test_a_project_without_checkpoints_has_an_empty_list(store: Store, known: Project) -> None:
    assert listed(store, known) == []
    assert newest_checkpoint(store, known, NO_DEADLINE) is None


def test_projects_do_not_see_each_others_checkpoints(store: Store, known: Project, tmp_path: Path) -> None:
    other = project_of(tmp_path)
    mine, theirs = record(store, known, file="same"), record(store, other, file="same")
    assert listed(store, known) == [mine] and listed(store, other) == [theirs]


# --- references -------------------------------------------------------------------------------------


@pytest.fixture
def three(store: Store, known: Project) -> list[Checkpoint]:
    """Newest first."""
    return [record(store, known, f"number {number}", file=str(number)) for number in range(3)][::-1]


@pytest.mark.parametrize("packed", [False, True])
def test_full_hashes_and_prefixes_of_any_length_are_found(
    store: Store, known: Project, three: list[Checkpoint], packed: bool
) -> None:
    if packed:
        git(store.git_dir, "pack-refs", "--all")
        git(store.git_dir, "repack", "-adq")
    for made in three:
        for length in range(4, 41):
            if length < 7 and made.id[:length].isdigit():
                continue  # a number
            if sum(other.id.startswith(made.id[:length]) for other in three) == 1:
                assert find(store, known, made.id[:length]) == made
                assert find(store, known, made.id[:length].upper()) == made


def test_last_counts_back_from_the_newest(store: Store, known: Project, three: list[Checkpoint]) -> None:
    assert find(store, known, "last") == find(store, known, "last~0") == three[0]
    assert [find(store, known, f"last~{back}") for back in (1, 2)] == three[1:]
    for beyond in ("last~3", "last~999999999"):
        with pytest.raises(NoSuchCheckpoint, match="last~"):
            find(store, known, beyond)


@pytest.mark.parametrize("ref", ["ffff", "0" * 40, "abc", "no-such", "last~", "LAST", "last~x", "HEAD", "a/b"])
def test_what_names_no_checkpoint_is_said_to_be_unknown(
    store: Store, known: Project, three: list[Checkpoint], ref: str
) -> None:
    with pytest.raises(NoSuchCheckpoint, match="there is no checkpoint"):
        find(store, known, ref)


@pytest.mark.parametrize("digits", [13, 20, 39])
def test_a_hash_that_goes_wrong_after_its_beginning_is_unknown(
    store: Store, known: Project, three: list[Checkpoint], digits: int
) -> None:
    other = "0" if three[1].id[digits - 1] != "0" else "1"
    with pytest.raises(NoSuchCheckpoint):
        find(store, known, three[1].id[: digits - 1] + other)


MALFORMED = ["", "-", "-1", "--all", "--output=/tmp/x", " last", "last\n", "a\0b", "x" * 101, "\udcff"]


@pytest.mark.parametrize("ref", MALFORMED)
def test_what_can_be_no_reference_is_said_to_be_malformed_and_never_reaches_git(
    store: Store, known: Project, three: list[Checkpoint], ref: str
) -> None:
    before = runner.processes_started
    with pytest.raises(MalformedReference, match="is not a checkpoint reference"):
        find(store, known, ref)
    assert runner.processes_started == before


def test_a_prefix_that_fits_several_is_ambiguous_and_names_them(store: Store, known: Project) -> None:
    seen: dict[str, Checkpoint] = {}
    for number in range(2000):  # two of some hundred share four digits
        made = record_checkpoint(store, known, EMPTY_TREE, str(number), {}, 1_700_000_000_000 + number)
        if not made.id[:4].isdigit() and (twin := seen.setdefault(made.id[:4], made)) is not made:
            break
    else:
        pytest.fail("no two ids began alike")
    with pytest.raises(AmbiguousReference, match=f"{made.id[:4]}' fits 2 checkpoints") as caught:
        find(store, known, made.id[:4])
    assert made.id[:12] in str(caught.value) and twin.id[:12] in str(caught.value)
    assert find(store, known, made.id[:12]) == made


@pytest.mark.parametrize("with_record", [True, False])
def test_a_checkpoint_of_another_project_is_foreign_and_its_project_is_named(
    store: Store, known: Project, three: list[Checkpoint], tmp_path: Path, with_record: bool
) -> None:
    other = project_of(tmp_path)
    theirs = record(store, other, file="theirs")
    if with_record:
        touch_record(store, other)
    for packed in (False, True):
        if packed:
            git(store.git_dir, "pack-refs", "--all", "--prune")
        for digits in (12, 40):
            with pytest.raises(ForeignCheckpoint) as caught:
                find(store, known, theirs.id[:digits])
            assert (str(other.workdir) if with_record else other.id) in str(caught.value)


def test_the_errors_of_references_can_be_told_apart() -> None:
    kinds = {NoSuchCheckpoint, AmbiguousReference, MalformedReference, ForeignCheckpoint}
    assert not any(issubclass(one, other) for one in kinds for other in kinds - {one})
    assert all(issubclass(kind, ShadowsnapError) and kind.hint for kind in kinds)


# --- labels and pins --------------------------------------------------------------------------------

LABELS = [
    "before-refactor", "v1.0", "A Label With Spaces", "gr\u00fc\u00dfe", "\u4e2d\u6587\u6807\u7b7e", "\U0001f680",
    "a/b", "a..b", "x.lock", "@{1}", "~^:?*[\\", "under_41", "ABC", "abc", "v12", "last one", "x" * 100, "%00",
]  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_a_reference(store: Store, known: Project, three: list[Checkpoint], label: str) -> None:
    labelled = set_label(store, known, three[1], NO_DEADLINE, label=label)
    assert labelled == replace(three[1], label=label)
    assert find(store, known, label) == labelled
    assert [found.label for found in listed(store, known)] == [None, label, None]
    git(store.git_dir, "pack-refs", "--all")
    assert find(store, known, label) == labelled == find(store, known, labelled.id)


printable = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


@given(labels=st.lists(printable, min_size=2, max_size=2, unique=True))
def test_different_labels_stay_different(base: Path, project: Path, labels: list[str]) -> None:
    store, known = open_store(Settings(base=base, fsync=False)), project_of(project)
    one, other = record(store, known), record(store, known)
    try:
        for made, label in zip((one, other), labels, strict=True):
            set_label(store, known, made, NO_DEADLINE, label=label)
    except MalformedLabel:
        return
    assert [find(store, known, label).id for label in labels] == [one.id, other.id]
    assert [find(store, known, label).label for label in labels] == labels


@pytest.mark.parametrize("label", [
    "", "-x", "x" * 101, "last", "last~2", "12", "7", "1234", "999999", "12345678", "1" * 50, "\u0663", "3:after",
    "@", "abcd", "12f4", "DEAD", "0123456", "0123456789abcdef", " x", "x ", "new\nline", "tab\t",
    "\0", "\udcff", "\u200b", "\u4e2d" * 30, "A" * 90,
])  # fmt: skip
def test_what_could_not_be_used_as_a_reference_is_no_label(
    store: Store, known: Project, three: list[Checkpoint], label: str
) -> None:
    with pytest.raises(MalformedLabel, match="cannot be a label: it "):
        set_label(store, known, three[0], NO_DEADLINE, label=label)
    assert listed(store, known)[0].label is None


def test_a_checkpoint_has_one_label_and_a_label_one_checkpoint(
    store: Store, known: Project, three: list[Checkpoint]
) -> None:
    set_label(store, known, three[0], NO_DEADLINE, label="first")
    set_label(store, known, three[0], NO_DEADLINE, label="second")
    assert find(store, known, "second").id == three[0].id
    with pytest.raises(NoSuchCheckpoint):
        find(store, known, "first")
    set_label(store, known, three[1], NO_DEADLINE, label="second")
    set_label(store, known, three[1], NO_DEADLINE, label="second")
    assert [found.label for found in listed(store, known)] == [None, "second", None]
    set_label(store, known, three[1], NO_DEADLINE, label=None)
    assert [found.label for found in listed(store, known)] == [None, None, None]


def test_labels_of_two_projects_do_not_meet(store: Store, known: Project, tmp_path: Path) -> None:
    other = project_of(tmp_path)
    mine, theirs = record(store, known), record(store, other)
    for project, made in ((known, mine), (other, theirs)):
        set_label(store, project, made, NO_DEADLINE, label="same")
    assert find(store, known, "same").id == mine.id and find(store, other, "same").id == theirs.id


@pytest.mark.parametrize("packed", [False, True])
def test_pins_come_and_go(store: Store, known: Project, three: list[Checkpoint], packed: bool) -> None:
    assert set_pinned(store, known, three[2], NO_DEADLINE, pinned=True).pinned
    assert set_pinned(store, known, three[2], NO_DEADLINE, pinned=True).pinned
    if packed:
        git(store.git_dir, "pack-refs", "--all")
    assert [found.pinned for found in listed(store, known)] == [False, False, True]
    assert find(store, known, "last~2").pinned
    set_pinned(store, known, three[2], NO_DEADLINE, pinned=False)
    set_pinned(store, known, three[2], NO_DEADLINE, pinned=False)
    assert not any(found.pinned for found in listed(store, known))


# --- deleting ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_every_other_id_stays_when_one_is_deleted(
    store: Store, known: Project, three: list[Checkpoint], packed: bool
) -> None:
    set_label(store, known, three[1], NO_DEADLINE, label="gone")
    set_pinned(store, known, three[1], NO_DEADLINE, pinned=True)
    set_label(store, known, three[2], NO_DEADLINE, label="kept")
    if packed:
        git(store.git_dir, "pack-refs", "--all")
    delete_checkpoints(store, known, [three[1]], NO_DEADLINE)
    assert [found.id for found in listed(store, known)] == [three[0].id, three[2].id]
    assert find(store, known, "last~1").id == three[2].id == find(store, known, "kept").id
    for ref in (three[1].id, "gone"):
        with pytest.raises(NoSuchCheckpoint):
            find(store, known, ref)
    assert three[1].id not in git(store.git_dir, "for-each-ref")


def test_deleting_twice_is_no_error(store: Store, known: Project, three: list[Checkpoint]) -> None:
    delete_checkpoints(store, known, three, NO_DEADLINE)
    delete_checkpoints(store, known, three, NO_DEADLINE)
    assert listed(store, known) == []


def test_a_checkpoint_that_is_deleted_while_it_is_looked_for_is_unknown(
    store: Store, known: Project, three: list[Checkpoint]
) -> None:
    delete_checkpoints(store, known, [three[0]], NO_DEADLINE)
    with pytest.raises(NoSuchCheckpoint, match=three[0].id[:12]):
        read_checkpoint(store, known, three[0].ref, NO_DEADLINE)


# --- damage -----------------------------------------------------------------------------------------


def place(store: Store, name: str) -> Path:
    return loose_object(store.git_dir, name)


def damage(path: Path, how: str) -> None:
    path.chmod(0o644)
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if how == "empty" else whole[: len(whole) // 2])


HOW = ["missing", "empty", "cut short"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("victim", ["commit", "tree"])
def test_a_damaged_checkpoint_does_not_hide_the_others(base: Path, project: Path, how: str, victim: str) -> None:
    manager, taken = CheckpointManager(base=base, fsync=False), []
    for number in range(3):
        (project / "README.md").write_text(f"{number}\n")
        manager.new_turn()
        taken.append(manager.ensure_checkpoint(project).checkpoint)
    store, bad = open_store(Settings(base=base)), taken[1]
    damage(place(store, bad.id if victim == "commit" else bad.tree), how)
    found = manager.list_checkpoints(project)
    assert {taken[0].id, taken[2].id} <= {each.id for each in found}
    assert find(store, project_of(project), taken[0].id).id == taken[0].id
    assert all(each.files_changed != 0 for each in found)  # unknown is not nothing


@pytest.mark.parametrize("how", ["empty", "cut short"])
def test_a_damaged_ref_is_said_to_be_damaged(
    store: Store, known: Project, three: list[Checkpoint], how: str
) -> None:
    damage(store.git_dir / three[1].ref, how)
    with pytest.raises(DamagedObject, match=three[1].ref):
        listed(store, known)
    with pytest.raises(DamagedObject, match=three[1].ref):
        find(store, known, three[1].id)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("victim", ["commit", "tree", "subtree", "ref"])
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.each_value
def test_snapshots_go_on_whatever_is_damaged(
    base: Path, project: Path, how: str, victim: str, changed: bool
) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    taken = manager.ensure_checkpoint(project).checkpoint
    assert taken is not None
    store = open_store(Settings(base=base))
    subtree = git(store.git_dir, "rev-parse", f"{taken.tree}:src")
    ids = {"commit": taken.id, "tree": taken.tree, "subtree": subtree}
    damage(store.git_dir / taken.ref if victim == "ref" else place(store, ids[victim]), how)
    if changed:
        (project / "src" / "main.py").write_text("changed")
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status in ("taken", "unchanged"), outcome.error
    (project / "src" / "main.py").write_text("changed again")
    manager.new_turn()
    outcome = manager.ensure_checkpoint(project)
    assert outcome.status == "taken", outcome.error
    (project / "src" / "main.py").unlink()
    manager.restore(project, "last")
    assert (project / "src" / "main.py").read_text() == "changed again"
    assert not list((base / "store" / "objects").rglob("tmp_*"))


def test_the_time_source_is_the_real_one(store: Store, known: Project) -> None:
    before = time.time()
    made = record(store, known)
    assert before - 0.002 <= made.created_at.timestamp() <= time.time() + 0.002


def test_an_id_is_the_name_of_what_it_holds(store: Store, known: Project) -> None:
    made = record(store, known)
    content = store.git().run("cat-file", "commit", made.id)
    assert object_id(b"commit", content) == made.id


def test_named_files_alone_are_listed_for_the_files_they_hold(base: Path, home: Path) -> None:
    manager = CheckpointManager(base=base, fsync=False)
    for name in ("one.txt", "two.txt"):
        (home / name).write_text("x")
        manager.new_turn()
        assert manager.ensure_checkpoint(home, name, paths=(name,)).status == "partial"
    assert [each.reason for each in manager.list_checkpoints(home, path="one.txt")] == ["one.txt"]
    assert [each.reason for each in manager.list_checkpoints(home, path="two.txt", limit=1)] == ["two.txt"]
    assert manager.list_checkpoints(home, path="three.txt") == []
    assert len(manager.list_checkpoints(home, path=".")) == 2
