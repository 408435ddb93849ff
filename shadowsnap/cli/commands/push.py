"""Push this project's timeline to its remote.

What is new since the last push goes there: the log and the checkpoints that are kept. "pushed" is printed after
it was read back. With `sync = true` in the settings this happens by itself after turns.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import count, safe, size
from shadowsnap.cli.ui import working

GROUP = "other machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace, context: Context) -> int:
    ui = context.ui
    with working(ui, "pushing"):
        report = context.manager.push(context.workdir)
    for text in report.notes:
        ui.say(safe(text))
    held = f"{count(report.checkpoints, 'checkpoint')}, {count(report.turns, 'turn')}"
    if report.status == "pushed":
        line = f"pushed to {safe(report.remote)}: {held}, {size(report.bytes)} sent"
    else:
        line = f"up to date: {safe(report.remote)} has {held}"
    return ui.answer(report.to_dict(), [line, f"lane {report.lane}"])
