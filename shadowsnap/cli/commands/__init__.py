"""The commands, in one module for each kind of job.

A command is a subclass of `Command` that is named in `CHAPTERS`. Only the chapter of the command that runs is
imported; the help imports them all.
"""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from importlib import import_module
from inspect import getdoc

from shadowsnap.cli.context import Context

GROUPS = ("taking and looking", "going back", "keeping", "other machines", "more")

CHAPTERS = {
    "timeline": ("list", "log", "show", "sessions", "label", "pin", "unpin"),
    "states": ("snap", "diff", "cat", "ls", "fork", "blame", "bisect"),
    "restore": ("restore", "revert", "undo", "redo", "rollback"),
    "report": ("report", "export"),
    "store": ("status", "doctor", "verify", "import", "delete", "prune", "purge", "clear", "clear-legacy"),
    "remote": ("remote", "push", "pull", "lanes", "resume"),
    "agents": ("install", "uninstall", "hook", "helper", "statusline", "mcp"),
    "help": ("help", "docs", "ui", "completion"),
    "demo": ("demo",),
}


class Command(ABC):
    """One command. The first line of its docstring is its help, the rest its description."""

    name: str
    group: str
    """The heading that it stands under in the help."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027 (some have none)
        """None, unless the command says otherwise."""

    @abstractmethod
    def run(self, args: argparse.Namespace, context: Context) -> int | None:
        """Do it; returns the exit code, or None for 0."""

    @property
    def description(self) -> str:
        return getdoc(self) or ""

    @property
    def summary(self) -> str:
        """One line about the command."""
        return self.description.partition("\n")[0].rstrip(".")


def command_names() -> list[str]:
    return sorted(name for names in CHAPTERS.values() for name in names)


def load_command(name: str) -> Command | None:
    """The command of that name; None if there is none."""
    chapter = next((chapter for chapter, names in CHAPTERS.items() if name in names), None)
    return None if chapter is None else _load_chapter(chapter)[name]


def load_all() -> dict[str, Command]:
    """Every command, in the order of the help."""
    found = {name: command for chapter in CHAPTERS for name, command in _load_chapter(chapter).items()}
    return dict(sorted(found.items(), key=lambda item: (GROUPS.index(item[1].group), item[0])))


def _load_chapter(chapter: str) -> dict[str, Command]:
    module = import_module(f"{__name__}.{chapter}")
    kinds = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Command)]
    return {kind.name: kind() for kind in kinds if kind is not Command}
