"""Find the turn that broke something, by running a command.

Each state is written into a scratch directory and COMMAND runs there; the project itself is not touched. Exit
code 0 means good, 125 that the state cannot be tested, anything else bad. What a restore took back is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from shadowsnap.cli.context import Context
from shadowsnap.cli.text import one_line
from shadowsnap.errors import BisectFailed, WrongUsage

if TYPE_CHECKING:
    import subprocess

    from shadowsnap.model import Bisection, Probe

GROUP = "taking and looking"

_SECONDS = 600.0
_SHELL_TROUBLE = (126, 127)
_ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--good", metavar="REF", help="a state in which COMMAND succeeds")
    parser.add_argument("--bad", metavar="REF", help="a later state in which it fails; else the files as now")
    parser.add_argument("--all", action="store_true", help="test every state, from --good or the oldest on")
    longest = f"a command that takes longer has failed; {_SECONDS:g} if not given"
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=_SECONDS, help=longest)
    parser.set_defaults(paths=[])
    parser.usage_end = ["-- COMMAND"]  # type: ignore[attr-defined]


def run(args: argparse.Namespace, context: Context) -> int:
    from shadowsnap.questions import BEGINNING

    ui, words = context.ui, list(args.paths)
    if not words:
        raise WrongUsage(why="which command? it stands after --: bisect --good 3 -- pytest -q")
    if args.good is None and not args.all:
        raise WrongUsage(why="--good is missing: a state in which the command succeeds")
    good = context.checkpoint(args.good).id if args.good is not None else None
    bad = context.checkpoint(args.bad).id if args.bad not in (None, "@") else None

    def check(folder: Path, name: str) -> int | None:
        ui.say(f"testing the state after {name} ..." if name != BEGINNING else "testing the first state ...")
        status = run_in(words, folder, args.timeout, quiet=ui.json)
        ui.say(f"  {'it took too long' if status is None else f'exit code {status}'}")
        return status

    with ending_by_signals():
        found = context.manager.bisect(context.workdir, good, bad, check=check, test_all=args.all)
    if found.culprit is None and not args.all:
        names = ", ".join(probe.name for probe in found.candidates)
        raise BisectFailed(why=f"some states could not be tested; it is one of: {names}")
    return ui.answer(found.to_dict(), _lines(found, table=args.all))


def run_in(words: Sequence[str], folder: Path, seconds: float, *, quiet: bool) -> int | None:
    """Run a command in a directory; its exit code, or None if it took too long. All that it started ends with
    it."""
    import subprocess  # the help of all commands imports this module

    command = list(words)
    if len(command) == 1 and len(command[0].split()) > 1 and shutil.which(command[0]) is None:
        command = ["/bin/sh", "-c", command[0]]  # a whole line in one word
    output = subprocess.DEVNULL if quiet else sys.stderr
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "PWD": str(folder)}, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        return _SHELL_TROUBLE[1]
    except OSError:
        return _SHELL_TROUBLE[0]
    try:
        return process.wait(seconds if seconds > 0 else None)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command with all that it started."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass  # all of it has ended
    else:
        process.kill()
    process.wait()


@contextmanager
def ending_by_signals() -> Iterator[None]:
    """Let signals that would end us at once be exceptions, so that scratch directories are removed."""

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lines(found: Bisection, *, table: bool) -> Iterator[str]:
    if table:
        wide = max(len(probe.name) for probe in found.probes)
        for probe in found.probes:
            status = "too long" if probe.status is None else f"exit {probe.status}"
            yield f"{probe.verdict:7}  {status:8}  {probe.name:{wide}}  {one_line(probe.prompt or '')}".rstrip()
    if found.culprit is not None:
        yield f"{_in_words(found.culprit)} broke it"
        if found.culprit.number is not None:
            yield f"to see what it did: shadowsnap diff {found.culprit.number}"
    elif table:
        yield "the command succeeds in the last state that could be tested, or in none"


def _in_words(probe: Probe) -> str:
    about = ", ".join(filter(None, (one_line(probe.agent or ""), one_line(probe.prompt or ""))))
    return f"{probe.name} ({about})" if about else probe.name
