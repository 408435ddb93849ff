"""Show all commands, or explain one: shadowsnap help COMMAND."""

from __future__ import annotations

import argparse

from shadowsnap.cli.context import Context

GROUP = "more"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="the command to explain")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.cli.commands import load_command
    from shadowsnap.cli.parser import command_parser, top_help, unknown_command

    if args.command is None:
        return context.ui.answer({"help": top_help()}, top_help())
    module = load_command(args.command)
    if module is None:
        raise unknown_command(args.command)
    text = command_parser(args.command, module).format_help()
    return context.ui.answer({"help": text}, text.removesuffix("\n"))
