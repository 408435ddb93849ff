"""Answer one line of /rollback for a chat program.

Made for programs that can only run commands. It never asks: a rollback can itself be taken back. The answer also
says what is wrong with a line, and the exit code is 0 then too: agents hide the output of a command that fails.
`shadowsnap rollback help` has the whole grammar.
"""

from __future__ import annotations

import argparse
import shlex

from shadowsnap.cli.context import Context

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="*", help="what follows /rollback in the chat")
    parser.add_argument("--chat", action="store_true", help="bring back the conversation, and leave the files")
    parser.add_argument("--files", action="store_true", help="bring back the files (this is the default)")
    parser.add_argument("--both", action="store_true", help="bring back files and conversation")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.agents.slash import RollbackCommand

    # Some programs hand over the line as one word.
    line = args.words[0] if len(args.words) == 1 else shlex.join(args.words)
    line += "".join(f" --{part}" for part in ("chat", "files", "both") if getattr(args, part))
    answer = RollbackCommand(context.manager, context.workdir).run(line)
    return context.ui.answer(answer.to_dict(), str(answer))
