"""From words to arguments: the options before the command by hand, the rest by argparse."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from difflib import get_close_matches
from textwrap import wrap
from typing import NoReturn

from shadowsnap.cli.commands import GROUPS, Command, command_names, load_all
from shadowsnap.errors import WrongUsage

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


class FirstWords:
    """What stands before the command, the command (empty: there is none), and what follows it."""

    def __init__(self) -> None:
        self.directories: list[str] = []
        self.command = ""
        self.rest: list[str] = []
        self.wants_help = False
        self.wants_version = False


def split_words(words: Sequence[str]) -> FirstWords:
    first, left = FirstWords(), list(words)
    while left:
        word = left.pop(0)
        if word in ("-h", "--help"):
            first.wants_help = True
            return first
        elif word == "--version":
            first.wants_version = True
            return first
        elif word in ("--json", "--no-color"):
            continue  # the Ui has seen them
        elif word == "-C":
            if not left:
                raise _wrong("-C needs a directory", USAGE)
            first.directories.append(left.pop(0))
        elif word.startswith("-C"):
            first.directories.append(word[2:])
        elif word.startswith("-"):
            raise _wrong(f"there is no option {word}", USAGE)
        else:
            first.command, first.rest = word, left
            return first
    return first


def command_parser(command: Command) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"shadowsnap {command.name}",
        description=_narrow(command.description),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    shared = parser.add_argument_group("options of every command")
    shared.add_argument("-C", dest="directory", metavar="DIR", action="append", default=[], help=_help("-C DIR"))
    shared.add_argument("--json", action="store_true", help=_help("--json"))
    shared.add_argument("--no-color", action="store_true", help=_help("--no-color"))
    parser.usage = _narrow(usage(parser), _WIDTH - len("usage: "), " " * 9)
    return parser


def _narrow(text: str, width: int = _WIDTH, indent: str = "") -> str:
    """Paragraphs for a terminal of 80 columns."""
    parts = [
        "\n".join(wrap(part, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
        for part in text.split("\n\n")
    ]
    return "\n\n".join(parts)


def parse(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace:
    """Options may stand anywhere; everything after -- is a path."""
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
    """The usage in one line, without what every command has."""
    parts = [positional_usage(action) for action in parser._actions if not action.option_strings]
    parts += [option_usage(action) for action in own_options(parser)]
    return " ".join([parser.prog, *parts, *getattr(parser, "usage_end", ())])


def own_options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions
        if action.option_strings and action.dest not in ("help", "directory", "json", "no_color")
    ]


def option_usage(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {placeholder(action)}"
    return f"[{action.option_strings[0]}{value}]"


def positional_usage(action: argparse.Action) -> str:
    word = placeholder(action)
    shapes = {"?": f"[{word}]", "*": f"[{word}...]", "+": f"{word}..."}
    return shapes.get(str(action.nargs), word)


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


def unknown_command(word: str) -> WrongUsage:
    close = get_close_matches(word, command_names(), 1)
    problem = WrongUsage(why=f"there is no command {word!r}")
    problem.hint = f"did you mean {close[0]}?" if close else "shadowsnap help lists the commands"
    return problem


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _wrong(message, usage(self))


def _wrong(why: str, how: str) -> WrongUsage:
    problem = WrongUsage(why=why)
    problem.hint = f"usage: {how}"
    return problem


def _help(option: str) -> str:
    return dict(GLOBAL_OPTIONS)[option]
