"""The operation log: appended whole, read whatever became of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import ROOT
from shadowsnap import CheckpointManager, Settings
from shadowsnap.deadline import Deadline
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.log import (
    append_line,
    change_lines,
    logged_projects,
    next_number,
    paths_in,
    read_lines,
    read_log,
    remove_log,
    rename_ids,
    write_lines,
)
from shadowsnap.store.projects import Project, locked_project, project_of


@pytest.fixture
def store(base: Path) -> Store:
    return open_store(Settings(base=base, fsync=False))


@pytest.fixture
def known(project: Path) -> Project:
    return project_of(project)


def test_what_was_appended_is_read_in_order(store: Store, known: Project) -> None:
    assert read_lines(store, known.id) == [] and not store.log_file(known.id).exists()
    began = time.time()
    made = [append_line(store, known.id, "begin", turn=number, prompt=None) for number in (1, 2, 3)]
    assert read_lines(store, known.id) == made
    assert [line["turn"] for line in made] == [1, 2, 3] and "prompt" not in made[0]
    assert all(began - 1 <= line["at"] <= time.time() for line in made)
    assert logged_projects(store) == [known.id]


@pytest.mark.parametrize("name", ["turn", "before", "session", "key", "id"])
@pytest.mark.parametrize("value", [{"": ""}, [1]])
def test_a_fact_of_another_kind_is_left_out(store: Store, known: Project, name: str, value: Any) -> None:
    """A damaged line with a list in place of an id would end every command that looks at the log."""
    line = append_line(store, known.id, "begin", **{"prompt": "kept", name: value})
    assert read_lines(store, known.id) == [{"op": "begin", "at": line["at"], "prompt": "kept"}]


@pytest.mark.skipif(os.name == "nt", reason="there are no permission bits")
def test_nobody_else_may_read_it(store: Store, known: Project) -> None:
    append_line(store, known.id, "begin", turn=1)
    path = store.log_file(known.id)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(facts=st.dictionaries(st.sampled_from(["prompt", "agent", "tools", "reason"]), values))
def test_any_fact_is_one_line_and_comes_back(store: Store, known: Project, facts: dict[str, Any]) -> None:
    before = len(store.log_file(known.id).read_bytes().split(b"\n")) if store.log_file(known.id).exists() else 1
    line = append_line(store, known.id, "begin", **facts)
    assert len(store.log_file(known.id).read_bytes().split(b"\n")) == before + 1
    assert read_lines(store, known.id)[-1] == line


# --- damage -----------------------------------------------------------------------------------------


def test_a_torn_last_line_is_ignored_wherever_it_was_torn_and_swallows_nothing(
    store: Store, known: Project
) -> None:
    first = append_line(store, known.id, "begin", turn=1)
    whole = store.log_file(known.id).read_bytes()
    second = append_line(store, known.id, "end", turn=1, status="done")
    both = store.log_file(known.id).read_bytes()
    for cut in range(len(whole), len(both)):
        store.log_file(known.id).write_bytes(both[:cut])
        lines = read_lines(store, known.id)
        assert lines == ([first, second] if cut == len(both) - 1 else [first])
        third = append_line(store, known.id, "begin", turn=2)
        assert read_lines(store, known.id) == [*lines, third]


DAMAGE = [
    b"", b"\0\0\0\0", b"{", b"[]", b"null", b"3", b'"begin"', b'{"op":"begin"}', b'{"at":1}', b'{"op":1,"at":1}',
    b'{"op":"begin","at":"now"}', b'{"op":"begin","at":NaN}', b'{"op":"begin","at":Infinity}', b"\xff\xfe",
    b'{"op":"begin","at":-1}', b'{"op":"begin","at":1e300}', b'{"op":"begin","at":true}', b"[" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_passed_over_and_counted(store: Store, known: Project, damage: bytes) -> None:
    first = append_line(store, known.id, "begin", turn=1)
    with open(store.log_file(known.id), "ab") as file:
        file.write(damage + b"\n")
    last = append_line(store, known.id, "end", turn=1)
    assert read_log(store, known.id) == ([first, last], 1 if damage else 0)


ODD = [
    {"op": "begin", "turn": "x"}, {"op": "begin", "turn": -1}, {"op": "begin", "turn": True}, {"op": "begin"},
    {"op": "begin", "turn": 1, "before": 7, "session": [], "prompt": {}, "key": 3}, {"op": "more", "turn": 1},
    {"op": "end", "turn": 99, "after": None}, {"op": "end", "turn": 1, "tools": [1, [2], ["a", {}]]},
    {"op": "call", "turn": 1, "before": 3}, {"op": "call-end", "turn": 1}, {"op": "conversation", "turn": 1},
    {"op": "conversation", "turn": 1, "refs": "x", "messages": "y"}, {"op": "snapshot", "number": 1.5},
    {"op": "stage", "number": 2, "after": 3}, {"op": "restore"}, {"op": "restore", "id": 1, "target": 2},
    {"op": "restore", "id": "a", "target": "b", "before": "c", "paths": 5, "undoes": [], "kind": "undo"},
    {"op": "restore", "id": "d", "target": "b", "before": "c", "kind": "redo", "redoes": {}},
    {"op": "session", "session": 3}, {"op": "attach", "refs": 3}, {"op": "purge"}, {"op": "of the future"},
    {"op": "numbers", "number": "many"},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_odd_facts_do_no_harm(
    base: Path, project: Path, store: Store, known: Project, odd: dict[str, Any]
) -> None:
    manager = CheckpointManager(base=base, fsync=False, background_upkeep=False)
    manager.new_turn("s1", "one")
    manager.ensure_checkpoint(project)
    (project / "README.md").write_text("changed\n")
    manager.end_turn()
    with open(store.log_file(known.id), "a") as file:
        file.write(json.dumps({"at": time.time(), **odd}) + "\n")
    assert "one" in [entry.prompt for entry in manager.timeline(project, restores=True)]
    assert "s1" in [each.id for each in manager.sessions()]
    manager.new_turn("s1", "two")
    assert manager.ensure_checkpoint(project).status == "unchanged"
    assert manager.timeline(project)[0].prompt == "two"
    manager.end_turn()
    assert manager.undo(project).what == "turn 1: one"
    assert (project / "README.md").read_text() == "# A project\n"


@given(noise=st.binary(max_size=300), at=st.integers(0, 10_000))
def test_noise_anywhere_is_survived(base: Path, store: Store, known: Project, noise: bytes, at: int) -> None:
    write_lines(store, known.id, [{"op": "begin", "at": 1.0 + n, "turn": n} for n in range(1, 9)])
    data = store.log_file(known.id).read_bytes()
    place = at % len(data)
    store.log_file(known.id).write_bytes(data[:place] + noise + data[place:])
    found = read_lines(store, known.id)
    sound = set(range(1, 9)) - {1 + data[:place].count(b"\n")}
    assert sound <= {line.get("turn") for line in found}


def test_a_directory_in_its_place_is_an_empty_log(store: Store, known: Project) -> None:
    store.log_file(known.id).mkdir(parents=True)
    assert read_lines(store, known.id) == []


# --- many at once -----------------------------------------------------------------------------------


def test_threads_append_whole_lines(store: Store, known: Project) -> None:
    def write(who: int) -> None:
        for number in range(50):
            with locked_project(store, known, "test", Deadline(60)):
                append_line(store, known.id, "begin", turn=number + 1, session=f"s{who}", prompt="x" * 3000)

    threads = [threading.Thread(target=write, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines, damaged = read_log(store, known.id)
    assert damaged == 0 and len(lines) == 400
    for who in range(8):
        assert [line["turn"] for line in lines if line["session"] == f"s{who}"] == list(range(1, 51))


APPENDING = """
import itertools, sys
from pathlib import Path
from shadowsnap.store.layout import Store
from shadowsnap.store.log import append_line
store = Store(Path(sys.argv[1]), False)
print("go", flush=True)
for number in itertools.count(1):
    append_line(store, sys.argv[2], "begin", turn=number, prompt="x" * 5000)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_killed_while_it_appends_no_earlier_line_is_lost(store: Store, known: Project) -> None:
    for attempt in range(4):
        have = len(read_lines(store, known.id))
        command = [sys.executable, "-c", APPENDING, store.base, known.id]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None and child.stdout.readline() == b"go\n"
            while not store.log_file(known.id).exists() or len(read_lines(store, known.id)) < have + 20:
                assert child.poll() is None
            child.kill()
        lines, damaged = read_log(store, known.id)
        assert len(lines) >= have + 20 and damaged <= attempt + 1
        added = [line["turn"] for line in lines[have:]]
        assert added == list(range(1, len(added) + 1))


# --- long lists of paths ----------------------------------------------------------------------------


def test_a_huge_list_of_paths_is_kept_beside_the_log(store: Store, known: Project) -> None:
    paths = [f"folder {number}/\udcff\u4e2d {number}" for number in range(100_000)]
    line = append_line(store, known.id, "restore", id="a", paths=paths)
    assert store.log_file(known.id).stat().st_size < 1000
    (read,) = read_lines(store, known.id)
    assert read == line and paths_in(store, read) == paths
    again = append_line(store, known.id, "restore", id="b", paths=paths)
    assert again["paths"] == line["paths"]
    assert len(list(store.log_file(known.id).parent.glob("*.paths"))) == 1


def test_a_short_list_is_in_the_line_and_none_means_everything(store: Store, known: Project) -> None:
    few = append_line(store, known.id, "restore", id="a", paths=["x", "\udcff"])
    whole = append_line(store, known.id, "restore", id="b")
    assert paths_in(store, few) == ["x", "\udcff"] and paths_in(store, whole) == []


@pytest.mark.parametrize("damage", [None, b"", b"{", b"[]", b'{"paths": 3}'])
def test_a_list_that_is_lost_is_not_taken_for_everything(
    store: Store, known: Project, damage: bytes | None
) -> None:
    line = append_line(store, known.id, "restore", id="a", paths=[str(n) for n in range(1000)])
    path = store.log_file(known.id).parent / line["paths"]
    path.unlink() if damage is None else path.write_bytes(damage)
    assert paths_in(store, line) is None


def test_lists_go_with_the_lines_that_need_them(store: Store, known: Project, tmp_path: Path) -> None:
    long = [[f"{which} {n}" for n in range(300)] for which in "ab"]
    lines = [append_line(store, known.id, "restore", id=str(n), paths=paths) for n, paths in enumerate(long)]
    other = project_of(tmp_path)
    theirs = append_line(store, other.id, "restore", id="c", paths=long[0])
    write_lines(store, known.id, lines[1:])
    assert paths_in(store, lines[0]) is None and paths_in(store, lines[1]) == long[1]
    remove_log(store, known.id)
    assert not store.log_file(known.id).exists() and paths_in(store, lines[1]) is None
    assert paths_in(store, theirs) == long[0]


# --- changing it ------------------------------------------------------------------------------------


def test_ids_are_renamed_wherever_they_are(store: Store, known: Project) -> None:
    append_line(store, known.id, "begin", turn=1, before="a" * 40)
    append_line(store, known.id, "conversation", turn=1, refs=["ref/a", "ref/b"])
    rename_ids(store, known.id, {"a" * 40: "c" * 40, "ref/b": "ref/c"})
    begin, conversation = read_lines(store, known.id)
    assert begin["before"] == "c" * 40 and conversation["refs"] == ["ref/a", "ref/c"]


def test_lines_are_changed_or_dropped_and_an_unchanged_log_is_not_written(store: Store, known: Project) -> None:
    for number in (1, 2, 3):
        append_line(store, known.id, "begin", turn=number)
    before = store.log_file(known.id).stat().st_ino
    change_lines(store, known.id, lambda line: line)
    assert store.log_file(known.id).stat().st_ino == before
    change_lines(store, known.id, lambda line: None if line["turn"] == 2 else {**line, "session": "s"})
    assert [(line["turn"], line["session"]) for line in read_lines(store, known.id)] == [(1, "s"), (3, "s")]


@given(st.lists(st.tuples(st.sampled_from(["turn", "number"]), st.integers(-5, 50)), max_size=8))
def test_the_next_number_is_above_all_that_were_given(given: list[tuple[str, int]]) -> None:
    number = next_number([{"op": "x", "at": 1.0, name: value} for name, value in given])
    assert number == 1 + max([0, *(value for _, value in given)])
