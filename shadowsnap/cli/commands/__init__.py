"""What a command is, how a command line is parsed, and the context that a command runs in.

A command is a subclass of `Command` in the module of its kind of job, and named in `COMMAND_MODULES`. Only the
module of the command that runs is imported; the help imports them all.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, NoReturn

from shadowsnap.cli.text import safe
from shadowsnap.cli.ui import Ui, Update, working
from shadowsnap.errors import MalformedReference, NoSuchCheckpoint, PathRefused, WrongUsage

if TYPE_CHECKING:  # loaded when they are needed: shells run `completion` at their start and at every tab
    from shadowsnap.agents.state import AgentState, Protection
    from shadowsnap.events import Event
    from shadowsnap.manager import CheckpointManager
    from shadowsnap.model import Checkpoint

GROUPS = ("taking and looking", "going back", "keeping", "other machines", "more")

COMMAND_MODULES = {
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
    """Its heading in the help."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:  # noqa: B027 (some have none)
        """Add none, unless a command overrides this."""

    @abstractmethod
    def run(self, args: argparse.Namespace, context: Context) -> int | None:
        """Run the command; returns the exit code, or None for 0."""

    @property
    def description(self) -> str:
        return getdoc(self) or ""

    @property
    def summary(self) -> str:
        """One line about the command."""
        return self.description.partition("\n")[0].rstrip(".")


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="show what would happen and change nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")


def command_names() -> list[str]:
    return sorted(name for names in COMMAND_MODULES.values() for name in names)


def load_command(name: str) -> Command:
    for module, names in COMMAND_MODULES.items():
        if name in names:
            return _load_module(module)[name]
    close = get_close_matches(name, command_names(), 1)
    hint = f"did you mean {close[0]}?" if close else "shadowsnap help lists the commands"
    if name in ("version", "-v", "-V"):
        hint = "shadowsnap --version shows it"
    raise WrongUsage(why=f"there is no command {name!r}", hint=hint)


def load_all() -> dict[str, Command]:
    """Every command, in the order of the help."""
    found = {name: command for module in COMMAND_MODULES for name, command in _load_module(module).items()}
    return dict(sorted(found.items(), key=lambda item: (GROUPS.index(item[1].group), item[0])))


def _load_module(name: str) -> dict[str, Command]:
    module = import_module(f"{__name__}.{name}")
    kinds = [each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Command)]
    return {kind.name: kind() for kind in kinds if kind is not Command}


# --- the context of a command -----------------------------------------------------------------------------------

_PROGRESS_EVERY_SECONDS = 0.5
_PROGRESS_UNTIL_SECONDS = 600


class Context:
    def __init__(self, ui: Ui, directories: Iterable[str] = (), here: str | None = None) -> None:
        """`directories`: the values of -C. `here`: the current directory, if it is not that of this process."""
        self.ui = ui
        self._given = os.path.join("", *directories)
        self._here = here
        self._update: Update | None = None
        self.takes_paths = False
        """Whether the command takes paths after --."""
        self.progress = ui.progress
        """Shows that an operation takes long."""

    @cached_property
    def manager(self) -> CheckpointManager:
        from shadowsnap.manager import CheckpointManager

        manager = CheckpointManager.from_settings(on_event=self._show_progress)
        moments = range(1, int(_PROGRESS_UNTIL_SECONDS / _PROGRESS_EVERY_SECONDS))
        manager._access.slow_after = [_PROGRESS_EVERY_SECONDS * moment for moment in moments]
        return manager

    @contextmanager
    def working(self, title: str) -> Iterator[Update]:
        """Show progress on stderr if the block takes longer than half a second."""
        with working(self.ui, title) as update:
            outer, self._update = self._update, update
            try:
                yield update
            finally:
                self._update = outer

    def _show_progress(self, event: Event) -> None:
        """Show the progress that an event of the manager reports."""
        if event.kind != "slow":
            return
        doing, done, total = (getattr(event, name, None) for name in ("doing", "done", "total"))
        if self._update is not None and done is not None and total:
            self._update(done, total)
        elif isinstance(doing, str) and (self._update is None or doing.startswith("waiting")):
            self.progress(f"{doing} ...")

    def show_warnings(self) -> None:
        """Show what was ignored in the settings, if they were read."""
        for text in self.manager.warnings if "manager" in self.__dict__ else ():
            self.ui.say(f"{self.ui.talk_ink('yellow', 'warning:')} {safe(text)}")

    @cached_property
    def here(self) -> str:
        """The current directory, or the one given with -C."""
        return os.path.realpath(os.path.join(self._here or _current_directory(self._given), self._given))

    @cached_property
    def workdir(self) -> Path:
        """The directory of the project that `here` lies in."""
        return self.manager.find_project(self.here)

    def path(self, word: str) -> str:
        """A path of the command line, relative to the project that it lies in."""
        path = self.any_path(word)
        if os.path.isabs(path) or path == os.pardir or path.startswith(os.pardir + os.sep):
            raise PathRefused(path=word, why=f"it lies outside the project, {self.workdir}")
        return path

    def any_path(self, word: str) -> str:
        """The same, also of a path that lies elsewhere."""
        if not os.path.isabs(word):
            # Links are not resolved: what is a link now may have been a directory in a checkpoint.
            return os.path.normpath(os.path.join(os.path.relpath(self.here, self.workdir), word)) if word else word
        # Links are followed, except in the last part of a path.
        folder, name = os.path.split(word.rstrip(os.sep) or word)
        resolved = os.path.join(os.path.realpath(folder), name)
        return os.path.relpath(resolved, self.workdir) if self.holds(resolved) else word

    def holds(self, path: str) -> bool:
        """Whether a resolved path lies in the project."""
        return Path(path).is_relative_to(self.workdir)

    def paths(self, words: Iterable[str]) -> list[str]:
        return [self.path(word) for word in words]

    def checkpoint(self, word: str) -> Checkpoint:
        """The checkpoint that a reference stands for."""
        try:
            return self.manager.get(self.workdir, word)
        except (NoSuchCheckpoint, MalformedReference) as problem:
            if word and os.path.lexists(os.path.join(self.here, word)):
                line = self.command_line("list", "--file", word)
                problem.hint = f"it is a file; to see what changed it: {line}"
                if self.takes_paths:
                    problem.hint = f"if you mean the file, put -- before it: -- {shlex.quote(word)}"
            raise

    def command_line(self, *words: str) -> str:
        """A command line for this project: with -C if this command was given one."""
        where = ("-C", self.here) if self._given else ()
        return shlex.join(("shadowsnap", *where, *words))

    @cached_property
    def hooks(self) -> list[AgentState]:
        """The state of every agent that has the hook, read from settings; `status` sets it after running each
        hook."""
        from shadowsnap.agents.state import agent_states

        return agent_states(self.workdir)

    @cached_property
    def protection(self) -> Protection:
        """Whether an agent's hook protects this project, as far as is known."""
        from shadowsnap.agents.state import Protection, protection_of

        if not self.manager.settings.enabled:
            return Protection(False, "DISABLED by your settings: no snapshot is taken")
        return protection_of(self.workdir, self.hooks)


def _current_directory(given: str) -> str:
    if os.path.isabs(given):
        return given
    try:
        return os.getcwd()
    except FileNotFoundError:
        hint = "name the project's directory with -C"
        raise WrongUsage(why="the current directory does not exist any more", hint=hint) from None


# --- the command line: the options before the command by hand, the rest by argparse --------------------

_WIDTH = 80
USAGE = "shadowsnap [-C DIR] [--json] [--no-color] COMMAND ..."
GLOBAL_OPTIONS = (
    ("-C DIR", "run as if started in DIR"),
    ("--json", "answer with one JSON object"),
    ("--no-color", "no colour, whatever the terminal"),
    ("--version", "show the version"),
    ("-h, --help", "show this help; after a command, the help of that command"),
)


REFERENCES = (
    ("REF", "a state, in any of these ways:"),
    ("3", "before turn 3 of the list; of a snapshot, the snapshot"),
    ("3:after", "the end of turn 3"),
    ("last", "the newest turn or snapshot that is not undone; last~2: two before it"),
    ("@", "the files as they are now (in diff)"),
    ("9c2f41d", "4 or more digits of an id, with a letter among them"),
    ("NAME", "a label"),
)


def split_words(words: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Split a command line into the directories of -C, the name of the command, and what follows it. The name is
    empty if there is no command; `--help` and `--version` count as one."""
    directories: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word in ("--json", "--no-color"):
            continue  # `main` passes them to the Ui
        if word == "-C":
            if not left:
                raise WrongUsage(why="-C needs a directory", hint=f"usage: {USAGE}")
            directories.append(left.pop(0))
        elif word.startswith("-C"):
            directories.append(word[2:])
        elif word.startswith("-") and word not in ("-h", "--help", "--version"):
            raise WrongUsage(why=f"there is no option {word}", hint=f"usage: {USAGE}")
        else:
            return directories, word, left
    return directories, "", []


def command_parser(command: Command) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"shadowsnap {command.name}",
        description=_wrap_paragraphs(command.description),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    shared = parser.add_argument_group("options of every command")
    texts = dict(GLOBAL_OPTIONS)
    shared.add_argument("-C", dest="directory", metavar="DIR", action="append", default=[], help=texts["-C DIR"])
    for option in ("--json", "--no-color"):
        shared.add_argument(option, action="store_true", help=texts[option])
    parser.usage_line = usage(parser)
    parser.usage = _wrap_paragraphs(parser.usage_line, _WIDTH - len("usage: "), " " * 9)
    return parser


def _wrap_paragraphs(text: str, width: int = _WIDTH, indent: str = "") -> str:
    """Paragraphs for a terminal of 80 columns."""
    parts = [
        "\n".join(wrap(part, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
        for part in text.split("\n\n")
    ]
    return "\n\n".join(parts)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Parse the words after a command. Options may be anywhere; everything after -- is a path."""
    words = list(words)
    after: list[str] = []
    if "--" in words:
        cut = words.index("--")
        words, after = words[:cut], words[cut + 1 :]
    if any(action.dest == "path" for action in parser._actions):
        # argparse loses a -- when options may stand anywhere; no argument can begin with a NUL.
        words, after = [*words, *(f"\0{word}" if word.startswith("-") else word for word in after)], []
    args = parser.parse_intermixed_args(words)
    if isinstance(getattr(args, "path", None), str):
        args.path = args.path.removeprefix("\0")
    if after and not hasattr(args, "paths"):
        parser.error("this command takes no paths, so nothing can follow --")
    if after:
        args.paths = [*args.paths, *after]
    return args


def usage(parser: argparse.ArgumentParser) -> str:
    """The usage in one line, without the options of every command."""
    parts = []
    for action in command_arguments(parser):
        word = placeholder(action)
        if action.option_strings:
            part = f"{action.option_strings[0]}{'' if action.nargs == 0 else f' {word}'}"
            parts.append(part if action.required else f"[{part}]")
        else:
            shapes = {"?": f"[{word}]", "*": f"[{word}...]", "+": f"{word}..."}
            if action.dest in getattr(parser, "needed", ()):
                shapes["*"] = shapes["+"]
            parts.append(shapes.get(str(action.nargs), word))
    return " ".join([parser.prog, *parts, *getattr(parser, "usage_end", ())])


def command_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of a command without the options of every command: positional ones first."""
    own = [each for each in parser._actions if each.dest not in ("help", "directory", "json", "no_color")]
    return sorted(own, key=lambda each: bool(each.option_strings))


def placeholder(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(str(choice) for choice in action.choices)
    return str(action.metavar or action.dest.upper())


def top_help() -> str:
    lines = [f"usage: {USAGE}", "", "Bring files back to any state they had before an agent's turn."]
    lines += ["Without a command: the timeline of this directory."]
    commands = load_all()
    wide = max(len(name) for name in commands)
    for group in GROUPS:
        members = [command for command in commands.values() if command.group == group]
        lines += ["", f"{group}:", *(f"  {command.name:{wide}}  {command.summary}" for command in members)]
    lines += ["", "options:", *(f"  {option:{wide}}  {text}" for option, text in GLOBAL_OPTIONS)]
    lines += ["", *(f"{word:8}  {text}" for word, text in REFERENCES)]
    return "\n".join(lines)


def takes_paths(parser: argparse.ArgumentParser) -> bool:
    """Whether what follows -- are paths."""
    end = "".join(getattr(parser, "usage_end", ()))
    return "PATH" in end or any(each.dest == "paths" and each.metavar == "PATH" for each in parser._actions)


_CHOICE = re.compile(r"argument (\S+): invalid choice: (.+) \(choose from (.+)\)")
_NUMBER = re.compile(r"argument (\S+): invalid (int|float) value: (.+)")
_REQUIRED = "the following arguments are required: "


class _Parser(argparse.ArgumentParser):
    usage_line = ""
    """The usage, as it was before argparse changed arguments to parse them one kind at a time."""

    def error(self, message: str) -> NoReturn:
        hint, message = f"usage: {self.usage_line or usage(self)}", self._in_plain_words(message)
        if message.startswith("unrecognized arguments:") and "PATH" in "".join(getattr(self, "usage_end", ())):
            hint = f"put -- before paths; {hint}"
        raise WrongUsage(why=message, hint=hint)

    def _in_plain_words(self, message: str) -> str:
        names = {each.dest: placeholder(each) for each in self._actions}
        if choice := _CHOICE.fullmatch(message):
            choices = choice[3].replace("'", "")
            option = f"{choice[1]} " if choice[1].startswith("-") else ""
            return f"{option}{choice[2]} is none of {choices}"
        if number := _NUMBER.fullmatch(message):
            kind = "whole number" if number[2] == "int" else "number"
            return f"{number[1]} {number[3]} is not a {kind}"
        if message.startswith(_REQUIRED):
            needed = message.removeprefix(_REQUIRED).split(", ")
            return f"missing: {', '.join(names.get(each, each) for each in needed)}"
        return message
