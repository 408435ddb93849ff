"""Look at a report in a real browser: `scripts/test --browser [FOLDER]`.

Makes a small history with hostile names and texts, writes its report, and opens it in headless Chromium at three
widths, light, dark and as print. Fails on any message on the console, any request, anything that ran or overflows.
The screenshots are in FOLDER (build/browser) to be looked at.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from shadowsnap import CheckpointManager
from shadowsnap.cli.commands.report import EVERYTHING, EntryReader, Page, report_entries

HOSTILE = "</script><script>document.title='ran'</script><img src=https://example.org/x onerror=alert(1)>"
WIDTHS = {"phone": 390, "tablet": 820, "desktop": 1360}
CLASS = """

class Cart:
    def __init__(self):
        self.prices = []

    def add(self, price):
        self.prices.append(price)

    def total(self, discount=0):
        return total(self.prices, discount)
"""
CART = "def total(prices):\n    return sum(prices)\n"


# --- a history ---------------------------------------------------------------------------------------------


def make_report(folder: Path) -> Path:
    """The report of a made-up day."""
    project, base = folder / "shop", folder / "base"
    (project / "tests").mkdir(parents=True)
    (project / "cart.py").write_text(CART)
    (project / "README.md").write_text("# shop\n\nA shop.\n")
    (project / ".env").write_text("TOKEN=not for anybody\n")
    manager = CheckpointManager(base=base, background_upkeep=False)
    _turns(manager, project)
    entries = report_entries(manager, project, None, None)
    with EntryReader(manager, project) as items:
        placed = _placed(entries)
        known = {id(new): old for new, old in zip(placed, entries, strict=True)}
        page = Page(
            "~/work/shop", EVERYTHING, placed,
            lambda entry: replace(items.read(known[id(entry)]), entry=entry), placed[0].ended_at or datetime.now(),
            "1 file differs from the end of turn 9.",
        )  # fmt: skip
        report = folder / "report.html"
        report.write_bytes(page.html())
    return report


def _turns(manager: CheckpointManager, project: Path) -> None:
    cart, tests = project / "cart.py", project / "tests" / "test_cart.py"
    discounted = "def total(prices, discount=0):\n    return sum(prices) - discount\n"
    checks = "".join(f"def test_{n}():\n    assert total([{n}, 1]) == {n + 1}\n\n\n" for n in range(9))
    nasty = project / "na\u202eme <b>\t\x1b[31m.txt"

    def turn(session: str, agent: str, prompt: str, command: str, status: Any = "done") -> Iterator[None]:
        manager.new_turn(session, prompt=prompt, agent=agent)
        manager.before_tool("Bash", {"command": command}, project)
        yield
        manager.end_turn(status=status)

    first, second = "b7f1c0de-7a41-4b1e-9f55-0c3b2f1d8a77", "0199a4c2-55aa-7d11-8d0c-9b6a4e7f3311"
    for _ in turn(first, "claude", "Add a discount parameter to total() and test it", "pytest -q"):
        cart.write_text(discounted)
        tests.write_text("from cart import total\n\n\n" + checks)
    prompt = "Now refactor the cart into a class, and keep the function for callers that use it.\n\n"
    for _ in turn(first, "claude", f"{prompt}- no change of behaviour\n- the tests stay as they are", "ruff ."):
        cart.write_text(discounted + CLASS)
    cart.write_text("# the cart of the shop\n" + cart.read_text())
    for _ in turn(second, "codex", "Draw a logo, and make the start script executable", "python draw.py"):
        (project / "logo.png").write_bytes(bytes(range(256)) * 40)
        (project / "start.sh").write_text("#!/bin/sh\nexec python -m shop\n")
    for _ in turn(first, "claude", "clean the project up", "rm -rf tests README.md"):
        shutil.rmtree(project / "tests")
        (project / "README.md").unlink()
    manager.undo(project)
    for _ in turn(second, "codex", "Deploy it to staging and tell the team", "kubectl apply -f deploy.yaml"):
        manager.before_tool("Bash", {"command": "curl -X POST https://chat.example.org/hook -d done"}, project)
        (project / "start.sh").chmod(0o755)
        (project / "deploy.yaml").write_text("kind: Deployment\nreplicas: 2\n")
    for _ in turn(second, "codex", "Rewrite everything in Rust", "cargo init", "interrupted"):
        (project / "main.rs").write_text("fn main() {\n    println!(\"shop\");\n}\n" * 30)
    (project / "VERSION").write_text("1.0\n")
    manager.snapshot(project, reason="before the release")
    for _ in turn(first, HOSTILE, HOSTILE, HOSTILE):
        nasty.write_text(f"{HOSTILE}\n\u202ereversed\u202c \x1b[2J\n")
    for _ in turn(first, "claude", "What does total() do with an empty list?", "python -c 1"):
        pass
    prompt = "A long one. " + "The cart has to know about taxes of every country. " * 40
    for _ in turn(first, "claude", prompt, "pytest"):
        taxes = "".join(f"    {n}: {n}.0,\n" for n in range(40))
        cart.write_text(f"{cart.read_text()}\n\nTAXES = {{\n{taxes}}}\n")


def _placed(entries: list[Any]) -> list[Any]:
    """The same entries, spread over a day and the next morning."""
    begin = datetime(2026, 3, 10, 9, 12).astimezone()
    minutes = [0, 14, 31, 36, 52, 61, 70, 84, 131, 150, 1330, 1345, 1352, 1380]
    placed = []
    for at, entry in enumerate(reversed(entries)):
        start = begin + timedelta(minutes=minutes[min(at, len(minutes) - 1)])
        takes = timedelta(minutes=(3, 9, 0, 6, 4, 0, 11, 18)[at % 8], seconds=7 * at)
        end = start + takes if entry.kind == "turn" else start
        placed.append(replace(entry, began_at=start, ended_at=end))
    return placed[::-1]


# --- a browser ---------------------------------------------------------------------------------------------


class Browser:
    """Chromium, spoken to through a pipe."""

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self.session = ""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def wait_for(self, event: str) -> None:
        while not any(each.get("method") == event for each in self.events):
            self.events.append(self._read())

    def evaluate(self, script: str) -> Any:
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser ended")
            data += byte
        return dict(json.loads(data))

    def troubles(self) -> list[str]:
        """Messages on the console, errors, and requests for anything but the page."""
        found = []
        for event in self.events:
            method, facts = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(json.dumps(facts)[:300])
            elif method == "Network.requestWillBeSent" and not facts["request"]["url"].startswith("file://"):
                found.append(f"asked for {facts['request']['url']}")
        return found


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()
    words = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
        "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}",
    ]  # fmt: skip
    started = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}', "bash", *words],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        with open(ours_out, "wb") as commands, open(ours_in, "rb") as answers:
            page = Browser(commands, answers)
            target = page.call("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for name in ("Page", "Runtime", "Log", "Network"):
                page.call(f"{name}.enable")
            yield page
    finally:
        started.kill()
        started.wait()


def look(page: Browser, report: Path, folder: Path) -> list[str]:
    """Open the report in every way; returns what is wrong."""
    wrong = []
    page.call("Page.navigate", url=report.as_uri())
    page.wait_for("Page.loadEventFired")
    for name, width in WIDTHS.items():
        for theme in ("light", "dark"):
            resize(page, width)
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            wide = page.evaluate("document.documentElement.scrollWidth")
            wrong += [f"{name}: {wide} pixels wide, not {width}"] if wide > width else []
            screenshot(page, folder / f"{name}-{theme}.png")
    page.evaluate("document.querySelector('[data-do=unfold]').click()")
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    for name, width in WIDTHS.items():
        resize(page, width)
        page.evaluate("document.getElementById('n5').scrollIntoView({behavior: 'instant'})")
        screenshot(page, folder / f"{name}-turns.png")
    screenshot(page, folder / "desktop-unfolded.png", whole=True)
    page.evaluate("document.querySelector('[data-do=order]').click()")
    first = page.evaluate("document.querySelector('article').id")
    wrong += [f"oldest first begins with {first}"] if first != "n1" else []
    shown = page.evaluate(
        "field.value = 'discount'; search(); document.querySelectorAll('article:not([hidden])').length"
    )
    total = page.evaluate("articles.length")
    wrong += [f"the search shows {shown} of {total}"] if not 0 < shown < total else []
    screenshot(page, folder / "desktop-search.png")
    page.evaluate("location.hash = '#n4'; window.dispatchEvent(new Event('hashchange'))")
    wrong += ["a link leads to what the search hides"] if page.evaluate("field.value") else []
    page.call("Emulation.setEmulatedMedia", media="print", features=[])
    (folder / "print.pdf").write_bytes(base64.b64decode(page.call("Page.printToPDF")["data"]))
    wrong += ["a text of the report ran"] if page.evaluate("document.title").startswith("ran") else []
    wrong += ["an image came in"] if page.evaluate("document.querySelectorAll('img, iframe, link').length") else []
    return wrong + page.troubles()


def resize(page: Browser, width: int) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=1100, deviceScaleFactor=1, mobile=False)


def screenshot(page: Browser, path: Path, *, whole: bool = False) -> None:
    taken = page.call("Page.captureScreenshot", captureBeyondViewport=whole)
    path.write_bytes(base64.b64decode(taken["data"]))


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/browser")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("there is no chromium: apt-get install chromium", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        report = make_report(Path(scratch))
        shutil.copy(report, folder / "report.html")
        with browser(program, Path(scratch) / "profile") as page:
            wrong = look(page, report, folder)
    for each in wrong:
        print(each, file=sys.stderr)
    print(f"{'FAILED' if wrong else 'passed'}; look at the screenshots in {folder}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
