"""Look at the timeline, its files and diffs on a screen of its own.

Turns are on the left, the files and the diff of one of them on the right; ? shows the keys. From there you go
back, take a turn out, undo and redo; each shows its plan and asks. Needs the extra: pip install 'shadowsnap[ui]'.
Without it, `shadowsnap restore` lets you choose from the timeline.
"""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec

from shadowsnap.cli.context import Context
from shadowsnap.errors import ExtraMissing, WrongUsage

GROUP = "taking and looking"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace, context: Context) -> int:
    if find_spec("textual") is None:
        problem = ExtraMissing(what="`shadowsnap ui`", extra="ui")
        problem.hint = "without it, shadowsnap restore lets you choose from the timeline"
        raise problem
    if not (context.ui.interactive and context.ui.on_terminal and context.ui.redraws):
        missing = WrongUsage(why="ui needs a terminal, and this is none")
        missing.hint = "shadowsnap list has the same timeline, --json for programs"
        raise missing
    # The timeline is read while textual is being imported: both take their time, and git runs beside us.
    from concurrent.futures import ThreadPoolExecutor

    manager, workdir = context.manager, context.workdir
    with ThreadPoolExecutor(1) as reader:
        first = reader.submit(manager.timeline, workdir)
        if context.ui.ink.on:
            os.environ.pop("NO_COLOR", None)
        else:
            os.environ["NO_COLOR"] = "1"
        from shadowsnap.tui.viewer import Viewer

        return Viewer(context, first).run() or 0
