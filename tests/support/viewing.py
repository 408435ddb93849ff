"""The viewer, driven without a terminal, and a small shop whose history it shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from shadowsnap import CheckpointManager
from shadowsnap.cli.commands import Context
from shadowsnap.cli.ui import Ui
from shadowsnap.tui.viewer import Viewer

CART = """\
def total(prices):
    return sum(prices)
"""
DISCOUNT = """\
def total(prices, discount=0):
    \"\"\"What a cart costs.\"\"\"
    return sum(prices) - discount
"""
IN_A_CLASS = """\
class Cart:
    def __init__(self, prices):
        self.prices = list(prices)

    def total(self, discount=0):
        return sum(self.prices) - discount


def total(prices, discount=0):
    return Cart(prices).total(discount)
"""
TEST = """\
from cart import total


def test_total():
    assert total([1, 2]) == 3
"""
SAID = [
    {"role": "user", "content": "please [bold]refactor"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is a class now."}]},
    {"type": "response_item", "payload": {"role": "assistant", "content": [{"text": "Its rows are of Codex."}]}},
]


class Shop:
    """A project in which an agent worked: turn 1 edits, turn 2 rewrites, the person edits, turn 3 deletes."""

    def __init__(self, directory: Path, base: Path) -> None:
        self.directory = directory
        self.manager = CheckpointManager(base=base, background_upkeep=False, fsync=False)

    def write(self, name: str, text: str | bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)

    def turn(self, prompt: str, work: Callable[[], Any], session: str = "6f1c2a9e", said: Any = None) -> None:
        self.manager.new_turn(session, prompt=prompt, agent="claude", conversation=said)
        assert self.manager.before_tool("Bash", {"command": "make"}, self.directory).protected
        work()
        self.manager.end_turn()

    def tell(self) -> Shop:
        self.write("cart.py", CART)
        self.write("README.md", "# shop\n")
        self.write("tests/test_cart.py", TEST)
        self.turn("add a discount parameter to total() and test it", self._discount)
        self.turn("Now please refactor the cart into a class", self._refactor, said=SAID)
        self.write("README.md", "# shop\nmy own note\n")
        self.turn("clean the project up", self._clean_up)
        self.write("cart.py", IN_A_CLASS + "\n\nprint(total([1, 2]))\n")
        return self

    def _discount(self) -> None:
        self.write("cart.py", DISCOUNT)
        self.write("tests/test_cart.py", TEST + "    assert total([1], 1) == 0\n")

    def _refactor(self) -> None:
        self.write("cart.py", IN_A_CLASS)

    def _clean_up(self) -> None:
        (self.directory / "README.md").unlink()
        (self.directory / "tests/test_cart.py").unlink()
        (self.directory / "tests").rmdir()


class Driver:
    """Presses keys and reads the screen."""

    def __init__(self, app: Viewer, pilot: Pilot[Any]) -> None:
        self.app = app
        self._pilot = pilot

    async def press(self, *keys: str) -> str:
        """One key after the other, each after what the one before it did."""
        for key in keys:
            await self._pilot.press(key)
            await self.settled()
        return self.screen

    async def type(self, text: str) -> str:
        names = {" ": "space", ".": "full_stop", "/": "slash", "_": "underscore"}
        await self._pilot.press(*(names.get(char, char) for char in text))
        return await self.settled()

    async def click(self, pane: str, row: int, times: int = 1) -> str:
        await self._pilot.click(f"#{pane}", offset=(4, row), times=times)
        return await self.settled()

    async def settled(self) -> str:
        """The screen, once no thread is at work any more."""
        for _ in range(500):
            await self._pilot.pause(0.01)
            if all(worker.is_finished for worker in self.app.workers):
                break
        await self._pilot.pause()
        return self.screen

    async def until(self, seen: Callable[[str], bool]) -> str:
        """The screen, once it shows what is waited for."""
        for _ in range(1000):
            if seen(self.screen):
                return self.screen
            await self._pilot.pause(0.01)
        raise AssertionError(self.screen)

    @property
    def status_text(self) -> str:
        """The message above the keys."""
        return self.app._status_text

    @property
    def screen(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)


def view(
    directory: Path, story: Callable[[Driver], Awaitable[None]], size: tuple[int, int] = (80, 24)
) -> None:
    """Open the viewer on a project and run a story with it."""

    async def run() -> None:
        app = Viewer(Context(Ui(), here=str(directory)))
        async with app.run_test(size=size) as pilot:
            driver = Driver(app, pilot)
            await driver.settled()
            await story(driver)

    asyncio.run(run())
