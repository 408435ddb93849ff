"""snap, list, show and diff on the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from command_line import CommandLine

from helpers import git, manifest
from shadowsnap import Checkpoint, CheckpointManager
from shadowsnap.cli.tables import rows
from shadowsnap.cli.ui import Ink

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
    assert ran.out.startswith("taken ") and ran.out.endswith("  after it  +2 -1 in 1 file\n")
    assert ran.err == ""


def test_snap_again_says_that_nothing_changed(cli: CommandLine) -> None:
    taken = cli.json("snap", "-m", "first")
    again = cli.json("snap", "-m", "second")
    assert (again["status"], again["checkpoint"]["id"]) == ("unchanged", taken["checkpoint"]["id"])
    assert "nothing changed since this one, just now: first" in cli("snap").out
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


def test_snap_warns_about_a_name_that_is_not_there(cli: CommandLine) -> None:
    assert cli("snap", "tpyo.txt").err == "warning: tpyo.txt does not exist\n"


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
    """Three checkpoints: the first, one of a session that changed a file, one that added another."""
    manager = CheckpointManager()
    manager.snapshot(project, "the beginning")
    (project / "README.md").write_text("# A project\n\nMore of it.\n")
    manager.snapshot(project, "write_file README.md", session_id="0f8fad5b-d9cb-469f-a165-70867728950e")
    (project / "new.txt").write_text("one\ntwo\n")
    manager.snapshot(project, "before\x1b]0;gotcha\x07 tests\nsecond line")
    return cli


def test_list_is_newest_first_with_everything_at_a_glance(history: CommandLine) -> None:
    history("pin", "2")
    history("label", "3", "start")
    shorts = [each[:8] for each in history.ids()]
    assert history("list").out.splitlines() == [
        f"1  {shorts[0]}  now  before\\x1b]0;gotcha\\x07...   +2 -0 in 1 file",
        f"2  {shorts[1]}  now  write_file README.md         +2 -0 in 1 file  pinned  0f8fad5b",
        f"3  {shorts[2]}  now  [start] the beginning",
    ]


def test_a_turn_is_known_by_what_the_person_asked(cli: CommandLine, project: Path) -> None:
    manager = CheckpointManager()
    manager.new_turn("s", prompt="make the\ntests pass\x1b[0m")
    manager.ensure_checkpoint(project, "before write_file x")
    assert cli("list").out.split("  ")[3] == "make the tests pass\\x1b[0m"
    assert "    before write_file x\n\nasked for:\n    make the\n    tests pass\\x1b[0m\n" in cli("show", "1").out


def test_log_is_list(history: CommandLine) -> None:
    assert history("log").out == history("list").out
    assert history.json("log", "--limit", "2") == history.json("list", "--limit", "2")


def test_the_list_is_limited_and_says_so(history: CommandLine) -> None:
    ran = history("list", "--limit", "2")
    assert len(ran.out.splitlines()) == 2 and "--limit 0 shows all" in ran.err
    assert history.json("list", "--limit", "2")["more"] is True
    assert history("list", "--limit", "3").err == ""
    assert len(history.json("list", "--limit", "0")["checkpoints"]) == 3


def test_numbers_stay_those_of_the_whole_list(history: CommandLine) -> None:
    session = history.json("list", "--session", "0f8fad5b-d9cb-469f-a165-70867728950e")["checkpoints"]
    assert [(each["number"], each["reason"]) for each in session] == [(2, "write_file README.md")]
    of_file = history.json("list", "--file", "new.txt")["checkpoints"]
    assert (of_file[0]["number"], of_file[0]["insertions"]) == (1, 2)
    assert [each["number"] for each in of_file] == [1]  # the oldest does not hold it
    assert [each["number"] for each in history.json("list", "--file", "README.md")["checkpoints"]] == [2, 3]
    assert [each["number"] for each in history.json("list", "--file", "src")["checkpoints"]] == [3]
    for each in history.json("list")["checkpoints"]:
        assert history.json("show", str(each["number"]))["checkpoint"]["id"] == each["id"]


def test_a_list_that_fits_nothing_is_empty_and_says_so(history: CommandLine) -> None:
    ran = history("list", "--session", "nobody")
    assert (ran.out, ran.err) == ("", "no checkpoint fits\n")


def test_every_project_is_listed(history: CommandLine, tmp_path: Path, project: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    history("-C", str(other), "snap", "-m", "elsewhere")
    lines = history("list", "--all").out.splitlines()
    assert lines[0] == str(other) and lines[1].endswith("elsewhere")
    assert lines[2] == str(project) and len(lines) == 6
    found = history.json("list", "--all")["projects"]
    assert [(each["workdir"], len(each["checkpoints"])) for each in found] == [(str(other), 1), (str(project), 3)]
    history("-C", str(other), "delete", "1", "--yes")
    assert [each["workdir"] for each in history.json("list", "--all")["projects"]] == [str(project)]


def checkpoint(**facts: object) -> Checkpoint:
    moment = datetime.now(UTC) - timedelta(days=400)
    defaults: dict[str, object] = {"id": "a" * 40, "project": "p", "workdir": "/w", "created_at": moment}
    return Checkpoint(**{**defaults, "reason": "r", **facts})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 100, 60])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    numbers = {"files_changed": 1234, "insertions": 123456, "deletions": 65432}
    wide = [
        checkpoint(reason="x" * 500, session_id="s" * 50, pinned=True, label="l" * 90, **numbers),
        checkpoint(reason="\u96ea\u5d29" * 200, session_id="\u96ea" * 50),
        checkpoint(reason="e\u0301" * 200, scope="paths"),
        checkpoint(reason="\n\n \x1b[2J\n", files_changed=0, insertions=0, deletions=0),
    ]
    from shadowsnap.cli.text import columns

    lines = rows(list(enumerate(wide, 997)), width, Ink(False))
    assert len(lines) == 4
    assert max(map(columns, lines)) <= width
    assert all("x1b" in line or "\x1b" not in line for line in lines)


def test_colour_changes_no_text() -> None:
    import re

    some = [(1, checkpoint(pinned=True, files_changed=1, insertions=2, deletions=3)), (2, checkpoint(label="l"))]
    plain, coloured = rows(some, 80, Ink(False)), rows(some, 80, Ink(True))
    assert [re.sub(r"\x1b\[\d+m", "", line).rstrip() for line in coloured] == plain
    assert coloured != plain


# --- show -----------------------------------------------------------------------------------------------


def test_show_tells_all_about_one(history: CommandLine, project: Path) -> None:
    lines = history("show", "2").out.splitlines()
    assert lines[0] == f"checkpoint {history.ids()[1]}"
    assert "session   0f8fad5b-d9cb-469f-a165-70867728950e" in lines
    assert "    write_file README.md" in lines
    assert "  M README.md  +2 -0" in lines
    shown = history.json("show", "2")
    assert shown["number"] == 2 and shown["files"] is None
    assert shown["changes"] == [{"path": "README.md", "status": "modified", "insertions": 2, "deletions": 0}]
    assert history.json("show", "3")["changes"] is None  # nothing came before it


def test_show_keeps_the_lines_of_a_reason_and_nothing_else_of_it(history: CommandLine) -> None:
    out = history("show", "1").out
    assert "    before\\x1b]0;gotcha\\x07 tests\n    second line\n" in out
    assert "\x1b" not in out and "\x07" not in out


def test_show_tells_where_the_persons_git_was(cli: CommandLine, project: Path) -> None:
    git(project, "init")
    git(project, "commit", "--allow-empty", "-m", "x")
    cli.snap()
    assert f"git       {git(project, 'rev-parse', 'HEAD')[:12]} on main" in cli("show", "1").out.splitlines()


# --- diff -----------------------------------------------------------------------------------------------


def test_diff_is_against_the_disk_or_between_two(history: CommandLine, project: Path) -> None:
    (project / "new.txt").write_text("one\n")
    assert [change["path"] for change in history.json("diff")["changes"]] == ["new.txt"]
    assert [change["path"] for change in history.json("diff", "3")["changes"]] == ["README.md", "new.txt"]
    between = history.json("diff", "3", "2")
    assert [change["path"] for change in between["changes"]] == ["README.md"]
    assert between["to_id"] == history.ids()[1]
    assert history.json("diff", "3", "--", "new.txt")["changes"][0]["insertions"] == 1


def test_diff_stat(history: CommandLine, project: Path) -> None:
    (project / "data.bin").write_bytes(b"\0other")
    (project / "run.sh").unlink()
    (project / "hollow").mkdir()
    assert history("diff", "--stat", "3").out.splitlines() == [
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
    odd.chmod(0o640)
    done = cli.process("diff", "--", "README.md", os.fsencode(odd.name))
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
    for words in (("list",), ("show", "1"), ("diff",), ("diff", "3", "1"), ("restore", "3", "--dry-run")):
        history(*words)
    assert manifest(project) == before
    assert history.ids() == ids
