"""The output of a command, its progress, its questions, and the pager.

stdout is data, stderr is talk. With --json, stdout is one object and there is no talk.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from shutil import get_terminal_size, which
from typing import Any, TextIO

from shadowsnap import deadline
from shadowsnap.cli.text import encodable, safe
from shadowsnap.errors import NotConfirmed, OutputFailed
from shadowsnap.git.repository import safe_search_path

SCHEMA = 2

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36}


class Ink:
    """Colours text, if it is on."""

    def __init__(self, on: bool) -> None:
        self.on = on

    def __call__(self, style: str, text: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.on and text.strip() else text


class Ui:
    def __init__(self, *, json: bool = False, plain: bool = False) -> None:
        self.json = json
        self.ink = Ink(_use_colour(sys.stdout, plain or json))
        self.talk_ink = Ink(_use_colour(sys.stderr, plain or json))
        self._in_progress = False

    # --- data --------------------------------------------------------------------------------

    def answer(self, data: dict[str, Any], text: str | Iterable[str] = (), code: int = 0) -> int:
        """The one answer of a command, as an object or as lines; returns the exit code."""
        if self.json:
            # ASCII: bytes that are not UTF-8 survive as escaped surrogates on any stream.
            self._write(sys.stdout, json.dumps({"schema": SCHEMA, **data}, default=_as_json) + "\n")
            return code
        lines = [text] if isinstance(text, str) else list(text)
        self.end_progress()
        self._write(sys.stdout, "".join(f"{line}\n" for line in lines))
        return code

    def raw(self, data: bytes) -> None:
        """Write bytes as they are; on a terminal, control characters are shown as escapes."""
        sys.stdout.flush()
        if self.on_terminal:
            self._write(sys.stdout, safe(data.decode("utf-8", "surrogateescape"), keep="\n\t\r"))
        elif hasattr(sys.stdout, "buffer"):
            with _output_failures():
                sys.stdout.buffer.write(data)
        else:  # a host program captures the output as text
            sys.stdout.write(data.decode("utf-8", "surrogateescape"))

    def page(self, text: str) -> None:
        """Show harmless text; on a terminal through the person's pager."""
        if not self.on_terminal or not _paged(encodable(text, sys.stdout.encoding)):
            self._write(sys.stdout, text)

    # --- talk --------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        if not self.json:
            self.end_progress()
            self._write(sys.stderr, f"{text}\n")

    def progress(self, text: str) -> None:
        """Show that something takes long. On a terminal the next line overwrites this one."""
        if self.json or not text:
            return
        if self.redraws:
            self._write(sys.stderr, f"\r\x1b[K{safe(text)}")
            sys.stderr.flush()
            self._in_progress = True
        else:
            self.say(safe(text))

    @property
    def redraws(self) -> bool:
        """Whether a line on stderr can be overwritten."""
        return _is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"

    def end_progress(self) -> None:
        if self._in_progress:
            self._in_progress = False
            self._write(sys.stderr, "\r\x1b[K")
            sys.stderr.flush()

    def show_error(self, record: dict[str, str]) -> None:
        """Show an error on stderr; with --json it is the answer."""
        if self.json:
            self.answer({"error": record})
            return
        self.say(f"{self.talk_ink('red', 'error:')} {safe(record['message'], keep=chr(10))}")
        if record["hint"]:
            self.say(f"{self.talk_ink('cyan', 'hint:')} {safe(record['hint'], keep=chr(10))}")

    @property
    def interactive(self) -> bool:
        """Whether there is a person to ask."""
        return not self.json and _is_terminal(sys.stdin) and _is_terminal(sys.stderr)

    def ask(self, question: str) -> str:
        """One line from the person, empty at the end of input."""
        self.end_progress()
        self._write(sys.stderr, question)
        sys.stderr.flush()
        try:
            _wait_for_line()
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            self.say("")  # the message would stand behind the question
            raise
        if not answer:
            self.say("")
        return answer.strip()

    def confirm(self, question: str, plan: Iterable[str], otherwise: str) -> bool:
        """Show a plan and ask; False if the person declines. `otherwise` says what would happen, for the error
        where there is no terminal to ask on."""
        if not self.interactive:
            raise NotConfirmed(why=f"{otherwise}, and there is no terminal to ask on")
        for line in plan:
            self.say(line)
        return self.ask(f"{question} [y/N] ").lower() in ("y", "yes")

    def cancelled(self) -> int:
        """The answer after the person declined, which is no error."""
        self.say("cancelled; nothing was changed")
        return self.answer({"cancelled": True})

    # --- the terminal ------------------------------------------------------------------------

    @property
    def on_terminal(self) -> bool:
        return not self.json and _is_terminal(sys.stdout)

    @property
    def width(self) -> int:
        return max(40, get_terminal_size((80, 24)).columns)

    @property
    def height(self) -> int:
        return max(10, get_terminal_size((80, 24)).lines)

    def flush(self) -> None:
        with _output_failures():
            sys.stdout.flush()
            sys.stderr.flush()

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        with _output_failures():
            stream.write(encodable(text, stream.encoding))


@contextmanager
def _output_failures() -> Iterator[None]:
    """A full disk is an error of the output, not of what the command did. A reader that left is neither."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise OutputFailed(why=problem.strerror or problem) from problem


def _as_json(value: Any) -> Any:
    """Records as objects, moments in ISO form, paths and other things as text."""
    method = getattr(value, "to_dict", None) or getattr(value, "isoformat", None)
    return str(value) if method is None else method()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def _wait_for_line() -> None:
    """Wait until there is something to read. A plain read would miss a Ctrl-C that comes between the question and
    the read."""
    readable, writable = os.pipe()
    try:
        os.set_blocking(writable, False)
        outer = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        try:
            select.select([sys.stdin, readable], [], [])
        finally:
            signal.set_wakeup_fd(outer)
    except (OSError, ValueError):
        pass  # not in the main thread, or on Windows, where only sockets can be waited for
    finally:
        os.close(readable)
        os.close(writable)


def _use_colour(stream: TextIO | None, plain: bool) -> bool:
    if plain or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    if sys.platform == "win32" and not ({"WT_SESSION", "ANSICON", "TERM"} & os.environ.keys()):
        return False  # an old console would show the codes
    return _is_terminal(stream) and os.environ.get("TERM") != "dumb"


def _paged(text: str) -> bool:
    """Show text through the pager; False if there is none."""
    # A project in which this is run may have a program that is called like the pager.
    search_path = safe_search_path(os.environ.get("PATH", os.defpath))
    less = "less" if which("less", path=search_path) else ""
    pager = os.environ.get("GIT_PAGER", os.environ.get("PAGER", less))
    if pager in ("", "cat"):
        return False
    sys.stdout.flush()
    # As git does: quit if it fits the screen, pass colours on, leave the text on the screen.
    environment = {"LESS": "FRX", "LV": "-c", **os.environ, "PATH": search_path}
    return run_pager(pager, text.encode(sys.stdout.encoding or "utf-8"), environment)


def run_pager(command: str, text: bytes, environment: Mapping[str, str]) -> bool:
    """Run the pager until it is left; False if it could not be started."""
    try:
        # Like git: the setting is a command line of the shell, which may have arguments.
        pager = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=dict(environment))
    except OSError:
        return False
    assert pager.stdin is not None
    try:
        pager.stdin.write(text)
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # the pager was left before all of it was written
    while True:
        try:
            pager.stdin.close()
        except BrokenPipeError:
            pass
        except KeyboardInterrupt:
            continue
        break
    while True:
        try:
            return pager.wait() not in (126, 127)  # the shell's "cannot be run" and "not found"
        except KeyboardInterrupt:
            continue  # the pager handles Ctrl-C as long as it runs


Update = Callable[[int, int], None]
"""Called with how many are done, of how many."""

_QUIET_SECONDS = 0.5
_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def working(ui: Ui, title: str) -> Iterator[Update]:
    """Show progress on stderr once the block has taken half a second. On a terminal the line is drawn again each
    second, elsewhere every five."""
    if ui.json:
        yield lambda done, total: None
        return
    counted, over, began = " ...", threading.Event(), time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal counted
        counted = f": {done} of {total}"

    def show() -> None:
        over.wait(_QUIET_SECONDS)
        while not over.is_set():
            seconds = int(time.monotonic() - began)
            ui.progress(f"{title}{counted}{f' {seconds} s' if seconds else ''}")
            over.wait(1.0 if ui.redraws else _SECONDS_BETWEEN_LINES)

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield update
    finally:
        over.set()
        thread.join()
        ui.end_progress()


# --- Ctrl-C while files are changed: all or nothing ----------------------------------------------------------

_FILE_STEPS = ("restore:deleted-one", "restore:wrote-one")


@contextmanager
def interrupt_safely(update: Update = lambda done, total: None, total: int = 0) -> Iterator[None]:
    """Within this block, Ctrl-C interrupts a restore only between two files, where everything done so far can be
    put back; it interrupts neither the putting back, nor what follows the last file. `update` is called after each
    of `total` files."""
    outer, done = deadline.step_listener, 0
    applying = interrupted = False

    def on_signal(*_: object) -> None:
        nonlocal interrupted
        if not applying:
            raise KeyboardInterrupt
        interrupted = True

    def on_step(name: str) -> None:
        nonlocal applying, interrupted, done
        if outer is not None:
            outer(name)
        if name in _FILE_STEPS and done < total:
            done += 1
            update(done, total)
        if name in ("restore:applying", *_FILE_STEPS):
            applying = True
            if interrupted:
                raise KeyboardInterrupt
        elif name == "restore:cleaned":
            applying = interrupted = False

    # Only the main thread may decide what a signal does; a handler that is not Python's own is a host's choice.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    deadline.step_listener = on_step
    try:
        if ours:
            signal.signal(signal.SIGINT, on_signal)
        yield
    finally:
        deadline.step_listener = outer
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
