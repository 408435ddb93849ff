"""Read the documentation; without TOPIC, list what there is."""

from __future__ import annotations

import argparse
from pathlib import Path

from shadowsnap.cli.context import Context
from shadowsnap.errors import NoSuchTopic

GROUP = "more"

FOLDER = Path(__file__).parents[2] / "docs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="what to read")


def run(args: argparse.Namespace, context: Context) -> int:
    ui, topics = context.ui, topic_files()
    if args.topic is None:
        titles = {name: path.read_text("utf-8").partition("\n")[0].lstrip("# ") for name, path in topics.items()}
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
