"""A thread for what nobody should wait for."""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from threading import Thread

_PATIENCE_SECONDS = 30.0


class Scribe:
    """Does jobs one after the other beside the program. The program does not end before they do."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._jobs: list[Callable[[], None]] = []
        self._thread: Thread | None = None

    def later(self, job: Callable[[], None]) -> None:
        import threading  # most programs of ours end without it

        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a fork leaves it behind
                thread = threading.Thread(target=self._work, name="shadowsnap-scribe")
                self._jobs = [job]
                thread.start()
                self._thread = thread
            else:
                self._jobs.append(job)

    def wait(self) -> None:
        thread = self._thread
        if thread is not None and thread.ident != get_ident():
            thread.join(_PATIENCE_SECONDS)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.pop(0)
            job()
