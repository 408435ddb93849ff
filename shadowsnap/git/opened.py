"""A git process by means of `subprocess`: on Windows, and wherever it cannot be spawned."""

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
    # A session of its own: Ctrl-C in the terminal reaches us, and we end git in good order.
    _OPTIONS = {"start_new_session": True}


class Opened(subprocess.Popen[bytes]):
    def __init__(
        self,
        executable: str,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        folder: Path | None = None,
        *,
        talks: bool = False,
        heard: bool = True,
        inherited: Sequence[int] = (),
    ) -> None:
        super().__init__(  # type: ignore[call-overload]
            [executable, *arguments],
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if heard else subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            pass_fds=tuple(inherited) if sys.platform != "win32" else (),
            **_OPTIONS,
        )

    @contextmanager
    def ending_at(self, deadline: Deadline) -> Iterator[None]:
        """Inside, whoever waits for an answer has it, or the end of it, by the deadline."""
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
        """Hand over the input, hear what is printed, and wait for the end."""
        while True:
            # Python loses what was not sent yet when it is asked to go on after a timeout.
            patience = deadline.remaining() if data else deadline.patience()
            try:
                return self.communicate(data or None, timeout=patience)
            except subprocess.TimeoutExpired:
                if data:
                    raise deadline.exceeded(doing) from None
            deadline.check(doing)
