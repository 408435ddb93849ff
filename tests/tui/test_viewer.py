"""The viewer, driven by keys and the mouse: what it shows, and what it does to the files."""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.scroll_view import ScrollView
from viewing import DISCOUNT, IN_A_CLASS, Driver, Shop, view

import helpers
from shadowsnap.cli.commands.help import DOCS_FOLDER
from shadowsnap.tui import patches as lines
from shadowsnap.tui import viewer

TURNS = ["@ now", "3 clean the project up", ". (your own edits)", "2 Now please", "1 add a discount"]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop with its history, for tests that only look; in its store is another project."""
    top = tmp_path_factory.mktemp("shops")
    base = top / "base"
    other = Shop(top / "bakery", base)
    other.write("bread.py", "flour = 1\n")
    other.turn("bake some bread", lambda: other.write("bread.py", "flour = 2\n"), session="0b1c2d3e")
    return Shop(top / "shop", base).tell()


@pytest.fixture
def shop(told: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("SHADOWSNAP_HOME", str(told.manager.settings.base))
    return told


@pytest.fixture
def fresh(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A shop of its own, without a history."""
    monkeypatch.setenv("SHADOWSNAP_HOME", str(base))
    directory = tmp_path / "shop"
    directory.mkdir()
    return Shop(directory, base)


def left(screen: str) -> list[str]:
    """The rows of the turns."""
    return [line.partition("│")[0].rstrip() for line in screen.splitlines()[2:] if "│" in line]


def right(screen: str) -> str:
    return "\n".join(line.partition("│")[2].rstrip() for line in screen.splitlines() if "│" in line)


def test_a_project_whose_directory_is_gone_says_so(fresh: Shop) -> None:
    fresh.tell()
    assert [row.text.plain.endswith(" (gone)") for row in viewer.project_rows(fresh.manager, 80)] == [False]
    shutil.rmtree(fresh.directory)
    assert [row.text.plain.endswith(" (gone)") for row in viewer.project_rows(fresh.manager, 80)] == [True]


# --- looking ------------------------------------------------------------------------------------------


def test_it_begins_with_now_and_shows_what_each_turn_changed(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        rows = left(driver.screen)
        assert [row.startswith(begin) for row, begin in zip(rows, TURNS, strict=False)] == [True] * 5, rows
        assert "@ now: 1 file differs" in rows[0] and rows[1].endswith("-2")
        assert "Changed since the end of turn 3" in driver.screen and "+print(total([1, 2]))" in driver.screen
        assert driver.app._turns.row is None
        screen = right(await driver.press("down"))
        assert driver.status_text.startswith("turn 3, claude, ") and driver.status_text.endswith(
            ": clean the project up"
        )
        assert "Files of turn 3 (2 files)" in screen and " D README.md" in screen and "-my own note" in screen
        assert "-def test_total():" in await driver.press("right_square_bracket")
        assert [len(line) for line in driver.screen.splitlines()] == [80] * 24

    view(shop.directory, story)


def test_it_shows_what_going_back_would_do(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        screen = right(await driver.press("down", "equals_sign"))
        assert "Going back before turn 3 (3 files)" in screen
        assert " A README.md" in screen and " M cart.py" in screen and "+my own note" in screen
        assert "Files of turn 3" in await driver.press("equals_sign")

    view(shop.directory, story)


def test_a_diff_has_two_columns_and_the_colours_of_the_language(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        await driver.press("end")
        row = next(line for line in driver.app._diff.rows if "def total" in line.text.plain and line.sign == "+")
        coloured = {row.text.plain[span.start : span.end] for span in row.text.spans if span.style.color}
        assert coloured >= {"def", "total"}
        screen = right(await driver.press("v"))
        both = ("-def total(prices):", "+def total(prices, disc")
        assert any(all(text in line for text in both) for line in screen.splitlines())

    view(shop.directory, story)


def test_the_history_of_a_file_that_is_gone(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        screen = await driver.press("down", "h")
        assert "History of README.md" in screen
        assert [row[:2] for row in left(screen)[:3]] == ["3 ", ". ", ""]
        assert "+my own note" in await driver.press("down")
        assert left(await driver.press("escape"))[0].startswith("@")
        await driver.press("H")
        assert "tests/test_cart.py" in await driver.type("tests/test_cart.py")
        rows = left(await driver.press("enter"))
        assert rows[0].startswith("3") and rows[1].startswith("1") and not rows[2]

    view(shop.directory, story)


def test_finding(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        await driver.press("slash")
        await driver.type("REFACTOR")
        rows = left(await driver.press("enter"))
        assert rows[0].startswith("2 Now please") and not rows[1]
        assert "class Cart" in driver.screen
        assert left(await driver.press("escape"))[0].startswith("@")
        await driver.press("slash")
        await driver.type("nothing has this")
        assert "nothing fits" in await driver.press("enter")

    view(shop.directory, story)


def test_sessions_have_their_prompts_and_conversation(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        screen = await driver.press("s")
        assert "6f1c2a9e" in screen and "3 turns" in screen and "add a discount parameter to total()" in screen
        screen = await driver.press("enter")
        assert "please [bold]refactor" in screen and "It is a class now." in screen
        assert "Its rows are of Codex." in screen

    view(shop.directory, story)


def test_other_projects(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        screen = await driver.press("o")
        assert "bakery" in screen and "shop" in screen
        while "bakery" not in driver.app.screen.query_one("#choices", lines.Lines).row.text.plain:
            await driver.press("down")
        screen = await driver.press("enter")
        assert "bakery" in screen.splitlines()[0] and left(screen)[1].startswith("1 bake some bread")

    view(shop.directory, story)


def test_the_keys_fit_a_small_terminal(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        screen = await driver.press("question_mark")
        assert "up down" in screen and "New turns come by themselves." in screen
        for key in ("enter ", "t ", "space ", "z Z ", "p ", "h H ", "s o ", "/ ", "= ", "v "):
            assert f"│ {key}" in screen

    view(shop.directory, story)


def test_the_mouse(shop: Shop) -> None:
    async def story(driver: Driver) -> None:
        assert "Files of turn 3" in await driver.click("turns", 2)
        assert "Diff of tests/test_cart.py" in await driver.click("files", 2)
        assert "Go back to before turn 2" in await driver.click("turns", 4, times=2)
        assert "Files of turn 2" in await driver.press("n")

    view(shop.directory, story)


def test_without_colour_the_cursor_is_seen_all_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def story(driver: Driver) -> None:
        await driver.press("down")
        strips = driver.app._turns.render_lines(driver.app._turns.size.region)
        shown = [strip.apply_filter(each, driver.app.screen.styles.background) for strip in strips
                 for each in driver.app._filters if each.enabled]  # fmt: skip
        styles = [segment.style for strip in shown for segment in strip if segment.style]
        assert {style.color.name for style in styles if style.color} <= {"default"}
        cursor = [segment.style for segment in strips[2] if segment.style]
        assert cursor and all(style.reverse for style in cursor)

    view(shop.directory, story)


# --- changing -----------------------------------------------------------------------------------------


def test_going_back_taking_out_undo_and_redo(fresh: Shop) -> None:
    fresh.tell()
    before = helpers.manifest(fresh.directory)

    async def story(driver: Driver) -> None:
        screen = await driver.press("down", "enter")
        assert "Go back to before turn 3" in screen and "comes back" in screen and "README.md" in screen
        assert "takes out turn 3: clean the project up" in screen
        await driver.press("n")
        assert helpers.manifest(fresh.directory) == before
        assert "restored to before turn 3" in await driver.press("enter", "y")
        assert driver.status_text.endswith("z takes it back")
        assert (fresh.directory / "README.md").read_text() == "# shop\nmy own note\n"
        assert (fresh.directory / "cart.py").read_text() == IN_A_CLASS
        assert "Undo the restore to before turn 3" in await driver.press("z")
        await driver.press("y")
        assert driver.status_text.startswith("took back the restore") and driver.status_text.endswith(
            "Z takes it back"
        )
        assert helpers.manifest(fresh.directory) == before
        await driver.press("Z", "y")
        assert (fresh.directory / "README.md").exists()

        await driver.press("slash")
        await driver.type("refactor")
        await driver.press("enter")
        assert "Take out turn 2: Now please" in await driver.press("t")
        assert "took out turn 2" in await driver.press("y")
        assert (fresh.directory / "cart.py").read_text() == DISCOUNT

    view(fresh.directory, story)


def test_only_the_chosen_files_come_back_and_a_turn_is_pinned(fresh: Shop) -> None:
    fresh.tell()

    async def story(driver: Driver) -> None:
        await driver.press("down", "tab", "space")
        assert "1 file chosen" in driver.screen
        assert "Go back to before turn 3 of 1 file" in await driver.press("enter")
        await driver.press("y")
        assert (fresh.directory / "README.md").exists() and not (fresh.directory / "tests").exists()
        assert "pinned before turn 3" in await driver.press("p")
        assert fresh.manager.get(fresh.directory, 3).pinned and "(pinned) clean" in driver.screen
        await driver.press("p")
        assert not fresh.manager.get(fresh.directory, 3).pinned

    view(fresh.directory, story)


def test_new_turns_appear_by_themselves(fresh: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer, "_REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(viewer, "_REFRESH_SHARE", 0)
    fresh.write("cart.py", "one\n")

    async def story(driver: Driver) -> None:
        await driver.until(lambda screen: "checkpoint" in screen)
        work = ("a first turn", lambda: fresh.write("cart.py", "two\n"))
        worker = threading.Thread(target=fresh.turn, args=work)
        worker.start()
        await driver.until(lambda screen: "1 a first turn" in screen)
        worker.join()
        fresh.write("new.py", "three\n")
        await driver.until(lambda screen: "now: 1 file differs" in screen and "+three" in screen)

    view(fresh.directory, story)


# --- hostile and broken -------------------------------------------------------------------------------


def test_binary_files_and_permissions_are_said_and_names_are_harmless(fresh: Shop) -> None:
    fresh.write("tool.sh", "#!/bin/sh\n")
    fresh.write("logo.bin", bytes(range(256)))
    name = "[red]x[/red]\x1b[2J\u202e.py" if os.name == "posix" else "[red]x.py"

    def work() -> None:
        (fresh.directory / "tool.sh").chmod(0o755)
        fresh.write("logo.bin", bytes(reversed(range(256))))
        fresh.write(name, "\x1b]0;owned\x07 [link=file:///x]y[/link]\u202e\n")

    fresh.turn("[bold red]do[/] \x1b[31mit\x07 [@click=app.quit]now[/]", work)

    async def story(driver: Driver) -> None:
        screen = await driver.press("down")
        assert "[bold red]do[/]" in screen and "[red]x[/red]\\x1b[2J\\u202e" in screen
        assert "\\x1b]0;owned\\x07 [link=file:///x]y[/link]\\u202e" in screen
        assert not any(char in screen for char in "\x1b\x07\u202e")
        assert "binary file: its contents are not shown" in await driver.press("right_square_bracket")
        assert "permissions: 644 before, 755 after" in await driver.press("right_square_bracket")
        screen = await driver.press("enter")
        assert "[bold red]do[/]" in screen and "[red]x[/red]\\x1b[2J" in screen
        await driver.press("n")
        assert "\x1b" not in await driver.press("s")

    view(fresh.directory, story, size=(120, 30))


def test_a_damaged_store_is_a_message(fresh: Shop) -> None:
    fresh.tell()
    git_dir = fresh.manager.settings.resolved_base() / "store"
    helpers.unpack(git_dir)
    for folder in (git_dir / "objects").glob("??"):
        shutil.rmtree(folder)

    async def story(driver: Driver) -> None:
        assert (
            "missing" in driver.status_text
            or "damaged" in driver.status_text
            or "no checkpoint" in driver.status_text
        ), driver.status_text

    view(fresh.directory, story)


def test_a_directory_that_is_gone_is_a_message(fresh: Shop) -> None:
    fresh.tell()
    shutil.rmtree(fresh.directory)

    async def story(driver: Driver) -> None:
        assert "is not there" in driver.status_text and "how the files are now is not known" in driver.screen
        assert "-my own note" in await driver.press("down")
        await driver.press("enter")
        assert "is not there" in driver.status_text

    view(fresh.directory, story)


def test_a_store_that_cannot_be_written_is_a_message(
    fresh: Shop, as_user: Callable[..., Any], tmp_path: Path
) -> None:
    fresh.tell()
    base = fresh.manager.settings.resolved_base()

    def run() -> None:
        for folder, _, names in os.walk(base):
            for name in names:
                os.chmod(os.path.join(folder, name), 0o400)
            os.chmod(folder, 0o500)

        async def story(driver: Driver) -> None:
            assert left(driver.screen)[1].startswith("3 clean")
            await driver.press("down", "enter", "y")
            assert "ermission denied" in driver.status_text, driver.status_text

        view(fresh.directory, story)

    try:
        as_user(run)
    finally:
        for folder, _, _ in os.walk(base):
            os.chmod(folder, 0o700)


def test_the_keys_answer_while_git_is_slow(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    async def story(driver: Driver) -> None:
        manager = driver.app._manager
        diff = manager.diff
        monkeypatch.setattr(manager, "diff", lambda *args: gate.wait(20) and diff(*args))
        await driver._pilot.press("down", "question_mark")
        try:
            assert "New turns come by themselves." in await driver.until(lambda screen: "esc closes" in screen)
        finally:
            gate.set()
        await driver.press("escape")
        assert "-my own note" in await driver.until(lambda screen: "Diff of README.md" in screen)

    view(shop.directory, story)


def test_a_plan_that_comes_late_is_not_answered_by_what_is_typed(
    fresh: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.tell()
    before, gate = helpers.manifest(fresh.directory), threading.Event()

    async def story(driver: Driver) -> None:
        manager = driver.app._manager
        restore = manager.restore
        await driver.press("down")
        monkeypatch.setattr(manager, "restore", lambda *args, **more: gate.wait(20) and restore(*args, **more))
        await driver._pilot.press("enter", "slash", "y")
        gate.set()
        await driver.settled()
        await driver.type("yyy")
        assert "go ahead?" not in driver.screen and helpers.manifest(fresh.directory) == before

    view(fresh.directory, story)


# --- the page about it --------------------------------------------------------------------------------

PAGE = (DOCS_FOLDER / "ui.md").read_text("utf-8")


def test_the_picture_in_the_documentation_is_what_it_shows(shop: Shop) -> None:
    picture = PAGE.partition("```text\n")[2].partition("```")[0].splitlines()[1:]

    async def story(driver: Driver) -> None:
        shown = [line.rstrip() for line in (await driver.press("down")).splitlines()]
        assert [line for line in picture if line and line not in shown] == []

    view(shop.directory, story)
    assert len(picture) > 10


def test_every_key_is_documented() -> None:
    names = {"slash": "/", "equals_sign": "=", "question_mark": "?", "left_square_bracket": "[",
             "right_square_bracket": "]", "escape": "escape", "enter": "enter", "space": "space"}  # fmt: skip
    for key in viewer._ACTIONS:
        name = names.get(key, key)
        assert f"`{name}`" in PAGE or f"| {name} |" in PAGE or name == "escape" and name in PAGE, key


@pytest.mark.parametrize("name", ["ui-diff.svg", "ui-plan.svg"])
def test_a_picture_is_drawn_and_loads_nothing(name: str) -> None:
    assert f"]({name})" in PAGE
    picture = (DOCS_FOLDER / name).read_text("utf-8")
    assert "clean&#160;the&#160;project&#160;up" in picture
    assert not re.search(r"<(script|image|foreignObject)|url\(\s*[\"']?http|@import|href=", picture)


# --- inside -------------------------------------------------------------------------------------------


def names_set_by(kind: type) -> Iterator[str]:
    """The methods and attributes that a class defines."""
    for node in ast.walk(ast.parse(inspect.getsource(kind))):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr if isinstance(node.value, ast.Name) and node.value.id == "self" else ""


def test_nothing_of_textual_is_replaced_by_accident() -> None:
    replaced = {name for name in names_set_by(viewer.Viewer) if name and hasattr(App(), name)}
    assert replaced == {"__init__", "compose"}
    replaced = {name for name in names_set_by(lines.Lines) if name and hasattr(ScrollView(), name)}
    assert replaced == {"__init__", "render_line", "virtual_size"}
