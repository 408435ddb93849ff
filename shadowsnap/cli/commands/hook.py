"""What agents run before a tool call.

It reads the event from standard input. Made for the settings of agents, which `shadowsnap install`
writes. It prints nothing and always ends with 0, so that it never stops an agent; what it did
stands in the status. EVENT says what happened, for agents whose input does not. Any agent that is
not known can use `generic`, with the JSON that `shadowsnap docs hooks` describes.
"""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("agent", metavar="AGENT", nargs="?", default="generic", help="which agent it is")
    parser.add_argument("event", metavar="EVENT", nargs="?", default="", help="what happened")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.hook.client import main

    main([args.agent, args.event])
