"""The command line, from its words to the exit code. Only the module of the command that runs is imported."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from shadowsnap import __version__
from shadowsnap.cli.commands import (
    Context,
    command_parser,
    load_command,
    parse,
    split_words,
    takes_paths,
    top_help,
)
from shadowsnap.cli.ui import Ui
from shadowsnap.errors import Interrupted, NoSuchProject, OutputFailed, ShadowsnapError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and raises nothing."""
    words = list(sys.argv[1:] if argv is None else argv)
    _replace_closed_streams()
    options = _before_dashes(words)
    ui = Ui(json="--json" in options, plain="--no-color" in options)
    try:
        code = _run(words, ui)
        ui.flush()
        return code
    except BrokenPipeError:  # the reader of our output has left
        _discard_output()
        return 0
    except SystemExit as end:  # argparse, after --help
        return end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        return _fail(ui, Interrupted())
    except Exception as problem:
        return _fail(ui, problem)


def _run(words: list[str], ui: Ui) -> int:
    directories, name, rest = split_words(words)
    if name == "--version":
        return ui.answer({"version": __version__}, f"shadowsnap {__version__}")
    if name in ("-h", "--help"):
        return ui.answer({"help": top_help()}, top_help())
    command = load_command(name or "list")
    parser = command_parser(command)
    if ui.json and {"-h", "--help"} & set(_before_dashes(rest)):
        return ui.answer({"help": parser.format_help()})
    args = parse(parser, rest)
    context = Context(ui, [*directories, *args.directory])
    context.takes_paths = takes_paths(parser)
    try:
        return command.run(args, context) or 0
    except NoSuchProject:
        if name or not ui.on_terminal:
            raise
        from shadowsnap.cli.commands.timeline import show_first_steps  # commands are imported only if they run

        return show_first_steps(context)
    finally:
        context.show_warnings()


def _before_dashes(words: list[str]) -> list[str]:
    return words[: words.index("--")] if "--" in words else words


def _fail(ui: Ui, problem: BaseException) -> int:
    """Show an error, and nothing else on stdout; returns the exit code."""
    if isinstance(problem, ShadowsnapError):
        record, code = problem.to_dict(), problem.exit_code
    else:
        known = isinstance(problem, OSError)
        hint = "" if known else "this should not happen; SHADOWSNAP_DEBUG=1 shows where it did"
        record, code = {"type": type(problem).__name__, "message": str(problem), "hint": hint}, 1
    if isinstance(problem, OutputFailed):
        ui.json = False  # stdout does not work: stderr may
    try:
        if os.environ.get("SHADOWSNAP_DEBUG"):
            ui.say("".join(traceback.format_exception(problem)))
        ui.show_error(record)
        ui.flush()
    except (OSError, OutputFailed):  # stdout or stderr may be what failed
        _discard_output()
    return code


def _replace_closed_streams() -> None:
    """Without an output (`>&-`) the command runs all the same, and prints nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """Discard what could not be written: the interpreter would try again at its end, and print an error."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # not a real stream
