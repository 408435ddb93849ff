"""A git process started by `subprocess`: on Windows, and where `posix_spawn` does not work."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.git.process import kill_without_reaping

if sys.platform == "win32":
    _OPTIONS = {"creationflags": subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP}
else:
    # In its own session, git does not get Ctrl-C from the terminal; we end it in good order.
    _OPTIONS = {"start_new_session": True}


class Opened(subprocess.Popen[bytes]):
    def __init__(
        self,
        executable: str,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        with_stdin: bool = False,
        with_stderr: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        super().__init__(  # type: ignore[call-overload]
            [executable, *arguments],
            stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if with_stderr else subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            pass_fds=tuple(inherited) if sys.platform != "win32" else (),
            **_OPTIONS,
        )

    @contextmanager
    def ending_at(self, deadline: Deadline) -> Iterator[None]:
        """In this block, reading the output ends at the deadline: the process is killed then."""
        left = deadline.remaining()
        if left is None:
            yield
            return
        watchdog = threading.Timer(left, kill_without_reaping, [self])
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            watchdog.join()

    def exchange(self, data: bytes, deadline: Deadline, doing: str) -> tuple[bytes, bytes]:
        """Send the input, read output and errors, and wait for the end of the process."""
        while True:
            # After a timeout, a second `communicate` would lose the input that was not sent yet.
            patience = deadline.remaining() if data else deadline.patience()
            try:
                return self.communicate(data or None, timeout=patience)
            except subprocess.TimeoutExpired:
                if data:
                    raise deadline.exceeded(doing) from None
            deadline.check(doing)
