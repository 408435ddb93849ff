"""Look for damage in the store, and mend it.

Without --repair nothing is changed: it shows what is wrong, what that means and what would be done.
What cannot be saved is set aside, never deleted. The exit code is 1 if something is left that
fails or is lost.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe, wrapped
from shadowsnap.cli.ui import Ink, working

if TYPE_CHECKING:
    from shadowsnap.model import Checkup, Finding

GROUP = "keeping"

_STYLES = {"error": "red", "warning": "yellow", "info": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repair", action="store_true", help="mend what can be mended")
    parser.add_argument("--dry-run", action="store_true", help="with --repair: only show what it would do")


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    with working(ui, "examining the store"):
        checkup = context.manager.doctor(repair=args.repair and not args.dry_run)
    return ui.answer(checkup.to_dict(), _lines(checkup, ui.width, ui.ink), code=0 if checkup.healthy else 1)


def _lines(checkup: Checkup, width: int, ink: Ink) -> Iterator[str]:
    for finding in checkup.findings:
        yield from _finding(finding, finding in checkup.repaired, width, ink)
    if checkup.set_aside:
        yield f"what could not be saved is in {safe(checkup.set_aside)}"
    yield f"{safe(checkup.base)}: {count(checkup.checkpoints, 'checkpoint')}, {checkup.intact} intact"
    yield _verdict(checkup)


def _finding(finding: Finding, mended: bool, width: int, ink: Ink) -> Iterator[str]:
    word, style = ("mended", "green") if mended else (finding.severity, _STYLES.get(finding.severity, "dim"))
    yield f"{ink(style, f'{word:7}')}  {finding.code}: {safe(finding.subject)}"
    yield from wrapped(finding.meaning, width, " " * 9)
    if finding.repair and not mended:
        yield from wrapped(f"repair: {finding.repair}", width, " " * 9)


def _verdict(checkup: Checkup) -> str:
    open_ones = [finding for finding in checkup.findings if finding not in checkup.repaired]
    mendable = [finding for finding in open_ones if finding.repair]
    mended = f"{count(len(checkup.repaired), 'thing')} mended" if checkup.repaired else ""
    if mendable:
        left = f"{count(len(mendable), 'thing')} to mend: shadowsnap doctor --repair"
    else:
        left = "everything is in order" if checkup.healthy else "the rest cannot be mended"
    return "; ".join(filter(None, (mended, left)))
