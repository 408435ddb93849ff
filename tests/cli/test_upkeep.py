"""status, prune, clear, clear-legacy, import and doctor on the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, on_terminal
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


# --- status: me here --------------------------------------------------------------------------------------


def hook_ran(base: Path, project: Path, *entries: dict[str, Any]) -> None:
    """What the hook log says, oldest first; `ago` in seconds."""
    usual = {"agent": "claude", "event": "tool", "workdir": str(project), "status": "taken"}
    lines = [{**usual, "time": time.time() - entry.pop("ago", 0), **entry} for entry in entries]
    base.mkdir(mode=0o700, exist_ok=True)
    (base / "hook.log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def row(text: str, name: str) -> str:
    return next((line[10:] for line in text.splitlines() if line.startswith(f"{name:8}  ")), "")


def test_status_where_nothing_is_known_yet(cli: CommandLine, project: Path) -> None:
    ran = cli("status")
    assert ran.out.splitlines()[0].endswith("    no agent's hook has run here yet: shadowsnap install AGENT")
    assert row(ran.out, "changed") == "no history yet" and row(ran.out, "history") == ""
    here = cli.json("status")["here"]
    assert (here["workdir"], here["protected"], here["since"], here["agents"]) == (str(project), False, None, [])
    assert (here["newest"], here["changed_since"], here["not_captured"]) == (None, None, [])


def test_status_says_by_which_hook_when_and_with_what_result(
    history: CommandLine, home: Path, project: Path, base: Path
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    first = "the hook of claude is installed; no turn here yet"
    assert history("status").out.splitlines()[0].endswith(first)
    assert row(history("status").out, "claude") == "hook installed, has not run here yet"
    hook_ran(base, project, {"ago": 3700, "status": "failed"}, {"ago": 600}, {"ago": 125, "status": "unchanged"})
    out = history("status").out
    assert out.splitlines()[0].endswith("    protected by claude, last check 2 min ago")
    assert row(out, "claude") == "hook installed, last ran 2 min ago: unchanged"
    here = history.json("status")["here"]
    assert here["protected"] is True
    assert abs(datetime.fromisoformat(here["since"]).timestamp() - time.time() + 600) < 60
    (agent,) = here["agents"]
    assert set(agent) == {"agent", "installed", "consented", "last_run_at", "agent_version", "result"}
    assert (agent["agent"], agent["installed"], agent["result"]) == ("claude", True, "unchanged")
    assert abs(datetime.fromisoformat(agent["last_run_at"]).timestamp() - time.time() + 125) < 60
    listed = history("list").out.splitlines()[0]
    assert listed.endswith("    protected by claude, last check 2 min ago")
    assert history.json("list")["project"]["protected"] is True


def test_status_says_what_changed_since_and_what_is_not_captured(history: CommandLine, project: Path) -> None:
    (project / "README.md").write_text("changed\n")
    (project / ".env").write_text("TOKEN=1\n")
    for name in ("a.pem", "b.pem", "c.pem"):
        (project / name).write_text("x")
    out = history("status").out
    assert row(out, "changed") == "1 file differs from snapshot 3"
    assert row(out, "not held") == "4 paths: .env (secret), a.pem (secret), b.pem (secret) and 1 more"
    assert row(out, "history").startswith("3 snapshots; the first ")
    here = history.json("status")["here"]
    assert here["newest"] == {"name": "snapshot 3", "number": 3, "checkpoint_id": history.ids()[0]}
    assert here["changed_since"] == {"files_changed": 1, "insertions": 1, "deletions": 1}
    assert [item["path"] for item in here["not_captured"]] == [".env", "a.pem", "b.pem", "c.pem"]
    assert (here["turn_count"], here["snapshot_count"]) == (0, 3)


def test_past_runs_of_a_hook_that_is_no_longer_installed_protect_nothing(
    history: CommandLine, home: Path, project: Path, base: Path
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    hook_ran(base, project, {"ago": 5})
    assert history.json("status")["here"]["protected"] is True
    assert history("uninstall", "claude").code == 0
    gone = "    NOT protected: no hook: shadowsnap install claude"
    trouble = "trouble: the hook of claude is not installed -> shadowsnap install claude"
    assert trouble in " ".join(history("status").out.split())
    for command in ("status", "list"):
        assert history(command).out.splitlines()[0].endswith(gone), command
    assert history.json("list")["project"]["protected"] is False
    here = history.json("status")["here"]
    (agent,) = here["agents"]
    assert (here["protected"], agent["installed"], agent["result"]) == (False, False, "taken")
    (home / ".qwen").mkdir()
    install("qwen")  # another agent protects; that says nothing about claude
    assert history("status").out.splitlines()[0].endswith("the hook of qwen is installed; no turn here yet")
    assert row(history("status").out, "claude") .startswith("hook not installed, last ran ")


def test_a_program_without_settings_is_known_by_its_last_turn(
    history: CommandLine, project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = CheckpointManager()
    manager.new_turn("s1", "do it", agent="langchain")
    manager.before_tool("Write", {"file_path": "README.md"}, project)
    assert "    protected by langchain, last check " in history("status").out.splitlines()[0]
    later = time.time() + 7200
    monkeypatch.setattr(time, "time", lambda: later)
    assert history.json("status")["here"]["protected"] is False
    hook_ran(base, project, {"ago": 125, "agent": "mine"})
    assert history("status").out.splitlines()[0].endswith("    protected by mine, last check 2 min ago")
    assert row(history("status").out, "mine") == "hook set up by hand, last ran 2 min ago: taken"
    hook_ran(base, project, {"ago": 7260, "agent": "mine"})
    assert history("status").out.splitlines()[0].endswith("    NOT protected: the hook of mine last ran 2 h ago")


def test_status_says_loudly_that_it_is_disabled(
    history: CommandLine, home: Path, project: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    hook_ran(base, project, {"ago": 60})
    assert history.json("status")["here"]["protected"] is True
    monkeypatch.setenv("SHADOWSNAP_ENABLED", "no")
    lines = history("status").out.splitlines()
    assert lines[0].endswith("    DISABLED by your settings: no snapshot is taken")
    text = "SNAPSHOTS ARE DISABLED: nothing is protected. The variable SHADOWSNAP_ENABLED is 'no': unset it."
    assert " ".join(lines[1:3]) == text
    assert history("list").out.splitlines()[0].endswith("DISABLED by your settings: no snapshot is taken")
    told = history.json("status")
    assert (told["enabled"], told["here"]["protected"]) == (False, False)


def test_status_and_the_doctor_run_the_hooks_and_see_them_answer(
    history: CommandLine, home: Path, project: Path, base: Path
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    hook_ran(base, project, {"ago": 60, "version": "2.1.7"})
    assert row(history("status").out, "claude") == "hook installed, last ran 1 min ago (claude 2.1.7): taken"
    assert history("doctor").out.splitlines()[0] == "claude: the hook is installed and answers"
    launcher = base / "bin" / "shadowsnap"
    launcher.write_text(f"#!/bin/sh\npython={sys.executable}\nexit 0\n")
    assert history("list").out.splitlines()[0].endswith("last check 1 min ago")  # does not run it
    out = " ".join(history("status").out.split())
    why = "NOT protected: the hook does not answer: it exits with 0 but does nothing"
    assert f"trouble: claude: {why}" in out
    told = history.json("status")["here"]
    assert told["protected"] is False and why in told["protection"]
    out = history("doctor", code=1).out
    assert why in " ".join(out.split()) and out.endswith("\nthe store is in order\n")
    assert history.json("doctor", code=1)["agents"][0]["protected"] is False


def test_no_hook_is_run_where_it_could_not_say_so(history: CommandLine, home: Path, base: Path) -> None:
    """In the sandbox of an agent the store can only be read."""
    (home / ".claude").mkdir()
    install("claude")
    base.chmod(0o500)
    try:
        if os.access(base, os.W_OK):
            pytest.skip("root may write everywhere")
        assert history.json("status")["here"]["protected"] is True
    finally:
        base.chmod(0o700)


def test_status_says_whether_the_agent_may_run_the_hook(history: CommandLine, home: Path) -> None:
    (home / ".codex").mkdir()
    install("codex")
    ran = history("status")
    assert row(ran.out, "codex") == "hook installed, NOT allowed to run, has not run here yet"
    assert "trust the hook: start codex and choose" in " ".join(ran.out.split())
    assert "shadowsnap install codex" not in ran.out  # that would not help


def test_status_names_trouble_and_what_repairs_it(
    history: CommandLine, home: Path, project: Path, base: Path
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    hook_ran(base, project, {"ago": 90}, {"status": "failed", "error": "OSError: \x1b[2J disk"})
    out = " ".join(history("status").out.split())
    assert "NOT protected: the hook of claude failed just now: OSError: " in out
    assert "trouble: the last snapshot of claude failed: OSError: \\x1b[2J disk -> shadowsnap doctor" in out
    told = history.json("status")
    assert told["here"]["protected"] is False
    assert told["troubles"][0]["advice"] == "shadowsnap doctor"


def test_status_names_a_snapshot_that_was_refused(cli: CommandLine, home: Path) -> None:
    manager = CheckpointManager()
    cli("status")  # makes the store: nothing is noted where there is none
    manager.new_turn()
    assert manager.ensure_checkpoint(home).status == "refused"
    (trouble, *_) = cli.json("-C", str(home), "status")["troubles"]
    assert "is not snapshotted as a whole" in trouble["what"]
    assert trouble["advice"] == "name single files, or choose the project's own directory"


def test_status_is_about_a_directory_that_is_gone_too(history: CommandLine, project: Path) -> None:
    os.chdir(project.parent)
    shutil.rmtree(project)
    told = history.json("-C", str(project), "status")
    assert told["here"]["newest"] is None and told["here"]["snapshot_count"] == 3
    assert "make an empty directory there, then restore" in told["troubles"][0]["advice"]


def test_status_here_fits_80_columns(history: CommandLine, project: Path) -> None:
    for number in range(9):
        (project / f"{number}-{'long-name-' * 4}.pem").write_text("x")
    lines = [line for line in history("status").out.splitlines() if not line.startswith("store  ")]
    assert max(map(len, lines)) <= 80  # only the path of the store is never cut


# --- status --store ---------------------------------------------------------------------------------------


def test_status_of_an_empty_store(cli: CommandLine, base: Path) -> None:
    out = cli("status", "--store").out
    assert f"store       {base}\n" in out
    assert "holds       0 checkpoints of 0 projects\n" in out
    assert section(out, "agents with the hook") == ["  none: shadowsnap install AGENT"]
    assert "projects:" not in out and "failed lately" not in out


def test_status_tells_projects_limits_and_what_was_not_captured(history: CommandLine, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1\n")
    (project / "README.md").write_text("changed\n")
    history.snap()
    history("pin", "last")
    out = history("status", "--store").out
    assert "holds       4 checkpoints of 1 project\n" in out
    words = section(out, "projects")[1].split()
    assert words[0] == "4" and str(project).endswith(words[-1].removeprefix("...")) and "1 pinned" in out
    limits = {line.split()[0]: line.split(maxsplit=1)[1] for line in section(out, "limits")}
    assert limits["max_snapshots"] == "4 of 20 turns in the largest project"
    assert limits["max_total_size_mb"].endswith("of 500 (0%)")
    assert limits["retention_days"] == "30"
    left_out = " ".join(line.strip() for line in section(out, "not captured"))
    advice = "it looks like a secret; set include_secrets to capture such files"
    assert left_out == f"{project}: secret: .env -> {advice}"
    told = history.json("status", "--store")
    assert (told["checkpoint_count"], told["projects"][0]["workdir"]) == (4, str(project))
    assert told["uncaptured"][0]["paths"] == [".env"]


def test_status_counts_turns_against_their_limit(cli: CommandLine, project: Path) -> None:
    """Most turns have two states: one before them, one at their end."""
    manager = CheckpointManager()
    for number in range(3):
        manager.new_turn("session", f"turn {number}")
        manager.ensure_checkpoint(project)
        (project / f"file-{number}").write_text("x\n")
        manager.end_turn()
        (project / "mine").write_text(f"{number}\n")
    limits = {each["name"]: each for each in cli.json("status", "--store")["limits"]}
    assert len(cli.ids()) == 6 and limits["max_snapshots"]["used"] == 3
    assert not limits["max_snapshots"]["exceeded"]


def test_status_tells_failures_with_advice(cli: CommandLine, home: Path) -> None:
    manager = CheckpointManager()
    cli("status")  # makes the store: nothing is noted where there is none
    for _ in range(2):
        manager.new_turn()
        assert manager.ensure_checkpoint(home).status == "refused"
    lines = section(cli("status", "--store").out, "failed lately")
    told = " ".join(line.strip() for line in lines)
    assert f": {home} is not snapshotted as a whole: " in told
    assert told.endswith("-> name single files, or choose the project's own directory")
    assert cli.json("status", "--store")["failures"][0]["kind"] == "refused"


def test_status_tells_which_agents_have_the_hook_and_what_hooks_did(
    cli: CommandLine, home: Path, project: Path, base: Path
) -> None:
    (home / ".claude").mkdir()
    install("claude")
    install("cursor", project)
    lines = section(cli("status", "--store").out, "agents with the hook")
    assert any(line.split()[:2] == ["claude", "user"] for line in lines)
    assert any(line.split()[:2] == ["cursor", "project"] for line in lines)
    told = {(each["agent"], each["scope"]) for each in cli.json("status", "--store")["agents"]}
    assert told == {("claude", "user"), ("cursor", "project")}
    usual, now = {"agent": "claude", "event": "tool"}, time.time()
    entries = [
        {**usual, "time": now - 60, "status": "failed", "error": "OSError: \x1b[2J"},
        {**usual, "time": now, "tool": "Write", "status": "taken"},
    ]
    (base / "hook.log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    lines = section(cli("status", "--store").out, "hooks lately")
    assert lines[0].endswith(": claude tool Write taken")
    assert lines[1:] == ["  1 min ago: claude tool failed: OSError: \\x1b[2J"]
    assert cli.json("status", "--store")["hooks"][0]["status"] == "taken"


def test_status_fits_80_columns(history: CommandLine, tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-long-directory-name"] * 6)
    deep.mkdir(parents=True)
    (deep / "x").write_text("x")
    (deep / "secret.pem").write_text("x")
    history("-C", str(deep), "snap")
    out = history("status", "--store").out
    wide = [line for line in out.splitlines() if len(line) > 80]
    assert all(str(deep) in line or str(tmp_path) in line for line in wide)  # only a path is never broken
    assert not [line for line in section(out, "projects") if len(line) > 80]


# --- prune ------------------------------------------------------------------------------------------------


def test_prune_keeps_the_limits_without_asking(history: CommandLine) -> None:
    assert history("prune").out.startswith("dropped 0 checkpoints, kept 3, freed ")
    told = history.json("prune")
    assert (told["status"], told["dropped"], told["kept_count"]) == ("done", [], 3)


def test_prune_to_given_limits_is_a_plan_first(history: CommandLine, project: Path) -> None:
    ids = history.ids()
    ran = history("prune", "--max-snapshots", "1", code=4)
    assert "2 checkpoints would be gone, and there is no terminal to ask on" in ran.err and ran.out == ""
    lines = history("prune", "--max-snapshots", "1", "--dry-run").out.splitlines()
    assert lines[0] == str(project)
    assert lines[1].startswith(f"  {ids[1][:8]}  ") and "number 1" in lines[1] and lines[1].endswith(")")
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
    code, screen = history.terminal(*words, answers=[("drop 2 checkpoints for good? [y/N] ", "n\n")])
    assert code == 0 and screen.endswith("cancelled; nothing was changed\n")
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
    assert (report["applied"], report["cleared_items"][0]["checkpoint_count"]) == (True, 3)
    assert history.json("list", code=3)["error"]["type"] == "NoSuchProject"
    assert len(history.json("-C", str(other), "list")["entries"]) == 1
    assert manifest(project) == before
    assert history.json("clear", "--yes", code=3)["error"]["type"] == "NoSuchProject"


def test_clear_all_lets_go_of_everything(history: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x")
    history("-C", str(other), "snap")
    assert "4 checkpoints would be gone" in history("clear", "--all", code=4).err
    history("clear", "--all", "--yes")
    assert history.json("list", "--all-projects")["timelines"] == []


@needs_terminal
def test_clear_asks_on_a_terminal(history: CommandLine) -> None:
    question = "clear these checkpoints for good? [y/N] "
    code, screen = history.terminal("clear", answers=[(question, "\n")])
    assert code == 0 and screen.endswith("cancelled; nothing was changed\n")
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
    assert cli.json("list", "--all-projects")["timelines"] == []
    assert cli.json("import", "../theirs")["imported_count"] == 2
    assert [each["reason"] for each in cli.json("-C", str(work), "list")["entries"]] == ["second", "first"]
    assert cli("import", str(theirs)).out == "0 imported, 2 skipped, 0 failed\n"
    assert cli.json("import", str(work), code=3)["error"]["type"] == "NothingToImport"


# --- doctor -----------------------------------------------------------------------------------------------


def test_the_doctor_finds_nothing_in_a_sound_store(history: CommandLine, base: Path) -> None:
    assert history("doctor").out.splitlines() == [f"{base}: 3 checkpoints, 3 intact", "everything is in order"]
    assert history.json("doctor", "--repair")["healthy"] is True


def test_the_doctor_tells_first_and_repairs_when_asked(history: CommandLine, base: Path) -> None:
    head = base / "store" / "HEAD"
    head.write_bytes(b"")
    out = history("doctor", code=1).out
    assert out.startswith("error    ") and "         repair: " in out
    assert out.endswith("to repair: shadowsnap doctor --repair\n")
    assert history("doctor", "--repair", "--dry-run", code=1).out == out
    assert head.read_bytes() == b""
    ran = history("doctor", "--repair")
    assert "repaired " in ran.out and ran.out.endswith("repaired; everything is in order\n")
    assert history.json("doctor")["findings"] == []
    assert len(history.ids()) == 3


# --- progress ---------------------------------------------------------------------------------------------


def test_what_takes_less_than_half_a_second_is_not_talked_about(capsys: pytest.CaptureFixture[str]) -> None:
    with working(Ui(), "quick") as update:
        update(1, 2)
    assert capsys.readouterr().err == ""


def test_what_takes_longer_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shadowsnap.cli.ui._QUIET_SECONDS", 0.0)
    monkeypatch.setattr("shadowsnap.cli.ui._SECONDS_BETWEEN_LINES", 1.0)
    with working(Ui(), "slow") as update:
        update(1, 2)
        wait_for(lambda: "slow: 1 of 2" in capsys.readouterr().err)
    with working(Ui(json=True), "slow") as update:
        update(1, 2)
    assert capsys.readouterr().err == ""


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


SLOWLY = """\
import sys, time
from shadowsnap import deadline
from shadowsnap.cli.main import main

def listener(name):
    if name == sys.argv[1]:
        time.sleep(0.9)

deadline.step_listener = listener
raise SystemExit(main(sys.argv[2:]))
"""
"""One step of the engine takes long: the same as very many files, in no time."""


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("step", "words", "doing"),
    [
        ("capture:scanned", ("snap",), "taking a snapshot ..."),
        ("capture:scanned", ("restore", "1", "-n"), "making the plan ..."),
        ("restore:staged", ("restore", "1", "-y"), "restoring ..."),
        ("restore:staged", ("undo", "-y"), "undoing ..."),
        ("restore:staged", ("revert", "4", "-y"), "reverting ..."),
        ("capture:scanned", ("list",), "looking at the files ..."),
        ("capture:scanned", ("status",), "looking at the files ..."),
    ],
)
def test_anything_over_half_a_second_shows_progress(
    history: CommandLine, project: Path, step: str, words: tuple[str, ...], doing: str
) -> None:
    manager = CheckpointManager()
    manager.new_turn("s", prompt="one more")
    manager.ensure_checkpoint(project)
    (project / "empty").write_text("full\n")
    manager.end_turn()
    (project / "README.md").write_text("# own\n")
    slowly = [sys.executable, "-c", SLOWLY, step, *words]
    done = subprocess.run(slowly, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"{doing}\n"), (done.stdout, done.stderr)
    quiet = subprocess.run([*slowly, "--json"], capture_output=True, text=True, check=False, timeout=60)
    assert quiet.stderr == ""


@needs_terminal
def test_progress_on_a_terminal_goes_away(history: CommandLine, project: Path) -> None:
    (project / "README.md").write_text("# own\n")
    script = [sys.executable, "-c", SLOWLY, "restore:staged", "--no-color", "restore", "1", "-y"]
    _, screen = on_terminal(script, project, (), {"TERM": "xterm"})
    before, _, after = screen.partition("\r\x1b[Krestoring ...")
    assert before == "" and after.count("\r\x1b[K") >= 1 and "restored to snapshot 1: " in after


def test_slow_events_of_the_manager_are_shown_with_numbers(history: CommandLine) -> None:
    from shadowsnap.cli.commands import Context
    from shadowsnap.events import Slow

    context, seen = Context(Ui()), list[tuple[int, int]]()
    context._update = lambda done, total: seen.append((done, total))
    context._show_progress(Slow("/w", "reading files", 0.5, 3, 9))
    assert seen == [(3, 9)]
