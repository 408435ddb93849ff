"""Show or stop the process that does the work of hooks faster.

The first hook starts it. It leaves by itself after half an hour without work, and when shadowsnap or its settings
have changed. Nothing depends on it: without it, each hook does the work in its own process. The next hook after
`stop` starts another one; the setting `resident = false` switches that off.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import ago

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("status", "stop"), nargs="?", default="status", help="what to do")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.hook.resident import running_helper, stop_helper

    base = str(context.manager.settings.resolved_base())
    found = (stop_helper if args.action == "stop" else running_helper)(base)
    stopped = args.action == "stop" and found is not None
    data = {"helper": None if found is None else found.to_dict(), "stopped": stopped}
    if found is None:
        text = "no helper runs: hooks do their work themselves"
    elif stopped:
        text = f"stopped the helper, process {found.pid}"
    else:
        text = f"the helper runs as process {found.pid}, started {ago(found.started_at)}"
    return context.ui.answer(data, text)
