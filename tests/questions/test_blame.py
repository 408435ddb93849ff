"""blame: each line of a file, and who brought it in."""

from __future__ import annotations

import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stories import BEFORE, PERSON, Story, ask, run_command

from helpers import remove_tree
from shadowsnap import CheckpointManager
from shadowsnap.errors import NoSuchPath, NoSuchTurn, NothingToRedo, NothingToUndo


def blamed(story: Story, name: str, *options: str) -> list[dict[str, Any]]:
    found = ask(story.project, story.base, "blame", name, *options)
    assert found.keys() == {"schema", "lines"}
    assert all(line.keys() == {"line", "number", "who", "agent", "prompt"} for line in found["lines"])
    lines: list[dict[str, Any]] = found["lines"]
    return lines


def whose(story: Story, name: str) -> list[tuple[str, int | None]]:
    return [(line["who"], line["number"]) for line in blamed(story, name)]


@pytest.fixture
def story(tmp_path: Path, base: Path) -> Story:
    project = tmp_path / "work"
    project.mkdir()
    return Story(project, base)


# --- random histories -------------------------------------------------------------------------------------

FILES = ("a.txt", "b.txt")
DEEDS = ("turn", "turn", "turn", "person", "person", "interrupted", "restore", "undo", "redo", "revert",
         "snapshot", "rename", "some", "parallel", "two calls", "delete")  # fmt: skip


@given(seed=st.integers(0, 10**9))
def test_blame_of_random_histories(tmp_path: Path, seed: int) -> None:
    chance, place = random.Random(seed), tmp_path / f"{seed}-{time.time_ns()}"
    project = place / "work"
    project.mkdir(parents=True)
    story = Story(project, place / "base")
    for name in FILES:
        for _ in range(3):
            story.edit(name, BEFORE, chance)
    story.turn("s1", "a.txt", chance)
    done = []
    for _ in range(chance.randint(3, 10)):
        deed = chance.choice(DEEDS)
        done.append(deed)
        perform(story, deed, chance)
        if chance.random() < 0.3:
            check_all(story, done)
    check_all(story, done)
    remove_tree(place)


def check_all(story: Story, done: list[str]) -> None:
    for path in sorted(story.project.glob("*.txt")):
        try:
            story.check(path.name)
        except AssertionError as problem:
            raise AssertionError(f"{path.name} after {done}: {problem}") from problem


def perform(story: Story, deed: str, chance: random.Random) -> None:
    project, manager = story.project, story.manager()
    names = sorted(path.name for path in project.glob("*.txt"))
    name = chance.choice((*names, "new.txt"))
    if deed == "turn":
        story.turn(chance.choice(("s1", "s2")), name, chance)
    elif deed == "person":
        story.edit(name, PERSON, chance)
    elif deed == "interrupted":  # never closed; the next turn of the session comes at once
        who = story.begin("s1")
        story.edit(name, who, chance)
        story.begin("s1")
        story.end("s1")
    elif deed == "snapshot":
        manager.snapshot(project, "by hand")
    elif deed == "delete" and len(names) > 1:
        (project / names[0]).unlink()
    elif deed == "rename" and names:
        manager.snapshot(project, "about to rename")
        (project / names[-1]).rename(project / f"renamed-{chance.randint(0, 10**6)}.txt")
        manager.snapshot(project, "renamed")
    elif deed == "two calls":
        who = story.begin("s2")
        story.edit(name, who, chance)
        story.call("s2", "Edit", name)
        story.edit(chance.choice(FILES), who, chance)
        story.end("s2")
    elif deed == "parallel":
        one, two = story.begin("s1", "Edit", "a.txt"), story.begin("s2", "Edit", "b.txt")
        story.edit("a.txt", one, chance)
        story.edit("b.txt", two, chance)
        for session in chance.sample(("s1", "s2"), 2):
            story.end(session)
    elif deed in ("restore", "some"):
        numbers = [entry.number for entry in manager.timeline(project) if entry.number and entry.state]
        ref, paths = chance.choice(numbers), [] if deed == "restore" else chance.sample(FILES, 1)
        try:
            manager.restore(project, str(ref) + chance.choice(("", ":after")), paths)
        except (NoSuchPath, NoSuchTurn):
            pass  # nothing of that name then or now; a turn that was never closed has no end
    elif deed in ("undo", "redo"):
        with suppress(NothingToUndo, NothingToRedo):
            getattr(manager, deed)(project)
    elif deed == "revert":
        turns = [entry.number for entry in manager.timeline(project) if entry.kind == "turn"]
        manager.revert(project, chance.choice(turns))


# --- single cases -----------------------------------------------------------------------------------------


def test_the_answer_names_turns_the_person_and_what_was_there_before(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\ntwo\n")
    story.begin("s1")
    path.write_text("one\nby the shell\ntwo\n")
    story.end("s1")
    path.write_text("one\nby the shell\ntwo\nmine\n")
    turn = {"number": 1, "who": "turn", "agent": "claude", "prompt": "a prompt in s1"}
    other: dict[str, Any] = {"number": None, "agent": None, "prompt": None}
    assert blamed(story, "a.txt") == [
        {"line": 1, "who": "before", **other},
        {"line": 2, **turn},
        {"line": 3, "who": "before", **other},
        {"line": 4, "who": "person", **other},
    ]
    assert [line["line"] for line in blamed(story, "a.txt", "-L", "2,3")] == [2, 3]
    assert [line["line"] for line in blamed(story, "a.txt", "-L", "3,+9")] == [3, 4]
    assert [line["line"] for line in blamed(story, "a.txt", "-L", "4")] == [4]
    assert [line["line"] for line in blamed(story, "a.txt", "-L", ",2")] == [1, 2]
    text = run_command(story.project, story.base, "blame", "a.txt", "-L", "2,4").stdout.decode()
    assert text == (
        "turn 1 claude  a prompt in s1  2  by the shell\n"
        "before                         3  two\n"
        "you                            4  mine\n"
    )


def test_the_porcelain_is_that_of_git(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\ntwo\n")
    story.begin("s1")
    path.write_text("zero\nhalf\none\ntwo\n")
    story.end("s1")
    path.write_text("zero\nhalf\none\ntwo\nlast")
    data = run_command(story.project, story.base, "blame", "--porcelain", "a.txt").stdout.decode()
    rows = data.split("\n")
    heads = [row.split() for row in rows if len(row) > 40 and row[40] == " "]
    end = story.manager().timeline(story.project)[0].after
    assert [(head[0] == end, head[1:]) for head in heads] == [
        (True, ["1", "1", "2"]),
        (True, ["2", "2"]),
        (False, ["1", "3", "2"]),
        (False, ["2", "4"]),
        (False, ["5", "5", "1"]),
    ]
    assert [row[1:] for row in rows if row.startswith("\t")] == ["zero", "half", "one", "two", "last"]
    assert [row for row in rows if row.startswith("author ")] == [
        "author claude",
        "author before the timeline",
        "author you",
    ]
    assert rows.count("filename a.txt") == 3 and rows.count("boundary") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="no such names there")
def test_a_name_that_looks_like_an_option_or_has_escapes_is_a_name(story: Story) -> None:
    for name in ("-L", "a\n\x1b[31mb"):
        (story.project / name).write_text("one\n")
    story.begin("s1")
    assert ask(story.project, story.base, "blame", "--", "-L")["lines"][0]["who"] == "before"
    assert run_command(story.project, story.base, "cat", "last", "--", "-L").stdout == b"one\n"
    data = run_command(story.project, story.base, "blame", "--porcelain", "a\n\x1b[31mb").stdout
    assert b'\nfilename "a\\n\\033[31mb"\n\tone\n' in data


@pytest.mark.parametrize("words", ["5", "0,1", "2,1", "x", ",", "1,2,3", ""])
def test_a_range_that_is_none_is_wrong_usage(story: Story, words: str) -> None:
    (story.project / "a.txt").write_text("1\n2\n3\n4\n")
    story.begin("s1")
    answer = ask(story.project, story.base, "blame", "a.txt", "-L", words, code=2)
    assert answer["error"]["type"] == "WrongUsage"


def test_what_is_not_captured_has_no_lines_to_blame(story: Story) -> None:
    (story.project / "sub").mkdir()
    (story.project / "a.txt").write_text("1\n")
    (story.project / ".env").write_text("TOKEN=1\n")
    (story.project / "build").mkdir()
    (story.project / "build" / "out.js").write_text("1\n")
    (story.project / ".gitignore").write_text("build/\n")
    story.begin("s1")
    for name, hint in (
        ("gone.txt", "name a file that is there"),
        ("sub", "it is a directory"),
        (".env", "it is not captured: secret"),
        ("build/out.js", "the ignore rules leave it out"),
    ):
        error = ask(story.project, story.base, "blame", name, code=3)["error"]
        assert (error["type"], error["hint"][: len(hint)]) == ("NothingToBlame", hint), name
    assert ask(story.project, story.base, "blame", "../other", code=4)["error"]["type"] == "PathRefused"


def test_a_file_may_be_empty_binary_a_link_or_have_odd_lines(story: Story) -> None:
    (story.project / "empty").touch()
    (story.project / "link").symlink_to("empty")
    (story.project / "a.bin").write_bytes(b"\0one\ntwo\r\nthr\xff\xfeee\x1b[31m\n")
    story.begin("s1")
    (story.project / "a.bin").write_bytes(b"\0one\nnew\x00\ntwo\r\nthr\xff\xfeee\x1b[31m\n")
    story.end("s1")
    assert blamed(story, "empty") == []
    assert whose(story, "link") == [BEFORE]
    assert whose(story, "a.bin") == [BEFORE, ("turn", 1), BEFORE, BEFORE]
    text = run_command(story.project, story.base, "blame", "a.bin").stdout
    assert b"\x1b" not in text and rb"thr\xff\xfeee\x1b[31m" in text


def test_a_file_that_was_a_link_for_a_while_has_new_lines_since(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\ntwo\n")
    story.begin("s1")
    path.unlink()
    path.symlink_to("elsewhere")
    story.end("s1")
    assert whose(story, "a.txt") == [("turn", 1)]
    story.begin("s1")
    path.unlink()
    path.write_text("one\ntwo\nthree\n")
    story.end("s1")
    assert whose(story, "a.txt") == [("turn", 2)] * 3


def test_a_line_that_only_got_a_line_end_is_the_same_line(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\ntwo")
    story.begin("s1")
    path.write_text("one\ntwo\nthree")
    story.end("s1")
    path.write_text("one\ntwo")
    assert whose(story, "a.txt") == [BEFORE, BEFORE]
    path.write_text("one\ntwo\nthree\n")
    assert whose(story, "a.txt") == [BEFORE, BEFORE, ("turn", 1)]


def test_a_turn_that_is_undone_leaves_the_lines_to_their_authors(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    for text in ("turn 1\none\ntwo\nthree\n", "turn 1\none\ntwo\nthree\nturn 2\n"):
        story.begin("s1")
        path.write_text(text)
        story.end("s1")
    manager = story.manager()
    manager.undo(story.project)
    assert whose(story, "a.txt") == [("turn", 1), BEFORE, BEFORE, BEFORE]
    manager.redo(story.project)
    assert whose(story, "a.txt") == [("turn", 1), BEFORE, BEFORE, BEFORE, ("turn", 2)]
    assert not manager.revert(story.project, 1).conflicts
    assert whose(story, "a.txt") == [BEFORE, BEFORE, BEFORE, ("turn", 2)]


def test_a_turn_that_is_still_running_has_its_lines(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\n")
    story.begin("s1")
    path.write_text("one\nso far\n")
    assert whose(story, "a.txt") == [BEFORE, ("turn", 1)]


def test_calls_of_their_own_leave_what_lies_between_to_the_person(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\n")
    manager = CheckpointManager(base=story.base, granularity="tool", background_upkeep=False, fsync=False)
    manager.new_turn("s1", prompt="two calls", agent="codex")
    for text in ("first call\n", "second call\n"):
        told = {"command": text}
        manager.before_tool("Bash", told, story.project)
        path.write_text(path.read_text() + text)
        manager.after_tool("Bash", told, story.project)
        path.write_text(path.read_text() + "mine meanwhile\n")
    manager.end_turn()
    turn = ("turn", 1)
    assert whose(story, "a.txt") == [BEFORE, turn, PERSON, turn, PERSON]


def test_states_that_were_dropped_leave_their_lines_without_an_author(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("one\n")
    for number in (1, 2, 3):
        story.begin("s1")
        path.write_text(path.read_text() + f"turn {number}\n")
        story.end("s1")
        path.write_text(path.read_text() + f"mine {number}\n")
    manager = story.manager()
    manager.pin(story.project, 1)
    manager.pin(story.project, "1:after")
    for ref in ("2", "2:after"):
        manager.delete(story.project, ref)
    story.begin("s1")
    assert whose(story, "a.txt") == [BEFORE, ("turn", 1), BEFORE, BEFORE, BEFORE, ("turn", 3), PERSON]


def test_a_renamed_file_keeps_its_authors(story: Story) -> None:
    path = story.project / "a.txt"
    path.write_text("".join(f"line {number}\n" for number in range(20)))
    story.begin("s1")
    path.write_text(path.read_text() + "by turn 1\n")
    story.end("s1")
    story.begin("s2")
    (story.project / "b").mkdir()
    path.rename(story.project / "b" / "moved.txt")
    moved = story.project / "b" / "moved.txt"
    moved.write_text("by turn 2\n" + moved.read_text())
    story.end("s2")
    assert whose(story, "b/moved.txt") == [("turn", 2), *[BEFORE] * 20, ("turn", 1)]


def test_what_is_added_to_the_state_before_a_turn_changes_no_other_author(story: Story) -> None:
    """The state before the first turn gets a file late; what the second one wrote stays its own."""
    one, two = (CheckpointManager(base=story.base, background_upkeep=False) for _ in range(2))
    path, notes = story.project / "a.txt", story.project / "notes.log"
    path.write_text("old\n")
    notes.write_text("the person's\n")
    one.new_turn("s1", "first")
    one.ensure_checkpoint(story.project)
    two.new_turn("s2", "second")
    two.ensure_checkpoint(story.project)
    two.end_turn()
    two.new_turn("s2", "third")
    two.ensure_checkpoint(story.project)
    path.write_text("old\nby the third\n")
    two.end_turn()
    two.new_turn("s2", "fourth")
    two.ensure_checkpoint(story.project, paths=["notes.log"])
    two.end_turn()
    one.end_turn()
    assert whose(story, "a.txt") == [BEFORE, ("turn", 3)]
    assert whose(story, "notes.log") == [BEFORE]


@pytest.mark.parametrize("ended", [False, True])
def test_a_turn_that_stops_ignoring_a_file_did_not_write_its_lines(story: Story, ended: bool) -> None:
    (story.project / ".gitignore").write_text("*.tmp\n")
    (story.project / "mine.tmp").write_text("the person's\n")
    story.begin("s1")
    (story.project / ".gitignore").write_text("")
    if ended:
        story.end("s1")
    assert whose(story, "mine.tmp") == [BEFORE]


def test_ten_thousand_lines_and_many_turns_take_a_moment(story: Story) -> None:
    path, chance = story.project / "big.txt", random.Random(1)
    lines = [f"line {number}" if number % 3 else chance.choice(("", "}", "end")) for number in range(10_000)]
    path.write_text("\n".join(lines) + "\n")
    authors: dict[str, tuple[str, int | None]] = {}
    for number in range(1, 21):
        story.begin("s1")
        for count in range(50):
            text = f"new {number} {count}"
            lines.insert(chance.randint(0, len(lines)), text)
            authors[text] = ("turn", number)
        path.write_text("\n".join(lines) + "\n")
        story.end("s1")
    began = time.monotonic()
    found = whose(story, "big.txt")
    assert time.monotonic() - began < 10
    assert {text: who for text, who in zip(lines, found, strict=True) if text in authors} == authors
    assert found.count(BEFORE) == 10_000
