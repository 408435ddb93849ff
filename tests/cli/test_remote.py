"""remote, push, pull, lanes and resume on the command line."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest
from answers import problems
from command_line import CommandLine

from helpers import manifest
from shadowsnap import CheckpointManager


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    made = tmp_path / "shelf"
    made.mkdir()
    return made


class Machines:
    """The command line on several machines in turn."""

    def __init__(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._top = tmp_path
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, name: str, project: Path | None = None) -> CommandLine:
        project = project or self._top / name
        project.mkdir(exist_ok=True)
        self._monkeypatch.setattr(platform, "node", lambda: name)
        self._monkeypatch.setenv("SHADOWSNAP_BACKGROUND_UPKEEP", "false")
        return CommandLine(project, self._top / f"base of {name}", self._monkeypatch, self._capsys)

    def turn(self, name: str, prompt: str, **files: str) -> None:
        manager = CheckpointManager(base=self._top / f"base of {name}", background_upkeep=False)
        manager.new_turn(session_id="s", prompt=prompt)
        manager.ensure_checkpoint(self._top / name)
        for file, text in files.items():
            (self._top / name / file).write_text(text)
        manager.end_turn()


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machines:
    return Machines(tmp_path, monkeypatch, capsys)


def answered(cli: CommandLine, *words: str, code: int = 0) -> dict[str, Any]:
    ran = cli("--json", *words, code=code)
    assert ran.err == ""
    found = json.loads(ran.out)
    command = next(word for word in words if not word.startswith("-"))
    assert problems(command, found) == []
    assert isinstance(found, dict)
    return found


def test_from_a_sandbox_to_the_desk(machines: Machines, shelf: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyrage")
    desk = machines("desk")
    made = answered(desk, "remote", "keygen")
    assert Path(made["path"]).is_file()
    sandbox = machines("sandbox")
    machines.turn("sandbox", "write the report", report="draft")
    assert "encrypted for 1 recipient" in sandbox("remote", "add", "r", str(shelf), "--to", made["public_key"]).out
    assert "not yet" in sandbox("remote", "status").out
    assert sandbox("push").out.startswith("pushed to r: 2 checkpoints, 1 turn, ")
    assert "everything is pushed" in sandbox("remote", "status").out
    assert sandbox("push").out.startswith("up to date: r has 2 checkpoints")
    desk = machines("desk")
    (lane,) = answered(desk, "lanes", str(shelf))["lanes"]
    assert {"lane", "project", "machine", "turns", "newest_at"} <= lane.keys()
    assert (lane["project"], lane["machine"], lane["turns"]) == ("sandbox", "sandbox", 1)
    assert "sandbox" in desk("lanes", str(shelf)).out
    ran = desk("resume", "sandbox", "here", "--remote", str(shelf), "--yes")
    assert "resumed sandbox from sandbox, the end of turn 1" in ran.out
    assert manifest(tmp_path / "desk" / "here") == manifest(tmp_path / "sandbox")


def test_the_key_may_be_anywhere(machines: Machines, shelf: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyrage")
    cli = machines("m")
    machines.turn("m", "work", a="1")
    public = answered(cli, "remote", "keygen", str(tmp_path / "my.key"))["public_key"]
    cli("remote", "add", "r", str(shelf), "--to", public)
    cli("push")
    ran = cli("lanes")
    assert "without the key" in ran.err and "  m  " not in ran.out
    ran = cli("lanes", "--key", str(tmp_path / "my.key"))
    assert ran.err == "" and ran.out.startswith("m  m  ")


def test_list_shows_what_was_pulled_under_its_machine(machines: Machines, shelf: Path) -> None:
    machines("cloud")
    machines.turn("cloud", "from the cloud", a="1")
    cloud = machines("cloud")
    cloud("remote", "add", "r", str(shelf), "--plain")
    cloud("push")
    desk = machines("desk")
    desk("resume", "cloud", "work", "--remote", str(shelf), "--yes")
    work = machines("desk", desk.project / "work")
    work("remote", "add", "r", str(shelf), "--plain")
    work("push")
    machines.turn("cloud", "more from the cloud", a="2")
    machines("cloud")("push")
    work = machines("desk", desk.project / "work")
    assert "cloud: 3 checkpoints" in work("pull").out
    out = work("list").out
    assert "on cloud" in out and "more from the cloud" in out
    (lane,) = answered(work, "list")["pulled_timelines"]
    assert lane["machine"] == "cloud"
    assert [entry["prompt"] for entry in lane["entries"]] == ["more from the cloud", "from the cloud"]


def test_resume_hands_the_conversation_to_its_agent(
    machines: Machines, shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    session = "cb48129e-4437-49d7-9450-2dd0f7e59b68"
    cloud = machines("cloud")
    manager = CheckpointManager(base=tmp_path / "base of cloud", background_upkeep=False)
    said = [
        {"type": who, "uuid": who, "parentUuid": None, "cwd": "/x", "message": {"role": who, "content": who}}
        for who in ("user", "assistant")
    ]
    manager.new_turn(session_id=session, prompt="work", agent="claude", conversation=[])
    manager.ensure_checkpoint(cloud.project)
    (cloud.project / "a").write_text("1")
    manager.end_turn(said)
    cloud("remote", "add", "r", str(shelf), "--plain", "--conversations")
    cloud("push")
    desk = machines("desk")
    place = desk.project / "work"
    resume = ("resume", "cloud", "work", "--remote", str(shelf))
    plan = answered(desk, *resume, "--dry-run")["handover"]
    assert (plan["session_id"], plan["agent"], plan["why"]) == (session, "claude", "")
    assert not (tmp_path / "home" / ".claude").exists() and not place.exists()
    assert f"its conversation goes to {plan['path']}" in desk(*resume, "--dry-run").out
    out = desk(*resume, "--yes").out
    assert f"to go on with the conversation: cd {place} && claude --resume {session}" in out
    assert [json.loads(line)["cwd"] for line in Path(plan["path"]).read_text().splitlines()] == [str(place)] * 2
    assert answered(machines("desk", place), "sessions")["sessions"][0]["agent"] == "claude"
    out = desk("resume", "cloud", "again", "--remote", str(shelf), "--yes").out
    assert "cannot be continued here: the agent has one of that session here" in out
    assert f"sessions show {session} --chat" in out


def test_resume_into_a_checkout_asks_first(machines: Machines, shelf: Path) -> None:
    machines("cloud")
    machines.turn("cloud", "work", a="1")
    cloud = machines("cloud")
    cloud("remote", "add", "r", str(shelf), "--plain")
    cloud("push")
    desk = machines("desk")
    desk("resume", "cloud", "work", "--remote", str(shelf), "--yes")
    work = machines("desk", desk.project / "work")
    (work.project / "a").write_text("unsaved")
    ran = work("resume", "cloud", "--remote", str(shelf), code=4)
    assert "would write 1 path" in ran.err and (work.project / "a").read_text() == "unsaved"
    assert "is written  a" in work("resume", "cloud", "--remote", str(shelf), "--dry-run").out
    assert "to take it back" in work("resume", "cloud", "--remote", str(shelf), "--yes").out
    work("undo", "--yes")
    assert (work.project / "a").read_text() == "unsaved"


def test_a_plain_remote_is_warned_about(machines: Machines, shelf: Path) -> None:
    cli = machines("m")
    machines.turn("m", "work", a="1")
    assert "is not encrypted" in cli("remote", "add", "r", str(shelf), "--plain").out
    assert "is not encrypted" in cli("push").err


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("push",), 3, "NoRemote"),
        (("pull",), 3, "NoRemote"),
        (("lanes",), 3, "NoRemote"),
        (("remote",), 3, "NoRemote"),
        (("remote", "remove"), 3, "NoRemote"),
        (("remote", "add", "x"), 2, "WrongUsage"),
        (("remote", "list", "x", "y"), 2, "WrongUsage"),
        (("remote", "add", "x", "SHELF"), 2, "BadRemote"),
        (("lanes", "/nowhere"), 2, "BadRemote"),
        (("resume", "x", "--remote", "SHELF"), 3, "NoSuchLane"),
    ],
)
def test_what_goes_wrong_is_named(
    machines: Machines, shelf: Path, words: tuple[str, ...], code: int, error: str
) -> None:
    cli = machines("m")
    given = [str(shelf) if word == "SHELF" else word for word in words]
    assert answered(cli, *given, code=code)["error"]["type"] == error


def test_status_has_the_age_of_unpushed_work(machines: Machines, shelf: Path) -> None:
    cli = machines("m")
    machines.turn("m", "work", a="1")
    cli("remote", "add", "r", str(shelf), "--plain")
    remote = answered(cli, "status")["here"]["remote"]
    assert remote["unpushed_count"] == 2 and remote["unpushed_since"]
    assert "2 checkpoints not pushed" in cli("status").out
    assert answered(cli, "status", "--store")["remotes"] == [remote]
    assert "2 checkpoints not pushed" in cli("status", "--store").out
    cli("push")
    assert answered(cli, "status")["here"]["remote"]["unpushed_count"] == 0
    assert (len(answered(cli, "remote", "list")["remotes"]), cli("remote", "remove").code) == (1, 0)
    assert answered(cli, "status")["here"]["remote"] is None


def test_a_remote_of_another_name_is_not_removed(machines: Machines, shelf: Path) -> None:
    cli = machines("m")
    machines.turn("m", "work", a="1")
    cli("remote", "add", "shelf", str(shelf), "--plain")
    assert "the remote of this project is shelf, not backup" in cli("remote", "remove", "backup", code=2).err
    assert "not backup" in cli("remote", "status", "backup", code=2).err
    assert "does not take a name" in cli("remote", "list", "shelf", code=2).err
    assert "shelf is no remote of this project any more" in cli("remote", "remove", "shelf").out
