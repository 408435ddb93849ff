"""Let a model read this project's timeline, over MCP.

It talks on stdin and stdout. Its tools are timeline, diff and blame. A fourth one, restore, only makes a plan:
you carry it out with `shadowsnap restore --plan TOKEN`. Needs the extra: pip install 'shadowsnap[mcp]'.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes none."""


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.integrations.mcp_server import make_server

    server = make_server(context.manager, context.workdir)
    if context.ui.json:
        tools = ["timeline", "diff", "blame", "restore"]
        return context.ui.answer({"tool_names": tools, "workdir": str(context.workdir)})
    server.run("stdio")
    return 0
