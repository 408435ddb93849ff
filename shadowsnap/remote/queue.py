"""Working off the queue of projects with unpushed work, in a process of its own.

There is at most one such process for a store. It pushes what is due, rests at least 30 seconds between two rounds,
and ends when nothing is due soon. A push that fails is tried again later and later, and waits behind the others.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from shadowsnap.deadline import Deadline
from shadowsnap.errors import NoRemote, NoSuchProject, ShadowsnapError
from shadowsnap.files import read_json
from shadowsnap.remote.push import push
from shadowsnap.settings import Settings, settings_from_text
from shadowsnap.store.lanes import Waiting, folder, read_queue, remove_waiting, write_waiting
from shadowsnap.store.layout import Store, open_store
from shadowsnap.store.locks import if_free, is_free
from shadowsnap.store.projects import project_of

EVERY_SECONDS = 30.0
_PATIENCE_SECONDS = 150.0
"""What is due later than that is left to the next turn."""
_LONGEST_REST = 3600.0


def is_worked_off(store: Store) -> bool:
    """Whether a process is at work on the queue: it finds what is put there."""
    return not is_free(_lock(store))


def work_off(
    store: Store,
    settings: Settings,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> int:
    """Push everything that is due; how many pushes succeeded. Returns at once if another process is at it."""
    done = 0
    while _due_soon(store, now()):
        with if_free(_lock(store), "pushing") as lock:
            if lock is None:
                return done
            while waiting := _due_soon(store, now()):
                rest = min(_seconds_left(each, now()) for each in waiting)
                pause = max(rest, _last_round(store) + EVERY_SECONDS - now())
                if pause > 0:
                    sleep(min(pause, _PATIENCE_SECONDS))
                _begin_round(store, now())
                for each in read_queue(store):
                    if _seconds_left(each, now()) <= 0:
                        done += _push(store, settings, each, now)
        # What was put there after the last look and before the lock was free is found by looking again.
    return done


def _due_soon(store: Store, now: float) -> list[Waiting]:
    return [each for each in read_queue(store) if _seconds_left(each, now) <= _PATIENCE_SECONDS]


def _seconds_left(waiting: Waiting, now: float) -> float:
    """How long something rests. More than the longest rest means that the clock was set back: it is due."""
    left = waiting.due - now
    return left if left <= _LONGEST_REST else 0.0


def _push(store: Store, settings: Settings, waiting: Waiting, now: Callable[[], float]) -> bool:
    workdir = (read_json(store.project_file(waiting.project)) or {}).get("workdir")
    try:
        if not isinstance(workdir, str):
            raise NoSuchProject(workdir=waiting.project)
        push(store, project_of(workdir), Deadline(settings.upkeep_deadline))
    except (NoRemote, NoSuchProject):
        remove_waiting(store, waiting)  # the person took it back
        return False
    except (ShadowsnapError, OSError) as problem:
        attempts = waiting.attempts + 1
        rest = min(_LONGEST_REST, EVERY_SECONDS * 2**attempts)
        write_waiting(store, replace(waiting, attempts=attempts, due=now() + rest, error=str(problem)[:500]))
        return False
    return True


def _lock(store: Store) -> Path:
    folder(store).mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder(store) / "queue.lock"


def _marker(store: Store) -> Path:
    return folder(store) / "last-round"


def _last_round(store: Store) -> float:
    try:
        return min(float(_marker(store).read_text("ascii")), time.time())
    except (OSError, ValueError):
        return 0.0


def _begin_round(store: Store, now: float) -> None:
    _marker(store).write_text(f"{now}\n", "ascii")


def main(arguments: list[str]) -> int:
    settings = settings_from_text(arguments[0])
    if hasattr(os, "nice"):
        os.nice(10)
    work_off(open_store(settings), settings)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
