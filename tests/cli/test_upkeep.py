"""status, prune, clear, clear-legacy, import and doctor on the command line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from command_line import CommandLine
from older_tools import hermes_directory

from helpers import manifest
from shadowsnap import CheckpointManager
from shadowsnap.agents.install import install
from shadowsnap.cli.ui import Ui, working

needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="no pty")


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(project, base, monkeypatch, capsys)


@pytest.fixture
def history(cli: CommandLine, project: Path) -> CommandLine:
    """Three checkpoints of one project."""
    for number in range(3):
        (project / "README.md").write_text(f"# {number}\n")
        cli.snap(f"number {number}")
    return cli


def section(text: str, title: str) -> list[str]:
    return text.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()


# --- status -----------------------------------------------------------------------------------------------


def test_status_of_an_empty_store(cli: CommandLine, base: Path) -> None:
    out = cli("status").out
    assert f"store       {base}\n" in out
    assert "holds       0 checkpoints of 0 projects\n" in out
    assert section(out, "agents with the hook") == ["  none: shadowsnap install AGENT"]
    assert "projects:" not in out and "failed lately" not in out


def test_status_tells_projects_limits_and_what_was_not_captured(history: CommandLine, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    (project / "README.md").write_text("changed\n")
    history.snap()
    history("pin", "last")
    out = history("status").out
    assert "holds       4 checkpoints of 1 project\n" in out
    row = section(out, "projects")[1].split()
    assert row[:2] == ["4", "now"] and str(project).endswith(row[-1].removeprefix("...")) and "1 pinned" in out
    limits = {line.split()[0]: line.split(maxsplit=1)[1] for line in section(out, "limits")}
    assert limits["max_snapshots"] == "4 of 20 in the largest project"
    assert limits["max_total_size_mb"].endswith("of 500 (0%)")
    assert limits["retention_days"] == "30"
    left_out = " ".join(line.strip() for line in section(out, "not captured"))
    advice = "it looks like a secret; set include_secrets to capture such files"
    assert left_out == f"{project}: secret: .env -> {advice}"
    told = history.json("status")
    assert (told["checkpoints"], told["projects"][0]["workdir"]) == (4, str(project))
    assert told["uncaptured"][0]["paths"] == [".env"]


def test_status_tells_failures_with_advice(cli: CommandLine, home: Path) -> None:
    manager = CheckpointManager()
    cli("status")  # makes the store: nothing is noted where there is none
    for _ in range(2):
        manager.new_turn()
        assert manager.ensure_checkpoint(home).status == "refused"
    lines = section(cli("status").out, "failed lately")
    told = " ".join(line.strip() for line in lines)
    assert told.startswith(f"just now: {home} is not snapshotted as a whole: ")
    assert told.endswith("-> name single files, or choose the project's own directory")
    assert cli.json("status")["failures"][0]["kind"] == "refused"


def test_status_tells_which_agents_have_the_hook_and_what_hooks_did(
    cli: CommandLine, home: Path, project: Path, base: Path
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    install("cursor", project)
    lines = section(cli("status").out, "agents with the hook")
    assert any(line.split()[:2] == ["claude", "user"] for line in lines)
    assert any(line.split()[:2] == ["cursor", "project"] for line in lines)
    told = {(each["agent"], each["scope"]) for each in cli.json("status")["agents"]}
    assert told == {("claude", "user"), ("cursor", "project")}
    usual, now = {"agent": "claude", "event": "tool"}, time.time()
    entries = [
        {**usual, "time": now - 60, "status": "failed", "error": "OSError: \x1b[2J"},
        {**usual, "time": now, "tool": "Write", "status": "taken"},
    ]
    (base / "hook.log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert section(cli("status").out, "hooks lately") == [
        "  just now: claude tool Write taken",
        "  1 min ago: claude tool failed: OSError: \\x1b[2J",
    ]
    assert cli.json("status")["hooks"][0]["status"] == "taken"


def test_status_fits_80_columns(history: CommandLine, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-long-directory-name"] * 6)
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    (deep / "secret.pem").write_text("x")
    history("-C", str(deep), "snap")
    wide = [line for line in history("status").out.splitlines() if len(line) > 80]
    assert all(str(deep) in line or str(tmp_path) in line for line in wide)  # only a path is never broken
    assert not [line for line in section(history("status").out, "projects") if len(line) > 80]


# --- prune ------------------------------------------------------------------------------------------------


def test_prune_keeps_the_limits_without_asking(history: CommandLine) -> None:
    assert history("prune").out.startswith("dropped 0 checkpoints, kept 3, freed ")
    told = history.json("prune")
    assert (told["status"], told["dropped"], told["kept"]) == ("done", [], 3)


def test_prune_to_given_limits_is_a_plan_first(history: CommandLine, project: Path) -> None:
    ids = history.ids()
    ran = history("prune", "--max-snapshots", "1", code=4)
    assert "2 checkpoints would be gone, and this is no terminal to ask on" in ran.err and ran.out == ""
    lines = history("prune", "--max-snapshots", "1", "--dry-run").out.splitlines()
    assert lines[0] == str(project)
    assert lines[1].startswith(f"  {ids[1][:8]}  now") and "number 1" in lines[1] and lines[1].endswith(")")
    assert lines[3].startswith("2 checkpoints to drop, 1 to keep; the store has ")
    assert history.json("prune", "--max-snapshots", "1", "--dry-run")["status"] == "planned"
    assert history.ids() == ids
    assert "dropped 2 checkpoints, kept 1" in history("prune", "--max-snapshots", "1", "--yes").out
    assert history.ids() == ids[:1]


def test_prune_to_limits_that_drop_nothing_needs_no_confirmation(history: CommandLine) -> None:
    history("prune", "--max-snapshots", "3", "--retention-days", "1", "--max-total-size-mb", "10")
    assert len(history.ids()) == 3


@pytest.mark.parametrize(
    ("option", "value"), [("--max-snapshots", "-1"), ("--retention-days", "nan"), ("--max-total-size-mb", "inf")]
)
def test_a_limit_that_is_none_is_wrong_usage(history: CommandLine, option: str, value: str) -> None:
    assert f"{option} must be" in history.json("prune", option, value, "--yes", code=2)["error"]["message"]


@needs_terminal
def test_prune_asks_on_a_terminal(history: CommandLine) -> None:
    words = ("--no-color", "prune", "--max-snapshots", "1")
    assert history.terminal(*words, answers=[("drop 2 checkpoints for good? [y/N] ", "n\n")])[0] == 4
    assert len(history.ids()) == 3
    assert history.terminal(*words, answers=[("[y/N] ", "y\n")])[0] == 0
    assert len(history.ids()) == 1


# --- clear ------------------------------------------------------------------------------------------------


def test_clear_lets_go_of_one_project_after_a_yes(history: CommandLine, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    history("-C", str(other), "snap")
    history("pin", "last")
    before = manifest(project)
    assert history.json("clear", code=4)["error"]["type"] == "NotConfirmed"
    line = history("clear", "--dry-run").out.splitlines()[0]
    assert line.startswith(f"  clear  {project} (3 checkpoints, 1 pinned, ")
    assert len(history.ids()) == 3
    report = history.json("clear", "--yes")
    assert (report["applied"], report["items"][0]["checkpoints"]) == (True, 3)
    assert history.json("list", code=3)["error"]["type"] == "NoSuchProject"
    assert len(history.json("-C", str(other), "list", "--checkpoints")["checkpoints"]) == 1
    assert manifest(project) == before
    assert history.json("clear", "--yes", code=3)["error"]["type"] == "NoSuchProject"


def test_clear_all_lets_go_of_everything(history: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    history("-C", str(other), "snap")
    assert "every checkpoint would be gone" in history("clear", "--all", code=4).err
    history("clear", "--all", "--yes")
    assert history.json("list", "--all-projects")["projects"] == []


@needs_terminal
def test_clear_asks_on_a_terminal(history: CommandLine) -> None:
    question = "clear these checkpoints for good? [y/N] "
    assert history.terminal("clear", answers=[(question, "\n")])[0] == 4
    assert len(history.ids()) == 3
    assert history.terminal("clear", answers=[(question, "yes\n")])[0] == 0
    assert history.json("list", code=3)


def test_archives_of_older_tools_are_cleared(cli: CommandLine, base: Path, tmp_path: Path) -> None:
    hermes_directory(base, tmp_path / "work", [("before", 1_700_000_000, {"a": "1"})])
    cli("list", "--all-projects")
    archive = next(base.glob("legacy-*"))
    assert "these archives would be gone" in cli("clear-legacy", code=4).err
    assert str(archive) in cli("clear-legacy", "--dry-run").out
    assert archive.exists()
    assert cli.json("clear-legacy", "--yes")["bytes_freed"] > 0
    assert not archive.exists()
    assert cli("clear-legacy", "--yes").out == "nothing to clear\n"


# --- import -----------------------------------------------------------------------------------------------


def test_import_takes_over_what_another_tool_kept(cli: CommandLine, tmp_path: Path) -> None:
    theirs, work = tmp_path / "theirs", tmp_path / "work"
    states = [("first", 1_700_000_000, {"a": "1"}), ("second", 1_700_000_100, {"a": "2"})]
    hermes_directory(theirs, work, states)
    plan = cli("import", str(theirs), "--dry-run")
    assert plan.out.splitlines() == [f"  2 checkpoints of {work}", "2 to import, 0 skipped, 0 failed"]
    assert cli.json("list", "--all-projects")["projects"] == []
    assert cli.json("import", "../theirs")["imported"] == 2
    assert [each["reason"] for each in cli.json("-C", str(work), "list", "--checkpoints")["checkpoints"]] == [
        "second",
        "first",
    ]
    assert cli("import", str(theirs)).out == "0 imported, 2 skipped, 0 failed\n"
    assert cli.json("import", str(work), code=3)["error"]["type"] == "NothingToImport"


# --- doctor -----------------------------------------------------------------------------------------------


def test_the_doctor_finds_nothing_in_a_sound_store(history: CommandLine, base: Path) -> None:
    assert history("doctor").out.splitlines() == [f"{base}: 3 checkpoints, 3 intact", "everything is in order"]
    assert history.json("doctor", "--repair")["healthy"] is True


def test_the_doctor_tells_first_and_mends_when_asked(history: CommandLine, base: Path) -> None:
    head = base / "store" / "HEAD"
    head.write_bytes(b"")
    out = history("doctor", code=1).out
    assert out.startswith("error    ") and "         repair: " in out
    assert out.endswith("to mend: shadowsnap doctor --repair\n")
    assert history("doctor", "--repair", "--dry-run", code=1).out == out
    assert head.read_bytes() == b""
    ran = history("doctor", "--repair")
    assert "mended   " in ran.out and ran.out.endswith("mended; everything is in order\n")
    assert history.json("doctor")["findings"] == []
    assert len(history.ids()) == 3


# --- progress ---------------------------------------------------------------------------------------------


def test_what_takes_less_than_a_second_is_not_talked_about(capsys: pytest.CaptureFixture[str]) -> None:
    with working(Ui(), "quick") as update:
        update(1, 2)
    assert capsys.readouterr().err == ""


def test_what_takes_longer_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadowsnap.cli.ui._PATIENCE", 0.0)
    monkeypatch.setattr("shadowsnap.cli.ui._PAUSE", 0.0)
    with working(Ui(), "slow") as update:
        update(1, 2)
    assert "slow: 1 of 2\n" in capsys.readouterr().err
    with working(Ui(json=True), "slow") as update:
        update(1, 2)
    assert capsys.readouterr().err == ""
