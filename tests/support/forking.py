"""The program in a forked child: a process of its own with real descriptors, as people and agents run it, but
without the tenth of a second that Python takes to start."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryFile
from typing import Any

from shadowsnap.__main__ import main


def run_program(
    *words: str | bytes,
    stdin: bytes = b"",
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    check: bool = False,
) -> CompletedProcess[bytes]:
    """What `python -m shadowsnap` with these words does, and what it writes."""
    done = run_child(program(*words), stdin=stdin, cwd=cwd, env=env)
    if check:
        assert done.returncode == 0, done
    return done


def run_child(
    run: Callable[[], Any],
    stdin: bytes = b"",
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> CompletedProcess[bytes]:
    """A function in a child to its end. Its output goes to files: what it leaves behind keeps nobody waiting."""
    with TemporaryFile() as asked, TemporaryFile() as out, TemporaryFile() as err:
        asked.write(stdin)
        asked.seek(0)
        child = start_child(run, (asked.fileno(), out.fileno(), err.fileno()), cwd, env)
        code = exit_code(child)
        for file in (out, err):
            file.seek(0)
        return CompletedProcess([], code, out.read(), err.read())


def program(*words: str | bytes) -> Callable[[], int]:
    """For a child to run."""

    def run() -> int:
        sys.argv = ["shadowsnap", *map(os.fsdecode, words)]
        return main()

    return run


def start_child(
    run: Callable[[], Any],
    descriptors: Sequence[int],
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], object] = lambda: None,
) -> int:
    """The id of the child; its input, output and errors are the three descriptors."""
    with warnings.catch_warnings():
        # The test runner has threads; none of them matters to a child that only runs and exits.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child != 0:
        return child
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        prepare()
        if cwd is not None:
            os.chdir(cwd)
        if env is not None:
            os.environ.clear()
            os.environ.update(env)
        code = _as_the_interpreter_does(run)
    finally:
        os._exit(code)


def _as_the_interpreter_does(run: Callable[[], Any]) -> int:
    """New streams, Ctrl-C as an exception, and an exit code of whatever ends the program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    try:
        code = run()
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    return code if isinstance(code, int) else int(code is not None)


def exit_code(child: int, seconds: float = 60) -> int:
    """Wait for the end of a child; it is killed if that does not come."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        raise AssertionError("the child does not end")
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
