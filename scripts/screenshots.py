"""Draws the pictures of the viewer: see scripts/screenshots."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from viewing import Driver, Shop, view

SIZE = (88, 22)
PICTURES = {"ui-diff": ("down", "down", "down", "v"), "ui-plan": ("down", "enter")}
"""The keys that lead to each picture."""


def main(folder: Path) -> int:
    with tempfile.TemporaryDirectory() as top:
        for name in [name for name in os.environ if name.startswith(("SHADOWSNAP_", "XDG_", "NO_COLOR"))]:
            del os.environ[name]
        home = Path(top).resolve()
        os.environ |= {"HOME": str(home), "SHADOWSNAP_HOME": str(home / "store")}
        shop = Shop(home / "shop", home / "store").tell()
        for name, keys in PICTURES.items():
            (folder / f"{name}.svg").write_text(picture(shop, keys), "utf-8")
    return 0


def picture(shop: Shop, keys: tuple[str, ...]) -> str:
    """The screen after some keys, as SVG. Nothing in it is fetched from elsewhere, and it is always the same."""
    drawn = []

    async def story(driver: Driver) -> None:
        driver.app._protection = "protected by claude"
        driver.app._draw_head()
        await driver.press(*keys)
        drawn.append(driver.app.export_screenshot(title="shadowsnap ui"))

    view(shop.directory, story, SIZE)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", drawn[0], flags=re.DOTALL)
    svg = re.sub(r"terminal-\d+-", "terminal-", svg)
    return re.sub(r"(just&#160;now|\d+&#160;s&#160;ago)", "just&#160;now", svg)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
