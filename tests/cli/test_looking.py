"""snap, list, show and diff on the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine, ageless

from helpers import git, manifest
from shadowsnap import Checkpoint, CheckpointManager
from shadowsnap.cli.tables import checkpoint_lines, timeline_lines
from shadowsnap.cli.text import columns
from shadowsnap.cli.ui import Ink
from shadowsnap.model import Entry, Now

needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="no pty")


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


# --- snap -----------------------------------------------------------------------------------------------


def test_snap_takes_a_manual_checkpoint(cli: CommandLine, project: Path) -> None:
    first = cli.json("snap", "-m", "before the move")
    assert (first["status"], first["checkpoint"]["kind"]) == ("taken", "manual")
    assert first["checkpoint"]["reason"] == "before the move"
    assert first["checkpoint"]["turn"] is None
    (project / "README.md").write_text("# Changed\nmore\n")
    ran = cli("snap", "-m", "after it")
    assert ran.out == "took snapshot 2  after it  1 file, +2 -1\n"
    assert ran.err == ""


def test_snap_counts_against_the_same_state_as_the_list(turns: CommandLine, project: Path) -> None:
    turns("restore", "1", "-y")
    (project / "own.txt").write_text("mine\n")
    assert turns("snap", "-m", "by hand").out.endswith("  by hand  1 file, +1\n")
    entry = turns.entries()[0]
    assert (entry["kind"], entry["files_changed"], entry["insertions"]) == ("snapshot", 1, 1)
    assert entry["before"] is not None


def test_empty_directories_do_not_count_as_files(turns: CommandLine, project: Path) -> None:
    turns("snap")
    (project / "nothing").mkdir()
    now = turns.json("list")["now"]
    assert (now["files_changed"], [change["path"] for change in now["changes"]]) == (0, ["nothing/"])
    assert "only directories differ from " in turns("list").out


def test_snap_again_says_that_nothing_changed(cli: CommandLine) -> None:
    taken = cli.json("snap", "-m", "first")
    again = cli.json("snap", "-m", "second")
    assert (again["status"], again["checkpoint"]["id"]) == ("unchanged", taken["checkpoint"]["id"])
    assert cli("snap").out == "nothing changed since snapshot 1, just now: first\n"
    assert len(cli.ids()) == 1


def test_snap_is_not_bound_to_turns(project: Path, base: Path) -> None:
    manager = CheckpointManager(base=base)
    manager.new_turn("s1")
    assert manager.ensure_checkpoint(project)
    (project / "empty").write_text("1")
    assert manager.ensure_checkpoint(project).status == "already-taken"
    outcome = manager.snapshot(project, "now", session_id="s2", tool="by hand", ticket=7)
    assert outcome.status == "taken" and outcome.checkpoint is not None
    assert (outcome.checkpoint.session_id, outcome.checkpoint.tool) == ("s2", "by hand")
    assert manager.get(project, "last").metadata["ticket"] == 7
    assert CheckpointManager(base=base, enabled=False).snapshot(project).status == "disabled"


def test_snap_does_not_claim_to_be_done_if_it_is_switched_off(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_ENABLED", "no")
    assert cli("snap", code=1).out == "nothing was taken: shadowsnap is disabled by its settings\n"
    assert cli.json("snap", code=1)["status"] == "disabled"


def test_snap_says_what_it_did_not_capture(cli: CommandLine, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    assert "  not captured: .env (secret)\n" in cli("snap").out
    assert cli.json("snap")["skipped"] == [{"path": ".env", "why": "secret"}]


@pytest.mark.parametrize("word", [".env", "./.env", "absolute"])
def test_snap_of_a_file_that_is_not_captured_is_exit_code_4(cli: CommandLine, project: Path, word: str) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    named = str(project / ".env") if word == "absolute" else word
    ran = cli("snap", named, code=4)
    assert "error: .env was NOT captured: secret\n" in ran.err and "took snapshot 1" in ran.out
    assert cli.json("snap", named, code=4)["skipped"] == [{"path": ".env", "why": "secret"}]
    cli("snap")  # nothing was named


def test_snap_of_a_file_that_is_too_large_is_exit_code_4(
    cli: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWSNAP_MAX_FILE_SIZE_MB", "0.001")
    (project / "large").write_bytes(b"x" * 5000)
    assert "error: large was NOT captured: too-large\n" in cli("snap", "large", "README.md", code=4).err


def test_snap_captures_named_files_though_ignored(cli: CommandLine, project: Path) -> None:
    (project / "build" / "deep").mkdir(parents=True)
    (project / "build" / "out.js").write_text("1")
    (project / "build" / "deep" / "map.js").write_text("2")
    (project / "debug.log").write_text("3")
    (project / "other.log").write_text("4")
    (project / ".venv").mkdir()
    (project / ".venv" / "x").write_text("5")
    cli("snap", "-m", "with some", "build", ".", "debug.log")
    held = CheckpointManager().files(project, "last")
    assert {path for path in held if path.startswith(("build", ".venv")) or path.endswith(".log")} == {
        "build/out.js", "build/deep/map.js", "debug.log",
    }  # fmt: skip


def test_snap_of_a_name_that_is_not_there_is_exit_code_4(cli: CommandLine, project: Path) -> None:
    ran = cli("snap", "tpyo.txt", "README.md", code=4)
    assert ran.err == "error: tpyo.txt was NOT captured: it does not exist\n"
    assert ran.out.startswith("took snapshot 1")
    assert cli.json("snap", "tpyo.txt", code=4)["not_found"] == ["tpyo.txt"]
    assert cli.json("snap", "README.md")["not_found"] == []
    assert cli("snap", "../x", code=4).err.count("../x") == 1  # one cause, one message


def test_snap_of_a_directory_outside_is_refused_at_once(cli: CommandLine, project: Path) -> None:
    for outside in ("..", "/", "/usr"):
        assert cli.json("snap", outside, code=4)["error"]["type"] == "PathRefused"


def test_snap_never_walks_into_a_repository_of_the_person(cli: CommandLine, project: Path) -> None:
    git(project, "init", "nested")
    (project / "nested" / "file").write_text("x")
    cli("snap", "nested")
    assert [path for path in CheckpointManager().files(project, "last") if "nested" in path] == ["nested/file"]


# --- list -----------------------------------------------------------------------------------------------


@pytest.fixture
def history(cli: CommandLine, project: Path) -> CommandLine:
    """Snapshots 1 to 3: the first, one of a session that changed a file, one that added another."""
    manager = CheckpointManager()
    manager.snapshot(project, "the beginning")
    (project / "README.md").write_text("# A project\n\nMore of it.\n")
    manager.snapshot(project, "write_file README.md", session_id="0f8fad5b-d9cb-469f-a165-70867728950e")
    (project / "new.txt").write_text("one\ntwo\n")
    manager.snapshot(project, "before\x1b]0;gotcha\x07 tests\nsecond line")
    return cli


def turn(
    project: Path, prompt: str, session: str = "s1", *, end: bool = True, **files: str | None
) -> CheckpointManager:
    """A turn that writes these files, or deletes them."""
    manager = CheckpointManager()
    manager.new_turn(session, prompt=prompt, agent="claude")
    manager.before_tool("Write", {"file_path": "x"}, project)
    for name, text in files.items():
        path = project / name.replace("__", ".")
        path.unlink() if text is None else path.write_text(text)
    if end:
        manager.end_turn()
    return manager


@pytest.fixture
def turns(cli: CommandLine, project: Path) -> CommandLine:
    """The story of the README: three turns, own edits before the third, and an edit after it."""
    turn(project, "add a discount parameter to total() and test it", README__md="# A project\nwith discounts\n")
    turn(project, "Now please refactor the cart into a class, and keep the old function working", empty="class\n")
    (project / "src" / "main.py").write_text("print('hello')\nmine\n")
    turn(project, "clean the project up", README__md=None, run__sh=None)
    (project / "empty").write_text("class\nmine\n")
    return cli


def rows(cli: CommandLine, *words: str) -> list[str]:
    """The list without its heading."""
    return ageless(cli("list", *words).out).splitlines()[1:]


def test_the_list_shows_what_was_asked_and_what_each_turn_changed(turns: CommandLine, project: Path) -> None:
    lines = ageless(turns("list").out).splitlines()
    assert lines[0].endswith("    no agent's hook has run here yet: shadowsnap install AGENT")
    assert lines[1:] == [
        "  @            now  1 file differs from the end of turn 3",
        "  3  now       clean the project up                              2 files deleted",
        "  .  now       (your own edits)                                  1 file, +1",
        "  2  now       Now please refactor the cart into a class, an...  1 file, +1",
        "  1  now       add a discount parameter to total() and test it   1 file, +1",
    ]
    assert all(len(line) <= 80 for line in lines)


def test_the_list_as_json(turns: CommandLine, project: Path) -> None:
    told = turns.json("list")
    assert told["project"]["workdir"] == str(project) and told["project"]["protected"] is False
    assert told["now"]["name"] == "the end of turn 3" and told["now"]["number"] == 3
    assert [change["path"] for change in told["now"]["changes"]] == ["empty"]
    facts = ("number", "kind", "status", "files_changed", "insertions", "deletions", "session_id", "agent")
    assert [tuple(entry[fact] for fact in facts) for entry in told["entries"]] == [
        (3, "turn", "done", 2, 0, 4, "s1", "claude"),
        (None, "edits", None, 1, 1, 0, None, None),
        (2, "turn", "done", 1, 1, 0, "s1", "claude"),
        (1, "turn", "done", 1, 1, 0, "s1", "claude"),
    ]
    third, edits, second, first = told["entries"]
    assert third["prompt"] == "clean the project up"
    assert first["after"] == second["before"]
    assert (edits["before"], edits["after"]) == (second["after"], third["before"])
    assert told["more"] == 0


def test_a_terminal_gets_the_two_commands_that_people_look_for(turns: CommandLine) -> None:
    assert "shadowsnap undo" not in turns("list").out
    _, screen = turns.terminal("list", NO_COLOR="1")
    hint = "undo turn 3: shadowsnap undo      back to before turn 2: shadowsnap restore 2"
    assert screen.splitlines()[-1] == hint
    turns("undo", "-y")
    hint = "undo turn 2: shadowsnap undo      back to before turn 1: shadowsnap restore 1"
    assert turns.terminal("list", NO_COLOR="1")[1].splitlines()[-1] == hint
    turns("restore", "1", "-y")
    last = turns.terminal("list", NO_COLOR="1")[1].splitlines()[-2:]
    assert last[0].startswith("undo the restore to before turn 1: shadowsnap undo")


def test_a_wider_terminal_uses_the_room(turns: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert "and keep the old function working  " in turns("list").out


def test_a_turn_says_how_it_ended(cli: CommandLine, project: Path) -> None:
    turn(project, "first", empty="1\n")
    turn(project, "second", empty="2\n", end=False).end_turn(status="interrupted")
    turn(project, "third", README__md="3\n")
    turn(project, "fourth", run__sh=None, end=False)
    cli("revert", "3", "-y")
    cli("undo", "-y")
    cli("revert", "1", "-y", code=1)  # the second turn changed the same line
    cli("revert", "3", "-y")
    texts = [line[15:45].partition("  ")[0] for line in rows(cli) if line[2].isdigit()]
    assert texts == ["(running) fourth", "(reverted) third", "(interrupted) second", "first"]
    assert [entry["status"] for entry in cli.entries() if entry["number"]] == [
        "running", "reverted", "interrupted", "done",
    ]  # fmt: skip


def test_labels_and_pins_show(history: CommandLine) -> None:
    history("pin", "2")
    history("label", "1", "start")
    assert rows(history)[1:] == [
        "  3  now       before\\x1b]0;gotcha\\x07 tests second line              1 file, +2",
        "  2  now       (pinned) write_file README.md                          1 file, +2",
        "  1  now       [start] the beginning",
    ]


def test_several_sessions_get_short_ids_that_work_everywhere(cli: CommandLine, project: Path) -> None:
    ids = ["2026-11-17-aaaa-first", "2026-11-17-bbbb-second"]
    for number, session in enumerate(ids):
        turn(project, f"of session {number}", session, empty=f"{number}\n")
    shown = [line.split()[-1] for line in rows(cli) if line[2].isdigit()]
    assert len(set(shown)) == 2 and all(8 <= len(short) < 22 for short in shown)
    for short, session, number in zip(shown, reversed(ids), (2, 1), strict=True):
        assert [entry["session_id"] for entry in cli.entries("--session", short)] == [session]
        assert cli.json("list", "--checkpoints", "--session", short)["checkpoints"][0]["session_id"] == session
        assert cli.json("sessions", "show", short)["session"]["id"] == session
        assert f"turn {number}" in cli("sessions", "show", short).out
        assert cli.json("revert", "--session", short, "-n", code=number % 2)["what"] == f"session {session}"
    cli("sessions", "show", "2026", code=3)  # which one?


def test_one_session_needs_no_id(turns: CommandLine) -> None:
    assert not any("s1" in line for line in rows(turns))


def test_a_prompt_can_do_nothing_to_a_terminal(cli: CommandLine, project: Path) -> None:
    turn(project, "make the\ntests pass\x1b[0m", empty="1")
    assert rows(cli)[1].startswith("  1  now       make the tests pass\\x1b[0m  ")
    assert "\n    make the\n    tests pass\\x1b[0m\n" in cli("show", "1").out


def test_log_is_list(history: CommandLine) -> None:
    assert history("log").out == history("list").out
    assert history.json("log", "--limit", "2")["entries"] == history.json("list", "--limit", "2")["entries"]


def test_the_list_is_limited_and_says_so(history: CommandLine) -> None:
    ran = history("list", "--limit", "2")
    assert len(ran.out.splitlines()) == 4 and ran.err == "1 more: --limit 0 shows all\n"
    assert history.json("list", "--limit", "2")["more"] == 1
    assert history("list", "--limit", "3").err == ""
    assert len(history.json("list", "--limit", "0")["entries"]) == 3
    assert history("list", "--checkpoints", "--limit", "1").err == "2 more: --limit 0 shows all\n"


def test_numbers_are_the_same_wherever_they_are_shown(history: CommandLine) -> None:
    session = history.entries("--session", "0f8fad5b-d9cb-469f-a165-70867728950e")
    assert [(each["number"], each["reason"]) for each in session] == [(2, "write_file README.md")]
    of_file = history.entries("--file", "new.txt")
    assert [(each["number"], each["insertions"]) for each in of_file] == [(3, 2)]
    assert [each["number"] for each in history.entries("--file", "README.md")] == [2]
    assert [each["number"] for each in history.entries("--file", "src")] == []
    for each in history.entries():
        assert history.json("show", str(each["number"]))["entry"] == each


def test_a_list_that_fits_nothing_says_so(history: CommandLine) -> None:
    ran = history("list", "--file", "nowhere")
    assert (len(ran.out.splitlines()), ran.err) == (1, "no entry matches\n")
    assert history("list", "--checkpoints", "--file", "nowhere").err == "no state matches\n"
    session = "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert history("list", "--session", session, "--file", "src").err == "no entry matches\n"


@pytest.mark.parametrize("more", ["", "--checkpoints", "--all-projects", "--checkpoints --all-projects"])
def test_a_list_of_a_session_that_does_not_exist_is_an_error(history: CommandLine, more: str) -> None:
    ran = history("list", "--session", "nobody", *more.split(), code=3)
    assert ran.out == "" and ran.err.startswith("error: nothing is known of a session 'nobody'")


def test_raw_states_are_listed_on_demand(turns: CommandLine) -> None:
    ids, lines = turns.ids(), turns("list", "--checkpoints").out.splitlines()
    assert [line.split()[0] for line in lines] == [each[:8] for each in ids]
    assert [each["kind"] for each in turns.json("list", "--checkpoints")["checkpoints"]] == [
        "turn-end", "turn", "turn-end", "turn-end", "turn",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    narrow = turns.json("list", "--checkpoints", "--file", "run.sh")["checkpoints"]
    assert [each["id"] for each in narrow] == [ids[0], ids[-1]]


def test_every_project_is_listed(history: CommandLine, tmp_path: Path, project: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    history("-C", str(other), "snap", "-m", "elsewhere")
    lines = history("list", "--all-projects").out.splitlines()
    assert str(other).endswith(lines[0].removeprefix("...")) and lines[1].endswith("elsewhere")
    assert lines[2] == "" and str(project).endswith(lines[3].removeprefix("...")) and len(lines) == 7
    found = history.json("list", "--all-projects")["timelines"]
    assert [(each["workdir"], len(each["entries"])) for each in found] == [(str(other), 1), (str(project), 3)]
    raw = history.json("list", "--all-projects", "--checkpoints")["timelines"]
    assert [len(each["checkpoints"]) for each in raw] == [1, 3]
    history("-C", str(other), "delete", "1", "--yes")
    assert [each["workdir"] for each in history.json("list", "--all-projects")["timelines"]] == [str(project)]


MOMENT = datetime.now(UTC) - timedelta(days=400)


def entry(**facts: object) -> Entry:
    defaults: dict[str, object] = {"number": 1, "kind": "turn", "began_at": MOMENT, "ended_at": MOMENT}
    return Entry(**{**defaults, **facts})  # type: ignore[arg-type]


def checkpoint(**facts: object) -> Checkpoint:
    defaults: dict[str, object] = {"id": "a" * 40, "project": "p", "workdir": "/w", "created_at": MOMENT}
    return Checkpoint(**{**defaults, "reason": "r", **facts})  # type: ignore[arg-type]


NUMBERS = {"files_changed": 1234, "insertions": 123456, "deletions": 65432}


@pytest.mark.parametrize("width", [80, 100, 60])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = [
        entry(number=99999, prompt="x" * 500, session_id="s" * 8, pinned=True, label="l" * 90, **NUMBERS),
        entry(number=2, prompt="\u96ea\u5d29" * 200, session_id="\u96ea" * 4, status="interrupted"),
        entry(number=None, kind="edits", began_at=None, **NUMBERS),
        entry(prompt="e\u0301" * 200, began_at=datetime.now(UTC)),
        entry(prompt=None, reason="\n\n \x1b[2J\n", files_changed=0),
    ]
    names = {each.session_id: each.session_id for each in wide if each.session_id}
    now = Now("the redo of the restore to before turn 12345", files_changed=123456)
    lines = timeline_lines(wide, now, width, Ink(False), names)  # type: ignore[arg-type]
    assert len(lines) == 6
    assert max(map(columns, lines)) <= width
    assert all("x1b" in line or "\x1b" not in line for line in lines)
    raw = [
        checkpoint(reason="x" * 500, pinned=True, label="l" * 90, **NUMBERS),
        checkpoint(reason="\u96ea\u5d29" * 200, scope="paths"),
    ]
    assert max(map(columns, checkpoint_lines(raw, width, Ink(False)))) <= width


def test_colour_changes_no_text() -> None:
    some = [entry(pinned=True, files_changed=1, insertions=2, deletions=3), entry(label="l", status="undone")]
    now = Now("snapshot 1", files_changed=0)
    plain, coloured = (timeline_lines(some, now, 80, Ink(on)) for on in (False, True))
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in coloured] == plain
    assert coloured != plain
    raw = [checkpoint(pinned=True, files_changed=1, insertions=2, deletions=3), checkpoint(label="l")]
    plain, coloured = (checkpoint_lines(raw, 80, Ink(on)) for on in (False, True))
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in coloured] == plain and coloured != plain


# --- show -----------------------------------------------------------------------------------------------


def test_show_tells_all_about_a_turn(turns: CommandLine, project: Path) -> None:
    out = turns("show", "3").out
    lines = out.splitlines()
    assert lines[0] == "turn 3" and lines[1].startswith("when      ") and lines[1].endswith("(just now), took 0 s")
    assert {"agent     claude", "session   s1", "    clean the project up"} <= {*lines}
    assert "tools:\n  Write  x\n" in out
    assert "  D README.md  +0 -2\n  D run.sh     +0 -2\n  2 paths, +0 -4\n" in out
    assert lines[-3:] == [
        "go back to before it:  shadowsnap restore 3",
        "take out only this:    shadowsnap revert 3",
        "look closer:           shadowsnap diff 3",
    ]
    shown = turns.json("show", "3")
    assert shown["tools"] == [{"tool": "Write", "about": "x"}] and shown["not_taken_back"] == []
    assert [(change["path"], change["status"]) for change in shown["changes"]] == [
        ("README.md", "deleted"), ("run.sh", "deleted"),
    ]  # fmt: skip
    assert "patch" not in shown and shown["files"] == []


def test_show_has_the_patch_on_demand(turns: CommandLine) -> None:
    assert "+with discounts" not in turns("show", "1").out
    assert "\n+with discounts\n" in turns("show", "1", "-p").out
    assert "\n+with discounts\n" in turns.json("show", "1", "--patch")["patch"]


def test_show_hints_at_what_no_rollback_takes_back(cli: CommandLine, project: Path) -> None:
    manager = CheckpointManager()
    manager.new_turn("s", prompt="publish it")
    long = f"git push origin {'a-long-name ' * 8}"
    both = "psql -c 'drop table t' && git push"
    for command in ("npm publish", "git push origin main", "ls", both, "curl -d @x http://h", long):
        manager.before_tool("Bash", {"command": command}, project)
    (project / "empty").write_text("1")
    manager.end_turn()
    out = cli("show", "1").out
    assert "no rollback takes back:\n  npm publish: publishes a package\n" in out
    assert cli.json("show", "1")["not_taken_back"] == [
        "npm publish: publishes a package",
        "git push origin main: pushes to a repository",
        "psql -c 'drop table t' && git push: pushes to a repository, changes a database",
        "curl -d @x http://h: sends something over the network",
        f"{long[:100]}: pushes to a repository",
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_show_says_what_was_not_captured(cli: CommandLine, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    turn(project, "anything", empty="1")
    assert "\nnot captured:\n  .env (secret)\n" in cli("show", "1").out


def test_show_of_a_turn_that_goes_on_compares_with_the_files(cli: CommandLine, project: Path) -> None:
    turn(project, "go on", empty="1\n", end=False)
    out = cli("show", "1").out
    assert out.startswith("turn 1 (running)\n") and "  M empty  +1 -0\n" in out


def test_show_of_a_snapshot(history: CommandLine, project: Path) -> None:
    lines = history("show", "2").out.splitlines()
    assert lines[0] == "snapshot 2"
    assert "session   0f8fad5b-d9cb-469f-a165-70867728950e" in lines
    assert "    write_file README.md" in lines
    assert "  M README.md  +2 -0" in lines
    shown = history.json("show", "2")
    assert shown["entry"]["number"] == 2 and shown["files"] == []
    assert shown["changes"] == [{"path": "README.md", "status": "modified", "insertions": 2, "deletions": 0}]
    assert history.json("show", "1")["changes"] == []  # nothing came before it


def test_show_of_a_raw_state(turns: CommandLine) -> None:
    for ref, kind in ((turns.ids()[1], "turn"), ("3:after", "turn-end")):
        shown = turns.json("show", ref)["checkpoint"]
        assert shown["kind"] == kind and turns("show", ref).out.startswith(f"checkpoint {shown['id']}\n")
    assert turns.json("show", "3:after")["checkpoint"]["id"] == turns.ids()[0]


def test_show_keeps_the_lines_of_a_reason_and_nothing_else_of_it(history: CommandLine) -> None:
    out = history("show", "3").out
    assert "    before\\x1b]0;gotcha\\x07 tests\n    second line\n" in out
    assert "\x1b" not in out and "\x07" not in out


def test_show_tells_where_the_persons_git_was(cli: CommandLine, project: Path) -> None:
    git(project, "init")
    git(project, "commit", "--allow-empty", "-m", "x")
    cli.snap()
    expected = f"git       {git(project, 'rev-parse', 'HEAD')[:12]} on main"
    assert expected in cli("show", "1").out.splitlines()
    assert expected in cli("show", cli.ids()[0]).out.splitlines()


# --- cat and ls -----------------------------------------------------------------------------------------


def test_cat_prints_a_file_byte_for_byte(turns: CommandLine, project: Path) -> None:
    (project / "data.bin").write_bytes(b"other")
    assert turns.process("cat", "3", "data.bin").stdout == bytes(range(256))
    assert turns("cat", "3", "README.md").out == "# A project\nwith discounts\n"
    assert turns("cat", "1", "README.md").out == "# A project\n"
    assert turns.json("cat", "1:after", "README.md")["content"] == "# A project\nwith discounts\n"
    assert turns.json("cat", "3:after", "README.md", code=3)["error"]["type"] == "NoSuchPath"
    assert turns("cat", "1", "./src//main.py").out == "print('hello')\n"
    for path in ("main.py", "./main.py", "../src/main.py"):
        assert turns("-C", "src", "cat", "1", path).out == "print('hello')\n"


def test_ls_lists_the_files_of_a_state(turns: CommandLine) -> None:
    everything = ["README.md", "data.bin", "empty", "link", "private.txt", "run.sh", "src/main.py"]
    assert sorted(turns("ls", "3").out.splitlines()) == everything
    assert turns.json("ls", "3:after", ".")["files"] == [
        path for path in turns.json("ls", "3")["files"] if path not in ("README.md", "run.sh")
    ]
    assert turns("ls", "1", "src").out == turns("ls", "1", "./src/").out == "src/main.py\n"
    assert turns("-C", "src", "ls", "1", ".").out == "src/main.py\n"
    assert turns.json("ls", "1", "nothing", code=3)["error"]["type"] == "NoSuchPath"


# --- diff -----------------------------------------------------------------------------------------------


def changed(cli: CommandLine, *words: str) -> list[str]:
    return [change["path"] for change in cli.json("diff", *words)["changes"]]


def test_diff_of_a_turn_is_what_it_did(turns: CommandLine) -> None:
    assert changed(turns, "1") == ["README.md"]
    assert changed(turns, "2") == ["empty"]
    assert changed(turns, "3") == ["README.md", "run.sh"]
    assert changed(turns) == changed(turns, "@") == ["empty"]  # since the end of turn 3
    assert changed(turns, "3", "@") == ["README.md", "empty", "run.sh"]
    assert changed(turns, "3:after", "@") == ["empty"]
    assert changed(turns, "1", "2") == ["README.md"]
    assert "\n+with discounts\n" in turns("diff", "1").out


def test_diff_after_an_undo_is_against_the_state_that_it_led_to(turns: CommandLine, project: Path) -> None:
    turns("undo", "-y")
    assert changed(turns) == []
    assert turns("diff").err == "no difference between the undo of turn 3 and the files as they are now\n"
    (project / "run.sh").write_text("mine\n")
    assert changed(turns) == ["run.sh"] and turns.json("diff")["from_id"] is None
    assert changed(turns, "--", "empty") == []


def test_diff_is_against_the_disk_or_between_two(history: CommandLine, project: Path) -> None:
    (project / "new.txt").write_text("one\n")
    assert changed(history) == ["new.txt"]
    assert changed(history, "1") == ["README.md", "new.txt"]
    between = history.json("diff", "1", "2")
    assert [change["path"] for change in between["changes"]] == ["README.md"]
    assert between["to_id"] == history.ids()[1]
    assert history.json("diff", "1", "--", "new.txt")["changes"][0]["insertions"] == 1


def test_diff_stat(history: CommandLine, project: Path) -> None:
    (project / "data.bin").write_bytes(b"\0other")
    (project / "run.sh").unlink()
    (project / "hollow").mkdir()
    assert history("diff", "--stat", "1").out.splitlines() == [
        "  M README.md  +2 -0",
        "  M data.bin   binary",
        "  A hollow/    directory",
        "  A new.txt    +2 -0",
        "  D run.sh     +0 -2",
        "  5 paths, +4 -2",
    ]


def test_no_difference_is_said_beside_the_data(history: CommandLine) -> None:
    ran = history("diff")
    assert ran.out == "" and "no difference between" in ran.err


def test_the_text_is_a_patch_that_git_can_apply(cli: CommandLine, project: Path, tmp_path: Path) -> None:
    odd = project / os.fsdecode(b"odd \xe9\n\"name\"\t.txt")
    odd.write_bytes(b"caf\xe9\r\n\x1b[31mred\n")
    odd.chmod(0o600)
    cli.snap()
    before = tmp_path / "before"
    subprocess.run(["cp", "-a", project, before], check=True)
    (project / "README.md").write_bytes(b"\xff\xfe\r\nnew\x1b[0m\r")
    (project / "data.bin").unlink()
    odd.chmod(0o700)
    (project / "private.txt").chmod(0o640)
    done = cli.process("diff", "--", "README.md", "private.txt", os.fsencode(odd.name))
    assert b"diff --permissions a/private.txt b/private.txt\nold mode 100" in done.stdout
    assert done.returncode == 0
    git(before, "apply", "-p1", "-", stdin=done.stdout)
    assert (before / "README.md").read_bytes() == b"\xff\xfe\r\nnew\x1b[0m\r"
    names = git(before, "apply", "--numstat", "-z", "-", stdin=done.stdout)
    assert os.fsencode(names).split(b"\0")[1].endswith(os.fsencode(odd.name))


@needs_terminal
def test_on_a_terminal_the_text_is_coloured_and_harmless(cli: CommandLine, project: Path) -> None:
    (project / "evil.txt").write_bytes(b"ok\n")
    cli.snap()
    (project / "evil.txt").write_bytes(b"\x1b]0;title\x07 \xff \xe2\x80\xae tab\there\n")
    code, screen = cli.terminal("diff")
    assert code == 0
    assert re.search("\x1b\\[[0-9;]+m-ok\x1b\\[0m", screen)
    assert "m+\\x1b]0;title\\x07 \\xff \\u202e tab\there\x1b[0m" in screen
    assert "\x07" not in screen and "\u202e" not in screen


@needs_terminal
def test_on_a_terminal_the_text_goes_through_the_pager(cli: CommandLine, project: Path) -> None:
    cli.snap()
    (project / "empty").write_text("full\n")
    pager = "sed 's/^/paged: /'"
    assert "paged: +++ b/empty" in cli.terminal("diff", "--no-color", PAGER=pager)[1]
    assert "paged: +++ b/empty" in cli.terminal("diff", "--no-color", PAGER="cat", GIT_PAGER=pager)[1]
    assert b"paged" not in cli.process("diff", PAGER=pager).stdout
    code, screen = cli.terminal("diff", "--no-color", PAGER="no-such-pager-anywhere")
    assert code == 0 and "+++ b/empty" in screen
    code, screen = cli.terminal("diff", "--no-color", PAGER="head -1")
    assert code == 0 and "+++ b/empty" not in screen


@needs_terminal
def test_ctrl_c_in_a_pager_is_the_pagers(cli: CommandLine, project: Path) -> None:
    cli.snap()
    (project / "empty").write_text("full\n" * 20000)
    pager = "trap '' INT; read line; echo ready; read quit </dev/tty; echo got $quit"
    code, screen = cli.terminal("diff", PAGER=pager, answers=[("ready", "\x03"), ("^C", "q\n")])
    assert code == 0 and "got q" in screen and "Traceback" not in screen


# --- the person's files -----------------------------------------------------------------------------------


def test_looking_changes_nothing(history: CommandLine, project: Path) -> None:
    (project / "new.txt").write_text("changed\n")
    before = manifest(project)
    ids = history.ids()
    looks = (("list",), ("status",), ("show", "1"), ("diff",), ("diff", "1", "3"), ("ls", "1"))
    for words in (*looks, ("cat", "1", "empty"), ("sessions",), ("rollback", "diff 1"), ("restore", "1", "-n")):
        history(*words)
    assert manifest(project) == before
    assert history.ids() == ids
