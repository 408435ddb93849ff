"""The first snapshot of a project, taken in the background: `python -m shadowsnap.warmup
SETTINGS DIRECTORY`.

A large project takes longer than a tool call may wait; every later snapshot starts from this one.
It works in short rounds, each of which goes on where the last one stopped. A snapshot that comes
meanwhile has its turn after the round, and goes on from there too.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from time import sleep

from shadowsnap.errors import DeadlineExceeded, LockTimeout, ShadowsnapError
from shadowsnap.files import make_private_folder
from shadowsnap.git.process import start_detached
from shadowsnap.git.repository import sealed_environment
from shadowsnap.manager import CheckpointManager
from shadowsnap.settings import Settings, settings_from_text, settings_to_text

_ROUND_SECONDS = 2.0
_PAUSE_SECONDS = 0.2
_MOST_ROUNDS = 150


def start_warmup(settings: Settings, workdir: Path) -> bool:
    """Start a process that goes on by itself; whether that was possible."""
    base = settings.resolved_base()
    make_private_folder(base)
    text = settings_to_text(replace(settings, base=base))
    environment = sealed_environment()
    return start_detached("shadowsnap.warmup", text, str(workdir), cwd=base, environment=environment)


def main(arguments: list[str]) -> int:
    if hasattr(os, "nice"):
        os.nice(10)
    manager = CheckpointManager()
    manager.settings = replace(settings_from_text(arguments[0]), deadline=_ROUND_SECONDS)
    for _ in range(_MOST_ROUNDS):
        try:
            manager.take_first(arguments[1])
        except (DeadlineExceeded, LockTimeout):
            sleep(_PAUSE_SECONDS)
        except (ShadowsnapError, OSError):
            return 1  # refused, or a problem that the next snapshot will tell of
        else:
            return 0
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
