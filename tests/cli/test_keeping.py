"""pin, unpin, label and delete on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import CommandLine, ageless

from shadowsnap import CheckpointManager

needs_terminal = pytest.mark.skipif(sys.platform == "win32", reason="no pty")


@pytest.fixture
def cli(
    project: Path, base: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """Snapshots 1, 2 and 3, with the reasons one, two, three."""
    cli = CommandLine(project, base, monkeypatch, capsys)
    for reason in ("one", "two", "three"):
        (project / "empty").write_text(reason)
        cli.snap(reason)
    return cli


def pinned(cli: CommandLine) -> list[str]:
    return [each["reason"] for each in cli.entries() if each["pinned"]]


def reasons(cli: CommandLine) -> list[str]:
    return [each["reason"] for each in cli.json("list", "--checkpoints")["checkpoints"]]


def test_pins_come_and_go(cli: CommandLine) -> None:
    second = cli.ids()[1]
    assert cli("pin", "3", "last~1").out == "pinned snapshot 3: three\npinned snapshot 2: two\n"
    assert pinned(cli) == ["three", "two"]
    assert cli.json("unpin", second[:12])["checkpoints"][0]["pinned"] is False
    assert pinned(cli) == ["three"]
    assert cli("unpin", "3").out == "unpinned snapshot 3: three\n" and pinned(cli) == []


def test_nothing_is_pinned_if_one_of_them_is_not_there(cli: CommandLine) -> None:
    cli("pin", "3", "nothing", code=3)
    assert pinned(cli) == []


def test_a_label_is_a_reference(cli: CommandLine) -> None:
    assert cli("label", "2", "works fine").out == "snapshot 2 is called works fine: two\n"
    assert cli.json("show", "works fine")["entry"]["reason"] == "two"
    assert cli.json("label", "1", "works fine")["checkpoint"]["label"] == "works fine"
    assert cli.json("show", "works fine")["entry"]["reason"] == "one"
    assert "[works fine] one" in cli("list").out
    assert cli.json("label", "works fine", "--remove")["checkpoint"]["label"] is None
    cli("show", "works fine", code=3)


def test_a_label_cannot_take_a_number_of_the_list(cli: CommandLine) -> None:
    assert "'1' cannot be a label" in cli("label", "3", "1", code=2).err
    assert cli.json("show", "1")["entry"]["reason"] == "one"


def test_a_label_stands_at_the_turn_that_is_gone_back_to(cli: CommandLine, project: Path) -> None:
    manager = CheckpointManager()
    for number in (4, 5):  # the end of turn 4 is the beginning of turn 5
        manager.new_turn("s", prompt=f"turn {number}")
        manager.ensure_checkpoint(project)
        (project / "empty").write_text(f"by turn {number}")
        manager.end_turn()
    assert cli("label", "5", "good").out == "the state before turn 5 is called good: turn 5\n"
    assert cli("pin", "good").out == "pinned the state before turn 5: turn 5\n"
    assert cli("pin", "good").out == "the state before turn 5 was pinned already: turn 5\n"
    assert cli("unpin", "5:after").out == "the end of turn 5 was not pinned: turn 5\n"
    marked = [(each["number"], each["label"], each["pinned"]) for each in cli.entries() if each["label"]]
    assert marked == [(5, "good", True)]
    assert cli("label", "5:after", "better").out == "the end of turn 5 is called better: turn 5\n"
    assert ageless(cli("list").out).splitlines()[2].startswith("  5  now       [good] (pinned) turn 5")


def test_delete_needs_yes(cli: CommandLine) -> None:
    assert "2 checkpoints would be gone" in cli("delete", "1", "2", code=4).err
    assert reasons(cli) == ["three", "two", "one"]


def test_delete_drops_just_those(cli: CommandLine) -> None:
    ids = cli.ids()
    assert cli("delete", "--yes", "last~1", ids[1], "2").out == f"deleted {ids[1][:8]}  two\n"
    assert cli.ids() == [ids[0], ids[2]]
    gone = cli.json("delete", "--yes", "3", "1")["checkpoints"]
    assert [each["reason"] for each in gone] == ["three", "one"]
    assert cli.json("list", code=3)["error"]["type"] == "NoSuchProject"


def test_what_was_deleted_is_not_listed_any_more(cli: CommandLine, project: Path) -> None:
    cli("delete", "--yes", "2")
    assert [each["number"] for each in cli.entries()] == [3, 1]
    assert cli.json("show", "last~1")["entry"]["number"] == 1
    (project / "empty").write_text("no longer")
    cli("snap")
    assert [each["number"] for each in cli.entries()] == [4, 3, 1]


def test_nothing_is_deleted_if_one_of_them_is_not_there_or_pinned(cli: CommandLine) -> None:
    cli("delete", "--yes", "1", "nothing", code=3)
    cli("pin", "2")
    assert cli.json("delete", "--yes", "1", "2", code=4)["error"]["type"] == "PinnedCheckpoint"
    assert reasons(cli) == ["three", "two", "one"]


@needs_terminal
def test_delete_asks_on_a_terminal(cli: CommandLine) -> None:
    code, screen = cli.terminal("delete", "1", "3", answers=[("delete 2 checkpoints for good? [y/N] ", "\n")])
    assert code == 0 and "  three\n" in screen and "  one\n" in screen
    assert screen.endswith("cancelled; nothing was changed\n")
    assert reasons(cli) == ["three", "two", "one"]
    assert cli.terminal("delete", "1", "3", answers=[("[y/N] ", "y\n")])[0] == 0
    assert reasons(cli) == ["two"]
