"""The commands about the program itself: help, docs, ui."""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from shadowsnap.cli.commands import Command, load_command
from shadowsnap.cli.context import Context
from shadowsnap.cli.parser import command_parser, top_help, unknown_command
from shadowsnap.errors import ExtraMissing, NoSuchTopic, WrongUsage


class HelpCommand(Command):
    """Show all commands, or explain one: shadowsnap help COMMAND."""

    name = "help"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("command", metavar="COMMAND", nargs="?", help="the command to explain")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if args.command is None:
            return context.ui.answer({"help": top_help()}, top_help())
        command = load_command(args.command)
        if command is None:
            raise unknown_command(args.command)
        text = command_parser(command).format_help()
        return context.ui.answer({"help": text}, text.removesuffix("\n"))


FOLDER = Path(__file__).parents[2] / "docs"


class DocsCommand(Command):
    """Read the documentation; without TOPIC, list what there is."""

    name = "docs"
    group = "more"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("topic", metavar="TOPIC", nargs="?", help="what to read")

    def run(self, args: argparse.Namespace, context: Context) -> int:
        ui, topics = context.ui, topic_files()
        if args.topic is None:
            titles = {
                name: path.read_text("utf-8").partition("\n")[0].lstrip("# ") for name, path in topics.items()
            }
            wide = max(map(len, titles))
            return ui.answer({"topics": titles}, [f"{name:{wide}}  {title}" for name, title in titles.items()])
        if args.topic not in topics:
            raise NoSuchTopic(topic=args.topic, topics=", ".join(topics))
        text = topics[args.topic].read_text("utf-8")
        if ui.json:
            return ui.answer({"topic": args.topic, "text": text})
        ui.page(text)
        return 0


def topic_files() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.md"))}


class UiCommand(Command):
    """Look at the timeline, its files and diffs on a screen of its own.

    Turns are on the left, the files and the diff of one of them on the right; ? shows the keys. From there you go
    back, take a turn out, undo and redo; each shows its plan and asks. Needs the extra: pip install
    'shadowsnap[ui]'. Without it, `shadowsnap restore` lets you choose from the timeline.
    """

    name = "ui"
    group = "taking and looking"

    def run(self, args: argparse.Namespace, context: Context) -> int:
        if find_spec("textual") is None:
            problem = ExtraMissing(what="`shadowsnap ui`", extra="ui")
            problem.hint = "without it, shadowsnap restore lets you choose from the timeline"
            raise problem
        if not (context.ui.interactive and context.ui.on_terminal and context.ui.redraws):
            missing = WrongUsage(why="ui needs a terminal, and this is none")
            missing.hint = "shadowsnap list has the same timeline, --json for programs"
            raise missing
        # The timeline is read while textual is being imported: both take their time, and git runs beside us.
        manager, workdir = context.manager, context.workdir
        with ThreadPoolExecutor(1) as reader:
            first = reader.submit(manager.timeline, workdir)
            if context.ui.ink.on:
                os.environ.pop("NO_COLOR", None)
            else:
                os.environ["NO_COLOR"] = "1"
            from shadowsnap.tui.viewer import Viewer

            return Viewer(context, first).run() or 0
