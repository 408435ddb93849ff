"""Answer one line of /rollback for a chat program.

Made for those that can only run commands. Numbers mean the list as it was last shown in this
project. It never asks: a rollback can itself be taken back. `shadowsnap rollback help` tells what a
line can say.
"""

from __future__ import annotations

import argparse
import shlex

from shadowsnap.cli.context import Context

GROUP = "going back"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="WORD", nargs="*", help="what follows /rollback in the chat")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--chat", action="store_true", help="bring back the conversation, and leave the files")
    parts.add_argument("--files", action="store_true", help="bring back the files (this is the default)")
    parts.add_argument("--both", action="store_true", help="bring back files and conversation")


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.agents.slash import RollbackCommand, read_shown, write_shown
    from shadowsnap.errors import ShadowsnapError

    command = RollbackCommand(context.manager, context.workdir)
    command.shown = read_shown(context.manager, context.workdir)
    # Some programs hand over the line as one word.
    line = args.words[0] if len(args.words) == 1 else shlex.join(args.words)
    line += "".join(f" --{part}" for part in ("chat", "files", "both") if getattr(args, part))
    answer = command.run(line)
    write_shown(context.manager, context.workdir, command.shown)
    code = 0 if answer.ok else answer.error.exit_code if isinstance(answer.error, ShadowsnapError) else 1
    return context.ui.answer(answer.to_dict(), str(answer), code=code)
